"""Connections bounded in bytes, time and number, whatever their clients send, do not send, or do not read.

HTTP itself is left to uvicorn's protocol, a class that its documentation does not describe and that changes between
versions: pyproject.toml bounds them, and `make oldest` tests the oldest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from querywise.service.api import ApiError, error_response
from querywise.service.guards import other_host

HEAD_BYTES = 65_536  # the longest head of a request: request line and headers
HEADERS = 100  # the most headers of a request, those after its body included
URL_BYTES = 16_384  # the longest URL
QUEUED = 100  # the most requests that one connection sends ahead of their responses
SECONDS = 10.0  # for a head to arrive, for the next request to begin, and for a client to read some of a response
READ_BYTES = 10_000  # what a client must read of a response in that time
LINGER_SECONDS = 2.0  # for a client to read a last response and close, before it is cut off
LINGER_BYTES = 16_000_000  # what it may still send meanwhile; this is not kept
PAUSE_SECONDS = 0.01  # between two parts of it
LAST_REQUEST_SECONDS = 0.5  # time for a last request on an idle connection, when the service stops
SHARE = 4  # one client may have a quarter of all connections
MOST_BYTES = 256_000_000  # that all connections together may hold
_LOOK_BYTES = 16_000_000  # that are added to them between two looks


class Held(Protocol):
    """What `Connections` needs of a connection."""

    @property
    def size(self) -> int:
        """The bytes that it holds: of an incomplete body, and of responses that its client has not read."""

    def expire(self, now: float) -> None:
        """End it, if it has waited for too long."""

    def evict(self) -> None:
        """End it now."""


class Client:
    """The connections of one address.

    waiting: those with no complete request, in the order in which they began to wait.
    """

    def __init__(self, address: str, connections: Connections) -> None:
        self._address = address
        self._connections = connections
        self.held: set[Held] = set()
        self.waiting: dict[Held, None] = {}

    def add(self, connection: Held) -> None:
        """Register a connection."""
        self._connections.clients[self._address] = self
        self._connections.count += 1
        self.held.add(connection)
        self.waiting[connection] = None

    def wait(self, connection: Held) -> None:
        """Note that a connection has no complete request, from now on."""
        if connection in self.held:
            self.waiting[connection] = None

    def release(self, connection: Held) -> None:
        """Forget a connection."""
        self.waiting.pop(connection, None)
        if connection in self.held:
            self.held.remove(connection)
            self._connections.count -= 1
            if not self.held:
                del self._connections.clients[self._address]

    def evict(self) -> None:
        """End the connection that has waited longest."""
        oldest = next(iter(self.waiting))
        self.release(oldest)
        oldest.evict()


class Connections(ServerState):
    """All connections: limits on their number, in total and per client, and which one ends when another needs room.

    When there are too many, a new one takes the place of one that waits for a request: of the same client if that
    has its share, else of the client with the most connections. A connection whose request is complete is left alone.
    When they hold too many bytes, those that hold most end, of the client that holds most.

    most: how many there may be.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._most_of_one = max(1, most // SHARE)
        self.count = 0
        self.clients: dict[str, Client] = {}
        self._added = 0  # bytes, since the last look at who holds how many

    def add_bytes(self, count: int) -> None:
        """Note that a connection holds more than before; now and then, end some if all hold too much."""
        self._added += count
        if self._added >= _LOOK_BYTES:
            self._added = 0
            self._relieve()

    def _relieve(self) -> None:
        sizes = {client: {each: each.size for each in client.held} for client in self.clients.values()}
        totals = {client: sum(each.values()) for client, each in sizes.items()}
        excess = sum(totals.values()) - MOST_BYTES
        while excess > 0:
            fullest = max(totals, key=totals.__getitem__)
            largest = max(sizes[fullest], key=sizes[fullest].__getitem__)
            ended = sizes[fullest].pop(largest)
            totals[fullest] -= ended
            excess -= ended
            fullest.release(largest)
            largest.evict()

    def admit(self, connection: Held, address: str) -> Client:
        """Return a connection's client, registered with it if there is room or a waiting connection can end."""
        client = self.clients.get(address) or Client(address, self)
        if len(client.held) >= self._most_of_one:
            full: Client | None = client
        elif self.count >= self._most:
            full = max((each for each in self.clients.values() if each.waiting), key=_size, default=None)
        else:
            client.add(connection)
            return client
        if full is not None and full.waiting:
            full.evict()
            client.add(connection)
        return client

    def sweep(self, now: float) -> None:
        """End the connections that have waited for too long."""
        for client in list(self.clients.values()):
            for connection in list(client.held):
                connection.expire(now)


def _size(client: Client) -> int:
    return len(client.held)


class Connection(HttpToolsProtocol):
    """A connection that ends in time, and answers what is not HTTP with an error of the usual shape.

    `Connections.sweep` calls `expire` every second, so that a request costs no timers.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, if there is room."""
        super().connection_made(transport)  # type: ignore[arg-type]  # sockets have a whole transport
        self._head = 0  # bytes of the head that is arriving
        self._beside = 0  # bytes that arrived since the last part of a body and are no body: trailers, chunk sizes
        self._body = 0  # bytes of the body that is arriving
        self._trailers = 0  # headers after the body of that request
        self._arriving: RequestResponseCycle | None = None  # the request whose body is arriving
        self._keep_alive = True  # what that request said about the connection
        self._unanswered = 0  # requests whose responses are not complete
        self._answering = deque[RequestResponseCycle]()  # these, the oldest first
        self._refusal = b""  # said after these responses
        self._deaf = False  # what arrives from now on is thrown away
        self._discarded = 0  # bytes thrown away
        self._unread: int | None = None  # bytes that the client had not read when last looked at
        self._deadline = self.loop.time() + SECONDS
        self._finished = False  # the last word is said
        self.headers, self.url = [], b""
        assert isinstance(self.server_state, Connections)
        self._connections = self.server_state
        self._client = self._connections.admit(self, self.client[0] if self.client else "")
        if self not in self._client.waiting:
            self.transport.write(_TOO_MANY)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._client.release(self)
        super().connection_lost(exc)
        for cycle in self._answering:  # the newest alone is told by its base class
            cycle.disconnected = True
            cycle.message_event.set()
            cycle.transport = self.transport  # holds nothing of this connection any longer
        self._answering.clear()

    @property
    def size(self) -> int:
        """The bytes that it holds for its client."""
        return self._body + self.transport.get_write_buffer_size()

    # What arrives

    def data_received(self, data: bytes) -> None:
        """Parse what arrived: heads in pieces that are no longer than a head may be."""
        if len(data) <= HEAD_BYTES and not self._deaf:
            self._feed(data)
            return
        rest = memoryview(data)
        while rest and not self._deaf:
            size = HEAD_BYTES if self._arriving is None else len(rest)
            self._feed(rest[:size])
            rest = rest[size:]
        self._discard(len(rest))

    def _feed(self, data: bytes | memoryview) -> None:
        begins = not self._head
        if self._arriving is None:
            self._head += len(data)
        else:
            self._beside += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # there is no other protocol: the request is answered as it is
            self._deaf = True
            self.cycle.keep_alive = False
        except httptools.HttpParserError as error:
            found = error.__context__
            self._refuse(found if isinstance(found, ApiError) else _malformed(error))
        else:
            self._check_arriving(begins)

    def _check_arriving(self, begins: bool) -> None:
        """Look at a head or a body that is not complete yet."""
        if self._head or self._beside:
            if begins and self._head and self.cycle is not None:
                self._deadline = self.loop.time() + SECONDS
            problem = self._too_much()
            if problem is not None:
                self._refuse(problem)
        cycle = self._arriving
        if cycle is not None and cycle.transport is self.transport:
            cycle.transport = _Answering(self)

    def _too_much(self, *, complete: bool = False) -> ApiError | None:
        """Return what exceeds a limit in a head; once the head is complete, the body may have come with it."""
        if len(self.url) > URL_BYTES:
            return ApiError(414, "long_url", f"The URL is longer than {URL_BYTES} bytes. Send less in it.", "url")
        if len(self.headers) + self._trailers > HEADERS:
            return ApiError(431, "many_headers", f"There are more than {HEADERS} headers. Send fewer.", "headers")
        if max(self._head, self._beside) < HEAD_BYTES or (complete and self._head_size() < HEAD_BYTES):
            return None
        message = f"URL and headers have {HEAD_BYTES} bytes or more. Send less in them."
        return ApiError(431, "long_head", message, "headers")

    def _misunderstood(self) -> ApiError | None:
        """Return what a proxy in front could interpret as a different request."""
        for name, value in self.headers:
            if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                return ApiError(
                    501, "encoded", "Bodies are sent whole or in chunks, not compressed.", "transfer-encoding"
                )
        return other_host(self.url, self.headers)

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. A trailer, which comes after the body, is counted and discarded: no proxy has checked it."""
        if self._arriving is None:
            super().on_header(name, value)
        else:
            self._trailers += 1

    def on_headers_complete(self) -> None:
        """Begin to answer. Until its body is there, the response of a request closes the connection."""
        problem = self._too_much(complete=True)
        if problem is None and len(self.pipeline) >= QUEUED:
            problem = ApiError(
                429, "queued", f"More than {QUEUED} requests were sent ahead of their responses. Wait for responses."
            )
        problem = problem or self._misunderstood()
        if problem is not None:
            raise problem
        self._head = self._beside = self._trailers = 0
        super().on_headers_complete()
        cycle = self._arriving = self.cycle
        self._unanswered += 1
        self._answering.append(cycle)
        self._keep_alive, cycle.keep_alive = cycle.keep_alive, False

    def on_body(self, body: bytes) -> None:
        """Keep a part of a body."""
        self._beside = 0
        super().on_body(body)
        if not self.cycle.response_complete:
            self._body += len(body)
            self._connections.add_bytes(len(body))

    def on_message_complete(self) -> None:
        """Note that a request is there with its body."""
        cycle, self._arriving, self._beside, self._trailers, self._body = self.cycle, None, 0, 0, 0
        cycle.transport = self.transport
        if not cycle.response_started:
            cycle.keep_alive = self._keep_alive
        self._client.waiting.pop(self, None)
        super().on_message_complete()

    def _discard(self, size: int) -> None:
        """Discard what arrived, and pause reading for a moment, so that other connections are read too."""
        self._discarded += size
        if self._discarded > LINGER_BYTES:
            self.transport.abort()
        elif self._deaf and not self.transport.is_closing():
            self.flow.pause_reading()
            self.loop.call_later(PAUSE_SECONDS, self._read_on)

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    # What is answered

    def on_response_complete(self) -> None:
        """Answer the next request that is there; else wait for one."""
        self._unanswered -= 1
        if self._answering:  # not if the connection was lost
            self._answering.popleft()
        self._connections.add_bytes(self.transport.get_write_buffer_size())
        if self._finished:
            return
        self._deadline = self.loop.time() + SECONDS
        if self.pipeline:
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            if self._refusal:
                self.finish(self._refusal)
            elif not self.transport.is_closing():
                self.flow.resume_reading()
        if self._unanswered <= (self._arriving is not None):
            self._client.wait(self)

    def send_400_response(self, msg: str) -> None:
        """Reject what is not HTTP."""
        self._refuse(ApiError(400, "not_http", msg))

    def _refuse(self, error: ApiError) -> None:
        """Respond with the error, after the responses to earlier requests, and close."""
        self._deaf = True
        self._refusal = _response(error, self.server_state.default_headers)
        cut, self._arriving = self._arriving, None
        if cut is not None:
            self._unanswered -= 1
            self._answering.pop()
            cut.disconnected = True
            cut.message_event.set()
            if self.pipeline:  # the newest one is first; it has not been begun
                self.pipeline.popleft()
            elif cut.response_started:
                self._refusal = b""
        if not self._unanswered:
            self.finish(self._refusal)

    def finish(self, said: bytes = b"") -> None:
        """Send a last response and close, with a moment for the client to read it: closing at once could discard it."""
        self._deaf = self._finished = True
        self._body = 0
        if self.transport.is_closing():
            return
        if said:
            self.transport.write(said)
        self.transport.write_eof()
        self._deadline = self.loop.time() + LINGER_SECONDS
        self._client.wait(self)
        self.flow.resume_reading()

    # What ends a connection

    def expire(self, now: float) -> None:
        """End the connection if it has waited too long: for a request, the rest of a head, or the client to read."""
        if now < self._deadline:
            return
        unread, before = self.transport.get_write_buffer_size(), self._unread
        self._unread = unread or None
        if unread and (before is None or unread <= before - READ_BYTES):
            self._deadline = now + SECONDS
        elif unread or self._finished:
            self.transport.abort()
        elif self._head and not self.flow.read_paused and not self._deaf:
            self._refuse(ApiError(408, "too_slow", f"The headers were not there within {SECONDS:g} seconds."))
        elif self._unanswered:
            self._deadline = now + SECONDS
        else:
            self.transport.close()

    def evict(self) -> None:
        """End at once, for the sake of a new connection."""
        if (self._head or self._arriving) and not self._deaf:
            self.transport.write(_TOO_MANY)
        self._deaf = True
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """Close after the present response; if idle, wait a moment for a request that is already on its way."""
        if self._unanswered:
            self._keep_alive = False
            super().shutdown()
        else:
            self.loop.call_later(LAST_REQUEST_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if not self._unanswered and not self.transport.is_closing():
            self.transport.close()


class _Answering(asyncio.Transport):
    """The transport for the response to an incomplete request: closing it finishes the connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._connection.transport.write(data)

    def is_closing(self) -> bool:
        return self._connection.transport.is_closing()

    def close(self) -> None:
        self._connection.finish()


def _malformed(error: Exception) -> ApiError:
    found = "The URL cannot be read" if isinstance(error, httptools.HttpParserCallbackError) else str(error).rstrip(".")
    return ApiError(400, "not_http", f"{found}. Send a request of HTTP/1.1.")


def _response(error: ApiError, more: list[tuple[bytes, bytes]]) -> bytes:
    """A response that closes the connection, as it is sent."""
    said = error_response(error.status, error.code, error.message, error.where, {"connection": "close"})
    lines = [name + b": " + value + b"\r\n" for name, value in (*more, *said.raw_headers)]
    return b"".join([STATUS_LINE[error.status], *lines, b"\r\n", bytes(said.body)])


_TOO_MANY = _response(
    ApiError(503, "too_many_connections", "There are too many connections. Close idle ones, and try again."), []
)
