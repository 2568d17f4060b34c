from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from querywise.data.frames import from_arrays
from querywise.data.query_table import read_queries
from querywise.errors import DataError


def put(folder: Path, *lines: str) -> Path:
    path = folder / "queries.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8", newline="")
    return path


FULL = (
    '{"_id": "7", "text": "jaguar", "class": "animal", "columns": {"words": 1, "idf": 0.5}}',
    "",
    '{"_id": 8, "text": "le prix du thé", "columns": {"idf": -2e3, "words": 4}, "note": [1]}',
)


def test_every_line_is_a_query_with_what_is_known_of_it(tmp_path: Path) -> None:
    table = read_queries(put(tmp_path, *FULL))
    assert table.ids == ("7", "8")
    assert table.texts == ("jaguar", "le prix du thé")
    assert table.classes == ("animal", None)
    assert table.column_names == ("words", "idf")
    assert table.columns is not None
    assert table.columns.tolist() == [[1, 0.5], [4, -2000]]


def test_what_no_line_says_is_none(tmp_path: Path) -> None:
    table = read_queries(str(put(tmp_path, '{"_id": "7"}', '{"_id": "8", "text": null}')))
    assert (table.ids, table.texts, table.classes) == (("7", "8"), None, None)
    assert (table.columns, table.column_names) == (None, ())


def test_a_byte_order_mark_and_windows_line_ends_make_no_difference(tmp_path: Path) -> None:
    plain = read_queries(put(tmp_path, *FULL))
    packed = read_queries(put(tmp_path, "\ufeff" + "\r\n".join(FULL) + "\r\n"))
    assert (packed.ids, packed.texts, packed.classes) == (plain.ids, plain.texts, plain.classes)


@pytest.mark.parametrize("text", ["two\u2028lines", "next\u0085line", "a\u001db", "em\u2003space", "tab\tand\nnewline"])
def test_a_text_may_hold_any_character_json_can(tmp_path: Path, text: str) -> None:
    raw = json.dumps({"_id": "7", "text": text}, ensure_ascii=False)
    assert read_queries(put(tmp_path, raw, '{"_id": "8"}')).texts == (text, None)


FINE = '{"_id": "7", "columns": {"words": 1}}'


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("{", "this is not JSON"),
        ("jaguar", "this is not JSON"),
        ('{"_id": "8"} {"_id": "9"}', "this is not JSON (Extra data at character 14)"),
        ("[" * 100_000, "nested too deeply"),
        ('["8"]', 'expected an object with an "_id"'),
        ('{"id": "8"}', 'expected an object with an "_id"'),
        ('{"_id": null}', 'expected an object with an "_id"'),
        ('{"_id": 8.5}', 'expected an object with an "_id"'),
        ('{"_id": true}', 'expected an object with an "_id"'),
        ('{"_id": "7"}', "query '7' is already on line 1"),
        ('{"_id": 7}', "query '7' is already on line 1"),
        ('{"_id": "8", "text": 8, "columns": {"words": 1}}', '"text" must be text; found 8'),
        ('{"_id": "8", "class": ["a"], "columns": {"words": 1}}', "\"class\" must be text; found ['a']"),
        ('{"_id": "8"}', '"columns" must map names to numbers, and every query must have them'),
        ('{"_id": "8", "columns": [1]}', '"columns" must map names to numbers'),
        ('{"_id": "8", "columns": {"idf": 1}}', "the columns are ['idf']; line 1 has ['words']"),
        ('{"_id": "8", "columns": {"words": "two"}}', "column 'words' is 'two', not a finite number"),
        ('{"_id": "8", "columns": {"words": true}}', "column 'words' is True, not a finite number"),
        ('{"_id": "8", "columns": {"words": null}}', "column 'words' is None, not a finite number"),
        ('{"_id": "8", "columns": {"words": NaN}}', "column 'words' is nan, not a finite number"),
        ('{"_id": "8", "columns": {"words": 1e999}}', "column 'words' is inf, not a finite number"),
        ('{"_id": "8", "columns": {"words": 1' + "0" * 400 + "}}", "not a finite number"),
        ('{"_id": "8", "columns": {"words": 1' + "0" * 5000 + "}}", ""),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(tmp_path: Path, line: str, found: str) -> None:
    path = put(tmp_path, FINE, "", line)
    with pytest.raises(DataError) as caught:
        read_queries(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert found in str(caught.value)


def test_a_file_without_queries_is_refused(tmp_path: Path) -> None:
    for path in (put(tmp_path), put(tmp_path, "", "  ", "")):
        with pytest.raises(DataError, match=re.escape(f"{path}: the file holds no query")):
            read_queries(path)


def test_what_cannot_be_read_is_called_what_it_is(tmp_path: Path) -> None:
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes('{"_id": "é"}'.encode("latin1"))
    cases = ((tmp_path, "this is a folder"), (tmp_path / "no.jsonl", "there is no such file"), (latin, "byte 9 is not"))
    for path, what in cases:
        with pytest.raises(DataError, match=re.escape(f"{path}: {what}")):
            read_queries(path)


def test_a_table_is_brought_into_the_order_of_the_documents(tmp_path: Path) -> None:
    data = from_arrays([[1.0], [2.0]], [1, 0], qid=[8, 7])
    known = data.with_queries(read_queries(put(tmp_path, *FULL, FULL[0].replace("7", "9"))))
    assert data.candidates.queries is None, "the set itself is not changed"
    table = known.candidates.queries
    assert table is not None
    assert (table.ids, table.texts) == (("8", "7"), ("le prix du thé", "jaguar"))
    assert table.columns is not None
    assert table.columns.tolist() == [[4, -2000], [1, 0.5]]
    assert known.labels.tolist() == [1, 0]


def test_a_query_the_table_does_not_know_is_named(tmp_path: Path) -> None:
    data = from_arrays([[1.0], [2.0], [3.0]], [1, 0, 0], qid=[7, 10, 11])
    with pytest.raises(DataError, match="2 of 3 queries are not in the query table, the first is '10'"):
        data.with_queries(read_queries(put(tmp_path, *FULL)))
