"""A real server in a process of its own, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

COMMAND = Path(sys.executable).parent / "querywise"


@dataclass(frozen=True)
class Serving:
    """Where a server listens, and its process."""

    url: str
    process: subprocess.Popen[str]

    def get(self, path: str, **parameters: object) -> httpx.Response:
        return httpx.get(self.url + path, params={name: str(each) for name, each in parameters.items()}, timeout=30)

    def post(self, path: str, content: object, **more: str) -> httpx.Response:
        if isinstance(content, bytes):
            return httpx.post(self.url + path, content=content, headers=more, timeout=30)
        return httpx.post(self.url + path, json=content, headers=more, timeout=30)


@contextlib.contextmanager
def serving(*words: object, token: str | None = None, command: str = "serve") -> Iterator[Serving]:
    """`querywise serve …` on a free port, with threads that wait passively: tests share the machine.

    command: or `gateway`.
    """
    environment = {"OMP_WAIT_POLICY": "passive"} | ({"QUERYWISE_TOKEN": token} if token else {})
    with started([COMMAND, command, *words, "--port", 0], environment) as server:
        yield server


@contextlib.contextmanager
def started(command: Sequence[object], environment: Mapping[str, str] | None = None) -> Iterator[Serving]:
    """A server, once it has logged where it listens; killed, if it still runs, at the end."""
    process = subprocess.Popen(
        list(map(str, command)), stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            found = re.search(r"on (http://\S+)", line)
            if found:
                yield Serving(found.group(1), process)
                return
        raise AssertionError("the server did not start: " + "".join(said))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
