"""The one client of requests to other machines: its bounds, and what its errors say."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from querywise.runtime.http_client import HttpResponse, RequestError, ask, origin_of

KEY = "sesame-77"


@contextmanager
def saying(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers whoever connects with these bytes, and holds the connection; what was sent to it."""
    held: list[socket.socket] = []
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    line, _ = listening.accept()
                except OSError:
                    return
                held.append(line)
                seen.append(line.recv(65_536))
                line.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", seen
        listening.shutdown(socket.SHUT_RDWR)
        for each in held:
            each.close()
        thread.join()


def asked(
    url: str, *, largest: int = 1_000, silence: float = 5.0, seconds: float = 5.0, key: str = KEY
) -> HttpResponse:
    headers = {"Authorization": f"Bearer {key}"}
    return ask("GET", url, None, headers, largest=largest, silence=silence, seconds=seconds)


def problem(url: str, **bounds: float) -> RequestError:
    with pytest.raises(RequestError) as error:
        asked(url, **bounds)  # type: ignore[arg-type]
    said = str(error.value)
    assert "\n" not in said
    assert KEY not in said
    return error.value


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def test_an_answer_within_the_bounds_is_given_whole() -> None:
    with saying(head("Content-Length: 5", "Retry-After: 7") + b"hello") as (place, seen):
        assert asked(f"http://{place}/a?b=c#d")[:3] == (200, b"hello", 7.0)
    assert seen[0].startswith(b"GET /a?b=c HTTP/1.1\r\n")
    assert f"Host: {place}\r\n".encode() in seen[0]
    with saying(head("Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n") as (place, _):
        assert asked(f"http://{place}").content == b"abc"


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (head("Content-Length: 1001"), "refused", "the answer has more than 1000 bytes"),
        (head("Connection: close") + b"x" * 2_000, "refused", "the answer has more than 1000 bytes"),
        (head("Transfer-Encoding: chunked") + b"fff\r\n" + b"x" * 4095, "refused", "more than 1000 bytes"),
        (head("Location: http://other/?k=" + KEY, status="301 Moved"), "refused", "status 301, a redirect to other, "),
        (head(f"Location: //{KEY}@[x", status="308 Moved"), "refused", "status 308, a redirect to [x, "),
        (head("Location: /here", status="303 See"), "refused", "status 303, a redirect, which is not followed"),
        (f"{KEY} \x1b[31m\r\n\r\n".encode(), "broken", "***"),
        (head("Content-Length: 10") + b"x", "late", "there was no sign for 0.3 seconds"),
        (b"", "late", "there was no sign for 0.3 seconds"),
    ],
)
def test_what_breaks_a_rule_is_refused_in_one_line(answer: bytes, kind: str, said: str) -> None:
    with saying(answer) as (place, _):
        found = problem(f"http://{place}/", silence=0.3)
    assert found.kind == kind
    assert said in str(found)


def test_of_an_error_only_the_beginning_is_read_and_shown_without_the_key() -> None:
    body = f"no \x1b[31m Bearer {KEY}\n and {KEY} ".encode() + b"x" * 50_000
    with saying(head("Connection: close", status="401 No") + body) as (place, _):
        found = asked(f"http://{place}/")
    assert found.status == 401
    assert len(found.content) == 10_000
    assert found.shown(24) == "no ?[31m *** and *** xxx"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_accepts_and_says_nothing_takes_no_longer_than_allowed(scheme: str) -> None:
    begun = time.monotonic()
    with saying(b"") as (place, _):
        found = problem(f"{scheme}://{place}/", silence=60, seconds=0.4)
    assert (found.kind, str(found)) == ("late", "the whole answer did not come within 0.4 seconds")
    assert time.monotonic() - begun < 3


def test_where_nobody_is_no_connection_is_made() -> None:
    assert problem("http://127.0.0.1:9/").kind == "unreachable"
    assert problem("http://a..b.invalid/").kind == "unreachable"
    with saying(head("Content-Length: 0")) as (place, _):
        assert problem(f"https://{place}/").kind == "unreachable", "no TLS is spoken there"


def test_of_several_addresses_a_silent_one_leaves_the_others_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
    with saying(head("Content-Length: 5") + b"hello") as (place, _), socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        waiting = [socket.socket() for _ in range(4)]  # which fill its queue, so that it takes nobody else
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(deaf.getsockname())
        found = [
            (12_345, socket.SOCK_STREAM, 0, "", ("::1", 9)),  # of a family that no system has
            (*usual, ("127.0.0.1", 9)),  # where nobody is
            (*usual, deaf.getsockname()),
            (*usual, ("127.0.0.1", int(place.rpartition(":")[2]))),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert asked("http://several.invalid/", seconds=4.0).content == b"hello"
        for each in waiting:
            each.close()


@pytest.mark.parametrize(
    "url",
    ["", "ftp://a/", "http://", "http://me:pw@a/", "http://a:0/", "http://a:x/", "http://a/b c", "http://a/é", "//a"],
)
def test_addresses_that_cannot_be_asked_are_refused(url: str) -> None:
    found = problem(url)
    assert (found.kind, "expected an address like" in str(found)) == ("refused", True)
    assert "pw" not in str(found)


def test_a_header_that_cannot_be_sent_is_refused_by_its_name() -> None:
    with pytest.raises(
        RequestError, match=r"^the value of Authorization has a character that HTTP headers cannot hold$"
    ):
        asked("http://127.0.0.1:9/", key="a\r\nX: b")


def test_an_origin_has_a_scheme_a_host_and_a_port() -> None:
    assert (
        origin_of("HTTPS://Api.Example.com/v1#m")
        == origin_of("https://api.example.com:443")
        == ("https://api.example.com:443")
    )
    assert origin_of("http://api.example.com") != origin_of("https://api.example.com")
    assert origin_of("http://a:8080/") != origin_of("http://a:8081/")
