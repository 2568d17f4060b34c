"""A primal-dual active set method for the programs of `quadratic`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.rankers.ensemble.factorisation import factor_in_place, substitute, weighted_sum
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import compiled

TOLERANCE = 1e-8  # of the KKT residual
ABOVE, KINK, BELOW = 0, 1, 2  # where a row's margin is: above 1, at 1, or below
_SLACK = 1e-11  # violations up to this are rounding errors


class Program(NamedTuple):
    """M, the rows b_i as a matrix B, and the cost C of a unit of hinge loss."""

    curvature: Floats
    rows: Floats
    columns: Floats  # the rows transposed
    cost: float


class Guess(NamedTuple):
    """The active sets (which weights are free, on which side of 1 a row is), weights and prices. Changed in place."""

    free: Bools
    side: Ints
    weights: Floats
    prices: Floats


@compiled
def kkt_residual(program: Program, guess: Guess) -> float:
    """The largest violation of the KKT conditions; see Solution."""
    weights, prices = guess.weights, guess.prices
    pull, push = weighted_sum(prices, program.rows), weighted_sum(weights, program.curvature)
    margins = weighted_sum(weights, program.columns)
    worst = 0.0
    largest = 1.0
    for j in range(len(weights)):
        largest = max(largest, abs(pull[j]), abs(push[j]))
    for j in range(len(weights)):
        worst = max(worst, abs(weights[j] - max(0.0, weights[j] - (push[j] - pull[j]))) / largest)
    for i in range(len(prices)):
        moved = min(max(prices[i] + 1.0 - margins[i], 0.0), program.cost)
        worst = max(worst, abs(prices[i] - moved))
    return worst if np.isfinite(np.sum(weights) + np.sum(prices)) else np.inf  # max() ignores NaN


@compiled
def active_set_method(program: Program, guess: Guess, give: float, careful: bool) -> tuple[int, bool]:
    """The active set method: solve on the sets and exchange what violates its condition, until nothing does.

    give: smooths the hinge; a row on the kink has the margin 1 − give · (α − C / 2). careful: for linearly dependent
    rows, whose prices are not unique; the system is regularised more, and the prices stay near those given. Returns the
    number of rounds, and False where the number of violations stops falling.
    """
    free, side, weights, prices = guess
    fewest, since = len(free) + len(side) + 1, 0
    for rounds in range(1, 1000):
        f, e = np.flatnonzero(free), np.flatnonzero(side == KINK)
        factor = _kkt_factor(program, f, e, give, 1e-10 if careful else 1e-14)
        weights[:] = 0.0
        for i in range(len(side)):
            if side[i] != KINK or not careful:
                prices[i] = side[i] * program.cost / 2  # 0, C / 2, C
        for _ in range(4 if careful else 1):
            _newton_step(program, guess, f, e, factor, give)
        wrong = _exchange(program, guess, give)
        if wrong == 0:
            _newton_step(program, guess, f, e, factor, give)  # a step of iterative refinement, against rounding errors
            weights[:] = np.maximum(weights, 0.0)
            prices[:] = np.minimum(np.maximum(prices, 0.0), program.cost)
            return rounds, True
        since = 0 if wrong < fewest else since + 1
        fewest = min(fewest, wrong)
        if since >= (8 if careful else 2):
            break
    return rounds, False


@compiled
def _kkt_factor(program: Program, f: Ints, e: Ints, give: float, tie: float) -> Floats:
    """The factor of the KKT system of the free weights f and the rows e on the kink: [[M_ff, B_efᵀ], [B_ef, −give]]."""
    n = len(f)
    system = np.zeros((n + len(e), n + len(e)))
    for a in range(n):
        for b in range(a + 1):
            system[a, b] = program.curvature[f[a], f[b]]
    for c in range(len(e)):
        for a in range(n):
            system[n + c, a] = program.rows[e[c], f[a]]
        system[n + c, n + c] = -give
    factor_in_place(system, n, tie)
    return system


@compiled
def _newton_step(program: Program, guess: Guess, f: Ints, e: Ints, factor: Floats, give: float) -> None:
    """A Newton step in the free weights and the prices of rows on the kink, towards gradient 0 and margin 1."""
    n = len(f)
    pull = weighted_sum(guess.prices, program.rows) - weighted_sum(guess.weights, program.curvature)
    margins = weighted_sum(guess.weights, program.columns)
    right = np.empty(n + len(e))
    for a in range(n):
        right[a] = pull[f[a]]
    for c in range(len(e)):
        right[n + c] = 1.0 - margins[e[c]] - give * (guess.prices[e[c]] - program.cost / 2)
    substitute(factor, n, right)
    for a in range(n):
        guess.weights[f[a]] += right[a]
    for c in range(len(e)):
        guess.prices[e[c]] -= right[n + c]


@compiled
def _exchange(program: Program, guess: Guess, give: float) -> int:
    """Move every weight and row that violates the condition of its set to another set; how many there were."""
    free, side, weights, prices = guess
    slope = weighted_sum(weights, program.curvature) - weighted_sum(prices, program.rows)
    margins = weighted_sum(weights, program.columns)
    wrong = 0
    for j in range(len(weights)):
        if (free[j] and weights[j] <= 0.0) or (not free[j] and slope[j] < -_SLACK):
            free[j] = not free[j]
            wrong += 1
    for i in range(len(prices)):
        short = 1.0 - margins[i] - give * (prices[i] - program.cost / 2)
        if side[i] == KINK and prices[i] < 0.0:
            side[i] = ABOVE
        elif side[i] == KINK and prices[i] > program.cost:
            side[i] = BELOW
        elif (side[i] == ABOVE and short > _SLACK) or (side[i] == BELOW and short < -_SLACK):
            side[i] = KINK
        else:
            continue
        wrong += 1
    return wrong
