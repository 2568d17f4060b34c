"""About how long a comparison will take, said early: after its first result, and again after its first whole fold."""

from __future__ import annotations

import time

from querywise.display.words import counted
from querywise.runtime.lines import duration
from querywise.runtime.progress import announce

LONG = 30.0  # seconds from which it is worth saying


class Pace:
    """The time that methods and folds take, and what it says about the others.

    alone: they come one after the other; of several at once nothing is said.
    """

    def __init__(self, folds: int, methods: int, *, alone: bool = True) -> None:
        self._folds, self._methods = folds, methods
        self._said_method = self._said_fold = not alone
        self._began = self._latest = time.monotonic()

    def begin_fold(self) -> None:
        """A fold begins."""
        self._began = self._latest = time.monotonic()

    def end_method(self, name: str) -> None:
        """A method was computed on a fold."""
        now = time.monotonic()
        took, self._latest = now - self._latest, now
        if self._said_method:
            return
        self._said_method = True
        others = took * (self._folds * self._methods - 1)
        if others > LONG:
            where = f"{counted(self._methods, 'method')} on {counted(self._folds, 'fold')}"
            first = f"{name} took {duration(took)} on its first fold"
            announce(f"{first}; if {where} all take as long, about {duration(others)} more")

    def end_fold(self, number: int, computed: int) -> None:
        """A fold ends, of which so many methods were computed and not kept from another run."""
        if self._said_fold or computed < self._methods:
            return
        self._said_fold = self._said_method = True
        took, others = time.monotonic() - self._began, self._folds - number - 1
        if took * others > LONG:
            of = f"fold {number + 1} of {self._folds} took {duration(took)}"
            announce(f"{of}; the other {others} about {duration(took * others)} more")
