"""Small quadratic programs, solved exactly: non-negative weights, a hinge loss for every row.

    min_{w ≥ 0}  ½ wᵀM w  +  C Σ_i max(0, 1 − b_i·w),        M symmetric, M ⪰ I

At the minimum some weights are 0 and the others free. Rows with margin b_i·w < 1 have the dual variable (price) C, rows
with margin > 1 the price 0, and a few rows lie on the hinge's kink, with margin 1 and a price between. Given these
active sets, w is the solution of one linear system.

So this is a primal-dual active set method (`active_sets`): guess the sets, from a similar program where there is one,
solve, and move everything that violates its condition to another set, all at once. Where that cycles, it is started
again with a smoothed hinge, smoothed less from one guess to the next. Where that cycles too, the sets come from an
interior point method (`interior_point`). The KKT residual says how exact a solution is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from querywise.errors import SolverError
from querywise.rankers.ensemble.active_sets import BELOW, TOLERANCE, Guess, Program, active_set_method, kkt_residual
from querywise.rankers.ensemble.interior_point import interior_point
from querywise.runtime.arrays import Bools, Floats, Ints, for_kernels
from querywise.runtime.compiled import compiled

_SMOOTHING = (0.07, 0.02, 0.006, 0.002)  # widths of the smoothed kink: margins of 1 ± half of it


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


@compiled
def _solve(program: Program, guess: Guess, warm: bool) -> tuple[int, float]:
    """Turn the guess into the solution; the number of rounds, and the KKT residual."""
    free, side = guess.free.copy(), guess.side.copy()
    rounds, done = active_set_method(program, guess, 0.0, False)
    if warm and not done:
        guess.free[:], guess.side[:] = free, side
        for give in _SMOOTHING:
            rounds += active_set_method(program, guess, give / program.cost, False)[0]
        more, done = active_set_method(program, guess, 0.0, False)
        rounds += more
    residual = kkt_residual(program, guess)
    for plain in (False, True):
        if not done or not residual <= TOLERANCE:
            rounds += interior_point(program, guess, plain)
            residual = kkt_residual(program, guess)
            again = Guess(guess.free.copy(), guess.side.copy(), guess.weights.copy(), guess.prices.copy())
            if active_set_method(program, again, 0.0, False)[1] and kkt_residual(program, again) <= TOLERANCE:
                # The active set method's own solution: the same bits as from any other start.
                guess.free[:], guess.side[:], guess.weights[:], guess.prices[:] = again
                residual = kkt_residual(program, guess)
            done = True
    return rounds, residual
