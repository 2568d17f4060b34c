"""Judging results: a grade goes to the service, and stands in a file of qrels, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from querywise.data.collections import read_collection, with_more_judged, write_collection
from querywise.data.judgements import read_grades
from querywise.data.query_table import read_queries
from querywise.errors import DataError, Hint
from querywise.retrieval.index import load_index
from querywise.service import judging
from querywise.service.api import ApiError
from querywise.service.judging import WHOLE_BYTES, JudgementFile, id_of_text
from querywise.service.limits import Limits
from querywise.service.loaded_model import ModelFolder
from querywise.service.lookup import Lookup
from querywise.service.routes import create_app
from querywise.service.schema import KnownQuery
from querywise.service.service import Service
from querywise.storage import read_manifest
from tests.commands import run
from tests.fruit import collection, write_served
from tests.serving import Serving, serving
from tests.worlds import inside

TOKEN = "open-sesame"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("judged")
    write_served(made)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Serving]:
    with serving(*words(folder), "--judge", folder / "given.qrels", token=TOKEN) as found:
        yield found


def words(folder: Path) -> list[object]:
    known = ("--data", folder / "judged.txt", "--queries", folder / "queries.jsonl")
    return [folder / "local", "--index", folder / "index", *known]


def judge(server: Serving, content: object, **more: str) -> httpx.Response:
    return server.post("/v1/judgements", content, **{"authorization": f"Bearer {TOKEN}", **more})


def given(document: str, grade: int | None, **query: str) -> dict[str, Any]:
    return {"query": query, "document": document, "grade": grade}


def searched(server: Serving, **asked: str) -> dict[str, Any]:
    found = httpx.get(server.url + "/v1/search", params=asked, headers={"authorization": f"Bearer {TOKEN}"}, timeout=30)
    said: dict[str, Any] = found.json()
    return said


# Over HTTP


def test_a_grade_is_kept_replaced_shown_and_removed(server: Serving, folder: Path) -> None:
    file = folder / "given.qrels"
    answer = judge(server, given("shop-fig", 2, id="buy-fig"))
    assert answer.status_code == 200, answer.text
    kept = read_grades(file)
    assert kept["buy-fig"] == {"shop-fig": 2}
    assert answer.json() == {
        "query": "buy-fig",
        "document": "shop-fig",
        "grade": 2,
        "judgements": sum(map(len, kept.values())),
    }
    judge(server, given("shop-fig", 1, id="buy-fig"))
    judge(server, given("farm-fig", 0, id="buy-fig"))
    assert read_grades(file)["buy-fig"] == {"shop-fig": 1, "farm-fig": 0}
    assert searched(server, qid="buy-fig")["judging"] == {"query": "buy-fig", "grades": {"shop-fig": 1, "farm-fig": 0}}
    judge(server, given("farm-fig", None, id="buy-fig"))
    assert read_grades(file)["buy-fig"] == {"shop-fig": 1}


def test_a_search_is_judged_under_the_id_of_its_text(server: Serving, folder: Path) -> None:
    known = judge(server, given("farm-kiwi", 2, text=" Grow KIWI  juice ")).json()
    assert known["query"] == "grow-kiwi", "its text is that of a query which is known"
    fresh = judge(server, given("farm-kiwi", 1, text="kiwi fruit")).json()["query"]
    assert fresh == id_of_text("Kiwi  fruit")
    assert searched(server, q="KIWI fruit")["judging"]["grades"] == {"farm-kiwi": 1}
    texts = read_queries(folder / "given.qrels.queries.jsonl")
    assert texts.texts is not None
    assert dict(zip(texts.ids, texts.texts, strict=True))[fresh] == "kiwi fruit"
    assert texts.ids.count(fresh) == 1


def test_what_was_judged_can_be_learned_from(server: Serving, folder: Path, tmp_path: Path) -> None:
    asked = ("dates please", "a date", "where are dates", "fresh dates", "one date")
    for text in asked:
        judge(server, given("shop-date", 2, text=text))
        judge(server, given("farm-date", 0, text=text))
    documents = [{"_id": f"{kind}-date", "title": "date", "text": f"{kind} of a date"} for kind in ("shop", "farm")]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents))
    file = folder / "given.qrels"
    done = run(
        tmp_path,
        *("features", tmp_path, "--out", tmp_path / "made", "--skip-unknown"),
        *("--queries", f"{file}.queries.jsonl", "--qrels", file),
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("vectors", [(), ("--embed", "lsa", "--vector-top", 7)])
def test_the_command_on_the_page_adds_one_judged_query_to_what_the_model_was_trained_on(
    vectors: tuple[object, ...], tmp_path: Path
) -> None:
    write_collection(collection(), tmp_path / "my fruit")
    more = ("--method", "knn-online", "--view", "text", "--k", "0.4", "--set", "l2=0.1")
    embed = vectors[:2]
    done = run(tmp_path, "index", "my fruit", *embed, "--out", "index")
    assert done.returncode == 0, done.stderr
    done = run(tmp_path, "fit", "my fruit", *more, *vectors, "--out", "the model")
    assert done.returncode == 0, done.stderr
    before = read_manifest(tmp_path / "the model")
    with serving(
        tmp_path / "the model", "--index", tmp_path / "index", "--judge", tmp_path / "given", token=TOKEN
    ) as it:
        served = read_model(it)
        judge(it, given("shop-fig", 2, text="where to find figs"))
        judge(it, given("farm-fig", 0, text="where to find figs"))
        program, *words = shlex.split(served["retrain"])
        assert program == "querywise"
        assert "FOLDER" in words
        done = run(tmp_path, *("my fruit" if word == "FOLDER" else word for word in words))
        assert done.returncode == 0, done.stderr
        said = "2 judgments of 1 query added to those of my fruit (new queries: 1, grades replaced: 0)."
        assert said in " ".join(done.stderr.split())
        assert f"knn-online trained on {len(collection().queries or ()) + 1} queries" in " ".join(done.stdout.split())
        after = read_manifest(tmp_path / "the model")
        for known in ("method", "parameters", "language"):
            assert after.notes[known] == before.notes[known]
        assert after.notes.get("vectors") == before.notes.get("vectors")
        new = wait_for(lambda: (found := read_model(it))["version"] != served["version"] and found)
        assert new["feature_names"] == served["feature_names"]
        assert new["retrain"] == served["retrain"]


def read_model(server: Serving) -> Any:
    return httpx.get(server.url + "/v1/model", headers={"authorization": f"Bearer {TOKEN}"}, timeout=30).json()


def test_judgements_are_added_to_a_text_collection_and_the_last_grade_counts(tmp_path: Path) -> None:
    write_collection(collection(), tmp_path / "fruit")
    (tmp_path / "given").write_text("buy-fig 0 farm-fig 1\nbuy-fig 0 shop-fig 2\nnew 0 shop-kiwi 1\n")
    made = read_collection(tmp_path / "fruit")
    said = r"given:3: query 'new' is judged here, and its text is neither in fruit nor in .*given\.queries\.jsonl\.$"
    with pytest.raises(DataError, match=said):
        with_more_judged(made, tmp_path / "given")
    (tmp_path / "given.queries.jsonl").write_text('{"_id": "new", "text": "kiwi", "class": "buy"}\n')
    with pytest.warns(Hint, match=r"3 judgments of 2 queries .*\(new queries: 1, grades replaced: 1\)"):
        both = with_more_judged(made, tmp_path / "given")
    assert both.queries is not None
    assert (both.queries.ids[-1], (both.queries.texts or ())[-1], (both.queries.classes or ())[-1]) == (
        "new",
        "kiwi",
        "buy",
    )
    assert both.grades()["buy-fig"] == {"shop-fig": 2, "farm-fig": 1}
    assert both.grades()["grow-fig"] == made.grades()["grow-fig"]
    (tmp_path / "train.txt").write_text("1 qid:1 1:1\n0 qid:1 1:0\n")
    done = run(tmp_path, "fit", "train.txt", "--also-judged", "given", "--out", "out")
    assert "train.txt is not one; feature files contain their own labels" in " ".join(done.stderr.split())


def wait_for(found: Any, seconds: float = 20.0) -> Any:
    """What is found before long."""
    until = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < until, "nothing was found in time"
        time.sleep(0.2)
    return value


def test_clicks_at_the_same_time_lose_nothing(server: Serving, folder: Path) -> None:
    fruits = ("apple", "pear", "plum", "lime", "lemon", "melon", "grape", "cherry")
    clicks = [given(f"{kind}-{fruit}", 1, id=f"buy-{fruit}") for fruit in fruits for kind in ("shop", "farm")]
    with ThreadPoolExecutor(len(clicks)) as threads:
        answers = list(threads.map(lambda click: judge(server, click).status_code, clicks))
    assert answers == [200] * len(clicks)
    kept = read_grades(folder / "given.qrels")
    for fruit in fruits:
        assert kept[f"buy-{fruit}"] == {f"shop-{fruit}": 1, f"farm-{fruit}": 1}


@pytest.mark.parametrize(
    ("content", "more", "status", "said"),
    [
        (given("shop-fig", 1, id="buy-fig"), {"authorization": "Bearer wrong"}, 401, "token"),
        (given("shop-fig", 1, id="buy-fig"), {"origin": "http://elsewhere.example"}, 403, "only the page"),
        (b'{"query": {"id": "buy-fig"}}', {"content-type": "text/plain"}, 415, "send JSON"),
        (given("shop-fig", 3, id="buy-fig"), {}, 422, "Grade 3 is not one of 0 to 2"),
        (given("shop-fig", -1, id="buy-fig"), {}, 422, "grade"),
        (given("shop-fig", 1, id="nobody"), {}, 422, "No judged query has the id 'nobody'"),
        (given("nothing", 1, id="buy-fig"), {}, 422, "There is no document 'nothing'"),
        (given("x" * 1001, 1, id="buy-fig"), {}, 422, "document"),
        (given("shop-fig", 1, id="buy-fig", text="both"), {}, 422, "Give either the id"),
        (given("shop-fig", 1, text=" "), {}, 422, "There is no text"),
        (given("shop-fig", 1, text="x" * 200_000), {}, 413, "100000 bytes"),
        (b"[]", {"content-type": "application/json"}, 422, "object"),
        (b"{", {"content-type": "application/json"}, 400, "not JSON"),
    ],
)
def test_what_is_refused_changes_nothing(
    server: Serving, folder: Path, content: object, more: dict[str, str], status: int, said: str
) -> None:
    judge(server, given("shop-fig", 2, id="buy-fig"))
    before = (folder / "given.qrels").read_bytes()
    answer = judge(server, content, **more)
    assert answer.status_code == status, answer.text
    problem = answer.json()["error"]
    assert said in f"{problem['message']} {problem['where']}"
    assert (folder / "given.qrels").read_bytes() == before


@pytest.mark.slow
def test_nothing_can_be_judged_where_nobody_asked_for_it(folder: Path) -> None:
    with serving(*words(folder), token=TOKEN) as server:
        answer = judge(server, given("shop-fig", 1, id="buy-fig"))
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "not_judging"
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert httpx.get(f"{server.url}/v1/model", headers=headers).json()["highest_grade"] is None
        assert searched(server, qid="buy-fig")["judging"] is None


@pytest.mark.slow
def test_a_service_that_is_started_again_has_what_was_judged(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept.qrels"
    file.write_text("other 0 D1 1\nbuy-fig 0 farm-fig 0\n")
    for grade in (1, 2):
        with serving(*words(folder), "--judge", file, token=TOKEN) as server:
            assert judge(server, given("shop-fig", grade, id="buy-fig")).status_code == 200
            assert searched(server, qid="buy-fig")["judging"]["grades"] == {"farm-fig": 0, "shop-fig": grade}
    assert file.read_text() == "other 0 D1 1\nbuy-fig 0 farm-fig 0\nbuy-fig 0 shop-fig 2\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept.qrels", "kept.qrels.queries.jsonl"]


# When it is started


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("buy-fig 0 D1\nnot a judgement at all\n", "expected 'query"),
        ("q 0 D1 1\nq 0 D1 2\n", "Keep one of them"),
        (None, "create it first"),
    ],
)
def test_a_wrong_file_is_refused_at_the_start_in_one_line(
    folder: Path, tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / ("no/such/folder/given.qrels" if content is None else "given.qrels")
    if content is not None:
        file.write_text(content)
    (tmp_path / "token").write_text(TOKEN)
    done = run(tmp_path, "serve", *words(folder), "--judge", file, "--token-file", tmp_path / "token")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert TOKEN not in done.stderr


def test_without_a_token_or_anything_to_look_at_nobody_can_judge(folder: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "serve", *words(folder), "--judge", tmp_path / "given.qrels")
    assert done.returncode == 2
    assert "judging needs a token" in done.stderr
    assert "--token-file" in done.stderr
    (tmp_path / "token").write_text(TOKEN)
    done = run(
        tmp_path, "serve", folder / "local", "--judge", tmp_path / "given.qrels", "--token-file", tmp_path / "token"
    )
    assert done.returncode == 2
    assert "there is nothing to judge" in done.stderr


# The file


QUERY = KnownQuery("q1", "jaguar")


def test_files_that_cannot_be_written_to_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="this is a folder"):
        JudgementFile(tmp_path)
    with pytest.raises(DataError, match="plain text"):
        JudgementFile(tmp_path / "given.qrels.gz")
    large = tmp_path / "large.qrels"
    large.write_text("q 0 D1 1\n" * 10)
    with pytest.raises(DataError, match="90 bytes; expected 50 at most"):
        JudgementFile(large, most_bytes=50)
    closed = tmp_path / "closed.qrels"
    closed.write_text("q 0 D1 1\n")
    closed.chmod(stat.S_IRUSR)
    try:
        with closed.open("a"):
            pass  # root may write to anything
    except PermissionError:
        with pytest.raises(DataError, match="no permission"):
            JudgementFile(closed)


@pytest.mark.parametrize("whole", [WHOLE_BYTES, 0], ids=["written whole", "with a log"])
def test_a_file_that_is_full_takes_no_more_and_keeps_what_it_has(tmp_path: Path, whole: int) -> None:
    file = JudgementFile(tmp_path / "given.qrels", most_bytes=60, whole_bytes=whole)
    for number in range(6):
        file.judge(QUERY, f"D{number}", 1)
    with pytest.raises(ApiError, match="full") as full:
        file.judge(QUERY, "D6", 1)
    assert full.value.status == 413
    assert len(read_grades(file.path)["q1"]) == 6
    assert file.judge(QUERY, "D0", None) == 5


@pytest.mark.parametrize("whole", [WHOLE_BYTES, 0], ids=["written whole", "with a log"])
def test_what_others_write_meanwhile_stays(tmp_path: Path, whole: int) -> None:
    one, other = (JudgementFile(tmp_path / "given.qrels", whole_bytes=whole) for _ in range(2))
    one.judge(QUERY, "D1", 1)
    other.judge(QUERY, "D2", 2)
    one.judge(KnownQuery("q2"), "D1", 3)
    assert read_grades(one.path) == {"q1": {"D1": 1, "D2": 2}, "q2": {"D1": 3}}
    assert other.of("q2") == {"D1": 3}
    one.path.write_text("what is this\n")
    with pytest.raises(ApiError, match="not kept") as broken:
        one.judge(QUERY, "D3", 1)
    assert broken.value.status == 500
    assert one.path.read_text() == "what is this\n"
    assert one.of("q1") == {"D1": 1, "D2": 2}


def content_of(folder: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in sorted(folder.iterdir())}


def test_grades_of_a_large_file_go_to_a_log_whose_last_line_per_pair_counts(tmp_path: Path) -> None:
    path = tmp_path / "given.qrels"
    path.write_text("q0 0 D0 1\nq1 0 D1 1\n")
    file = JudgementFile(path, whole_bytes=0)
    for document, grade in (("D1", 2), ("D2", 1), ("D2", 3), ("D1", None), ("D3", 0)):
        file.judge(QUERY, document, grade)
    assert content_of(tmp_path) == {
        "given.qrels": "q0 0 D0 1\nq1 0 D1 1\n",
        "given.qrels.judged-log": "q1 0 D1 2\nq1 0 D2 1\nq1 0 D2 3\nq1 0 D1 -\nq1 0 D3 0\n",
        "given.qrels.queries.jsonl": '{"_id": "q1", "text": "jaguar"}\n',
    }
    assert read_grades(path) == {"q0": {"D0": 1}, "q1": {"D2": 3, "D3": 0}}
    assert JudgementFile(path, whole_bytes=0).of("q1") == {"D2": 3, "D3": 0}, "which also compacts it"
    assert content_of(tmp_path)["given.qrels"] == "q0 0 D0 1\nq1 0 D2 3\nq1 0 D3 0\n"
    assert not file.log.exists()
    assert file.judge(QUERY, "D3", 1) == 3
    assert content_of(tmp_path)["given.qrels.judged-log"] == "q1 0 D3 1\n"
    file.compact()
    assert read_grades(path) == {"q0": {"D0": 1}, "q1": {"D2": 3, "D3": 1}}
    assert not file.log.exists()


def test_a_line_that_was_cut_by_a_power_failure_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "given.qrels"
    path.write_text("q0 0 D0 1\n")
    file = JudgementFile(path, whole_bytes=0)
    file.judge(QUERY, "D1", 1)
    with file.log.open("a") as log, file.texts.open("a") as texts:
        log.write("q1 0 D2")
        texts.write('{"_id": "q2", "te')
    assert read_grades(path) == {"q0": {"D0": 1}, "q1": {"D1": 1}}
    for each in (file, JudgementFile(path, whole_bytes=0)):
        assert each.judge(KnownQuery("q2", "lion"), "D1", 2) == 3
    assert read_grades(path) == {"q0": {"D0": 1}, "q1": {"D1": 1}, "q2": {"D1": 2}}
    assert read_queries(file.texts).ids == ("q1", "q2")
    file.texts.write_text(file.texts.read_text().rstrip("\n"))  # as an editor may leave it
    file.judge(KnownQuery("q3", "puma"), "D1", 2)
    assert read_queries(file.texts).ids == ("q1", "q2", "q3")


def test_a_wrong_log_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "given.qrels").write_text("q0 0 D0 1\n")
    (tmp_path / "given.qrels.judged-log").write_text("q0 0 D0 1\nwhat is this\n")
    with pytest.raises(DataError, match=r"given\.qrels\.judged-log:2: expected 'query 0 document grade'"):
        read_grades(tmp_path / "given.qrels")
    with pytest.raises(DataError, match=r"given\.qrels\.judged-log:2: expected 'query 0 document grade'"):
        JudgementFile(tmp_path / "given.qrels")


def test_a_grade_in_a_file_of_megabytes_takes_no_longer_than_in_a_small_one(tmp_path: Path) -> None:
    path = tmp_path / "given.qrels"
    path.write_text("".join(f"q{number // 20} 0 document-{number} 1\n" for number in range(150_000)))
    file = JudgementFile(path)
    before = path.stat()
    begun = time.perf_counter()
    for number in range(10):
        file.judge(QUERY, f"D{number}", 1)
    taken = time.perf_counter() - begun
    assert path.stat() == before, "it is not written anew"
    begun = time.perf_counter()
    file.compact()
    assert taken < 10 * (time.perf_counter() - begun), "each took less than writing all of it"
    assert len(read_grades(path)["q1"]) == 30


def test_a_grade_that_is_changed_in_a_full_file_does_not_write_it_anew(tmp_path: Path) -> None:
    path = tmp_path / "given.qrels"
    path.write_text("".join(f"q{number} 0 D{number} 1\n" for number in range(100, 1100)))
    file = JudgementFile(path, whole_bytes=0, most_bytes=path.stat().st_size)
    before = path.stat()
    for number in range(200, 300):
        file.judge(KnownQuery(f"q{number}"), f"D{number}", 2)
    with pytest.raises(ApiError, match="full"):
        file.judge(KnownQuery("q100"), "D1", 1)
    assert file.judge(KnownQuery("q100"), "D100", None) == 999
    assert file.judge(KnownQuery("q100"), "D-10", 1) == 1000, "there is room for it now"
    assert path.stat() == before
    for _ in range(10):
        for number in range(200, 300):
            file.judge(KnownQuery(f"q{number}"), f"D{number}", 3)
            file.judge(KnownQuery(f"q{number}"), f"D{number}", 2)
    assert file.log.stat().st_size <= before.st_size, "a log does not grow for ever"
    assert path.stat() != before
    kept = read_grades(path)
    assert (len(kept), kept["q100"], kept["q299"], kept["q300"]) == (1000, {"D-10": 1}, {"D299": 2}, {"D300": 1})
    file.compact()
    assert read_grades(path) == kept
    again = JudgementFile(path, whole_bytes=0, most_bytes=before.st_size)
    with pytest.raises(ApiError, match="full"):
        again.judge(KnownQuery("q100"), "D1", 1)


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_permissions_are_kept(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "given.qrels"
    path.write_text("q0 0 D0 1\n")
    path.chmod(mode)
    for whole in (WHOLE_BYTES, 0):
        file = JudgementFile(path, whole_bytes=whole)
        file.judge(KnownQuery(f"q{whole}", "jaguar"), "D1", 1)
        assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {mode}
    assert (tmp_path / "given.qrels.judged-log").exists()


def test_a_lock_that_others_hold_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "LOCK_SECONDS", 0.2)
    file = JudgementFile(tmp_path / "given.qrels")
    script = (
        "import sys, pathlib\nfrom querywise.runtime.locks import locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / ".given.qrels.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with ThreadPoolExecutor(4) as threads:
            tried = [threads.submit(file.judge, QUERY, f"D{number}", 1) for number in range(4)]
            said = [each.exception(timeout=20) for each in tried]
        assert {getattr(each, "status", None) for each in said} == {503}
        assert any(f"process {other.pid} on" in str(each) for each in said)
        assert file.of("q1") == {}
        other.communicate()
    assert file.judge(QUERY, "D1", 1) == 1


@pytest.mark.parametrize("name", ["given.qrels", "given.qrels.queries.jsonl", "given.qrels.judged-log"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    path = tmp_path / "given.qrels"
    path.write_text("q1 0 D1 1\n")
    file = JudgementFile(path, whole_bytes=0)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    assert file.of("q1") == {"D1": 1}
    with pytest.raises(ApiError, match="not a regular file") as refused:
        file.judge(QUERY, "D2", 1)
    assert refused.value.status == 500
    with pytest.raises(DataError, match="not a regular file"):
        JudgementFile(path)


@pytest.mark.slow
def test_a_disk_that_does_not_answer_keeps_nobody_else_waiting_and_the_outcome_is_told(folder: Path) -> None:
    service = Service(
        ModelFolder(folder / "local"),
        Lookup(index=load_index(folder / "index")),
        limits=Limits(seconds=0.5),
        token=TOKEN,
        judge=folder / "slow.qrels",
    )
    free = threading.Event()
    assert service.judging is not None
    inside(service.judging).judge = lambda *_: free.wait(20)

    async def asked() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            client.headers["authorization"] = f"Bearer {TOKEN}"
            grades = [client.post("/v1/judgements", json=given("shop-fig", 1, text="fig")) for _ in range(12)]
            others = [client.post("/v1/explain", json={"query": {"text": "fig"}})]
            return list(await asyncio.gather(*grades, *others))

    try:
        *judged, explained = asyncio.run(asked())
    finally:
        free.set()
    assert explained.status_code == 200
    assert {each.status_code for each in judged} == {503}
    assert all(each.json()["error"]["code"] == "outcome_unknown" for each in judged)


@pytest.mark.parametrize("name", ["two words", "", "line\nbreak", "tab\there"])
def test_ids_that_qrels_cannot_hold_are_refused(tmp_path: Path, name: str) -> None:
    file = JudgementFile(tmp_path / "given.qrels")
    with pytest.raises(ApiError, match="TREC qrels"):
        file.judge(QUERY, name, 1)
    with pytest.raises(ApiError, match="TREC qrels"):
        file.judge(KnownQuery(name), "D1", 1)
    assert not file.path.exists()


def test_grades_go_as_far_as_those_of_the_data(tmp_path: Path) -> None:
    assert JudgementFile(tmp_path / "new.qrels").highest == 3
    assert JudgementFile(tmp_path / "new.qrels", usual=2).highest == 2
    (tmp_path / "old.qrels").write_text("q 0 D1 4\nq 0 D2 -2\n")
    assert JudgementFile(tmp_path / "old.qrels", usual=2).highest == 4
    assert JudgementFile(tmp_path / "new.qrels", usual=31).highest == 9
