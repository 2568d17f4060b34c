"""Seconds and megabytes, here or in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

# The kernel's own count for this program alone; `getrusage` would include the process that started it.
PRINT_PEAK = """
import pathlib, re, resource, sys
status = pathlib.Path("/proc/self/status")
if status.exists():
    kilobytes = int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text()).group(1))
else:
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(kilobytes * 1024 / 1e6)
"""


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def best_seconds(work: Callable[[], object], *, times: int = 3) -> float:
    """The shortest of several calls: the one that other programs disturbed least."""
    return min(seconds(work) for _ in range(times))


def best_in_turn(works: Sequence[Callable[[], object]], *, times: int) -> list[float]:
    """The shortest of several calls of each, all in turn: a machine that changes its pace changes it for each."""
    rounds = [[seconds(work) for work in works] for _ in range(times)]
    return [min(each) for each in zip(*rounds, strict=True)]


def process_seconds(command: Sequence[str], *, times: int = 5) -> float:
    """The shortest of several runs of a command, from start to exit, after one that fills the disk cache."""

    def run() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    run()
    return best_seconds(run, times=times)


def number_from_python(code: str, **environment: str) -> float:
    """The number that `code` prints last, run in a fresh Python with these environment variables added."""
    return numbers_from_python(code, **environment)[-1]


def numbers_from_python(code: str, **environment: str) -> list[float]:
    """All the numbers that `code` prints, run in a fresh Python with these environment variables added."""
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    return [float(word) for word in run.stdout.split()]


def peak_megabytes(code: str) -> float:
    """The most memory a fresh Python held at once while it ran `code`, imports included."""
    return number_from_python(code + PRINT_PEAK)
