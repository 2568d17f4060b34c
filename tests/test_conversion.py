"""`querywise convert`, and shards and Parquet logs in the other commands, run as a user runs them."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from querywise.data.folds import make_folds
from querywise.data.judged import Candidates, Judged
from querywise.data.letor import read_letor, write_letor
from querywise.data.parquet.arrow import part_name
from querywise.data.parquet.shards import open_shards
from querywise.data.parquet.tables import LogColumns, write_scored_part
from querywise.data.parquet.writing import convert, write_shards
from querywise.data.query_table import read_queries, write_queries
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.storage import load
from tests import commands
from tests.support.judged import same
from tests.worlds import ragged


def run(folder: Path, command: str, *, code: int = 0) -> str:
    """What a command prints; where it fails, its message."""
    done = commands.run(folder, *command.split())
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same judged set as two LETOR files, as three shards and as a Parquet log, and one test set."""
    folder = tmp_path_factory.mktemp("place")
    data = make_judged(40, 6, 3, noise=0.3)
    write_letor(folder / "one.txt", data.select(np.arange(25)))
    write_letor(folder / "two.txt", data.select(np.arange(25, 40)))
    run(folder, "convert one.txt two.txt --out train.parquet --shards 3")
    qid = np.repeat(data.candidates.query_ids, data.candidates.sizes)
    columns = {str(number + 1): data.candidates.features[:, number] for number in range(3)}
    pq.write_table(pa.table({"qid": qid, "label": data.labels, **columns}), folder / "log.parquet")
    return folder


def test_the_shards_hold_what_the_files_hold(place: Path) -> None:
    shards = open_shards(place / "train.parquet")
    assert [file.queries for file in shards.files] == [13, 14, 13]
    same(shards.whole(), read_letor([place / "one.txt", place / "two.txt"]))


@pytest.mark.slow
def test_what_was_written_is_said(place: Path, tmp_path: Path) -> None:
    said = run(place, f"convert one.txt --rows 60 --out {tmp_path}/s")
    assert said == f"150 documents of 25 queries with 3 features written to {tmp_path}/s: 3 shards\n"
    counts = json.loads(run(place, f"convert one.txt --out {tmp_path}/s --json"))
    assert counts == {"out": f"{tmp_path}/s", "shards": 1, "rows": 150, "queries": 25, "features": 3}
    assert run(place, f"convert one.txt --out {tmp_path}/s --quiet") == ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["train.parquet", "log.parquet"])
def test_every_command_takes_what_it_takes_as_letor_text(place: Path, kind: str, tmp_path: Path) -> None:
    run(place, f"fit one.txt two.txt --out {tmp_path}/text")
    run(place, f"fit {kind} --out {tmp_path}/parquet")
    text, parquet = (load(tmp_path / name) for name in ("text", "parquet"))
    candidates = read_letor([place / "one.txt", place / "two.txt"]).candidates
    assert text.predict(candidates) == pytest.approx(parquet.predict(candidates), rel=1e-9)  # shards are summed apart
    scores = run(place, f"rank {tmp_path}/text one.txt two.txt")
    assert scores == run(place, f"rank {tmp_path}/text {kind}")
    (tmp_path / "scores.txt").write_text(scores)
    assert "40 queries" in run(place, f"evaluate {kind} {tmp_path}/scores.txt")
    why = "--qid q3 --above 1 --below 2"
    assert run(place, f"explain {tmp_path}/text one.txt {why}") == run(place, f"explain {tmp_path}/text {kind} {why}")


@pytest.mark.slow
def test_a_fold_of_shards_is_the_fold_of_the_whole(place: Path, tmp_path: Path) -> None:
    run(place, f"fit train.parquet --fold 2 --set l2=1 --out {tmp_path}/model")
    train = make_folds(open_shards(place / "train.parquet").whole())[1].train
    write_letor(tmp_path / "train.txt", train)
    run(place, f"fit {tmp_path}/train.txt --set l2=1 --out {tmp_path}/same")
    one, other = (load(tmp_path / name).predict(train.candidates) for name in ("model", "same"))
    assert one.tolist() == other.tolist()


@pytest.mark.slow
def test_scores_in_parts_are_evaluated_as_scores_in_lines(place: Path, tmp_path: Path) -> None:
    shards = open_shards(place / "train.parquet")
    whole = shards.whole()
    scores = np.random.default_rng(0).normal(size=shards.rows)
    (tmp_path / "lines.txt").write_text("".join(f"{score!r}\n" for score in scores.tolist()))
    (tmp_path / "parts").mkdir()
    row = 0
    for number, file in enumerate(shards.files):
        write_scored_part(tmp_path / "parts" / part_name(number), file.load().candidates, scores[row : row + file.rows])
        row += file.rows
    assert row == len(whole.labels)
    by_lines = run(place, f"evaluate train.parquet {tmp_path}/lines.txt --json")
    assert by_lines == run(place, f"evaluate train.parquet {tmp_path}/parts --json")
    assert "mine" in run(place, f"compare train.parquet --methods ranksvm --scores mine={tmp_path}/parts")


@pytest.mark.slow
def test_sparse_files_are_brought_to_the_width_of_the_widest(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("1 qid:1 1:0.5\n0 qid:1 2:1.5\n")
    with gzip.open(tmp_path / "2.txt.gz", "wt") as out:
        out.write("1 qid:2 4:2.5\n")
    run(tmp_path, "convert 1.txt 2.txt.gz --out wide")
    same(open_shards(tmp_path / "wide").whole(), read_letor([tmp_path / "1.txt", tmp_path / "2.txt.gz"]))
    run(tmp_path, "convert 1.txt 2.txt.gz --out wider --features 6")
    same(open_shards(tmp_path / "wider").whole(), read_letor([tmp_path / "1.txt", tmp_path / "2.txt.gz"], features=6))
    assert "2.txt.gz:1" in run(tmp_path, "convert 1.txt 2.txt.gz --out narrow --features 3", code=2)
    assert not (tmp_path / "narrow").exists()


def test_names_and_queries_beside_the_files_are_taken_along(tmp_path: Path) -> None:
    data = make_judged(8, 4, 3)
    assert data.candidates.queries is not None
    write_letor(tmp_path / "1.txt", data.select([0, 1, 2]))
    write_letor(tmp_path / "2.txt", data.select([3, 4, 5, 6, 7]))
    (tmp_path / "features.txt").write_text("price\nclicks\nage\n")
    write_queries(tmp_path / "queries.jsonl", data.candidates.queries)
    made = convert([tmp_path / "1.txt", tmp_path / "2.txt"], tmp_path / "s", rows=10)
    assert made.feature_names == ("price", "clicks", "age")
    assert made.files[1].load().classes == data.classes[2:4]
    assert made.whole().classes == data.classes
    (tmp_path / "other.jsonl").write_text("".join(f'{{"_id": "q{n}", "text": "t{n}"}}\n' for n in range(1, 9)))
    convert([tmp_path / "1.txt"], tmp_path / "o", queries=tmp_path / "other.jsonl")
    assert read_queries(tmp_path / "o" / "queries.jsonl").texts == ("t1", "t2", "t3")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1"}\n')
    with pytest.raises(DataError, match=r"Query 'q2' of \S+1\.txt is not in the query table.*or name another"):
        convert([tmp_path / "1.txt"], tmp_path / "o")
    again = convert([tmp_path / "s"], tmp_path / "s", shards=2)
    assert (len(again.files), again.whole().classes) == (2, data.classes)


def test_a_log_is_converted_file_by_file(tmp_path: Path) -> None:
    for number, qid in enumerate((["a", "b", "a"], ["c", "c", "d"])):
        table = pa.table({"query": qid, "grade": [1, 2, None], "x": [1.0, 2.0, 3.0]})
        (tmp_path / "log").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "log" / f"{number}.parquet")
    run(tmp_path, "convert log --qid query --label grade --out s --rows 3")
    whole = open_shards(tmp_path / "s").whole()
    assert whole.candidates.query_ids == ("a", "b", "c", "d")
    assert whole.candidates.features.ravel().tolist() == [1, 3, 2, 1, 2, 3]
    assert whole.judged is not None
    assert whole.judged.tolist() == [True, False, True, True, True, False]
    (tmp_path / "log" / "1.parquet").unlink()
    pq.write_table(pa.table({"qid": ["e"], "x": [1.0]}), tmp_path / "log" / "0.parquet")
    assert "no column 'label'" in run(tmp_path, "convert log --out s", code=2)
    run(tmp_path, "convert log --label none --out s")
    unjudged = open_shards(tmp_path / "s").whole().judged
    assert unjudged is not None
    assert unjudged.tolist() == [False]


def test_files_of_several_kinds_become_one_set(tmp_path: Path) -> None:
    data = ragged()
    parts = [data.select(np.arange(5)), data.select(np.arange(5, 9)), data.select(np.arange(9, len(data)))]
    write_letor(tmp_path / "1.txt", parts[0])
    write_shards(parts[1:2], tmp_path / "2")
    write_letor(tmp_path / "3.txt", parts[2])
    same(convert([tmp_path / "1.txt", tmp_path / "2", tmp_path / "3.txt"], tmp_path / "all").whole(), data)


@pytest.mark.parametrize(
    ("files", "out", "options", "message"),
    [
        ("one.txt one.txt", "new", {}, r"Query 'q1' is in \S+one\.txt and again in \S+one\.txt"),
        ("one.txt log.parquet", "new", {}, r"log\.parquet has different feature names from \S+one\.txt"),
        ("one.txt train.parquet", "new", {}, r"is in \S+one\.txt and again in \S+part-00000\.parquet"),
        ("nowhere.txt", "new", {}, r"nowhere\.txt: there is no such file"),
        ("one.txt nowhere.txt", "new", {}, r"nowhere\.txt: there is no such file"),
        ("nowhere.parquet", "new", {}, r"nowhere\.parquet: there is no such file"),
        (
            "log.parquet",
            "new",
            {"columns": LogColumns(label="grade")},
            r"log\.parquet: The table has no column 'grade'",
        ),
        ("one.txt", "one.txt", {}, r"one\.txt: this is a file; shards are a folder"),
        ("one.txt", "", {}, "the folder holds something that is not shards"),
        ("one.txt", "new", {"shards": 26}, "26 shards cannot be made of 25 queries"),
        ("one.txt", "new", {"queries": "nowhere.jsonl"}, r"nowhere\.jsonl: there is no such file"),
        ("", "new", {}, "No file to convert"),
    ],
)
def test_what_cannot_be_converted_is_named_and_nothing_is_left(
    place: Path, files: str, out: str, options: dict[str, Any], message: str
) -> None:
    before = sorted(place.rglob("*"))
    with pytest.raises(DataError, match=message):
        convert([place / file for file in files.split()], place / out, **options)
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("convert one.txt --out .", "the folder holds something that is not shards"),
        ("fit train.parquet one.txt --out new", "train.parquet is shards, one.txt is LETOR text"),
        ("fit train.parquet --features 2 --out new", "there are 3 features; --features 2 is too few"),
        ("evaluate one.txt train.parquet", "not a part of scores"),
    ],
)
def test_a_command_that_cannot_be_done_ends_with_one_message(place: Path, command: str, message: str) -> None:
    before = sorted(place.rglob("*"))
    said = run(place, command, code=2)
    assert said.startswith("error: ")
    assert message in said
    assert said.count("\n") == 1
    assert sorted(place.rglob("*")) == before


@pytest.mark.slow
def test_an_interrupt_while_converting_keeps_the_older_shards(place: Path, tmp_path: Path) -> None:
    old = make_judged(5, 4, 3)
    write_shards([old], tmp_path / "s")
    os.mkfifo(tmp_path / "pipe.txt")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    words = ["convert", place / "one.txt", "pipe.txt", "--features", 3, "--rows", 6, "--out", "s"]
    process = commands.begun(tmp_path, *words)
    try:
        limit = time.monotonic() + 60
        while not list(tmp_path.glob(".s.part/part-00003.parquet")) and time.monotonic() < limit:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        complaint = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.communicate()
        signal.signal(signal.SIGINT, before)
    assert process.returncode == 130
    assert complaint == "error: interrupted; what was being written has not been changed.\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe.txt", "s"]
    same(open_shards(tmp_path / "s").whole(), old)


def test_a_streamed_set_is_let_go_of_part_by_part(tmp_path: Path) -> None:
    """Parts are not held once they are written: however many there are, few live at the same time."""
    alive: list[Callable[[], object]] = []
    most = 0

    def made(seed: int) -> Judged:
        features = np.full((50, 2), float(seed))
        alive.append(weakref.ref(features))
        return Judged(
            Candidates(features, np.arange(11) * 5, tuple(f"{seed} {query}" for query in range(10))),
            np.zeros(50, np.int64),
        )

    def parts() -> Iterator[Judged]:
        nonlocal most
        for seed in range(8):
            most = max(most, sum(each() is not None for each in alive))
            yield made(seed)

    shards = write_shards(parts(), tmp_path / "s", rows=30)
    assert len(shards) == 80
    assert most == 0
