"""A query's position among the training queries, and its neighbors."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array, vstack

from querywise.contracts.answers import Once, Place, TrainingQueries
from querywise.contracts.protocols import FollowsRanker, Learner, Metric, Neighborhood, Preparing, QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.labels import StoredWeights, joined_weights
from querywise.data.training import Training, by_coordinates
from querywise.errors import DataError
from querywise.locality.neighborhoods import Nearest, Search, distances, lengths, measured
from querywise.locality.views.looking import known_to, looked_at, without_vector
from querywise.locality.views.topmean import TopMean
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.parameters import forget_derived, unfitted
from querywise.runtime.stored import Absent, Number, Optional, Several, Text, contents, floats, ints, part
from querywise.runtime.workers import workers

_ROUNDING = 1e-9  # relative to the size of points: nearer points coincide
_rehearsing: ContextVar[bool] = ContextVar("_rehearsing", default=False)


@contextlib.contextmanager
def at_training_queries() -> Iterator[None]:
    """Place queries at training queries, so that none backs off; used to measure the highest cost of an answer."""
    before = _rehearsing.set(True)
    try:
        yield
    finally:
        _rehearsing.reset(before)


@dataclass(eq=False, repr=False)
class Locality:
    """A view, a neighborhood in it, and the distance from all training queries that is too far.

    Args:
        view: The view; None is TopMean by the single model.
        neighborhood: The neighborhood.
        back_off: A share of the training queries; the global model ranks a query that is farther from its nearest
            training query than this share of them are from theirs. None never backs off.

    """

    view: QueryView | None
    neighborhood: Neighborhood
    back_off: float | None

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

    def fit(self, data: Training, everyone: Ranker, /) -> Self:
        """Compute the training queries' positions."""
        if self.back_off is not None and not 0 < self.back_off <= 1:
            raise DataError(f"back_off={self.back_off} must be a share above 0 and up to 1, or None.")
        self.view_ = fitted_view(self.view, data, everyone)
        view = self.view_
        self.points_ = cached("points", view, data, lambda: np.asarray(data.by_query(view.points)))
        return self._know(data.query_ids, data.pairs, data.query_weights, data)

    def add(self, data: Judged, /) -> Self:
        """Return a copy with more training queries in the same view."""
        other = copy.copy(self)
        other.points_ = np.concatenate([self.points_, np.asarray(self.view_.points(data.candidates))])
        weights = [getattr(self, "query_weights_", None), data.query_weights]
        joined = joined_weights(weights, [len(self.points_), len(data)])
        pairs = np.concatenate([self.pairs_, data.pairs])
        return other._know((*self.query_ids_, *data.query_ids), pairs, joined, other.points_)

    def _know(self, ids: tuple[str, ...], pairs: Ints, weights: Floats | None, of: Training | Floats) -> Self:
        """Learn from the training queries' positions; what is cached belongs to `of`."""
        forget_derived(self)
        self.neighborhood_ = unfitted(self.neighborhood).fit(self.points_)
        self.query_ids_, self.pairs_ = ids, pairs
        if weights is not None:
            self.query_weights_ = weights
        self.limit_ = np.inf if self.back_off is None else self._limit(self.back_off, of)
        self.make_ready()
        return self

    def _limit(self, share: float, of: Training | Floats) -> float:
        """Return the quantile `share` of the training queries' distances to their nearest other one."""
        if len(self.points_) < 2:
            return float("inf")
        gaps = cached("gaps", (self.view_, self.metric), of, self._gaps)
        return max(float(np.quantile(gaps, share)), self._rounding())

    def _rounding(self) -> float:
        """Return how far apart coinciding points may seem because machines sum in different orders."""
        return _ROUNDING * float(np.sqrt(np.einsum("ij,ij->i", self.points_, self.points_).max(initial=0.0)))

    @cached_property
    def farthest(self) -> float:
        """The distance beyond which a query backs off. Models of earlier versions have no rounding margin in it."""
        return max(self.limit_, self._rounding())

    def _gaps(self) -> Floats:
        """Return each training query's distance from the nearest other one."""
        places = measured(self.points_, self.metric)
        others = Search(places).nearest(places, 2)
        # A query's nearest is itself, or a duplicate; either way the second of the two is its nearest other query.
        other = np.where(others[:, 0] == np.arange(len(others)), others[:, 1], others[:, 0])
        return distances(self.points_, self.points_[other], self.metric)

    @property
    def metric(self) -> Metric:
        """The neighborhood's metric; Euclidean if it has none."""
        found: Metric = getattr(self.neighborhood_, "metric", "euclidean")
        return found

    def points(self, candidates: Candidates) -> Floats:
        """Return the positions of these queries; a query that the view cannot place gets a row of NaN."""
        found = cached("points", self.view_, candidates, lambda: np.asarray(self.view_.points(candidates)))
        if _rehearsing.get() and len(self.points_):
            return self.points_[np.linspace(0, len(self.points_) - 1, len(found)).astype(np.int64)]
        known = self._known_of(candidates)
        if known is None or np.count_nonzero(known) == len(known):
            return found
        return np.where(known[:, None], found, np.nan)

    def _known_of(self, candidates: Candidates) -> Bools | None:
        """Return which queries the view can place; without `back_off`, all but those without any vector."""
        table = candidates.queries
        no_vectors = table is not None and table.vectors is not None and not table.vectors.shape[1]
        if self.back_off is None and not (no_vectors and looked_at(self.view_) == ("vector",)):
            return None
        return known_to(self.view_, candidates)

    def somewhere(self, points: Floats) -> Floats:
        """Return the points, with the mean of the training queries for those without a position."""
        if not np.count_nonzero(np.isnan(points)):
            return points
        return np.where(is_lost(points)[:, None], self.points_.mean(axis=0), points)

    def nearest(self, points: Floats, anchors: Search) -> Ints:
        """Return the nearest anchor to each point."""
        return anchors.nearest(measured(self.somewhere(points), self.metric), 1)[:, 0]

    def nearest_known(self, points: Floats) -> Ints:
        """Return the nearest training query to each point."""
        settings = (self.points_, self.metric)
        return cached("nearest", settings, points, lambda: self.nearest(points, self.one.known))

    def distances(self, points: Floats, nearest: Ints | None = None) -> Floats:
        """Return each point's distance from the nearest training query, which is `nearest` if already known."""
        index = self.nearest_known(points) if nearest is None else nearest
        return distances(self.somewhere(points), self.points_[index], self.metric)

    def search(self, anchors: Floats) -> Search:
        """Return anchors prepared for the search."""
        return Search(measured(anchors, self.metric))

    def weights(self, points: Floats) -> csr_array:
        """Return the neighbors of each point among the training queries."""
        found = cached(
            "weights",
            (self.points_, self.neighborhood),
            points,
            lambda: self.neighborhood_.weights(self.somewhere(points)),
        )
        return without(found, is_lost(points))

    def weights_of_many(self, points: Floats) -> csr_array:
        """Return the neighbors of many points, computed by the workers."""
        pool = workers()
        blocks = np.array_split(points, pool.parts)
        found = pool.each(_neighbours, blocks, shared=(self.neighborhood_,))
        return found[0] if len(found) == 1 else csr_array(vstack(found))

    def typical(self, count: int) -> csr_array:
        """Return the neighbors of `count` training queries, spread over all of them."""
        places = by_coordinates(self.points_)[np.linspace(0, len(self.points_) - 1, count).astype(np.int64)]
        return self.weights(self.points_[places])

    def has_pairs(self, weights: csr_array) -> Bools:
        """Return which rows of weights have a query with pairs to learn from."""
        teaching = self.one.teaching[weights.indices]
        teaching &= weights.data > 0
        if weights.shape[0] == 1:
            return np.array([np.count_nonzero(teaching) > 0])
        return np.diff(np.concatenate([[0], np.cumsum(teaching)])[weights.indptr]) > 0

    @cached_property
    def one(self) -> OneQuery:
        """Search for one query at a time."""
        near = self.neighborhood_
        looks = near if isinstance(near, Nearest) and near.search == "brute" else None
        known = self.search(self.points_) if looks is None else looks.index
        return OneQuery(known, looks, self.metric, self.farthest, self.pairs_ > 0)

    def make_ready(self) -> None:
        """Build the search for one query now, so that the first query is not slower than others."""
        _ = self.one

    def around(self, candidates: Candidates, *, taught: bool = False) -> Around:
        """Locate these queries; with `taught`, models are trained on their neighbors, which are searched at once."""
        points = Once(lambda: self.points(candidates))
        weights = Once(lambda: self.weights(points()))
        if len(candidates) == 1:
            found = Once(lambda: self.one.at(self.somewhere(points()), is_lost(points())[0], taught=taught))
            return Around(
                points,
                lambda: found().nearest,
                lambda: weights() if (row := found().weights) is None else row,
                lambda: found().distances,
                lambda: found().lost,
                lambda: found().far,
            )
        nearest, lost = Once(lambda: self.nearest_known(points())), Once(lambda: is_lost(points()))
        gaps, limit = Once(lambda: self.distances(points(), nearest())), self.farthest
        far = Once(lambda: lost() | (gaps() > limit) if math.isfinite(limit) else lost())
        return Around(points, nearest, weights, gaps, lost, far)

    def place(
        self,
        candidates: Candidates,
        around: Around,
        learner: Learner,
        gradients: Callable[[], Floats | None],
        *,
        weights: Callable[[], csr_array] | None,
        nearest_to_relevant: Callable[[Judged], Ints | None] | None = None,
    ) -> Place:
        """Return the place for an answer's facts; `gradients` are of training queries at the global model, if known."""

        def known_gradients() -> tuple[Floats, Floats] | None:
            found, pairs = gradients(), self.pairs_
            per_pair = isinstance(learner, Preparing) and learner.pairs == "pair"
            counts = (pairs if per_pair else pairs > 0) * getattr(self, "query_weights_", np.ones(1))
            return None if found is None else (found, counts.astype(np.float64))

        def few(count: int) -> Floats:
            whole = count >= len(candidates)
            return around.distances() if whole else self.distances(around.points()[:count])

        def away(query: int, training: Ints) -> Floats:
            place = np.repeat(around.points()[[query]], len(training), axis=0)
            return distances(place, self.points_[training], self.metric)

        return Place(
            lambda: looked_at(self.view_),
            points=lambda: self.somewhere(around.points()),
            known=TrainingQueries(
                self.query_ids_,
                self.pairs_,
                self.farthest,
                around.distances,
                few,
                away,
                known_gradients,
                around.lost,
                around.far,
                weights,
            ),
            nearest_to_relevant=nearest_to_relevant,
            vectorless=lambda: without_vector(candidates, self.view_),
        )


class Around(NamedTuple):
    """Positions of queries among the training queries of a locality. Each part is computed on first use.

    Attributes:
        points: The positions; rows of NaN for queries without one.
        nearest: The training query nearest to each.
        weights: The weights of each one's neighbors.
        distances: The distance from the nearest training query.
        lost: Queries without a position.
        far: Queries without a position, or too far from all training queries: these use the global model.

    """

    points: Callable[[], Floats]
    nearest: Callable[[], Ints]
    weights: Callable[[], csr_array]
    distances: Callable[[], Floats]
    lost: Callable[[], Bools]
    far: Callable[[], Bools]


class NearestQueries(NamedTuple):
    """The neighborhood of one query, each value an array of length one; `weights` is None if not computed."""

    nearest: Ints
    weights: csr_array | None
    distances: Floats
    lost: Bools
    far: Bools


class OneQuery(NamedTuple):
    """The search around one query: what is the same for all queries, built once when a ranker is fitted or loaded.

    Results equal those of Locality, which searches for many queries at once, to the last bit. It needs one pass over
    the training queries instead of two.

    Attributes:
        known: The training queries, ready to be searched.
        looks: The k nearest, if one pass finds them together with the nearest one.
        limit: The distance beyond which a query is too far away.
        teaching: Which training queries have pairs.

    """

    known: Search
    looks: Nearest | None
    metric: Metric
    limit: float
    teaching: Bools

    def at(self, point: Floats, lost: bool, *, taught: bool) -> NearestQueries:
        """Locate one point, given as a row; if `taught`, also compute the weights of its neighbors.

        A `lost` query has no position in the view, so it gets no neighbors.
        """
        place, weights = measured(point, self.metric), None
        if taught and self.looks is not None and not lost:
            first, neighbours = self.looks.around(point[0])
            weights = self.looks.row(neighbours)
        else:
            first = self.known.nearest_one(place[0])
        gaps = lengths(place - self.known.points[first])
        return NearestQueries(
            np.array([first]), weights, gaps, np.array([lost]), np.array([lost or gaps[0] > self.limit])
        )


def _neighbours(points: Floats, neighborhood: Neighborhood) -> csr_array:
    return neighborhood.weights(points)


def fitted_view(view: QueryView | None, data: Training, everyone: Ranker) -> QueryView:
    """Return a view fitted on the training queries; TopMean's default reference is the single model."""
    asked = TopMean() if view is None else view
    ready = asked.by(everyone) if isinstance(asked, FollowsRanker) else unfitted(asked)
    taken: Any = data  # only views that KnnOffline2.takes_parts allows get shards
    return cached("view", ready, data, lambda: ready.fit(taken))


def is_lost(points: Floats) -> Bools:
    """Return which rows are queries without a position."""
    if len(points) == 1:
        return np.array([np.count_nonzero(np.isnan(points)) > 0])
    return np.asarray(np.isnan(points).any(axis=1))


def neighborhood_or_nearest(neighborhood: Neighborhood | None, k: float) -> Neighborhood:
    """Return the given neighborhood, or the k nearest."""
    return Nearest(k) if neighborhood is None else neighborhood


def without(weights: csr_array, rows: Bools) -> csr_array:
    """Return the weights with some rows set to 0."""
    if not np.count_nonzero(rows):
        return weights
    kept = np.repeat(~rows, np.diff(weights.indptr)) & (weights.data != 0)
    ends = np.concatenate([[0], np.cumsum(kept)])[weights.indptr]
    return csr_array((weights.data[kept], weights.indices[kept], ends), shape=weights.shape)


def has_relevant(data: Judged) -> Bools:
    """Return which queries have a relevant document."""
    return np.bincount(data.candidates.query_of_row[data.labels > 0], minlength=len(data)) > 0
