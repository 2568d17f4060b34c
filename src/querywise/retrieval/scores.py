"""The 25 rankers of a text collection: ten low-level scores of the title, ten of the body, five of both [hoi2008]_.

c(t,d) is how often a term is in a field of a document, |d| the field's length there, N the number of documents, df how
many of them have the term in the field, c(t,C) how often it occurs there in all of them, |C| the number of terms of the
field in all of them. Sums run over the distinct terms of the query that are in the document's field; the language
models' over all distinct terms of the query. Nothing here is ever infinite or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from querywise.errors import DataError
from querywise.retrieval.field import Asked, Field
from querywise.runtime.arrays import Floats, Ints

LOW_LEVEL = ("L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9", "L10")
NAMES = (
    *(f"{name}.title" for name in LOW_LEVEL),
    *(f"{name}.body" for name in LOW_LEVEL),
    "H1.bm25",
    "H2.log_bm25",
    "H3.dirichlet",
    "H4.jelinek_mercer",
    "H5.absolute_discount",
)
BM25 = "H1.bm25"
_SHORTEST = 1e-12  # mean length, where all documents are empty


@dataclass(frozen=True)
class Smoothing:
    """The parameters of the high-level scores."""

    k1: float = 1.2
    b: float = 0.75
    dirichlet: float = 2000.0
    jelinek_mercer: float = 0.1
    absolute_discount: float = 0.7

    def __post_init__(self) -> None:
        inside = 0 <= self.b <= 1 and 0 < self.jelinek_mercer <= 1 and 0 < self.absolute_discount <= 1
        if not (inside and 0 <= self.k1 < math.inf and 0 < self.dirichlet < math.inf):
            raise DataError(
                f"{self}: k1 must be from 0, dirichlet above 0, b from 0 to 1, the others above 0 and to 1."
            )


USUAL = Smoothing()


def all_scores(fields: dict[str, Field], terms: Sequence[int], documents: Ints, smoothing: Smoothing) -> Floats:
    """The 25 scores of some documents for the distinct terms of a query: documents × 25."""
    scores = np.empty((len(documents), len(NAMES)))
    write_scores(fields, terms, documents, smoothing, scores)
    return scores


def write_scores(
    fields: dict[str, Field], terms: Sequence[int], documents: Ints, smoothing: Smoothing, scores: Floats
) -> None:
    """The same, into the first columns of a table."""
    asked = Asked.of(terms, documents)
    for number, name in enumerate(("title", "body")):
        _write_low_level(fields[name], asked, number * len(LOW_LEVEL), scores)
    _write_high_level(fields["both"], asked, smoothing, 2 * len(LOW_LEVEL), scores)


def high_level(field: Field, terms: Sequence[int], documents: Ints, smoothing: Smoothing) -> Floats:
    """H1 to H5 of some documents for the distinct terms of a query: documents × 5."""
    scores = np.empty((len(documents), len(NAMES) - 2 * len(LOW_LEVEL)))
    _write_high_level(field, Asked.of(terms, documents), smoothing, 0, scores)
    return scores


def _write_low_level(field: Field, asked: Asked, first: int, scores: Floats) -> None:
    """L1 to L10, into the columns from `first` on.

    L1 Σ c; L2 Σ log(c + 1); L3 Σ c/|d|; L4 Σ log(c/|d| + 1); L5 Σ log(N/df); L6 Σ log(max(log(N/df), 1));
    L7 Σ log(|C|/c(t,C) + 1); L8 Σ log(c/|d| · log(N/df) + 1); L9 Σ c · log(N/df); L10 Σ log(c/|d| · |C|/c(t,C) + 1).
    """
    from querywise.retrieval.word_kernels import low_scores

    own = field.checked
    low_scores(own.starts, own.documents, own.counts, own.totals, own.lengths, field.size, *asked, first, scores)


def _write_high_level(field: Field, asked: Asked, smoothing: Smoothing, first: int, scores: Floats) -> None:
    """H1 to H5, into the columns from `first` on.

    BM25, log(1 + BM25), and the log-likelihood of the query under three language models: Dirichlet
    (c + μ p)/(|d| + μ), Jelinek-Mercer (1 − λ) c/|d| + λ p, absolute discount max(c − δ, 0)/|d| + δ p u/|d|, where
    p = c(t,C)/|C| and u is the number of distinct terms of the document. A document without a word is scored as the
    longest one would be if it had one term, and none of the query's: so it never beats one that has such a term.
    """
    from querywise.retrieval.word_kernels import high_scores

    own = field.checked
    known = own.starts, own.documents, own.totals, own.counts, bm25_weights(field, smoothing), own.lengths, own.distinct
    of_models = float(smoothing.dirichlet), float(smoothing.jelinek_mercer), float(smoothing.absolute_discount)
    high_scores(*known, field.size, field.longest, of_models, *asked, first, scores)


def bm25_weights(field: Field, smoothing: Smoothing) -> Floats:
    """What every posting adds to BM25, idf · c (k1 + 1) / (c + k1 (1 − b + b |d|/mean |d|)); computed once.

    idf is log(1 + (N − df + ½) / (df + ½)), which is never negative.
    """
    key = float(smoothing.k1), float(smoothing.b)
    if key not in field.weights:
        (k1, b), own = key, field.checked
        frequency = np.diff(own.starts)
        df = np.repeat(frequency.astype(np.float64), frequency)
        idf = np.log1p((len(own.lengths) - df + 0.5) / (df + 0.5))
        counts = own.counts.astype(np.float64)
        long = own.lengths.astype(np.float64)[own.documents] / max(field.mean_length, _SHORTEST)
        field.weights[key] = idf * counts * (k1 + 1) / (counts + k1 * (1 - b + b * long))
    return field.weights[key]
