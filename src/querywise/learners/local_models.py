"""Local models of any learner, each trained separately in a thread."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.answers import Opaque
from querywise.contracts.asking import nobody
from querywise.contracts.protocols import Learner, Model, Prepared, Preparing, Ranker, TeachesLocally
from querywise.data.judged import Candidates, Judged, concatenate
from querywise.data.labels import StoredWeights, checked_gains
from querywise.data.training import Training
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.parameters import unfitted
from querywise.runtime.resume import finish_calls
from querywise.runtime.stored import Absent, Known, Several, Starts, Text, contents, floats, ints, part, require

_WORTH = ("gains", "query_weights", "document_weights")
_NOISE = 1e-12  # relative to the scores' size: smaller ranges are rounding errors


class FittedModels:
    """Several fitted rankers of any kind as models."""

    stored = contents(rankers=Several(part(Ranker), "models>0"))

    def __init__(self, rankers: Sequence[Ranker]) -> None:
        self.rankers = rankers

    def __len__(self) -> int:
        return len(self.rankers)

    def __getitem__(self, number: int, /) -> Model:
        ranker = self.rankers[number]
        said = ranker.answer(nobody(ranker.feature_count_, ranker.feature_names_))
        is_one_model = not said.varies and said.facts().refused is None
        return said.everyone if is_one_model else Opaque(ranker)

    def pick(self, candidates: Candidates, model: Ints, /) -> Floats:
        """Return the scores of each query's documents by the model chosen for it.

        Queries that share a model are batched.
        """
        scores = np.empty(len(candidates.features))
        owner = candidates.query_of_row
        for number in np.unique(model):
            queries = np.flatnonzero(model == number)
            scores[np.isin(owner, queries)] = self.rankers[number].predict(candidates.select(queries))
        return scores

    def scores(self, candidates: Candidates, /) -> Floats:
        """Return scores, documents × models."""
        return side_by_side([ranker.predict(candidates) for ranker in self.rankers])

    def blend(self, candidates: Candidates, shares: Floats, /) -> Floats:
        """Return scores by each query's own mixture of models, each model's scores scaled to 0 … 1 within the query."""
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


def side_by_side(scores: Sequence[Floats]) -> Floats:
    """Return documents × models; for a few documents this is three times as fast as numpy's column_stack."""
    return np.ascontiguousarray(np.array(scores).T)


class PreparedRows:
    """A learner fitted on all queries that trains a separate local model for each weighting of them.

    A learner with a method `local` decides how its local models are trained, given the global model.
    """

    stored = contents(
        everyone_=part(Learner),
        features_=floats("rows", "features"),
        labels_=ints("rows"),
        query_ids_=Several(Text(), "queries"),
        starts_=Starts("queries", "rows"),
        gains_=Absent(floats("levels", least=0.0)),
        query_weights_=Absent(StoredWeights("queries")),
        document_weights_=Absent(StoredWeights("rows", "document")),
    )

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Train the global model and store the training queries."""
        self.everyone_ = unfitted(self.learner).fit(data, valid=valid)
        return self._keep(data)

    def add(self, data: Judged, /) -> Self:
        """Return a copy with more training queries and the same global model."""
        if data.document_weights is not None and not hasattr(self, "document_weights_"):
            raise DataError("The training queries have no document weights, so added ones cannot have any.")
        rows = data.candidates
        added = replace(data.candidates_only(), candidates=Candidates(rows.features, rows.starts, rows.query_ids))
        return copy.copy(self)._keep(concatenate([self._kept(), added]))

    def _keep(self, data: Judged) -> Self:
        self.features_, self.labels_ = data.candidates.features, data.labels
        self.starts_, self.query_ids_ = data.candidates.starts, data.candidates.query_ids
        # Only what the data has, usually nothing: folders of earlier versions have none of these either.
        if data.gains is not None:
            self.gains_ = data.gains
        if data.query_weights is not None:
            self.query_weights_ = data.query_weights
        if data.document_weights is not None:
            self.document_weights_ = data.document_weights
        return self

    def _kept(self) -> Judged:
        worth: dict[str, Any] = {name: getattr(self, f"{name}_", None) for name in _WORTH}
        return Judged(Candidates(self.features_, self.starts_, self.query_ids_), self.labels_, **worth)

    def _check_stored(self, known: Known) -> None:
        """Check that the global model has the learner's class and that values of labels are valid training data."""
        require_alike(self.learner, self.everyone_, "PreparedRows.everyone_")
        if hasattr(self, "gains_"):
            checked_gains(self.gains_, self.labels_)

    @property
    def everyone(self) -> Learner:
        """The global model, used as the prior and as the fallback."""
        return self.everyone_

    def gathered(self) -> Self:
        """Return itself: workers keep nothing."""
        return self

    def gradients(self) -> None:
        """Return None: gradients are unknown for this learner."""
        return

    def models(self, query_weights: csr_array, /, *, like: Callable[[int], csr_array] | None = None) -> FittedModels:
        """Train one model per row. A row whose queries have no pairs, or all weigh the same, gets the global model."""
        local = self.learner.local(self.everyone_) if isinstance(self.learner, TeachesLocally) else self.learner
        data = self._kept()
        has_pairs = data.pairs > 0
        rows = query_weights.toarray() * has_pairs

        used = [np.flatnonzero(row) if row.any() and np.ptp(row[has_pairs]) > 0 else None for row in rows]
        trained = [number for number, queries in enumerate(used) if queries is not None]
        columns = [used[number] for number in trained], [rows[number][used[number]] for number in trained]
        shared = (local, data)
        fitted = finish_calls(_local, *columns, shared=shared, label="Local models")
        models = dict(zip(trained, fitted, strict=True))
        return FittedModels([models.get(number, self.everyone_) for number in range(len(rows))])


def _local(queries: Ints, weights: Floats, learner: Learner, data: Judged) -> Learner:
    """Return a learner trained on some queries with their weights."""
    return unfitted(learner).fit(data.select(queries), query_weights=weights)


def prepared(learner: Learner, data: Training, valid: Judged | None) -> Prepared:
    """Return a learner prepared for local models, by its own `prepare` if it has one, else row by row."""
    if isinstance(data, Judged):
        data.candidates.require_moderate()  # views of queries cannot handle missing values, whatever the learner
    if isinstance(learner, Preparing):
        return learner.prepare(data)
    return PreparedRows(learner).fit(data.load(), valid=valid)


def require_alike(learner: Learner, fitted: Learner, where: str) -> None:
    """Raise WrongValueError unless a fitted learner and its unfitted original have the same class, recursively."""
    require(type(learner) is type(fitted), f"{where} is of another class than its learner")
    if hasattr(learner, "learner") and hasattr(fitted, "learner"):
        require_alike(learner.learner, fitted.learner, where)
