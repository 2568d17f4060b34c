"""Sums over preference pairs without enumerating them: the compiled kernels the ranking SVM stands on.

A pair (a, b) with label a above label b and margin t = s_a − s_b costs ℓ(t), one family for both losses:

    ℓ(t) = 0                                 t ≥ upper
         = q (upper − t)²                    lower < t < upper         (the band: the pairs with curvature)
         = q (upper − lower) (upper + lower − 2t)      t ≤ lower       (a straight line that continues the parabola)

squared hinge: upper = 1, lower = −∞, q = 1. Hinge smoothed over a half-width δ: upper = 1 + δ, lower = 1 − δ,
q = 1/(4δ), which lies between the hinge and the hinge + δ/4.

With a query's documents sorted by score, the partners of a document are a run of that order. As the document moves
up, the run's ends move up with it, so counts and sums per label level cost O(n · levels) after the sort.
"""

from __future__ import annotations

import numpy as np

from querywise.arrays import Floats, Ints
from querywise.compiled import compiled


@compiled
def _sweep(
    scores: Floats,
    levels: Ints,
    level_count: int,
    shape: tuple[float, float, float],
    gradient: Floats,
    degree: Floats,
) -> float:
    """Add what each document gets as the *upper* one of its pairs; `scores` ascend. Returns the sum of losses.

    `gradient` receives dℓ/ds of the upper document, `degree` its number of pairs in the band.
    """
    upper, lower, q = shape
    n = len(scores)
    band = np.zeros((level_count, 3))  # count, Σ s_b, Σ s_b² of the documents in the band
    line = np.zeros((level_count, 2))  # count, Σ s_b of the documents on the straight part
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
        for level in range(levels[a]):
            count, sums, squares = band[level, 0], band[level, 1], band[level, 2]
            total += q * (count * gap * gap + 2 * gap * sums + squares)
            gradient[a] -= 2 * q * (count * gap + sums)
            degree[a] += count
            if line[level, 0] > 0:
                width = q * (upper - lower)
                total += width * (line[level, 0] * (upper + lower - 2 * scores[a]) + 2 * line[level, 1])
                gradient[a] -= 2 * width * line[level, 0]
    return total


@compiled
def pair_sums(
    scores: Floats,
    levels: Ints,
    starts: Ints,
    first: int,
    last: int,
    shape: tuple[float, float, float],
    losses: Floats,
    gradient: Floats,
    degree: Floats,
) -> None:
    """For queries first..last−1: Σ ℓ over pairs, its derivative by each score, each document's pairs in the band."""
    for query in range(first, last):
        begin, end = starts[query], starts[query + 1]
        n = end - begin
        losses[query] = 0.0
        gradient[begin:end] = 0.0
        degree[begin:end] = 0.0
        level_count = 0
        for row in range(begin, end):
            level_count = max(level_count, levels[row] + 1)
        if level_count < 2:
            continue
        # Only differences matter: centred scores keep the sums of squares small.
        centred = scores[begin:end] - scores[begin:end].mean()
        order = np.argsort(centred)
        s = centred[order]
        y = levels[begin:end][order]
        g, d = np.zeros(n), np.zeros(n)
        losses[query] = _sweep(s, y, level_count, shape, g, d)
        # Seen from below: negate scores and labels, and the lower document of a pair becomes the upper one.
        g_below, d_below = np.zeros(n), np.zeros(n)
        _sweep(-s[::-1].copy(), level_count - 1 - y[::-1].copy(), level_count, shape, g_below, d_below)
        for i in range(n):
            gradient[begin + order[i]] = g[i] - g_below[n - 1 - i]
            degree[begin + order[i]] = d[i] + d_below[n - 1 - i]


@compiled
def curvature_rows(
    features: Floats,
    scores: Floats,
    levels: Ints,
    starts: Ints,
    first: int,
    last: int,
    upper: float,
    lower: float,
    degree: Floats,
    weights: Floats,
    rows: Floats,
) -> None:
    """Rows Y with Xᵀ L X = symmetric part of Xᵀ Y, for queries first..last−1, each times its weight.

    L = D − A − Aᵀ is the Laplacian of the pairs in the band, A_ab = 1 for each such pair (a above b). Since
    xᵀAx = xᵀAᵀx, Y = D X − 2 A X serves, and A X needs one sweep. `rows` begins with the first row of query `first`.
    """
    columns = features.shape[1]
    offset = starts[first]
    for query in range(first, last):
        begin, end = starts[query], starts[query + 1]
        n = end - begin
        level_count = 0
        for row in range(begin, end):
            level_count = max(level_count, levels[row] + 1)
        if level_count < 2 or weights[query] == 0.0:
            rows[begin - offset : end - offset] = 0.0
            continue
        s = scores[begin:end]
        order = np.argsort(s)
        sums = np.zeros((level_count, columns))
        head, tail = 0, 0
        for i in range(n):
            a = order[i]
            while head < n and s[order[head]] < s[a] - lower:
                level, source = levels[begin + order[head]], begin + order[head]
                for j in range(columns):
                    sums[level, j] += features[source, j]
                head += 1
            while tail < head and s[order[tail]] <= s[a] - upper:
                level, source = levels[begin + order[tail]], begin + order[tail]
                for j in range(columns):
                    sums[level, j] -= features[source, j]
                tail += 1
            row = begin + a
            weight = weights[query]
            own = degree[row]
            for j in range(columns):
                rows[row - offset, j] = weight * own * features[row, j]
            for level in range(levels[row]):
                for j in range(columns):
                    rows[row - offset, j] -= 2 * weight * sums[level, j]


@compiled
def dense_levels(labels: Ints, starts: Ints) -> Ints:
    """Each query's labels renumbered 0, 1, 2, … in ascending order, so that any grades are few levels."""
    levels = np.zeros(len(labels), np.int64)
    for query in range(len(starts) - 1):
        begin, end = starts[query], starts[query + 1]
        order = np.argsort(labels[begin:end])
        level = 0
        for i in range(1, end - begin):
            if labels[begin + order[i]] != labels[begin + order[i - 1]]:
                level += 1
            levels[begin + order[i]] = level
    return levels
