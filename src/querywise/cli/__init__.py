"""The command line: parse, call, print. Slow imports are delayed until a command needs them."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import typer
import typer.main

from querywise.cli import (
    clicking,
    collections,
    comparing,
    experimenting,
    fitting,
    fusing,
    judging,
    ranking,
    serving,
)
from querywise.cli.options import AsJson, app, command, print_json
from querywise.display.words import printable
from querywise.errors import EdgeHint, Hint

__all__ = [
    "app",
    "clicking",
    "collections",
    "commands",
    "comparing",
    "experimenting",
    "fitting",
    "fusing",
    "judging",
    "main",
    "ranking",
    "serving",
]


def main(run: Callable[[], None] | None = None) -> None:
    """Run the command line: `run`, or else querywise's."""
    # LightGBM's spinning threads halve its speed on a machine that is otherwise busy.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    usual = warnings.showwarning

    def show(message: Warning | str, *more: Any, **others: Any) -> None:
        """Print a hint as one line; show other warnings as usual."""
        if isinstance(message, Hint):
            how = " On the command line: --set NAME=VALUE." if isinstance(message, EdgeHint) else ""
            sys.stderr.write(f"hint: {printable(str(message))}{how}\n")
        else:
            usual(message, *more, **others)

    warnings.showwarning = show
    sys.stdout = sys.stdout or open(os.devnull)  # noqa: SIM115 - if closed: writing raises OSError, as on a full disk
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - if closed: messages are lost
    try:
        (run or commands())()
    except OSError as error:  # of --help and --version, which are not guarded
        sys.exit(f"error: the output could not be written ({error.strerror or error}).")


@functools.cache
def commands() -> Callable[[], None]:
    """Return all commands, from the signatures of their functions; calling it runs the one named by the arguments."""
    return typer.main.get_command(app)


@command
def doctor(as_json: AsJson = False) -> None:
    """Check this installation: versions, cores, memory, caches, and whether every package works.

    Packages are imported and tried in other processes, without the network. The exit code is 0 if all
    required packages work, else 1. Missing optional parts are listed with the command that installs
    them.
    """
    from querywise.jobs.doctor import as_json as in_json
    from querywise.jobs.doctor import lines, run

    found = run()
    if as_json:
        print_json(in_json(found))
    else:
        sys.stdout.write("\n".join(lines(found)) + "\n")
    if not found.works:
        raise typer.Exit(1)
