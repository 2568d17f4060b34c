"""Checks that a request must pass: host, token and origin, the length of the body, its JSON, its documents.

Other web sites are kept out: requests name this server as host, and posts come from its own page, as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeVar

import msgspec
from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from querywise.data.json_rows import cut_rows
from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.service.api import FILES, ApiError, error_response
from querywise.service.documents import FeatureColumns
from querywise.service.limits import Hosting, Limits
from querywise.service.schema import UnreadBatch, WeightsRequest, WithDocuments, sizes

_Result = TypeVar("_Result")
_Asking = TypeVar("_Asking", bound=WithDocuments | WeightsRequest)
logger = logging.getLogger("querywise.service")

_UNREAD = msgspec.json.Decoder(UnreadBatch)
_FEW_VALUES, _VALUES = 100_000, 10  # in any body, and for each document
_HEALTH = {"/healthz", "/readyz"}
_NO_TOKEN_NEEDED = _HEALTH | set(FILES)
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_HOST = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::\d{0,5})?", re.ASCII)
_NAME = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)
_ONCE = {each.replace("_", "-").encode(): each for each in ("origin", "content_type", "authorization")}
_REMEMBERED = 256  # values of Host that were found good


class Guard:
    """ASGI middleware around the whole application: checks the head of every request, before its body is read.

    hosts: the host names that requests may use; None allows any. Requests are also counted and timed.
    """

    def __init__(self, app: ASGIApp, service: Hosting, hosts: Hosts | None = None) -> None:
        self._app = app
        self._service = service
        self._hosts = hosts
        self._token = None if service.token is None else service.token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        service, begun, status = self._service, time.perf_counter(), 500
        if scope["method"] == "HEAD":  # answered as GET; the server leaves the body out
            scope = {**scope, "method": "GET"}
        complete = False

        async def observed_send(message: Message) -> None:
            nonlocal status, complete
            if message["type"] == "http.response.start":
                status = message["status"]
                if service.closing:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        service.metrics.in_flight += 1
        try:
            problem = self._problem(scope)
            if problem is None:
                await self._app(scope, receive, observed_send)
            else:
                more = {"www-authenticate": "Bearer"} if problem.status == 401 else None
                answer = error_response(problem.status, problem.code, problem.message, problem.where, more)
                await answer(scope, receive, observed_send)
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if not complete:  # the response was cut off: the server must close the connection
                raise
        finally:
            service.metrics.in_flight -= 1
            service.metrics.answered(_path_label(scope), status, time.perf_counter() - begun)

    def _problem(self, scope: Scope) -> ApiError | None:
        """What is wrong with the head of a request."""
        head = Head.of(scope["headers"])
        if self._hosts is not None and scope["path"] not in _HEALTH:
            problem = self._hosts.problem(head)
            if problem is not None:
                return problem
        if self._is_unauthorised(scope["path"], head.authorization):
            return ApiError(401, "unauthorised", "Send the token: `Authorization: Bearer …`.")
        if b"%2f" in scope.get("raw_path", b"").lower():  # it is a slash within a name, and no name has one
            return ApiError(404, "not_found", "The path has an encoded slash. Send it as `/`.")
        return repeated_problem(head) or (post_problem(head, self._hosts) if scope["method"] == "POST" else None)

    def _is_unauthorised(self, path: str, given: bytes) -> bool:
        if self._token is None or path in _NO_TOKEN_NEEDED:
            return False
        scheme, _, word = given.partition(b" ")
        return scheme.lower() != b"bearer" or not hmac.compare_digest(word.strip(), self._token)


def _path_label(scope: Scope) -> str:
    """Return the path of the route. All unknown paths share a label: otherwise a client could create any number."""
    route = scope.get("route")
    return str(route.path) if route is not None else "other"


async def read_body(request: Request, limits: Limits) -> bytes:
    """Return the body of a request. Raise an error as soon as it is too long, or arrives too slowly."""
    for name, value in request.scope["headers"]:
        if name == b"content-encoding" and value != b"identity":
            found = value.decode("latin-1")
            raise ApiError(415, "encoded", f"The body is encoded as {found}; send it as it is.", "content-encoding")
        if name == b"content-length" and value.isdigit() and int(value) > limits.body_bytes:
            raise _too_long(limits)
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(limits.seconds):
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ApiError(400, "gone", "The connection was closed before the body was complete.")
                part, more = message.get("body", b""), message.get("more_body", False)
                size += len(part)
                if size > limits.body_bytes:
                    raise _too_long(limits)
                parts.append(part)
    except TimeoutError:
        raise ApiError(408, "too_slow", f"The body was not there within {limits.seconds:g} seconds.") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_long(limits: Limits) -> ApiError:
    return ApiError(
        413, "too_long", f"The body is longer than {limits.body_bytes} bytes. Send fewer documents at a time."
    )


def check_values(body: bytes, limits: Limits) -> None:
    """Reject a body with far more values than its documents have, before parsing it, which blocks all requests."""
    most = _FEW_VALUES + _VALUES * limits.documents
    if body.count(b",") > most:
        raise ApiError(413, "too_many_values", f"The body has more than {most} values. Send fewer runs or documents.")


def check_queries(body: bytes, limits: Limits) -> None:
    """Reject a batch with more queries than are allowed, before parsing it, which blocks all requests."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # said when it is decoded
        check_counts(limits, documents=0, features=0, queries=len(_UNREAD.decode(body).requests))


def decode(decoder: msgspec.json.Decoder[_Result], body: bytes) -> _Result:
    """Return the body as an object. Raise an error that says what is wrong and where."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        raise ApiError(422, "invalid", f"{message}.", where.strip("`").removeprefix("$").lstrip(".") or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, "not_json", f"The body is not JSON that can be read: {error}.") from None


def decode_documents(
    decoder: msgspec.json.Decoder[_Asking], body: bytes, features: FeatureColumns
) -> tuple[_Asking, Floats | None]:
    """The body as an object, and the features of all its documents, where one pass over them could read these.

    A document has one or more keys "features". If as many arrays were cut out as there are documents, each has one,
    and the rows of the table are those of the documents. Any other body is decoded whole, and so is a wrong one.
    """
    cut = cut_rows(body, len(features.names), features.absent)
    if cut is not None:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            asked = decoder.decode(cut.rest)
            if sum(sizes(asked)) == len(cut.rows):
                return asked, cut.rows
    return decode(decoder, body), None


def check_counts(limits: Limits, *, documents: int, features: int, queries: int = 1) -> None:
    """Raise an error for more queries or documents, or a larger table of features, than the limits allow.

    A document whose features are given by name has a whole row of the table, however few of them are given.
    """
    if queries > limits.queries:
        raise ApiError(
            413,
            "too_many_queries",
            f"The request has {queries} queries; up to {limits.queries} are answered at a time.",
            "requests",
        )
    if documents > limits.documents:
        raise ApiError(
            413,
            "too_many_documents",
            f"The request has {documents} documents; up to {limits.documents} are ranked at a time.",
            "documents",
        )
    if 8 * documents * features > limits.table_bytes:
        most = limits.table_bytes // (8 * features)
        raise ApiError(
            413,
            "too_many_documents",
            f"The request has {documents} documents of {features} features each; up to {most} such documents are "
            "ranked at a time.",
            "documents",
        )


@dataclass(slots=True)
class Head:
    """The headers of a request that are checked before its body is read; empty if absent."""

    host: bytes = b""
    origin: bytes = b""
    content_type: bytes = b""
    authorization: bytes = b""
    hosts: int = 0
    repeated: str = ""  # the name of another header that was sent twice

    @classmethod
    def of(cls, headers: Iterable[tuple[bytes, bytes]]) -> Self:
        """Return the head of a request, given all of its headers."""
        head, seen = cls(), set[bytes]()
        for name, value in headers:
            if name == b"host":
                head.host = value
                head.hosts += 1
            elif name in _ONCE:
                if name in seen:
                    head.repeated = name.decode()
                seen.add(name)
                setattr(head, _ONCE[name], value)
        return head


class Hosts:
    """The names of this server.

    These are the address that it listens on, and names it was told. On a loopback address, these are all loopback
    addresses and `localhost`; on all addresses (0.0.0.0), any address: a site of somebody else has a name.
    """

    def __init__(self, listening: str, allowed: Iterable[str] = ()) -> None:
        self._told = {_checked(name) for name in allowed}
        self._names = set(self._told)
        self._addresses: list[_Address] = []
        self._good: set[bytes] = set()
        self.add(listening or "0.0.0.0")

    def add(self, listening: str) -> None:
        """Add a name or an address that the server listens on."""
        address = _address(listening)
        if address is None:
            self._names.add(listening.lower())
        else:
            self._addresses.append(address)
            if address.is_loopback or address.is_unspecified:
                self._names.add("localhost")

    def problem(self, head: Head) -> ApiError | None:
        """Why a request is not for this server."""
        if head.host in self._good and head.hosts == 1:
            return None
        name = host_name(head.host)
        if head.hosts != 1 or name is None:
            found = "no header `Host`" if not head.hosts else f"{head.hosts} headers `Host`, or one that cannot be read"
            message = f"The request has {found}. Send one with the name or the address of this service."
            return ApiError(400, "bad_host", message, "host")
        if not self.has(name):
            message = f"This service is not called {name!r}. Ask it by its address, or have it started with this name."
            return ApiError(421, "wrong_host", message, "host")
        if len(self._good) < _REMEMBERED:
            self._good.add(head.host)
        return None

    def has(self, name: str) -> bool:
        """Whether a name or an address belongs to this server."""
        if name in self._names:
            return True
        given = _address(name)
        return given is not None and any(
            given == own or own.is_unspecified or (own.is_loopback and given.is_loopback) for own in self._addresses
        )

    def told(self, name: str) -> bool:
        """Whether the user gave the server this name."""
        return name in self._told


def repeated_problem(head: Head) -> ApiError | None:
    """Return why a proxy could read a request differently: a repeated header about its sender or its content."""
    if not head.repeated:
        return None
    return ApiError(
        400, "repeated_header", f"The header `{head.repeated}` is there twice. Send it once.", head.repeated
    )


def other_host(url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> ApiError | None:
    """Return why the host in a URL is not the one that the header names, which is checked later."""
    place = url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
    if url.startswith(b"/") or not place or _plain(place) == _plain(Head.of(headers).host):
        return None
    return ApiError(400, "bad_host", "The URL and the header `Host` name different hosts. Send a path alone.", "host")


def post_problem(head: Head, hosts: Hosts | None) -> ApiError | None:
    """Return why a request with a body may have been sent by another web site."""
    if head.origin:
        place = _plain(head.origin.partition(b"://")[2])
        name = host_name(place)
        if name is None or (place != _plain(head.host) and (hosts is None or not hosts.told(name))):
            found = head.origin.decode("latin-1")
            message = f"The request comes from a page of {found}, and only the page of this service may ask."
            return ApiError(403, "other_origin", message, "origin")
    kind = head.content_type.partition(b";")[0].strip().lower()
    if kind != b"application/json" and (kind or head.origin):
        found = f"The body is sent as {kind.decode('latin-1')}" if kind else "The request has no content type"
        message = f"{found}; send JSON, with the header `Content-Type: application/json`."
        return ApiError(415, "media_type", message, "content-type")
    return None


def host_name(value: bytes) -> str | None:
    """The name or address in a value of `Host`, without its port; None if it has none."""
    found = _HOST.fullmatch(value)
    return None if found is None else found[1].decode().strip("[]").lower().removesuffix(".")


def _plain(place: bytes) -> bytes:
    """A host with its port; the usual ports, which may be left out, are."""
    return place.lower().removesuffix(b":80").removesuffix(b":443")


def _checked(name: str) -> str:
    plain = name.strip("[]").lower().removesuffix(".")
    if _address(plain) is None and _NAME.fullmatch(plain) is None:
        said = f"allowed_host={name!r}: expected a name such as 'search.example.org', without http:// and a port."
        raise DataError(said, arguments=("allowed_host",))
    return plain


def _address(name: str) -> _Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
