"""The contracts of the library, on one page. For type checking only: nothing needs to inherit from them.

Optional abilities are protocols of their own, checked at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, Self, TypeAlias, runtime_checkable

from scipy.sparse import csr_array

from querywise.contracts.answers import Answer, Model, Models, Scorer
from querywise.contracts.asking import Asked
from querywise.contracts.forms import Form
from querywise.data.judged import Candidates, Judged
from querywise.data.training import Training
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.stored import QueryAdapter

__all__ = [
    "Answer",
    "Embedder",
    "Fittable",
    "FollowsRanker",
    "Grouping",
    "Knows",
    "KnowsGains",
    "Learner",
    "LocalLearner",
    "LooksAt",
    "MadeReady",
    "Metric",
    "Model",
    "Models",
    "Neighborhood",
    "PlacesDocuments",
    "Prepared",
    "Preparing",
    "Probing",
    "QueryAdapter",
    "QueryView",
    "Ranker",
    "Regressor",
    "Scorer",
    "TeachesLocally",
    "Transparent",
    "Watching",
]

Metric: TypeAlias = Literal["euclidean", "cosine"]


class Fittable(Protocol):
    """Whatever can be fitted and then scores documents: enough to be compared."""

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Learn from judged documents; `valid` may decide when to stop."""
        ...

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document, in the order of the rows; only scores of one query can be compared."""
        ...


class Ranker(Fittable, Protocol):
    """Whatever scores documents once it has been fitted, and reports how."""

    feature_count_: int
    feature_names_: tuple[str, ...] | None

    def predict(self, candidates: Asked, /) -> Floats:
        """One score per document, in the order of the rows; only scores of one query can be compared."""
        ...

    def answer(self, candidates: Asked, /) -> Answer:
        """How these queries are scored: the scores, the models behind them, and what explains them."""
        ...


class Learner(Ranker, Protocol):
    """A ranker of one model for all queries, which can be trained with query weights.

    Query weights are non-negative and relative: multiplying them by a constant changes nothing.
    """

    def fit(self, data: Judged, /, *, query_weights: Floats | None = None, valid: Judged | None = None) -> Self:
        """Learn from judged documents, with a weight for each query."""
        ...


class Prepared(Protocol):
    """A learner that has seen its training queries and can train on any weighting of them."""

    @property
    def everyone(self) -> Learner:
        """The global model: prior, back-off."""
        ...

    def models(self, query_weights: csr_array, /, *, like: Callable[[int], csr_array] | None = None) -> Models:
        """One model per row; columns are the training queries. like: gives so many rows that those to come resemble."""
        ...

    def gathered(self) -> Prepared:
        """The same with all that workers keep gathered here, so that it can be stored."""
        ...

    def gradients(self) -> Floats | None:
        """Training queries × features: the gradient of each one's loss at the global model; None without gradients."""
        ...


@runtime_checkable
class MadeReady(Protocol):
    """Whatever makes something of what it has learned, once it is fitted or loaded: the first query waits no longer."""

    def make_ready(self) -> None:
        """Make it."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """Does once what all weightings of the training queries have in common.

    pairs: every `query` counts the same whatever its number of preference pairs, or every `pair` does.
    """

    pairs: Literal["query", "pair"]

    def prepare(self, data: Training, /) -> Prepared:
        """Get ready to train on any weighting of the queries."""
        ...


class LocalLearner(Learner, Preparing, Protocol):
    """A learner that trains many weighted models together, for less than one by one."""


@runtime_checkable
class TeachesLocally(Protocol):
    """A learner that sets how its local models are trained, given the global one."""

    def local(self, everyone: Learner, /) -> Learner:
        """The learner of local models; everyone is of its own kind, fitted."""
        ...


class QueryView(Protocol):
    """A query as a point."""

    def fit(self, data: Judged, /) -> Self:
        """Learn from the training queries; a reference ranker given unfitted is fitted here, on them alone."""
        ...

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query; labels are not used."""
        ...


@runtime_checkable
class FollowsRanker(Protocol):
    """A view with a reference ranker, by default the single model of the ranker it is used in."""

    def by(self, ranker: Ranker, /) -> QueryView:
        """The same view with this reference, unless it has one of its own."""
        ...


@runtime_checkable
class LooksAt(Protocol):
    """A view that reports what of a query it uses: any of text, vector, columns and documents. Others use documents."""

    @property
    def looks_at(self) -> tuple[str, ...]:
        """What gives a query its position."""
        ...


@runtime_checkable
class NamesCoordinates(Protocol):
    """A view whose coordinates have names."""

    def coordinate_names(self, candidates: Candidates, /) -> tuple[str, ...]:
        """One name per coordinate of a query's position."""
        ...


@runtime_checkable
class Knows(Protocol):
    """A view that reports of which queries it knows nothing: no vector, no known word, no feature. Others know all."""

    def known(self, candidates: Candidates, /) -> Bools:
        """Which queries it knows something of; the position of the others means nothing."""
        ...


@runtime_checkable
class PlacesDocuments(Protocol):
    """A view in which a query's relevant documents have a position too."""

    def relevant_points(self, data: Judged, /) -> Floats:
        """Each query's position if its top documents were its relevant ones; its own position where there are none."""
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
        """Group the training queries at these points."""
        ...

    def distances(self, points: Floats, /) -> Floats:
        """New queries × groups: how far each is from each."""
        ...


class Regressor(Protocol):
    """A function of document features, fitted to real targets; what aTVT alternates with."""

    def fit(self, features: Floats, targets: Floats, weights: Floats, /) -> Self:
        """Fit; rows of weight 0 are left out."""
        ...

    def predict(self, features: Floats, /) -> Floats:
        """One value per row."""
        ...


@runtime_checkable
class Watching(Protocol):
    """A regressor that can stop where its error on other data rises."""

    def fit_watching(
        self, features: Floats, targets: Floats, weights: Floats, other: Floats, other_targets: Floats, /
    ) -> Self:
        """Fit until the error on the other data rises."""
        ...


@runtime_checkable
class Transparent(Protocol):
    """A regressor whose values are sums over features, and which an engine can run."""

    def contributions(self, features: Floats, /) -> Floats:
        """Documents × features: what each adds to a document's value."""
        ...

    def form(self) -> Form:
        """What an engine can run."""
        ...


@runtime_checkable
class KnowsGains(Protocol):
    """A model of trees that reports what the splits by each feature gained in training."""

    def gains(self) -> Floats:
        """A number per feature, from 0 up."""
        ...


class Embedder(Protocol):
    """Texts as vectors: the same text has the same vector whatever is beside it."""

    def __call__(self, texts: Sequence[str], /) -> Floats:
        """One row per text, all of the same dimension; a text that nothing is known of has zeros."""
        ...


@runtime_checkable
class Probing(Protocol):
    """An embedder that says itself what tells it from another; of others it is the vector of a fixed text."""

    def probe(self) -> Floats:
        """Numbers that are the same for the same embedder alone."""
        ...
