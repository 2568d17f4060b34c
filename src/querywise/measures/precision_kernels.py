"""Average precision of many queries under many scorings: what `formulas` compiles."""

from __future__ import annotations

import numpy as np

from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import ascending, compiled, compiled_loosely

_FEW = 24  # relevant documents up to which their places are counted: sorting all documents takes longer


@compiled
def fill_precisions(
    relevant: Bools, scores: Floats, starts: Ints, totals: Ints, wanted: Bools, without: float, found: Floats
) -> None:
    """Queries × scorings, where wanted; tied documents keep their order.

    totals: how many relevant documents each query has, missed ones too. without: the value of a query that has none.
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
                    turned[row - first] = -score if score == score else np.inf  # what is no number comes last
                places = _counted(turned, own[:many]) if many <= _FEW else _sorted(turned, relevant[first:last], many)
                total = 0.0
                for number in range(many):
                    total += (number + 1.0) / places[number]
                found[query, column] = total / totals[query]
            elif wanted[query, column]:
                found[query, column] = without


@compiled
def _counted(turned: Floats, own: Ints) -> Floats:
    """The places of some documents, from 1, in ascending order."""
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
    """How many documents come before one."""
    score, found = turned[row], 0
    for other in turned:
        found += other < score
    for other in turned[:row]:
        found += other == score
    return found


@compiled
def _sorted(turned: Floats, relevant: Bools, many: int) -> Floats:
    """The same by sorting all documents."""
    places, number, place = np.empty(many), 0, 0.0
    for row in ascending(turned):
        place += 1.0
        if relevant[row]:
            places[number] = place
            number += 1
    return places
