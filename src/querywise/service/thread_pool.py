"""A thread pool with a bounded queue and a time limit per job."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from querywise.runtime.cancellation import Job, checkpoint, working_for
from querywise.runtime.threads import alone
from querywise.service.errors import ApiError
from querywise.service.limits import Limits

_Result = TypeVar("_Result")


class BoundedThreadPool:
    """Some threads; `limits.waiting` jobs may wait for one, and each job has `limits.seconds`.

    spare: a core is left to others where there are several: one thread fewer, and each job keeps to its own thread.
    """

    def __init__(self, limits: Limits, *, spare: bool = False) -> None:
        self.limits = limits
        cores = os.cpu_count() or 1
        self._spare = spare
        self._threads = max(cores - 1, 1) if spare else cores
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="querywise")
        self._unfinished = 0  # jobs that run or wait

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """The result of the work; an ApiError (503) if the queue is full or it takes too long.

        Work that took too long is given up: it stops at its next `checkpoint`.
        """
        if self._unfinished >= self._threads + self.limits.waiting:
            raise ApiError(503, "busy", "More requests are waiting than can be answered soon. Try again in a moment.")
        self._unfinished += 1
        job = Job()
        future = asyncio.get_running_loop().run_in_executor(self._pool, self._done, work, job)
        # Work that was given up occupies its thread until its next checkpoint, so it is counted until then.
        future.add_done_callback(self._finished)
        try:
            done, _ = await asyncio.wait([future], timeout=self.limits.seconds)
        except asyncio.CancelledError:
            job.given_up = True
            raise
        if not done:
            job.given_up = True
            future.cancel()  # removes a job that waits
            raise ApiError(
                503, "too_slow", f"The answer took longer than {self.limits.seconds:g} seconds. Send fewer documents."
            )
        return future.result()

    def _done(self, work: Callable[[], _Result], job: Job) -> _Result:
        with working_for(job), alone() if self._spare else contextlib.nullcontext():
            checkpoint()
            return work()

    def _finished(self, future: asyncio.Future[_Result]) -> None:
        self._unfinished -= 1
        if not future.cancelled():
            future.exception()  # marks the exception as retrieved, so that asyncio does not log it

    def close(self) -> None:
        """Cancel the jobs that wait; those that run finish."""
        self._pool.shutdown(wait=False, cancel_futures=True)
