"""The compiled kernel of `bm25`: the documents with the largest sums over a query's postings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled

_Counts = NDArray[np.int32]
_LEAST = float(np.finfo(np.float64).tiny)
_SMALL = 1e-200  # totals above this are counted in steps
_STEPS = 512


@compiled
def find_best(
    terms: Ints, starts: Ints, documents: _Counts, weights: Floats, sums: Floats, found: Ints, best: Floats
) -> int:
    """Find the documents with the largest sums of weights, largest first, ties in order; return their number.

    It finds as many as fit into `found`. `sums` has a zero for every document, before and after the call.
    """
    postings = 0
    for term in terms:
        postings += starts[term + 1] - starts[term]
        for place in range(starts[term], starts[term + 1]):
            sums[documents[place]] += weights[place]
    numbers, totals = np.empty(min(postings, len(sums)) + 1, np.int64), np.empty(min(postings, len(sums)) + 1)
    many = 0
    for term in terms:
        for place in range(starts[term], starts[term + 1]):
            document = documents[place]
            numbers[many], totals[many] = document, sums[document]
            many += 1 if sums[document] >= _LEAST else 0  # 0 means that it was added before
            sums[document] = 0.0
    count, room = 0, len(found)
    for place in range(_keep(numbers, totals, many, room) if many > room else many):
        if count < room:
            found[count], best[count] = numbers[place], totals[place]
            _rise(found, best, count)
            count += 1
        elif totals[place] > best[0] or (totals[place] == best[0] and numbers[place] < found[0]):
            found[0], best[0] = numbers[place], totals[place]
            _sink(found, best, room)
    for last in range(count - 1, 0, -1):
        found[0], found[last] = found[last], found[0]
        best[0], best[last] = best[last], best[0]
        _sink(found, best, last)
    return count


@compiled
def _keep(numbers: Ints, totals: Floats, many: int, room: int) -> int:
    """Move documents whose totals are among the `room` largest, and few others, to the front; return their number.

    Totals are counted in steps relative to the largest; documents below the step of the last of these are dropped.
    """
    largest = 0.0
    for place in range(many):
        largest = max(largest, totals[place])
    if not _SMALL < largest < 1 / _SMALL:
        return many
    scale, steps, step, kept = (_STEPS - 1) / largest, np.zeros(_STEPS, np.int64), _STEPS, 0
    for place in range(many):
        steps[int(totals[place] * scale)] += 1
    while kept < room:
        step -= 1
        kept += steps[step]
    kept = 0
    for place in range(many):
        numbers[kept], totals[kept], total = numbers[place], totals[place], totals[place]
        kept += 1 if int(total * scale) >= step else 0
    return kept


@compiled
def _rise(found: Ints, best: Floats, place: int) -> None:
    """Move the last element of a heap, whose worst is first, to its position."""
    while place > 0:
        above = (place - 1) // 2
        if best[above] < best[place] or (best[above] == best[place] and found[above] > found[place]):
            return
        found[above], found[place] = found[place], found[above]
        best[above], best[place] = best[place], best[above]
        place = above


@compiled
def _sink(found: Ints, best: Floats, count: int) -> None:
    """Move the first element of a heap of this size to its position."""
    place = 0
    while 2 * place + 1 < count:
        below = 2 * place + 1
        other = below + 1
        if other < count and (
            best[other] < best[below] or (best[other] == best[below] and found[other] > found[below])
        ):
            below = other
        if best[place] < best[below] or (best[place] == best[below] and found[place] > found[below]):
            return
        found[below], found[place] = found[place], found[below]
        best[below], best[place] = best[place], best[below]
        place = below
