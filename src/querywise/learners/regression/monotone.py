"""Monotone target transformation: any non-decreasing function of the targets, for each group of rows [zha2006]_.

Given the fitted function h, a group's function t takes one value for each distinct target y,

    min Σ_j (t(y_j) − h_j)²  +  λ Σ_y (t(y) − y)²,        t non-decreasing

which is isotonic regression of (Σh + λ y) / (n + λ) on y with weights n + λ, n the rows with target y. The paper leaves
functions beyond the linear ones open.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from querywise.learners.regression.targets import LARGEST, Transforms
from querywise.runtime.arrays import Floats, Ints


class Bent(NamedTuple):
    """Targets under the best functions, and λ Σ (t(y) − y)² of all groups."""

    targets: Floats
    penalty: float


def bent(targets: Floats, fitted: Floats, starts: Ints, penalty: float) -> Bent:
    """The targets of every group under its best function; rows `starts[g]:starts[g + 1]` are group g's."""
    found, cost = targets.copy(), 0.0
    if penalty >= LARGEST:
        return Bent(found, 0.0)
    for first, last in pairwise(starts.tolist()):
        if first == last:
            continue
        levels, place = np.unique(targets[first:last], return_inverse=True)
        weights = np.bincount(place) + penalty
        wished = (np.bincount(place, fitted[first:last]) + penalty * levels) / weights
        values = isotonic_regression(wished, weights=weights).x
        found[first:last] = values[place]
        cost += penalty * float(np.sum((values - levels) ** 2))
    return Bent(found, cost)


def nearest_lines(before: Floats, after: Floats, starts: Ints) -> Transforms:
    """α and β of the line nearest to each group's change of targets; α is 1 where all its targets are equal."""
    sizes = np.diff(starts)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    count = np.maximum(sizes, 1)

    def total(values: Floats) -> Floats:
        return np.bincount(owner, values, minlength=len(sizes)).astype(np.float64)

    centre, level = total(before) / count, total(after) / count
    away = before - centre[owner]
    spread, joint = total(away**2), total(away * (after - level[owner]))
    scale = np.divide(joint, spread, out=np.ones(len(sizes)), where=spread > 0)
    return Transforms(scale, level - scale * centre)
