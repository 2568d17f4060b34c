"""The process: sockets, signals, and connections that are opened and left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from querywise.errors import DataError
from querywise.service.app import Service, create_app

_PATIENCE = 10.0  # seconds for the head of a request to arrive, and for a kept connection to be used again
_DRAIN = 1.0  # seconds between saying that it is not ready any more and refusing new connections
_LAST_CALL = 0.5  # seconds an open connection then has for a last request


class _Impatient(HttpToolsProtocol):
    """A connection that is closed when no request arrives on it in time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(_PATIENCE, self._give_up)

    def on_headers_complete(self) -> None:
        self._deadline.cancel()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close once nothing is being answered; a request that is on its way already has a moment to arrive."""
        if self._is_idle():
            self._deadline.cancel()
            self._deadline = self.loop.call_later(_LAST_CALL, self._leave)
        else:
            super().shutdown()

    def _leave(self) -> None:
        if self._is_idle():
            self._give_up()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """Told to stop, it says so for a moment, then takes no more connections and ends those that are open."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in sockets or []:
            # Closing would leave the port open to knock at, for as long as anybody holds a copy of the socket.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._service.closing = True  # not before: who is told to close comes back by the front door
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None or self._service.draining:
            super().handle_exit(sig, frame)
            return
        self._service.draining = True
        self._loop.call_soon_threadsafe(self._loop.call_later, _DRAIN, self._leave)

    def _leave(self) -> None:
        self.should_exit = True


def run(service: Service, host: str, port: int) -> None:
    """Serve until told to stop."""
    _allow_many_connections()
    try:
        taken = socket.create_server((host, port), backlog=2048, family=_family(host))
    except (OSError, OverflowError) as error:
        said = f"host={host!r}, port={port}: cannot listen there ({error}). Name another."
        raise DataError(said, arguments=("host", "port")) from None
    logger = logging.getLogger("querywise.service")
    shown = f"[{host}]" if ":" in host else host
    logger.info(
        "querywise serves model %s on http://%s:%d", service.models.current.version, shown, taken.getsockname()[1]
    )
    config = uvicorn.Config(
        create_app(service),
        http=_Impatient,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(_PATIENCE),
        timeout_graceful_shutdown=int(service.limits.seconds) + 5,
        h11_max_incomplete_event_size=65_536,
    )
    # What is there by now stays: a collector that goes through all of it again takes longer than an answer.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    with contextlib.suppress(KeyboardInterrupt):
        _Server(config, service).run(sockets=[taken])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _allow_many_connections() -> None:
    """Every connection is an open file, and the usual limit is meant for programs that have few."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
