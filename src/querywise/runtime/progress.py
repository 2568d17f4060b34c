"""Progress of long work: silent in a library, shown on stderr by the command line; and clean interruption.

Work reports progress through `track`, `doing` and `announce`; only `shown` (used by the command line) displays it.
Without a terminal, a line is written now and then, for logs. Work that is stopped by Ctrl-C or SIGTERM reports which
results are kept.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

_AGAIN = 0.05  # seconds until a swallowed interrupt is sent again

FIRST = 10.0  # seconds before the first line: shorter work stays silent
EVERY = 30.0  # minimum seconds between lines
_SHARE = 0.1  # minimum share of the elapsed time between lines: long runs report less and less often
_MOST = 4  # labels per line
_PATIENCE = 1.0  # seconds to wait at the end for a line being written, since its reader may hang
_SLOWER = 10  # times as long as earlier steps: those were read from disk, not computed

COMPILING = "Compiling, the first time only"
SWITCH = "QUERYWISE_PROGRESS"  # the environment variable that turns progress off

_Item = TypeVar("_Item", covariant=True)

_display: ContextVar[_Display | None] = ContextVar("querywise_progress", default=None)

_on_screen: list[_Display] = []  # displays in use; threads do not inherit the variable above


def duration(seconds: float) -> str:
    """Return a duration in readable form.

    >>> duration(8.3), duration(100), duration(4000)
    ('8 s', '2 min', '1.1 h')
    """
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


@dataclass
class _Task:
    """A running task: its start, how much is done, and how long its steps took."""

    label: str
    total: int | None
    unit: str
    began: float
    latest: float
    done: int = 0
    counted: int = 0  # steps with known time
    spent: float = 0.0  # seconds for them
    longest: float = 0.0
    expected: float = 0.0  # expected seconds in total, if known; else 0

    def advance(self, now: float) -> None:
        took = now - self.latest
        if took > _SLOWER * self.longest:  # earlier steps were cached or nearly empty
            self.counted, self.spent = 0, 0.0
        self.counted, self.spent, self.longest = self.counted + 1, self.spent + took, max(self.longest, took)
        self.done, self.latest = self.done + 1, now

    def left(self, now: float) -> float | None:
        """Return the seconds left if the remaining steps take as long as those so far; None if unknown."""
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
    """A context manager that tracks running tasks and, in a thread, writes a progress line now and then.

    Tasks labeled `named`, such as compiling, also have their time reported after they end.
    """

    def __init__(self, named: str = "") -> None:
        self._named = named
        self._over = 0.0  # seconds of tasks with that label since the last line
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
        """Start a task and return its number."""
        now = time.monotonic()
        with self._lock:
            number = next(self._numbers)
            self._tasks[number] = _Task(label, total, unit, now, now)
        return number

    def advance(self, task: int) -> None:
        """Record one more finished step of a task."""
        with self._lock:
            self._tasks[task].advance(time.monotonic())

    def expect(self, label: str, seconds: float) -> None:
        """Set the expected total seconds of the tasks with a label."""
        with self._lock:
            for each in self._tasks.values():
                each.expected = seconds if each.label == label else each.expected

    def end(self, task: int) -> None:
        """End a task."""
        with self._lock:
            ended = self._tasks.pop(task)
            if ended.label == self._named:
                self._over += time.monotonic() - ended.began

    def say(self, text: str) -> None:
        """Write a line immediately."""
        with contextlib.suppress(OSError, ValueError):  # the reader is gone
            sys.stderr.write(f"progress: {text}\n")
            sys.stderr.flush()

    def _write_now_and_then(self) -> None:
        wait = FIRST
        while not self._ended.wait(wait):
            now = time.monotonic()
            self.say(self._line(now))
            wait = max(EVERY, _SHARE * (now - self._began))

    def _line(self, now: float) -> str:
        """Return a line on what is done and the time left, of everything if known, else of the current task."""
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


class _Listed(Protocol[_Item]):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_Item]: ...


class _Display(Protocol):
    def begin(self, label: str, total: int | None, unit: str = "") -> int: ...
    def advance(self, task: int) -> None: ...
    def end(self, task: int) -> None: ...
    def expect(self, label: str, seconds: float) -> None: ...
    def say(self, text: str) -> None: ...


class Ongoing:
    """A label shown while something runs in any thread, possibly several times at once; `seconds` is the total time."""

    def __init__(self, label: str) -> None:
        self.seconds = 0.0
        self._label = label
        self._depth = 0
        self._began = 0.0
        self._task: tuple[_Display, int] | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Record that one more has begun."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._began = time.monotonic()
            if self._task is None and _on_screen:
                self._task = (_on_screen[-1], _on_screen[-1].begin(self._label, None))

    def end(self) -> None:
        """Record that one has ended."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.monotonic() - self._began
            if self._depth == 0 and self._task is not None:
                display, task = self._task
                self._task = None
                display.end(task)


def track(items: _Listed[_Item], label: str, unit: str = "") -> Iterator[_Item]:
    """Yield the items one by one, with a progress bar if progress is shown.

    `unit` says what they are, such as queries.
    """
    display = _display.get()
    if display is None:
        yield from items
        return
    task = display.begin(label, len(items), unit)
    try:
        for item in items:
            yield item
            display.advance(task)
    finally:
        display.end(task)


@contextlib.contextmanager
def doing(label: str) -> Iterator[None]:
    """Show a label while the block runs."""
    display = _display.get()
    task = None if display is None else display.begin(label, None)
    try:
        yield
    finally:
        if display is not None and task is not None:
            display.end(task)


def is_shown() -> bool:
    """Return whether progress is shown."""
    return _display.get() is not None


def expect(label: str, seconds: float) -> None:
    """Set the expected total seconds of the tasks with a label, if progress is shown as lines."""
    display = _display.get()
    if display is not None:
        display.expect(label, seconds)


def announce(text: str) -> None:
    """Show a message about long work, if progress is shown."""
    display = _display.get()
    if display is not None:
        display.say(text)


@contextlib.contextmanager
def shown(*, quiet: bool = False) -> Iterator[None]:
    """Show progress on stderr while the block runs: bars on a terminal, else a line now and then.

    SIGTERM stops the block as Ctrl-C does. With `quiet`, or if the environment variable QUERYWISE_PROGRESS is `off`,
    nothing is shown.
    """
    off = quiet or os.environ.get(SWITCH, "").lower() == "off"
    with stoppable(), contextlib.nullcontext() if off else _on_stderr():
        yield


@contextlib.contextmanager
def _on_stderr() -> Iterator[None]:
    from rich.console import Console

    console = Console(stderr=True)
    display = _bars(console) if console.is_terminal else Lines(COMPILING)
    with display as drawn:
        token = _display.set(drawn)
        _on_screen.append(drawn)
        try:
            yield
        finally:
            _on_screen.remove(drawn)
            _display.reset(token)


@contextlib.contextmanager
def _bars(console: Console) -> Iterator[_Display]:
    """Show progress bars on a terminal until the block ends."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
    )

    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )

    class Bars:
        def begin(self, label: str, total: int | None, unit: str = "") -> int:
            return bars.add_task(f"{label}, {unit}" if unit else label, total=total)

        def advance(self, task: int) -> None:
            bars.advance(TaskID(task))

        def end(self, task: int) -> None:
            bars.remove_task(TaskID(task))

        def expect(self, label: str, seconds: float) -> None:
            """Do nothing: bars show progress without estimates."""

        def say(self, text: str) -> None:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    with bars:
        yield Bars()


class Terminated(KeyboardInterrupt):
    """SIGTERM, as sent by `kill` and schedulers."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM stop the block as Ctrl-C does, so that it can report what is kept; a second one ends the process.

    It works only in the main thread, and only if nothing else handles the signal.
    """
    own = threading.current_thread() is threading.main_thread()
    if not own or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated


@contextlib.contextmanager
def never_swallowed() -> Iterator[None]:
    """Send an interrupt again if it arrived while an object was being finalized.

    Python only prints an exception raised in `__del__`, so without this the block would continue after Ctrl-C.
    """
    main, before = threading.main_thread(), sys.unraisablehook

    def hook(swallowed: sys.UnraisableHookArgs) -> None:
        if not issubclass(swallowed.exc_type, KeyboardInterrupt):
            before(swallowed)
            return
        number = signal.SIGINT
        if issubclass(swallowed.exc_type, Terminated):
            number = signal.SIGTERM
            signal.signal(number, _terminate)
        again = threading.Timer(_AGAIN, signal.pthread_kill, (main.ident, number))
        again.daemon = True
        again.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextlib.contextmanager
def keeping(kept: Callable[[], str]) -> Iterator[None]:
    """Add a note on the results that are kept to the exception if the block is interrupted.

    `kept` returns what is kept and where, or an empty text; it is called at that moment.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        if said := kept():
            stop.add_note(said)
        raise
