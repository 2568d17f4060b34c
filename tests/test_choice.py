"""`fit --method auto`: which method is taken, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.letor import write_letor
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.jobs.fit import AMONG, MethodChoice, choose
from querywise.storage import read_manifest
from tests import commands


def choice_of(**differences: float) -> MethodChoice:
    """Values of a hundred queries, by method: a mean that differs from 0.5, and as much noise for all."""
    noise = np.random.default_rng(0).normal(size=(3, 100)) * 0.05
    noise -= noise.mean(axis=1, keepdims=True)
    return MethodChoice(
        "map", 5, {name: 0.5 + differences.get(name, 0.0) + row for name, row in zip(AMONG, noise, strict=True)}
    )


def test_the_simplest_is_taken_unless_it_is_behind_by_more_than_chance() -> None:
    error = choice_of(blend=0.01).error("ranksvm")
    assert choice_of(blend=0.9 * error).name == "ranksvm"
    assert choice_of(blend=1.1 * error).name != "ranksvm"
    assert choice_of(blend=0.1).name == "blend"
    assert choice_of(lambdamart=0.1, blend=0.101).name == "lambdamart"
    assert choice_of(ranksvm=0.1).reason == "ranksvm is taken: it is the best, and the simplest."


def test_the_reason_names_what_was_compared() -> None:
    taken = choice_of(blend=0.1)
    assert taken.reason.startswith("blend is taken: it is 0.1000 ahead of ranksvm, more than the standard error of")
    simpler = choice_of(lambdamart=0.1, blend=0.101)
    assert simpler.reason.startswith("lambdamart is taken: blend is 0.0010 ahead, no more than the standard error of")


def test_every_query_is_ranked_by_what_was_fitted_without_it() -> None:
    data = make_judged(30, 8, 3, seed=3)
    found = choose(data, measure="map", flavour="standard", folds=3)
    assert {name: len(values) for name, values in found.values.items()} == dict.fromkeys(AMONG, 30)
    assert all((values > 0).all() for values in found.values.values())


def test_too_few_queries_are_refused() -> None:
    with pytest.raises(DataError, match=r"needs 10 training queries or more; found 9\. Name a method"):
        choose(make_judged(9, 4, 2), measure="map", flavour="standard")


def test_the_command_says_why_and_the_model_remembers(tmp_path: Path) -> None:
    write_letor(tmp_path / "train.txt", make_judged(30, 8, 3, seed=3))
    said = commands.output(
        commands.run(None, "fit", tmp_path / "train.txt", "--out", tmp_path / "model", "--method", "auto")
    )
    notes: Any = read_manifest(tmp_path / "model").notes
    assert f"{notes['method']} is taken" in " ".join(said.split())
    assert notes["choice"]["reason"].startswith(notes["method"])
    assert set(notes["choice"]["means"]) == set(AMONG)


def test_settings_are_refused_beside_auto(tmp_path: Path) -> None:
    write_letor(tmp_path / "train.txt", make_judged(30, 8, 3))
    words = ("fit", tmp_path / "train.txt", "--out", tmp_path / "model", "--method", "auto", "--set", "l2=1")
    assert "--method auto compares methods with their own settings; found l2" in commands.refused(
        commands.run(None, *words)
    )
