"""docs/clicks.md in a real OpenSearch: User Behavior Insights out of its two indices, to a service that answers."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from querywise.clicks.readers import read_clicks
from tests import commands
from tests.clicking import pages_of
from tests.engines.opensearch import OpenSearch
from tests.serving import serving
from tests.support.click_formats import AFTER, FORMATS, insights, rows_of, words_of
from tests.support.clicks import collection

# As the plugin of User Behavior Insights makes them, in the fields that are read.
WORD = {"type": "keyword", "ignore_above": 256}
QUERIES = {"query_id": WORD, "client_id": WORD, "user_query": WORD, "query_response_hit_ids": WORD}
EVENTS = {"query_id": WORD, "client_id": WORD, "action_name": WORD, "event_attributes": {"type": "object"}}


@pytest.mark.parametrize("listed", [False, True], ids=["events", "lists"])
def test_insights_in_an_engine_become_a_served_model(listed: bool, search: OpenSearch, tmp_path: Path) -> None:
    rows = rows_of(collection(tmp_path / "text"))
    queries, events = insights(rows, listed=listed)
    assert len(events) > (0 if listed else 2_000), "several answers of the engine"
    for index, fields, records in (("ubi_queries", QUERIES, queries), ("ubi_events", EVENTS, events)):
        properties = {**fields, "timestamp": {"type": "date"}}
        search.ask("PUT", index, {"mappings": {"properties": properties}})
        search.fill(index, {str(place): each for place, each in enumerate(records)})
    try:
        [line] = [each for each in FORMATS if "localhost:9200" in each]
        line = line.replace("http://localhost:9200", search.url)
        commands.output(commands.run(tmp_path, *words_of(line, tmp_path)))
        found = pages_of(read_clicks(search.url))
    finally:
        for index in ("ubi_queries", "ubi_events"):
            search.ask("DELETE", index)
    expected = []
    for _, group in itertools.groupby(rows, key=lambda row: row["session"]):
        own = list(group)
        documents, clicked = [row["document"] for row in own], [row["clicked"] == "1" for row in own]
        expected.append((own[0]["query"], documents, clicked))
    assert found == expected
    for after in AFTER[:-1]:
        commands.output(commands.run(tmp_path, *words_of(after, tmp_path)))
    with serving(*words_of(AFTER[-1], tmp_path)) as server:
        assert server.get("/v1/search", q="hammer").json()["documents"]
