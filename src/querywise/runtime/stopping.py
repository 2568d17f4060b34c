"""Work that is stopped from outside, by Ctrl-C or by SIGTERM, and what is kept of it."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator

_AGAIN = 0.05  # seconds until an interrupt that was swallowed is sent again


class Terminated(KeyboardInterrupt):
    """SIGTERM was received, as `kill` and schedulers send it."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM stops the block as Ctrl-C does, so that it can say what is kept; a second one ends the process at once.

    Only in the main thread, and only where nobody else handles that signal.
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
    """An interrupt that arrives while an object is being finalized is sent again.

    Python only prints an exception raised in `__del__`, so without this the block would go on after Ctrl-C.
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
    """Where the block is stopped, the exception notes what is kept, for who tells it to people.

    kept: what is kept and where, asked for at that moment; empty where there is nothing.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        if said := kept():
            stop.add_note(said)
        raise
