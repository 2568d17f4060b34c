"""Anything the command line takes, read by one function."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from querywise import DataError, make_judged, read_judged
from querywise.data.folds import write_parts
from querywise.data.letor import write_letor
from querywise.data.parquet.writing import write_shards
from querywise.data.readers import reader_of
from tests.commands import output, run

DATA = make_judged(20, 5, 3)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The same judged set as LETOR text, as shards and as a log; folds; and a small collection."""
    write_letor(tmp_path / "data.txt", DATA)
    write_shards([DATA], tmp_path / "shards.parquet", rows=40)
    owners = [DATA.query_ids[query] for query in DATA.candidates.query_of_row.tolist()]
    columns = {f"f{number}": column for number, column in enumerate(DATA.candidates.features.T)}
    pq.write_table(pa.table({"qid": owners, "label": DATA.labels, **columns}), tmp_path / "log.parquet")
    write_parts(DATA, tmp_path / "folds")
    text = tmp_path / "text"
    text.mkdir()
    (text / "corpus.jsonl").write_text(
        "".join(
            json.dumps({"_id": f"D{n}", "title": "", "text": f"red {w}"}) + "\n" for n, w in enumerate(("fox", "cat"))
        )
    )
    (text / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "red fox"}) + "\n")
    (text / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\tD0\t1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("data.txt", "LETOR text"),
        ("shards.parquet", "shards"),
        ("log.parquet", "a Parquet log"),
        ("folds", "a folder"),
        ("text", "a text collection"),
        ("text/corpus.jsonl", "a text collection"),
        ("nowhere", "LETOR text"),
    ],
)
def test_the_kind_of_a_path(place: Path, name: str, kind: str) -> None:
    assert reader_of(place / name).name == kind


@pytest.mark.parametrize("name", ["data.txt", "shards.parquet", "log.parquet"])
@pytest.mark.parametrize("given", [Path, str, lambda path: [path]], ids=["path", "text", "list"])
def test_the_same_set_from_every_kind_of_file(place: Path, name: str, given: Callable[[Path], str | Path]) -> None:
    found = read_judged(given(place / name))
    assert np.array_equal(found.candidates.features, DATA.candidates.features)
    assert np.array_equal(found.labels, DATA.labels)


def test_several_files_are_one_set(place: Path) -> None:
    found = read_judged([place / "folds" / "S1.txt", place / "folds" / "S2.txt"])
    assert len(found) == 8


def test_a_text_collection_is_bm25s_candidates(place: Path) -> None:
    found = read_judged(place / "text")
    assert found.candidates.document_ids == ("D0", "D1")
    assert found.labels.tolist() == [1, 0]
    elsewhere = place / "other.tsv"
    shutil.copy(place / "text" / "qrels.tsv", elsewhere)
    assert len(
        read_judged(place / "text" / "corpus.jsonl", queries=place / "text" / "queries.jsonl", judgements=elsewhere)
    )


def test_what_cannot_be_read_is_refused_in_a_sentence(place: Path) -> None:
    for data, more, message in (
        (
            place / "folds",
            {},
            "this folder is not a set of shards, a log or a text collection. Read folds with read_folds",
        ),
        (place / "nowhere.txt", {}, "there is no such file"),
        ([], {}, "No file to read was given"),
        ([place / "data.txt", place / "log.parquet"], {}, "is LETOR text, .* is a Parquet log: `querywise convert`"),
        (place / "log.parquet", {"features": 2}, "there are 3 features; features=2 is too few"),
        (place / "data.txt", {"judgements": "qrels.tsv"}, "judgments belong to a text collection"),
        ("stdlib", {"judgements": "qrels.tsv"}, "stdlib has queries and judgments of its own"),
    ):
        with pytest.raises(DataError, match=message):
            read_judged(data, **more)


def test_the_command_line_evaluates_a_text_collection(place: Path) -> None:
    (place / "scores.txt").write_text("1\n0\n")
    done = run(place, "evaluate", "text", "scores.txt", "--measures", "map", "--json")
    assert json.loads(output(done))["mean"] == {"map": 1.0}
