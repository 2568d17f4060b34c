"""The documents BM25 finds for a query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.errors import DataError
from querywise.retrieval.index import Index
from querywise.retrieval.scores import Smoothing, Statistics, bm25_weights
from querywise.runtime.arrays import Floats, Ints

_GROUPS = 16  # groups of documents for each document to find


class Found(NamedTuple):
    """Documents by number, best first, with their scores."""

    documents: Ints
    scores: Floats


def search(index: Index, text: str, *, top: int = 100, smoothing: Smoothing | None = None) -> Found:
    """The `top` documents by BM25 of title and body; of equals the earlier, and never one without a term of the query.

    >>> from querywise.data.collections import Document
    >>> from querywise.retrieval.index import build_index
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
    places = [field.postings(term) for term in index.numbers_of(text) if term >= 0]
    if not places:
        return np.zeros(len(index))
    holders = np.concatenate([field.documents[where] for where in places])
    gains = np.concatenate([weights[where] for where in places])
    return np.bincount(holders, gains, len(index)).astype(np.float64, copy=False)


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
    found = np.flatnonzero(scores >= max(_at_most_the_last(scores, top), np.finfo(np.float64).tiny))
    chosen = found[np.argsort(-scores[found], kind="stable")][:top]
    return Found(chosen, scores[chosen])


def _at_most_the_last(scores: Floats, top: int) -> float:
    """A score that at least `top` documents reach, hardly below that of the last of them; 0 if there are not so many.

    The best scores of many groups of documents are looked at alone: the `top`-th of them is such a score.
    """
    groups = _GROUPS * top
    rows = len(scores) // groups
    best = scores[: rows * groups].reshape(rows, groups).max(axis=0) if rows > 1 else scores
    place = len(best) - top
    return float(np.partition(best, place)[place]) if place > 0 else 0.0
