"""The command line itself; the modules beside this one add its commands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

app = typer.Typer(
    help="Learning to rank, query by query.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        sys.stdout.write(f"querywise {installed('querywise')}\n")
        raise typer.Exit
