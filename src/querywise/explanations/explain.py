"""Why a query is ranked as it is, by which queries or models, and why one of its documents is above another."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.answers import Answer, Model, TrainingQueries, nobody
from querywise.contracts.forms import Linear
from querywise.contracts.missing import missing_for
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates
from querywise.errors import DataError, NotFittedError
from querywise.explanations.contributions import contributions_in
from querywise.explanations.explained import Departure, Explanation, ModelShare, ModelTerm, Neighbour, Reason, Term
from querywise.learners.linear import LinearModels
from querywise.runtime.arrays import Floats
from querywise.runtime.values import JsonObject

_ROUNDING = 1e-12  # of the largest effect of a weight: a departure below it is none


def depends_on_query(ranker: Ranker) -> bool:
    """Whether a fitted ranker has more than one model for all queries."""
    return ranker.answer(nobody(ranker.feature_count_, ranker.feature_names_)).varies


def explain(ranker: Ranker, candidates: Candidates, query_id: str) -> Explanation:
    """Explain how a fitted ranker of local models scores one of these queries.

    ranker: a fitted ranker that has a model per query, class or cluster, or a blend of rankers.
    candidates: the documents of one or more queries.
    query_id: the query.

    Returns: an Explanation: the training queries or the models behind the query's own, and by which features that
    differs from the global model.

    Refused: with DataError, a ranker of one model for all queries, and a query that is not there; with NotFittedError,
    a ranker that is not fitted.

    >>> from querywise import KnnOnline, RankSVM, explain, make_judged, split
    >>> train, valid, test = split(make_judged(40, 10, 4, kinds=2))
    >>> ranker = KnnOnline(RankSVM(), k=5, back_off=None).fit(train)
    >>> found = explain(ranker, test.candidates, test.query_ids[0])
    >>> found.is_global, len(found.neighbours), len(found.departures)
    (False, 5, 4)
    """
    answer = ranker.answer(_the_query(ranker, candidates, query_id))
    if not answer.varies:
        raise DataError(f"A {type(ranker).__name__} has one model for all queries; there is nothing particular to one.")
    return _explained(answer)


def why(ranker: Ranker, candidates: Candidates, query_id: str, above: str, below: str) -> Reason:
    """Why a fitted ranker has one document of a query above another, exactly: the parts add up to the difference.

    ranker: a fitted ranker whose scores are sums: linear, trees, and local models or blends of them.
    candidates: the documents of one or more queries.
    query_id: the query.
    above, below: the two documents by their ids, or by their rows within the query, counted from 1, where they have
    none. Any order of the two is fine; where `above` is in fact below, the difference is negative.

    Returns: a Reason: `.difference` of the scores, and `.terms`, what each feature adds to it, the largest first.

    Refused: with DataError, a query or document that is not there, twice the same, and scores that are no sum.

    >>> from querywise import RankSVM, make_judged, why
    >>> data = make_judged(20, 10, 3)
    >>> found = why(RankSVM().fit(data), data.candidates, "q1", above="1", below="2")
    >>> len(found.terms), bool(abs(sum(term.here for term in found.terms) - found.difference) < 1e-9)
    (3, True)
    """
    query = _the_query(ranker, candidates, query_id)
    if above == below:
        raise DataError(f"Document {above!r} cannot be above itself; name two.")
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
    """As JSON can hold it."""
    if isinstance(found, Reason):
        return {**asdict(found), "local": found.local}
    content = {**asdict(found), "departures": [{**asdict(each), "effect": each.effect} for each in found.departures]}
    return {name: value for name, value in content.items() if value or name not in ("note", "remark")}


def _the_query(ranker: Ranker, candidates: Candidates, query_id: str) -> Candidates:
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    if query_id not in candidates.query_ids:
        first = f"The first is {candidates.query_ids[0]!r}." if len(candidates) else "There is none at all."
        raise DataError(f"There is no query {query_id!r} here. {first}")
    missing = missing_for(ranker)
    candidates.require_features(ranker.feature_count_, ranker.feature_names_, missing=missing)
    query = candidates.select([candidates.query_ids.index(query_id)])
    return replace(query, feature_names=query.feature_names or ranker.feature_names_)


def _row_of(query: Candidates, document: str) -> int:
    """A document by its id, or by the number of its row in the query, from 1, where it has none."""
    labels = [query.document_label(row) for row in range(len(query.features))]
    if document not in labels:
        some = f"There are {', '.join(labels[:3])}{' …' if len(labels) > 3 else ''}" if labels else "It has none"
        raise DataError(f"Query {query.query_ids[0]!r} has no document {document!r}. {some}.")
    if labels.count(document) > 1:
        raise DataError(f"Query {query.query_ids[0]!r} has document {document!r} {labels.count(document)} times.")
    return labels.index(document)


def _explained(answer: Answer) -> Explanation:
    """What is particular to the one query of an answer that varies, or of a blend."""
    if answer.members:
        return _of_members(answer)
    name, shares = answer.seen.query_ids[0], answer.shares()[[0]]
    weights: Floats = shares.toarray()[0]
    if answer.scale == "range":
        alone, (common, here) = shares.nnz == 0, _mixtures(answer, weights)
    else:
        model = answer.answering(0)
        alone, common, here = model is answer.everyone, _weights_of(answer.everyone), _weights_of(model)
    departures: tuple[Departure, ...] = ()
    move: Floats | None = None
    if common is not None and here is not None:
        departures, move = _departures(common, here, answer.seen), here - common
    return Explanation(
        name,
        alone,
        _neighbours(answer, move),
        departures,
        _model_shares(answer, weights),
        _note(answer),
        _remark(answer),
    )


_LACKING = {
    "vector": "it has no vector",
    "text": "the training queries have none of its words",
    "documents": "none of its documents has a feature other than 0",
}


def _note(answer: Answer) -> str:
    """Why the one query of an answer backs off to the global model; nothing if it does not."""
    place = answer.place
    if place is None or place.known is None or not place.known.far()[0]:
        return ""
    if place.known.lost()[0]:
        return ", and ".join(_LACKING[each] for each in place.by() if each in _LACKING)
    distance, limit = float(place.known.distances()[0]), place.known.limit
    return f"the nearest training query is {distance:.4g} away, and beyond {limit:.4g} this model backs off"


def _remark(answer: Answer) -> str:
    """That a vector is missing and the mean is used in its place; nothing otherwise."""
    place = answer.place
    if place is None or place.vectorless is None or not place.vectorless()[0] or _note(answer):
        return ""
    return "it has no vector, so the mean of the training queries' vectors is used in its place"


def _of_members(answer: Answer) -> Explanation:
    """What is particular to a query in the first ranker of a blend that varies by query."""
    weights = answer.shares()[[0]].toarray()[0]
    shares = tuple(
        ModelShare(number, float(weight), 0, name)
        for number, (name, weight) in enumerate(zip(answer.names, weights, strict=True))
    )
    local = next((each for each in answer.members if each.varies), None)
    if local is None:
        return Explanation(answer.seen.query_ids[0], True, (), (), shares, remark=_remark(answer))
    found = _explained(local)
    return replace(found, models=shares, remark=_remark(answer) or found.remark)


def _weights_of(model: Model) -> Floats | None:
    """The weights of a linear model; None of any other."""
    form = model.form()
    return form.weights if isinstance(form, Linear) else None


def _mixtures(answer: Answer, share: Floats) -> tuple[Floats | None, Floats | None]:
    """The effective weights of the global model and of the mixture on the query's documents, each scaled to 0 … 1."""
    common, documents = _weights_of(answer.everyone), answer.seen.features
    used = np.flatnonzero(share).tolist()
    own = [_weights_of(answer.models()[number]) for number in used]
    if common is None or not len(documents) or any(each is None for each in own):
        return None, None
    if not used:
        return common, common
    alike = LinearModels(common[None, :]).mixture(documents, np.ones(1))
    return alike, LinearModels(np.array(own)).mixture(documents, share[used])


def _model_shares(answer: Answer, weights: Floats) -> tuple[ModelShare, ...]:
    """Stored models, the largest weight first, where they are few enough to show."""
    if answer.stored is None or answer.stored.taught is None:
        return ()
    taught = answer.stored.taught
    return tuple(
        ModelShare(number, float(weights[number]), int(taught[number]))
        for number in np.argsort(-weights, kind="stable").tolist()
    )


def _neighbours(answer: Answer, move: Floats | None) -> tuple[Neighbour, ...]:
    known = None if answer.place is None else answer.place.known
    if known is None or answer.teachers is None:
        return ()
    weights = answer.teachers()[[0]]
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
