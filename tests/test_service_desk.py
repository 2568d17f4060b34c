"""The judging page's service: what each judge is shown and keeps, and those who mean harm."""

from __future__ import annotations

import asyncio
import csv
import errno
import io
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from querywise.data.judge_log import MOST_LETTERS
from querywise.data.judgements import read_grades
from querywise.errors import DataError
from querywise.jobs.judging import open_desk
from querywise.service import judging
from querywise.service.desk import BLOCK, Desk, desk_api
from querywise.service.guards import Guard
from querywise.service.judging import JudgesFile
from tests.commands import run
from tests.desk import DOCUMENTS, PAIRS, TOKEN, words, write_desk
from tests.serving import serving

Asking = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_desk(tmp_path)
    return tmp_path


def opened(folder: Path, pairs: str = "next.tsv", **more: Any) -> Desk:
    return open_desk(folder / pairs, folder / "mine", folder / "given.qrels", TOKEN, **more)


def asked(desk: Desk, method: str, path: str, body: object = None, token: str | None = TOKEN) -> httpx.Response:
    """What the guarded application answers."""

    async def one() -> httpx.Response:
        transport = httpx.ASGITransport(Guard(desk_api(desk), desk))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            return await client.request(method, path, json=body, headers=headers)

    return asyncio.run(one())


def get(desk: Desk, path: str, **more: object) -> Any:
    found = asked(desk, "GET", f"{path}?{httpx.QueryParams({name: str(each) for name, each in more.items()})}")
    assert found.status_code == 200, found.text
    return found.json()


def post(desk: Desk, what: str, **body: object) -> Any:
    found = asked(desk, "POST", f"/v1/judging/{what}", body)
    assert found.status_code == 200, found.text
    return found.json()


def refused(desk: Desk, what: str, status: int, **body: object) -> str:
    found = asked(desk, "POST", f"/v1/judging/{what}", body)
    assert found.status_code == status, found.text
    return str(found.json()["error"]["message"])


def walk(desk: Desk, judge: str) -> list[tuple[str, str]]:
    places = range(1, len(PAIRS) + 1)
    shown = [get(desk, "/v1/judging/pair", judge=judge, place=place) for place in places]
    return [(each["query"], each["document"]) for each in shown]


def test_each_judge_has_an_order_the_same_at_each_visit_and_blocks_stay_in_turn(folder: Path) -> None:
    orders = {judge: walk(opened(folder), judge) for judge in ("ann", "bob")}
    assert orders["ann"] == walk(opened(folder), "ann")
    assert orders["ann"] != orders["bob"]
    for order in orders.values():
        assert set(order[:BLOCK]) == set(PAIRS[:BLOCK]), "so that what `next` counts grows"
        assert set(order) == set(PAIRS)


def test_of_qrels_a_query_s_documents_come_together_and_their_grades_are_not_told(folder: Path) -> None:
    (folder / "cheap.qrels").write_text("".join(f"{query} judge:x {document} 3\n" for query, document in PAIRS))
    desk = opened(folder, "cheap.qrels")
    order = walk(desk, "ann")
    assert [query for query, _ in order] == ["q1"] * 6 + ["q2"] * 6
    assert order != sorted(order)
    shown = get(desk, "/v1/judging/pair", judge="ann")
    assert shown["grade"] is None
    assert "3" not in {shown["title"][-1:], shown["text"][-2:-1]} or "grade" not in shown["text"]
    assert get(desk, "/v1/judging")["drawn"] is False


def test_grades_of_others_are_hidden_until_one_has_judged(folder: Path) -> None:
    desk = opened(folder)
    post(desk, "grade", judge="ann", query="q1", document="D1", grade=3)
    place = walk(desk, "bob").index(("q1", "D1")) + 1
    assert get(desk, "/v1/judging/pair", judge="bob", place=place)["others"] is None
    assert "3" not in json.dumps([get(desk, "/v1/judging/pair", judge="bob", place=place)["others"]])
    assert post(desk, "grade", judge="bob", query="q1", document="D1", grade=1)["others"] == {"ann": 3}
    assert post(desk, "undo", judge="bob")["others"] is None


def test_the_walk_goes_to_what_is_open_and_skipped_pairs_come_at_the_end(folder: Path) -> None:
    desk, seen = opened(folder), []
    order = walk(desk, "ann")
    shown = get(desk, "/v1/judging/pair", judge="ann")
    shown = get(desk, "/v1/judging/pair", judge="ann", after=shown["place"])  # skipped
    for _ in range(len(PAIRS)):
        seen.append((shown["query"], shown["document"]))
        kept = post(desk, "grade", judge="ann", query=shown["query"], document=shown["document"], grade=1)
        shown = get(desk, "/v1/judging/pair", judge="ann", after=kept["place"])
    assert seen == [*order[1:], order[0]]
    assert (kept["graded"], kept["pairs"]) == (len(PAIRS), len(PAIRS))
    state = get(desk, "/v1/judging")
    assert (state["graded"], state["graded_twice"], state["in_turn"]) == (12, 0, 12)
    assert read_grades(folder / "given.qrels") == {query: dict.fromkeys(DOCUMENTS, 1) for query in ("q1", "q2")}


def test_undo_is_a_line_and_brings_the_grade_before_back(folder: Path) -> None:
    desk = opened(folder)
    for grade in (3, 3, 0):
        post(desk, "grade", judge="ann", query="q1", document="D1", grade=grade)
    post(desk, "note", judge="ann", query="q2", document="D1", note=" a line\nand\x1b another ")
    assert post(desk, "undo", judge="ann")["grade"] == 3
    assert post(desk, "undo", judge="ann")["grade"] is None
    assert refused(desk, "undo", 409, judge="ann") == "There is no grade of ann to take back."
    assert (folder / "given.qrels.judged-log").read_text().splitlines() == [
        *("q1 ann D1 3", "q1 ann D1 0", 'q2 ann D1 note "a line\\nand\\u001b another"'),
        *("q1 ann D1 undo", "q1 ann D1 undo"),
    ]
    assert (folder / "given.qrels").read_text() == ""
    assert get(opened(folder), "/v1/judging/pair", judge="ann")["grade"] is None


def test_agreement_is_that_of_the_command(folder: Path) -> None:
    desk = opened(folder)
    assert get(desk, "/v1/judging/agreement") == {"agreements": []}
    given = {"ann": (0, 1, 2, 3, 0, 0, 3, 1), "bob": (0, 1, 3, 3, 0, 1, 3, 1)}
    post(desk, "grade", judge="ann", query="q1", document="D1", grade=0)
    post(desk, "grade", judge="bob", query="q1", document="D1", grade=0)
    (alone,) = get(desk, "/v1/judging/agreement")["agreements"]
    assert alone["problem"] == "They have both graded documents of 1 query; two or more are needed."
    for judge, grades in given.items():
        for (query, document), grade in zip(PAIRS, grades, strict=False):
            post(desk, "grade", judge=judge, query=query, document=document, grade=grade)
        exported = asked(desk, "GET", f"/v1/judging/export?of=judge:{judge}").text
        (folder / f"{judge}.qrels").write_text(exported)
        assert exported.startswith(f"q1 judge:{judge} D1 0\n")
    (found,) = get(desk, "/v1/judging/agreement")["agreements"]
    told = json.loads(run(folder, "agree", "ann.qrels", "bob.qrels", "--json").stdout)["measures"]
    assert found["pairs"] == 8
    assert found["same"] == pytest.approx(told["same grade"]["value"])
    assert found["weighted_kappa"] == pytest.approx(list(told["weighted kappa"].values()))


def test_exports_are_read_back_and_the_rules_are_as_they_say(folder: Path) -> None:
    desk = opened(folder)
    for judge, grade in (("ann", 0), ("bob", 3), ("eve", 3)):
        post(desk, "grade", judge=judge, query="q1", document="D1", grade=grade)
    for judge, grade in (("ann", 0), ("bob", 3)):
        post(desk, "grade", judge=judge, query="q1", document="D2", grade=grade)
    for of, expected in (("median", {"D1": 3, "D2": 1}), ("majority", {"D1": 3, "D2": 0}), ("judge:eve", {"D1": 3})):
        found = asked(desk, "GET", f"/v1/judging/export?of={of}")
        (folder / "out").write_text(found.text)
        assert read_grades(folder / "out") == {"q1": expected}
        assert found.text.split()[1] == of
        assert found.headers["content-disposition"].startswith("attachment; filename*=UTF-8''given-")
    assert read_grades(folder / "given.qrels") == {"q1": {"D1": 3, "D2": 1}}, "the file itself is by the median"
    assert asked(desk, "GET", "/v1/judging/export?of=judge:nobody").status_code == 404


def test_where_systems_stand_is_what_the_command_says(folder: Path) -> None:
    runs = [folder / "a.trec", folder / "b.trec"]
    desk = opened(folder, runs=runs)
    assert get(desk, "/v1/judging")["stands"] is True
    nothing = "a and b: nothing of the draw is judged yet."
    assert get(desk, "/v1/judging/standing")["said"] == ["0 of 12 documents drawn are judged.", nothing]
    for query, document in PAIRS[:BLOCK]:
        post(desk, "grade", judge="ann", query=query, document=document, grade=int(document == "D1"))
    said = get(desk, "/v1/judging/standing")["said"]
    asked_for = ("--run", "a.trec", "--run", "b.trec", "--judged", "given.qrels", "--out", "next.tsv")
    assert said == json.loads(run(folder, "next", *asked_for, "--json").stdout)["said"]
    assert said[0] == "10 of 12 documents drawn are judged."
    assert asked(opened(folder), "GET", "/v1/judging/standing").status_code == 404
    (folder / "a.trec").write_text("q1 Q0 D9 1 1 a\n")
    with pytest.raises(DataError, match="it was made of other runs"):
        opened(folder, runs=runs)


# Those who mean harm


@pytest.mark.parametrize("token", [None, "wrong"])
def test_nobody_judges_or_looks_without_the_token(folder: Path, token: str | None) -> None:
    desk = opened(folder)
    body = {"judge": "ann", "query": "q1", "document": "D1", "grade": 3}
    for method, path in (
        *(("POST", f"/v1/judging/{each}") for each in ("grade", "note", "undo")),
        *(("GET", f"/v1/judging{each}") for each in ("", "/pair?judge=ann", "/agreement", "/export?of=notes")),
    ):
        answer = asked(desk, method, path, body if method == "POST" else None, token)
        assert answer.status_code == 401, path
    assert not (folder / "given.qrels.judged-log").exists()
    assert asked(desk, "GET", "/", None, None).status_code == 200, "the page has no secret in it"


@pytest.mark.parametrize(
    "name", ["", "0", "a b", "<b>ann</b>", "=1+1", "a\nq1 bob D1 3", "a\x1b", "\u202eann", "x" * 41]
)
def test_names_that_could_do_harm_are_refused(folder: Path, name: str) -> None:
    desk = opened(folder)
    for what, more in (("grade", {"grade": 1}), ("note", {"note": "x"})):
        said = refused(desk, what, 422, judge=name, query="q1", document="D1", **more)
        assert "A judge's name has 1 to 40 letters" in said
    refused(desk, "undo", 422, judge=name)
    assert asked(desk, "GET", f"/v1/judging/pair?{httpx.QueryParams({'judge': name})}").status_code == 422
    assert not (folder / "given.qrels.judged-log").exists()


def test_notes_are_bounded_and_no_formula_in_a_spreadsheet(folder: Path) -> None:
    desk = opened(folder)
    assert "up to 2,000" in refused(desk, "note", 413, judge="ann", query="q1", document="D1", note="x" * 2001)
    refused(desk, "note", 413, judge="ann", query="q1", document="D1", note="x" * 200_000)
    notes = [
        "=HYPERLINK(1)",
        "+1",
        "-1",
        "@x",
        "x" * MOST_LETTERS,
        'a "quoted", note\nof two lines',
        "a\x1b[2Jb",
        "\ud7ff",
    ]
    for document, note in zip([*DOCUMENTS, *DOCUMENTS], notes, strict=False):
        query = "q1" if ("q1", document) not in desk.file.look(lambda found: {p for _, p in found.notes}) else "q2"
        post(desk, "note", judge="ann", query=query, document=document, note=note)
    rows = list(csv.reader(io.StringIO(asked(desk, "GET", "/v1/judging/export?of=notes").text)))
    kept = [row[4] for row in rows[1:]]
    assert kept == ["'=HYPERLINK(1)", "'+1", "'-1", "'@x", *notes[4:6], "a\ufffd[2Jb", "\ud7ff"]
    assert {row[2] for row in rows[1:]} == {"ann"}


@pytest.mark.parametrize(
    ("what", "body", "status", "said"),
    [
        ("grade", {"grade": 4}, 422, "Grade 4 is not one of 0 to 3"),
        ("grade", {"grade": -1}, 422, ""),
        ("grade", {"grade": 1, "document": "D9"}, 422, "'D9' of query 'q1' is not to be judged here"),
        ("grade", {"grade": 1, "query": "q9"}, 422, "is not to be judged here"),
        ("grade", {"grade": 1, "document": "D1\nq1 bob D2 3"}, 422, "is not to be judged here"),
        ("grade", {"grade": 1, "more": 1}, 422, "more"),
        ("grade", {}, 422, "missing required field `grade`"),
        ("note", {"note": 7}, 422, "Expected `str`"),
        ("note", {}, 422, "missing required field `note`"),
    ],
)
def test_what_is_refused_changes_nothing(folder: Path, what: str, body: Any, status: int, said: str) -> None:
    desk = opened(folder)
    assert said in refused(desk, what, status, **{"judge": "ann", "query": "q1", "document": "D1", **body})
    assert not (folder / "given.qrels.judged-log").exists()


def test_no_more_judges_than_are_allowed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "MOST_JUDGES", 2)
    desk = opened(folder)
    for judge in ("ann", "bob"):
        post(desk, "grade", judge=judge, query="q1", document="D1", grade=1)
    assert "There are 2 judges" in refused(desk, "grade", 422, judge="eve", query="q1", document="D1", grade=1)
    post(desk, "grade", judge="bob", query="q1", document="D2", grade=1)


@pytest.mark.slow
def test_judges_at_once_and_two_services_lose_nothing(folder: Path) -> None:
    with serving(*words(folder), token=TOKEN) as one, serving(*words(folder), token=TOKEN) as other:
        headers = {"authorization": f"Bearer {TOKEN}"}

        def give(number: int) -> int:
            server, judge = (one, other)[number % 2], f"judge{number % 5}"
            query, document = PAIRS[number % len(PAIRS)]
            body = {"judge": judge, "query": query, "document": document, "grade": number % 4}
            return httpx.post(f"{server.url}/v1/judging/grade", json=body, headers=headers, timeout=60).status_code

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(give, range(60))) == [200] * 60
        state = httpx.get(f"{one.url}/v1/judging", headers=headers, timeout=60).json()
        assert {each["name"]: each["graded"] for each in state["judges"]} == {f"judge{n}": 12 for n in range(5)}
    lines = (folder / "given.qrels.judged-log").read_text().splitlines()
    assert len(lines) == 60
    assert JudgesFile(folder / "given.qrels").look(lambda found: len(found.by_pair)) == 12


def test_a_full_disk_is_told_and_the_log_stays_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = opened(folder)
    post(desk, "grade", judge="ann", query="q1", document="D1", grade=1)
    before = (folder / "given.qrels.judged-log").read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        said = refused(desk, "grade", 500, judge="ann", query="q1", document="D2", grade=1)
    assert said.startswith("The judgment was not kept.")
    assert "No space left on device" in said
    assert (folder / "given.qrels.judged-log").read_bytes() == before
    assert post(desk, "grade", judge="ann", query="q1", document="D2", grade=1)["grade"] == 1
    assert get(opened(folder), "/v1/judging")["graded"] == 2


def test_a_full_log_takes_no_more_and_a_cut_or_replaced_one_is_read_again(folder: Path) -> None:
    file = JudgesFile(folder / "given.qrels", most_bytes=40)
    desk = opened(folder)
    desk.file = file
    for grade in (1, 2, 3):
        post(desk, "grade", judge="ann", query="q1", document="D1", grade=grade)
    assert "full: it may have 40 bytes" in refused(desk, "undo", 413, judge="ann")
    log = folder / "given.qrels.judged-log"
    log.write_text("q1 ann D1 2\nq1 an")
    place = walk(desk, "ann").index(("q1", "D1")) + 1
    assert get(desk, "/v1/judging/pair", judge="ann", place=place)["grade"] == 2
    log.unlink()
    assert get(desk, "/v1/judging/pair", judge="ann", place=place)["grade"] is None
    log.write_text("what is this\n")
    said = asked(desk, "GET", "/v1/judging").json()["error"]["message"]
    assert "given.qrels.judged-log:1: expected" in said
    assert log.read_text() == "what is this\n"


def test_the_page_of_a_model_does_not_write_into_the_log_of_judges(folder: Path) -> None:
    post(opened(folder), "grade", judge="ann", query="q1", document="D1", grade=1)
    with pytest.raises(DataError, match=r"given\.qrels\.judged-log:1: judges with names grade pairs into this file"):
        judging.JudgementFile(folder / "given.qrels")
    assert (folder / "given.qrels.judged-log").exists()


# When it is started


def test_what_is_wrong_is_said_in_one_line(folder: Path) -> None:
    (folder / "empty.tsv").write_text("")
    (folder / "done.tsv").write_text("query\tdocument\tshare\tpriority\nq1\tD1\t0\t0\n")
    (folder / "odd.qrels").write_text("q1 0 D9 1\n")
    (folder / "nobody.qrels").write_text("q9 0 D1 1\n")
    (folder / "token").write_text(TOKEN)
    known = {"--pairs": "next.tsv", "--collection": "mine", "--judge": "given.qrels", "--token-file": "token"}
    for changed, said in (
        ({"--pairs": "nowhere.tsv"}, "nowhere.tsv: there is no such file"),
        ({"--pairs": "mine"}, "this is a folder"),
        ({"--pairs": "empty.tsv"}, "Expected qrels, or a draw of documents to judge next."),
        ({"--pairs": "done.tsv"}, "nothing is left to judge"),
        ({"--pairs": "odd.qrels"}, "Document 'D9' of query 'q1' in odd.qrels is not in mine."),
        ({"--pairs": "nobody.qrels"}, "Query 'q9' of nobody.qrels has no text in mine"),
        ({"--collection": "nowhere"}, "nowhere"),
        ({"--judge": "no/such/given.qrels"}, "create it first"),
        ({"--judge": "given.qrels.gz"}, "plain text"),
        ({"--token-file": None}, "judging needs a token"),
        ({"--collection": None}, "takes --pairs, --collection and --judge"),
        ({"--judge": None}, "takes --pairs, --collection and --judge"),
        ({"--pairs": None}, "takes --pairs, --collection and --judge"),
    ):
        options = [word for name, value in (known | changed).items() if value is not None for word in (name, value)]
        done = run(folder, "serve", *options)
        assert done.returncode == 2, done.stderr
        assert said in " ".join(done.stderr.split())
        assert done.stderr.count("\n") == 1
        assert TOKEN not in done.stderr


def test_the_token_file_is_given_and_ids_that_qrels_cannot_hold_are_refused(folder: Path) -> None:
    (folder / "mine" / "corpus.jsonl").write_text('{"_id": "two words", "text": "x"}\n')
    (folder / "next.tsv").write_text("query\tdocument\tshare\tpriority\nq1\ttwo words\t1\t0.5\n")
    with pytest.raises(DataError, match="'two words' cannot be judged"):
        opened(folder)
