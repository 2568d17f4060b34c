"""`python -m tests.engines fetch` brings what the tests need onto this machine.

What cannot be had is said in a line, and the tests skip it; with CI=true it is an error.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from pathlib import Path

from tests.engines import ltr_plugin, opensearch, parity, postgres, ranklib, solr, vespa
from tests.engines.artifacts import UnavailableError


def main() -> int:
    """Do what was asked for; one line says what is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.engines")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="fetch the engines")
    commands.add_parser("serve", help="start OpenSearch and print its address, until Ctrl-C")
    measuring = commands.add_parser("parity", help="measure how closely engines score as we do; write tables")
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--engine", choices=("opensearch", "solr", "vespa"), help="only this one")
    built = commands.add_parser("ltr", help="build OpenSearch's Learning to Rank plugin from a checkout of its source")
    built.add_argument("--source", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "fetch":
        return fetch()
    try:
        if given.command == "parity":
            return measure(given.out, given.engine)
        if given.command == "serve":
            return serve()
        server = opensearch.SERVER.fetch() / f"opensearch-{opensearch.VERSION}.zip"
        print(ltr_plugin.build(given.source, server, opensearch.VERSION))
    except UnavailableError as error:
        print(f"engines: {error}", file=sys.stderr)
        return 1
    return 0


ENGINES = {
    "OpenSearch": opensearch.fetch,
    "Solr": solr.fetch,
    "PostgreSQL": postgres.fetch,
    "Vespa": vespa.fetch,
    "RankLib": ranklib.fetch,
}


def fetch() -> int:
    """Fetch every engine; a line for each that this machine cannot have."""
    missing = False
    for name, fetch_it in ENGINES.items():
        try:
            fetch_it()
        except UnavailableError as error:
            print(f"engines: {name} is skipped. {error}", file=sys.stderr)
            missing = True
    return 1 if missing and os.environ.get("CI") else 0


def measure(out: Path, only: str | None = None) -> int:
    """Write a table of parity for every engine, or for one, into a folder."""
    if only in (None, "opensearch"):
        with opensearch.serving(ltr=True) as server:
            title = f"OpenSearch {opensearch.VERSION} with its Learning to Rank plugin"
            _measured(out, "opensearch", title, lambda export: opensearch.scoring(server, export))
    if only in (None, "solr"):
        with solr.serving() as node:
            node.create("parity")
            title = f"Solr {solr.VERSION} with its Learning to Rank module"
            _measured(out, "solr", title, lambda export: solr.scoring(node, "parity", export))
    if only in (None, "vespa"):
        with vespa.evaluating() as evaluator:
            title = f"Vespa's own evaluator, {vespa.VERSION}"
            _measured(out, "vespa", title, lambda export: vespa.scoring(evaluator, export))
    return 0


def _measured(out: Path, engine: str, title: str, opened: parity.Opened) -> None:
    rows = []
    for row in parity.all_rows(opened, engine):
        print(row, flush=True)
        rows.append(row)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{engine}.md").write_text(parity.table(rows, title, uploads=engine != "vespa"))


def serve() -> int:
    """OpenSearch, with Learning to Rank where it is to be had, until it is interrupted."""
    with opensearch.serving(ltr=ltr_plugin.is_there(opensearch.VERSION)) as server:
        print(server.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
