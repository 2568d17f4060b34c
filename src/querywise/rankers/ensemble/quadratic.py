"""A small quadratic program, solved exactly by an active-set method: non-negative weights, a hinge per row.

    min_{w ≥ 0}  ½ wᵀM w  +  C Σ_i max(0, 1 − b_i·w),        M symmetric, M ⪰ I

At the minimum some weights are 0 and the others free, some rows are below 1 and have slope C each, some above and cost
nothing, and a few are on the kink at 1. Given these active sets, w is one linear solve. So: start from some sets, of a
similar program where there is one, solve, and exchange all members that violate optimality at once. Should that cycle,
smooth the kink, less from one attempt to the next; should that cycle too, find the sets by an interior point method.
Either way the KKT residual certifies the solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from querywise.errors import SolverError
from querywise.runtime.arrays import Bools, Floats, Ints, for_kernels
from querywise.runtime.compiled import compiled, compiled_loosely

TOLERANCE = 1e-8
# The side of a row: above 1, held at it, or below.
_ABOVE, _KINK, _BELOW = 0, 1, 2
_SLACK = 1e-11  # what is nearer to a limit than this is on it
_GIVES = (0.07, 0.02, 0.006, 0.002)  # how wide a rounded kink is: 1 ± half of it
_INSIDE = 100  # rounds of the interior point method, which takes a dozen or two


@dataclass(frozen=True, eq=False)
class Solution:
    """The minimiser, the rows' multipliers (prices) 0 ≤ α ≤ C, and the active sets, a warm start for the next program.

    `residual` is the largest violation of the conditions of optimality: of w = max(0, w − slope) and of
    α = clip(α + 1 − b·w, 0, C), the first relative to the terms the slope is made of.
    """

    weights: Floats
    prices: Floats
    free: Bools
    side: Ints
    residual: float
    rounds: int


class _Program(NamedTuple):
    curvature: Floats
    rows: Floats
    columns: Floats  # the rows transposed
    cost: float


class _Guess(NamedTuple):
    """The active sets (free weights, sides of rows), and weights and prices; all changed in place."""

    free: Bools
    side: Ints
    weights: Floats
    prices: Floats


def solve(curvature: Floats, rows: Floats, cost: float, start: Solution | None = None) -> Solution:
    """The minimum; SolverError where its residual cannot be brought below 1e-8, which has not been seen."""
    count, width = rows.shape
    rows = for_kernels(np.ascontiguousarray(rows, dtype=np.float64))
    curvature = np.ascontiguousarray(curvature, dtype=np.float64)
    program = _Program(curvature, rows, np.ascontiguousarray(rows.T), float(cost))
    if start is None or (len(start.free), len(start.side)) != (width, count):  # nothing, or of another size
        start, free, side = None, np.ones(width, np.bool_), np.full(count, _BELOW, np.int64)
    else:
        free, side = start.free.copy(), start.side.astype(np.int64)
    guess = _Guess(free, side, np.zeros(width), np.zeros(count))
    rounds, residual = _solve(program, guess, start is not None)
    if not residual <= TOLERANCE:
        raise SolverError(
            f"A program of {width} weights and {count} rows was solved to a residual of {residual:.1e} only."
        )
    return Solution(guess.weights, guess.prices, guess.free, guess.side, residual, rounds)


@compiled
def _solve(program: _Program, guess: _Guess, warm: bool) -> tuple[int, float]:
    """Make the guess the solution: the rounds that took, and the residual."""
    free, side = guess.free.copy(), guess.side.copy()
    rounds, done = _mend(program, guess, 0.0, False)
    if warm and not done:
        guess.free[:], guess.side[:] = free, side
        for give in _GIVES:
            rounds += _mend(program, guess, give / program.cost, False)[0]
        more, done = _mend(program, guess, 0.0, False)
        rounds += more
    residual = _residual(program, guess)
    for plain in (False, True):
        if not done or not residual <= TOLERANCE:
            rounds += _from_inside(program, guess, plain)
            residual = _residual(program, guess)
            again = _Guess(guess.free.copy(), guess.side.copy(), guess.weights.copy(), guess.prices.copy())
            if _mend(program, again, 0.0, False)[1] and _residual(program, again) <= TOLERANCE:
                guess.free[:], guess.side[:], guess.weights[:], guess.prices[:] = again  # as from any other start
                residual = _residual(program, guess)
            done = True
    return rounds, residual


@compiled
def _residual(program: _Program, guess: _Guess) -> float:
    weights, prices = guess.weights, guess.prices
    pull, push = _sums(prices, program.rows), _sums(weights, program.curvature)
    margins = _sums(weights, program.columns)
    worst = 0.0
    largest = 1.0
    for j in range(len(weights)):
        largest = max(largest, abs(pull[j]), abs(push[j]))
    for j in range(len(weights)):
        worst = max(worst, abs(weights[j] - max(0.0, weights[j] - (push[j] - pull[j]))) / largest)
    for i in range(len(prices)):
        moved = min(max(prices[i] + 1.0 - margins[i], 0.0), program.cost)
        worst = max(worst, abs(prices[i] - moved))
    return worst if np.isfinite(np.sum(weights) + np.sum(prices)) else np.inf  # max() passes over what is not a number


@compiled
def _mend(program: _Program, guess: _Guess, give: float, careful: bool) -> tuple[int, bool]:
    """Solve on the active sets and exchange the members that violate optimality, until none does.

    With give, a row is held not at 1 but lower by give for every unit its price is above C / 2. Careful is for linearly
    dependent rows: the prices found are those nearest to the previous ones. False where the number of violations does
    not decrease.
    """
    free, side, weights, prices = guess
    fewest, since = len(free) + len(side) + 1, 0
    for rounds in range(1, 1000):
        f, e = np.flatnonzero(free), np.flatnonzero(side == _KINK)
        factor = _held(program, f, e, give, 1e-10 if careful else 1e-14)
        weights[:] = 0.0
        for i in range(len(side)):
            if side[i] != _KINK or not careful:
                prices[i] = side[i] * program.cost / 2  # 0, C / 2, C
        for _ in range(4 if careful else 1):
            _correct(program, guess, f, e, factor, give)
        wrong = _exchange(program, guess, give)
        if wrong == 0:
            _correct(program, guess, f, e, factor, give)  # once more for what rounding left
            weights[:] = np.maximum(weights, 0.0)
            prices[:] = np.minimum(np.maximum(prices, 0.0), program.cost)
            return rounds, True
        since = 0 if wrong < fewest else since + 1
        fewest = min(fewest, wrong)
        if since >= (8 if careful else 2):
            break
    return rounds, False


@compiled
def _held(program: _Program, f: Ints, e: Ints, give: float, tie: float) -> Floats:
    """The factor of the KKT system of some free weights and rows held at 1."""
    n = len(f)
    system = np.zeros((n + len(e), n + len(e)))
    for a in range(n):
        for b in range(a + 1):
            system[a, b] = program.curvature[f[a], f[b]]
    for c in range(len(e)):
        for a in range(n):
            system[n + c, a] = program.rows[e[c], f[a]]
        system[n + c, n + c] = -give
    _factor(system, n, tie)
    return system


@compiled
def _correct(program: _Program, guess: _Guess, f: Ints, e: Ints, factor: Floats, give: float) -> None:
    """Solve for free weights and the prices of rows on the kink: zero slope, rows at 1."""
    n = len(f)
    pull = _sums(guess.prices, program.rows) - _sums(guess.weights, program.curvature)
    margins = _sums(guess.weights, program.columns)
    right = np.empty(n + len(e))
    for a in range(n):
        right[a] = pull[f[a]]
    for c in range(len(e)):
        right[n + c] = 1.0 - margins[e[c]] - give * (guess.prices[e[c]] - program.cost / 2)
    _substitute(factor, n, right)
    for a in range(n):
        guess.weights[f[a]] += right[a]
    for c in range(len(e)):
        guess.prices[e[c]] -= right[n + c]


@compiled
def _exchange(program: _Program, guess: _Guess, give: float) -> int:
    """Move every member that violates optimality to the next set; how many there were."""
    free, side, weights, prices = guess
    slope = _sums(weights, program.curvature) - _sums(prices, program.rows)
    margins = _sums(weights, program.columns)
    wrong = 0
    for j in range(len(weights)):
        if (free[j] and weights[j] <= 0.0) or (not free[j] and slope[j] < -_SLACK):
            free[j] = not free[j]
            wrong += 1
    for i in range(len(prices)):
        short = 1.0 - margins[i] - give * (prices[i] - program.cost / 2)
        if side[i] == _KINK and prices[i] < 0.0:
            side[i] = _ABOVE
        elif side[i] == _KINK and prices[i] > program.cost:
            side[i] = _BELOW
        elif (side[i] == _ABOVE and short > _SLACK) or (side[i] == _BELOW and short < -_SLACK):
            side[i] = _KINK
        else:
            continue
        wrong += 1
    return wrong


@compiled
def _from_inside(program: _Program, guess: _Guess, plain: bool) -> int:
    """Find the active sets by Mehrotra's interior point method, whose iterates are strictly inside all bounds.

    Every time the gap has become a good deal smaller, the sets of the nearer bounds are tried, until they are optimal.
    Plain is without Mehrotra's predictor, for programs so badly scaled that it misleads.
    """
    curvature, rows, columns, cost = program
    count, width = rows.shape
    pairs = width + 2 * count
    scale = max(np.sum(np.abs(rows)) / max(count, 1), 1e-300)
    rise = _sums(1.0 / np.diag(curvature), columns**2)  # about how much a row rises with its price
    w, z = np.full(width, 1.0 / scale), np.full(width, cost * scale)  # weights, and the slope against them
    a, b = np.full(count, cost / 2), np.full(count, cost / 2)  # prices, and what they are short of C
    over, under = np.ones(count), np.ones(count)  # how far a row is above 1, or below
    rounds, enough = 0, 1e-5
    for _ in range(_INSIDE):
        rounds += 1
        pull, push = _sums(a, rows), _sums(w, curvature)
        gap = np.sum(w * z) + np.sum(a * over) + np.sum(b * under)
        relative = gap / (np.sum(w * push) / 2 + cost * np.sum(under))
        if relative < enough:
            enough = relative / 30
            guess.free[:] = w > z / np.diag(curvature)
            for i in range(count):
                guess.side[i] = _ABOVE if a[i] * rise[i] < over[i] else _BELOW if b[i] * rise[i] < under[i] else _KINK
            guess.prices[:] = a
            more, done = _mend(program, guess, 0.0, True)
            rounds += more
            if done and _residual(program, guess) <= TOLERANCE:
                break
        stretch = over / a + under / b
        scaled = columns / stretch
        system = np.empty((width, width))
        for j in range(width):
            for k in range(j + 1):
                system[j, k] = curvature[j, k] + _product(columns[j], scaled[k], 0, count)
            system[j, j] += z[j] / w[j]
        _factor(system, width, 0.0)
        short = 1.0 - _sums(w, columns) - under + over
        wz, ao, bu = -w * z, -a * over, -b * under  # what the products are to change by
        for corrector in (False, True):
            lift = short - bu / b + ao / a
            dw = pull - push + z + wz / w + _sums(lift / stretch, rows)
            _substitute(system, width, dw)
            da = (lift - _sums(dw, columns)) / stretch
            dz, do, du = (wz - z * dw) / w, (ao - over * da) / a, (bu + under * da) / b
            fastest = max(1.0, np.max(-dw / w), np.max(-dz / z))
            for i in range(count):
                fastest = max(fastest, -da[i] / a[i], da[i] / b[i], -do[i] / over[i], -du[i] / under[i])
            t = 1.0 / fastest
            if not corrector:
                left = np.sum((w + t * dw) * (z + t * dz)) + np.sum((a + t * da) * (over + t * do))
                left += np.sum((b - t * da) * (under + t * du))
                aim = gap / pairs * (left / gap) ** 3
                bend = 1.0
                if plain:
                    aim, bend = 0.2 * gap / pairs, 0.0
                wz, ao = aim - w * z - bend * dw * dz, aim - a * over - bend * da * do
                bu = aim - b * under + bend * da * du
        t *= 0.995
        w, z, a, b, over, under = w + t * dw, z + t * dz, a + t * da, b - t * da, over + t * do, under + t * du
        if not np.isfinite(np.sum(w) + np.sum(z) + np.sum(a) + np.sum(over) + np.sum(under)):
            break
    return rounds


@compiled
def _sums(factors: Floats, rows: Floats) -> Floats:
    """The sum of rows, each times its factor."""
    found = np.zeros(rows.shape[1])
    for i in range(rows.shape[0]):
        factor = factors[i]
        if factor != 0.0:
            for j in range(rows.shape[1]):
                found[j] += factor * rows[i, j]
    return found


@compiled_loosely
def _product(some: Floats, others: Floats, begin: int, end: int) -> float:
    total = 0.0
    for k in range(begin, end):
        total += some[k] * others[k]
    return total


@compiled
def _factor(system: Floats, positive: int, tie: float) -> None:
    """Factor a quasi-definite matrix as LSLᵀ, L in place; S = 1 for its first, positive rows, −1 for the others.

    The other rows are regularised by `tie`, a share of their trace, so that linearly dependent rows have a factor.
    """
    trace = 1e-300
    for j in range(len(system)):
        row, split = system[j], min(j, positive)
        for i in range(j, len(system)):
            value = system[i, j] - _product(system[i], row, 0, split)
            if j >= positive:
                value = -value - _product(system[i], row, split, j)
            if i > j:
                system[i, j] = value / row[j]
            else:
                trace += value if j >= positive else 0.0
                row[j] = np.sqrt(max(value + tie * trace, 1e-300))


@compiled
def _substitute(factor: Floats, positive: int, right: Floats) -> None:
    """Solve the factored system in place of its right side."""
    for k in range(len(right)):
        right[k] = (right[k] - _product(factor[k], right, 0, k)) / factor[k, k]
    right[positive:] *= -1.0
    for k in range(len(right) - 1, -1, -1):
        right[k] /= factor[k, k]
        for i in range(k):
            right[i] -= factor[k, i] * right[k]
