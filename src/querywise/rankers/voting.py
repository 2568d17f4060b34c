"""Rank fusion without learning: every feature is a ranker's score, 0 where it did not retrieve the document.

Scores of retrieved documents are above 0, as `data.runs.join_runs` makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from querywise.contracts.answers import ALL, Rows, Terms
from querywise.contracts.asking import OneModel
from querywise.contracts.forms import Refusal, depends_on_the_list
from querywise.data.judged import Candidates, Judged
from querywise.data.normalisation import borda
from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.runtime.stored import FITTED, Number, contents


class _Vote(OneModel):
    """What the fusion methods share: all but the formula."""

    stored = FITTED

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Remember the columns; there is nothing to learn."""
        data.require_learnable()
        return self

    def form(self) -> Refusal:
        """None: an engine counts no votes."""
        return depends_on_the_list(type(self), "votes among the documents of the query")


class CombSUM(_Vote):
    """The sum of a document's scores (Fox and Shaw, 1994)."""

    def _predict(self, seen: Candidates, /) -> Floats:
        return _sums(seen.features)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms:
        """The scores themselves."""
        return Terms.of(seen, rows, seen.features[rows] * np.ones(seen.features.shape[1]))


class CombMNZ(_Vote):
    """The sum of a document's scores, times the number of rankers that have it (Fox and Shaw, 1994)."""

    def _predict(self, seen: Candidates, /) -> Floats:
        votes = np.sum(seen.features > 0, axis=1, dtype=np.float64)
        return _sums(seen.features) * votes


@dataclass(eq=False, repr=False)
class ReciprocalRank(_Vote):
    """Reciprocal rank fusion: Σ 1 / (k + rank) over the rankers that have the document (Cormack and others, 2009).

    Tied documents share their mean rank.
    """

    k: float = 60.0

    stored = contents(k=Number(least=0.0))

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Remember the columns; there is nothing to learn."""
        if not 0 <= self.k < np.inf:
            raise DataError(f"ReciprocalRank(k={self.k}) must be a number from 0 up.")
        return super().fit(data, valid=valid)

    def _predict(self, seen: Candidates, /) -> Floats:
        return _by_ranker(seen, self._votes)

    def _votes(self, scores: Floats) -> Floats:
        ranks = (len(scores) + 1 - borda(scores)) / 2
        return np.where(scores > 0, 1 / (self.k + ranks), 0.0)


class Borda(_Vote):
    """Borda's count: over all rankers, how many documents are below this one, less how many are above.

    The documents that a ranker does not have share its last places.
    """

    def _predict(self, seen: Candidates, /) -> Floats:
        return _by_ranker(seen, borda)


def _sums(features: Floats) -> Floats:
    total = np.zeros(len(features))
    for column in features.T:  # one by one: whatever rows stand beside a document, its sum has the same bits
        total += column
    return total


def _by_ranker(candidates: Candidates, votes: Callable[[Floats], Floats]) -> Floats:
    total = np.zeros(len(candidates.features))
    for query in range(len(candidates)):
        rows = candidates.rows(query)
        for column in candidates.features[rows].T:
            total[rows] += votes(column)
    return total
