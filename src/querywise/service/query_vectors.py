"""Vectors of queries' texts, made in threads of their own: an embedder that fails does not stop ranking."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from fastapi import Request
from msgspec.structs import replace

from querywise.errors import QuerywiseError
from querywise.runtime.services import RefusedTextError
from querywise.runtime.threads import time_left
from querywise.service.limits import BoundedThreadPool, Limits
from querywise.service.lookup import Lookup
from querywise.service.metrics import metric
from querywise.service.responses import ApiError
from querywise.service.schema import Query

logger = logging.getLogger("querywise.service")

_THREADS = 4  # they wait for a service more than they compute
_SHARE = 0.5  # of a request's time for the vector: the rest is for searching and ranking


class Circuit:
    """Leaves an embedder alone that has failed several times in a row; after a pause, one request tries it again.

    So is one that fails every other time: each failure may keep a search waiting for half of its time.

    failures: in a row, until it is left alone; or half of the last answers, where those are twice as many and two.
    pause: seconds. clock: the present, in seconds.
    """

    def __init__(self, failures: int = 3, pause: float = 15.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures, self.pause = failures, pause
        self.is_open = False  # whether the embedder is left alone, but for a trial now and then
        self._clock = clock
        self._failed = 0  # times in a row
        self._last = deque[bool](maxlen=2 * failures + 2)  # whether each of the last answers was none
        self._until = 0.0

    def allows(self) -> bool:
        """Whether to ask the embedder now. Who is allowed to while the circuit is open is the one trial."""
        if self.is_open and self._clock() < self._until:
            return False
        self._until = self._clock() + self.pause
        return True

    def succeeded(self) -> None:
        """The embedder answered."""
        self._failed = 0
        self._last.append(False)
        if self.is_open:
            self.is_open = False
            self._last.clear()

    def failed(self) -> None:
        """It did not, or not with the vector of a query."""
        self._failed += 1
        self._last.append(True)
        often = len(self._last) == self._last.maxlen and 2 * sum(self._last) >= len(self._last)
        self.is_open |= often or self._failed >= self.failures
        self._until = self._clock() + self.pause


class QueryVectors:
    """Embeds queries that come as text, for an index with vectors."""

    def __init__(self, lookup: Lookup, limits: Limits) -> None:
        self.circuit = Circuit()
        self.failures = 0  # since the start
        self.without = 0  # queries that were answered without a vector
        self._lookup = lookup
        self._threads = BoundedThreadPool(limits, threads=_THREADS)

    async def of(self, query: Query, request: Request | None = None) -> tuple[Query, bool]:
        """The query with its vector where it needs one, and whether it lacks one because the embedder failed.

        Then the vector is 0 throughout, which is similar to no document. An ApiError of the embedder does not reach the
        client; a name that is missing does, as a DataError. A request whose client has gone is given
        up, as by `BoundedThreadPool.run`.
        """
        if not self._lookup.needs_vector(query):
            return query, False
        vector = await self._embedded(query.text or "", request) if self.circuit.allows() else None
        self.without += vector is None
        return replace(query, vector=vector or self._lookup.no_vector()), vector is None

    async def _embedded(self, text: str, request: Request | None) -> list[float] | None:
        """The vector of a text; None where it cannot be made in time, or is 0 throughout."""
        seconds = _SHARE * self._threads.limits.seconds
        asked = False  # with enough time left to answer: a job may have waited for a thread

        def job() -> list[float]:
            nonlocal asked
            asked = time_left() > seconds / 2
            return self._lookup.embedded(text)

        try:
            vector = await self._threads.run(job, request, seconds=seconds)
        except Exception as error:  # whatever an embedder does, searching by words goes on
            if isinstance(error, ApiError) and error.code == "gone":
                raise
            self._failed(error, counts=asked and not isinstance(error, RefusedTextError))
            return None
        if not any(vector):  # as of a text that nothing is known of: this says nothing about others
            return None
        self.circuit.succeeded()
        return vector

    def _failed(self, error: Exception, *, counts: bool) -> None:
        """Log that a query has no vector. counts: this was a failure of the embedder, for any text."""
        self.failures += 1
        if counts:
            self.circuit.failed()
        known = isinstance(error, QuerywiseError | ApiError)
        logger.warning("a query has no vector: %s", error if known else f"{type(error).__name__}: {error}")
        if self.circuit.is_open:
            logger.warning("searching by words alone; the embedder is tried again in %g s", self.circuit.pause)

    def metrics(self) -> str:
        """Counts, in the text format of Prometheus."""
        without, is_open = "Queries searched for by words alone for that reason.", int(self.circuit.is_open)
        return (
            metric("embedder_failures_total", "counter", "Queries that the embedder made no vector of.", self.failures)
            + metric("without_vectors_total", "counter", without, self.without)
            + metric("embedder_open", "gauge", "1 while a failing embedder is left alone.", is_open)
        )

    def close(self) -> None:
        """Cancel the jobs that wait."""
        self._threads.close()
