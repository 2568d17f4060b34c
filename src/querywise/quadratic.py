"""A small quadratic program, exactly: non-negative weights, a hinge for every row.

    min_{w ≥ 0}  ½ wᵀM w  +  C Σ_i max(0, 1 − b_i·w),        M symmetric, M ⪰ I

At the minimum some weights are 0 and the others free, some rows lie below 1 and cost C each, some above and cost
nothing, and a few, no more than there are free weights, lie on the kink at 1. Once it is known which, w is one linear
solve. So: guess the sets, from a similar program where there is one, solve, and mend what does not fit, all of it at
once; should that go in circles, one thing at a time, downhill, which cannot. Either way the KKT residual says how exact
it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from querywise.arrays import Bools, Floats, Ints
from querywise.compiled import compiled
from querywise.errors import SolverError

TOLERANCE = 1e-8
# Where a row lies: above 1, held at it, or below.
_ABOVE, _KINK, _BELOW = 0, 1, 2
_QUICK = 8  # rounds of mending everything at once
_GIVE = 1e-14  # of the trace: what is added to a diagonal that may be singular
_SLACK = 1e-11  # what is nearer to a limit than this is on it


@dataclass(frozen=True, eq=False)
class Solution:
    """The minimiser, the rows' prices 0 ≤ α ≤ C, and the sets they were found with, a start for the next program.

    `residual` is the largest violation of the conditions of optimality: of w = max(0, w − slope) and of
    α = clip(α + 1 − b·w, 0, C), the first relative to the terms the slope is made of.
    """

    weights: Floats
    prices: Floats
    free: Bools
    side: Ints
    residual: float
    rounds: int


def solve(curvature: Floats, rows: Floats, cost: float, start: Solution | None = None) -> Solution:
    """The minimum; SolverError where its residual cannot be brought below 1e-8, which has not been seen."""
    count, width = rows.shape
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    curvature = np.ascontiguousarray(curvature, dtype=np.float64)
    if start is not None and (len(start.free), len(start.side)) != (width, count):
        start = None  # of another size: nothing to begin with
    free = np.ones(width, np.bool_) if start is None else start.free.copy()
    side = np.full(count, _BELOW, np.int64) if start is None else start.side.copy()
    weights, prices = np.zeros(width), np.zeros(count)
    rounds, done = _mend(curvature, rows, float(cost), free, side, weights, prices)
    residual = _residual(curvature, rows, float(cost), weights, prices)
    nowhere: Any = (0.0, False, _BELOW)  # fits whatever the rows; the weights of another program need not
    for origin in [nowhere] if start is None else [(start.weights, start.free, start.side), nowhere]:
        if not done or not residual <= TOLERANCE:
            weights[:], free[:], side[:] = origin
            rounds += _descend(curvature, rows, float(cost), free, side, weights, prices, 200 + 20 * (count + width))
            residual = _residual(curvature, rows, float(cost), weights, prices)
            done = True
    if not residual <= TOLERANCE:
        raise SolverError(
            f"A program of {width} weights and {count} rows was solved to a residual of {residual:.1e} only."
        )
    return Solution(weights, prices, free, side, residual, rounds)


@compiled
def _residual(curvature: Floats, rows: Floats, cost: float, weights: Floats, prices: Floats) -> float:
    pull, push = _sums(prices, rows), _sums(weights, curvature)
    worst = 0.0
    largest = 1.0
    for j in range(len(weights)):
        largest = max(largest, abs(pull[j]), abs(push[j]))
    for j in range(len(weights)):
        worst = max(worst, abs(weights[j] - max(0.0, weights[j] - (push[j] - pull[j]))) / largest)
    margins = _margins(rows, weights)
    for i in range(len(prices)):
        moved = min(max(prices[i] + 1.0 - margins[i], 0.0), cost)
        worst = max(worst, abs(prices[i] - moved))
    return worst if np.isfinite(np.sum(weights) + np.sum(prices)) else np.inf  # max() passes over what is not a number


@compiled
def _margins(rows: Floats, weights: Floats) -> Floats:
    """Every row times the weights."""
    found = np.zeros(len(rows))
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            found[i] += rows[i, j] * weights[j]
    return found


@compiled
def _sums(prices: Floats, rows: Floats) -> Floats:
    """The sum of rows, each as often as its price says."""
    found = np.zeros(rows.shape[1])
    for i in range(rows.shape[0]):
        if prices[i] != 0.0:
            for j in range(rows.shape[1]):
                found[j] += prices[i] * rows[i, j]
    return found


@compiled
def _on_sets(
    curvature: Floats,
    rows: Floats,
    cost: float,
    free: Bools,
    side: Ints,
    weights: Floats,
    prices: Floats,
) -> None:
    """The minimum where the sets are these: free weights, rows held at 1, rows that cost C."""
    f, e = np.flatnonzero(free), np.flatnonzero(side == _KINK)
    weights[:] = 0.0
    prices[:] = 0.0
    for i in range(len(prices)):
        if side[i] == _BELOW:
            prices[i] = cost
    if len(f) == 0:
        return
    pull = _sums(prices, rows)[f]
    inner, held = curvature[f][:, f], rows[e][:, f]
    factor, across = inner.copy(), np.ascontiguousarray(held.T)
    _factor(factor)
    _substitute(factor, across)
    schur = _schur(held, across)
    found, price = np.zeros(len(f)), np.zeros(len(e))
    for _ in range(2):  # once more for what rounding, and giving, left
        change = pull + _sums(price, held) - _sums(found, inner)
        short = 1.0 - _margins(held, found)
        _substitute(factor, change.reshape(-1, 1))
        short -= _margins(held, change)
        _substitute(schur, short.reshape(-1, 1))
        found += change + _margins(across, short)
        price += short
    weights[f] = found
    prices[e] = price


@compiled
def _schur(held: Floats, across: Floats) -> Floats:
    """What rows at 1 ask of each other, factored; a little give keeps those that say the same from asking too much."""
    schur = np.zeros((len(held), len(held)))
    trace = 1e-300
    for c in range(len(held)):
        schur[c] = _sums(held[c], across)
        trace += schur[c, c]
    for c in range(len(held)):
        schur[c, c] += _GIVE * trace
    _factor(schur)
    return schur


@compiled
def _factor(matrix: Floats) -> None:
    """Cholesky's factor of a small positive definite matrix, in its place."""
    for j in range(len(matrix)):
        pivot = matrix[j, j]
        for k in range(j):
            pivot -= matrix[j, k] * matrix[j, k]
        matrix[j, j] = np.sqrt(max(pivot, 1e-300))
        for i in range(j + 1, len(matrix)):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / matrix[j, j]


@compiled
def _substitute(factor: Floats, right: Floats) -> None:
    """The solution of the system whose factor this is, in the place of its right sides."""
    n, columns = right.shape
    for j in range(n):
        for k in range(j):
            for c in range(columns):
                right[j, c] -= factor[j, k] * right[k, c]
        for c in range(columns):
            right[j, c] /= factor[j, j]
    for j in range(n - 1, -1, -1):
        for k in range(j + 1, n):
            for c in range(columns):
                right[j, c] -= factor[k, j] * right[k, c]
        for c in range(columns):
            right[j, c] /= factor[j, j]


@compiled
def _mend(
    curvature: Floats,
    rows: Floats,
    cost: float,
    free: Bools,
    side: Ints,
    weights: Floats,
    prices: Floats,
) -> tuple[int, bool]:
    """Solve on the sets and put right everything that does not fit, until nothing is left to put right."""
    for rounds in range(1, _QUICK + 1):
        _on_sets(curvature, rows, cost, free, side, weights, prices)
        slope = _sums(weights, curvature) - _sums(prices, rows)
        margins = _margins(rows, weights)
        changed = False
        for j in range(len(weights)):
            if free[j] and weights[j] < 0.0:
                free[j] = False
                changed = True
            elif not free[j] and slope[j] < -_SLACK:
                free[j] = True
                changed = True
        for i in range(len(prices)):
            if side[i] == _KINK:
                if prices[i] < 0.0:
                    side[i] = _ABOVE
                    changed = True
                elif prices[i] > cost:
                    side[i] = _BELOW
                    changed = True
            elif (side[i] == _ABOVE and margins[i] < 1.0 - _SLACK) or (side[i] == _BELOW and margins[i] > 1.0 + _SLACK):
                side[i] = _KINK
                changed = True
        if not changed:
            return rounds, True
    return _QUICK, False


@compiled
def _descend(
    curvature: Floats,
    rows: Floats,
    cost: float,
    free: Bools,
    side: Ints,
    weights: Floats,
    prices: Floats,
    limit: int,
) -> int:
    """From weights that fit the sets downhill, one set member at a time, to where none can be exchanged."""
    width, count = len(weights), len(prices)
    target, held = np.zeros(width), np.zeros(count)
    for rounds in range(limit):
        _on_sets(curvature, rows, cost, free, side, target, held)
        step = target - weights
        moving = np.max(np.abs(step)) if width > 0 else 0.0
        vertex = np.sum(side == _KINK) >= np.sum(free)  # as many rows held as weights are free: nothing can move
        still = vertex or moving <= _SLACK * (1.0 + np.max(np.abs(weights)) if width > 0 else 1.0)
        if still or not _line_search(curvature, rows, cost, free, side, weights, step):
            weights[:], prices[:] = np.maximum(target, 0.0), held
            if not _release(curvature, rows, cost, free, side, weights, prices):
                return rounds
    _on_sets(curvature, rows, cost, free, side, target, held)
    prices[:] = held
    return limit


@compiled
def _release(
    curvature: Floats,
    rows: Floats,
    cost: float,
    free: Bools,
    side: Ints,
    weights: Floats,
    prices: Floats,
) -> bool:
    """Let go of the one limit that is held against its slope the most; False where none is."""
    slope = _sums(weights, curvature) - _sums(prices, rows)
    worst, which, row = _SLACK, -1, False
    for j in range(len(weights)):
        if not free[j] and -slope[j] > worst:
            worst, which, row = -slope[j], j, False
    for i in range(len(prices)):
        if side[i] == _KINK:
            wrong = max(-prices[i], prices[i] - cost)
            if wrong > worst:
                worst, which, row = wrong, i, True
    if which < 0:
        return False
    if row:
        side[which] = _ABOVE if prices[which] < 0.0 else _BELOW
    else:
        free[which] = True
    return True


@compiled
def _line_search(
    curvature: Floats, rows: Floats, cost: float, free: Bools, side: Ints, weights: Floats, step: Floats
) -> bool:
    """Go to the lowest point of the ray, kinks and limits considered; a kink or limit that stops it joins the sets.

    False where the ray, made of rounding errors, does not fall.
    """
    moves = _row_moves(rows, step)
    times = _kink_times(side, _margins(rows, weights), moves)
    stop, limit = _first_limit(free, weights, step)
    uphill = _sums(step, curvature)
    slope, bend = 0.0, 0.0
    for j in range(len(step)):
        slope += uphill[j] * weights[j]
        bend += uphill[j] * step[j]
    for i in range(len(side)):
        if side[i] == _BELOW:
            slope -= cost * moves[i]
    if slope >= 0.0:
        return False
    kink, length = -1, -1.0
    while True:
        i = int(np.argmin(times)) if len(times) > 0 else -1
        if i < 0 or times[i] >= limit or slope + bend * times[i] >= 0.0:
            break
        if slope + cost * abs(moves[i]) + bend * times[i] >= 0.0:
            kink, length = i, times[i]
            break
        slope += cost * abs(moves[i])
        side[i] = _ABOVE if side[i] == _BELOW else _BELOW
        times[i] = np.inf
    if kink < 0:
        length = min(max(-slope / bend, 0.0), limit)
    for j in range(len(weights)):
        weights[j] = max(weights[j] + length * step[j], 0.0) if free[j] else 0.0
    if kink >= 0:
        side[kink] = _KINK
    elif stop >= 0 and length >= limit:
        weights[stop] = 0.0
        free[stop] = False
    return True


@compiled
def _row_moves(rows: Floats, step: Floats) -> Floats:
    """How fast each row rises along a step; a row that is held, by itself or by others like it, does not."""
    moves = _margins(rows, step)
    for i in range(len(moves)):
        size = 0.0
        for j in range(len(step)):
            size += abs(rows[i, j] * step[j])
        if abs(moves[i]) <= 1e-10 * size:
            moves[i] = 0.0
    return moves


@compiled
def _kink_times(side: Ints, margins: Floats, moves: Floats) -> Floats:
    """When each row reaches 1; never for those that do not go there."""
    times = np.full(len(side), np.inf)
    for i in range(len(side)):
        if (side[i] == _BELOW and moves[i] > 0.0) or (side[i] == _ABOVE and moves[i] < 0.0):
            times[i] = max((1.0 - margins[i]) / moves[i], 0.0)
    return times


@compiled
def _first_limit(free: Bools, weights: Floats, step: Floats) -> tuple[int, float]:
    """The first weight to reach 0, and when; −1 and 1 where none does by then.

    Kinks only steepen the way up, so the lowest point never lies beyond that of the face, which is at 1.
    """
    stop, limit = -1, 1.0
    longest = np.max(np.abs(step))
    for j in range(len(weights)):
        if free[j] and step[j] < -1e-11 * longest and weights[j] / -step[j] < limit:
            stop, limit = j, weights[j] / -step[j]
    return stop, limit
