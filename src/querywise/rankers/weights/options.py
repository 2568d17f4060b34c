"""Weights that are tried: points of the simplex, and which of them is best."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations
from math import comb

import numpy as np

from querywise.runtime.arrays import Floats

STEP = 0.05
_STEPS = 20  # 1 / STEP
_WHOLE_GRID = 3  # runs up to which the whole grid of that step is tried
_MOST = 1000  # points of the coarser grid of more runs
_TIED = 1e-12  # of a measure: less is rounding
_RISE = 1e-9


def options_for(runs: int) -> Floats:
    """Weights of so many runs, none negative, that sum to 1: all in steps of 0.05; of more than three runs, coarser.

    The steps of more runs are the finest of 0.1, 0.2, 0.25, 0.5 and 1 that make no more than 1,000 points.

    >>> options_for(2)[:3].tolist()
    [[0.0, 1.0], [0.05, 0.95], [0.1, 0.9]]
    >>> len(options_for(3)), len(options_for(4))
    (231, 286)
    """
    if runs <= _WHOLE_GRID:
        return _grid(runs, _STEPS)
    steps = next((each for each in (10, 5, 4, 2) if comb(each + runs - 1, runs - 1) <= _MOST), 1)
    return _grid(runs, steps)


def _grid(runs: int, steps: int) -> Floats:
    cuts = np.array(list(combinations(range(steps + runs - 1), runs - 1)), np.int64).reshape(-1, runs - 1)
    edges = np.column_stack([np.full(len(cuts), -1), cuts, np.full(len(cuts), steps + runs - 1)])
    grid: Floats = (np.diff(edges, axis=1) - 1) / steps
    return grid


def best_of(values: Floats, options: Floats, near: Floats) -> int:
    """The number of the option with the highest value; of equals the nearest to `near`, then the first."""
    tied = np.flatnonzero(values >= values.max() - _TIED)
    gaps = np.sum((options[tied] - near) ** 2, axis=1)
    return int(tied[np.flatnonzero(gaps <= gaps.min() + _TIED)[0]])


def improved(weights: Floats, value: Callable[[Floats], float]) -> Floats:
    """Of more than three runs: the weights after a coordinate search from these.

    The one move of 0.05 from one run to another that raises the value most is made, the first of equals, as long as
    there is one.
    """
    count = len(weights)
    if count <= _WHOLE_GRID:
        return weights
    highest = value(weights)
    while True:
        moves = [_moved(weights, *pair) for pair in permutations(range(count), 2) if weights[pair[0]] > 0]
        values = [value(each) for each in moves]
        best = int(np.argmax(values))
        if values[best] <= highest + _RISE:
            return weights
        weights, highest = moves[best], values[best]


def _moved(weights: Floats, giver: int, taker: int) -> Floats:
    places = np.rint(weights * _STEPS)
    places[giver] -= 1
    places[taker] += 1
    moved: Floats = places / _STEPS
    return moved
