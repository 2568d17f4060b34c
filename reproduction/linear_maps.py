"""Linear maps of query vectors as two libraries make them, written anew from their formulas, to compare with."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.sparse import csr_array

from querywise.retrieval.judged_vectors import Given, JudgedVectors
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.threads import checkpoint, one_blas_thread

_SCALE, _BATCH = 20.0, 10  # of the loss of LlamaIndex, and of its steps
_TRIPLETS = 64  # of a query, for RAGLite's adapter
_LOOKED = 40  # documents that it looks at
_GAP = 0.05  # of the largest possible, between a relevant document and another


class LinearMap:
    """One matrix A for all queries: q becomes Aq."""

    map_: Floats

    def fit(
        self, query_vectors: Given, document_vectors: Given, judgments: csr_array, *, groups: Ints | None = None
    ) -> Self:
        """Learn from judged queries; `groups` are not looked at."""
        data = JudgedVectors.of(query_vectors, document_vectors, judgments, None, groups)
        index = data.documents
        documents = np.asarray(index.of(np.arange(len(index))), dtype=np.float64)
        documents /= np.where(index.lengths > 0, index.lengths, 1.0)[:, None]
        with one_blas_thread():
            self.map_ = self._learned(data.queries, documents, data.gains)
        return self

    def transform(self, query_vectors: Floats) -> Floats:
        """Aq of every query; only directions count in search by cosine."""
        found: Floats = query_vectors @ self.map_.T
        return found

    def _learned(self, queries: Floats, documents: Floats, gains: csr_array) -> Floats:
        raise NotImplementedError


class LlamaIndexMap(LinearMap):
    """LlamaIndex's linear adapter: multiple-negatives ranking loss, AdamW, batches of 10, gradients cut at 1.

    The loss is the cross-entropy of cosines times 20 with the documents of a batch, of which each query has its own.
    The rate falls linearly, without warm-up.
    """

    def __init__(self, epochs: int, rate: float) -> None:
        self.epochs = epochs
        self.rate = rate

    def _learned(self, queries: Floats, documents: Floats, gains: csr_array) -> Floats:
        chance = np.random.default_rng(0)
        pairs = np.transpose(gains.nonzero())
        adapter = np.eye(queries.shape[1])
        first, second = np.zeros_like(adapter), np.zeros_like(adapter)
        steps, taken = self.epochs * (len(pairs) // _BATCH), 0
        for _ in range(self.epochs):
            shuffled = chance.permutation(pairs)
            for begin in range(0, len(pairs) // _BATCH * _BATCH, _BATCH):
                checkpoint()
                rows, columns = shuffled[begin : begin + _BATCH].T
                slope = _slope(adapter, queries[rows], documents[columns])
                slope /= max(1.0, float(np.linalg.norm(slope)))
                taken += 1
                first = 0.9 * first + 0.1 * slope
                second = 0.999 * second + 0.001 * slope**2
                now = self.rate * (1 - (taken - 1) / steps)
                adapter *= 1 - 0.01 * now  # AdamW's usual decay of weights
                adapter -= now * first / (1 - 0.9**taken) / (np.sqrt(second / (1 - 0.999**taken)) + 1e-8)
        return adapter


class RagliteMap(LinearMap):
    """RAGLite's query adapter: the rotation that lifts relevant documents above others that are ranked before them.

    It is the solution of an orthogonal Procrustes problem over at most 64 wrongly ordered triplets of a query.
    """

    def _learned(self, queries: Floats, documents: Floats, gains: csr_array) -> Floats:
        asked, better, worse = [], [], []
        for row, query in enumerate(queries):
            best = np.argsort(-(documents @ query), kind="stable")[:_LOOKED]
            right = np.isin(best, gains.indices[gains.indptr[row] : gains.indptr[row + 1]])
            triplets = [(p, n) for place, n in enumerate(best) if not right[place] for p in best[place:][right[place:]]]
            for p, n in triplets[:_TRIPLETS]:
                asked.append(query)
                better.append(documents[p])
                worse.append(documents[n])
        if not asked:
            return np.eye(queries.shape[1])
        q, p, n = map(np.array, (asked, better, worse))
        before = ((p - n) * q).sum(axis=1)
        after = 2 * (1 - (p * n).sum(axis=1)) / np.maximum(np.linalg.norm(p - n, axis=1), 1e-12)
        share = (before - _GAP * after) / np.minimum(before - after, -1e-12)
        moved = (share[:, None] * (p - n)).T @ q
        scale = max(float(np.linalg.norm(moved)) / np.sqrt(queries.shape[1]), 1e-12)
        mixed = share.mean() * moved / scale + (1 - share).mean() * np.eye(queries.shape[1])
        left, _, right_turned = np.linalg.svd(mixed)
        found: Floats = left @ right_turned
        return found


def _slope(adapter: Floats, queries: Floats, documents: Floats) -> Floats:
    """Of the mean cross-entropy of a batch, by the adapter; documents are of length 1."""
    moved = queries @ adapter.T
    lengths = np.linalg.norm(moved, axis=1, keepdims=True)
    units = moved / lengths
    scores = _SCALE * units @ documents.T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    wrong = _SCALE * (shares - np.eye(len(queries))) @ documents / len(queries)
    wrong -= (wrong * units).sum(axis=1, keepdims=True) * units
    found: Floats = (wrong / lengths).T @ queries
    return found
