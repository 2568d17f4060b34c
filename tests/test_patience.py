"""Work is ended after its own seconds, and not after those that others had the cores."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.patience import LOOK, Watched, within

BUSY = "import time\nwhile time.process_time() < {}: pass\n"


def work(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_what_waits_or_works_for_too_long_is_ended() -> None:
    with pytest.raises(TimeoutError, match=r"of waiting \(0\.. and [1-9]"), within(60.0, 1.0):
        time.sleep(60)
    with pytest.raises(TimeoutError, match="of work"), within(0.5, 60.0):
        work(60)
    with within(60.0, 60.0):
        work(2 * LOOK)


def test_time_that_others_had_the_cores_does_not_count() -> None:
    """Six processes beside one on however few cores: it waits for nothing."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY.format(60)]) for _ in range(6)]
    try:
        with within(60.0, 1.0):
            work(1.5)
    finally:
        for each in others:
            each.kill()
            each.wait()


def test_what_processes_of_a_process_do_counts_as_its_own() -> None:
    starts = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY.format(1.5)!r}])\n"
    process = subprocess.Popen([sys.executable, "-c", starts])
    watched = Watched(process.pid)
    while process.poll() is None:
        worked, idle = watched.spent()
        time.sleep(0.05)
    assert worked > 1
    assert idle < 1
