"""The training queries of local models, in the parts that workers keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from querywise.learners.ranksvm.preferences import Preferences
from querywise.learners.ranksvm.weighted_sums import Curved
from querywise.learners.weight_rows import WeightRows
from querywise.runtime.arrays import Ints
from querywise.runtime.workers import Kept, Workers

_Part = TypeVar("_Part")


@dataclass(frozen=True)
class Spread:
    """The training queries in parts, one after the other."""

    workers: Workers
    curved: Sequence[Curved | Kept]  # kept, of every part; none with the hinge
    pairs: Sequence[Preferences | Kept]  # Preferences, kept, of every part; none where models are single steps
    cuts: Ints  # the first query of each, and how many there are in all

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def here(self) -> tuple[Curved, Preferences | None]:
        """The only part, which is in memory here; no pairs where models are single steps."""
        curved, pairs = self.curved[0], self.pairs[0] if self.pairs else None
        assert isinstance(curved, Curved)
        assert pairs is None or isinstance(pairs, Preferences)
        return curved, pairs

    def fetched(self, parts: Sequence[_Part | Kept]) -> list[_Part]:
        """Parts that workers keep, here."""
        return self.workers.each(_identity, parts)

    def asked(self, parts: Sequence[_Part], shares: WeightRows) -> tuple[list[_Part], list[WeightRows]]:
        """The parts with a query that some rows weight, and these rows there."""
        if len(self) == 1:
            return [parts[0]], [shares]
        pieces = [shares.of_queries(first, last) for first, last in pairwise(self.cuts.tolist())]
        some = [number for number, piece in enumerate(pieces) if len(piece.queries)] or [0]
        return [parts[number] for number in some], [pieces[number] for number in some]

    def holding(self, queries: Ints) -> tuple[list[Preferences | Kept], list[Ints]]:
        """The parts that have some queries, given in ascending order, and the numbers these have there."""
        ends = np.searchsorted(queries, self.cuts).tolist()
        some = [number for number, (first, last) in enumerate(pairwise(ends)) if last > first]
        numbers = [queries[ends[each] : ends[each + 1]] - self.cuts[each] for each in some]
        return [self.pairs[each] for each in some], numbers


def _identity(part: _Part) -> _Part:
    return part
