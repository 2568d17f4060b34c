"""A fixed number of groups of training queries: each is a row of query weights, and becomes one local model.

K-means is scikit-learn's, seeded, the best of several starts. There are never more groups than different points. Points
are put in the order of their coordinates first, so that the groups do not depend on the order of the training queries.
"""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from querywise.contracts.estimators import Estimator
from querywise.data.judged import Judged
from querywise.data.ordering import by_coordinates
from querywise.errors import DataError, NotFittedError
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.parameters import number_of
from querywise.runtime.progress import doing
from querywise.runtime.scaling import Scaling

_STARTS = 4
_MANY = 50_000  # points beyond which the centres are those of a sample
_BLOCK = 4_000_000  # distances in memory at a time
_TIED = 1e-12  # of a distance: smaller differences are rounding
_LEAST = 0.01  # of a query's largest membership: smaller ones are set to 0


class Clusters(Estimator):
    """K-means of the training queries, in their view.

    count: how many clusters, or, between 0 and 1, as a share of the training queries. softness: 0 puts a query into
    its nearest cluster alone; above 0 it also belongs to others, a cluster at distance d counting
    exp(−(d² − d₀²) / (2 softness² s²)) where d₀ is the distance to the nearest and s² the mean of d₀² over all queries.
    """

    def __init__(self, count: float = 20, *, softness: float = 0.0, seed: int = 0) -> None:
        self.count = count
        self.softness = softness
        self.seed = seed

    def fit(self, points: Floats, data: Judged, /) -> Self:
        """Find the centres; every training query joins its cluster."""
        _check_softness(self.softness)
        asked = number_of(self.count, len(points), "clusters=…", beyond=True)
        self.centres_ = k_means(points, asked, self.seed)
        reach = _reach(points, self.centres_)
        self.members_ = csr_array(_memberships(points, self.centres_, self.softness, reach).T)
        return self

    def distances(self, points: Floats, /) -> Floats:
        """How far each query is from each centre."""
        if not hasattr(self, "centres_"):
            raise NotFittedError(self)
        return cdist(self._placed(points), self.centres_)

    def _placed(self, points: Floats) -> Floats:
        """The points of queries in the space of the centres."""
        return points


class RelevantClusters(Clusters):
    """K-means of the *relevant documents* of all training queries [lin2011]_.

    A training query joins every cluster that holds one of its relevant documents, so it may belong to several, and to
    none. The points of queries must be means of raw document features (`TopMean(standardise=False)`); both are
    standardised on the relevant documents. Parameters are those of Clusters; the largest membership of a query's
    relevant documents is the query's.
    """

    def fit(self, points: Floats, data: Judged, /) -> Self:
        """Find the centres; every training query joins the clusters of its relevant documents."""
        _check_softness(self.softness)
        relevant = data.labels > 0
        if not relevant.any():
            raise DataError("There is no relevant document to cluster: every label is 0.")
        documents = data.candidates.features[relevant]
        self.scaling_ = Scaling.learn(documents, "standard")
        places = self.scaling_.apply(documents)
        asked = number_of(self.count, len(data), "clusters=…", beyond=True)  # as many as there are documents
        self.centres_ = k_means(places, asked, self.seed)
        self.members_ = csr_array(self._members(places, data.candidates.query_of_row[relevant], len(data)).T)
        return self

    def _members(self, places: Floats, owner: Ints, queries: int) -> Floats:
        """Queries × clusters."""
        members = np.zeros((queries, len(self.centres_)))
        reach = _reach(places, self.centres_)
        size = max(1, _BLOCK // len(self.centres_))
        for first in range(0, len(places), size):
            part = slice(first, first + size)
            np.maximum.at(members, owner[part], _memberships(places[part], self.centres_, self.softness, reach))
        return members

    def _placed(self, points: Floats) -> Floats:
        return self.scaling_.apply(points)


def k_means(points: Floats, count: int, seed: int) -> Floats:
    """The centres of so many clusters, of fewer where there are fewer different points."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with doing("Clustering"), warnings.catch_warnings():
        # Points that differ by rounding alone become one cluster, and leave another empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        rng = np.random.default_rng(seed)
        points = points[by_coordinates(points)]
        chosen = points if len(points) <= _MANY else points[np.sort(rng.choice(len(points), _MANY, replace=False))]
        number = min(count, len(np.unique(chosen, axis=0)))
        found = KMeans(number, n_init=_STARTS, random_state=seed).fit(chosen)
    return np.asarray(found.cluster_centers_, dtype=np.float64)


def nearest_centre(distances: Floats) -> Ints:
    """The nearest centre of each row of distances, the first of those that differ by rounding alone."""
    least = distances.min(axis=1, keepdims=True)
    found: Ints = np.argmax(distances <= least + _TIED * least, axis=1)
    return found


def _check_softness(softness: float) -> None:
    """Refuse what is no softness."""
    if not 0 <= softness < np.inf:
        raise DataError(f"softness={softness} must be 0, one cluster for each, or a number above 0.")


def _reach(points: Floats, centres: Floats) -> float:
    """The mean squared distance of points from their nearest centre."""
    size = max(1, _BLOCK // len(centres))
    parts = [cdist(points[first : first + size], centres).min(axis=1) for first in range(0, len(points), size)]
    return float(np.mean(np.concatenate(parts) ** 2))


def _memberships(points: Floats, centres: Floats, softness: float, reach: float) -> Floats:
    """Points × clusters: 1 for the nearest, less for the others, 0 for negligible ones."""
    squares = cdist(points, centres) ** 2
    nearest = nearest_centre(squares)
    found = np.zeros_like(squares)
    width = 2 * softness * softness * reach  # infinite, rather than an error, where the square overflows
    if width > 0:
        with np.errstate(over="ignore"):
            found = np.exp(-(squares - squares.min(axis=1, keepdims=True)) / width)
        found[found < _LEAST] = 0.0
    found[np.arange(len(points)), nearest] = 1.0
    return found
