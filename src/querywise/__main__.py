"""The command `querywise`, as `python -m querywise` too: what is settled before anything large is imported."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable


def main(imported: Callable[[], Callable[[], None]] | None = None) -> None:
    """Run the command line.

    Until a command runs, Ctrl-C ends the process without a word: nothing has been begun. A standard stream that is
    closed is kept so, or the next file that is opened would be in its place, and get what is printed.

    Args:
        imported: Imports another command line than querywise's and returns it.

    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # gets the lowest number that is free
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # else it is closed
            stream.reconfigure(errors="backslashreplace")  # what the terminal's encoding lacks
    from querywise import cli

    run = (imported or cli.commands)()
    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main(run)


if __name__ == "__main__":
    main()
