"""The preference pairs of a judged set, and sums of a loss over them: values, gradients, curvature.

Everything is computed in blocks of whole queries and summed in a fixed order, so results do not depend on the number of
threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from querywise.data.rows import count_pairs, require_preferences, rows_of
from querywise.data.training import Shard, Training
from querywise.runtime.arrays import Floats, Ints, Singles, for_kernels
from querywise.runtime.cache import cached
from querywise.runtime.scaling import Scale, Scaling
from querywise.runtime.threads import cores, in_threads
from querywise.runtime.workers import Kept, ThisProcess, Workers, workers

_TABLE_BYTES = 400_000_000  # bytes of features × features tables at a time
_BLOCK_ROWS = 4_096
_RANGES = 16  # ranges of queries, whose sums are added in order, whatever the number of threads
_Number = TypeVar("_Number", np.float64, np.float32)
_Any = TypeVar("_Any", bound=np.generic)


@dataclass(frozen=True)
class Loss:
    """A loss of the family described in `kernels`: a parabola between `lower` and `upper`, a line below."""

    upper: float
    lower: float
    q: float


SQUARED_HINGE = Loss(1.0, -np.inf, 1.0)


def smoothed_hinge(half_width: float) -> Loss:
    """Return the hinge, smoothed at its kink and nowhere more than half_width/4 above it."""
    return Loss(1.0 + half_width, 1.0 - half_width, 1.0 / (4.0 * half_width))


class PairSums(NamedTuple):
    """At some scores: each query's Σ ℓ, its derivative by each document's score, and each document's band pairs."""

    losses: Floats
    gradient: Floats
    degree: Floats


def dense_levels(labels: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """Return each query's rows in ascending order of label, and their labels renumbered 0, 1, 2, … in that order."""
    query = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    rows = np.lexsort((labels, query))  # stable
    higher = np.zeros(len(rows), np.int64)
    higher[1:] = (labels[rows[1:]] != labels[rows[:-1]]) & (query[1:] == query[:-1])
    risen = np.cumsum(higher)
    firsts = np.minimum(starts[:-1], max(len(rows) - 1, 0))
    return rows, risen - np.repeat(risen[firsts] if len(rows) else firsts, np.diff(starts))


class Preferences:
    """The pairs {(a, b): label a > label b} of every query, never enumerated.

    Documents of a query are in ascending order of label: `rows` are their rows in the original set, and scores and
    gradients here follow this order.
    """

    def __init__(self, features: Floats, labels: Ints, starts: Ints) -> None:
        self.rows, levels = dense_levels(labels, starts)
        # The kernels are compiled for writable arrays; read-only ones would trigger a second compilation.
        self._remember(features[self.rows], levels, starts.copy(), count_pairs(labels, starts))

    def __getstate__(self) -> tuple[Floats, Ints, Ints, Ints]:
        return self.features, self.levels, self.starts, self.pairs

    def __setstate__(self, state: tuple[Floats, Ints, Ints, Ints]) -> None:
        self._remember(*state)

    def _remember(self, features: Floats, levels: Ints, starts: Ints, pairs: Ints) -> None:
        from querywise.learners.ranksvm import kernels, local_kernels  # importing numba takes half a second

        self._kernels: Any = kernels
        self._local: Any = local_kernels
        self.features = features
        self.levels = levels
        self.starts = starts
        self.pairs = pairs
        self._blocks = _blocks(starts)
        self._rows = [slice(int(starts[first]), int(starts[last])) for first, last in self._blocks]

    def for_kernels(self) -> tuple[Floats, Ints, Ints, Ints]:
        """Return features, levels, starts and pairs in the form that compiled kernels accept."""
        return for_kernels(self.features), for_kernels(self.levels), for_kernels(self.starts), for_kernels(self.pairs)

    def select(self, queries: Ints) -> Preferences:
        """Return the preferences of some queries."""
        rows = rows_of(self.starts, queries)
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[queries])])
        chosen = Preferences.__new__(Preferences)
        chosen._remember(self.features[rows], self.levels[rows], starts, self.pairs[queries])
        return chosen

    @staticmethod
    def joined(parts: Sequence[Preferences]) -> Preferences:
        """Return the preferences of several sets, joined."""
        if len(parts) == 1:
            return parts[0]
        sizes = np.concatenate([np.diff(each.starts) for each in parts])
        together = Preferences.__new__(Preferences)
        together._remember(
            joined([each.features for each in parts]),
            joined([each.levels for each in parts]),
            np.concatenate([[0], np.cumsum(sizes)]),
            joined([each.pairs for each in parts]),
        )
        return together

    def scores(self, weights: Floats) -> Floats:
        """Return every document's score by a linear model."""
        return np.concatenate(in_threads(lambda rows: self.features[rows] @ weights, self._rows))

    def by_weights(self, by_score: Floats) -> Floats:
        """Return the derivative by the weights of a linear model, given the derivative by each document's score."""
        return total(in_threads(lambda rows: self.features[rows].T @ by_score[rows], self._rows))

    def sums(self, scores: Floats, loss: Loss) -> PairSums:
        """Return losses and their derivatives at these scores."""
        result = PairSums(np.zeros(len(self.starts) - 1), np.zeros(len(scores)), np.zeros(len(scores)))
        shape = (loss.upper, loss.lower, loss.q)
        _, levels, starts, pairs = self.for_kernels()
        given = for_kernels(scores)
        long = pairs > self._kernels.MOST_DIRECTLY * np.diff(starts)
        kernels = [self._kernels.direct_sums, *([self._kernels.swept_sums] if long.any() else [])]

        def block(queries: tuple[int, int]) -> None:
            for kernel in kernels:
                kernel(given, levels, starts, long, *queries, shape, *result)

        in_threads(block, self._blocks)
        return result

    def curvature(self, scores: Floats, degree: Floats, query_weights: Floats, loss: Loss) -> Floats:
        """Return Σ_i weight_i · ∇² of query i's losses by linear weights: 2q Xᵀ L X over pairs in the band."""

        def block(queries: tuple[int, int]) -> Floats:
            features, rows = self._curvature_rows(queries, scores, degree, query_weights, loss)
            return features.T @ rows

        # A few at a time: every block returns a whole table.
        some = max(cores(), _TABLE_BYTES // max(8 * self.features.shape[1] ** 2, 1))
        half = total(in_threads(block, self._blocks[:some]))
        for first in range(some, len(self._blocks), some):
            for part in in_threads(block, self._blocks[first : first + some]):
                half += part
        return loss.q * (half + half.T)

    def curvatures(self, scores: Floats, degree: Floats, query_weights: Floats, loss: Loss) -> Singles:
        """Return the same for every single query, as packed upper triangles in single precision."""
        columns = self.features.shape[1]
        packed = np.empty((len(self.starts) - 1, columns * (columns + 1) // 2), np.float32)
        features, _, starts, _ = self.for_kernels()

        def block(queries: tuple[int, int]) -> None:
            _, rows = self._curvature_rows(queries, scores, degree, query_weights, loss)
            self._local.packed_curvatures(features, rows, starts, *queries, loss.q, packed)

        in_threads(block, self._blocks)
        return packed

    def gradients(self, by_score: Floats, query_weights: Floats) -> Floats:
        """Return every query's gradient by the weights of a linear model, times its weight."""
        gradients = np.empty((len(self.starts) - 1, self.features.shape[1]))
        features, _, starts, _ = self.for_kernels()
        pulls, weights = for_kernels(by_score), for_kernels(query_weights)

        def block(queries: tuple[int, int]) -> None:
            self._local.query_gradients(features, pulls, starts, weights, *queries, gradients)

        in_threads(block, self._blocks)
        return gradients

    def _curvature_rows(
        self, queries: tuple[int, int], scores: Floats, degree: Floats, query_weights: Floats, loss: Loss
    ) -> tuple[Floats, Floats]:
        features, levels, starts, _ = self.for_kernels()
        own = features[starts[queries[0]] : starts[queries[1]]]
        rows = np.empty_like(own)
        self._local.curvature_rows(
            features, for_kernels(scores), levels, starts, *queries, loss.upper, loss.lower,
            for_kernels(degree), for_kernels(query_weights), rows,
        )  # fmt: skip
        return own, rows


def joined(parts: Sequence[NDArray[_Any]]) -> NDArray[_Any]:
    """Concatenate tables; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def total(parts: Sequence[NDArray[_Number]]) -> NDArray[_Number]:
    """Return the sum in the order of the parts, whatever order they were finished in."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def _blocks(starts: Ints) -> list[tuple[int, int]]:
    """Return runs of whole queries with about the same number of rows."""
    cuts = [0]
    while cuts[-1] < len(starts) - 1:
        goal = starts[cuts[-1]] + _BLOCK_ROWS
        cuts.append(max(int(np.searchsorted(starts, goal, side="right")) - 1, cuts[-1] + 1))
    return list(pairwise(cuts))


def query_ranges(starts: Ints) -> Sequence[range]:
    """Return runs of queries with about the same number of rows."""
    cuts = np.searchsorted(starts, np.linspace(0, starts[-1], _RANGES + 1)).clip(0, len(starts) - 1)
    cuts[-1] = len(starts) - 1
    return [range(first, last) for first, last in pairwise(cuts.tolist()) if last > first]


@dataclass(frozen=True)
class PreferenceParts:
    """Preferences in consecutive parts; `pairs` are the counts of every query."""

    workers: Workers
    parts: Sequence[Preferences | Kept]
    pairs: Ints
    cuts: Ints  # the first query of each part, and the total number

    @staticmethod
    def of(preferences: Preferences) -> PreferenceParts:
        """Return all preferences as one part in this process."""
        return PreferenceParts(ThisProcess(), [preferences], preferences.pairs, np.array([0, len(preferences.pairs)]))

    def split(self, values: Floats) -> list[Floats]:
        """Split an array with one value per query into one array per part."""
        return [values[first:last] for first, last in pairwise(self.cuts.tolist())]


def preference_parts(data: Training, scale: Scale) -> tuple[PreferenceParts, Scaling]:
    """Return a training set's pairs with scaled features, part by part, and the scaling."""
    return cached("pairs", scale, data, lambda: _made_parts(data, scale))


def _made_parts(data: Training, scale: Scale) -> tuple[PreferenceParts, Scaling]:
    pool = workers()
    found = data.surveys()
    pairs = np.concatenate([each.pairs for each in found])
    require_preferences(pairs)
    scaling = Scaling.by([each.moments for each in found], scale)
    parts = pool.keep(_preferences, data.parts(), shared=(scaling,))
    cuts = np.cumsum([0, *(len(each.pairs) for each in found)])
    return PreferenceParts(pool, parts, pairs, cuts), scaling


def _preferences(part: Shard, scaling: Scaling) -> Preferences:
    data = part.load()
    return Preferences(scaling.apply(data.candidates.features), data.labels, data.candidates.starts)
