"""The 25 rankers of a text collection: ten low-level scores of the title, ten of the body, five of both [hoi2008]_.

c(t,d) is how often a term occurs in a field of a document, |d| the field's length there, N the number of documents, df
how many of them contain the term in the field, c(t,C) how often it occurs there in all of them, |C| the number of terms
of the field in all of them. Sums run over the distinct terms of the query that are in the document's field; the
language models' over all distinct terms of the query. Nothing here is ever infinite or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cache, cached_property
from types import ModuleType
from typing import NamedTuple

import numpy as np

from querywise.errors import DataError
from querywise.retrieval.field import Field, bm25_idf
from querywise.runtime.arrays import Floats, Ints, for_kernels

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
_SHORTEST = 1e-12  # mean length if all documents are empty


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

    @cached_property
    def numbers(self) -> tuple[float, ...]:
        """The parameters as a tuple, k1 and b first, for the compiled kernels."""
        return tuple(map(float, astuple(self)))


USUAL = Smoothing()


class _Asked(NamedTuple):
    """Terms and documents by index, and buffers for the cells of one field: which term is in which document."""

    terms: Ints
    documents: Ints
    cells: Ints  # row, column, count
    shares: Floats  # c/|d| of the cells
    tables: Floats  # documents × terms: c, and 1 where it is not 0
    idf: Floats  # of the terms
    arguments: Floats  # of the logarithms
    products: Floats  # L5, L6, L7, L9

    @staticmethod
    def of(terms: Sequence[int], documents: Ints) -> _Asked:
        """Return the buffers for a query; term −1 is unknown."""
        many, width = len(documents), len(terms)
        cells = many * width
        return _Asked(
            np.array(terms, np.int64),
            for_kernels(np.asarray(documents, np.int64)),
            np.empty((cells + 1, 3), np.int64),
            np.empty(cells),
            np.empty((2, many, width)),
            np.empty(width),
            np.empty(2 * width + _kernels().LOW * cells),
            np.empty((4, many)),
        )


def write_scores(
    fields: dict[str, Field], terms: Sequence[int], documents: Ints, smoothing: Smoothing, scores: Floats
) -> None:
    """Write the 25 scores of some documents, for a query's distinct terms, to the first columns of a table."""
    asked, counts = _Asked.of(terms, documents), np.zeros((len(terms), len(documents)))
    zeros = fields["both"].zeros()
    marks = zeros.view(np.int64)
    low_level(fields["title"], asked, marks, counts, 0, scores)
    low_level(fields["body"], asked, marks, counts, len(LOW_LEVEL), scores)
    fields["both"].spare.append(zeros)
    _write_high_level(fields["both"], asked.terms, asked.documents, counts, smoothing, 2 * len(LOW_LEVEL), scores)


def low_level(field: Field, asked: _Asked, zeros: Ints, counts: Floats, first: int, scores: Floats) -> None:
    """Write L1 to L10 to the columns from `first` on; term counts are added to `counts`.

    L1 Σ c; L2 Σ log(c + 1); L3 Σ c/|d|; L4 Σ log(c/|d| + 1); L5 Σ log(N/df); L6 Σ log(max(log(N/df), 1));
    L7 Σ log(|C|/c(t,C) + 1); L8 Σ log(c/|d| · log(N/df) + 1); L9 Σ c · log(N/df); L10 Σ log(c/|d| · |C|/c(t,C) + 1).
    """
    kernels, width = _kernels(), len(asked.terms)
    terms, documents, cells, shares, tables, idf, arguments, products = asked
    found = kernels.list_low(
        *field.for_low_scores, terms, documents, zeros, cells, shares, tables, counts, idf, arguments
    )
    if found < 0:
        raise IndexError(field.missing)
    if found == 0:
        scores[:, first : first + len(LOW_LEVEL)] = 0.0
        return
    logarithms = np.log(arguments[: 2 * width + kernels.LOW * found])
    often, there = tables[0], tables[1]
    # Not `dot`: its summation order depends on the machine, and differs for a single document.
    multiply = np.dot if len(documents) > 1 else np.matmul
    multiply(there, idf, out=products[0])
    multiply(there, logarithms[:width], out=products[1])
    multiply(there, logarithms[width : 2 * width], out=products[2])
    multiply(often, idf, out=products[3])
    kernels.add_low(cells[:found], shares, logarithms, often, products, first, scores)


def high_level(field: Field, terms: Sequence[int], documents: Ints, smoothing: Smoothing) -> Floats:
    """Return H1 to H5, documents × 5: BM25, log(1 + BM25), and the query's log-likelihood under three language models.

    Dirichlet (c + μ p)/(|d| + μ), Jelinek-Mercer (1 − λ) c/|d| + λ p, absolute discount max(c − δ, 0)/|d| + δ p u/|d|,
    where p = c(t,C)/|C| and u is the number of distinct terms of the document. An empty document is scored like the
    longest one with a single term that is not in the query, so it never beats a document with a query term.
    """
    scores = np.empty((len(documents), len(NAMES) - 2 * len(LOW_LEVEL)))
    counts = np.ascontiguousarray(field.counts_of(terms, documents).T)
    asked = np.array(terms, np.int64), for_kernels(np.asarray(documents, np.int64))
    _write_high_level(field, *asked, counts, smoothing, 0, scores)
    return scores


def _write_high_level(
    field: Field, terms: Ints, documents: Ints, counts: Floats, smoothing: Smoothing, first: int, scores: Floats
) -> None:
    """Write H1 to H5 to the columns from `first` on; `counts` is terms × documents."""
    kernels = _kernels()
    added, best = np.empty(counts.shape), np.empty(len(documents))
    arguments = np.empty((kernels.HIGH, *counts.shape))
    kernels.list_high(*field.for_high_scores, *smoothing.numbers, terms, documents, counts, added, arguments)
    kernels.add_high(added, np.log(arguments), first, best, scores)
    scores[:, first + 1] = np.log1p(best)


@cache
def _kernels() -> ModuleType:
    """Import and return the kernels, which load numba."""
    from querywise.retrieval import kernels

    return kernels


def bm25_weights(field: Field, smoothing: Smoothing) -> Floats:
    """Return every posting's contribution to BM25, idf · c (k1 + 1) / (c + k1 (1 − b + b |d|/mean |d|)), computed once.

    idf is log(1 + (N − df + ½) / (df + ½)), which is never negative.
    """
    key = float(smoothing.k1), float(smoothing.b)
    if key not in field.weights:
        (k1, b), own = key, field.checked
        frequency = np.diff(own.starts)
        idf = bm25_idf(len(own.lengths), np.repeat(frequency, frequency))
        counts = own.counts.astype(np.float64)
        long = own.lengths.astype(np.float64)[own.documents] / max(field.mean_length, _SHORTEST)
        field.weights[key] = idf * counts * (k1 + 1) / (counts + k1 * (1 - b + b * long))
    return field.weights[key]
