"""Rankings put together without learning: every feature a ranker's scores, 0 where it does not have the document.

What a document is not given by a ranker is 0, and what it is given is above 0, as `querywise.fusion` makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from querywise.arrays import Floats
from querywise.data.groups import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.learners.hyperplanes import borda


class CombSUM:
    """The sum of a document's scores (Fox and Shaw, 1994)."""

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Remember the columns; there is nothing to learn."""
        _remember(self, data)
        return self

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document."""
        return _sums(_known(self, candidates))


class CombMNZ:
    """The sum of a document's scores, times the number of rankers that have it (Fox and Shaw, 1994)."""

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Remember the columns; there is nothing to learn."""
        _remember(self, data)
        return self

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document."""
        features = _known(self, candidates)
        votes = np.sum(features > 0, axis=1, dtype=np.float64)
        return _sums(features) * votes


class ReciprocalRank:
    """Reciprocal rank fusion: Σ 1 / (k + rank) over the rankers that have the document (Cormack and others, 2009).

    Tied documents share their mean rank.
    """

    def __init__(self, k: float = 60.0) -> None:
        self.k = k

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Remember the columns; there is nothing to learn."""
        if not 0 <= self.k < np.inf:
            raise DataError(f"ReciprocalRank(k={self.k}) must be a number from 0 up.")
        _remember(self, data)
        return self

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document."""
        return _by_ranker(candidates, _known(self, candidates), self._votes)

    def _votes(self, scores: Floats) -> Floats:
        ranks = (len(scores) + 1 - borda(scores)) / 2
        return np.where(scores > 0, 1 / (self.k + ranks), 0.0)


class Borda:
    """Borda's count: over all rankers, how many documents are below this one, less how many are above.

    The documents that a ranker does not have share its last places.
    """

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Remember the columns; there is nothing to learn."""
        _remember(self, data)
        return self

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document."""
        return _by_ranker(candidates, _known(self, candidates), borda)


def _remember(ranker: Any, data: Judged) -> None:
    ranker.feature_count_ = data.candidates.features.shape[1]
    ranker.feature_names_ = data.candidates.feature_names


def _known(ranker: Any, candidates: Candidates) -> Floats:
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    candidates.require_features(ranker.feature_count_, ranker.feature_names_)
    return candidates.features


def _sums(features: Floats) -> Floats:
    total = np.zeros(len(features))
    for column in features.T:  # one by one: whatever rows stand beside a document, its sum has the same bits
        total += column
    return total


def _by_ranker(candidates: Candidates, features: Floats, votes: Callable[[Floats], Floats]) -> Floats:
    total = np.zeros(len(features))
    for query in range(len(candidates)):
        rows = candidates.rows(query)
        for column in features[rows].T:
            total[rows] += votes(column)
    return total
