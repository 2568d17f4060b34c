"""Latent semantic analysis: vectors from the collection itself, by a truncated SVD of its tf-idf table.

A is documents × terms: (1 + log c) · log(1 + N/df), rows of length 1. With A ≈ U S Vᵀ, a document's vector is its row
times V, and so is a query's. The largest singular vectors are found by subspace iteration from a fixed start, so the
same documents give the same vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from querywise.errors import ModelFileError
from querywise.retrieval.index import Index
from querywise.runtime.arrays import Floats, Singles
from querywise.runtime.threads import one_blas_thread
from querywise.runtime.values import is_whole

LEAST, USUAL, MOST = 128, 512, 4096  # bounds of the default dimension, and the highest dimension allowed
KEPT = "lsa"  # name of the array in the index
_MORE, _STEPS = 16, 6  # extra directions, and iterations


class LsaEmbedder:
    """Vectors from the words of an index: terms × dimensions, and the tokenizer."""

    def __init__(self, index: Index, projection: Singles) -> None:
        self.projection = projection
        self._index = index
        self._idf = _idf(index)

    def __call__(self, texts: Sequence[str], /) -> Floats:
        """Return one row per text; a text without a known word gets zeros."""
        rows = np.zeros((len(texts), self.projection.shape[1]))
        for row, text in zip(rows, texts, strict=True):
            counts = Counter(self._index.tokeniser.terms(text))
            terms = {self._index.terms.find(term): count for term, count in counts.items()}
            known = {term: count for term, count in terms.items() if term >= 0}
            if known:
                places = np.array(list(known), dtype=np.int64)
                weights = (1 + np.log(np.array(list(known.values())))) * self._idf[places]
                weights /= np.sqrt(weights @ weights)
                row[:] = weights @ self.projection[places].astype(np.float64)
        return rows

    def probe(self) -> Floats:
        """Return the sum over all terms, which identifies the documents."""
        found: Floats = self.projection.sum(axis=0, dtype=np.float64)
        return found


def dimension_of(name: str, documents: int = 0) -> int | None:
    """Return the dimension in a name, `lsa:N` or `lsa`; None if it is neither, or N is out of range.

    `lsa` means a tenth of the number of documents, rounded down to a power of two, but at least 128 and at most 512.
    """
    kind, colon, count = name.partition(":")
    if kind != "lsa" or not colon:
        tenth = 1 << max((documents // 10).bit_length() - 1, 0)
        return min(max(tenth, LEAST), USUAL) if name == "lsa" else None
    return int(count) if is_whole(count) and len(count) < 6 and 1 <= int(count) <= MOST else None


def lsa_of(index: Index, name: str = KEPT) -> LsaEmbedder:
    """Return the embedder stored with an index, or a new one from its documents, of the dimension in the name."""
    kept = index.extra.get(KEPT)
    if kept is None:
        return LsaEmbedder(index, _projection(index, dimension_of(name, len(index)) or LEAST))
    if kept.ndim != 2 or kept.dtype != np.float32 or len(kept) != len(index.terms) or not np.isfinite(kept).all():
        raise ModelFileError("The LSA of this index does not fit its terms. Rebuild the index.")
    return LsaEmbedder(index, kept.astype(np.float32, copy=False))


def with_projection(index: Index, source: Index) -> Index:
    """Return the index with another index's LSA; terms that the other index lacks do not contribute to vectors."""
    rows = np.array([source.terms.find(term) for term in index.terms], dtype=np.int64)
    own: Singles = np.where(rows[:, None] < 0, np.float32(0), source.extra[KEPT][rows])
    return replace(index, extra=index.extra | {KEPT: own})


def _projection(index: Index, dimension: int) -> Singles:
    """Return V, terms × dimensions, with signs such that the largest entry of each column is positive."""
    table = _weighted(index)
    count = max(min(dimension, *table.shape), 1)
    start = np.random.default_rng(0).standard_normal((table.shape[1], min(count + _MORE, *table.shape)))
    with one_blas_thread():
        basis = np.linalg.qr(table @ start)[0]
        for _ in range(_STEPS):
            basis = np.linalg.qr(table @ np.linalg.qr(table.T @ basis)[0])[0]
        right = np.linalg.svd((table.T @ basis).T, full_matrices=False)[2][:count].T
    largest = np.take_along_axis(right, np.abs(right).argmax(axis=0)[None], axis=0) if len(right) else right
    found: Singles = (right * np.where(largest < 0, -1.0, 1.0)).astype(np.float32)
    return found


def _weighted(index: Index) -> csr_array:
    """Return A, documents × terms."""
    field = index.fields["both"]
    terms = np.repeat(np.arange(len(index.terms)), np.diff(field.starts))
    weights = (1 + np.log(np.asarray(field.counts, dtype=np.float64))) * _idf(index)[terms]
    documents = np.asarray(field.documents, dtype=np.int64)
    lengths = np.sqrt(np.bincount(documents, weights**2, len(index)))
    return csr_array((weights / lengths[documents], (documents, terms)), shape=(len(index), len(index.terms)))


def _idf(index: Index) -> Floats:
    frequency = np.diff(index.fields["both"].starts)
    found: Floats = np.log1p(len(index) / np.maximum(frequency, 1))
    return found
