"""A thread pool with a bounded queue and a time limit per job."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from querywise.service.errors import ApiError
from querywise.service.limits import Limits

_Result = TypeVar("_Result")


class BoundedThreadPool:
    """One thread per core; `limits.waiting` jobs may wait for a thread, and each job has `limits.seconds`."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._threads = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="querywise")
        self._unfinished = 0  # jobs that run or wait

    async def run(self, job: Callable[[], _Result]) -> _Result:
        """The result of the job; an ApiError (503) if the queue is full or the job takes too long."""
        if self._unfinished >= self._threads + self.limits.waiting:
            raise ApiError(503, "busy", "More requests are waiting than can be answered soon. Try again in a moment.")
        self._unfinished += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, job)
        # A job that timed out still occupies its thread, so it is counted until the thread is free.
        future.add_done_callback(self._finished)
        done, _ = await asyncio.wait([future], timeout=self.limits.seconds)
        if not done:
            future.cancel()  # removes a job that waits; a job that runs cannot be stopped
            raise ApiError(
                503, "too_slow", f"The answer took longer than {self.limits.seconds:g} seconds. Send fewer documents."
            )
        return future.result()

    def _finished(self, future: asyncio.Future[_Result]) -> None:
        self._unfinished -= 1
        if not future.cancelled():
            future.exception()  # marks the exception as retrieved, so that asyncio does not log it

    def close(self) -> None:
        """Cancel the jobs that wait; those that run finish."""
        self._pool.shutdown(wait=False, cancel_futures=True)
