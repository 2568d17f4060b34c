"""A fixed number of groups of training queries: each is a row of query weights, and becomes one local model.

K-means is seeded, the best of several starts, and finds what scikit-learn's does, which also decides where rounding
would (`lloyd`). There are never more groups than different points. Points are put in the order of their coordinates
first, so that the groups do not depend on the order of the training queries.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
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
from querywise.runtime.stored import Sparse, contents, floats, part
from querywise.runtime.threads import in_threads, slices

_STARTS = 4
_MANY = 50_000  # points beyond which the centres are those of a sample
_BLOCK = 200_000  # distances in memory at a time, in each thread
_BOUNDS = 8_000_000  # distances that K-means keeps in memory, in each thread; scikit-learn's keeps none
_TIED = 1e-12  # of a distance: smaller differences are rounding
_LEAST = 0.01  # of a query's largest membership: smaller ones are set to 0


@dataclass(eq=False, repr=False)
class Clusters(Estimator):
    """K-means of the training queries, in their view.

    count: how many clusters, or, between 0 and 1, as a share of the training queries. softness: 0 puts a query into
    its nearest cluster alone; above 0 it also belongs to others, a cluster at distance d counting
    exp(−(d² − d₀²) / (2 softness² s²)) where d₀ is the distance to the nearest and s² the mean of d₀² over all queries.
    """

    count: float = 20
    _: KW_ONLY
    softness: float = 0.0
    seed: int = 0

    stored = contents(centres_=floats("groups>0", "coordinates"), members_=Sparse("groups", "queries"))

    def fit(self, points: Floats, data: Judged, /) -> Self:
        """Find the centres; every training query joins its cluster."""
        _check_softness(self.softness)
        asked = number_of(self.count, len(points), "clusters=…", beyond=True)
        self.centres_ = k_means(points, asked, self.seed)
        self.members_ = csr_array(_members(points, self.centres_, np.arange(len(points)), len(points), self.softness).T)
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

    stored = contents(scaling_=part(Scaling, columns="coordinates"))

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
        owner = data.candidates.query_of_row[relevant]
        self.members_ = csr_array(_members(places, self.centres_, owner, len(data), self.softness).T)
        return self

    def _placed(self, points: Floats) -> Floats:
        return self.scaling_.apply(points)


def k_means(points: Floats, count: int, seed: int) -> Floats:
    """The centres of so many clusters, of fewer where there are fewer different points."""
    from querywise.locality.lloyd import least_inertia

    with doing("Clustering"):
        rng = np.random.default_rng(seed)
        points = points[by_coordinates(points)]
        chosen = points if len(points) <= _MANY else points[np.sort(rng.choice(len(points), _MANY, replace=False))]
        number = min(count, _different(chosen, count))
        found = least_inertia(chosen, number, seed, _STARTS) if number * len(chosen) <= _BOUNDS else None
        return _by_scikit_learn(chosen, number, seed) if found is None else found


def _by_scikit_learn(points: Floats, count: int, seed: int) -> Floats:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # Points that differ by rounding alone become one cluster, and leave another empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(count, n_init=_STARTS, random_state=seed).fit(points)
    return np.asarray(found.cluster_centers_, dtype=np.float64)


def _different(points: Floats, enough: int) -> int:
    """How many different points there are; where one coordinate alone tells enough of them apart, that many."""
    if points.shape[1] and len(np.unique(points[:, 0])) >= enough:
        return enough
    return len(np.unique(points, axis=0))


def nearest_centre(distances: Floats) -> Ints:
    """The nearest centre of each row of distances, the first of those that differ by rounding alone."""
    least = distances.min(axis=1, keepdims=True)
    found: Ints = np.argmax(distances <= least + _TIED * least, axis=1)
    return found


def _check_softness(softness: float) -> None:
    """Refuse what is no softness."""
    if not 0 <= softness < np.inf:
        raise DataError(f"softness={softness} must be 0, one cluster for each, or a number above 0.")


def _members(points: Floats, centres: Floats, owner: Ints, queries: int, softness: float) -> Floats:
    """Queries × clusters: the largest membership of the points that each query owns."""
    members = np.zeros((queries, len(centres)))
    blocks = slices(len(points), max(1, _BLOCK // len(centres)))
    if softness == 0:
        nearest = in_threads(lambda block: nearest_centre(cdist(points[block], centres) ** 2), blocks)
        members[owner, np.concatenate([np.zeros(0, np.int64), *nearest])] = 1.0
        return members
    reach = _reach(points, centres, blocks)
    for block in blocks:
        np.maximum.at(members, owner[block], _memberships(points[block], centres, softness, reach))
    return members


def _reach(points: Floats, centres: Floats, blocks: Sequence[slice]) -> float:
    """The mean squared distance of points from their nearest centre."""
    parts = in_threads(lambda block: cdist(points[block], centres).min(axis=1), blocks)
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
