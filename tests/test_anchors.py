"""Models of single rows by what is known of rows like them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from querywise.data.judged import Judged
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.learners.ranksvm.anchors import Anchors, Given
from querywise.learners.ranksvm.certificates import RoundedRows, objective_sums
from querywise.learners.ranksvm.local_kernels import nearest_row
from querywise.learners.ranksvm.local_models import PreparedRankSVM
from querywise.learners.ranksvm.newton import Ridge
from querywise.learners.ranksvm.preferences import Preferences
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.ranksvm.systems import Curved, solver
from querywise.learners.weights import WeightRows
from querywise.rankers.knn import KnnOnline
from querywise.runtime.arrays import Floats
from querywise.storage import load, save
from tests.support.svm import Weighting, Written, svm

QUERIES = 40
K = 16


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start from anchors however small the models are."""
    monkeypatch.setattr("querywise.learners.ranksvm.local_models._LARGE", 0)
    monkeypatch.setattr("querywise.learners.ranksvm.local_models._APART", 4)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether an anchor was near, for every row that was asked for."""
    found: list[bool] = []

    def noted(method: Callable[..., Any]) -> Callable[..., Any]:
        def answered(*given: Any) -> Any:
            near = method(*given)
            found.append(near is not None)
            return near

        return answered

    monkeypatch.setattr(Anchors, "nearest", noted(Anchors.nearest))  # of certified models
    monkeypatch.setattr(Anchors, "bare", noted(Anchors.bare))
    return found


def world() -> Judged:
    return make_judged(QUERIES, 9, 5, seed=3)


def shifted(count: int, first: float = 0.0) -> csr_array:
    """Rows of K queries in sequence, from places spread over all of them: rows nearby have most in common."""
    places = np.linspace(first, QUERIES - K, count).astype(np.int64)
    numbers = (places[:, None] + np.arange(K)).ravel()
    weights = np.ones(numbers.shape)
    weights[:: 2 * K] = 0.5  # as where queries share a place
    return csr_array((weights, numbers, np.arange(count + 1) * K), shape=(count, QUERIES))


def by_itself(prepared: PreparedRankSVM, rows: csr_array) -> Floats:
    return prepared.models(rows).weights


def beside(prepared: PreparedRankSVM, rows: csr_array) -> Floats:
    return np.vstack([prepared.models(rows[[row]], like=shifted).weights for row in range(rows.shape[0])])


@pytest.mark.parametrize("prior_l2", [None, 0.5])
@pytest.mark.parametrize("pairs", ["query", "pair"])
def test_a_bare_step_from_an_anchor_is_the_one_from_all_queries(
    pairs: Weighting, prior_l2: float | None, looked: list[bool]
) -> None:
    prepared, rows = svm(prior_l2, pairs=pairs, tolerance=None).prepare(world()), shifted(12, 2.0)
    assert beside(prepared, rows) == pytest.approx(by_itself(prepared, rows), rel=1e-5, abs=1e-6)
    assert looked == [True] * 12


@pytest.mark.parametrize("close", [0.0, 1.0])
@pytest.mark.parametrize("prior_l2", [None, 0.5])
@pytest.mark.parametrize("pairs", ["query", "pair"])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-12])
def test_a_certified_model_from_an_anchor_is_within_the_gap_asked_for(
    tolerance: float,
    pairs: Weighting,
    prior_l2: float | None,
    close: float,
    looked: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("querywise.learners.ranksvm.anchors._CLOSE", close)
    data, rows = world(), shifted(5, 2.0)
    prepared = svm(prior_l2, pairs=pairs, tolerance=tolerance).prepare(data)
    exact = by_itself(svm(prior_l2, pairs=pairs, tolerance=1e-18).prepare(data), rows)
    found, centre = beside(prepared, rows), prepared.everyone.weights_
    assert all(looked)
    for row, weights, best in zip(rows.toarray(), found, exact, strict=True):
        objective = Written(data, row, pairs, Ridge(0.1, centre, prior_l2 or 0.0))
        assert objective.value(weights, 2) <= objective.value(best, 2) * (1 + tolerance) + 1e-13


def test_few_rows_at_once_are_each_alone() -> None:
    for tolerance in (None, 1e-3):
        prepared, rows = svm(tolerance=tolerance).prepare(world()), shifted(7, 2.0)
        assert np.array_equal(prepared.models(rows, like=shifted).weights, beside(prepared, rows))


@pytest.mark.parametrize("tolerance", [None, 1e-3])
def test_a_row_like_no_anchor_is_trained_as_without_them(tolerance: float | None, looked: list[bool]) -> None:
    prepared = svm(tolerance=tolerance).prepare(world())
    row = np.zeros((1, QUERIES))
    row[0, ::5] = np.arange(1, 9)
    assert np.array_equal(beside(prepared, csr_array(row)), by_itself(prepared, csr_array(row)))
    assert looked == [False]


@pytest.mark.parametrize("tolerance", [None, 1e-3])
def test_rows_of_few_queries_or_of_none_with_pairs_ask_no_anchor(tolerance: float | None, looked: list[bool]) -> None:
    prepared = svm(0.5, tolerance=tolerance).prepare(world())
    for row in (np.eye(QUERIES)[:1], np.zeros((1, QUERIES))):
        assert np.array_equal(beside(prepared, csr_array(row)), by_itself(prepared, csr_array(row)))
    assert looked == []


def test_equal_weights_are_the_global_model_for_every_prior() -> None:
    everyone = csr_array(np.ones((1, QUERIES)))
    for prior_l2 in (None, 0.5, 100.0):
        for tolerance in (None, 1e-3, 1e-8):
            prepared = svm(prior_l2, tolerance=tolerance).prepare(world())
            found = prepared.models(everyone, like=lambda count: csr_array(np.ones((count, QUERIES)))).weights
            assert found[0] == pytest.approx(prepared.everyone.weights_, abs=1e-6)


def test_another_prior_has_anchors_of_its_own() -> None:
    prepared, row = svm(0.5).prepare(world()), shifted(3)[[1]]
    beside(prepared, row)
    other = prepared.for_learner(svm(50.0))
    assert np.array_equal(beside(other, row), beside(svm(50.0).prepare(world()), row))


def test_a_row_is_so_many_times_an_anchor_and_what_is_left() -> None:
    shares = WeightRows.of(shifted(6), np.arange(QUERIES) % 4, "pair")
    rows = shares.matrix().toarray()
    held = np.ascontiguousarray((rows > 0).T, dtype=np.float32)
    for own in (shifted(9, 1.0)[[4]], shifted(6)[[2]]):
        asked = WeightRows.of(own, np.arange(QUERIES) % 4, "pair")
        anchor, times, queries, left = nearest_row(rows, held, held.sum(axis=0), *asked.row(0))
        rebuilt = times * rows[anchor]
        rebuilt[queries] += left
        assert rebuilt == pytest.approx(asked.matrix().toarray()[0], abs=1e-15)
        assert (rows[anchor] > 0) @ (own.toarray()[0] > 0) == max((rows > 0) @ (own.toarray()[0] > 0))
    assert len(queries) == 0


@pytest.mark.parametrize("count", ["query", "pair"])
def test_a_row_has_the_shares_that_rows_have_together(count: Any) -> None:
    pairs, weights = np.arange(QUERIES) % 3, shifted(3)[[1]] * 0.3
    queries, shares = WeightRows.of(weights, pairs, count).row(0)
    curved, ridge = Curved(np.ones((QUERIES, 2)), np.ones((QUERIES, 3), np.float32)), Ridge(1.0, np.zeros(2))
    given = Given.of(pairs, count, curved, None, ridge, None)
    found = Anchors.of(WeightRows.of(weights, pairs, count), given, np.zeros((1, 2))).row(weights)
    assert np.array_equal(found.queries, queries)
    assert np.array_equal(found.shares, shares)


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("tolerance", [None, 1e-3])
def test_weights_that_are_no_numbers_from_0_up_are_refused(wrong: float, tolerance: float | None) -> None:
    row = shifted(3)[[1]]
    row.data[2] = wrong
    with pytest.raises(DataError, match="finite numbers from 0 up"):
        beside(svm(tolerance=tolerance).prepare(world()), row)


@pytest.mark.parametrize("documents", [9, 400])
def test_losses_in_single_precision_are_off_by_no_more_than_is_said(documents: int) -> None:
    data = make_judged(12, documents, 5, seed=4)
    pairs = Preferences(data.candidates.features + 3.0, data.labels, data.candidates.starts)
    rounded, shares = RoundedRows.of(pairs), WeightRows.of(csr_array(np.ones((1, 12))), pairs.pairs, "query")
    for size in (0.01, 1.0, 30.0):
        weights = np.random.default_rng(1).normal(scale=size, size=5)
        losses, gradient = objective_sums(pairs, shares, weights[None, :])
        found = rounded.objective(pairs, *shares.row(0), weights)
        assert found.losses <= losses[0] <= found.losses * (1 + 1e-3)
        off = np.linalg.norm(found.gradient - gradient[0])
        assert 0 < off <= found.off < 1e-2 * np.linalg.norm(gradient)


def test_models_that_single_precision_cannot_certify_are_certified_in_double(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("querywise.learners.ranksvm.anchors._ROUNDED", np.inf)
    data, row = world(), shifted(9, 1.0)[[4]]
    prepared = svm(tolerance=1e-12).prepare(data)
    exact, found = by_itself(svm(tolerance=1e-18).prepare(data), row), beside(prepared, row)
    assert prepared._anchors is not None
    assert prepared._anchors.rounded is not None
    objective = Written(data, row.toarray()[0], "query", Ridge(0.1, np.zeros(5), 0.0))
    assert objective.value(found[0], 2) <= objective.value(exact[0], 2) * (1 + 1e-12) + 1e-13


def test_rows_in_single_precision_are_not_made_where_they_would_prove_nothing() -> None:
    for tolerance, made in ((1e-3, True), (1e-13, False)):
        prepared = svm(tolerance=tolerance).prepare(world())
        beside(prepared, shifted(9, 1.0)[[4]])
        assert prepared._anchors is not None
        assert (prepared._anchors.rounded is not None) is made


@pytest.mark.parametrize("d", [1, 5, 18, 120])
def test_one_system_is_solved_as_numpy_solves_it(d: int) -> None:
    rng = np.random.default_rng(d)
    points = rng.normal(size=(2 * d, d)).astype(np.float32)
    matrix, right = (points.T @ points).astype(np.float64), rng.normal(size=(2, d))
    solve = solver(matrix[np.triu_indices(d)].astype(np.float32), 0.5, d)
    for each in right:
        assert solve(each) == pytest.approx(np.linalg.solve(matrix + 0.5 * np.eye(d), each), rel=1e-3, abs=1e-4)


def test_a_large_system_that_rounding_made_indefinite_is_solved_all_the_same() -> None:
    packed = np.zeros(120 * 121 // 2, np.float32)
    packed[0] = -1e-3
    right = np.ones(120)
    found = solver(packed, 1e-4, 120)(right)
    assert found == pytest.approx(right / 1e-4, rel=1e-5)


@pytest.mark.parametrize("tolerance", [None, 1e-3])
def test_a_ranker_answers_one_query_as_many_and_again_when_loaded(
    tolerance: float | None, looked: list[bool], tmp_path: Path
) -> None:
    data, other = make_judged(60, 9, 5, kinds=2, seed=1), make_judged(20, 9, 5, kinds=2, seed=2)
    ranker = KnnOnline(RankSVM(tolerance=tolerance), k=0.4, back_off=None).fit(data)
    together = ranker.predict(other)
    ask = partial(_one_by_one, other)
    alone = ask(ranker)
    assert sum(looked) > len(other) / 2
    assert alone == pytest.approx(together, abs=1e-5 if tolerance is None else 0.05)
    save(ranker, tmp_path / "model")
    assert np.array_equal(ask(load(tmp_path / "model")), alone)


def _one_by_one(data: Judged, ranker: Any) -> Floats:
    return np.concatenate([ranker.predict(data.candidates.select([query])) for query in range(len(data))])


def test_anchors_do_not_depend_on_the_order_of_the_training_queries() -> None:
    data, other = make_judged(60, 9, 5, kinds=2, seed=1), make_judged(5, 9, 5, kinds=2, seed=2)
    turned = data.select(np.random.default_rng(0).permutation(60))
    one, another = (KnnOnline(RankSVM(), k=0.4, back_off=None).fit(each) for each in (data, turned))
    assert _one_by_one(other, another) == pytest.approx(_one_by_one(other, one), abs=1e-5)
