"""The compiled parts of exact vector search: keeping the best of many scores, and similarities in double precision."""

from __future__ import annotations

import numpy as np

from querywise.runtime.arrays import Floats, Ints, Singles
from querywise.runtime.compiled import compiled, compiled_loosely


@compiled
def keep_best(scores: Singles, shrink: Singles, first: int, best: Singles, documents: Ints) -> None:
    """Insert the scores of a block into the best so far: a heap per query, with its worst score first.

    `scores` are queries × documents of the block, which starts with document `first`. A score is multiplied by its
    document's `shrink`; 0 means that the document has no vector. Blocks come in document order, so that a later
    document with the same score never replaces an earlier one.
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
    """Replace the worst score, the latest if tied, and move the next worst to the front."""
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
    """Compute Σ_j rows[i, j] query[j] for every row, independently of the other rows."""
    for row in range(len(rows)):
        total = 0.0
        for column in range(len(query)):
            total += rows[row, column] * query[column]
        found[row] = total


@compiled
def nothing_kept(best: Singles, documents: Ints) -> None:
    """Initialize heaps with scores below any other."""
    best[:] = -np.inf
    documents[:] = -1
