from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from querywise.errors import DataError, NotFittedError
from querywise.locality import neighborhoods
from querywise.locality.coarse import Coarse
from querywise.locality.neighborhoods import Everyone, Nearest, Radius, Search, distances
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import number_of
from tests.worlds import examples

LINE = np.array([[0.0], [1.0], [2.0], [4.0]])  # points whose distances can be seen
SEARCHES: tuple[Literal["brute", "kd_tree", "ball_tree"], ...] = ("brute", "kd_tree", "ball_tree")
KINDS: dict[str, Callable[[], Any]] = {
    "Everyone": Everyone,
    "Nearest": lambda: Nearest(2),
    "Radius": lambda: Radius(1.0),
}


def members(weights: csr_array) -> list[list[int]]:
    """Who counts in each row, by number; whoever counts, counts 1."""
    assert np.all(weights.data == 1.0)
    return [sorted(weights[[row]].indices.tolist()) for row in range(weights.shape[0])]


def squared(point: Floats, place: Floats) -> Fraction:
    """The square of a distance in exact arithmetic."""
    return sum(((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(point, place, strict=True)), Fraction())


def by_hand(place: Floats, points: Floats, k: int) -> list[list[float]]:
    """The k nearest in exact arithmetic: sorted by distance, then by coordinates."""
    return sorted(points.tolist(), key=lambda point: (squared(np.array(point), place), point))[:k]


def shares_by_hand(place: Floats, points: Floats, k: int) -> list[float]:
    """1 for whoever has fewer than k others as near, 0 for whoever has k nearer; the others share what is left."""
    gaps = [squared(point, place) for point in points]
    cut = sorted(gaps)[k - 1]
    near, equal = sum(gap < cut for gap in gaps), sum(gap == cut for gap in gaps)
    return [1.0 if gap < cut else (k - near) / equal if gap == cut else 0.0 for gap in gaps]


def at_first_look(places: Floats, points: Floats) -> list[int]:
    """The nearest point to each place, by way of eight bits however few points there are."""
    with patch.object(neighborhoods, "_LARGE", 0):
        search = Search(points)
        return [int(search.nearest(place[None, :], 1)[0, 0]) for place in places]


@st.composite
def crowded(draw: st.DrawFn) -> tuple[Floats, Floats, int]:
    """Places and points on a grid, so that many distances tie exactly, some miss it by a hair, maybe far from 0."""
    step = draw(st.sampled_from([1.0, 2.0**-4, 2.0**-20]))
    offset = draw(st.sampled_from([0.0, 1.0, -1e4, 1e8]))
    side, size, asked = draw(st.integers(1, 3)), draw(st.integers(1, 25)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    grid = step * rng.integers(0, draw(st.integers(1, 6)), size=(size + asked, side))
    # At 1e8 a double has 26 bits behind the point: the grid is kept exactly, the expansion keeps none of it.
    everyone: Floats = (grid + offset).astype(np.float64)
    return everyone[:asked], everyone[asked:], draw(st.integers(1, size))


@given(crowded())
@settings(max_examples=examples(200), deadline=None)
def test_nearest_is_the_plain_loop_whatever_the_ties_and_however_far_from_zero(
    world: tuple[Floats, Floats, int],
) -> None:
    places, points, k = world
    found = Search(points).nearest(places, k)
    assert [points[row].tolist() for row in found] == [by_hand(place, points, k) for place in places]
    expected = [shares_by_hand(place, points, k) for place in places]
    for search in SEARCHES:
        assert Nearest(k, search=search).fit(points).weights(places).toarray() == pytest.approx(np.array(expected))


def test_a_hair_decides_even_where_the_expansion_keeps_no_digit() -> None:
    far = 1e8 + np.array([[3.0], [2.0 + 2.0**-20], [2.0], [-2.0]])
    assert Search(far).nearest(np.array([[1e8]]), 2).tolist() == [[3, 2]]
    assert members(Nearest(2).fit(far).weights(np.array([[1e8]]))) == [[2, 3]]


def test_in_many_blocks_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(0).integers(0, 4, size=(30, 2)).astype(np.float64)
    whole = Search(points).nearest(points, 7)
    monkeypatch.setattr("querywise.locality.neighborhoods._BLOCK", 31)
    assert np.array_equal(Search(points).nearest(points, 7), whole)


def test_of_equally_distant_points_the_first_by_its_coordinates_is_taken() -> None:
    points = np.array([[1.0], [-1.0], [1.0], [-1.0], [0.5]])
    assert Search(points).nearest(np.array([[0.0]]), 4).tolist() == [[4, 1, 3, 0]]
    assert Search(points[:3]).nearest(np.array([[0.0]]), 1).tolist() == [[1]]


@pytest.mark.parametrize("search", SEARCHES)
def test_those_tied_at_the_last_place_share_it(search: Literal["brute", "kd_tree", "ball_tree"]) -> None:
    points = np.array([[1.0], [-1.0], [1.0], [-1.0], [0.5]])
    finder = Nearest(3, search=search).fit(points)
    found = finder.weights(np.array([[0.0], [0.6]]))
    assert found.toarray().tolist() == [[0.5, 0.5, 0.5, 0.5, 1.0], [1.0, 0.0, 1.0, 0.0, 1.0]]
    assert finder.weights(np.zeros((0, 1))).shape == (0, 5)
    alike = np.full((6, 3), 0.1)
    assert Nearest(4, search=search).fit(alike).weights(alike[:1]).toarray() == pytest.approx(np.full((1, 6), 4 / 6))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("k", [1, 4, 9, 12])
def test_around_one_point_are_the_weights_of_that_point_and_the_nearest(
    k: int, metric: Literal["euclidean", "cosine"]
) -> None:
    points = np.random.default_rng(0).integers(-2, 3, size=(12, 2)).astype(float)  # many are equally far away
    near = Nearest(k, metric=metric).fit(points)
    for place in np.random.default_rng(1).integers(-2, 3, size=(30, 2)).astype(float):
        first, found = near.around(place)
        row = near.weights(place[None, :])
        assert found.columns.tolist() == row.indices.tolist()
        assert found.weights.tolist() == row.data.tolist()
        assert first == Search(near.points_).nearest(_measured(place, metric), 1)[0, 0]


def test_the_row_of_one_point_is_a_sparse_matrix_like_any_other() -> None:
    points = np.random.default_rng(0).normal(size=(20, 3))
    near = Nearest(4).fit(points)
    for place in (points[:1] + 0.1, points[1:2] - 0.1):
        row, other = near.weights(place), near.weights(np.repeat(place, 2, axis=0))[[0]]
        row.check_format(full_check=True)
        assert isinstance(row, csr_array)
        assert row.shape == other.shape
        assert np.array_equal(row.toarray(), other.toarray())
        assert np.array_equal(row @ points, other @ points)
        assert np.array_equal(row.T.tocsr()[[3]].toarray(), other.T.tocsr()[[3]].toarray())


def _measured(place: Floats, metric: Literal["euclidean", "cosine"]) -> Floats:
    return place[None, :] / (max(float(np.linalg.norm(place)), 1e-300) if metric == "cosine" and place.any() else 1.0)


def test_a_tree_is_not_asked_for_one_point() -> None:
    with pytest.raises(DataError, match="around needs search='brute'"):
        Nearest(2, search="kd_tree").fit(np.eye(4)).around(np.zeros(4))


def test_k_is_a_number_or_a_share() -> None:
    place = np.array([[0.4]])
    assert members(Nearest(2).fit(LINE).weights(place)) == [[0, 1]]
    assert members(Nearest(0.75).fit(LINE).weights(place)) == [[0, 1, 2]]
    assert members(Nearest(1).fit(LINE).weights(place)) == [[0]]
    assert members(Nearest(1.0).fit(LINE).weights(place)) == [[0, 1, 2, 3]]


def test_a_small_share_is_at_least_one_query() -> None:
    assert number_of(0.001, 4, "k") == 1
    assert number_of(3.0, 4, "k") == 3


@pytest.mark.parametrize("k", [0, -1, 5, 0.0, 1.5, -0.5, True, float("nan"), float("inf")])
def test_a_k_that_cannot_be_is_refused_with_the_number_there_are(k: float) -> None:
    with pytest.raises(DataError, match=rf"Nearest\(k={k}\) must be 1 to 4, the number of training queries"):
        Nearest(k).fit(LINE)


def test_every_query_is_its_own_nearest() -> None:
    points = np.random.default_rng(0).normal(size=(20, 3))
    assert Search(points).nearest(points, 1).ravel().tolist() == list(range(20))


def test_cosine_sees_directions_and_not_lengths() -> None:
    points = np.array([[1.0, 0.0], [100.0, 0.0], [40.0, 40.0], [0.0, 1.0]])
    place = np.array([[50.0, 1.0]])
    assert members(Nearest(2, metric="cosine").fit(points).weights(place)) == [[0, 1]]
    assert members(Nearest(2).fit(points).weights(place)) == [[0, 2]]


def test_the_cosine_distance_is_the_chord_between_directions() -> None:
    apart = distances(np.array([[2.0, 0.0], [0.0, 3.0]]), np.array([[0.0, 5.0], [0.0, 0.1]]), "cosine")
    assert apart == pytest.approx([np.sqrt(2), 0.0])


def test_a_point_without_a_direction_is_no_error() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.0]])
    assert members(Nearest(1, metric="cosine").fit(points).weights(np.zeros((1, 2)))) == [[0]]


def test_radius_takes_all_within_and_the_boundary_too() -> None:
    assert members(Radius(1.0).fit(LINE).weights(np.array([[1.0], [3.0]]))) == [[0, 1, 2], [2, 3]]
    triangle = np.array([[3.0, 4.0], [3.0, 4.0 + 1e-9]])
    assert members(Radius(5.0).fit(triangle).weights(np.zeros((1, 2)))) == [[0]]


def test_radius_zero_takes_only_twins() -> None:
    points = np.array([[0.1, 0.2], [0.3, 0.4], [0.1, 0.2]])
    assert members(Radius(0.0).fit(points).weights(points)) == [[0, 2], [1], [0, 2]]


def test_radius_may_find_nobody() -> None:
    found = Radius(0.5).fit(LINE).weights(np.array([[9.0], [4.4], [-9.0]]))
    assert found.shape == (3, 4)
    assert members(found) == [[], [3], []]


def test_an_infinite_radius_is_everyone() -> None:
    places = np.array([[-1e9], [0.5]])
    everyone = Everyone().fit(LINE).weights(places)
    assert np.array_equal(everyone.toarray(), np.ones((2, 4)))
    assert np.array_equal(Radius(np.inf).fit(LINE).weights(places).toarray(), everyone.toarray())


def test_radius_by_cosine() -> None:
    points = np.array([[5.0, 0.0], [0.0, 5.0], [-5.0, 0.0]])
    right_angle = float(np.sqrt(2)) + 1e-12
    assert members(Radius(right_angle, metric="cosine").fit(points).weights(np.array([[1.0, 0.0]]))) == [[0, 1]]


@pytest.mark.parametrize("radius", [-1.0, float("nan")])
def test_a_radius_that_cannot_be_is_refused(radius: float) -> None:
    with pytest.raises(DataError, match=rf"Radius\(radius={radius}\) must be a number from 0 up"):
        Radius(radius).fit(LINE)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("search", ["kd_tree", "ball_tree"])
def test_trees_find_whom_brute_force_finds(
    search: Literal["kd_tree", "ball_tree"], metric: Literal["euclidean", "cosine"]
) -> None:
    rng = np.random.default_rng(0)
    points, places = rng.normal(size=(300, 5)), rng.normal(size=(40, 5))
    brute = Nearest(17, metric=metric).fit(points).weights(places)
    tree = Nearest(17, metric=metric, search=search).fit(points).weights(places)
    assert members(tree) == members(brute)


def test_fitting_a_tree_again_forgets_the_first_points() -> None:
    finder = Nearest(1, search="kd_tree").fit(LINE)
    finder.weights(LINE)
    assert members(finder.fit(LINE[::-1].copy()).weights(LINE)) == [[3], [2], [1], [0]]


@pytest.mark.parametrize("kind", KINDS)
def test_no_query_to_place_gives_no_row(kind: str) -> None:
    assert KINDS[kind]().fit(LINE).weights(np.zeros((0, 1))).shape == (0, 4)


def test_an_unknown_metric_or_search_names_the_known_ones() -> None:
    for neighborhood in (Nearest(1, metric="manhattan"), Radius(1.0, metric="manhattan")):  # type: ignore[arg-type]
        with pytest.raises(DataError, match=r"metric='manhattan' is unknown\. Known: euclidean, cosine"):
            neighborhood.fit(LINE)
    with pytest.raises(DataError, match=r"search='lsh'\) is unknown\. Known: brute, kd_tree, ball_tree"):
        Nearest(1, search="lsh").fit(LINE)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_asking_before_fitting_says_what_to_do(kind: str) -> None:
    with pytest.raises(NotFittedError, match=rf"call {kind}\.fit\(data\) first"):
        KINDS[kind]().weights(LINE)


@pytest.mark.parametrize("search", ["brute", "kd_tree"])
@pytest.mark.parametrize("far", [1e200, np.inf, np.nan])
def test_a_place_beyond_all_distances_is_refused(search: Literal["brute", "kd_tree"], far: float) -> None:
    points = np.arange(12.0).reshape(6, 2)
    nearest = Nearest(2, search=search).fit(points)
    with np.errstate(all="ignore"), pytest.raises(DataError, match="lies too far from the training queries"):
        nearest.weights(np.array([[0.0, 1.0], [far, 1.0]]))
    with np.errstate(all="ignore"), pytest.raises(DataError, match="lies too far from the training queries"):
        Search(points).nearest(np.array([[far, 1.0]]), 1)


@settings(deadline=None, max_examples=examples(200))
@given(crowded())
def test_a_first_look_in_eight_bits_finds_the_same_among_ties(case: tuple[Floats, Floats, int]) -> None:
    places, points, _ = case
    expected = [by_hand(place, points, 1) for place in places]
    assert [[points[found].tolist()] for found in at_first_look(places, points)] == expected


@pytest.mark.parametrize("tail", [1.0, 3.0])
def test_a_first_look_in_eight_bits_finds_the_same_among_many(tail: float) -> None:
    rng = np.random.default_rng(5)
    points = rng.normal(size=(2000, 20)) ** tail * np.geomspace(1e-6, 1e6, 20)
    points[:, 3] = 7.0
    points[1000:1010] = points[:10]  # of two that coincide either is right: they have the same model
    places = np.concatenate([points[:15], points[:15] * (1 + 1e-9), 100 * points[:5], rng.normal(size=(15, 20))])
    gaps = [np.linalg.norm(points - place, axis=1) for place in places]
    for found, gap in zip(at_first_look(places, points), gaps, strict=True):
        assert gap[found] == gap.min()


def test_a_first_look_leaves_few_points_to_look_at() -> None:
    rng = np.random.default_rng(6)
    points, places = rng.normal(size=(5000, 100)), rng.normal(size=(20, 100))
    coarse = Coarse.of(points)
    for place in places:
        left = coarse.perhaps_nearest(place, 0.0)
        assert int(np.linalg.norm(points - place, axis=1).argmin()) in left
        assert len(left) < 50


def test_many_points_are_made_ready_once_and_few_never() -> None:
    rng = np.random.default_rng(8)
    many, few = Search(rng.normal(size=(neighborhoods._LARGE // 4, 4))), Search(rng.normal(size=(10, 4)))
    assert few.coarse is None
    ready = many.coarse
    assert ready is not None
    assert many.nearest_one(many.points[7]) == 7
    assert many.coarse is ready


@pytest.mark.parametrize("scale", [1.0, 1e140, 1e-140])
@pytest.mark.parametrize("width", [1, 7, 9, 1_100])
def test_a_first_look_loses_no_nearest_point_at_any_size(scale: float, width: int) -> None:
    rng = np.random.default_rng(7)
    points = rng.normal(size=(700, width))
    coarse = Coarse.of(points * scale)
    for place in (*points[:3], *rng.normal(size=(5, width)), *1e8 * rng.normal(size=(2, width)), np.full(width, 1e20)):
        left = coarse.perhaps_nearest(place * scale, 0.0)
        assert int(np.linalg.norm(points - place, axis=1).argmin()) in left
