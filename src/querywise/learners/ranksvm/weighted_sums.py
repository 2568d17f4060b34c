"""Sums over training queries by the weights of models, V·G and V·H, in the parts of them that workers keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from querywise.errors import SolverError
from querywise.learners.ranksvm.newton import State
from querywise.learners.ranksvm.preferences import SQUARED_HINGE, Preferences
from querywise.learners.weights import WeightRows
from querywise.runtime.arrays import Floats, Ints, Singles, for_kernels
from querywise.runtime.threads import in_threads, slices
from querywise.runtime.workers import Kept, Workers

_DENSE_ROWS = 64  # models from which on V may be multiplied as a dense matrix
_DENSE = 0.2  # the share of queries with weight from which on that is faster, zeros and all

_Part = TypeVar("_Part")


class Curved(NamedTuple):
    """Some training queries: the gradient and the packed curvature of each at w₀."""

    gradients: Floats
    curvatures: Singles


def curved_queries(preferences: Preferences, state: State) -> Curved:
    """The gradient and the curvature of every query of a part at the optimum, given its state there."""
    mean = np.where(preferences.pairs > 0, 1 / np.maximum(preferences.pairs, 1), 0.0)
    gradients = preferences.gradients(state.sums.gradient, mean)
    curvatures = preferences.curvatures(state.scores, state.sums.degree, mean, SQUARED_HINGE)  # in single precision
    if not np.isfinite(curvatures.sum(dtype=np.float64)):
        raise SolverError("Features as large as these need scale='standard', or must be divided.")
    return Curved(gradients, curvatures)


def gradient_sums(curved: Curved, shares: WeightRows) -> Floats:
    """A part of V·G."""
    return shares.times(curved.gradients)


def step_sums(curved: Curved, shares: WeightRows) -> tuple[Floats, Singles]:
    """A part of V·G and of V·H, the latter packed."""
    entries = len(shares) * shares.columns
    dense = len(shares) >= _DENSE_ROWS and len(shares.queries) >= _DENSE * entries
    sums = np.empty((len(shares), curved.curvatures.shape[1]), np.float32)
    (_multiply if dense else _gather)(shares, curved.curvatures, sums)
    return gradient_sums(curved, shares), sums


def _multiply(shares: WeightRows, table: Singles, sums: Singles) -> None:
    """Rows of V·H, by matrix products."""
    matrix = shares.matrix().astype(np.float32)

    def part(block: slice) -> None:
        np.dot(matrix[block].toarray(), table, out=sums[block])

    in_threads(part, slices(len(shares), 256))


def _gather(shares: WeightRows, table: Singles, sums: Singles) -> None:
    """Rows of V·H, query by query."""
    from querywise.learners.ranksvm import local_kernels

    weights = shares.shares.astype(np.float32)
    pointers, queries, curvatures = for_kernels(shares.pointers), for_kernels(shares.queries), for_kernels(table)

    def part(block: slice) -> None:
        local_kernels.packed_sums(pointers[block.start : block.stop + 1], queries, weights, curvatures, sums[block])

    in_threads(part, slices(len(shares), 64))


def gradients_of(curved: Curved) -> Floats:
    """The gradients of some training queries."""
    return curved.gradients


@dataclass(frozen=True)
class Spread:
    """The training queries in parts, one after the other."""

    workers: Workers
    curved: Sequence[Curved | Kept]  # kept, of every part; none with the hinge
    pairs: Sequence[Preferences | Kept]  # Preferences, kept, of every part; none where models are single steps
    cuts: Ints  # the first query of each, and how many there are in all

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def here(self) -> tuple[Curved, Preferences | None]:
        """The only part, which is in memory here; no pairs where models are single steps."""
        curved, pairs = self.curved[0], self.pairs[0] if self.pairs else None
        assert isinstance(curved, Curved)
        assert pairs is None or isinstance(pairs, Preferences)
        return curved, pairs

    def fetched(self, parts: Sequence[_Part | Kept]) -> list[_Part]:
        """Parts that workers keep, here."""
        return self.workers.each(_identity, parts)

    def asked(self, parts: Sequence[_Part], shares: WeightRows) -> tuple[list[_Part], list[WeightRows]]:
        """The parts with a query that some rows weight, and these rows there."""
        if len(self) == 1:
            return [parts[0]], [shares]
        pieces = [shares.of_queries(first, last) for first, last in pairwise(self.cuts.tolist())]
        some = [number for number, piece in enumerate(pieces) if len(piece.queries)] or [0]
        return [parts[number] for number in some], [pieces[number] for number in some]

    def holding(self, queries: Ints) -> tuple[list[Preferences | Kept], list[Ints]]:
        """The parts that have some queries, given in ascending order, and the numbers these have there."""
        ends = np.searchsorted(queries, self.cuts).tolist()
        some = [number for number, (first, last) in enumerate(pairwise(ends)) if last > first]
        numbers = [queries[ends[each] : ends[each + 1]] - self.cuts[each] for each in some]
        return [self.pairs[each] for each in some], numbers


def _identity(part: _Part) -> _Part:
    return part
