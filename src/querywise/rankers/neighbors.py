"""A query's position among the training queries, and which of them are its neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, vstack

from querywise.contracts.answers import Once, Place, TrainingQueries
from querywise.contracts.protocols import FollowsRanker, Learner, Metric, Neighborhood, Preparing, QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.ordering import by_coordinates
from querywise.data.training import Training
from querywise.errors import DataError
from querywise.locality.neighborhoods import Nearest, Search, distances, measured
from querywise.locality.views.looking import known_to, looked_at, without_vector
from querywise.locality.views.topmean import TopMean
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.parameters import unfitted
from querywise.runtime.workers import workers

_ROUNDING = 1e-9  # of the size of points: nearer than that they coincide


class Locality:
    """A view, a neighborhood in it, and how far from every training query is too far.

    view: None is TopMean by the single model. back_off: a share of the training queries; a query farther from its
    nearest training query than that share of them is from each other gets the global model. None never backs off.
    """

    def __init__(self, view: QueryView | None, neighborhood: Neighborhood, back_off: float | None) -> None:
        self.view = view
        self.neighborhood = neighborhood
        self.back_off = back_off
        self._known: Search | None = None
        self._all_teach: bool | None = None

    def fit(self, data: Training, everyone: Ranker, /) -> Self:
        """Compute the training queries' positions."""
        if self.back_off is not None and not 0 < self.back_off <= 1:
            raise DataError(f"back_off={self.back_off} must be a share above 0 and up to 1, or None.")
        self.view_ = fitted_view(self.view, data, everyone)
        self.points_ = self._training_points(data)
        self._known = self._all_teach = None
        self.neighborhood_ = unfitted(self.neighborhood).fit(self.points_)
        self.pairs_ = data.pairs
        if data.query_weights is not None:
            self.query_weights_ = data.query_weights
        self.query_ids_ = data.query_ids
        self.limit_ = np.inf if self.back_off is None else self._limit(self.back_off, data)
        return self

    def _training_points(self, data: Training) -> Floats:
        return cached("points", self.view_, data, lambda: np.asarray(data.by_query(self.view_.points)))

    def _limit(self, share: float, data: Training) -> float:
        """The distance that this share of the training queries have at most from the nearest other one."""
        if len(self.points_) < 2:
            return float("inf")
        gaps = cached("gaps", (self.view_, self.metric), data, self._gaps)
        size = float(np.sqrt(np.einsum("ij,ij->i", self.points_, self.points_).max(initial=0.0)))
        return max(float(np.quantile(gaps, share)), _ROUNDING * size)

    def _gaps(self) -> Floats:
        """How far each training query is from the nearest other one."""
        places = measured(self.points_, self.metric)
        others = Search(places).nearest(places, 2)
        # A query's nearest is itself, or a duplicate; either way the second of the two is its nearest other query.
        other = np.where(others[:, 0] == np.arange(len(others)), others[:, 1], others[:, 0])
        return distances(self.points_, self.points_[other], self.metric)

    @property
    def metric(self) -> Metric:
        """The neighborhood's metric; Euclidean where it has none."""
        found: Metric = getattr(self.neighborhood_, "metric", "euclidean")
        return found

    def points(self, candidates: Candidates) -> Floats:
        """The positions of these queries; a row of NaN where one has none, because the view knows nothing of it."""
        found = cached("points", self.view_, candidates, lambda: np.asarray(self.view_.points(candidates)))
        known = self._known_of(candidates)
        if known is None or np.count_nonzero(known) == len(known):
            return found
        return np.where(known[:, None], found, np.nan)

    def _known_of(self, candidates: Candidates) -> Bools | None:
        """Which queries the view knows something of; without `back_off`, all but those that came without any vector."""
        table = candidates.queries
        no_vectors = table is not None and table.vectors is not None and not table.vectors.shape[1]
        if self.back_off is None and not (no_vectors and looked_at(self.view_) == ("vector",)):
            return None
        return known_to(self.view_, candidates)

    def somewhere(self, points: Floats) -> Floats:
        """The same points, those of queries without a position at the mean of the training queries."""
        if not np.count_nonzero(np.isnan(points)):
            return points
        return np.where(is_lost(points)[:, None], self.points_.mean(axis=0), points)

    def nearest(self, points: Floats, anchors: Search) -> Ints:
        """The nearest of some anchors to each point."""
        return anchors.nearest(measured(self.somewhere(points), self.metric), 1)[:, 0]

    def known(self) -> Search:
        """The training queries, ready to be searched."""
        if self._known is None:
            self._known = self.search(self.points_)
        return self._known

    def nearest_known(self, points: Floats) -> Ints:
        """The nearest training query to each point."""
        settings = (self.points_, self.metric)
        return cached("nearest", settings, points, lambda: self.nearest(points, self.known()))

    def distances(self, points: Floats, nearest: Ints | None = None) -> Floats:
        """How far each point is from the nearest training query, which is `nearest` where that is known."""
        index = self.nearest_known(points) if nearest is None else nearest
        return distances(self.somewhere(points), self.points_[index], self.metric)

    def is_far(self, points: Floats) -> Bools:
        """Which points are nowhere, or too far from every training query: these use the global model."""
        lost = is_lost(points)
        return lost if not np.isfinite(self.limit_) else lost | (self.distances(points) > self.limit_)

    def search(self, anchors: Floats) -> Search:
        """Anchors prepared for the search."""
        return Search(measured(anchors, self.metric))

    def weights(self, points: Floats) -> csr_array:
        """The neighbours of each point among the training queries."""
        found = cached(
            "weights",
            (self.points_, self.neighborhood),
            points,
            lambda: self.neighborhood_.weights(self.somewhere(points)),
        )
        return without(found, is_lost(points))

    def around(self, points: Floats) -> tuple[Ints, csr_array] | None:
        """The nearest training query to one point, and its neighbours, by one look; None where it takes two."""
        near = self.neighborhood_
        if len(points) != 1 or not (isinstance(near, Nearest) and near.search == "brute") or math.isnan(points.sum()):
            return None
        nearest, found = near.around(points[0])
        return np.array([nearest]), near.row(found)

    def weights_of_many(self, points: Floats) -> csr_array:
        """The same for many points, split over the workers."""
        pool = workers()
        blocks = np.array_split(points, pool.parts)
        found = pool.each(_neighbours, blocks, shared=(self.neighborhood_,))
        return found[0] if len(found) == 1 else csr_array(vstack(found))

    def typical(self, count: int) -> csr_array:
        """The neighbours of so many training queries, spread over all of them."""
        places = by_coordinates(self.points_)[np.linspace(0, len(self.points_) - 1, count).astype(np.int64)]
        return self.weights(self.points_[places])

    def has_pairs(self, weights: csr_array) -> Bools:
        """Which rows of weights have a query with pairs to learn from."""
        if self._all_teach is None:
            self._all_teach = bool((self.pairs_ > 0).all())
        if self._all_teach and weights.shape[0] == 1:
            return np.array([weights.data.any()])
        teaching = (self.pairs_[weights.indices] > 0) & (weights.data > 0)
        if weights.shape[0] == 1:
            return np.array([np.count_nonzero(teaching) > 0])
        return np.diff(np.concatenate([[0], np.cumsum(teaching)])[weights.indptr]) > 0


class Surroundings:
    """The positions of some queries among the training queries of a locality.

    taught: whether models are trained on their neighbours, which are then found together with the nearest of them.
    """

    def __init__(
        self,
        locality: Locality,
        candidates: Candidates,
        learner: Learner,
        gradients: Callable[[], Floats | None],
        nearest_to_relevant: Callable[[Judged], Ints | None] | None = None,
        *,
        taught: bool = False,
    ) -> None:
        # Nothing here refers to this object itself: answers, and the models behind them, are freed as soon as they are
        # let go.
        points = self.points = Once(lambda: locality.points(candidates))
        around = Once(lambda: locality.around(points()) if taught else None)
        nearest = self.nearest = Once(
            lambda: locality.nearest_known(points()) if (both := around()) is None else both[0]
        )
        self.weights = Once(lambda: locality.weights(points()) if (both := around()) is None else both[1])
        measured = self.distances = Once(lambda: locality.distances(points(), nearest()))

        def few(count: int) -> Floats:
            found = points()
            return measured()[:count] if count >= len(found) else locality.distances(found[:count])

        lost = Once(lambda: is_lost(points()) if around() is None else np.zeros(1, np.bool_))

        @Once
        def far() -> Bools:
            return lost() | (measured() > locality.limit_) if math.isfinite(locality.limit_) else lost()

        def away(query: int, training: Ints) -> Floats:
            place = np.repeat(points()[[query]], len(training), axis=0)
            return distances(place, locality.points_[training], locality.metric)

        def known_gradients() -> tuple[Floats, Floats] | None:
            found, pairs = gradients(), locality.pairs_
            per_pair = isinstance(learner, Preparing) and learner.pairs == "pair"
            counts = (pairs if per_pair else pairs > 0) * getattr(locality, "query_weights_", np.ones(1))
            return None if found is None else (found, counts.astype(np.float64))

        known = TrainingQueries(
            locality.query_ids_, locality.pairs_, locality.limit_, measured, few, away, known_gradients, lost, far
        )
        self.is_far = far
        self.place = Place(
            lambda: looked_at(locality.view_),
            points=Once(lambda: locality.somewhere(points())),
            known=known,
            nearest_to_relevant=nearest_to_relevant,
            vectorless=lambda: without_vector(candidates, locality.view_),
        )


def _neighbours(points: Floats, neighborhood: Neighborhood) -> csr_array:
    return neighborhood.weights(points)


def fitted_view(view: QueryView | None, data: Training, everyone: Ranker) -> QueryView:
    """A view fitted on the training queries; TopMean's default reference is the single model."""
    asked = TopMean() if view is None else view
    ready = asked.by(everyone) if isinstance(asked, FollowsRanker) else unfitted(asked)
    taken: Any = data  # only the views that KnnOffline2.takes_parts allows get data in parts
    return cached("view", ready, data, lambda: ready.fit(taken))


def is_lost(points: Floats) -> Bools:
    """Which rows are those of queries without a position."""
    if len(points) == 1:
        return np.array([np.count_nonzero(np.isnan(points)) > 0])
    return np.asarray(np.isnan(points).any(axis=1))


def neighborhood_or_nearest(neighborhood: Neighborhood | None, k: float) -> Neighborhood:
    """The neighborhood asked for, or the k nearest."""
    return Nearest(k) if neighborhood is None else neighborhood


def without(weights: csr_array, rows: Bools) -> csr_array:
    """The same weights with some rows emptied."""
    if not np.count_nonzero(rows):
        return weights
    kept = np.repeat(~rows, np.diff(weights.indptr)) & (weights.data != 0)
    ends = np.concatenate([[0], np.cumsum(kept)])[weights.indptr]
    return csr_array((weights.data[kept], weights.indices[kept], ends), shape=weights.shape)


def has_relevant(data: Judged) -> Bools:
    """Which queries have a relevant document."""
    return np.bincount(data.candidates.query_of_row[data.labels > 0], minlength=len(data)) > 0
