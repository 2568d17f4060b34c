"""The state that routes share: the model, lookups, the thread pool and the metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from fastapi import Request

from querywise.contracts.answers import Answer
from querywise.errors import DataError
from querywise.runtime.threads import DaemonThreadPool
from querywise.service.api import ApiError
from querywise.service.gateway import Gateway
from querywise.service.judging import JudgementFile
from querywise.service.limits import BoundedThreadPool, Hosting, Limits, Turns
from querywise.service.loaded_model import LoadedModel, ModelFolder, Outcome
from querywise.service.lookup import Lookup, QueryVectors
from querywise.service.online import Online

_Result = TypeVar("_Result")
Pace = Literal["quick", "usual", "long"]
logger = logging.getLogger("querywise.service")

_REFRESH_SECONDS = 120.0  # for loading a model, until the folder is said not to answer
_SAMPLED_QUERIES = 4  # queries of a request whose distance is computed for the metrics alone
_SAMPLES_PER_SECOND = 20  # requests for which that is done


class Service(Hosting):
    """The state of the service.

    token: what requests must carry; None: requests need no token.
    judge: a file for the grades that documents are given on the page, which then needs a token; None: none are given.
    retrain: the command that trains the model on what was judged, for the page; None: none is known.
    online: what is interleaved and logged; None: nothing is.
    gateway: the search engine whose documents are ranked; None: documents come with requests, or from `lookup`.
    poll_seconds: time between two looks at the model folder.
    """

    def __init__(
        self,
        models: ModelFolder,
        lookup: Lookup | None = None,
        *,
        limits: Limits | None = None,
        token: str | None = None,
        judge: Path | None = None,
        retrain: str | None = None,
        online: Online | None = None,
        gateway: Gateway | None = None,
        poll_seconds: float = 1.0,
    ) -> None:
        super().__init__(limits, token)
        self.models = models
        self.lookup = lookup or Lookup()
        self.gateway = gateway
        self._check(models.current)
        models.accept = self._check
        self.online = online
        if online is not None and online.against is not None:
            online.require_alike(models.current)
            self._check(online.against.current)
            online.against.accept = self._check
        self.judging = None if judge is None else self._judged_in(judge)
        self.retrain = retrain
        self.poll_seconds = poll_seconds
        self.refresh_seconds = _REFRESH_SECONDS
        self.readers = BoundedThreadPool(self.limits, threads=1)  # decoding holds Python's lock: one body at a time
        self.threads = BoundedThreadPool(self.limits)
        self.long = BoundedThreadPool(self.limits)  # so that no other ranking waits for those that take seconds
        self.explainers = BoundedThreadPool(self.limits, spare=True)  # so that no ranking waits for explanations
        self.long_explainers = BoundedThreadPool(self.limits, spare=True)  # nor short explanations for long ones
        self.turns = Turns(self.limits)  # in the event loop
        self.vectors = QueryVectors(self.lookup, self.limits)
        self._watcher = DaemonThreadPool(2)  # a folder that does not answer holds nobody up
        self._sampled = 0.0
        self._held_bytes = 0  # of large bodies that are being answered

    @property
    def serves(self) -> str:
        """Say what is served, in the words of the log."""
        return f"model {self.models.current.version}"

    def _check(self, model: LoadedModel) -> None:
        """Raise an error if the model does not fit the data that it is to rank."""
        self.lookup.check(model)
        if self.gateway is not None:
            self.gateway.check(model)

    def _judged_in(self, path: Path) -> JudgementFile:
        if self.lookup.index is None and self.lookup.judged is None:
            said = f"judge={str(path)!r}: there is nothing to judge. Serve an index to search, or judged data."
            raise DataError(said, arguments=("judge",))
        judged = self.lookup.judged
        return JudgementFile.opened(path, self.token, usual=0 if judged is None else int(judged.labels.max(initial=0)))

    async def watch(self) -> None:
        """Reload models whenever their folders change, and remember what is counted every minute, until canceled."""
        against = None if self.online is None else self.online.against
        watched = [self._watch(each) for each in (self.models, against) if each is not None]
        await asyncio.gather(*watched, self._remember_minutes())

    async def _remember_minutes(self) -> None:
        while self.online is not None:
            await asyncio.sleep(60)
            self.online.last_hour.remember(self.online.totals())

    async def _watch(self, models: ModelFolder) -> None:
        before: str | None = None  # the problem there was when watching failed
        failed: str | None = None  # the problem since then
        while True:
            await asyncio.sleep(self.poll_seconds)
            try:
                outcome = await self._refreshed(models)
            except Exception as error:  # the watcher goes on, whatever happens
                if failed is None:
                    before = models.problem
                    logger.exception("the model folder cannot be watched")
                failed = f"The model folder cannot be watched ({type(error).__name__}: {error})."
                models.problem = failed
                continue
            if failed is not None and models.problem == failed:
                models.problem = before
            failed = None
            if outcome == "same":
                continue
            self.metrics.reloads[outcome] += 1
            if outcome == "replaced":
                logger.info("now serving model %s", models.current.version)
            else:
                logger.warning("still serving model %s: %s", models.current.version, models.problem)

    async def _refreshed(self, models: ModelFolder) -> Outcome:
        """Refresh the model. Raise TimeoutError if the folder does not respond, for example if its disk is gone."""
        refreshing = asyncio.wrap_future(self._watcher.submit(models.refresh))
        await asyncio.wait([refreshing], timeout=self.refresh_seconds)
        if not refreshing.done():
            refreshing.cancel()  # it goes on if it has begun, and what it loads is served
            raise TimeoutError(f"no answer within {self.refresh_seconds:g} seconds")
        return refreshing.result()

    async def close(self) -> None:
        """Write pending data to files, within the time of a request, and accept no more work."""
        try:
            if self.judging is not None:
                await self.judges.run(self.judging.compact)
        except ApiError as error:
            logger.warning("the newest judgments stay in their log, to be read at the next start: %s", error.message)
        if self.online is not None:
            self.online.experiment.close()
            with contextlib.suppress(ApiError):  # what nobody waits for is lost where the disk does not answer
                await self.judges.run(self.online.log.close)
        for pool in (self.readers, self.threads, self.long, self.explainers, self.long_explainers, self.judges):
            pool.close()
        self.vectors.close()
        if self.gateway is not None:
            self.gateway.close()
        self._watcher.shutdown()

    @contextlib.contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count the bytes of a body until it is answered. Raise ApiError (503) if all bodies together have too many."""
        if size and self._held_bytes and self._held_bytes + size > self.limits.held_bytes:
            raise ApiError(503, "busy", "More large requests are being answered than fit in memory. Try again later.")
        self._held_bytes += size
        try:
            yield
        finally:
            self._held_bytes -= size

    async def run(self, job: Callable[[], _Result], request: Request, pace: Pace) -> _Result:
        """The result of a job for a request, run in the event loop if it is quick, else in a thread."""
        if pace == "quick":
            return job()
        return await (self.long if pace == "long" else self.threads).run(job, request)

    def observe(self, answers: Sequence[Answer]) -> None:
        """Count documents, back-offs, and the distances of queries to the nearest training query."""
        for answer in answers:
            self.metrics.documents += len(answer.seen.features)
            self.observe_place(answer)

    def observe_place(self, answer: Answer) -> None:
        """Count back-offs and distances alone, of a ranker or of the members of a blend."""
        near = [each.place.known for each in answer.neighbourly if each.place and each.place.known]
        if not near or not len(answer.seen):
            return
        far = near[0].far() if len(near) == 1 else np.any([each.far() for each in near], axis=0)
        self.metrics.back_offs += int(np.count_nonzero(far))
        known = near[0]
        if math.isfinite(known.limit):  # the model backs off beyond this distance, so all distances are computed
            distances = known.distances()
        elif time.monotonic() - self._sampled >= 1 / _SAMPLES_PER_SECOND:
            distances = known.few(_SAMPLED_QUERIES)
        else:
            return
        self._sampled = time.monotonic()
        for distance, lost in zip(distances.tolist(), known.lost().tolist(), strict=False):  # some may be left out
            if not lost:
                self.metrics.distances.add(distance)
