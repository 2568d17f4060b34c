"""Click logs of every kind, bad ones too, and `querywise clicks` from a log to a served model."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from querywise.clicks.impressions import normalized
from querywise.clicks.readers import read_clicks
from querywise.data.click_files import columns_in, kind_of
from querywise.data.readers import read_features
from querywise.errors import DataError
from querywise.retrieval.reading import read_judged
from querywise.storage import load
from tests.clicking import engine_with, made_pages, pages_of, rows_text
from tests.commands import output, refused, run
from tests.serving import serving
from tests.support.clicks import clicks_on, collection


def written(folder: Path, text: str, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


# Reading


def test_a_table_is_the_same_in_every_format(tmp_path: Path) -> None:
    pages = made_pages(queries=4, pages=10, swaps=0.5)
    rows = rows_text(pages)
    paths = [written(tmp_path, rows), written(tmp_path, rows.replace(",", "\t"), "log.tsv")]
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(rows.encode()))
    names, *lines = [line.split(",") for line in rows.splitlines()]
    columns = dict(zip(names, zip(*lines, strict=True), strict=True))
    numbers = {name: pa.array([int(each) for each in columns[name]]) for name in ("position", "clicked", "time")}
    pq.write_table(
        pa.table({**{name: list(each) for name, each in columns.items()}, **numbers}), tmp_path / "log.parquet"
    )
    shown = ["query\tshown\tclicked"]
    for query, documents, clicks in pages:
        clicked = [each for each, click in zip(documents, clicks, strict=True) if click]
        shown.append(f"{query}\t{' '.join(documents)}\t{' '.join(clicked)}")
    lines_path = written(tmp_path, "\n".join(shown) + "\n", "pages.tsv")
    for path in (*paths, tmp_path / "log.csv.gz", tmp_path / "log.parquet", lines_path):
        assert pages_of(read_clicks(path)) == pages, path


def test_columns_go_by_many_names() -> None:
    found = columns_in(["user_query", "object_id", "Rank", "is_click", "session.id", "Timestamp", "other"])
    assert found == {
        "query": "user_query",
        "document": "object_id",
        "position": "Rank",
        "clicked": "is_click",
        "session": "session.id",
        "time": "Timestamp",
    }


def test_query_texts_are_joined(tmp_path: Path) -> None:
    text = "query,session,document,position,clicked\nRed  Shoes,1,a,1,1\nred shoes,2,a,1,0\nＲED shoes,3,a,1,0\n"
    log = read_clicks(written(tmp_path, text))
    assert log.queries == ("red shoes",)
    assert log.notes.texts == 3
    assert normalized("STRASSE") == normalized("straße")


def test_events_of_user_behavior_insights(tmp_path: Path) -> None:
    def event(action: str, query: str, document: str, place: int, second: int) -> dict[str, object]:
        more = {"object": {"object_id": document}, "position": {"ordinal": place}}
        time = f"2024-12-10T00:00:{second:02}Z"
        return {"action_name": action, "query_id": query, "timestamp": time, "event_attributes": more}

    records: list[dict[str, object]] = [
        {"query_id": "1", "user_query": "sofa", "timestamp": "2024-12-10T00:00:05Z"},
        {
            "query_id": "2",
            "user_query": "Sofa",
            "timestamp": "2024-12-10T00:00:01Z",
            "query_response_hit_ids": ["c", "a"],
        },
        *(event("impression", "1", name, place, 5) for place, name in enumerate(["a", "b"])),
        event("click", "1", "b", 1, 6),
        event("click", "1", "b", 1, 7),
        event("click", "2", "z", 1, 7),
        event("click", "2", "c", 0, 7),
        {"action_name": "click", "query_id": "2"},
    ]
    lines = [json.dumps(each) for record in records for each in ({"index": {"_index": "ubi_events"}}, record)]
    log = read_clicks(written(tmp_path, "\n".join(lines), "ubi.ndjson"))
    assert pages_of(log) == [("sofa", ["c", "a"], [True, False]), ("sofa", ["a", "b"], [False, True])]
    assert (log.notes.outside, log.notes.repeated, log.notes.unreadable) == (1, 1, 1)
    assert log.notes.from_zero


def test_events_come_from_an_engine() -> None:
    queries = [{"query_id": "1", "user_query": "sofa", "query_response_hit_ids": ["a", "b"]}]
    more = {"object": {"object_id": "b"}, "position": {"ordinal": 2}}
    events = [{"query_id": "1", "action_name": "click", "event_attributes": more}]

    with engine_with(queries, events) as address:
        log = read_clicks(address)
    assert pages_of(log) == [("sofa", ["a", "b"], [False, True])]


def test_an_engine_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(DataError, match="no answer"):
        read_clicks("http://127.0.0.1:9")


def test_repeated_rows_and_later_pages(tmp_path: Path) -> None:
    text = (
        "query,session,document,position,clicked\n"
        "q,1,a,1,0\nq,1,a,1,1\nq,1,b,2,0\n"  # the click is a row of its own
        "q,1,b,1,0\nq,1,a,2,0\n"  # the same query again, in another order
    )
    log = read_clicks(written(tmp_path, text))
    assert pages_of(log) == [("q", ["a", "b"], [True, False]), ("q", ["b", "a"], [False, False])]
    assert log.notes.duplicates == 1


def test_pages_are_sorted_by_time_and_later_ones_held_out(tmp_path: Path) -> None:
    pages = made_pages(queries=2, pages=10)
    rows = rows_text(pages).splitlines()
    log = read_clicks(written(tmp_path, "\n".join([rows[0], *rows[:0:-1]])))
    assert log.notes.unordered
    assert (np.diff(log.time) >= 0).all()
    earlier, later = log.split()
    assert (len(earlier), len(later)) == (16, 4)
    assert earlier.time.max() < later.time.min()


def test_machines_are_shown(tmp_path: Path) -> None:
    rows = ["query,session,document,position,clicked"]
    for session in range(200):
        rows += [
            f"q{session % 7},{session},d{place},{place},{int(place == 1 and session % 3 == 0)}" for place in (1, 2, 3)
        ]
    for page in range(15):
        rows += [f"q{page},bot,d{place},{place},1" for place in (1, 2, 3)]
    path = written(tmp_path, "\n".join(rows))
    log = read_clicks(path)
    found = log.bots()
    assert (found.sessions, len(found.pages)) == (1, 15)
    done = json.loads(output(run(None, "clicks", path, "--out", tmp_path / "out", "--without-bots", "--json")))
    assert any("unlikely to be people" in each and "left out" in each for each in done["notes"])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_rows_of_one_device_can_be_read_alone(kind: str, tmp_path: Path) -> None:
    devices = ("phone", "desktop", "phone")
    shown = [(n, p) for n in range(12) for p in range(3)]
    rows = [(f"q{n}", f"s{n}", f"d{n % 4 + p}", p, int(p == n % 3), devices[n % 3]) for n, p in shown]
    head = "query,session,document,position,clicked,Device Type\n"
    lines = [",".join(map(str, row)) + "\n" for row in rows]
    alone = written(tmp_path, head + "".join(line for line in lines if "phone" in line), "phone.csv")
    path = written(tmp_path, head + "".join(lines))
    if kind == "parquet":
        path = tmp_path / "log.parquet"
        names = head.strip().split(",")
        pq.write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), path, row_group_size=7)
    found, expected = read_clicks(path, device="phone"), read_clicks(alone)
    assert found.notes.devices == {"phone": 24, "desktop": 12}
    assert (found.queries, found.documents) == (expected.queries, expected.documents)
    for name in ("query", "document", "position", "clicked", "starts"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    said = output(run(None, "clicks", path, "--out", tmp_path / "out", "--device", "phone"))
    assert "24 on phone, 12 on desktop. Those on phone alone are read." in said
    said = output(run(None, "clicks", path, "--out", tmp_path / "every"))
    assert "24 on phone, 12 on desktop. They share one position curve" in said
    wrong = refused(run(None, "clicks", path, "--out", tmp_path / "other", "--device", "watch"))
    assert "its devices are desktop, phone" in wrong
    assert "--device watch" in wrong


def test_a_log_without_devices_has_none_to_read(tmp_path: Path) -> None:
    path = written(tmp_path, "query,document,position,clicked\nq,a,1,1\nq,b,2,0\n")
    done = run(None, "clicks", path, "--out", tmp_path / "out", "--device", "phone")
    assert "it has no column of devices" in refused(done)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query,document,position,clicked\nq,a,one,1\n", "Row 2 has the position 'one'"),
        ("query,document,position,clicked\nq,a,-1,1\n", "Row 2 has the position -1"),
        ("query,document,position,clicked\nq,a,1.5,1\n", "Row 2 has the position 1.5"),
        ("query,document,position,clicked\nq,a,,1\nq,b,2,0\n", "Row 1 has no position"),
        ("query,document,position,clicked\nq,a,1,maybe\n", "among the clicks; expected 0, 1"),
        ("query,document,position,clicked\nq,a,1\n", "row 2 has 3 columns"),
        ("query,document,clicked,time\nq,a,1,yesterday\n", "Row 2 has the time 'yesterday'"),
        ("query,document,clicked,propensity\nq,a,1,0\n", "Row 2 has the propensity 0"),
        ("query,document,position,clicked\n", "There is no impression in the log"),
        ("query,document,position,clicked\nq,a,1,0\n", "There is no click in the log"),
        ("query,document,position,clicked\nq,a,1,1\nq,b,2,1\n", "All of the 2 documents shown were clicked"),
        ("a,b\n1,2\n", "this is not a click log"),
        ('{"query_id": "1", "user_query": "x"}\n', "There is no impression in the events"),
        ('{"query_id": "1", "user_query": "x"}\nnonsense\n', "log.csv:2: invalid JSON"),
        ('{"query_id": "1", "user_query": "x"}\n' + "[" * 100_000, "log.csv:2: invalid JSON"),
        ('{"_source": 5, "user_query": "x"}\n', "log.csv:1: expected a record in _source"),
    ],
)
def test_a_bad_log_is_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    assert message in refused(run(None, "clicks", written(tmp_path, text), "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query,document,clicked\n" + "q,a,1\nq,b,0\n" * 8, "there are no positions"),
        ("query,document,position,clicked\n" + "q,a,1,1\nq,b,1,0\n" * 8, "shown at one position"),
        ("query,document,position,clicked\n" + "q,a,1,1\nq,b,2,0\n" * 8, "without a session column"),
        (
            "query,session,document,position,clicked\n" + "".join(f"q,{n},a,0,1\nq,{n},b,1,0\n" for n in range(8)),
            "every page has a click",
        ),
        (
            "query,session,document,position,clicked\n"
            + "".join(f"q,{n // 100},d{n},{n % 100},{int(n == 7)}\n" for n in range(3_000)),
            "3,000 different documents",
        ),
    ],
)
def test_an_odd_log_is_warned_of(text: str, message: str, tmp_path: Path) -> None:
    done = output(run(tmp_path, "clicks", written(tmp_path, text), "--out", "out", "--borrow", "off"))
    assert message in " ".join(done.split())


def test_a_model_that_the_log_does_not_support_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, rows_text(made_pages()))
    told = refused(run(None, "clicks", path, "--out", tmp_path / "out", "--model", "pbm"))
    assert "--model pbm would give debiased judgments" in told
    assert "no clicked document was shown at two positions" in told


def test_commands_name_the_command_for_a_click_log(tmp_path: Path) -> None:
    path = written(tmp_path, rows_text(made_pages()))
    told = refused(run(None, "fit", path, "--out", tmp_path / "model"))
    assert "this is a click log" in told
    assert f"`querywise clicks {path}`" in told


def test_feature_files_are_no_click_logs(tmp_path: Path) -> None:
    assert kind_of(written(tmp_path, "1 qid:1 1:0.5\n")) is None
    pq.write_table(pa.table({"qid": ["a"], "docid": ["b"], "clicks": [1], "label": [1]}), tmp_path / "log.parquet")
    assert kind_of(tmp_path / "log.parquet") is None


# Judgments, for every command


def test_from_clicks_to_a_model_of_text(tmp_path: Path) -> None:
    log = clicks_on(collection(tmp_path / "text"))
    graded = "".join(f"Q0\tD{number}\t{number // 4 % 2}\n" for number in range(40))
    (tmp_path / "text" / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + graded)
    made = run(
        tmp_path, "clicks", log, "--out", "judged", "--collection", "text", "--report", "--borrow", "off", "--weights"
    )
    assert "(debiased)" in output(made)
    data = read_judged(tmp_path / "judged")
    assert data.gains is not None
    assert data.query_weights is not None
    assert data.query_weights.mean() == pytest.approx(1)
    assert set(data.query_ids) <= {f"Q{number}" for number in range(12)}
    page = (tmp_path / "judged" / "report.html").read_text()
    assert "Most certain" in page
    assert "human grade" in page
    assert "<script" not in page
    assert "Click rate by position, with 95 % intervals" in page
    assert "Examination by position, relative to position 1, with 95 % intervals" in page
    tables = re.findall(r'role="region" aria-label="([^"]*)"><table class="plain">', page)
    assert tables == ["Click models", "Most certain", "Least certain", "Where clicks and human grades disagree"]
    assert '<th scope="col">document</th><th scope="col" class="number">shown</th>' in page
    table = pq.read_table(tmp_path / "judged" / "judgments.parquet").to_pydict()
    assert {"query", "document", "gain", "error", "impressions", "clicks", "naive", "pessimistic"} <= set(table)
    boosted = ("--method", "lambdamart", "--set", "trees=10", "--quiet", "--measure", "ndcg@5")
    output(run(tmp_path, "fit", "judged", "--out", "model", *boosted))
    assert np.isfinite(load(tmp_path / "model").predict(data.candidates)).all()


def test_the_page_of_docs_runs_as_written(tmp_path: Path) -> None:
    """Its first block, on events of User Behavior Insights, to a served model."""
    log = clicks_on(collection(tmp_path / "text"))
    names, *rows = [line.split(",") for line in log.read_text().splitlines()]
    lines = []
    for row in rows:
        one = dict(zip(names, row, strict=True))
        more = {"object": {"object_id": one["document"]}, "position": {"ordinal": int(one["position"])}}
        event = {"query_id": one["session"], "user_query": one["query"], "event_attributes": more}
        lines += [{**event, "action_name": action} for action in ("impression", "click")[: 1 + int(one["clicked"])]]
    written(tmp_path, "\n".join(map(json.dumps, lines)), "ubi.ndjson")
    page = (Path(__file__).parents[1] / "docs" / "clicks.md").read_text()
    commands = [line.split(" ", 1)[1] for line in page.split("```")[1].splitlines() if line.startswith("querywise")]
    assert [line.split()[0] for line in commands] == ["clicks", "compare", "fit", "index", "search", "serve"]
    for line in commands[:-1]:
        small = " --set trees=20" if "lambdamart" in line else ""  # fewer trees, as the data is small
        told = output(run(tmp_path, *shlex.split(line.replace("red shoes", "hammer") + small)))
    assert "D" in told
    words = [tmp_path / each if (tmp_path / each).exists() else each for each in shlex.split(commands[-1])[1:]]
    with serving(*words) as server:
        found = server.get("/v1/search", q="hammer").json()
    assert found["documents"]


def test_from_clicks_to_a_model_of_features(tmp_path: Path) -> None:
    log = clicks_on(collection(tmp_path / "text"))
    chance = np.random.default_rng(2)
    queries = [json.loads(line)["text"] for line in (tmp_path / "text" / "queries.jsonl").read_text().splitlines()]
    pairs = [(query, f"D{number}") for query in queries for number in range(40)]
    columns = {"qid": [query for query, _ in pairs], "docid": [each for _, each in pairs]}
    numbers = {"label": [0] * len(pairs), "bm25": chance.random(len(pairs)), "length": chance.random(len(pairs))}
    pq.write_table(pa.table({**columns, **numbers}), tmp_path / "features.parquet")
    output(run(tmp_path, "clicks", log, "--out", "judged", "--features", "features.parquet", "--quiet"))
    data = read_features(tmp_path / "judged")
    assert data.feature_names == ("bm25", "length")
    assert data.gains is not None
    output(run(tmp_path, "fit", "judged", "--out", "model", "--quiet"))
    output(run(tmp_path, "clicks", log, "--out", "judged", "--features", "features.parquet", "--quiet"))
    assert read_features(tmp_path / "judged").query_weights is None
    output(run(tmp_path, "clicks", log, "--out", "pairs", "--features", "features.parquet", "--quiet", "--pairs"))
    data = read_features(tmp_path / "pairs")
    assert data.query_weights is not None
    assert data.query_weights.max() > 2  # a click far down stands for several
    assert set(data.labels[data.candidates.starts[:-1]].tolist()) == {1}
    assert len(np.unique(data.groups)) <= 12 < len(data)
    output(run(tmp_path, "fit", "pairs", "--out", "model", "--quiet"))
    told = refused(run(tmp_path, "clicks", log, "--out", "other", "--pairs"))
    assert "are made of a feature log" in told


def test_judgments_alone_are_refused_with_what_to_do(tmp_path: Path) -> None:
    log = clicks_on(collection(tmp_path / "text"))
    output(run(tmp_path, "clicks", log, "--out", "judged", "--quiet", "--borrow", "off"))
    assert "judgments from clicks without documents" in refused(run(tmp_path, "fit", "judged", "--out", "model"))


def test_another_folder_is_not_written_over(tmp_path: Path) -> None:
    log = clicks_on(collection(tmp_path / "text"))
    assert "holds something else" in refused(run(tmp_path, "clicks", log, "--out", "text"))


def test_documents_of_another_collection_are_refused(tmp_path: Path) -> None:
    folder = collection(tmp_path / "text")
    log = written(tmp_path, "query,session,document,position,clicked\nq,1,x,1,1\nq,1,y,2,0\n")
    assert "Are their ids the same?" in refused(
        run(None, "clicks", log, "--out", tmp_path / "o", "--collection", folder)
    )
