"""Weights of the models for a query: pick one, or blend many [lin2011]_.

Weights are non-negative and, query by query, sum to 1; a row of zeros means the global model.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.estimators import Estimator
from querywise.errors import DataError, NotFittedError
from querywise.runtime.arrays import Floats
from querywise.runtime.stored import COUNT, Known, Starts, contents, floats, require

_SOFTENING = 0.1
_TIED = 1e-12  # differences of divergences below this are none


def by_distance(distances: Floats) -> Floats:
    """Weights ∝ 1 / (0.1 + distance): Transform's. They are finite at any distance.

    >>> by_distance(np.array([[0.0, 0.3]]))
    array([[0.8, 0.2]])
    """
    return normalised(1 / (_SOFTENING + distances))


def without_the_weak(weights: Floats, floor: float) -> Floats:
    """The same without the models whose weight is below a share `floor` of the largest: 0 keeps all, 1 the best.

    >>> without_the_weak(np.array([[0.5, 0.4, 0.1]]), 0.5).round(3)
    array([[0.556, 0.444, 0.   ]])
    """
    check_floor(floor)
    kept = weights >= floor * weights.max(axis=1, initial=0.0, keepdims=True)
    return normalised(np.where(kept, weights, 0.0))


def check_floor(floor: float) -> None:
    """Refuse what is no share."""
    if not 0 <= floor <= 1:
        raise DataError(f"floor={floor} must be a share between 0, which keeps every model, and 1, the best alone.")


def normalised(weights: Floats) -> Floats:
    """Rows that sum to 1; a row of zeros stays one."""
    totals = weights.sum(axis=1, keepdims=True)
    return weights / np.where(totals > 0, totals, 1.0)


class SimilarQueries(Estimator):
    """SelectRanker's weights: each model's average precision on the training queries most like this one to it.

    For model i take, among its own training queries, the k whose coordinate i is nearest to the query's; the weight is
    the sum of their average precision under model i. Queries equally near at the k-th place share it. fit takes the
    training queries' points (queries × models), the models' members (models × queries) and the training queries'
    average precision (queries × models).
    """

    stored = contents(
        k=COUNT, values_=floats("entries"), sums_=floats("entries+1"), starts_=Starts("models", "entries")
    )

    def __init__(self, k: int = 10) -> None:
        self.k = k

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
        self.sums_ = np.cumsum(np.concatenate(sums))  # the precision of all before a place
        self.starts_ = np.array(starts)
        return self

    def _check_stored(self, known: Known) -> None:
        """The values of each model ascend."""
        falls = np.flatnonzero(np.diff(self.values_) < 0) + 1
        require(bool(np.isin(falls, self.starts_).all()), "SimilarQueries.values_ are not in ascending order")

    def weights(self, points: Floats, /) -> Floats:
        """New queries × models."""
        if not hasattr(self, "values_"):
            raise NotFittedError(self)
        from querywise.locality.sorted_neighbors import nearest_sums

        found = np.empty(points.shape)
        many = min(int(self.k), len(self.values_))
        nearest_sums(np.ascontiguousarray(points), self.values_, self.sums_, self.starts_, many, _TIED, found)
        return normalised(found)
