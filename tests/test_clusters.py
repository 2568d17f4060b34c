from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.contracts.answers import Local, Once, PretrainedModels, Sizes, alone
from querywise.data.judged import Candidates, Judged
from querywise.data.letor import write_letor
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.oracle import OracleGap, gap_in, oracle_gap
from querywise.evaluation.significance import paired_t_test
from querywise.explanations.explain import Explanation, explain
from querywise.learners.linear import LinearModel, LinearModels
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.locality.groupings import RelevantClusters
from querywise.locality.views.divergence import Divergence
from querywise.locality.views.topmean import TopMean, TwoModels
from querywise.measures.formulas import average_precision
from querywise.measures.order import FLAVOURS, RankedList
from querywise.rankers.clusters import Naive, SelectRanker, Transform
from querywise.rankers.single import OneFeature, Single
from querywise.rankers.wrappers import QueryNormalised, normalised
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import caching
from querywise.runtime.parameters import is_fitted
from querywise.storage import load, read_manifest
from tests import commands
from tests.worlds import inside, ragged, two_faced

RANKERS: dict[str, Callable[..., Any]] = {"Naive": Naive, "SelectRanker": SelectRanker, "Transform": Transform}
BLENDS = {name: build for name, build in RANKERS.items() if build is not Naive}


@pytest.fixture(params=RANKERS, name="build")
def any_of_them(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return RANKERS[request.param]


@pytest.fixture(params=BLENDS)
def blend(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return BLENDS[request.param]


@pytest.fixture(scope="module")
def halves() -> tuple[Judged, Judged]:
    """Two kinds of queries with tastes of their own: one half to train on, one to be tested on."""
    data = make_judged(200, 15, 8, kinds=2, noise=0.3, seed=0)
    return data.select(range(100)), data.select(range(100, 200))


@pytest.fixture(scope="module")
def few(halves: tuple[Judged, Judged]) -> tuple[Judged, Judged]:
    return halves[0].select(range(30)), halves[1].select(range(10))


def per_query(scores: Floats, candidates: Candidates) -> list[Floats]:
    return [scores[candidates.rows(query)] for query in range(len(candidates))]


def spanning(scores: Floats) -> Floats:
    """The same order and proportions, from 0 to 1."""
    return np.asarray((scores - scores.min()) / (np.ptp(scores) if np.ptp(scores) > 1e-9 else 1.0))


def answers_as(scores: Floats, others: Floats, candidates: Candidates) -> bool:
    """Whether the documents of every query stand alike, whatever the level and the scale of the scores."""
    pairs = zip(per_query(scores, candidates), per_query(others, candidates), strict=True)
    return all(np.allclose(spanning(one), spanning(other), atol=1e-6) for one, other in pairs)


def piles(*places: float, silent: int = 0) -> Judged:
    """A query of six documents at each place, which feature 0 says; the last `silent` have no relevant document."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(len(places), 6, 4))
    x[:, :, 0] = np.array(places)[:, None]
    labels = (x[:, :, 1] + 0.5 * rng.normal(size=(len(places), 6)) > 0.5).astype(np.int64)
    labels[:, :2] = [0, 1]
    labels[len(places) - silent :] = 0
    ids = tuple(f"q{number}" for number in range(len(places)))
    return Judged(Candidates(x.reshape(-1, 4), 6 * np.arange(len(places) + 1), ids), labels.ravel())


SEES_THE_PLACE = TopMean(0, standardise=False)


# Against the single model


@pytest.mark.parametrize("prior_l2", [None, 0.5])
def test_one_cluster_answers_as_the_single_model(build: Callable[..., Any], prior_l2: float | None) -> None:
    train, test = ragged(1), ragged(2).candidates
    learner = RankSVM(0.3, prior=None if prior_l2 is None else "global", prior_l2=prior_l2, tolerance=1e-10)
    scores, single = (each.fit(train).predict(test) for each in (build(learner, 1), Single(learner)))
    assert answers_as(scores, single, test)
    for both in zip(per_query(scores, test), per_query(single, test), strict=True):
        one, other = (np.argsort(-spanning(each).round(6), kind="stable").tolist() for each in both)
        assert one == other


def precision_at_1(ranker: Any, train: Judged, test: Judged) -> float:
    return evaluate(ranker.fit(train).predict(test.candidates), test, measures=["p@1"]).mean()["p@1"]


@pytest.mark.parametrize(
    "ranker",
    [
        Naive(RankSVM(0.01), 2),
        Naive(RankSVM(0.01), 2, view=TopMean(reference=1)),
        Transform(RankSVM(0.01), 2, view=TopMean(reference=1)),
    ],
    ids=["Naive", "Naive in a view", "Transform in a view"],
)
def test_where_one_model_must_fail_two_do_not(ranker: Any) -> None:
    train, test = two_faced(8), two_faced(6, documents=9)
    assert precision_at_1(Single(RankSVM(0.01)), train, test) == 0.5
    assert precision_at_1(ranker, train, test) == 1.0


@pytest.mark.parametrize(
    "ranker",
    [Naive(RankSVM(), 2), Transform(RankSVM(), 2), Transform(RankSVM(), 5, view=TopMean(), floor=1)],
    ids=["Naive", "Transform", "Transform, the best alone"],
)
def test_local_models_beat_one_where_queries_are_of_two_kinds(ranker: Any, halves: tuple[Judged, Judged]) -> None:
    train, test = halves
    ours = evaluate(ranker.fit(train).predict(test.candidates), test)["map"]
    single = evaluate(Single(RankSVM()).fit(train).predict(test.candidates), test)["map"]
    result = paired_t_test(ours, single)
    assert result.difference > 0.08
    assert result.p < 0.001


# Which models count


def test_weights_are_shares_of_every_model(build: Callable[..., Any], few: tuple[Judged, Judged]) -> None:
    train, test = few
    ranker = build(RankSVM(), 6).fit(train)
    weights = ranker.model_weights(test.candidates)
    assert weights.shape == (len(test), len(ranker.several_models())) == (10, 6)
    assert (weights >= 0).all()
    assert weights.sum(axis=1) == pytest.approx(np.ones(len(test)))


def test_a_query_astronomically_far_from_everything_is_answered_with_finite_weights(
    build: Callable[..., Any], few: tuple[Judged, Judged]
) -> None:
    train, test = few
    ranker = build(RankSVM(), 6).fit(train)
    far = Candidates(1e100 * test.candidates.features[:15], np.array([0, 15]), ("far",))
    weights = ranker.model_weights(far)
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)
    assert np.isfinite(ranker.predict(far)).all()


def test_the_nearest_clusters_model_alone_answers_in_naive(few: tuple[Judged, Judged]) -> None:
    train, test = few
    ranker = Naive(RankSVM(), 4, top=5).fit(train)
    single = Single(RankSVM()).fit(train).predict(test.candidates)
    relevant = train.candidates.features[train.labels > 0]
    centres = RelevantClusters(4).fit(np.zeros((0, 0)), train).centres_
    scores = ranker.predict(test.candidates)
    for query, chosen in enumerate(ranker.chosen(test.candidates)):
        rows = test.candidates.rows(query)
        x = test.candidates.features[rows]
        best = np.argsort(-single[rows], kind="stable")[:5]
        place = (x[best].mean(axis=0) - relevant.mean(axis=0)) / relevant.std(axis=0)
        gaps = [np.linalg.norm(place - centre) for centre in centres]
        assert chosen == np.argmin(gaps)
        assert scores[rows] == pytest.approx(x @ inside(ranker.several_models()).weights[chosen])
    assert np.array_equal(ranker.model_weights(test.candidates), np.eye(4)[ranker.chosen(test.candidates)])


def test_the_nearer_in_the_plane_the_more_a_model_counts_in_transform(few: tuple[Judged, Judged]) -> None:
    train, test = few
    ranker = Transform(RankSVM(), 4, top=5).fit(train)
    plane = TwoModels(OneFeature().fit(train), RankSVM().fit(train), 5).fit(train)
    centres = inside(ranker.groups_.grouping_).centres_
    for place, weights in zip(plane.points(test.candidates), ranker.model_weights(test.candidates), strict=True):
        inverse = np.array([1 / (0.1 + float(np.linalg.norm(place - centre))) for centre in centres])
        assert weights == pytest.approx(inverse / inverse.sum())


def kullback_leibler(base: Floats, other: Floats) -> float:
    p, q = (np.exp((each - each.mean()) / each.std()) for each in (base, other))
    p, q = p / p.sum(), q / q.sum()
    return float(sum(p * np.log(p / q)))


def test_a_model_counts_as_it_served_the_queries_it_sees_alike_in_select_ranker(few: tuple[Judged, Judged]) -> None:
    train, test = few
    k, reference = 3, 2
    ranker = SelectRanker(RankSVM(), 4, k, reference=reference).fit(train)
    members = RelevantClusters(4).fit(np.zeros((0, 0)), train).members_.toarray() > 0
    models = inside(ranker.several_models()).weights

    def seen(data: Judged, query: int, model: Floats) -> float:
        x = data.candidates.features[data.candidates.rows(query)]
        return kullback_leibler(x[:, reference], x @ model)

    def served(query: int, model: Floats) -> float:
        rows = train.candidates.rows(query)
        order = np.argsort(-(train.candidates.features[rows] @ model), kind="stable")
        return average_precision(RankedList(train.labels[rows][order]), None, FLAVOURS["standard"])

    for query, weights in enumerate(ranker.model_weights(test.candidates)):
        expected = []
        for own, model in zip(members, models, strict=True):
            here = seen(test, query, model)
            gaps = sorted((abs(seen(train, int(each), model) - here), int(each)) for each in np.flatnonzero(own))
            expected.append(sum(served(each, model) for _, each in gaps[:k]))
        assert weights == pytest.approx(np.array(expected) / sum(expected))


def test_the_filter_chooses_among_queries_with_a_relevant_document(few: tuple[Judged, Judged]) -> None:
    train, test = few
    labels = np.where(train.candidates.query_of_row % 3 == 0, 0, train.labels)
    barren = replace(train, labels=labels)
    plain, filtered = (
        SelectRanker(RankSVM(), 3, 2, with_relevant=each, reference=0, view=TopMean(0)).fit(barren)
        for each in (False, True)
    )
    kept = np.bincount(barren.candidates.query_of_row[barren.labels > 0], minlength=len(barren)) > 0
    assert len(filtered.similar_.values_) == np.diff(filtered.groups_.grouping_.members_[:, kept].indptr).sum()
    assert len(filtered.similar_.values_) < len(plain.similar_.values_)
    assert not np.allclose(plain.model_weights(test.candidates), filtered.model_weights(test.candidates))
    # Clusters of relevant documents have no other members: there the filter changes nothing.
    same = [SelectRanker(RankSVM(), 3, 2, with_relevant=each).fit(barren) for each in (False, True)]
    assert np.array_equal(same[0].predict(test.candidates), same[1].predict(test.candidates))


def test_without_a_reference_the_best_feature_is_the_base(
    blend: Callable[..., Any], few: tuple[Judged, Judged]
) -> None:
    train, test = few
    best = OneFeature().fit(train).column_
    default, named = (blend(RankSVM(), 4, reference=each).fit(train) for each in (None, best))
    assert default.model_weights(test.candidates) == pytest.approx(named.model_weights(test.candidates))
    other = blend(RankSVM(), 4, reference=(best + 1) % 8).fit(train)
    assert not np.allclose(other.model_weights(test.candidates), named.model_weights(test.candidates))


def test_floor_1_keeps_the_best_models_and_floor_0_all(blend: Callable[..., Any], few: tuple[Judged, Judged]) -> None:
    train, test = few
    everyone, some, best = (
        blend(RankSVM(), 6, floor=floor).fit(train).model_weights(test.candidates) for floor in (0.0, 0.8, 1.0)
    )
    assert (everyone > 0).all()
    largest = everyone == everyone.max(axis=1, keepdims=True)
    assert best == pytest.approx(largest / largest.sum(axis=1, keepdims=True))
    assert np.array_equal(some > 0, everyone >= 0.8 * everyone.max(axis=1, keepdims=True))
    assert some.sum(axis=1) == pytest.approx(np.ones(len(test)))


def test_the_best_alone_answers_as_that_model_does(few: tuple[Judged, Judged]) -> None:
    train, test = few
    ranker = Transform(RankSVM(), 6, floor=1).fit(train)
    nearest = ranker.model_weights(test.candidates).argmax(axis=1)
    alone = ranker.several_models().pick(test.candidates, nearest)
    assert answers_as(ranker.predict(test.candidates), alone, test.candidates)


@pytest.mark.parametrize("clusters", [1, 3])
def test_where_no_model_has_a_weight_the_global_model_answers(clusters: int) -> None:
    # The nearest query of every model is the new query itself, which in training nobody could serve.
    train = piles(0.0, 1.0, 2.0, 50.0, 51.0, 52.0, 100.0, 101.0, silent=2)
    ranker = SelectRanker(RankSVM(), clusters, 1, reference=1, view=SEES_THE_PLACE, softness=100.0).fit(train)
    test = train.select([6, 2, 7]).candidates
    weights = ranker.model_weights(test)
    assert weights[[0, 2]].tolist() == [[0.0] * clusters] * 2
    assert weights[1].sum() == pytest.approx(1)
    scores, single = ranker.predict(test), Single(RankSVM()).fit(train).predict(test)
    assert np.array_equal(scores[:6], single[:6])
    assert np.array_equal(scores[12:], single[12:])
    assert scores[6:12].min() == 0, "a blend begins at 0"
    assert explain(ranker, test, "q6").is_global
    assert not explain(ranker, test, "q2").is_global


# Thin clusters


LEARNERS: dict[str, Any] = {
    "ranking SVM": RankSVM(0.1, tolerance=1e-10),
    "ranking SVM, prior": RankSVM(0.1, prior="global", prior_l2=1.0, tolerance=1e-10),
    "hinge": RankSVM(0.1, loss="hinge"),
    "trees": LambdaMART(5, min_documents=1),
    "trees, prior": LambdaMART(5, min_documents=1, prior="global"),
}


@pytest.mark.parametrize("learner", LEARNERS)
def test_clusters_of_one_query_or_none_are_counted_and_get_the_global_model(
    build: Callable[..., Any], learner: str
) -> None:
    train = piles(0.0, 1.0, 2.0, 50.0, 100.0, 101.0, silent=2)
    ranker = build(LEARNERS[learner], 3, view=SEES_THE_PLACE).fit(train)
    assert ranker.sizes == Sizes(groups=3, of_one_query=1, empty=1)
    test = piles(1.0, 50.0, 100.0)
    single = Single(LEARNERS[learner]).fit(train).predict(test.candidates)
    nearest = np.argmin(ranker.groups_.distances(test.candidates), axis=1)
    assert sorted(nearest) == [0, 1, 2]
    together, lone, silent = ranker.several_models().scores(test.candidates).T[nearest]
    assert lone == pytest.approx(single, abs=1e-9)
    assert silent == pytest.approx(single, abs=1e-9)
    assert not np.allclose(together, single, atol=1e-3)


def test_a_cluster_of_several_queries_has_the_model_of_those_queries() -> None:
    train = piles(0.0, 1.0, 2.0, 50.0, 51.0, 52.0)
    learner = RankSVM(0.1, scale="none", tolerance=1e-10)
    ranker = Naive(learner, 2, view=SEES_THE_PLACE).fit(train)
    assert ranker.sizes == Sizes(2, 0, 0)
    alone = [RankSVM(0.1, scale="none").fit(train.select(own)).weights_ for own in ([0, 1, 2], [3, 4, 5])]
    first = ranker.chosen(train.candidates)[0]
    assert inside(ranker.several_models()).weights[[first, 1 - first]] == pytest.approx(np.array(alone), abs=1e-6)


def test_more_clusters_than_points_are_no_trouble(build: Callable[..., Any]) -> None:
    train = two_faced(8)
    ranker = build(RankSVM(), 50).fit(train)
    assert ranker.sizes.groups <= 2, "there are two relevant documents, and two kinds of queries"
    assert np.isfinite(ranker.predict(train.candidates)).all()


# The oracle


def gap_of(ranker: Any, data: Judged) -> OracleGap:
    found = oracle_gap(ranker, data)
    assert found is not None
    return found


def test_the_gap_of_several_models_is_looked_up_query_by_query(
    build: Callable[..., Any], few: tuple[Judged, Judged]
) -> None:
    train, test = few
    ranker = build(RankSVM(), 5).fit(train)
    scores = ranker.several_models().scores(test.candidates)
    table = np.column_stack([evaluate(column, test, measures=["map"])["map"] for column in scores.T])
    routed, gap = ranker.routed_by_relevance(test), gap_of(ranker, test)
    assert gap.best == pytest.approx(table.max(axis=1))
    assert len(gap.by_rank) == 5
    assert gap.relevant_only == pytest.approx(table[np.arange(len(test)), routed])


def test_the_upper_bound_never_falls_when_models_are_added(few: tuple[Judged, Judged]) -> None:
    train, test = few
    weights = inside(Naive(RankSVM(), 8).fit(train).several_models()).weights

    def gap(count: int) -> OracleGap:
        some = LinearModels(weights[:count])
        local = Local(Once(lambda: some), stored=PretrainedModels(str, np.ones(count, np.bool_)))
        found = gap_in(alone(LinearModel(weights[0]), test.candidates)._replace(local=local), test)
        assert found is not None
        return found

    bounds = np.array([gap(count).best for count in range(1, 9)])
    assert (np.diff(bounds, axis=0) >= 0).all()
    assert bounds[0].mean() < bounds[-1].mean()


def routed_by_hand(within_query: Floats, centres: Floats, data: Judged) -> list[int]:
    """The centre nearest to the mean of each query's relevant documents; −1 without any."""
    found = []
    for query in range(len(data)):
        rows = data.candidates.rows(query)
        relevant = within_query[rows][data.labels[rows] > 0]
        gaps = [float(np.linalg.norm(relevant.mean(axis=0) - centre)) for centre in centres] if len(relevant) else []
        found.append(int(np.argmin(gaps)) if gaps else -1)
    return found


@pytest.mark.parametrize("kind", ["Naive", "SelectRanker"])
def test_a_query_is_routed_to_the_cluster_of_documents_like_its_relevant_ones(kind: str) -> None:
    train, test = ragged(1, queries=30), ragged(2)
    ranker = RANKERS[kind](RankSVM(), 5).fit(train)
    relevant = train.candidates.features[train.labels > 0]
    within_query = (test.candidates.features - relevant.mean(axis=0)) / relevant.std(axis=0)
    expected = routed_by_hand(within_query, ranker.groups_.grouping_.centres_, test)
    assert ranker.routed_by_relevance(test).tolist() == expected
    assert min(expected) == -1


def test_in_the_plane_a_query_is_routed_by_the_scores_of_its_relevant_documents() -> None:
    train, test = ragged(1, queries=30), ragged(2)
    ranker = Transform(RankSVM(), 5, reference=3).fit(train)
    models = 3, RankSVM().fit(train)
    means = TwoModels(*models, standardise=False).fit(train).points(train.candidates)
    scores = np.column_stack([test.candidates.features[:, 3], models[1].predict(test.candidates)])
    within_query = (scores - means.mean(axis=0)) / means.std(axis=0)
    expected = routed_by_hand(within_query, inside(ranker.groups_.grouping_).centres_, test)
    routed = ranker.routed_by_relevance(test)
    assert routed is not None
    assert routed.tolist() == expected
    assert min(expected) == -1


def test_a_view_that_does_not_place_documents_routes_nothing(build: Callable[..., Any]) -> None:
    data = ragged(1)
    ranker = build(RankSVM(), 3, view=Divergence(0)).fit(data)
    assert ranker.routed_by_relevance(data) is None
    assert gap_of(ranker, data).relevant_only is None


# Explanations


def weights_here(found: Explanation, width: int) -> Floats:
    here = np.zeros(width)
    for departure in found.departures:
        here[int(departure.feature) - 1] = departure.here
    return here


def test_the_weights_explained_put_the_documents_where_the_ranker_does(
    build: Callable[..., Any], few: tuple[Judged, Judged]
) -> None:
    train, test = few
    ranker = build(RankSVM(), 5).fit(train)
    scores = per_query(ranker.predict(test.candidates), test.candidates)
    for query, query_id in enumerate(test.candidates.query_ids):
        found = explain(ranker, test.candidates, query_id)
        own = test.candidates.features[test.candidates.rows(query)] @ weights_here(found, 8)
        assert own - own[0] == pytest.approx(scores[query] - scores[query][0], abs=1e-9)
        effects = [abs(each.effect) for each in found.departures]
        assert effects == sorted(effects, reverse=True)


def test_the_shares_explained_are_the_models_weights_the_heaviest_first(
    build: Callable[..., Any], few: tuple[Judged, Judged]
) -> None:
    train, test = few
    ranker = build(RankSVM(), 5).fit(train)
    members = ranker.groups_.grouping_.members_.toarray() > 0
    weights = ranker.model_weights(test.candidates)
    for query, query_id in enumerate(test.candidates.query_ids):
        found = explain(ranker, test.candidates, query_id)
        assert (found.query_id, found.neighbours) == (query_id, ())
        assert sum(each.weight for each in found.models) == pytest.approx(1)
        assert [each.weight for each in found.models] == sorted(weights[query], reverse=True)
        assert {each.model: each.weight for each in found.models} == pytest.approx(dict(enumerate(weights[query])))
        teaching = {number: int((train.pairs[own] > 0).sum()) for number, own in enumerate(members)}
        assert {each.model: each.queries for each in found.models} == teaching


def test_the_global_weights_are_brought_to_the_range_of_the_blend(
    blend: Callable[..., Any], few: tuple[Judged, Judged]
) -> None:
    train, test = few
    ranker = blend(RankSVM(tolerance=1e-10), 1).fit(train)
    found = explain(ranker, test.candidates, test.candidates.query_ids[0])
    assert found.departures
    assert all(each.here == pytest.approx(each.everyone, abs=1e-6) for each in found.departures)


def test_models_without_weights_show_their_shares_alone(build: Callable[..., Any], few: tuple[Judged, Judged]) -> None:
    train, test = few
    found = explain(build(LambdaMART(3), 3).fit(train), test.candidates, test.candidates.query_ids[1])
    assert found.departures == ()
    assert sum(each.weight for each in found.models) == pytest.approx(1)


def test_a_normalised_ranker_is_explained_on_normalised_features(
    build: Callable[..., Any], few: tuple[Judged, Judged]
) -> None:
    train, test = few
    ranker = QueryNormalised(build(RankSVM(), 3)).fit(train)
    found = explain(ranker, test.candidates, test.candidates.query_ids[0])
    own = normalised(test.candidates).features[:15] @ weights_here(found, 8)
    scores = ranker.predict(test.candidates)[:15]
    assert own - own[0] == pytest.approx(scores - scores[0], abs=1e-9)


def test_a_query_without_documents_is_explained_by_its_models(
    build: Callable[..., Any], few: tuple[Judged, Judged]
) -> None:
    nothing = Candidates(np.zeros((0, 8)), np.array([0, 0]), ("nothing",))
    found = explain(build(RankSVM(), 3).fit(few[0]), nothing, "nothing")
    assert len(found.models) == 3
    assert all(each.spread == 0 for each in found.departures)


# What is given


def test_what_is_given_is_not_changed(build: Callable[..., Any]) -> None:
    learner, reference = RankSVM(), RankSVM(2.0)
    view = TopMean(reference)
    others = {} if build is Naive else {"reference": reference}
    build(learner, 3, view=view, **others).fit(ragged()).predict(ragged(1).candidates)
    assert not any(is_fitted(each) for each in (learner, reference, view))


def test_settings_that_share_their_work_answer_as_each_alone(few: tuple[Judged, Judged]) -> None:
    train, test = few
    grid: list[Callable[[], Any]] = [
        lambda: Naive(RankSVM(), 3),
        lambda: Naive(RankSVM(), 3, top=2),
        lambda: Naive(RankSVM(), 3, seed=1),
        lambda: Naive(RankSVM(), 3, view=TopMean()),
        lambda: SelectRanker(RankSVM(), 3),
        lambda: SelectRanker(RankSVM(), 3, 2),
        lambda: SelectRanker(RankSVM(), 3, 2, floor=0.9),
        lambda: SelectRanker(RankSVM(), 3, softness=1.0),
        lambda: SelectRanker(RankSVM(0.1), 3),
        lambda: SelectRanker(RankSVM(prior="global", prior_l2=1.0), 3),
        lambda: SelectRanker(RankSVM(), 3, reference=3),
        lambda: SelectRanker(LambdaMART(3), 3),
        lambda: Transform(RankSVM(), 3),
        lambda: Transform(RankSVM(), 4),
        lambda: Transform(RankSVM(), 3, top=2),
        lambda: Transform(RankSVM(), 3, reference=3),
        lambda: Transform(RankSVM(0.1), 3, softness=0.5),
    ]
    alone = [make().fit(train).predict(test.candidates) for make in grid]
    with caching():
        together = [make().fit(train).predict(test.candidates) for make in grid]
        again = [make().fit(train).predict(test.candidates) for make in grid]
    for one, two, three in zip(alone, together, again, strict=True):
        assert np.array_equal(one, two)
        assert np.array_equal(one, three)
    assert len({each.tobytes() for each in alone}) == len(grid), "no two of these settings are the same"


# What is refused


@pytest.mark.parametrize("clusters", [0, -3, 2.5, np.nan, np.inf])
def test_a_number_of_clusters_that_cannot_be_is_refused(build: Callable[..., Any], clusters: float) -> None:
    with pytest.raises(DataError, match=f"clusters={clusters} must be a whole number from 1 up, or a share of the 15"):
        build(RankSVM(), clusters).fit(ragged())


@pytest.mark.parametrize("softness", [-1, np.nan])
def test_a_softness_that_cannot_be_is_refused(build: Callable[..., Any], softness: float) -> None:
    with pytest.raises(DataError, match=f"softness={softness} must be 0"):
        build(RankSVM(), 3, softness=softness).fit(ragged())


@pytest.mark.parametrize("floor", [2, -0.1, np.nan])
def test_a_floor_that_cannot_be_is_refused_before_anything_is_saved(blend: Callable[..., Any], floor: float) -> None:
    with pytest.raises(DataError, match=f"floor={floor} must be a share between 0"):
        blend(RankSVM(), 3, floor=floor).fit(ragged())


@pytest.mark.parametrize("k", [0, -1, 0.2, 1.5, np.nan])
def test_a_k_that_cannot_be_is_refused(k: Any) -> None:
    with pytest.raises(DataError, match=f"k={k} must be a whole number of training queries"):
        SelectRanker(RankSVM(), 3, k).fit(ragged())


@pytest.mark.parametrize("top", [0, 1.5])
def test_a_top_that_cannot_be_is_refused(top: Any) -> None:
    for ranker in (Naive(RankSVM(), 3, top=top), Transform(RankSVM(), 3, top=top)):
        with pytest.raises(DataError, match=rf"\(top={top}\) must be a whole number from 1 up"):
            ranker.fit(ragged())


def test_without_a_relevant_document_there_is_nothing_to_learn(build: Callable[..., Any]) -> None:
    data = ragged()
    silent = Judged(data.candidates, np.zeros_like(data.labels))
    for learner in (RankSVM(), LambdaMART(3)):
        with pytest.raises(DataError, match="None of the 15 queries has two documents with different labels"):
            build(learner, 3).fit(silent)


def test_explaining_a_query_that_is_not_there_is_refused(build: Callable[..., Any]) -> None:
    data = ragged()
    with pytest.raises(DataError, match="There is no query 'nobody' here"):
        explain(build(RankSVM(), 3).fit(data), data.candidates, "nobody")


# The command line


def run(folder: Path, command: str) -> commands.Done:
    return commands.run(folder, *command.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, few: tuple[Judged, Judged]) -> Path:
    root = tmp_path_factory.mktemp("clusters")
    for name, data in zip(("train", "test"), few, strict=True):
        write_letor(root / f"{name}.txt", data)
    return root


@pytest.mark.slow
def test_a_model_of_clusters_is_fitted_ranked_with_and_explained(folder: Path, few: tuple[Judged, Judged]) -> None:
    train, test = few
    fitted = run(folder, "fit train.txt --method select-ranker --clusters 3 --k 4 --out model")
    assert (fitted.returncode, fitted.stderr) == (0, "")
    assert "3 clusters; 0 have one training query and 0 have none" in fitted.stdout
    assert "select-ranker trained on 30 queries, saved in model" in fitted.stdout
    notes = read_manifest(folder / "model").notes
    assert notes["parameters"] == {"clusters": 3, "k": 4}
    assert notes["clusters"] == {"groups": 3, "of_one_query": 0, "empty": 0}
    expected = SelectRanker(RankSVM(), 3, 4).fit(train).predict(test.candidates)
    assert load(folder / "model").predict(test.candidates) == pytest.approx(expected, abs=1e-9)

    query_id = test.candidates.query_ids[4]
    told = run(folder, f"explain model test.txt --qid {query_id} --show 2")
    assert (told.returncode, told.stderr) == (0, "")
    assert f"Query {query_id}: 3 of 3 local models answer it, the heaviest 2:" in told.stdout
    content = json.loads(run(folder, f"explain model test.txt --qid {query_id} --json").stdout)
    assert sum(each["weight"] for each in content["models"]) == pytest.approx(1)
    assert content["neighbours"] == []
    assert not content["is_global"]
    here = {each["feature"]: each["here"] for each in content["departures"]}
    own = test.candidates.features[60:75] @ [here[str(column)] for column in range(1, 9)]
    assert own - own[0] == pytest.approx(expected[60:75] - expected[60], abs=1e-9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("--method select-ranker --clusters 0", "clusters=0 must be a whole number from 1 up"),
        ("--method transform --clusters nan", "clusters=nan must be a whole number from 1 up"),
        ("--method naive --clusters x", "--clusters x: expected a number of clusters, a share like 0.2, or auto"),
        ("--method single --clusters 3", "--clusters is not a setting of single. Its settings: l2, "),
        ("--method select-ranker --set floor=2", "floor=2 must be a share between 0"),
    ],
)
def test_what_is_typed_wrongly_ends_with_one_message_and_no_model(
    folder: Path, tmp_path: Path, settings: str, message: str
) -> None:
    done = run(folder, f"fit train.txt {settings} --out {tmp_path / 'new'}")
    assert message in commands.refused(done)
    assert not (tmp_path / "new").exists()
