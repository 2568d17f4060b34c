"""The preference pairs of a judged set, and sums of a loss over them: values, gradients, curvature.

Everything is computed in blocks of whole queries that do not depend on the number of threads, and added up in a fixed
order, so results do not depend on it either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from querywise.arrays import Floats, Ints
from querywise.data.groups import count_pairs
from querywise.threads import in_threads

_BLOCK_ROWS = 4_096


@dataclass(frozen=True)
class Loss:
    """One member of the family described in `pairwise`: a parabola between `lower` and `upper`, a line below."""

    upper: float
    lower: float
    q: float


SQUARED_HINGE = Loss(1.0, -np.inf, 1.0)


def smoothed_hinge(half_width: float) -> Loss:
    """The hinge, rounded where it bends; nowhere more than half_width/4 above it."""
    return Loss(1.0 + half_width, 1.0 - half_width, 1.0 / (4.0 * half_width))


@dataclass(frozen=True)
class PairSums:
    """At some scores: Σ ℓ of each query, its derivative by each document's score, each document's pairs in the band."""

    losses: Floats
    gradient: Floats
    degree: Floats


class Preferences:
    """The pairs {(a, b): label a > label b} of every query, never written down one by one."""

    def __init__(self, features: Floats, labels: Ints, starts: Ints) -> None:
        from querywise.learners import pairwise as kernels  # numba takes half a second to import

        self._kernels = kernels
        self.features = features
        # The kernels are compiled for writable arrays; read-only ones would have them compiled a second time.
        self.starts = starts.copy()
        self.levels = kernels.dense_levels(labels.copy(), self.starts)
        self.pairs = count_pairs(labels, starts)
        self._blocks = _blocks(self.starts)
        self._rows = [slice(int(self.starts[first]), int(self.starts[last])) for first, last in self._blocks]

    def scores(self, weights: Floats) -> Floats:
        """Every document's score under a linear model."""
        return np.concatenate(in_threads(lambda rows: self.features[rows] @ weights, self._rows))

    def by_weights(self, by_score: Floats) -> Floats:
        """A derivative by each document's score, as the derivative by the weights of a linear model."""
        return _total(in_threads(lambda rows: self.features[rows].T @ by_score[rows], self._rows))

    def sums(self, scores: Floats, loss: Loss) -> PairSums:
        """Losses and their derivatives at these scores."""
        result = PairSums(np.zeros(len(self.starts) - 1), np.zeros(len(scores)), np.zeros(len(scores)))
        shape = (loss.upper, loss.lower, loss.q)

        def block(queries: tuple[int, int]) -> None:
            self._kernels.pair_sums(
                scores, self.levels, self.starts, *queries, shape, result.losses, result.gradient, result.degree
            )

        in_threads(block, self._blocks)
        return result

    def curvature(self, scores: Floats, degree: Floats, query_weights: Floats, loss: Loss) -> Floats:
        """Σ_i weight_i · ∇² of query i's losses by the weights of a linear model: 2q Xᵀ L X over pairs in the band."""

        def block(queries: tuple[int, int]) -> Floats:
            features = self.features[self.starts[queries[0]] : self.starts[queries[1]]]
            rows = np.empty_like(features)
            self._kernels.curvature_rows(
                self.features, scores, self.levels, self.starts, *queries, loss.upper, loss.lower,
                degree, query_weights, rows,
            )  # fmt: skip
            return features.T @ rows

        half = _total(in_threads(block, self._blocks))
        return loss.q * (half + half.T)


def _total(parts: Sequence[Floats]) -> Floats:
    """The sum in the order of the parts, whatever order they were finished in."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def _blocks(starts: Ints) -> list[tuple[int, int]]:
    """Runs of whole queries with about the same number of rows."""
    cuts = [0]
    while cuts[-1] < len(starts) - 1:
        goal = starts[cuts[-1]] + _BLOCK_ROWS
        cuts.append(max(int(np.searchsorted(starts, goal, side="right")) - 1, cuts[-1] + 1))
    return list(pairwise(cuts))
