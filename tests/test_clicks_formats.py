"""Every format of a click log, by the commands of the page on clicks, to a service that answers."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.clicking import engine_with
from tests.commands import output, run
from tests.serving import serving
from tests.support.click_formats import AFTER, FEATURES, FORMATS, Row, insights, rows_of, words_of
from tests.support.clicks import collection

pytestmark = pytest.mark.slow  # whole jobs


def table(rows: list[Row], path: Path) -> None:
    """CSV or TSV."""
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        out.writeheader()
        out.writerows(rows)


def parquet(rows: list[Row], path: Path) -> None:
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in ("query", "session", "document")}
    numbers = {name: pa.array([int(row[name]) for row in rows], pa.int32()) for name in ("position", "clicked")}
    pq.write_table(pa.table(columns | numbers), path)


def pages(rows: list[Row], path: Path) -> None:
    """A page a line."""
    lines = ["query\tshown\tclicked"]
    for _, group in itertools.groupby(rows, key=lambda row: row["session"]):
        own = list(group)
        shown = " ".join(row["document"] for row in own)
        lines.append(f"{own[0]['query']}\t{shown}\t{' '.join(row['document'] for row in own if row['clicked'] == '1')}")
    path.write_text("\n".join(lines) + "\n")


@contextlib.contextmanager
def logged(rows: list[Row], name: str, folder: Path) -> Iterator[str]:
    """The rows as a log of the page's name, or behind an address; what to type for it."""
    if name.startswith("http://"):
        with engine_with(*insights(rows, listed=True)) as address:
            yield address
        return
    path = folder / name
    if name == "ubi.ndjson":
        queries, events = insights(rows, listed=False)
        lines = [
            each
            for index, records in (("ubi_queries", queries), ("ubi_events", events))
            for record in records
            for each in ({"index": {"_index": index}}, record)
        ]
        path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    else:
        {"clicks.parquet": parquet, "pages.tsv": pages}.get(name, table)(rows, path)
    yield name


def test_the_page_has_a_command_for_every_format() -> None:
    names = ["ubi.ndjson", "http://localhost:9200", "clicks.csv", "clicks.tsv", "clicks.parquet", "pages.tsv"]
    assert [line.split()[2] for line in FORMATS] == names
    assert [line.split()[1] for line in AFTER] == ["fit", "index", "search", "serve"]
    assert [line.split()[1] for line in FEATURES] == ["clicks", "fit", "serve"]


@pytest.mark.parametrize("line", FORMATS, ids=lambda line: str(line.split()[2]))
def test_a_log_becomes_a_served_model_by_the_commands_of_the_page(line: str, tmp_path: Path) -> None:
    rows, name = rows_of(collection(tmp_path / "text")), line.split()[2]
    with logged(rows, name, tmp_path) as typed:
        told = output(run(tmp_path, *words_of(line.replace(name, typed), tmp_path)))
    assert "600 result pages of 12 queries" in " ".join(told.split())
    for after in AFTER[:-1]:
        told = output(run(tmp_path, *words_of(after, tmp_path)))
    assert "D" in told
    titles = [json.loads(each) for each in (tmp_path / "text" / "corpus.jsonl").read_text().splitlines()]
    good = {each["_id"] for each in titles if each["title"].startswith("hammer")}
    with serving(*words_of(AFTER[-1], tmp_path)) as server:
        found = server.get("/v1/search", q="hammer").json()["documents"]
    assert {each["id"] for each in found[: len(good)]} == good, "what was clicked is above what only has the word"


def test_a_log_and_features_become_a_served_model_by_the_commands_of_the_page(tmp_path: Path) -> None:
    rows = rows_of(collection(tmp_path / "text"))
    parquet(rows, tmp_path / "clicks.parquet")
    titles = [json.loads(each) for each in (tmp_path / "text" / "corpus.jsonl").read_text().splitlines()]
    pairs = [(query, each) for query in dict.fromkeys(row["query"] for row in rows) for each in titles]
    columns: dict[str, Any] = {
        "qid": [query for query, _ in pairs],
        "docid": [each["_id"] for _, each in pairs],
        "begins": [float(each["title"].startswith(query)) for query, each in pairs],
        "noise": np.random.default_rng(0).random(len(pairs)),
    }
    pq.write_table(pa.table({**columns, "label": [0] * len(pairs)}), tmp_path / "features.parquet")
    for line in FEATURES[:-1]:
        output(run(tmp_path, *words_of(line, tmp_path)))
    asked = [{"id": name, "features": {"begins": value, "noise": 0.5}} for name, value in (("low", 0), ("high", 1))]
    with serving(*words_of(FEATURES[-1], tmp_path)) as server:
        found = server.post("/v1/rank", {"query": {"id": "q", "text": "hammer"}, "documents": asked}).json()
    assert [each["id"] for each in found["documents"]] == ["high", "low"]
