"""Centres: a few points with local models around them, where every training query's gradient is known.

The step from w₀ is the less exact the farther it goes. A step with the same curvature from a centre c that is nearer,

    w = c − ((λ+μ) I + V·H)⁻¹ (λ c + μ (c − w₀) + V·G(c))

goes on from there for the price of a sum: G(c), every query's gradient at c, is computed once for all models around c.

A centre is so near that the curvature hardly matters: where many models are alike, that of their mean row of V does for
all of them, and none needs one of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from querywise.learners.ranksvm.preferences import Preferences, query_ranges
from querywise.learners.ranksvm.systems import Systems, solved
from querywise.learners.weight_rows import WeightRows
from querywise.runtime.arrays import Floats, Ints, for_kernels
from querywise.runtime.threads import in_threads
from querywise.runtime.workers import Kept

_ROUNDS = 10  # of Lloyd's algorithm
_QUERY_BLOCKS = 16


class Centres(NamedTuple):
    """The points, a row each, and what `gradients_at` has for every part of the training queries, kept.

    `system` has the curvature that models have in common, if it does for them.
    """

    points: Floats
    gradients: Sequence[Kept]
    system: Systems | None = None

    def solve(self, right: Floats) -> Floats:
        """The solutions of the system that models have in common, for a right side each."""
        assert self.system is not None
        return solved(self.system, np.zeros(len(right), np.int64), right)


def centre_points(models: Floats, count: int) -> Floats:
    """So many centres of some models, by K-means from models as far apart as can be; nothing is drawn at random."""
    chosen = [models[_squares(models, models.mean(axis=0)).argmax()]]
    for _ in range(count - 1):
        chosen.append(models[np.min([_squares(models, each) for each in chosen], axis=0).argmax()])
    points = np.array(chosen)
    for _ in range(_ROUNDS):
        own = nearest(points, models)
        points = np.array([models[own == each].mean(axis=0) for each in np.unique(own)])
    return points


def nearest(points: Floats, models: Floats) -> Ints:
    """The number of the point nearest to each model."""
    found: Ints = np.argmin([_squares(models, each) for each in points], axis=0)
    return found


def gradients_at(pairs: Preferences, points: Floats) -> Floats:
    """Points × queries × features: the gradient of each query's mean loss there."""
    from querywise.learners.ranksvm import kernels

    gradients = np.empty((len(points), len(pairs.pairs), points.shape[1]))
    models = for_kernels(points)

    def part(queries: range) -> None:
        kernels.gradients_at(*pairs.for_kernels(), models, queries.start, queries.stop, gradients)

    in_threads(part, query_ranges(pairs.starts, _QUERY_BLOCKS))
    return gradients


def sums_at(gradients: Floats, shares: WeightRows, own: Ints) -> Floats:
    """A part of V·G(c) for some models, c being each one's own centre."""
    sums = np.empty((len(shares), gradients.shape[2]))
    for number, table in enumerate(gradients):
        rows = np.flatnonzero(own == number)
        if len(rows):
            sums[rows] = shares.select(rows).times(table)
    return sums


def _squares(models: Floats, point: Floats) -> Floats:
    away = models - point
    squares: Floats = np.einsum("ij,ij->i", away, away)
    return squares
