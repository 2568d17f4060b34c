"""The k nearest of sorted numbers, for many columns: the compiled kernel of `combinations`."""

from __future__ import annotations

from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled


@compiled
def nearest_sums(
    points: Floats, values: Floats, sums: Floats, starts: Ints, k: int, tied: float, found: Floats
) -> None:
    """Of each column's sorted values the sum over the k nearest to the point; those tied at the k-th place share it.

    Column i has values[starts[i]:starts[i + 1]]; sums[place] is the sum of what comes before a place.
    """
    for row in range(points.shape[0]):
        for column in range(points.shape[1]):
            begin, end, point = starts[column], starts[column + 1], points[row, column]
            count = min(k, end - begin)
            found[row, column] = 0.0
            if count == 0:
                continue
            low, high = begin, end - count
            while low < high:
                middle = (low + high) // 2
                if point - values[middle] > values[middle + count] - point:
                    low = middle + 1
                else:
                    high = middle
            cut = max(point - values[low], values[low + count - 1] - point)
            left = _places_before(values, begin, end, point - (cut - tied), True)
            right = max(left, _places_before(values, begin, end, point + (cut - tied), False))
            first = _places_before(values, begin, end, point - (cut + tied), False)
            last = _places_before(values, begin, end, point + (cut + tied), True)
            near, total = right - left, sums[right] - sums[left]
            equal, shared = last - first - near, sums[last] - sums[first] - total
            if equal > 0:
                total += (count - near) / equal * shared
            found[row, column] = max(total, 0.0)


@compiled
def _places_before(values: Floats, low: int, high: int, target: float, equal_too: bool) -> int:
    """The first place whose value is above the target, or, unless equal ones come before too, not below it."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < target or (equal_too and values[middle] == target):
            low = middle + 1
        else:
            high = middle
    return low
