"""What a log can know: fixed positions are refused a debiased number, exchanged ones are told apart, and planned."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.clicks.identifiable import Knowledge, traffic_plan, what_is_known
from querywise.clicks.impressions import Impressions
from querywise.clicks.judgments import choose_model, judge
from querywise.clicks.models import fit_model
from querywise.clicks.readers import read_clicks
from querywise.errors import DataError
from querywise.jobs.clicks import ClickOptions, learn
from tests.clicking import Page, made_log, made_pages, rows_text, theta_of
from tests.worlds import examples

UBI = Path(__file__).parents[2] / "shared" / "data" / "clicks" / "ubi" / "ubi_queries_events.ndjson.gz"


def known_of(log: Impressions) -> Knowledge:
    return what_is_known(log)


@settings(max_examples=examples(20), deadline=None)
@given(
    seed=st.integers(0, 10_000), queries=st.integers(1, 12), pages=st.integers(2, 40), eta=st.sampled_from([0, 1, 2])
)
def test_fixed_positions_are_never_debiased(seed: int, queries: int, pages: int, eta: int) -> None:
    """EM with a prior gives some θ; no document changed its position, so it says nothing."""
    with tempfile.TemporaryDirectory() as folder:
        log = made_log(Path(folder), made_pages(queries=queries, pages=pages, eta=eta, seed=seed))
        known = known_of(log)
        assert not known.known
        assert np.isinf(known.error).sum() == len(known.positions) - 1
        with pytest.raises(DataError, match="debiased judgments that this log does not support"):
            choose_model(known, {}, "pbm", given=False)
        assert choose_model(known, {"pbm": 0.0, "ubm": 0.0}, None, given=False) == "document-ctr"


@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 10_000), eta=st.sampled_from([0.0, 0.5, 1.0]))
def test_exchanged_positions_tell_the_curve_within_its_error(seed: int, eta: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pages = made_pages(queries=25, documents=4, pages=120, swaps=0.7, eta=eta, seed=seed)
        log = made_log(Path(folder), pages)
        known = known_of(log)
        assert known.known, known.reason
        assert len(np.unique(known.component)) == 1
        theta = known.theta[1:]
        truth = theta_of(eta, 4)
        gap = np.log(theta / truth) - np.log(1 / truth[known.anchor - 1])
        assert (np.abs(gap) <= 4.5 * known.error + 0.02).all()


@settings(max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    joined=st.sets(st.sampled_from(list(itertools.combinations(range(5), 2))), max_size=6),
    eta=st.sampled_from([0.0, 0.5]),
)
def test_a_log_is_debiased_exactly_where_exchanges_join_all_positions(
    seed: int, joined: set[tuple[int, int]], eta: float
) -> None:
    """Documents change places between some pairs of positions only: the graph of these decides, whatever was drawn."""
    chance, edges, pages = np.random.default_rng(seed), sorted(joined), list[Page]()
    truth = chance.beta(2, 3, (10, 5))
    for turn in range(3_000):
        query, order = turn % 10, np.arange(5)
        if edges and chance.random() < 0.8:
            one, other = edges[int(chance.integers(len(edges)))]
            order[[one, other]] = order[[other, one]]
        clicked = chance.random(5) < truth[query, order] * theta_of(eta, 5)
        pages.append((f"q{query}", [f"d{each}" for each in order], clicked.tolist()))
    with tempfile.TemporaryDirectory() as folder:
        known = known_of(made_log(Path(folder), pages))
    groups = [{place} for place in range(5)]
    for one, other in edges:
        first, second = (next(each for each in groups if place in each) for place in (one, other))
        if first is not second:
            groups = [each for each in groups if each not in (first, second)] + [first | second]
    found = [set(np.flatnonzero(known.component == each).tolist()) for each in np.unique(known.component)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, groups))
    anchored = next(each for each in groups if known.anchor - 1 in each)
    assert set(np.flatnonzero(np.isfinite(known.error)).tolist()) == anchored
    assert known.known == (len(groups) == 1), known.reason
    if known.known:
        assert choose_model(known, {}, "pbm", given=False) == "pbm"
    else:
        with pytest.raises(DataError, match="debiased judgments that this log does not support"):
            choose_model(known, {}, "pbm", given=False)


def test_a_single_exchange_is_too_little(tmp_path: Path) -> None:
    pages = made_pages(queries=5, pages=20, eta=1.0)
    query, shown, clicked = pages[0]
    pages[0] = query, [shown[1], shown[0], *shown[2:]], clicked
    known = known_of(made_log(tmp_path, pages))
    assert not known.known
    assert "only" in known.reason


def test_one_position_has_no_bias(tmp_path: Path) -> None:
    known = known_of(made_log(tmp_path, made_pages(documents=1, queries=5)))
    assert known.known
    assert "one position" in known.reason


def test_planned_traffic_gives_the_planned_error(tmp_path: Path) -> None:
    log = made_log(tmp_path, made_pages(queries=30, documents=3, pages=60, eta=0.7))
    plan = traffic_plan(log, error=0.2)
    assert [each.position for each in plan] == [1, 2]
    swaps = sum(each.pages for each in plan)
    shuffled = made_pages(queries=30, documents=3, pages=swaps // 30, swaps=0.5, eta=0.7)  # exchanged in half of them
    known = known_of(made_log(tmp_path, shuffled))
    assert 0.1 < known.error.max() < 0.3


def test_the_error_of_a_judgment_is_that_of_repeated_logs(tmp_path: Path) -> None:
    """Over many logs of the same queries the gains lie around the truth as their standard errors say."""
    truth = np.random.default_rng(99).beta(2, 3, (30, 2))
    gaps = []
    for number in range(6):
        chance = np.random.default_rng(number)
        pages: list[Page] = []
        for turn in range(1_800):
            query, order = turn % 30, chance.permutation(2)
            clicked = chance.random(2) < truth[query, order] * [1.0, 0.5]
            pages.append((f"q{query}", [f"d{each}" for each in order], clicked.tolist()))
        log = made_log(tmp_path, pages)
        found = judge(log, "pbm", known_of(log))
        queries = [int(log.queries[each][1:]) for each in found.query]
        documents = [int(log.documents[each][1:]) for each in found.document]
        gaps.append((found.gain - truth[queries, documents]) / found.error)
    assert np.std(np.concatenate(gaps)) == pytest.approx(1, abs=0.2)


def test_fall_of_relevance_is_not_taken_for_one_of_examination(tmp_path: Path) -> None:
    """Lists go by relevance, as engines' do; the judgments are nearer the truth than with one prior, and than EM's."""
    chance, pages = np.random.default_rng(5), list[Page]()
    truth = -np.sort(-chance.beta(0.6, 1.4, (150, 6)), axis=1)
    theta = theta_of(1.0, 6)
    for turn in range(4_500):
        query, order = turn % 150, np.arange(6)
        place = int(chance.integers(5))
        if chance.random() < 0.4:
            order[[place, place + 1]] = order[[place + 1, place]]
        clicked = chance.random(6) < truth[query, order] * theta
        pages.append((f"q{query}", [f"d{each}" for each in order], clicked.tolist()))
    log = made_log(tmp_path, pages)
    known, plain = what_is_known(log), fit_model(log, "pbm")
    assert np.abs(np.log(known.theta[1:] / theta)).max() < np.abs(np.log(plain.theta[1:] / theta)).max() - 0.3
    found = judge(log, "pbm", known)
    expected = truth[
        [int(log.queries[each][1:]) for each in found.query], [int(log.documents[each][1:]) for each in found.document]
    ]
    errors = [float(np.mean((each - expected) ** 2)) for each in (found.gain, plain.alpha)]
    assert errors[0] < 0.7 * errors[1]


def test_rare_documents_are_less_certain_and_nearer_the_mean(tmp_path: Path) -> None:
    pages = made_pages(queries=20, pages=80, swaps=0.6)
    pages += [("rare", ["x", "y"], [True, False]), ("rare", ["y", "x"], [False, False])]
    log = made_log(tmp_path, pages)
    found = judge(log, "pbm", known_of(log))
    rare = found.impressions == 2
    assert found.error[rare].min() > np.median(found.error[~rare])
    assert np.abs(found.gain[rare] - found.average).max() < 0.3
    assert ((found.gain > 0) & (found.gain < 1)).all()
    assert set(found.grades().tolist()) <= {0, 1, 2, 3, 4}


def test_given_propensities_are_used(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = ["query,document,clicked,propensity"]
    rows += [f"q,a,{int(turn < 20)},0.5" for turn in range(100)] + [f"q,b,{int(turn < 20)},1.0" for turn in range(100)]
    path.write_text("\n".join(rows))
    found = learn(str(path), ClickOptions(borrow="off")).judgments
    assert found.model == "propensity"
    assert found.gain[0] > 1.6 * found.gain[1]


@pytest.mark.real_data
def test_the_sample_of_user_behavior_insights_cannot_be_debiased() -> None:
    found = learn(str(UBI), ClickOptions())
    assert not found.known.known
    assert found.judgments.model == "document-ctr"
    assert len(found.log) > 200


def test_page_text_is_read_again(tmp_path: Path) -> None:
    pages = made_pages(queries=2, pages=3, swaps=0.5)
    path = tmp_path / "log.tsv"
    path.write_text(rows_text(pages, separator="\t", first=0, times=False))
    log = read_clicks(path)
    assert len(log) == 6
    assert log.notes.from_zero
    assert not log.has_times
