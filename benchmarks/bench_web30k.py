"""The shape of MSLR-WEB30K: as many queries, documents and features, all of them made up."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from benchmarks.floors import least_seconds
from benchmarks.results import Result, above, alone, at_most
from benchmarks.timing import PRINT_PEAK, numbers_from_python, seconds
from benchmarks.worlds import World
from querywise import KnnOffline2, RankSVM
from querywise.runtime.progress import _display

_QUERIES, _DOCUMENTS, _FEATURES, _GRADES, _K, _ANSWERED = 18_919, 120, 136, 5, 500, 100
_LOG = Path(tempfile.gettempdir(), "querywise-web30k.log")

_CHILD = "from benchmarks.bench_web30k import run\nrun()"


def measure() -> Iterator[Result]:
    """The shape of WEB30K: KnnOffline2(RankSVM(), k=500), a model around every training query.

    18,919 queries × 120 documents × 136 features, 5 grades, made up, in a fresh process. Its stages are logged to
    querywise-web30k.log in the folder for temporary files while it runs.
    """
    making, one, everything, answering, peak = numbers_from_python(_CHILD + PRINT_PEAK)
    yield alone("web30k", "making the queries", ours=making, unit="s")
    yield alone("web30k", "RankSVM().fit: the global model alone", ours=one, unit="s")
    what = f"KnnOffline2.fit: it and {_QUERIES:,} local models"
    yield above(_floor(), alone("web30k", what, ours=everything, unit="s", below=60))
    what = "the same ÷ the global model (one by one, at least 500×)"
    yield above(_floor(), at_most("web30k", what, ours=everything, theirs=one, unit="s", most=4))
    yield alone("web30k", f"an answer, mean of {_ANSWERED} queries", ours=answering, unit="ms")
    yield alone("web30k", "peak memory", ours=peak / 1e3, unit="GB", below=8)


def _floor() -> float:
    """The least seconds for all models, each of k neighbours: curvature, its sums, a factorisation, and the checks."""
    packed = _FEATURES * (_FEATURES + 1) / 2
    summed = _QUERIES * (_DOCUMENTS + _K) * packed
    checks = 2.0 * _QUERIES * _K * _DOCUMENTS * _FEATURES
    return least_seconds(
        read=8.0 * _QUERIES * _DOCUMENTS * _FEATURES, multiplied=summed + _QUERIES * _FEATURES**3 / 6 + checks
    )


def run() -> None:
    """What the fresh process does; prints its figures, a line each."""
    with _LOG.open("w", encoding="utf-8") as out:
        log = _Log(out)
        _display.set(log)
        world = World(_FEATURES, kinds=3)
        begin = time.perf_counter()
        data = world.draw(_QUERIES, _DOCUMENTS, grades=_GRADES, seed=1)
        making = time.perf_counter() - begin
        log.write("the queries are there")
        one = seconds(lambda: RankSVM().fit(data))
        log.write("the global model alone is there")
        ranker = KnnOffline2(RankSVM(), k=_K, back_off=None)
        everything = seconds(lambda: ranker.fit(data))
        log.write("all models are there")
        asked = world.draw(_ANSWERED, _DOCUMENTS, grades=_GRADES, seed=2).candidates
        each = [asked.select([query]) for query in range(len(asked))]
        answering = seconds(lambda: [ranker.predict(query) for query in each])
        log.write("all queries are answered")
    print(making, one, everything, 1e3 * answering / _ANSWERED, sep="\n")


class _Log:
    """Where the library says what it is doing: a line with the time for every beginning, piece and end."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._labels: list[str] = []

    def begin(self, label: str, total: int | None, unit: str = "") -> int:
        self._labels.append(label)
        self.write(f"{label}: begins" if total is None else f"{label}: begins, {total} pieces")
        return len(self._labels) - 1

    def advance(self, task: int) -> None:
        self.write(f"{self._labels[task]}: another piece")

    def expect(self, label: str, seconds: float) -> None:
        self.write(f"{label}: about {seconds:.0f} s")

    def say(self, text: str) -> None:
        self.write(text)

    def end(self, task: int) -> None:
        self.write(f"{self._labels[task]}: ends")

    def write(self, what: str) -> None:
        print(time.strftime("%H:%M:%S"), what, file=self._out, flush=True)
