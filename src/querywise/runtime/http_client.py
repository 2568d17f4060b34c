"""HTTP requests to other machines, each with limits on bytes and time. No other module sends requests.

Redirects are not followed, so request headers reach only the origin that the caller names. A response is read in
pieces, up to the caller's limit. Errors are one line and contain no header values. Only Python's standard library is
needed, because exported scripts include this module's source.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

PIECE = 65_536  # bytes per read
EXCERPT = 10_000  # bytes read of an error response
PORTS = {"http": 80, "https": 443}
PUBLIC = {"accept", "content-type"}  # headers whose values are not secret

Failure = Literal["unreachable", "late", "broken", "refused"]


class RequestError(Exception):
    """The reason why a request failed, in one line.

    `kind` is `unreachable` if no connection was made, `late` if time ran out, `broken` if the connection or its HTTP
    failed, and `refused` if the response breaks a rule, so that a retry would not help.
    """

    def __init__(self, kind: Failure, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class HttpResponse(NamedTuple):
    """A response: its status, its content, the seconds to wait before a retry, and the secrets to hide."""

    status: int
    content: bytes
    wait: float
    secrets: tuple[str, ...]

    def shown(self, length: int) -> str:
        """Return the beginning of the content, on one line, with secrets hidden."""
        return one_line(self.content[:EXCERPT].decode(errors="replace"), self.secrets, length)


def ask(
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    largest: int,
    silence: float,
    seconds: float,
) -> HttpResponse:
    """Send one request to an address that the operator configured. Raise RequestError if there is no response.

    Args:
        method: the HTTP method.
        url: the address.
        body: the content to send.
        headers: the headers to send.
        largest: the most bytes of a response.
        silence: seconds to wait for the server to send anything.
        seconds: the time limit for the whole request.
    """
    sent = dict(headers or {})
    secrets = secrets_in(sent)
    until = time.monotonic() + seconds
    try:
        parts = split_url(url)
        check_headers(sent)
        with connected(parts, silence, until) as connection:
            connection.request(method, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, sent)
            with connection.getresponse() as answer:
                content = read_within(answer, largest)
                wait = answer.headers.get("Retry-After", "")
    except RequestError as error:
        raise RequestError(error.kind, one_line(str(error), secrets, 500)) from None
    except TimeoutError:
        whole = time.monotonic() >= until
        told = f"the whole answer did not come within {seconds:g}" if whole else f"there was no sign for {silence:g}"
        raise RequestError("late", f"{told} seconds") from None
    except (OSError, HTTPException, ValueError) as error:
        kind: Failure = "unreachable" if isinstance(error, ssl.SSLError) else "broken"
        said = one_line(str(error) or type(error).__name__, secrets, 200)
        raise RequestError(kind, said) from None
    return HttpResponse(answer.status, content, float(wait) if wait.isdecimal() and len(wait) < 9 else 0.0, secrets)


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL. Raise RequestError if it is invalid or contains credentials."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in PORTS and bool(parts.hostname) and parts.port != 0 and parts.username is None
    except ValueError:
        sound = False
    if not sound or not all("!" <= letter <= "~" for letter in url):
        raise RequestError("refused", "expected an address like http://localhost:8080/path, without a name or password")
    return parts


def port_of(parts: SplitResult) -> int:
    """Return the port of a URL, by default that of its scheme."""
    return parts.port or PORTS[parts.scheme]


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, the unit to which requests and their headers belong."""
    parts = split_url(url)
    return f"{parts.scheme}://{parts.hostname}:{port_of(parts)}"


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise RequestError for a header value that HTTP cannot send; the message contains only the header's name."""
    for name, value in headers.items():
        if not all(" " <= letter <= "~" or "\xa0" <= letter <= "\xff" or letter == "\t" for letter in value):
            raise RequestError("refused", f"the value of {name} has a character that HTTP headers cannot hold")


def secrets_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return what no message may contain: header values and their last words, the longest first."""
    values = [value for name, value in headers.items() if name.lower() not in PUBLIC]
    found = {part for value in values for part in (value.strip(), *value.split()[-1:]) if part}
    return tuple(sorted(found, key=len, reverse=True))


def one_line(text: str, secrets: tuple[str, ...], length: int) -> str:
    """Return the beginning of a text on one line, with *** for every secret."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split())[:length])


@contextlib.contextmanager
def connected(parts: SplitResult, silence: float, until: float) -> Iterator[HTTPConnection]:
    """Yield a connection that is closed at the end of the block or of its time, however slowly bytes keep coming."""
    host, port, over, line = parts.hostname or "", port_of(parts), threading.Event(), opened(parts, silence, until)

    def end() -> None:
        over.set()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(line, socket.SHUT_RDWR)  # below TLS, whose state belongs to the other thread

    timer = threading.Timer(max(until - time.monotonic(), 0.0), end)
    timer.daemon = True
    timer.start()
    try:
        line.settimeout(silence)
        connection = HTTPConnection(host, port)
        if parts.scheme == "https":
            line = trusted().wrap_socket(line, server_hostname=host, do_handshake_on_connect=False)
            line.do_handshake()  # after `end` can find the socket
            connection = HTTPSConnection(host, port, context=trusted())
        connection.sock = line
        yield connection
    except (OSError, HTTPException, RequestError):
        if over.is_set():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()
        line.close()
    if over.is_set():
        raise TimeoutError


def opened(parts: SplitResult, silence: float, until: float) -> socket.socket:
    """Return a socket to the first address of a host that accepts.

    An unresponsive address leaves time for the others.
    """
    problem = "it has no address"
    try:
        places = socket.getaddrinfo(parts.hostname, port_of(parts), type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        places, problem = [], str(error)
    for tried, (family, kind, protocol, _, place) in enumerate(places):
        share = (until - time.monotonic()) / (len(places) - tried)
        try:
            line = socket.socket(family, kind, protocol)
        except OSError as error:  # an address family that this system lacks
            problem = str(error)
            continue
        try:
            line.settimeout(max(min(silence, share), 0.001))
            line.connect(place)
        except OSError as error:
            line.close()
            problem = str(error)
        else:
            return line
    raise RequestError("unreachable", problem)


@cache
def trusted() -> ssl.SSLContext:
    """Return the trusted certificates, which are read once."""
    return ssl.create_default_context()


def read_within(answer: HTTPResponse, largest: int) -> bytes:
    """Return a response's content.

    Raise RequestError for redirects and oversized content; read only the start of errors.
    """
    if 300 <= answer.status < 400:
        named = re.match(r"(?:https?:)?//(?:[^/?#]*@)?([^/?#]{1,100})", answer.headers.get("Location", ""))
        where = f" to {named[1]}" if named else ""
        raise RequestError("refused", f"status {answer.status}, a redirect{where}, which is not followed")
    good = answer.status < 300
    limit = largest if good else EXCERPT
    pieces, count = [], answer.length or 0
    if not good or count <= limit:
        count = 0
        while count <= limit and (piece := answer.read(min(PIECE, limit + 1 - count))):
            pieces.append(piece)
            count += len(piece)
    if good and count > limit:
        raise RequestError("refused", f"the answer has more than {limit} bytes")
    if good and answer.length:
        raise RequestError("broken", f"{count} bytes were received, and {answer.length} more were announced")
    return b"".join(pieces)[:limit]
