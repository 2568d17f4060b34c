"""PostgreSQL with pgvector on this machine: PGlite, which is PostgreSQL compiled for Node, over the wire protocol."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.engines.artifacts import NpmSet, tool
from tests.engines.processes import free_port, running, workspace

PACKAGES = NpmSet(
    "postgres",
    (
        "@electric-sql/pglite@0.5.14",
        "@electric-sql/pglite-pgvector@0.0.15",
        "@electric-sql/pglite-socket@0.2.17",
    ),
    "268d1c2ce28b767dcc0d348bc30cb2a9fdb4b0c80b32c3b99a58a5fe2bd948fc",
)
_SERVER = "node_modules/@electric-sql/pglite-socket/dist/scripts/server.js"
_VECTOR = "@electric-sql/pglite-pgvector:vector"


def fetch() -> None:
    """Bring everything that a start needs onto this machine."""
    tool("node", "Node (Debian: apt-get install nodejs npm)")
    PACKAGES.fetch()


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """An empty database with the extension `vector` at hand, gone afterwards; gives the words to connect with."""
    node, packages = tool("node", "Node (Debian: apt-get install nodejs npm)"), PACKAGES.fetch()
    with workspace("postgres") as folder:
        shutil.copytree(packages, folder / "packages", symlinks=True)
        port = free_port()
        words = f"host=127.0.0.1 port={port} user=postgres password=postgres dbname=postgres sslmode=disable"
        options = [f"--port={port}", "--host=127.0.0.1", "--max-connections=4", f"--extensions={_VECTOR}"]
        command: list[str | Path] = [node, folder / "packages" / _SERVER, *options]
        with running("PostgreSQL", command, folder, lambda: _answers(words)):
            yield words


def _answers(words: str) -> bool:
    with contextlib.suppress(psycopg.Error), psycopg.connect(words, connect_timeout=30) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)
    return False
