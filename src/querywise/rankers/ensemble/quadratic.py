"""Small quadratic programs, solved exactly: non-negative weights, a hinge loss for every row.

    min_{w ≥ 0}  ½ wᵀM w  +  C Σ_i max(0, 1 − b_i·w),        M symmetric, M ⪰ I

At the minimum some weights are 0 and the others free. Rows with margin b_i·w < 1 have the dual variable (price) C, rows
with margin > 1 the price 0, and a few rows lie on the hinge's kink, with margin 1 and a price between. Given these
active sets, w is the solution of one linear system.

So this is a primal-dual active set method (`active_sets`): guess the sets, from a similar program where there is one,
solve, and move everything that violates its condition to another set, all at once. Where that cycles, the sets come
from Newton's method with a smoothed hinge (`smoothed`), smoothed less from one guess to the next, and where that is not
enough, or nothing similar is known, from an interior point method (`interior_point`); both are compiled when they are
needed. The KKT residual says how exact a solution is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from querywise.errors import SolverError
from querywise.rankers.ensemble.active_sets import (
    BELOW,
    TOLERANCE,
    Guess,
    Program,
    attempt,
    kkt_residual,
    solve_on_sets,
)
from querywise.runtime.arrays import Bools, Floats, Ints, for_kernels

_SMOOTHING = (0.05, 0.01, 0.002, 0.0004)  # widths of the smoothed kink: margins of 1 ± half of it


@dataclass(frozen=True, eq=False)
class Solution:
    """The minimiser, the rows' dual variables (prices) 0 ≤ α ≤ C, and the active sets, a start for a similar program.

    `residual` is the largest violation of the KKT conditions w = max(0, w − g) and α = clip(α + 1 − b·w, 0, C), with
    the gradient g = Mw − Bᵀα; the first is relative to the largest of the terms in g.
    """

    weights: Floats
    prices: Floats
    free: Bools
    side: Ints
    residual: float
    rounds: int


def solve(curvature: Floats, rows: Floats, cost: float, start: Solution | None = None) -> Solution:
    """The minimum; SolverError where the KKT residual stays above 1e-8, which no known program causes."""
    count, width = rows.shape
    rows = for_kernels(np.ascontiguousarray(rows, dtype=np.float64))
    curvature = np.ascontiguousarray(curvature, dtype=np.float64)
    program = Program(curvature, rows, np.ascontiguousarray(rows.T), float(cost))
    if start is None or (len(start.free), len(start.side)) != (width, count):  # no start, or one of another size
        start, free, side = None, np.ones(width, np.bool_), np.full(count, BELOW, np.int64)
    else:
        free, side = start.free.copy(), start.side.astype(np.int64)
    guess = Guess(free, side, np.zeros(width), np.zeros(count))
    rounds, residual = _solve(program, guess, start is not None)
    if not residual <= TOLERANCE:
        raise SolverError(
            f"A program of {width} weights and {count} rows was solved to a residual of {residual:.1e} only."
        )
    return Solution(guess.weights, guess.prices, guess.free, guess.side, residual, rounds)


def _solve(program: Program, guess: Guess, warm: bool) -> tuple[int, float]:
    """Turn the guess into the solution; the number of rounds, and the KKT residual."""
    rounds, residual = _tried(program, guess)
    if residual <= TOLERANCE:
        return rounds, residual
    if warm:
        solve_on_sets(program, guess)
    for give in _SMOOTHING if warm else ():
        from querywise.rankers.ensemble.smoothed import smoothed_newton

        rounds += smoothed_newton(program, guess, give / program.cost)
        more, residual = _tried(program, guess)
        rounds += more
        if residual <= TOLERANCE:
            return rounds, residual
    from querywise.rankers.ensemble.interior_point import interior_point

    for plain in (False, True):
        rounds += interior_point(program, guess, plain)
        residual = min(kkt_residual(program, guess), _tried(program, guess)[1])
        if residual <= TOLERANCE:
            break
    return rounds, residual


def _tried(program: Program, guess: Guess) -> tuple[int, float]:
    """The active set method from these sets; its solution, the same bits from any start, becomes the guess."""
    again = Guess(guess.free.copy(), guess.side.copy(), guess.weights.copy(), guess.prices.copy())
    rounds, residual = attempt(program, again)
    if residual <= TOLERANCE:
        guess.free[:], guess.side[:], guess.weights[:], guess.prices[:] = again
    return rounds, residual
