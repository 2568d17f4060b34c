"""Vector search: the documents whose vectors have the largest cosine with a query's.

Search is exact, unless a graph preselects documents (`retrieval/approximate.py`). In exact search, products in single
precision, in blocks of documents and several threads, preselect documents; their similarities are recomputed in double
precision and decide. None of the best documents is missed: the error of single precision is bounded, and more documents
are examined until all others are lower by more than that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from querywise.data.vectors import Numbers
from querywise.errors import DataError
from querywise.retrieval.approximate import Graph
from querywise.retrieval.bm25 import Hits
from querywise.retrieval.side_by_side import columns_of, documents_of
from querywise.runtime.arrays import Floats, Ints, Singles
from querywise.runtime.compiled import compiled, compiled_loosely
from querywise.runtime.threads import in_threads, one_blas_thread


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


_BLOCK = 4_096  # documents per product
_PIECE = 16 * _BLOCK  # documents per task of a thread
_QUERIES = 128  # queries at a time
_MORE = 32  # documents examined beyond those requested
_SAMPLE = 100  # queries on which recall is measured


class Recall(NamedTuple):
    """The share of the `top` best documents that approximate search finds, averaged over some queries."""

    share: float
    top: int
    queries: int


@dataclass(frozen=True, eq=False)
class VectorIndex:
    """The vectors of an index's documents, by document index.

    Attributes:
        rows: the row of each document in `values`; None if they are in the same order.
        lengths: of each document's vector.
        titles: the vectors of titles, if any.
        graph: preselects documents for approximate search.
        blocks: the dimensions, if vectors of several embedders are concatenated (`side_by_side`). Each part has length
            1, so `lengths` are 1; the length of a query's part is that embedder's share and is kept.
    """

    values: Numbers
    lengths: Floats
    rows: Ints | None = None
    titles: VectorIndex | None = None
    graph: Graph | None = None
    blocks: tuple[int, ...] = ()

    @staticmethod
    def side_by_side(values: Numbers, blocks: tuple[int, ...]) -> VectorIndex:
        """Return the concatenated vectors of several embedders, each part scaled to length 1."""
        parts = [np.asarray(values[:, each], dtype=np.float64) for each in columns_of(blocks)]
        found = documents_of([(each, np.sqrt(np.einsum("ij,ij->i", each, each))) for each in parts])
        return VectorIndex(found, np.asarray(found.any(axis=1), dtype=np.float64), blocks=blocks)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def dimension(self) -> int:
        """The number of dimensions."""
        return int(self.values.shape[1])

    def similarities(self, query: Floats, documents: Ints) -> Floats:
        """Return the cosines of a query's vector with those of some documents; 0 if one of the two is zero."""
        found = np.zeros(len(documents))
        length = 1.0 if self.blocks else float(np.sqrt(query @ query))
        if length > 0 and len(documents):
            rows = np.ascontiguousarray(self.of(documents), dtype=np.float64)
            dot_products(rows, query / length, found)
            lengths = self.lengths[documents]
            found = np.divide(found, lengths, out=np.zeros(len(found)), where=lengths > 0)
        return found

    @cached_property
    def by_embedder(self) -> list[tuple[slice, VectorIndex]]:
        """The columns and the vectors of each embedder, if several are concatenated."""
        return [(each, VectorIndex(self.values[:, each], self.lengths, self.rows)) for each in columns_of(self.blocks)]

    def of(self, documents: Ints | slice) -> Numbers:
        """Return the vectors of some documents."""
        return self.values[documents if self.rows is None else self.rows[documents]]

    def search(self, queries: Floats, *, top: int) -> list[Hits]:
        """Return each query's `top` documents by cosine, best first, without zero vectors; ties are in index order.

        With a graph some may be missed; similarities and order of those found are the same as without.

        >>> index = VectorIndex(np.array([[1.0, 0.0], [0.0, 0.0], [3.0, 3.0]]), np.array([1.0, 0.0, 18**0.5]))
        >>> index.search(np.array([[0.0, 2.0]]), top=2)[0].documents
        array([2, 0])
        """
        if top < 1:
            raise DataError(f"top={top}: expected the number of documents to find, from 1 up.")
        self.require_dimension(queries)
        batch = self._batch if self.graph is None else self._approximate_batch
        found: list[Hits] = []
        for first in range(0, len(queries), _QUERIES):
            found += batch(queries[first : first + _QUERIES], top)
        return found

    def with_graph(self) -> VectorIndex:
        """Return the same vectors with a graph for approximate search."""
        return replace(self, graph=Graph.built(self.of, self.lengths, self.dimension))

    def recall(self, queries: Floats, *, top: int) -> Recall:
        """Return the recall of approximate search compared to exact search, on at most a hundred of these queries.

        A document as similar as the last of the `top` best counts as one of them; zero vectors are skipped.
        """
        asked = queries[np.abs(queries).max(axis=1, initial=0.0) > 0]
        asked = asked[np.unique(np.linspace(0, len(asked) - 1, min(len(asked), _SAMPLE)).astype(np.int64))]
        exact, found = replace(self, graph=None).search(asked, top=top), self.search(asked, top=top)
        pairs = [(best.scores, own.scores) for best, own in zip(exact, found, strict=True) if len(best.scores)]
        shares = [float(np.sum(own >= best[-1])) / len(best) for best, own in pairs]
        return Recall(float(np.mean(shares)) if shares else 1.0, top, len(shares))

    def require_dimension(self, queries: Floats) -> None:
        """Raise DataError for queries whose vectors have another dimension than the documents'."""
        if queries.shape[1] != self.dimension:
            raise DataError(
                f"The queries' vectors have {queries.shape[1]} numbers, the documents' {self.dimension}. Both must "
                "come from the same embedding model."
            )

    def _batch(self, queries: Floats, top: int) -> list[Hits]:
        lengths, units = self._units(queries)
        there, looked = int(np.sum(self.lengths > 0)), top + _MORE
        found = [Hits(np.zeros(0, np.int64), np.zeros(0)) for _ in queries]
        asked = np.flatnonzero(lengths > 0)
        while len(asked):
            scores, documents = self._narrowed(units[asked].astype(np.float32), min(looked, max(there, 1)))
            unsure = []
            for place, query in enumerate(asked.tolist()):
                kept = documents[place][documents[place] >= 0]
                best = self._ordered(units[query], kept, top)
                # Documents that were left out have at most this similarity, except for the error of single precision.
                longest = float(lengths[query]) * len(self.blocks) if self.blocks else 1.0
                ceiling = float(scores[place].min()) + longest * self._error
                if len(kept) < there and len(best.scores) and best.scores[-1] <= ceiling:
                    unsure.append(query)
                found[query] = best
            asked, looked = np.array(unsure, dtype=np.int64), 4 * looked
        return found

    def _approximate_batch(self, queries: Floats, top: int) -> list[Hits]:
        assert self.graph is not None, "search has looked at this"
        lengths, units = self._units(queries)
        found = [Hits(np.zeros(0, np.int64), np.zeros(0)) for _ in queries]
        asked = np.flatnonzero(lengths > 0)
        near = self.graph.near(units[asked].astype(np.float32), top)
        for query, documents in zip(asked.tolist(), near, strict=True):
            found[query] = self._ordered(units[query], documents, top)
        return found

    def _units(self, queries: Floats) -> tuple[Floats, Floats]:
        """Return the lengths of queries, and the queries scaled to length 1; those of several embedders unchanged."""
        lengths = np.sqrt(np.einsum("ij,ij->i", queries, queries))
        return lengths, queries if self.blocks else queries / np.where(lengths > 0, lengths, 1.0)[:, None]

    @property
    def _error(self) -> float:
        """A bound on the error of a single-precision cosine, due to summation and to the rounding of both vectors."""
        return (self.dimension + 8) * float(np.finfo(np.float32).eps)

    def _ordered(self, unit: Floats, documents: Ints, top: int) -> Hits:
        documents = np.sort(documents)
        similar = self.similarities(unit, documents)
        chosen = np.argsort(-similar, kind="stable")[:top]
        return Hits(documents[chosen], similar[chosen])

    def _narrowed(self, queries: Singles, count: int) -> tuple[Singles, Ints]:
        """Return each query's best documents by single-precision products, and those products, in any order."""
        pieces = range(0, len(self), _PIECE)
        with one_blas_thread():
            parts = in_threads(lambda first: self._piece(queries, first, count), pieces)
        if len(parts) == 1:
            return parts[0]
        scores, documents = np.hstack([part[0] for part in parts]), np.hstack([part[1] for part in parts])
        order = np.lexsort((documents, -scores), axis=1)[:, :count]
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(documents, order, axis=1)

    def _piece(self, queries: Singles, first: int, count: int) -> tuple[Singles, Ints]:
        best = np.empty((len(queries), count), np.float32)
        documents = np.empty((len(queries), count), np.int64)
        nothing_kept(best, documents)
        for start in range(first, min(first + _PIECE, len(self)), _BLOCK):
            block = slice(start, min(start + _BLOCK, len(self)))
            lengths = self.lengths[block]
            shrink = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=lengths > 0).astype(np.float32)
            products = queries @ np.asarray(self.of(block), dtype=np.float32).T
            keep_best(np.ascontiguousarray(products), shrink, start, best, documents)
        return best, documents
