"""Weights of the models for a query: pick one, or blend many [lin2011]_.

Weights are non-negative and, query by query, sum to 1; a row of zeros means the global model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.estimators import Estimator
from querywise.errors import DataError, NotFittedError
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled
from querywise.runtime.stored import COUNT, Known, Starts, contents, floats, require

_SOFTENING = 0.1
_TIED = 1e-12  # smaller differences of divergences are ties


def by_distance(distances: Floats) -> Floats:
    """Return Transform's weights, ∝ 1 / (0.1 + distance), which are finite at any distance.

    >>> by_distance(np.array([[0.0, 0.3]]))
    array([[0.8, 0.2]])
    """
    return normalised(1 / (_SOFTENING + distances))


def without_the_weak(weights: Floats, floor: float) -> Floats:
    """Drop the models whose weight is below a share `floor` of the largest: 0 keeps all, 1 only the best.

    >>> without_the_weak(np.array([[0.5, 0.4, 0.1]]), 0.5).round(3)
    array([[0.556, 0.444, 0.   ]])
    """
    check_floor(floor)
    kept = weights >= floor * weights.max(axis=1, initial=0.0, keepdims=True)
    return normalised(np.where(kept, weights, 0.0))


def check_floor(floor: float) -> None:
    """Raise DataError unless `floor` is a share."""
    if not 0 <= floor <= 1:
        raise DataError(
            f"floor={floor} must be a share between 0, which keeps every model, and 1, which keeps only the best."
        )


def normalised(weights: Floats) -> Floats:
    """Scale rows to sum to 1; a row of zeros stays unchanged."""
    totals = weights.sum(axis=1, keepdims=True)
    return weights / np.where(totals > 0, totals, 1.0)


@dataclass(eq=False, repr=False)
class SimilarQueries(Estimator):
    """SelectRanker's weights: each model's average precision on the training queries most similar for it.

    For model i take, among its own training queries, the k whose coordinate i is nearest to the query's; the weight is
    the sum of their average precision under model i. Queries that tie at rank k share its weight. `fit` takes the
    training queries' points (queries × models), the models' members (models × queries) and the training queries'
    average precision (queries × models).
    """

    k: int = 10

    stored = contents(
        k=COUNT, values_=floats("entries"), sums_=floats("entries+1"), starts_=Starts("models", "entries")
    )

    def fit(self, points: Floats, members: csr_array, precision: Floats, /) -> Self:
        """Sort every model's training queries by their coordinate."""
        if not 1 <= self.k < np.inf or self.k != int(self.k):
            raise DataError(f"k={self.k} must be a whole number of training queries, from 1 up.")
        values, sums, starts = [], [np.zeros(1)], [0]
        for model in range(members.shape[0]):
            own = members.indices[members.indptr[model] : members.indptr[model + 1]]
            own = own[np.argsort(points[own, model], kind="stable")]
            values.append(points[own, model])
            sums.append(precision[own, model])
            starts.append(starts[-1] + len(own))
        self.values_ = np.concatenate([*values, np.zeros(0)])
        self.sums_ = np.cumsum(np.concatenate(sums))  # cumulative precision before each index
        self.starts_ = np.array(starts)
        return self

    def _check_stored(self, known: Known) -> None:
        """Check that the values of each model ascend."""
        falls = np.flatnonzero(np.diff(self.values_) < 0) + 1
        require(bool(np.isin(falls, self.starts_).all()), "SimilarQueries.values_ are not in ascending order")

    def weights(self, points: Floats, /) -> Floats:
        """Return weights, new queries × models."""
        if not hasattr(self, "values_"):
            raise NotFittedError(self)
        found = np.empty(points.shape)
        many = min(int(self.k), len(self.values_))
        nearest_sums(np.ascontiguousarray(points), self.values_, self.sums_, self.starts_, many, _TIED, found)
        return normalised(found)


@compiled
def nearest_sums(
    points: Floats, values: Floats, sums: Floats, starts: Ints, k: int, tied: float, found: Floats
) -> None:
    """Sum over the k values nearest to the point in each sorted column; ties at rank k share its weight.

    Column i has values[starts[i]:starts[i + 1]]; sums[j] is the sum of everything before index j.
    """
    for row in range(points.shape[0]):
        for column in range(points.shape[1]):
            begin, end, point = starts[column], starts[column + 1], points[row, column]
            count = min(k, end - begin)
            found[row, column] = 0.0
            if count == 0:
                continue
            low, high = begin, end - count
            while low < high:
                middle = (low + high) // 2
                if point - values[middle] > values[middle + count] - point:
                    low = middle + 1
                else:
                    high = middle
            cut = max(point - values[low], values[low + count - 1] - point)
            left = places_before(values, begin, end, point - (cut - tied), True)
            right = max(left, places_before(values, begin, end, point + (cut - tied), False))
            first = places_before(values, begin, end, point - (cut + tied), False)
            last = places_before(values, begin, end, point + (cut + tied), True)
            near, total = right - left, sums[right] - sums[left]
            equal, shared = last - first - near, sums[last] - sums[first] - total
            if equal > 0:
                total += (count - near) / equal * shared
            found[row, column] = max(total, 0.0)


@compiled
def places_before(values: Floats, low: int, high: int, target: float, equal_too: bool) -> int:
    """Return the first index whose value is not below the target or, with `equal_too`, above it."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < target or (equal_too and values[middle] == target):
            low = middle + 1
        else:
            high = middle
    return low
