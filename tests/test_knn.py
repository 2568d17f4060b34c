from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.significance import paired_t_test
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.locality import neighborhoods
from querywise.locality.coarse import Coarse
from querywise.locality.neighborhoods import Nearest, Radius
from querywise.locality.views.topmean import TopMean
from querywise.rankers.clusters import QueryClasses
from querywise.rankers.knn import KnnOffline1, KnnOffline2, KnnOnline
from querywise.rankers.single import Single
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import is_fitted, unfitted
from tests.worlds import inside, ragged, two_faced

KNN: dict[str, Callable[..., Any]] = {"Online": KnnOnline, "Offline-1": KnnOffline1, "Offline-2": KnnOffline2}


@pytest.fixture(params=KNN)
def knn(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return KNN[request.param]


def on_a_line(places: list[float], silent: int = 0) -> Judged:
    """A query at each place, which feature 0 says; the last `silent` of them have no relevant document.

    Feature 1 says how good each of the three documents is, on a scale that grows from query to query.
    """
    count = len(places)
    features = [[place, (1 + number) * good] for number, place in enumerate(places) for good in (-1.0, 0.0, 1.0)]
    labels = [0, 0, 1] * (count - silent) + [0, 0, 0] * silent
    ids = tuple(f"q{number}" for number in range(count))
    return Judged(Candidates(np.array(features), 3 * np.arange(count + 1), ids), np.array(labels))


SEES_THE_PLACE = TopMean(0, standardise=False)


def precision_at_1(ranker: Any, train: Judged, test: Judged) -> float:
    return evaluate(ranker.fit(train).predict(test.candidates), test, measures=["p@1"]).mean()["p@1"]


def test_where_one_model_must_fail_a_model_for_each_query_does_not(knn: Callable[..., Any]) -> None:
    train, test = two_faced(8), two_faced(6, documents=9)
    assert precision_at_1(Single(RankSVM(0.01)), train, test) == 0.5
    assert precision_at_1(knn(RankSVM(0.01), k=0.5, view=TopMean(reference=1)), train, test) == 1.0


@pytest.fixture(scope="module")
def halves() -> tuple[Judged, Judged]:
    """Two kinds of queries with tastes of their own: one half to train on, one to be tested on."""
    data = make_judged(200, 15, 8, kinds=2, noise=0.3, seed=0)
    return data.select(range(100)), data.select(range(100, 200))


@pytest.mark.parametrize("kind", [*KNN, "classes"])
def test_neighbours_and_classes_beat_one_model_where_queries_are_of_two_kinds(
    kind: str, halves: tuple[Judged, Judged]
) -> None:
    train, test = halves
    ranker = QueryClasses(RankSVM()) if kind == "classes" else KNN[kind](RankSVM(), k=0.3)
    ours = evaluate(ranker.fit(train).predict(test.candidates), test)["map"]
    single = evaluate(Single(RankSVM()).fit(train).predict(test.candidates), test)["map"]
    result = paired_t_test(ours, single)
    assert result.difference > 0.1
    assert result.p < 0.01


@pytest.mark.parametrize("prior_l2", [None, 0.5])
def test_all_queries_as_neighbours_is_the_single_model(knn: Callable[..., Any], prior_l2: float | None) -> None:
    train, test = ragged(1), ragged(2).candidates
    learner = RankSVM(prior=None if prior_l2 is None else "global", prior_l2=prior_l2)
    expected = Single(learner).fit(train).predict(test)
    for whole in (knn(learner, k=len(train)), knn(learner, k=1.0), knn(learner, neighborhood=Radius(np.inf))):
        assert whole.fit(train).predict(test) == pytest.approx(expected, abs=1e-8)


def test_a_query_that_is_one_of_the_training_queries_is_answered_alike_by_all_three() -> None:
    train = make_judged(40, 8, 4, kinds=2, seed=5)
    online, first, second = (build(RankSVM(tolerance=1e-8), k=7).fit(train) for build in KNN.values())
    assert first.chosen(train.candidates).tolist() == list(range(40))
    assert second.chosen(train.candidates).tolist() == list(range(40))
    expected = online.predict(train.candidates)
    assert first.predict(train.candidates) == pytest.approx(expected, abs=1e-6)
    assert second.predict(train.candidates) == pytest.approx(expected, abs=1e-6)


def test_a_neighbourhood_without_pairs_is_answered_by_the_global_model(knn: Callable[..., Any]) -> None:
    train = on_a_line([0.0, 1.0, 2.0, 100.0, 101.0, 102.0], silent=3)
    test = on_a_line([100.5, 1.1]).candidates
    learner = RankSVM(0.1, prior="global", prior_l2=1.0)
    ranker = knn(learner, k=2, view=SEES_THE_PLACE).fit(train)
    everyone = Single(learner).fit(train).predict(test)
    assert np.array_equal(ranker.predict(test)[:3], everyone[:3])
    assert not np.allclose(ranker.predict(test)[3:], everyone[3:])


@pytest.mark.parametrize("build", [KnnOnline, KnnOffline1])
def test_an_empty_radius_is_answered_by_the_global_model(build: Callable[..., Any]) -> None:
    train, test = on_a_line([0.0, 1.0, 2.0]), on_a_line([50.0]).candidates
    ranker = build(RankSVM(), view=SEES_THE_PLACE, neighborhood=Radius(1.5)).fit(train)
    assert ranker.training_queries(test).nnz == 0
    assert np.array_equal(ranker.predict(test), Single(RankSVM()).fit(train).predict(test))


def test_means_that_are_rounding_are_no_coordinate() -> None:
    """Of lists that are all of the top, a mean of z-scores is 0 but for its last bit: it tells nothing of a query."""
    train = make_judged(30, 7, 3)
    rows = np.array(train.candidates.features).reshape(30, 7, 3)
    rows[:, :, 1] = (rows[:, :, 1] - rows[:, :, 1].mean(axis=1)[:, None]) / rows[:, :, 1].std(axis=1)[:, None]
    train = replace(train, candidates=replace(train.candidates, features=rows.reshape(-1, 3)))
    view = TopMean(0).fit(train)
    assert 0 < np.abs(view._numbers(train.candidates)[:, 1]).max() < 1e-12
    assert np.abs(view.points(train.candidates)[:, 1]).max() < 1e-12
    assert np.abs(view.relevant_points(train)).max() < 10


def most_shared_pairs(train: Floats, test: Floats, pairs: Floats, k: int) -> list[int]:
    """Offline-1's choice, loop by loop; the nearer of equals, then the first."""

    def near(place: Floats) -> set[int]:
        gaps = [float(np.linalg.norm(point - place)) for point in train]
        return set(sorted(range(len(train)), key=lambda number: (gaps[number], number))[:k])

    chosen = []
    for place in test:
        shared = [sum(float(pairs[j]) for j in near(anchor) & near(place)) for anchor in train]
        gaps = [float(np.linalg.norm(anchor - place)) for anchor in train]
        chosen.append(min(range(len(train)), key=lambda number: (-shared[number], gaps[number], number)))
    return chosen


@pytest.mark.parametrize("k", [2, 5, 12])
def test_offline_1_picks_the_model_that_shares_most_pairs_with_the_querys_neighbours(k: int) -> None:
    train, test = ragged(4, queries=30), ragged(5, queries=20)
    view = TopMean(0, top=3)
    ranker = KnnOffline1(RankSVM(), k=k, view=view, back_off=None).fit(train)
    placed = TopMean(0, top=3).fit(train)
    points, places = placed.points(train.candidates), placed.points(test.candidates)
    expected = most_shared_pairs(points, places, train.pairs.astype(np.float64), k)
    teaches = [any(train.pairs[np.argsort(np.linalg.norm(points - place, axis=1))[:k]]) for place in places]
    assert ranker.chosen(test.candidates).tolist() == np.where(teaches, expected, -1).tolist()


def test_shared_pairs_of_many_queries_are_those_of_each_alone() -> None:
    """To the last bit, with training queries that share a place and therefore count in part."""
    train, test = on_a_line([0.0, 1.0, 1.0, 1.0, 2.5, 4.0, 4.0]), on_a_line([*np.linspace(0, 4, 30), 1.0])
    offline = KnnOffline1(RankSVM(), k=2, view=SEES_THE_PLACE).fit(train).offline_
    own = offline.locality.weights(offline.locality.view_.points(test.candidates))
    assert len({1.0, *own.data}) > 1, "some places are shared"
    alone = [next(iter(offline.shared_pairs(own[[query]]))) for query in range(own.shape[0])]
    together = np.array(list(offline.shared_pairs(own)))
    assert together.tobytes() == np.array(alone).tobytes()
    in_common = np.minimum(offline.members_.toarray()[None, :, :], own.toarray()[:, None, :])
    assert together == pytest.approx(in_common @ offline.locality.pairs_, rel=1e-12)


def test_the_nearest_model_need_not_be_the_one_with_most_in_common() -> None:
    # 1.1 lies between 0 and 2. The query at 2 is nearer, but its own neighbour is the one at 3.9.
    train, test = on_a_line([0.0, 2.0, 3.9]), on_a_line([1.1]).candidates
    first, second = (build(RankSVM(), k=2, view=SEES_THE_PLACE).fit(train) for build in (KnnOffline1, KnnOffline2))
    assert first.training_queries(test).toarray().tolist() == [[1, 1, 0]]
    assert second.training_queries(test).toarray().tolist() == [[0, 1, 1]]


def test_training_queries_are_the_rows_a_query_was_answered_by(knn: Callable[..., Any]) -> None:
    train = on_a_line([0.0, 1.0, 2.5, 10.0, 11.0])
    ranker = knn(RankSVM(), k=2, view=SEES_THE_PLACE).fit(train)
    rows = ranker.training_queries(on_a_line([0.2, 10.2]).candidates)
    assert rows.toarray().tolist() == [[1, 1, 0, 0, 0], [0, 0, 0, 1, 1]]


def test_one_look_finds_what_two_find(halves: tuple[Judged, Judged]) -> None:
    train, test = halves
    locality = KnnOnline(RankSVM(), k=5).fit(train).locality_
    several = locality.around(test.candidates, taught=True)
    for query in range(len(test)):
        seen = test.candidates.select([query])
        point = locality.points(seen)
        both, nearest = (locality.around(seen, taught=taught) for taught in (True, False))
        for one in (both, nearest):
            assert one.nearest().tolist() == locality.nearest_known(point).tolist()
            assert one.nearest().tolist() == several.nearest()[[query]].tolist()
            assert np.array_equal(one.weights().toarray(), locality.weights(point).toarray())
            assert one.distances().tobytes() == several.distances()[[query]].tobytes()
            assert (one.far().tolist(), one.lost().tolist()) == (several.far()[[query]].tolist(), [False])
        lost = locality.one.at(point, True, taught=True)
        assert (lost.weights, lost.lost.tolist(), lost.far.tolist()) == (None, [True], [True])


def test_back_off_sends_only_a_far_query_to_the_global_model(knn: Callable[..., Any]) -> None:
    train = on_a_line([0.0, 1.0, 2.0, 3.0, 4.0])  # every query's nearest other is 1 away
    test = on_a_line([0.4, 4.9, 5.1, 30.0]).candidates
    ranker = knn(RankSVM(0.1), k=1, view=SEES_THE_PLACE, back_off=0.9).fit(train)
    answered = np.diff(ranker.training_queries(test).indptr)
    assert answered.tolist() == [1, 1, 0, 0]
    everyone = Single(RankSVM(0.1)).fit(train).predict(test)
    assert np.array_equal(ranker.predict(test)[6:], everyone[6:])
    fearless = knn(RankSVM(0.1), k=1, view=SEES_THE_PLACE, back_off=None).fit(train)
    assert np.diff(fearless.training_queries(test).indptr).tolist() == [1, 1, 1, 1]


def test_back_off_measures_as_the_neighborhood_does() -> None:
    # By direction every query lies 10° from the next; by place its nearest other is one of quite another direction.
    angles = np.radians([0, 10, 20, 30, 40, 50])
    lengths = np.array([1.0, 50.0, 2.0, 60.0, 3.0, 70.0])
    spots = lengths[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
    features = np.repeat(spots, 2, axis=0)
    train = Judged(Candidates(features, np.arange(7) * 2, tuple("abcdef")), np.tile([0, 1], 6))
    ranker = KnnOnline(RankSVM(), neighborhood=Nearest(2, metric="cosine"), view=SEES_THE_PLACE, back_off=1.0)
    chord_of_10_degrees = 2 * np.sin(np.radians(10) / 2)
    assert ranker.fit(train).locality_.limit_ == pytest.approx(chord_of_10_degrees)


@pytest.mark.parametrize("back_off", [0.0, 1.5])
def test_a_back_off_that_cannot_be_is_refused(knn: Callable[..., Any], back_off: float) -> None:
    with pytest.raises(DataError, match=f"back_off={back_off} must be a share above 0 and up to 1"):
        knn(RankSVM(), k=3, back_off=back_off).fit(ragged())


@pytest.mark.parametrize("build", [KnnOffline1, KnnOffline2])
def test_models_keeps_only_so_many_around_the_middles_of_clusters(build: Callable[..., Any]) -> None:
    train = on_a_line([0.0, 1.0, 2.0, 50.0, 51.0, 52.0])
    ranker = build(RankSVM(), k=3, view=SEES_THE_PLACE, models=2).fit(train)
    assert len(ranker.offline_.models_) == 2
    assert sorted(ranker.offline_.anchors_[:, 0].tolist()) == pytest.approx([1.0, 51.0])
    rows = ranker.training_queries(on_a_line([3.0, 49.0]).candidates).toarray()
    assert rows.tolist() == [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]
    share = build(RankSVM(), k=3, view=SEES_THE_PLACE, models=0.5).fit(train)
    assert len(share.offline_.models_) == 3


def test_more_models_than_places_are_no_trouble() -> None:
    # Eight queries at two places: there is nowhere to put a third centre.
    train = two_faced(8)
    ranker = KnnOffline2(RankSVM(0.01), k=4, view=TopMean(reference=1), models=5)
    assert precision_at_1(ranker, train, train) == 1.0


@pytest.mark.parametrize("models", [0, 7])
def test_no_model_or_more_than_queries_are_refused(models: int) -> None:
    with pytest.raises(DataError, match=f"models={models} must be 1 to 6"):
        KnnOffline2(RankSVM(), k=2, models=models).fit(on_a_line([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]))


@pytest.mark.parametrize("build", [KnnOffline1, KnnOffline2])
def test_training_queries_that_coincide_share_the_places_of_their_neighborhood(build: Callable[..., Any]) -> None:
    train = two_faced(8)  # four twins each
    ranker = build(RankSVM(0.01), k=2, view=TopMean(reference=1)).fit(train)
    members = ranker.offline_.members_.toarray()
    assert np.diag(members).tolist() == [0.5] * 8
    assert members.sum(axis=1).tolist() == [2.0] * 8
    assert len({tuple(row) for row in members.tolist()}) == 2  # twins have the same model


@pytest.mark.parametrize("prior", [None, "global"])
@pytest.mark.parametrize("build", [KnnOnline, KnnOffline2])
def test_any_learner_will_do(build: Callable[..., Any], prior: Any, halves: tuple[Judged, Judged]) -> None:
    train, test = halves[0].select(range(24)), halves[1].select(range(6))
    scores = build(LambdaMART(5, prior=prior), k=12).fit(train).predict(test.candidates)
    single = Single(LambdaMART(5)).fit(train).predict(test.candidates)
    assert np.isfinite(scores).all()
    assert not np.allclose(scores, single)
    everyone = build(LambdaMART(5), k=24).fit(train).predict(test.candidates)
    assert everyone == pytest.approx(single)


def test_what_is_given_is_not_changed(knn: Callable[..., Any]) -> None:
    learner, reference, neighborhood = RankSVM(), RankSVM(2.0), Nearest(3)
    view = TopMean(reference)
    for ranker in (knn(learner, view=view, neighborhood=neighborhood), knn(learner, k=3, view=view)):
        ranker.fit(ragged()).predict(ragged(1).candidates)
        assert not any(is_fitted(each) for each in (learner, reference, neighborhood, view))


def test_classes_are_learned_and_recognised(halves: tuple[Judged, Judged]) -> None:
    train, test = halves
    ranker = QueryClasses(RankSVM()).fit(train)
    assert ranker.classes_ == ("kind 1", "kind 2")
    assert ranker.f1_ > 0.9
    table = test.candidates.queries
    assert table is not None
    found = np.array(ranker.classes_)[ranker.chosen(test.candidates)]
    assert np.mean(found == np.array(table.classes)) > 0.9


def classified(data: Judged, *classes: str | None) -> Judged:
    return data.with_queries(QueryTable(data.candidates.query_ids, classes=classes))


def test_a_classs_model_is_the_model_of_its_queries() -> None:
    data = classified(two_faced(8), *"ab" * 4)
    ranker = QueryClasses(RankSVM(0.01, tolerance=1e-8, scale="none"), view=TopMean(reference=1)).fit(data)
    assert ranker.chosen(data.candidates).tolist() == [0, 1] * 4
    for number in (0, 1):
        alone = RankSVM(0.01, scale="none").fit(data.select(range(number, 8, 2)))
        assert inside(ranker.models_).weights[number] == pytest.approx(alone.weights_, abs=1e-3)


@pytest.mark.parametrize("prior_l2", [None, 0.5])
def test_one_class_is_the_single_model(prior_l2: float | None) -> None:
    data = classified(ragged(), *["all"] * 15)
    learner = RankSVM(prior=None if prior_l2 is None else "global", prior_l2=prior_l2)
    ranker = QueryClasses(learner).fit(data)
    assert ranker.f1_ == 1.0
    assert ranker.predict(data.candidates) == pytest.approx(
        Single(learner).fit(data).predict(data.candidates), abs=1e-8
    )


def test_a_class_without_pairs_is_answered_by_the_global_model() -> None:
    train = on_a_line([0.0, 1.0, 2.0, 100.0, 101.0, 102.0], silent=3)
    test = on_a_line([101.0]).candidates
    ranker = QueryClasses(RankSVM(), view=TopMean(0)).fit(classified(train, *"aaabbb"))
    assert ranker.chosen(test).tolist() == [1]
    assert np.array_equal(ranker.predict(test), Single(RankSVM()).fit(train).predict(test))


def test_training_queries_without_a_class_count_for_no_class() -> None:
    data = two_faced(8)
    some = QueryClasses(RankSVM(), view=TopMean(1)).fit(classified(data, *"ababab", None, None))
    assert some.classes_ == ("a", "b")
    assert inside(some.models_).weights.shape == (2, 2)


def test_missing_classes_say_where_to_get_them() -> None:
    data = ragged()
    texts = replace(data, candidates=data.candidates.with_queries(QueryTable(data.candidates.query_ids)))
    for each in (data, texts, classified(data, *[None] * 15)):
        with pytest.raises(DataError, match=r"needs the class of the training queries.*queries\.jsonl"):
            QueryClasses(RankSVM()).fit(each)


def test_models_that_are_trained_answer_their_first_query_at_once() -> None:
    data = make_judged(40, 6, 6, kinds=2, seed=1)
    with patch.object(neighborhoods, "_LARGE", 1):
        for ranker in (KnnOffline2(RankSVM(), k=5), KnnOffline2(RankSVM(), k=5, models=8)):
            ranker.fit(data)
            with patch.object(Coarse, "of", side_effect=AssertionError("made for a query")):
                ranker.predict(data.candidates.select([0]))


@pytest.mark.parametrize(
    "ranker",
    [
        KnnOnline(RankSVM(), k=5, back_off=0.9),
        KnnOffline1(RankSVM(), k=5, back_off=0.9),
        KnnOffline2(RankSVM(), k=5, back_off=0.9),
        KnnOffline2(RankSVM(), k=5, models=4),
    ],
)
def test_a_ranker_that_is_fitted_anew_derives_nothing_from_what_it_had_learned(ranker: Any) -> None:
    first, second = make_judged(20, 6, 3, kinds=2), make_judged(30, 6, 3, kinds=3, seed=4)
    ranker.fit(first).predict(second.candidates)
    again = ranker.fit(second).predict(first.candidates)
    assert again.tobytes() == unfitted(ranker).fit(second).predict(first.candidates).tobytes()
