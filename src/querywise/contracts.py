"""The contracts of the library, on one page. For type checking only: nothing needs to inherit from them."""

from __future__ import annotations

from typing import Protocol, Self

from scipy.sparse import csr_array

from querywise.arrays import Floats, Ints
from querywise.data.groups import Candidates, Judged


class Ranker(Protocol):
    """Whatever scores documents once it has been fitted."""

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Learn from judged documents; `valid` may decide when to stop."""
        ...

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document, in the order of the rows; only scores of one query can be compared."""
        ...


class Learner(Protocol):
    """A ranker that can be told how much each training query counts.

    Query weights are non-negative and relative: multiplying them by a constant changes nothing.
    """

    def fit(self, data: Judged, /, *, query_weights: Floats | None = None, valid: Judged | None = None) -> Self:
        """Learn from judged documents, each query counting as its weight says."""
        ...

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document, in the order of the rows."""
        ...


class Models(Protocol):
    """Several scoring functions."""

    def __len__(self) -> int:
        """How many."""
        ...

    def pick(self, candidates: Candidates, model: Ints, /) -> Floats:
        """One score per document, each query scored by the model named for it."""
        ...

    def scores(self, candidates: Candidates, /) -> Floats:
        """Documents × models: every document under every model."""
        ...

    def blend(self, candidates: Candidates, shares: Floats, /) -> Floats:
        """One score per document: Σ shares of each model's scores, brought to 0 … 1 within the query first."""
        ...


class Prepared(Protocol):
    """A learner that has seen its training queries and can train on any weighting of them."""

    everyone: Ranker

    def models(self, query_weights: csr_array, /) -> Models:
        """One model per row; columns are the training queries."""
        ...


class LocalLearner(Learner, Protocol):
    """A learner that trains many weighted models together, for less than one by one."""

    def prepare(self, data: Judged, /) -> Prepared:
        """Do once what all weightings have in common."""
        ...


class QueryView(Protocol):
    """A query as a point."""

    def fit(self, data: Judged, /) -> Self:
        """Learn from the training queries; a reference ranker given unfitted is fitted here, on them alone."""
        ...

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query; no labels in sight."""
        ...


class Neighborhood(Protocol):
    """Which training queries count for a query."""

    def fit(self, points: Floats, /) -> Self:
        """Remember the training queries' points."""
        ...

    def weights(self, points: Floats, /) -> csr_array:
        """New queries × training queries, relative; an empty row means: the global model."""
        ...


class Grouping(Protocol):
    """A fixed number of groups of training queries, which may overlap; each is a row of query weights."""

    members_: csr_array  # groups × training queries

    def fit(self, points: Floats, data: Judged, /) -> Self:
        """Group the training queries, which lie at these points."""
        ...

    def distances(self, points: Floats, /) -> Floats:
        """New queries × groups: how far each is from each."""
        ...


class Regressor(Protocol):
    """A function of document features, fitted to real targets; what aTVT alternates with."""

    def fit(self, features: Floats, targets: Floats, weights: Floats, /) -> Self:
        """Fit; a row of weight 0 has no say."""
        ...

    def predict(self, features: Floats, /) -> Floats:
        """One value per row."""
        ...
