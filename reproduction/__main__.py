"""The papers' tables and figures on your data: `python -m reproduction geng2008 DATA --out FOLDER`."""

from __future__ import annotations

from collections.abc import Callable

from querywise.__main__ import main as run


def main() -> None:
    """Run the command line."""
    run(command)


def command() -> Callable[[], None]:
    """Return the command; calling it runs it on the arguments."""
    import typer.main

    from reproduction.command import app

    return typer.main.get_command(app)


if __name__ == "__main__":
    main()
