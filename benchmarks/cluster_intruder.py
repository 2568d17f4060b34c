"""Attacks on `--cluster auto` from its own machine: every port that its processes open, without the token."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from querywise import KnnOffline2, RankSVM
from querywise.data.synthetic import make_judged
from querywise.runtime.ray import RayCluster

_LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
_LISTENS = "0A"
_CONTENTS = (
    b"",
    b"\0" * 65_536,
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /api/jobs/ HTTP/1.1\r\nHost: a\r\nContent-Length: 28\r\n\r\n" + b'{"entrypoint": "touch taken"}',
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\xff\1\5\0\0\0\1" + b"\x82" * 255,
    b"*1\r\n$4\r\nINFO\r\n",
)
_JOIN = (
    "import ray, sys; ray.init(sys.argv[1], log_to_driver=False); print(ray.get(ray.remote(lambda: 6 * 7).remote()))"
)


def clusters(folder: Path) -> Iterator[Callable[[], object]]:
    """Every port with every content, somebody who wants to join, and the files that the cluster writes."""
    import ray

    data = make_judged(queries=40, documents=10, features=4)
    expected = KnnOffline2(RankSVM()).fit(data).predict(data.candidates)

    def work() -> None:
        found = KnnOffline2(RankSVM()).fit(data).predict(data.candidates)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)

    def join() -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
        words = [sys.executable, "-c", _JOIN, ray.get_runtime_context().gcs_address]
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, timeout=20, check=False)
            assert "42" not in done.stdout, "work was done for somebody without the token"

    with RayCluster():
        yield work
        listening = dict(_listening())
        for port, place in listening.items():
            yield partial(_require_loopback, port, place)
            for content in _CONTENTS:
                yield partial(_send, port, content)
        yield join
        yield work
        assert not (folder / "taken").exists()


def _send(port: int, content: bytes) -> None:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.3) as line:
        line.sendall(content)
        line.recv(65_536)


def _require_loopback(port: int, place: str) -> None:
    assert place in _LOOPBACK, f"port {port} listens on {place}"


def _listening() -> Iterator[tuple[int, str]]:
    """The ports that processes below this one have opened, and where they listen."""
    own = {link for process in _below(os.getpid()) for link in _sockets(process)}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            place, _, port = words[1].rpartition(":")
            if words[3] == _LISTENS and f"socket:[{words[9]}]" in own:
                yield int(port, 16), place


def _below(process: int) -> Iterator[int]:
    yield process
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                yield from _below(int(child))


def _sockets(process: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for each in os.scandir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(each.path)
