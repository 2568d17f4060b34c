"""The (α, β) step: every query's own convex problem, against a grid, a quadratic program and what is known by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import optimize

from querywise.learners.regression import Penalty, Transforms, penalties, squared_errors, transforms
from querywise.runtime.arrays import Floats
from tests.worlds import examples

PENALTIES: tuple[Penalty, ...] = ("l2", "l1")
INFINITE = float("inf")


class Problem(NamedTuple):
    """One query: targets y, fitted values h, and how the two numbers are held."""

    y: Floats
    h: Floats
    scale_penalty: float = 0.0
    shift_penalty: float = 0.0
    penalty: Penalty = "l2"

    def solved(self) -> tuple[float, float]:
        found = transforms(self.y, self.h, np.array([0, len(self.y)]), **self.held)
        return float(found.scale[0]), float(found.shift[0])

    @property
    def held(self) -> Any:
        return {
            "scale_penalty": self.scale_penalty,
            "shift_penalty": self.shift_penalty,
            "penalty": self.penalty,
        }

    def objective(self, scale: Any, shift: Any) -> Any:
        """As written in the paper, for one pair of numbers or for arrays of them."""
        errors = self.y - np.asarray(shift)[..., None] - np.asarray(scale)[..., None] * self.h
        power = 2 if self.penalty == "l2" else 1
        held = self.scale_penalty * np.abs(scale - 1) ** power + self.shift_penalty * np.abs(shift) ** power
        return np.sum(errors**2, axis=-1) + held

    def rounding(self, scale: float = 1.0, shift: float = 0.0) -> float:
        """What the terms of the objective may lose there, whatever their sum."""
        terms = np.abs(self.y) + abs(shift) + (1 + scale) * np.abs(self.h)
        return 1e-13 * float(terms @ terms)


def of(y: list[float], h: list[float], *held: Any) -> Problem:
    return Problem(np.array(y, dtype=np.float64), np.array(h, dtype=np.float64), *held)


numbers = st.integers(-5000, 5000).map(lambda value: value / 1000)
strengths = st.one_of(st.just(0.0), st.floats(-3, 4).map(lambda power: float(10**power)))


@st.composite
def problems(draw: st.DrawFn, penalty: Penalty | None = None) -> Problem:
    size = draw(st.integers(1, 8))
    grades = st.lists(st.integers(0, 4).map(float), min_size=size, max_size=size)
    values = st.lists(numbers, min_size=size, max_size=size)
    y = np.array(draw(st.one_of(grades, values)))
    h = np.array(draw(st.one_of(values, numbers.map(lambda value: [value] * size))))
    kind = draw(st.sampled_from(PENALTIES)) if penalty is None else penalty
    return Problem(y, h, draw(strengths), draw(strengths), kind)


def by_quadratic_program(problem: Problem) -> tuple[float, float]:
    """SciPy's answer: least squares in a box for l2, a quadratic program in the two signs' parts for l1."""
    rows = np.column_stack([problem.h, np.ones(len(problem.h))])
    if problem.penalty == "l2":
        extra = np.diag(np.sqrt([problem.scale_penalty, problem.shift_penalty]))
        right = np.concatenate([problem.y, [np.sqrt(problem.scale_penalty), 0.0]])
        box = ([0, -np.inf], [np.inf, np.inf])
        found = optimize.lsq_linear(np.vstack([rows, extra]), right, box, method="bvls", tol=1e-15)
        return float(found.x[0]), float(found.x[1])
    # α − 1 = a₊ − a₋ and β = b₊ − b₋, all four from 0 up and a₋ at most 1: the objective is a polynomial there.
    parts = np.column_stack([rows[:, 0], -rows[:, 0], rows[:, 1], -rows[:, 1]])
    cost = np.repeat([problem.scale_penalty, problem.shift_penalty], 2)

    def value(parted: Floats) -> tuple[float, Floats]:
        errors = parts @ parted - (problem.y - problem.h)
        return float(errors @ errors + cost @ parted), np.asarray(2 * parts.T @ errors + cost)

    solver: Any = optimize.minimize
    bounds, options = [(0, None), (0, 1), (0, None), (0, None)], {"ftol": 1e-15, "maxiter": 1000}
    found = solver(value, np.zeros(4), jac=True, bounds=bounds, method="SLSQP", options=options)
    return max(0.0, 1 + float(found.x[0] - found.x[1])), float(found.x[2] - found.x[3])


@given(problems())
@settings(max_examples=examples(120), deadline=None)
def test_nothing_on_a_fine_grid_is_better(problem: Problem) -> None:
    scale, shift = problem.solved()
    assert scale >= 0
    ours = problem.objective(scale, shift)
    wide = np.linspace(-1, 1, 81) ** 3  # fine near the answer, and far-reaching
    scales = np.concatenate([np.maximum(0, scale + wide * (1 + scale)), np.linspace(0, 3, 61)])
    shifts = np.concatenate([shift + wide * (1 + abs(shift)), np.linspace(-8, 8, 65)])
    assert ours <= problem.objective(*np.meshgrid(scales, shifts)).min() * (1 + 1e-12) + problem.rounding()


@given(problems())
@settings(max_examples=examples(120), deadline=None)
def test_no_quadratic_program_finds_better(problem: Problem) -> None:
    theirs = by_quadratic_program(problem)
    ours = problem.objective(*problem.solved())
    assert ours <= problem.objective(*theirs) * (1 + 1e-9) + problem.rounding(*theirs)


@given(problems())
@settings(max_examples=examples(120), deadline=None)
def test_no_direction_leads_downhill(problem: Problem) -> None:
    """The conditions of optimality of a convex problem: no solver needed."""
    scale, shift = problem.solved()
    errors = scale * problem.h + shift - problem.y
    terms = np.abs(problem.y) + np.abs(shift) + (1 + scale) * np.abs(problem.h)
    for slope, size, place, strength, edge in (
        (2 * problem.h @ errors, np.abs(problem.h) @ terms, scale - 1, problem.scale_penalty, scale == 0),
        (2 * np.sum(errors), terms.sum(), shift, problem.shift_penalty, False),
    ):
        slack = 1e-10 * (size + strength * (1 + abs(place)))
        if problem.penalty == "l2":
            up = down = slope + 2 * strength * place
        else:
            up = slope + (strength if place >= 0 else -strength)
            down = slope + (strength if place > 0 else -strength)
        assert up >= -slack
        assert edge or down <= slack


@pytest.mark.parametrize("penalty", PENALTIES)
@given(
    scale=st.integers(0, 5000).map(lambda value: value / 1000),
    shift=numbers,
    h=st.lists(st.integers(-4000, 4000).map(lambda value: value / 1000), min_size=2, max_size=9),
)
@settings(max_examples=examples(120), deadline=None)
def test_free_numbers_that_explain_everything_are_found(
    penalty: Penalty, scale: float, shift: float, h: list[float]
) -> None:
    assume(np.ptp(h) > 0.01)
    found = of([shift + scale * value for value in h], h, 0.0, 0.0, penalty).solved()
    assert found == pytest.approx((scale, shift), abs=1e-6)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_scale_that_would_be_negative_is_zero_and_the_level_is_found_anew(penalty: Penalty) -> None:
    falling = of([3, 2, 1, 0], [0, 1, 2, 3], 0.0, 0.0, penalty)
    assert falling.solved() == pytest.approx((0.0, 1.5), abs=1e-12)
    held = of([3, 2, 1, 0], [0, 1, 2, 3], 0.0, 4.0, penalty)
    assert held.solved() == pytest.approx((0.0, 6 / 8 if penalty == "l2" else 1.0), abs=1e-12)


# l1 leaves alone what hardly differs


def thresholds(problem: Problem) -> tuple[float, float]:
    errors = problem.y - problem.h
    return 2 * abs(float(problem.h @ errors)), 2 * abs(float(errors.sum()))


@given(problems("l1"), st.floats(0, 3), st.floats(0, 3))
@settings(max_examples=examples(120), deadline=None)
def test_l1_moves_nothing_once_the_penalties_reach_their_thresholds(
    problem: Problem, more: float, still: float
) -> None:
    scale, shift = thresholds(problem)
    held = problem._replace(scale_penalty=scale * (1 + more), shift_penalty=shift * (1 + still))
    assert held.solved() == (1.0, 0.0)


@given(problems("l1"), st.sampled_from(["scale", "shift"]), st.floats(0, 3))
@example(of([0, 1, 3], [0.5, 0.7, 0.2], 0.0, 0.0, "l1"), "scale", 0.0)
@settings(max_examples=examples(120), deadline=None)
def test_l1_moves_something_as_soon_as_a_penalty_is_below_its_threshold(
    problem: Problem, which: str, more: float
) -> None:
    scale, shift = thresholds(problem)
    # A threshold that is rounding itself, or a scale that would have to leave through 0, cannot be told from none.
    assume(min(scale, shift) > 1e-3)
    below = 1 - 1e-6
    held = problem._replace(
        scale_penalty=scale * (below if which == "scale" else 1 + more),
        shift_penalty=shift * (below if which == "shift" else 1 + more),
    )
    found = held.solved()
    assert found != (1.0, 0.0)
    assert held.objective(*found) < held.objective(1.0, 0.0) + problem.rounding()


# Where the solution is not unique


@pytest.mark.parametrize("penalty", PENALTIES)
@given(level=numbers, y=st.lists(st.integers(0, 4).map(float), min_size=1, max_size=6))
@settings(max_examples=examples(60), deadline=None)
def test_without_penalties_a_constant_h_keeps_its_scale(penalty: Penalty, level: float, y: list[float]) -> None:
    scale, shift = of(y, [level] * len(y), 0.0, 0.0, penalty).solved()
    assert scale == 1.0
    assert shift == pytest.approx(np.mean(y) - level, abs=1e-12)


@pytest.mark.parametrize("penalty", PENALTIES)
@given(y=st.floats(-9, 9), h=numbers, scale_penalty=strengths)
@settings(max_examples=examples(60), deadline=None)
def test_one_document_with_a_free_level_keeps_its_scale(
    penalty: Penalty, y: float, h: float, scale_penalty: float
) -> None:
    assert of([y], [h], scale_penalty, 0.0, penalty).solved() == pytest.approx((1.0, y - h), abs=1e-9)


@pytest.mark.parametrize("penalty", PENALTIES)
@given(y=st.lists(st.integers(0, 4).map(float), min_size=1, max_size=6), shift_penalty=strengths)
@settings(max_examples=examples(50), deadline=None)
def test_a_scale_that_changes_nothing_stays_1(penalty: Penalty, y: list[float], shift_penalty: float) -> None:
    scale, shift = of(y, [0.0] * len(y), 0.0, shift_penalty, penalty).solved()
    assert scale == 1.0
    held = sum(y) / (len(y) + shift_penalty) if penalty == "l2" else max(0.0, sum(y) - shift_penalty / 2) / len(y)
    assert shift == pytest.approx(held, abs=1e-12)


@given(level=st.integers(1, 40), y=st.integers(0, 9), n=st.integers(1, 5), shift_penalty=st.integers(1, 8))
@settings(max_examples=examples(60), deadline=None)
def test_where_level_and_scale_cost_the_same_under_l1_the_scale_stays(
    level: int, y: int, n: int, shift_penalty: int
) -> None:
    # λ_α = λ_β |h|: what β takes up, α could take up at the same price.
    scale, shift = of([y] * n, [level / 4] * n, shift_penalty * level / 4, float(shift_penalty), "l1").solved()
    away = y - level / 4
    assert scale == 1.0
    assert shift == pytest.approx(np.sign(away) * max(0.0, abs(away) - shift_penalty / (2 * n)), abs=1e-12)


# All queries at once


@given(st.lists(problems(), min_size=1, max_size=6), strengths, strengths, st.sampled_from(PENALTIES))
@settings(max_examples=examples(60), deadline=None)
def test_all_queries_at_once_equal_one_by_one(
    queries: list[Problem], scale_penalty: float, shift_penalty: float, penalty: Penalty
) -> None:
    held: Any = {"scale_penalty": scale_penalty, "shift_penalty": shift_penalty, "penalty": penalty}
    starts = np.cumsum([0, *(len(each.y) for each in queries)])
    y, h = (np.concatenate([getattr(each, name) for each in queries]) for name in ("y", "h"))
    together = transforms(y, h, starts, **held)
    alone = [each._replace(**held).solved() for each in queries]
    assert together.scale.tolist() == [scale for scale, _ in alone]
    assert together.shift.tolist() == [shift for _, shift in alone]


@given(problems(), st.integers(2, 5), st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None)
def test_neither_the_order_of_documents_nor_copies_of_all_with_penalties_to_match_change_anything(
    problem: Problem, times: int, random: Any
) -> None:
    order = list(range(len(problem.y))) * times
    random.shuffle(order)
    copied = problem._replace(
        y=problem.y[order],
        h=problem.h[order],
        scale_penalty=times * problem.scale_penalty,
        shift_penalty=times * problem.shift_penalty,
    )
    value, again = (problem.objective(*each.solved()) for each in (problem, copied))
    assert again == pytest.approx(value, rel=1e-9, abs=problem.rounding())


@pytest.mark.parametrize("held", [(0.0, 0.0), (2.0, 0.0), (0.0, 2.0), (INFINITE, INFINITE)])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_query_without_documents_is_left_as_it_is(penalty: Penalty, held: tuple[float, float]) -> None:
    found = transforms(
        np.array([1.0, 3.0]),
        np.array([0.0, 1.0]),
        np.array([0, 0, 2, 2]),
        scale_penalty=held[0],
        shift_penalty=held[1],
        penalty=penalty,
    )
    assert found.scale[[0, 2]].tolist() == [1.0, 1.0]
    assert found.shift[[0, 2]].tolist() == [0.0, 0.0]
    nothing = transforms(
        np.zeros(0), np.zeros(0), np.array([0]), scale_penalty=held[0], shift_penalty=held[1], penalty=penalty
    )
    assert nothing.scale.shape == nothing.shift.shape == (0,)


# Penalties without end


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("largest", [INFINITE, 1e300])
@pytest.mark.parametrize("h", [[0.5, 0.7, 0.2], [0.5, 0.5, 0.5], [0.0, 0.0, 0.0], [1.0, 2.0, 4.0]])
def test_infinite_penalties_move_nothing(penalty: Penalty, largest: float, h: list[float]) -> None:
    assert of([1, 2, 4], h, largest, largest, penalty).solved() == pytest.approx((1.0, 0.0), abs=1e-200)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("largest", [INFINITE, 1e300])
def test_one_infinite_penalty_leaves_the_other_number_free(penalty: Penalty, largest: float) -> None:
    y, h = np.array([0.0, 1.0, 3.0]), np.array([0.5, 0.7, 0.2])
    only_scale, only_shift = (Problem(y, h, *held, penalty) for held in ((0.5, largest), (largest, 0.5)))
    product, square, errors = float(h @ (y - h)), float(h @ h), float(np.sum(y - h))
    if penalty == "l2":
        expected = (1 + product / (square + 0.5), errors / (3 + 0.5))
    else:
        expected = (1 + (product - 0.25) / square, (errors - 0.25) / 3)
    assert only_scale.solved() == pytest.approx((expected[0], 0.0), abs=1e-12)
    assert only_shift.solved() == pytest.approx((1.0, expected[1]), abs=1e-12)


# An h that hardly changes beside its level


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("level", [1e3, 1e4, 1e5, -1e5])
@pytest.mark.parametrize("scale_penalty", [0.0, 1e-3])
def test_a_large_level_costs_no_digits(penalty: Penalty, level: float, scale_penalty: float) -> None:
    h = np.array([0.25, 0.5, 1.0, -0.75, 0.125])  # h + level is exact
    y = np.array([1.0, 2.0, 2.0, 0.0, 1.0])
    # β is free: the level changes β alone, so that the best value is that of the problem without it.
    plain = Problem(y, h, scale_penalty, 0.0, penalty)
    lifted = Problem(y, h + level, scale_penalty, 0.0, penalty)
    expected = plain.objective(*plain.solved())
    assert lifted.objective(*lifted.solved()) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_one_document_far_from_zero_is_met_exactly_when_its_level_is_free(penalty: Penalty) -> None:
    problem = of([1.0], [-267548.087326], 0.1, 0.0, penalty)
    assert problem.objective(*problem.solved()) == pytest.approx(0.0, abs=1e-9)


# What the step is measured by


def test_errors_and_penalties_are_the_sums_they_say() -> None:
    y, h, starts = np.array([1.0, 2.0, 5.0]), np.array([0.5, 1.0, 2.0]), np.array([0, 2, 3])
    found = Transforms(np.array([2.0, 0.5]), np.array([-1.0, 3.0]))
    expected = (1 + 1 - 2 * 0.5) ** 2 + (2 + 1 - 2 * 1) ** 2 + (5 - 3 - 0.5 * 2) ** 2
    assert squared_errors(y, h, starts, found) == pytest.approx(expected)
    assert penalties(found, scale_penalty=10, shift_penalty=3, penalty="l1") == pytest.approx(10 * 1.5 + 3 * 4)
    assert penalties(found, scale_penalty=10, shift_penalty=3, penalty="l2") == pytest.approx(10 * 1.25 + 3 * 10)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_infinite_penalties_cost_nothing_where_nothing_moves(penalty: Penalty) -> None:
    still = Transforms.none(3)
    assert penalties(still, scale_penalty=INFINITE, shift_penalty=INFINITE, penalty=penalty) == 0
