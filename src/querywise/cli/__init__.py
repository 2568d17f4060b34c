"""The command line: parse, call, print. Nothing of querywise is imported before a command needs it."""

from __future__ import annotations

from querywise.cli import collections, comparing, ranking
from querywise.cli.app import app

__all__ = ["app", "collections", "comparing", "main", "ranking"]


def main() -> None:
    """Run the command line."""
    app()
