"""aTVT as its paper has it, targets updated round by round, and what it leaves open: classes, monotone functions."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.judged import Judged
from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.learners.regression import KernelRidge, Penalty, Transforms, bent, nearest_lines, transforms
from querywise.learners.trees.boosting import TreeRegression
from querywise.rankers.atvt import ATVT
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import unfitted
from querywise.storage import load, save
from reproduction.zha2006 import distance
from tests.worlds import examples, ragged

REGRESSORS: dict[str, Any] = {"kernel": KernelRidge(), "trees": TreeRegression(15, min_documents=5)}
PAPER: dict[str, Any] = {"variant": "updating", "nonnegative": False, "stop": "norms", "tolerance": 0.0}
INFINITE = float("inf")


def per_row(values: Floats, data: Judged) -> Floats:
    return np.repeat(values, data.candidates.sizes)


def with_classes(data: Judged, names: list[str | None]) -> Judged:
    table = QueryTable(data.query_ids, classes=tuple(names))
    return replace(data, candidates=replace(data.candidates, queries=table))


# The paper's algorithm


@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_every_round_transforms_the_targets_of_the_round_before(name: str, penalty: Penalty) -> None:
    data = ragged(1, queries=20)
    held: Any = {"scale_penalty": 2.0, "shift_penalty": 0.5, "penalty": penalty}
    features, starts = data.candidates.features, data.candidates.starts
    targets, ones = data.labels.astype(np.float64), np.ones(len(data.labels))
    h = unfitted(REGRESSORS[name]).fit(features, targets, ones)
    for _ in range(3):
        scale, shift = transforms(h.predict(features), targets, starts, nonnegative=False, **held)
        targets = per_row(scale, data) * targets + per_row(shift, data)
        h = unfitted(REGRESSORS[name]).fit(features, targets, ones)
    ranker = ATVT(REGRESSORS[name], rounds=3, **PAPER, **held).fit(data)
    assert ranker.predict(data.candidates) == pytest.approx(h.predict(features), abs=1e-9)
    whole = per_row(ranker.scale_, data) * data.labels + per_row(ranker.shift_, data)
    assert whole == pytest.approx(targets, abs=1e-9), "the numbers are those of all rounds together"


def test_one_round_of_updating_is_one_round_of_running() -> None:
    data = ragged(2, queries=20)
    one, other = (ATVT(KernelRidge(), rounds=1, variant=each).fit(data) for each in ("updating", "running"))
    assert np.array_equal(one.predict(data.candidates), other.predict(data.candidates))
    assert np.array_equal(one.scale_, other.scale_)


def test_it_stops_when_the_sum_of_the_norms_of_change_is_small() -> None:
    data = ragged(3, queries=20)
    settings_: dict[str, Any] = {**PAPER, "scale_penalty": 5.0}
    found = [ATVT(KernelRidge(), rounds=rounds, **settings_).fit(data) for rounds in range(4)]
    numbers = [Transforms(each.scale_, each.shift_) for each in found]
    # The step of a round, from the numbers of all rounds up to it and up to the one before.
    scales = [now.scale / then.scale for then, now in pairwise(numbers)]
    steps = [Transforms(np.ones(len(data)), np.zeros(len(data)))]
    steps += [
        Transforms(scale, now.shift - scale * then.shift)
        for scale, (then, now) in zip(scales, pairwise(numbers), strict=True)
    ]
    changes = [
        float(np.linalg.norm(now.scale - then.scale) + np.linalg.norm(now.shift - then.shift))
        for then, now in pairwise(steps)
    ]
    assert changes[2] < changes[1] < changes[0]
    between = (changes[1] + changes[2]) / 2
    stopped = ATVT(KernelRidge(), rounds=10, **{**settings_, "tolerance": between}).fit(data)
    assert len(stopped.trace_) == 1 + 2 * 2 + 1, "two whole rounds, and the half that changed too little"


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_a_free_scale_falls_below_0_where_h_falls_as_grades_rise(penalty: Penalty) -> None:
    y, h, starts = np.array([0.0, 1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0, 0.0]), np.array([0, 4])
    held: Any = {"scale_penalty": 0.1, "shift_penalty": 0.1, "penalty": penalty}
    free = transforms(y, h, starts, nonnegative=False, **held)
    bound = transforms(y, h, starts, **held)
    assert free.scale[0] < -0.5
    assert bound.scale[0] == 0
    power = 2 if penalty == "l2" else 1

    def objective(scale: Floats, shift: Floats) -> Floats:
        errors = sum((y[j] - shift - scale * h[j]) ** 2 for j in range(4))
        return np.asarray(errors + 0.1 * np.abs(scale - 1) ** power + 0.1 * np.abs(shift) ** power)

    grid = np.meshgrid(np.linspace(-3, 3, 301), np.linspace(-5, 5, 501))
    assert objective(free.scale, free.shift)[0] <= objective(*grid).min() + 1e-12


def test_the_key_of_table_7_is_as_printed() -> None:
    moved = np.array([[1.0, 0.0], [2.0**10, 3.0], [-1.0, -1.0]])
    assert distance(moved) == pytest.approx([0.0, 1.0 + 0.3, 2.0 + 0.1])


# One (α, β) for each class


def test_a_class_of_one_query_each_is_the_same_as_none() -> None:
    data = ragged(4, queries=12)
    named = with_classes(data, [f"class {number:02}" for number in range(len(data))])
    for variant in ("weighted", "updating"):
        plain = ATVT(KernelRidge(), variant=variant).fit(data)
        found = ATVT(KernelRidge(), variant=variant, per="class").fit(named)
        assert found.predict(data.candidates) == pytest.approx(plain.predict(data.candidates), abs=1e-12)
        assert found.scale_ == pytest.approx(plain.scale_, abs=1e-12)


def test_queries_of_a_class_share_their_numbers_and_those_without_one_are_one_more() -> None:
    data = ragged(5, queries=12)
    names: list[str | None] = [("a", "b", None)[number % 3] for number in range(len(data))]
    found = ATVT(KernelRidge(), variant="updating", per="class", rounds=1).fit(with_classes(data, names))
    assert [len(set(found.scale_[number::3].tolist())) for number in range(3)] == [1, 1, 1]
    first = ATVT(KernelRidge(), rounds=0).fit(data).predict(data.candidates)
    own = np.concatenate([np.arange(len(data.labels))[data.candidates.rows(query)] for query in range(0, len(data), 3)])
    both: Any = {"scale_penalty": 100.0, "shift_penalty": 1.0}
    by_hand = transforms(first[own], data.labels[own].astype(float), np.array([0, len(own)]), penalty="l2", **both)
    assert (found.scale_[0], found.shift_[0]) == pytest.approx((by_hand.scale[0], by_hand.shift[0]), abs=1e-12)


def test_without_classes_there_is_nothing_to_share() -> None:
    with pytest.raises(DataError, match=r"per='class'\): no training query has a class\. Give the queries' classes"):
        ATVT(KernelRidge(), per="class").fit(ragged())


# Monotone functions


@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(-3, 3)), min_size=1, max_size=12), st.sampled_from([0.0, 0.3, 5])
)
@settings(max_examples=examples(80), deadline=None)
def test_no_other_monotone_function_is_better(rows: list[tuple[int, float]], penalty: float) -> None:
    y, h = np.array([float(grade) for grade, _ in rows]), np.array([value for _, value in rows])
    found, cost = bent(y, h, np.array([0, len(y)]), penalty)
    levels, place = np.unique(y, return_index=True)
    values = found[place]
    assert np.all(np.diff(values) >= -1e-12)
    assert cost == pytest.approx(penalty * np.sum((values - levels) ** 2))

    def objective(tried: Floats) -> float:
        each = tried[np.searchsorted(levels, y)]
        return float(np.sum((each - h) ** 2) + penalty * np.sum((tried - levels) ** 2))

    rng = np.random.default_rng(0)
    for width in (0.01, 0.1, 1.0):
        for _ in range(20):
            other = np.maximum.accumulate(values + rng.normal(0, width, len(values)))
            assert objective(values) <= objective(other) + 1e-9


def test_an_infinite_penalty_leaves_the_targets_and_lines_describe_what_moved() -> None:
    y, starts = np.array([0.0, 1.0, 2.0, 1.0, 1.0]), np.array([0, 3, 5])
    assert np.array_equal(bent(y, y[::-1].copy(), starts, INFINITE).targets, y)
    lines = nearest_lines(y, np.array([1.0, 3.0, 5.0, 4.0, 4.0]), starts)
    assert lines.scale == pytest.approx([2.0, 1.0])
    assert lines.shift == pytest.approx([1.0, 3.0])


@pytest.mark.parametrize("variant", ["running", "updating"])
def test_a_monotone_round_fits_h_to_the_bent_targets(variant: Any) -> None:
    data = ragged(6, queries=15)
    features, y, ones = data.candidates.features, data.labels.astype(np.float64), np.ones(len(data.labels))
    targets, h = y, KernelRidge().fit(features, y, ones)
    for _ in range(2):
        before = targets if variant == "updating" else y
        targets = bent(before, h.predict(features), data.candidates.starts, 0.7).targets
        h = KernelRidge().fit(features, targets, ones)
    held: Any = {"variant": variant, "shift_penalty": 0.7, "rounds": 2, "tolerance": 0.0}
    ranker = ATVT(KernelRidge(), transform="monotone", **held).fit(data)
    assert ranker.predict(data.candidates) == pytest.approx(h.predict(features), abs=1e-9)


@pytest.mark.parametrize("wrong", [{"variant": "weighted"}, {"variant": "running", "penalty": "l1"}])
def test_a_monotone_function_is_not_inverted(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"expected variant 'running' or 'updating' and penalty 'l2'"):
        ATVT(KernelRidge(), transform="monotone", **wrong).fit(ragged())


@pytest.mark.parametrize("name", ["stop", "transform", "per"])
def test_a_name_that_is_unknown_is_refused(name: str) -> None:
    wrong: dict[str, Any] = {name: "other"}
    with pytest.raises(DataError, match=rf"{name}='other' is unknown\. Known: "):
        ATVT(KernelRidge(), **wrong).fit(ragged())


def test_what_is_saved_scores_the_same(tmp_path: Path) -> None:
    plain = ragged(7, queries=12)
    data = with_classes(plain, [("a", "b")[number % 2] for number in range(len(plain))])
    ranker = ATVT(KernelRidge(), **PAPER, transform="monotone", per="class", rounds=2).fit(data)
    save(ranker, tmp_path / "model")
    again: Any = load(tmp_path / "model")
    assert np.array_equal(again.predict(data.candidates), ranker.predict(data.candidates))
    assert (again.variant, again.stop, again.transform, again.per) == ("updating", "norms", "monotone", "class")
