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
_WIDTH = 16  # features are filled up with zeros to a multiple of this: sums of whole vectors are quick
_TILE = 512  # points whose distances from all candidates are added up together


class Bounds(NamedTuple):
    """What is known of distances without computing them: every centre moves, and distances change by no more.

    near: points × centres, a distance and how far the centre had moved until then; infinite for a point's own centre.
    moved: by centre, in all.
    """

    near: Floats
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
    """K-means++: of points drawn in proportion to squared distances, each centre is the one that lowers them most.

    Labels and distances of all points come with it. False where rounding decides.
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
            chosen[t] = _place(chances, draws[number - 1, t] * total)
        _take(points, chosen, candidates)
        _squares(across, candidates, found)
        best = 0
        for t in range(trials):
            totals[t] = _lowered(least, found[t])
            best = t if totals[t] < totals[best] else best
        total = totals[best]
        for t in range(trials):
            if totals[t] <= total * (1.0 + _TIED) and _square(candidates[t], candidates[best]) > 0.0:
                return False
        for j in range(points.shape[1]):
            centres[number, j] = candidates[best, j]
        _join(found[best], number, least, labels, near, tied)
    return _sum(tied) == 0.0


@compiled
def _join(squares: Floats, number: int, least: Floats, labels: Ints, near: Floats, tied: Floats) -> None:
    """The points that are nearest to a new centre become its own; 1 marks those as near to another."""
    for i in range(len(squares)):
        square = squares[i]
        near[i, number] = np.sqrt(square)
        if square <= least[i] * (1.0 + _TIED):
            tied[i] = 1.0 if square >= least[i] * (1.0 - _TIED) else 0.0
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
    """The chosen points."""
    for t in range(len(chosen)):
        for j in range(points.shape[1]):
            found[t, j] = points[chosen[t], j]


@compiled
def _place(sums: Floats, target: float) -> int:
    """The first place whose sum is not below the target, or the last."""
    low, high = 0, len(sums) - 1
    while low < high:
        middle = (low + high) // 2
        if sums[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low


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
def _assign(points: Floats, centres: Floats, labels: Ints, bounds: Bounds) -> int:
    """Give every point its nearest centre; how many changed, or −1 where two are equally near."""
    near, moved = bounds
    changed = 0
    for i in range(len(points)):
        own, row = labels[i], near[i]
        best = np.sqrt(_square(points[i], centres[own]))
        left = _within(row, moved, best * (1.0 + _TIED))
        if left == 0:
            continue
        label, second = own, np.inf
        for c in range(len(centres)):
            if row[c] - moved[c] <= best * (1.0 + _TIED):
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
        if second <= best * (1.0 + _TIED):
            return -1
        changed += label != own
        labels[i] = label
    return changed


@compiled_loosely
def _within(row: Floats, moved: Floats, limit: float) -> int:
    """How many centres may be that near."""
    found = 0
    for c in range(len(row)):
        found += row[c] - moved[c] <= limit
    return found


@compiled
def _move(points: Floats, labels: Ints, centres: Floats, moved: Floats) -> float:
    """Centres to the means of their points; the sum of squares of how far they go, −1 if one has none."""
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
