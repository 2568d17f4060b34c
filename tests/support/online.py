"""A log of an experiment, and a service that shows interleaved lists."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.click_files import logged_events
from querywise.data.synthetic import make_judged
from querywise.online.log import EventLog, click_record, draw_once

NOW = int(time.time())


DOCUMENTS = [f"d{number}" for number in range(6)]


BETTER = DOCUMENTS[::-1]  # by what users click in these tests


class Played:
    """A log that is written as services do, at times of its own."""

    def __init__(self, folder: Path, names: tuple[str, str] = ("a", "b")) -> None:
        self.log = EventLog(folder)
        self.names = names
        self.won: Counter[str] = Counter()

    def add(self, content: bytes) -> None:
        done = self.log.add(lambda: content, len(content), awaited=True)
        assert done is not None
        done.result()

    def show(
        self, query: str, session: str | None, when: int, *, b: list[str] = BETTER, **more: Any
    ) -> tuple[str, Any]:
        drawn = draw_once(self.log.key, dict(zip(self.names, (DOCUMENTS, b), strict=True)), query, session, 4)
        shown = drawn._replace(id=drawn.id._replace(seconds=when), **more)
        signed = shown.id.signed(self.log.key)
        self.add(shown.record(signed))
        return signed, shown.draw

    def click(self, impression: str, document: str, when: float, action: str = "click") -> None:
        self.add(click_record(impression, document, action, None, when))


def played(folder: Path, draws: int, *, share: float, seed: int = 0, names: tuple[str, str] = ("a", "b")) -> Played:
    """Users who click one document shown: with so much probability one that B put into the list."""
    rng, made = np.random.default_rng(seed), Played(folder, names)
    for number in range(draws):
        when = NOW - 100_000 + 60 * number
        kind = ("cars", "cats")[number % 2]
        signed, draw = made.show(f"q{number % 7}", f"s{number}", when, kind=kind, far=number % 3 == 0)
        team = int(rng.random() < share)
        own = [document for document, of in zip(draw.documents, draw.teams, strict=True) if of == team]
        made.click(signed, str(rng.choice(own)), when + 5)
        made.won["ab"[team]] += 1
    made.log.close()
    return made


DATA = make_judged(30, 12, 4)


def request_of(query: int, **more: Any) -> dict[str, Any]:
    rows = DATA.candidates.rows(query)
    features = DATA.candidates.features[rows]
    documents = [{"id": f"d{row}", "features": each.tolist()} for row, each in enumerate(features)]
    return {"query": {"id": f"q{query}", "text": f"words {query}"}, "documents": documents, **more}


def click(impression: str, document: str, **more: Any) -> dict[str, Any]:
    return {"impression": impression, "document": document, **more}


def settled(folder: Path, count: int) -> list[dict[str, Any]]:
    """The records of a log, once there are so many: impressions are written behind their answers."""
    for _ in range(200):
        found: list[Any] = [record for _, record in logged_events(folder)]
        if len(found) >= count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{len(found)} records, expected {count}")
