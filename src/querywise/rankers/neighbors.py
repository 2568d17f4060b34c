"""A query's position among the training queries, and which of them are its neighbours."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, vstack

from querywise.contracts.answers import Place, TrainingQueries
from querywise.contracts.protocols import FollowsRanker, Learner, Metric, Neighborhood, Preparing, QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.labels import StoredWeights
from querywise.data.ordering import by_coordinates
from querywise.data.training import Training
from querywise.errors import DataError
from querywise.locality.neighborhoods import Nearest, Search, distances, measured
from querywise.locality.views.looking import known_to, looked_at, without_vector
from querywise.locality.views.topmean import TopMean
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.parameters import forget_derived, unfitted
from querywise.runtime.stored import Absent, Number, Optional, Several, Text, contents, floats, ints, part
from querywise.runtime.workers import workers

_ROUNDING = 1e-9  # of the size of points: nearer than that they coincide
_rehearsing: ContextVar[bool] = ContextVar("_rehearsing", default=False)


@contextlib.contextmanager
def at_training_queries() -> Iterator[None]:
    """Within the block queries stand where training queries do, so none backs off: what an answer costs at most."""
    before = _rehearsing.set(True)
    try:
        yield
    finally:
        _rehearsing.reset(before)


class Locality:
    """A view, a neighborhood in it, and how far from every training query is too far.

    view: None is TopMean by the single model. back_off: a share of the training queries; a query farther from its
    nearest training query than that share of them is from each other gets the global model. None never backs off.
    """

    stored = contents(
        back_off=Optional(Number(above=0.0, most=1.0)),
        view_=part(QueryView, coordinates="coordinates"),
        points_=floats("queries>0", "coordinates"),
        neighborhood_=part(Neighborhood, queries="queries", coordinates="coordinates"),
        pairs_=ints("queries"),
        query_weights_=Absent(StoredWeights("queries")),
        query_ids_=Several(Text(), "queries"),
        limit_=Number(least=0.0, finite=False),
    )

    def __init__(self, view: QueryView | None, neighborhood: Neighborhood, back_off: float | None) -> None:
        self.view = view
        self.neighborhood = neighborhood
        self.back_off = back_off

    def fit(self, data: Training, everyone: Ranker, /) -> Self:
        """Compute the training queries' positions."""
        if self.back_off is not None and not 0 < self.back_off <= 1:
            raise DataError(f"back_off={self.back_off} must be a share above 0 and up to 1, or None.")
        self.view_ = fitted_view(self.view, data, everyone)
        self.points_ = self._training_points(data)
        forget_derived(self)
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
        return max(float(np.quantile(gaps, share)), self._rounding())

    def _rounding(self) -> float:
        """How far apart points that coincide may seem, since machines add up in different orders."""
        return _ROUNDING * float(np.sqrt(np.einsum("ij,ij->i", self.points_, self.points_).max(initial=0.0)))

    @cached_property
    def farthest(self) -> float:
        """The distance beyond which it backs off. Folders of earlier versions know of no rounding in it."""
        return max(self.limit_, self._rounding())

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
        if _rehearsing.get() and len(self.points_):
            return self.points_[np.linspace(0, len(self.points_) - 1, len(found)).astype(np.int64)]
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

    @cached_property
    def known(self) -> Search:
        """The training queries, ready to be searched."""
        return self.search(self.points_)

    def nearest_known(self, points: Floats) -> Ints:
        """The nearest training query to each point."""
        settings = (self.points_, self.metric)
        return cached("nearest", settings, points, lambda: self.nearest(points, self.known))

    def distances(self, points: Floats, nearest: Ints | None = None) -> Floats:
        """How far each point is from the nearest training query, which is `nearest` where that is known."""
        index = self.nearest_known(points) if nearest is None else nearest
        return distances(self.somewhere(points), self.points_[index], self.metric)

    def is_far(self, points: Floats) -> Bools:
        """Which points are nowhere, or too far from every training query: these use the global model."""
        lost = is_lost(points)
        limit = self.farthest
        return lost | (self.distances(points) > limit) if math.isfinite(limit) else lost

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

    def around(self, points: Floats, *, taught: bool) -> tuple[Ints, csr_array | None] | None:
        """The nearest training query to one point that is somewhere; where `taught`, its neighbours by the same look.

        None of several points, of one that is nowhere, and where its neighbours take a look of their own.
        """
        near = self.neighborhood_
        if len(points) != 1 or math.isnan(points.sum()):
            return None
        if not taught:
            return np.array([self.known.nearest_one(measured(points, self.metric)[0])]), None
        if not (isinstance(near, Nearest) and near.search == "brute"):
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

    @cached_property
    def _teaching(self) -> Bools:
        return self.pairs_ > 0

    def has_pairs(self, weights: csr_array) -> Bools:
        """Which rows of weights have a query with pairs to learn from."""
        teaching = self._teaching[weights.indices]
        teaching &= weights.data > 0
        if weights.shape[0] == 1:
            return np.array([np.count_nonzero(teaching) > 0])
        return np.diff(np.concatenate([[0], np.cumsum(teaching)])[weights.indptr]) > 0


class Surroundings:
    """The positions of some queries among the training queries of a locality, each part computed when it is asked for.

    taught: whether models are trained on their neighbours, which are then found together with the nearest of them.
    """

    # Nothing here refers to an answer: answers, and the models behind them, are freed as soon as they are let go.
    __slots__ = ("_around", "_candidates", "_distances", "_far", "_locality", "_lost", "_nearest", "_points", "_taught")

    def __init__(self, locality: Locality, candidates: Candidates, *, taught: bool = False) -> None:
        self._locality = locality
        self._candidates = candidates
        self._taught = taught
        self._around: tuple[Ints, csr_array | None] | None = None
        self._points: Floats | None = None
        self._nearest: Ints | None = None
        self._distances: Floats | None = None
        self._lost: Bools | None = None
        self._far: Bools | None = None

    def points(self) -> Floats:
        """Where they are; rows of NaN where one is nowhere."""
        if self._points is None:
            self._points = self._locality.points(self._candidates)
            self._around = self._locality.around(self._points, taught=self._taught)
        return self._points

    def nearest(self) -> Ints:
        """The training query nearest to each."""
        if self._nearest is None:
            points = self.points()
            self._nearest = self._locality.nearest_known(points) if self._around is None else self._around[0]
        return self._nearest

    def weights(self) -> csr_array:
        """Their neighbours."""
        points, found = self.points(), self._around
        return self._locality.weights(points) if found is None or found[1] is None else found[1]

    def distances(self) -> Floats:
        """How far each is from its nearest training query."""
        if self._distances is None:
            points, locality, nearest = self.points(), self._locality, self.nearest()
            if self._around is not None:  # one query
                self._distances = distances(points, locality.points_[nearest[0], None], locality.metric)
            else:
                self._distances = distances(locality.somewhere(points), locality.points_[nearest], locality.metric)
        return self._distances

    def lost(self) -> Bools:
        """Which are nowhere."""
        if self._lost is None:
            points = self.points()
            self._lost = is_lost(points) if self._around is None else np.zeros(1, np.bool_)
        return self._lost

    def is_far(self) -> Bools:
        """Which are nowhere, or too far from every training query: these use the global model."""
        if self._far is None:
            limit, lost = self._locality.farthest, self.lost()
            self._far = lost | (self.distances() > limit) if math.isfinite(limit) else lost
        return self._far

    def place(
        self,
        learner: Learner,
        gradients: Callable[[], Floats | None],
        nearest_to_relevant: Callable[[Judged], Ints | None] | None = None,
    ) -> Place:
        """What an answer says of it. gradients: of training queries at the global model, where known."""
        locality, candidates = self._locality, self._candidates

        def known_gradients() -> tuple[Floats, Floats] | None:
            found, pairs = gradients(), locality.pairs_
            per_pair = isinstance(learner, Preparing) and learner.pairs == "pair"
            counts = (pairs if per_pair else pairs > 0) * getattr(locality, "query_weights_", np.ones(1))
            return None if found is None else (found, counts.astype(np.float64))

        return Place(
            lambda: looked_at(locality.view_),
            points=lambda: locality.somewhere(self.points()),
            known=TrainingQueries(
                locality.query_ids_,
                locality.pairs_,
                locality.farthest,
                self.distances,
                self._few,
                self._away,
                known_gradients,
                self.lost,
                self.is_far,
            ),
            nearest_to_relevant=nearest_to_relevant,
            vectorless=lambda: without_vector(candidates, locality.view_),
        )

    def _few(self, count: int) -> Floats:
        found = self.points()
        return self.distances()[:count] if count >= len(found) else self._locality.distances(found[:count])

    def _away(self, query: int, training: Ints) -> Floats:
        place = np.repeat(self.points()[[query]], len(training), axis=0)
        return distances(place, self._locality.points_[training], self._locality.metric)


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
