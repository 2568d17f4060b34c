"""Parquet: sets of shards, feature logs and scores, written and read back."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.frames import from_arrays
from querywise.data.judged import Candidates, Judged, concatenate
from querywise.data.parquet.arrow import part_name
from querywise.data.parquet.shards import is_sharded, open_shards
from querywise.data.parquet.tables import read_parquet, read_scored, write_scored_part
from querywise.data.parquet.writing import write_shards
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.measures.score_files import read_scores
from querywise.runtime.files import sealed
from tests.support.judged import same
from tests.worlds import examples, ragged

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@st.composite
def judged_sets(draw: st.DrawFn, count: int = 3) -> list[Judged]:
    """Up to so many sets of one width, with or without names, document ids, comments and a mask; no query in two."""
    width = draw(st.integers(1, 4))
    names = draw(st.none() | st.lists(TEXTS.map("f{}".format), min_size=width, max_size=width, unique=True))
    numbers = st.floats(allow_nan=False, allow_infinity=False)
    ids = iter(draw(st.lists(TEXTS, min_size=12, max_size=12, unique=True)))
    made = []
    for _ in range(draw(st.integers(1, count))):
        sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
        rows = sum(sizes)
        candidates = Candidates(
            features=np.array(draw(st.lists(numbers, min_size=rows * width, max_size=rows * width))).reshape(
                rows, width
            ),
            starts=np.concatenate([[0], np.cumsum(sizes)]),
            query_ids=tuple(next(ids) for _ in sizes),
            document_ids=draw(st.none() | st.lists(TEXTS, min_size=rows, max_size=rows).map(tuple)),
            comments=draw(st.none() | st.lists(TEXTS, min_size=rows, max_size=rows).map(tuple)),
            feature_names=None if names is None else tuple(names),
        )
        labels = np.array(draw(st.lists(st.integers(0, 2**53), min_size=rows, max_size=rows)))
        mask = draw(st.none() | st.lists(st.booleans(), min_size=rows, max_size=rows).map(np.array))
        made.append(Judged(candidates, labels if mask is None else labels * mask, mask))
    return made


@settings(max_examples=examples(60), deadline=None)
@given(sets=judged_sets(), rows=st.integers(1, 12))
def test_a_set_comes_back_to_the_last_bit_however_it_is_cut(
    sets: list[Judged], rows: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("sets") / "train.parquet"
    whole = concatenate(sets)
    shards = write_shards(iter(sets), folder, rows=rows)
    same(shards.whole(), whole)
    same(open_shards(folder).whole(), whole)
    loaded = [file.load() for file in shards.files]
    assert len(shards) == len(whole) == sum(map(len, loaded))
    assert shards.rows == len(whole.labels) == sum(len(each.labels) for each in loaded)
    assert all(len(each.labels) <= rows or len(each) == 1 for each in loaded), (
        "no larger than asked for, but for a query"
    )
    same(concatenate(loaded), whole)


@settings(max_examples=examples(40), deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=20), data=st.data())
def test_a_number_of_shards_is_kept_and_they_are_alike_in_size(
    sizes: list[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    count = data.draw(st.integers(1, len(sizes)))
    cut = data.draw(st.integers(0, len(sizes)))
    rows = sum(sizes)
    qid = [f"q{query}" for query, size in enumerate(sizes) for _ in range(size)]
    whole = from_arrays(np.arange(rows, dtype=float)[:, None], np.zeros(rows), qid=qid)
    parts = [whole.select(np.arange(cut)), whole.select(np.arange(cut, len(sizes)))]
    shards = write_shards(parts, tmp_path_factory.mktemp("sets") / "s", shards=count)
    same(shards.whole(), whole)
    assert len(shards.files) == count
    assert all(file.queries >= 1 for file in shards.files)
    if max(sizes) == min(sizes):
        assert max(file.rows for file in shards.files) - min(file.rows for file in shards.files) <= 2 * sizes[0]


def test_the_folder_is_as_documented(tmp_path: Path) -> None:
    data = ragged()
    write_shards([data], tmp_path / "train.parquet", rows=30)
    names = sorted(path.name for path in (tmp_path / "train.parquet").iterdir())
    said = json.loads((tmp_path / "train.parquet" / "shards.json").read_text())
    assert names == [*(each["file"] for each in said["shards"]), "shards.json"]
    assert names[:2] == ["part-00000.parquet", "part-00001.parquet"]
    assert (said["format"], said["version"], said["features"]) == ("querywise shards", 3, None)
    assert (said["feature_count"], said["rows"], said["queries"]) == (4, len(data.labels), len(data))
    table = pq.read_table(tmp_path / "train.parquet" / names[0])
    assert table.column_names == ["qid", "label", "1", "2", "3", "4"]
    assert [str(kind) for kind in table.schema.types] == ["string", "int64", *["double"] * 4]
    content = (tmp_path / "train.parquet" / names[0]).read_bytes()
    assert said["shards"][0] == {
        "file": names[0],
        "rows": table.num_rows,
        "queries": len(set(table["qid"].to_pylist())),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    assert list(tmp_path.iterdir()) == [tmp_path / "train.parquet"], "nothing is left beside it"


def test_more_rows_than_a_row_group_holds_come_back(tmp_path: Path) -> None:
    data = make_judged(queries=400, documents=100, features=3)
    shards = write_shards([data], tmp_path / "s")
    assert len(shards.files) == 1
    assert pq.ParquetFile(shards.files[0].path).num_row_groups > 1
    same(shards.files[0].load(), data)


def test_ids_of_any_script_and_a_shard_sent_to_another_process(tmp_path: Path) -> None:
    data = from_arrays(
        [[1.0], [2.0], [3.0]],
        [0, 1, 2],
        qid=["ягуар", "日本 語", "🐆\n"],
        document_ids=["é", "", "a b"],
        feature_names=["größe"],
    )
    file = write_shards([data], tmp_path / "s").files[0]
    same(pickle.loads(pickle.dumps(file)).load(), data)


def test_what_is_known_of_the_queries_travels_with_their_shard(tmp_path: Path) -> None:
    data = ragged()
    ids = data.candidates.query_ids
    columns = np.arange(len(ids), dtype=float)[:, None]
    table = QueryTable(ids, tuple(f"text {each}" for each in ids), None, columns, ("place",))
    known = data.with_queries(table)
    more = QueryTable((*ids[::-1], "another"), ("x",) * (len(ids) + 1))
    shards = write_shards([known.select([0, 1, 2]), known.select(np.arange(3, len(ids)))], tmp_path / "own", rows=20)
    same(shards.whole(), known)
    same(concatenate([file.load() for file in shards.files]), known)
    given_table = write_shards([data], tmp_path / "given", rows=20, queries=more)
    same(given_table.whole(), data.with_queries(more))
    rewrite(tmp_path / "own", lambda said: said.update(version=1))  # as other programs write it, without checksums
    shards = open_shards(tmp_path / "own")
    edited = tmp_path / "own" / "queries.jsonl"
    edited.write_text("\n".join(reversed(edited.read_text().splitlines())))
    same(
        shards.files[1].load(), known.select(np.flatnonzero(np.isin(ids, shards.files[1].load().candidates.query_ids)))
    )
    edited.write_text('{"_id": "another"}\n')
    with pytest.raises(DataError, match=r"queries\.jsonl: .* not in the query table"):
        shards.files[1].load()
    with pytest.raises(DataError, match=r"queries\.jsonl: .* not in the query table"):
        shards.whole()


def test_a_query_without_documents_has_no_row(tmp_path: Path) -> None:
    data = Judged(Candidates(np.ones((2, 1)), np.array([0, 1, 1, 2]), ("a", "b", "c")), np.array([0, 1]))
    shards = write_shards([data.select([1]), data.select([]), data.select([0, 2])], tmp_path / "s")
    same(shards.whole(), data.select([0, 2]))
    assert len(shards) == 2


def unlike(names: tuple[str, ...]) -> Judged:
    return from_arrays([[1.0, 2.0]], [1], qid=["x"], feature_names=names)


@pytest.mark.parametrize(
    ("parts", "options", "message"),
    [
        ([], {}, "nothing to write"),
        ([ragged(), ragged(1)], {}, "Query 'q0' is in part 1 and again in part 2"),
        ([ragged(), make_judged(2, 2, 5)], {}, "part 2 has 5 features, part 1 has 4"),
        ([unlike(("a", "b")), unlike(("b", "a"))], {}, "part 2 has different feature names from part 1"),
        ([unlike(("a", "qid"))], {}, "A feature is called 'qid'"),
        ([unlike(("judged", "b"))], {}, "A feature is called 'judged'"),
        ([unlike(("a", "a"))], {}, "Two features are called 'a'"),
        ([ragged()], {"rows": 0}, "rows=0"),
        ([ragged()], {"shards": 0}, "0 shards cannot be made of 15 queries"),
        ([ragged()], {"shards": 16}, "16 shards cannot be made of 15 queries"),
        ([ragged()], {"queries": QueryTable(("q0",))}, "Query 'q1' of part 1 is not in the query table"),
        ([from_arrays([[1.0]], [1], qid=["\ud800"])], {}, "half of a surrogate pair"),
        (
            [from_arrays([[1.0]], [1], qid=["\n"])],
            {"queries": QueryTable(("\n",))},
            "cannot be written to queries.jsonl",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_left(
    parts: list[Judged], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        write_shards(parts, tmp_path / "s", **options)
    assert list(tmp_path.iterdir()) == []


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "shards.json"
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(sealed({name: each for name, each in said.items() if name != "sha256"})))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda said: said.pop("shards"), "the manifest is damaged: 'shards' is missing"),
        (lambda said: said.update(version=4), "these shards are of version 4"),
        (lambda said: said.update(version="1"), "the manifest is damaged"),
        (lambda said: said.update(format="something else"), "its format is 'something else'"),
        (lambda said: said.update(rows=7), "it states 7 rows"),
        (lambda said: said.update(feature_count=-1), "feature_count is -1"),
        (lambda said: said.update(features=["a"]), "it names 1 features and states 4"),
        (lambda said: said["shards"].append(said["shards"][0]), "the manifest is damaged"),
        (lambda said: said["shards"][0].update(file="../part-00000.parquet"), "is not a shard of it"),
        (lambda said: said["shards"][0].update(rows=True), "rows is True"),
        (lambda said: said.update(shards=[], rows=0, queries=0), "the manifest is damaged"),
    ],
)
def test_an_edited_manifest_is_refused(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    write_shards([ragged()], tmp_path / "s", rows=30)
    rewrite(tmp_path / "s", change)
    with pytest.raises(DataError, match=message):
        open_shards(tmp_path / "s")


@pytest.mark.parametrize("content", ["", "[]", "null", "{", '"format"', "[" * 100_000])
def test_a_manifest_that_is_something_else_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "shards.json").write_text(content)
    with pytest.raises(DataError, match="manifest is damaged"):
        open_shards(tmp_path)


def test_a_folder_without_a_manifest_is_not_a_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no shards\.json in it"):
        open_shards(tmp_path)
    with pytest.raises(DataError, match="there is no such folder"):
        open_shards(tmp_path / "nowhere")
    assert not is_sharded(tmp_path)


def rename_first_feature(said: dict[str, Any]) -> None:
    said["features"] = ["other", "2", "3", "4"]


def swap_counts(said: dict[str, Any]) -> None:
    one, two = said["shards"][:2]
    one["queries"], two["queries"] = one["queries"] + 1, two["queries"] - 1


def swap_rows(said: dict[str, Any]) -> None:
    one, two = said["shards"][:2]
    one["rows"], two["rows"] = one["rows"] + 1, two["rows"] - 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rename_first_feature, "the columns are not those of shards.json; '1' is only in the file"),
        (swap_counts, r"queries; shards\.json says"),
        (swap_rows, r"rows; shards\.json says"),
    ],
)
def test_a_shard_that_is_not_what_the_manifest_says_is_named(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    write_shards([ragged()], tmp_path / "s", rows=30)
    rewrite(tmp_path / "s", change)
    shards = open_shards(tmp_path / "s")
    for read in (shards.files[0].load, shards.whole):
        with pytest.raises(DataError, match=message) as caught:
            read()
        assert "part-00000.parquet" in str(caught.value)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (flip, "this shard is damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "this shard is damaged"),
        (lambda path: path.write_bytes(b""), "this shard is damaged"),
        (lambda path: path.unlink(), "this shard is missing"),
    ],
)
def test_a_harmed_shard_is_named_and_the_others_can_be_read(
    harm: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    data = ragged()
    shards = write_shards([data], tmp_path / "s", rows=30)
    harm(shards.files[1].path)
    for read in (shards.files[1].load, shards.whole):
        with pytest.raises(DataError, match=message) as caught:
            read()
        assert "part-00001.parquet" in str(caught.value)
    same(shards.files[0].load(), data.select(np.arange(shards.files[0].queries)))


def foreign(folder: Path, table: Any, *, features: list[str]) -> None:
    """A set whose one file another program has written."""
    folder.mkdir()
    pq.write_table(table, folder / "part-00000.parquet")
    digest = hashlib.sha256((folder / "part-00000.parquet").read_bytes()).hexdigest()
    queries = len(set(table["qid"].to_pylist()))
    one = {"file": "part-00000.parquet", "rows": table.num_rows, "queries": queries, "sha256": digest}
    said = {"format": "querywise shards", "version": 1, "features": features, "feature_count": len(features)}
    (folder / "shards.json").write_text(
        json.dumps({**said, "rows": table.num_rows, "queries": queries, "shards": [one]})
    )


GOOD = {"qid": ["a", "a", "b"], "label": [1, 0, 2], "x": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("x", [1.0, float("nan"), 2.0], "Row 2, column x of features is nan"),
        ("x", [1.0, 2.0, float("inf")], "Row 3, column x of features is inf"),
        ("x", [1.0, None, 2.0], "row 2 has no value in column x"),
        ("x", ["high", "low", "mid"], "cannot be read"),
        ("label", [1, 0, None], "row 3 has no value in column label"),
        ("label", [1, 0, 0.5], "cannot be read"),
        ("label", [1, 0, -1], "Row 3 has label -1"),
        ("qid", ["a", None, "b"], "row 2 has no query id"),
        ("qid", ["a", "b", "a"], "the rows of query 'a' are not consecutive"),
        ("docid", ["D1", None, "D2"], "row 2 has no value in column docid"),
        ("comment", [None, "", ""], "row 1 has no value in column comment"),
        ("judged", [False, True, True], "Row 1 is marked unjudged but carries label 1"),
        ("judged", [True, None, True], "row 2 has no value in column judged"),
    ],
)
def test_values_that_cannot_be_used_are_named_with_their_file(
    column: str, values: list[Any], message: str, tmp_path: Path
) -> None:
    foreign(tmp_path / "s", pa.table({**GOOD, column: values}), features=["x"])
    shards = open_shards(tmp_path / "s")
    for read in (shards.files[0].load, shards.whole):
        with pytest.raises(DataError, match=message) as caught:
            read()
        assert "part-00000.parquet" in str(caught.value)


def test_shards_of_another_program_are_read(tmp_path: Path) -> None:
    columns = {**GOOD, "label": pa.array([1, 0, 2], pa.int32()), "x": pa.array([1.0, 2.0, 3.0], pa.float32())}
    columns["qid"] = pa.array(GOOD["qid"], pa.large_string())
    foreign(tmp_path / "s", pa.table(columns), features=["x"])
    same(
        open_shards(tmp_path / "s").files[0].load(),
        from_arrays([[1.0], [2.0], [3.0]], [1, 0, 2], qid=["a", "a", "b"], feature_names=["x"]),
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_interrupt_between_shards_leaves_the_old_set(tmp_path: Path) -> None:
    old, new = ragged(0, 40), ragged(1, 60)
    write_shards([old], tmp_path / "s", rows=50)
    before = contents(tmp_path / "s")

    def interrupted() -> Iterator[Judged]:
        yield new.select(np.arange(40))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(interrupted(), tmp_path / "s", rows=50)
    assert contents(tmp_path / "s") == before
    assert list(tmp_path.iterdir()) == [tmp_path / "s"]
    written = write_shards([new], tmp_path / "s", rows=100)
    assert len(written.files) < len(before) - 1, "so that a file of the old set could be left over"
    same(open_shards(tmp_path / "s").whole(), new)
    assert sorted(contents(tmp_path / "s")) == [*(file.name for file in written.files), "shards.json"]


def test_a_set_can_be_cut_anew_where_it_stands(tmp_path: Path) -> None:
    data = ragged()
    shards = write_shards([data], tmp_path / "s", rows=20)
    again = write_shards((file.load() for file in shards.files), tmp_path / "s", rows=1_000)
    assert len(again.files) == 1
    same(again.whole(), data)


def test_a_reader_of_the_old_set_is_told(tmp_path: Path) -> None:
    old = write_shards([ragged()], tmp_path / "s", rows=20)
    write_shards([ragged(1)], tmp_path / "s", rows=20)
    with pytest.raises(DataError, match="the shards were replaced by others"):
        old.whole()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="holds something that is not shards"):
        write_shards([ragged()], tmp_path)
    with pytest.raises(DataError, match="this is a file"):
        write_shards([ragged()], tmp_path / "notes.txt")
    write_shards([ragged()], tmp_path / "s")
    (tmp_path / "s" / "notes.txt").write_text("mine too")
    with pytest.raises(DataError, match=r"'notes\.txt' is beside the shards"):
        write_shards([ragged()], tmp_path / "s")
    assert (tmp_path / "s" / "notes.txt").read_text() == "mine too"


def test_without_pyarrow_the_message_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from querywise.data.parquet.tables import read_parquet\n"
        "try: read_parquet('log.parquet')\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'querywise[parquet]'" in done.stdout


LOG = {
    "qid": [7, 8, 7],
    "label": [1, None, 0],
    "docid": ["a", "b", "c"],
    "price": [1.5, 2.5, 3.5],
    "title": ["x", "y", "z"],
}


def test_a_log_is_read_as_a_table_is(tmp_path: Path) -> None:
    pq.write_table(pa.table(LOG), tmp_path / "log.parquet")
    expected = Judged(
        Candidates(
            np.array([[1.5], [3.5], [2.5]]), np.array([0, 2, 3]), ("7", "8"), ("a", "c", "b"), feature_names=("price",)
        ),
        np.array([1, 0, 0]),
        np.array([True, True, False]),
    )
    same(read_parquet(tmp_path / "log.parquet"), expected)
    same(read_parquet(str(tmp_path)), expected)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)])
def test_ids_in_bytes_are_texts(tmp_path: Path, kind: pa.DataType) -> None:
    ids = {
        name: pa.array([f"{each}".encode() for each in rows], kind)
        for name, rows in (("qid", (7, 8, 7)), ("docid", "abc"))
    }
    pq.write_table(pa.table({**LOG, **ids}), tmp_path / "log.parquet")
    found = read_parquet(tmp_path / "log.parquet")
    assert (found.query_ids, found.candidates.document_ids) == (("7", "8"), ("a", "c", "b"))
    pq.write_table(pa.table({**LOG, **ids, "qid": pa.array([b"\xff"] * 3, kind)}), tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"not UTF-8 text|damaged"):
        read_parquet(tmp_path / "log.parquet")


def test_columns_of_a_log_can_be_named_and_ids_are_not_needed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"q": ["a"], "grade": [2], "x": [1.0]}), tmp_path / "log.parquet")
    data = read_parquet(tmp_path / "log.parquet", qid="q", label="grade")
    assert (data.candidates.query_ids, data.labels.tolist(), data.candidates.document_ids) == (("a",), [2], None)
    unjudged = read_parquet(tmp_path / "log.parquet", qid="q", label=None).judged
    assert unjudged is not None
    assert not unjudged.any()


def test_several_files_are_one_log_and_a_query_may_be_in_two(tmp_path: Path) -> None:
    pq.write_table(pa.table({"qid": ["a", "b"], "label": [1, 2], "x": [1, 2]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"x": [3.5], "qid": ["a"], "label": [0]}), tmp_path / "2.parquet")
    data = read_parquet([tmp_path / "1.parquet", tmp_path / "2.parquet"])
    assert (data.candidates.query_ids, data.candidates.features.ravel().tolist()) == (("a", "b"), [1, 3.5, 2])
    pq.write_table(pa.table({"qid": ["c"], "label": [0], "x": [float("nan")]}), tmp_path / "2.parquet")
    with pytest.raises(DataError, match=r"2\.parquet: Row 1, column x of features is nan"):
        read_parquet(tmp_path)
    pq.write_table(pa.table({"qid": ["c"], "label": [0], "y": [1.0]}), tmp_path / "2.parquet")
    with pytest.raises(DataError, match=r"2\.parquet: .*do not have the same columns; 'x' is in one only"):
        read_parquet(tmp_path)


def test_a_log_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "log.parquet").write_text("1 qid:1 1:0.5\n")
    with pytest.raises(DataError, match=r"log\.parquet: this is not a Parquet file"):
        read_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"other\.parquet: there is no such file"):
        read_parquet(tmp_path / "other.parquet")
    pq.write_table(pa.table(LOG), tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"log\.parquet: The table has no column 'grade'"):
        read_parquet(tmp_path / "log.parquet", label="grade")
    with pytest.raises(DataError, match=r"log\.parquet: The table has no column 'document'"):
        read_parquet(tmp_path / "log.parquet", docid="document")
    with pytest.raises(DataError, match="No file"):
        read_parquet([])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"there is no \.parquet file"):
        read_parquet(tmp_path / "empty")


def scored(folder: Path, data: Judged, cut: int) -> np.ndarray[Any, Any]:
    """Scores of a set in two parts."""
    folder.mkdir(exist_ok=True)
    scores = np.random.default_rng(3).normal(size=len(data.labels))
    at = int(data.candidates.starts[cut])
    first, second = data.select(np.arange(cut)), data.select(np.arange(cut, len(data)))
    write_scored_part(folder / part_name(0), first.candidates, scores[:at])
    write_scored_part(folder / part_name(1), second.candidates, scores[at:])
    return scores


def with_ids(data: Judged) -> Judged:
    ids = tuple(f"D{row}" for row in range(len(data.labels)))
    return replace(data, candidates=replace(data.candidates, document_ids=ids))


@pytest.mark.parametrize("data", [ragged(), with_ids(ragged())], ids=["without ids", "with ids"])
def test_scores_come_back_in_the_order_of_the_documents(data: Judged, tmp_path: Path) -> None:
    scores = scored(tmp_path / "scores.parquet", data, 5)
    found = read_scored(tmp_path / "scores.parquet")
    assert found.scores.tolist() == scores.tolist()
    assert found.document_ids == data.candidates.document_ids
    assert read_scores(tmp_path / "scores.parquet", data.candidates).tolist() == scores.tolist()


def test_scores_are_matched_by_ids_where_the_documents_are_in_another_order(tmp_path: Path) -> None:
    data = with_ids(ragged())
    scores = scored(tmp_path / "s", data, 5)
    turned = data.select(np.arange(len(data))[::-1])
    by_id = dict(zip(data.candidates.document_ids or (), scores.tolist(), strict=True))
    found = read_scores(tmp_path / "s", turned.candidates).tolist()
    assert found == [by_id[each] for each in turned.candidates.document_ids or ()]
    (tmp_path / "s" / part_name(1)).unlink()
    with pytest.raises(DataError, match=r"documents have no score, the first is 'D\d+' of query 'q5'"):
        read_scores(tmp_path / "s", data.candidates)
    with pytest.raises(DataError, match=r"row 1: document 'D0' of query 'q0' is not in the judged data"):
        read_scores(tmp_path / "s", data.select(np.arange(5, len(data))).candidates)
    with pytest.raises(DataError, match="30 scores for 3 documents; one each is needed"):
        read_scores(tmp_path / "s", data.select([7]).candidates)


def test_scores_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    data = ragged()
    scored(tmp_path / "s", data, 5)
    with pytest.raises(DataError, match=r"scores for \d+ documents"):
        read_scores(tmp_path / "s", data.select([0]).candidates)
    turned = data.select(np.arange(len(data))[::-1])
    with pytest.raises(DataError, match=r"row 1 .* query 'q0'.* expected 'q14'"):
        read_scores(tmp_path / "s", turned.candidates)
    (tmp_path / "s" / part_name(0)).rename(tmp_path / "s" / part_name(2))
    with pytest.raises(DataError, match=r"part-00000\.parquet: this part of the scores is missing"):
        read_scores(tmp_path / "s", data.candidates)
    with pytest.raises(DataError, match="there are no scores in this folder"):
        read_scored(tmp_path)
    pq.write_table(pa.table({"qid": ["a"], "score": [float("nan")]}), tmp_path / part_name(0))
    with pytest.raises(DataError, match="row 1 has the score nan"):
        read_scored(tmp_path)
    pq.write_table(pa.table({"qid": ["a"]}), tmp_path / part_name(0))
    with pytest.raises(DataError, match="not a part of scores"):
        read_scored(tmp_path)
    with pytest.raises(DataError, match="one finite score for each"):
        write_scored_part(tmp_path / part_name(0), data.candidates, np.zeros(3))


def test_shards_that_others_replace_while_they_are_read_are_not_called_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write_shards([make_judged(20, 5, 3)], folder, rows=40)
    opened = open_shards(folder)
    write_shards([make_judged(12, 5, 3, seed=7)], folder, rows=40)  # fewer of them
    for read in (opened.whole, opened.files[0].load, opened.files[-1].load):
        with pytest.raises(
            DataError, match=r"s: the shards were replaced by others while they were read. Start again."
        ):
            read()
    again = open_shards(folder)
    again.files[-1].path.write_bytes(b"")
    for read in (again.whole, again.files[-1].load):
        with pytest.raises(DataError, match="this shard is damaged"):
            read()
