from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from querywise.rankers.ensemble.quadratic import Solution, solve
from querywise.runtime.arrays import Floats
from tests.support.quadratic import by_clarabel, kkt_residual, objective
from tests.worlds import examples

Program = tuple[Floats, Floats, float]  # curvature, rows, cost


def dual_objective(curvature: Floats, rows: Floats, cost: float, solution: Solution) -> float:
    """A bound no weights can go below, from the prices found."""
    prices = np.clip(solution.prices, 0.0, cost)
    held = np.maximum(curvature @ solution.weights - rows.T @ prices, 0.0)
    upward = rows.T @ prices + held
    return float(prices.sum() - 0.5 * upward @ np.linalg.solve(curvature, upward))


def assert_optimal(program: Program, found: Solution) -> None:
    curvature, rows, cost = program
    weights, prices = found.weights, found.prices
    assert weights.shape == (rows.shape[1],)
    assert prices.shape == (len(rows),)
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    assert (prices >= -1e-9).all()
    assert (prices <= cost + 1e-9).all()
    residual = kkt_residual(curvature, rows, cost, weights, prices)
    assert residual <= 1e-8
    assert found.residual == pytest.approx(residual, abs=1e-9)
    ours = objective(curvature, rows, cost, weights)
    assert ours == pytest.approx(dual_objective(curvature, rows, cost, found), rel=1e-8, abs=1e-10)


def assert_as_clarabel(program: Program, found: Solution) -> None:
    """No worse than clarabel's, and near it: clarabel itself may end some 1e-7 above the optimum."""
    ours, theirs = objective(*program, found.weights), objective(*program, by_clarabel(*program))
    assert ours <= theirs * (1 + 1e-8) + 1e-8
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-6)


def random_program(seed: int) -> Program:
    """Rows of every kind: plain, whole numbers, negative, few values; columns and rows repeated, columns of zeros."""
    rng = np.random.default_rng(seed)
    width, count, cost = int(rng.integers(1, 14)), int(rng.integers(0, 25)), float(10 ** rng.uniform(-3, 3))
    rows = rng.normal(size=(count, width)) * rng.choice([0.1, 1, 10]) + rng.choice([0, 1])
    kind = rng.choice(["plain", "whole", "negative", "few"])
    if kind == "whole":
        rows = rows.round()
    if kind == "negative":
        rows = -np.abs(rows)
    if kind == "few":
        rows = rng.integers(-1, 2, size=(count, width)).astype(np.float64)
    if rng.random() < 0.3:
        rows[:, rng.integers(width)] = 0
    if rng.random() < 0.3:
        rows[:, 0] = rows[:, -1]
    if rng.random() < 0.3:
        rows[: count // 2] = rows[count - count // 2 :]
    documents = int(rng.integers(1, 20))
    g = rng.normal(size=(documents, width)) if rng.random() < 0.5 else rng.integers(0, 2, size=(documents, width))
    curvature = np.eye(width) + rng.choice([0, 0.1, 1, 30, 1000]) * (g.T @ g)
    return curvature.astype(np.float64), rows, cost


WHOLE = st.integers(-3, 3).map(float)
HALVES = st.integers(-20, 20).map(lambda number: number / 2)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    width, count = draw(st.integers(1, 7)), draw(st.integers(0, 10))
    rows = draw(arrays(np.float64, (count, width), elements=draw(st.sampled_from([WHOLE, HALVES, st.floats(-10, 10)]))))
    rows = np.where(np.abs(rows) < 1e-6, 0.0, rows)
    documents = draw(arrays(np.float64, (draw(st.integers(0, 5)), width), elements=WHOLE))
    gamma = draw(st.sampled_from([0.0, 0.1, 1.0, 1000.0]))
    cost = draw(st.sampled_from([1e-3, 0.1, 1.0, 7.0, 1e3]))
    return np.eye(width) + gamma * documents.T @ documents, rows, cost


# Against an independent solver


@given(programs())
@settings(deadline=None, max_examples=examples(100))
def test_any_program_is_solved_as_an_interior_point_method_solves_it(program: Program) -> None:
    found = solve(*program)
    assert_optimal(program, found)
    assert_as_clarabel(program, found)


def test_random_programs_have_the_objective_an_interior_point_method_finds() -> None:
    for seed in range(200):
        program = random_program(seed)
        assert_as_clarabel(program, solve(*program))


def test_random_programs_are_optimal() -> None:
    for seed in range(2000):
        program = random_program(seed)
        assert_optimal(program, solve(*program))


@pytest.mark.parametrize("seed", [59, 118, 3087, 5725, 16608, 31029, 4182, 7192, 9357, 10298, 16978, 20981])
def test_degenerate_programs_are_solved_without_going_in_circles(seed: int) -> None:
    program = random_program(seed)
    found = solve(*program)
    assert_optimal(program, found)
    assert_as_clarabel(program, found)


@pytest.mark.parametrize(("cost", "gamma"), [(1e-3, 0.0), (1.0, 0.5), (1e3, 1e3)])
@pytest.mark.parametrize("whole", [False, True])
def test_programs_of_the_size_of_a_collection_are_solved(cost: float, gamma: float, whole: bool) -> None:
    rng = np.random.default_rng(0)
    rows, documents = rng.normal(0.2, 1.0, size=(150, 45)), rng.random((40, 45))
    program = np.eye(45) + gamma * documents.T @ documents, rows.round() if whole else rows, cost
    found = solve(*program)
    assert_optimal(program, found)
    assert_as_clarabel(program, found)


def test_a_large_program_is_solved() -> None:
    rng = np.random.default_rng(0)
    rows, documents = rng.normal(0.2, 1.0, size=(500, 136)), rng.random((40, 136))
    program = np.eye(136) + 0.5 * documents.T @ documents, rows, 1e-3
    found = solve(*program)
    assert_optimal(program, found)
    assert_as_clarabel(program, found)


def badly_scaled(seed: int) -> Program:
    """Rankers and rows whose sizes differ by up to ten million, at a high cost."""
    rng = np.random.default_rng(seed)
    width, count = int(rng.integers(1, 30)), int(rng.integers(1, 50))
    rows = rng.normal(0.3, 1.0, size=(count, width)) * 10.0 ** rng.integers(-4, 4, size=width)
    documents = rng.random((10, width)) * 10.0 ** rng.integers(-3, 3, size=width)
    return np.eye(width) + rng.choice([0, 0.5, 1e4]) * documents.T @ documents, rows, float(10 ** rng.uniform(2, 4))


def test_badly_scaled_programs_are_solved() -> None:
    for seed in range(1000):
        curvature, rows, cost = badly_scaled(seed)
        found = solve(curvature, rows, cost)
        assert kkt_residual(curvature, rows, cost, found.weights, found.prices) <= 1e-8


def test_a_large_program_that_nothing_is_known_of_takes_few_rounds() -> None:
    rng = np.random.default_rng(0)
    rows, documents = rng.normal(0.2, 1.0, size=(500, 136)), rng.random((40, 136))
    program = np.eye(136) + 0.5 * documents.T @ documents, rows, 1.0
    found = solve(*program)
    assert_optimal(program, found)
    assert found.rounds <= 100


# Programs whose solution is known


def test_without_rows_there_is_nothing_to_weigh() -> None:
    found = solve(np.eye(3), np.zeros((0, 3)), 1.0)
    assert found.weights.tolist() == [0.0, 0.0, 0.0]
    assert found.prices.shape == (0,)


@given(
    arrays(np.float64, (5, 3), elements=st.floats(-10, 0)),
    st.sampled_from([1e-3, 1.0, 1e3]),
)
@settings(deadline=None)
def test_rows_that_nothing_raises_give_no_weight(rows: Floats, cost: float) -> None:
    found = solve(np.eye(3) + np.ones((3, 3)), rows, cost)
    assert found.weights.tolist() == [0.0, 0.0, 0.0]
    assert found.prices == pytest.approx(np.full(5, cost))


@given(st.floats(0.01, 100), st.floats(1e-3, 1e3), st.floats(0, 100))
@example(1.0, 1.0, 0.0)
@settings(deadline=None)
def test_one_weight_and_one_row_are_the_formula(b: float, cost: float, gamma: float) -> None:
    found = solve(np.array([[1 + gamma]]), np.array([[b]]), cost)
    assert found.weights[0] == pytest.approx(min(1 / b, cost * b / (1 + gamma)), rel=1e-9)


@given(arrays(np.float64, st.integers(1, 12), elements=st.integers(-8, 8).map(lambda n: n / 2)), st.floats(1e-3, 1e3))
@settings(deadline=None)
def test_one_weight_is_the_best_of_all_kinks_and_valleys(column: Floats, cost: float) -> None:
    found = solve(np.eye(1), column[:, None], cost)
    places = np.concatenate([[0.0], 1 / column[column > 0]])
    valleys = [max(cost * column[column * place < 1].sum(), 0.0) for place in [*places, *(places + 1e-9)]]
    best = min(objective(np.eye(1), column[:, None], cost, np.array([w])) for w in [*places, *valleys])
    assert objective(np.eye(1), column[:, None], cost, found.weights) == pytest.approx(best, rel=1e-9, abs=1e-12)


def test_a_ranker_that_never_says_anything_gets_no_weight() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(0.5, 1, size=(12, 5))
    rows[:, 2] = 0
    found = solve(np.eye(5), rows, 1.0)
    without = solve(np.eye(4), np.delete(rows, 2, axis=1), 1.0)
    assert found.weights[2] == 0
    assert np.delete(found.weights, 2) == pytest.approx(without.weights, abs=1e-10)


def test_equal_rankers_share_alike() -> None:
    for seed in range(30):
        rows = np.random.default_rng(seed).normal(0.3, 1, size=(15, 4))
        rows[:, 3] = rows[:, 0]
        weights = solve(np.eye(4), rows, 2.0).weights
        assert weights[3] == pytest.approx(weights[0], abs=1e-10)


def test_a_row_given_twice_counts_as_one_at_twice_the_cost() -> None:
    for seed in range(30):
        rows = np.random.default_rng(seed).normal(0.3, 1, size=(9, 4))
        twice = solve(np.eye(4), np.vstack([rows, rows]), 0.7).weights
        assert twice == pytest.approx(solve(np.eye(4), rows, 1.4).weights, abs=1e-9)


# From the solution of another program


@pytest.mark.parametrize("differs", ["curvature", "cost", "rows"])
def test_where_the_search_starts_does_not_matter(differs: str) -> None:
    for seed in range(400):
        curvature, rows, cost = random_program(seed)
        rng = np.random.default_rng(seed)
        other = np.eye(len(curvature)) + rng.choice([0, 1, 100]) * np.diag(rng.random(len(curvature)))
        start = solve(
            other if differs == "curvature" else curvature,
            rows[rng.permutation(len(rows))] if differs == "rows" else rows,
            cost * float(rng.choice([0.01, 100])) if differs == "cost" else cost,
        )
        found, cold = solve(curvature, rows, cost, start), solve(curvature, rows, cost)
        assert_optimal((curvature, rows, cost), found)
        assert found.weights == pytest.approx(cold.weights, rel=1e-9, abs=1e-9)


@given(programs(), st.data())
@settings(deadline=None, max_examples=examples(100))
def test_any_sets_will_do_to_start_from(program: Program, data: st.DataObject) -> None:
    curvature, rows, cost = program
    free = data.draw(arrays(np.bool_, rows.shape[1]))
    side = data.draw(arrays(np.int64, len(rows), elements=st.integers(0, 2)))
    weights = data.draw(arrays(np.float64, rows.shape[1], elements=st.floats(0, 5)))
    found = solve(curvature, rows, cost, Solution(weights, np.zeros(len(rows)), free, side, 1.0, 0))
    assert_optimal(program, found)
    assert found.weights == pytest.approx(solve(*program).weights, rel=1e-9, abs=1e-9)


def test_the_solution_of_the_same_program_is_at_once_its_solution() -> None:
    for seed in range(50):
        rng = np.random.default_rng(seed)
        program = np.eye(6), rng.normal(0.3, 1, size=(20, 6)), 1.0
        found = solve(*program)
        again = solve(*program, found)
        assert again.rounds == 1
        assert again.weights == pytest.approx(found.weights, abs=1e-12)


def test_a_start_and_the_program_are_left_as_they_were() -> None:
    curvature, rows, cost = random_program(3)
    start = solve(np.eye(len(curvature)), rows, cost)
    before = [each.copy() for each in (curvature, rows, start.weights, start.prices, start.free, start.side)]
    solve(curvature, rows, cost, start)
    after = (curvature, rows, start.weights, start.prices, start.free, start.side)
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))


@given(programs(), st.integers(0, 1000))
@settings(deadline=None, max_examples=examples(50))
def test_the_order_of_rows_and_rankers_does_not_matter(program: Program, seed: int) -> None:
    curvature, rows, cost = program
    rng = np.random.default_rng(seed)
    down, across = rng.permutation(len(rows)), rng.permutation(rows.shape[1])
    turned = solve(curvature[np.ix_(across, across)], rows[np.ix_(down, across)], cost)
    assert turned.weights == pytest.approx(solve(*program).weights[across], rel=1e-9, abs=1e-9)
