"""Work that is stopped from outside, by Ctrl-C or by SIGTERM, and what is kept of it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


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

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


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
