"""How far the losses and the gradient of a model can be off when they are added up in single precision.

u = 2⁻²⁴ bounds the relative error of one operation, and a sum of n terms, in any order, is off by at most n u times the
sum of their sizes. Let R be the largest norm of a centred row, n the length of the longest list, d the number of
features, and v̄ the mean of v = max(0, 1 − t) over the pairs, which is at most √loss. Then, up to terms in u²,

    a score is off by (d + 2) u R‖w‖, and v by at most η = 2 (d + 4) u R‖w‖ + 2 u,
    the gradient, the mean of 2 v (x_b − x_a), by at most 4 R (η + 2 (n + 2) u v̄),
    the loss, the mean of v², by at most v̄ (2 (n + 5) u (1 + R‖w‖) + 2 η) + η².
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar, cast

import numpy as np

from querywise.learners.ranksvm.preferences import Preferences
from querywise.runtime.arrays import Floats, Ints, Singles

_UNIT = 2.0**-24
_SPARE = 1.1  # for the terms in u², and for v̄ being known from rounded losses
_ALIGNED = 8  # columns: as many numbers are multiplied at a time
_Number = TypeVar("_Number", Floats, float)


class Extent(NamedTuple):
    """The largest norm of a row, less the mean of its query's, and the length of the longest list."""

    radius: float
    longest: int


def errors(norms: _Number, losses: _Number, columns: int, extent: Extent) -> tuple[_Number, _Number]:
    """For models of these norms: how far losses and the norm of the gradient can be off at most."""
    radius, longest = extent
    reach = radius * norms
    mean = abs(losses) ** 0.5
    off = 2 * _UNIT * ((columns + 4) * reach + 1)
    losses_off = mean * (2 * (longest + 5) * _UNIT * (1 + reach) + 2 * off) + off**2
    return _SPARE * losses_off, _SPARE * 4 * radius * (off + 2 * (longest + 2) * _UNIT * mean)


class Objective(NamedTuple):
    """The losses of a model, at least, their gradient, and by how much its norm may be larger."""

    losses: float
    gradient: Floats
    off: float


class RoundedRows(NamedTuple):
    """The rows of preferences in single precision, less the mean of their query's, which changes no margin.

    Columns of zeros make their number one that is multiplied fastest.
    """

    features: Singles
    extent: Extent

    @staticmethod
    def of(pairs: Preferences) -> RoundedRows:
        """Those of all queries."""
        (rows, columns), sizes = pairs.features.shape, np.diff(pairs.starts)
        features = np.zeros((rows, columns + -columns % _ALIGNED), np.float32)
        largest = 0.0
        for begin, end in zip(pairs.starts[:-1].tolist(), pairs.starts[1:].tolist(), strict=True):
            if end > begin:
                own = pairs.features[begin:end]
                centred = own - own.mean(axis=0)
                largest = max(largest, float(np.einsum("ij,ij->i", centred, centred).max()))
                features[begin:end, :columns] = centred
        return RoundedRows(features, Extent(math.sqrt(largest), int(sizes.max(initial=0))))

    def objective(self, pairs: Preferences, queries: Ints, shares: Floats, weights: Floats) -> Objective:
        """That of one model over some queries, by their shares."""
        from querywise.learners.ranksvm import anchor_kernels

        gradient, (_, levels, starts, counts) = np.zeros(len(weights)), pairs.for_kernels()
        rounded = np.zeros(self.features.shape[1], np.float32)
        rounded[: len(weights)] = weights
        losses = anchor_kernels.rounded_objective(
            cast("Floats", self.features), levels, starts, counts, queries, shares, cast("Floats", rounded), gradient
        )
        off, gradient_off = errors(math.sqrt(weights @ weights), losses, len(weights), self.extent)
        return Objective(losses - off, gradient, gradient_off)
