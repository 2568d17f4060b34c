"""A training set in parts: one in memory, several on disk or over a cluster, all of them whole queries."""

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
        """The part in memory."""


class Training(Learnable, Protocol):
    """What can be learned from: Judged, which is in memory, and Shards, which are on disk."""

    def __len__(self) -> int:
        """How many queries there are."""

    @property
    def query_ids(self) -> tuple[str, ...]:
        """The id of every query."""

    @property
    def pairs(self) -> Ints:
        """How many preference pairs each query has."""

    @property
    def feature_count(self) -> int:
        """How many columns there are."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """What the columns are called, where that is known."""

    @property
    def in_memory(self) -> bool:
        """Whether all of it is in memory already."""

    def load(self) -> Judged:
        """All of it in memory; refused where a budget of memory does not allow it."""

    def parts(self) -> Sequence[Shard | Kept]:
        """What workers are given, and make a Part of before they work on it."""

    def surveys(self) -> list[Survey]:
        """The survey of every part, which training needs first."""

    def by_query(self, work: Callable[[Candidates], Floats]) -> Floats:
        """The result of `work` for the candidates of every part, a row per query."""

    def has_texts(self) -> bool:
        """Whether queries have a text."""

    def fingerprint(self) -> list[str]:
        """The identity of the training set: checksums of its documents and of its query data."""


class Learns(Protocol):
    """Whatever learns from judged queries."""

    def fit(self, data: Judged, /) -> Self:
        """Learn from them."""


@runtime_checkable
class MayTakeParts(Protocol):
    """A ranker that reports whether it can be fitted part by part; one without this method cannot."""

    def takes_parts(self) -> bool:
        """Whether it can be fitted on shards as they are, without having all of them in memory."""


def takes_parts(ranker: Learns) -> bool:
    """Whether a ranker can be fitted on shards as they are, without having all of them in memory."""
    return isinstance(ranker, MayTakeParts) and ranker.takes_parts()


def as_taken(ranker: Learns, data: Training) -> Training:
    """A training set as a ranker takes it: as it is, or all of it in memory."""
    return data if takes_parts(ranker) else data.load()
