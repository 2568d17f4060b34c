"""Where a query lies among the training queries, and which of them are its neighbours."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, vstack

from querywise.arrays import Bools, Floats, Ints
from querywise.contracts import Ranker
from querywise.crew import crew
from querywise.data.groups import Candidates, Judged
from querywise.data.parts import Training
from querywise.errors import DataError
from querywise.neighborhoods import Nearest, Search, distances, measured
from querywise.parameters import unfitted
from querywise.sharing import once
from querywise.views.topmean import TopMean


class Locality:
    """A view, a neighborhood in it, and how far from every training query is too far.

    view: None is TopMean by the single model. back_off: a share of the training queries; a query farther from its
    nearest training query than that share of them is from each other gets the global model. None never backs off.
    """

    def __init__(self, view: Any, neighborhood: Any, back_off: float | None) -> None:
        self.view = view
        self.neighborhood = neighborhood
        self.back_off = back_off

    def fit(self, data: Training, everyone: Ranker, /) -> Self:
        """Place the training queries."""
        if self.back_off is not None and not 0 < self.back_off <= 1:
            raise DataError(f"back_off={self.back_off} must be a share above 0 and up to 1, or None.")
        self.view_ = fitted_view(self.view, data, everyone)
        self.points_ = self._training_points(data)
        self.neighborhood_ = unfitted(self.neighborhood).fit(self.points_)
        self.pairs_ = data.pairs
        self.query_ids_ = data.query_ids
        self.limit_ = np.inf if self.back_off is None else self._limit(self.back_off)
        return self

    def _training_points(self, data: Training) -> Floats:
        return once("points", self.view_, data, lambda: np.asarray(data.by_query(self.view_.points)))

    def _limit(self, share: float) -> float:
        if len(self.points_) < 2:
            return float("inf")
        places = measured(self.points_, self.metric)
        others = Search(places).nearest(places, 2)
        # A query's nearest is itself, or a twin of it; either way the other of the two is its nearest other query.
        other = np.where(others[:, 0] == np.arange(len(others)), others[:, 1], others[:, 0])
        gaps = distances(self.points_, self.points_[other], self.metric)
        return float(np.quantile(gaps, share))

    @property
    def metric(self) -> Any:
        """The neighborhood's way of measuring; the plain distance where it has none."""
        return getattr(self.neighborhood_, "metric", "euclidean")

    def points(self, candidates: Candidates) -> Floats:
        """Where these queries lie."""
        return once("points", self.view_, candidates, lambda: np.asarray(self.view_.points(candidates)))

    def nearest(self, points: Floats, anchors: Search) -> Ints:
        """The nearest of some anchors to each point."""
        return anchors.nearest(measured(points, self.metric), 1)[:, 0]

    def distances(self, points: Floats) -> Floats:
        """How far each point is from the nearest training query."""
        index = self.nearest(points, self.search(self.points_))
        return distances(points, self.points_[index], self.metric)

    def search(self, anchors: Floats) -> Search:
        """Anchors made ready to be searched."""
        return Search(measured(anchors, self.metric))

    def is_far(self, points: Floats) -> Bools:
        """Which points are too far from every training query for any local model to be trusted."""
        if not np.isfinite(self.limit_):
            return np.zeros(len(points), np.bool_)
        return self.distances(points) > self.limit_

    def weights(self, points: Floats) -> csr_array:
        """The neighbours of each point among the training queries."""
        found: csr_array = self.neighborhood_.weights(points)
        return found

    def weights_of_many(self, points: Floats) -> csr_array:
        """The same for so many points that looking for their neighbours is work for a crew."""
        hands = crew()
        blocks = np.array_split(points, hands.parts)
        found = hands.each(_neighbours, blocks, shared=(self.neighborhood_,))
        return found[0] if len(found) == 1 else csr_array(vstack(found))

    def teaches(self, weights: csr_array) -> Bools:
        """Which rows of weights have a query with pairs to learn from."""
        return np.asarray(weights @ (self.pairs_ > 0).astype(np.float64)).ravel() > 0


def _neighbours(points: Floats, neighborhood: Any) -> csr_array:
    found: csr_array = neighborhood.weights(points)
    return found


def fitted_view(view: Any, data: Training, everyone: Ranker) -> Any:
    """A view fitted on the training queries; TopMean goes by the single model where it has no other reference."""
    asked = TopMean() if view is None else view
    ready = asked.by(everyone) if hasattr(asked, "by") else unfitted(asked)
    return once("view", ready, data, lambda: ready.fit(data))


def neighborhood_or_nearest(neighborhood: Any, k: float) -> Any:
    """The neighborhood asked for, or the k nearest."""
    return Nearest(k) if neighborhood is None else neighborhood


def without(weights: csr_array, rows: Bools) -> csr_array:
    """The same weights with some rows emptied."""
    if not rows.any():
        return weights
    keep = np.where(rows, 0.0, 1.0)
    emptied = csr_array(weights.multiply(keep[:, None]))
    emptied.eliminate_zeros()
    return emptied


def local_or_global(candidates: Candidates, local: Bools, score: Any, everyone: Any) -> Floats:
    """Scores of the queries that have a model of their own, and of the others by the global one."""
    scores = np.empty(len(candidates.features))
    by_row = np.repeat(local, candidates.sizes)
    for rows, queries, source in ((by_row, np.flatnonzero(local), score), (~by_row, np.flatnonzero(~local), None)):
        if len(queries):
            part = candidates if len(queries) == len(candidates) else candidates.select(queries)
            scores[rows] = everyone.predict(part) if source is None else source(queries, part)
    return scores


def has_relevant(data: Judged) -> Bools:
    """Which queries have a relevant document."""
    return np.bincount(data.candidates.query_of_row[data.labels > 0], minlength=len(data)) > 0
