"""The documents BM25 finds for a query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.arrays import Floats, Ints
from querywise.errors import DataError
from querywise.text.index import Index
from querywise.text.scores import Smoothing, Statistics, bm25_weights


class Found(NamedTuple):
    """Documents by number, best first, with their scores."""

    documents: Ints
    scores: Floats


def search(index: Index, text: str, *, top: int = 100, smoothing: Smoothing | None = None) -> Found:
    """The `top` documents by BM25 of title and body; of equals the earlier, and never one without a term of the query.

    >>> from querywise.data.collections import Document
    >>> from querywise.text.index import build_index
    >>> index = build_index([Document("a", "jaguar", "a large cat"), Document("b", "python", "a large snake")])
    >>> [index.document_ids[document] for document in search(index, "the large cats").documents]
    ['a', 'b']
    """
    if top < 1:
        raise DataError(f"top={top}: expected the number of documents to find, from 1 up.")
    return _best(bm25(index, text, smoothing or Smoothing()), top)


def bm25(index: Index, text: str, smoothing: Smoothing) -> Floats:
    """The BM25 score of every document."""
    field = index.fields["both"]
    weights = _weights(index, smoothing)
    scores = np.zeros(len(index))
    for term in index.numbers_of(text):
        if term >= 0:
            where = field.postings(term)
            scores[field.documents[where]] += weights[where]
    return scores


def _weights(index: Index, smoothing: Smoothing) -> Floats:
    """What every posting adds to BM25, computed once."""
    key = ("bm25", smoothing)
    if key not in index._cache:
        field = index.fields["both"]
        every = Statistics.of(field, range(len(index.terms)))
        frequency = np.diff(field.starts)
        repeated = every._replace(document_frequency=np.repeat(every.document_frequency, frequency))
        lengths = np.asarray(field.lengths, dtype=np.float64)[field.documents]
        index._cache[key] = bm25_weights(np.asarray(field.counts, dtype=np.float64), lengths, repeated, smoothing)
    weights: Floats = index._cache[key]
    return weights


def _best(scores: Floats, top: int) -> Found:
    if top < len(scores):
        cut = np.partition(scores, len(scores) - top)[len(scores) - top]
        found = np.flatnonzero(scores >= cut) if cut > 0 else np.flatnonzero(scores > 0)
    else:
        found = np.flatnonzero(scores > 0)
    chosen = found[np.argsort(-scores[found], kind="stable")][:top]
    return Found(chosen, scores[chosen])
