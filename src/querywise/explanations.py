"""Why a query is ranked as it is, by which queries or models, and why one of its documents is above another."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from querywise.arrays import Floats
from querywise.contributions import answering_models, contributions, linear_weights, name_of
from querywise.data.groups import Candidates
from querywise.errors import DataError, NotFittedError
from querywise.learners.linear import LinearModels
from querywise.neighborhoods import distances
from querywise.rankers.blend import Blend
from querywise.rankers.classes import QueryClasses
from querywise.rankers.clusters import Naive, SelectRanker, Transform
from querywise.rankers.ensemble import SSER
from querywise.rankers.knn import KnnOffline2, KnnOnline, locality_of, training_gradients
from querywise.rankers.nearby import NearbyBlend
from querywise.rankers.normalised import QueryNormalised, normalised

_LOCAL = (KnnOnline, KnnOffline2, QueryClasses, Naive, SelectRanker, Transform, SSER)


@dataclass(frozen=True)
class Neighbour:
    """A training query that counted, how much, and how far it is.

    `pull` is its share in where the model went from the global one: −v·G·(w_q − w₀), the first-order fall of its loss G
    along the way, over the sum of all of these without their signs; below 0 the model went against it. 0 where the
    learner has no gradients.
    """

    query_id: str
    weight: float
    distance: float
    pairs: int
    pull: float = 0.0


@dataclass(frozen=True)
class ModelShare:
    """One of several stored models: how much it counts for a query, and how many training queries it learned from.

    One with fewer than two to learn from stands for the global model. A ranker in a Blend has a name instead.
    """

    model: int
    weight: float
    queries: int
    name: str = ""


@dataclass(frozen=True)
class Departure:
    """A feature, its weight in the global model and in this query's, and how much its values vary among the documents.

    `effect` is the difference of the weights times that spread: how far it can move documents against each other.
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
    """One query: its neighbours, nearest first, and its departures from the global model, largest effect first.

    Where stored models are picked or blended there are no neighbours but `models`, the heaviest first; the weights of a
    blend are those it comes to on this query's documents, and the global ones are brought to the same range there.
    """

    query_id: str
    is_global: bool
    neighbours: tuple[Neighbour, ...]
    departures: tuple[Departure, ...]
    models: tuple[ModelShare, ...] = ()


@dataclass(frozen=True)
class Term:
    """What one feature adds to the distance between two documents' scores.

    `above` and `below` are its values as the model sees them; `everyone` what it adds in the global model, `here` what
    it adds in this query's.
    """

    feature: str
    above: float
    below: float
    everyone: float
    here: float


@dataclass(frozen=True)
class ModelTerm:
    """What one model of a blend adds to the distance between two documents' scores."""

    model: int
    weight: float
    here: float
    name: str = ""


@dataclass(frozen=True)
class Reason:
    """Why one document is above another, term by term: `here` of the terms adds up to `difference`.

    `everyone` is the part the global model would have said by itself; the rest is what this query's own model adds.
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
        """The part that is not the global model's."""
        return self.difference - self.everyone


def depends_on_query(ranker: Any) -> bool:
    """Whether a fitted ranker has more than one model for all queries."""
    if isinstance(ranker, NearbyBlend):
        return ranker.nearest_ is not None or depends_on_query(ranker.blend_)
    if isinstance(ranker, Blend):
        return any(map(depends_on_query, ranker.rankers_))
    return isinstance(ranker.ranker_ if isinstance(ranker, QueryNormalised) else ranker, _LOCAL)


def explain(ranker: Any, candidates: Candidates, query_id: str) -> Explanation:
    """Explain how a fitted ranker of local models answers one of these queries."""
    inside = ranker.ranker_ if isinstance(ranker, QueryNormalised) else ranker
    if not depends_on_query(ranker):
        raise DataError(f"A {type(inside).__name__} has one model for all queries; there is nothing particular to one.")
    query = _the_query(ranker, candidates, query_id)
    return _explained(inside, normalised(query) if isinstance(ranker, QueryNormalised) else query)


def why(ranker: Any, candidates: Candidates, query_id: str, above: str, below: str) -> Reason:
    """Why a fitted ranker has one document of a query above another, exactly: the parts add up to the difference.

    Any order of the two is fine; where `above` is in fact below, the difference is negative.
    """
    query = _the_query(ranker, candidates, query_id)
    if above == below:
        raise DataError(f"Document {above!r} cannot be above itself; name two.")
    first, second = (_row_of(query, name) for name in (above, below))
    parts = contributions(ranker, query)
    everyone, here = (each[first] - each[second] for each in (parts.everyone, parts.here))
    values = parts.seen[[first, second]]
    terms = [
        Term(parts.labels[column], *map(float, (*values[:, column], everyone[column], here[column])))
        for column in np.argsort(-np.abs(here), kind="stable")
    ]
    inside = ranker.ranker_ if isinstance(ranker, QueryNormalised) else ranker
    seen = normalised(query) if isinstance(ranker, QueryNormalised) else query
    explained = _explained(inside, seen) if isinstance(inside, (*_LOCAL, Blend, NearbyBlend)) else None
    apart = parts.models[first] - parts.models[second]
    models = [
        ModelTerm(each.model, each.weight, float(apart[each.model]), each.name)
        for each in (explained.models if explained else ())
        if parts.models.any() and each.weight > 0
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


def as_dict(found: Explanation | Reason) -> dict[str, Any]:
    """As JSON can hold it."""
    if isinstance(found, Reason):
        return {**asdict(found), "local": found.local}
    return {**asdict(found), "departures": [{**asdict(each), "effect": each.effect} for each in found.departures]}


def _the_query(ranker: Any, candidates: Candidates, query_id: str) -> Candidates:
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    if query_id not in candidates.query_ids:
        first = f"The first is {candidates.query_ids[0]!r}." if len(candidates) else "There is none at all."
        raise DataError(f"There is no query {query_id!r} here. {first}")
    candidates.require_features(ranker.feature_count_, ranker.feature_names_)
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


def _explained(ranker: Any, query: Candidates) -> Explanation:
    if isinstance(ranker, NearbyBlend):
        return _of_several(ranker.blend_, query, ranker.model_weights(query)[0])
    if isinstance(ranker, Blend):
        return _of_several(ranker, query, ranker.weights_)
    if isinstance(ranker, (SelectRanker, Transform)):
        return _blended(ranker, query)
    if isinstance(ranker, SSER):
        seen = normalised(query)
        own = ranker.query_weights(query)[0]
        return Explanation(query.query_ids[0], ranker.gamma == 0, (), _departures(ranker.weights_, own, seen))
    model, everyone = answering_models(ranker, query)
    alone = model is everyone
    width = query.features.shape[1]
    common, here = linear_weights(everyone, width), linear_weights(model, width)
    departures = _departures(common, here, query) if common is not None and here is not None else ()
    found = Explanation(query.query_ids[0], alone, (), departures, _one_model(ranker, query))
    if not isinstance(ranker, (KnnOnline, KnnOffline2)):
        return found
    move = here - common if common is not None and here is not None else None
    return replace(found, neighbours=_neighbours(ranker, query, move))


def _of_several(ranker: Blend, query: Candidates, weights: Floats, chosen: int = -1) -> Explanation:
    """What is particular to a query in the first ranker of a blend in which anything is, or in the one chosen."""
    shares = tuple(
        ModelShare(number, float(weight), 0, name_of(each))
        for number, (each, weight) in enumerate(zip(ranker.rankers_, weights, strict=True))
    )
    asked = ranker.rankers_ if chosen < 0 else (ranker.rankers_[chosen],)
    local = next((each for each in asked if depends_on_query(each)), None)
    if local is None:
        return Explanation(query.query_ids[0], chosen < 0, (), (), shares)
    inside = local.ranker_ if isinstance(local, QueryNormalised) else local
    seen = normalised(query) if isinstance(local, QueryNormalised) else query
    found = replace(_explained(inside, seen), models=shares)
    return found if chosen < 0 else replace(found, is_global=False)


def _one_model(ranker: Any, query: Candidates) -> tuple[ModelShare, ...]:
    if isinstance(ranker, Naive):
        chosen = int(ranker.chosen(query)[0])
        others = [number for number in range(len(ranker.groups_.teachers_)) if number != chosen]
        return tuple(
            ModelShare(number, float(number == chosen), int(ranker.groups_.teachers_[number]))
            for number in (chosen, *others)
        )
    return ()


def _blended(ranker: SelectRanker | Transform, query: Candidates) -> Explanation:
    groups, share = ranker.groups_, ranker.model_weights(query)[0]
    shares = tuple(
        ModelShare(int(number), float(share[number]), int(groups.teachers_[number]))
        for number in np.argsort(-share, kind="stable")
    )
    alone = not share.any()
    departures: tuple[Departure, ...] = ()
    if isinstance(groups.models_, LinearModels) and len(query.features):
        common = linear_weights(groups.everyone_, query.features.shape[1])
        assert common is not None
        alike = common if alone else LinearModels(common[None, :]).mixture(query.features, np.ones(1))
        departures = _departures(alike, alike if alone else groups.models_.mixture(query.features, share), query)
    return Explanation(query.query_ids[0], alone, (), departures, shares)


def _neighbours(ranker: Any, query: Candidates, move: Floats | None) -> tuple[Neighbour, ...]:
    locality, weights = locality_of(ranker), ranker.training_queries(query)
    place = np.repeat(locality.points(query), weights.nnz, axis=0)
    gaps = distances(place, locality.points_[weights.indices], locality.metric)
    shares = weights.data / weights.data.sum() if weights.nnz else weights.data
    pulls = _pulls(ranker, weights, move)
    found = [
        Neighbour(locality.query_ids_[column], float(share), float(gap), int(locality.pairs_[column]), float(pull))
        for column, share, gap, pull in zip(weights.indices, shares, gaps, pulls, strict=True)
    ]
    return tuple(sorted(found, key=lambda each: each.distance))


def _pulls(ranker: Any, weights: Any, move: Floats | None) -> Floats:
    gradients = training_gradients(ranker)
    if gradients is None or move is None:
        return np.zeros(weights.nnz)
    pairs = locality_of(ranker).pairs_[weights.indices]
    counted = weights.data * (pairs if ranker.learner.pairs == "pair" else pairs > 0)
    falls = -counted * (gradients[weights.indices] @ move)
    shared: Floats = falls / max(float(np.abs(falls).sum()), np.finfo(np.float64).tiny)
    return shared


def _departures(everyone: Floats, here: Floats, query: Candidates) -> tuple[Departure, ...]:
    spread = query.features.std(axis=0) if len(query.features) else np.zeros(len(here))
    found = [
        Departure(query.feature_label(column), float(everyone[column]), float(here[column]), float(spread[column]))
        for column in range(len(here))
    ]
    return tuple(sorted(found, key=lambda each: -abs(each.effect)))
