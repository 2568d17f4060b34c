"""Checks that a request must pass: host, token and origin, the length of the body, its JSON, how many documents."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from typing import TypeVar

import msgspec
from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from querywise.data.json_rows import cut_rows
from querywise.runtime.arrays import Floats
from querywise.service.documents import Features
from querywise.service.errors import ApiError
from querywise.service.hosts import Head, Hosts, post_problem, repeated_problem
from querywise.service.limits import Limits
from querywise.service.responses import error_response
from querywise.service.schema import UnreadBatch, WithDocuments
from querywise.service.service import Service
from querywise.service.static_files import FILES

_Result = TypeVar("_Result")
_Asking = TypeVar("_Asking", bound=WithDocuments)
logger = logging.getLogger("querywise.service")

_UNREAD = msgspec.json.Decoder(UnreadBatch)
_FEW_VALUES, _VALUES = 100_000, 10  # in any body, and for each document
_HEALTH = {"/healthz", "/readyz"}
_NO_TOKEN_NEEDED = _HEALTH | set(FILES)


class Guard:
    """ASGI middleware around the whole application: checks the head of every request, before its body is read.

    hosts: the names that requests may be sent to; None: any. Requests are counted and timed too.
    """

    def __init__(self, app: ASGIApp, service: Service, hosts: Hosts | None = None) -> None:
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
    """The path of the route. All unknown paths are one label: else a client could create any number of them."""
    route = scope.get("route")
    return str(route.path) if route is not None else "other"


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body of a request; refused as soon as it is known to be too long, or arrives too slowly."""
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
    """Refuse a body of many more values than its documents have, before each is made an object, which blocks all."""
    most = _FEW_VALUES + _VALUES * limits.documents
    if body.count(b",") > most:
        raise ApiError(413, "too_many_values", f"The body has more than {most} values. Send fewer runs or documents.")


def check_queries(body: bytes, limits: Limits) -> None:
    """Refuse a batch of more queries than are allowed before each is made an object, which blocks all."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # said when it is decoded
        check_counts(limits, documents=0, features=0, queries=len(_UNREAD.decode(body).requests))


def decode(decoder: msgspec.json.Decoder[_Result], body: bytes) -> _Result:
    """The body as an object; refused with what is wrong and where."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        raise ApiError(422, "invalid", f"{message}.", where.strip("`").removeprefix("$").lstrip(".") or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, "not_json", f"The body is not JSON that can be read: {error}.") from None


def decode_documents(
    decoder: msgspec.json.Decoder[_Asking], body: bytes, features: Features
) -> tuple[_Asking, Floats | None]:
    """The body as an object, and the features of all its documents, where one pass over them could read these.

    A document has one or more keys "features". If as many arrays were cut out as there are documents, each has one,
    and the rows of the table are those of the documents. Any other body is decoded whole, and so is a wrong one.
    """
    cut = cut_rows(body, len(features.names), features.absent)
    if cut is not None:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            asked = decoder.decode(cut.rest)
            if sum(asked.sizes) == len(cut.rows):
                return asked, cut.rows
    return decode(decoder, body), None


def check_counts(limits: Limits, *, documents: int, features: int, queries: int = 1) -> None:
    """Refuse more queries or documents than the limits allow, or a larger table of features of all documents.

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
