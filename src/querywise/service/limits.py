"""Limits on requests, enforced by threads with a bounded queue, turns in the event loop, and estimated costs.

Requests that cannot be answered in time are refused before they are begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from fastapi import Request

from querywise.runtime.threads import DaemonThreadPool, Job, alone, checkpoint, working_for
from querywise.service.api import ApiError
from querywise.service.metrics import Metrics

_Result = TypeVar("_Result")
_REPLACED = 8  # threads that are held up by jobs whose time is up, and have others in their stead
_TURN_SECONDS = 0.005  # of work, after which the rest waits for the next turn
_SHARE = 4  # one client may have a quarter of the bytes that wait
_AROUND = 1_000  # bytes that a request takes beside its body
SIZES = (1, 10, 100, 1_000)  # documents of a query in the rehearsals
BATCHES = (10, 100)  # queries of a batch in the rehearsals
USUAL = SIZES.index(100)  # the size of the first rehearsal, and of what is called quick
SLOW_SECONDS = 0.5  # a rehearsal that would take longer is left out
_MARGIN = 2  # an estimate may be so many times too high: the machine was busy during the rehearsal

Rehearsal = Callable[[int, int, int], float]


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
        """Replace stuck threads; `more` is how many more there are."""
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
    """Turns in the event loop. One request takes milliseconds; hundreds at once would delay all others.

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
        """Return when a request whose body has this many bytes may run. Raise ApiError (503) if it waits too long."""
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
        if not turn.done():  # whoever waited may have been canceled
            turn.set_result(None)
        self._begun = time.perf_counter()
        loop.call_soon(self._next, loop)  # runs after the request that was let in


def _busy() -> ApiError:
    return ApiError(503, "busy", "More requests are waiting than can be answered soon. Try again in a moment.")


class Hosting:
    """A service that runs in a server, behind a guard.

    limits: on requests. token: what they must carry, if there is one.
    """

    def __init__(self, limits: Limits | None, token: str | None) -> None:
        self.limits = limits or Limits()
        self.token = token
        self.metrics = Metrics()
        self.judges = BoundedThreadPool(self.limits)  # a disk that does not answer holds nobody else up
        self.draining = False  # a signal to stop has arrived: /readyz says 503, requests are still answered
        self.closing = False  # the listening socket is closed: every response says `connection: close`

    @property
    def serves(self) -> str:
        """Say what is served, in the words of the log."""
        raise NotImplementedError


@dataclass(frozen=True)
class QueryCost:
    """The seconds that a model takes for one query, measured with each number of documents in `SIZES`.

    alone: of a request with one query. Beyond the largest size the time grows with that power of the number of
    documents. A model that could not be rehearsed costs an unknown time, infinite here, and nothing is refused.
    together: of each query in a batch; None: as much as alone. few: of each in a batch of fewer queries than the
    largest that was rehearsed; None: as much as together.
    """

    alone: tuple[float, ...]
    together: tuple[float, ...] | None = None
    power: int = 1
    few: tuple[float, ...] | None = None

    @staticmethod
    def measured(seconds: Rehearsal, power: Callable[[], int]) -> QueryCost:
        """Measure costs by rehearsals; `seconds` takes queries, documents of each and repetitions, and gives the time.

        A rehearsal that would take too long, or too much memory, is left out: a longer list is taken to cost by the
        power, and a query in a batch as much as alone.

        power: asked for when the model has been rehearsed.
        """
        usual = seconds(1, SIZES[USUAL], 3)
        if not math.isfinite(usual):
            return QueryCost((usual,) * len(SIZES))
        alone = [min(seconds(1, size, 3), usual) if usual <= SLOW_SECONDS else usual for size in SIZES[:USUAL]]
        alone.append(usual)
        for before, size in zip(SIZES[USUAL:], SIZES[USUAL + 1 :], strict=False):
            found = math.inf if alone[-1] > SLOW_SECONDS else max(seconds(1, size, 2), alone[-1])
            alone.append(found if math.isfinite(found) else alone[-1] * (size / before) ** power())
        few, many = zip(
            *(_in_a_batch(seconds, *each) for each in zip(SIZES[: USUAL + 1], alone, strict=False)), strict=True
        )
        longer = alone[USUAL + 1 :]
        return QueryCost(tuple(alone), (*many, *longer), power(), (*few, *longer))

    @property
    def known(self) -> bool:
        """Whether the model could be rehearsed."""
        return math.isfinite(self.alone[USUAL]) and self.alone[0] > 0

    def seconds(self, sizes: Sequence[int]) -> float:
        """Return the estimate for a request whose queries have this many documents each."""
        if len(sizes) == 1:
            return self._at(self.alone, sizes[0])
        each = (self.few if len(sizes) < BATCHES[-1] else None) or self.together or self.alone
        longest = self._at(self.alone, max(sizes, default=0))  # what a batch of few queries does not save
        return max(sum(count * self._at(each, size) for size, count in Counter(sizes).items()), longest)

    def _at(self, known: tuple[float, ...], documents: int) -> float:
        """Between two sizes by the power that leads from one to the other; no query costs less than one document."""
        count = max(documents, SIZES[0])
        last = next((number for number, size in enumerate(SIZES) if size >= count), len(SIZES))
        if last == len(SIZES):
            return known[-1] * math.pow(count / SIZES[-1], self.power)
        if SIZES[last] == count:
            return known[last]
        share = math.log(count / SIZES[last - 1]) / math.log(SIZES[last] / SIZES[last - 1])
        return known[last - 1] * math.pow(known[last] / known[last - 1], share)

    def most(self, seconds: float) -> int:
        """Return about how many documents of one query can be ranked in this many seconds."""
        low, high = 1, 2
        while self.seconds([high]) <= seconds:
            low, high = high, 2 * high
        while high - low > max(low // 100, 1):
            middle = (low + high) // 2
            low, high = (middle, high) if self.seconds([middle]) <= seconds else (low, middle)
        return low


def _in_a_batch(seconds: Rehearsal, size: int, alone: float) -> tuple[float, float]:
    """Return the seconds per query of a small and of a large batch, as far as they can be rehearsed."""
    found = [alone]
    for queries in BATCHES:
        each = seconds(queries, size, 2) / queries if queries * found[-1] <= SLOW_SECONDS else math.inf
        found.append(each if math.isfinite(each) else found[-1])
    return found[1], found[2]


def check_cost(cost: QueryCost, limits: Limits, sizes: Sequence[int]) -> None:
    """Raise an error if ranking queries with this many documents each would surely take longer than is allowed."""
    needed = cost.seconds(sizes) if cost.known else 0.0
    if needed <= _MARGIN * limits.seconds:
        return
    fitting = int(len(sizes) * limits.seconds / needed)
    if fitting:
        count, instead = f"{len(sizes)} queries of {sum(sizes)} documents", f"{fitting} such queries"
    else:
        count, instead = f"{sum(sizes)} documents", f"{cost.most(limits.seconds)} documents"
    raise ApiError(
        413,
        "too_costly",
        f"This model takes about {needed:.0f} seconds for {count}, and {limits.seconds:g} are allowed. Send up to "
        f"{instead} at a time.",
        "documents" if len(sizes) == 1 else "requests",
    )
