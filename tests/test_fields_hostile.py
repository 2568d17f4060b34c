"""Collections with fields that somebody made up: what they take is known before it is taken."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from querywise.data.collections import read_collection
from querywise.data.fields import Fields, FieldSpec, read_fields
from querywise.errors import DataError
from querywise.retrieval.reading import read_judged
from querywise.runtime.workers import ThisProcess, use_workers


@pytest.mark.parametrize(
    "text",
    [
        "vectors = " + "[" * 5_000 + "]" * 5_000,
        "vectors = " + "[\n" * 5_000 + "]" * 5_000,
        "title = " + "9" * 6_000,
        "a" + ".a" * 20_000 + " = 1",
        "[field" + ".a" * 20_000 + "]",
        'field."a.b"' + ".a" * 20_000 + " = 1",
        "title = " + "{a = " * 5_000 + "1" + "}" * 5_000,
        '[field.a]\nkind = "text"\nweight = 1e308',
        '[field.a]\nkind = "date"\nreference = 1e308',
        "".join(f'[field.f{number}]\nkind = "text"\n' for number in range(1_001)),
        "#" * 10_000_001,
    ],
)
def test_a_file_of_fields_takes_no_more_than_it_says(text: str, tmp_path: Path) -> None:
    path = tmp_path / "fields.toml"
    path.write_text(text)
    tracemalloc.start()
    with pytest.raises(DataError):
        read_fields(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 50_000_000  # 1.6 GB for 40 kB of dots


def test_names_may_have_dots_and_comments_anything(tmp_path: Path) -> None:
    path = tmp_path / "fields.toml"
    path.write_text(
        '# it\'s "...........[[[[[[[[[[["\n[field."a.b.c.d.e.f.g.h.i.j.k.l"]  # [[[[[[[[[[[[\nkind = "text"\n'
    )
    assert read_fields(path).words == ("a.b.c.d.e.f.g.h.i.j.k.l",)


def test_a_field_of_its_own_for_every_document_is_refused(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"_id": str(number), f"f{number}": "word"}) + "\n" for number in range(1_100))
    (tmp_path / "corpus.jsonl").write_text(lines)
    with pytest.raises(DataError, match=r"fields, of .* names; expected 1,000 at most"):
        read_collection(tmp_path)


def test_many_fields_of_many_documents_are_held_to_memory(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(200)]
    lines = [json.dumps({"_id": str(number), names[number % 200]: "word"}) for number in range(2_000)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "word"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\nq\t2\t0\n")
    with use_workers(ThisProcess(memory=10_000_000)), pytest.raises(DataError, match="200 fields of 2000 documents"):
        read_judged(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"title": ["a"]},
        {"title": 5},
        {"vectors": [5]},
        {"vectors": [["a"]]},
        {"fields": [{"name": 5, "kind": "text"}]},
        {"fields": [{"name": "a", "kind": "text"}] * 2},
        {"fields": [{"name": "a", "kind": "text", "other": 1}]},
        {"fields": [5]},
        {"fields": 5},
        {"fields": [{"name": "a", "kind": "text", "weight": 10**400}]},
    ],
)
def test_what_a_folder_says_of_fields_is_held_to_its_types(change: dict[str, Any]) -> None:
    said = Fields((FieldSpec("a", "text"),), "a", ("a",)).as_json()
    assert Fields.from_json(said, "here").title == "a"
    with pytest.raises(DataError):
        Fields.from_json(said | change, "here")
