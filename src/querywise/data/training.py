"""A training set in parts of whole queries: one in memory, several on disk or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self, runtime_checkable

from querywise.data.judged import Candidates, Judged, Survey
from querywise.data.labels import Learnable
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.workers import Kept


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
