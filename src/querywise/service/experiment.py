"""What the log of an experiment says so far, for the page, and what was counted in the last hour."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from querywise.runtime.values import JsonObject

_FRESH_SECONDS = 10.0  # or as long as reading took, if that is longer
_MINUTES = 60
_PROGRAM = "import json, sys; from querywise.jobs.online import told; json.dump(told(sys.argv[1]), sys.stdout)"
_MOST_KINDS = 12  # of queries, which the page shows


class Told(NamedTuple):
    """What `querywise online` says of a log, or the problem that it has with it, and when that was."""

    verdict: JsonObject | None
    problem: str | None
    when: float


class Experiment:
    """The verdict on a log. It is read by a process of its own: reading millions of lines holds nobody up here."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._told: Told | None = None
        self._took = 0.0
        self._reading: asyncio.Task[None] | None = None

    async def told(self, seconds: float) -> Told | None:
        """The verdict of this moment; where reading takes longer than that, the one before, or None."""
        age = None if self._told is None else time.monotonic() - self._told.when
        if self._reading is None or (self._reading.done() and (age is None or age > max(_FRESH_SECONDS, self._took))):
            self._reading = asyncio.create_task(self._read())
        await asyncio.wait([self._reading], timeout=seconds)
        return self._told

    async def _read(self) -> None:
        begun = time.monotonic()
        nothing, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PROGRAM, str(self._log), stdin=nothing, stdout=pipe, stderr=nothing
        )
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        now = time.monotonic()
        self._took = now - begun
        if process.returncode == 0:
            found = json.loads(said)
            if found["verdict"] is not None:
                found["verdict"]["kinds"] = found["verdict"]["kinds"][:_MOST_KINDS]
            self._told = Told(found["verdict"], found["problem"], now)
        else:
            self._told = Told(None, f"The log could not be read; the process ended with {process.returncode}.", now)

    def close(self) -> None:
        """Give up a reading."""
        if self._reading is not None:
            self._reading.cancel()


class LastHour:
    """Counts of the last sixty minutes, from counts since the start that are remembered every minute."""

    def __init__(self) -> None:
        self._before: deque[Mapping[str, int]] = deque([Counter[str]()], maxlen=_MINUTES + 1)

    def remember(self, totals: Mapping[str, int]) -> None:
        """Remember the counts of this minute."""
        self._before.append(dict(totals))

    def of(self, totals: Mapping[str, int]) -> dict[str, int]:
        """How much was counted since the oldest that is remembered."""
        return {name: count - self._before[0].get(name, 0) for name, count in totals.items()}
