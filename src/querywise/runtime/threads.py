"""Parallel work in one thread per core, which can be canceled between items; BLAS is limited to one thread meanwhile.

BLAS threads within our threads would wait for each other in busy loops: on a machine with any other load, that costs
many times what it saves.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from querywise.runtime.values import is_whole

if TYPE_CHECKING:
    from threadpoolctl import LibController

_Given = ParamSpec("_Given")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

FEW_FOR_BLAS = 8192  # size of a vector or matrix up to which BLAS uses no threads


class GivenUpError(Exception):
    """The work was canceled because nobody waits for it. Raised by `checkpoint` for the code that started the work."""


class Job:
    """Some work on any number of threads; `given_up` says whether it should stop.

    `until` is the `time.monotonic` at which the caller will stop waiting.
    """

    __slots__ = ("given_up", "until")

    def __init__(self, until: float = math.inf) -> None:
        self.given_up = False
        self.until = until


class _Here(threading.local):
    """The job of a thread, and whether the other cores are already in use."""

    job: Job | None = None
    busy = False


_here = _Here()


def checkpoint() -> None:
    """Raise GivenUpError if the current thread's job has been canceled."""
    if _here.job is not None and _here.job.given_up:
        raise GivenUpError


def time_left() -> float:
    """Return the seconds until the current thread's job will be canceled; infinite if it has no deadline."""
    return math.inf if _here.job is None else _here.job.until - time.monotonic()


def current_job() -> Job | None:
    """Return the current thread's job, or None if its work cannot be canceled."""
    return _here.job


@contextlib.contextmanager
def working_for(job: Job | None) -> Iterator[None]:
    """Assign everything that this thread does in the block to a job."""
    before, _here.job = _here.job, job
    try:
        yield
    finally:
        _here.job = before


class DaemonThreadPool(Executor):
    """A thread pool that is never waited for: a job that never returns does not keep Python from exiting.

    A ThreadPoolExecutor would keep it waiting.

    Args:
        threads: how many run at once; they are started on demand.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running = 0  # threads
        self._idle = 0  # threads without a queued job
        self._closed = False

    def submit(
        self, work: Callable[_Given, _Result], /, *arguments: _Given.args, **named: _Given.kwargs
    ) -> Future[_Result]:
        """Queue work for the next free thread."""
        future: Future[_Result] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("The thread pool is closed.")
            self._jobs.put((future, functools.partial(work, *arguments, **named)))
            if self._idle:
                self._idle -= 1
            else:
                self._start()
        return future

    def resize(self, threads: int) -> None:
        """Set the number of threads; surplus threads end after their current job."""
        with self._lock:
            more, self.threads = threads - self.threads, threads
            for _ in range(min(max(more, 0), self._jobs.qsize())):
                self._start()

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Cancel queued jobs, without waiting for running ones."""
        with self._lock, contextlib.suppress(queue.Empty):
            self._closed = True
            while True:
                job = self._jobs.get_nowait()
                if job is not None:
                    job[0].cancel()
        for _ in range(self._running):
            self._jobs.put(None)

    def _start(self) -> None:
        if self._running < self.threads:
            self._running += 1
            threading.Thread(target=self._work, name=f"querywise-{self._running}", daemon=True).start()

    def _work(self) -> None:
        while job := self._jobs.get():
            future, work = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001 - whoever waits for the result gets it
                    future.set_exception(error)
            del job, future, work  # they would keep the result alive until the next job
            with self._lock:
                if self._running > self.threads:
                    self._running -= 1
                    return
                self._idle += self._jobs.empty()


def in_threads(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return the results in the order of the items. The work must release the GIL to run in parallel.

    Nested calls run their items one after the other in the same thread. Canceled work stops before its next item.
    """
    if len(items) < 2 or cores() < 2:
        return [_checked(work, item) for item in items]
    return list(_pool().map(functools.partial(_marked, work, _here.job), items))


def slices(count: int, size: int) -> list[slice]:
    """Return slices of equal size that cover `count` items; the last one may be shorter."""
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]


def with_help(work: Callable[[], None], others: int) -> None:
    """Run the same work in this thread and in up to `others` free threads.

    The threads take items from shared state, and those that have not begun are not waited for: the work may hold a lock
    that other work in these threads is waiting for.
    """
    job, helpers = _here.job, 0 if _here.busy else others
    helping = [_pool().submit(_marked, lambda _: work(), job, None) for _ in range(helpers)]
    try:
        with alone():
            work()
    finally:
        begun = [each for each in helping if not each.cancel()]
    for each in begun:
        each.result()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Use no further threads while the block runs, because the other cores are in use."""
    before, _here.busy = _here.busy, True
    try:
        yield
    finally:
        _here.busy = before


def cores() -> int:
    """Return the number of cores to use."""
    return 1 if _here.busy else available_cores()


def available_cores() -> int:
    """Return the number of cores that this process may use, or OMP_NUM_THREADS if that is lower."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # further numbers are for nested loops
    return min(allowed, max(int(asked), 1)) if is_whole(asked) else allowed


def _checked(work: Callable[[_Item], _Result], item: _Item) -> _Result:
    checkpoint()
    return work(item)


def _marked(work: Callable[[_Item], _Result], job: Job | None, item: _Item) -> _Result:
    with alone(), working_for(job):
        return _checked(work, item)


@functools.cache
def _pool() -> DaemonThreadPool:
    return DaemonThreadPool(available_cores())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a fork has none of its parent's threads


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread per caller while the block runs."""
    before = [(each, each.get_num_threads()) for each in _blas()]
    try:
        for each, _ in before:
            each.set_num_threads(1)
        yield
    finally:
        for each, count in before:
            each.set_num_threads(count)


@functools.cache
def _blas() -> list[LibController]:
    """Return the BLAS libraries; threadpoolctl's own limit would query each of them again every time."""
    import numpy  # noqa: F401  the libraries to be limited must be loaded to be found
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    found: list[LibController] = ThreadpoolController().select(user_api="blas").lib_controllers
    return found
