"""Leaks from training to test: near-duplicates of test queries, and queries of the same group, in the training data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from querywise.data.folds import Fold
from querywise.display.words import counted, short
from querywise.evaluation.significance import Comparison
from querywise.retrieval.twins import NearTwins, TwinFacts, is_chain
from querywise.runtime.arrays import Bools, Ints
from querywise.runtime.values import JsonObject

_LONGEST = 60  # most letters of a query in a sentence
_FEW = 0.01  # of the test queries: fewer near-duplicates are mentioned only in reports


@dataclass(frozen=True, eq=False)
class FoldQueries:
    """Facts about the queries of a comparison, and which of them every fold learned from."""

    facts: TwinFacts
    tested: Ints  # the test queries, in order, as indices into `facts`
    fold_of: Ints  # the fold that tested each
    folds: tuple[Ints, ...]  # the training and validation queries of each fold

    @classmethod
    def of(cls, folds: Sequence[tuple[TwinFacts, TwinFacts]]) -> FoldQueries:
        """Collect the facts about each fold's test queries and about its training and validation queries."""
        facts = TwinFacts.joined([each for fold in folds for each in fold])
        number = {query_id: place for place, query_id in enumerate(facts.ids)}
        tested = [[number[query_id] for query_id in test.ids] for test, _ in folds]
        return cls(
            facts,
            np.concatenate([np.array(each, dtype=np.int64) for each in tested]),
            np.repeat(np.arange(len(folds)), [len(each) for each in tested]),
            tuple(np.array([number[query_id] for query_id in others.ids], dtype=np.int64) for _, others in folds),
        )

    def leaks(self) -> Leaks:
        """Find test queries with a near-duplicate, or a query of their group, in the other parts of their fold."""
        near, twin = NearTwins(self.facts), np.full(len(self.tested), -1, dtype=np.int64)
        split = 0
        for fold, others in enumerate(self.folds):
            asked = self.fold_of == fold
            twin[asked] = near.among(self.tested[asked], others)
            known = {self.facts.groups[each] for each in others.tolist()} - {None}
            split += sum(self.facts.groups[each] in known for each in self.tested[asked].tolist())
        sizes = Counter(each for each in self.facts.groups if each is not None)
        return Leaks(
            twin >= 0, self._example(twin), len(sizes), (max(sizes.values(), default=0), len(self.facts.ids)), split
        )

    def _example(self, twin: Ints) -> tuple[str, str] | None:
        """Return the test query whose words are closest, but not equal, to its near-duplicate's; the first of ties."""
        named = [
            (self.facts.named(query), self.facts.named(other))
            for query, other in zip(self.tested.tolist(), twin.tolist(), strict=True)
            if other >= 0
        ]
        return max(named, key=lambda pair: (pair[0] != pair[1], _in_common(*pair)), default=None)


def _in_common(one: str, other: str) -> float:
    """Return the share of words that two texts have in common."""
    ours, theirs = set(one.split()), set(other.split())
    return len(ours & theirs) / max(len(ours | theirs), 1)


def known_of(fold: Fold) -> tuple[TwinFacts, TwinFacts]:
    """Return the facts about a fold's test queries, and about those that it learns from."""
    return TwinFacts.of(fold.test), TwinFacts.joined([TwinFacts.of(fold.train), TwinFacts.of(fold.valid)])


@dataclass(frozen=True, eq=False)
class Leaks:
    """Test queries with a near-duplicate, or a query of their group, in the training or validation part of their fold.

    Attributes:
        found: Which test queries have one.
        example: One of them and its near-duplicate, in words.
        groups: The number of query groups given.
        largest: The size of the largest group, and the number of all queries.
        split: The number of test queries whose group is on both sides.

    """

    found: Bools
    example: tuple[str, str] | None
    groups: int
    largest: tuple[int, int]
    split: int

    @property
    def is_told(self) -> bool:
        """Whether to report gains separately: something leaks despite the groups."""
        return bool(self.found.any()) and (not self.groups or self.split > 0)

    @property
    def are_few(self) -> bool:
        """Whether so few test queries have a near-duplicate that they cannot change a mean."""
        return float(self.found.sum()) < _FEW * len(self.found)

    @property
    def text(self) -> str:
        """The leaks in a sentence or two; empty if there are none and no groups were given."""
        if self.is_told:
            return f"{self._found()}."
        if not self.groups:
            return ""
        kept = f"Folds keep the {counted(self.groups, 'group')} of queries together"
        still = f"; {self._found()}" if self.found.any() else ""
        long = ""
        if is_chain(*self.largest):
            long = f" The largest group has {self.largest[0]:,} of {self.largest[1]:,} queries."
        return f"{kept}{still}.{long}"

    @property
    def advice(self) -> str:
        """What to do about it; empty if there is nothing to do."""
        if not self.is_told:
            return ""
        return (
            "A method that has memorized queries is better on near-duplicates than on the rest. To keep "
            "near-duplicates on one "
            "side of every fold, compare again by near groups (group-by near), or give groups in queries.jsonl."
        )

    def _found(self) -> str:
        count, every = int(self.found.sum()), len(self.found)
        what = "a near-duplicate or a query of their group" if self.split else "a near-duplicate"
        have = "has" if count == 1 else "have"
        example = ""
        if self.example is not None:
            one, other = (short(each, _LONGEST) for each in self.example)
            example = f", such as “{one}” and “{other}”"
        return (
            f"{count:,} of {counted(every, 'test query', 'test queries')} ({100 * count / max(every, 1):.1f} %) {have} "
            f"{what} among the queries that the methods learned from{example}"
        )

    def as_json(self, gains: JsonObject) -> JsonObject:
        """Return everything as JSON, with the `gains` of every method."""
        return {
            "queries": int(self.found.sum()),
            "share": float(self.found.mean()) if len(self.found) else 0.0,
            "example": None if self.example is None else list(self.example),
            "groups": self.groups,
            "group_on_both_sides": self.split,
            "methods": gains,
        }


@dataclass(frozen=True)
class TwinGain:
    """A method's difference from the baseline on leaked test queries and on the rest; None without such queries."""

    twins: Comparison | None
    rest: Comparison | None

    def as_json(self) -> JsonObject:
        """Return both as JSON."""
        return {
            name: None if each is None else {"difference": each.difference, "p": each.p}
            for name, each in (("twins", self.twins), ("rest", self.rest))
        }
