"""What interleaving two models adds to a request, and whether the log of clicks survives what can happen to it."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench_service import request
from benchmarks.results import Result, alone
from benchmarks.serving import waits
from benchmarks.worlds import World
from querywise import Judged, RankSVM, Single, save
from querywise.rankers.single import OneFeature
from tests.event_faults import tried
from tests.serving import serving

_FEATURES, _ROUNDS, _REQUESTS, _SHOWN = 46, 60, 50, 10
_MOST = 0.2  # milliseconds
_KILLS = 10


def measure() -> Iterator[Result]:
    """Interleaving: what a second model adds to a request, 100 documents × 46 features, ten of them shown.

    Three services of the same model are asked in turns of fifty requests, sixty each, over one connection: alone, with
    a model compared with, and alone again. Theirs is the service alone. What is added is the median, over the turns,
    of the difference between the medians of two turns after one another: the second model's ranking, the draw, the
    signed id and the log. That of the same service asked twice is what of such a difference is noise.
    """
    data = World(_FEATURES, kinds=3).draw(100, 20, seed=1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _save_models(folder, data)
        content = {**request(), "top": _SHOWN}
        both = (folder / "a", "--against", folder / "b", "--log", folder / "log")
        with serving(folder / "a") as one, serving(*both) as two:
            urls = [f"{server.url}/v1/rank" for server in (one, two, one)]
            for url in urls:
                waits(url, content, times=200)
            turns = [[statistics.median(waits(url, content, times=_REQUESTS)) for url in urls] for _ in range(_ROUNDS)]
    usual, interleaved = (statistics.median(each[way] for each in turns) for way in (0, 1))
    added = statistics.median(each[1] - (each[0] + each[2]) / 2 for each in turns)
    noise = statistics.median(abs(each[2] - each[0]) for each in turns)
    yield Result("interleaving", "a request", interleaved, usual, "ms", interleaved / usual, "", None)
    reached = added <= _MOST
    yield Result("interleaving", "added to a request", added, None, "ms", None, f"≤ {_MOST:g} ms", reached)
    yield alone("interleaving", "difference of the same service asked twice", ours=noise, unit="ms")


def measure_events() -> Iterator[Result]:
    """What becomes of clicks while two services on one log are killed, their disks are full, and ids are forged."""
    data = World(_FEATURES, kinds=3).draw(100, 20, seed=1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _save_models(folder, data)
        found = tried(folder, folder / "log", request(), kills=_KILLS)
    what = f"clicks on a log of two services, {found.kills} kills, {found.full} times a full disk"
    count = len(found.acknowledged)
    for name, number in (
        (f"acknowledged and lost, of {count}", found.lost),
        (f"counted twice, of {count}", found.twice),
        (f"with a forged id and taken, of {found.forged}", found.taken + found.foreign),
        (f"rankings that failed meanwhile, of {found.ranked}", found.unranked),
    ):
        yield alone("faults", f"{what}: {name}", ours=float(number), unit="", below=1)
    told = "clicks whose impression a killed service had not written: left out, and told"
    yield alone("faults", told, ours=float(found.unwritten), unit="")


def _save_models(folder: Path, data: Judged) -> None:
    save(Single(RankSVM()).fit(data), folder / "a")
    save(OneFeature(2).fit(data), folder / "b")
