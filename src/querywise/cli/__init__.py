"""The command line: parse, call, print. Nothing of querywise is imported before a command needs it."""

from __future__ import annotations

import os

from querywise.cli import collections, comparing, exporting, fusing, ranking, serving, sharding
from querywise.cli.app import app

__all__ = ["app", "collections", "comparing", "exporting", "fusing", "main", "ranking", "serving", "sharding"]


def main() -> None:
    """Run the command line."""
    # LightGBM's threads that spin while they wait halve its speed on a machine with anything else to do.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    app()
