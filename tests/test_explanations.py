from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from querywise.arrays import Floats, Ints
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.evaluation.analysis import change_ratios, stability_bounds
from querywise.explanations import explain
from querywise.learners.ranksvm import RankSVM
from querywise.learners.trees import LambdaMART
from querywise.neighborhoods import Radius
from querywise.rankers.knn import KnnOffline2, KnnOnline
from querywise.views.topmean import TopMean
from tests.worlds import explicit_pairs

DATA = make_judged(40, 8, 4, kinds=2, seed=5)


def test_the_departures_and_the_global_model_add_up_to_the_score() -> None:
    ranker = KnnOnline(RankSVM(), k=10).fit(DATA)
    found = explain(ranker, DATA.candidates, "q3")
    rows = DATA.candidates.rows(2)
    here = np.zeros(4)
    for departure in found.departures:
        here[int(departure.feature) - 1] = departure.here
    assert DATA.candidates.features[rows] @ here == pytest.approx(ranker.predict(DATA.candidates)[rows], abs=1e-12)
    effects = [abs(each.effect) for each in found.departures]
    assert effects == sorted(effects, reverse=True)


def test_a_training_query_is_its_own_nearest_neighbour() -> None:
    for ranker in (KnnOnline(RankSVM(), k=10), KnnOffline2(RankSVM(), k=10)):
        found = explain(ranker.fit(DATA), DATA.candidates, "q7")
        assert not found.is_global
        assert found.neighbours[0].query_id == "q7"
        assert found.neighbours[0].distance == 0
        assert len(found.neighbours) == 10
        assert sum(each.weight for each in found.neighbours) == pytest.approx(1)


def test_a_query_without_neighbours_is_answered_by_the_global_model() -> None:
    ranker = KnnOnline(RankSVM(), neighborhood=Radius(0.0)).fit(DATA.select(range(20)))
    found = explain(ranker, DATA.candidates, "q30")
    assert found.is_global
    assert found.neighbours == ()
    assert all(each.effect == 0 for each in found.departures)


def test_models_without_weights_show_their_neighbours_alone() -> None:
    ranker = KnnOnline(LambdaMART(3), k=20, view=TopMean(0)).fit(DATA)
    assert explain(ranker, DATA.candidates, "q1").departures == ()


def test_what_cannot_be_explained_is_refused() -> None:
    with pytest.raises(DataError, match="There is no query 'nobody' here"):
        explain(KnnOnline(RankSVM(), k=10).fit(DATA), DATA.candidates, "nobody")
    with pytest.raises(DataError, match="A RankSVM has one model for all queries"):
        explain(RankSVM().fit(DATA), DATA.candidates, "q1")


members = arrays(np.float64, (3, 6), elements=st.sampled_from([0.0, 1.0]))


@given(members, members, arrays(np.int64, 6, elements=st.integers(0, 9)))
def test_the_change_ratio_is_its_formula_over_sets_of_pairs(ours: Floats, theirs: Floats, pairs: Ints) -> None:
    found = change_ratios(csr_array(ours), csr_array(theirs), pairs)
    for row in range(3):
        first = {(query, pair) for query in range(6) if ours[row, query] for pair in range(pairs[query])}
        second = {(query, pair) for query in range(6) if theirs[row, query] for pair in range(pairs[query])}
        least = min(len(first), len(second))
        if least == 0:
            assert np.isnan(found[row])
        else:
            assert found[row] == pytest.approx((len(first) + len(second) - 2 * len(first & second)) / least)


def test_the_two_bounds_are_equal_where_both_models_have_as_many_pairs() -> None:
    ours, theirs = csr_array([[1.0, 1.0, 0.0]]), csr_array([[0.0, 1.0, 1.0]])
    paper, own = stability_bounds(ours, theirs, np.array([3, 5, 3]), l2=0.5, reach=2.0)
    assert paper == pytest.approx(own)
    assert own == pytest.approx([2.0 / 0.5 * (3 + 3) / 8])


@pytest.mark.parametrize("seed", range(4))
def test_no_pairs_loss_moves_by_more_than_the_bound(seed: int) -> None:
    data = make_judged(12, 6, 3, seed=seed)
    rng = np.random.default_rng(seed)
    rows = (rng.random((2, 12)) < 0.6).astype(np.float64)
    learner = RankSVM(0.5, loss="hinge", pairs="pair", scale="none", tolerance=1e-6)
    first, second = learner.prepare(data).models(csr_array(rows)).weights
    differences, _ = explicit_pairs(data)
    reach = float(np.max(np.sum(differences**2, axis=1)))
    _, bound = stability_bounds(csr_array(rows[:1]), csr_array(rows[1:]), data.pairs, l2=0.5, reach=reach)
    moved = np.abs(np.maximum(0, 1 - differences @ first) - np.maximum(0, 1 - differences @ second))
    assert moved.max() <= bound[0]
