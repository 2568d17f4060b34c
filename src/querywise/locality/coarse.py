"""Points in eight bits per coordinate, for a first pass: which of them can be the nearest to a query point.

Points are rotated to their principal axes, the widest first. A point p is stored as integers q with p ≈ center +
step · q, and a query point as integers v with step · (place − center) ≈ unit · v. Their products are summed without
rounding, so that the distance of p from the query point is known up to the rounding of p and of the query point.

The first pass uses the widest axes alone: along the others a point is no nearer than the difference of the two lengths
there. The remaining points are compared along all axes, and those that may still be nearest in double precision.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from querywise.runtime.arrays import Floats, Ints, Singles
from querywise.runtime.compiled import compiled, compiled_loosely, smallest

_MOST = 127  # largest integer of points
_MOST_OF_PLACES = 32_767
_SUM = 2**31 - 1  # the largest sum of their products
_ROUNDING = 1e-12  # relative error bound of lengths in double precision
_SINGLE = 2e-6  # relative error bound of squared lengths in single precision
_FAR = 1e15  # times the size of the points: squared distances beyond it overflow single precision
_WIDEST = 8  # axes of the first pass
_TURNED = 1_024  # coordinates up to which points are rotated; more would take too long
_BLOCK = 256  # points at a time


class Coarse(NamedTuple):
    """Points in eight bits.

    Attributes:
        size: The largest coordinate, by which all are divided.
        axes: The axes that points are rotated to; None if they are not.
        numbers: Indices of the points, in an order that keeps neighbors along the two widest axes together.
        centres: The means of blocks of them along the widest axes.
        first: Axes × points, the widest axes.
        others: Points × axes, the other axes.
        squares: The squared distances from the center, of which `longest` is the largest.
        beside: The lengths along the other axes.
        off: The largest distance that rounding moved any point.

    """

    middle: Floats
    size: float
    axes: Floats | None
    centre: Floats
    step: Floats
    numbers: Ints
    centres: Floats
    first: NDArray[np.int8]
    others: NDArray[np.int8]
    squares: Singles
    beside: Singles
    longest: float
    off: float

    @classmethod
    def of(cls, points: Floats) -> Self:
        """Encode points."""
        middle = points.mean(axis=0)
        turned, axes = points - middle, None
        size = max(float(turned.max()), -float(turned.min())) or 1.0
        turned /= size
        if points.shape[1] <= _TURNED:
            axes = np.linalg.eigh(turned.T @ turned)[1][:, ::-1].copy()
            turned = turned @ axes
        numbers = _together(turned)
        lowest, highest = turned.min(axis=0), turned.max(axis=0)
        centre = lowest / 2 + highest / 2
        step = (highest - lowest) / (2 * _MOST)
        step[step == 0] = 1.0
        codes, squares, beside, off = _coded(turned, numbers, centre, step)
        longest, blocks = float(squares.max()), np.arange(0, len(points), _BLOCK)
        widest = codes[:, :_WIDEST] * step[:_WIDEST]
        return cls(
            middle,
            size,
            axes,
            centre,
            step,
            numbers,
            np.add.reduceat(widest, blocks) / np.diff([*blocks, len(points)])[:, None],
            np.ascontiguousarray(codes[:, :_WIDEST].T),
            np.ascontiguousarray(codes[:, _WIDEST:]),
            squares.astype(np.float32),
            beside.astype(np.float32),
            longest,
            off + _ROUNDING * (math.sqrt(longest) + float(np.abs(middle).sum()) / size),
        )

    def perhaps_nearest(self, place: Floats, slack: float) -> Ints:
        """Return the points that may be nearest to `place`, with a tolerance of `slack` in squared distances."""
        away = (place - self.middle) / self.size
        if self.axes is not None:
            away = _turned(away, self.axes)
        away -= self.centre
        if not math.sqrt(away @ away) < _FAR:
            return np.arange(len(self.numbers))
        found = _looked_at(
            self.centres,
            self.first,
            self.others,
            self.squares,
            self.beside,
            away,
            self.step,
            slack / self.size / self.size,
            self.longest,
            self.off,
        )
        return np.sort(self.numbers[found])


def _coded(
    turned: Floats, numbers: Ints, centre: Floats, step: Floats
) -> tuple[NDArray[np.int8], Floats, Floats, float]:
    """Return points as integers, their squares, their lengths along the other axes, and the largest rounding."""
    codes, off = np.empty(turned.shape, np.int8), 0.0
    squares, beside = np.empty(len(turned)), np.empty(len(turned))
    for first in range(0, len(turned), _BLOCK):  # few enough to stay in the cache
        own = slice(first, first + _BLOCK)
        rows = turned[numbers[own]] - centre
        codes[own] = np.clip(np.rint(rows / step), -_MOST, _MOST)
        kept = codes[own] * step
        rows -= kept
        squares[own] = np.einsum("ij,ij->i", kept, kept)
        beside[own] = np.sqrt(np.einsum("ij,ij->i", kept[:, _WIDEST:], kept[:, _WIDEST:]))
        off = max(off, float(np.einsum("ij,ij->i", rows, rows).max()))
    return codes, squares, beside, math.sqrt(off)


def _together(turned: Floats) -> Ints:
    """Return the indices of points in an order whose blocks are neighbors along the first two axes."""
    strips = max(1, round(math.sqrt(len(turned) / _BLOCK)))
    strip = np.empty(len(turned), np.int64)
    strip[np.argsort(turned[:, 0], kind="stable")] = np.arange(len(turned)) * strips // len(turned)
    return np.lexsort((turned[:, min(1, turned.shape[1] - 1)], strip))


@compiled
def _turned(away: Floats, axes: Floats) -> Floats:
    """Rotate a query point to the axes, without BLAS: the product is so small that threads would only delay it."""
    found = np.zeros(len(away))
    for row in range(len(away)):
        for axis in range(len(away)):
            found[axis] += away[row] * axes[row, axis]
    return found


@compiled
def _looked_at(
    centres: Floats,
    first: NDArray[np.int8],
    others: NDArray[np.int8],
    squares: Singles,
    beside: Singles,
    away: Floats,
    step: Floats,
    slack: float,
    longest: float,
    off: float,
) -> Ints:
    """Return the points that may be nearest to a query point, `away` from the center."""
    codes, unit, error = _as_codes(away * step)
    behind = codes[len(first) :].copy()
    square, aside = 0.0, 0.0
    for axis in range(len(away)):
        square += away[axis] ** 2
        aside += away[axis] ** 2 if axis >= len(first) else 0.0
    error += _SINGLE * (square + longest)
    off += _ROUNDING * math.sqrt(square)
    scale, own = np.float32(2 * unit), np.float32(2 * math.sqrt(aside))
    # From here on, squared distances omit the common term `square`.
    rough, bound = np.inf, np.inf
    rows, found, count = np.empty(len(squares), np.int64), np.empty(len(squares), np.float32), 0
    least, blocks = np.empty(_BLOCK, np.float32), (len(squares) + _BLOCK - 1) // _BLOCK
    begun, nearest = 0, np.inf
    for block in range(blocks):  # begin with the block that most likely has the nearest
        gap = 0.0
        for axis in range(len(first)):
            gap += (centres[block, axis] - away[axis]) ** 2
        if gap < nearest:
            begun, nearest = block, gap
    for turn in range(blocks):
        begin = (begun + turn) % blocks * _BLOCK
        if not _at_least(first, codes, squares, beside, scale, own, begin, bound, least):
            continue
        for row in range(begin, min(begin + _BLOCK, len(squares))):
            if least[row - begin] > bound:
                continue
            each = least[row - begin] + own * beside[row] - scale * _product(others, row, behind)
            if each <= bound:
                rows[count], found[count] = row, each
                count += 1
                if each < rough:
                    rough = np.float64(each)
                    bound = _bound(rough, square, error, off, slack)
    left = 0
    for place in range(count):
        rows[left] = rows[place]
        left += found[place] <= bound
    return rows[:left]


@compiled
def _as_codes(products: Floats) -> tuple[NDArray[np.int16], float, float]:
    """Return a query point as integers, their unit, and the resulting error bound of sums of products."""
    largest = 0.0
    for product in products:
        largest = max(largest, abs(product))
    unit = largest / min(_MOST_OF_PLACES, _SUM // (_MOST * len(products))) if largest else 1.0
    codes, error = np.empty(len(products), np.int16), 0.0
    for axis in range(len(products)):
        code = np.rint(products[axis] / unit)
        codes[axis] = np.int16(code)
        error += abs(products[axis] - unit * code)
    return codes, unit, 2 * _MOST * error


@compiled
def _at_least(
    first: NDArray[np.int8],
    codes: NDArray[np.int16],
    squares: Singles,
    beside: Singles,
    scale: np.float32,
    own: np.float32,
    begin: int,
    bound: float,
    least: Singles,
) -> int:
    """Fill in lower bounds of a block's squared distances from the first axes; return how many are in bounds."""
    size, within, limit = min(_BLOCK, len(squares) - begin), 0, np.float32(bound)
    totals = np.zeros(_BLOCK, np.int32)
    for axis in range(len(first)):
        part, code = first[axis, begin : begin + size], np.int32(codes[axis])
        for row in range(size):
            totals[row] += np.int32(part[row]) * code
    far, near = beside[begin : begin + size], squares[begin : begin + size]
    for row in range(size):
        each = near[row] - scale * np.float32(totals[row]) - own * far[row]
        least[row] = each
        within += each <= limit
    return within


@compiled
def _product(others: NDArray[np.int8], row: int, codes: NDArray[np.int16]) -> np.float32:
    """Return the sum of products along the other axes."""
    total = np.int32(0)
    for axis in range(len(codes)):
        # 32 bits hold every sum, and let the processor multiply many at a time.
        total = np.int32(total + np.int32(others[row, axis]) * np.int32(codes[axis]))
    return np.float32(total)


@compiled
def _bound(rough: float, square: float, error: float, off: float, slack: float) -> float:
    """Return the rough squared distance up to which a point may be nearest, given that one point has `rough`."""
    least = math.sqrt(max(rough + square + error, 0.0)) + off  # the nearest is no farther
    return (math.sqrt(least**2 + slack) + off) ** 2 + error - square


@compiled_loosely
def square_gaps(points: Floats, place: Floats, found: Floats) -> None:
    """Compute the squared distances of a query point from points, four at a time."""
    row = 0
    while row + 4 <= len(points):
        p0, p1, p2, p3 = points[row], points[row + 1], points[row + 2], points[row + 3]
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for axis in range(len(place)):
            x = place[axis]
            s0 += (p0[axis] - x) ** 2
            s1 += (p1[axis] - x) ** 2
            s2 += (p2[axis] - x) ** 2
            s3 += (p3[axis] - x) ** 2
        found[row], found[row + 1], found[row + 2], found[row + 3] = s0, s1, s2, s3
        row += 4
    while row < len(points):
        total = 0.0
        for axis in range(len(place)):
            total += (points[row, axis] - place[axis]) ** 2
        found[row] = total
        row += 1


@compiled
def least_gaps(gaps: Floats, cut: float, slack: float) -> tuple[int, int, Ints]:
    """Return the index of the least gap, the number within 2 `slack` of it, and all up to `cut` plus `slack`."""
    least, tied, count, close = 0, 0, 0, np.empty(len(gaps), np.int64)
    for place in range(len(gaps)):
        if gaps[place] < gaps[least]:
            least = place
        close[count] = place
        count += gaps[place] <= cut + slack
    for place in range(len(gaps)):
        tied += gaps[place] <= gaps[least] + 2 * slack
    return least, tied, close[:count]


@compiled
def look_around(points: Floats, place: Floats, k: int, slack: float, gaps: Floats) -> tuple[int, int, Ints, float]:
    """Apply `least_gaps` to the squared distances of points from a query point, cut at the k-th; return also the cut.

    `gaps` is filled with all of them.
    """
    square_gaps(points, place, gaps)
    cut = smallest(gaps, k)
    nearest, tied, close = least_gaps(gaps, cut, slack)
    return nearest, tied, close, cut


@compiled_loosely
def closest(points: Floats, place: Floats, rows: Ints, slack: float) -> tuple[int, int]:
    """Return the nearest of some rows (all if empty), and how many equal its squared distance within `slack`."""
    count = len(rows) if len(rows) else len(points)
    gaps, least = np.empty(count), 0
    for each in range(count):
        row, total = rows[each] if len(rows) else each, 0.0
        for axis in range(len(place)):
            total += (points[row, axis] - place[axis]) ** 2
        gaps[each] = total
        if total < gaps[least]:
            least = each
    tied = 0
    for each in range(count):
        tied += gaps[each] <= gaps[least] + slack
    return rows[least] if len(rows) else least, tied
