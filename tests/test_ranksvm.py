from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import pytest
from scipy import optimize

from querywise.data.judged import Candidates, Judged, concatenate
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, NotFittedError, SolverError
from querywise.evaluation.evaluate import evaluate
from querywise.learners.classic.listnet import ListNet
from querywise.learners.ranksvm.newton import Optimum, Ridge, minimise, minimise_hinge
from querywise.learners.ranksvm.preferences import SQUARED_HINGE, Loss, PreferenceParts, Preferences, smoothed_hinge
from querywise.learners.ranksvm.ranksvm import RankSVM, pair_coefficients
from querywise.learners.ranksvm.systems import LinearSystems, solved
from querywise.runtime.arrays import Floats
from tests.support.svm import Weighting, Written
from tests.worlds import pairwise, ragged, two_faced


def setting(seed: int, centre_l2: float) -> tuple[Judged, Floats, Ridge]:
    data = ragged(seed)
    rng = np.random.default_rng(seed)
    return data, rng.uniform(0.1, 2, size=len(data)), Ridge(0.1, rng.normal(size=4), centre_l2)


@pytest.mark.parametrize("centre_l2", [0.0, 0.5])
@pytest.mark.parametrize("pairs", ["query", "pair"])
@pytest.mark.parametrize("seed", range(3))
def test_squared_hinge_agrees_with_scipy_on_explicit_pairs(seed: int, pairs: Weighting, centre_l2: float) -> None:
    data, weights, ridge = setting(seed, centre_l2)
    written = Written(data, weights, pairs, ridge)
    preferences = Preferences(data.candidates.features.copy(), data.labels, data.candidates.starts)
    coefficients = pair_coefficients(weights, preferences.pairs, pairs)
    ours = minimise(
        PreferenceParts.of(preferences),
        coefficients,
        ridge=ridge,
        loss=SQUARED_HINGE,
        tolerance=1e-12,
        start=ridge.minimiser,
    )
    theirs = written.squared_optimum()
    assert ours.value == pytest.approx(written.value(ours.weights, 2), rel=1e-12)
    assert ours.value <= written.value(theirs, 2) * (1 + 1e-12)
    assert ours.weights == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("l2", [0.1, 1e-3])
@pytest.mark.parametrize("seed", range(6))
def test_weights_that_are_not_negative_agree_with_scipy_on_explicit_pairs(seed: int, l2: float) -> None:
    data, weights, _ = setting(seed, 0.0)
    ridge = Ridge(l2, np.zeros(4))
    written = Written(data, weights, "query", ridge)
    preferences = Preferences(data.candidates.features.copy(), data.labels, data.candidates.starts)
    coefficients = pair_coefficients(weights, preferences.pairs, "query")
    spread, start = PreferenceParts.of(preferences), np.zeros(4)
    theirs = written.squared_optimum([(0.0, np.inf)] * 4)
    for tolerance in (0.1, 1e-3, 1e-12):
        ours = minimise(
            spread, coefficients, ridge=ridge, loss=SQUARED_HINGE, tolerance=tolerance, start=start, nonnegative=True
        )
        least = written.value(theirs, 2)
        assert (ours.weights >= 0).all()
        assert ours.value - least <= ours.gap + 1e-9 <= tolerance * ours.value + 1e-9
    assert ours.weights == pytest.approx(theirs, abs=1e-6)
    # The conditions of Karush, Kuhn and Tucker: no gradient where a weight is free, none below 0 where it is held.
    slope = optimize.approx_fprime(ours.weights, partial(written.value, power=2), 1e-7)
    assert np.abs(slope[ours.weights > 1e-6]).max(initial=0.0) <= 1e-4
    assert slope[ours.weights <= 1e-6].min(initial=0.0) >= -1e-4


def with_features(data: Judged, features: Floats) -> Judged:
    return replace(data, candidates=data.candidates.with_features(np.ascontiguousarray(features), None))


def test_weights_of_features_that_only_mislead_become_zero_and_the_others_those_of_the_free_model_without_them() -> (
    None
):
    data = make_judged(40, 10, 5, seed=3)
    signs = np.where(RankSVM().fit(data).weights_ < 0, -1.0, 1.0)
    signs[1] *= -1  # this column alone points the wrong way
    turned = with_features(data, data.candidates.features * signs)
    bounded = RankSVM(nonnegative=True).fit(turned)
    assert bounded.weights_[1] == 0.0
    assert bounded.gap_ <= 1e-9 * bounded.objective_
    kept = [0, 2, 3, 4]
    without = RankSVM().fit(with_features(turned, turned.candidates.features[:, kept]))
    assert (without.weights_ >= 0).all()
    assert bounded.weights_[kept] == pytest.approx(without.weights_, abs=1e-8)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_where_no_weight_would_be_negative_the_bound_changes_nothing(loss: Literal["squared_hinge", "hinge"]) -> None:
    data = make_judged(40, 10, 5, seed=3)
    data = with_features(data, data.candidates.features * np.sign(RankSVM().fit(data).weights_))
    free, bounded = (RankSVM(loss=loss, tolerance=1e-6, nonnegative=each).fit(data) for each in (False, True))
    assert bounded.weights_ == pytest.approx(free.weights_, abs=2e-3 if loss == "hinge" else 1e-8)


def test_local_models_have_no_bound_and_say_so() -> None:
    with pytest.raises(DataError, match=r"nonnegative=True\) is one model for all queries; local models take any"):
        RankSVM(nonnegative=True).prepare(ragged())


@pytest.mark.parametrize(
    ("seed", "pairs", "centre_l2", "tolerance"), pairwise(range(3), ["query", "pair"], [0.0, 0.5], [1e-3, 1e-6])
)
def test_hinge_is_within_its_tolerance_of_the_optimum_and_its_certificate_is_honest(
    seed: int, pairs: Weighting, centre_l2: float, tolerance: float
) -> None:
    data, weights, ridge = setting(seed, centre_l2)
    written = Written(data, weights, pairs, ridge)
    preferences = Preferences(data.candidates.features.copy(), data.labels, data.candidates.starts)
    coefficients = pair_coefficients(weights, preferences.pairs, pairs)
    ours = minimise_hinge(
        PreferenceParts.of(preferences), coefficients, ridge=ridge, tolerance=tolerance, start=ridge.minimiser
    )
    optimum = written.hinge_optimum()
    reached = written.value(ours.weights, 1)
    assert reached - optimum <= tolerance * optimum + 1e-9
    assert reached - optimum <= ours.gap + 1e-9


def test_the_hinges_certificate_is_no_wider_than_its_rounding_and_the_solvers_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, weights, ridge = setting(0, 0.5)
    preferences = Preferences(data.candidates.features.copy(), data.labels, data.candidates.starts)
    coefficients = pair_coefficients(weights, preferences.pairs, "query")
    widths: list[float] = []

    def recorded(half_width: float) -> Loss:
        widths.append(half_width)
        return smoothed_hinge(half_width)

    monkeypatch.setattr("querywise.learners.ranksvm.newton.smoothed_hinge", recorded)
    ours = minimise_hinge(
        PreferenceParts.of(preferences), coefficients, ridge=ridge, tolerance=1e-3, start=ridge.minimiser
    )
    rounding = float(coefficients @ preferences.pairs) * widths[-1] / 4
    assert rounding <= ours.gap <= rounding + 1e-3 / 4 * ours.value


@pytest.mark.parametrize("size", [1e-3, 1e3])
def test_a_minimum_that_is_not_reached_is_an_error_whatever_the_size_of_the_objective(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, weights, _ = setting(0, 0.0)
    preferences = Preferences(data.candidates.features.copy(), data.labels, data.candidates.starts)
    coefficients = size * pair_coefficients(weights, preferences.pairs, "query")
    ridge = Ridge(0.1 * size, np.zeros(4))

    def solved() -> Optimum:
        return minimise(
            PreferenceParts.of(preferences),
            coefficients,
            ridge=ridge,
            loss=SQUARED_HINGE,
            tolerance=1e-9,
            start=np.ones(4),
        )

    assert solved().gap <= 1e-7 * solved().value
    monkeypatch.setattr("querywise.learners.ranksvm.newton._MAX_STEPS", 2)
    with pytest.raises(SolverError, match="a relative gap of 1e-09 was required"):
        solved()


@pytest.mark.parametrize("pairs", ["query", "pair"])
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_the_learner_solves_what_its_docstring_says(loss: Literal["squared_hinge", "hinge"], pairs: Weighting) -> None:
    data = ragged(5)
    ranker = RankSVM(0.3, loss=loss, pairs=pairs, scale="none").fit(data)
    written = Written(data, np.ones(len(data)), pairs, Ridge(0.3, np.zeros(4)))
    if loss == "squared_hinge":
        assert ranker.weights_ == pytest.approx(written.squared_optimum(), abs=1e-6)
    else:
        assert written.value(ranker.weights_, 1) <= written.hinge_optimum() * (1 + 1e-3) + 1e-9


def fitted(data: Judged, query_weights: Floats | None = None, **options: float) -> Floats:
    return RankSVM(options.pop("l2", 0.1), scale="none").fit(data, query_weights=query_weights).weights_


def test_scaling_all_query_weights_changes_nothing() -> None:
    data = ragged()
    weights = np.random.default_rng(0).uniform(size=len(data))
    assert fitted(data, 1000 * weights) == pytest.approx(fitted(data, weights), rel=1e-9)


def test_a_query_given_twice_at_half_weight_changes_nothing() -> None:
    data = ragged()
    again = data.select([0])
    twin = replace(again, candidates=replace(again.candidates, query_ids=("twin",)))
    weights = np.ones(len(data) + 1)
    weights[[0, -1]] = 0.5
    assert fitted(concatenate([data, twin]), weights) == pytest.approx(fitted(data), rel=1e-8)


def test_the_order_of_queries_and_of_documents_does_not_matter() -> None:
    data = ragged()
    rng = np.random.default_rng(0)
    turned = data.select(rng.permutation(len(data)))
    rows = np.concatenate(
        [rng.permutation(np.arange(*turned.candidates.rows(q).indices(len(turned.labels)))) for q in range(len(data))]
    )
    mixed = Judged(replace(turned.candidates, features=turned.candidates.features[rows]), turned.labels[rows])
    assert fitted(mixed) == pytest.approx(fitted(data), rel=1e-8)


def test_queries_without_pairs_are_ignored() -> None:
    data = ragged()
    useful = data.select(np.flatnonzero(data.pairs > 0))
    assert fitted(data) == pytest.approx(fitted(useful), rel=1e-8)


def test_only_the_order_of_grades_matters() -> None:
    data = ragged()
    stretched = Judged(data.candidates, np.array([0, 7, 1_000_000])[data.labels])
    assert fitted(stretched) == pytest.approx(fitted(data), rel=1e-12)


def test_weights_that_leave_no_pair_give_the_centre_and_never_nan() -> None:
    data = ragged()
    silent = np.where(data.pairs > 0, 0.0, 1.0)
    assert np.array_equal(fitted(data, silent), np.zeros(4))


def test_adding_a_constant_to_a_query_changes_nothing() -> None:
    data = ragged()
    lift = np.random.default_rng(0).normal(size=(len(data), 4))[data.candidates.query_of_row]
    lifted = Judged(replace(data.candidates, features=data.candidates.features + lift), data.labels)
    assert fitted(lifted) == pytest.approx(fitted(data), abs=1e-8)


def test_standardising_inside_makes_units_irrelevant() -> None:
    data = make_judged(40, 10, 5, seed=3)
    units = np.array([1e-6, 1.0, 1e6, 3.0, 0.01])
    other = Judged(
        Candidates(data.candidates.features * units + 5, data.candidates.starts, data.candidates.query_ids), data.labels
    )
    ours, theirs = RankSVM().fit(data), RankSVM().fit(other)
    assert theirs.weights_ * units == pytest.approx(ours.weights_, rel=1e-6)


def test_a_feature_that_never_changes_gets_no_weight_and_does_no_harm() -> None:
    data = make_judged(20, 8, 3)
    features = np.column_stack([data.candidates.features, np.full(160, 0.1), np.zeros(160)])
    widened = Judged(replace(data.candidates, features=features), data.labels)
    weights = RankSVM().fit(widened).weights_
    assert np.abs(weights[3:]).max() <= 1e-12
    assert weights[:3] == pytest.approx(RankSVM().fit(data).weights_, rel=1e-8)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_it_learns_what_can_be_learned_and_fails_where_one_model_must(loss: Literal["squared_hinge", "hinge"]) -> None:
    easy = two_faced(8).select([0, 2, 4, 6])
    alone = RankSVM(0.01, loss=loss).fit(easy)
    assert evaluate(alone.predict(easy.candidates), easy, measures=["p@1"]).mean() == {"p@1": 1.0}
    both = two_faced(8)
    single = RankSVM(0.01, loss=loss).fit(both)
    assert evaluate(single.predict(both.candidates), both, measures=["p@1"]).mean() == {"p@1": 0.5}


@pytest.mark.parametrize(
    ("ranker", "words"),
    [
        (RankSVM(0.0), r"l2=0.0\) must be a positive number"),
        (RankSVM(float("nan")), "l2=nan"),
        (RankSVM(loss="logistic"), "Known: squared_hinge, hinge"),  # type: ignore[arg-type]
        (RankSVM(pairs="all"), "Known: query, pair"),  # type: ignore[arg-type]
        (RankSVM(scale="minmax"), "Known: 'standard', 'none'"),  # type: ignore[arg-type]
        (RankSVM(prior="local"), "Known: None, 'global'"),  # type: ignore[arg-type]
        (RankSVM(prior_l2=-1.0), "prior_l2=-1.0"),
        (RankSVM(tolerance=0.0), "between 0 and 1"),
        (RankSVM(nonnegative="yes"), "must be True or False"),  # type: ignore[arg-type]
    ],
)
def test_a_parameter_that_cannot_be_is_refused(ranker: RankSVM, words: str) -> None:
    with pytest.raises(DataError, match=words):
        ranker.fit(ragged())


def test_query_weights_are_checked() -> None:
    data = ragged()
    with pytest.raises(DataError, match=rf"There are {len(data)} queries but query_weights has shape \(2,\)"):
        RankSVM().fit(data, query_weights=np.ones(2))
    weights = np.ones(len(data))
    weights[1] = -1
    with pytest.raises(DataError, match=r"The weight of query 'q1' is -1\.0"):
        RankSVM().fit(data, query_weights=weights)


def test_data_without_a_single_preference_is_refused() -> None:
    data = Judged(ragged().candidates, np.zeros(len(ragged().labels), np.int64))
    with pytest.raises(DataError, match="no preference"):
        RankSVM().fit(data)


def test_predicting_before_fitting_says_what_to_do() -> None:
    with pytest.raises(NotFittedError, match=r"call RankSVM\.fit\(data\) first"):
        RankSVM().predict(ragged().candidates)


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
@pytest.mark.parametrize("learner", [RankSVM(scale="none"), ListNet(scale="none")], ids=["ranksvm", "listnet"])
def test_features_whose_loss_is_no_number_are_refused_with_the_reason(learner: RankSVM | ListNet) -> None:
    data = make_judged(10, 6, 3)
    huge = replace(data, candidates=replace(data.candidates, features=data.candidates.features * 1e110))
    with pytest.raises(SolverError, match=r"loss is not a number: features are too large|solver stopped"):
        learner.fit(huge)


def test_a_local_model_that_is_not_unique_is_refused_with_the_reason() -> None:
    with pytest.raises(SolverError, match="a local model is not unique"):
        solved(LinearSystems(np.zeros((1, 2, 2)), np.zeros((0, 0), np.float32)), np.arange(1), np.ones((1, 2)))
