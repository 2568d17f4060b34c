"""Points in eight bits per coordinate, for a first look: which of them can be the nearest to a place.

A point p is kept as whole numbers q with p ≈ centre + step · q, and a place as whole numbers v with step · (place −
centre) ≈ unit · v. Their products are added up without rounding, so that the distance of p from the place is known up
to what p and the place were rounded by. Points that may be nearest are then looked at in double precision.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled

_MOST = 127  # of the whole numbers of points
_MOST_OF_PLACES = 32_767
_SUM = 2**31 - 1  # the largest sum of their products
_ROUNDING = 1e-12  # of squared lengths: sums in double precision are nearer than that


class Coarse(NamedTuple):
    """Points in eight bits.

    squares: of their distances from the centre, `longest` the largest. off: how far any of them was moved at most.
    """

    codes: NDArray[np.int8]
    centre: Floats
    step: Floats
    squares: Floats
    longest: float
    off: float

    @classmethod
    def of(cls, points: Floats) -> Self:
        """Those of some points."""
        lowest, highest = points.min(axis=0), points.max(axis=0)
        centre = lowest / 2 + highest / 2
        step = (highest - lowest) / (2 * _MOST)
        step[step == 0] = 1.0
        codes = np.clip(np.rint((points - centre) / step), -_MOST, _MOST).astype(np.int8)
        kept = codes * step
        moved = points - centre - kept
        off = float(np.sqrt(np.einsum("ij,ij->i", moved, moved).max()))
        squares = np.einsum("ij,ij->i", kept, kept)
        return cls(codes, centre, step, squares, float(squares.max()), off * (1 + _ROUNDING))

    def perhaps_nearest(self, place: Floats, slack: float) -> Ints:
        """The points that may be nearest to a place, or as near but for `slack`, in squared distances."""
        away = place - self.centre
        products = away * self.step
        unit = float(np.abs(products).max()) / min(_MOST_OF_PLACES, _SUM // (_MOST * len(place))) or 1.0
        codes = np.rint(products / unit)
        square = float(away @ away)
        error = 2 * _MOST * float(np.abs(products - unit * codes).sum()) + _ROUNDING * (square + self.longest)
        rough = _rough(self.codes, codes.astype(np.int16), self.squares, 2 * unit)
        least = math.sqrt(max(float(rough.min()) + square + error, 0.0)) + self.off  # the nearest is no farther
        most = math.sqrt(least**2 + slack) + self.off
        return np.flatnonzero(rough <= most**2 + error - square)


@compiled
def _rough(codes: NDArray[np.int8], place: NDArray[np.int16], squares: Floats, unit: float) -> Floats:
    """Squared distances, but for what all have in common."""
    found = np.empty(len(codes))
    for row in range(len(codes)):
        total = np.int32(0)
        for column in range(len(place)):
            # Kept to 32 bits, which hold every sum: many are then multiplied at a time.
            total = np.int32(total + np.int32(codes[row, column]) * np.int32(place[column]))
        found[row] = squares[row] - unit * total
    return found
