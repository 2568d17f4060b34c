"""Work in the event loop, in turns: between two of them whatever else has arrived is answered."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import NamedTuple

from fastapi import Request

from querywise.service.errors import ApiError
from querywise.service.limits import Limits

_TURN_SECONDS = 0.005  # of work, after which the rest waits for the next turn
_SHARE = 4  # one client may have a quarter of the bytes that wait
_AROUND = 1_000  # bytes that a request takes beside its body


class _Waiting(NamedTuple):
    """A request that waits: its turn, and its bytes."""

    turn: asyncio.Future[None]
    size: int


class Turns:
    """Who may work in the event loop now. One request takes milliseconds; hundreds at once would hold all others up.

    In a turn of the loop so much is done as takes a few milliseconds. The rest waits, and of that one request is let in
    at each turn, of one client after the other. Only the event loop calls this, so that it needs no lock.

    limits: `held_bytes` of bodies may wait, and none longer than `seconds`.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._begun: float | None = None  # when the work of this turn began; None: there was none yet
        self._waiting: dict[str, deque[_Waiting]] = {}  # by client; the next one is that of the first
        self._bytes: dict[str, int] = {}  # that wait, by client

    async def take(self, request: Request, size: int) -> None:
        """Return when a request whose body has so many bytes may work; an ApiError (503) if it cannot be soon."""
        loop, now = asyncio.get_running_loop(), time.perf_counter()
        if self._begun is None:
            self._begun = now
            loop.call_soon(self._next, loop)
        if self._waiting or now - self._begun > _TURN_SECONDS:
            await self._waited(request.client.host if request.client else "", size + _AROUND, loop)
            if time.perf_counter() - now > self._limits.seconds:
                raise _busy()

    async def _waited(self, client: str, size: int, loop: asyncio.AbstractEventLoop) -> None:
        own, most = self._bytes.get(client, 0) + size, self._limits.held_bytes
        if own > most // _SHARE or sum(self._bytes.values()) + size > most:
            raise _busy()
        self._bytes[client] = own
        turn = loop.create_future()
        self._waiting.setdefault(client, deque()).append(_Waiting(turn, size))
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin a turn: let in the request that waits longest, of the client whose turn it is."""
        self._begun = None
        if not self._waiting:
            return
        client, own = next(iter(self._waiting.items()))
        turn, size = own.popleft()
        del self._waiting[client]
        self._bytes[client] -= size
        if own:
            self._waiting[client] = own  # behind all others
        else:
            del self._bytes[client]
        if not turn.done():  # whoever waited may have been cancelled
            turn.set_result(None)
        self._begun = time.perf_counter()
        loop.call_soon(self._next, loop)  # runs after the request that was let in


def _busy() -> ApiError:
    return ApiError(503, "busy", "More requests are waiting than can be answered soon. Try again in a moment.")
