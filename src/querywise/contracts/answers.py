"""How a fitted ranker scores queries: everything that explanations, exports, routing, metrics and the page need.

An Answer holds the models that score a query's documents, the models' weights, the training queries behind them and the
query's position. Code that reads an Answer does not depend on the kind of ranker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.forms import Form, Refusal, no_form, no_sum
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.stored import QueryAdapter

Scale: TypeAlias = Literal["raw", "range", "z", "rank"]
Rows: TypeAlias = Ints | slice  # some documents of a query, by row
ALL: Rows = slice(None)
_Made = TypeVar("_Made")


class Once(Generic[_Made]):
    """A function without arguments that is called at most once; its result is cached."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], _Made]) -> None:
        self._make: Callable[[], _Made] | None = make

    def __call__(self) -> _Made:
        """Return the result, computing it on the first call."""
        if self._make is not None:
            self._made = self._make()
            self._make = None
        return self._made


class Terms(NamedTuple):
    """The contribution of each feature to each document's score (documents × features), in the model's own features.

    Each row sums to the score, up to a constant that all documents of the query share.
    """

    labels: tuple[str, ...]
    values: Floats
    parts: Floats

    @staticmethod
    def of(seen: Candidates, rows: Rows, parts: Floats) -> Terms:
        """Return the contributions of a model that uses the features as they are, for some documents."""
        return Terms(tuple(map(seen.feature_label, range(seen.features.shape[1]))), seen.features[rows], parts)


class Model(Protocol):
    """One scoring function."""

    def predict(self, seen: Candidates, /) -> Floats:
        """Return one score per document."""
        ...

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms | Refusal:
        """Return each feature's contribution to some documents' scores, or why a score is not a sum over features."""
        ...

    def form(self) -> Form:
        """Return the model as an engine can run it, or why it cannot."""
        ...


class Models(Protocol):
    """Several scoring functions."""

    def __len__(self) -> int:
        """Return the number of models."""
        ...

    def __getitem__(self, number: int, /) -> Model:
        """Return one model by its index."""
        ...

    def pick(self, candidates: Candidates, model: Ints, /) -> Floats:
        """Return one score per document; `model` gives the index of the model for each query."""
        ...

    def scores(self, candidates: Candidates, /) -> Floats:
        """Return documents × models: the score of every document by every model."""
        ...

    def blend(self, candidates: Candidates, shares: Floats, /) -> Floats:
        """Return one score per document: the models' scores scaled to 0 … 1 per query, summed with weights `shares`."""
        ...


class PretrainedModels(NamedTuple):
    """Models that were trained before any query arrives.

    Attributes:
        whom: describes the queries that a model serves.
        usable: which models have training pairs; the global model replaces the others.
        taught: the number of training queries of each model, if there are few enough models to show.

    """

    whom: Callable[[int], str]
    usable: Bools
    taught: Ints | None = None


def _no_models() -> Models:
    raise DataError("One model answers all queries; there are no others.")


def _no_shares() -> csr_array:
    raise DataError("One model answers all queries; there is nothing to share.")


class Local(NamedTuple):
    """The local models of the queries, in addition to the global model.

    Attributes:
        shares: the weight of each model, queries × models; an empty row means the global model.
        scale: how a model's scores are scaled within the query before they are summed: not at all, to 0 … 1, to mean 0
            and standard deviation 1, or to the share of documents that score lower.
        stored: details of models that were trained before any query arrives.

    """

    models: Once[Models] = Once(_no_models)
    shares: Once[csr_array] = Once(_no_shares)
    scale: Scale = "raw"
    stored: PretrainedModels | None = None


class TrainingQueries(NamedTuple):
    """The training queries of a nearest-neighbor ranker.

    Attributes:
        limit: the distance to the nearest training query beyond which the global model is used; infinite if there is no
            such limit.
        distances: returns the distance from each query to its nearest training query.
        few: the same for the first queries only, given how many.
        away: returns the distances from one query, given its index, to some training queries.
        gradients: returns the gradient of each training query's loss at the global model, if known, and the factor by
            which each is multiplied in a model, in addition to its weight.
        lost: returns which queries have no position at all.
        far: returns which queries fall back to the global model: those without a position and those beyond the limit.
        weights: returns the weight of each training query in the model that scores a query, queries × training queries,
            if models are trained on weighted queries.

    """

    query_ids: tuple[str, ...]
    pairs: Ints
    limit: float
    distances: Callable[[], Floats]
    few: Callable[[int], Floats]
    away: Callable[[int, Ints], Floats]
    gradients: Callable[[], tuple[Floats, Floats] | None]
    lost: Callable[[], Bools]
    far: Callable[[], Bools]
    weights: Callable[[], csr_array] | None = None


class Place(NamedTuple):
    """The positions of queries.

    Attributes:
        by: what determines a query's position: any of text, vector, columns and documents.
        classes: the classes that a query may carry; if it has one, the class decides.
        points: one row per query, if queries have positions.
        known: the training queries that distances are measured to.
        nearest_to_relevant: the stored model nearest to each query's relevant documents, −1 if it has none; None if the
            position does not depend on documents.
        vectorless: which queries have no vector and are placed at the mean.

    """

    by: Callable[[], tuple[str, ...]]
    classes: tuple[str, ...] = ()
    points: Callable[[], Floats] | None = None
    known: TrainingQueries | None = None
    nearest_to_relevant: Callable[[Judged], Ints | None] | None = None
    vectorless: Callable[[], Bools] | None = None


class Moved(NamedTuple):
    """The (α, β) of a training query: the scale and shift of its scores."""

    query_id: str
    scale: float
    shift: float


class Sizes(NamedTuple):
    """The number of groups of training queries, of groups with a single query, and of empty groups."""

    groups: int
    of_one_query: int
    empty: int


class Gain(NamedTuple):
    """A cross-validated candidate: its mean gain per query, the gain's standard error, and whether it was chosen."""

    tried: str
    gain: float
    error: float
    taken: bool


@dataclass(frozen=True)
class Facts:
    """Results of fitting: a classifier's F1, the sizes of clusters, the (α, β) of training queries.

    Attributes:
        elsewhere: the scores come from another system, so the time to look them up is meaningless.
        gains: the gains of each candidate over one set of weights for all queries, if one was chosen by
            cross-validation.
        feature: the feature whose value is the score, if documents are ranked by a single feature.
        refused: why no engine can run the ranker, whatever its models are.
        power: the exponent p if scoring n documents takes time proportional to n^p; 2 if all pairs of documents are
            compared.

    """

    f1: float | None = None
    sizes: Sizes | None = None
    moved: Callable[[], tuple[Moved, ...]] | None = None
    elsewhere: bool = False
    gains: tuple[Gain, ...] = ()
    feature: str | None = None
    refused: Refusal | None = None
    power: Literal[1, 2] = 1


class Blended(NamedTuple):
    """The rankers of a blend, one for each of its models.

    Attributes:
        answers: their answers to the same queries.
        names: their names.
        usual: their weights in the global model.

    """

    answers: tuple[Answer, ...]
    names: tuple[str, ...]
    usual: Floats


class Fused(NamedTuple):
    """First-stage runs and their weights, which are non-negative and sum to 1.

    Attributes:
        common: the weights in the global model.
        weights: returns the weights, queries × runs.

    """

    names: tuple[str, ...]
    common: Floats
    weights: Callable[[], Floats]


_NOTHING_LOCAL = Local()


class Answer(NamedTuple):
    """How a fitted ranker scores some queries. Expensive parts are computed on first access.

    Attributes:
        seen: the documents with the features that the models use.
        common: returns the global model.
        varies: whether some queries may have a model of their own.
        local: the models that score, and their weights.
        place: the positions of the queries.
        blend: the rankers of a blend; None for any other ranker.
        runs: the runs of a ranker that fuses runs; None for any other ranker.
        facts: returns the results of fitting.

    """

    seen: Candidates
    common: Callable[[], Model]
    scores: Once[Floats]
    varies: bool = False
    local: Local = _NOTHING_LOCAL
    place: Place | None = None
    blend: Blended | None = None
    runs: Fused | None = None
    facts: Callable[[], Facts] = Facts

    @property
    def members(self) -> tuple[Answer, ...]:
        """The answers of a blend's rankers; empty for any other ranker."""
        return () if self.blend is None else self.blend.answers

    @property
    def highest_power(self) -> int:
        """The largest exponent of scoring time, of this ranker or of its members; see `Facts.power`."""
        return max([self.facts().power, *(each.highest_power for each in self.members)])

    @property
    def everyone(self) -> Model:
        """The global model."""
        return self.common()

    @property
    def neighbourly(self) -> tuple[Answer, ...]:
        """The answers that depend on nearby training queries: this one, or those of a blend's members."""
        own = self.place is not None and self.place.known is not None
        return (self,) if own else tuple(found for each in self.members for found in each.neighbourly)

    def by_everyone(self) -> Floats:
        """Return one score per document, by the global model."""
        return self.everyone.predict(self.seen)

    def chosen(self) -> Ints:
        """Return the index of the one model that scores each query; −1 is the global model."""
        rows = self.local.shares()
        found = np.full(rows.shape[0], -1, dtype=np.int64)
        some = np.flatnonzero(np.diff(rows.indptr))
        found[some] = rows.indices[rows.indptr[some]]
        return found

    def answering(self, query: int) -> Model:
        """Return the one model that scores a query."""
        number = int(self.chosen()[query]) if self.varies else -1
        return self.everyone if number < 0 else self.local.models()[number]


@runtime_checkable
class Answers(Protocol):
    """Anything that can return an Answer for queries."""

    def answer(self, candidates: Candidates, /) -> Answer:
        """Return the answer for these queries."""
        ...


class Scorer(Protocol):
    """Anything that scores documents."""

    def predict(self, candidates: Candidates, /) -> Floats:
        """Return one score per document."""
        ...


def adapter_of(ranker: Scorer | None) -> QueryAdapter | None:
    """Return the adapter of a ranker's query vectors, or None if the ranker was trained on unadapted vectors."""
    return getattr(ranker, "adapter_", None)


class Opaque:
    """A scoring function about which nothing is known except its scores."""

    def __init__(self, ranker: Scorer) -> None:
        self.ranker = ranker

    def predict(self, seen: Candidates, /) -> Floats:
        """Return one score per document."""
        return self.ranker.predict(seen)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Refusal:
        """Return a refusal: the contributions of features are unknown."""
        return no_sum(type(self.ranker))

    def form(self) -> Refusal:
        """Return a refusal: the form of the model is unknown."""
        return no_form(type(self.ranker))


def alone(model: Model, candidates: Candidates) -> Answer:
    """Return the answer of a ranker with one model for all queries."""
    return Answer(candidates, lambda: model, Once(lambda: model.predict(candidates)))


def refused(answer: Answer, why: Refusal) -> Answer:
    """Return the same answer, marked as one that no engine can run."""
    return answer._replace(facts=lambda: replace(answer.facts(), refused=why))


def answer_of(ranker: Scorer, candidates: Candidates) -> Answer:
    """Return a ranker's answer; for a ranker with only `predict`, an answer that has scores and nothing else."""
    return ranker.answer(candidates) if isinstance(ranker, Answers) else alone(Opaque(ranker), candidates)


class _Global(Scorer, Answers, Protocol):
    """A fitted ranker with one model for all queries."""


def picked(
    seen: Candidates,
    everyone: _Global,
    models: Models,
    stored: PretrainedModels,
    choose: Callable[[], Ints],
    *,
    place: Place,
    facts: Callable[[], Facts] = Facts,
) -> Answer:
    """Return the answer of a ranker that scores each query by one stored model.

    `choose` gives its index, −1 for the global model.
    """
    chosen = Once(choose)
    return Answer(
        seen,
        lambda: everyone.answer(seen).everyone,
        Once(lambda: scores_by(models, chosen(), seen, everyone)),
        varies=True,
        local=Local(Once(lambda: models), Once(lambda: one_each(chosen(), len(models))), stored=stored),
        place=place,
        facts=facts,
    )


def scores_by(models: Models, chosen: Ints, seen: Candidates, everyone: Scorer) -> Floats:
    """Return scores by the one model chosen for each query; −1 is the global model."""
    if np.count_nonzero(chosen >= 0) == len(chosen):
        return models.pick(seen, chosen)
    return local_or_global(seen, chosen >= 0, lambda queries, part: models.pick(part, chosen[queries]), everyone)


def one_each(chosen: Ints, count: int) -> csr_array:
    """Return the weights, queries × models, of queries that each use one model, given its index.

    −1 is the global model.
    """
    local = chosen >= 0
    pointers = np.concatenate([[0], np.cumsum(local)])
    return csr_array((np.ones(int(local.sum())), chosen[local], pointers), shape=(len(chosen), count))


def own_each(local: Bools) -> csr_array:
    """Return the weights, queries × models, if each local query has its own model."""
    return one_each(np.where(local, np.cumsum(local) - 1, -1), int(local.sum()))


def local_or_global(
    candidates: Candidates, local: Bools, score: Callable[[Ints, Candidates], Floats], everyone: Scorer
) -> Floats:
    """Return scores by `score` for queries with a local model, and by the global model for the others."""
    count = np.count_nonzero(local)
    if not count:
        return everyone.predict(candidates)
    if count == len(local):
        return score(np.arange(len(local)), candidates)
    scores = np.empty(len(candidates.features))
    by_row = np.repeat(local, candidates.sizes)
    queries = np.flatnonzero(local)
    scores[by_row] = score(queries, candidates.select(queries))
    scores[~by_row] = everyone.predict(candidates.select(np.flatnonzero(~local)))
    return scores
