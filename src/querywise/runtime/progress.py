"""Progress of long work: silent in a library, shown on stderr where the command line asks for it.

Work reports progress through `track`, `doing` and `announce`; only `shown` (used by the command line) draws anything.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, TypeVar

from querywise.runtime.lines import Lines
from querywise.runtime.stopping import stoppable

if TYPE_CHECKING:
    from rich.console import Console

COMPILING = "Compiling, the first time only"
SWITCH = "QUERYWISE_PROGRESS"  # the environment variable that turns progress off

_Item = TypeVar("_Item", covariant=True)


class _Listed(Protocol[_Item]):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_Item]: ...


class _Display(Protocol):
    def begin(self, label: str, total: int | None, unit: str = "") -> int: ...
    def advance(self, task: int) -> None: ...
    def end(self, task: int) -> None: ...
    def expect(self, label: str, seconds: float) -> None: ...
    def say(self, text: str) -> None: ...


_display: ContextVar[_Display | None] = ContextVar("querywise_progress", default=None)


_on_screen: list[_Display] = []  # what is drawn now; threads do not inherit the variable above


class Ongoing:
    """A label shown while something goes on in any thread, however often at once."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._depth = 0
        self._task: tuple[_Display, int] | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """One more has begun."""
        with self._lock:
            self._depth += 1
            if self._task is None and _on_screen:
                self._task = (_on_screen[-1], _on_screen[-1].begin(self._label, None))

    def end(self) -> None:
        """One of them has ended."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._task is not None:
                display, task = self._task
                self._task = None
                display.end(task)


def track(items: _Listed[_Item], label: str, unit: str = "") -> Iterator[_Item]:
    """The items one by one, with a progress bar where one is shown. unit: what the items are, such as queries."""
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
    """Report what is being done while the block runs."""
    display = _display.get()
    task = None if display is None else display.begin(label, None)
    try:
        yield
    finally:
        if display is not None and task is not None:
            display.end(task)


def is_shown() -> bool:
    """Whether progress is shown."""
    return _display.get() is not None


def expect(label: str, seconds: float) -> None:
    """Say about how long what has this label takes in all, where progress is shown in lines."""
    display = _display.get()
    if display is not None:
        display.expect(label, seconds)


def announce(text: str) -> None:
    """Say something about long work, where progress is shown."""
    display = _display.get()
    if display is not None:
        display.say(text)


@contextlib.contextmanager
def shown(*, quiet: bool = False) -> Iterator[None]:
    """Show progress on stderr while the block runs: drawn on a terminal, else as a line now and then.

    SIGTERM stops the block as Ctrl-C does. quiet: show nothing; so does the value `off` of the environment variable
    QUERYWISE_PROGRESS.
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
    """Bars on a terminal, which are gone when the block ends."""
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
            """Bars show how far it is, and no estimate."""

        def say(self, text: str) -> None:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    with bars:
        yield Bars()
