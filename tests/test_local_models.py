from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from querywise.data.judged import Judged, concatenate
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.learners.ranksvm import local_models
from querywise.learners.ranksvm.certificates import errors, objective_sums, single_sums
from querywise.learners.ranksvm.local_models import (
    Centres,
    PreparedRankSVM,
    centre_points,
    gradients_at,
    nearest,
    sums_at,
)
from querywise.learners.ranksvm.newton import Ridge
from querywise.learners.ranksvm.preferences import Preferences
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.ranksvm.systems import Curved, step_sums
from querywise.learners.weights import WeightRows
from querywise.runtime.arrays import Floats, Singles
from tests.support.svm import Weighting, Written, svm
from tests.worlds import pairwise, ragged

M = 15  # queries in the ragged world, the last three without pairs


def local(learner: RankSVM, data: Judged, rows: object) -> Floats:
    """The weights of the models, a row each."""
    return learner.prepare(data).models(csr_array(np.atleast_2d(np.asarray(rows, dtype=np.float64)))).weights


def some_of(k: int, rows: int = 2, seed: int = 0) -> Floats:
    """Rows of V with weights of all sizes on k queries each, at least one of which has pairs."""
    rng = np.random.default_rng([seed, k])
    weights = np.zeros((rows, M))
    for row in weights:
        chosen = np.concatenate([[rng.integers(M - 3)], rng.permutation(M)])
        row[list(dict.fromkeys(chosen.tolist()))[:k]] = rng.uniform(0.1, 2, size=k)
    return weights


@pytest.mark.parametrize(("k", "pairs", "prior_l2"), pairwise([1, 2, 5, M], ["query", "pair"], [None, 0.5]))
def test_every_model_is_within_the_gap_asked_for_of_scipys_optimum(
    k: int, pairs: Weighting, prior_l2: float | None
) -> None:
    data, rows = ragged(1), some_of(k)
    everyone = Written(data, np.ones(M), pairs, Ridge(0.02, np.zeros(4))).squared_optimum()
    objectives = [Written(data, row, pairs, Ridge(0.02, everyone, prior_l2 or 0.0)) for row in rows]
    least = [objective.value(objective.squared_optimum(), 2) for objective in objectives]
    for tolerance in (1e-3, 1e-8):
        found = local(svm(prior_l2, 0.02, pairs=pairs, tolerance=tolerance), data, rows)
        for objective, optimum, weights in zip(objectives, least, found, strict=True):
            assert objective.value(weights, 2) <= optimum * (1 + tolerance) + 1e-12


@pytest.mark.parametrize(
    ("k", "pairs", "prior_l2"), [(1, "pair", None), (2, "query", 0.5), (5, "query", None), (M, "pair", 0.5)]
)
def test_every_hinge_model_is_within_a_thousandth_of_scipys_optimum(
    k: int, pairs: Weighting, prior_l2: float | None
) -> None:
    data, rows = ragged(1), some_of(k)
    prepared = svm(prior_l2, loss="hinge", pairs=pairs).prepare(data)
    for row, weights in zip(rows, prepared.models(csr_array(rows)).weights, strict=True):
        # Within a thousandth there are many global models: the centre is the one that was found.
        objective = Written(data, row, pairs, Ridge(0.1, prepared.everyone.weights_, prior_l2 or 0.0))
        assert objective.value(weights, 1) <= objective.hinge_optimum() * (1 + 1e-3) + 1e-9


def test_equal_rows_share_one_hinge_model_and_others_keep_their_own() -> None:
    data, rows = ragged(1), some_of(5)
    prepared = svm(loss="hinge").prepare(data)
    alone = np.concatenate([prepared.models(csr_array(row[None, :])).weights for row in rows])
    assert np.array_equal(prepared.models(csr_array(rows[[1, 0, 1, 1, 0]])).weights, alone[[1, 0, 1, 1, 0]])
    assert not np.array_equal(alone[0], alone[1])


@pytest.mark.parametrize("tolerance", [1e-3, 1e-8, None])
@pytest.mark.parametrize("prior_l2", [None, 0.0, 0.5, 100.0])
@pytest.mark.parametrize("pairs", ["query", "pair"])
def test_a_row_of_equal_weights_is_the_global_model_for_every_prior(
    pairs: Weighting, prior_l2: float | None, tolerance: float | None
) -> None:
    for seed in range(5):
        data = ragged(seed)
        learner = svm(prior_l2, pairs=pairs, tolerance=tolerance)
        everyone = learner.prepare(data).everyone.weights_
        for weights in local(learner, data, [np.full(M, constant) for constant in (1.0, 1e-9, 7e9)]):
            assert weights == pytest.approx(everyone, abs=1e-8)


def test_scaled_features_come_back_in_the_units_given() -> None:
    data = make_judged(30, 8, 4, seed=2)
    units = np.array([1e-5, 1.0, 1e5, 3.0])
    other = replace(data, candidates=replace(data.candidates, features=data.candidates.features * units + 7))
    rows = np.eye(30)[:5] + np.eye(30)[5:10]
    ours, theirs = (RankSVM(tolerance=1e-10).prepare(each).models(csr_array(rows)) for each in (data, other))
    assert theirs.weights * units == pytest.approx(ours.weights, abs=1e-6)


@pytest.mark.parametrize("tolerance", [1e-3, None])
@pytest.mark.parametrize("pairs", ["query", "pair"])
def test_scaling_a_row_changes_nothing(pairs: Weighting, tolerance: float | None) -> None:
    data, rows = ragged(2), some_of(5, rows=3)
    learner = svm(0.5, pairs=pairs, tolerance=tolerance)
    factors = np.array([[1e-9], [3.0], [1e9]])
    assert local(learner, data, factors * rows) == pytest.approx(local(learner, data, rows), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("prior_l2", [None, 0.5])
@pytest.mark.parametrize("pairs", ["query", "pair"])
def test_a_query_given_twice_at_half_weight_changes_nothing(pairs: Weighting, prior_l2: float | None) -> None:
    data, rows = ragged(2), some_of(5)
    rows[:, 0] = 1.0
    again = data.select([0])
    twin = replace(again, candidates=replace(again.candidates, query_ids=("twin",)))
    halved = np.column_stack([rows, rows[:, 0] / 2])
    halved[:, 0] /= 2
    # The global model of the larger set counts the twin twice; the centre is to be the same one.
    learner = svm(prior_l2, pairs=pairs, tolerance=1e-18)
    prepared = learner.prepare(concatenate([data, twin]))
    prepared.centre_ = learner.prepare(data).centre_
    found = prepared.models(csr_array(halved)).weights
    assert found == pytest.approx(local(learner, data, rows), abs=1e-8)


@pytest.mark.parametrize("tolerance", [1e-3, None])
def test_permuting_the_queries_changes_nothing_and_permuting_the_rows_permutes(tolerance: float | None) -> None:
    data, rows = ragged(2), some_of(5)
    learner = svm(0.5, tolerance=tolerance)
    turned = np.random.default_rng(0).permutation(M)
    found = local(learner, data, rows)
    assert local(learner, data.select(turned), rows[:, turned]) == pytest.approx(found, rel=1e-5, abs=1e-7)
    assert local(learner, data, rows[::-1]) == pytest.approx(found[::-1], rel=1e-9)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
@pytest.mark.parametrize("tolerance", [1e-3, None])
def test_a_row_that_teaches_nothing_is_the_centre_alone_and_never_nan(loss: Any, tolerance: float | None) -> None:
    data = ragged(2)
    silent = (data.pairs == 0).astype(np.float64)
    assert silent.any()
    rows = np.array([np.zeros(M), silent, 1 - silent])
    without_prior = local(svm(loss=loss, tolerance=tolerance), data, rows)
    assert np.array_equal(without_prior[:2], np.zeros((2, 4)))
    prepared = svm(0.3, 0.1, loss=loss, tolerance=tolerance).prepare(data)
    found = prepared.models(csr_array(rows)).weights
    centre = 0.3 / (0.1 + 0.3) * prepared.everyone.weights_
    assert found[:2] == pytest.approx(np.array([centre, centre]), rel=1e-12)
    assert np.isfinite(found).all()


def test_queries_without_pairs_take_no_weight_from_the_others() -> None:
    data, rows = ragged(2), some_of(5)
    silenced = np.where(data.pairs > 0, rows, 0.0)
    learner = svm()
    assert local(learner, data, rows) == pytest.approx(local(learner, data, silenced), rel=1e-9)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_no_row_gives_no_model(loss: Any) -> None:
    prepared = svm(loss=loss).prepare(ragged())
    assert prepared.models(csr_array((0, M))).weights.shape == (0, 4)


@pytest.mark.parametrize("tolerance", [None, 1e-3])
@pytest.mark.parametrize("k", [2, M])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("local_models._MEMORY", 1),
        ("preferences._RANGES", 1),
        ("systems._DENSE_ROWS", 1),
        ("certificates.MANY", 1),
        ("certificates.MANY", 100),
        ("systems._FEW", 1),
    ],
)
def test_results_do_not_depend_on_how_the_work_is_cut(
    name: str, value: float, k: int, tolerance: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, rows = ragged(3), some_of(k, rows=20)
    learner = svm(0.05, tolerance=tolerance)
    as_it_is = local(learner, data, rows)
    monkeypatch.setattr(f"querywise.learners.ranksvm.{name}", value)
    assert np.abs(local(learner, data, rows) - as_it_is).max() <= 1e-6 * np.abs(as_it_is).max()


@pytest.mark.parametrize("tolerance", [None, 1e-3])
def test_one_row_at_a_time_is_all_rows_at_once_whatever_the_others_weigh(tolerance: float | None) -> None:
    data, rng = make_judged(40, 8, 6, seed=1), np.random.default_rng(0)
    few, many = rng.random((10, 40)) < 0.1, rng.random((10, 40)) < 0.9
    few[:, 0] = True
    rows = np.vstack([few, many]).astype(np.float64)
    prepared = RankSVM(tolerance=tolerance).prepare(data)
    together = prepared.models(csr_array(rows)).weights
    alone = np.vstack([prepared.models(csr_array(row[None, :])).weights for row in rows])
    assert alone == pytest.approx(together, abs=1e-9)


def around_centres(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Step from centres however few models there are; how many models are certified each time is noted."""
    monkeypatch.setattr("querywise.learners.ranksvm.local_models._WORTH", 0)
    counts: list[int] = []

    def noted(pairs: Preferences, shares: WeightRows, weights: Floats) -> tuple[Floats, Floats]:
        counts.append(len(weights))
        return objective_sums(pairs, shares, weights)

    monkeypatch.setattr("querywise.learners.ranksvm.certificates.objective_sums", noted)
    return counts


@pytest.mark.parametrize("pairs", ["query", "pair"])
@pytest.mark.parametrize("prior_l2", [None, 0.5])
def test_models_from_centres_are_within_the_gap_asked_for(
    prior_l2: float | None, pairs: Weighting, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, rows = ragged(3), some_of(5, rows=20)
    exact = local(svm(prior_l2, pairs=pairs, tolerance=1e-18), data, rows)
    around_centres(monkeypatch)
    assert local(svm(prior_l2, pairs=pairs, tolerance=1e-18), data, rows) == pytest.approx(exact, abs=1e-8)
    centre = svm(prior_l2, pairs=pairs).prepare(data).everyone.weights_
    found = local(svm(prior_l2, pairs=pairs), data, rows)
    for row, weights, best in zip(rows, found, exact, strict=True):
        objective = Written(data, row, pairs, Ridge(0.1, centre, prior_l2 or 0.0))
        assert objective.value(weights, 2) <= objective.value(best, 2) * (1 + 1e-3) + 1e-12


def test_a_step_from_a_centre_spares_models_a_look_at_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    data, rows = of_two_kinds(120)
    prepared, looked = RankSVM(tolerance=3e-4).prepare(data), around_centres(monkeypatch)
    prepared.models(csr_array(rows))
    assert looked == [120]
    looked.clear()
    monkeypatch.setattr("querywise.learners.ranksvm.local_models._WORTH", np.inf)
    prepared.models(csr_array(rows))
    assert sum(looked) > 150


def of_two_kinds(queries: int) -> tuple[Judged, Floats]:
    """Queries of two kinds, and rows of V in which each has those of its kind as neighbours."""
    data = make_judged(queries, 12, 6, kinds=2, seed=1)
    assert data.candidates.queries is not None
    kinds = np.array(data.candidates.queries.classes)
    return data, (kinds[:, None] == kinds) * np.random.default_rng(0).uniform(0.5, 1.5, size=(queries, queries))


def proven_gaps(data: Judged, rows: Floats, weights: Floats, l2: float) -> Floats:
    """How far above its minimum each model is at most, relative to its objective; in double precision."""
    pairs = Preferences(data.candidates.features, data.labels, data.candidates.starts)
    losses, gradient = objective_sums(pairs, WeightRows.of(csr_array(rows), pairs.pairs, "query"), weights)
    norms = np.einsum("ij,ij->i", gradient + l2 * weights, gradient + l2 * weights)
    relative: Floats = norms / (2 * l2) / (losses + 0.5 * l2 * np.einsum("ij,ij->i", weights, weights))
    return relative


def test_models_that_are_alike_need_no_curvature_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    data, rows = of_two_kinds(600)
    prepared, summed = svm(l2=1.0).prepare(data), list[int]()

    def noted(curved: Curved, shares: WeightRows) -> tuple[Floats, Singles]:
        summed.append(len(shares))
        return step_sums(curved, shares)

    monkeypatch.setattr("querywise.learners.ranksvm.local_models.step_sums", noted)
    found = prepared.models(csr_array(rows)).weights
    assert summed == [64, 1]  # of the centres, and the one in common
    assert proven_gaps(data, rows, found, 1.0).max() <= 1e-3


@pytest.mark.parametrize("late", [0.0, 1.0])
def test_models_that_are_not_alike_are_trained_with_their_own(late: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of the sample may miss the tolerance: those that do are trained as if there were no others."""
    data, chosen = make_judged(80, 12, 6, kinds=3, seed=2), np.random.default_rng(0).random((80, 80)) < 0.05
    rows = np.maximum(chosen, np.eye(80))
    monkeypatch.setattr(local_models, "_WORTH", 0)
    monkeypatch.setattr(local_models, "_COMMON", 0)
    monkeypatch.setattr(local_models, "_LATE", late)
    blocks, real = list[int](), PreparedRankSVM._in_blocks

    def noted(prepared: PreparedRankSVM, shares: WeightRows, centres: Centres | None) -> Floats:
        blocks.append(len(shares))
        return real(prepared, shares, centres)

    monkeypatch.setattr(PreparedRankSVM, "_in_blocks", noted)
    found = local(svm(l2=0.02), data, rows)
    assert blocks == [80] if late == 0.0 else 0 < blocks[0] < 80
    assert proven_gaps(data, rows, found, 0.02).max() <= 1e-3


@pytest.mark.parametrize(("size", "documents"), [(0.01, 8), (1.0, 40), (30.0, 40), (1.0, 400)])
def test_sums_in_single_precision_are_off_by_no_more_than_is_allowed_for(size: float, documents: int) -> None:
    data = make_judged(20, documents, 30, seed=3)
    pairs = Preferences(data.candidates.features + 5.0, data.labels, data.candidates.starts)
    rows = np.random.default_rng(1).uniform(size=(16, 20))
    shares = WeightRows.of(csr_array(rows), pairs.pairs, "query")
    weights = np.random.default_rng(2).normal(scale=size, size=(16, 30))
    losses, gradient = objective_sums(pairs, shares, weights)
    near_losses, near_gradient, extent = single_sums(pairs, shares, weights)
    losses_off, gradient_off = errors(np.linalg.norm(weights, axis=1), near_losses, 30, extent)
    off = np.linalg.norm(near_gradient - gradient, axis=1)
    assert (np.abs(near_losses - losses) <= losses_off).all()
    assert (off <= gradient_off).all()
    size_of_gradient = np.linalg.norm(gradient, axis=1)
    assert (off > 1e-9 * size_of_gradient).all()
    assert (gradient_off < 1e-2 * size_of_gradient).all()


def test_gradients_at_a_centre_add_up_to_that_of_every_model() -> None:
    data, rows = ragged(3), some_of(5, rows=20)
    pairs = Preferences(data.candidates.features, data.labels, data.candidates.starts)
    points = np.random.default_rng(0).normal(size=(3, 4))
    shares, own = WeightRows.of(csr_array(rows), pairs.pairs, "query"), np.arange(20) % 3
    _, expected = objective_sums(pairs, shares, points[own])
    assert sums_at(gradients_at(pairs, points), shares, own) == pytest.approx(expected, abs=1e-12)


def test_centres_are_those_of_groups_that_are_far_apart() -> None:
    rng = np.random.default_rng(0)
    groups = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    models = np.repeat(groups, 5, axis=0) + rng.normal(scale=0.1, size=(15, 2))
    expected = models.reshape(3, 5, 2).mean(axis=1)
    found = centre_points(models[rng.permutation(15)], 3)
    assert np.sort(nearest(expected, found)).tolist() == [0, 1, 2]
    assert found[np.argsort(nearest(expected, found))] == pytest.approx(expected)
    assert centre_points(models[:1], 3) == pytest.approx(models[:1])


def test_a_bare_step_keeps_no_training_document() -> None:
    bare = svm(tolerance=None).prepare(ragged())
    assert bare.features_ is None
    assert bare.levels_ is None
    assert svm(tolerance=1e-3).prepare(ragged()).features_ is not None


def test_a_bare_step_is_the_formula() -> None:
    data = ragged(4)
    row = np.zeros(M)
    row[[1, 3, 4, 8]] = 1.0
    everyone = svm().prepare(data).everyone.weights_
    objective = Written(data, row, "query", Ridge(0.1, everyone, 0.5))
    margins = 1 - objective.differences @ everyone
    violated = objective.coefficients * (margins > 0)
    gradient = 0.1 * everyone - objective.differences.T @ (2 * violated * margins)
    curvature = (0.1 + 0.5) * np.eye(4) + objective.differences.T @ (2 * violated[:, None] * objective.differences)
    expected = everyone - np.linalg.solve(curvature, gradient)
    assert local(svm(0.5, tolerance=None), data, row)[0] == pytest.approx(expected, abs=1e-5)


def test_the_learner_given_is_not_changed() -> None:
    learner = svm()
    before = dict(vars(learner))
    learner.prepare(ragged())
    assert vars(learner) == before


def test_weights_that_cannot_be_are_refused() -> None:
    prepared = svm().prepare(ragged())
    with pytest.raises(DataError, match=f"There are {M} training queries but weights for {M - 1}"):
        prepared.models(csr_array(np.ones((1, M - 1))))
    for wrong in (-1.0, np.nan, np.inf):
        row = np.ones((1, M))
        row[0, 4] = wrong
        with pytest.raises(DataError, match="finite numbers from 0 up"):
            prepared.models(csr_array(row))
