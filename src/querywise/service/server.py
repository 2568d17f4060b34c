"""The server process: sockets, signals, shutdown, and time limits on connections."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from querywise.errors import DataError
from querywise.service.app import create_app
from querywise.service.service import Service

_IDLE_SECONDS = 10.0  # time for the headers of a request to arrive, and keep-alive time of a connection
_DRAIN_SECONDS = 1.0  # time from the signal to stop, when /readyz becomes 503, to closing the listening socket
_LAST_REQUEST_SECONDS = 0.5  # time that an idle connection then has for a last request


class _Connection(HttpToolsProtocol):
    """A connection that is closed if the headers of its first request do not arrive in time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(_IDLE_SECONDS, self._close)

    def on_headers_complete(self) -> None:
        self._deadline.cancel()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close after the present response; if idle, wait a moment for a request that is already on its way."""
        if self._is_idle():
            self._deadline.cancel()
            self._deadline = self.loop.call_later(_LAST_REQUEST_SECONDS, self._close_if_idle)
        else:
            super().shutdown()

    def _close_if_idle(self) -> None:
        if self._is_idle():
            self._close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """A server that stops in steps: /readyz becomes 503, no new connections are accepted, open ones are closed."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in sockets or []:
            # Closing is not enough: the port would accept connections while another copy of the socket is open.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._service.closing = True  # only now: before, a client told to close would open a new connection
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None or self._service.draining:
            super().handle_exit(sig, frame)
            return
        self._service.draining = True
        self._loop.call_soon_threadsafe(self._loop.call_later, _DRAIN_SECONDS, self._exit)

    def _exit(self) -> None:
        self.should_exit = True


def run(service: Service, host: str, port: int, app: ASGIApp | None = None) -> None:
    """Serve until a signal to stop.

    app: another application in place of `create_app(service)`, such as one with more routes.
    """
    _allow_many_connections()
    try:
        listening = socket.create_server((host, port), backlog=2048, family=_family(host))
    except (OSError, OverflowError) as error:
        said = f"host={host!r}, port={port}: cannot listen there ({error}). Name another."
        raise DataError(said, arguments=("host", "port")) from None
    logger = logging.getLogger("querywise.service")
    shown = f"[{host}]" if ":" in host else host
    logger.info(
        "querywise serves model %s on http://%s:%d", service.models.current.version, shown, listening.getsockname()[1]
    )
    config = uvicorn.Config(
        create_app(service) if app is None else app,
        http=_Connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(_IDLE_SECONDS),
        timeout_graceful_shutdown=int(service.limits.seconds) + 5,
        h11_max_incomplete_event_size=65_536,
    )
    # The objects made so far stay alive. Frozen, they are not scanned again: a full scan takes longer than an answer.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    with contextlib.suppress(KeyboardInterrupt):
        _Server(config, service).run(sockets=[listening])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _allow_many_connections() -> None:
    """Raise the limit on open files as far as allowed, because every connection is one."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
