"""About how long a comparison will take: from earlier ones on this machine, and again after its first whole fold."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from querywise.data.folds import Fold
from querywise.display.words import counted, printable, some
from querywise.evaluation.known_times import Times
from querywise.evaluation.trained import Fit
from querywise.runtime.progress import announce, duration, expect, is_shown

FOLDS = "Folds"  # what progress over all folds is called
LONG = 30.0  # seconds from which it is worth saying
SOON = 10.0  # seconds after which it is worth saying that nothing is known yet


class Pace:
    """The time that methods and folds take, and what it says about the others.

    alone: they come one after the other; of several at once nothing is said. Nothing is read or written either where
    no progress is shown.
    """

    def __init__(self, folds: int, fits: Mapping[str, Fit], *, alone: bool = True) -> None:
        self._folds, self._fits = folds, fits
        self._times = Times() if alone and is_shown() else None
        self._said_first = self._said_fold = self._times is None
        self._untimed: list[str] = []
        self._methods = 0  # computed on this fold
        self._took: dict[str, float] = {}
        self._start = self._began = self._latest = time.monotonic()

    def begin_fold(self, fold: Fold, missing: Sequence[str]) -> None:
        """A fold begins, on which these methods are computed and not kept from another run."""
        self._began = self._latest = time.monotonic()
        self._took, self._methods = {}, len(missing)
        if self._said_first or self._times is None or not missing:
            return
        guesses = {name: self._times.seconds(name, self._fits[name], fold.train) for name in missing}
        self._untimed = [name for name, seconds in guesses.items() if seconds is None]
        if self._untimed:
            return
        self._said_first = True
        known = {name: self._folds * (seconds or 0.0) for name, seconds in guesses.items()}
        total, longest = sum(known.values()), max(known, key=lambda name: known[name])
        expect(FOLDS, total)
        if total > LONG:
            most = f" ({longest}: {duration(known[longest])})" if len(known) > 1 else ""
            _say(f"{self._where}: about {duration(total)}{most}, going by earlier comparisons on this machine")

    def end_method(self, name: str) -> None:
        """A method was computed on a fold."""
        now = time.monotonic()
        self._took[name], self._latest = now - self._latest, now
        if self._said_first or now - self._start < SOON or len(self._took) == self._methods:
            return  # at the end of the fold more is known
        self._said_first = True
        later = ", and will be after the first fold" if self._folds > 1 else ""
        _say(
            f"{self._where}: how long this takes is not known yet{later}; not timed on this machine before: "
            f"{some(self._untimed, most=5)}"
        )

    def end_fold(self, number: int, fold: Fold) -> None:
        """A fold ends."""
        if self._times is not None and self._took:
            self._times.keep((name, self._fits[name], fold.train, took) for name, took in self._took.items())
        if self._said_fold or len(self._took) < len(self._fits):
            return
        self._said_fold = self._said_first = True
        took, others = time.monotonic() - self._began, self._folds - number - 1
        if took * others > LONG:
            of = f"fold {number + 1} of {self._folds} took {duration(took)}"
            _say(f"{of}; the other {others} about {duration(took * others)} more")

    @property
    def _where(self) -> str:
        return f"{counted(len(self._fits), 'method')} on {counted(self._folds, 'fold')}"


def _say(text: str) -> None:
    """Announce it: names of methods may be those of files, which may hold anything."""
    announce(printable(text))
