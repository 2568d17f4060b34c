"""Faults from inside: file operations that fail, processes killed there, full disks, and jobs that never end."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.results import Result, alone
from tests.failing_disks import WRITES, Tried, failing, full, killed_everywhere, tried
from tests.serving import COMMAND
from tests.stuck_jobs import PROGRAMS, prepare, program_problem, service_pools


def measure_injected_faults() -> Iterator[Result]:
    """Every write with every fault, and every thread pool with a job that never ends; ours are those that failed."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for kind, fault in (("failing", failing), ("for which the disk is full", full)):
            yield _writes(kind, {name: tried(name, root / kind / name, fault) for name in WRITES})
        yield _writes("at which the process is killed", killed_everywhere(root / "killed", list(WRITES)))
    yield _pools()


def _writes(kind: str, found: dict[str, Tried]) -> Result:
    problems = [problem for each in found.values() for problem in each.problems]
    for problem in problems:
        print(problem)
    points = sum(each.points for each in found.values())
    what = f"file operations {kind}, {points} points over {len(found)} write paths: lost or blocked"
    return alone("faults", what, ours=float(len(problems)), unit="", below=1)


def _pools() -> Result:
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place), _run)
        found = service_pools(Path(place)) | {name: program_problem(name) for name in PROGRAMS}
    for name, problem in found.items():
        if problem:
            print(f"{name}: {problem}")
    what = f"pools with a job that never ends, {len(found)}: held up"
    return alone("faults", what, ours=float(sum(map(bool, found.values()))), unit="", below=1)


def _run(folder: Path, words: Sequence[object]) -> None:
    subprocess.run([str(COMMAND), *map(str, words)], check=True, cwd=folder)
