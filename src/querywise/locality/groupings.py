"""A fixed number of groups of training queries: each is a row of query weights, and becomes one local model.

K-means is seeded, the best of several starts: K-means++ and Lloyd's iterations, compiled, with Elkan's bounds, which
skip most distances [elkan2003]_. The draws, the stopping rule and the choice between starts are those of scikit-learn,
so the clusters are the same; scikit-learn itself is used if rounding would decide: if two centers are equally near to a
point, two candidates or two starts equally good, or a cluster has no points. There are never more groups than distinct
points. Points are first sorted by their coordinates, so that the groups do not depend on the order of the training
queries.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from querywise.contracts.estimators import Estimator
from querywise.data.judged import Judged
from querywise.data.training import by_coordinates
from querywise.errors import DataError, NotFittedError
from querywise.locality.combinations import places_before
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled, compiled_loosely
from querywise.runtime.parameters import number_of
from querywise.runtime.progress import doing
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import Sparse, contents, floats, part
from querywise.runtime.threads import in_threads, slices

_NO_NEARER = 1e-10  # of a distance: anything closer is a tie
_ROUNDS = 300
_WIDTH = 16  # features are padded with zeros to a multiple of this: sums of whole vectors are fast
_TILE = 512  # points whose distances from all candidates are summed together
_STARTS = 4
_MANY = 50_000  # points beyond which the centers come from a sample
_BLOCK = 200_000  # distances in memory at a time, in each thread
_BOUNDS = 8_000_000  # distances that K-means keeps in memory, in each thread; scikit-learn keeps none
_TIED = 1e-12  # of a distance: smaller differences are rounding errors
_LEAST = 0.01  # of a query's largest membership: smaller ones are set to 0


class Bounds(NamedTuple):
    """Bounds of distances that avoid computing them: a distance changes by no more than its center moves.

    Attributes:
        near: Points × centers: a distance plus how far the center had moved by then; infinite for a point's own center.
        moved: By center, the total distance moved.

    """

    near: Floats
    moved: Floats


def least_inertia(points: Floats, count: int, seed: int, starts: int) -> Floats | None:
    """Return the centers of the best of some starts; None if rounding would decide."""
    middle, width = points.mean(axis=0), points.shape[1]
    across = np.zeros((max(-(-width // _WIDTH), 1) * _WIDTH, len(points)))
    across[:width] = (points - middle).T
    rng, even = np.random.RandomState(seed), np.full(len(points), 1 / len(points))
    draws = [
        (int(rng.choice(len(points), p=even)), rng.uniform(size=(count - 1, 2 + int(np.log(count)))))
        for _ in range(starts)
    ]
    enough = float(1e-4 * np.mean(np.var(points, axis=0))) if width else 0.0
    found = in_threads(lambda start: _one_start(across, *start, enough), draws)
    if not all(each[3] for each in found):
        return None
    best = found[0]
    for each in found:
        if each[2] < best[2] * (1.0 + _NO_NEARER) and not _same(each[1], best[1]):
            if each[2] > best[2] * (1.0 - _NO_NEARER):
                return None
            best = each
    centres: Floats = best[0][:, :width] + middle
    return centres


def _same(labels: Ints, others: Ints) -> bool:
    """Whether two clusterings differ only in their numbering."""
    pairs = len(np.unique(np.stack([labels, others]), axis=1).T)
    return len(np.unique(labels)) == len(np.unique(others)) == pairs


@compiled
def _one_start(across: Floats, first: int, draws: Floats, enough: float) -> tuple[Floats, Ints, float, bool]:
    """Return centers, the cluster of each point, the sum of squared distances; False if rounding would decide.

    Args:
        across: Features × points.
        first: The point that is the first center.
        draws: For every further center, numbers in 0 … 1 that choose candidates.
        enough: Stop when the sum of squared center movements is no more than this.

    """
    points = np.empty((across.shape[1], across.shape[0]))
    for j in range(len(across)):
        for i in range(len(points)):
            points[i, j] = across[j, i]
    centres = np.empty((len(draws) + 1, points.shape[1]))
    labels = np.zeros(len(points), np.int64)
    bounds = Bounds(np.full((len(points), len(centres)), np.inf), np.zeros(len(centres)))
    if not _choose(across, points, first, draws, centres, labels, bounds.near):
        return centres, labels, 0.0, False
    settled = False
    for number in range(_ROUNDS):
        if number > 0:
            changed = _assign(points, centres, labels, bounds)
            if changed < 0:
                return centres, labels, 0.0, False
            settled = changed == 0
        total = _move(points, labels, centres, bounds.moved)
        if total < 0:
            return centres, labels, 0.0, False
        if settled or total <= enough:
            break
    decided = settled or _assign(points, centres, labels, bounds) >= 0
    inertia = 0.0
    for i in range(len(points)):
        inertia += _square(points[i], centres[labels[i]])
    return centres, labels, inertia, decided


@compiled_loosely
def _square(some: Floats, other: Floats) -> float:
    """Return the squared distance."""
    total = 0.0
    for j in range(len(some)):
        gap = some[j] - other[j]
        total += gap * gap
    return total


@compiled_loosely
def _squares(across: Floats, candidates: Floats, found: Floats) -> None:
    """Compute squared distances, candidates × points."""
    width, count = across.shape
    for begin in range(0, count, _TILE):
        end = min(begin + _TILE, count)
        for c in range(len(candidates)):
            row, place = found[c, begin:end], candidates[c]
            for i in range(end - begin):
                row[i] = 0.0
            for j in range(0, width, 2):
                one, two = across[j, begin:end], across[j + 1, begin:end]
                for i in range(end - begin):
                    a, b = one[i] - place[j], two[i] - place[j + 1]
                    row[i] += a * a + b * b


@compiled
def _choose(
    across: Floats, points: Floats, first: int, draws: Floats, centres: Floats, labels: Ints, near: Floats
) -> bool:
    """Choose centers by K-means++: of points drawn in proportion to squared distances, the one that lowers them most.

    Also fill in labels and distances of all points. Return False if rounding decides.
    """
    count, trials = len(points), draws.shape[1]
    found, chances, tied = np.empty((trials, count)), np.empty(count), np.zeros(count)
    chosen, totals = np.zeros(trials, np.int64), np.empty(trials)
    candidates, least = np.empty((trials, points.shape[1])), np.full(count, np.inf)
    for t in range(trials):
        chosen[t] = first
    _take(points, chosen, candidates)
    _squares(across, candidates, found)
    total = _lowered(least, found[0])
    for i in range(count):
        least[i] = found[0, i]
    _take(points, chosen[:1], centres)
    for number in range(1, len(centres)):
        _add_up(least, chances)
        for t in range(trials):
            chosen[t] = places_before(chances, 0, count - 1, draws[number - 1, t] * total, False)
        _take(points, chosen, candidates)
        _squares(across, candidates, found)
        best = 0
        for t in range(trials):
            totals[t] = _lowered(least, found[t])
            best = t if totals[t] < totals[best] else best
        total = totals[best]
        for t in range(trials):
            if totals[t] <= total * (1.0 + _NO_NEARER) and _square(candidates[t], candidates[best]) > 0.0:
                return False
        for j in range(points.shape[1]):
            centres[number, j] = candidates[best, j]
        _join(found[best], number, least, labels, near, tied)
    return _sum(tied) == 0.0


@compiled
def _join(squares: Floats, number: int, least: Floats, labels: Ints, near: Floats, tied: Floats) -> None:
    """Assign the points that are nearest to a new center; mark with 1 those as near to another."""
    for i in range(len(squares)):
        square = squares[i]
        near[i, number] = np.sqrt(square)
        if square <= least[i] * (1.0 + _NO_NEARER):
            tied[i] = 1.0 if square >= least[i] * (1.0 - _NO_NEARER) else 0.0
            if square < least[i]:
                near[i, labels[i]], near[i, number] = np.sqrt(least[i]), np.inf
                least[i], labels[i] = square, number


@compiled_loosely
def _sum(values: Floats) -> float:
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


@compiled
def _take(points: Floats, chosen: Ints, found: Floats) -> None:
    """Copy the chosen points."""
    for t in range(len(chosen)):
        for j in range(points.shape[1]):
            found[t, j] = points[chosen[t], j]


@compiled
def _add_up(values: Floats, found: Floats) -> None:
    total = 0.0
    for i in range(len(values)):
        total += values[i]
        found[i] = total


@compiled_loosely
def _lowered(least: Floats, squares: Floats) -> float:
    """Return the sum of the elementwise minima."""
    total = 0.0
    for i in range(len(least)):
        total += min(least[i], squares[i])
    return total


@compiled
def _assign(points: Floats, centres: Floats, labels: Ints, bounds: Bounds) -> int:
    """Assign every point to its nearest center; return the number of changes, or −1 if two are equally near."""
    near, moved = bounds
    changed = 0
    for i in range(len(points)):
        own, row = labels[i], near[i]
        best = np.sqrt(_square(points[i], centres[own]))
        left = _within(row, moved, best * (1.0 + _NO_NEARER))
        if left == 0:
            continue
        label, second = own, np.inf
        for c in range(len(centres)):
            if row[c] - moved[c] <= best * (1.0 + _NO_NEARER):
                gap = np.sqrt(_square(points[i], centres[c]))
                row[c] = gap + moved[c]
                if gap < best:
                    row[label] = best + moved[label]
                    row[c] = np.inf
                    label, gap, best = c, best, gap
                second = min(second, gap)
                left -= 1
                if left == 0:
                    break
        if second <= best * (1.0 + _NO_NEARER):
            return -1
        changed += label != own
        labels[i] = label
    return changed


@compiled_loosely
def _within(row: Floats, moved: Floats, limit: float) -> int:
    """Return how many centers may be that near."""
    found = 0
    for c in range(len(row)):
        found += row[c] - moved[c] <= limit
    return found


@compiled
def _move(points: Floats, labels: Ints, centres: Floats, moved: Floats) -> float:
    """Move centers to the means of their points; return the sum of squared movements, −1 if one has no points."""
    sums, counts = np.zeros(centres.shape), np.zeros(len(centres))
    for i in range(len(points)):
        counts[labels[i]] += 1.0
        _add(sums[labels[i]], points[i])
    total = 0.0
    for c in range(len(centres)):
        if counts[c] == 0.0:
            return -1.0
        for j in range(points.shape[1]):
            sums[c, j] /= counts[c]
        square = _square(sums[c], centres[c])
        moved[c] += np.sqrt(square)
        total += square
        for j in range(points.shape[1]):
            centres[c, j] = sums[c, j]
    return total


@compiled
def _add(total: Floats, row: Floats) -> None:
    for j in range(len(row)):
        total[j] += row[j]


@dataclass(eq=False, repr=False)
class Clusters(Estimator):
    """K-means of the training queries, in their view.

    Args:
        count: The number of clusters or, between 0 and 1, their share of the training queries.
        softness: 0 puts a query only into its nearest cluster; above 0 it also belongs to others, a cluster at distance
            d with weight exp(−(d² − d₀²) / (2 softness² s²)) where d₀ is the distance to the nearest and s² the mean of
            d₀² over all queries.
        seed: The random start.

    """

    count: float = 20
    _: KW_ONLY
    softness: float = 0.0
    seed: int = 0

    stored = contents(centres_=floats("groups>0", "coordinates"), members_=Sparse("groups", "queries"))

    def fit(self, points: Floats, data: Judged, /) -> Self:
        """Find the centers, and assign every training query to its cluster."""
        _check_softness(self.softness)
        asked = number_of(self.count, len(points), "clusters=…", beyond=True)
        self.centres_ = k_means(points, asked, self.seed)
        self.members_ = csr_array(_members(points, self.centres_, np.arange(len(points)), len(points), self.softness).T)
        return self

    def distances(self, points: Floats, /) -> Floats:
        """Return each query's distance from each center."""
        if not hasattr(self, "centres_"):
            raise NotFittedError(self)
        return cdist(self._placed(points), self.centres_)

    def _placed(self, points: Floats) -> Floats:
        """Return the points of queries in the space of the centers."""
        return points


class RelevantClusters(Clusters):
    """K-means of the *relevant documents* of all training queries [lin2011]_.

    A training query joins every cluster that holds one of its relevant documents, so it may belong to several, or to
    none. The points of queries must be means of raw document features (`TopMean(standardise=False)`); both are
    standardized on the relevant documents. Parameters are those of Clusters; a query's membership is the largest of its
    relevant documents'.
    """

    stored = contents(scaling_=part(Scaling, columns="coordinates"))

    def fit(self, points: Floats, data: Judged, /) -> Self:
        """Find the centers, and assign every training query to the clusters of its relevant documents."""
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
    """Return the centers of `count` clusters, or fewer if there are fewer distinct points."""
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
        # Points that differ only by rounding become one cluster, and leave another empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(count, n_init=_STARTS, random_state=seed).fit(points)
    return np.asarray(found.cluster_centers_, dtype=np.float64)


def _different(points: Floats, enough: int) -> int:
    """Return the number of distinct points; stop at `enough` if one coordinate alone distinguishes that many."""
    if points.shape[1] and len(np.unique(points[:, 0])) >= enough:
        return enough
    return len(np.unique(points, axis=0))


def nearest_centre(distances: Floats) -> Ints:
    """Return the nearest center of each row of distances, the first of those that differ only by rounding."""
    least = distances.min(axis=1, keepdims=True)
    found: Ints = np.argmax(distances <= least + _TIED * least, axis=1)
    return found


def _check_softness(softness: float) -> None:
    """Raise DataError for an invalid softness."""
    if not 0 <= softness < np.inf:
        raise DataError(f"softness={softness} must be 0 (one cluster per query) or a number above 0.")


def _members(points: Floats, centres: Floats, owner: Ints, queries: int, softness: float) -> Floats:
    """Return queries × clusters: the largest membership of the points that each query owns."""
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
    """Return the mean squared distance of points from their nearest center."""
    parts = in_threads(lambda block: cdist(points[block], centres).min(axis=1), blocks)
    return float(np.mean(np.concatenate(parts) ** 2))


def _memberships(points: Floats, centres: Floats, softness: float, reach: float) -> Floats:
    """Return points × clusters: 1 for the nearest, less for the others, 0 for negligible ones."""
    squares = cdist(points, centres) ** 2
    nearest = nearest_centre(squares)
    found = np.zeros_like(squares)
    width = 2 * softness * softness * reach  # infinite, rather than an error, if the square overflows
    if width > 0:
        with np.errstate(over="ignore"):
            found = np.exp(-(squares - squares.min(axis=1, keepdims=True)) / width)
        found[found < _LEAST] = 0.0
    found[np.arange(len(points)), nearest] = 1.0
    return found
