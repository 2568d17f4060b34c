"""Judged queries and documents of a collection as vectors, and the pool of documents on which adapters learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from querywise.data.query_groups import deal, equal_sizes
from querywise.data.vectors import Vectors, as_vectors
from querywise.errors import DataError
from querywise.retrieval.query_adapter import AdapterProblem, Basis, Kernel
from querywise.retrieval.side_by_side import SideBySide, equal_shares, shares_tried
from querywise.retrieval.vector_search import VectorIndex
from querywise.runtime.arrays import Bools, Floats, Ints, Singles
from querywise.runtime.threads import in_threads, one_blas_thread, slices

Given: TypeAlias = "Floats | Vectors | VectorIndex"
Judgments: TypeAlias = "csr_array | Mapping[str, Mapping[str, float]]"
CUT = 10  # cutoff of the measure for choosing settings
_ROWS = 128  # queries at a time
_POOL, _BEST = 3_000, 10  # documents in the pool, at most twice as many, and the best documents per query


@dataclass(frozen=True, eq=False)
class JudgedVectors:
    """The training queries: their ids, unit vectors, gains (queries × documents), weights and groups.

    Attributes:
        every: the vectors of all given queries.
        rows: which of them are training queries.
        mix: the embedders' shares, if vectors of several are concatenated.
    """

    ids: tuple[str, ...]
    queries: Floats
    gains: csr_array
    weights: Floats
    groups: Ints
    documents: VectorIndex
    every: Floats
    rows: Ints
    mix: SideBySide = field(default_factory=SideBySide)

    @staticmethod
    def of(
        queries: Given,
        documents: Given,
        judgments: Judgments,
        weights: Floats | None,
        groups: Ints | None,
        blocks: tuple[int, ...] = (),
    ) -> JudgedVectors:
        """Return the checked input without queries that have no gains.

        `blocks` are the dimensions of several embedders.
        """
        own, ids = indexed(queries, "query")
        index, document_ids = indexed(documents, "document", blocks)
        every = np.asarray(own.of(slice(None)), dtype=np.float64)
        if index.dimension != every.shape[1]:
            raise DataError(
                f"The query vectors have {every.shape[1]} numbers, those of documents {index.dimension}. All must come "
                "from the same embedding model."
            )
        gains = _gains(judgments, ids, document_ids)
        counted_as = np.ones(len(ids)) if weights is None else as_numbers(weights, "weights")
        if counted_as.shape != (len(ids),) or not (np.isfinite(counted_as).all() and (counted_as >= 0).all()):
            raise DataError(f"weights: expected {len(ids)} numbers from 0 up, one per query.", arguments=("weights",))
        alone = np.arange(len(ids)) if groups is None else np.asarray(groups)
        if alone.shape != (len(ids),):
            raise DataError(f"groups: expected {len(ids)} numbers, one per query.", arguments=("groups",))
        teaches = (np.diff(gains.indptr) > 0) & (np.abs(every).max(axis=1, initial=0.0) > 0) & (counted_as > 0)
        # Sorted by id, so that the given order does not matter.
        rows = np.array(sorted(np.flatnonzero(teaches).tolist(), key=ids.__getitem__), np.int64)
        mix = SideBySide(blocks, equal_shares(blocks))
        return JudgedVectors(
            tuple(ids[row] for row in rows.tolist()),
            mix.queries(every[rows]),
            _largest_one(gains[rows]),
            counted_as[rows] / counted_as.max(initial=0.0) if len(rows) else np.zeros(0),
            np.unique(alone[rows], return_inverse=True)[1],
            index,
            every,
            rows,
            mix,
        )

    def __len__(self) -> int:
        return len(self.rows)

    def mixed(self, shares: tuple[float, ...]) -> JudgedVectors:
        """Return the data with these shares of the embedders."""
        mix = SideBySide(self.mix.blocks, shares)
        return replace(self, queries=mix.queries(self.every[self.rows]), mix=mix)

    @property
    def groups_there(self) -> int:
        """The number of groups of queries."""
        return len(np.unique(self.groups))

    def pool(self, *, everything: bool = False) -> Pool:
        """Return the softmax's documents: all, or the judged ones, each query's best by plain vectors, and others."""
        count = len(self.documents)
        base = chosen = np.arange(count)
        if not everything and count > _POOL:
            best = np.unique(
                np.concatenate(
                    [each.documents for each in self.documents.search(self.mix.asked(self.queries), top=_BEST)]
                )
            )
            best = np.random.default_rng(1).permutation(best)[: 2 * _POOL]
            others = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(count), best))
            base = np.concatenate([best, others[: max(_POOL - len(best), 0)]])
            chosen = np.union1d(base, self.gains.indices)
        vectors = np.asarray(self.documents.of(chosen), dtype=np.float32)
        lengths = self.documents.lengths[chosen]
        vectors = vectors * np.divide(1.0, lengths, out=np.zeros(len(chosen)), where=lengths > 0)[:, None]
        gains = csr_array(self.gains[:, chosen])
        vectors, known = self.mix.documents(vectors.astype(np.float32)), np.isin(chosen, base)
        return Pool(self.ids, self.queries, gains, self.weights, self.groups, vectors, known)


@dataclass(frozen=True, eq=False)
class Pool:
    """The training queries, and the documents that the softmax covers.

    `known` marks documents that are in the pool independently of judgments.
    """

    ids: tuple[str, ...]
    queries: Floats
    gains: csr_array
    weights: Floats
    groups: Ints
    documents: Singles
    known: Bools

    def __len__(self) -> int:
        return len(self.ids)

    def parts(self, count: int, seed: int) -> list[Ints]:
        """Deal the queries into parts, keeping groups whole. The draw depends on their ids, not on their order."""
        shuffled = np.random.default_rng(seed).permutation(len(self))
        return deal(shuffled, equal_sizes(len(self), count), self.groups)

    def select(self, rows: Ints) -> Pool:
        """Return some of the queries."""
        ids = tuple(self.ids[row] for row in rows.tolist())
        gains, weights, groups = self.gains[rows], self.weights[rows], self.groups[rows]
        return Pool(ids, self.queries[rows], gains, weights, groups, self.documents, self.known)

    def without_others(self) -> Pool:
        """Return the pool without documents that are only in it because of other queries' judgments."""
        kept = self.known.copy()
        kept[self.gains.indices] = True
        if kept.all():
            return self
        return replace(self, gains=csr_array(self.gains[:, kept]), documents=self.documents[kept], known=kept[kept])

    def problem(self, kernel: Kernel, landmarks: Floats, temperature: float, l2: float) -> AdapterProblem:
        """Return the objective over all these queries."""
        shares = self.gains.multiply(1 / self.gains.sum(axis=1)[:, None]).tocsr()
        judged, columns = np.unique(shares.indices, return_inverse=True)
        own = csr_array((shares.data, columns, shares.indptr), shape=(len(self), len(judged)))
        targets = np.asarray(own @ self.documents[judged].astype(np.float64))
        with one_blas_thread():
            basis = Basis.of(kernel, self.queries, landmarks)
        return AdapterProblem(
            basis, self.queries, self.documents, targets, self.weights / self.weights.sum(), temperature, l2
        )

    def best_shares(self, blocks: tuple[int, ...]) -> tuple[float, ...]:
        """Return the shares of several embedders that rank best for these queries.

        The best single embedder is chosen unless a mixture gains more than one standard error. Only the shares are
        learned here, so the same queries can choose them and measure the gain.
        """
        grid = shares_tried(len(blocks))
        found = [self.quality(self.queries * np.repeat(each, blocks)) for each in grid]
        means = [float(each.mean()) for each in found]
        best, alone = int(np.argmax(means)), int(np.argmax(means[: len(blocks)]))
        gains = found[best] - found[alone]
        error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.inf
        return grid[best if gains.mean() > error else alone]

    def quality(self, vectors: Floats) -> Floats:
        """Return the NDCG of every query, with raw gains, by these vectors' similarities to the pool's documents."""

        def block(rows: slice) -> Floats:
            similar = vectors[rows].astype(np.float32) @ self.documents.T
            top = np.argpartition(-similar, min(CUT, similar.shape[1] - 1), axis=1)[:, :CUT]
            order = np.argsort(-np.take_along_axis(similar, top, axis=1), axis=1, kind="stable")
            best = np.take_along_axis(top, order, axis=1)
            own = self.gains[rows].toarray()
            found = np.take_along_axis(own, best, axis=1)
            ideal = -np.sort(-own, axis=1)[:, :CUT]
            discounts = 1 / np.log2(np.arange(2, found.shape[1] + 2))
            return np.asarray((found @ discounts) / (ideal @ discounts[: ideal.shape[1]]))

        with one_blas_thread():
            return np.concatenate(in_threads(block, slices(len(self), _ROWS)))


def as_numbers(values: ArrayLike, what: str) -> Floats:
    """Return values as double-precision numbers. Raise DataError if they are not numeric."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{what}: expected a table of numbers; found {type(values).__name__}.") from None


def _largest_one(gains: csr_array) -> csr_array:
    """Return the gains scaled so that the largest in each row is 1; every row has a gain."""
    if not gains.nnz:
        return gains
    tops = np.maximum.reduceat(gains.data, gains.indptr[:-1])
    shares = gains.data / np.repeat(tops, np.diff(gains.indptr))
    return csr_array((shares, gains.indices, gains.indptr), shape=gains.shape)


def _gains(judgments: Judgments, queries: Sequence[str], documents: Sequence[str]) -> csr_array:
    """Return the gains as a sparse table, queries × documents."""
    table = _listed(judgments, queries, documents) if isinstance(judgments, Mapping) else _table(judgments)
    if table.shape != (len(queries), len(documents)):
        raise DataError(
            f"judgments: a table of {table.shape}; there are {len(queries)} query and {len(documents)} document "
            "vectors.",
            arguments=("judgments",),
        )
    if not (np.isfinite(table.data).all() and (table.data >= 0).all()):
        raise DataError("judgments: a gain is below 0 or not finite; gains are 0 or more.", arguments=("judgments",))
    table.sum_duplicates()
    table.eliminate_zeros()
    return table


def _table(judgments: csr_array) -> csr_array:
    """Return a copy in double precision."""
    try:
        found: csr_array = csr_array(judgments).astype(np.float64)
        return found
    except (TypeError, ValueError, AttributeError):
        said = f"judgments: found {type(judgments).__name__}; expected query → document → gain, or a table of gains."
        raise DataError(said, arguments=("judgments",)) from None


def _listed(judgments: Mapping[str, Any], queries: Sequence[str], documents: Sequence[str]) -> csr_array:
    """Return judgments by ids as a table."""
    numbers = {each: row for row, each in enumerate(queries)}, {each: row for row, each in enumerate(documents)}
    entries = []
    for query, own in judgments.items():
        if not isinstance(own, Mapping):
            said = f"judgments: query {query!r:.60} has {own!r:.60}; expected document → gain."
            raise DataError(said, arguments=("judgments",))
        for document, gain in own.items():
            for what, name, known in (("query", query, numbers[0]), ("document", document, numbers[1])):
                if name not in known:
                    said = f"judgments: {what} {name!r:.60} has no vector."
                    raise DataError(f"{said} Give it one, or leave its judgments out.", arguments=("judgments",))
            if not isinstance(gain, (int, float, np.number)):
                said = f"judgments: {gain!r:.60} for query {query!r:.60} and document {document!r:.60} is no number."
                raise DataError(said, arguments=("judgments",))
            entries.append((numbers[0][query], numbers[1][document], float(gain)))
    rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
    return csr_array((np.array(values, np.float64), (rows, columns)), shape=(len(queries), len(documents)))


def indexed(given: Given, what: str, blocks: tuple[int, ...] = ()) -> tuple[VectorIndex, Sequence[str]]:
    """Return vectors as an index, and their ids, or row numbers as texts.

    `blocks` are several embedders' dimensions.
    """
    if isinstance(given, VectorIndex) and given.blocks == blocks:
        return given, _numbered(len(given))
    if isinstance(given, VectorIndex):
        raise DataError(
            f"The {what} vectors have blocks of {given.blocks or given.dimension} numbers; expected {blocks or 'one'}.",
            arguments=("blocks",),
        )
    found = given if isinstance(given, Vectors) else _plain(given, what)
    if not blocks:
        return VectorIndex(found.values, found.lengths), found.ids
    if sum(blocks) != found.dimension:
        said = f"blocks={blocks}: these are {sum(blocks)} numbers; the {what} vectors have {found.dimension}."
        raise DataError(said, arguments=("blocks",))
    return VectorIndex.side_by_side(found.values, blocks), found.ids


def _plain(given: Floats, what: str) -> Vectors:
    table = np.asarray(given) if isinstance(given, np.ndarray) and given.dtype.kind == "f" else as_numbers(given, what)
    return as_vectors(_numbered(len(table) if table.ndim else 0), table, where=f"{what} vectors", what=what)


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))
