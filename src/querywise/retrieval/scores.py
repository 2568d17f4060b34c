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
from typing import NamedTuple

import numpy as np

from querywise.errors import DataError
from querywise.retrieval.index import Field
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


class Statistics(NamedTuple):
    """Collection statistics of some terms in a field."""

    documents: int  # N
    size: int  # |C|
    mean_length: float
    longest: float  # the length of the longest document
    document_frequency: Floats  # df of each term
    totals: Floats  # c(t,C) of each term

    @staticmethod
    def of(field: Field, terms: Sequence[int]) -> Statistics:
        """The statistics of terms by number; −1 is a term that is nowhere."""
        known = np.array(terms, dtype=np.int64)
        place = np.maximum(known, 0)
        frequency = np.where(known >= 0, field.starts[place + 1] - field.starts[place], 0) if len(field.totals) else 0
        totals = np.where(known >= 0, field.totals[place], 0) if len(field.totals) else 0
        zeros = np.zeros(len(known))
        longest = float(field.longest)
        return Statistics(len(field.lengths), field.size, field.mean_length, longest, zeros + frequency, zeros + totals)


def all_scores(fields: dict[str, Field], terms: Sequence[int], documents: Ints, smoothing: Smoothing) -> Floats:
    """The 25 scores of some documents for the distinct terms of a query: documents × 25."""
    parts = []
    for name in ("title", "body", "both"):
        field = fields[name]
        counts, lengths = field.counts_of(terms, documents), field.lengths[documents].astype(np.float64)
        statistics = Statistics.of(field, terms)
        if name == "both":
            distinct = field.distinct[documents].astype(np.float64)
            parts.append(high_level(counts, lengths, distinct, statistics, smoothing))
        else:
            parts.append(low_level(counts, lengths, statistics))
    return np.hstack(parts)


def low_level(counts: Floats, lengths: Floats, statistics: Statistics) -> Floats:
    """L1 to L10: documents × 10, from documents × terms."""
    share = counts / np.maximum(lengths, 1.0)[:, None]
    idf = np.log(statistics.documents / np.maximum(statistics.document_frequency, 1.0))
    rarity = statistics.size / np.maximum(statistics.totals, 1.0)
    there = (counts > 0).astype(np.float64)
    return np.column_stack(
        [
            counts.sum(axis=1),  # L1  Σ c
            np.log(counts + 1).sum(axis=1),  # L2  Σ log(c + 1)
            share.sum(axis=1),  # L3  Σ c/|d|
            np.log(share + 1).sum(axis=1),  # L4  Σ log(c/|d| + 1)
            there @ idf,  # L5  Σ log(N/df)
            there @ np.log(np.maximum(idf, 1.0)),  # L6  Σ log(max(log(N/df), 1))
            there @ np.log(rarity + 1),  # L7  Σ log(|C|/c(t,C) + 1)
            np.log(share * idf + 1).sum(axis=1),  # L8  Σ log(c/|d| · log(N/df) + 1)
            counts @ idf,  # L9  Σ c · log(N/df)
            np.log(share * rarity + 1).sum(axis=1),  # L10 Σ log(c/|d| · |C|/c(t,C) + 1)
        ]
    )


def high_level(
    counts: Floats, lengths: Floats, distinct: Floats, statistics: Statistics, smoothing: Smoothing
) -> Floats:
    """H1 to H5: documents × 5. BM25, log(1 + BM25), and the log-likelihood of the query under three language models.

    Dirichlet (c + μ p)/(|d| + μ), Jelinek-Mercer (1 − λ) c/|d| + λ p, absolute discount max(c − δ, 0)/|d| + δ p u/|d|,
    where p = c(t,C)/|C| and u is the number of distinct terms of the document. A document without a word is scored as
    the longest one would be if it had one term, and none of the query's: so it never beats one that has such a term.
    """
    best = bm25_weights(counts, lengths[:, None], statistics, smoothing).sum(axis=1)
    length = np.where(lengths > 0, lengths, max(statistics.longest, 1.0))[:, None]
    terms = np.where(lengths > 0, distinct, 1.0)[:, None]
    # A term that is nowhere counts as half an occurrence.
    background = np.maximum(statistics.totals, 0.5) / max(statistics.size, 1)
    mu, mix, discount = smoothing.dirichlet, smoothing.jelinek_mercer, smoothing.absolute_discount
    dirichlet = (counts + mu * background) / (length + mu)
    mixed = (1 - mix) * (counts / length) + mix * background
    discounted = np.maximum(counts - discount, 0.0) / length
    discounted += discount * terms / length * background
    likelihoods = [np.log(each).sum(axis=1) for each in (dirichlet, mixed, discounted)]
    return np.column_stack([best, np.log1p(best), *likelihoods])


def bm25_weights(counts: Floats, lengths: Floats, statistics: Statistics, smoothing: Smoothing) -> Floats:
    """What each occurrence count adds to BM25: idf · c (k1 + 1) / (c + k1 (1 − b + b |d|/mean |d|)).

    idf is log(1 + (N − df + ½) / (df + ½)), which is never negative.
    """
    df = statistics.document_frequency
    idf = np.log1p((statistics.documents - df + 0.5) / (df + 0.5))
    long = lengths / max(statistics.mean_length, 1e-12)
    saturation = smoothing.k1 * (1 - smoothing.b + smoothing.b * long)
    divisor = np.where(counts > 0, counts + saturation, 1.0)
    weights: Floats = idf * counts * (smoothing.k1 + 1) / divisor
    return weights
