"""A field of all documents of an index: its postings and statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from querywise.errors import ModelFileError
from querywise.runtime.arrays import Floats, Ints, for_kernels

_Counts = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Field:
    """One field of all documents.

    Term t occurs in `documents[starts[t]:starts[t + 1]]`, with the frequencies in `counts`.
    """

    starts: Ints
    documents: _Counts
    counts: _Counts
    lengths: _Counts  # terms in each document
    distinct: _Counts  # distinct terms in each document
    totals: Ints  # occurrences of each term in all documents

    @cached_property
    def size(self) -> int:
        """The total number of terms in all documents."""
        return int(self.lengths.sum(dtype=np.int64))

    @cached_property
    def mean_length(self) -> float:
        """The average number of terms in a document."""
        return self.size / max(len(self.lengths), 1)

    @cached_property
    def longest(self) -> int:
        """The number of terms in the longest document."""
        return int(self.lengths.max(initial=0))

    def postings(self, term: int) -> slice:
        """Return the slice of a term's postings."""
        return slice(int(self.starts[term]), int(self.starts[term + 1]))

    def __reduce__(self) -> tuple[type[Field], tuple[NDArray[np.generic], ...]]:
        # Derived data is recomputed in another process.
        return Field, (self.starts, self.documents, self.counts, self.lengths, self.distinct, self.totals)

    @cached_property
    def weights(self) -> dict[tuple[float, float], Floats]:
        """Each posting's contribution to BM25, by k1 and b, as far as computed."""
        return {}

    @cached_property
    def checked(self) -> Field:
        """The arrays for compiled kernels, after checking that no index is out of bounds."""
        starts, documents = self.starts, self.documents
        sound = (
            len(starts) == len(self.totals) + 1
            and starts[0] == 0
            and starts[-1] == len(documents) == len(self.counts)
            and bool((starts[1:] >= starts[:-1]).all())
            and len(self.lengths) == len(self.distinct) > documents.max(initial=-1)
            and documents.min(initial=0) >= 0
            and min(int(each.min(initial=0)) for each in (self.counts, self.lengths, self.distinct, self.totals)) >= 0
        )
        if not sound:
            raise ModelFileError("The postings of the index are invalid. Rebuild the index with `querywise index`.")
        return Field(
            for_kernels(starts),
            for_kernels(documents),
            for_kernels(self.counts),
            for_kernels(self.lengths),
            for_kernels(self.distinct),
            for_kernels(self.totals),
        )

    @cached_property
    def for_low_scores(self) -> tuple[Ints, _Counts, _Counts, Ints, _Counts, Floats, float]:
        """The inputs of L1 to L10: postings, totals, lengths, log(N/df) of every term, and the size."""
        own, frequency = self.checked, np.diff(self.starts)
        idf = np.log(len(self.lengths) / np.maximum(frequency, 1.0))
        return own.starts, own.documents, own.counts, own.totals, own.lengths, idf, float(self.size)

    @cached_property
    def for_high_scores(self) -> tuple[Ints, _Counts, _Counts, Floats, float, float, float]:
        """The inputs of H1 to H5: totals, lengths, distinct terms, BM25's idf of every term, three sizes."""
        own, sizes = self.checked, (float(self.size), float(self.longest), self.mean_length)
        return own.totals, own.lengths, own.distinct, bm25_idf(len(self.lengths), np.diff(self.starts)), *sizes

    @property
    def missing(self) -> str:
        """The message for a document that does not exist."""
        return f"There is no such document: the index has {len(self.lengths)}, numbered from 0."

    @cached_property
    def spare(self) -> list[Floats]:
        """Zero arrays with an entry per document that no thread uses.

        They are returned here after being reset to zeros.
        """
        return []

    def zeros(self) -> Floats:
        """Return one of these arrays, or a new one."""
        try:
            return self.spare.pop()
        except IndexError:
            return np.zeros(len(self.lengths))

    def counts_of(self, terms: Sequence[int], documents: Ints) -> Floats:
        """Return how often each of some terms (−1 for unknown ones) occurs in each of some documents."""
        from querywise.retrieval.kernels import find_cells

        own, table = self.checked, np.zeros((len(documents), len(terms)))
        asked = np.array(terms, np.int64), for_kernels(np.asarray(documents, np.int64))
        cells = np.empty((table.size + 1, 3), np.int64)
        zeros = self.zeros()
        found = find_cells(own.starts, own.documents, own.counts, *asked, zeros.view(np.int64), cells)
        self.spare.append(zeros)
        if found < 0:
            raise IndexError(self.missing)
        table[cells[:found, 0], cells[:found, 1]] = cells[:found, 2]
        return table


def bm25_idf(documents: int, frequency: Ints) -> Floats:
    """Return log(1 + (N − df + ½) / (df + ½)), which is never negative."""
    df = frequency.astype(np.float64)
    return np.log1p((documents - df + 0.5) / (df + 0.5))
