"""Search by BM25."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.errors import DataError
from querywise.retrieval.index import Index
from querywise.retrieval.scores import USUAL, Smoothing, bm25_weights
from querywise.runtime.arrays import Floats, Ints


class Hits(NamedTuple):
    """Documents by index, best first, with their scores."""

    documents: Ints
    scores: Floats


def search(index: Index, text: str, *, top: int = 100, smoothing: Smoothing | None = None) -> Hits:
    """Return the `top` documents by BM25 of title and body that contain a query term; ties are in index order.

    >>> from querywise.data.collections import Document
    >>> from querywise.retrieval.index import build_index
    >>> index = build_index([Document("a", "jaguar", "a large cat"), Document("b", "python", "a large snake")])
    >>> [index.document_ids[document] for document in search(index, "the large cats").documents]
    ['a', 'b']
    """
    if top < 1:
        raise DataError(f"top={top}: expected the number of documents to find, from 1 up.")
    from querywise.retrieval.kernels import find_best

    field = index.fields["both"]
    weights = bm25_weights(field, smoothing or USUAL)
    terms = np.array([term for term in index.numbers_of(text) if term >= 0], np.int64)
    documents, scores = np.empty(min(top, len(index)), np.int64), np.empty(min(top, len(index)))
    sums, own = field.zeros(), field.checked
    count = find_best(terms, own.starts, own.documents, weights, sums, documents, scores)
    field.spare.append(sums)
    return Hits(documents[:count], scores[:count])


def bm25(index: Index, text: str, smoothing: Smoothing) -> Floats:
    """Return the BM25 score of every document."""
    field = index.fields["both"]
    weights = bm25_weights(field, smoothing)
    places = [field.postings(term) for term in index.numbers_of(text) if term >= 0]
    if not places:
        return np.zeros(len(index))
    holders = np.concatenate([field.documents[where] for where in places])
    gains = np.concatenate([weights[where] for where in places])
    return np.bincount(holders, gains, len(index)).astype(np.float64, copy=False)
