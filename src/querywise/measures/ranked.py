"""RankedList: one query's documents as a ranking puts them, with all that is known of their relevance."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from querywise.runtime.arrays import Bools, Floats, Ints


def _nothing() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class RankedList:
    """What measures see of one query: the grades of the ranked documents, best first, and of those not in the list.

    judged: which of the ranked documents anyone judged; None: all. The others have grade 0. missed: the grades of the
    judged documents that are not in the list. A grade below 0 is never relevant. gains: what each grade is worth, where
    grades stand for real values; None: 2^grade − 1 or the grade, by the flavour.

    >>> found = RankedList(np.array([2, 0]), missed=np.array([1, 0]))
    >>> len(found), found.relevant(1), found.not_relevant(1)
    (2, 2, 2)
    """

    grades: Ints
    judged: Bools | None = None
    missed: Ints = field(default_factory=_nothing)
    gains: Floats | None = None

    def __len__(self) -> int:
        return len(self.grades)

    @property
    def labels(self) -> Ints:
        """The grades with 0 in the place of those below."""
        return np.maximum(self.grades, 0)

    @property
    def all_grades(self) -> Ints:
        """The grades of the ranked documents, then of those that are missed; 0 in the place of those below."""
        found: Ints = np.maximum(np.concatenate([self.grades, self.missed]), 0)
        return found

    @property
    def is_judged(self) -> Bools:
        """Which of the ranked documents anyone judged."""
        return np.ones(len(self), np.bool_) if self.judged is None else self.judged

    def relevant(self, relevant_from: int) -> int:
        """How many relevant documents there are, in the list and beyond it."""
        return int(np.sum(self.grades >= relevant_from) + np.sum(self.missed >= relevant_from))

    def not_relevant(self, relevant_from: int) -> int:
        """How many documents are judged not relevant, in the list and beyond it; a grade below 0 does not count."""
        beyond = (self.missed >= 0) & (self.missed < relevant_from)
        return int(np.sum(self.is_not_relevant(relevant_from)) + np.sum(beyond))

    def is_not_relevant(self, relevant_from: int) -> Bools:
        """Which of the ranked documents are judged not relevant."""
        return self.is_judged & (self.grades >= 0) & (self.grades < relevant_from)

    def alone(self) -> RankedList:
        """The list without what is judged beyond it."""
        return self if not len(self.missed) else RankedList(self.grades, self.judged, gains=self.gains)
