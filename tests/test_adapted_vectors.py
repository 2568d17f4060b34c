"""Query vectors that learn: the optimum is one, nothing leaks, what must change nothing does not, and bad input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.sparse import csr_array

from querywise import AdaptedVectors
from querywise.data.vectors import Vectors, as_vectors
from querywise.errors import DataError, NotFittedError
from querywise.retrieval.adapted_vectors import FEWEST, LINEAR
from querywise.retrieval.query_adapter import AdapterProblem, Basis, Kernel
from querywise.retrieval.vector_search import VectorIndex
from querywise.runtime.arrays import Floats, Ints
from tests.support.rotated import FIXED, World, unit
from tests.worlds import examples

KERNELS = (Kernel(0.0, 4.0), Kernel(1.0, None), Kernel(0.5, 2.0))


def problem_of(
    kernel: Kernel, seed: int = 0, queries: int = 12, documents: int = 20, dimension: int = 5
) -> AdapterProblem:
    """A small problem in double precision."""
    chance = np.random.default_rng(seed)
    q, d = unit(chance.normal(size=(queries, dimension))), unit(chance.normal(size=(documents, dimension)))
    shares = chance.random((queries, documents)) * (chance.random((queries, documents)) < 0.2)
    shares[np.arange(queries), chance.integers(documents, size=queries)] += 1.0
    shares /= shares.sum(axis=1, keepdims=True)
    weights = chance.random(queries) + 0.1
    return AdapterProblem(
        Basis.of(kernel, q, q), q, d, shares @ d, weights / weights.sum(), 0.2, 0.02, precision=np.float64
    )


def kernel_matrix(kernel: Kernel, queries: Floats, others: Floats) -> Floats:
    """The kernel as the formula has it."""
    products = queries @ others.T
    found: Floats = kernel.linear * products
    return found if kernel.gamma is None else found + np.exp(kernel.gamma * (products - 1))


def written(kernel: Kernel, problem: AdapterProblem, pulls: Floats) -> float:
    """The objective over R, with K, as it is written."""
    k = kernel_matrix(kernel, problem.queries, problem.queries)
    moved = problem.queries + k @ pulls
    scores = moved @ problem.documents.T / problem.temperature
    top = scores.max(axis=1)
    normaliser = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    ours = (moved * problem.targets).sum(axis=1) / problem.temperature
    return float(problem.weights @ (normaliser - ours) + problem.l2 * np.trace(pulls.T @ k @ pulls))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_that_of_another_solver_on_the_written_objective(kernel: Kernel, seed: int) -> None:
    problem = problem_of(kernel, seed, dimension=(5, 8, 15)[seed])  # also more numbers than queries
    ours = problem.solve(tolerance=1e-10, most=1000)
    k = kernel_matrix(kernel, problem.queries, problem.queries)

    def value_and_gradient(flat: Floats) -> tuple[float, Floats]:
        pulls = flat.reshape(problem.queries.shape)
        scores = (problem.queries + k @ pulls) @ problem.documents.T / problem.temperature
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        slopes = problem.weights[:, None] * (shares @ problem.documents - problem.targets) / problem.temperature
        return written(kernel, problem, pulls), (k @ (slopes + 2 * problem.l2 * pulls)).ravel()

    start = np.zeros(problem.queries.size)
    theirs = minimize(value_and_gradient, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000})
    assert abs(ours.objective - theirs.fun) < 1e-6
    assert ours.gap < 1e-6
    assert abs(written(kernel, problem, problem.pulls(ours.coordinates)) - ours.objective) < 1e-6


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_optimum_is_that_of_a_trust_region_in_few_dimensions(kernel: Kernel) -> None:
    """Over Z, with derivatives of both orders by finite differences of the written objective alone."""
    problem = problem_of(kernel, 5, queries=3, documents=4, dimension=2)
    basis = problem.basis.values
    ours = problem.solve(tolerance=1e-12, most=1000)

    def value(flat: Floats) -> float:
        z = flat.reshape(basis.shape[1], -1)
        return written(kernel, problem, np.linalg.pinv(basis.T) @ z)

    def gradient(flat: Floats, step: float = 1e-5) -> Floats:
        steps = step * np.eye(len(flat))
        return np.array([(value(flat + each) - value(flat - each)) / (2 * step) for each in steps])

    def hessian(flat: Floats) -> Floats:
        step = 1e-4
        found = np.array([(gradient(flat + e) - gradient(flat - e)) / (2 * step) for e in step * np.eye(len(flat))])
        symmetric: Floats = (found + found.T) / 2
        return symmetric

    start = np.zeros(basis.shape[1] * 2)
    theirs = minimize(value, start, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-7})
    assert abs(theirs.fun - ours.objective) < 1e-6


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_gap_is_never_less_than_the_distance_to_the_optimum(kernel: Kernel) -> None:
    problem = problem_of(kernel)
    best = problem.solve(tolerance=1e-13, most=2000).objective
    for most in (1, 2, 3, 5, 8, 13, 21):
        found = problem.solve(tolerance=0.0, most=most)
        assert -1e-9 <= found.objective - best <= found.gap + 1e-9
    chance = np.random.default_rng(1)
    for scale in (0.01, 0.1, 1.0, 3.0):
        coordinates = scale * chance.normal(size=(problem.basis.values.shape[1], 5))
        value, gradient = problem.value_and_gradient(coordinates)
        assert value - best <= (gradient**2).sum() / (4 * problem.l2)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("scale", [0.0, 0.3, 3.0])
def test_the_gradient_is_that_of_finite_differences(kernel: Kernel, scale: float) -> None:
    problem, chance = problem_of(kernel), np.random.default_rng(2)
    coordinates = scale * chance.normal(size=(problem.basis.values.shape[1], 5))
    _, gradient = problem.value_and_gradient(coordinates)
    for _ in range(5):
        way = chance.normal(size=coordinates.shape)
        more, less = (problem.value_and_gradient(coordinates + step * way)[0] for step in (1e-5, -1e-5))
        assert (more - less) / 2e-5 == pytest.approx(float((gradient * way).sum()), rel=1e-5, abs=1e-7)


@settings(deadline=None, max_examples=examples(40))
@given(seed=st.integers(0, 1000), scale=st.floats(0.01, 30), share=st.floats(0, 1), kernel=st.sampled_from(KERNELS))
def test_the_objective_is_convex_along_any_segment(seed: int, scale: float, share: float, kernel: Kernel) -> None:
    problem, chance = problem_of(kernel), np.random.default_rng(seed)
    one, other = scale * chance.normal(size=(2, problem.basis.values.shape[1], 5))
    first, second, between = (
        problem.value_and_gradient(each)[0] for each in (one, other, share * one + (1 - share) * other)
    )
    assert between <= share * first + (1 - share) * second + 1e-9 * (1 + abs(first) + abs(second))


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_pulls_are_what_the_coordinates_are_made_of(kernel: Kernel) -> None:
    problem = problem_of(kernel)
    solution = problem.solve(tolerance=1e-13, most=2000)
    pulls = problem.pulls(solution.coordinates)
    assert np.allclose(problem.basis.values.T @ pulls, solution.coordinates, atol=1e-5)
    asked = unit(np.random.default_rng(9).normal(size=(7, 5)))
    linear, exponential = problem.basis.response(solution.coordinates)
    moved = np.zeros_like(asked)
    if linear is not None:
        moved += asked @ linear
    if exponential is not None and kernel.gamma is not None:
        moved += np.exp(kernel.gamma * (asked @ problem.queries.T - 1)) @ exponential
    assert np.allclose(moved, kernel_matrix(kernel, asked, problem.queries) @ pulls, atol=1e-4)


def test_the_linear_kernel_is_one_linear_map() -> None:
    """(I + A)q: its objective over A, penalised by ‖A‖² as the coordinates are, has the same optimum."""
    problem = problem_of(Kernel(1.0, None))
    q, dimension = problem.queries, 5

    def value(flat: Floats) -> float:
        moved = q + q @ flat.reshape(dimension, dimension)
        scores = moved @ problem.documents.T / problem.temperature
        top = scores.max(axis=1)
        normaliser = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        losses = normaliser - (moved * problem.targets).sum(axis=1) / problem.temperature
        return float(problem.weights @ losses + problem.l2 * (flat**2).sum())

    theirs = minimize(value, np.zeros(dimension**2), method="BFGS", options={"gtol": 1e-6})
    ours = problem.solve(tolerance=1e-10, most=1000)
    linear, exponential = problem.basis.response(ours.coordinates)
    assert exponential is None
    assert linear is not None
    assert abs(theirs.fun - ours.objective) < 1e-6
    assert np.allclose(linear, theirs.x.reshape(dimension, dimension), atol=1e-3)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.mark.parametrize("kind", ["auto", "linear", "by-query"])
def test_what_can_be_learned_is_learned_and_said(world: World, kind: Any) -> None:
    adapter = AdaptedVectors(kind).fit(world.queries, world.documents, world.judgments)
    assert adapter.adapts
    assert adapter.gain_ is not None
    assert adapter.gain_ > 0.2
    assert adapter.teachers_ == 150
    assert adapter.tried
    assert f"{adapter.gain_:+.4f}" in adapter.said()
    moved = adapter.transform(world.asked)
    answers = world.placed[world.answers]
    assert (moved * answers).sum(axis=1).mean() > (world.asked * answers).sum(axis=1).mean() + 0.2
    assert np.allclose((moved**2).sum(axis=1), 1)


def test_one_vector_or_a_table_are_moved_alike(world: World) -> None:
    adapter = world.fitted()
    table = adapter.transform(world.asked[:5])
    assert np.allclose(adapter.transform(world.asked[2]), table[2], atol=1e-6)
    assert np.allclose(adapter.transform(7.0 * world.asked[:5]), table, atol=1e-6)
    assert adapter.transform(world.asked[:0]).shape == (0, 8)


def test_a_query_far_from_all_others_stays_where_it_is() -> None:
    chance = np.random.default_rng(0)
    near = unit(np.eye(8)[0] + 0.1 * chance.normal(size=(30, 8)))
    documents = unit(chance.normal(size=(20, 8)))
    judgments = {str(row): {str(row % 3): 1.0} for row in range(30)}
    adapter = AdaptedVectors("by-query", gamma=20.0, l2=0.001, gate=False).fit(near, documents, judgments)
    far = -np.eye(8)[0]
    assert far @ adapter.transform(far) > 1 - 1e-9
    assert near[0] @ adapter.transform(near[0]) < 0.99
    linear = AdaptedVectors("linear", l2=0.001, gate=False).fit(near, documents, judgments)
    assert far @ linear.transform(far) < 0.99, "which a linear map does not do"


def test_scaling_gains_weights_and_vectors_changes_nothing(world: World) -> None:
    plain = world.fitted()
    large = {query: {each: 8.0 * gain for each, gain in own.items()} for query, own in world.judgments.items()}
    weights = np.full(150, 4.0)
    for judgments, counted_as, scale in ((large, None, 1.0), (world.judgments, weights, 1.0), (large, weights, 2.0)):
        other = AdaptedVectors("by-query", **FIXED)
        other.fit(scale * world.asked, scale * world.placed, _numbered(judgments), counted_as)
        assert np.allclose(other.transform(world.asked), plain.transform(world.asked), atol=1e-3)


def _numbered(judgments: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {query[1:]: {each[1:]: gain for each, gain in own.items()} for query, own in judgments.items()}


@pytest.mark.parametrize("gain", [5e-324, 1e-300, 1e300, 1.7e308])
def test_extreme_gains_are_relative_too(world: World, gain: float) -> None:
    judgments = {query: dict.fromkeys([*own, "d0"], gain) for query, own in world.judgments.items()}
    usual = {query: dict.fromkeys(own, 1.0) for query, own in judgments.items()}
    both = [
        AdaptedVectors("by-query", **FIXED).fit(world.queries, world.documents, each).transform(world.asked)
        for each in (judgments, usual)
    ]
    assert np.array_equal(both[0], both[1])


def permuted(vectors: Vectors, order: Ints) -> Vectors:
    return as_vectors([vectors.ids[each] for each in order], vectors.values[order], what=vectors.what)


@pytest.mark.parametrize("landmarks", [2000, 40])
def test_the_order_of_queries_changes_nothing_and_that_of_documents_only_rounding(landmarks: int) -> None:
    world, chance = World(120, 40, 6), np.random.default_rng(3)
    asked = world.asked
    plain = AdaptedVectors(landmarks=landmarks).fit(world.queries, world.documents, world.judgments)
    queries = permuted(world.queries, chance.permutation(120))
    shuffled = dict(sorted(world.judgments.items(), key=lambda each: each[0][::-1]))
    same = AdaptedVectors(landmarks=landmarks).fit(queries, world.documents, shuffled)
    assert plain.tried == same.tried
    assert np.array_equal(plain.transform(asked), same.transform(asked))
    documents = permuted(world.documents, chance.permutation(40))
    near = AdaptedVectors(landmarks=landmarks).fit(world.queries, documents, world.judgments)
    assert (near.gamma_, near.l2_) == (plain.gamma_, plain.l2_)
    assert np.allclose(plain.transform(asked), near.transform(asked), atol=0.02)


def test_a_query_twice_with_half_the_weight_each_is_the_query_once(world: World) -> None:
    twice = as_vectors([*world.queries.ids, "again"], np.vstack([world.asked, world.asked[3]]), what="query")
    judgments = {**world.judgments, "again": world.judgments["q3"]}
    weights = np.ones(151)
    weights[[3, 150]] = 0.5
    for kind in ("linear", "by-query"):
        given: dict[str, Any] = {**FIXED, "gamma": 4.0 if kind == "by-query" else None, "kind": kind}
        once = AdaptedVectors(**given).fit(world.queries, world.documents, world.judgments)
        both = AdaptedVectors(**given).fit(twice, world.documents, judgments, weights)
        asked = world.asked
        assert np.allclose(once.transform(asked), both.transform(asked), atol=0.02)


def test_weight_0_is_the_query_left_out(world: World) -> None:
    weights = np.ones(150)
    weights[50:] = 0
    fewer = {query: own for query, own in world.judgments.items() if int(query[1:]) < 50}
    adapter = AdaptedVectors("by-query", **FIXED).fit(world.queries, world.documents, world.judgments, weights)
    other = AdaptedVectors("by-query", **FIXED).fit(world.queries, world.documents, fewer)
    assert adapter.query_ids_ == other.query_ids_
    assert np.array_equal(adapter.transform(world.asked), other.transform(world.asked))


@pytest.mark.parametrize("documents", [60, 4_300])
@pytest.mark.parametrize("kind", ["linear", "by-query"])
def test_a_training_query_is_never_moved_by_its_own_judgments(documents: int, kind: Any) -> None:
    """With 4,300 documents the softmax is over a pool, which the query's judgments must not change either."""
    world = World(60, documents)
    given: dict[str, Any] = {**FIXED, "gamma": 4.0 if kind == "by-query" else None, "kind": kind}
    before = AdaptedVectors(**given).fit_transform(world.queries, world.documents, world.judgments)
    asked = world.asked
    for query in (0, 17, 59):
        worst = np.argsort(world.placed @ asked[query])[:3]
        planted = {**world.judgments, f"q{query}": {f"d{each}": 5.0 for each in worst.tolist()}}
        adapter = AdaptedVectors(**given)
        after = adapter.fit_transform(world.queries, world.documents, planted)
        assert np.array_equal(after[query], before[query])
        assert not np.allclose(after, before, atol=1e-3), "others see them"
        own = adapter.transform(asked[query])
        assert not np.allclose(own, after[query], atol=1e-3), "transform would move it by its own"


def test_no_query_is_moved_by_the_judgments_of_its_group() -> None:
    world, groups = World(60), np.arange(60) // 3
    before = AdaptedVectors("by-query", **FIXED).fit_transform(
        world.queries, world.documents, world.judgments, groups=groups
    )
    planted = {**world.judgments, "q31": {"d1": 5.0}}
    after = AdaptedVectors("by-query", **FIXED).fit_transform(world.queries, world.documents, planted, groups=groups)
    assert np.array_equal(after[30:33], before[30:33])
    names = np.array([f"g{each}" for each in groups.tolist()])
    named = AdaptedVectors("by-query", **FIXED).fit_transform(
        world.queries, world.documents, world.judgments, groups=names
    )
    assert named.shape == before.shape


def test_queries_that_teach_nothing_are_moved_by_all_others(world: World) -> None:
    judgments = {query: own for query, own in world.judgments.items() if query not in ("q3", "q4")}
    judgments["q4"] = {"d1": 0.0}
    adapter = AdaptedVectors("by-query", **FIXED)
    found = adapter.fit_transform(world.queries, world.documents, judgments)
    assert adapter.teachers_ == 148
    assert np.array_equal(found[3:5], adapter.transform(world.asked)[3:5])


@pytest.mark.parametrize("seed", range(3))
def test_noise_leaves_every_query_where_it_is(seed: int) -> None:
    chance = np.random.default_rng(seed)
    queries, documents = unit(chance.normal(size=(150, 16))), unit(chance.normal(size=(80, 16)))
    answers = np.argmax(queries @ documents.T, axis=1)  # the plain vectors are right already
    judgments = {str(row): {str(each): 1.0} for row, each in enumerate(answers.tolist())}
    adapter = AdaptedVectors()
    found = adapter.fit_transform(queries, documents, judgments)
    assert not adapter.adapts
    assert "no gain above one standard error" in adapter.said()
    assert np.allclose(found, queries)
    assert np.allclose(adapter.transform(queries), queries)
    assert adapter.explain(queries[0]).cosine == pytest.approx(1.0)


def test_few_queries_leave_every_query_where_it_is() -> None:
    world = World(FEWEST - 1)
    adapter = AdaptedVectors().fit(world.queries, world.documents, world.judgments)
    assert not adapter.adapts
    assert adapter.said() == "Query vectors are left as they are: 99 judged queries to learn from, too few."
    one_more = World(FEWEST)
    assert AdaptedVectors().fit(one_more.queries, one_more.documents, one_more.judgments).adapts


def test_what_cannot_be_tested_leaves_every_query_where_it_is(world: World) -> None:
    """Three groups are too few to be dealt into five parts, so that nothing is known of the gain."""
    groups = np.arange(len(world.asked)) % 3
    adapter = AdaptedVectors().fit(world.queries, world.documents, world.judgments, groups=groups)
    assert not adapter.adapts
    assert "need as many groups of queries" in adapter.said()


def test_zero_vectors_stay_and_teach_nothing(world: World) -> None:
    queries, documents = world.asked.copy(), world.placed.copy()
    queries[5], documents[7] = 0.0, 0.0
    adapter = AdaptedVectors("by-query", **FIXED)
    found = adapter.fit_transform(queries, documents, _numbered(world.judgments))
    assert "5" not in adapter.query_ids_
    assert np.array_equal(found[5], np.zeros(8))
    assert np.array_equal(adapter.transform(np.zeros(8)), np.zeros(8))
    assert np.isfinite(found).all()
    assert np.isfinite(adapter.explain(np.zeros(8), documents).cosine)


@settings(deadline=None, max_examples=examples(40))
@given(
    queries=arrays(np.float64, (6, 3), elements=st.floats(-1e15, 1e15)),
    documents=arrays(np.float64, (5, 3), elements=st.floats(-1e15, 1e15)),
    gains=arrays(np.float64, (6, 5), elements=st.one_of(st.just(0.0), st.floats(0, 1e300))),
    gamma=st.one_of(st.none(), st.floats(1e-6, 1e6)),
    l2=st.floats(1e-12, 1e12),
    temperature=st.floats(1e-4, 1e4),
)
def test_any_numbers_are_refused_in_words_or_give_finite_vectors(
    queries: Floats, documents: Floats, gains: Floats, gamma: float | None, l2: float, temperature: float
) -> None:
    kind: Any = "linear" if gamma is None else "by-query"
    adapter = AdaptedVectors(kind, gamma=gamma, l2=l2, temperature=temperature, gate=False, folds=2)
    try:
        moved = adapter.fit_transform(queries, documents, csr_array(gains))
        again = adapter.transform(queries)
    except DataError:
        return
    for found in (moved, again):
        lengths = (found**2).sum(axis=1)
        assert (np.isclose(lengths, 1) | (lengths == 0)).all()


GOOD = np.eye(3)


@pytest.mark.parametrize(
    ("queries", "documents", "judgments", "more", "words"),
    [
        (np.array([[np.nan, 0, 1]]), GOOD, {}, {}, "query vectors: row 1"),
        (GOOD, np.array([[np.inf, 0, 1]]), {}, {}, "document vectors: row 1"),
        (GOOD, np.array([[1e200, 0, 1]]), {}, {}, "Divide all vectors"),
        (np.eye(3)[0], GOOD, {}, {}, "expected a table"),
        (5, GOOD, {}, {}, "expected a table"),
        ([[1, 2], [3]], GOOD, {}, {}, "expected a table of numbers"),
        ([["a", "b", "c"]], GOOD, {}, {}, "expected a table of numbers"),
        (GOOD, np.eye(4), {}, {}, "The query vectors have 3 numbers, those of documents 4"),
        (GOOD, GOOD, {"7": {"0": 1}}, {}, "query '7' has no vector"),
        (GOOD, GOOD, {"0": {"x": 1}}, {}, "document 'x' has no vector"),
        (GOOD, GOOD, {0: {"1": 1}}, {}, "query 0 has no vector"),
        (GOOD, GOOD, {"0": {"1": -1}}, {}, "below 0 or not finite"),
        (GOOD, GOOD, {"0": {"1": np.nan}}, {}, "below 0 or not finite"),
        (GOOD, GOOD, {"0": {"1": np.inf}}, {}, "below 0 or not finite"),
        (GOOD, GOOD, {"0": {"1": "much"}}, {}, "'much' for query '0' and document '1' is no number"),
        (GOOD, GOOD, {"0": ["1"]}, {}, "expected document → gain"),
        (GOOD, GOOD, "none", {}, "judgments: "),
        (GOOD, GOOD, None, {}, "judgments: "),
        (GOOD, GOOD, csr_array(np.eye(4)), {}, "a table of (4, 4); there are 3 query and 3 document"),
        (GOOD, GOOD, {}, {"weights": [1.0, 1.0]}, "weights: expected 3 numbers"),
        (GOOD, GOOD, {}, {"weights": [1.0, 1.0, -1.0]}, "weights: expected 3 numbers"),
        (GOOD, GOOD, {}, {"weights": [1.0, 1.0, np.nan]}, "weights: expected 3 numbers"),
        (GOOD, GOOD, {}, {"weights": ["a", "b", "c"]}, "weights: expected a table of numbers"),
        (GOOD, GOOD, {}, {"groups": np.array([1, 2])}, "groups: expected 3 numbers"),
    ],
)
def test_bad_data_is_refused_in_words(queries: Any, documents: Any, judgments: Any, more: Any, words: str) -> None:
    for work in ("fit", "fit_transform"):
        with pytest.raises(DataError) as refused:
            getattr(AdaptedVectors(), work)(queries, documents, judgments, **more)
        assert words in str(refused.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "both"}, "expected one of auto, linear, by-query, off"),
        ({"kind": None}, "expected one of"),
        *(
            ({name: value}, "expected a number from")
            for name in ("gamma", "l2", "temperature")
            for value in (0.0, -1.0, np.nan, np.inf, "x", True, 1e300, 1e-300, [1])
        ),
        ({"temperature": None}, "expected a number from"),
        ({"folds": 1}, "expected a whole number from 2 up"),
        ({"folds": 2.0}, "expected a whole number from 2 up"),
        ({"landmarks": 0}, "expected a whole number from 1 up"),
        ({"seed": -1}, "expected a whole number from 0 up"),
        ({"seed": None}, "expected a whole number from 0 up"),
    ],
)
def test_bad_parameters_are_refused_in_words(given: Any, words: str) -> None:
    with pytest.raises(DataError) as refused:
        AdaptedVectors(**given).fit(GOOD, GOOD, {})
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (np.zeros(7), "trained on vectors of 8 numbers"),
        (np.zeros((2, 3, 8)), "trained on vectors of 8 numbers"),
        (np.float64(3.0), "trained on vectors of 8 numbers"),
        (np.full(8, np.nan), "query vectors: row 1"),
        (np.full(8, 1e200), "Divide all vectors"),
        (["a"] * 8, "expected a table of numbers"),
    ],
)
def test_bad_queries_are_refused_in_words(world: World, asked: Any, words: str) -> None:
    for adapter in (world.fitted(), AdaptedVectors().fit(world.queries, world.documents, {})):
        with pytest.raises(DataError) as refused:
            adapter.transform(asked)
        assert words in str(refused.value)
        with pytest.raises(DataError):
            adapter.explain(asked)


def test_explaining_refuses_what_it_cannot_explain(world: World) -> None:
    adapter = world.fitted()
    with pytest.raises(DataError, match="expected one vector"):
        adapter.explain(world.asked)
    with pytest.raises(DataError, match="show=0"):
        adapter.explain(world.asked[0], show=0)
    with pytest.raises(DataError, match="the documents' 3"):
        adapter.explain(world.asked[0], GOOD)


def test_nothing_is_done_before_fitting() -> None:
    with pytest.raises(NotFittedError):
        AdaptedVectors().transform(GOOD)
    with pytest.raises(NotFittedError):
        AdaptedVectors().explain(GOOD[0])
    with pytest.raises(NotFittedError):
        AdaptedVectors().said()
    with pytest.raises(NotFittedError):
        assert AdaptedVectors().adapts


@pytest.mark.parametrize("judgments", [{}, {"q0": {}}, {"q0": {"d0": 0.0}}])
def test_without_judgments_every_query_stays(world: World, judgments: Any) -> None:
    for gate in (True, False):
        adapter = AdaptedVectors(gate=gate).fit(world.queries, world.documents, judgments)
        assert not adapter.adapts
        assert np.allclose(adapter.transform(world.asked), world.asked)
        assert "0 judged queries to learn from" in adapter.said()


def test_no_queries_and_no_documents_at_all_move_nothing() -> None:
    for queries, documents in ((GOOD[:0], GOOD), (GOOD, GOOD[:0]), (GOOD[:0], GOOD[:0])):
        adapter = AdaptedVectors().fit(queries, documents, {})
        assert np.allclose(adapter.transform(GOOD), GOOD)


@pytest.mark.parametrize("kind", ["linear", "by-query"])
def test_an_explanation_adds_up(world: World, kind: Any) -> None:
    """The pulls along the shift, of all training queries together, are the shift."""
    adapter = world.fitted(kind, gamma=4.0 if kind == "by-query" else None)
    query = world.asked[11]
    told = adapter.explain(query, world.documents, show=1000)
    moved = adapter.transform(query)
    assert told.cosine == pytest.approx(float(query @ moved))
    assert len(told.pulls) == 150
    shares = np.array([each.share for each in told.pulls])
    assert np.abs(shares).sum() == pytest.approx(1.0)
    assert (np.diff(np.abs(shares)) <= 1e-12).all()
    similar = {name: float(query @ own) for name, own in zip(world.queries.ids, world.asked, strict=True)}
    assert all(each.similarity == pytest.approx(similar[each.query], abs=1e-6) for each in told.pulls)
    kernel = LINEAR if kind == "linear" else Kernel(0.0, 4.0)
    shift = kernel_matrix(kernel, query[None], adapter.queries_.astype(np.float64))[0] @ adapter.pulls_
    assert np.allclose(unit((query + shift)[None])[0], moved, atol=0.05)
    gains = dict(told.gained)
    difference = world.placed @ (moved - query)
    assert [gains[name] for name in world.documents.ids] == pytest.approx(difference.tolist())
    assert [name for name, _ in told.gained] == [world.documents.ids[each] for each in np.argsort(-difference)]
    assert len(adapter.explain(query, show=3).pulls) == 3
    assert adapter.explain(query).gained == []


def test_fitting_again_forgets_what_was_learned(world: World) -> None:
    other = World(130, 50, 8, seed=5)
    adapter = world.fitted()
    adapter.transform(world.asked)
    adapter.fit(other.queries, other.documents, other.judgments)
    fresh = other.fitted()
    assert np.array_equal(adapter.transform(world.asked), fresh.transform(world.asked))


def test_judgments_may_be_a_table_and_documents_an_index(world: World) -> None:
    table = csr_array((np.ones(150), (np.arange(150), world.answers)), shape=(150, 60))
    before = table.copy()
    plain = world.fitted().transform(world.asked)
    index = VectorIndex(world.placed, world.documents.lengths)
    every: list[Any] = [table, table.toarray(), table.astype(np.int64)]
    for judgments in every:
        other = AdaptedVectors("by-query", **FIXED).fit(world.queries, index, judgments)
        assert np.array_equal(other.transform(world.asked), plain)
    assert np.array_equal(table.toarray(), before.toarray())


def test_vectors_of_single_and_half_precision_are_taken(world: World) -> None:
    plain = world.fitted().transform(world.asked)
    for kind, error in ((np.float32, 1e-2), (np.float16, 5e-2)):
        queries: Any = world.asked.astype(kind)
        documents: Any = world.placed.astype(kind)
        other = AdaptedVectors("by-query", **FIXED).fit(queries, documents, _numbered(world.judgments))
        assert np.allclose(other.transform(world.asked), plain, atol=error)


def test_landmarks_as_many_as_queries_are_the_whole_kernel_and_fewer_are_near_it(world: World) -> None:
    plain = world.fitted().transform(world.asked)
    assert np.array_equal(world.fitted(landmarks=150).transform(world.asked), plain)
    fewer = world.fitted(landmarks=100)
    assert len(fewer.landmarks_) == 100
    assert (fewer.transform(world.asked) * plain).sum(axis=1).mean() > 0.95


def test_double_and_single_precision_agree() -> None:
    problem = problem_of(Kernel(0.0, 4.0), queries=40, documents=50)
    exact = problem.solve(tolerance=1e-8, most=500)
    single = replace(problem, precision=np.float32).solve(tolerance=1e-4, most=500)
    assert single.objective - exact.objective < 2e-4
