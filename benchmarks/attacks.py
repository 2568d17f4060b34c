"""Clients that mean harm, each in a process of its own: connections that drip, and headers without an end."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

DRIPPING, SECONDS = 3000, 10
_OPENED = 1000
_MEGABYTE = b"a: " + b"b" * 95 + b"\r\n"  # a hundred bytes, sent ten thousand times
_MANY = 50


def attack(name: str, url: str) -> None:
    """Run one of the attacks below and wait for its end."""
    subprocess.run([sys.executable, "-m", "benchmarks.attacks", name, url], check=True)


def drip(place: tuple[str, int]) -> None:
    """Three thousand connections send a byte a second each: of a first head, of a second one, of a body.

    Those that are cut off are opened anew; up to a thousand are opened in a second.
    """
    host = place[0].encode()
    kinds = [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n" % host,
        b"POST /v1/rank HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n\r\n" % host,
    ]
    lines: list[socket.socket | None] = [None] * DRIPPING
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        begun, opened = time.monotonic(), 0
        for number, line in enumerate(lines):
            opened += line is None
            if line is not None or opened <= _OPENED:
                lines[number] = _with_another_byte(line, place, kinds[number % 3])
            if number % 30 == 0:  # spread over the second
                time.sleep(max(0.0, begun + number / DRIPPING - time.monotonic()))
    for line in lines:
        if line is not None:
            line.close()


def _with_another_byte(line: socket.socket | None, place: tuple[str, int], before: bytes) -> socket.socket | None:
    """The connection, or a new one if it was cut off."""
    try:
        if line is None:
            line = socket.create_connection(place, timeout=30)
            line.sendall(before)
        line.sendall(b"G")
    except OSError:
        if line is not None:
            line.close()
        return None
    return line


def head(place: tuple[str, int]) -> None:
    """A hundred megabytes of headers, over one connection and over fifty at a time, as far as the server listens."""
    one = sum(_headers([place], 100))
    assert one < 50, f"{one} megabytes of headers were taken"
    for _ in range(10):
        many = sum(_headers([place] * _MANY, 100 // _MANY))
        assert many <= 100


def _headers(places: list[tuple[str, int]], megabytes: int) -> Iterator[int]:
    """The megabytes that each connection could send."""
    lines = [socket.create_connection(place, timeout=30) for place in places]
    for line in lines:
        sent = 0
        with contextlib.suppress(OSError):
            line.sendall(b"GET /healthz HTTP/1.1\r\n")
            for sent in range(1, megabytes + 1):  # noqa: B007
                line.sendall(_MEGABYTE * 10_000)
        yield sent
    for line in lines:
        line.close()


ATTACKS = {"drip": drip, "head": head}


def main() -> None:
    name, url = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    host, _, port = url.removeprefix("http://").rpartition(":")
    ATTACKS[name]((host, int(port)))


if __name__ == "__main__":
    main()
