"""Compiled passes over pages and over counts: sums of EM, and predictions of clicks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import compiled, inlined

_Codes = NDArray[np.int32]
_Positions = NDArray[np.int16]


@compiled
def last_clicks(starts: Ints, position: _Positions, clicked: Bools, out: _Positions) -> None:
    """The position of the nearest click above every row; 0 where there is none."""
    for page in range(len(starts) - 1):
        last = np.int16(0)
        for row in range(starts[page], starts[page + 1]):
            out[row] = last
            if clicked[row]:
                last = position[row]


@compiled
def examined_rows(starts: Ints, clicked: Bools, first: bool, rows: Bools, last: Bools) -> None:
    """Mark the rows down to the last click of their page (`first`: to the first one), and that click.

    Of a page without a click, every row.
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
    """Expected examinations of every pair and of every slot, given clicks: θ(1 − α) / (1 − θα) of what was skipped."""
    exposure[:] = 0.0
    examined[:] = 0.0
    for cell in range(len(pair)):
        t, a = theta[slot[cell]], alpha[pair[cell]]
        looked = clicks[cell] + (shown[cell] - clicks[cell]) * t * (1 - a) / max(1 - t * a, 1e-12)
        exposure[pair[cell]] += looked
        examined[slot[cell]] += looked


@inlined
def _backward(
    first: int,
    size: int,
    clicked: Bools,
    pair: _Codes,
    alpha: Floats,
    sigma: Floats,
    gamma: float,
    seen: Floats,
    unseen: Floats,
) -> None:
    """The chance of the clicks from every place of a page on, given that it is examined, or is not."""
    seen[size] = unseen[size] = 1.0
    for place in range(size - 1, -1, -1):
        one = pair[first + place]
        if clicked[first + place]:
            after = sigma[one] + (1 - sigma[one]) * (1 - gamma)
            seen[place] = alpha[one] * (after * unseen[place + 1] + (1 - sigma[one]) * gamma * seen[place + 1])
            unseen[place] = 0.0
        else:
            seen[place] = (1 - alpha[one]) * ((1 - gamma) * unseen[place + 1] + gamma * seen[place + 1])
            unseen[place] = unseen[place + 1]


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
    clicks: Floats,
    going: Floats,
) -> None:
    """Expectations of a dynamic Bayesian network by forward and backward passes over every page.

    exposure: examinations of every pair. satisfied, clicks: of every pair, clicks that ended a search and all clicks,
    of rows that others follow. going: how often the user went on, and could have.
    """
    exposure[:] = 0.0
    satisfied[:] = 0.0
    clicks[:] = 0.0
    going[:] = 0.0
    longest = 0
    for page in range(len(starts) - 1):
        longest = max(longest, starts[page + 1] - starts[page])
    seen, unseen = np.empty(longest + 1), np.empty(longest + 1)  # P(clicks from here on | examined or not)
    for page in range(len(starts) - 1):
        first, end = starts[page], starts[page + 1]
        size = end - first
        _backward(first, size, clicked, pair, alpha, sigma, gamma, seen, unseen)
        at = 1.0  # P(examined | clicks above)
        for place in range(size):
            one, row = pair[first + place], first + place
            total = at * seen[place] + (1 - at) * unseen[place]
            looked = at * seen[place] / max(total, 1e-300)
            exposure[one] += looked
            if clicked[row]:
                on = (1 - sigma[one]) * gamma
                if place + 1 < size:
                    stop = unseen[place + 1]
                    whole = sigma[one] * stop + (1 - sigma[one]) * (1 - gamma) * stop + on * seen[place + 1]
                    happy = sigma[one] * stop / max(whole, 1e-300)
                    satisfied[one] += happy
                    clicks[one] += 1
                    going[0] += on * seen[place + 1] / max(whole, 1e-300)
                    going[1] += 1 - happy
                at = on
            else:
                if place + 1 < size:
                    whole = (1 - gamma) * unseen[place + 1] + gamma * seen[place + 1]
                    going[0] += looked * gamma * seen[place + 1] / max(whole, 1e-300)
                    going[1] += looked
                at = at * (1 - alpha[one]) / max(1 - at * alpha[one], 1e-12) * gamma


@compiled
def chain_clicks(
    starts: Ints, clicked: Bools, alpha: Floats, after: Floats, gamma: float, marginal: Floats, given: Floats
) -> None:
    """The chance of a click in every row, alone and given the clicks above.

    after: the chance of going on after a click, by row; gamma: after no click.
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
    """The same of a user browsing model. theta: by position (rows) and position of the last click (columns)."""
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
    """Mean and standard deviation of α for every pair, under a Beta(a, b) prior, summed over a grid.

    The density is α^(a−1+c) (1−α)^(b−1) Π (1 − θα)^(shown − clicks) over the pair's cells, c its clicks. The grid's
    points are shares of the way by the prior's and data's own scale: Beta quantiles are too slow for millions.
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
