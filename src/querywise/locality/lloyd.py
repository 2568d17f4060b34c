"""K-means: K-means++ and Lloyd's rounds, compiled, with Elkan's bounds, which leave out most distances [elkan2003]_.

The draws, the rule to stop and the choice between starts are those of scikit-learn, so the clusters are the same.
There is no result where rounding would decide: where two centres are equally near to a point, two candidates or two
starts equally good, or a cluster has no points. `groupings` asks scikit-learn then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled, compiled_loosely
from querywise.runtime.threads import in_threads

_TIED = 1e-10  # of a distance: whatever is closer than that is a tie
_ROUNDS = 300
_LANES = 8  # centres whose bounds are looked at together
_WIDTH = 16  # features are filled up with zeros to a multiple of this: sums of whole vectors are quick
_TILE = 64  # points whose distances from all candidates are added up together


class Bounds(NamedTuple):
    """What is known of distances without computing them: every centre moves, and distances change by no more.

    near: points × centres, a distance and how far the centre had moved until then. rest: by point, the least distance
    to another than its own centre, and how far the fastest centres had moved until then. moved: by centre, in all.
    """

    near: Floats
    rest: Floats
    moved: Floats


def least_inertia(points: Floats, count: int, seed: int, starts: int) -> Floats | None:
    """The centres of the best of some starts; None where rounding would decide."""
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
        if each[2] < best[2] * (1.0 + _TIED) and not _same(each[1], best[1]):
            if each[2] > best[2] * (1.0 - _TIED):
                return None
            best = each
    centres: Floats = best[0][:, :width] + middle
    return centres


def _same(labels: Ints, others: Ints) -> bool:
    """Whether two clusterings differ in their numbers alone."""
    pairs = len(np.unique(np.stack([labels, others]), axis=1).T)
    return len(np.unique(labels)) == len(np.unique(others)) == pairs


@compiled
def _one_start(across: Floats, first: int, draws: Floats, enough: float) -> tuple[Floats, Ints, float, bool]:
    """Centres, the cluster of each point, the sum of squared distances; False where rounding would decide.

    across: features × points. first: the point that is the first centre. draws: for every further centre, numbers in
    0 … 1 that choose candidates. enough: centres that together move by no more than this, squared, are at rest.
    """
    points = np.ascontiguousarray(across.T)
    centres = np.empty((len(draws) + 1, points.shape[1]))
    labels = np.zeros(len(points), np.int64)
    room = -(-len(centres) // _LANES) * _LANES
    bounds = Bounds(np.full((len(points), room), np.inf), np.zeros(len(points)), np.zeros(room))
    if not _choose(across, points, first, draws, centres, labels, bounds.near):
        return centres, labels, 0.0, False
    fastest, settled = 0.0, False
    for number in range(_ROUNDS):
        if number > 0:
            changed = _assign(points, centres, labels, bounds, fastest)
            if changed < 0:
                return centres, labels, 0.0, False
            settled = changed == 0
        total, most = _move(points, labels, centres, bounds.moved)
        fastest += most
        if total < 0:
            return centres, labels, 0.0, False
        if settled or total <= enough:
            break
    decided = settled or _assign(points, centres, labels, bounds, fastest) >= 0
    inertia = 0.0
    for i in range(len(points)):
        inertia += _square(points[i], centres[labels[i]])
    return centres, labels, inertia, decided


@compiled_loosely
def _square(some: Floats, other: Floats) -> float:
    """The squared distance."""
    total = 0.0
    for j in range(len(some)):
        gap = some[j] - other[j]
        total += gap * gap
    return total


@compiled_loosely
def _squares(across: Floats, candidates: Floats, found: Floats) -> None:
    """Candidates × points: squared distances."""
    width, count = across.shape
    for begin in range(0, count, _TILE):
        end = min(begin + _TILE, count)
        for c in range(len(candidates)):
            row = found[c, begin:end]
            row[:] = 0.0
            for j in range(width):
                place, part = candidates[c, j], across[j, begin:end]
                for i in range(end - begin):
                    gap = part[i] - place
                    row[i] += gap * gap


@compiled
def _choose(
    across: Floats, points: Floats, first: int, draws: Floats, centres: Floats, labels: Ints, near: Floats
) -> bool:
    """K-means++: of points drawn in proportion to squared distances, each centre is the one that lowers them most.

    Labels and distances of all points come with it. False where rounding decides.
    """
    count, trials = len(points), draws.shape[1]
    found, chances, tied = np.empty((trials, count)), np.empty(count), np.zeros(count, np.bool_)
    chosen, totals = np.empty(trials, np.int64), np.empty(trials)
    centres[0] = points[first]
    _squares(across, centres[:1], found)
    least = found[0].copy()
    total = np.sum(least)
    for number in range(1, len(centres)):
        _add_up(least, chances)
        for t in range(trials):
            chosen[t] = min(np.searchsorted(chances, draws[number - 1, t] * total), count - 1)
        _squares(across, points[chosen], found)
        best = 0
        for t in range(trials):
            totals[t] = _lowered(least, found[t])
            best = t if totals[t] < totals[best] else best
        total = totals[best]
        for t in range(trials):
            if totals[t] <= total * (1.0 + _TIED) and np.any(points[chosen[t]] != points[chosen[best]]):
                return False
        centres[number] = points[chosen[best]]
        for i in range(count):
            square = found[best, i]
            near[i, number] = np.sqrt(square)
            if square <= least[i] * (1.0 + _TIED):
                tied[i] = square >= least[i] * (1.0 - _TIED)
                if square < least[i]:
                    near[i, labels[i]], near[i, number] = np.sqrt(least[i]), np.inf
                    least[i], labels[i] = square, number
    return not np.any(tied)


@compiled
def _add_up(values: Floats, found: Floats) -> None:
    total = 0.0
    for i in range(len(values)):
        total += values[i]
        found[i] = total


@compiled_loosely
def _lowered(least: Floats, squares: Floats) -> float:
    """The sum of the smaller ones."""
    total = 0.0
    for i in range(len(least)):
        total += min(least[i], squares[i])
    return total


@compiled
def _assign(points: Floats, centres: Floats, labels: Ints, bounds: Bounds, fastest: float) -> int:
    """Give every point its nearest centre; how many changed, or −1 where two are equally near."""
    near, rest, moved = bounds
    changed = 0
    for i in range(len(points)):
        own, row = labels[i], near[i]
        best = np.sqrt(_square(points[i], centres[own]))
        if best * (1.0 + _TIED) < rest[i] - fastest:
            continue
        label, second = own, np.inf
        for first in range(0, len(row), _LANES):
            least = _least(row, moved, first)
            if least <= best * (1.0 + _TIED):
                least = np.inf
                for c in range(first, min(first + _LANES, len(centres))):
                    low = row[c] - moved[c]
                    if low <= best * (1.0 + _TIED):
                        low = np.sqrt(_square(points[i], centres[c]))
                        row[c] = low + moved[c]
                        if low < best:
                            row[label] = best + moved[label]
                            row[c] = np.inf
                            label, low, best = c, best, low
                    least = min(least, low)
            second = min(second, least)
        if second <= best * (1.0 + _TIED):
            return -1
        rest[i] = second + fastest
        changed += label != own
        labels[i] = label
    return changed


@compiled
def _least(row: Floats, moved: Floats, k: int) -> float:
    """The least bound of eight centres from number k on."""
    a, b = min(row[k] - moved[k], row[k + 1] - moved[k + 1]), min(row[k + 2] - moved[k + 2], row[k + 3] - moved[k + 3])
    k += 4
    c, d = min(row[k] - moved[k], row[k + 1] - moved[k + 1]), min(row[k + 2] - moved[k + 2], row[k + 3] - moved[k + 3])
    return float(min(a, b, c, d))


@compiled
def _move(points: Floats, labels: Ints, centres: Floats, moved: Floats) -> tuple[float, float]:
    """Centres to the means of their points: the sum of squares of how far they go, −1 if one has none; the furthest."""
    sums, counts = np.zeros(centres.shape), np.zeros(len(centres))
    for i in range(len(points)):
        counts[labels[i]] += 1.0
        _add(sums[labels[i]], points[i])
    total, most = 0.0, 0.0
    for c in range(len(centres)):
        if counts[c] == 0.0:
            return -1.0, 0.0
        for j in range(points.shape[1]):
            sums[c, j] /= counts[c]
        square = _square(sums[c], centres[c])
        moved[c] += np.sqrt(square)
        total, most = total + square, max(most, np.sqrt(square))
        centres[c] = sums[c]
    return total, most


@compiled
def _add(total: Floats, row: Floats) -> None:
    for j in range(len(row)):
        total[j] += row[j]
