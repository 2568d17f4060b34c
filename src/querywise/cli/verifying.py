"""The command that checks the installation."""

from __future__ import annotations

import sys

import typer

from querywise.cli.app import app
from querywise.cli.options import AsJson, guarded_command, print_json


@app.command()
@guarded_command
def doctor(as_json: AsJson = False) -> None:
    """Check this installation: versions, cores, memory, caches, and whether every package works.

    Packages are imported and tried in other processes, without the network.
    Ends with 0 if all that is required works, else with 1.
    Optional parts that are missing come with the line that installs them.
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
