from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.learners.linear import LinearModels
from querywise.learners.local_models import FittedModels
from querywise.locality.combinations import SimilarQueries, by_distance, normalised, without_the_weak
from querywise.measures.formulas import average_precision, precision_table
from querywise.measures.order import FLAVOURS, RankedList
from querywise.runtime.arrays import Floats, Ints
from tests.worlds import examples, inside, ragged

# By distance


@given(arrays(np.float64, (3, 4), elements=st.floats(0, 1e6)))
def test_the_nearer_model_counts_more_by_the_inverse_of_its_distance(distances: Floats) -> None:
    weights = by_distance(distances)
    for row, gaps in zip(weights, distances.tolist(), strict=True):
        inverse = [1 / (0.1 + gap) for gap in gaps]
        assert row == pytest.approx([each / sum(inverse) for each in inverse])


@given(arrays(np.float64, (3, 4), elements=st.floats(0, 1e300)))
def test_however_far_everything_is_weights_are_finite_and_sum_to_1(distances: Floats) -> None:
    weights = by_distance(distances)
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    assert weights.sum(axis=1) == pytest.approx(np.ones(3))


# Without the weak


some_weights = arrays(np.float64, (3, 5), elements=st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.5, 1.0]))


@given(some_weights, st.floats(0, 1))
def test_who_falls_below_a_share_of_the_best_goes_and_the_others_keep_their_proportions(
    weights: Floats, floor: float
) -> None:
    for given_row, found in zip(weights, without_the_weak(weights, floor), strict=True):
        kept = [value if value >= floor * max(given_row) else 0.0 for value in given_row]
        assert found == pytest.approx([value / (sum(kept) or 1.0) for value in kept])


@given(some_weights)
def test_floor_1_keeps_the_best_alone_and_those_level_with_it(weights: Floats) -> None:
    for given_row, found in zip(weights, without_the_weak(weights, 1.0), strict=True):
        best = given_row == given_row.max()
        expected = best / best.sum() if given_row.any() else np.zeros(5)
        assert found == pytest.approx(expected)


@given(some_weights)
def test_floor_0_keeps_everyone(weights: Floats) -> None:
    assert without_the_weak(weights, 0.0) == pytest.approx(normalised(weights))


def test_a_row_of_zeros_stays_one_whatever_the_floor() -> None:
    for floor in (0.0, 0.5, 1.0):
        assert without_the_weak(np.zeros((2, 3)), floor).tolist() == [[0.0] * 3] * 2
    assert normalised(np.zeros((2, 3))).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("floor", [2, 1.001, -0.5, np.nan, np.inf])
def test_a_floor_that_is_no_share_is_refused(floor: float) -> None:
    with pytest.raises(DataError, match=f"floor={floor} must be a share between 0"):
        without_the_weak(np.ones((1, 2)), floor)


# Similar queries


def served_similar(points: Floats, members: Floats, precision: Floats, new: Floats, k: int) -> list[float]:
    """One query's weights: sort each model's queries by how far they are, and take k."""
    sums = []
    for model in range(len(members)):
        gaps = {
            query: abs(points[query, model] - new[model]) for query in range(len(points)) if members[model, query] > 0
        }
        own = sorted(gaps, key=gaps.__getitem__)
        if not own:
            sums.append(0.0)
            continue
        last = gaps[own[min(k, len(own)) - 1]]
        near = [precision[query, model] for query in own if gaps[query] < last - 1e-11]
        tied = [precision[query, model] for query in own if abs(gaps[query] - last) <= 1e-11]
        places_left = min(k, len(own)) - len(near)
        sums.append(sum(near) + places_left * sum(tied) / len(tied))
    return [each / (sum(sums) or 1.0) for each in sums]


@st.composite
def served(draw: st.DrawFn) -> tuple[Floats, Floats, Floats, Floats]:
    """Where training queries lie, whose they are, how well they were served, and where new queries lie."""
    queries, models = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    coordinate = draw(
        st.sampled_from(
            [st.integers(0, 6).map(lambda number: number / 4), st.floats(0, 20).map(lambda value: round(value, 6))]
        )
    )
    points = draw(arrays(np.float64, (queries, models), elements=coordinate))
    members = draw(arrays(np.float64, (models, queries), elements=st.sampled_from([0.0, 0.3, 1.0])))
    precision = draw(arrays(np.float64, (queries, models), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])))
    return points, members, precision, draw(arrays(np.float64, (3, models), elements=coordinate))


@given(served(), st.integers(1, 14))
@settings(deadline=None, max_examples=examples(300))
def test_similar_queries_are_found_as_by_sorting_them_all(world: tuple[Floats, Floats, Floats, Floats], k: int) -> None:
    points, members, precision, new = world
    weights = SimilarQueries(k).fit(points, csr_array(members), precision).weights(new)
    expected = [served_similar(points, members, precision, each, k) for each in new]
    assert weights == pytest.approx(np.array(expected), abs=1e-9)


def test_each_model_looks_at_its_own_queries_along_its_own_coordinate() -> None:
    points = np.array([[0.0, 9.0], [1.0, 9.0], [5.0, 3.0], [6.0, 4.0]])
    members = csr_array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    precision = np.array([[0.9, 0.0], [0.3, 0.0], [0.0, 0.2], [0.0, 0.6]])
    found = SimilarQueries(1).fit(points, members, precision)
    assert found.weights(np.array([[0.2, 3.9]])) == pytest.approx(np.array([[0.9 / 1.5, 0.6 / 1.5]]))
    assert found.weights(np.array([[0.8, 3.1]])) == pytest.approx(np.array([[0.3 / 0.5, 0.2 / 0.5]]))


def test_queries_equally_near_at_the_last_place_share_it() -> None:
    # Around 2, one place goes to the query there; the other is shared by those at 1 and 3.
    points = np.array([[2.0, 0.0], [1.0, 0.0], [3.0, 0.0], [9.0, 0.0]])
    members = csr_array([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    precision = np.array([[0.5, 1.0], [0.2, 0.0], [0.8, 0.0], [0.9, 0.0]])
    first = 0.5 + (0.2 + 0.8) / 2
    weights = SimilarQueries(2).fit(points, members, precision).weights(np.array([[2.0, 0.0]]))
    assert weights == pytest.approx(np.array([[first / (first + 1), 1 / (first + 1)]]))


def test_a_model_with_fewer_queries_than_k_counts_them_all_and_one_without_any_counts_nothing() -> None:
    points = np.array([[0.0, 0.0, 0.0], [100.0, 0.0, 0.0]])
    members = csr_array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    precision = np.array([[0.5, 0.0, 1.0], [0.25, 0.25, 1.0]])
    for k in (2, 10, 10**6):
        weights = SimilarQueries(k).fit(points, members, precision).weights(np.array([[0.0, 0.0, 0.0]]))
        assert weights == pytest.approx(np.array([[0.75, 0.25, 0.0]]))


def test_where_no_similar_query_was_served_at_all_every_weight_is_0() -> None:
    points, members = np.array([[0.0], [5.0]]), csr_array([[1.0, 1.0]])
    found = SimilarQueries(1).fit(points, members, np.array([[0.0], [1.0]]))
    assert found.weights(np.array([[1.0], [4.0]])).tolist() == [[0.0], [1.0]]


def test_no_queries_no_weights() -> None:
    found = SimilarQueries(1).fit(np.zeros((2, 3)), csr_array(np.ones((3, 2))), np.ones((2, 3)))
    assert found.weights(np.zeros((0, 3))).shape == (0, 3)


def test_a_whole_number_may_be_written_as_a_fraction() -> None:
    rng = np.random.default_rng(0)
    points, precision = rng.random((9, 2)), rng.random((9, 2))
    numbers: list[Any] = [3, 3.0]
    whole, fraction = (
        SimilarQueries(k).fit(points, csr_array(np.ones((2, 9))), precision).weights(points) for k in numbers
    )
    assert np.array_equal(whole, fraction)


@pytest.mark.parametrize("k", [0, -1, 0.5, 2.5, np.nan, np.inf])
def test_a_k_that_is_no_number_of_queries_is_refused(k: Any) -> None:
    with pytest.raises(DataError, match=f"k={k} must be a whole number of training queries, from 1 up"):
        SimilarQueries(k).fit(np.zeros((2, 1)), csr_array(np.ones((1, 2))), np.zeros((2, 1)))


def test_asking_before_fitting_says_what_to_do() -> None:
    with pytest.raises(NotFittedError, match=r"call SimilarQueries\.fit\(data\) first"):
        SimilarQueries(3).weights(np.zeros((1, 1)))


# Blending


class Weighted:
    """A linear ranker that nobody trained."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    def predict(self, candidates: Candidates) -> Floats:
        return np.array([sum(a * b for a, b in zip(row, self.weights, strict=True)) for row in candidates.features])


def several(weights: Floats) -> FittedModels:
    return FittedModels([inside(Weighted(each)) for each in weights])


KINDS: dict[str, Callable[[Floats], Any]] = {"linear": LinearModels, "any": several}


@pytest.fixture(params=KINDS)
def models_of(request: pytest.FixtureRequest) -> Callable[[Floats], Any]:
    return KINDS[request.param]


def mixed_scores(features: Floats, weights: Floats, share: Floats) -> Floats:
    """Σ w_i · minmax(f_i) over one query's documents."""
    total = np.zeros(len(features))
    for model, part in zip(weights, share, strict=True):
        scores = np.array([sum(a * b for a, b in zip(row, model, strict=True)) for row in features])
        lowest, highest = min(scores), max(scores)
        if highest > lowest:
            total += part * (scores - lowest) / (highest - lowest)
    return total


@st.composite
def blends(draw: st.DrawFn) -> tuple[Candidates, Floats, Floats]:
    """Documents of a few queries, some of them without any, a few models, and how much each counts."""
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    width, count = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    whole = st.integers(-4, 4).map(float)
    features = draw(arrays(np.float64, (sum(sizes), width), elements=whole))
    weights = draw(arrays(np.float64, (count, width), elements=whole))
    shares = draw(arrays(np.float64, (len(sizes), count), elements=st.sampled_from([0.0, 1.0, 2.0, 5.0])))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return Candidates(features, starts, tuple(f"q{each}" for each in range(len(sizes)))), weights, normalised(shares)


@pytest.mark.parametrize("kind", KINDS)
@given(world=blends())
@settings(deadline=None)
def test_a_blend_is_the_weighted_sum_of_scores_brought_to_one_range(
    kind: str, world: tuple[Candidates, Floats, Floats]
) -> None:
    candidates, weights, shares = world
    scores = KINDS[kind](weights).blend(candidates, shares)
    for query in range(len(candidates)):
        rows = candidates.rows(query)
        if rows.stop > rows.start:
            expected = mixed_scores(candidates.features[rows], weights, shares[query])
            assert scores[rows] - scores[rows][0] == pytest.approx(expected - expected[0], abs=1e-9)


def test_linear_models_and_any_models_blend_alike() -> None:
    candidates, rng = ragged(3).candidates, np.random.default_rng(0)
    weights, shares = rng.normal(size=(5, 4)), normalised(rng.random((len(candidates), 5)))
    linear, anything = (build(weights).blend(candidates, shares) for build in KINDS.values())
    for query in range(len(candidates)):
        rows = candidates.rows(query)
        assert linear[rows] - linear[rows].min() == pytest.approx(anything[rows] - anything[rows].min(), abs=1e-9)


def test_a_model_that_scores_all_documents_alike_has_no_say(models_of: Callable[[Floats], Any]) -> None:
    features = np.array([[1.0, 0.3, 0.2], [2.0, 0.3, 0.2], [4.0, 0.3, 0.2]])
    query = Candidates(features, np.array([0, 3]), ("q",))
    models = models_of(np.array([[1.0, 0.0, 0.0], [0.0, 3.0, -7.0]]))
    for share in (0.5, 0.01):
        scores = models.blend(query, np.array([[share, 1 - share]]))
        assert scores - scores[0] == pytest.approx(share * np.array([0.0, 1 / 3, 1.0]))
    assert np.ptp(models.blend(query, np.array([[0.0, 1.0]]))) == 0


def test_rounding_does_not_count_as_an_order(models_of: Callable[[Floats], Any]) -> None:
    # 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 are the same sum, though not to the last bit.
    features = np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]])
    query = Candidates(features, np.array([0, 2]), ("q",))
    scores = models_of(np.array([[1.0, 1.0, 1.0], [-1.0, 0.0, 0.0]])).blend(query, np.array([[0.9, 0.1]]))
    assert scores[0] - scores[1] == pytest.approx(0.1)


def test_the_scale_of_a_model_does_not_matter(models_of: Callable[[Floats], Any]) -> None:
    candidates, rng = ragged(4).candidates, np.random.default_rng(0)
    weights, shares = rng.normal(size=(3, 4)), normalised(rng.random((len(candidates), 3)))
    factors = np.array([[1e-6], [1.0], [1e6]])
    small, large = (models_of(each).blend(candidates, shares) for each in (weights, weights * factors))
    assert small == pytest.approx(large, abs=1e-9)


def test_one_model_alone_keeps_its_order_and_spans_0_to_1(models_of: Callable[[Floats], Any]) -> None:
    candidates, rng = ragged(4).candidates, np.random.default_rng(0)
    weights = rng.normal(size=(3, 4))
    scores = models_of(weights).blend(candidates, np.tile([0.0, 1.0, 0.0], (len(candidates), 1)))
    own = candidates.features @ weights[1]
    for query in range(len(candidates) - 3):
        rows = candidates.rows(query)
        assert scores[rows] == pytest.approx((own[rows] - own[rows].min()) / np.ptp(own[rows]))


def test_a_mixture_is_the_weights_whose_scores_are_the_blend() -> None:
    candidates, rng = ragged(5).candidates, np.random.default_rng(1)
    models, shares = LinearModels(rng.normal(size=(4, 4))), normalised(rng.random((len(candidates), 4)))
    scores = models.blend(candidates, shares)
    for query in range(len(candidates)):
        rows = candidates.rows(query)
        alone = candidates.features[rows] @ models.mixture(candidates.features[rows], shares[query])
        assert scores[rows] - scores[rows][0] == pytest.approx(alone - alone[0], abs=1e-9)
    assert models.mixture(candidates.features[:3], np.zeros(4)).tolist() == [0.0] * 4


# Average precision under many models


@pytest.mark.parametrize("flavour", FLAVOURS.values(), ids=FLAVOURS)
def test_the_table_is_every_average_precision_one_by_one(
    flavour: Any, models_of: Callable[[Floats], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ragged(2)
    whole = np.random.default_rng(0).integers(-3, 4, (len(data.labels), 4)).astype(np.float64)
    data = Judged(Candidates(whole, data.candidates.starts, data.candidates.query_ids), data.labels)
    weights = np.random.default_rng(1).integers(-2, 3, (5, 4)).astype(np.float64)
    last_first = -np.arange(len(data.labels))
    for block in (1, 5 * 20, 10**6):
        monkeypatch.setattr("querywise.measures.formulas._BLOCK", block)
        tables = [precision_table(models_of(weights), data, flavour, tied) for tied in (None, last_first)]
        assert [each.shape for each in tables] == [(len(data), 5)] * 2
        for query in range(len(data)):
            rows = list(range(*data.candidates.rows(query).indices(len(whole))))
            for model in range(5):
                scores = {row: float(whole[row] @ weights[model]) for row in rows}
                for table, in_turn in zip(tables, (rows, rows[::-1]), strict=True):
                    ranked = sorted(in_turn, key=scores.__getitem__, reverse=True)
                    expected = average_precision(RankedList(data.labels[ranked]), None, flavour)
                    assert table[query, model] == pytest.approx(expected)


# Blocks of queries


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(0, 20))
def test_blocks_cover_every_query_once_in_order(sizes: list[int], rows: int) -> None:
    starts: Ints = np.concatenate([[0], np.cumsum(np.array(sizes, dtype=np.int64))])
    candidates = Candidates(np.zeros((sum(sizes), 1)), starts, tuple(map(str, range(len(sizes)))))
    blocks = list(candidates.blocks(rows))
    assert [query for first, last in blocks for query in range(first, last)] == list(range(len(sizes)))
    for first, last in blocks:
        assert last > first
        assert last - first == 1 or sum(sizes[first:last]) <= rows
    for first, last in blocks[:-1]:
        assert sum(sizes[first : last + 1]) > rows, "a block takes what fits"
