"""Compiled kernels for `formulas`: average precision of many queries under many scorings."""

from __future__ import annotations

import numpy as np

from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import ascending, compiled, compiled_loosely

_AT_ONCE = 256  # scorings per block: their counters fit into the processor's cache
_FEW = 24  # up to this many relevant documents, counting their positions is faster than sorting all documents


@compiled
def fill_precisions(
    relevant: Bools, scores: Floats, starts: Ints, totals: Ints, wanted: Bools, without: float, found: Floats
) -> None:
    """Fill in average precisions, queries × scorings, where wanted; tied documents keep their order.

    Args:
        relevant: which documents are relevant.
        scores: documents × scorings.
        starts: where each query's documents start.
        totals: the number of relevant documents of each query, including missed ones.
        wanted: the entries to compute.
        without: the value of a query without a relevant document.
        found: the result, filled in place.

    """
    for query in range(len(starts) - 1):
        first, last = starts[query], starts[query + 1]
        turned, own, many = np.empty(last - first), np.empty(last - first, np.int64), 0
        for row in range(first, last):
            if relevant[row]:
                own[many] = row - first
                many += 1
        for column in range(scores.shape[1]):
            if wanted[query, column] and totals[query] > 0:
                for row in range(first, last):
                    score = scores[row, column]
                    turned[row - first] = -score if score == score else np.inf  # NaN comes last
                places = _counted(turned, own[:many]) if many <= _FEW else _sorted(turned, relevant[first:last], many)
                total = 0.0
                for number in range(many):
                    total += (number + 1.0) / places[number]
                found[query, column] = total / totals[query]
            elif wanted[query, column]:
                found[query, column] = without


@compiled
def fill_halves(
    relevant: Bools, half: Ints, scores: Floats, starts: Ints, totals: Ints, without: float, found: Floats
) -> None:
    """Fill in average precisions, queries × 3 × scorings: for all documents, for half 0 and for half 1.

    `totals` is queries × 3, the relevant documents of each part; the other arguments are as in `fill_precisions`.
    Documents are compared under many scorings at a time.
    """
    for query in range(len(starts) - 1):
        first, last = starts[query], starts[query + 1]
        own, side = np.flatnonzero(relevant[first:last]), half[first:last]
        for begin in range(0, scores.shape[1], _AT_ONCE):
            end = min(begin + _AT_ONCE, scores.shape[1])
            turned = np.empty((last - first, end - begin))
            for row in range(last - first):
                for column in range(end - begin):
                    score = scores[first + row, begin + column]
                    turned[row, column] = -score if score == score else np.inf  # NaN comes last
            before = np.zeros((2, len(own), end - begin))
            for number in range(len(own)):
                for row in range(last - first):
                    _add_before(turned[row], turned[own[number]], row < own[number], before[side[row], number])
            for part in range(3):
                _sum_up(before, own, side, part, totals[query, part], without, found[query, part, begin:end])


@compiled
def _add_before(others: Floats, mine: Floats, earlier: bool, counts: Floats) -> None:
    """Count the scorings in which another document comes first: it is ahead, or tied and earlier."""
    if earlier:
        for column in range(len(mine)):
            counts[column] += 1.0 if others[column] <= mine[column] else 0.0
    else:
        for column in range(len(mine)):
            counts[column] += 1.0 if others[column] < mine[column] else 0.0


@compiled
def _sum_up(before: Floats, own: Ints, side: Ints, part: int, total: int, without: float, found: Floats) -> None:
    """Compute average precisions from the number of documents of each half that come before the relevant ones."""
    places = np.empty(len(own))
    for column in range(len(found)):
        many = 0
        for number in range(len(own)):
            if part == 0 or side[own[number]] == part - 1:
                place = 1.0 + (before[part - 1, number, column] if part else before[:, number, column].sum())
                at = many
                while at > 0 and places[at - 1] > place:
                    places[at] = places[at - 1]
                    at -= 1
                places[at] = place
                many += 1
        gained = 0.0
        for number in range(many):
            gained += (number + 1.0) / places[number]
        found[column] = gained / total if total > 0 else without


@compiled
def _counted(turned: Floats, own: Ints) -> Floats:
    """Return the positions of some documents, from 1, in ascending order, by counting the documents before each."""
    places = np.empty(len(own))
    for number in range(len(own)):
        place = 1.0 + _before(turned, own[number])
        at = number
        while at > 0 and places[at - 1] > place:
            places[at] = places[at - 1]
            at -= 1
        places[at] = place
    return places


@compiled_loosely
def _before(turned: Floats, row: int) -> int:
    """Return the number of documents that come before one document."""
    score, found = turned[row], 0
    for other in turned:
        found += other < score
    for other in turned[:row]:
        found += other == score
    return found


@compiled
def _sorted(turned: Floats, relevant: Bools, many: int) -> Floats:
    """Return the same positions by sorting all documents."""
    places, number, place = np.empty(many), 0, 0.0
    for row in ascending(turned):
        place += 1.0
        if relevant[row]:
            places[number] = place
            number += 1
    return places
