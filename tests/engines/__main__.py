"""`python -m tests.engines fetch` brings what the tests need onto this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.engines import ltr_plugin, opensearch
from tests.engines.artifacts import UnavailableError


def main() -> int:
    """Do what was asked for; one line says what is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.engines")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="fetch the engines")
    built = commands.add_parser("ltr", help="build OpenSearch's Learning to Rank plugin from a checkout of its source")
    built.add_argument("--source", type=Path, required=True)
    given = parser.parse_args()
    try:
        if given.command == "fetch":
            opensearch.fetch()
        else:
            server = opensearch.SERVER.fetch() / f"opensearch-{opensearch.VERSION}.zip"
            print(ltr_plugin.build(given.source, server, opensearch.VERSION))
    except UnavailableError as error:
        print(f"engines: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
