"""Local models of any learner: one after the other, a thread each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from querywise.arrays import Floats, Ints
from querywise.contracts import Ranker
from querywise.data.groups import Candidates, Judged
from querywise.parameters import unfitted
from querywise.progress import track
from querywise.threads import in_threads

_NOISE = 1e-12  # of the scores' size: a range below it is rounding


class FittedModels:
    """Fitted rankers of any kind, side by side."""

    def __init__(self, rankers: Sequence[Any]) -> None:
        self.rankers = rankers

    def __len__(self) -> int:
        return len(self.rankers)

    def pick(self, candidates: Candidates, model: Ints, /) -> Floats:
        """Each query's documents under the model named for it; queries that share a model are scored together."""
        scores = np.empty(len(candidates.features))
        owner = candidates.query_of_row
        for number in np.unique(model):
            queries = np.flatnonzero(model == number)
            scores[np.isin(owner, queries)] = self.rankers[number].predict(candidates.select(queries))
        return scores

    def scores(self, candidates: Candidates, /) -> Floats:
        """Documents × models."""
        return np.column_stack([ranker.predict(candidates) for ranker in self.rankers])

    def blend(self, candidates: Candidates, shares: Floats, /) -> Floats:
        """Each query's documents under its own mixture of the models, each model's scores brought to 0 … 1 there."""
        every = self.scores(candidates)
        scores = np.empty(len(candidates.features))
        for query, share in enumerate(shares):
            rows = candidates.rows(query)
            if rows.stop > rows.start:
                own = every[rows]
                lowest, ranges = own.min(axis=0), np.ptp(own, axis=0)
                tied = ranges <= _NOISE * np.abs(own).max(axis=0)
                scaled = np.where(tied, 0.0, (own - lowest) / np.where(tied, 1.0, ranges))
                scores[rows] = np.einsum("ij,j->i", scaled, share)
        return scores


class PreparedRows:
    """A learner fitted on all queries, which trains a local model for each weighting of them on its own.

    A learner that has `local(everyone)` says how its local models are to be trained, given the global one.
    """

    def __init__(self, learner: Any) -> None:
        self.learner = learner

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Train the global model and remember the training queries."""
        self.everyone_ = unfitted(self.learner).fit(data, valid=valid)
        self.features_, self.labels_ = data.candidates.features, data.labels
        self.starts_, self.query_ids_ = data.candidates.starts, data.candidates.query_ids
        return self

    def _data(self) -> Judged:
        return Judged(Candidates(self.features_, self.starts_, self.query_ids_), self.labels_)

    @property
    def everyone(self) -> Ranker:
        """The global model: prior, back-off."""
        ranker: Ranker = self.everyone_
        return ranker

    def models(self, query_weights: csr_array, /) -> FittedModels:
        """One model per row. A row without a query that has pairs, or with all of them alike, is the global model."""
        local = self.learner.local(self.everyone_) if hasattr(self.learner, "local") else self.learner
        data = self._data()
        teaches = data.pairs > 0
        rows = query_weights.toarray() * teaches

        def train(row: Floats) -> Any:
            if not row.any() or np.ptp(row[teaches]) == 0:
                return self.everyone_
            used = np.flatnonzero(row)
            return unfitted(local).fit(data.select(used), query_weights=row[used])

        groups = [list(rows[first : first + 8]) for first in range(0, len(rows), 8)]
        fitted = [in_threads(train, group) for group in track(groups, "Local models")]
        return FittedModels([ranker for group in fitted for ranker in group])


def prepared(learner: Any, data: Judged, valid: Judged | None) -> Any:
    """A learner made ready for local models: its own way where it has one, else row by row."""
    return learner.prepare(data) if hasattr(learner, "prepare") else PreparedRows(learner).fit(data, valid=valid)
