"""The papers' own losses, written down from their formulas with every pair, and solved by another solver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import clarabel
import numpy as np
import pytest
from scipy import sparse

from querywise.data.judged import Judged
from querywise.data.synthetic import make_judged
from querywise.methods import METHODS
from querywise.runtime.arrays import Floats
from reproduction import hoi2008, lin2011
from reproduction.lin2011_sweep import ALONE, LOSS, THEIRS
from reproduction.papers import pair_differences
from tests.worlds import explicit_pairs, inside

EXACT = 1e-6  # of the objective


def equation_4(differences: Floats, cost: float) -> Floats:
    """min ½‖w‖² + C Σ ξ, w·(x_a − x_b) ≥ 1 − ξ, ξ ≥ 0: a program with a constraint for every pair."""
    count, width = differences.shape
    quadratic = sparse.block_diag([sparse.eye_array(width), sparse.csc_array((count, count))], format="csc")
    linear = np.concatenate([np.zeros(width), np.full(count, cost)])
    slack = sparse.eye_array(count)
    left = -sparse.vstack(
        [
            sparse.hstack([sparse.csc_array(differences), slack]),
            sparse.hstack([sparse.csc_array((count, width)), slack]),
        ]
    )
    right = np.concatenate([-np.ones(count), np.zeros(count)])
    wanted: Any = clarabel.DefaultSettings()
    wanted.verbose, wanted.max_threads = False, 1
    wanted.tol_gap_abs = wanted.tol_gap_rel = wanted.tol_feas = 1e-12
    cones = [clarabel.NonnegativeConeT(2 * count)]
    solver = clarabel.DefaultSolver(sparse.csc_matrix(quadratic), linear, sparse.csc_matrix(left), right, cones, wanted)
    weights: Floats = np.array(solver.solve().x, dtype=np.float64)[:width]
    return weights


def worth(differences: Floats, cost: float, weights: Floats) -> float:
    """The objective of Equation 4."""
    return float(0.5 * weights @ weights + cost * np.maximum(0.0, 1 - differences @ weights).sum())


def assert_as_good(differences: Floats, l2: float, weights: Floats) -> None:
    """Our weights reach the minimum of the paper's objective, C = 1 / (λ · pairs), to a millionth of it."""
    cost = 1 / (l2 * len(differences))
    ours, theirs = (worth(differences, cost, each) for each in (weights, equation_4(differences, cost)))
    assert ours == pytest.approx(theirs, rel=EXACT)


def graded(seed: int) -> Judged:
    """Some queries with grades 0 to 2."""
    return make_judged(14, 8, 4, kinds=2, noise=0.5, seed=seed)


def of_queries(data: Judged, queries: Floats) -> Floats:
    """The pairs of some queries."""
    differences, owners = explicit_pairs(data)
    return differences[np.isin(owners, queries)]


@pytest.mark.parametrize("l2", [0.3, 0.01])
@pytest.mark.parametrize("seed", range(2))
def test_rank_svm_of_lin2011_is_the_plain_hinge_over_all_pairs_alike(seed: int, l2: float) -> None:
    data = graded(seed)
    ranker = inside(METHODS["ranksvm"].build(l2=l2, tolerance=EXACT / 2, **LOSS).fit(data))
    assert_as_good(explicit_pairs(data)[0], l2, ranker.weights_)


@pytest.mark.parametrize("name", ["naive", "select-ranker", "transform"])
def test_so_is_every_model_of_a_cluster(name: str) -> None:
    data, l2 = graded(3), 0.1
    ranker = inside(METHODS[name].build(l2=l2, clusters=3, tolerance=EXACT / 2, **LOSS).fit(data))
    groups = ranker.groups_
    checked = 0
    for number, weights in enumerate(groups.models_.weights):
        if not groups.thin[number]:
            own = groups.grouping_.members_[[number]].indices
            assert_as_good(of_queries(data, own), l2, weights)
            checked += 1
    assert checked >= 2


def test_the_papers_rows_of_lin2011_have_its_loss_and_ours_have_not() -> None:
    fits = {name: inside(fit).fixed for name, fit in lin2011._fits(0, quick=True).items()}
    for name in (ALONE, *THEIRS):
        assert {**fits[name], **LOSS} == fits[name]
        assert {"loss", "pairs", "scale"} & {*fits[name.removesuffix(", hinge")]} == set()


@pytest.mark.parametrize("l2", [1.0, 0.03])
def test_equation_4_of_hoi2008_to_a_millionth(l2: float) -> None:
    data = graded(5)
    fixed = hoi2008._fixed(hoi2008.SVM)
    ranker = inside(METHODS["ranksvm"].build(l2=l2, **fixed).fit(data))
    assert_as_good(explicit_pairs(data)[0], l2, ranker.weights_)


def test_the_pairs_that_hoi2008_writes_down_are_all_pairs() -> None:
    data = graded(1)
    ours, theirs = pair_differences(data), explicit_pairs(data)[0]
    assert ours.shape == theirs.shape
    assert np.array_equal(np.sort(ours, axis=0), np.sort(theirs, axis=0))
    assert hoi2008._enumerated(data, 0.1)[0] == len(theirs)


@pytest.mark.parametrize("name", ["select-ranker", "transform"])
def test_the_score_of_a_blend_is_the_formula_of_the_page_on_mathematics(name: str) -> None:
    data, other = graded(3), graded(4)
    ranker = inside(METHODS[name].build(clusters=3).fit(data))
    returned, weights = ranker.predict(other), ranker.model_weights(other.candidates)
    for query in range(len(other)):
        rows = other.candidates.rows(query)
        scores = other.candidates.features[rows] @ ranker.groups_.models_.weights.T
        total = (scores / np.ptp(scores, axis=0)) @ weights[query]
        assert returned[rows] == pytest.approx(total - total.min(), abs=1e-9)


def test_a_query_whose_documents_a_model_scores_alike_is_scored_without_it() -> None:
    data = graded(3)
    ranker = inside(METHODS["transform"].build(clusters=3).fit(data))
    flat = replace(data, candidates=data.candidates.with_features(np.ones_like(data.candidates.features), None))
    assert np.array_equal(ranker.predict(flat), np.zeros(len(flat.labels)))
