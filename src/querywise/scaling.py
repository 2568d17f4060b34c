"""Columns on one scale: features inside a learner, query points inside a view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from querywise.arrays import Floats
from querywise.errors import DataError

Scale = Literal["standard", "none"]


@dataclass(frozen=True)
class Scaling:
    """x ↦ (x − centre) / spread, column by column.

    A weight v on scaled features is v / spread on the user's; the centre only moves all scores of a model alike.
    """

    centre: Floats
    spread: Floats

    @staticmethod
    def learn(features: Floats, scale: Scale) -> Scaling:
        """Mean and standard deviation of every column; a column that never changes keeps spread 1."""
        columns = features.shape[1]
        if scale == "none":
            return Scaling(np.zeros(columns), np.ones(columns))
        if scale != "standard":
            raise DataError(f"scale={scale!r} is unknown. Known: 'standard', 'none'.")
        centre = features.mean(axis=0)
        spread = np.sqrt(_mean_square(features, centre))
        # Rounding in the mean makes a constant column look as if it moved by its last bit.
        constant = spread <= 1e-12 * np.abs(centre)
        return Scaling(centre, np.where(constant | (spread == 0), 1.0, spread))

    def apply(self, features: Floats) -> Floats:
        """The scaled features, a new array."""
        scaled = features - self.centre
        scaled /= self.spread
        return scaled

    def weights_in_user_units(self, weights: Floats) -> Floats:
        """Weights for the features as the user has them; the last axis is the columns."""
        return weights / self.spread

    def weights_inside(self, weights: Floats) -> Floats:
        """The inverse: weights for the scaled features."""
        return weights * self.spread


def _mean_square(features: Floats, centre: Floats) -> Floats:
    """Mean of (x − centre)² per column, in blocks so that no second table is made."""
    total = np.zeros(len(centre))
    block = max(1, 4_000_000 // max(len(centre), 1))
    for first in range(0, len(features), block):
        part = features[first : first + block] - centre
        total += np.einsum("ij,ij->j", part, part)
    return total / max(len(features), 1)
