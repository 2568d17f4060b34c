"""Anchors: rows of V that those to come resemble, and what is known of them. A row then costs its difference alone.

The neighbours of a query are mostly those of some training query nearby. Where v = c a + δ, a being the row of such an
anchor,

    v·H = c a·H + δ·H    and    v·G(w) = c a·G(w) + δ·G(w)

so that only the queries in δ are read: those in one of the two rows, and not in the other. A model that is certified
steps from the anchor's own model, which is nearer than w₀; a bare one from w₀, as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from querywise.learners.ranksvm.newton import Ridge
from querywise.learners.ranksvm.preferences import Preferences
from querywise.learners.ranksvm.systems import solver
from querywise.learners.ranksvm.weighted_sums import Curved, objective_sums, step_sums
from querywise.learners.weight_rows import WeightRows
from querywise.runtime.arrays import Floats, Ints, Singles, for_kernels

_FAR = 0.7  # of a row's queries: where more are left than that, it is not worth starting from an anchor
_CLOSE = 0.25  # where no more are left than that, a first step may use the anchor's own curvature
_STEPS = 20
_PROGRESS = 0.8  # a step must shrink the gap at least to this for another to be tried


class Row(NamedTuple):
    """A row of V: the queries with weight, and their shares."""

    queries: Ints
    shares: Floats


class Near(NamedTuple):
    """A row of V as so many times an anchor's, and the queries that are left, with the difference of each."""

    anchor: int
    times: float
    queries: Ints
    shares: Floats


class Anchors(NamedTuple):
    """Some rows of V, dense, where each has a share (queries first), how many queries that are, and their a·H, packed.

    `points` is where models step from, w₀ or each anchor's own model, and `pulls` has a·G there. Of certified models
    `factors` has the Cholesky factors of the anchors' systems.
    """

    rows: Floats
    held: Singles
    sizes: Singles
    sums: Singles
    factors: Singles
    points: Floats
    pulls: Floats

    @staticmethod
    def of(shares: WeightRows, curved: Curved, pairs: Preferences | None, points: Floats, strength: float) -> Anchors:
        """Those of some rows; without pairs, models are bare and their points are w₀."""
        from querywise.learners.ranksvm import curvature_kernels

        rows = shares.matrix().toarray()
        held = np.ascontiguousarray((rows > 0).T, dtype=np.float32)
        pulls, sums = step_sums(curved, shares)
        factors = np.empty((0, 0), np.float32)
        if pairs is not None:
            pulls, factors = objective_sums(pairs, shares, points)[1], np.empty_like(sums)
            curvature_kernels.factorise(sums, strength, np.zeros_like(points), factors)
        return Anchors(rows, held, held.sum(axis=0), sums, factors, points, pulls)

    def nearest(self, row: Row) -> Near | None:
        """The anchor that a row resembles most; None where that is not much."""
        from querywise.learners.ranksvm import curvature_kernels

        found = Near(*curvature_kernels.nearest_row(self.rows, self.held, self.sizes, *row))
        return found if len(found.queries) <= _FAR * len(row.queries) else None

    def gradient(self, near: Near, ridge: Ridge, curved: Curved, pairs: Preferences | None) -> Floats:
        """That of a row's objective at the point of its anchor."""
        point: Floats = self.points[near.anchor]
        gradient: Floats = ridge.gradient(point) + near.times * self.pulls[near.anchor]
        if pairs is None:
            gradient += near.shares @ curved.gradients[near.queries]
        else:
            gradient += _objective(pairs, near.queries, near.shares, point)[1]
        return gradient

    def solver(self, near: Near, strength: float, curved: Curved) -> Callable[[Floats], Floats]:
        """What solves a row's own system."""
        from querywise.learners.ranksvm import curvature_kernels

        ends, packed = np.array([0, len(near.queries)]), np.empty((1, self.sums.shape[1]), np.float32)
        weights, table = near.shares.astype(np.float32), for_kernels(curved.curvatures)
        curvature_kernels.packed_sums(ends, near.queries, weights, table, packed)
        packed[0] += np.float32(near.times) * self.sums[near.anchor]
        return solver(packed[0], strength, self.points.shape[1])

    def solved(self, anchor: int, right: Floats) -> Floats:
        """The solution of an anchor's system."""
        from querywise.learners.ranksvm import curvature_kernels

        found: Floats = right.copy()
        curvature_kernels.solve(self.factors, np.array([anchor]), found[None, :])
        return found


def bare(anchors: Anchors, near: Near, ridge: Ridge, curved: Curved) -> Floats:
    """The model of a row by the one step from w₀."""
    solve, point = anchors.solver(near, ridge.strength, curved), anchors.points[near.anchor]
    found: Floats = point - solve(anchors.gradient(near, ridge, curved, None))
    return found


def certified(
    anchors: Anchors, near: Near, row: Row, ridge: Ridge, curved: Curved, pairs: Preferences, tolerance: float
) -> tuple[Floats, bool]:
    """The model of a row by steps from its anchor's, and whether it is proven to be within the tolerance.

    The first step may use the anchor's curvature, further ones that of the row at w₀.
    """
    gradient = anchors.gradient(near, ridge, curved, pairs)
    weights, solve = anchors.points[near.anchor], None
    if len(near.queries) > _CLOSE * len(row.queries):
        solve = anchors.solver(near, ridge.strength, curved)
    best = np.inf
    for _ in range(_STEPS):
        weights = weights - (anchors.solved(near.anchor, gradient) if solve is None else solve(gradient))
        loss, gradient = _objective(pairs, row.queries, row.shares, weights)
        gradient += ridge.gradient(weights)
        gap = float(gradient @ gradient) / (2 * ridge.strength)
        if gap <= tolerance * (loss + ridge.value(weights)):
            return weights, True
        if gap >= _PROGRESS * best:
            break
        if solve is None:
            solve = anchors.solver(near, ridge.strength, curved)
        else:
            best = gap
    return weights, False


def _objective(pairs: Preferences, queries: Ints, shares: Floats, weights: Floats) -> tuple[float, Floats]:
    """The losses of one model over some queries, by their shares, and their gradient."""
    from querywise.learners.ranksvm import kernels

    gradient = np.zeros(len(weights))
    return kernels.model_objective(*pairs.for_kernels(), queries, shares, weights, gradient), gradient
