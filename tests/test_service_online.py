"""Two models before users: interleaved answers, the clicks that come back, and the log under every fault."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import signal
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from querywise.clicks.readers import read_clicks
from querywise.data.click_files import logged_events
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.online import log as log_module
from querywise.online.interleaving import interleave
from querywise.online.log import LONGEST, WINDOW_SECONDS, EventLog, ImpressionId, is_drawn, read_id, seed_of, share_of
from querywise.online.outcomes import read_draws
from querywise.online.verdict import verdict_of
from querywise.rankers.single import OneFeature
from querywise.service.loaded_model import ModelFolder
from querywise.service.online import Online
from querywise.service.routes import create_app
from querywise.service.service import Service
from querywise.storage import load, save, version_of
from tests.commands import run
from tests.event_faults import tried
from tests.fruit import write_served
from tests.serving import Serving, serving
from tests.support.online import DATA, click, request_of, settled


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    save(RankSVM().fit(DATA), folder / "a")
    save(OneFeature(2).fit(DATA), folder / "b")
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Serving]:
    with serving(models / "a", "--against", models / "b", "--log", models / "log") as found:
        yield found


def ranking(folder: Path, query: int) -> list[str]:
    rows = DATA.candidates.rows(query)
    scores = load(folder).predict(DATA.candidates)[rows]
    return [f"d{row}" for row in np.argsort(-scores, kind="stable")]


def ids(answer: dict[str, Any]) -> list[str]:
    return [each["id"] for each in answer["documents"]]


def send(server: Serving, *events: dict[str, Any]) -> dict[str, int]:
    answer = server.post("/v1/events", {"events": list(events)})
    assert answer.status_code == 200, answer.text
    found: dict[str, int] = answer.json()
    return found


# Answers


def test_an_answer_is_a_draw_of_both_models_from_its_id(server: Serving, models: Path) -> None:
    lists = [ranking(models / name, 3) for name in "ab"]
    seen = set()
    for _ in range(8):
        found = server.post("/v1/rank", request_of(3, top=6, teams=True)).json()
        known = read_id(found["impression"], (models / "log" / "signing.key").read_bytes())
        assert known is not None
        assert known.arms == tuple(EventArms(models))
        drawn = interleave(lists, known.seed, 6)
        assert ids(found) == list(drawn.documents)
        assert found["teams"] == list(drawn.teams)
        assert [each["score"] for each in found["documents"]] == [1 / place for place in range(1, 7)]
        seen.add(tuple(found["teams"]))
    assert len(seen) > 1


def EventArms(models: Path) -> Sequence[str]:
    return [ModelFolder(models / name).current.version for name in "ab"]


def test_a_session_that_asks_again_has_the_same_list_and_is_not_told_the_teams(server: Serving) -> None:
    asked = request_of(5, session="somebody@example.org")
    first, again = (server.post("/v1/rank", asked).json() for _ in range(2))
    assert ids(first) == ids(again)
    assert "teams" not in first
    others = {tuple(ids(server.post("/v1/rank", request_of(5, session=f"s{each}")).json())) for each in range(12)}
    assert len(others) > 1


def test_batches_and_services_without_a_log_are_as_before(server: Serving, models: Path) -> None:
    [found] = server.post("/v1/rank/batch", {"requests": [request_of(3)]}).json()["responses"]
    assert ids(found) == ranking(models / "a", 3)
    assert "impression" not in found
    with serving(models / "a") as plain:
        assert plain.post("/v1/rank", request_of(3)).json() == found
        refused = plain.post("/v1/events", {"events": [click("x", "d")]})
    assert refused.status_code == 404
    assert "without a folder to log to" in refused.json()["error"]["message"]


def test_rankings_of_any_engine_are_interleaved(server: Serving, models: Path) -> None:
    rankings = {"solr": ["a", "b", "c"], "vespa": ["c", "d"], "ours_2": ["b", "a", "e"]}
    asked = {"query": {"text": "jaguar", "class": "cars"}, "rankings": rankings, "teams": True, "session": "s"}
    found = server.post("/v1/interleave", asked).json()
    known = read_id(found["impression"], (models / "log" / "signing.key").read_bytes())
    assert known is not None
    assert known.arms == tuple(rankings)
    assert sorted(found["documents"]) == list("abcde")
    assert interleave(list(rankings.values()), known.seed) == (tuple(found["documents"]), tuple(found["teams"]))
    assert server.post("/v1/interleave", asked).json()["documents"] == found["documents"]
    for wrong, where in (
        ({"one": ["a"]}, "length >= 2"),
        ({"a~b": ["a"], "c": []}, "cannot be called 'a~b'"),
        ({"a": ["x", "x"], "b": []}, "document 'x' twice"),
        ({str(number): ["a"] for number in range(6)}, "length <= 5"),
        ({"a": [str(number) for number in range(1_001)], "b": []}, "length <= 1000"),
    ):
        refused = server.post("/v1/interleave", {**asked, "rankings": wrong})
        assert refused.status_code == 422
        assert where in refused.json()["error"]["message"]


def test_a_share_of_the_queries_is_interleaved(models: Path, tmp_path: Path) -> None:
    online = Online.opened(tmp_path / "log", models / "b", 0.3)
    service = Service(ModelFolder(models / "a"), online=online)

    async def asked() -> list[dict[str, Any]]:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            sent = [client.post("/v1/rank", json=request_of(1, session=f"s{each}")) for each in range(300)]
            return [each.json() for each in await asyncio.gather(*sent)]

    found = asyncio.run(asked())
    drawn = ["impression" in each for each in found]
    assert 60 < sum(drawn) < 120
    assert [each["impression"] for each in asyncio.run(asked()) if "impression" in each]
    assert drawn == ["impression" in each for each in asyncio.run(asked())], "a session stays where it is"
    alone = next(each for each in found if "impression" not in each)
    assert ids(alone) == ranking(models / "a", 1)
    assert online.answers == {"interleaved": 3 * sum(drawn), "alone": 3 * (300 - sum(drawn))}
    online.log.close()


def test_a_search_has_the_documents_to_show_and_no_teams_unless_asked(tmp_path: Path) -> None:
    write_served(tmp_path)
    words = (tmp_path / "local", "--index", tmp_path / "index", "--against", tmp_path / "single")
    with serving(*words, "--log", tmp_path / "log") as server:
        found = server.get("/v1/search", q="buy fig juice", show=5, session="s").json()
        assert len(found["interleaved"]) == 5
        assert set(found["interleaved"]) <= {each["id"] for each in found["documents"]}
        assert found["teams"] == []
        told = server.get("/v1/search", q="buy fig juice", show=5, session="s", teams="true").json()
        assert told["interleaved"] == found["interleaved"]
        assert sorted(told["teams"]) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])
        assert send(server, click(found["impression"], found["interleaved"][0]))["accepted"] == 1
        [*_, event] = settled(tmp_path / "log", 3)
        assert event["event_attributes"]["object"]["object_id"] == found["interleaved"][0]


def test_a_model_that_fails_leaves_the_other_alone(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    online = Online.opened(tmp_path / "log", models / "b", 1.0)
    service = Service(ModelFolder(models / "a"), online=online)
    assert online.against is not None

    def failing(*_: object) -> None:
        raise DataError("no vector")

    monkeypatch.setattr(online.against.current, "answer", failing)

    async def asked() -> tuple[dict[str, Any], str]:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.post("/v1/rank", json=request_of(2))).json(), (await client.get("/metrics")).text

    found, metrics = asyncio.run(asked())
    assert ids(found) == ranking(models / "a", 2)
    assert "impression" not in found
    assert 'querywise_online_answers_total{outcome="failed"} 1' in metrics
    online.log.close()


def test_what_cannot_be_compared_is_refused(models: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "serve", models / "a", "--against", models / "b")
    assert done.returncode == 2
    assert "--log FOLDER" in done.stderr
    save(RankSVM().fit(make_judged(8, 6, 3)), tmp_path / "other")
    done = run(tmp_path, "serve", models / "a", "--against", tmp_path / "other", "--log", tmp_path / "log")
    assert done.returncode == 2
    assert "3 and 4" in done.stderr
    assert "--against" in done.stderr
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("one")
    done = run(tmp_path, "serve", models / "a", "--log", tmp_path / "thesis")
    assert done.returncode == 2
    assert "'chapter.txt' is not of the log of an experiment" in done.stderr


# Events


def test_a_click_is_on_the_disk_when_it_is_answered_and_counts_once(server: Serving, models: Path) -> None:
    found = server.post("/v1/rank", request_of(7, top=3)).json()
    document = ids(found)[1]
    event = click(found["impression"], document, position=2)
    assert send(server, event, event) == {"accepted": 1, "duplicates": 1, "unknown": 0, "late": 0}
    logged = [record for _, record in logged_events(models / "log") if record.get("query_id") == found["impression"]]
    assert [record["action_name"] for record in logged if "action_name" in record] == ["click"]
    assert send(server, event)["duplicates"] == 1
    assert send(server, {**event, "action": "purchase"})["accepted"] == 1
    assert send(server, click(found["impression"], "d999"))["accepted"] == 1, "what was shown is known to the log"


def test_an_id_that_was_not_made_here_counts_as_unknown(server: Serving, models: Path) -> None:
    own = server.post("/v1/rank", request_of(7)).json()["impression"]
    seed, when, arms, signature = own.split(".")
    known = read_id(own, None)
    assert known is not None
    one, other = known.arms
    forged = [
        ".".join((seed, when, f"{other}~{one}", signature)),
        ".".join((seed[::-1], when, arms, signature)),
        ".".join((seed, f"{int(when, 16) + 1:x}", arms, signature)),
        own[:-1] + ("A" if own[-1] != "A" else "B"),
        known.signed(b"another key"),
        own + "\n",
        "",
        "é" * 300,
    ]
    assert send(server, *(click(each, "d1") for each in forged))["unknown"] == len(forged)
    assert send(server, click(own, "d1"))["accepted"] == 1
    assert read_id("a" * (LONGEST + 1), None) is None
    metrics = server.get("/metrics").text
    assert f'querywise_online_events_total{{outcome="unknown"}} {len(forged)}' in metrics


def test_a_click_after_its_window_is_late(models: Path, server: Serving) -> None:
    key, now = (models / "log" / "signing.key").read_bytes(), int(time.time())
    for age, outcome in ((0, "accepted"), (WINDOW_SECONDS + 5, "late"), (-600, "late")):
        own = ImpressionId(bytes(8), now - age, ("x", "y")).signed(key)
        assert send(server, click(own, f"d{age}"))[outcome] == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"events": []}, "length >= 1"),
        ({"events": [click("x", "d")] * 101}, "length <= 100"),
        ({"events": [click("x", "")]}, "length >= 1"),
        ({"events": [click("x" * 500, "d")]}, "length <= 400"),
        ({"events": [click("x", "d", action="Click!")]}, "matching regex"),
        ({"events": [click("x", "d", position=0)]}, ">= 1"),
        ({"events": [click("x", "d", team=1)]}, "unknown field"),
    ],
)
def test_events_have_bounds(server: Serving, content: object, said: str) -> None:
    refused = server.post("/v1/events", content)
    assert refused.status_code == 422
    assert said in refused.json()["error"]["message"]
    assert server.post("/v1/events", b" " * 250_000).status_code == 413


def test_events_need_the_token(models: Path, tmp_path: Path) -> None:
    with serving(models / "a", "--log", tmp_path / "log", token="open-sesame") as server:
        assert server.post("/v1/events", {"events": [click("x", "d")]}).status_code == 401
        allowed = server.post("/v1/events", {"events": [click("x", "d")]}, authorization="Bearer open-sesame")
        assert allowed.json()["unknown"] == 1


# The log


def test_the_log_is_a_click_log_like_any_other(models: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving(models / "a", "--against", models / "b", "--log", log) as server:
        for query in range(4):
            found = server.post("/v1/rank", request_of(query, top=5, session="somebody@example.org")).json()
            send(server, click(found["impression"], ids(found)[0]), click(found["impression"], ids(found)[3]))
        settled(log, 12)
    assert stat.S_IMODE((log / "signing.key").stat().st_mode) == 0o600
    content = b"".join(each.read_bytes() for each in log.glob("log-*"))
    assert b"somebody" not in content
    shown = [json.loads(line) for line in content.splitlines() if b"user_query" in line]
    assert len({each["client_id"] for each in shown}) == 1
    for each in shown:
        more = each["query_attributes"]
        assert sorted(more) == ["arms", "draw", "propensities", "teams"]
        assert len(more["propensities"]) == len(more["teams"]) == len(each["query_response_hit_ids"]) == 5
        assert all(0 < chance <= 1 for chance in more["propensities"])
    read = read_clicks(log)
    assert (len(read), len(read.document), int(read.clicked.sum())) == (4, 20, 8)
    assert read.queries == tuple(f"words {query}" for query in range(4))
    done = run(tmp_path, "clicks", log, "--out", tmp_path / "judgments")
    assert done.returncode == 0, done.stderr


def test_what_was_acknowledged_survives_a_kill_and_two_servers_share_a_log(models: Path, tmp_path: Path) -> None:
    log, words = tmp_path / "log", (models / "a", "--against", models / "b", "--log", tmp_path / "log")
    with serving(*words) as one, serving(*words) as two, ThreadPoolExecutor(8) as threads:
        impressions = [server.post("/v1/rank", request_of(1)).json()["impression"] for server in (one, two)]
        assert send(two, click(impressions[0], "d1"))["accepted"] == 1, "both have one key"

        def sent(number: int) -> str | None:
            server, own = ((one, impressions[0]), (two, impressions[1]))[number % 2]
            if number == 50:
                one.process.send_signal(signal.SIGKILL)
            try:
                answer = server.post("/v1/events", {"events": [click(own, f"e{number}")]})
            except httpx.HTTPError:
                return None
            return f"e{number}" if answer.status_code == 200 else None

        acknowledged = {each for each in threads.map(sent, range(100)) if each}
    assert {f"e{number}" for number in range(1, 100, 2)} <= acknowledged
    assert 50 <= len(acknowledged) < 100
    kept = [
        record["event_attributes"]["object"]["object_id"]  # type: ignore[index,call-overload]
        for _, record in logged_events(log)
        if "action_name" in record
    ]
    assert acknowledged <= set(kept)
    assert len(kept) == len(set(kept))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a process's limits are set from outside")
def test_through_kills_full_disks_and_forged_ids_every_click_counts_once(models: Path, tmp_path: Path) -> None:
    """Of two services; `python -m benchmarks faults` kills more."""
    found = tried(models, tmp_path / "log", request_of(3), kills=2)
    assert (found.lost, found.twice, found.taken, found.foreign, found.unranked) == (0, 0, 0, 0, 0), found
    assert len(found.acknowledged) > 20
    assert found.refused > 0, "while a disk was full"
    assert found.forged > 10


def test_a_last_line_that_is_not_finished_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "log-1.ndjson").write_text(
        '{"query_id": "a", "user_query": "x", "query_response_hit_ids": ["d"]}\n{"quer'
    )
    assert len(list(logged_events(tmp_path))) == 1
    (tmp_path / "log-0.ndjson").write_text('{"quer\n')
    with pytest.raises(DataError, match=r"log-0.ndjson:1: invalid JSON"):
        list(logged_events(tmp_path))


def test_ranking_goes_on_while_the_log_cannot_be_written(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    online = Online.opened(tmp_path / "log", models / "b", 1.0)
    service = Service(ModelFolder(models / "a"), online=online)

    async def asked(*events: object) -> tuple[dict[str, Any], httpx.Response, str]:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            ranked = (await client.post("/v1/rank", json=request_of(2))).json()
            event = click(ranked["impression"], "d1")
            sent = await client.post("/v1/events", json={"events": [event]})
            return ranked, sent, (await client.get("/metrics")).text

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(log_module, "append_bytes", full)
        ranked, sent, metrics = asyncio.run(asked())
    assert len(ids(ranked)) == 12
    assert sent.status_code == 503
    assert "No space left" in sent.json()["error"]["message"]
    for line in ("log_failing 1", "impressions_lost_total 1", 'events_total{outcome="lost"} 1'):
        assert f"querywise_online_{line}" in metrics
    ranked, sent, metrics = asyncio.run(asked())
    assert sent.json()["accepted"] == 1
    assert "querywise_online_log_failing 0" in metrics
    assert len(settled(tmp_path / "log", 2)) == 2
    online.log.close()


def test_a_log_is_bounded_and_what_is_full_is_packed(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log", file_bytes=1_000, most_bytes=3_000)
    line = json.dumps({"query_id": "a", "action_name": "click", "more": "x" * 150}).encode() + b"\n"

    def add() -> None:
        done = log.add(lambda: line, len(line), awaited=True)
        assert done is not None
        done.result()

    kept, said = 0, ""
    while not said and kept < 1_000:
        try:
            add()
            kept += 1
            time.sleep(0.002)
        except DataError as error:
            said = str(error)
    assert "the log is full; it may have 3000 bytes" in said
    log.close()
    assert kept >= 15
    assert len(list(logged_events(tmp_path / "log"))) == kept
    packed = sorted((tmp_path / "log").glob("*.gz"))
    assert packed
    assert gzip.decompress(packed[0].read_bytes()).count(b"\n") == 5
    (tmp_path / "log" / packed[0].name.removesuffix(".gz")).write_bytes(gzip.decompress(packed[0].read_bytes()))
    assert len(list(logged_events(tmp_path / "log"))) == kept, "one that was packed and not removed counts once"
    with pytest.raises(DataError, match="is stopping"):
        add()


def test_what_is_packed_while_it_is_read_counts_once(tmp_path: Path) -> None:
    files = [tmp_path / f"log-{number}.ndjson" for number in range(3)]
    for file in files:
        file.write_text("".join(f'{{"query_id": "{file.stem} {line}", "action_name": "click"}}\n' for line in range(4)))
    reading = logged_events(tmp_path)
    found = [next(reading)]
    for file in files:  # the one that is being read, and those that follow
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    found += reading
    names = [record["query_id"] for _, record in found]
    assert names == [f"log-{number} {line}" for number in range(3) for line in range(4)]


def test_more_than_memory_holds_is_refused_and_impressions_are_counted_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_WAITING_BYTES", 10)
    log = EventLog(tmp_path / "log")
    assert log.add(lambda: b"{}\n", 100, awaited=False) is None
    assert log.lost == 1
    with pytest.raises(DataError, match="Try again"):
        log.add(lambda: b"{}\n", 100, awaited=True)
    log.close()


def test_a_damaged_key_is_refused(tmp_path: Path) -> None:
    EventLog(tmp_path / "log").close()
    (tmp_path / "log" / "signing.key").write_bytes(b"short")
    with pytest.raises(DataError, match="5 bytes; expected 32"):
        EventLog(tmp_path / "log")


def test_shares_and_draws_are_told_apart() -> None:
    """Whether a query is drawn, and what, must not depend on one another."""
    seeds = [seed_of(b"key", f"s{each}", "q", ("a", "b")) for each in range(4_000)]
    shares = np.array([share_of(each) for each in seeds])
    assert shares.mean() == pytest.approx(0.5, abs=0.03)
    first = np.array([interleave([["a"], ["b"]], each).teams[0] for each in seeds])
    assert abs(np.corrcoef(shares, first)[0, 1]) < 0.06
    assert is_drawn(b"key", 1.0, "q", None)
    assert not is_drawn(b"key", 0.0, "q", None)


# The whole loop of docs/online.md


def test_two_models_are_served_compared_by_made_up_users_and_the_better_one_is_promoted(tmp_path: Path) -> None:
    """The users click what is relevant among five documents; none of them is real."""
    save(OneFeature(1).fit(DATA), tmp_path / "a")
    save(RankSVM().fit(DATA), tmp_path / "b")
    rng, better = np.random.default_rng(0), version_of(tmp_path / "b")[:12]
    with (
        serving(tmp_path / "a", "--against", tmp_path / "b", "--log", tmp_path / "log") as server,
        ThreadPoolExecutor(4) as threads,
    ):

        def visit(number: int) -> None:
            query = number % len(DATA)
            found = server.post("/v1/rank", request_of(query, top=5, session=f"visitor {number}")).json()
            relevant = [each for each in ids(found) if DATA.labels[int(each[1:])] > 0]
            if relevant:
                clicks = [click(found["impression"], each) for each in relevant]
                assert send(server, *clicks)["accepted"] == len(clicks)

        list(threads.map(visit, rng.permutation(240).tolist()))
        count = 240 + int(re.findall(r'events_total{outcome="accepted"} (\d+)', server.get("/metrics").text)[0])
        settled(tmp_path / "log", count)
        assert run(tmp_path, "online", "log", "--json").returncode == 0, "while windows are open too"
        [draws], noted = read_draws(tmp_path / "log", now=time.time() + WINDOW_SECONDS + 60)
        assert len(draws) == draws.impressions == 240
        assert noted.clicks == count - 240
        assert noted.unknown == noted.outside == noted.late == noted.unsigned == 0
        [contest] = verdict_of(draws).contests
        assert contest.name == better
        assert contest.course.is_better, (contest.wins, contest.losses)
        done = run(tmp_path, "promote", "b", "--over", "a")
        assert done.returncode == 0, done.stderr
        for _ in range(200):
            if server.get("/v1/model").json()["version"] == better:
                break
            time.sleep(0.05)
        assert server.get("/v1/model").json()["version"] == better
        found = server.post("/v1/rank", request_of(0)).json()
        assert f"{better}~{better}-2" in found["impression"], (
            "the same model twice, until the service is told otherwise"
        )
