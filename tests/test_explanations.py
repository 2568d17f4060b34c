from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from querywise.data.judged import Candidates, Judged
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, NotFittedError
from querywise.explanations.explain import explain, why
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.learners.trees.context import QueryContext
from querywise.locality.neighborhoods import Radius
from querywise.locality.views.topmean import TopMean
from querywise.rankers.blend import Blend, NearbyBlend
from querywise.rankers.clusters import SelectRanker, Transform
from querywise.rankers.ensemble.ensemble import SSER
from querywise.rankers.knn import KnnOffline2, KnnOnline
from querywise.rankers.single import OneFeature, Single
from querywise.rankers.weights.fusion import ReciprocalRank
from querywise.rankers.wrappers import QueryNormalised
from querywise.runtime.arrays import Floats, Ints
from reproduction.geng2008_sweep import change_ratios, stability_bounds
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


RANKERS: dict[str, Any] = {
    "online": KnnOnline(RankSVM(), k=10),
    "online, pairs": KnnOnline(RankSVM(pairs="pair"), k=10),
    "offline": KnnOffline2(RankSVM(), k=10),
    "normalised": QueryNormalised(KnnOffline2(RankSVM(), k=10)),
    "trees": KnnOffline2(LambdaMART(5), k=20, models=2),
    "blend": SelectRanker(RankSVM(), 4, 3),
    "blend of trees": Transform(LambdaMART(5), 3),
    "ensemble": SSER(2.0),
    "single": Single(RankSVM()),
    "context": QueryContext(LambdaMART(5)),
    "several, by ranks": Blend([QueryContext(LambdaMART(5)), KnnOnline(RankSVM(), k=10)], scores="rank"),
    "several": Blend([QueryContext(LambdaMART(5)), KnnOnline(RankSVM(), k=10)]),
    "nearby": NearbyBlend(Blend([OneFeature(1), KnnOnline(RankSVM(), k=10)]), k=5),
}


@pytest.mark.parametrize("name", RANKERS)
def test_the_terms_of_a_reason_add_up_to_the_difference(name: str) -> None:
    ranker = RANKERS[name].fit(DATA)
    rows = DATA.candidates.rows(4)
    scores, every = ranker.predict(DATA.candidates)[rows], ranker.answer(DATA.candidates).by_everyone()[rows]
    labels = [DATA.candidates.document_label(row) for row in range(rows.start, rows.stop)]
    found = why(ranker, DATA.candidates, "q5", "3", "6")
    assert found.difference == pytest.approx(scores[2] - scores[5], abs=1e-9)
    assert sum(each.here for each in found.terms) == pytest.approx(found.difference, abs=1e-9)
    assert sum(each.everyone for each in found.terms) == pytest.approx(found.everyone, abs=1e-9)
    assert found.everyone + found.local == pytest.approx(found.difference, abs=1e-9)
    assert len(labels) == len(scores)
    if found.models:
        assert sum(each.here for each in found.models) == pytest.approx(found.difference, abs=1e-9)
    if name not in ("blend", "blend of trees"):  # where the global model is brought to the blend's own range
        assert found.everyone == pytest.approx(every[2] - every[5], abs=1e-9)
    back = why(ranker, DATA.candidates, "q5", "6", "3")
    assert back.difference == pytest.approx(-found.difference, abs=1e-9)


def test_a_blend_of_rankers_names_them_and_shows_the_neighbours_of_the_local_one() -> None:
    ranker = RANKERS["several"].fit(DATA)
    found = explain(ranker, DATA.candidates, "q5")
    names = [each.name for each in found.models]
    assert names == ["QueryContext of LambdaMART (lambdarank)", "KnnOnline of RankSVM"]
    assert len(found.neighbours) == 10
    assert found.departures == explain(ranker.rankers_[1], DATA.candidates, "q5").departures
    terms = {each.feature for each in why(ranker, DATA.candidates, "q5", "1", "2").terms}
    assert {"feature 1", "z-score of feature 1"} <= terms


def test_a_blend_of_ranks_names_features_and_not_its_rankers() -> None:
    ranker = RANKERS["several, by ranks"].fit(DATA)
    scores = ranker.predict(DATA.candidates)
    for query in range(0, len(DATA), 7):
        rows = DATA.candidates.rows(query)
        for one, two in ((1, 2), (2, 7), (4, 8)):
            found = why(ranker, DATA.candidates, DATA.query_ids[query], str(one), str(two))
            gap = scores[rows.start + one - 1] - scores[rows.start + two - 1]
            assert sum(each.here for each in found.terms) == pytest.approx(gap, abs=1e-9)
            assert sum(each.here for each in found.models) == pytest.approx(gap, abs=1e-9)
            assert sum(each.everyone for each in found.terms) == pytest.approx(found.everyone, abs=1e-9)
            assert all(each.feature.removeprefix("z-score of ").startswith("feature ") for each in found.terms)


def test_a_rank_is_shared_out_in_proportion_to_what_features_add_to_the_score() -> None:
    # Weights 1 and 3 on two features that both favor the first document: the rank's parts are as 1 to 3.
    features = np.array([[2.0, 2.0], [1.0, 1.0], [0.0, 0.0], [0.5, 0.2]])
    data = Judged(Candidates(features, np.array([0, 4]), ("q",)), np.array([1, 0, 0, 0]))
    member = RankSVM().fit(data)
    member.weights_ = np.array([1.0, 3.0])
    blend = Blend([member], scores="rank").fit(data)
    blend.rankers_ = (member,)
    found = why(blend, data.candidates, "q", "1", "3")
    assert found.difference == pytest.approx(1.0), "first of four and last: all others are between"
    parts = {each.feature: each.here for each in found.terms}
    assert parts == {"1": pytest.approx(0.25), "2": pytest.approx(0.75)}


def test_features_that_cancel_are_not_blown_up_where_two_ranks_are_close() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(50, 2))
    features[0], features[1] = [1.0, -1.0], [-1.0, 1.0 - 1e-7]  # scores differ by 1e-7, the features by 2
    data = Judged(Candidates(features, np.array([0, 50]), ("q",)), np.r_[1, np.zeros(49, np.int64)])
    member = RankSVM().fit(data)
    member.weights_ = np.ones(2)
    blend = Blend([member], scores="rank").fit(data)
    blend.rankers_ = (member,)
    found = why(blend, data.candidates, "q", "1", "2")
    assert found.difference == pytest.approx(1 / 49)
    assert sum(each.here for each in found.terms) == pytest.approx(1 / 49, abs=1e-12)
    parts = {each.feature: each.here for each in found.terms}
    assert 0 < parts["1"] < 1
    assert -1 < parts["2"] < 0


def test_a_ranker_whose_score_is_no_sum_keeps_its_rank_as_one_term() -> None:
    ranker = Blend([RankSVM(), ReciprocalRank()], scores="rank").fit(DATA)
    found = why(ranker, DATA.candidates, "q5", "3", "6")
    names = {each.feature for each in found.terms}
    assert "rank by ReciprocalRank" in names
    assert "1" in names
    assert sum(each.here for each in found.terms) == pytest.approx(found.difference, abs=1e-9)


def test_a_pull_is_the_fall_of_a_neighbours_loss_along_the_way() -> None:
    for pairs in ("query", "pair"):
        learner = RankSVM(scale="none", pairs=pairs, tolerance=1e-8)
        for ranker in (KnnOnline(learner, k=6), KnnOffline2(learner, k=6)):
            found = explain(ranker.fit(DATA), DATA.candidates, "q9")
            order = sorted(found.departures, key=lambda each: int(each.feature))
            here, common = (np.array([getattr(each, name) for each in order]) for name in ("here", "everyone"))
            falls = []
            for neighbour in found.neighbours:
                query = DATA.candidates.query_ids.index(neighbour.query_id)
                few = DATA.select([query])
                differences = explicit_pairs(few)[0]
                slack = np.maximum(0, 1 - differences @ common)
                gradient = -(slack[:, None] * differences).sum(axis=0)
                if pairs == "query":
                    gradient = gradient / max(len(differences), 1)
                falls.append(-neighbour.weight * float(gradient @ (here - common)))
            expected = np.array(falls) / np.abs(falls).sum()
            assert [each.pull for each in found.neighbours] == pytest.approx(expected, abs=1e-3)


def test_a_document_that_is_not_there_is_named() -> None:
    ranker = KnnOnline(RankSVM(), k=10).fit(DATA)
    with pytest.raises(DataError, match=r"Query 'q5' has no document 'nobody'\. There are 1, 2, 3 …"):
        why(ranker, DATA.candidates, "q5", "nobody", "2")
    with pytest.raises(DataError, match="There is no query 'q99' here"):
        why(ranker, DATA.candidates, "q99", "1", "2")
    with pytest.raises(NotFittedError):
        why(RankSVM(), DATA.candidates, "q5", "1", "2")


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
