"""Attacks on files: writers beside writers, commands that are killed, and a service whose model is replaced."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.results import Result, alone
from benchmarks.worlds import World
from querywise import KnnOnline, QuerywiseError, RankSVM, load, save
from tests.kills import COMMANDS, kill_everywhere, killer
from tests.serving import COMMAND, started

_SECONDS = 60.0
_RELOADS = 50
_MANY = 90  # changes to files, of which some are tried

# Fits and saves into one folder, as often as it can.
_SAVER = """
import sys, time
from querywise import RankSVM, save
from querywise.data.synthetic import make_judged
ranker = RankSVM(float(sys.argv[2])).fit(make_judged(20, 8, 3))
end, count = time.monotonic() + float(sys.argv[3]), 0
while time.monotonic() < end:
    save(ranker, sys.argv[1])
    count += 1
print(count)
"""


def measure_writers() -> Iterator[Result]:
    """Two processes save into one folder for a minute while a third reads; ours are readings that failed."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        words = [sys.executable, "-c", _SAVER, str(folder)]
        savers = [subprocess.Popen([*words, l2, str(_SECONDS)], text=True, stdout=subprocess.PIPE) for l2 in "12"]
        while not (folder / "manifest.json").exists():
            time.sleep(0.01)
        read = failed = 0
        while any(each.poll() is None for each in savers):
            read += 1
            try:
                load(folder)
            except QuerywiseError:
                failed += 1
        saved = sum(int(each.communicate()[0]) for each in savers)
        load(folder)
        assert len(list(folder.iterdir())) == 2, "a manifest and its arrays"
    what = f"two writers for a minute, {saved} models: failed, of {read} readings"
    yield alone("faults", what, ours=float(failed), unit="", below=1)


def _points(changes: int) -> list[int]:
    """Every change; of very many every tenth, and the last ten, where one folder takes the place of another."""
    return [at for at in range(1, changes + 1) if changes <= _MANY or at % 10 == 0 or at > changes - 10]


def measure_kills() -> Iterator[Result]:
    """Every command that writes is killed before its changes to a file; ours are kills that lost something."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place).resolve() / "root"
        root.mkdir()
        with killer(root) as killing:
            for command in COMMANDS:
                kills = lost = 0
                for over in (True, False):
                    try:
                        kills += kill_everywhere(killing, root, command, over=over, points=_points)
                    except AssertionError as error:
                        print(error)
                        lost += 1
                what = f"{command.words.split()[0]} {command.out}, killed at {kills} points: lost or blocked"
                yield alone("faults", what, ours=float(lost), unit="", below=1)


def measure_reloads() -> Iterator[Result]:
    """The service's memory while its model, of some 50 MB, is replaced fifty times; ours is the growth in the end."""
    data = World(200, kinds=3).draw(1_500, 20, seed=1)
    models = [KnnOnline(RankSVM(l2, tolerance=None)).fit(data) for l2 in (1.0, 2.0)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        save(models[0], folder)
        size = sum(each.stat().st_size for each in folder.iterdir()) / 1e6
        with started([COMMAND, "serve", folder, "--port", 0]) as server:
            memory = []
            for turn in range(_RELOADS):
                save(models[(turn + 1) % 2], folder)
                _wait_for_reloads(server.url, turn + 1)
                memory.append(_megabytes(server.process))
    yield alone("faults", f"memory after 5 reloads of a model of {size:.0f} MB", ours=memory[4], unit="MB")
    grown = memory[-1] - memory[4]
    yield alone("faults", f"growth by {_RELOADS - 5} more", ours=grown, unit="MB", below=round(size / 2))


def _wait_for_reloads(url: str, count: int) -> None:
    import urllib.request

    end = time.monotonic() + 60
    while time.monotonic() < end:
        text = urllib.request.urlopen(f"{url}/metrics", timeout=30).read().decode()
        found = re.search(r'reloads_total\{[^}]*"replaced"[^}]*\} (\d+)', text)
        if found is not None and int(found.group(1)) >= count:
            return
        time.sleep(0.1)
    raise AssertionError("the model was not loaded again")


def _megabytes(process: subprocess.Popen[str]) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) / 1e3
