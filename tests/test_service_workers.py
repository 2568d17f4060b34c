"""Several processes that answer at one address: what they share, what is added up, and one that dies."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from querywise.data.click_files import logged_events
from querywise.data.judgements import read_grades
from querywise.data.letor import write_letor
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.measures.order import order
from querywise.online.outcomes import read_draws
from querywise.rankers.knn import KnnOffline2
from querywise.rankers.single import OneFeature
from querywise.service.loaded_model import LoadedModel, ModelFolder
from querywise.service.metrics import added_up
from querywise.service.service import Service
from querywise.service.workers import SharedSeen
from querywise.service.workers import run as run_workers
from querywise.storage import load, load_ranker, save, version_of
from tests.serving import Serving, serving, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
DATA = make_judged(30, 12, 4)
TOKEN = {"authorization": "Bearer open-sesame"}
PATIENCE = 60.0


def request_of(query: int) -> dict[str, Any]:
    rows = DATA.candidates.rows(query)
    features = DATA.candidates.features[rows]
    documents = [{"id": f"d{row}", "features": each.tolist()} for row, each in enumerate(features)]
    return {"query": {"id": f"q{query}", "text": f"words {query}"}, "documents": documents}


def until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE:g} seconds: {what}")


def children(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def sockets(process: int) -> int:
    found = 0
    for each in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += os.readlink(each).startswith("socket:")
    return found


def workers_of(server: Serving, count: int = 2) -> list[int]:
    return list(until(lambda: (found := children(server.process.pid)) and len(found) == count and found, "workers"))


@contextlib.contextmanager
def one_of_each(server: Serving) -> Iterator[dict[int, httpx.Client]]:
    """A client of each worker, whose one connection that worker has."""
    found: dict[int, httpx.Client] = {}
    with contextlib.ExitStack() as held:
        workers = workers_of(server)
        for _ in range(200):
            before = {each: sockets(each) for each in workers}
            client = held.enter_context(httpx.Client(base_url=server.url, headers=TOKEN, timeout=PATIENCE))
            client.get("/healthz")
            more = [each for each in workers if sockets(each) > before[each]]
            found |= dict.fromkeys(more[:1], client)
            if len(found) == len(workers):
                break
        assert len(found) == len(workers), "one worker takes all connections"
        yield found


def samples(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in found, line
            found[name] = float(value)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("crew")
    save(RankSVM().fit(DATA), made / "a")
    save(OneFeature(2).fit(DATA), made / "b")
    write_letor(made / "judged.txt", DATA)
    return made


@pytest.fixture(scope="module")
def crew(folder: Path) -> Iterator[Serving]:
    """Two workers that compare two models, log, and take grades."""
    words = ("--against", folder / "b", "--log", folder / "log", "--data", folder / "judged.txt")
    more = ("--judge", folder / "given.qrels", "--workers", 2)
    with serving(folder / "a", *words, *more, token="open-sesame") as found:
        yield found


def test_both_workers_answer_as_one_process_does(crew: Serving, folder: Path) -> None:
    asked = {"requests": [request_of(query) for query in range(3)]}
    with one_of_each(crew) as clients:
        answers = {each.post("/v1/rank/batch", json=asked).content for each in clients.values()}
    assert len(answers) == 1
    scores = load(folder / "a").predict(DATA.candidates)
    for query, answer in enumerate(json.loads(answers.pop())["responses"]):
        own = scores[DATA.candidates.rows(query)]
        best = order(own, np.array([0, len(own)]))
        assert [(each["id"], each["score"]) for each in answer["documents"]] == [(f"d{row}", own[row]) for row in best]


def test_metrics_are_those_of_all_workers_whoever_answers(crew: Serving) -> None:
    label = 'querywise_requests_total{path="/v1/model",status="200"}'
    with one_of_each(crew) as clients:
        before = samples(next(iter(clients.values())).get("/metrics").text).get(label, 0)
        for count, client in enumerate(clients.values(), start=1):
            for _ in range(3 * count):
                assert client.get("/v1/model").status_code == 200
        said = [samples(each.get("/metrics").text) for each in (*clients.values(), *clients.values())]
    assert [each[label] - before for each in said] == [9] * 4
    for each in said:
        assert each[label] == each['querywise_request_seconds_count{path="/v1/model"}']
        assert each['querywise_request_seconds_bucket{path="/v1/model",le="+Inf"}'] == each[label]
        assert each["querywise_model_stale"] == 0
        assert sum(name.startswith("querywise_model_info") for name in each) == 1


def test_an_event_counts_once_whichever_worker_gets_it(crew: Serving, folder: Path) -> None:
    with one_of_each(crew) as clients:
        first, second = clients.values()
        before = first.get("/v1/online").json()["hour"]
        shown = [each.post("/v1/rank", json=request_of(3)).json() for each in (first, second)]
        sent = [{"impression": each["impression"], "document": each["documents"][0]["id"]} for each in shown]
        said = [each.post("/v1/events", json={"events": sent}).json() for each in (first, second, first)]
        hours = [each.get("/v1/online").json()["hour"] for each in (first, second)]
    assert [(each["accepted"], each["duplicates"]) for each in said] == [(2, 0), (0, 2), (0, 2)]
    for hour in hours:
        for name, more in (("interleaved", 2), ("accepted", 2), ("duplicates", 4)):
            assert hour[name] - before[name] == more

    log = folder / "log"
    records: list[Any] = [record for _, record in logged_events(log)]
    assert sum(each.get("action_name") == "click" for each in records) == 2
    until(lambda: len(read_draws(log)[0]) >= 2, "both impressions in the log")


def test_two_workers_judge_into_one_file(crew: Serving, folder: Path) -> None:
    ids = [f"{query}" for query in DATA.candidates.query_ids[:6]]
    names = DATA.candidates.document_ids
    with one_of_each(crew) as clients, ThreadPoolExecutor(4) as several:

        def grade(each: tuple[int, str]) -> int:
            number, query = each
            row = DATA.candidates.rows(int(number))
            document = (names or ())[row][0] if names else "1"
            client = list(clients.values())[number % 2]
            content = {"query": {"id": query}, "document": document, "grade": number % 3}
            answer = client.post("/v1/judgements", json=content)
            assert answer.status_code == 200, answer.text
            return int(answer.json()["grade"])

        given = list(several.map(grade, enumerate(ids)))
        counts = []
        for number, client in enumerate(clients.values()):  # each knows what the other has written
            first = next(iter(read_grades(folder / "given.qrels")[ids[0]]))
            content = {"query": {"id": ids[0]}, "document": first, "grade": number + 1}
            counts.append(client.post("/v1/judgements", json=content).json()["count"])
    assert counts == [6, 6]
    kept = read_grades(folder / "given.qrels")
    assert [next(iter(kept[each].values())) for each in ids[1:]] == given[1:]
    assert next(iter(kept[ids[0]].values())) == 2


# One that dies, and models that are replaced


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(KnnOffline2(RankSVM(), k=5).fit(DATA), tmp_path / "model")
    return tmp_path / "model"


def served(clients: dict[int, httpx.Client]) -> set[str]:
    return {each.post("/v1/rank", json=request_of(1)).json()["model"] for each in clients.values()}


@pytest.mark.slow
def test_a_worker_that_dies_is_started_again_with_what_the_others_serve(model: Path) -> None:
    label = 'querywise_requests_total{path="/v1/rank",status="200"}'
    with serving(model, "--workers", 2) as server:
        first = version_of(model)[:12]
        with one_of_each(server) as clients:
            assert served(clients) == {first}
        save(KnnOffline2(RankSVM(l2=7.0), k=5).fit(DATA), model)
        second = version_of(model)[:12]

        def replaced() -> bool:
            with one_of_each(server) as clients:
                return served(clients) == {second}

        until(replaced, "the new model from both")
        until(lambda: map_of(server.process.pid), "the new model in the first process")
        arrays = next(model.glob("arrays-*"))
        arrays.write_bytes(arrays.read_bytes()[:-8])  # what is mapped is not this file

        def stale() -> bool:
            with one_of_each(server) as clients:
                said = [each.get("/readyz").json() for each in clients.values()]
                return all("damaged or cut short" in each.get("problem", "") for each in said)

        until(stale, "the damage told by both")
        before = samples(httpx.get(f"{server.url}/metrics", timeout=PATIENCE).text)[label]
        [victim, other] = workers_of(server)
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(found := set(children(server.process.pid))) == 2 and victim not in found, "another worker")
        assert other in children(server.process.pid)
        with one_of_each(server) as clients:
            assert served(clients) == {second}
            said = [samples(each.get("/metrics").text) for each in clients.values()]
        assert [each[label] - before for each in said] == [2, 2]
        assert [each["querywise_model_stale"] for each in said] == [1, 1]
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0
        assert server.process.stderr is not None
        assert f"process {victim}, has ended by signal 9; another is started" in server.process.stderr.read()


@pytest.mark.slow
def test_the_pages_of_a_model_are_there_once(tmp_path: Path) -> None:
    """Those of the first are shared by the fork, those of its successor by a map; Pss counts a shared page in part."""
    model, large = tmp_path / "model", make_judged(300, 6, 300)
    ranker = KnnOffline2(RankSVM(tolerance=None), k=5)
    save(ranker.fit(large), model)
    size = next(model.glob("arrays-*")).stat().st_size
    assert size > 700_000
    rows = large.candidates.rows(2)
    documents = [
        {"id": str(row), "features": each.tolist()} for row, each in enumerate(large.candidates.features[rows])
    ]
    asked = {"query": {"id": "q"}, "documents": documents}
    with serving(model, "--workers", 2) as server:
        for each in (*workers_of(server), server.process.pid):
            told = kilobytes(Path(f"/proc/{each}/smaps_rollup").read_text())
            assert told["Pss"] < 0.6 * told["Rss"]
        save(ranker.fit(make_judged(300, 6, 300, seed=5)), model)
        scores = load(model).predict(large.candidates)[rows]
        expected = sorted(scores.tolist(), reverse=True)

        def replaced() -> bool:
            with one_of_each(server) as clients:
                said = [each.post("/v1/rank", json=asked).json() for each in clients.values()]
                return all([each["score"] for each in answer["documents"]] == expected for answer in said)

        until(replaced, "the new model from both, with the same bits")
        every = [*workers_of(server), server.process.pid]
        mapped = until(lambda: all(found := [map_of(each) for each in every]) and found, "the map in all three")
        for told in mapped:
            assert told["Rss"] * 1024 > 0.9 * size
            assert told["Pss"] < 0.4 * told["Rss"]
            assert told["Private_Dirty"] == 0
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0


def kilobytes(text: str) -> dict[str, int]:
    return {name: int(count) for name, count in re.findall(r"(?m)^(\w+): +(\d+) kB", text)}


def map_of(process: int) -> dict[str, int] | None:
    """What the system says of the map of a model's arrays."""
    parts = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{process}/smaps").read_text())
    found = [each for each in parts if ".arrays" in each.partition("\n")[0]]
    return kilobytes(found[-1]) if len(found) == 1 else None


SLOW_TO_END = """
import querywise.service.server as server, querywise.service.workers as workers
from querywise.cli import main
server.DRAIN_SECONDS = workers.DRAIN_SECONDS = 5.0
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "SIGKILL"])
def test_a_signal_drains_all(model: Path, end: str) -> None:
    """SIGINT comes to every process of a terminal at once; a first process that is killed leaves nobody behind."""
    with started([sys.executable, "-c", SLOW_TO_END, "serve", model, "--workers", 2, "--port", 0]) as server:
        with one_of_each(server) as clients:
            workers = list(clients)
            for process in (server.process.pid, *(workers if end == "SIGINT" else ())):
                os.kill(process, getattr(signal, end))
            until(lambda: all(each.get("/readyz").status_code == 503 for each in clients.values()), "draining")
            assert [each.post("/v1/rank", json=request_of(1)).status_code for each in clients.values()] == [200] * 2
        assert server.process.wait(PATIENCE) == (-signal.SIGKILL if end == "SIGKILL" else 0)
        until(lambda: not any(Path(f"/proc/{each}/fd").exists() and is_running(each) for each in workers), "the end")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/healthz")


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# Parts


def test_how_many_workers_there_can_be(model: Path) -> None:
    with pytest.raises(DataError, match=r"workers=0: expected a number from 1 up") as found:
        run_workers(Service(ModelFolder(model)), "127.0.0.1", 0, 0)
    assert found.value.arguments == ("workers",)


def test_metrics_are_summed_but_for_levels() -> None:
    def text(count: int, level: int, flying: int, more: str = "") -> str:
        return (
            "# HELP querywise_a_total A.\n# TYPE querywise_a_total counter\n"
            f'querywise_a_total{{path="/x y"}} {count}\n{more}'
            f"# HELP querywise_level L.\n# TYPE querywise_level gauge\nquerywise_level {level}\n"
            "# HELP querywise_requests_in_flight F.\n# TYPE querywise_requests_in_flight gauge\n"
            f"querywise_requests_in_flight {flying}\n"
        )

    assert added_up([text(1, 0, 2)]) == text(1, 0, 2)
    other = 'querywise_a_total{path="/z"} 0.5\n'
    assert added_up([text(1, 0, 2), text(2, 1, 3, other)], [text(4, 9, 9)]) == text(7, 1, 5, other)


def test_events_are_remembered_until_many_newer_ones_came() -> None:
    seen, names = SharedSeen(), [os.urandom(16) for _ in range(20_000)]
    seen.add(names)
    assert all(each in seen for each in names)
    assert os.urandom(16) not in seen
    alike = [b"same" + os.urandom(12) for _ in range(9)]
    seen.add(alike)
    assert [each in seen for each in alike] == [False] + [True] * 8


def test_a_model_is_the_same_where_its_arrays_are_mapped_and_where_they_cannot_be(tmp_path: Path) -> None:
    save(KnnOffline2(RankSVM(), k=5).fit(DATA), tmp_path / "model")
    place = tmp_path / "place"
    expected = load(tmp_path / "model").predict(DATA.candidates)
    without = load_ranker(tmp_path / "model", tmp_path / "gone" / "place")  # which cannot be made
    place.mkdir()
    mapped = load_ranker(tmp_path / "model", place)
    [copy] = place.glob("*.arrays")
    again = load_ranker(tmp_path / "model", place)
    assert list(place.glob("*.arrays")) == [copy]
    save(RankSVM().fit(DATA), tmp_path / "model")
    LoadedModel.from_folder(tmp_path / "model", place)
    assert copy not in set(place.glob("*.arrays"))
    shutil.rmtree(place)
    for each in (without, mapped, again):
        assert (each.predict(DATA.candidates) == expected).all()
