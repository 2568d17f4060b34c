from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from querywise.runtime import progress
from querywise.runtime.progress import Ongoing


class Screen:
    """Remembers what would have been drawn."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, label: str, total: int | None) -> int:
        self.seen.append(f"begin {label}")
        return len(self.seen)

    def advance(self, task: int) -> None:
        raise AssertionError("nothing to count")

    def end(self, task: int) -> None:
        self.seen.append("end")


@pytest.fixture
def screen() -> Iterator[Screen]:
    drawn = Screen()
    progress._on_screen.append(drawn)
    yield drawn
    progress._on_screen.remove(drawn)


def test_what_goes_on_several_times_at_once_is_shown_once(screen: Screen) -> None:
    work = Ongoing("Compiling")
    work.begin()
    work.begin()
    work.end()
    assert screen.seen == ["begin Compiling"]
    work.end()
    assert screen.seen == ["begin Compiling", "end"]


def test_without_a_screen_nothing_happens() -> None:
    work = Ongoing("Compiling")
    work.begin()
    work.end()


@pytest.mark.slow
def test_compilation_is_announced_the_first_time_and_not_the_second(tmp_path: Path) -> None:
    script = """
import querywise.runtime.progress as progress
class Screen:
    def begin(self, label, total): print(label)
    def end(self, task): pass
progress._on_screen.append(Screen())
import numpy as np
from querywise.rankers.ensemble.factorisation import scalar_product
scalar_product(np.ones(2), np.ones(2), 0, 2)
"""
    command = [sys.executable, "-c", script]
    fresh = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True, env=fresh).stdout for _ in range(2)
    )
    assert "Compiling, the first time only" in first
    assert second == ""
