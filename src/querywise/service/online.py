"""Two models in an online experiment: interleaved rankings, logged clicks, and the verdict of the log so far."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from querywise.contracts.answers import Answer
from querywise.data.judged import Candidates
from querywise.errors import DataError, QuerywiseError
from querywise.measures.order import order
from querywise.online.log import WINDOW_SECONDS, EventLog, click_record, draw_once, is_arm, is_drawn, read_id
from querywise.runtime.arrays import Floats
from querywise.runtime.values import JsonObject
from querywise.service.api import ApiError, RequestDataError
from querywise.service.limits import Limits
from querywise.service.loaded_model import LoadedModel, ModelFolder
from querywise.service.metrics import metric
from querywise.service.schema import (
    EventsRequest,
    EventsResponse,
    InterleaveRequest,
    InterleaveResponse,
    Query,
    RankedDocument,
    RankRequest,
    RankResponse,
)

_REMEMBERED = 100_000  # clicks, so that the same one again is not logged
_AHEAD_SECONDS = 60  # that another machine's clock may be ahead
_RECORD_BYTES = 300  # of a record beside its ids, about
_OUTCOMES = ("interleaved", "alone", "failed")  # of answers
_EVENT_OUTCOMES = ("accepted", "duplicates", "unknown", "late", "lost")
_ANSWERS = "Answers of an experiment: interleaved; alone, of one model; failed, of one because the other failed."
_EVENTS = "Events that were sent, by what became of them."
_LOST = "Impressions that could not be logged."
_FAILING = "1 while the log of impressions and clicks cannot be written."
_FRESH_SECONDS = 10.0  # or as long as reading took, if that is longer
_MINUTES = 60
_PROGRAM = "import json, sys; from querywise.jobs.online import told; json.dump(told(sys.argv[1]), sys.stdout)"
_MOST_KINDS = 12  # of queries, which the page shows


class Told(NamedTuple):
    """The verdict of `querywise online` on a log, or its error, and the time."""

    verdict: JsonObject | None
    problem: str | None
    when: float


class Experiment:
    """The verdict on a log, which a separate process reads: millions of lines do not delay requests."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._told: Told | None = None
        self._took = 0.0
        self._reading: asyncio.Task[None] | None = None

    async def told(self, seconds: float) -> Told | None:
        """Return the current verdict; if reading takes too long, the previous one, or None."""
        age = None if self._told is None else time.monotonic() - self._told.when
        if self._reading is None or (self._reading.done() and (age is None or age > max(_FRESH_SECONDS, self._took))):
            self._reading = asyncio.create_task(self._read())
        await asyncio.wait([self._reading], timeout=seconds)
        return self._told

    async def _read(self) -> None:
        begun = time.monotonic()
        nothing, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PROGRAM, str(self._log), stdin=nothing, stdout=pipe, stderr=nothing
        )
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        now = time.monotonic()
        self._took = now - begun
        if process.returncode == 0:
            found = json.loads(said)
            if found["verdict"] is not None:
                found["verdict"]["kinds"] = found["verdict"]["kinds"][:_MOST_KINDS]
            self._told = Told(found["verdict"], found["problem"], now)
        else:
            self._told = Told(None, f"The log could not be read; the process ended with {process.returncode}.", now)

    def close(self) -> None:
        """Give up a reading."""
        if self._reading is not None:
            self._reading.cancel()


class LastHour:
    """Counts of the last sixty minutes, from counts since the start that are remembered every minute."""

    def __init__(self) -> None:
        self._before: deque[Mapping[str, int]] = deque([Counter[str]()], maxlen=_MINUTES + 1)

    def remember(self, totals: Mapping[str, int]) -> None:
        """Remember the counts of this minute."""
        self._before.append(dict(totals))

    def of(self, totals: Mapping[str, int]) -> dict[str, int]:
        """Return how much was counted since the oldest remembered minute."""
        return {name: count - self._before[0].get(name, 0) for name, count in totals.items()}


class Online:
    """Interleaving and the log of an experiment.

    log: where impressions and clicks go. against: the model that the one served is compared with; None: only rankings
    that are sent are interleaved. share: of the queries, to be interleaved; from 0 to 1.
    """

    def __init__(self, log: EventLog, against: ModelFolder | None = None, *, share: float = 1.0) -> None:
        if not 0 <= share <= 1:
            raise DataError(f"share={share}: expected a number from 0 to 1.", arguments=("share",))
        self.log = log
        self.against = against
        self.share = share
        self.answers: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.experiment = Experiment(log.path)
        self.last_hour = LastHour()
        self._seen: dict[bytes, None] = {}
        self._compared = "", "", False  # versions of two models, and whether they take the same features

    @staticmethod
    def opened(log: Path, against: Path | None, share: float) -> Online:
        """Return the experiment of a service. Raise an error if its log or its other model cannot be used."""
        made = Online(EventLog(log), share=share)
        made.against = None if against is None else ModelFolder(against)
        return made

    def require_alike(self, model: LoadedModel) -> None:
        """Raise an error if two models do not have the same features."""
        if self.against is not None and not self._are_alike(model, self.against.current):
            raise DataError(
                f"against={str(self.against.folder)!r}: the features of this model are not those of the model that it "
                "is "
                f"compared with: they differ in number ({self.against.current.manifest.feature_count} and "
                f"{model.manifest.feature_count}), names or missing values. "
                "Fit both on the same kind of features.",
                arguments=("against",),
            )

    def _are_alike(self, model: LoadedModel, other: LoadedModel) -> bool:
        if self._compared[:2] != (model.version, other.version):
            ours, theirs = model.manifest, other.manifest
            alike = model.features.names == other.features.names and ours.missing == theirs.missing
            self._compared = model.version, other.version, alike
        return self._compared[2]

    def other(self, model: LoadedModel, query: Query, session: str | None) -> LoadedModel | None:
        """Return the model to interleave with; None if only the served model answers the query."""
        if self.against is None:
            return None
        other = self.against.current
        if self._are_alike(model, other) and is_drawn(self.log.key, self.share, query.text or query.id, session):
            return other
        return None

    def count(self, other: LoadedModel | None, impression: str | None) -> None:
        """Count an answer of an experiment by what became of it."""
        if self.against is not None:
            outcome = "alone" if other is None else "failed" if impression is None else "interleaved"
            self.answers[outcome] += 1

    def ranked(
        self, model: LoadedModel, other: LoadedModel, asked: RankRequest, features: Floats | None
    ) -> tuple[list[RankResponse], list[Answer]]:
        """Return two models' interleaved answers; the first's alone, without an impression, if the other fails."""
        candidates = model.candidates([asked], features)
        answer, scores = model.answer(candidates)
        show = len(scores) if asked.top is None else asked.top
        try:
            other.check_queries([asked.query])
        except QuerywiseError:
            shown = None
        else:
            shown = self.searched(model, other, candidates, (answer, scores), asked.query, asked.session, show)
        if shown is None:
            return model.responses([asked], candidates, scores), [answer]
        # Scores of two models cannot be compared: documents have those of their positions, for who sorts by score.
        documents = [RankedDocument(each, 1 / place) for place, each in enumerate(shown.documents, start=1)]
        teams = shown.teams if asked.teams else None
        return [RankResponse(asked.query.id, model.version, documents, shown.impression, teams)], [answer]

    def searched(
        self,
        model: LoadedModel,
        other: LoadedModel,
        candidates: Candidates,
        answered: tuple[Answer, Floats],
        query: Query,
        session: str | None,
        show: int,
    ) -> InterleaveResponse | None:
        """The documents of a search to show, of two models' orders; None if the other one fails.

        answered: the answer of the one that is served, and its scores.
        """
        try:
            _, theirs = other.answer(candidates)
        except QuerywiseError:
            return None
        lists = [
            candidates.document_labels(order(scores, candidates.starts)[:show]) for scores in (answered[1], theirs)
        ]
        arms = dict(zip(_names(model, other), lists, strict=True))
        return self.shown(arms, query, session, show, far=_is_far(answered[0]))

    def interleaved(self, asked: InterleaveRequest) -> InterleaveResponse:
        """The answer to a request to interleave rankings that come with it."""
        wrong = next((name for name in asked.rankings if not is_arm(name)), None)
        if wrong is not None:
            said = f"A ranking cannot be called {wrong!r:.100}: expected up to 60 ASCII letters, digits, - and _."
            raise RequestDataError(said, "rankings")
        shown = self.shown(asked.rankings, asked.query, asked.session, asked.top)
        if not asked.teams:
            shown.teams = None  # pages have no need to know
        return shown

    def shown(
        self,
        rankings: Mapping[str, Sequence[str]],
        query: Query,
        session: str | None,
        top: int | None,
        *,
        far: bool | None = None,
    ) -> InterleaveResponse:
        """Interleave rankings, by their names, and have the impression logged soon."""
        text = query.text or query.id
        shown = draw_once(self.log.key, rankings, text, session, top, kind=query.class_, far=far)
        signed = shown.id.signed(self.log.key)
        size = sum(map(len, shown.draw.documents)) + len(shown.text) + len(signed) + _RECORD_BYTES
        self.log.add(lambda: shown.record(signed), size, awaited=False)
        return InterleaveResponse(signed, list(shown.draw.documents), list(shown.draw.teams))

    async def keep(self, asked: EventsRequest, limits: Limits) -> EventsResponse:
        """Log events whose impressions are known and young enough, each once, and return when they are on the disk."""
        counts, fresh, now = Counter[str](), dict[bytes, bytes](), time.time()
        for event in asked.events:
            known = read_id(event.impression, self.log.key)
            said = "\0".join((event.impression, event.document, event.action))
            name = hashlib.blake2b(said.encode(errors="surrogatepass"), digest_size=16).digest()
            if known is None:
                counts["unknown"] += 1
            elif not -_AHEAD_SECONDS <= now - known.seconds <= WINDOW_SECONDS:
                counts["late"] += 1
            elif name in self._seen or name in fresh:
                counts["duplicates"] += 1
            else:
                fresh[name] = click_record(event.impression, event.document, event.action, event.position, now)
        if fresh:
            await self._kept(b"".join(fresh.values()), limits)
            self._seen |= dict.fromkeys(fresh)
            for name in [*islice(self._seen, max(len(self._seen) - _REMEMBERED, 0))]:
                del self._seen[name]
        counts["accepted"] = len(fresh)
        self.events.update(counts)
        return EventsResponse(**{name: counts[name] for name in ("accepted", "duplicates", "unknown", "late")})

    async def _kept(self, lines: bytes, limits: Limits) -> None:
        try:
            done = self.log.add(lambda: lines, len(lines), awaited=True)
            assert done is not None
            await asyncio.wait_for(asyncio.wrap_future(done), limits.seconds)
        except DataError as error:
            self.events["lost"] += 1
            raise ApiError(503, "not_kept", f"The events were not kept. {error}") from None
        except TimeoutError:
            self.events["lost"] += 1
            message = (
                "Whether the events were kept is not known: there was no answer from the disk within "
                f"{limits.seconds:g} seconds. Send them again; the same event twice counts once."
            )
            raise ApiError(503, "outcome_unknown", message) from None

    def totals(self) -> dict[str, int]:
        """Return the counts since the start."""
        return {
            **{name: self.answers[name] for name in _OUTCOMES},
            **{name: self.events[name] for name in _EVENT_OUTCOMES},
            "impressions_lost": self.log.lost,
        }

    def metrics(self) -> str:
        """Counts in the format of Prometheus."""
        answers = (f'querywise_online_answers_total{{outcome="{each}"}} {self.answers[each]}' for each in _OUTCOMES)
        events = (f'querywise_online_events_total{{outcome="{each}"}} {self.events[each]}' for each in _EVENT_OUTCOMES)
        return "".join(
            (
                metric("online_answers_total", "counter", _ANSWERS, answers),
                metric("online_events_total", "counter", _EVENTS, events),
                metric("online_impressions_lost_total", "counter", _LOST, self.log.lost),
                metric("online_log_failing", "gauge", _FAILING, int(self.log.problem is not None)),
            )
        )


def _names(model: LoadedModel, other: LoadedModel) -> tuple[str, str]:
    """Return the names of two models in ids: their versions; the same model twice has two names."""
    return model.version, other.version if other.version != model.version else f"{other.version}-2"


def _is_far(answer: Answer) -> bool | None:
    """Whether a query is beyond the distance at which the model backs off; None of a model that never does."""
    known = [each.place.known for each in answer.neighbourly if each.place and each.place.known]
    return bool(known[0].far()[0]) if known and math.isfinite(known[0].limit) else None
