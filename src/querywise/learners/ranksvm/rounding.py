"""How far the losses and the gradient of a model can be off when they are added up in single precision.

u = 2⁻²⁴ bounds the relative error of one operation, and a sum of n terms, in any order, is off by at most n u times the
sum of their sizes. Let R be the largest norm of a centred row, n the length of the longest list, d the number of
features, and v̄ the mean of v = max(0, 1 − t) over the pairs, which is at most √loss. Then, up to terms in u²,

    a score is off by (d + 2) u R‖w‖, and v by at most η = 2 (d + 4) u R‖w‖ + 2 u,
    the gradient, the mean of 2 v (x_b − x_a), by at most 4 R (η + 2 (n + 2) u v̄),
    the loss, the mean of v², by at most v̄ (2 (n + 5) u (1 + R‖w‖) + 2 η) + η².
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from querywise.runtime.arrays import Floats

_UNIT = 2.0**-24
_SPARE = 1.1  # for the terms in u², and for v̄ being known from rounded losses


class Extent(NamedTuple):
    """The largest norm of a row, less the mean of its query's, and the length of the longest list."""

    radius: float
    longest: int


def errors(weights: Floats, losses: Floats, extents: Sequence[Extent]) -> tuple[Floats, Floats]:
    """For models, a row each: how far losses and the norm of the gradient can be off at most."""
    radius, longest = max(each.radius for each in extents), max(each.longest for each in extents)
    reach = radius * np.sqrt(np.einsum("ij,ij->i", weights, weights))
    mean = np.sqrt(np.maximum(losses, 0.0))
    off = 2 * _UNIT * ((weights.shape[1] + 4) * reach + 1)
    losses_off = mean * (2 * (longest + 5) * _UNIT * (1 + reach) + 2 * off) + off**2
    return _SPARE * losses_off, _SPARE * 4 * radius * (off + 2 * (longest + 2) * _UNIT * mean)
