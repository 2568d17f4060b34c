"""Compiled passes over pages and counts: sums for EM, and click predictions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import compiled

_Codes = NDArray[np.int32]
_Positions = NDArray[np.int16]


@compiled
def last_clicks(starts: Ints, position: _Positions, clicked: Bools, out: _Positions) -> None:
    """Set the position of the nearest click above every row; 0 if there is none."""
    for page in range(len(starts) - 1):
        last = np.int16(0)
        for row in range(starts[page], starts[page + 1]):
            out[row] = last
            if clicked[row]:
                last = position[row]


@compiled
def examined_rows(starts: Ints, clicked: Bools, first: bool, rows: Bools, last: Bools) -> None:
    """Mark the rows down to the last click of their page (`first`: to the first one), and that click.

    On a page without a click, mark every row.
    """
    for page in range(len(starts) - 1):
        stop = -1
        for row in range(starts[page], starts[page + 1]):
            if clicked[row]:
                stop = row
                if first:
                    break
        if stop >= 0:
            last[stop] = True
        for row in range(starts[page], starts[page + 1]):
            rows[row] = stop < 0 or row <= stop


@compiled
def examination_step(
    pair: _Codes,
    slot: _Codes,
    shown: Floats,
    clicks: Floats,
    theta: Floats,
    alpha: Floats,
    exposure: Floats,
    examined: Floats,
) -> None:
    """Sum the expected examinations of every pair and slot: a click counts 1, a skip θ(1 − α) / (1 − θα)."""
    exposure[:] = 0.0
    examined[:] = 0.0
    for cell in range(len(pair)):
        t, a = theta[slot[cell]], alpha[pair[cell]]
        looked = clicks[cell] + (shown[cell] - clicks[cell]) * t * (1 - a) / max(1 - t * a, 1e-12)
        exposure[pair[cell]] += looked
        examined[slot[cell]] += looked


@compiled
def chain_step(
    starts: Ints,
    clicked: Bools,
    pair: _Codes,
    alpha: Floats,
    sigma: Floats,
    gamma: float,
    exposure: Floats,
    satisfied: Floats,
    going: Floats,
) -> None:
    """Add the expectations of a dynamic Bayesian network for page ends, in one pass down and one up each.

    An end is the last click (`clicked` tells whether there is one; else the first row) and all rows below, which have
    no click. The user examined its first row and left at one of its rows: probability w_j of each, times 1 − γ above
    the last. `exposure` sums examinations of every pair below first rows, `satisfied` last clicks of every pair that
    ended a search, and `going` how often the user went on, and could have.
    """
    longest = 1
    for page in range(len(starts) - 1):
        longest = max(longest, starts[page + 1] - starts[page])
    left = np.empty(longest)  # the probability of leaving at every row, times a common factor
    for page in range(len(starts) - 1):
        first, size = starts[page], starts[page + 1] - starts[page]
        if size == 1:
            continue
        one = pair[first]
        content = sigma[one] if clicked[page] else 0.0
        at = 1 - content
        left[0] = content + at * (1 - gamma)
        for place in range(1, size):
            at *= gamma * (1 - alpha[pair[first + place]])
            left[place] = at * (1 - gamma) if place + 1 < size else at
        total = 0.0
        for place in range(size):
            total += left[place]
        total = max(total, 1e-300)
        below = 0.0
        for place in range(size - 1, 0, -1):
            below += left[place]
            examined = below / total
            exposure[pair[first + place]] += examined
            going[0] += examined
            going[1] += examined if place + 1 < size else 0.0
        going[1] += 1 - content / total
        satisfied[one] += content / total


@compiled
def chain_clicks(
    starts: Ints, clicked: Bools, alpha: Floats, after: Floats, gamma: float, marginal: Floats, given: Floats
) -> None:
    """Compute the click probability in every row, alone and given the clicks above.

    `after` is the probability of going on after a click, by row; `gamma` that after no click.
    """
    for page in range(len(starts) - 1):
        at = known = 1.0
        for row in range(starts[page], starts[page + 1]):
            marginal[row], given[row] = at * alpha[row], known * alpha[row]
            at *= alpha[row] * after[row] + (1 - alpha[row]) * gamma
            if clicked[row]:
                known = after[row]
            else:
                known = known * (1 - alpha[row]) / max(1 - known * alpha[row], 1e-12) * gamma


@compiled
def browsing_clicks(
    starts: Ints, position: _Positions, clicked: Bools, alpha: Floats, theta: Floats, marginal: Floats, given: Floats
) -> None:
    """Compute the same for a user browsing model, with `theta` by position (rows) and last click (columns)."""
    chance = np.zeros(theta.shape[1])  # that the last click is at each position
    for page in range(len(starts) - 1):
        chance[:] = 0.0
        chance[0] = 1.0
        last = np.int16(0)
        for row in range(starts[page], starts[page + 1]):
            place, total = position[row], 0.0
            for before in range(place):
                one = chance[before] * theta[place, before] * alpha[row]
                chance[before] -= one
                total += one
            marginal[row] = total
            given[row] = theta[place, last] * alpha[row]
            chance[place] += total
            if clicked[row]:
                last = place


@compiled
def posteriors(
    starts: Ints,
    slot: _Codes,
    shown: Floats,
    clicks: Floats,
    theta: Floats,
    a: Floats,
    b: Floats,
    grid: Floats,
    mean: Floats,
    spread: Floats,
) -> None:
    """Compute the mean and standard deviation of α for every pair, under a Beta(a, b) prior, summed over a grid.

    The density is α^(a−1+c) (1−α)^(b−1) Π (1 − θα)^(shown − clicks) over the pair's cells, with c its clicks. The
    grid's points are fractions on the scale of the prior and the data: Beta quantiles are too slow for millions of
    pairs.
    """
    size = len(grid)
    value, density = np.empty(size), np.empty(size)
    for pair in range(len(starts) - 1):
        total = exposed = 0.0
        for cell in range(starts[pair], starts[pair + 1]):
            total += clicks[cell]
            exposed += max(shown[cell] * theta[slot[cell]], clicks[cell])
        near = (a[pair] + total) / (a[pair] + b[pair] + exposed)
        width = np.sqrt(near * (1 - near) / (a[pair] + b[pair] + exposed + 1))
        low, high = max(near - 8 * width, 0.0), min(near + 12 * width, 1.0)
        most = -np.inf
        for point in range(size):
            x = low + (high - low) * grid[point]
            value[point] = x
            found = (a[pair] - 1 + total) * np.log(x) + (b[pair] - 1) * np.log1p(-x)
            for cell in range(starts[pair], starts[pair + 1]):
                if shown[cell] > clicks[cell]:
                    found += (shown[cell] - clicks[cell]) * np.log1p(-theta[slot[cell]] * x)
            density[point] = found
            most = max(most, found)
        weight = first = second = 0.0
        for point in range(size):
            edge = grid[min(point + 1, size - 1)] - grid[max(point - 1, 0)]
            one = np.exp(density[point] - most) * edge
            weight += one
            first += one * value[point]
            second += one * value[point] ** 2
        mean[pair] = first / weight
        spread[pair] = np.sqrt(max(second / weight - (first / weight) ** 2, 0.0))
