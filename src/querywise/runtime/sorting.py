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
    """The k-th smallest of some values."""
    own, low, high = values.copy(), 0, len(values) - 1
    while low < high:
        pivot, left, right = own[(low + high) // 2], low, high
        while left <= right:
            while own[left] < pivot:
                left += 1
            while own[right] > pivot:
                right -= 1
            if left <= right:
                own[left], own[right] = own[right], own[left]
                left, right = left + 1, right - 1
        if k - 1 <= right:
            high = right
        elif k - 1 >= left:
            low = left
        else:
            break
    found: float = own[k - 1]
    return found
