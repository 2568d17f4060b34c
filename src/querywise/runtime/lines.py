"""Progress where there is no terminal: a line on stderr now and then, for logs and for who reads them."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from dataclasses import dataclass

FIRST = 10.0  # seconds before the first line: what ends before says nothing
EVERY = 30.0  # seconds between lines, at least
_SHARE = 0.1  # of the time so far, at least, between lines: a long run says less and less
_MOST = 4  # labels in a line
_PATIENCE = 1.0  # seconds for a line that is being written at the end; nobody may be reading it
_SLOWER = 10  # how many times as long as those before: these were read, not computed


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(8.3), duration(100), duration(4000)
    ('8 s', '2 min', '1.1 h')
    """
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


@dataclass
class _Task:
    """Something that goes on: since when, how much of it is done, and how long its parts took."""

    label: str
    total: int | None
    unit: str
    began: float
    latest: float
    done: int = 0
    counted: int = 0  # the parts whose time is known
    spent: float = 0.0  # on them
    longest: float = 0.0
    expected: float = 0.0  # seconds in all, by what is known before; 0 where nothing is

    def advance(self, now: float) -> None:
        took = now - self.latest
        if took > _SLOWER * self.longest:  # those before were kept from another run, or nearly empty
            self.counted, self.spent = 0, 0.0
        self.counted, self.spent, self.longest = self.counted + 1, self.spent + took, max(self.longest, took)
        self.done, self.latest = self.done + 1, now

    def left(self, now: float) -> float | None:
        """The seconds it goes on, if the other parts take as long as those so far; None where that is not known."""
        if self.total is None:
            return None
        if not self.counted:
            return self.began + self.expected - now if self.began + self.expected > now else None
        each = self.spent / self.counted
        return max(each * (self.total - self.done) - min(now - self.latest, each), 0.0)

    @property
    def text(self) -> str:
        if self.total is not None and self.unit:
            return f"{self.label}: {self.done} of {self.total} {self.unit}"
        return self.label if self.total is None else f"{self.label} ({self.done} of {self.total} done)"


class Lines:
    """What goes on, and a thread that writes a line about it now and then; for a `with` statement.

    named: a label whose time is told also when it is over, such as that of compiling.
    """

    def __init__(self, named: str = "") -> None:
        self._named = named
        self._over = 0.0  # seconds of what has the name, since the last line
        self._tasks: dict[int, _Task] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_now_and_then, name="querywise-progress", daemon=True)
        self._began = time.monotonic()

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_PATIENCE)

    def begin(self, label: str, total: int | None, unit: str = "") -> int:
        """Something begins; its number is returned."""
        now = time.monotonic()
        with self._lock:
            number = next(self._numbers)
            self._tasks[number] = _Task(label, total, unit, now, now)
        return number

    def advance(self, task: int) -> None:
        """One more part of it is done."""
        with self._lock:
            self._tasks[task].advance(time.monotonic())

    def expect(self, label: str, seconds: float) -> None:
        """What has this label takes about so long in all."""
        with self._lock:
            for each in self._tasks.values():
                each.expected = seconds if each.label == label else each.expected

    def end(self, task: int) -> None:
        """It is over."""
        with self._lock:
            ended = self._tasks.pop(task)
            if ended.label == self._named:
                self._over += time.monotonic() - ended.began

    def say(self, text: str) -> None:
        """A line at once."""
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            sys.stderr.write(f"progress: {text}\n")
            sys.stderr.flush()

    def _write_now_and_then(self) -> None:
        wait = FIRST
        while not self._ended.wait(wait):
            now = time.monotonic()
            self.say(self._line(now))
            wait = max(EVERY, _SHARE * (now - self._began))

    def _line(self, now: float) -> str:
        """What is done and about how long it will take: all of it where that is known, else the part at hand."""
        with self._lock:
            tasks = list(self._tasks.values())
            over, self._over = self._over, 0.0
        words = ", ".join(list(dict.fromkeys(each.text for each in tasks))[:_MOST]) or "at work"
        counted = [each for each in tasks if each.total is not None]
        known = [(each, left) for each in counted if (left := each.left(now)) is not None]
        told = f"after {duration(now - self._began)}: {words}"
        if known:
            first, left = known[0]
            what = "" if first is counted[0] else f" for {first.label[:1].lower()}{first.label[1:]}"
            told += f"; about {duration(left)} more{what}"
        elif counted:
            told += "; how much longer is not known yet"
        return f"{told}; {self._named}: {duration(over)}" if over >= 1 else told
