"""Anchors: rows of V that resemble future rows, with precomputed sums, so that a row costs only its difference.

The neighbors of a query are mostly those of some nearby training query. If v = c a + δ, where a is the row of such an
anchor,

    v·H = c a·H + δ·H    and    v·G(w) = c a·G(w) + δ·G(w)

so only the queries in δ are read: those in one of the two rows but not in the other. A certified model starts from the
anchor's own model, which is nearer than w₀; a bare one starts from w₀ as usual. Rows are certified in single precision
if the bound on its rounding error permits, and in double precision otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from querywise.learners.ranksvm.certificates import Objective, RoundedRows, errors, objective_sums
from querywise.learners.ranksvm.newton import Ridge
from querywise.learners.ranksvm.preferences import Preferences
from querywise.learners.ranksvm.systems import LARGE, Curved, solver, step_sums
from querywise.learners.weights import WeightRows
from querywise.runtime.arrays import Floats, Ints, Singles, for_kernels

_FAR = 0.7  # share of a row's queries: if more are left, starting from an anchor does not pay
_CLOSE = 0.25  # if no more are left, a first step may use the anchor's own curvature
_STEPS = 20
_PROGRESS = 0.8  # a step must shrink the gap to at most this share for another one to be tried
_ROUNDED = 1 / 2  # share of the allowed gradient norm that rounding may contribute
_ROOM = 500_000_000  # bytes for rows in single precision


class Given(NamedTuple):
    """The data that all models are trained from.

    The number of pairs of each query, whether pairs rather than queries count equally, G and H at w₀, the pairs
    themselves unless models are bare, the penalties, and the tolerance.
    """

    counts: Ints
    by_pair: bool
    gradients: Floats
    curvatures: Singles
    pairs: Preferences | None
    ridge: Ridge
    tolerance: float

    @staticmethod
    def of(
        counts: Ints, counted: str, curved: Curved, pairs: Preferences | None, ridge: Ridge, tolerance: float | None
    ) -> Given:
        """Return the data with arrays that kernels accept."""
        return Given(
            for_kernels(counts),
            counted == "pair",
            for_kernels(curved.gradients),
            for_kernels(curved.curvatures),
            None if tolerance is None else pairs,
            ridge,
            tolerance or 0.0,
        )


class AnchorRow(NamedTuple):
    """A row of V: the queries with weight, and their shares."""

    queries: Ints
    shares: Floats


class Near(NamedTuple):
    """A row of V written as a multiple of an anchor's row plus a difference for each remaining query."""

    anchor: int
    times: float
    queries: Ints
    shares: Floats


class Anchors(NamedTuple):
    """Some dense rows of V, where each has a share (queries first), how many queries that are, and their packed a·H.

    `points` is where models step from: w₀ or each anchor's own model. `pulls` holds a·G there, and `penalties` the
    gradients of the penalties. For certified models `factors` holds the Cholesky factors of the anchors' systems, and
    `rounded` the rows used for certification if single precision suffices.
    """

    given: Given
    rows: Floats
    held: Singles
    sizes: Singles
    sums: Singles
    factors: Singles
    points: Floats
    pulls: Floats
    penalties: Floats
    rounded: RoundedRows | None

    @staticmethod
    def of(shares: WeightRows, given: Given, points: Floats) -> Anchors:
        """Return the anchors of some rows; without pairs, models are bare and all points are w₀."""
        from querywise.learners.ranksvm import local_kernels

        rows, ridge = shares.matrix().toarray(), given.ridge
        held = np.ascontiguousarray((rows > 0).T, dtype=np.float32)
        pulls, sums = step_sums(Curved(given.gradients, given.curvatures), shares)
        factors, rounded = np.empty((0, 0), np.float32), None
        if given.pairs is not None:
            (losses, pulls), factors = objective_sums(given.pairs, shares, points), np.empty_like(sums)
            local_kernels.factorise(sums, ridge.strength, np.zeros_like(points), factors)
            rounded = _rounded(given, given.pairs, points, losses)
        penalties = ridge.gradient(points)
        return Anchors(given, rows, held, held.sum(axis=0), sums, factors, points, pulls, penalties, rounded)

    def row(self, weights: csr_array) -> AnchorRow:
        """Return the same row as `WeightRows.of`, faster; an empty one if the weights are invalid."""
        from querywise.learners.ranksvm import local_kernels

        queries = weights.indices.astype(np.int64, copy=False)
        return AnchorRow(*local_kernels.shared_out(queries, weights.data, self.given.counts, self.given.by_pair))

    def nearest(self, row: AnchorRow) -> Near | None:
        """Return the anchor that a row resembles most, or None if it resembles none enough."""
        from querywise.learners.ranksvm import local_kernels

        if not len(row.queries):
            return None
        found = Near(*local_kernels.nearest_row(self.rows, self.held, self.sizes, *row))
        return found if len(found.queries) <= _FAR * len(row.queries) else None

    def bare(self, weights: csr_array) -> Floats | None:
        """Return a row's model after a single step from w₀, or None if it resembles no anchor enough."""
        from querywise.learners.ranksvm import local_kernels

        given, step = self.given, self.penalties[:1].copy()
        packed, queries = np.empty((1, self.sums.shape[1]), np.float32), weights.indices.astype(np.int64, copy=False)
        strength, by_kernel = given.ridge.strength, step.shape[1] < LARGE
        near = local_kernels.bare_system(
            queries, weights.data, given.counts, given.by_pair, self.rows, self.held, self.sizes, self.sums, self.pulls,
            given.gradients, given.curvatures, _FAR, strength if by_kernel else -1.0, step, packed,
        )  # fmt: skip
        if not near:
            return None
        found: Floats = self.points[0] - (step[0] if by_kernel else solver(packed[0], strength, step.shape[1])(step[0]))
        return found

    def certified(self, near: Near, row: AnchorRow) -> tuple[Floats, bool]:
        """Return a row's model after steps from its anchor's, and whether it is proven to be within the tolerance.

        The first step may use the anchor's curvature, further ones that of the row at w₀.
        """
        ridge, tolerance = self.given.ridge, self.given.tolerance
        weights, solve, best = self.points[near.anchor], None, np.inf
        gradient = self.penalties[near.anchor] + near.times * self.pulls[near.anchor]
        gradient += self._objective(AnchorRow(near.queries, near.shares), weights).gradient
        if len(near.queries) > _CLOSE * len(row.queries):
            solve = self._solver(near)
        for _ in range(_STEPS):
            weights = weights - (self._solved(near.anchor, gradient) if solve is None else solve(gradient))
            losses, gradient, off = self._objective(row, weights)
            gradient += ridge.gradient(weights)
            gap = (math.sqrt(gradient @ gradient) + off) ** 2 / (2 * ridge.strength)
            if gap <= tolerance * (losses + ridge.value(weights)):
                return weights, True
            if gap >= _PROGRESS * best:
                break
            if solve is None:
                solve = self._solver(near)
            else:
                best = gap
        if self.rounded is not None:
            return self._replace(rounded=None).certified(near, row)
        return weights, False

    def _solver(self, near: Near) -> Callable[[Floats], Floats]:
        """Return a function that solves a row's own system."""
        from querywise.learners.ranksvm import local_kernels

        given, unused = self.given, np.zeros(self.points.shape[1])
        packed, own = np.empty((1, self.sums.shape[1]), np.float32), self.sums[near.anchor]
        local_kernels.add_system(
            near.times, near.queries, near.shares, given.gradients, given.curvatures, own, unused, packed
        )
        return solver(packed[0], given.ridge.strength, len(unused))

    def _solved(self, anchor: int, right: Floats) -> Floats:
        """Return the solution of an anchor's system."""
        from querywise.learners.ranksvm import local_kernels

        found: Floats = right.copy()
        local_kernels.solve(self.factors, np.array([anchor]), found[None, :])
        return found

    def _objective(self, row: AnchorRow, weights: Floats) -> Objective:
        """Return the losses of one model over a row's queries."""
        from querywise.learners.ranksvm import kernels

        pairs = self.given.pairs
        assert pairs is not None, "or models are bare"
        if self.rounded is not None:
            return self.rounded.objective(pairs, *row, weights)
        gradient = np.zeros(len(weights))
        return Objective(kernels.model_objective(*pairs.for_kernels(), *row, weights, gradient), gradient, 0.0)


def _rounded(given: Given, pairs: Preferences, points: Floats, losses: Floats) -> RoundedRows | None:
    """Return rows in single precision if these suffice to certify at least half the models at these points.

    Otherwise, return None.
    """
    if pairs.features.size * 4 > _ROOM:
        return None
    found = RoundedRows.of(pairs)
    _, off = errors(np.linalg.norm(points, axis=1), losses, points.shape[1], found.extent)
    values = losses + np.array([given.ridge.value(point) for point in points])
    enough = off <= _ROUNDED * np.sqrt(2 * given.ridge.strength * given.tolerance * values)
    return found if 2 * np.count_nonzero(enough) >= len(points) else None
