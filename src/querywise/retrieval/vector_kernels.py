"""The compiled parts of exact search by vectors: the best of many scores, and similarities in double precision."""

from __future__ import annotations

import numpy as np

from querywise.runtime.arrays import Floats, Ints, Singles
from querywise.runtime.compiled import compiled, compiled_loosely


@compiled
def keep_best(scores: Singles, shrink: Singles, first: int, best: Singles, documents: Ints) -> None:
    """Put the scores of a block among the best so far: for every query a heap, its worst score in front.

    scores: queries × documents of the block, the first of which is number `first`. A score is multiplied by its
    document's `shrink`; where that is 0 the document has no vector. Blocks come in the order of documents, so that a
    later document with the same score never replaces an earlier one.
    """
    size = best.shape[1]
    for query in range(len(scores)):
        heap, places = best[query], documents[query]
        worst = heap[0]
        for place in range(scores.shape[1]):
            score = scores[query, place] * shrink[place]
            if score > worst and shrink[place] > 0.0:
                _replace_worst(heap, places, score, first + place, size)
                worst = heap[0]


@compiled
def _replace_worst(heap: Singles, places: Ints, score: float, place: int, size: int) -> None:
    """Put a score in the place of the worst, of equals the latest, and bring the next worst to the front."""
    here = 0
    while True:
        child = 2 * here + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            heap[other] < heap[child] or (heap[other] == heap[child] and places[other] > places[child])
        ):
            child = other
        if score < heap[child] or (score == heap[child] and place > places[child]):
            break
        heap[here], places[here] = heap[child], places[child]
        here = child
    heap[here], places[here] = score, place


@compiled_loosely
def dot_products(rows: Floats, query: Floats, found: Floats) -> None:
    """Σ_j rows[i, j] query[j] of every row: the same for a row whatever rows are beside it."""
    for row in range(len(rows)):
        total = 0.0
        for column in range(len(query)):
            total += rows[row, column] * query[column]
        found[row] = total


@compiled
def nothing_kept(best: Singles, documents: Ints) -> None:
    """Empty heaps: of scores below any other."""
    best[:] = -np.inf
    documents[:] = -1
