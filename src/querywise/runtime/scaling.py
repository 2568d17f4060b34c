"""Standardisation: of features inside a learner, of query points inside a view."""

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
_ROUNDING = 1e-12  # of a mean, as a share of what it is the mean of
_FAINT = 1e-280  # sums of squares below are no longer exact


class Moments(NamedTuple):
    """How many rows there are, each column's mean, its sum of squares about the mean, and whether that is too small.

    `faint` columns vary, but by so little that the squares vanish.
    """

    rows: int
    mean: Floats
    square: Floats
    faint: Bools

    @staticmethod
    def of(features: Floats) -> Moments:
        """Those of a table."""
        mean = features.mean(axis=0) if len(features) else np.zeros(features.shape[1])
        square = _square(features, mean)
        faint = square < _FAINT
        if len(features) and faint.any():
            columns = np.flatnonzero(faint)
            faint[columns] = (features[:, columns] != features[0, columns]).any(axis=0)
        return Moments(len(features), mean, square, faint)

    def beside(self, other: Moments) -> Moments:
        """Those of two tables, one below the other."""
        rows = max(self.rows + other.rows, 1)
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.rows / rows)
        square = self.square + other.square + apart**2 * (self.rows * other.rows / rows)
        faint = (self.faint | other.faint | (apart != 0)) & (square < _FAINT)
        return Moments(self.rows + other.rows, mean, square, faint)


@dataclass(frozen=True)
class Scaling:
    """x ↦ (x − centre) / spread, column by column.

    A weight v on scaled features is v / spread on the user's; the centre only moves all scores of a model alike.
    """

    centre: Floats
    spread: Floats

    stored = contents(centre=floats("columns"), spread=floats("columns", above=0.0))

    @staticmethod
    def learn(features: Floats, scale: Scale, size: Floats | None = None) -> Scaling:
        """Mean and standard deviation of every column; a constant column keeps spread 1.

        size: of columns that are means, how large the numbers in them are: a mean of z-scores is rounding, not 0.
        """
        if scale == "none":
            return Scaling(np.zeros(features.shape[1]), np.ones(features.shape[1]))
        found = Scaling.by([Moments.of(features)], scale)
        if size is None:
            return found
        return Scaling(found.centre, np.where(found.spread <= _ROUNDING * size, 1.0, found.spread))

    @staticmethod
    def by(parts: Sequence[Moments], scale: Scale) -> Scaling:
        """The same for a table in parts, from the moments of each."""
        if scale == "none":
            return Scaling(np.zeros_like(parts[0].mean), np.ones_like(parts[0].mean))
        if scale != "standard":
            raise DataError(f"scale={scale!r} is unknown. Known: 'standard', 'none'.")
        rows, centre, square, faint = functools.reduce(Moments.beside, parts)
        if faint.any():
            raise DataError(
                f"Column {np.argmax(faint) + 1} varies by less than 1e-140, too little to be put on a scale. Multiply "
                "it by a constant."
            )
        spread = np.sqrt(square / max(rows, 1))
        # Rounding in the mean makes a constant column seem to vary in its last bit.
        constant = spread <= _ROUNDING * np.abs(centre)
        return Scaling(centre, np.where(constant | (spread == 0), 1.0, spread))

    def apply(self, features: Floats) -> Floats:
        """The scaled features, a new array."""
        scaled = features - self.centre
        scaled /= self.spread
        return scaled

    def weights_in_user_units(self, weights: Floats) -> Floats:
        """Weights for the features as the user has them; the last axis is the columns."""
        return weights / self.spread


def _square(features: Floats, centre: Floats) -> Floats:
    """Sum of (x − centre)² per column, in blocks so that no second table is made."""
    total = np.zeros(len(centre))
    block = max(1, 4_000_000 // max(len(centre), 1))
    for first in range(0, len(features), block):
        part = features[first : first + block] - centre
        total += np.einsum("ij,ij->j", part, part)
    return total
