"""Outcomes of interleaving in a log: draws with the credits of their clicks, each counted once."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from querywise.data.click_files import is_event_log, logged_events
from querywise.errors import DataError
from querywise.online.interleaving import credits_of
from querywise.online.log import WINDOW_SECONDS, ImpressionId, key_of, read_id
from querywise.online.off_policy import page_weights
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.progress import doing
from querywise.runtime.values import Json, is_finite_number

_BANDS = ((1, "first draw of its query"), (10, "2nd to 10th draw of its query"), (math.inf, "later draw of its query"))


@dataclass(frozen=True, eq=False)
class Draws:
    """The draws of the same rankings whose click windows have closed, in order of closing.

    Attributes:
        query: The query of each draw.
        closed: When its window closed, in seconds since 1970.
        credits: Clicked documents, a row for each draw and a column for each ranking.
        impressions: The number of impressions of all draws, including repeats.
        kinds: The kinds of each draw: its class, how often its query was drawn before, and whether it is far from the
            training queries, if known.

    """

    arms: tuple[str, ...]
    query: tuple[str, ...]
    closed: Floats
    credits: Ints
    impressions: int
    kinds: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.query)

    def contest(self, arm: int, chosen: Bools | None = None) -> tuple[Ints, Bools]:
        """Return the draws that the first ranking or this one won, among `chosen` if given, and which this one won."""
        gain = self.credits[:, arm] - self.credits[:, 0]
        won = np.flatnonzero((gain != 0) if chosen is None else (gain != 0) & chosen)
        return won, gain[won] > 0


@dataclass
class Noted:
    """Counts of what was noticed while reading."""

    impressions: int = 0
    clicks: int = 0  # clicks that count
    unknown: int = 0  # clicks whose impression is not in the log
    outside: int = 0  # clicks on documents that were not shown
    late: int = 0  # clicks after the window
    unsigned: int = 0  # impressions not signed with the key in the folder
    open: int = 0  # draws whose window has not closed


@dataclass
class _Draw:
    first: int
    query: str
    kind: str | None
    far: bool | None
    impressions: int = 0
    clicked: dict[str, int | None] = field(default_factory=dict)


def read_draws(
    folder: Path, actions: Sequence[str] = ("click",), now: float | None = None
) -> tuple[list[Draws], Noted]:
    """Read the draws in a log, for all sets of rankings, the most recent set last.

    Args:
        folder: The folder of the log.
        actions: The events that count as clicks.
        now: Seconds since 1970, to tell which windows have closed; None is the current time.

    Returns:
        The draws, and counts of what was noticed while reading.

    """
    if not is_event_log(folder):
        problem = "this is not the log of an experiment" if folder.exists() else "there is no such folder"
        raise DataError(f"{folder}: {problem}. A service that compares two models writes one.")
    with doing("Reading"):
        clicks = _clicks_in(folder, set(actions))
        noted = Noted(unknown=sum(map(len, clicks.values())))
        drawn = _drawn(folder, clicks, noted)
    end = (time.time() if now is None else now) - WINDOW_SECONDS
    closed = {each: draw for each, draw in drawn.items() if draw.first <= end}
    noted.open = len(drawn) - len(closed)
    last = {arms: draw.first for (arms, _), draw in sorted(drawn.items(), key=lambda each: each[1].first)}
    bands = _bands(drawn)
    found = []
    for arms in sorted(last, key=lambda each: last[each]):
        own = sorted((each for each in closed if each[0] == arms), key=lambda each: (closed[each].first, each[1]))
        draws = [closed[each] for each in own]
        found.append(
            Draws(
                arms,
                tuple(each.query for each in draws),
                np.array([each.first + WINDOW_SECONDS for each in draws], np.float64),
                np.array([credits_of(each.clicked.values(), len(arms)) for each in draws], np.int64).reshape(
                    -1, len(arms)
                ),
                sum(each.impressions for each in draws),
                tuple(_kinds(each, bands[name]) for name, each in zip(own, draws, strict=True)),
            )
        )
    return found, noted


_Name = tuple[tuple[str, ...], bytes]  # the name of a draw: its rankings and its seed


def _clicks_in(folder: Path, actions: set[str]) -> dict[str, dict[str, float]]:
    """Return when each document of each impression was first clicked."""
    found: dict[str, dict[str, float]] = {}
    for where, record in logged_events(folder):
        if record.get("action_name") in actions:
            name, document, when = record.get("query_id"), _clicked(record), _seconds(record.get("timestamp"), where)
            if isinstance(name, str) and document is not None:
                own = found.setdefault(name, {})
                own[document] = min(when, own.get(document, math.inf))
    return found


class _Impression(NamedTuple):
    """An impression as logged: the documents, with teams and, for the first positions, probabilities."""

    signed: str
    id: ImpressionId
    text: str
    documents: list[str]
    more: Mapping[str, Json]


def _impressions(folder: Path, noted: Noted) -> Iterator[_Impression]:
    """Yield the impressions in a log whose ids were signed with the key in its folder."""
    key = key_of(folder)
    for _, record in logged_events(folder):
        signed, listed, more = (record.get(each) for each in ("query_id", "query_response_hit_ids", "query_attributes"))
        if "action_name" in record or not isinstance(signed, str):
            continue
        known = read_id(signed, key)
        if known is None or not isinstance(listed, list) or not isinstance(more, dict):
            noted.unsigned += 1
            continue
        noted.impressions += 1
        yield _Impression(signed, known, str(record.get("user_query")), [str(each) for each in listed], more)


def _drawn(folder: Path, clicks: dict[str, dict[str, float]], noted: Noted) -> dict[_Name, _Draw]:
    """Return every draw, with the clicks that count; the first impression of each begins its window."""
    found, waiting = dict[_Name, _Draw](), list[tuple[_Draw, str, int | None, float]]()
    for each in _impressions(folder, noted):
        kind, far, teams = (each.more.get(name) for name in ("class", "far", "teams"))
        made = _Draw(each.id.seconds, each.text, str(kind) if kind else None, far if isinstance(far, bool) else None)
        draw = found.setdefault((each.id.arms, each.id.seed), made)
        draw.first = min(draw.first, each.id.seconds)
        draw.impressions += 1
        shown = dict(zip(each.documents, teams if isinstance(teams, list) else [], strict=False))
        for document, when in clicks.pop(each.signed, {}).items():
            noted.unknown -= 1
            if document in shown:
                team = shown[document]
                waiting.append((draw, document, team if isinstance(team, int) else None, when))
            else:
                noted.outside += 1
    for draw, document, team, when in waiting:
        if when > draw.first + WINDOW_SECONDS + 1:  # times of ids are truncated to seconds
            noted.late += 1
        elif document not in draw.clicked:
            draw.clicked[document] = team
            noted.clicks += 1
    return found


def logged_pages(
    folder: Path, orders: Mapping[str, Sequence[str]], actions: Sequence[str] = ("click",), now: float | None = None
) -> tuple[Floats, Floats]:
    """Return clicks and weights by position, for one impression of every closed draw, for a ranker with other orders.

    `orders` has the documents of every query, best first, by its text in the log; draws of other queries are left out.
    Only positions with logged probabilities are included.
    """
    end = (time.time() if now is None else now) - WINDOW_SECONDS
    clicks, seen = _clicks_in(folder, set(actions)), set[_Name]()
    rows: list[tuple[list[float], list[float]]] = []
    for each in _impressions(folder, Noted()):
        name, chances = (each.id.arms, each.id.seed), each.more.get("propensities")
        order = orders.get(each.text)
        if order is None or name in seen or each.id.seconds > end or not isinstance(chances, list):
            continue
        seen.add(name)
        known = [float(chance) if is_finite_number(chance) else 0.0 for chance in chances]
        until, own = each.id.seconds + WINDOW_SECONDS + 1, clicks.get(each.signed, {})
        shown = each.documents[: len(known)]
        clicked = [float(own.get(document, math.inf) <= until) for document in shown]
        rows.append((clicked, page_weights(order, shown, known[: len(shown)]).tolist()))
    if not rows:
        raise DataError(f"{folder}: no finished draw with propensities belongs to a query of the given orders.")
    width = min(max(len(clicked) for clicked, _ in rows), max(map(len, orders.values())))
    padded = np.array([[(each + [0.0] * width)[:width] for each in row] for row in rows])
    return padded[:, 0], padded[:, 1]


def _bands(drawn: Mapping[_Name, _Draw]) -> dict[_Name, str]:
    """Return how often the query of every draw was drawn before, which is known at the time of the draw."""
    seen, found = Counter[str](), {}
    for name, draw in sorted(drawn.items(), key=lambda each: (each[1].first, each[0][1])):
        seen[draw.query] += 1
        found[name] = next(band for most, band in _BANDS if seen[draw.query] <= most)
    return found


def _kinds(draw: _Draw, band: str) -> tuple[str, ...]:
    known = [] if draw.kind is None else [f"class {draw.kind}"]
    if draw.far is not None:
        known.append("far from the training queries" if draw.far else "near the training queries")
    return (*known, band)


def _clicked(record: Mapping[str, Json]) -> str | None:
    more = record.get("event_attributes")
    found = more.get("object") if isinstance(more, dict) else None
    name = found.get("object_id") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


def _seconds(value: Json, where: str) -> float:
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        raise DataError(f"{where} has the time {value!r:.40}; expected one like 2026-01-31T12:00:00.000Z.") from None
