"""Estimates of how long a comparison will take: from earlier ones on this machine, and again after its first fold.

The times of methods are kept in `times.json` in the user's cache folder: sizes and seconds under checksums of methods
and settings; no names, no paths, no data. A file that is missing, damaged or not writable is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from querywise.data.folds import Fold
from querywise.data.judged import Judged
from querywise.display.words import counted, printable, some
from querywise.errors import QuerywiseError
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import MOST_TRIED, SAMPLED, TunedFit
from querywise.runtime.files import atomic_text, cache_folder, make_folder, read_stored_text
from querywise.runtime.progress import announce, duration, expect, is_shown

_FILE = "times.json"
_MOST_METHODS = 300  # in the file, the most recent
_MOST_SIZES = 8  # of one method, the most recent
_FARTHEST = math.log(30)  # log ratio of sizes beyond which a timing is not used
FOLDS = "Folds"  # the label of progress over all folds
LONG = 30.0  # seconds from which an estimate is worth showing
SOON = 10.0  # seconds after which to say that there is no estimate yet


class Size(NamedTuple):
    """The size of a training part, and the number of settings tried on it."""

    queries: int
    rows: int
    features: int
    trials: int

    @property
    def work(self) -> float:
        """What time is proportional to: the documents fitted on, only a sample's while a large grid is tried."""
        if self.trials > 1 and self.queries > MOST_TRIED:
            return self.rows * (self.trials * SAMPLED / self.queries + 1)
        return float(self.rows * self.trials)


class Times:
    """The known times of methods. The file is read at construction; `keep` writes."""

    def __init__(self) -> None:
        self._known = _read()

    def seconds(self, name: str, fit: Fit, train: Judged) -> float | None:
        """Estimate a method's seconds on a training part from the most similar size; None if none is similar."""
        size, found = size_of(fit, train), self._known.get(_key(name, fit), [])
        if not found:
            return None

        def apart(known: tuple[Size, float]) -> float:
            other = known[0]
            return abs(math.log(other.work / size.work)) + abs(math.log(other.features / size.features))

        nearest, took = min(found, key=apart)
        return took * size.work / nearest.work if apart((nearest, took)) <= _FARTHEST else None

    def keep(self, measured: Iterable[tuple[str, Fit, Judged, float]]) -> None:
        """Write how many seconds methods took on a training part."""
        self._known = _read()  # another process may have written
        for name, fit, train, took in measured:
            key, size = _key(name, fit), size_of(fit, train)
            others = [each for each in self._known.pop(key, []) if each[0] != size]
            self._known[key] = [*others, (size, took)][-_MOST_SIZES:]
        latest = dict(list(self._known.items())[-_MOST_METHODS:])
        content = {key: [[*size, took] for size, took in found] for key, found in latest.items()}
        with contextlib.suppress(OSError, QuerywiseError):
            make_folder(cache_folder())
            with atomic_text(cache_folder() / _FILE) as out:
                json.dump(content, out)


def size_of(fit: Fit, train: Judged) -> Size:
    """Return the size of a training part, with the number of settings that a method tries on it."""
    grid = fit.grid_on(train) if isinstance(fit, TunedFit) else {}
    trials = math.prod(len(values) for values in grid.values())
    return Size(len(train), len(train.labels), train.feature_count, max(trials, 1))


def _key(name: str, fit: Fit) -> str:
    """Return a checksum of a method and its fixed settings, since names of runs and settings may be private."""
    settings = [fit.fixed, fit.final] if isinstance(fit, TunedFit) else []
    text = json.dumps([name, *settings], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _read() -> dict[str, list[tuple[Size, float]]]:
    """Read the valid contents of the file."""
    try:
        content = json.loads(read_stored_text(cache_folder() / _FILE))
        return {str(key): [_checked(*each) for each in found] for key, found in content.items()}
    except (OSError, ValueError, TypeError, AttributeError, RuntimeError, RecursionError):
        return {}


def _checked(queries: int, rows: int, features: int, trials: int, took: float) -> tuple[Size, float]:
    size = Size(queries, rows, features, trials)
    if not all(isinstance(each, int) and each > 0 for each in size) or not 0 <= float(took) < math.inf:
        raise ValueError
    return size, float(took)


class Pace:
    """The time that methods and folds take, and the estimate for the rest.

    With `alone`, methods run one after the other; nothing is estimated for several at once. Without progress output,
    nothing is read or written either.
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
        """Begin a fold, on which `missing` methods are computed rather than read from an earlier run."""
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
            self._say(f"about {duration(total)}{most}, going by earlier comparisons on this machine")

    def end_method(self, name: str) -> None:
        """Record that a method was computed on a fold."""
        now = time.monotonic()
        self._took[name], self._latest = now - self._latest, now
        if self._said_first or now - self._start < SOON or len(self._took) == self._methods:
            return  # the end of the fold will tell more
        self._said_first = True
        later = ", and will be after the first fold" if self._folds > 1 else ""
        untimed = some(self._untimed, most=5)
        self._say(f"how long this takes is not known yet{later}; not timed on this machine before: {untimed}")

    def end_fold(self, number: int, fold: Fold) -> None:
        """Record that a fold has ended."""
        if self._times is not None and self._took:
            self._times.keep((name, self._fits[name], fold.train, took) for name, took in self._took.items())
        if self._said_fold or len(self._took) < len(self._fits):
            return
        self._said_fold = self._said_first = True
        took, others = time.monotonic() - self._began, self._folds - number - 1
        if took * others > LONG:
            of = f"fold {number + 1} of {self._folds} took {duration(took)}"
            announce(f"{of}; the other {others} about {duration(took * others)} more")

    def _say(self, text: str) -> None:
        """Announce `text`, made printable: method names may be file names, which can contain anything."""
        where = f"{counted(len(self._fits), 'method')} on {counted(self._folds, 'fold')}"
        announce(printable(f"{where}: {text}"))
