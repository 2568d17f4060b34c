"""Sorting inside compiled code: numpy's own sort, compiled, would take most of the time of a first command."""

from __future__ import annotations

import numpy as np

from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled


@compiled
def sort_by(scores: Floats, order: Ints) -> None:
    """Put `order` into ascending order of scores by merging longer and longer runs; equal ones stay in their order."""
    n, width = len(order), 1
    source, target = order, np.empty(n, np.int64)
    while width < n:
        for begin in range(0, n, 2 * width):
            middle, end = min(begin + width, n), min(begin + 2 * width, n)
            i, j = begin, middle
            for place in range(begin, end):
                if i < middle and (j >= end or scores[source[i]] <= scores[source[j]]):
                    target[place] = source[i]
                    i += 1
                else:
                    target[place] = source[j]
                    j += 1
        source, target = target, source
        width *= 2
    for i in range(n):
        order[i] = source[i]


@compiled
def ascending(scores: Floats) -> Ints:
    """The numbers of the scores in ascending order; equal ones in their own order."""
    order = np.empty(len(scores), np.int64)
    for i in range(len(scores)):
        order[i] = i
    sort_by(scores, order)
    return order


@compiled
def smallest(values: Floats, k: int) -> float:
    """The k-th smallest of some values.

    They are divided around one of them until it is the one. Whether a value is smaller moves a count and not the next
    instruction: nobody can tell beforehand.
    """
    own, low, high = values.copy(), 0, len(values) - 1
    while low < high:
        first, middle, last = own[low], own[(low + high) // 2], own[high]
        pivot = max(min(first, middle), min(max(first, middle), last))
        below = _moved_down(own, low, high, pivot, False)
        if k - 1 < below:
            high = below - 1
            continue
        equal = _moved_down(own, below, high, pivot, True)
        if k - 1 < equal or equal == low:  # not a number
            return float(pivot)
        low = equal
    return float(own[k - 1])


@compiled
def _moved_down(own: Floats, low: int, high: int, pivot: float, equal: bool) -> int:
    """Move what is below a pivot, or equal to it, to the beginning of a part, and say where that ends."""
    end = low
    for i in range(low, high + 1):
        value = own[i]
        own[i] = own[end]
        own[end] = value
        end += (value < pivot) | (equal & (value == pivot))
    return end
