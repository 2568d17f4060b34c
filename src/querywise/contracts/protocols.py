"""The library's protocols on one page. They are for type checking only: no class needs to inherit from them.

Optional abilities are separate protocols, checked at run time.
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
    """Anything that can be fitted and then scores documents: the minimum that a comparison needs."""

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Fit to judged documents; `valid` may decide when to stop."""
        ...

    def predict(self, candidates: Candidates, /) -> Floats:
        """Return one score per document, in the order of the rows; scores are comparable only within a query."""
        ...


class Ranker(Fittable, Protocol):
    """Anything that can be fitted, scores documents, and explains its scores."""

    feature_count_: int
    feature_names_: tuple[str, ...] | None

    def predict(self, candidates: Asked, /) -> Floats:
        """Return one score per document, in the order of the rows; scores are comparable only within a query."""
        ...

    def answer(self, candidates: Asked, /) -> Answer:
        """Return how these queries are scored: the scores, the models behind them, and what explains them."""
        ...


class Learner(Ranker, Protocol):
    """A ranker with one model for all queries that can be trained with query weights.

    Query weights are non-negative and relative: multiplying all of them by a constant changes nothing.
    """

    def fit(self, data: Judged, /, *, query_weights: Floats | None = None, valid: Judged | None = None) -> Self:
        """Fit to judged documents, with a weight for each query."""
        ...


class Prepared(Protocol):
    """A learner that has processed its training queries and can train on any weighting of them."""

    @property
    def everyone(self) -> Learner:
        """The global model, used as the prior and as the fallback."""
        ...

    def models(self, query_weights: csr_array, /, *, like: Callable[[int], csr_array] | None = None) -> Models:
        """Train one model per row of weights; columns are training queries.

        `like(n)` returns n rows like those to come.
        """
        ...

    def add(self, data: Judged, /) -> Self:
        """Return a copy with more training queries and the same global model."""
        ...

    def gathered(self) -> Prepared:
        """Return the same object with the data that workers hold gathered here, so that it can be saved."""
        ...

    def gradients(self) -> Floats | None:
        """Return each training query's loss gradient at the global model, queries × features.

        None if there are no gradients.
        """
        ...


@runtime_checkable
class MadeReady(Protocol):
    """Anything that precomputes data once it is fitted or loaded, so that the first query is not slow."""

    def make_ready(self) -> None:
        """Precompute the data."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """A learner that does the work shared by all weightings of the training queries only once.

    `pairs` says what counts equally: every `query`, whatever its number of preference pairs, or every `pair`.
    """

    pairs: Literal["query", "pair"]

    def prepare(self, data: Training, /) -> Prepared:
        """Return a learner that is ready to train on any weighting of the queries."""
        ...


class LocalLearner(Learner, Preparing, Protocol):
    """A learner that trains many weighted models together faster than one by one."""


@runtime_checkable
class TeachesLocally(Protocol):
    """A learner that decides how its local models are trained, given the global model."""

    def local(self, everyone: Learner, /) -> Learner:
        """Return the learner of local models; `everyone` is the fitted global model, of the same class."""
        ...


class QueryView(Protocol):
    """A representation of queries as points."""

    def fit(self, data: Judged, /) -> Self:
        """Fit to the training queries; an unfitted reference ranker is fitted here, on these queries only."""
        ...

    def points(self, candidates: Candidates, /) -> Floats:
        """Return one row per query; labels are not used."""
        ...


@runtime_checkable
class FollowsRanker(Protocol):
    """A view with a reference ranker, by default the global model of the ranker that uses the view."""

    def by(self, ranker: Ranker, /) -> QueryView:
        """Return the view with this reference ranker, unless it already has one."""
        ...


@runtime_checkable
class LooksAt(Protocol):
    """A view that reports what it uses of a query: any of text, vector, columns and documents (the default)."""

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The properties that determine a query's position."""
        ...


@runtime_checkable
class NamesCoordinates(Protocol):
    """A view whose coordinates have names."""

    def coordinate_names(self, candidates: Candidates, /) -> tuple[str, ...]:
        """Return one name per coordinate of a query's position."""
        ...


@runtime_checkable
class Knows(Protocol):
    """A view that reports which queries it cannot represent: no vector, no known word, no feature. By default, none."""

    def known(self, candidates: Candidates, /) -> Bools:
        """Return which queries the view can represent; the positions of the others are meaningless."""
        ...


@runtime_checkable
class PlacesDocuments(Protocol):
    """A view in which a query's relevant documents have a position as well."""

    def relevant_points(self, data: Judged, /) -> Floats:
        """Return the position each query would have if its relevant documents were its top ones.

        A query without relevant documents keeps its own position.
        """
        ...


class Neighborhood(Protocol):
    """A rule that selects and weighs the training queries near a query."""

    def fit(self, points: Floats, /) -> Self:
        """Store the points of the training queries."""
        ...

    def weights(self, points: Floats, /) -> csr_array:
        """Return relative weights, new queries × training queries; an empty row means the global model."""
        ...


class Grouping(Protocol):
    """A fixed number of groups of training queries, which may overlap; each is a row of query weights."""

    members_: csr_array  # groups × training queries

    def fit(self, points: Floats, data: Judged, /) -> Self:
        """Group the training queries at these points."""
        ...

    def distances(self, points: Floats, /) -> Floats:
        """Return distances, new queries × groups."""
        ...


class Regressor(Protocol):
    """A function of document features, fitted to real-valued targets; aTVT alternates with it."""

    def fit(self, features: Floats, targets: Floats, weights: Floats, /) -> Self:
        """Fit; rows of weight 0 are ignored."""
        ...

    def predict(self, features: Floats, /) -> Floats:
        """Return one value per row."""
        ...


@runtime_checkable
class Watching(Protocol):
    """A regressor that can stop early when its error on validation data rises."""

    def fit_watching(
        self, features: Floats, targets: Floats, weights: Floats, other: Floats, other_targets: Floats, /
    ) -> Self:
        """Fit until the error on the validation data rises."""
        ...


@runtime_checkable
class Transparent(Protocol):
    """A regressor whose predictions are sums over features and which an engine can run."""

    def contributions(self, features: Floats, /) -> Floats:
        """Return documents × features: each feature's contribution to a document's prediction."""
        ...

    def form(self) -> Form:
        """Return the model as an engine can run it."""
        ...


@runtime_checkable
class KnowsGains(Protocol):
    """A tree model that reports each feature's total split gain in training."""

    def gains(self) -> Floats:
        """Return one non-negative number per feature."""
        ...


class Embedder(Protocol):
    """A function from texts to vectors; the vector of a text does not depend on the other texts of the call."""

    def __call__(self, texts: Sequence[str], /) -> Floats:
        """Return one row per text, all of the same dimension; a text with no known words gets zeros."""
        ...


@runtime_checkable
class Probing(Protocol):
    """An embedder that provides its own fingerprint; for others it is the vector of a fixed text."""

    def probe(self) -> Floats:
        """Return numbers that only the same embedder returns."""
        ...
