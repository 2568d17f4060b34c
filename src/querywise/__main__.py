"""The command `querywise`, also `python -m querywise`: everything that is done before a large import."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable


def main(imported: Callable[[], Callable[[], None]] | None = None) -> None:
    """Run the command line.

    Until a command runs, Ctrl-C ends the process silently, since nothing has begun. A standard stream that is
    closed stays closed; otherwise the next opened file would take its descriptor and receive the output.

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
