from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from querywise.data.judged import Candidates, Judged
from querywise.data.training import by_coordinates
from querywise.errors import DataError, NotFittedError
from querywise.locality.groupings import Clusters, RelevantClusters, k_means, least_inertia
from querywise.runtime.arrays import Floats
from tests.worlds import examples, ragged

GROUPINGS: dict[str, Callable[..., Any]] = {"Clusters": Clusters, "RelevantClusters": RelevantClusters}
seeds = st.integers(0, 10_000)


@pytest.fixture(params=GROUPINGS)
def grouping(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return GROUPINGS[request.param]


def places(seed: int, queries: int, columns: int = 2) -> Floats:
    return np.random.default_rng(seed).normal(size=(queries, columns))


def at_places(points: Floats) -> Judged:
    """A query at each place, with one relevant document that lies there and one other at the origin."""
    features = np.stack([points, np.zeros_like(points)], axis=1).reshape(-1, points.shape[1])
    ids = tuple(f"q{number}" for number in range(len(points)))
    return Judged(Candidates(features, 2 * np.arange(len(points) + 1), ids), np.tile([1, 0], len(points)))


def fitted(build: Callable[..., Any], points: Floats, count: float, **settings: Any) -> Any:
    """Clusters of these places, whether they are those of queries or of relevant documents."""
    return build(count, **settings).fit(points, at_places(points))


def gap(one: Floats, other: Floats) -> float:
    return float(np.sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True))))


def nearest(place: Floats, centres: Floats) -> int:
    return min(range(len(centres)), key=lambda number: gap(place, centres[number]))


def standing_of_relevant(data: Judged) -> Floats:
    """Every document in units in which the relevant ones have mean 0 and deviation 1."""
    relevant = data.candidates.features[data.labels > 0]
    spread = relevant.std(axis=0)
    return np.asarray((data.candidates.features - relevant.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


PILES = np.array([[0.0, 0.0], [0.0, 9.0], [9.0, 0.0]])


# What both promise


def test_piles_far_apart_are_the_clusters(grouping: Callable[..., Any]) -> None:
    points = np.repeat(PILES, 4, axis=0) + 0.1 * places(0, 12)
    members = fitted(grouping, points, 3).members_.toarray()
    assert sorted(map(tuple, members)) == sorted(map(tuple, np.repeat(np.eye(3), 4, axis=1)))


def test_one_cluster_holds_everyone(grouping: Callable[..., Any]) -> None:
    assert np.array_equal(fitted(grouping, places(0, 7), 1).members_.toarray(), np.ones((1, 7)))


def test_there_are_no_more_clusters_than_different_points(grouping: Callable[..., Any]) -> None:
    found = fitted(grouping, np.repeat(PILES, 4, axis=0), 10)
    assert len(found.centres_) == 3
    assert found.members_.toarray().sum(axis=1).tolist() == [4.0, 4.0, 4.0]
    assert len(fitted(grouping, places(0, 5), 100).centres_) == 5
    assert len(fitted(grouping, np.ones((6, 2)), 4).centres_) == 1


def test_points_that_rounding_alone_sets_apart_are_no_trouble(grouping: Callable[..., Any]) -> None:
    points = np.repeat(PILES, 4, axis=0) + 1e-9 * places(0, 12)
    found = fitted(grouping, points, 8)
    first, second, third = (set(pile) for pile in found.members_.toarray().argmax(axis=0).reshape(3, 4))
    assert len(first | second | third) == len(first) + len(second) + len(third), "no cluster has queries of two piles"


def test_a_share_is_one_of_the_training_queries(grouping: Callable[..., Any]) -> None:
    points = places(0, 12)
    assert [len(fitted(grouping, points, share).centres_) for share in (0.01, 0.25, 0.5, 1.0)] == [1, 3, 6, 12]


def test_the_same_seed_gives_the_same_clusters(grouping: Callable[..., Any]) -> None:
    points = places(0, 60)
    first, again, other = (fitted(grouping, points, 12, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first.centres_, again.centres_)
    assert np.array_equal(first.members_.toarray(), again.members_.toarray())
    assert not np.array_equal(first.centres_, other.centres_)


@pytest.mark.parametrize("softness", [1e-3, 1e-9, 1e-160, 1e-300])
def test_hardly_any_softness_is_none(grouping: Callable[..., Any], softness: float) -> None:
    points = places(1, 40)
    hard, soft = (fitted(grouping, points, 6, softness=each).members_.toarray() for each in (0.0, softness))
    assert np.array_equal(soft, hard)


@pytest.mark.parametrize("softness", [1e3, 1e100, 1e300])
def test_with_softness_enough_everyone_belongs_everywhere(grouping: Callable[..., Any], softness: float) -> None:
    members = fitted(grouping, places(1, 40), 6, softness=softness).members_.toarray()
    assert members == pytest.approx(np.ones((6, 40)), abs=1e-3)


def test_more_softness_never_makes_anyone_belong_less(grouping: Callable[..., Any]) -> None:
    points = places(2, 40)
    members = [fitted(grouping, points, 6, softness=each).members_.toarray() for each in (0.0, 0.3, 0.6, 1.0, 2.0, 5.0)]
    assert (np.diff(members, axis=0) >= 0).all()
    assert [np.count_nonzero(each) for each in members] == sorted({np.count_nonzero(each) for each in members})


def test_where_everyone_lies_on_a_centre_softness_changes_nothing(grouping: Callable[..., Any]) -> None:
    found = fitted(grouping, np.repeat(PILES, 4, axis=0), 3, softness=2.0)
    assert np.count_nonzero(found.members_.toarray()) == 12


@pytest.mark.parametrize("count", [0, -1, 0.0, -0.5, 2.5, True, np.nan, np.inf, -np.inf])
def test_a_number_of_clusters_that_cannot_be_is_refused(grouping: Callable[..., Any], count: float) -> None:
    with pytest.raises(DataError, match=f"clusters={count} must be a whole number from 1 up, or a share"):
        fitted(grouping, places(0, 8), count)


@pytest.mark.parametrize("softness", [-1, -0.001, np.nan, np.inf])
def test_a_softness_that_cannot_be_is_refused(grouping: Callable[..., Any], softness: float) -> None:
    with pytest.raises(DataError, match=f"softness={softness} must be 0"):
        fitted(grouping, places(0, 8), 2, softness=softness)


def test_asking_before_fitting_says_what_to_do(grouping: Callable[..., Any]) -> None:
    with pytest.raises(NotFittedError, match=rf"call {grouping.__name__}\.fit\(data\) first"):
        grouping(3).distances(PILES)


@pytest.mark.parametrize("softness", [0.0, 0.8])
def test_the_size_of_the_blocks_changes_nothing(
    grouping: Callable[..., Any], softness: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = places(3, 50)
    whole = fitted(grouping, points, 7, softness=softness).members_.toarray()
    for block in (1, 20, 71):
        monkeypatch.setattr("querywise.locality.groupings._BLOCK", block)
        parts = fitted(grouping, points, 7, softness=softness).members_.toarray()
        assert parts == pytest.approx(whole, abs=1e-12)


def test_of_very_many_points_a_seeded_sample_finds_the_centres_and_everyone_joins(
    grouping: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("querywise.locality.groupings._MANY", 30)
    points = np.repeat(PILES, 40, axis=0) + 0.1 * places(0, 120)
    first, again = (fitted(grouping, points, 3, seed=5) for _ in range(2))
    assert np.array_equal(first.centres_, again.centres_)
    assert first.members_.toarray().sum(axis=1).tolist() == [40.0, 40.0, 40.0]


# Clusters of queries


@given(seed=seeds, count=st.integers(1, 9))
@settings(deadline=None, max_examples=examples(25))
def test_a_query_joins_the_nearest_centre_and_a_centre_is_the_mean_of_its_queries(seed: int, count: int) -> None:
    points = places(seed, 25, columns=3)
    found = fitted(Clusters, points, count)
    members = found.members_.toarray()
    assert members.shape == (count, 25)
    for query, place in enumerate(points):
        assert np.flatnonzero(members[:, query]).tolist() == [nearest(place, found.centres_)]
    for number, centre in enumerate(found.centres_):
        assert centre == pytest.approx(points[members[number] > 0].mean(axis=0))


@pytest.mark.parametrize("softness", [0.4, 1.0, 3.0])
def test_soft_membership_is_its_formula(softness: float) -> None:
    points = places(7, 30)
    found = fitted(Clusters, points, 5, softness=softness)
    squares = np.array([[gap(place, centre) ** 2 for centre in found.centres_] for place in points])
    first = squares.min(axis=1)
    expected = np.exp(-(squares - first[:, None]) / (2 * softness**2 * first.mean()))
    expected[expected < 0.01] = 0
    assert found.members_.toarray() == pytest.approx(expected.T)
    assert (found.members_.toarray().max(axis=0) == 1).all()


def test_distances_are_those_to_the_centres() -> None:
    found = fitted(Clusters, places(1, 20), 4)
    new = places(2, 6)
    expected = [[gap(place, centre) for centre in found.centres_] for place in new]
    assert found.distances(new) == pytest.approx(np.array(expected))


def test_labels_are_not_looked_at() -> None:
    points = places(1, 20)
    data = at_places(points)
    unlike = Judged(data.candidates, np.roll(data.labels, 1))
    first, second = (Clusters(4).fit(points, each) for each in (data, unlike))
    assert np.array_equal(first.centres_, second.centres_)


def test_the_best_of_several_starts_is_no_worse_than_the_true_piles() -> None:
    points = np.repeat(PILES, 10, axis=0) + places(4, 30)
    centres = k_means(points, 3, seed=0)
    piles = points.reshape(3, 10, 2).mean(axis=1)

    def cost(middles: Floats) -> float:
        return sum(gap(place, middles[nearest(place, middles)]) ** 2 for place in points)

    assert cost(centres) <= cost(piles) + 1e-9


@given(seed=seeds, count=st.integers(1, 30), columns=st.integers(1, 20), kind=st.sampled_from(["spread", "piles"]))
@settings(deadline=None, max_examples=examples(40))
def test_the_clusters_are_those_of_scikit_learn(seed: int, count: int, columns: int, kind: str) -> None:
    points = places(seed, 150, columns=columns)
    if kind == "piles":
        points += 9.0 * np.round(places(seed + 1, 150, columns=columns))
    points = points[by_coordinates(points)]
    expected = KMeans(count, n_init=4, random_state=seed % 1000).fit(points)
    found = least_inertia(points, count, seed % 1000, 4)
    if found is not None:
        assert found == pytest.approx(expected.cluster_centers_, abs=1e-9)
    assert k_means(points, count, seed % 1000) == pytest.approx(expected.cluster_centers_, abs=1e-9)


def test_our_own_k_means_decides_where_points_differ_in_all_distances() -> None:
    assert least_inertia(places(0, 400, columns=10), 5, 0, 4) is not None


@pytest.mark.parametrize("count", [2, 3])
def test_where_two_centres_are_equally_near_rounding_is_not_what_decides(count: int) -> None:
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    assert least_inertia(corners, count, 0, 4) is None
    assert len(k_means(corners, count, 0)) == count


# Clusters of relevant documents


@given(seed=seeds, count=st.integers(1, 8))
@settings(deadline=None, max_examples=examples(25))
def test_a_query_joins_every_cluster_that_holds_one_of_its_relevant_documents(seed: int, count: int) -> None:
    data = ragged(seed)
    found = RelevantClusters(count).fit(np.zeros((0, 0)), data)
    within_query = standing_of_relevant(data)
    holds: list[list[int]] = [[] for _ in found.centres_]
    expected: list[set[int]] = [set() for _ in range(len(data))]
    for query in range(len(data)):
        for row in range(*data.candidates.rows(query).indices(len(data.labels))):
            if data.labels[row] > 0:
                cluster = nearest(within_query[row], found.centres_)
                holds[cluster].append(row)
                expected[query].add(cluster)
    members = found.members_.toarray()
    assert [set(np.flatnonzero(column)) for column in members.T] == expected
    assert set(members.ravel()) <= {0.0, 1.0}
    for rows, centre in zip(holds, found.centres_, strict=True):
        assert centre == pytest.approx(within_query[rows].mean(axis=0), abs=1e-9)


def test_a_query_may_belong_to_several_and_one_without_relevant_documents_to_none() -> None:
    data = ragged(1, queries=30)
    count = np.count_nonzero(RelevantClusters(6).fit(np.zeros((0, 0)), data).members_.toarray(), axis=0)
    relevant = np.array([data.labels[data.candidates.rows(query)].sum() > 0 for query in range(len(data))])
    assert not relevant.all()
    assert (count[~relevant] == 0).all()
    assert (count[relevant] >= 1).all()
    assert count.max() > 1


@pytest.mark.parametrize("softness", [0.3, 1.0])
def test_a_querys_membership_is_the_largest_of_its_relevant_documents(softness: float) -> None:
    data = ragged(2, queries=20)
    found = RelevantClusters(5, softness=softness).fit(np.zeros((0, 0)), data)
    within_query, relevant = standing_of_relevant(data), data.labels > 0
    squares = np.array([[gap(each, centre) ** 2 for centre in found.centres_] for each in within_query])
    first = squares.min(axis=1)
    each = np.exp(-(squares - first[:, None]) / (2 * softness**2 * first[relevant].mean()))
    each[each < 0.01] = 0
    each[~relevant] = 0
    expected = [each[data.candidates.rows(query)].max(axis=0) for query in range(len(data))]
    assert found.members_.toarray() == pytest.approx(np.transpose(expected))


def test_raw_means_are_measured_on_the_scale_of_the_relevant_documents() -> None:
    data = ragged(3)
    found = RelevantClusters(4).fit(np.zeros((0, 0)), data)
    relevant = data.candidates.features[data.labels > 0]
    new = places(0, 5, columns=4)
    within_query = (new - relevant.mean(axis=0)) / relevant.std(axis=0)
    expected = [[gap(place, centre) for centre in found.centres_] for place in within_query]
    assert found.distances(new) == pytest.approx(np.array(expected))


def test_documents_that_are_not_relevant_do_not_matter() -> None:
    data = ragged(4)
    moved = np.where(data.labels[:, None] > 0, data.candidates.features, 77.0)
    other = Judged(Candidates(moved, data.candidates.starts, data.candidates.query_ids), data.labels)
    first, second = (RelevantClusters(5).fit(np.zeros((0, 0)), each) for each in (data, other))
    assert np.array_equal(first.centres_, second.centres_)
    assert np.array_equal(first.members_.toarray(), second.members_.toarray())


def test_without_a_relevant_document_there_is_nothing_to_cluster() -> None:
    data = at_places(places(0, 5))
    with pytest.raises(DataError, match="no relevant document to cluster: every label is 0"):
        RelevantClusters(2).fit(np.zeros((0, 0)), Judged(data.candidates, np.zeros_like(data.labels)))
