"""The service, by asking a real one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from querywise.contracts.answers import Answer, Once
from querywise.data.collections import Document
from querywise.data.judged import Candidates, Judged
from querywise.data.letor import write_letor
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, ModelFileError
from querywise.explanations.explain import as_dict, explain, why
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.views.text import TextView
from querywise.rankers import neighbors
from querywise.rankers.clusters import SelectRanker
from querywise.rankers.ensemble.ensemble import SSER
from querywise.rankers.knn import KnnOffline2, KnnOnline
from querywise.rankers.neighbors import Locality
from querywise.rankers.single import Single
from querywise.rankers.wrappers import QueryNormalised
from querywise.retrieval.features import candidates_for
from querywise.retrieval.index import build_index, save_index
from querywise.runtime.values import JsonObject
from querywise.service.limits import Limits
from querywise.service.loaded_model import LoadedModel, ModelFolder
from querywise.service.lookup import Lookup
from querywise.service.metrics import Histogram
from querywise.service.routes import create_app
from querywise.service.schema import Query
from querywise.service.service import Service
from querywise.storage import load, read_manifest, save
from tests.commands import output, run, run_process
from tests.serving import Serving, serving
from tests.worlds import examples, inside

DATA = make_judged(40, 8, 4, kinds=2, seed=5)
NAMES = ("bm25", "clicks", "age", "price")


def named(data: Judged) -> Judged:
    candidates = data.candidates
    return Judged(
        Candidates(candidates.features, candidates.starts, candidates.query_ids, feature_names=NAMES), data.labels
    )


def request_of(candidates: Candidates, query: int, **more: Any) -> dict[str, Any]:
    rows = candidates.rows(query)
    documents = [
        {"id": f"d{row}", "features": candidates.features[row].tolist()} for row in range(rows.start, rows.stop)
    ]
    return {"query": {"id": candidates.query_ids[query]}, "documents": documents, **more}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "model"
    save(KnnOffline2(RankSVM(), k=10, back_off=0.9).fit(named(DATA)), folder, notes={"method": "knn-offline-2"})
    return folder


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    own = tmp_path_factory.mktemp("own") / "model"  # nobody else's tests touch it
    shutil.copytree(model, own)
    with serving(own, "--max-documents", 100, "--max-body", 0.2) as found:
        yield found


def test_an_answer_is_the_rankers_own(server: Serving, model: Path) -> None:
    ranker = load(model)
    for query in (0, 7, 21):
        scores = ranker.predict(DATA.candidates)[DATA.candidates.rows(query)]
        found = server.post("/v1/rank", request_of(DATA.candidates, query)).json()
        first = DATA.candidates.rows(query).start
        best = np.argsort(-scores, kind="stable")
        assert [each["id"] for each in found["documents"]] == [f"d{first + row}" for row in best]
        assert [each["score"] for each in found["documents"]] == pytest.approx(scores[best], abs=1e-12)
        assert found["query"] == DATA.candidates.query_ids[query]


def test_features_by_name_missing_ones_and_the_best_few(server: Serving) -> None:
    arrays = request_of(DATA.candidates, 3)
    by_name = json.loads(json.dumps(arrays))
    for document in by_name["documents"]:
        values = dict(zip(NAMES, document["features"], strict=True))
        document["features"] = dict(reversed(values.items()))
    assert server.post("/v1/rank", by_name).json() == server.post("/v1/rank", arrays).json()
    for document, same in zip(arrays["documents"], by_name["documents"], strict=True):
        document["features"][2] = None
        del same["features"]["age"]
    zeros = json.loads(json.dumps(arrays))
    for document in zeros["documents"]:
        document["features"][2] = 0
    answers = [server.post("/v1/rank", each).json() for each in (arrays, by_name, zeros)]
    assert answers[0] == answers[1] == answers[2]
    assert server.post("/v1/rank", {**zeros, "top": 3}).json()["documents"] == answers[0]["documents"][:3]
    assert server.post("/v1/rank", {"query": {"id": "nobody"}, "documents": []}).json()["documents"] == []


def test_a_batch_is_its_parts(server: Serving) -> None:
    parts = [request_of(DATA.candidates, query) for query in (1, 2, 2, 30, 11)]
    together = server.post("/v1/rank/batch", {"requests": parts}).json()["responses"]
    alone = [server.post("/v1/rank", each).json() for each in parts]
    for ours, theirs in zip(together, alone, strict=True):
        assert ours["query"] == theirs["query"]
        assert [each["id"] for each in ours["documents"]] == [each["id"] for each in theirs["documents"]]
    assert server.post("/v1/rank/batch", {"requests": []}).json() == {"responses": []}


def body(**changes: Any) -> dict[str, Any]:
    return {**request_of(DATA.candidates, 0), **changes}


def first_document(**changes: Any) -> dict[str, Any]:
    documents = request_of(DATA.candidates, 0)["documents"]
    return body(documents=[{**documents[0], **changes}, *documents[1:]])


WRONG: dict[str, tuple[Any, int, str]] = {
    "nothing": (b"", 400, "The body is not JSON"),
    "half": (b'{"query": {"id": "q"', 400, "The body is not JSON"),
    "not UTF-8": (b'{"query": {"id": "\xff\xfe"}, "documents": []}', 400, "The body is not JSON"),
    "half a surrogate pair": (b'{"query": {"id": "\\ud800"}, "documents": []}', 400, "The body is not JSON"),
    "NaN": (b'{"query": {}, "documents": [{"id": "a", "features": [NaN, 1, 2, 3]}]}', 400, "The body is not JSON"),
    "infinity": (b'{"query": {}, "documents": [{"id": "a", "features": [1e999, 1, 2, 3]}]}', 422, "out of range"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, 422, "Expected `object`, got `array`"),
    "deep inside": (b'{"query": ' + b'{"text": ' * 8_000 + b"1" + b"}" * 8_001, 422, "Expected"),
    "a list": ([], 422, "Expected `object`, got `array`."),
    "no documents": ({"query": {}}, 422, "missing required field `documents`"),
    "a feature that is a word": (first_document(features=[1, 2, 3, "high"]), 422, "got `str`"),
    "a feature that is true": (first_document(features=[1, 2, 3, True]), 422, "got `bool`"),
    "too few features": (first_document(features=[1, 2, 3]), 422, "'d0' has 3 features; the model was trained on 4"),
    "too many features": (first_document(features=[1, 2, 3, 4, 5]), 422, "'d0' has 5 features; the model was trained"),
    "no such feature": (first_document(features={"bm26": 1}), 422, "a feature 'bm26', which the model does not know"),
    "the same document twice": (first_document(id="d3"), 422, "Id 'd3' is also that of documents[0]"),
    "a field nobody knows": (body(rerank=True), 422, "contains unknown field `rerank`"),
    "none at the top": (body(top=0), 422, "Expected `int` >= 1"),
    "too many documents": (
        body(documents=[{"id": str(number), "features": [1, 2, 3, 4]} for number in range(101)]),
        413,
        "The request has 101 documents; up to 100",
    ),
    "too long": (body(query={"id": "q", "text": "x" * 300_000}), 413, "longer than 200000 bytes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_with_a_reason(server: Serving, name: str) -> None:
    content, status, message = WRONG[name]
    answer = server.post("/v1/rank", content)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"code", "message", "where"}
    assert message in answer.json()["error"]["message"]
    assert server.get("/healthz").json() == {"status": "alive"}


def test_the_place_of_a_fault_is_named(server: Serving) -> None:
    error = server.post("/v1/rank", first_document(features=[1, 2, 3, "high"])).json()["error"]
    assert error["where"] == "documents[0].features[3]"
    for content, where in (
        (first_document(features=[1, 2, 3]), "documents[0].features"),
        (first_document(features={"bm26": 1}), "documents[0].features"),
        (first_document(id="d3"), "documents[3].id"),
    ):
        assert server.post("/v1/rank", content).json()["error"]["where"] == where
    batch = {"requests": [request_of(DATA.candidates, 1), first_document(features=[1])]}
    assert server.post("/v1/rank/batch", batch).json()["error"]["where"] == "requests[1].documents[0].features"
    lost = server.post("/v1/explain", {**request_of(DATA.candidates, 1), "above": "x", "below": "y"}).json()["error"]
    assert lost["message"].startswith("Query 'q2' has no document 'x'")


def test_a_batch_of_too_many_queries_is_refused(server: Serving) -> None:
    answer = server.post("/v1/rank/batch", {"requests": [{"query": {}, "documents": []}] * 1001})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_many_queries")


def test_bodies_that_are_encoded_are_refused_and_heads_answered(server: Serving) -> None:
    answer = server.post("/v1/rank", b"x", **{"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "encoded")
    for path in ("/", "/healthz", "/metrics"):
        head = httpx.head(server.url + path)
        assert (head.status_code, head.content) == (200, b"")


def test_a_model_that_does_not_fit_the_loaded_queries_is_not_taken_up(tmp_path: Path) -> None:
    save(Single(RankSVM()).fit(DATA), tmp_path / "model")
    folder = ModelFolder(tmp_path / "model")
    Service(folder, Lookup(judged=DATA))
    save(Single(RankSVM()).fit(make_judged(20, 6, 3, kinds=2, seed=1)), tmp_path / "model")
    assert folder.refresh() == "refused"
    assert folder.problem is not None
    assert "The model was trained on 3 features but the documents have 4" in folder.problem
    assert folder.current.manifest.feature_count == 4


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/v1/rank", 405), ("GET", "/nowhere", 404), ("PUT", "/healthz", 405)]
)
def test_other_paths_and_methods_have_the_same_shape(server: Serving, method: str, path: str, status: int) -> None:
    answer = httpx.request(method, server.url + path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"code", "message", "where"}


def test_an_announced_giant_is_turned_away_before_it_is_read(server: Serving) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Length: 460000000\r\n\r\n{")
        answer = line.recv(65536)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in answer.lower()


def test_a_giant_in_pieces_is_turned_away_on_the_way(server: Serving) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(10_000):
            yield b" " * 10_000

    try:
        answer = httpx.post(server.url + "/v1/rank", content=pieces(), timeout=30)
        assert answer.status_code == 413
    except httpx.TransportError:  # it hung up while we were still talking
        pass
    assert server.get("/healthz").status_code == 200


def test_explanations_are_the_librarys_and_the_command_lines(server: Serving, model: Path, tmp_path: Path) -> None:
    ranker, asked = load(model), request_of(DATA.candidates, 4)
    ids = tuple(f"d{row}" for row in range(len(DATA.labels)))
    candidates = Candidates(
        DATA.candidates.features, DATA.candidates.starts, DATA.candidates.query_ids, ids, feature_names=NAMES
    )
    found = server.post("/v1/explain", asked).json()
    version = server.get("/v1/model").json()["version"]
    assert found.pop("model") == version
    assert [each["id"] for each in found.pop("known")] == [each["query_id"] for each in found["neighbours"]]
    assert found == json.loads(json.dumps(as_dict(explain(ranker, candidates, "q5"))))
    pair = {"above": asked["documents"][2]["id"], "below": asked["documents"][5]["id"]}
    reason = server.post("/v1/explain", {**asked, **pair}).json()
    for name in ("model", "known"):
        reason.pop(name)
    assert reason == json.loads(json.dumps(as_dict(why(ranker, candidates, "q5", pair["above"], pair["below"]))))
    assert sum(each["here"] for each in reason["terms"]) == pytest.approx(reason["difference"], abs=1e-9)
    write_letor(tmp_path / "data.txt", Judged(candidates, DATA.labels))
    words = ["explain", model, tmp_path / "data.txt", "--qid", "q5", "--above", pair["above"], "--below", pair["below"]]
    said = json.loads(output(run(None, *words, "--json")))
    assert said["difference"] == pytest.approx(reason["difference"], abs=1e-12)
    assert [each["feature"] for each in said["terms"]] == [each["feature"] for each in reason["terms"]]
    assert server.post("/v1/explain", {**asked, "above": "d32"}).json()["error"]["code"] == "one_document"
    lost = server.post("/v1/explain", {"query": {"text": "red"}}).json()["error"]["message"]
    assert lost == "No index is loaded, so there is nothing to search. Send the documents with the query."


def test_what_is_served_can_be_asked(server: Serving) -> None:
    found = server.get("/v1/model").json()
    assert found["ranker"] == "KnnOffline2"
    assert found["feature_names"] == list(NAMES)
    assert found["notes"] == {"method": "knn-offline-2"}
    assert (found["missing"], found["searches"], found["judged_queries"]) == ("zero", False, 0)
    assert server.get("/readyz").json() == {"status": "ready", "model": found["version"]}


def metric(server: Serving, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", server.get("/metrics").text, re.MULTILINE)
    return 0.0 if found is None else float(found.group(1))


@pytest.mark.slow
def test_what_happened_is_counted(server: Serving) -> None:
    answered, documents, back_offs = (
        'querywise_requests_total{path="/v1/rank",status="200"}',
        "querywise_documents_total",
        "querywise_back_offs_total",
    )
    before = [metric(server, name) for name in (answered, documents, back_offs, "querywise_nearest_distance_count")]
    server.post("/v1/rank", request_of(DATA.candidates, 2))
    far = request_of(DATA.candidates, 2)
    for document in far["documents"]:
        document["features"] = [1e6 * value for value in document["features"]]
    server.post("/v1/rank", far)
    after = [metric(server, name) for name in (answered, documents, back_offs, "querywise_nearest_distance_count")]
    assert np.subtract(after, before).tolist() == [2, 16, 1, 2]
    for number in range(30):
        server.get(f"/made-up-{number}")
    assert "made-up" not in server.get("/metrics").text


def test_a_histogram_counts_what_lies_below() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 7.0):
        histogram.add(value)
    assert list(histogram.lines("h", "")) == [
        'h_bucket{le="1.0"} 2', 'h_bucket{le="2.0"} 3', 'h_bucket{le="+Inf"} 4', "h_sum 10.0", "h_count 4"
    ]  # fmt: skip


@pytest.mark.slow
def test_a_token_keeps_strangers_out(model: Path, tmp_path: Path) -> None:
    with serving(model, token="s3cret") as server:
        asked = request_of(DATA.candidates, 0)
        refused = server.post("/v1/rank", asked)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert server.post("/v1/rank", asked, Authorization="Bearer wrong").status_code == 401
        assert server.get("/metrics").status_code == 401
        assert server.get("/healthz").status_code == server.get("/readyz").status_code == 200
        assert server.post("/v1/rank", asked, Authorization="Bearer s3cret").status_code == 200
        assert server.post("/v1/rank", asked, Authorization="bearer s3cret").status_code == 200


def test_openapi_describes_what_is_really_read(server: Serving) -> None:
    said = server.get("/openapi.json").json()
    assert set(said["paths"]["/v1/rank"]["post"]["responses"]) == {"200", "4XX", "503"}
    request = said["components"]["schemas"]["RankRequest"]
    assert set(request["required"]) == {"query", "documents"}
    assert "/" not in said["paths"]
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(said)))
    assert named <= set(said["components"]["schemas"])


@pytest.mark.slow
def test_the_api_never_fails_whatever_is_sent(server: Serving) -> None:
    import schemathesis
    from schemathesis.checks import not_a_server_error

    api = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    from hypothesis import HealthCheck, given, settings

    for result in api.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]

        @given(case=operation.as_strategy())
        @settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
        def never_fails(case: Any) -> None:
            case.call_and_validate(checks=[not_a_server_error])

        never_fails()


# ---- the model folder, while it is being served


def under_load(server: Serving, act: Callable[[], None], seconds: float = 0.5) -> tuple[list[int], set[str]]:
    """Ask without a pause while something is done; the statuses and model versions of all answers."""
    statuses: list[int] = []
    versions: set[str] = set()
    stop = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=server.url, timeout=30) as client:
            while not stop.is_set():
                answer = client.post("/v1/rank", json=request_of(DATA.candidates, 3))
                statuses.append(answer.status_code)
                versions.add(answer.json().get("model", ""))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    act()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return statuses, versions


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_model_is_replaced_damaged_and_removed_without_a_failed_request(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save(KnnOffline2(RankSVM(), k=10).fit(DATA), folder)
    with serving(folder) as server:
        version = server.get("/v1/model").json()["version"]

        def replace() -> None:
            save(SelectRanker(RankSVM(), 4, 3).fit(DATA), folder)
            until(lambda: server.get("/v1/model").json()["version"] != version)

        statuses, versions = under_load(server, replace)
        assert set(statuses) == {200}
        assert len(versions) == 2
        assert server.get("/v1/model").json()["ranker"] == "SelectRanker"
        good = server.get("/v1/model").json()["version"]

        def damage() -> None:
            arrays = next(folder.glob("arrays-*"))
            arrays.write_bytes(arrays.read_bytes()[:-7])
            until(lambda: "problem" in server.get("/readyz").json())

        statuses, versions = under_load(server, damage)
        assert (set(statuses), versions) == ({200}, {good})
        assert "damaged or cut short" in server.get("/readyz").json()["problem"]
        assert metric(server, "querywise_model_stale") == 1

        def remove() -> None:
            shutil.rmtree(folder)
            until(lambda: "not a model folder" in server.get("/readyz").json()["problem"])

        statuses, versions = under_load(server, remove)
        assert (set(statuses), versions) == ({200}, {good})
        save(Single(RankSVM()).fit(DATA), folder)
        until(lambda: server.get("/v1/model").json()["ranker"] == "Single")
        assert "problem" not in server.get("/readyz").json()


def test_a_folder_is_looked_at_again_only_when_it_changes(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "m")
    folder = ModelFolder(tmp_path / "m")
    assert folder.refresh() == "same"
    os.utime(tmp_path / "m" / "manifest.json", (1, 1))
    assert folder.refresh() == "same"  # another date, the same model
    (tmp_path / "m" / "manifest.json").write_text("{}")
    assert folder.refresh() == "refused"
    assert folder.refresh() == "same"
    assert folder.problem is not None


@pytest.mark.slow
def test_being_told_to_stop_loses_no_request_that_was_taken(model: Path) -> None:
    with serving(model) as server:
        statuses, states, lost, stopped = [], set(), [], threading.Event()
        content = json.dumps(request_of(DATA.candidates, 3)).encode()

        def ask(number: int) -> None:
            with httpx.Client(base_url=server.url, timeout=30) as client:
                while not stopped.is_set():
                    try:
                        if number == 0:
                            states.add(client.get("/readyz").json()["status"])
                        statuses.append(client.post("/v1/rank", content=content).status_code)
                    except httpx.ConnectError:
                        return  # the door is shut: this one was never taken
                    except httpx.TransportError as error:
                        lost.append(error)
                        return

        threads = [threading.Thread(target=ask, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(statuses) > 20 and bool(states))
        answered = len(statuses)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=20)
        stopped.set()
        for thread in threads:
            thread.join()
        assert set(statuses) == {200}
        assert states == {"ready", "draining"}
        assert len(statuses) > answered, "it went on answering while it left"
        assert lost == []


@pytest.mark.slow
def test_connections_opened_and_left_do_not_keep_others_out(server: Serving) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    left = [socket.create_connection((host, int(port)), timeout=30) for _ in range(300)]
    for line in left[:100]:
        line.sendall(b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    for line in left[100:200]:
        line.sendall(b"POST /v1/ra")
    try:
        assert server.post("/v1/rank", request_of(DATA.candidates, 0)).status_code == 200
        until(lambda: left[250].recv(1) == b"", 30)  # and in the end they are let go
        assert left[50].recv(4096).startswith(b"HTTP/1.1 408")
    finally:
        for line in left:
            line.close()


# ---- bounds that are easier to see in this process


def asked_of(service: Service, *requests: tuple[str, dict[str, Any]]) -> list[httpx.Response]:
    """Answers of the application, all asked at the same time."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return list(await asyncio.gather(*(client.post(path, json=content) for path, content in requests)))

    return asyncio.run(ask())


def test_too_many_at_a_time_are_asked_to_come_again(model: Path) -> None:
    slow = Service(ModelFolder(model), limits=Limits(waiting=0, seconds=30))
    slow.models.current.quick = False
    original = slow.models.current.ranker.answer

    def answer(candidates: Candidates) -> Answer:
        time.sleep(0.3)
        return original(candidates)

    inside(slow.models.current.ranker).answer = answer
    answers = asked_of(slow, *[("/v1/rank", request_of(DATA.candidates, 0))] * 20)
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 503}
    busy = next(answer for answer in answers if answer.status_code == 503)
    assert busy.headers["retry-after"] == "1"
    assert busy.json()["error"]["code"] == "busy"


def test_an_answer_that_takes_too_long_is_given_up(model: Path) -> None:
    service = Service(ModelFolder(model), limits=Limits(seconds=0.1))
    service.models.current.quick = False
    inside(service.models.current.ranker).answer = lambda candidates: time.sleep(0.5)
    (answer,) = asked_of(service, ("/v1/rank", request_of(DATA.candidates, 0)))
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "too_slow"


def test_a_fault_of_our_own_has_the_shape_too_and_tells_nothing(model: Path) -> None:
    service = Service(ModelFolder(model))

    def answer_with(candidates: Candidates) -> Answer:
        raise ZeroDivisionError("secret")

    inside(service.models.current.ranker).answer = answer_with
    (answer,) = asked_of(service, ("/v1/rank", request_of(DATA.candidates, 0)))
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal"
    assert "secret" not in answer.text


def test_scores_that_are_not_numbers_are_not_sent(model: Path) -> None:
    service = Service(ModelFolder(model))
    original = service.models.current.ranker.answer
    inside(service.models.current.ranker).answer = lambda candidates: original(candidates)._replace(
        scores=Once(lambda: np.full(len(candidates.features), np.nan))
    )
    (answer,) = asked_of(service, ("/v1/rank", request_of(DATA.candidates, 0)))
    assert answer.status_code == 422
    assert "is nan" in answer.json()["error"]["message"]


def test_the_model_says_its_settings_and_the_values_in_force(tmp_path: Path) -> None:
    ranker = RankSVM(0.5).fit(named(DATA))
    save(ranker, tmp_path / "model", notes={"method": "ranksvm", "parameters": {"l2": 0.5}})
    said = {each.name: each for each in ModelFolder(tmp_path / "model").current.settings()}
    assert (said["l2"].value, said["l2"].default, said["l2"].type) == (0.5, 1.0, "number")
    assert said["loss"].choices == ["squared_hinge", "hinge"]
    notes: list[JsonObject] = [{"method": "ranksvm", "parameters": {"l2": [1]}}, {"method": "magic"}, {"method": 3}, {}]
    for odd in notes:
        save(ranker, tmp_path / "model", notes=odd)
        assert ModelFolder(tmp_path / "model").current.settings() == []


# ---- what is counted of the model


@pytest.mark.parametrize("wrapped", [False, True])
def test_back_offs_are_counted_whatever_the_ranker_is_wrapped_in(tmp_path: Path, wrapped: bool) -> None:
    near = KnnOnline(RankSVM(), k=10, back_off=0.5)
    data = named(DATA)
    ranker = (QueryNormalised(near) if wrapped else near).fit(data)
    save(ranker, tmp_path / "model")
    service = Service(ModelFolder(tmp_path / "model"))
    place = ranker.answer(data.candidates).place
    assert place is not None
    assert place.known is not None
    gaps = place.known.distances()
    asked_of(service, *[("/v1/rank", request_of(data.candidates, query)) for query in range(len(data))])
    assert service.metrics.back_offs == int(np.sum(gaps > place.known.limit)) == 0, "these are training queries"
    other = make_judged(30, 8, 4, seed=99).candidates
    far = ranker.answer(other).place
    assert far is not None
    assert far.known is not None
    expected = int(np.sum(far.known.distances() > far.known.limit))
    assert expected > 0
    asked_of(service, *[("/v1/rank", request_of(other, query)) for query in range(len(other))])
    assert service.metrics.back_offs == expected
    batch = {"requests": [request_of(other, query) for query in range(len(other))]}
    asked_of(service, ("/v1/rank/batch", batch))
    assert service.metrics.back_offs == 2 * expected, "of a batch every query is looked at: the distances are known"


def test_counting_back_offs_computes_nothing_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(KnnOffline2(RankSVM(), k=10, back_off=0.5).fit(named(DATA)), tmp_path / "model")
    service = Service(ModelFolder(tmp_path / "model"))
    calls: list[str] = []
    for place, name in ((Locality, "points"), (Locality, "around"), (neighbors, "distances")):
        original = getattr(place, name)

        def counted(*given: Any, name: str = name, original: Any = original, **more: Any) -> Any:
            calls.append(name)
            return original(*given, **more)

        monkeypatch.setattr(place, name, counted)
    asked_of(service, ("/v1/rank", request_of(DATA.candidates, 0)))
    assert sorted(calls) == ["around", "points"]


# ---- looking things up

WORDS = ("red", "green", "blue", "large", "small", "cat", "dog", "snake", "river", "stone")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lookup, Path]:
    """A model of searches in an index of made-up documents, and its judged queries."""
    rng = np.random.default_rng(0)
    documents = [
        Document(f"doc{number}", " ".join(rng.choice(WORDS, 2)), " ".join(rng.choice(WORDS, 12)))
        for number in range(60)
    ]
    index = build_index(documents)
    texts = tuple(f"{first} {second}" for first in WORDS for second in WORDS if first < second)
    table = QueryTable(tuple(f"q{number}" for number in range(len(texts))), texts=texts, classes=("a",) * len(texts))
    candidates = candidates_for(index, table, top=20)
    judged = Judged(candidates, (rng.random(len(candidates.features)) < 0.3).astype(np.int64))
    folder = tmp_path_factory.mktemp("library")
    save(KnnOnline(RankSVM(), k=10, view=TextView(3)).fit(judged), folder / "model")
    save_index(index, folder / "index")
    return folder / "model", Lookup(index, judged, table), folder / "index"


def test_a_search_shows_both_orders(library: tuple[Path, Lookup, Path]) -> None:
    model, lookup, index = library
    served = LoadedModel.from_folder(model)
    with serving(model, "--index", index) as server:
        found = server.get("/v1/search", q="red cat", show=5).json()
        assert found["query"]["text"] == "red cat"
        ranks = sorted(each["rank"] for each in found["documents"])
        common = sorted(each["rank_everyone"] for each in found["documents"])
        assert ranks[:5] == common[:5] == [1, 2, 3, 4, 5]
        assert found["explanation"]["counts"]["neighbours"] == 10
        assert len(found["neighbours"]) == len(found["explanation"]["neighbours"]) == 10
        assert server.get("/v1/search", q="zebra").json()["documents"] == []
        first, second = (each["id"] for each in found["documents"][:2])
        pair = {"query": {"text": "red cat"}, "above": first, "below": second}
        difference = server.post("/v1/explain", pair).json()["difference"]
        scores = {each["id"]: each["score"] for each in found["documents"]}
        assert difference == pytest.approx(scores[first] - scores[second], abs=1e-9)
        assert server.get("/v1/search").json()["error"]["code"] == "one_query"
        assert server.get("/v1/search", q="x", top=0).json()["error"]["where"] == "query.top"
        assert server.get("/v1/search", qid="q3").status_code == 422
        assert server.get("/v1/queries").json() == {"queries": []}
    candidates = lookup.candidates(Query(text="red cat"), 100)
    found_here = lookup.found(served, candidates, 5).documents
    assert [each.id for each in found_here] == [each["id"] for each in found["documents"]]


def test_judged_queries_can_be_chosen(library: tuple[Path, Lookup, Path]) -> None:
    model, lookup, _ = library
    service = Service(ModelFolder(model), lookup)

    async def ask() -> tuple[Any, Any]:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            queries = await client.get("/v1/queries", params={"like": "CAT", "limit": 3})
            return queries.json(), (await client.get("/v1/search", params={"qid": "q3"})).json()

    queries, found = asyncio.run(ask())
    assert len(queries["queries"]) == 3
    assert all("cat" in each["text"] for each in queries["queries"])
    assert found["query"]["id"] == "q3"
    grades = {each["id"]: each["grade"] for each in found["documents"]}
    judged = lookup.judged
    assert judged is not None
    rows = judged.candidates.rows(3)
    names = (judged.candidates.document_ids or ())[rows]
    labels = dict(zip(names, judged.labels[rows].tolist(), strict=True))
    assert grades == {name: labels[name] for name in grades}


def test_an_index_that_does_not_fit_the_model_is_refused(model: Path, library: tuple[Path, Lookup, Path]) -> None:
    with pytest.raises(DataError, match="The index gives 27 features"):
        Service(ModelFolder(model), library[1])
    done = run(None, "serve", model, "--index", library[2])
    assert done.returncode == 2
    assert "The index gives 27 features" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Name a model folder or pass --demo"),
        (["nowhere"], "nowhere: not a model folder"),
        (["nowhere", "--demo"], "not both"),
        (["--demo", "--index", "x"], "--demo has an index and queries of its own"),
    ],
)
def test_serve_says_what_it_needs(words: list[str], message: str) -> None:
    done = run(None, "serve", *words)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_port_that_is_taken_is_named(model: Path, server: Serving) -> None:
    port = server.url.rsplit(":", 1)[1]
    done = run_process(None, "serve", model, "--port", port)
    assert done.returncode == 2
    assert f"--port {port}: cannot listen there" in done.stderr


def test_every_kind_of_ranker_is_served(tmp_path: Path) -> None:
    rankers: dict[str, Any] = {"single": Single(RankSVM()), "online": KnnOnline(RankSVM(), k=10), "sser": SSER(2.0)}
    for name, ranker in rankers.items():
        save(ranker.fit(DATA), tmp_path / name)
        served = LoadedModel.from_folder(tmp_path / name)
        service = Service(ModelFolder(tmp_path / name))
        (answer,) = asked_of(service, ("/v1/rank", request_of(DATA.candidates, 6)))
        scores = ranker.predict(DATA.candidates)[DATA.candidates.rows(6)]
        assert [each["score"] for each in answer.json()["documents"]] == pytest.approx(sorted(scores)[::-1], abs=1e-9)
        assert served.version == service.models.current.version


def test_a_model_that_cannot_rank_is_not_served(tmp_path: Path) -> None:
    ranker = KnnOffline2(RankSVM(), k=10).fit(DATA)
    save(ranker, tmp_path / "good")
    inside(ranker.offline_.models_).weights = inside(ranker.offline_.models_).weights[:, :2]
    save(ranker, tmp_path / "bad")
    with pytest.raises(ModelFileError, match=r"OfflineModels\.models_ has 2 features; expected 4"):
        LoadedModel.from_folder(tmp_path / "bad")
    with pytest.raises(ModelFileError, match="The model cannot rank"):
        LoadedModel(ranker, read_manifest(tmp_path / "good"), "1")
