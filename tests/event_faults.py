"""What can happen to the log of an experiment while users click: kills, a full disk, two services, forged events.

Whatever was acknowledged must be in the log and count once, and nothing else may count.
"""

from __future__ import annotations

import contextlib
import random
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from querywise.data.click_files import logged_events
from querywise.online.outcomes import read_draws
from tests.serving import Serving, serving

_SHOWN = 10
_FULL_SECONDS = 30.0  # at most, until a click was refused


@dataclass
class Found:
    """What was done, and what became of it."""

    acknowledged: set[tuple[str, str]] = field(default_factory=set)  # impression and document
    made: set[str] = field(default_factory=set)  # impressions that were answered
    ranked: int = 0
    unranked: int = 0  # requests to rank that a living service did not answer, with a full disk or without
    refused: int = 0  # events that were answered by 503
    forged: int = 0
    taken: int = 0  # forged events that were accepted
    kills: int = 0
    full: int = 0
    lost: int = 0  # acknowledged, and not in the log
    twice: int = 0  # clicks that count more than once
    foreign: int = 0  # in the log, and never sent by a user
    unwritten: int = 0  # clicks whose impression a killed service had not written yet: left out, and told


class _Services:
    """Two services that share a log, each started again after it was killed."""

    def __init__(self, words: tuple[object, ...]) -> None:
        self._words = words
        self._running: list[Serving | None] = [None, None]
        self._stacks = [contextlib.ExitStack(), contextlib.ExitStack()]
        self.changing = [threading.Lock(), threading.Lock()]
        for place in range(2):
            self.start(place)

    def start(self, place: int) -> None:
        self._running[place] = self._stacks[place].enter_context(serving(*self._words))

    def kill(self, place: int) -> None:
        """End a service at once, and start another in its place."""
        self._running[place] = None
        self._stacks[place].close()
        self.start(place)

    @contextlib.contextmanager
    def full_disk(self, place: int) -> Iterator[None]:
        """No file of a service can grow, as on a full disk."""
        server = self._running[place]
        assert server is not None
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                most = resource.RLIM_INFINITY
                resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, most))

    def url(self, place: int) -> str | None:
        server = self._running[place]
        return None if server is None else server.url

    def close(self) -> None:
        for each in self._stacks:
            each.close()


def tried(models: Path, log: Path, request: dict[str, Any], *, kills: int, users: int = 4) -> Found:
    """Users who ask and click without a pause while services are killed so many times, and disks are full between.

    models: a folder with models `a` and `b`. request: what is ranked.
    """
    found, done, changing = Found(), threading.Event(), threading.Lock()
    services = _Services((models / "a", "--against", models / "b", "--log", log))
    try:
        with ThreadPoolExecutor(users) as threads:
            every = [threads.submit(_user, services, request, found, changing, done, number) for number in range(users)]
            try:
                for number in range(kills):
                    place = number % 2
                    time.sleep(0.3)
                    with services.full_disk(place):
                        found.full += 1
                        before, until = found.refused, time.monotonic() + _FULL_SECONDS
                        while found.refused == before and time.monotonic() < until:
                            time.sleep(0.05)
                    time.sleep(0.3)
                    services.kill(1 - place)
                    found.kills += 1
            finally:
                done.set()
            for each in every:
                each.result()
        time.sleep(1)  # impressions are written behind their answers
    finally:
        services.close()
    _compare(found, log)
    return found


def _user(
    services: _Services,
    request: dict[str, Any],
    found: Found,
    changing: threading.Lock,
    done: threading.Event,
    number: int,
) -> None:
    """One user after the other: a list, clicks on it, some of them sent again to either service, and forged ones."""
    rng, turn = random.Random(number), 0
    while not done.is_set():
        turn += 1
        place = rng.randrange(2)
        answer = _sent(services, place, "/v1/rank", {**request, "session": f"{number}-{turn}", "top": _SHOWN})
        if answer is None:
            continue
        with changing:
            found.ranked += 1
            found.unranked += answer.status_code != 200
        if answer.status_code != 200:
            continue
        impression = answer.json()["impression"]
        with changing:
            found.made.add(impression)
        for document in rng.sample([each["id"] for each in answer.json()["documents"]], 3):
            for _ in range(rng.choice((1, 1, 2))):
                _click(services, rng.choice((place, place, 1 - place)), impression, document, found, changing)
        _forge(services, place, impression, found, changing, rng)


def _sent(services: _Services, place: int, path: str, content: object) -> httpx.Response | None:
    """The answer; None where the service is gone, and with it perhaps the answer."""
    url = services.url(place)
    try:
        return None if url is None else httpx.post(url + path, json=content, timeout=60)
    except httpx.HTTPError:
        return None


def _click(
    services: _Services, place: int, impression: str, document: str, found: Found, changing: threading.Lock
) -> None:
    event = {"impression": impression, "document": document}
    answer = _sent(services, place, "/v1/events", {"events": [event]})
    if answer is None:
        return
    said = answer.json()
    with changing:
        found.refused += answer.status_code == 503
        if answer.status_code == 200 and said["accepted"] + said["duplicates"]:
            found.acknowledged.add((impression, document))


def _forge(
    services: _Services, place: int, impression: str, found: Found, changing: threading.Lock, rng: random.Random
) -> None:
    """Events with ids that nobody was given: another seed, another time, another signature."""
    seed, when, arms, signature = impression.split(".")
    forged = rng.choice(
        (
            f"{'0' * 16}.{when}.{arms}.{signature}",
            f"{seed}.{int(when, 16) + 1:x}.{arms}.{signature}",
            f"{seed}.{when}.{'~'.join(reversed(arms.split('~')))}.{signature}",
            f"{seed}.{when}.{arms}.{signature[::-1]}",
        )
    )
    answer = _sent(services, place, "/v1/events", {"events": [{"impression": forged, "document": "d1"}]})
    if answer is not None and answer.status_code == 200:
        with changing:
            found.forged += 1
            found.taken += answer.json()["unknown"] != 1


def _compare(found: Found, log: Path) -> None:
    """What the log has of what was acknowledged, and what it counts."""
    logged = Counter[tuple[str, str]]()
    for _, record in logged_events(log):
        if "action_name" in record:
            attributes: Any = record["event_attributes"]
            logged[str(record["query_id"]), str(attributes["object"]["object_id"])] += 1
    found.lost = len(found.acknowledged - logged.keys())
    found.foreign = sum(impression not in found.made for impression, _ in logged)
    draws, noted = read_draws(log, now=time.time() + 7_200)
    counted = sum(int(each.credits.sum()) for each in draws)
    found.unwritten = noted.unknown
    found.twice = max(counted + noted.unknown - len(logged), 0)
    found.lost += max(len(logged) - counted - noted.unknown, 0)
