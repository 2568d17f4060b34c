"""A thread pool with a bounded queue and a time limit per job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from fastapi import Request

from querywise.runtime.threads import DaemonThreadPool, Job, alone, checkpoint, working_for
from querywise.service.errors import ApiError
from querywise.service.limits import Limits

_Result = TypeVar("_Result")
_REPLACED = 8  # threads that are held up by jobs whose time is up, and have others in their stead


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
            raise ApiError(503, "busy", "More requests are waiting than can be answered soon. Try again in a moment.")
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
