"""Rankers that count how often they are fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from querywise.data.judged import Candidates, Judged
from querywise.methods import Method
from querywise.runtime.arrays import Floats

TIMED = ("timings.csv", "report.md", "report.html", "figures/time.svg")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file that must not depend on the clock. A killed process may leave half a file, with a dot before it."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in files.items()
        if name not in TIMED and not name.endswith(".times.json") and not path.name.startswith(".")
    }


class Counting:
    """A ranker by one feature that counts how often it is fitted, and can be interrupted."""

    fits = 0
    stops_at = -1

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        if Counting.fits == Counting.stops_at:
            Counting.stops_at = -1
            raise KeyboardInterrupt
        Counting.fits += 1
        return self

    def predict(self, candidates: Candidates, /) -> Floats:
        scores: Floats = candidates.features[:, 0] / 3
        return scores


COUNTED = Method("counted", "one feature", "tests.test_resume_compare:counting", ("l2",))
