"""Neighborhoods: the training queries that count for a query: all, the k nearest, or those within a radius.

Search is exact. Distances are computed in blocks by the expansion ‖a‖² + ‖b‖² − 2a·b; wherever its rounding could
change the neighbors, they are computed again as ‖a − b‖. Training queries that tie at rank k share the
remaining weight equally; where one point must be chosen, it is the first by its coordinates. Neither depends on the
order of the training queries.
"""

from __future__ import annotations

import copy
import math
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.estimators import Estimator
from querywise.contracts.protocols import Metric
from querywise.errors import DataError, NotFittedError
from querywise.locality.coarse import Coarse, closest, least_gaps, look_around
from querywise.runtime.arrays import Floats, Ints, for_kernels, sums_of_products
from querywise.runtime.parameters import forget_derived, number_of
from querywise.runtime.stored import Whole, contents, floats
from querywise.runtime.threads import in_threads

Algorithm = Literal["brute", "kd_tree", "ball_tree"]

_BLOCK = 4_000_000  # distances in memory at a time, in each thread
_TIED = 1e-12  # of a distance: smaller differences are rounding errors
_LARGE = 200_000  # coordinates of all points from which a first pass in eight bits saves time
_ALL = np.zeros(0, np.int64)  # for `closest`: no rows are all rows
_ALIKE = 9  # digits, in units of the distance, to which coordinates of equally distant points are compared


class Everyone(Estimator):
    """All training queries, equally weighted: the global model."""

    stored = contents(count_=Whole(1, size="queries"))

    def fit(self, points: Floats, /) -> Self:
        """Remember the number of training queries."""
        self.count_ = len(points)
        return self

    def weights(self, points: Floats, /) -> csr_array:
        """Return a row of ones for every query."""
        if not hasattr(self, "count_"):
            raise NotFittedError(self)
        return csr_array(np.ones((len(points), self.count_)))


@dataclass(eq=False, repr=False)
class Nearest(Estimator):
    """The k nearest training queries, equally weighted; ties at rank k share its weight.

    Args:
        k: their number or, between 0 and 1, their share.
        metric: the distance between queries.
        search: `brute` is exact and fast up to tens of thousands of queries; `kd_tree` and `ball_tree` are
            scikit-learn's.
    """

    k: float = 50
    _: KW_ONLY
    metric: Metric = "euclidean"
    search: Algorithm = "brute"

    stored = contents(points_=floats("queries", "coordinates"), count_=Whole(1, "queries"))

    def fit(self, points: Floats, /) -> Self:
        """Remember the training queries' points."""
        self.count_ = number_of(self.k, len(points), "Nearest(k=…)")
        self.points_ = measured(points, self.metric)
        if self.search not in ("brute", "kd_tree", "ball_tree"):
            raise DataError(f"Nearest(search={self.search!r}) is unknown. Known: brute, kd_tree, ball_tree.")
        forget_derived(self)
        return self

    def weights(self, points: Floats, /) -> csr_array:
        """Return 1 for each of the k nearest; those that tie at the k-th place share the rest equally."""
        if not hasattr(self, "points_"):
            raise NotFittedError(self)
        places = measured(points, self.metric)
        if self.search != "brute":
            _require_near(np.einsum("ij,ij->i", places, places))
            return _rows(*self._by_tree(places), len(self.points_))
        if len(places) == 1:
            return self.row(self.index.around(places[0], self.count_)[1])
        return _rows(*self.index.among_nearest(places, self.count_), len(self.points_))

    def around(self, point: Floats) -> tuple[int, Shared]:
        """Return the nearest training query and the neighbor weights of one point, in one pass."""
        if self.search != "brute":
            raise DataError(f"Nearest(search={self.search!r}) searches in batches only; around needs search='brute'.")
        return self.index.around(measured(point[None, :], self.metric)[0], self.count_)

    def row(self, found: Shared) -> csr_array:
        """Return the neighbors of one point, as a row of weights."""
        row: Any = copy.copy(self._nobody)  # creating one takes as long as finding the neighbors
        row.data, row.indices, row.indptr = found.weights, found.columns, np.array([0, len(found.columns)])
        made: csr_array = row
        return made

    @cached_property
    def _nobody(self) -> csr_array:
        return csr_array((1, len(self.points_)))

    @cached_property
    def index(self) -> Search:
        """The training queries, ready to be searched."""
        return Search(self.points_)

    @cached_property
    def _tree(self) -> Any:
        from sklearn.neighbors import BallTree, KDTree

        return (KDTree if self.search == "kd_tree" else BallTree)(self.points_)

    def _by_tree(self, places: Floats) -> tuple[Ints, dict[int, Shared]]:
        """Find what `Search.among_nearest` finds, by a tree; rows with a tie at the k-th place by Search."""
        k, more = self.count_, min(self.count_ + 1, len(self.points_))
        if not len(places):
            return np.zeros((0, k), np.int64), {}
        gaps, found = self._tree.query(places, k=more)
        near = np.sort(found[:, :k].astype(np.int64), axis=1)
        if more == k:
            return near, {}
        tied = np.flatnonzero(gaps[:, k] <= gaps[:, k - 1] * (1 + 10 * _TIED))
        again, shared = self.index.among_nearest(places[tied], k) if len(tied) else (near[:0], {})
        near[tied] = again
        return near, {int(tied[row]): each for row, each in shared.items()}


@dataclass(eq=False, repr=False)
class Radius(Estimator):
    """All training queries within a distance; if there are none, the global model is used."""

    radius: float
    _: KW_ONLY
    metric: Metric = "euclidean"

    stored = contents(points_=floats("queries", "coordinates"))

    def fit(self, points: Floats, /) -> Self:
        """Remember the training queries' points."""
        if not self.radius >= 0:
            raise DataError(f"Radius(radius={self.radius}) must be a number from 0 up; infinity includes every query.")
        self.points_ = measured(points, self.metric)
        return self

    def weights(self, points: Floats, /) -> csr_array:
        """Return 1 for each training query no farther than the radius."""
        if not hasattr(self, "points_"):
            raise NotFittedError(self)
        places = measured(points, self.metric)
        columns = [np.flatnonzero(_exact(place, self.points_) <= self.radius) for place in places]
        pointers = np.concatenate([[0], np.cumsum([len(each) for each in columns])])
        indices = np.concatenate([np.zeros(0, np.int64), *columns])
        return csr_array((np.ones(len(indices)), indices, pointers), shape=(len(points), len(self.points_)))


class Shared(NamedTuple):
    """The neighbors of a query some of which share a place: their indices in ascending order, and their weights."""

    columns: Ints
    weights: Floats


class Search:
    """Points to be searched, with their squared norms."""

    def __init__(self, points: Floats) -> None:
        self.points = points
        self._plain = for_kernels(np.ascontiguousarray(points))
        self.squares = np.einsum("ij,ij->i", points, points)
        self.longest = float(self.squares.max(initial=0.0))

    @cached_property
    def coarse(self) -> Coarse | None:
        """The points in eight bits, if there are many, for `nearest_one`."""
        large = self.points.size >= _LARGE and math.isfinite(self.longest)  # infinite points have no distances
        return Coarse.of(self.points) if large else None

    def nearest(self, places: Floats, k: int) -> Ints:
        """Return the k points nearest to each place, nearest first, with ties ordered by coordinates."""
        if k == 1 and len(places) == 1:
            return np.array([[self.nearest_one(places[0])]])
        found, shared = self.among_nearest(places, k)
        for row, each in shared.items():
            found[row] = self._first(places[row], each.columns, k)
        for row, columns in enumerate(found if k > 1 else ()):
            found[row] = self._first(places[row], columns, k)
        return found

    def _first(self, place: Floats, columns: Ints, k: int) -> Ints:
        """Return the k nearest of some points, with ties ordered by coordinates relative to the place."""
        away = self.points[columns] - place
        gaps = lengths(away)
        sides = np.round(away / np.where(gaps > 0, gaps, 1.0)[:, None], _ALIKE)
        nearer = np.argsort(gaps, kind="stable")
        steps = np.diff(gaps[nearer], prepend=gaps[nearer[:1]]) > _TIED * gaps[nearer]
        level = np.empty(len(columns), np.int64)
        level[nearer] = np.cumsum(steps)
        first: Ints = columns[np.lexsort((*sides.T[::-1], level))[:k]]
        return first

    def nearest_one(self, place: Floats) -> int:
        """Return the nearest point to one place: the result of `among_nearest`, faster."""
        slack, coarse = self._slack(float(place @ place)), self.coarse
        rows = _ALL if coarse is None else coarse.perhaps_nearest(place, 4 * slack)
        row, tied = closest(self._plain, for_kernels(place), rows, 2 * slack)
        if tied == 1:
            return row
        if not len(rows):
            return self._nearest_by(place, *self._rough(place))
        return self._nearest_by(place, self.squares[rows] - 2 * (self.points[rows] @ place), slack, rows)

    def around(self, place: Floats, k: int) -> tuple[int, Shared]:
        """Return the nearest point to one place and the k nearest, in one pass over all points."""
        if self.points.size < _LARGE:  # below, synchronizing BLAS threads takes longer than the product
            gaps, slack = np.empty(len(self.points)), self._slack(float(place @ place))
            nearest, tied, close, cut = look_around(self._plain, for_kernels(place), k, slack, gaps)
        else:
            gaps, slack = self._rough(place)
            cut = _smallest(gaps, k)
            nearest, tied, close = least_gaps(gaps, cut, slack)
        if tied > 1:
            nearest = self._nearest_by(place, gaps, slack)
        return nearest, self._shared(place, gaps, slack, k, cut, close)

    def _rough(self, place: Floats) -> tuple[Floats, float]:
        """Return squared distances to one place, up to a constant, and their error bound."""
        gaps = self.points @ place
        gaps *= -2
        gaps += self.squares
        return gaps, self._slack(float(place @ place))

    def _slack(self, square: float) -> float:
        slack = _slack(square, self.longest)
        if not slack < math.inf:
            _require_near(slack)
        return slack

    def _nearest_by(self, place: Floats, gaps: Floats, slack: float, columns: Ints | None = None) -> int:
        """Return the nearest point by rough squared distances of all points, or of `columns` that include it."""
        close = (gaps <= gaps.min() + 2 * slack).nonzero()[0]
        if columns is not None:
            close = columns[close]
        return int(close[0]) if len(close) == 1 else int(self._first(place, close, 1)[0])

    def _shared(self, place: Floats, gaps: Floats, slack: float, k: int, cut: float, close: Ints) -> Shared:
        """Return the k nearest by rough squared distances, given the k-th of these and the points up to it."""
        if len(close) <= k:
            return Shared(close, np.ones(len(close)))
        sure, doubtful = close[gaps[close] < cut - slack], close[gaps[close] >= cut - slack]
        return _chosen(sure, doubtful, _exact(place, self.points[doubtful]), k)

    def among_nearest(self, places: Floats, k: int) -> tuple[Ints, dict[int, Shared]]:
        """Return the k points nearest to each place, in ascending order of index, and the rows with shared places."""
        found = np.zeros((len(places), k), dtype=np.int64)
        shared: dict[int, Shared] = {}
        size = max(1, _BLOCK // max(len(self.points), 1))

        def search(block: slice) -> None:
            part = places[block]
            rough = part @ self.points.T
            rough *= -2
            rough += self.squares
            # The expansion is off by a few roundings of its largest term: points that near the k-th are checked again.
            slack = _slack(np.einsum("ij,ij->i", part, part), self.longest)
            _require_near(slack)
            for row, gaps in enumerate(rough):
                cut, off = _smallest(gaps, k), float(slack[row])  # those near the k-th are checked again
                each = self._shared(part[row], gaps, off, k, cut, (gaps <= cut + off).nonzero()[0])
                if len(each.columns) > k:
                    shared[block.start + row] = each
                else:
                    found[block.start + row] = each.columns

        in_threads(search, [slice(first, min(first + size, len(places))) for first in range(0, len(places), size)])
        return found, shared


def _smallest(gaps: Floats, k: int) -> float:
    """Return the k-th smallest; numpy is faster at that than a kernel."""
    lowest = gaps.copy()
    lowest.partition(k - 1)
    return float(lowest[k - 1])


def _chosen(sure: Ints, doubtful: Ints, gaps: Floats, k: int) -> Shared:
    """Return the k nearest: all the sure ones, and the nearest of the doubtful; ties at the last place share it."""
    left = k - len(sure)
    cut = np.partition(gaps, left - 1)[left - 1]
    near = gaps < cut - _TIED * cut
    equal = ~near & (gaps <= cut + _TIED * cut)
    columns = np.concatenate([sure, doubtful[near], doubtful[equal]])
    weights = np.ones(len(columns))
    weights[len(columns) - int(equal.sum()) :] = (left - near.sum()) / equal.sum()
    order = np.argsort(columns)
    return Shared(columns[order], weights[order])


_Number = TypeVar("_Number", Floats, float)


def _slack(square: _Number, longest: float) -> _Number:
    """Return an error bound of expanded squared distances, larger than any difference of equally distant points."""
    return 1e-11 * (square + longest) + 1e-300


def _require_near(squares: Floats | float) -> None:
    """Raise DataError for places so far from the points that distances overflow."""
    if not (math.isfinite(squares) if isinstance(squares, float) else np.isfinite(squares).all()):
        raise DataError(
            "A query lies too far from the training queries for its distance to be computed: coordinates above 1e150, "
            "or none. Check the values of its features."
        )


def distances(places: Floats, points: Floats, metric: Metric) -> Floats:
    """Return the exact distance of each place to the point of the same row."""
    away = measured(places, metric) - measured(points, metric)
    return lengths(away)


def _exact(place: Floats, points: Floats) -> Floats:
    return lengths(points - place)


def lengths(vectors: Floats) -> Floats:
    """Return the lengths of rows."""
    return np.sqrt(sums_of_products("ij,ij->i", vectors, vectors))


def measured(points: Floats, metric: Metric) -> Floats:
    """Return points for the Euclidean distance: unchanged or, for the cosine, normalized to the unit sphere."""
    if metric == "euclidean":
        return points
    if metric != "cosine":
        raise DataError(f"metric={metric!r} is unknown. Known: euclidean, cosine.")
    sizes = lengths(points)
    return points / np.where(sizes > 0, sizes, 1.0)[:, None]


def _rows(columns: Ints, shared: dict[int, Shared], count: int) -> csr_array:
    """Return a row of ones for every row of columns, except where points share a place."""
    if not shared:
        pointers = np.arange(len(columns) + 1) * columns.shape[1]
        return csr_array((np.ones(columns.size), columns.ravel(), pointers), shape=(len(columns), count))
    whole = np.ones(columns.shape[1])
    every = [shared.get(row, Shared(each, whole)) for row, each in enumerate(columns)]
    pointers = np.concatenate([[0], np.cumsum([len(each.columns) for each in every])])
    values, indices = (np.concatenate([each[part] for each in every]) for part in (1, 0))
    return csr_array((values, indices, pointers), shape=(len(columns), count))
