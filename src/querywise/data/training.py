"""A training set in parts of whole queries, one in memory or several elsewhere, and orders that depend on its content.

Parts are on disk or on a cluster. Orders of queries and points do not depend on the order in which they are given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol, Self, runtime_checkable

import numpy as np

from querywise.data.judged import Candidates, Judged, Survey
from querywise.data.labels import Learnable
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.workers import Kept

_DIGITS = 9  # digits, relative to the largest coordinate, that are compared


class Shard(Protocol):
    """Some whole queries of a training set, in memory or on disk."""

    def load(self) -> Judged:
        """Return the part in memory."""


class Training(Learnable, Protocol):
    """A training set: Judged in memory, or Shards on disk."""

    def __len__(self) -> int:
        """Return the number of queries."""

    @property
    def query_ids(self) -> tuple[str, ...]:
        """The id of every query."""

    @property
    def pairs(self) -> Ints:
        """The number of preference pairs of each query."""

    @property
    def feature_count(self) -> int:
        """The number of columns."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the columns, or None."""

    @property
    def in_memory(self) -> bool:
        """Whether all of it is already in memory."""

    def load(self) -> Judged:
        """Return the whole set in memory. Raise DataError if the memory budget does not allow it."""

    def parts(self) -> Sequence[Shard | Kept]:
        """Return the parts for workers."""

    def surveys(self) -> list[Survey]:
        """Return the summary of every part, which training needs first."""

    def by_query(self, work: Callable[[Candidates], Floats]) -> Floats:
        """Return the result of `work` for the candidates of every part, a row per query."""

    def has_texts(self) -> bool:
        """Return whether queries have texts."""

    def fingerprint(self) -> list[str]:
        """Return checksums of the documents and of the query data, which identify the training set."""


class Learns(Protocol):
    """Anything that learns from judged queries."""

    def fit(self, data: Judged, /) -> Self:
        """Learn from them."""


@runtime_checkable
class MayTakeParts(Protocol):
    """A ranker that reports whether it can be fitted part by part; one without this method cannot."""

    def takes_parts(self) -> bool:
        """Return whether it can be fitted on shards without loading all of them into memory."""


def takes_parts(ranker: Learns) -> bool:
    """Return whether a ranker can be fitted on shards without loading all of them into memory."""
    return isinstance(ranker, MayTakeParts) and ranker.takes_parts()


def as_taken(ranker: Learns, data: Training) -> Training:
    """Return a training set in the form that a ranker accepts: unchanged, or loaded into memory."""
    return data if takes_parts(ranker) else data.load()


def content_order(data: Judged, *, by_labels: bool = True) -> Ints:
    """Return the queries sorted by a checksum of their documents, labels and data; ids do not count.

    With `by_labels=False`, labels only break ties between queries that are otherwise identical.

    Random draws and sequential sums use this order, so that permuted training queries give the same model. Queries that
    are identical in everything are interchangeable.
    """
    if by_labels:
        return cached("content order", (), data, lambda: np.argsort(_checksums(data), kind="stable"))
    return np.lexsort((_checksums(data), _checksums(data, by_labels=False)))


def by_coordinates(points: Floats) -> Ints:
    """Return the order of points by their first coordinate, then the second, and so on, ignoring rounding errors.

    >>> by_coordinates(np.array([[2.0, 1.0], [1.0, 5.0], [2.0, 0.0]]))
    array([1, 2, 0])
    """
    sizes = np.abs(points).max(axis=0, initial=0.0)
    rounded = np.round(points / np.where(sizes > 0, sizes, 1.0), _DIGITS)
    if not points.shape[1]:
        return np.arange(len(points))
    turn = np.argsort(rounded[:, 0], kind="stable")
    same = rounded[turn[1:], 0] == rounded[turn[:-1], 0]
    tied = np.append(same, False) | np.append(False, same)
    if tied.any():  # compare the other coordinates
        rows = turn[tied]
        turn[tied] = rows[np.lexsort(rounded[rows].T[::-1])]
    return turn


def _checksums(data: Judged, *, by_labels: bool = True) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    candidates, table = data.candidates, data.candidates.queries
    found = np.zeros(len(data), dtype=np.uint64)
    for query in range(len(data)):
        rows = candidates.rows(query)
        known = () if table is None else (
            None if table.texts is None else table.texts[query],
            None if table.classes is None else table.classes[query],
        )  # fmt: skip
        parts = [repr(known).encode(), candidates.features[rows].tobytes()]
        if by_labels:
            parts.append(data.labels[rows].tobytes())
        if table is not None and table.groups is not None and table.groups[query] is not None:
            parts.append(repr(table.groups[query]).encode())
        if by_labels and data.judged is not None:
            parts.append(data.judged[rows].tobytes())
        if by_labels and data.query_weights is not None:
            parts.append(data.query_weights[query : query + 1].tobytes())
        if by_labels and data.document_weights is not None:
            parts.append(data.document_weights[rows].tobytes())
        if table is not None:
            more = [each for each in (table.columns, table.vectors) if each is not None]
            parts += [np.ascontiguousarray(each[query]).tobytes() for each in more]
        checksum = hashlib.blake2b(b"".join(parts), digest_size=8).digest()
        found[query] = int.from_bytes(checksum, "big")
    return found
