"""Explanations: which training queries or models determine a query's ranking, and why one document is above another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.answers import Answer, Blended, Model, TrainingQueries
from querywise.contracts.asking import missing_for, nobody
from querywise.contracts.forms import Linear
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates
from querywise.display.tables import Column, Frame, as_frame, axes_or_new, bars, plain, table, together
from querywise.display.words import counted
from querywise.errors import DataError, NotFittedError
from querywise.explanations.contributions import contributions_in
from querywise.learners.linear import LinearModels
from querywise.runtime.arrays import Floats
from querywise.runtime.values import JsonObject

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from matplotlib.axes import Axes

Part: TypeAlias = Literal["features", "models", "neighbours"]  # the part of an explanation to return as a table
_MOST = 10  # rows of a table or bars of a figure
_FEW = 3  # names in a line
_ROUNDING = 1e-12  # of the largest effect of a weight: a smaller departure is ignored
_LACKING = {
    "vector": "it has no vector",
    "text": "the training queries have none of its words",
    "documents": "none of its documents has a feature other than 0",
}


@dataclass(frozen=True)
class Neighbour:
    """A training query behind the model, its weight, and its distance.

    `pull` is its share in the step from the global model to this one: −v·G·(w_q − w₀), the first-order decrease of its
    loss along the step (G its gradient), over the sum of the absolute values; below 0 its loss increases. 0 if the
    learner has no gradients.
    """

    query_id: str
    weight: float
    distance: float
    pairs: int
    pull: float = 0.0


@dataclass(frozen=True)
class ModelShare:
    """One of several stored models: its weight for a query, and the number of training queries it learned from.

    One with fewer than two to learn from is the global model. A ranker in a Blend has a name instead.
    """

    model: int
    weight: float
    queries: int
    name: str = ""


@dataclass(frozen=True)
class Departure:
    """A feature, its weight in the global model and in this query's, and the spread of its values over the documents.

    `effect` is the difference of the weights times that spread: how much it can change the order of documents.
    """

    feature: str
    everyone: float
    here: float
    spread: float

    @property
    def effect(self) -> float:
        """(w_q − w₀) × the feature's spread over the query's documents."""
        return (self.here - self.everyone) * self.spread


@dataclass(frozen=True)
class Explanation:
    """One query: its neighbors, nearest first, and its departures from the global model, largest effect first.

    If stored models are picked or blended there are `models` instead of neighbors, the largest weight first; the
    weights of a blend are its effective ones on this query's documents, and the global ones are scaled to the same
    range there. `note` explains why the global model scores a query that backs off, `remark` any other problem with its
    position.
    """

    query_id: str
    is_global: bool
    neighbours: tuple[Neighbour, ...]
    departures: tuple[Departure, ...]
    models: tuple[ModelShare, ...] = ()
    note: str = ""
    remark: str = ""

    def __repr__(self) -> str:
        parts = [self._model, _largest([(each.feature, each.effect) for each in self.departures])]
        return f"Explanation(query {self.query_id!r}: {'; '.join(each for each in parts if each)})"

    @property
    def _model(self) -> str:
        """Return which model scores the query, in a few words."""
        if self.is_global:
            return f"the global model{f', as {self.note}' if self.note else ''}"
        if self.neighbours:
            first = self.neighbours[0]
            count = counted(len(self.neighbours), "training query", "training queries")
            return f"a model of {count}, the nearest {first.query_id!r} ({first.distance:.4g} away)"
        used = counted(sum(each.weight > 0 for each in self.models), "stored model")
        return used if self.models else "a model of its own"

    def _repr_html_(self) -> str:
        rows = [(each.feature, each.everyone, each.here, each.effect) for each in self.departures]
        notes = [f"It is scored by {self._model}."]
        parts = [
            _part(("feature", "weight for everyone", "weight here", "effect"), rows),
            _models(self.models),
            _nearest(self.neighbours),
        ]
        return together([_title(f"Query {self.query_id}", [*notes, self.remark]), *parts])

    def to_frame(self, of: Part = "features") -> Frame:
        """Return a row per feature, the largest effect first, or per model or neighbor, as a data frame."""
        features = _columns(self.departures, "feature", "everyone", "here", "spread", "effect")
        return _framed(of, features, _columns(self.models, "model", "name", "weight", "queries"), self.neighbours)

    def plot(self, most: int = _MOST, *, ax: Axes | None = None) -> Axes:
        """Plot the largest effects of features as bars: how this query's model departs from the global one."""
        chosen = self.departures[:most]
        if not chosen:
            raise DataError(f"There is nothing to plot: query {self.query_id!r} has no weights of features to compare.")
        axes = axes_or_new(ax, height=1.1 + 0.28 * len(chosen))
        bars(axes, [each.feature for each in chosen], [each.effect for each in chosen])
        axes.set_xlabel(f"query {plain(self.query_id)}: (weight here − weight for everyone) × spread")
        return axes


@dataclass(frozen=True)
class Term:
    """The contribution of one feature to the score difference of two documents.

    `above` and `below` are its values as the model gets them, NaN if missing; `everyone` is its contribution in the
    global model, `here` that in this query's.
    """

    feature: str
    above: float
    below: float
    everyone: float
    here: float


@dataclass(frozen=True)
class ModelTerm:
    """The contribution of one model of a blend to the score difference of two documents."""

    model: int
    weight: float
    here: float
    name: str = ""


@dataclass(frozen=True)
class Reason:
    """Why one document is above another, term by term: `here` of the terms sums to `difference`.

    `everyone` is the difference under the global model; the rest is the contribution of this query's own model.
    """

    query_id: str
    above: str
    below: str
    difference: float
    everyone: float
    terms: tuple[Term, ...]
    models: tuple[ModelTerm, ...]
    neighbours: tuple[Neighbour, ...]

    @property
    def local(self) -> float:
        """The part due to this query's own model rather than the global one."""
        return self.difference - self.everyone

    @property
    def _sentence(self) -> str:
        """Say whether the first document is above or below the other, and by how much."""
        where = "above" if self.difference >= 0 else "below"
        return f"{self.above!r} {where} {self.below!r} by {abs(self.difference):.4g}"

    def __repr__(self) -> str:
        by_all = f"{self.everyone:+.4g} under the global model"
        terms = _largest([(each.feature, each.here) for each in self.terms])
        return f"Reason(query {self.query_id!r}: {self._sentence}, {by_all}{f'; {terms}' if terms else ''})"

    def _repr_html_(self) -> str:
        rows = [(each.feature, each.above, each.below, each.everyone, each.here) for each in self.terms]
        headings = ("feature", f"value of {self.above}", f"value of {self.below}", "adds for everyone", "adds here")
        total = f"Of {self.difference:+.4g}, the global model has {self.everyone:+.4g}, the rest {self.local:+.4g}."
        models = table(
            ("model", "weight", "adds here"),
            [(each.name or str(each.model), each.weight, each.here) for each in self.models[:_MOST]],
        )
        parts = [_part(headings, rows), models if self.models else "", _nearest(self.neighbours)]
        return together([_title(f"Query {self.query_id}: {self._sentence}", [total]), *parts])

    def to_frame(self, of: Part = "features") -> Frame:
        """Return a row per feature, the largest first, or per model or neighbor; pandas, else polars, else Arrow."""
        features = _columns(self.terms, "feature", "above", "below", "everyone", "here")
        return _framed(of, features, _columns(self.models, "model", "name", "weight", "here"), self.neighbours)

    def plot(self, most: int = _MOST, *, ax: Axes | None = None) -> Axes:
        """Plot the contributions of features to the difference as bars, the largest on top, the others in one."""
        if not self.terms:
            raise DataError(f"There is nothing to plot: query {self.query_id!r} has no features.")
        names, values = [each.feature for each in self.terms[:most]], [each.here for each in self.terms[:most]]
        if len(self.terms) > most:
            names.append(f"{len(self.terms) - most} others")
            values.append(sum(each.here for each in self.terms[most:]))
        axes = axes_or_new(ax, height=1.1 + 0.28 * len(names))
        bars(axes, names, values)
        axes.set_xlabel(f"adds to {plain(self.above)} above {plain(self.below)}: {self.difference:+.4g} in all")
        return axes


def _largest(effects: Sequence[tuple[str, float]]) -> str:
    """Return the first few features with an effect, as one line of text."""
    shown = [f"{name}: {effect:+.4g}" for name, effect in effects[:_FEW] if effect]
    left = sum(effect != 0 for _, effect in effects) - len(shown)
    return ", ".join(shown) + (f" and {counted(left, 'feature')} more" if left else "")


def _title(text: str, notes: Sequence[str]) -> str:
    return table((), (), title=text, notes=[each for each in notes if each])


def _part(headings: Sequence[str], rows: Sequence[tuple[str | float, ...]]) -> str:
    left = len(rows) - _MOST
    return table(headings, rows[:_MOST], notes=[f"and {left:,} more"] if left > 0 else []) if rows else ""


def _models(models: Sequence[ModelShare]) -> str:
    rows = [(each.name or str(each.model), each.weight, each.queries or "") for each in models if each.weight > 0]
    return _part(("model", "weight", "training queries"), rows)


def _nearest(neighbours: Sequence[Neighbour]) -> str:
    rows = [(each.query_id, each.weight, each.distance, each.pull) for each in neighbours]
    return _part(("training query", "weight", "distance", "pull"), rows)


def _columns(rows: Sequence[DataclassInstance], *names: str) -> dict[str, Column]:
    """Return attributes of all rows, by name."""
    return {name: [getattr(each, name) for each in rows] for name in names}


def _framed(of: Part, features: dict[str, Column], models: dict[str, Column], neighbours: Sequence[Neighbour]) -> Frame:
    ids: dict[str, Column] = {"query": [each.query_id for each in neighbours]}
    near = ids | _columns(neighbours, "weight", "distance", "pairs", "pull")
    known = {"features": features, "models": models, "neighbours": near}
    if of not in known:
        raise DataError(f"to_frame(of={of!r}) is unknown. Known: {', '.join(map(repr, known))}.")
    return as_frame(known[of])


def depends_on_query(ranker: Ranker) -> bool:
    """Whether a fitted ranker has more than one model for all queries."""
    return ranker.answer(nobody(ranker.feature_count_, ranker.feature_names_)).varies


def explain(ranker: Ranker, candidates: Candidates, query_id: str) -> Explanation:
    """Explain how a fitted ranker of local models scores one of these queries.

    Args:
        ranker: a fitted ranker with a model per query, class or cluster, or a blend of rankers.
        candidates: the documents of one or more queries.
        query_id: the query.

    Returns:
        An Explanation: the training queries or models behind the query's own model, and the features by which it
        differs from the global model.

    Raises:
        DataError: A ranker of one model for all queries, and a query that is not there; with NotFittedError, a ranker
            that is not fitted.

    >>> from querywise import KnnOnline, RankSVM, explain, make_judged, split
    >>> train, valid, test = split(make_judged(40, 10, 4, kinds=2))
    >>> ranker = KnnOnline(RankSVM(), k=5, back_off=None).fit(train)
    >>> found = explain(ranker, test.candidates, test.query_ids[0])
    >>> found.is_global, len(found.neighbours), len(found.departures)
    (False, 5, 4)
    """
    answer = ranker.answer(_the_query(ranker, candidates, query_id))
    if not answer.varies:
        raise DataError(f"A {type(ranker).__name__} has one model for all queries; no query has a model of its own.")
    return _explained(answer)


def why(ranker: Ranker, candidates: Candidates, query_id: str, above: str, below: str) -> Reason:
    """Explain exactly why one document of a query is above another: the contributions sum to the difference.

    Args:
        ranker: a fitted ranker whose scores are sums: linear models, trees, and local models or blends of them.
        candidates: the documents of one or more queries.
        query_id: the query.
        above, below: the two documents by their ids, or without ids by their rows within the query, from 1. Any order
            of the two is fine; if `above` is in fact below, the difference is negative.

    Returns:
        A Reason: `.difference` of the scores, and `.terms`, the contribution of each feature, the largest first.

    Raises:
        DataError: The query or a document is absent, both documents are the same, or scores are not sums.

    >>> from querywise import RankSVM, make_judged, why
    >>> data = make_judged(20, 10, 3)
    >>> found = why(RankSVM().fit(data), data.candidates, "q1", above="1", below="2")
    >>> len(found.terms), bool(abs(sum(term.here for term in found.terms) - found.difference) < 1e-9)
    (3, True)
    """
    query = _the_query(ranker, candidates, query_id)
    if above == below:
        raise DataError(f"Document {above!r} cannot be above itself; name two documents.")
    first, second = (_row_of(query, name) for name in (above, below))
    answer = ranker.answer(query)
    parts = contributions_in(answer, np.array([first, second]))
    everyone, here = (each[0] - each[1] for each in (parts.everyone, parts.here))
    terms = [
        Term(parts.labels[column], *map(float, (*parts.seen[:, column], everyone[column], here[column])))
        for column in np.argsort(-np.abs(here), kind="stable")
    ]
    explained = _explained(answer) if answer.varies or answer.members else None
    apart = parts.models[0] - parts.models[1]
    models = [
        ModelTerm(each.model, each.weight, float(apart[each.model]), each.name)
        for each in (explained.models if explained else ())
        if parts.by_models and each.weight > 0
    ]
    return Reason(
        query_id,
        above,
        below,
        difference=float(here.sum()),
        everyone=float(everyone.sum()),
        terms=tuple(terms),
        models=tuple(sorted(models, key=lambda each: -abs(each.here))),
        neighbours=explained.neighbours if explained else (),
    )


def as_dict(found: Explanation | Reason) -> JsonObject:
    """Return the explanation as JSON."""
    if isinstance(found, Reason):
        return {**asdict(found), "local": found.local}
    content = {**asdict(found), "departures": [{**asdict(each), "effect": each.effect} for each in found.departures]}
    return {name: value for name, value in content.items() if value or name not in ("note", "remark")}


def _the_query(ranker: Ranker, candidates: Candidates, query_id: str) -> Candidates:
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    if query_id not in candidates.query_ids:
        first = f"The first is {candidates.query_ids[0]!r}." if len(candidates) else "There are no queries."
        raise DataError(f"There is no query {query_id!r} here. {first}")
    missing = missing_for(ranker)
    candidates.require_features(ranker.feature_count_, ranker.feature_names_, missing=missing)
    query = candidates.select([candidates.query_ids.index(query_id)])
    return replace(query, feature_names=query.feature_names or ranker.feature_names_)


def _row_of(query: Candidates, document: str) -> int:
    """Return a document's row by its id or, without ids, by its row number in the query, from 1."""
    labels = [query.document_label(row) for row in range(len(query.features))]
    if document not in labels:
        some = f"There are {', '.join(labels[:3])}{' …' if len(labels) > 3 else ''}" if labels else "It has none"
        raise DataError(f"Query {query.query_ids[0]!r} has no document {document!r}. {some}.")
    if labels.count(document) > 1:
        raise DataError(f"Query {query.query_ids[0]!r} has document {document!r} {labels.count(document)} times.")
    return labels.index(document)


def _explained(answer: Answer) -> Explanation:
    """Explain the one query of an answer that varies, or of a blend."""
    if answer.blend is not None:
        return _of_members(answer, answer.blend)
    name, shares = answer.seen.query_ids[0], answer.local.shares()[[0]]
    weights: Floats = shares.toarray()[0]
    if answer.local.scale == "range":
        alone, (common, here) = shares.nnz == 0, _mixtures(answer, weights)
    else:
        model = answer.answering(0)
        alone, common, here = model is answer.everyone, _weights_of(answer.everyone), _weights_of(model)
    departures: tuple[Departure, ...] = ()
    move: Floats | None = None
    if common is not None and here is not None:
        departures, move = _departures(common, here, answer.seen), here - common
    shown = _neighbours(answer, move), departures, _model_shares(answer, weights)
    return Explanation(name, alone, *shown, _note(answer), _remark(answer))


def _note(answer: Answer) -> str:
    """Return why the one query of an answer backs off to the global model; empty if it does not."""
    place = answer.place
    if place is None or place.known is None or not place.known.far()[0]:
        return ""
    if place.known.lost()[0]:
        return ", and ".join(_LACKING[each] for each in place.by() if each in _LACKING)
    distance, limit = float(place.known.distances()[0]), place.known.limit
    return f"the nearest training query is {distance:.4g} away, and beyond {limit:.4g} this model backs off"


def _remark(answer: Answer) -> str:
    """Return a remark that the mean replaces a missing vector; empty otherwise."""
    place = answer.place
    if place is None or place.vectorless is None or not place.vectorless()[0] or _note(answer):
        return ""
    return "it has no vector, so the mean of the training queries' vectors is used in its place"


def _of_members(answer: Answer, blend: Blended) -> Explanation:
    """Explain a query by the first ranker of a blend that varies by query."""
    weights = answer.local.shares()[[0]].toarray()[0]
    shares = tuple(
        ModelShare(number, float(weight), 0, name)
        for number, (name, weight) in enumerate(zip(blend.names, weights, strict=True))
    )
    local = next((each for each in blend.answers if each.varies), None)
    if local is None:
        return Explanation(answer.seen.query_ids[0], True, (), (), shares, remark=_remark(answer))
    found = _explained(local)
    return replace(found, models=shares, remark=_remark(answer) or found.remark)


def _weights_of(model: Model) -> Floats | None:
    """Return the weights of a linear model; None for any other."""
    form = model.form()
    return form.weights if isinstance(form, Linear) else None


def _mixtures(answer: Answer, share: Floats) -> tuple[Floats | None, Floats | None]:
    """Return the effective weights of the global model and of the mixture on the query's documents, scaled to 0 … 1."""
    common, documents = _weights_of(answer.everyone), answer.seen.features
    used = np.flatnonzero(share).tolist()
    own = [_weights_of(answer.local.models()[number]) for number in used]
    if common is None or not len(documents) or any(each is None for each in own):
        return None, None
    if not used:
        return common, common
    alike = LinearModels(common[None, :]).mixture(documents, np.ones(1))
    return alike, LinearModels(np.array(own)).mixture(documents, share[used])


def _model_shares(answer: Answer, weights: Floats) -> tuple[ModelShare, ...]:
    """Return stored models, the largest weight first, if they are few enough to show."""
    if answer.local.stored is None or answer.local.stored.taught is None:
        return ()
    taught = answer.local.stored.taught
    return tuple(
        ModelShare(number, float(weights[number]), int(taught[number]))
        for number in np.argsort(-weights, kind="stable").tolist()
    )


def _neighbours(answer: Answer, move: Floats | None) -> tuple[Neighbour, ...]:
    known = None if answer.place is None else answer.place.known
    if known is None or known.weights is None:
        return ()
    weights = known.weights()[[0]]
    shares = weights.data / weights.data.sum() if weights.nnz else weights.data
    gaps, pulls = known.away(0, weights.indices.astype(np.int64)), _pulls(known, weights, move)
    found = [
        Neighbour(known.query_ids[column], float(share), float(gap), int(known.pairs[column]), float(pull))
        for column, share, gap, pull in zip(weights.indices, shares, gaps, pulls, strict=True)
    ]
    return tuple(sorted(found, key=lambda each: each.distance))


def _pulls(known: TrainingQueries, weights: csr_array, move: Floats | None) -> Floats:
    found = known.gradients()
    if found is None or move is None:
        return np.zeros(weights.nnz)
    gradients, counts = found
    falls = -weights.data * counts[weights.indices] * (gradients[weights.indices] @ move)
    shared: Floats = falls / max(float(np.abs(falls).sum()), np.finfo(np.float64).tiny)
    return shared


def _departures(everyone: Floats, here: Floats, query: Candidates) -> tuple[Departure, ...]:
    spread = query.features.std(axis=0) if len(query.features) else np.zeros(len(here))
    found = [
        Departure(query.feature_label(column), float(everyone[column]), float(here[column]), float(spread[column]))
        for column in range(len(here))
    ]
    smallest = _ROUNDING * float((np.abs(everyone) * spread).max(initial=0.0))
    return tuple(sorted(found, key=lambda each: -abs(each.effect) if abs(each.effect) > smallest else 0.0))
