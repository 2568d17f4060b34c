"""Attacks by folders from elsewhere: a hostile value in every place of every format that is read back."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.results import Result, alone
from querywise.runtime.threads import cores
from tests.hostile import Format, trying
from tests.hostile_formats import FORMATS

_MOST = 1000  # cases of a format


def measure_hostile() -> Iterator[Result]:
    """Ours are the cases that were neither refused in one line nor used, or in which something acted."""
    with ThreadPoolExecutor(cores()) as pool:  # of threads that each wait for a process
        for kind, (wrong, count) in zip(FORMATS, pool.map(_broken, FORMATS), strict=True):
            for case, found in wrong.items():
                print(f"{kind.name}: {case}: {found}")
            what = f"hostile values in {kind.name}: broke, of {count}"
            yield alone("faults", what, ours=float(len(wrong)), unit="", below=1)


def _broken(kind: Format) -> tuple[dict[str, str], int]:
    with trying() as process:
        return process.broken(kind.name, each=1, most=_MOST)
