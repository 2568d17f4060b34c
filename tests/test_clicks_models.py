"""Click models against independent ones in plain Python, on made-up logs and on a real one."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from querywise.clicks.identifiable import what_is_known
from querywise.clicks.impressions import Impressions, together
from querywise.clicks.models import MODELS, ClickModel, Prior, compare_models, fit_model, fitted_prior, quality_of
from querywise.clicks.readers import read_clicks
from tests.clicking import Page, Plain, made_log, made_pages, pages_of, plain_perplexity, theta_of

YANDEX = Path(__file__).parents[2] / "shared" / "data" / "clicks" / "yandex"


def plain_of(model: ClickModel, log: Impressions) -> Plain:
    """The independent models with the priors of a fitted one."""
    return Plain(pages_of(log), *model.prior, *model.satisfaction)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_that_of_its_formula(name: str, tmp_path: Path) -> None:
    log = made_log(tmp_path, made_pages(queries=6, pages=60, swaps=0.5))
    earlier, later = log.split()
    model = fit_model(earlier, name)
    expected = plain_of(model, earlier).marginals(name, pages_of(later))
    flat = np.array([chance for row in expected for chance in row])
    assert np.abs(np.clip(model.chances(later).marginal, 0, 1) - np.clip(flat, 0, 1)).max() < 0.01


@pytest.mark.parametrize("name", MODELS)
def test_chances_given_clicks_are_those_of_whole_pages(name: str, tmp_path: Path) -> None:
    """Over all ways to click on a page, the chances of the clicks in turn sum to 1, and give the chance of each."""
    log = made_log(tmp_path, made_pages(queries=3, documents=4, pages=50, swaps=0.5))
    model = fit_model(log, name)
    page = log.select(np.zeros(16, np.int64))
    clicked = np.array([[way >> place & 1 for place in range(4)] for way in range(16)], bool)
    every = replace(page, clicked=clicked.ravel())
    found = model.chances(every)
    whole = np.where(clicked.ravel(), found.given, 1 - found.given).reshape(16, 4).prod(axis=1)
    assert whole.sum() == pytest.approx(1, abs=1e-9)
    assert (whole @ clicked) == pytest.approx(found.marginal[:4], abs=1e-9)


def test_examination_is_found_again(tmp_path: Path) -> None:
    log = made_log(tmp_path, made_pages(queries=40, pages=150, swaps=0.8, eta=1.0))
    model = fit_model(log, "pbm")
    error = what_is_known(log).error
    assert error[1:].max() < 0.15
    assert (np.abs(np.log(model.theta[1:] / theta_of(1.0, 5))) <= 4 * error).all()


def test_the_prior_is_found_again() -> None:
    chance = np.random.default_rng(0)
    out_of = chance.integers(1, 60, 4_000).astype(float)
    won = chance.binomial(out_of.astype(int), chance.beta(2.0, 6.0, 4_000)).astype(float)
    found = fitted_prior(won, out_of)
    assert found.mean == pytest.approx(0.25, abs=0.02)
    assert 6 < found.a + found.b < 10.5


def test_models_of_another_kind_predict_clicks_worse(tmp_path: Path) -> None:
    log = made_log(tmp_path, made_pages(queries=20, pages=120, swaps=0.9, eta=0.5))
    found = compare_models(log, MODELS)
    others = ("position-ctr", "document-ctr", "cascade", "dcm", "sdbn", "dbn")
    assert found["pbm"].likelihood > max(found[name].likelihood for name in others)
    assert found["pbm"].perplexity < found["position-ctr"].perplexity


def test_a_given_prior_is_kept(tmp_path: Path) -> None:
    log = made_log(tmp_path, made_pages(queries=3, pages=10))
    for name in ("pbm", "ubm", "dbn", "sdbn", "document-ctr"):
        assert fit_model(log, name, Prior(2.0, 5.0)).prior == (2.0, 5.0)


@functools.cache
def real_pages() -> tuple[Impressions, Impressions, list[Page], list[Page]]:
    """Training and test pages, as arrays and as lists."""
    train, test = together(read_clicks(YANDEX / "train.tsv.gz"), read_clicks(YANDEX / "test.tsv.gz"))
    return train, test, pages_of(train), pages_of(test)


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.xdist_group("real-clicks")
@pytest.mark.parametrize("name", MODELS)
def test_perplexity_on_real_pages_is_that_of_an_independent_implementation(name: str) -> None:
    train, test, pages, tested = real_pages()
    model = fit_model(train, name)
    plain = Plain(pages, *model.prior, *model.satisfaction)
    expected = plain_perplexity(plain.marginals(name, tested), tested)
    assert quality_of(model, test).perplexity == pytest.approx(expected, abs=0.002)
