"""One field of all documents of an index: which term occurs where and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querywise.errors import ModelFileError
from querywise.runtime.arrays import Floats, Ints, for_kernels


class Asked(NamedTuple):
    """Terms and documents by number, as compiled kernels take them; `order` sorts the documents."""

    terms: Ints
    documents: Ints
    order: Ints

    @staticmethod
    def of(terms: Sequence[int], documents: Ints) -> Asked:
        """Those of a query; a term −1 is nowhere."""
        numbers = for_kernels(np.asarray(documents, np.int64))
        return Asked(np.array(terms, np.int64), numbers, np.argsort(numbers))


@dataclass(frozen=True, eq=False)
class Field:
    """One field of all documents. Term t occurs in `documents[starts[t]:starts[t + 1]]`, as often as `counts` says."""

    starts: Ints
    documents: NDArray[np.int32]
    counts: NDArray[np.int32]
    lengths: NDArray[np.int32]  # terms in each document
    distinct: NDArray[np.int32]  # different terms in each document
    totals: Ints  # occurrences of each term in all documents

    @cached_property
    def size(self) -> int:
        """The number of terms in the field of all documents together."""
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
        """The slice of a term's postings."""
        return slice(int(self.starts[term]), int(self.starts[term + 1]))

    @cached_property
    def weights(self) -> dict[tuple[float, float], Floats]:
        """What each posting adds to BM25, by its k1 and b, as far as it was asked for."""
        return {}

    @cached_property
    def checked(self) -> Field:
        """The same arrays as compiled kernels take them, once it is sure that none leads out of another."""
        starts, documents = self.starts, self.documents
        sound = (
            len(starts) == len(self.totals) + 1
            and starts[0] == 0
            and starts[-1] == len(documents) == len(self.counts)
            and bool((starts[1:] >= starts[:-1]).all())
            and len(self.lengths) == len(self.distinct) > documents.max(initial=-1)
            and documents.min(initial=0) >= 0
        )
        if not sound:
            raise ModelFileError("The postings of the index lead nowhere. Make the index anew with `querywise index`.")
        return Field(
            for_kernels(starts),
            for_kernels(documents),
            for_kernels(self.counts),
            for_kernels(self.lengths),
            for_kernels(self.distinct),
            for_kernels(self.totals),
        )

    def counts_of(self, terms: Sequence[int], documents: Ints) -> Floats:
        """How often each of some terms (−1: one that is nowhere) occurs in each of some documents."""
        from querywise.retrieval.word_kernels import find_places

        places = np.empty((len(documents), len(terms)), np.int64)
        find_places(self.checked.starts, self.checked.documents, *Asked.of(terms, documents), places)
        return np.where(places >= 0, self.counts[places] if len(self.counts) else 0, 0).astype(np.float64)
