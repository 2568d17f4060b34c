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
            order[:] = np.argsort(scores)
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
    """What each document gets as the *upper* one of its pairs; `scores` ascend. Returns the sum of losses.

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
def _list_sums(
    scores: Floats,
    levels: Ints,
    order: Ints,
    shape: tuple[float, float, float],
    floats: Floats,
    ints: Ints,
    band: Floats,
    line: Floats,
    gradient: Floats,
    degree: Floats,
) -> float:
    """One list's Σ ℓ; its derivative by each score and each document's pairs in the band go to the last two.

    `order` is a first guess of the ascending order, and the true one afterwards; `floats` (six rows), `ints` (two
    rows), `band` and `line` are scratch.
    """
    n = len(scores)
    _sort(scores, order)
    mean = scores.mean()  # only differences matter: centred scores keep the sums of squares small
    top = len(band) - 1
    s, reverse = floats[0, :n], floats[1, :n]
    y, reverse_y = ints[0, :n], ints[1, :n]
    for i in range(n):
        s[i] = scores[order[i]] - mean
        y[i] = levels[order[i]]
        # Seen from below: negate scores and labels, and the lower document of a pair becomes the upper one.
        reverse[n - 1 - i] = -s[i]
        reverse_y[n - 1 - i] = top - y[i]
    total = _sweep(s, y, shape, band, line, floats[2, :n], floats[3, :n])
    _sweep(reverse, reverse_y, shape, band, line, floats[4, :n], floats[5, :n])
    for i in range(n):
        gradient[order[i]] = floats[2, i] - floats[4, n - 1 - i]
        degree[order[i]] = floats[3, i] + floats[5, n - 1 - i]
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
    longest = 0
    for query in range(first, last):
        longest = max(longest, starts[query + 1] - starts[query])
    floats, ints = np.empty((6, longest)), np.empty((2, longest), np.int64)
    for query in range(first, last):
        begin, end = starts[query], starts[query + 1]
        top = 0
        for row in range(begin, end):
            top = max(top, levels[row])
        if top == 0:
            losses[query] = 0.0
            gradient[begin:end] = 0.0
            degree[begin:end] = 0.0
            continue
        order = np.argsort(scores[begin:end])
        losses[query] = _list_sums(
            scores[begin:end], levels[begin:end], order, shape, floats, ints, np.empty((top + 1, 3)),
            np.empty((top + 1, 2)), gradient[begin:end], degree[begin:end],
        )  # fmt: skip


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
