"""How long methods took in earlier comparisons on this machine, kept in a small file, to say how long one will take.

The file is `times.json` in the user's cache folder. It holds sizes and seconds under checksums of methods and settings:
no names, no paths, no data. One that is missing, damaged or cannot be written is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterable
from typing import NamedTuple

from querywise.data.judged import Judged
from querywise.errors import QuerywiseError
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import TunedFit
from querywise.runtime.files import atomic_text, cache_folder, make_folder, read_stored_text

_FILE = "times.json"
_MOST_METHODS = 300  # in the file, the latest
_MOST_SIZES = 8  # of one method, the latest


class Size(NamedTuple):
    """The size of a training part, and how many settings are tried on it."""

    queries: int
    rows: int
    features: int
    trials: int

    @property
    def work(self) -> int:
        """What time grows with."""
        return self.rows * self.trials


class Times:
    """What is known of methods' times. Read when it is made; `keep` writes."""

    def __init__(self) -> None:
        self._known = _read()

    def seconds(self, name: str, fit: Fit, train: Judged) -> float | None:
        """About how long a method takes on a training part, from the most similar size; None where none is known."""
        size, found = size_of(fit, train), self._known.get(_key(name, fit), [])
        if not found:
            return None
        nearest, took = min(found, key=lambda each: _apart(each[0], size))
        return took * size.work / nearest.work

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
    """That of a training part, with the settings that a method tries on it."""
    grid = fit.grid_on(train) if isinstance(fit, TunedFit) else {}
    trials = math.prod(len(values) for values in grid.values())
    return Size(len(train), len(train.labels), train.feature_count, max(trials, 1))


def _key(name: str, fit: Fit) -> str:
    """A method with the settings that are not tried: as a checksum, for names of runs and settings may be private."""
    settings = [fit.fixed, fit.final] if isinstance(fit, TunedFit) else []
    text = json.dumps([name, *settings], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _apart(one: Size, other: Size) -> float:
    return abs(math.log(one.work / other.work)) + abs(math.log(one.features / other.features))


def _read() -> dict[str, list[tuple[Size, float]]]:
    """What the file holds, as far as it is what was written."""
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
