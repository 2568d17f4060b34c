"""Click logs that somebody made up: whoever uses a search box, or sends events, writes a part of them."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from querywise.clicks import borrowing
from querywise.clicks.borrowing import alike
from querywise.clicks.readers import from_events, read_clicks
from querywise.data.click_judgments import read_gains
from querywise.data.collections import read_collection
from querywise.data.parquet.arrow import memory_to_read, open_parquet
from querywise.errors import DataError
from querywise.jobs.clicks import ClickOptions, learn, write
from querywise.retrieval.reading import read_judged
from querywise.runtime.workers import ITSELF, ThisProcess, use_workers
from tests.clicking import Page, made_pages, rows_text
from tests.commands import refused, run

HEAD = "query,document,position,clicked,session,time\n"


def log_of(folder: Path, *, query: str = "", document: str = "d", time: str = "1700000000") -> Path:
    """A log of twelve pages; the first document of each third page, or a further query, is what somebody chose."""
    lines = []
    for page in range(12):
        text = query if query and page % 3 == 0 else f"sofa {page % 2}"
        for place, own in enumerate((document if page % 3 == 0 else "a", "b", "c"), 1):
            cells = (text, own, str(place), str(int((page + place) % 3 == 0)), str(page), time)
            lines.append(",".join('"' + cell.replace('"', '""') + '"' for cell in cells))
    path = folder / "log.csv"
    path.write_text(HEAD + "\n".join(lines) + "\n", newline="")
    return path


def judgments_of(log: Path, folder: Path, collection: Path | None = None) -> Path:
    asked = ClickOptions(borrow="off", model="document-ctr")
    write(folder, learn(str(log), asked), asked, collection=collection)
    return folder


@pytest.mark.parametrize("document", ["a\nsofa 0\tEVIL\t1\t0.001\t31", "a\tb", "\x1b]0;x\x07", " ", "x" * 20_000])
def test_a_document_id_writes_no_judgments_of_others(document: str, tmp_path: Path) -> None:
    log = log_of(tmp_path, document=document)
    assert read_clicks(log).notes.unreadable == 4
    gains = read_gains(judgments_of(log, tmp_path / "out"))
    assert {query: set(own) for query, own in gains.items()} == {key: set("abc") for key in ("sofa 0", "sofa 1")}


@pytest.mark.parametrize("query", [" ", "so\0fa", "\x9b31m"])
def test_rows_without_a_query_that_can_be_written_are_counted(query: str, tmp_path: Path) -> None:
    found = read_clicks(log_of(tmp_path, query=query))
    assert found.queries == ("sofa 1", "sofa 0")
    assert found.notes.unreadable == 12


@pytest.mark.parametrize("query", ["windows 0", "می\u200cخواهم", "psalm q0", "0", "a\u2028b"])
def test_any_other_query_is_judged_and_read_again(query: str, tmp_path: Path) -> None:
    texts = {"a": "apple pie", "b": "blue sofa", "c": "corner sofa", "d": "windows psalm"}
    (tmp_path / "shop").mkdir()
    corpus = "".join(json.dumps({"_id": name, "title": text, "text": ""}) + "\n" for name, text in texts.items())
    (tmp_path / "shop" / "corpus.jsonl").write_text(corpus)
    folder = judgments_of(log_of(tmp_path, query=query), tmp_path / "out", collection=tmp_path / "shop")
    queries = read_collection(folder).queries
    assert queries is not None
    assert " ".join(query.split()) in (queries.texts or ())
    assert set(read_gains(folder)) == set(queries.ids)
    assert read_judged(folder, candidates="judged").query_ids == tuple(sorted(queries.ids))


@pytest.mark.parametrize("time", ["1e300", "inf", "-1e12", "0001-01-01T00:00:00+23:59", "9" * 400])
def test_a_time_outside_of_the_calendar_is_refused(time: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has the time"):
        read_clicks(log_of(tmp_path, time=time))


def test_times_of_tables_are_held_to_the_calendar(tmp_path: Path) -> None:
    columns = {"query": ["a"], "document": ["d"], "clicked": [1]}
    for number, value in enumerate((1e300, float("inf"), -1e12)):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({**columns, "time": [value]}), path)
        with pytest.raises(DataError, match="Row 1 has the time"):
            read_clicks(path)


def event(**more: Any) -> Mapping[str, Any]:
    return {"query_id": "1", "user_query": "sofa", "timestamp": 1, "query_response_hit_ids": ["a", "b"], **more}


def clicked(name: Any, place: Any = 1, action: str = "click") -> Mapping[str, Any]:
    more = {"object": {"object_id": name}, "position": {"ordinal": place}}
    return {"query_id": "1", "action_name": action, "timestamp": 1, "event_attributes": more}


@pytest.mark.parametrize("time", [10**400, 1e300, [1], {}, "x" * 10**6])
def test_events_of_odd_times_are_refused(time: Any) -> None:
    with pytest.raises(DataError, match="has the time") as found:
        from_events(iter([("here", event(timestamp=time))]))
    assert len(str(found.value)) < 300


def test_events_of_odd_values_are_left_out() -> None:
    odd = [clicked(10**400), clicked(True), clicked("b\n"), clicked({}), clicked("b", 10**30, "impression")]
    odd += [event(user_query="so\ud800fa", query_id="2"), event(query_response_hit_ids=[["x"] * 9, 10**400, None, "a"])]
    found = from_events(("here", each) for each in [event(), *odd, clicked("a")])
    assert found.queries == ("sofa",)
    assert all(each.isprintable() for each in found.documents)


def test_pages_of_events_are_put_together_once() -> None:
    """Ten thousand lists of results, once a copy of all rows for each."""
    pages = (event(query_id=str(number), query_response_hit_ids=["a", "b", "c"] * 3) for number in range(10_000))
    tracemalloc.start()
    found = from_events(("here", each) for each in pages)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 30_000  # a document that a page repeats begins a further one
    assert most < 60_000_000


def test_a_line_of_many_megabytes_is_refused(tmp_path: Path) -> None:
    letters = b"a" * 40_000_000
    for name, begin in (("rows", HEAD.encode()), ("head", b"query,document,clicked,"), ("events", b'{"query_id": "')):
        path = tmp_path / name
        first = b'{"user_query": "x", "query_id": "1"}\n' if name == "events" else b""
        path.write_bytes(gzip.compress(first + begin + letters, 1))
        tracemalloc.start()
        with pytest.raises(DataError):
            read_clicks(path)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 80_000_000, name


def test_a_log_of_more_rows_than_memory_takes_is_refused(tmp_path: Path) -> None:
    rows = HEAD.encode() + b"q,d,1,0,1,1\n" * 300_000
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(rows))
    count = 3_000_000
    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array(["q"]))
    columns = {"query": same, "document": same, "clicked": pa.array(np.zeros(count, np.int8))}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet", row_group_size=count)
    (tmp_path / "pages.tsv").write_text("query\tshown\tclicked\n" + ("q\t" + "a b c d e " * 40 + "\ta\n") * 1_500)
    events = ("here", event(query_response_hit_ids=["a"] * 4))
    with use_workers(ThisProcess(memory=ITSELF + 30_000_000)):
        for name in ("log.csv.gz", "log.parquet", "pages.tsv"):
            with pytest.raises(DataError, match=r"rows of .* take.* memory"):
                read_clicks(tmp_path / name)
        with pytest.raises(DataError, match="rows of a click log take"):
            from_events(events for _ in range(10**9))
    told = refused(run(tmp_path, "clicks", "log.csv.gz", "--out", "out", "--memory", "330MB"))
    assert "rows of a click log take 0.3 GB of memory; 0.3 GB are allowed. Give a part of the log." in told


def test_long_texts_count_against_memory(tmp_path: Path) -> None:
    """Of twenty row groups each has room, all of them have not."""
    names = pa.array([f"{each:09000}" for each in range(20_000)])
    columns = {"query": ["q"] * 20_000, "document": names, "clicked": [0] * 20_000}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet", row_group_size=1_000)
    (tmp_path / "log.csv").write_text(HEAD + "".join(f"q,{each},1,0,1,1\n" for each in names.to_pylist()))
    with use_workers(ThisProcess(memory=ITSELF + 100_000_000)):
        for name in ("log.parquet", "log.csv"):
            with pytest.raises(DataError, match=r"rows of a click log take 0\.[45] GB of memory; 0\.4 GB are allowed"):
                read_clicks(tmp_path / name)


def test_row_groups_that_are_read_in_turn_take_the_memory_of_one(tmp_path: Path) -> None:
    columns = {"query": ["q"] * 3_000, "document": [f"d{each}" for each in range(3_000)], "clicked": [0, 1, 0] * 1_000}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet", row_group_size=1_000, use_dictionary=False)
    file = open_parquet(tmp_path / "log.parquet")
    whole = memory_to_read(tmp_path / "log.parquet", file, columns)
    one = memory_to_read(tmp_path / "log.parquet", file, columns, by_group=True)
    assert one == pytest.approx(whole / 3, rel=0.02)
    empty = pa.table({name: pa.array(values)[:0] for name, values in columns.items()})
    pq.write_table(empty, tmp_path / "none.parquet")
    with pytest.raises(DataError, match="no impression in the log"):
        read_clicks(tmp_path / "none.parquet")


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_documents_with_fields_are_copied_with_what_says_of_their_fields(kind: str, tmp_path: Path) -> None:
    shop, elsewhere = tmp_path / "shop", tmp_path / "elsewhere"
    shop.mkdir()
    elsewhere.mkdir()
    rows = [{"_id": each, "name": f"name of {each}", "price": str(place)} for place, each in enumerate("abcd")]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), elsewhere / "corpus.parquet")
    elif kind == "jsonl":
        (elsewhere / "corpus.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    else:
        lines = [[*rows[0]], *([*each.values()] for each in rows)]
        text = "".join((",", "\t")[kind == "tsv"].join(each) + "\n" for each in lines)
        (elsewhere / f"corpus.{kind}").write_text(text)
    (shop / f"corpus.{kind}").symlink_to(Path("..") / "elsewhere" / f"corpus.{kind}")
    (shop / "fields.toml").write_text('[field.name]\nkind = "keyword"\n[field.price]\nkind = "number"\n')
    folder = judgments_of(log_of(tmp_path), tmp_path / "out", collection=shop)
    assert read_collection(folder).fields == read_collection(shop).fields
    assert not (folder / f"corpus.{kind}").is_symlink()
    assert read_judged(folder, candidates="judged").labels.any()


def test_an_id_that_another_query_says_is_another_query(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps({"_id": each, "title": each}) + "\n" for each in "abcd"))
    (tmp_path / "queries.jsonl").write_text('{"_id": "7", "text": "sofa 0"}\n')
    folder = judgments_of(log_of(tmp_path, query="7"), tmp_path / "out", collection=tmp_path)
    assert set(read_gains(folder)) == {"7", "7 *", "sofa 1"}
    assert read_collection(folder).grades().keys() == {"7", "7 *", "sofa 1"}


def test_lines_that_hold_nothing_are_not_read_by_the_million(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(gzip.compress(HEAD.encode() + b"\n" * 30_000_000 + b"q,d,1,1,1,1\n", 1))
    with pytest.raises(DataError, match="lines without anything"):
        read_clicks(tmp_path / "log.csv")


def test_queries_that_share_a_word_are_compared_in_bounded_memory() -> None:
    """A word of a hundred thousand queries: once a thousand rows of a table of all by all, several gigabytes."""
    texts = [f"shoes {number % 1_500} {number}" for number in range(6_000)]
    log = from_events(("here", event(query_id=text, user_query=text)) for text in texts)
    tracemalloc.start()
    found = alike(log, "words")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 250_000_000
    assert (np.diff(found.indptr) == 10).all()
    near = found[[7]].toarray()[0]
    assert set(np.argsort(-near)[:3].tolist()) == {1_507, 3_007, 4_507}


def test_words_that_most_queries_share_are_left_out_of_a_long_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"shoes {number % 10} {number}" for number in range(100)]
    log = from_events(("here", event(query_id=text, user_query=text)) for text in texts)
    whole = alike(log, "words")
    monkeypatch.setattr(borrowing, "_MOST", 100 * 10 + 100)  # not those of all, whose weight is all but none
    monkeypatch.setattr(borrowing, "_CELLS", 50)
    found = alike(log, "words")
    assert found.nnz == 100 * 9
    assert whole.nnz == 100 * 10
    rows = np.repeat(np.arange(100), np.diff(found.indptr))
    assert np.allclose(found.data, whole.toarray()[rows, found.indices])


# Odd logs: a sentence each, and the judgments of the log without what is odd

Judged = dict[tuple[str, str], tuple[float, float, int, int]]


def told_of(path: Path, **asked: Any) -> tuple[Judged, str]:
    """Gain, its error, impressions and clicks of every pair, and what is told of the log."""
    found = learn(str(path), ClickOptions(borrow="off", **asked))
    made, log = found.judgments, found.log
    columns = (made.query, made.document, made.gain, made.error, made.impressions, made.clicks)
    rows = zip(*(each.tolist() for each in columns), strict=True)
    judged = {(log.queries[query], log.documents[each]): tuple(numbers) for query, each, *numbers in rows}
    return judged, " ".join(found.told)


def is_same(found: Judged, expected: Judged) -> None:
    assert found.keys() == expected.keys()
    for pair, numbers in expected.items():
        assert found[pair] == pytest.approx(numbers, rel=1e-6), pair


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    return made_pages(queries=6, pages=40, swaps=0.5)


@pytest.fixture(scope="module")
def clean(pages: list[Page], tmp_path_factory: pytest.TempPathFactory) -> Judged:
    path = tmp_path_factory.mktemp("clean") / "log.csv"
    path.write_text(rows_text(pages))
    return told_of(path)[0]


def changed(text: str, how: str) -> str:
    """A table with something odd."""
    head, *rows = text.splitlines()
    if how == "backwards":
        rows = rows[::-1]
    elif how == "twice":
        rows = [each for row in rows for each in (row, row)]
    elif how == "spelled":
        rows = [
            row.replace("query", ("query", "QUERY ", "ｑｕｅｒｙ ")[place % 3], 1) for place, row in enumerate(rows)
        ]
    return "\n".join([head, *rows]) + "\n"


@pytest.mark.parametrize(
    ("how", "first", "sentence"),
    [
        ("from zero", 0, "Positions are counted from 0 in the log; here they are counted from 1."),
        ("backwards", 1, "The log is not in the order of time; its pages were sorted."),
        ("twice", 1, "1,200 rows repeat a document at the same position of a page and are left out."),
        ("spelled", 1, "12 of 18 query texts differ from another only in case, spaces or Unicode form."),
    ],
)
def test_an_odd_table_is_told_of_and_judged_as_the_plain_one(
    how: str, first: int, sentence: str, pages: list[Page], clean: Judged, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(changed(rows_text(pages, first=first), how))
    judged, told = told_of(path)
    assert sentence in told
    is_same(judged, clean)


def test_clicks_outside_and_repeated_ones_change_no_number(pages: list[Page], tmp_path: Path) -> None:
    found = []
    for name, odd in (("plain", ""), ("odd", " never-shown")):
        lines = ["query\tshown\tclicked"]
        for query, shown, clicked in pages:
            own = " ".join(each for each, click in zip(shown, clicked, strict=True) if click)
            lines.append(f"{query}\t{' '.join(shown)}\t{own}{f' {own}' if odd else ''}{odd}")
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
        found.append(told_of(tmp_path / f"{name}.tsv"))
    (plain, _), (odd_ones, told) = found
    assert "240 clicks on documents that were not shown are left out." in told
    assert f"{sum(sum(clicked) for _, _, clicked in pages):,} further clicks on a document of the same page" in told
    is_same(odd_ones, plain)


def test_events_that_came_twice_count_once(pages: list[Page], tmp_path: Path) -> None:
    found = []
    for times in (1, 2):
        records: list[Mapping[str, Any]] = []
        for number, (query, shown, clicks) in enumerate(pages):
            own = {"query_id": str(number), "timestamp": 1_700_000_000 + number}
            records.append({**own, "user_query": query})
            for place, (name, click) in enumerate(zip(shown, clicks, strict=True), 1):
                actions = ("impression", "click")[: 1 + int(click)]
                records += [{**clicked(name, place, action), **own} for action in actions]
        path = tmp_path / f"{times}.ndjson"
        path.write_text("".join(json.dumps(each) + "\n" for each in records for _ in range(times)))
        found.append(told_of(path))
    (plain, _), (twice, told) = found
    assert "1,200 rows repeat a document at the same position of a page" in told
    assert "further clicks on a document of the same page are left out" in told
    is_same(twice, plain)


def test_a_query_with_ten_thousand_documents_is_told_of_and_counted(pages: list[Page], tmp_path: Path) -> None:
    names = [f"d{each}" for each in range(10_000)]
    (tmp_path / "log.csv").write_text(rows_text([*pages, ("long", names, [each == 2 for each in range(10_000)])]))
    judged, told = told_of(tmp_path / "log.csv")
    assert "Warning: one query was shown with 10,000 different documents." in told
    assert "9,900 documents below position 100 count as shown there." in told
    own = [numbers for (query, _), numbers in judged.items() if query == "long"]
    assert len(own) == 10_000
    assert all(0 < gain < 1 and shown == 1 for gain, _, shown, _ in own)
    assert max(judged, key=lambda pair: (pair[0] == "long") * judged[pair][0]) == ("long", "d2")


def test_models_of_positions_need_positions(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("query,document,clicked\n" + "q,a,1\nq,b,0\n" * 8)
    with pytest.raises(DataError, match="model='coec' needs positions, which this log lacks"):
        told_of(tmp_path / "log.csv", model="coec")
    judged, told = told_of(tmp_path / "log.csv")
    assert "Judgments are clicks over impressions, which favor what was shown at the top." in told
    assert judged["q", "a"][0] > 0.5 > judged["q", "b"][0]


def test_machines_count_unless_they_are_left_out(tmp_path: Path) -> None:
    """In User Behavior Insights every page has an id of its own; a client of very many is a machine."""
    lines: list[Mapping[str, Any]] = []
    for page in range(400):
        client = "machine" if page % 2 else f"person {page % 40}"
        own = {"query_id": str(page), "client_id": client, "timestamp": 1_700_000_000 + page}
        lines.append({**own, "user_query": f"sofa {page % 4 // 2}", "query_response_hit_ids": ["a", "b", "c"]})
        lines.append({**clicked("a" if page % 2 else "b"), **own})
    path = tmp_path / "ubi.ndjson"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    judged, told = told_of(path)
    assert "400 result pages of 2 queries in 21 clients" in told
    assert "Queries by how many result pages they have: 2 with 100–999." in told
    assert "1 client with 200 pages are unlikely to be people's" in told
    assert "count as all others do unless bots are left out" in told
    assert judged["sofa 0", "a"][2:] == (200, 100)
    judged, told = told_of(path, without_bots=True)
    assert "200 result pages of 2 queries in 20 clients" in told
    assert "and are left out." in told
    assert judged["sofa 0", "a"][2:] == (100, 0)
    assert judged["sofa 0", "b"][2:] == (100, 100)
