"""How a fitted ranker scores queries: all that explanations, exports, routing, metrics, the oracle and the page need.

An Answer holds the models that score a query's documents and their weights, the training queries behind them, and the
query's position. Its readers do not depend on the kind of ranker.
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
    """A function without arguments that is called once at most: what it gave is kept."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], _Made]) -> None:
        self._make: Callable[[], _Made] | None = make

    def __call__(self) -> _Made:
        """What it gives."""
        if self._make is not None:
            self._made = self._make()
            self._make = None
        return self._made


class Terms(NamedTuple):
    """What each feature adds to a document's score, documents × features, in the model's own features.

    Rows sum to the score, up to what all documents of the query have in common.
    """

    labels: tuple[str, ...]
    values: Floats
    parts: Floats

    @staticmethod
    def of(seen: Candidates, rows: Rows, parts: Floats) -> Terms:
        """Those of a model on some of the documents as they are."""
        return Terms(tuple(map(seen.feature_label, range(seen.features.shape[1]))), seen.features[rows], parts)


class Model(Protocol):
    """One scoring function."""

    def predict(self, seen: Candidates, /) -> Floats:
        """One score per document."""
        ...

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms | Refusal:
        """The parts of the scores of some documents, or why a score is not a sum over features."""
        ...

    def form(self) -> Form:
        """What an engine could run, or why it cannot."""
        ...


class Models(Protocol):
    """Several scoring functions."""

    def __len__(self) -> int:
        """How many."""
        ...

    def __getitem__(self, number: int, /) -> Model:
        """One of them."""
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


class PretrainedModels(NamedTuple):
    """What is known of models trained before any query arrives.

    whom: the queries that a model is for, in words. usable: models with training pairs; the global model replaces the
    others. taught: how many training queries each was trained on, where the models are few enough to show.
    """

    whom: Callable[[int], str]
    usable: Bools
    taught: Ints | None = None


def _no_models() -> Models:
    raise DataError("One model answers all queries; there are no others.")


def _no_shares() -> csr_array:
    raise DataError("One model answers all queries; there is nothing to share.")


class Local(NamedTuple):
    """The models that queries have beside the global one.

    shares: the weight of each model, queries × models; an empty row is the global model. scale: what happens to a
    model's scores within the query before they are added up: nothing, brought to 0 … 1, to mean 0 and spread 1, or to
    the share of documents below. stored: of models trained before any query arrives.
    """

    models: Once[Models] = Once(_no_models)
    shares: Once[csr_array] = Once(_no_shares)
    scale: Scale = "raw"
    stored: PretrainedModels | None = None


class TrainingQueries(NamedTuple):
    """The training queries of a nearest-neighbour ranker.

    limit: the distance from the nearest of them beyond which the global model is used; infinite without such a limit.
    distances: of each query from the nearest of them; `few` of so many of the first. away: of one query, by number,
    from some of them. gradients: of each one's loss at the global model, where known, and the factor of each in a
    model beside its weight. lost: which queries have no position at all. far: which back off to the global model, those
    without a position and those beyond the limit. weights: of each training query in the model that scores a query,
    queries × training queries, where models are trained on them.
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

    by: what gives a query its position, any of text, vector, columns and documents. classes: those that a query may be
    given with, which then decide. points: a row per query, where there are positions. known: the training queries that
    distances are measured to. nearest_to_relevant: the stored model nearest to each query's relevant documents, −1
    without any; None where the position does not depend on documents. vectorless: at the mean without a vector.
    """

    by: Callable[[], tuple[str, ...]]
    classes: tuple[str, ...] = ()
    points: Callable[[], Floats] | None = None
    known: TrainingQueries | None = None
    nearest_to_relevant: Callable[[Judged], Ints | None] | None = None
    vectorless: Callable[[], Bools] | None = None


class Moved(NamedTuple):
    """The (α, β) of a training query."""

    query_id: str
    scale: float
    shift: float


class Sizes(NamedTuple):
    """Groups of training queries: how many there are, with one query to learn from, and with none."""

    groups: int
    of_one_query: int
    empty: int


class Gain(NamedTuple):
    """What was tried in cross-validation: its mean gain per query, the standard error of that, whether it was taken."""

    tried: str
    gain: float
    error: float
    taken: bool


@dataclass(frozen=True)
class Facts:
    """What fitting found: a classifier's F1, the sizes of clusters, the (α, β) of training queries.

    elsewhere: the scores are another system's, so the time to look them up is meaningless. gains: of what was compared
    with one set of weights for all queries, where that was chosen among others. feature: the one that is the score,
    where documents are ranked by one. refused: why no engine can run the ranker whatever its models are. power: the
    power of a query's number of documents with which the time for its scores grows; 2 where all pairs of documents are
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
    """The rankers that a blend is made of, one for each of its models.

    answers: theirs to the same queries. names: what they are called. usual: their weights in the global model.
    """

    answers: tuple[Answer, ...]
    names: tuple[str, ...]
    usual: Floats


class Fused(NamedTuple):
    """The first-stage runs that models weigh: none negative, with sum 1.

    common: the weights in the global model. weights: queries × runs.
    """

    names: tuple[str, ...]
    common: Floats
    weights: Callable[[], Floats]


_NOTHING_LOCAL = Local()


class Answer(NamedTuple):
    """How a fitted ranker scores some queries. Parts that take time are computed on first access.

    seen: the documents as the models get them. common: the global model. varies: whether any query can have another
    model. local: the models that score, and the weight of each. place: the positions of the queries. blend: of a blend
    alone, the rankers in it. runs: of a ranker that fuses runs alone. facts: what fitting found.
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
        """The answers of the rankers that a blend is made of; none of any other ranker."""
        return () if self.blend is None else self.blend.answers

    @property
    def highest_power(self) -> int:
        """The power of the slowest part: its own, or that of a member."""
        return max([self.facts().power, *(each.highest_power for each in self.members)])

    @property
    def everyone(self) -> Model:
        """The global model."""
        return self.common()

    @property
    def neighbourly(self) -> tuple[Answer, ...]:
        """The answers in it that go by training queries nearby: itself, or those of the members of a blend."""
        own = self.place is not None and self.place.known is not None
        return (self,) if own else tuple(found for each in self.members for found in each.neighbourly)

    def by_everyone(self) -> Floats:
        """One score per document, by the global model."""
        return self.everyone.predict(self.seen)

    def chosen(self) -> Ints:
        """The number of the one model that scores each query; −1 is the global model."""
        rows = self.local.shares()
        found = np.full(rows.shape[0], -1, dtype=np.int64)
        some = np.flatnonzero(np.diff(rows.indptr))
        found[some] = rows.indices[rows.indptr[some]]
        return found

    def answering(self, query: int) -> Model:
        """The one model that scores a query."""
        number = int(self.chosen()[query]) if self.varies else -1
        return self.everyone if number < 0 else self.local.models()[number]


@runtime_checkable
class Answers(Protocol):
    """Whatever can return its Answer to queries."""

    def answer(self, candidates: Candidates, /) -> Answer:
        """The answer to these."""
        ...


class Scorer(Protocol):
    """Whatever scores documents."""

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document."""
        ...


def adapter_of(ranker: Scorer | None) -> QueryAdapter | None:
    """What adapts the vectors of queries for a ranker; None if it was trained on vectors as they are."""
    return getattr(ranker, "adapter_", None)


class Opaque:
    """A scoring function of which nothing is known but its scores."""

    def __init__(self, ranker: Scorer) -> None:
        self.ranker = ranker

    def predict(self, seen: Candidates, /) -> Floats:
        """One score per document."""
        return self.ranker.predict(seen)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Refusal:
        """None that are known."""
        return no_sum(type(self.ranker))

    def form(self) -> Refusal:
        """None that is known."""
        return no_form(type(self.ranker))


def alone(model: Model, candidates: Candidates) -> Answer:
    """The answer of one model for all queries."""
    return Answer(candidates, lambda: model, Once(lambda: model.predict(candidates)))


def refused(answer: Answer, why: Refusal) -> Answer:
    """The same answer, of a ranker that no engine can run."""
    return answer._replace(facts=lambda: replace(answer.facts(), refused=why))


def answer_of(ranker: Scorer, candidates: Candidates) -> Answer:
    """The answer of a ranker; of one that only predicts, its scores alone."""
    return ranker.answer(candidates) if isinstance(ranker, Answers) else alone(Opaque(ranker), candidates)


class _Global(Scorer, Answers, Protocol):
    """A fitted ranker of one model for all queries."""


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
    """The answer by one stored model for each query, named by `choose`; −1 is the global model."""
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
    """Scores by the one model chosen for each query; −1 is the global one."""
    if np.count_nonzero(chosen >= 0) == len(chosen):
        return models.pick(seen, chosen)
    return local_or_global(seen, chosen >= 0, lambda queries, part: models.pick(part, chosen[queries]), everyone)


def one_each(chosen: Ints, count: int) -> csr_array:
    """The shares of queries with one model each, by its number; −1 is the global model."""
    local = chosen >= 0
    pointers = np.concatenate([[0], np.cumsum(local)])
    return csr_array((np.ones(int(local.sum())), chosen[local], pointers), shape=(len(chosen), count))


def own_each(local: Bools) -> csr_array:
    """The shares of queries that have a model of their own each, where they are local."""
    return one_each(np.where(local, np.cumsum(local) - 1, -1), int(local.sum()))


def local_or_global(
    candidates: Candidates, local: Bools, score: Callable[[Ints, Candidates], Floats], everyone: Scorer
) -> Floats:
    """Scores of the queries that have a model of their own, and of the others by the global one."""
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
