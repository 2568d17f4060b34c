"""The records of an experiment as User Behavior Insights: impressions are queries, clicks are events."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from querywise.online.impression_ids import ARM, ImpressionId, pseudonym, seed_of, share_of
from querywise.online.interleaving import DEPTH, Draw, interleave, propensities
from querywise.runtime.values import Json

WINDOW_SECONDS = 30 * 60  # after an impression, in which its clicks count
_WITH_CHANCES = 10  # positions with computed and logged probabilities: those of a first page


class Shown(NamedTuple):
    """An interleaved list that was shown: its id, the draw and its rankings, and the session.

    Attributes:
        text: The query's text, or its id.
        kind: The query's class.
        far: Whether it is far from all training queries; None if unknown.
        session: A pseudonym.

    """

    id: ImpressionId
    rankings: Sequence[Sequence[str]]
    draw: Draw
    text: str
    kind: str | None = None
    far: bool | None = None
    session: str | None = None

    def record(self, signed: str) -> bytes:
        """Format the line of the log, with the probabilities of documents at their positions."""
        documents = self.draw.documents[:DEPTH]
        chances = propensities(self.rankings, documents[:_WITH_CHANCES])
        attributes: dict[str, Json] = {
            "draw": self.id.seed.hex(),
            "arms": list(self.id.arms),
            "teams": list(self.draw.teams[:DEPTH]),
            "propensities": [None if math.isnan(each) else round(each, 9) for each in chances],
        }
        known = {"class": self.kind, "far": self.far}
        attributes |= {name: value for name, value in known.items() if value is not None}
        content: dict[str, Json] = {
            "query_id": signed,
            "user_query": self.text,
            "timestamp": _written(self.id.seconds),
            "application": "querywise",
            "query_response_hit_ids": list(documents),
            "query_attributes": attributes,
        }
        return _line(content | ({} if self.session is None else {"client_id": self.session}))


def draw_once(
    key: bytes, rankings: Mapping[str, Sequence[str]], query: str, session: str | None, top: int | None
) -> Shown:
    """Interleave named rankings for a query: a session that repeats the query gets the same list."""
    arms = tuple(rankings)
    seed = seed_of(key, session, query, arms)
    lists = list(rankings.values())
    who = None if session is None else pseudonym(key, session)
    return Shown(ImpressionId(seed, int(time.time()), arms), lists, interleave(lists, seed, top), query, session=who)


def is_drawn(key: bytes, share: float, query: str, session: str | None) -> bool:
    """Whether a query is in the experiment, at this share of traffic; consistent for repeats within a session."""
    return share >= 1 or share_of(seed_of(key, session, query, ("share",))) < share


def click_record(id_: str, document: str, action: str, position: int | None, when: float) -> bytes:
    """Format the line of the log for a click, or another action, at `when` seconds since 1970."""
    where: dict[str, Json] = {"object": {"object_id": document}}
    if position is not None:
        where["position"] = {"ordinal": position}
    return _line({"action_name": action, "query_id": id_, "timestamp": _written(when), "event_attributes": where})


def is_arm(name: str) -> bool:
    """Whether a ranking can have this name in an id."""
    return re.fullmatch(ARM, name, re.ASCII) is not None


def _written(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(content: Mapping[str, Json]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"
