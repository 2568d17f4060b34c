"""Score normalisation across lists: min-max, z-scores, ranks, Borda counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from querywise.runtime.arrays import Floats


def minmax(scores: Floats) -> Floats:
    """From 1/n for the worst of n scores to 1 for the best; 1 for all where they are the same.

    >>> minmax(np.array([10.0, 40.0, 20.0, 30.0])).tolist()
    [0.25, 1.0, 0.5, 0.75]
    """
    last = 1 / len(scores)
    return _in_order(scores, lambda levels: last + (1 - last) * _spread_out(levels))


def zscore(scores: Floats) -> Floats:
    """Standard deviations above the score one mean step below the worst; 1 for all where they are the same.

    >>> zscore(np.array([1.0, 3.0])).tolist()
    [2.0, 4.0]
    """
    deviation = float(np.std(_spread_out(scores)))
    step = 1 / max(len(scores) - 1, 1)
    return _in_order(scores, lambda levels: (_spread_out(levels) + step) / deviation if deviation else levels * 0 + 1)


def by_rank(scores: Floats) -> Floats:
    """(n + 1 − rank)/n of n scores; equal ones share their mean rank.

    >>> by_rank(np.array([7.0, 3.0, 3.0, 1.0])).tolist()
    [1.0, 0.625, 0.625, 0.25]
    """
    return (len(scores) + 1 + borda(scores)) / (2 * len(scores))


NORMALISATIONS: dict[str, Callable[[Floats], Floats]] = {
    "minmax": minmax,
    "zscore": zscore,
    "rank": by_rank,
    "none": lambda scores: scores,
}


def _spread_out(levels: Floats) -> Floats:
    """From 0 for the lowest to 1 for the highest; 1 for all where they are the same."""
    low, high = levels.min() / 2, levels.max() / 2  # halves, so that the largest numbers do not overflow
    return (levels / 2 - low) / (high - low) if high > low else np.ones(len(levels))


def _in_order(scores: Floats, scale: Callable[[Floats], Floats]) -> Floats:
    """Scores on another scale, different ones still different: a long tail of tiny scores keeps its order."""
    levels, place = np.unique(scores, return_inverse=True)
    values = scale(levels)
    for level in range(1, len(values) if np.any(np.diff(values) <= 0) else 0):
        values[level] = max(values[level], np.nextafter(values[level - 1], np.inf))
    return values[place]


def borda(scores: Floats) -> Floats:
    """For each of one query's documents, how many score strictly less, less how many score strictly more.

    >>> borda(np.array([0.5, 2.0, 0.5, 1.0]))
    array([-2.,  3., -2.,  1.])
    """
    ranked = np.sort(scores)
    below = np.searchsorted(ranked, scores, side="left")
    not_above = np.searchsorted(ranked, scores, side="right")
    return (below + not_above - len(scores)).astype(np.float64)
