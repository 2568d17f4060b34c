"""How long work may take, however busy the machine is: in seconds of a core, and in those spent on nothing.

Linux tells of every thread how long it ran, and how long it was ready to run while others had the cores. What is left
of the time is waiting for something else: a lock, a pipe, an answer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

LOOK = 0.5  # seconds between two looks: of a thread that has ended, what was seen last counts


class Watched:
    """A process, those that it starts, and what they have done since they are watched."""

    def __init__(self, process: int | None = None) -> None:
        self._process = os.getpid() if process is None else process
        self._begun = time.monotonic()
        self._seen: dict[str, tuple[float, float]] = {}
        self._look()
        self._before = self._sums()

    def spent(self) -> tuple[float, float]:
        """Seconds of a core, and seconds in which no thread ran or was ready to."""
        self._look()
        worked, ready = (now - then for now, then in zip(self._sums(), self._before, strict=True))
        return worked, max(time.monotonic() - self._begun - worked - ready, 0.0)

    def _look(self) -> None:
        family = [str(self._process)]
        for each in family:
            for path in Path(f"/proc/{each}/task").glob("*"):
                with contextlib.suppress(OSError, ValueError):
                    ran, ready, _ = (path / "schedstat").read_text().split()
                    self._seen[path.name] = int(ran) / 1e9, int(ready) / 1e9
                    family += (path / "children").read_text().split()

    def _sums(self) -> tuple[float, float]:
        ran, ready = zip(*self._seen.values(), strict=True) if self._seen else ((), ())
        return sum(ran), sum(ready)


@contextlib.contextmanager
def within(worked: float, idle: float) -> Iterator[None]:
    """End the block by a TimeoutError once this process has worked, or has waited, for so many seconds."""
    watched = Watched()

    def look(*_: object) -> None:
        has_worked, has_waited = watched.spent()
        if has_worked >= worked or has_waited >= idle:
            raise TimeoutError(
                f"it takes longer than {worked:g} seconds of work or {idle:g} of waiting "
                f"({has_worked:.1f} and {has_waited:.1f})"
            )

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, LOOK, LOOK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
