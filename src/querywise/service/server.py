"""The server process: sockets, signals, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import Sequence
from types import FrameType

import uvicorn
from fastapi import FastAPI

from querywise.errors import DataError
from querywise.runtime.threads import one_blas_thread
from querywise.service.connection import Connection, Connections
from querywise.service.guards import Guard, Hosts
from querywise.service.limits import Hosting
from querywise.service.routes import create_api
from querywise.service.service import Service

_DRAIN_SECONDS = 1.0  # time from the signal to stop, when /readyz becomes 503, to closing the listening socket
_SWEEP_SECONDS = 1.0  # time between two looks at which connections have waited for too long
# The loop accepts one connection per turn and listening socket. With so many copies of the socket, a new client does
# not wait behind the requests of others.
_ACCEPTED = 32
_MOST_CONNECTIONS = 4096  # fewer where fewer files may be open


class Server(uvicorn.Server):
    """A server that stops in steps: /readyz becomes 503, no new connections are accepted, open ones are closed.

    api: what answers; the guard is put around it here.
    connections: how many there may be.
    """

    def __init__(self, service: Hosting, api: FastAPI, hosts: Hosts, connections: int) -> None:
        config = uvicorn.Config(
            Guard(api, service, hosts),
            http=Connection,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(service.limits.seconds) + 5,
        )
        super().__init__(config)
        self.server_state = self._connections = Connections(connections)
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, and to check which have waited too long."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._sweep(self._loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._connections.sweep(loop.time())
        loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and close those there are when their requests are answered."""
        for each in sockets or []:
            # Closing is not enough: the port would accept connections while another copy of the socket is open.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._service.closing = True  # only now: before, a client told to close would open a new connection
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; at a second signal, stop now."""
        if self._loop is None or self._service.draining:
            super().handle_exit(sig, frame)
            return
        self._service.draining = True
        self._loop.call_soon_threadsafe(self._loop.call_later, _DRAIN_SECONDS, self._exit)

    def _exit(self) -> None:
        self.should_exit = True


def run(
    service: Hosting, host: str, port: int, api: FastAPI | None = None, *, allowed_host: Sequence[str] = ()
) -> None:
    """Serve until a signal to stop.

    api: another application in place of `create_api(service)`, such as one with more routes.
    allowed_host: names of this server, beside the address that it listens on; requests to other names are refused.
    """
    hosts = Hosts(host, allowed_host)
    most, family = _allow_many_connections(), socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), backlog=2048, family=family)
    except (OSError, OverflowError) as error:
        said = f"host={host!r}, port={port}: cannot listen there ({error}). Name another."
        raise DataError(said, arguments=("host", "port")) from None
    hosts.add(listening.getsockname()[0])
    logger = logging.getLogger("querywise.service")
    shown = f"[{host}]" if ":" in host else host
    logger.info("querywise serves %s on http://%s:%d", service.serves, shown, listening.getsockname()[1])
    if api is None:
        assert isinstance(service, Service), "another service brings its application"
        api = create_api(service)
    server = Server(service, api, hosts, most)
    # The objects made so far stay alive. Frozen, they are not scanned again: a full scan takes longer than an answer.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    # Where others use the machine too, a query's few sums would wait for the threads of BLAS, milliseconds at a time.
    with one_blas_thread(), contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening, *(listening.dup() for _ in range(_ACCEPTED - 1))])


def _allow_many_connections() -> int:
    """Raise the limit on open files, one per connection, as far as allowed; return how many connections may be open."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        if most != resource.RLIM_INFINITY:
            return min(_MOST_CONNECTIONS, most // 2)
    return _MOST_CONNECTIONS
