"""A primal-dual active set method for the programs of `quadratic`, and the factorization of its small systems."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import compiled, compiled_loosely

TOLERANCE = 1e-8  # of the KKT residual
ABOVE, KINK, BELOW = 0, 1, 2  # the side of a row's margin: above 1, at 1, or below
_CROWDED = 2  # rows on the kink per free weight: a minimum with that many would be a coincidence
_SLACK = 1e-11  # violations up to this are rounding errors


class Program(NamedTuple):
    """M, the rows b_i as a matrix B, and the cost C of a unit of hinge loss."""

    curvature: Floats
    rows: Floats
    columns: Floats  # the rows transposed
    cost: float


class Guess(NamedTuple):
    """The active sets (free weights, and each row's side of 1), weights and prices. Changed in place."""

    free: Bools
    side: Ints
    weights: Floats
    prices: Floats


@compiled
def kkt_residual(program: Program, guess: Guess) -> float:
    """Return the largest violation of the KKT conditions; see Solution."""
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
    total = 0.0
    for j in range(len(weights)):
        total += abs(weights[j])
    for i in range(len(prices)):
        total += abs(prices[i])
    return worst if total < np.inf else np.inf  # max() ignores NaN


@compiled
def attempt(program: Program, guess: Guess) -> tuple[int, float]:
    """Run the active set method; return its rounds and the KKT residual, infinite if it failed."""
    rounds, done = active_set_method(program, guess, False)
    return rounds, kkt_residual(program, guess) if done else np.inf


@compiled
def active_set_method(program: Program, guess: Guess, careful: bool) -> tuple[int, bool]:
    """Run the active set method: solve on the sets and swap what violates its condition, until nothing does.

    `careful` is for linearly dependent rows, whose prices are not unique: the system is regularized more, and the
    prices stay near those given. Returns the number of rounds, and False if the number of violations stops falling, or
    too many rows gather on the kink.
    """
    free, side, weights, prices = guess
    fewest, since = len(free) + len(side) + 1, 0
    for rounds in range(1, 1000):
        f, e = _free_ones(free), _on_the_kink(side)
        if len(e) > _CROWDED * (len(f) + 4) and not careful:
            break
        factor = _kkt_factor(program, f, e, 1e-10 if careful else 1e-14)
        for j in range(len(weights)):
            weights[j] = 0.0
        for i in range(len(side)):
            if side[i] != KINK or not careful:
                prices[i] = side[i] * program.cost / 2  # 0, C / 2, C
        for _ in range(4 if careful else 1):
            _newton_step(program, guess, f, e, factor)
        wrong = _exchange(program, guess)
        if wrong == 0:
            _newton_step(program, guess, f, e, factor)  # a step of iterative refinement, against rounding errors
            for j in range(len(weights)):
                weights[j] = max(weights[j], 0.0)
            for i in range(len(prices)):
                prices[i] = min(max(prices[i], 0.0), program.cost)
            return rounds, True
        since = 0 if wrong < fewest else since + 1
        fewest = min(fewest, wrong)
        if since >= (8 if careful else 2):
            break
    return rounds, False


@compiled
def solve_on_sets(program: Program, guess: Guess) -> None:
    """Set the weights to the solution on these sets, clipped at 0, as a starting point."""
    for j in range(len(guess.weights)):
        guess.weights[j] = 0.0
    for i in range(len(guess.side)):
        guess.prices[i] = guess.side[i] * program.cost / 2
    f, e = _free_ones(guess.free), _on_the_kink(guess.side)
    _newton_step(program, guess, f, e, _kkt_factor(program, f, e, 1e-10))
    for j in range(len(guess.weights)):
        guess.weights[j] = max(guess.weights[j], 0.0) if guess.weights[j] < np.inf else 0.0


@compiled
def _free_ones(free: Bools) -> Ints:
    found, many = np.empty(len(free), np.int64), 0
    for j in range(len(free)):
        if free[j]:
            found[many] = j
            many += 1
    return found[:many]


@compiled
def _on_the_kink(side: Ints) -> Ints:
    found, many = np.empty(len(side), np.int64), 0
    for i in range(len(side)):
        if side[i] == KINK:
            found[many] = i
            many += 1
    return found[:many]


@compiled
def _kkt_factor(program: Program, f: Ints, e: Ints, tie: float) -> Floats:
    """Return the factor of the KKT system of free weights f and kink rows e: [[M_ff, B_efᵀ], [B_ef, 0]]."""
    n = len(f)
    system = np.zeros((n + len(e), n + len(e)))
    for a in range(n):
        for b in range(a + 1):
            system[a, b] = program.curvature[f[a], f[b]]
    for c in range(len(e)):
        for a in range(n):
            system[n + c, a] = program.rows[e[c], f[a]]
    factor_in_place(system, n, tie)
    return system


@compiled
def _newton_step(program: Program, guess: Guess, f: Ints, e: Ints, factor: Floats) -> None:
    """Take a Newton step in the free weights and the prices of kink rows, toward gradient 0 and margin 1."""
    n = len(f)
    pull, push = weighted_sum(guess.prices, program.rows), weighted_sum(guess.weights, program.curvature)
    margins = weighted_sum(guess.weights, program.columns)
    right = np.empty(n + len(e))
    for a in range(n):
        right[a] = pull[f[a]] - push[f[a]]
    for c in range(len(e)):
        right[n + c] = 1.0 - margins[e[c]]
    substitute(factor, n, right)
    for a in range(n):
        guess.weights[f[a]] += right[a]
    for c in range(len(e)):
        guess.prices[e[c]] -= right[n + c]


@compiled
def _exchange(program: Program, guess: Guess) -> int:
    """Move every weight and row that violates the condition of its set to another set; return their number."""
    free, side, weights, prices = guess
    push, pull = weighted_sum(weights, program.curvature), weighted_sum(prices, program.rows)
    margins = weighted_sum(weights, program.columns)
    wrong = 0
    for j in range(len(weights)):
        if (free[j] and weights[j] <= 0.0) or (not free[j] and push[j] - pull[j] < -_SLACK):
            free[j] = not free[j]
            wrong += 1
    for i in range(len(prices)):
        short = 1.0 - margins[i]
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


@compiled
def weighted_sum(factors: Floats, rows: Floats) -> Floats:
    """Return Σ_i factors_i · rows_i."""
    found = np.zeros(rows.shape[1])
    for i in range(rows.shape[0]):
        factor = factors[i]
        if factor != 0.0:
            for j in range(rows.shape[1]):
                found[j] += factor * rows[i, j]
    return found


@compiled_loosely
def scalar_product(some: Floats, others: Floats, begin: int, end: int) -> float:
    """Return the scalar product of two vectors' entries from begin to end, in any order of summation."""
    total = 0.0
    for k in range(begin, end):
        total += some[k] * others[k]
    return total


@compiled
def factor_in_place(system: Floats, positive: int, tie: float) -> None:
    """Factor a symmetric quasi-definite matrix as L S Lᵀ, S = diag(1, …, 1, −1, …, −1) with `positive` ones.

    L overwrites the lower triangle. `tie` regularizes the negative block: each of its pivots grows by tie times the sum
    of the pivots so far, so that linearly dependent rows do not make the matrix singular.
    """
    trace = 1e-300
    for j in range(len(system)):
        row, split = system[j], min(j, positive)
        for i in range(j, len(system)):
            value = system[i, j] - scalar_product(system[i], row, 0, split)
            if j >= positive:
                value = -value - scalar_product(system[i], row, split, j)
            if i > j:
                system[i, j] = value / row[j]
            else:
                trace += value if j >= positive else 0.0
                row[j] = np.sqrt(max(value + tie * trace, 1e-300))


@compiled
def substitute(factor: Floats, positive: int, right: Floats) -> None:
    """Solve L S Lᵀ x = right by forward and backward substitution; x overwrites right."""
    for k in range(len(right)):
        right[k] = (right[k] - scalar_product(factor[k], right, 0, k)) / factor[k, k]
    for k in range(positive, len(right)):
        right[k] = -right[k]
    for k in range(len(right) - 1, -1, -1):
        right[k] /= factor[k, k]
        for i in range(k):
            right[i] -= factor[k, i] * right[k]
