"""aTVT, the regressions it alternates with, cross-validation, and both from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr

from querywise.contracts.answers import Moved
from querywise.data.folds import Fold, make_folds
from querywise.data.judged import Candidates, Judged
from querywise.data.letor import read_letor, write_letor
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, NotFittedError
from querywise.evaluation.compare import compare
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.tuning import Trial, cross_validate
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.regression import KernelRidge, Penalty, transforms
from querywise.learners.trees.boosting import TreeRegression
from querywise.methods import find_method
from querywise.rankers.atvt import ATVT, Variant
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import caching
from querywise.runtime.parameters import unfitted
from querywise.storage import load, read_manifest, save
from tests.commands import Done, output, run
from tests.worlds import examples, inside, ragged

PENALTIES: tuple[Penalty, ...] = ("l2", "l1")
VARIANTS: tuple[Variant, ...] = ("weighted", "running")
INFINITE = float("inf")
KERNELS: dict[str, KernelRidge] = {
    "gaussian": KernelRidge(),
    "landmarks": KernelRidge(0.3, exact=0, landmarks=10),
    "linear": KernelRidge(kernel="linear"),
}
REGRESSORS: dict[str, Any] = {**KERNELS, "trees": TreeRegression(15, min_documents=5)}


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> KernelRidge:
    return KERNELS[request.param]


@pytest.fixture(params=REGRESSORS)
def regressor(request: pytest.FixtureRequest) -> Any:
    return REGRESSORS[request.param]


def judged(*queries: tuple[Any, Any]) -> Judged:
    """Queries given by their features, a value or a row per document, and their labels."""
    features = [np.asarray(x, dtype=np.float64).reshape(len(labels), -1) for x, labels in queries]
    starts = np.cumsum([0, *map(len, features)])
    ids = tuple(f"q{number}" for number in range(len(queries)))
    labels = np.concatenate([np.asarray(labels, dtype=np.int64) for _, labels in queries])
    return Judged(Candidates(np.concatenate(features), starts, ids), labels)


def per_row(values: Floats, data: Judged) -> Floats:
    return np.repeat(values, data.candidates.sizes)


def rising(scores: Floats, data: Judged) -> list[bool]:
    """Whether each query's documents, given worst first, are ranked as their labels are."""
    return [bool(np.all(np.diff(scores[data.candidates.rows(query)]) > 0)) for query in range(len(data))]


def mean_average_precision(ranker: Any, data: Judged) -> float:
    return evaluate(ranker.predict(data.candidates), data, measures=["map"]).mean()["map"]


# The alternation, step by step


def by_hand(
    regressor: Any, data: Judged, rounds: int, scale_penalty: float, shift_penalty: float, penalty: Penalty, kind: str
) -> tuple[Any, Floats, Floats]:
    """The method as its page describes it: h, (α, β), h, (α, β), h …"""
    features, y, starts = data.candidates.features, data.labels.astype(np.float64), data.candidates.starts
    held: Any = {"scale_penalty": scale_penalty, "shift_penalty": shift_penalty, "penalty": penalty}
    h = unfitted(regressor).fit(features, y, np.ones(len(y)))
    scale, shift = np.ones(len(data)), np.zeros(len(data))
    for _ in range(rounds):
        fitted = h.predict(features)
        goal, mover = (y, fitted) if kind == "weighted" else (fitted, y)
        scale, shift = transforms(goal, mover, starts, **held)
        a, b = per_row(scale, data), per_row(shift, data)
        if kind == "running":
            h = unfitted(regressor).fit(features, a * y + b, np.ones(len(y)))
        else:
            goals = np.divide(y - b, a, out=np.zeros(len(y)), where=a > 0)
            h = unfitted(regressor).fit(features, goals, a**2)
    return h, scale, shift


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_it_alternates_as_the_method_says(regressor: Any, penalty: Penalty, variant: Variant, rounds: int) -> None:
    data = ragged(1, queries=20)
    ranker = ATVT(
        regressor,
        scale_penalty=2.0,
        shift_penalty=0.5,
        penalty=penalty,
        variant=variant,
        rounds=rounds,
        tolerance=0.0,
    ).fit(data)
    h, scale, shift = by_hand(regressor, data, rounds, 2.0, 0.5, penalty, variant)
    assert ranker.scale_ == pytest.approx(scale, abs=1e-9)
    assert ranker.shift_ == pytest.approx(shift, abs=1e-9)
    assert ranker.predict(data.candidates) == pytest.approx(h.predict(data.candidates.features), abs=1e-9)


def test_the_kernel_step_divides_by_nothing_and_forgets_queries_whose_scale_is_0() -> None:
    data = ragged(2, queries=25)
    ranker = ATVT(KernelRidge(0.5), scale_penalty=0.0, shift_penalty=0.01, rounds=1, tolerance=0.0).fit(data)
    silent = ranker.scale_ == 0
    assert 0 < silent.sum() < len(data)
    x = data.candidates.features
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    k = 1 + np.exp(-cdist(x, x, "sqeuclidean") / (2 * x.shape[1]))
    a = per_row(ranker.scale_, data)
    u = np.linalg.solve(a[:, None] * k * a + 0.5 * np.eye(len(a)), data.labels - per_row(ranker.shift_, data))
    assert ranker.predict(data.candidates) == pytest.approx(k @ (a * u), abs=1e-8)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_trace_ends_with_the_objective_of_what_was_found(
    kernel: KernelRidge, penalty: Penalty, variant: Variant
) -> None:
    data = ragged(3)
    ranker = ATVT(
        kernel, scale_penalty=3.0, shift_penalty=0.7, penalty=penalty, variant=variant, rounds=3, tolerance=0.0
    ).fit(data)
    scale, shift = (per_row(each, data) for each in (ranker.scale_, ranker.shift_))
    h = ranker.predict(data.candidates)
    errors = data.labels - shift - scale * h if variant == "weighted" else h - shift - scale * data.labels
    power = 2 if penalty == "l2" else 1
    held = 3 * np.sum(np.abs(ranker.scale_ - 1) ** power) + 0.7 * np.sum(np.abs(ranker.shift_) ** power)
    expected = float(errors @ errors + held) + kernel.l2 * ranker.regressor_.squared_norm
    assert len(ranker.trace_) == 1 + 2 * 3
    assert ranker.trace_[-1] == pytest.approx(expected, rel=1e-9)


penalty_strengths = st.one_of(st.just(0.0), st.floats(-3, 4).map(lambda power: float(10**power)))


@pytest.mark.parametrize("penalty", PENALTIES)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(sorted(KERNELS)),
    scale_penalty=penalty_strengths,
    shift_penalty=penalty_strengths,
    l2=st.floats(-2, 2).map(lambda power: float(10**power)),
)
@settings(max_examples=examples(40), deadline=None)
def test_with_a_fixed_kernel_the_objective_never_rises(
    penalty: Penalty, seed: int, name: str, scale_penalty: float, shift_penalty: float, l2: float
) -> None:
    kernel = unfitted(KERNELS[name])
    kernel.l2 = l2
    ranker = ATVT(
        kernel, scale_penalty=scale_penalty, shift_penalty=shift_penalty, penalty=penalty, rounds=8, tolerance=0.0
    )
    trace = np.array(ranker.fit(ragged(seed)).trace_)
    assert np.isfinite(trace).all()
    assert np.all(np.diff(trace) <= 1e-10 * trace[:-1])
    assert (ranker.scale_ >= 0).all()


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("level", [0.0, 1000.0])
def test_the_objective_never_rises_for_documents_that_hardly_differ_either(penalty: Penalty, level: float) -> None:
    rng = np.random.default_rng(4)
    data = ragged(4)
    near = rng.normal(size=(len(data), 4))[data.candidates.query_of_row] + 1e-3 * data.candidates.features
    alike = Judged(replace(data.candidates, features=near), data.labels)
    ranker = ATVT(
        KernelRidge(0.1),
        scale_penalty=0.0,
        shift_penalty=1e-6,
        penalty=penalty,
        rounds=8,
        tolerance=0.0,
        values=[level, level + 1, level + 2],
    )
    trace = np.array(ranker.fit(alike).trace_)
    assert np.all(np.diff(trace) <= 1e-10 * trace[:-1])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("largest", [1e12, INFINITE])
def test_penalties_without_end_are_plain_regression(
    regressor: Any, penalty: Penalty, variant: Variant, largest: float
) -> None:
    train, test = ragged(5, queries=20), ragged(6)
    plain = unfitted(regressor).fit(
        train.candidates.features, train.labels.astype(np.float64), np.ones(len(train.labels))
    )
    ranker = ATVT(
        regressor, scale_penalty=largest, shift_penalty=largest, penalty=penalty, variant=variant, tolerance=0.0
    ).fit(train)
    assert ranker.predict(test.candidates) == pytest.approx(plain.predict(test.candidates.features), abs=1e-8)
    assert ranker.scale_ == pytest.approx(np.ones(len(train)), abs=1e-9)
    assert ranker.shift_ == pytest.approx(np.zeros(len(train)), abs=1e-9)


def test_no_rounds_are_plain_regression_and_so_is_the_method_of_that_name() -> None:
    data = ragged(7)
    plain = ATVT(KernelRidge(0.3, width=2.0), rounds=0).fit(data)
    named = find_method("regression").build(base="kernel", l2=0.3, width=2.0).fit(data)
    assert np.array_equal(plain.predict(data.candidates), named.predict(data.candidates))
    assert len(plain.trace_) == 1
    assert {(each.scale, each.shift) for each in plain.moved()} == {(1.0, 0.0)}


def test_it_stops_once_hardly_anything_moves() -> None:
    data = ragged(8)
    patient, hasty, done = (
        ATVT(KernelRidge(), scale_penalty=1.0, rounds=500, tolerance=tolerance).fit(data)
        for tolerance in (1e-9, 1e-2, 1e9)
    )
    assert len(done.trace_) == 2 < len(hasty.trace_) < len(patient.trace_) < 1001
    step = transforms(
        data.labels.astype(np.float64),
        patient.predict(data.candidates),
        data.candidates.starts,
        scale_penalty=1.0,
        shift_penalty=1.0,
        penalty="l2",
    )
    assert step.scale == pytest.approx(patient.scale_, abs=1e-6)
    assert step.shift == pytest.approx(patient.shift_, abs=1e-6)


def test_where_every_scale_is_0_it_stops_and_keeps_the_last_function(kernel: KernelRidge) -> None:
    # Pooled, labels fall with the feature; within a query they rise. The first h is backwards for every query.
    queries = [(np.arange(8) + 8 * number, np.arange(8) + 16 * (4 - number)) for number in range(5)]
    data = judged(*queries)
    plain = ATVT(kernel, rounds=0).fit(data).predict(data.candidates)
    assert all(np.cov(plain[8 * q : 8 * q + 8], np.arange(8))[0, 1] < 0 for q in range(5))
    ranker = ATVT(kernel, scale_penalty=0.0, shift_penalty=0.0, rounds=20, tolerance=0.0).fit(data)
    assert not ranker.scale_.any()
    assert ranker.shift_ == pytest.approx([np.mean(labels) for _, labels in queries])
    assert len(ranker.trace_) == 2
    assert np.array_equal(ranker.predict(data.candidates), plain)


# Worlds whose right answer is visible


def opposite() -> Judged:
    """Within each query the label is the feature; the query with the higher features has the lower labels."""
    return judged((np.arange(4), np.arange(4) + 3), (np.arange(4) + 3, np.arange(4)))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_opposite_levels_turn_plain_regression_round_but_not_atvt(penalty: Penalty) -> None:
    data = opposite()
    linear = KernelRidge(1e-3, kernel="linear")
    plain = ATVT(linear, rounds=0).fit(data).predict(data.candidates)
    assert rising(-plain, data) == [True, True], "both queries are ranked backwards"
    ranker = ATVT(linear, shift_penalty=1e-3, penalty=penalty, rounds=60, tolerance=0.0).fit(data)
    assert rising(ranker.predict(data.candidates), data) == [True, True]
    assert ranker.shift_ == pytest.approx([3, -3], abs=0.05)
    assert ranker.scale_ == pytest.approx([1, 1], abs=0.01)


def popular() -> Judged:
    """Judges of the second kind of query give twice the grade and one more for the same feature."""
    kinds = [(np.arange(0, 4), 1, 0), (np.arange(2, 6), 2, 1), (np.arange(1, 6), 1, 0), (np.arange(5), 2, 1)]
    return judged(*((x, scale * x + shift) for x, scale, shift in kinds))


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_what_no_function_of_the_feature_explains_is_explained_by_two_numbers_per_query(
    penalty: Penalty, kernel: Any
) -> None:
    data = popular()
    order = np.argsort(data.candidates.features[:, 0], kind="stable")
    monotone: Any = isotonic_regression(data.labels[order].astype(np.float64))
    assert np.sum((monotone.x - data.labels[order]) ** 2) > 10
    ranker = ATVT(
        KernelRidge(1e-6, kernel=kernel),
        scale_penalty=1e-4,
        shift_penalty=1e-4,
        penalty=penalty,
        rounds=200,
        tolerance=0.0,
    ).fit(data)
    assert ranker.trace_[0] > 10
    assert ranker.trace_[-1] < 0.001
    assert ranker.scale_[[1, 3]] / ranker.scale_[[0, 2]] == pytest.approx([2, 2], abs=0.02)
    assert rising(ranker.predict(data.candidates), data) == [True] * 4


class Planted(NamedTuple):
    """Training labels as every query's own judge gave them, and what was planted."""

    train: Judged
    test: Judged
    scale: Floats
    shift: Floats


@pytest.fixture(scope="module")
def planted() -> Planted:
    """One taste; judges that stretch and move it, stricter where the first feature is high. Test labels are plain."""
    rng = np.random.default_rng(0)
    taste = np.array([1.0, -0.7, 0.5, 0.0, 0.0])

    def documents(queries: int) -> tuple[Floats, Floats]:
        level = rng.normal(size=queries)
        x = rng.normal(size=(queries, 12, 5))
        x[:, :, 0] += 1.5 * level[:, None]
        return x, level

    def grouped(x: Floats, labels: Any) -> Judged:
        return judged(*zip(x, labels, strict=True))

    x, level = documents(80)
    scale, shift = rng.uniform(0.3, 3, size=80), -4.5 * level
    given = np.round(4 * (scale[:, None] * (x @ taste) + shift[:, None]))
    others, _ = documents(60)
    merit = others @ taste
    best = merit >= np.sort(merit, axis=1)[:, -3, None]
    return Planted(grouped(x, given - given.min()), grouped(others, best), scale, shift)


@pytest.mark.parametrize("held", [("l2", 1e4, 0.01), ("l2", 100.0, 0.1), ("l1", 100.0, 1.0)], ids=str)
@pytest.mark.parametrize(
    "base", [KernelRidge(kernel="linear"), KernelRidge(exact=0, landmarks=200), TreeRegression(60)], ids=type
)
def test_planted_scales_and_levels_are_found_and_new_queries_ranked_far_better(
    planted: Planted, base: Any, held: tuple[Penalty, float, float]
) -> None:
    penalty, scale_penalty, shift_penalty = held
    plain = ATVT(base, rounds=0).fit(planted.train)
    ranker = ATVT(
        base, scale_penalty=scale_penalty, shift_penalty=shift_penalty, penalty=penalty, rounds=8, tolerance=0.0
    ).fit(planted.train)
    assert mean_average_precision(ranker, planted.test) > mean_average_precision(plain, planted.test) + 0.3
    assert spearmanr(ranker.scale_, planted.scale).statistic > 0.85
    # h may have any level: what is planted is where a query's judge puts a document that h finds average.
    average = float(np.mean(ranker.predict(planted.train.candidates)))
    assert spearmanr(ranker.shift_ + ranker.scale_ * average, planted.shift).statistic > 0.9


@pytest.mark.parametrize(
    "base", [KernelRidge(), KernelRidge(10.0, kernel="linear"), TreeRegression(50)], ids=["gaussian", "linear", "trees"]
)
def test_the_cumulative_penalty_keeps_running_targets_from_collapsing(base: Any) -> None:
    data = make_judged(60, 10, 5, seed=3)
    held: Any = {"scale_penalty": 10.0, "shift_penalty": 1.0, "penalty": "l2"}
    ranker = ATVT(base, variant="running", rounds=10, tolerance=0.0, **held).fit(data)
    assert len(ranker.trace_) == 21
    assert np.isfinite(ranker.trace_).all()
    y = data.labels.astype(np.float64)
    ended = per_row(ranker.scale_, data) * y + per_row(ranker.shift_, data)
    # The same with only each round's own step penalised: what the cumulative penalty is there for.
    targets, h = y, unfitted(base)
    for _ in range(10):
        fitted = h.fit(data.candidates.features, targets, np.ones(len(y))).predict(data.candidates.features)
        step = transforms(fitted, targets, data.candidates.starts, **held)
        targets = per_row(step.scale, data) * targets + per_row(step.shift, data)
    assert targets.std() < 0.6 * y.std()
    assert ended.std() > 0.75 * y.std()


# Data as it comes


def test_a_query_without_documents_and_one_with_a_single_document_take_part(regressor: Any) -> None:
    data = ragged(9, queries=20)
    starts = np.insert(data.candidates.starts, [0, 5], data.candidates.starts[[0, 5]])
    ids = tuple(map(str, range(len(starts) - 1)))
    holed = Judged(Candidates(data.candidates.features, starts, ids), data.labels)
    for penalty in PENALTIES:
        plain, ranker = (ATVT(regressor, penalty=penalty, scale_penalty=1.0).fit(each) for each in (data, holed))
        # Means over the queries decide when to stop; they differ, the function does not as long as both go on.
        assert [ranker.moved()[query][1:] for query in (0, 6)] == [(1.0, 0.0), (1.0, 0.0)]
        if len(plain.trace_) == len(ranker.trace_):
            assert np.array_equal(plain.predict(data.candidates), ranker.predict(data.candidates))


def test_values_say_what_a_grade_is_worth(regressor: Any) -> None:
    data = ragged(10, queries=20)
    worth = ATVT(regressor, values=(0, 1, 3), rounds=2, tolerance=0.0).fit(data)
    relabelled = Judged(data.candidates, np.array([0, 1, 3])[data.labels])
    graded = ATVT(regressor, rounds=2, tolerance=0.0).fit(relabelled)
    assert np.array_equal(worth.predict(data.candidates), graded.predict(data.candidates))
    assert worth.trace_ == graded.trace_


def test_a_grade_without_a_value_is_refused() -> None:
    data = ragged(10)
    with pytest.raises(DataError, match="values has 2 entries, but there is a grade 2"):
        ATVT(KernelRidge(), values=(0, 1)).fit(data)
    low = Judged(data.candidates, np.minimum(data.labels, 1))
    with pytest.raises(DataError, match="values has 2 entries, but there is a grade 2"):
        ATVT(TreeRegression(5), values=(0, 1)).fit(low, valid=data)


@pytest.mark.parametrize("value", [float("nan"), INFINITE])
def test_a_value_that_is_no_number_is_refused(value: float, regressor: Any) -> None:
    with pytest.raises(DataError, match="values"):
        ATVT(regressor, values=(0, 1, value)).fit(ragged(10))


def test_no_document_at_all_is_refused(regressor: Any) -> None:
    nothing = Judged(Candidates(np.zeros((0, 2)), np.array([0, 0]), ("empty",)), np.zeros(0, np.int64))
    with pytest.raises(DataError, match="no document"):
        ATVT(regressor).fit(nothing)


def test_labels_that_are_all_the_same_are_fitted_by_a_level(regressor: Any) -> None:
    data = ragged(11)
    flat = Judged(data.candidates, np.full(len(data.labels), 2))
    ranker = ATVT(regressor, scale_penalty=1.0, shift_penalty=0.1).fit(flat)
    assert np.isfinite(ranker.predict(data.candidates)).all()
    assert np.isfinite(ranker.trace_).all()


def test_validation_data_decides_how_many_trees_and_nothing_else(kernel: KernelRidge) -> None:
    data = make_judged(60, 10, 5, seed=1)
    train, valid = data.select(range(40)), data.select(range(40, 60))
    ranker = ATVT(TreeRegression(400, patience=5), rounds=2, tolerance=0.0).fit(train, valid=valid)
    count = ranker.regressor_.tree_count_
    assert 1 <= count < 400
    told = ATVT(TreeRegression(count), rounds=2, tolerance=0.0).fit(train)
    assert np.array_equal(ranker.predict(valid.candidates), told.predict(valid.candidates))
    alone, watched = (ATVT(kernel).fit(train, valid=each).predict(valid.candidates) for each in (None, valid))
    assert np.array_equal(alone, watched)


def test_validation_data_with_other_features_is_refused() -> None:
    with pytest.raises(DataError, match="trained on 4 features but the documents have 3"):
        ATVT(TreeRegression(5)).fit(ragged(1), valid=ragged(1, features=3))


def test_settings_that_share_their_first_regression_get_what_each_gets_alone(regressor: Any) -> None:
    data, valid = ragged(12, queries=20), ragged(13)

    def fitted(held_out: Judged | None) -> list[Floats]:
        return [
            ATVT(regressor, scale_penalty=strength, shift_penalty=0.1, penalty=penalty, variant=variant, rounds=rounds)
            .fit(data, valid=held_out)
            .predict(valid.candidates)
            for strength in (1.0, 100.0)
            for penalty in PENALTIES
            for variant in VARIANTS
            for rounds in (2, 0)
        ]

    for held_out in (None, valid):
        alone = fitted(held_out)
        with caching():
            together = fitted(held_out)
        assert all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True))


def test_the_regressor_it_was_given_stays_as_it_was(regressor: Any) -> None:
    ATVT(regressor).fit(ragged(14))
    with pytest.raises(NotFittedError):
        regressor.predict(np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"penalty": "l3"}, r"penalty='l3' is unknown\. Known: l2, l1\."),
        ({"variant": "still"}, r"variant='still' is unknown\. Known: weighted, running, updating\."),
        ({"scale_penalty": -1.0}, r"scale_penalty=-1.0\) must be 0 or more"),
        ({"scale_penalty": float("nan")}, "scale_penalty=nan"),
        ({"shift_penalty": -1e-9}, "shift_penalty=-1e-09"),
        ({"shift_penalty": float("nan")}, "shift_penalty=nan"),
        ({"tolerance": -1.0}, "tolerance=-1.0"),
        ({"tolerance": float("nan")}, "tolerance=nan"),
        ({"rounds": -1}, r"rounds=-1\) must be a whole number"),
        ({"rounds": 1.5}, "rounds=1.5"),
        ({"rounds": float("nan")}, "rounds=nan"),
        ({"rounds": INFINITE}, "rounds=inf"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        ATVT(KernelRidge(), **parameters).fit(ragged())


def test_a_number_of_rounds_that_is_whole_is_taken_whatever_its_type() -> None:
    data, count = ragged(), 2.0
    whole: Any = count
    again, plain = (ATVT(KernelRidge(), rounds=rounds, tolerance=0.0).fit(data) for rounds in (whole, 2))
    assert again.trace_ == plain.trace_


# What moved


def test_moved_lists_every_training_query(regressor: Any) -> None:
    data = ragged(15, queries=20)
    ranker = ATVT(regressor, scale_penalty=1.0).fit(data)
    moved = ranker.moved()
    assert all(isinstance(each, Moved) for each in moved)
    assert [each.query_id for each in moved] == list(data.candidates.query_ids)
    assert [each.scale for each in moved] == ranker.scale_.tolist()
    assert [each.shift for each in moved] == ranker.shift_.tolist()


@pytest.mark.parametrize("penalty", PENALTIES)
def test_saved_and_loaded_it_gives_the_same_bits_and_knows_what_moved(
    regressor: Any, penalty: Penalty, tmp_path: Path
) -> None:
    train, test = ragged(16, queries=20), ragged(17)
    ranker = ATVT(regressor, penalty=penalty, scale_penalty=1.0, values=[0.0, 1.0, 3.0]).fit(train)
    save(ranker, tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, ATVT)
    assert np.array_equal(again.predict(test.candidates), ranker.predict(test.candidates))
    assert again.moved() == ranker.moved()
    assert again.trace_ == ranker.trace_
    refitted = unfitted(again).fit(train)
    assert np.array_equal(refitted.predict(test.candidates), ranker.predict(test.candidates))


def test_compared_averages_over_the_folds_a_query_was_trained_on() -> None:
    data = make_judged(15, 8, 3, seed=2)
    known: dict[str, list[tuple[float, float]]] = {name: [] for name in data.candidates.query_ids}

    def remember(fold: Fold, name: str, ranker: Any) -> None:
        if name == "atvt":
            assert {each.query_id for each in ranker.moved()} == set(fold.train.candidates.query_ids)
            for each in ranker.moved():
                known[each.query_id].append((each.scale, each.shift))

    compared = compare(
        {
            "svm": lambda train, valid: RankSVM().fit(train),
            "atvt": lambda train, valid: ATVT(KernelRidge(), scale_penalty=1.0, shift_penalty=0.1).fit(train),
        },
        make_folds(data),
        observe=remember,
    )
    assert compared.moved("svm") is None
    moved = compared.moved("atvt")
    assert moved is not None
    assert {len(times) for times in known.values()} == {3}
    expected = [np.mean(known[name], axis=0) for name in compared.judged.candidates.query_ids]
    assert moved == pytest.approx(np.array(expected))
    assert len(np.unique(moved[:, 1])) > 1


def test_a_query_that_was_never_trained_on_has_not_moved_anywhere() -> None:
    data = make_judged(9, 8, 3)
    fold = Fold(data.select(range(3)), data.select(range(3, 6)), data.select(range(6, 9)))
    moved = compare({"atvt": lambda train, valid: ATVT(KernelRidge()).fit(train)}, [fold]).moved("atvt")
    assert moved is not None
    assert moved.shape == (3, 2)
    assert np.isnan(moved).all()


# Trees on real targets


def bent(seed: int = 0, rows: int = 200) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 10, size=(rows, 3)).astype(np.float64)
    return features, np.sin(features[:, 0]) + 0.3 * rng.normal(size=rows), rng.uniform(0.5, 2, size=rows)


def test_trees_fit_what_bends() -> None:
    (x, t, w), (z, u, _) = bent(0), bent(1)
    fitted = TreeRegression(100).fit(x, t, w).predict(z)
    assert np.mean((fitted - u) ** 2) < 0.4 * np.var(u)


def test_watching_finds_the_number_of_trees_which_later_fits_can_be_told() -> None:
    (x, t, w), (z, u, _) = bent(0), bent(1)
    model = TreeRegression(500, patience=10).fit_watching(x, t, w, z, u)
    count = model.tree_count_
    assert 1 <= count < 490
    assert np.array_equal(model.predict(z), TreeRegression(count).fit(x, t, w).predict(z))
    errors = [np.mean((TreeRegression(trees).fit(x, t, w).predict(z) - u) ** 2) for trees in range(1, count + 11)]
    assert int(np.argmin(errors)) + 1 == count
    for targets, weights in ((t**2, w[::-1]), (-t, w)):
        again, fresh = model.fit(x, targets, weights, trees=count), TreeRegression(count).fit(x, targets, weights)
        assert np.array_equal(again.predict(z), fresh.predict(z))
    assert model.tree_count_ == count
    assert np.array_equal(model.fit(z, u, w, trees=count).predict(x), TreeRegression(count).fit(z, u, w).predict(x))
    assert model.fit_watching(x, t, w, z, u).tree_count_ == count, "all of them may grow again"


def test_a_fit_does_not_depend_on_what_was_watched_before() -> None:
    (x, t, w), (z, u, _) = bent(0), bent(1)
    model = TreeRegression(60, patience=3).fit_watching(x, t, w, z, -10 * u)
    assert np.array_equal(model.fit(x, t, w).predict(z), TreeRegression(60).fit(x, t, w).predict(z))
    assert model.tree_count_ == 60


def test_a_fit_that_is_told_to_grow_no_tree_is_refused() -> None:
    with pytest.raises(DataError, match=r"TreeRegression\.fit\(trees=0\) must lie between 1 and 2147483647\."):
        TreeRegression().fit(*bent(), trees=0)


def test_watching_errors_that_only_rise_keeps_one_tree() -> None:
    (x, t, w), (z, u, _) = bent(0), bent(1)
    assert TreeRegression(50, patience=3).fit_watching(x, t, w, z, -10 * u).tree_count_ == 1


def test_fitting_again_on_the_same_features_equals_a_fresh_fit() -> None:
    x, t, w = bent()
    used = TreeRegression(20).fit(x, t, w)
    # Weights that are all alike last: whatever held before must be forgotten.
    for targets, weights in ((3 - t, w[::-1]), (t, np.where(w > 1, w, 0.0)), (t, np.ones(len(w))), (t, w)):
        assert used.fit(x, targets, weights) is used
        assert np.array_equal(used.predict(x), TreeRegression(20).fit(x, targets, weights).predict(x))


@pytest.mark.parametrize("factor", [1e-6, 0.5, 3.7, 1e6])
def test_weights_of_rows_are_relative(factor: float) -> None:
    x, t, w = bent()
    cached, scaled = (TreeRegression(20).fit(x, t, weights).predict(x) for weights in (w, factor * w))
    assert cached == pytest.approx(scaled, abs=1e-9)


def test_a_row_of_weight_0_has_no_say_in_the_trees() -> None:
    x, t, w = bent()
    # Copies of all rows: the bins stay as they are, and neither their targets nor their number may count.
    doubled, silent = np.vstack([x, x]), np.concatenate([w, np.zeros(len(w))])
    alone = TreeRegression(20).fit(x, t, w).predict(x)
    for said in (t + 5, -9 * t):
        model = TreeRegression(20).fit(doubled, np.concatenate([t, said]), silent)
        assert model.predict(x) == pytest.approx(alone, abs=1e-6)
    z, u, _ = bent(1)
    heard = TreeRegression(300, patience=10).fit_watching(x, t, w, z, u)
    watched = TreeRegression(300, patience=10).fit_watching(doubled, np.concatenate([t, -9 * t]), silent, z, u)
    assert watched.tree_count_ == heard.tree_count_
    assert watched.predict(z) == pytest.approx(heard.predict(z), abs=1e-6)


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (TreeRegression(0), r"TreeRegression\(trees=0\) must lie between 1 and"),
        (TreeRegression(leaves=1), "leaves=1"),
        (TreeRegression(min_documents=0), "min_documents=0"),
        (TreeRegression(patience=0), "patience=0"),
        (TreeRegression(seed=-1), "seed=-1"),
        (TreeRegression(learning_rate=float("nan")), "learning_rate=nan"),
        (TreeRegression(learning_rate=1.5), "learning_rate=1.5"),
    ],
)
def test_trees_that_cannot_grow_are_refused(learner: TreeRegression, words: str) -> None:
    with pytest.raises(DataError, match=words):
        learner.fit(*bent())


def test_trees_that_have_not_grown_say_what_to_do() -> None:
    with pytest.raises(NotFittedError):
        TreeRegression().predict(np.zeros((1, 3)))


# Cross-validation


class Seen(NamedTuple):
    """One fit of a ranker that keeps a diary: its setting, the queries it learned from, those it ranked."""

    setting: dict[str, Any]
    trained: set[str]
    ranked: list[str]


def keeping_a_diary(diary: list[Seen]) -> Any:
    class Diarist:
        """aTVT with a kernel; whoever builds one reads in the diary what it was shown."""

        def __init__(self, **setting: Any) -> None:
            self.setting = setting

        def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Any:
            assert valid is None
            self.ranker = find_method("atvt").build(base="kernel", **self.setting).fit(data)
            diary.append(Seen(self.setting, set(data.candidates.query_ids), []))
            self.entry = diary[-1]
            return self

        def predict(self, candidates: Candidates, /) -> Floats:
            self.entry.ranked.extend(candidates.query_ids)
            scores: Floats = self.ranker.predict(candidates)
            return scores

    return Diarist


GRID = {"l2": (0.01, 1.0, 100.0), "scale_penalty": (0.1, 10.0)}


def chosen_queries(data: Judged, names: Sequence[str]) -> Judged:
    return data.select([data.candidates.query_ids.index(name) for name in names])


@pytest.mark.parametrize(("folds", "measure", "flavour"), [(3, "map", "standard"), (5, "ndcg@5", "letor4")])
def test_cross_validation_picks_what_a_loop_over_the_parts_picks(folds: int, measure: str, flavour: str) -> None:
    data = make_judged(16, 10, 4, noise=0.5, seed=5)
    everyone = set(data.candidates.query_ids)
    diary: list[Seen] = []
    tuned = cross_validate(
        keeping_a_diary(diary),
        GRID,
        fixed={"penalty": "l1"},
        data=data,
        folds=folds,
        measure=measure,
        flavour=flavour,
        seed=1,
    )
    *trials, last = diary
    assert (last.setting, last.trained, last.ranked) == (tuned.parameters, everyone, [])
    expected = []
    for l2 in GRID["l2"]:
        for scale_penalty in GRID["scale_penalty"]:
            setting: dict[str, Any] = {"l2": l2, "scale_penalty": scale_penalty, "penalty": "l1"}
            own = [each for each in trials if each.setting == setting]
            assert sorted(name for each in own for name in each.ranked) == sorted(everyone), "each query ranked once"
            assert len(own) == folds
            assert max(len(each.ranked) for each in own) - min(len(each.ranked) for each in own) <= 1
            values: list[float] = []
            for each in own:
                assert each.trained == everyone - set(each.ranked), "by what was fitted on the others"
                train, held_out = (chosen_queries(data, sorted(part)) for part in (each.trained, each.ranked))
                ranker = ATVT(KernelRidge(l2), scale_penalty=scale_penalty, penalty="l1").fit(train)
                scores = ranker.predict(held_out.candidates)
                values.extend(evaluate(scores, held_out, measures=[measure], flavour=flavour)[measure])
            expected.append(Trial(setting, float(np.mean(values))))
    assert [trial.parameters for trial in tuned.tried] == [trial.parameters for trial in expected]
    assert [trial.value for trial in tuned.tried] == pytest.approx([trial.value for trial in expected], abs=1e-9)
    best = max(expected, key=lambda trial: round(trial.value, 9))
    assert tuned.parameters == best.parameters
    assert tuned.value == pytest.approx(best.value, abs=1e-9)
    chosen: Any = best.parameters
    whole = ATVT(KernelRidge(chosen["l2"]), scale_penalty=chosen["scale_penalty"], penalty="l1")
    assert np.array_equal(tuned.ranker.predict(data.candidates), whole.fit(data).predict(data.candidates))


def test_the_first_of_equals_wins_and_the_seed_cuts_the_parts() -> None:
    data = make_judged(12, 8, 3)
    cuts = []
    for seed in (0, 0, 1):
        diary: list[Seen] = []
        tuned = cross_validate(
            keeping_a_diary(diary), {"seed": (3, 1, 2)}, fixed={"l2": 1.0}, data=data, folds=4, seed=seed
        )
        assert tuned.parameters == {"seed": 3, "l2": 1.0}
        cuts.append([each.ranked for each in diary])
    assert cuts[0] == cuts[1] != cuts[2]


def test_as_many_parts_as_queries_leave_one_out() -> None:
    diary: list[Seen] = []
    cross_validate(keeping_a_diary(diary), {}, fixed={}, data=make_judged(6, 8, 3), folds=6)
    assert [len(each.ranked) for each in diary] == [1] * 6 + [0]


@pytest.mark.parametrize("folds", [-1, 0, 1, 7])
def test_fewer_than_two_parts_or_more_than_queries_are_refused(folds: int) -> None:
    with pytest.raises(DataError, match=f"Cross-validation over {folds} parts needs at least 2 parts.*6"):
        cross_validate(RankSVM, {}, fixed={}, data=make_judged(6, 8, 3), folds=folds)


# From the command line


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    data = make_judged(24, 8, 3, noise=0.3)
    for name, queries in (("train", range(12)), ("valid", range(12, 18)), ("test", range(18, 24))):
        write_letor(folder / f"{name}.txt", data.select(queries))
    return folder


def call(*words: object) -> Done:
    return run(None, *words)


@pytest.mark.slow
def test_fit_with_parts_of_the_training_queries_and_rank_as_a_user_does(place: Path, tmp_path: Path) -> None:
    words = ["fit", place / "train.txt", "--method", "atvt", "--base", "kernel", "--penalty", "l1", "--folds", 3]
    done = call(*words, "--out", tmp_path / "m")
    assert "atvt trained on 12 queries" in output(done)
    ranked = call("rank", tmp_path / "m", place / "test.txt")
    assert ranked.returncode == 0
    scores = [float(line) for line in ranked.stdout.splitlines()]
    notes: Any = read_manifest(tmp_path / "m").notes
    assert notes["chosen_by"] == {"measure": "map", "flavour": "standard"}
    assert len(notes["tried"]) == 27
    chosen = dict(notes["parameters"])
    assert (chosen.pop("base"), chosen["penalty"]) == ("kernel", "l1")
    assert notes["parameters"] == max(notes["tried"], key=lambda trial: trial["value"])["parameters"]
    train, test = (read_letor(place / f"{name}.txt") for name in ("train", "test"))
    ranker = ATVT(KernelRidge(chosen.pop("l2")), **chosen).fit(train)
    assert scores == ranker.predict(test.candidates).tolist()


@pytest.mark.parametrize("method", ["atvt", "regression"])
@pytest.mark.parametrize("base", ["trees", "kernel"])
def test_each_base_has_settings_of_its_own_to_choose_from(place: Path, tmp_path: Path, method: str, base: str) -> None:
    settings = ["--set", "trees=5"] if base == "trees" else []
    files = [place / "train.txt", "--valid", place / "valid.txt", "--out", tmp_path / "m"]
    done = call("fit", *files, "--method", method, "--base", base, *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    tried: Any = read_manifest(tmp_path / "m").notes["tried"]
    own = "learning_rate" if base == "trees" else "l2"
    assert len({trial["parameters"][own] for trial in tried}) > 1
    assert len(tried) == len({str(trial["parameters"]) for trial in tried})
    moving = {"scale_penalty", "shift_penalty"} & set(tried[0]["parameters"])
    assert len(moving) == (2 if method == "atvt" else 0)


def test_running_targets_and_fixed_penalties_can_be_asked_for(place: Path, tmp_path: Path) -> None:
    words = ["--set", "variant=running", "--set", "rounds=2", "--set", "scale_penalty=5", "--set", "trees=5"]
    done = call("fit", place / "train.txt", "--method", "atvt", *words, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stdout + done.stderr
    ranker = load(tmp_path / "m")
    assert isinstance(ranker, ATVT)
    assert (ranker.variant, ranker.rounds, ranker.scale_penalty, inside(ranker.regressor).trees) == ("running", 2, 5, 5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--base forest", "--base forest: expected trees or kernel."),
        ("--penalty l3", "--penalty l3: expected l2 or l1."),
        ("--set variant=still", "--set variant=still: expected weighted, running or updating."),
        ("--set rounds=-1", "rounds=-1"),
        ("--set rounds=1.5", "--set rounds=1.5: expected a whole number."),
        ("--set rounds=NaN", "expected a whole number."),
        ("--set rounds=many", "expected a whole number."),
        ("--set scale_penalty=-1", "scale_penalty=-1"),
        ("--set scale_penalty=NaN", "scale_penalty=nan"),
        ("--set scale_penalty=high", "--set scale_penalty=high: expected a number."),
        ("--set shift_penalty=-0.5", "shift_penalty=-0.5"),
        ("--set shift_penalty=NaN", "shift_penalty=nan"),
        ("--base kernel --set kernel=cubic", "--set kernel=cubic: expected gaussian or linear."),
        ("--base kernel --set l2=0", "l2=0"),
        ("--base kernel --set width=NaN", "width=nan"),
        ("--base kernel --set width=1e200", "width=1e+200"),
        ("--base kernel --set width=1e-200", "width=1e-200"),
        ("--base kernel --set seed=-1", "seed=-1"),
        ("--set trees=0", "trees=0"),
        ("--folds 13", "over 13 parts"),
        ("--folds 3 --valid valid.txt", "--folds is for training data without a validation part"),
        ("--method regression --penalty l1", "--penalty is not a setting of regression"),
        ("--method ranksvm --base kernel", "--base is not a setting of ranksvm"),
        ("--method knn-online --base trees", "--base trees: expected ranksvm or lambdamart."),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_one_message(
    place: Path, tmp_path: Path, words: str, message: str
) -> None:
    asked = [str(place / word) if word.endswith(".txt") else word for word in words.split()]
    done = call("fit", place / "train.txt", "--method", "atvt", "--out", tmp_path / "new", *asked)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not (tmp_path / "new").exists()


def test_fewer_than_two_parts_end_with_how_the_option_is_meant(place: Path, tmp_path: Path) -> None:
    done = call("fit", place / "train.txt", "--method", "atvt", "--folds", 1, "--out", tmp_path / "new")
    assert done.returncode == 2
    assert "--folds" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
