"""Connections that misbehave, and requests that another web site might send, over real sockets."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.rankers.single import Single
from querywise.service import connection, server
from querywise.service.connection import Connections
from querywise.service.guards import Head, Hosts, post_problem
from querywise.service.limits import Limits
from querywise.service.loaded_model import ModelFolder
from querywise.service.routes import create_api
from querywise.service.service import Service
from querywise.storage import save
from tests.commands import run

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b'{"query": {"id": "q"}, "documents": [{"id": "a", "features": [1, 2, 3]}]}'
JSON = b"Content-Type: application/json\r\n"
CHUNKED = b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def post(body: bytes = BODY, *, headers: bytes = JSON, length: int | None = None, path: bytes = b"/v1/rank") -> bytes:
    size = len(body) if length is None else length
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s" % (path, headers, size, body)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "model"
    save(Single(RankSVM()).fit(make_judged(20, 6, 3, seed=1)), folder)
    return folder


@dataclass
class Here:
    """A server in a thread of this process."""

    port: int
    server: server.Server

    def line(self, *sent: bytes) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        try:
            for each in sent:
                found.sendall(each)
        except OSError:
            found.close()
            raise
        return found

    def ask(self, *sent: bytes) -> bytes:
        """All that is answered until the server closes."""
        with self.line(*sent) as line:
            return everything(line)

    def is_well(self) -> bool:
        with self.line(GET) as line:
            return line.recv(65_536).startswith(b"HTTP/1.1 200")


def everything(line: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := line.recv(65_536):
            parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def serving_here(model: Path, *, token: str | None = None, most: int = 200, limits: Limits | None = None) -> Any:
    service = Service(ModelFolder(model), token=token, limits=limits)
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        own = server.Server(service, create_api(service), Hosts("127.0.0.1"), most)
        thread = threading.Thread(target=own.run, args=([listening],))
        thread.start()
        until(lambda: own.started)
        try:
            yield Here(listening.getsockname()[1], own)
        finally:
            own.should_exit = True
            thread.join()


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def quick() -> Iterator[pytest.MonkeyPatch]:
    """Shorter times, so that a test need not wait for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "SECONDS", 0.5)
        patch.setattr(connection, "LINGER_SECONDS", 0.5)
        patch.setattr(server, "_SWEEP_SECONDS", 0.1)
        yield patch


@pytest.fixture(scope="module")
def here(model: Path, quick: pytest.MonkeyPatch) -> Iterator[Here]:
    with serving_here(model) as found:
        yield found


def refusal(answer: bytes) -> tuple[int, str]:
    """Status and code of an answer in the one shape of errors."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    assert b"connection: close" in head.lower()
    error = json.loads(body)["error"]
    assert set(error) == {"code", "message", "where"}
    return int(head.split()[1]), error["code"]


# ---- heads

LONG: dict[str, tuple[bytes, tuple[int, str]]] = {
    "a URL": (b"GET /?q=" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", (414, "long_url")),
    "a URL without an end": (b"GET /" + b"x" * 200_000, (414, "long_url")),
    "many headers": (
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        (431, "many_headers"),
    ),
    "many headers without an end": (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 2000, (431, "many_headers")),
    "one long header": (b"GET / HTTP/1.1\r\nHost: localhost\r\na: " + b"b" * 100_000 + b"\r\n\r\n", (431, "long_head")),
    "a header without an end": (b"GET / HTTP/1.1\r\na: " + b"b" * 200_000, (431, "long_head")),
    "a long name of a header": (b"GET / HTTP/1.1\r\n" + b"b" * 200_000, (431, "long_head")),
    "empty lines": (b"\r\n" * 100_000, (431, "long_head")),
    "a second head": (GET + b"GET / HTTP/1.1\r\na: " + b"b" * 200_000, (431, "long_head")),
    "headers after the body": (
        CHUNKED + b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * 50_000,
        (431, "many_headers"),
    ),
    "a word beside the size of a chunk": (
        CHUNKED + b"2\r\n{}\r\n2;" + b"a" * 800_000,
        (431, "long_head"),
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_a_head_that_is_too_long_is_refused(here: Here, name: str) -> None:
    sent, expected = LONG[name]
    answer = here.ask(sent)
    assert refusal(answer[answer.rindex(b"HTTP/1.1 ") :]) == expected
    assert answer.startswith(b"HTTP/1.1 200") == (name == "a second head"), "what was right before is answered first"
    assert here.is_well()


@pytest.mark.parametrize(
    "sent",
    [b"GET /?q=" + b"x" * 16_000 + b" HTTP/1.1\r\nHost: localhost\r\n", GET[:-2] + b"a: b\r\n" * 90,
     GET[:-2] + b"a: " + b"b" * 60_000 + b"\r\n"],
)  # fmt: skip
def test_a_head_within_the_bounds_is_read(here: Here, sent: bytes) -> None:
    assert here.ask(sent + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_a_body_that_comes_with_its_head_is_no_head(here: Here) -> None:
    long = BODY[:-1] + b" " * 300_000 + b"}"
    assert here.ask(post(long, headers=JSON + b"Connection: close\r\n")).startswith(b"HTTP/1.1 200")


def test_headers_after_the_body_are_no_headers_of_the_request(model: Path) -> None:
    head = b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%sTransfer-Encoding: chunked\r\n\r\n"
    body, allowed = b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY), b"Authorization: Bearer secret\r\n"
    with serving_here(model, token="secret") as there:
        assert refusal(there.ask(head % JSON + body + allowed + b"\r\n"))[0] == 401
        assert there.ask(head % (JSON + allowed) + body + b"\r\n").startswith(b"HTTP/1.1 200")
        harmless = there.ask(head % (JSON + allowed) + body + b"Content-Encoding: gzip\r\nHost: elsewhere\r\n\r\n")
        assert harmless.startswith(b"HTTP/1.1 200")


# ---- time


@pytest.mark.parametrize(
    "before", [b"", GET, post(), b"\r\n"], ids=["first", "second", "after a body", "after an empty line"]
)
def test_a_head_that_drips_is_cut_off(here: Here, before: bytes) -> None:
    with here.line(before) as line:
        if len(before) > 2:
            assert line.recv(65_536).startswith(b"HTTP/1.1 200")
        answer = dripped(line, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10_000)
    assert refusal(answer) == (408, "too_slow")


def dripped(line: socket.socket, content: bytes) -> bytes:
    """What is answered to a client that sends a byte at a time."""
    line.settimeout(0.05)
    for byte in content:
        line.sendall(bytes([byte]))
        with contextlib.suppress(TimeoutError):
            answer = line.recv(65_536)
            line.settimeout(20)
            return answer + everything(line)  # `refusal` reads one error, and nothing after it
    raise AssertionError("nobody stopped it")


def test_idle_connections_are_closed_without_a_word(here: Here) -> None:
    assert here.ask() == b""
    assert here.ask(GET).count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("status", [401, 404, 413, 405])
def test_a_body_that_nobody_reads_does_not_hold_the_connection(
    model: Path, quick: pytest.MonkeyPatch, status: int
) -> None:
    path = {404: b"/nowhere", 405: b"/healthz"}.get(status, b"/v1/rank")
    token = b"Authorization: Bearer t\r\n" if status != 401 else b""
    with serving_here(model, token="t") as here:
        size = 10**9 if status == 413 else 1000
        with here.line(post(b"{", headers=JSON + token + b"Expect: 100-continue\r\n", length=size, path=path)) as line:
            answer = everything(line)  # it is not kept open, although the body never arrives
            assert answer.startswith(b"HTTP/1.1 %d" % status), "and not 100, which asks for the body"
            assert refusal(answer)[0] == status
            with pytest.raises(ConnectionError):
                send_on(line, b"x")


def one_answer(line: socket.socket) -> bytes:
    """The head of the next answer on a connection that is kept open; its body is read too."""
    head, _, body = until_there(line, b"\r\n\r\n").partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    assert length is not None
    while len(body) < int(length[1]):
        body += line.recv(65_536)
    return head


def until_there(line: socket.socket, wanted: bytes) -> bytes:
    found = b""
    while wanted not in found:
        part = line.recv(65_536)
        assert part, "the connection is still open"
        found += part
    return found


def send_on(line: socket.socket, content: bytes) -> None:
    for _ in range(1000):
        line.sendall(content)
        time.sleep(0.02)


def test_a_client_that_still_sends_gets_to_read_the_refusal(model: Path, quick: pytest.MonkeyPatch) -> None:
    with serving_here(model, token="t") as here:
        head = post(b"", length=8_000_000)
        answer = here.ask(head, b"x" * 8_000_000)  # all is sent before the answer is read
        assert refusal(answer) == (401, "unauthorised")


def test_an_answer_before_the_body_is_there_says_that_the_connection_is_closed(here: Here) -> None:
    with here.line(post(b"", length=4, path=b"/nowhere")) as line:
        assert b"connection: close" in line.recv(65_536)
    with here.line(post(b"1234", path=b"/nowhere")) as line:
        assert b"connection: close" not in one_answer(line)
        line.sendall(GET)
        assert line.recv(65_536).startswith(b"HTTP/1.1 200"), "with the body there, the connection is kept"


def test_a_client_that_does_not_read_is_cut_off(here: Here, quick: pytest.MonkeyPatch) -> None:
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(20)
        line.connect(("127.0.0.1", here.port))
        ask = b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
        with pytest.raises(ConnectionError):
            send_on(line, ask)
    until(lambda: not here.server.server_state.connections)
    assert here.is_well()


# ---- many requests at a time


def test_requests_sent_ahead_are_answered_in_order_up_to_a_bound(here: Here) -> None:
    few = here.ask(*[GET] * 20, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert few.count(b"HTTP/1.1 200") == 21
    many = here.ask(GET * 1000)
    assert 0 < many.count(b"HTTP/1.1 200") <= 101
    assert refusal(many[many.rindex(b"HTTP/1.1 ") :]) == (429, "queued")


def test_requests_sent_ahead_whose_client_is_gone_are_given_up_without_a_word(
    here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    """Not the newest alone: an answer to an earlier one would be written to a connection that is closed."""
    batch = b'{"requests":[%s]}' % b",".join([BODY] * 900)
    for _ in range(10):
        with here.line(post(batch, path=b"/v1/rank/batch") + post() * 3) as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert here.is_well()
    time.sleep(0.5)
    assert here.is_well()
    assert not [each for each in caplog.records if each.exc_info]


def test_what_is_not_http_after_a_request_does_not_take_its_answer(here: Here) -> None:
    answer = here.ask(post() + b"nonsense\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert refusal(answer[answer.rindex(b"HTTP/1.1 ") :]) == (400, "not_http")


MALFORMED = {
    "words": b"what is this?\r\n\r\n",
    "no method": b"RANK /v1/rank HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "a length and chunks": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length that is no number": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
    "another version": b"GET / HTTP/3.7\r\nHost: localhost\r\n\r\n",
    "no path": b"GET http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a tunnel": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "letters that are not ASCII": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "zero bytes": b"\0" * 100,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 100,
    "a size of a chunk": CHUNKED + b"zz\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_not_http_is_refused_in_the_one_shape(here: Here, name: str) -> None:
    assert refusal(here.ask(MALFORMED[name])) == (400, "not_http")
    assert here.is_well()


def test_a_request_for_another_protocol_is_answered_in_this_one(here: Here) -> None:
    for protocol in (b"websocket", b"h2c"):
        answer = here.ask(GET[:-2] + b"Connection: Upgrade\r\nUpgrade: %s\r\n\r\n" % protocol + b"\x81\x05hello")
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.count(b"HTTP/1.1 ") == 1


# ---- many connections


class Line:
    """A connection that notes what is done to it."""

    def __init__(self, size: int = 0) -> None:
        self.evicted = False
        self.size = size

    def expire(self, now: float) -> None:
        raise AssertionError("not asked")

    def evict(self) -> None:
        self.evicted = True


def test_a_new_connection_takes_the_place_of_the_one_that_waits_longest() -> None:
    every = Connections(8)
    lines = [Line() for _ in range(4)]
    clients = [every.admit(each, "a") for each in lines]
    assert [each.evicted for each in lines] == [True, True, False, False], "one address has a quarter"
    clients[2].waiting.pop(lines[2])  # its request is complete
    newer = Line()
    every.admit(newer, "a")
    assert (lines[2].evicted, lines[3].evicted) == (False, True)
    clients[2].waiting.pop(newer)
    refused = Line()
    assert refused not in every.admit(refused, "a").waiting, "all have complete requests"
    clients[2].wait(lines[0])
    assert lines[0] not in clients[2].waiting, "one that has ended does not wait"
    clients[2].wait(lines[2])
    assert refused not in clients[2].held
    others = {name: [Line(), Line()] for name in "bcd"}
    for name, pair in others.items():
        for each in pair:
            every.admit(each, name)
    assert every.count == 8
    clients[2].release(newer)
    assert every.admit(newer, "e").held == {newer}
    last = Line()
    every.admit(last, "e")
    assert [each.evicted for each in others["b"]] == [True, False], "of those with the most, who waits longest"
    assert every.count == 8


def test_when_all_hold_too_much_the_largest_of_the_client_with_most_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", 100)
    every = Connections(80)
    lines = {"a": [Line(30), Line(20), Line(40)], "b": [Line(45)], "c": [Line(1)]}
    for name, some in lines.items():
        for each in some:
            every.admit(each, name)
    every.add_bytes(15_999_999)
    assert every.count == 5, "not looked yet"
    every.add_bytes(1)
    assert [each.evicted for each in lines["a"]] == [False, False, True]
    assert not lines["b"][0].evicted
    assert every.count == 4


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is cut off for being slow; all connections together may hold 30 MB."""
    monkeypatch.setattr(connection, "SECONDS", 60.0)
    monkeypatch.setattr(connection, "MOST_BYTES", 30_000_000)


@pytest.mark.parametrize("then", [b"", GET * 2, b"close"])
def test_answers_that_are_not_read_are_bounded_together(model: Path, patient: None, then: bytes) -> None:
    row = b'{"id": "%s%d", "features": [1, 2, 3]}'
    body = b'{"query": {"id": "q"}, "documents": [%s]}' % b",".join(row % (b"x" * 700, each) for each in range(20_000))
    asked = post(body, headers=JSON + b"Connection: close\r\n") if then == b"close" else post(body) + then
    with serving_here(model, most=400) as here, contextlib.ExitStack() as lines:
        for _ in range(12):  # the answer to each has 14 MB
            with contextlib.suppress(ConnectionError):  # one that still sends may be the largest
                lines.enter_context(here.line(asked))
        until(lambda: here.server.server_state.count <= 6)
        until(lambda: held_bytes(here) <= 30_000_000 + 16_000_000)
        assert here.is_well()
        with here.line(post(headers=JSON)) as line:
            assert one_answer(line).startswith(b"HTTP/1.1 200")


def test_bodies_that_do_not_end_are_bounded_together(model: Path, patient: None) -> None:
    with serving_here(model, most=400) as here, contextlib.ExitStack() as lines:
        for _ in range(12):
            with contextlib.suppress(ConnectionError):
                lines.enter_context(here.line(post(b" " * 8_000_000, length=9_000_000)))
        until(lambda: here.server.server_state.count <= 6, seconds=6)
        assert held_bytes(here) <= 30_000_000 + 16_000_000
        assert here.is_well()


def held_bytes(here: Here) -> int:
    state = here.server.server_state
    assert isinstance(state, Connections)
    return sum(each.size for client in list(state.clients.values()) for each in list(client.held))


def test_new_clients_get_in_whatever_the_others_do(model: Path) -> None:
    with serving_here(model, most=80) as here:
        kinds = [b"", b"GET /hea", b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"]
        with here.line(GET) as kept:
            assert kept.recv(65_536).startswith(b"HTTP/1.1 200")
            left = [here.line(kinds[number % 3]) for number in range(120)]
            try:
                for _ in range(30):
                    assert here.is_well()
                    assert here.ask(post(headers=JSON + b"Connection: close\r\n")).startswith(b"HTTP/1.1 200")
                until(lambda: here.server.server_state.count <= 20)
                # Made way for another one, or, on a busy machine, was out of time before.
                assert refusal(everything(left[1])) in {(503, "too_many_connections"), (408, "too_slow")}
                assert everything(left[0]) == b""
            finally:
                for line in left:
                    line.close()
        until(lambda: here.server.server_state.count == 0)
        assert here.server.server_state.clients == {}


# ---- the web


def head(host: str = "localhost:8080", origin: str = "", kind: str = "application/json") -> Head:
    given = {b"host": host, b"origin": origin, b"content-type": kind}
    return Head.of([(name, value.encode()) for name, value in given.items() if value])


@pytest.mark.parametrize(
    ("listening", "good", "bad"),
    [
        ("127.0.0.1", "localhost LOCALHOST:8080 localhost. 127.0.0.1:80 127.1.2.3 [::1]:8080", "10.0.0.1 localhost.me"),
        ("localhost", "localhost 127.0.0.1:80", "10.0.0.1 example.org"),
        ("::1", "[::1] localhost 127.0.0.1", "[::2] example.org"),
        ("10.0.0.7", "10.0.0.7 10.0.0.7:8080", "10.0.0.8 127.0.0.1 localhost ten"),
        ("0.0.0.0", "10.0.0.7 [2001:db8::1]:80 localhost", "example.org 10.0.0.7.example.org 0x7f000001 1.2.3"),
        ("::", "10.0.0.7 [2001:db8::1]:80 localhost", "example.org"),
        ("", "10.0.0.7", "example.org"),
        ("box.lan", "box.lan BOX.LAN:1 10.0.0.7", "lan other.lan 10.0.0.8"),
    ],
)
def test_a_server_answers_to_the_address_it_listens_on(listening: str, good: str, bad: str) -> None:
    hosts = Hosts(listening)
    hosts.add({"box.lan": "10.0.0.7", "localhost": "127.0.0.1"}.get(listening, listening or "0.0.0.0"))
    for _ in range(2):  # the second time it remembers
        for name in good.split():
            assert hosts.problem(head(name)) is None, name
        for name in bad.split():
            problem = hosts.problem(head(name))
            assert problem is not None, name
            assert (problem.status, problem.where) == (421, "host")


@pytest.mark.parametrize("wrong", ["", "a b", "a/b", "user@localhost", "localhost:port", "[localhost]", "localhost,b"])
def test_a_host_that_cannot_be_read_is_refused(wrong: str) -> None:
    problem = Hosts("127.0.0.1").problem(head(wrong))
    assert problem is not None
    assert problem.status == 400
    twice = Hosts("127.0.0.1").problem(Head.of([(b"host", b"localhost"), (b"host", b"localhost")]))
    assert twice is not None
    assert "2 headers `Host`" in twice.message


def test_names_that_the_server_was_told() -> None:
    hosts = Hosts("127.0.0.1", ["Search.Example.org", "ranker", "10.1.2.3"])
    for name in ("search.example.org", "ranker:8080", "10.1.2.3", "localhost"):
        assert hosts.problem(head(name)) is None
    assert hosts.problem(head("example.org")) is not None
    for wrong in ("http://a", "a:80", "a b", "", "*", "*.example.org"):
        with pytest.raises(DataError, match=r"allowed_host=.*expected a name such as"):
            Hosts("127.0.0.1", [wrong])
    assert hosts.problem(head("localhost")) is None
    done = run(None, "serve", "nowhere", "--allowed-host", "http://a")
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("origin", "host", "fine"),
    [
        ("", "localhost:8080", True),
        ("http://localhost:8080", "localhost:8080", True),
        ("https://localhost", "localhost:443", True),
        ("http://LOCALHOST:80", "localhost", True),
        ("https://search.example.org", "127.0.0.1:8080", True),  # a name it was told: a proxy is in front
        ("http://localhost:3000", "localhost:8080", False),
        ("http://evil.example", "localhost:8080", False),
        ("http://localhost:8080.evil.example", "localhost:8080", False),
        ("null", "localhost:8080", False),
        ("http://", "localhost:8080", False),
        ("file://", "localhost:8080", False),
    ],
)
def test_posts_from_other_pages_are_refused(origin: str, host: str, fine: bool) -> None:
    hosts = Hosts("127.0.0.1", ["search.example.org"])
    problem = post_problem(head(host, origin), hosts)
    assert (problem is None) == fine
    assert problem is None or (problem.status, problem.where) == (403, "origin")


@pytest.mark.parametrize(
    ("kind", "origin", "fine"),
    [
        ("application/json", "", True),
        ("Application/JSON; charset=utf-8", "http://localhost:8080", True),
        ("", "", True),
        ("", "http://localhost:8080", False),
        ("text/plain", "", False),
        ("application/x-www-form-urlencoded", "", False),
        ("multipart/form-data; boundary=x", "", False),
        ("text/plain; application/json", "", False),
    ],
)
def test_posts_are_json(kind: str, origin: str, fine: bool) -> None:
    problem = post_problem(head(origin=origin, kind=kind), None)
    assert (problem is None) == fine
    assert problem is None or (problem.status, problem.where) == (415, "content-type")


def test_the_checks_are_made_of_every_request(here: Here) -> None:
    closing = b"Connection: close\r\n\r\n"
    evil = b"GET /v1/model HTTP/1.1\r\nHost: evil.example:8080\r\n" + closing
    assert refusal(here.ask(evil)) == (421, "wrong_host")
    assert refusal(here.ask(evil.replace(b"Host: evil.example:8080\r\n", b""))) == (400, "bad_host")
    for path in (b"/healthz", b"/readyz"):
        assert here.ask(evil.replace(b"/v1/model", path)).startswith(b"HTTP/1.1 200"), "probes name any host"
    assert refusal(here.ask(evil.replace(b"/v1/model", b"/metrics"))) == (421, "wrong_host")
    assert refusal(here.ask(post(headers=JSON + b"Origin: http://evil.example\r\n" + closing[:-2]))) == (
        403,
        "other_origin",
    )
    assert refusal(here.ask(post(headers=b"Content-Type: text/plain\r\n" + closing[:-2]))) == (415, "media_type")


@pytest.mark.parametrize(
    ("url", "host", "status"),
    [
        (b"http://evil.example/v1/model", b"localhost", 400),
        (b"http://evil.example", b"localhost", 400),
        (b"http://evil.example?a=//localhost/", b"localhost", 400),
        (b"http://user@localhost/v1/model", b"localhost", 400),
        (b"http://evil.example/v1/model", b"evil.example", 421),
        (b"http://localhost:80/v1/model", b"localhost", 200),
        (b"/v1/model?a=http://evil.example/", b"localhost", 200),
    ],
)
def test_a_host_in_the_url_is_checked_too(here: Here, url: bytes, host: bytes, status: int) -> None:
    answer = here.ask(b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (url, host))
    assert int(answer.split()[1]) == status
    if status != 200:
        assert refusal(answer) == (status, "bad_host" if status == 400 else "wrong_host")


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip\r\nTransfer-Encoding: chunked"])
def test_a_body_in_another_transfer_coding_is_refused(here: Here, coding: bytes) -> None:
    sent = CHUNKED.replace(b"chunked", coding) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    assert refusal(here.ask(sent)) == (501, "encoded")
    assert here.is_well()


@pytest.mark.parametrize(
    "twice",
    [
        b"Content-Type: text/plain\r\nContent-Type: application/json\r\n",
        JSON + b"Origin: http://evil.example\r\nOrigin: http://localhost\r\n",
        JSON + b"Origin:\r\nOrigin: http://localhost\r\n",
        JSON + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n",
    ],
)
def test_a_header_that_says_who_asks_is_there_once(here: Here, twice: bytes) -> None:
    assert refusal(here.ask(post(headers=twice + b"Connection: close\r\n"))) == (400, "repeated_header")


@pytest.mark.parametrize("path", [b"/v1%2fmodel", b"/v1%2Fmodel", b"/%2fhealthz", b"/v1/model%2f"])
def test_an_encoded_slash_is_not_one_of_a_path(here: Here, path: bytes) -> None:
    answer = here.ask(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path)
    assert refusal(answer) == (404, "not_found")


@pytest.mark.parametrize("path", [b"/v1/rank/", b"/v1/model/", b"//evil.example", b"/healthz/"])
def test_nobody_is_sent_elsewhere(here: Here, path: bytes) -> None:
    answer = here.ask(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path)
    assert refusal(answer) == (404, "not_found")
    assert b"location" not in answer.lower()
