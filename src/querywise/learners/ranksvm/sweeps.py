"""Sums over the pairs of long lists, by sweeps over documents in the order of their scores: see `kernels`."""

from __future__ import annotations

import numpy as np

from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import compiled
from querywise.runtime.sorting import ascending, sort_by


@compiled
def _sort(scores: Floats, order: Ints) -> None:
    """Put `order` into ascending order of scores, starting from the order it has: nearly free where that is close."""
    n = len(order)
    moves = 8 * n
    for i in range(1, n):
        row, j = order[i], i
        while j > 0 and scores[order[j - 1]] > scores[row]:
            order[j] = order[j - 1]
            j -= 1
            moves -= 1
        order[j] = row
        if moves < 0:
            sort_by(scores, order)
            return


@compiled
def _sweep(
    scores: Floats,
    levels: Ints,
    shape: tuple[float, float, float],
    band: Floats,
    line: Floats,
    gradient: Floats,
    degree: Floats,
) -> float:
    """The sums of each document as the *upper* one of its pairs; `scores` ascend. Returns the sum of losses.

    `gradient` receives dℓ/ds of the upper document, `degree` its number of pairs in the band. `band` and `line` are
    scratch, a row per level: count, Σ s_b (and Σ s_b²) of the documents in the band and on the straight part.
    """
    upper, lower, q = shape
    n = len(scores)
    band[:] = 0.0
    line[:] = 0.0
    for i in range(n):
        line[levels[i], 0] += 1
        line[levels[i], 1] += scores[i]
    total, first, split = 0.0, 0, 0
    for a in range(n):
        while split < n and scores[split] < scores[a] - lower:
            level, s = levels[split], scores[split]
            line[level, 0] -= 1
            line[level, 1] -= s
            band[level, 0] += 1
            band[level, 1] += s
            band[level, 2] += s * s
            split += 1
        while first < split and scores[first] <= scores[a] - upper:
            level, s = levels[first], scores[first]
            band[level, 0] -= 1
            band[level, 1] -= s
            band[level, 2] -= s * s
            first += 1
        gap = upper - scores[a]
        pull, pairs = 0.0, 0.0
        for level in range(levels[a]):
            count, sums, squares = band[level, 0], band[level, 1], band[level, 2]
            total += q * (count * gap * gap + 2 * gap * sums + squares)
            pull -= 2 * q * (count * gap + sums)
            pairs += count
            if line[level, 0] > 0:
                width = q * (upper - lower)
                total += width * (line[level, 0] * (upper + lower - 2 * scores[a]) + 2 * line[level, 1])
                pull -= 2 * width * line[level, 0]
        gradient[a] = pull
        degree[a] = pairs
    return total


@compiled
def swept(
    scores: Floats, levels: Ints, order: Ints, shape: tuple[float, float, float], gradient: Floats, degree: Floats
) -> float:
    """The same as `kernels._direct`, by two sweeps; `order`: a guess of the ascending order, then the true one."""
    n, top = len(scores), levels[-1]
    band, line = np.empty((top + 1, 3)), np.empty((top + 1, 2))
    sorted_scores, sorted_levels = np.empty((2, n)), np.empty((2, n), np.int64)
    pulls, pairs, totals = np.empty((2, n)), np.empty((2, n)), np.empty(2)
    _sort(scores, order)
    mean = 0.0  # only differences matter: centred scores keep the sums of squares small
    for i in range(n):
        mean += scores[i] / n
    for i in range(n):
        sorted_scores[0, i] = scores[order[i]] - mean
        sorted_levels[0, i] = levels[order[i]]
        # The lower documents: negate scores and labels, and the lower document of a pair becomes the upper one.
        sorted_scores[1, n - 1 - i] = -sorted_scores[0, i]
        sorted_levels[1, n - 1 - i] = top - sorted_levels[0, i]
    for side in range(2):
        totals[side] = _sweep(sorted_scores[side], sorted_levels[side], shape, band, line, pulls[side], pairs[side])
    for i in range(n):
        gradient[order[i]] = pulls[0, i] - pulls[1, n - 1 - i]
        degree[order[i]] = pairs[0, i] + pairs[1, n - 1 - i]
    return float(totals[0])


@compiled
def swept_sums(
    scores: Floats,
    levels: Ints,
    starts: Ints,
    long: Bools,
    first: int,
    last: int,
    shape: tuple[float, float, float],
    losses: Floats,
    gradient: Floats,
    degree: Floats,
) -> None:
    """The same as `kernels.direct_sums`, for the queries that are marked in `long`."""
    for query in range(first, last):
        begin, end = starts[query], starts[query + 1]
        if long[query]:
            s, y, g, d = scores[begin:end], levels[begin:end], gradient[begin:end], degree[begin:end]
            losses[query] = swept(s, y, ascending(s), shape, g, d)
