"""Work for threads: a bounded number at a time, a bounded line before them, a bounded time for each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from querywise.service.limits import Limits
from querywise.service.refusals import Refused

_Result = TypeVar("_Result")


class Work:
    """Threads, and who waits for them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._threads = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="querywise")
        self._inside = 0

    async def run(self, job: Callable[[], _Result]) -> _Result:
        """What the job gives; refused where too many stand in line, or it takes too long."""
        if self._inside >= self._threads + self.limits.waiting:
            raise Refused(503, "busy", "More requests are waiting than can be answered soon. Try again in a moment.")
        self._inside += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, job)
        # Counted until the thread is really free, also where nobody waits for it any more.
        future.add_done_callback(self._finished)
        done, _ = await asyncio.wait([future], timeout=self.limits.seconds)
        if not done:
            future.cancel()  # takes it out of the line; a thread that has begun finishes for itself
            raise Refused(
                503, "too_slow", f"The answer took longer than {self.limits.seconds:g} seconds. Send fewer documents."
            )
        return future.result()

    def _finished(self, future: asyncio.Future[_Result]) -> None:
        self._inside -= 1
        if not future.cancelled():
            future.exception()  # seen, so that it is not reported as forgotten

    def close(self) -> None:
        """Let what has begun come to its end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
