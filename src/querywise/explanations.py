"""Why a query is ranked as it is: which training queries shaped its model, and how it departs from the global one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from querywise.arrays import Floats
from querywise.data.groups import Candidates
from querywise.errors import DataError
from querywise.learners.linear import LinearModels
from querywise.neighborhoods import distances
from querywise.rankers.knn import KnnOffline1, KnnOffline2, KnnOnline, locality_of, models_of
from querywise.rankers.normalised import QueryNormalised, normalised


@dataclass(frozen=True)
class Neighbour:
    """A training query that counted, how much, and how far it is."""

    query_id: str
    weight: float
    distance: float
    pairs: int


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
    """One query: its neighbours, nearest first, and its departures from the global model, largest effect first."""

    query_id: str
    is_global: bool
    neighbours: tuple[Neighbour, ...]
    departures: tuple[Departure, ...]


def explain(ranker: Any, candidates: Candidates, query_id: str) -> Explanation:
    """Explain how a fitted KNN ranker answers one of these queries."""
    if isinstance(ranker, QueryNormalised):
        return explain(ranker.ranker_, normalised(candidates), query_id)
    if not isinstance(ranker, (KnnOnline, KnnOffline1, KnnOffline2)):
        raise DataError(f"A {type(ranker).__name__} has one model for all queries; there is nothing particular to one.")
    if query_id not in candidates.query_ids:
        raise DataError(f"There is no query {query_id!r} here. The first is {candidates.query_ids[0]!r}.")
    query = candidates.select([candidates.query_ids.index(query_id)])
    models, index, everyone = models_of(ranker, query)
    weights = ranker.training_queries(query)
    return Explanation(
        query_id,
        bool(index[0] < 0),
        _neighbours(locality_of(ranker), weights, query),
        _departures(models, int(index[0]), everyone, query),
    )


def _neighbours(locality: Any, weights: Any, query: Candidates) -> tuple[Neighbour, ...]:
    place = np.repeat(locality.points(query), weights.nnz, axis=0)
    gaps = distances(place, locality.points_[weights.indices], locality.metric)
    shares = weights.data / weights.data.sum() if weights.nnz else weights.data
    found = [
        Neighbour(locality.query_ids_[column], float(share), float(gap), int(locality.pairs_[column]))
        for column, share, gap in zip(weights.indices, shares, gaps, strict=True)
    ]
    return tuple(sorted(found, key=lambda each: each.distance))


def _departures(models: Any, index: int, everyone: Any, query: Candidates) -> tuple[Departure, ...]:
    """Feature by feature, for linear models; other models have no weights to compare."""
    if not isinstance(models, LinearModels):
        return ()
    here: Floats = everyone.weights_ if index < 0 else models.weights[index]
    spread = query.features.std(axis=0) if len(query.features) else np.zeros(len(here))
    found = [
        Departure(
            query.feature_label(column), float(everyone.weights_[column]), float(here[column]), float(spread[column])
        )
        for column in range(len(here))
    ]
    return tuple(sorted(found, key=lambda each: -abs(each.effect)))
