"""The systems ((λ+μ) I + V·H) x = g of many models: sums over training queries, and solving the small systems.

The sums V·G and V·H are computed in the parts that workers keep; the systems are symmetric and positive definite, and
solved more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from querywise.errors import SolverError
from querywise.learners.ranksvm.newton import Ridge, State
from querywise.learners.ranksvm.preferences import SQUARED_HINGE, Preferences, total
from querywise.learners.weights import WeightRows
from querywise.runtime.arrays import Bools, Floats, Ints, Singles, for_kernels
from querywise.runtime.threads import in_threads, slices
from querywise.runtime.workers import Kept, Workers

_DENSE_ROWS = 64  # models from which V may be multiplied as a dense matrix
_DENSE = 0.2  # share of queries with weight from which that is faster despite the zeros

_Part = TypeVar("_Part")
_FEW = 16  # features below which LAPACK's LU is as fast
_BLOCK = 64  # systems processed at a time
LARGE = 96  # features from which LAPACK factorizes one system faster, including the call

_NONE = np.empty((0, 0), np.float32)

Sums = Sequence[tuple[Floats, Singles]]  # V·G and packed V·H, from every part


class Curved(NamedTuple):
    """The gradient and the packed curvature of some training queries at w₀."""

    gradients: Floats
    curvatures: Singles


def curved_queries(preferences: Preferences, state: State) -> Curved:
    """Return the gradient and the curvature of every query of a part at the optimum, given its state there."""
    mean = np.where(preferences.pairs > 0, 1 / np.maximum(preferences.pairs, 1), 0.0)
    gradients = preferences.gradients(state.sums.gradient, mean)
    curvatures = preferences.curvatures(state.scores, state.sums.degree, mean, SQUARED_HINGE)  # in single precision
    if not np.isfinite(curvatures.sum(dtype=np.float64)):
        raise SolverError("The features are too large. Use scale='standard', or divide them by a constant.")
    return Curved(gradients, curvatures)


def gradient_sums(curved: Curved, shares: WeightRows) -> Floats:
    """Return a part of V·G."""
    return shares.times(curved.gradients)


def step_sums(curved: Curved, shares: WeightRows) -> tuple[Floats, Singles]:
    """Return a part of V·G and of V·H, the latter packed."""
    entries = len(shares) * shares.columns
    dense = len(shares) >= _DENSE_ROWS and len(shares.queries) >= _DENSE * entries
    sums = np.empty((len(shares), curved.curvatures.shape[1]), np.float32)
    (_multiply if dense else _gather)(shares, curved.curvatures, sums)
    return gradient_sums(curved, shares), sums


def _multiply(shares: WeightRows, table: Singles, sums: Singles) -> None:
    """Compute rows of V·H by matrix products."""
    matrix = shares.matrix().astype(np.float32)

    def part(block: slice) -> None:
        np.dot(matrix[block].toarray(), table, out=sums[block])

    in_threads(part, slices(len(shares), 256))


def _gather(shares: WeightRows, table: Singles, sums: Singles) -> None:
    """Compute rows of V·H query by query."""
    from querywise.learners.ranksvm import local_kernels

    weights = shares.shares.astype(np.float32)
    pointers, queries, curvatures = for_kernels(shares.pointers), for_kernels(shares.queries), for_kernels(table)

    def part(block: slice) -> None:
        local_kernels.packed_sums(pointers[block.start : block.stop + 1], queries, weights, curvatures, sums[block])

    in_threads(part, slices(len(shares), 64))


def gradients_of(curved: Curved) -> Floats:
    """Return the gradients of some training queries."""
    return curved.gradients


@dataclass(frozen=True)
class Spread:
    """The training queries in consecutive parts."""

    workers: Workers
    curved: Sequence[Curved | Kept]  # of every part, kept by workers; empty with the hinge
    pairs: Sequence[Preferences | Kept]  # Preferences of every part, kept by workers; empty if models are single steps
    cuts: Ints  # the first query of each part, and the total number

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def here(self) -> tuple[Curved, Preferences | None]:
        """Return the only part, which is in memory here; no pairs if models are single steps."""
        curved, pairs = self.curved[0], self.pairs[0] if self.pairs else None
        assert isinstance(curved, Curved)
        assert pairs is None or isinstance(pairs, Preferences)
        return curved, pairs

    def fetched(self, parts: Sequence[_Part | Kept]) -> list[_Part]:
        """Fetch parts of the data that are kept by workers."""
        return self.workers.each(_identity, parts)

    def asked(self, parts: Sequence[_Part], shares: WeightRows) -> tuple[list[_Part], list[WeightRows]]:
        """Return the parts that contain a query with weight in some row, and the rows restricted to each part."""
        if len(self) == 1:
            return [parts[0]], [shares]
        pieces = [shares.of_queries(first, last) for first, last in pairwise(self.cuts.tolist())]
        some = [number for number, piece in enumerate(pieces) if len(piece.queries)] or [0]
        return [parts[number] for number in some], [pieces[number] for number in some]

    def holding(self, queries: Ints) -> tuple[list[Preferences | Kept], list[Ints]]:
        """Return the parts with some queries, given in ascending order, and the indices of these queries there."""
        ends = np.searchsorted(queries, self.cuts).tolist()
        some = [number for number, (first, last) in enumerate(pairwise(ends)) if last > first]
        numbers = [queries[ends[each] : ends[each + 1]] - self.cuts[each] for each in some]
        return [self.pairs[each] for each in some], numbers


def _identity(part: _Part) -> _Part:
    return part


class LinearSystems(NamedTuple):
    """Systems ready to be solved: full matrices if features are few, else Cholesky factors, packed like the sums.

    Factors are in single precision, like the sums.
    """

    matrices: Floats
    factors: Singles


def curvature(sums: Sums, strength: float) -> Floats:
    """Return (λ+μ) I + V·H, a full matrix per row."""
    from querywise.learners.ranksvm import local_kernels

    packed, d = _packed(sums), sums[0][0].shape[1]
    full = np.empty((len(packed), d, d))

    def part(block: slice) -> None:
        local_kernels.unpacked(packed[block], strength, full[block])

    in_threads(part, slices(len(full), _BLOCK))
    return full


def factored(sums: Sums, strength: float, right: Floats, *, again: bool) -> tuple[Floats, LinearSystems]:
    """Return the solutions for a right-hand side each, and the systems if they are to be solved again."""
    from querywise.learners.ranksvm import local_kernels

    if right.shape[1] < _FEW:
        ready = LinearSystems(curvature(sums, strength), _NONE)
        return solved(ready, np.arange(len(right)), right), ready
    packed, found = _packed(sums), np.array(right)
    factors = np.empty(packed.shape, np.float32) if again else _NONE

    def part(block: slice) -> None:
        local_kernels.factorise(packed[block], strength, found[block], factors[block])

    in_threads(part, slices(len(packed), _BLOCK))
    return found, LinearSystems(np.empty((0, 0, 0)), factors)


def solved(systems: LinearSystems, rows: Ints, right: Floats) -> Floats:
    """Return the solutions of some of the systems, given a right-hand side each."""
    from querywise.learners.ranksvm import local_kernels

    found, factors = np.array(right), for_kernels(systems.factors)

    def part(block: slice) -> None:
        if right.shape[1] < _FEW:
            found[block] = np.linalg.solve(systems.matrices[rows[block]], right[block][:, :, None])[:, :, 0]
        else:
            local_kernels.solve(factors, rows[block], found[block])

    try:
        in_threads(part, slices(len(rows), _BLOCK))
    except np.linalg.LinAlgError:
        raise SolverError("l2 is too small for these features, a local model is not unique; raise it.") from None
    return found


def solver(packed: Singles, strength: float, d: int) -> Callable[[Floats], Floats]:
    """Return a function that solves one system, given by its packed sum, for right-hand sides."""
    from querywise.learners.ranksvm import local_kernels

    if d >= LARGE:
        from scipy.linalg.lapack import dpotrf, dpotrs

        full = np.empty((d, d))
        local_kernels.upper(packed, strength, full)
        factor, failed = dpotrf(full.T, lower=1, clean=0, overwrite_a=1)
        if not failed:
            return lambda right: dpotrs(factor, right, lower=1)[0]
    factors = np.empty((1, len(packed)), np.float32)
    local_kernels.factorise(packed[None, :], strength, np.zeros((1, d)), factors)

    def solve(right: Floats) -> Floats:
        found: Floats = right.copy()
        local_kernels.solve(factors, np.zeros(1, np.int64), found[None, :])
        return found

    return solve


def _packed(sums: Sums) -> Singles:
    return for_kernels(sums[0][1]) if len(sums) == 1 else total([each for _, each in sums])


def first_step(sums: Sums, has_pairs: Bools, ridge: Ridge, centre: Floats, more: bool) -> tuple[Floats, LinearSystems]:
    """Return the step from w₀ for some rows, and its systems, which can be solved again if more steps may follow."""
    weights = np.where(has_pairs[:, None], centre, ridge.minimiser)
    gradient = np.where(has_pairs[:, None], ridge.gradient(centre) + total([each for each, _ in sums]), 0.0)
    step, systems = factored(sums, ridge.strength, gradient, again=more)
    return weights - step, systems
