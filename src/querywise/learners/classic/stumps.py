"""RankBoost's two compiled kernels: one for the weights of documents' pairs, one for the stump with the largest |r|.

With H the scores so far, a pair (a, b) of query i, a labeled above b, has weight c_i exp(H(b) − H(a)), a factor of a
times a factor of b. So the pairs of a document with all documents of lower levels weigh exp(−H(a)) times one sum, and
no pair is enumerated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled


@compiled
def potentials(scores: Floats, levels: Ints, starts: Ints, shares: Floats, out: Floats) -> float:
    """Return the weight of all pairs.

    `out` receives per document the weight of pairs below it minus that of pairs above.

    The documents of a query are in ascending order of label. A stump h has Σ D(a,b) (h(a) − h(b)) = Σ_d out(d) h(d).
    """
    total = 0.0
    for query in range(len(starts) - 1):
        begin, end = starts[query], starts[query + 1]
        own = scores[begin:end]
        middle = 0.5 * (own.min() + own.max())  # only differences matter; centering keeps the exponentials small
        lower, level_sum = 0.0, 0.0
        for row in range(begin, end):
            if row > begin and levels[row] != levels[row - 1]:
                lower += level_sum
                level_sum = 0.0
            level_sum += np.exp(scores[row] - middle)
            out[row] = shares[query] * lower * np.exp(middle - scores[row])
            total += out[row]
        upper, level_sum = 0.0, 0.0
        for row in range(end - 1, begin - 1, -1):
            if row < end - 1 and levels[row] != levels[row + 1]:
                upper += level_sum
                level_sum = 0.0
            level_sum += np.exp(middle - scores[row])
            out[row] -= shares[query] * upper * np.exp(scores[row] - middle)
    return total


@compiled
def best_stump(
    codes: NDArray[np.uint16], counts: Ints, weights: Floats, first: int, last: int
) -> tuple[float, int, int]:
    """Return the largest |Σ weights where code > t| among the features first..last−1, with its feature and its t.

    A row's code is the number of the feature's thresholds (`counts` in all) below its value. Ties go to the first
    feature and the highest threshold.
    """
    best, feature, threshold = 0.0, -1, -1
    for column in range(first, last):
        sums = np.zeros(counts[column] + 1)
        own = codes[column]
        for row in range(len(weights)):
            sums[own[row]] += weights[row]
        above = 0.0
        for t in range(counts[column] - 1, -1, -1):
            above += sums[t + 1]
            if abs(above) > abs(best):
                best, feature, threshold = above, column, t
    return best, feature, threshold
