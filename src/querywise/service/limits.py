"""Limits on requests, and what keeps to them: threads with a bounded queue, and turns in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from fastapi import Request

from querywise.runtime.threads import DaemonThreadPool, Job, alone, checkpoint, working_for
from querywise.service.responses import ApiError

_Result = TypeVar("_Result")
_REPLACED = 8  # threads that are held up by jobs whose time is up, and have others in their stead
_TURN_SECONDS = 0.005  # of work, after which the rest waits for the next turn
_SHARE = 4  # one client may have a quarter of the bytes that wait
_AROUND = 1_000  # bytes that a request takes beside its body


@dataclass(frozen=True)
class Limits:
    """Limits on the size and time of one request, and on how many wait and are held at a time.

    body_bytes: the longest body that is read.
    documents, queries: the most of each in one request.
    seconds: the longest time for reading the body, and the longest for computing the answer.
    waiting: the most requests that wait for a free thread.
    table_bytes: of the features of all documents of one request.
    held_bytes: of all large bodies that are being answered; one alone may be longer.
    """

    body_bytes: int = 16_000_000
    documents: int = 20_000
    queries: int = 1_000
    seconds: float = 10.0
    waiting: int = 64
    table_bytes: int = 256_000_000
    held_bytes: int = 128_000_000


class BoundedThreadPool:
    """Some threads; `limits.waiting` jobs may wait for one, and each job has `limits.seconds`.

    spare: a core is left to others where there are several: one thread fewer, and each job keeps to its own thread.
    threads: how many; None: as many as cores.

    A job that goes on after its time is up keeps its thread, and another is started in its stead: one that never ends
    holds nobody up.
    """

    def __init__(self, limits: Limits, *, spare: bool = False, threads: int | None = None) -> None:
        self.limits = limits
        cores = os.cpu_count() or 1
        self._spare = spare
        self._threads = threads or (max(cores - 1, 1) if spare else cores)
        self._pool = DaemonThreadPool(self._threads)
        self._unfinished = 0  # jobs that run or wait
        self._overdue = 0  # jobs that run though their time is up
        self._counting = threading.Lock()

    async def run(
        self, work: Callable[[], _Result], request: Request | None = None, *, seconds: float | None = None
    ) -> _Result:
        """The result of the work; an ApiError (503) if the queue is full or it takes longer than `seconds`.

        Work that took too long is given up: it stops at its next `checkpoint`. So is that for a request whose client
        has closed the connection; the body of that request has been read. seconds: None is `limits.seconds`.
        """
        seconds = self.limits.seconds if seconds is None else seconds
        if self._unfinished >= self._threads + self.limits.waiting:
            raise _busy()
        with self._counting:
            self._unfinished += 1
        job = Job(time.monotonic() + seconds)
        submitted = self._pool.submit(self._done, work, job)
        # Work that was given up occupies its thread until its next checkpoint, so it is counted until then.
        submitted.add_done_callback(self._finished)
        future = asyncio.wrap_future(submitted)
        gone = None if request is None else asyncio.ensure_future(_gone(request))
        awaited: list[asyncio.Future[_Result] | asyncio.Future[None]] = [future] if gone is None else [future, gone]
        try:
            await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            if gone is not None and gone.done():
                raise ApiError(400, "gone", "The connection was closed before the answer was there.")
            if submitted.running():
                self._replace(1)
                submitted.add_done_callback(lambda _: self._replace(-1))
            raise ApiError(503, "too_slow", f"The answer took longer than {seconds:.3g} seconds. Send fewer documents.")
        finally:
            job.given_up = True  # nobody waits any longer, whatever the reason is
            future.cancel()  # removes a job that waits
            if gone is not None:
                gone.cancel()

    def _done(self, work: Callable[[], _Result], job: Job) -> _Result:
        with working_for(job), alone() if self._spare else contextlib.nullcontext():
            checkpoint()
            return work()

    def _finished(self, _: Future[_Result]) -> None:
        with self._counting:  # called in any thread
            self._unfinished -= 1

    def _replace(self, more: int) -> None:
        """Have threads in the stead of those that are held up, of which there are so many more."""
        with self._counting:
            self._overdue += more
            self._pool.resize(self._threads + min(self._overdue, _REPLACED))

    def close(self) -> None:
        """Cancel the jobs that wait; those that run are not waited for."""
        self._pool.shutdown()


async def _gone(request: Request) -> None:
    """Wait until the client has closed the connection. The body has been read, so no other message is left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


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
