"""Why a query is ranked as it is: which queries or models answer it, and how that departs from the global model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from querywise.arrays import Floats
from querywise.data.groups import Candidates
from querywise.errors import DataError
from querywise.learners.linear import LinearModels
from querywise.neighborhoods import distances
from querywise.rankers.clusters import Naive, SelectRanker, Transform
from querywise.rankers.knn import KnnOffline2, KnnOnline, locality_of, models_of
from querywise.rankers.normalised import QueryNormalised, normalised


@dataclass(frozen=True)
class Neighbour:
    """A training query that counted, how much, and how far it is."""

    query_id: str
    weight: float
    distance: float
    pairs: int


@dataclass(frozen=True)
class ModelShare:
    """One of several stored models: how much it counts for a query, and how many training queries it learned from.

    One with fewer than two to learn from stands for the global model.
    """

    model: int
    weight: float
    queries: int


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


def explain(ranker: Any, candidates: Candidates, query_id: str) -> Explanation:
    """Explain how a fitted ranker of local models answers one of these queries."""
    if isinstance(ranker, QueryNormalised):
        return explain(ranker.ranker_, normalised(candidates), query_id)
    if not isinstance(ranker, (KnnOnline, KnnOffline2, Naive, SelectRanker, Transform)):
        raise DataError(f"A {type(ranker).__name__} has one model for all queries; there is nothing particular to one.")
    if query_id not in candidates.query_ids:
        raise DataError(f"There is no query {query_id!r} here. The first is {candidates.query_ids[0]!r}.")
    query = candidates.select([candidates.query_ids.index(query_id)])
    if isinstance(ranker, (Naive, SelectRanker, Transform)):
        return _blended(ranker, query)
    models, index, everyone = models_of(ranker, query)
    weights = ranker.training_queries(query)
    return Explanation(
        query_id,
        bool(index[0] < 0),
        _neighbours(locality_of(ranker), weights, query),
        _picked(models, int(index[0]), everyone, query),
    )


def _blended(ranker: Naive | SelectRanker | Transform, query: Candidates) -> Explanation:
    groups, share = ranker.groups_, ranker.model_weights(query)[0]
    shares = tuple(
        ModelShare(int(number), float(share[number]), int(groups.teachers_[number]))
        for number in np.argsort(-share, kind="stable")
    )
    alone, whole = not share.any(), isinstance(ranker, Naive)
    if alone or whole:
        departures = _picked(groups.models_, -1 if alone else shares[0].model, groups.everyone_, query)
    else:
        departures = _mixed(groups.models_, share, groups.everyone_, query)
    return Explanation(query.query_ids[0], alone, (), departures, shares)


def _neighbours(locality: Any, weights: Any, query: Candidates) -> tuple[Neighbour, ...]:
    place = np.repeat(locality.points(query), weights.nnz, axis=0)
    gaps = distances(place, locality.points_[weights.indices], locality.metric)
    shares = weights.data / weights.data.sum() if weights.nnz else weights.data
    found = [
        Neighbour(locality.query_ids_[column], float(share), float(gap), int(locality.pairs_[column]))
        for column, share, gap in zip(weights.indices, shares, gaps, strict=True)
    ]
    return tuple(sorted(found, key=lambda each: each.distance))


def _picked(models: Any, index: int, everyone: Any, query: Candidates) -> tuple[Departure, ...]:
    """Feature by feature, for linear models; other models have no weights to compare."""
    if not isinstance(models, LinearModels):
        return ()
    return _departures(everyone.weights_, everyone.weights_ if index < 0 else models.weights[index], query)


def _mixed(models: Any, share: Floats, everyone: Any, query: Candidates) -> tuple[Departure, ...]:
    if not isinstance(models, LinearModels) or not len(query.features):
        return ()
    alike = LinearModels(everyone.weights_[None, :]).mixture(query.features, np.ones(1))
    return _departures(alike, models.mixture(query.features, share), query)


def _departures(everyone: Floats, here: Floats, query: Candidates) -> tuple[Departure, ...]:
    spread = query.features.std(axis=0) if len(query.features) else np.zeros(len(here))
    found = [
        Departure(query.feature_label(column), float(everyone[column]), float(here[column]), float(spread[column]))
        for column in range(len(here))
    ]
    return tuple(sorted(found, key=lambda each: -abs(each.effect)))
