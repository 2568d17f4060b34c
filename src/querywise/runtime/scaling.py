"""Standardization of features inside a learner, and of query points inside a view."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.stored import contents, floats

Scale = Literal["standard", "none"]
_ROUNDING = 1e-12  # rounding error of a mean, relative to the values
_FAINT = 1e-280  # smaller sums of squares are not exact


class Moments(NamedTuple):
    """The number of rows and each column's mean, sum of squares about the mean, and whether that is too small.

    `faint` columns vary, but by so little that the squares underflow.
    """

    rows: int
    mean: Floats
    square: Floats
    faint: Bools

    @staticmethod
    def of(features: Floats) -> Moments:
        """Return the moments of a table."""
        mean = features.mean(axis=0) if len(features) else np.zeros(features.shape[1])
        square = _square(features, mean)
        faint = square < _FAINT
        if len(features) and faint.any():
            columns = np.flatnonzero(faint)
            faint[columns] = (features[:, columns] != features[0, columns]).any(axis=0)
        return Moments(len(features), mean, square, faint)

    def beside(self, other: Moments) -> Moments:
        """Return the moments of two tables, one below the other."""
        rows = max(self.rows + other.rows, 1)
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.rows / rows)
        square = self.square + other.square + apart**2 * (self.rows * other.rows / rows)
        faint = (self.faint | other.faint | (apart != 0)) & (square < _FAINT)
        return Moments(self.rows + other.rows, mean, square, faint)


@dataclass(frozen=True)
class Scaling:
    """Column-wise scaling, x ↦ (x − center) / spread.

    A weight v on scaled features is v / spread on unscaled ones; the center only shifts all scores of a model alike.
    """

    centre: Floats
    spread: Floats

    stored = contents(centre=floats("columns"), spread=floats("columns", above=0.0))

    @staticmethod
    def learn(features: Floats, scale: Scale, size: Floats | None = None) -> Scaling:
        """Learn the mean and standard deviation of every column; a constant column gets spread 1.

        For columns that are means, `size` is the magnitude of the averaged numbers: a mean of z-scores is a rounding
        error, not 0.
        """
        if scale == "none":
            return Scaling(np.zeros(features.shape[1]), np.ones(features.shape[1]))
        found = Scaling.by([Moments.of(features)], scale)
        if size is None:
            return found
        return Scaling(found.centre, np.where(found.spread <= _ROUNDING * size, 1.0, found.spread))

    @staticmethod
    def by(parts: Sequence[Moments], scale: Scale) -> Scaling:
        """Learn the same scaling for a table in parts, from the moments of each."""
        if scale == "none":
            return Scaling(np.zeros_like(parts[0].mean), np.ones_like(parts[0].mean))
        if scale != "standard":
            raise DataError(f"scale={scale!r} is unknown. Known: 'standard', 'none'.")
        rows, centre, square, faint = functools.reduce(Moments.beside, parts)
        if faint.any():
            raise DataError(
                f"Column {np.argmax(faint) + 1} varies by less than 1e-140, too little to be scaled. Multiply "
                "it by a constant."
            )
        spread = np.sqrt(square / max(rows, 1))
        # Rounding error in the mean makes a constant column seem to vary.
        constant = spread <= _ROUNDING * np.abs(centre)
        return Scaling(centre, np.where(constant | (spread == 0), 1.0, spread))

    def apply(self, features: Floats) -> Floats:
        """Return the scaled features as a new array."""
        scaled = features - self.centre
        scaled /= self.spread
        return scaled

    def weights_in_user_units(self, weights: Floats) -> Floats:
        """Return weights for the unscaled features; columns are the last axis."""
        return weights / self.spread


def _square(features: Floats, centre: Floats) -> Floats:
    """Return the sum of (x − center)² per column, computed in blocks to avoid a second table."""
    total = np.zeros(len(centre))
    block = max(1, 4_000_000 // max(len(centre), 1))
    for first in range(0, len(features), block):
        part = features[first : first + block] - centre
        total += np.einsum("ij,ij->j", part, part)
    return total
