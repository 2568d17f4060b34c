"""Query weights: the relative weight of each training query, for one model or for many as rows of V."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from querywise.data.rows import refuse_masked
from querywise.data.training import Training
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.threads import in_threads, slices

_BLOCK = 256  # rows processed at a time


def check_query_weights(weights: Floats | None, data: Training, *, documents: bool = False) -> Floats:
    """Return one finite non-negative number per query: the given weight times that of the data, 1 by default.

    `documents` says whether the learner can use document weights; if not, they raise DataError.
    """
    if data.document_weights is not None and not documents:
        raise DataError(
            "The data has document weights, and this learner does not support them: it learns from pairs or from whole "
            "lists of documents. Trees (LambdaMART, plain regression) support them. For other learners "
            "give query weights alone: data.with_weights(queries=data.query_weights)."
        )
    known = data.query_weights
    if weights is None:
        return np.ones(len(data)) if known is None else known
    refuse_masked(weights, "query_weights")
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (len(data),):
        raise DataError(f"There are {len(data)} queries but query_weights has shape {values.shape}.")
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        raise DataError(
            f"The weight of query {data.query_ids[wrong[0]]!r} is {values[wrong[0]]}; "
            "weights are finite numbers from 0 up."
        )
    return values if known is None else values * known


def weighed(rows: csr_array, weights: Floats | None) -> csr_array:
    """Return rows of V multiplied by the data's query weights: u_i v_i."""
    if weights is None:
        return rows
    return csr_array((rows.data * weights[rows.indices], rows.indices, rows.indptr), shape=rows.shape)


@dataclass(frozen=True)
class WeightRows:
    """Row i has `shares[pointers[i]:pointers[i + 1]]` of the queries at the same positions of `queries`.

    This is a sparse matrix as plain arrays, which are faster if every predicted query takes one row.
    """

    pointers: Ints
    queries: Ints
    shares: Floats
    columns: int

    @staticmethod
    def of(query_weights: csr_array, pairs: Ints, count: Literal["query", "pair"]) -> WeightRows:
        """Return relative weights that count every query, or every pair, equally; 0 for queries without pairs."""
        if query_weights.shape[1] != len(pairs):
            raise DataError(f"There are {len(pairs)} training queries but weights for {query_weights.shape[1]}.")
        given = query_weights.data
        if len(given) and not (given.min() >= 0 and given.max() < np.inf):  # NaN fails both comparisons
            raise DataError("Query weights are finite numbers from 0 up.")
        queries = query_weights.indices.astype(np.int64, copy=False)
        pointers = query_weights.indptr.astype(np.int64, copy=False)
        counts = pairs[queries]
        shares = given * (counts if count == "pair" else counts > 0)
        if len(pointers) == 2:  # summed sequentially, as below
            total = shares.cumsum()[-1] if len(shares) else 0.0
            return WeightRows(pointers, queries, shares / (total if total > 0 else 1.0), len(pairs))
        rows = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
        totals = np.bincount(rows, weights=shares, minlength=len(pointers) - 1)
        return WeightRows(pointers, queries, shares / np.where(totals > 0, totals, 1.0)[rows], len(pairs))

    def __len__(self) -> int:
        return len(self.pointers) - 1

    @property
    def has_pairs(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which rows have a query with pairs."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.pointers))
        return np.bincount(rows, weights=self.shares, minlength=len(self)) > 0

    def select(self, rows: slice | Ints) -> WeightRows:
        """Return some rows; if all are selected, they are not copied."""
        numbers = np.arange(len(self))[rows]
        if len(numbers) == len(self):
            return self
        matrix = self.matrix()[numbers]
        return WeightRows(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data, self.columns)

    def of_queries(self, first: int, last: int) -> WeightRows:
        """Return all rows restricted to the queries from `first` to before `last`, renumbered from 0."""
        inside = (self.queries >= first) & (self.queries < last)
        pointers = np.concatenate([[0], np.cumsum(inside)])[self.pointers]
        return WeightRows(pointers, self.queries[inside] - first, self.shares[inside], last - first)

    def matrix(self) -> csr_array:
        """Return the rows as a sparse matrix."""
        return csr_array((self.shares, self.queries, self.pointers), shape=(len(self), self.columns))

    def times(self, table: Floats) -> Floats:
        """Return the product with a table that has a row per query."""
        if len(self) == 1:
            one: Floats = np.einsum("i,ij->j", self.shares, table[self.queries])  # faster than a BLAS call
            return one[None, :]
        matrix = self.matrix()
        return np.concatenate(in_threads(lambda block: matrix[block] @ table, slices(len(self), _BLOCK)) or [table[:0]])

    def by_query(self) -> WeightRows:
        """Return the transpose: for each query, the rows that have a share in it."""
        turned = self.matrix().T.tocsr()
        return WeightRows(turned.indptr.astype(np.int64), turned.indices.astype(np.int64), turned.data, len(self))

    def row(self, number: int) -> tuple[Ints, Floats]:
        """Return the queries with weight in one row, and their shares."""
        place = slice(self.pointers[number], self.pointers[number + 1])
        queries, shares = self.queries[place], self.shares[place]
        counted = shares > 0
        return (queries, shares) if np.count_nonzero(counted) == len(counted) else (queries[counted], shares[counted])

    def distinct(self) -> tuple[Ints, Ints]:
        """Return the first of every set of equal rows, and for each row the index of its set."""
        seen: dict[tuple[bytes, bytes], int] = {}
        first: list[int] = []
        which: list[int] = []
        for number in range(len(self)):
            queries, share = self.row(number)
            order = np.argsort(queries, kind="stable")
            key = (queries[order].tobytes(), share[order].tobytes())
            if key not in seen:
                seen[key] = len(first)
                first.append(number)
            which.append(seen[key])
        return np.array(first, np.int64), np.array(which, np.int64)
