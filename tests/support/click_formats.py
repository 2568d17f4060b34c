"""Click logs in the formats of engines."""

from __future__ import annotations

import csv
import itertools
import re
import shlex
from pathlib import Path
from typing import Any

from tests.support.clicks import clicks_on

PAGE = (Path(__file__).parents[2] / "docs" / "clicks.md").read_text()


FIRST, FORMATS, FEATURES = (
    [line for line in block.splitlines() if line.startswith("querywise ")]
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)[:3]
)


AFTER = [line for line in FIRST if line.split()[1] in ("fit", "index", "search", "serve")]


Row = dict[str, str]


def rows_of(folder: Path) -> list[Row]:
    with clicks_on(folder).open(newline="") as file:
        return list(csv.DictReader(file))


def insights(rows: list[Row], *, listed: bool) -> tuple[list[Row], list[dict[str, Any]]]:
    """Queries and events of User Behavior Insights; what was shown as events, or as every query's list of results."""
    queries: list[Any] = []
    events: list[dict[str, Any]] = []
    for second, (session, group) in enumerate(itertools.groupby(rows, key=lambda row: row["session"])):
        time, own = f"2024-12-10T{second // 60:02}:{second % 60:02}:00Z", list(group)
        query = {"query_id": session, "user_query": own[0]["query"], "timestamp": time, "client_id": session}
        hits = {"query_response_hit_ids": [row["document"] for row in own]}
        queries.append({**query, **hits} if listed else query)
        for row in own:
            more = {"object": {"object_id": row["document"]}, "position": {"ordinal": int(row["position"])}}
            actions = ["click"] * int(row["clicked"]) if listed else ["impression", "click"][: 1 + int(row["clicked"])]
            event = {"query_id": session, "timestamp": time, "client_id": session, "event_attributes": more}
            events += [{**event, "action_name": action} for action in actions]
    return queries, events


def words_of(line: str, folder: Path) -> list[str]:
    """The words of a command after `querywise`, with fewer trees, as the data is small; paths for another process."""
    words = shlex.split(line.replace("red shoes", "hammer"))[1:]
    if words[0] == "serve":
        return [str(folder / each) if (folder / each).exists() else each for each in words[1:]]
    return [*words, *(("--set", "trees=20") if "lambdamart" in words else ())]
