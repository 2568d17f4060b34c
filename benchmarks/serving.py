"""What drives a server: wrk, from another process, or a client that asks one thing after the other."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """
local file = io.open("{body}", "rb")
wrk.method = "POST"
wrk.body = file:read("*all")
wrk.headers["Content-Type"] = "application/json"
file:close()
"""
_MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}


@dataclass(frozen=True)
class Load:
    """What wrk saw: requests per second, the middle and the slowest hundredth in milliseconds, and failures."""

    per_second: float
    p50: float
    p99: float
    requests: int
    failures: int


def is_there() -> bool:
    """Whether wrk is installed; says how to get it where it is not."""
    if shutil.which("wrk") is None:
        print("wrk is not installed, so nothing is driven. On Debian: apt-get install wrk")
        return False
    return True


def drive(url: str, content: object, *, seconds: float, connections: int = 8) -> Load:
    """Send the same body over and over, from another process with a thread of its own."""
    with tempfile.TemporaryDirectory() as place:
        body, script = Path(place) / "body.json", Path(place) / "post.lua"
        body.write_text(json.dumps(content), encoding="utf-8")
        script.write_text(_SCRIPT.format(body=body), encoding="utf-8")
        words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency", "-s", str(script), url]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return Load(
        per_second=float(_first(r"Requests/sec:\s+(\S+)", said)),
        p50=_time(_first(r"(?m)^\s+50%\s+(\S+)", said)),
        p99=_time(_first(r"(?m)^\s+99%\s+(\S+)", said)),
        requests=int(_first(r"(\d+) requests in", said)),
        failures=sum(map(int, re.findall(r"(?:Non-2xx or 3xx responses:|connect|read|write|timeout) (\d+)", said))),
    )


def waits(url: str, content: object, *, times: int) -> list[float]:
    """The milliseconds of some requests with the same body, one after the other over one connection.

    The client is a socket and little else: a library for HTTP would take as long as the server.
    """
    host, _, path = url.removeprefix("http://").partition("/")
    body = json.dumps(content).encode()
    lines = (
        f"POST /{path} HTTP/1.1",
        f"Host: {host}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    asked = "\r\n".join([*lines, "", ""]).encode() + body
    name, _, port = host.partition(":")
    found = []
    with socket.create_connection((name, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(times):
            begun = time.perf_counter()
            connection.sendall(asked)
            _read_answer(connection)
            found.append(1e3 * (time.perf_counter() - begun))
    return found


def _read_answer(connection: socket.socket) -> None:
    """Read one response, which must be a good one."""
    said = b""
    while b"\r\n\r\n" not in said:
        said += connection.recv(65_536)
    top, _, content = said.partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 200"), said
    length = re.search(rb"(?i)content-length: (\d+)", top)
    assert length is not None, top
    while len(content) < int(length.group(1)):
        content += connection.recv(65_536)


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found.group(1)


def _time(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)([a-z]+)", text).groups()  # type: ignore[union-attr]
    return float(number) * _MILLISECONDS[unit]
