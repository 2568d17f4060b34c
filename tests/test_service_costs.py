"""What a request may cost: work that can be given up, estimates, explanations beside rankings, large bodies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from querywise.contracts.answers import Answer
from querywise.data.judged import Candidates
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.explanations.contributions import contributions
from querywise.explanations.explain import why
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees import boosting
from querywise.learners.trees.boosting import LambdaMART
from querywise.learners.trees.context import QueryContext
from querywise.locality.views.columns import Columns, SideBySide, VectorView
from querywise.locality.views.text import TextView
from querywise.locality.views.topmean import TopMean
from querywise.rankers.blend import Blend
from querywise.rankers.clusters import Transform
from querywise.rankers.ensemble import graph
from querywise.rankers.ensemble.ensemble import SSER
from querywise.rankers.knn import KnnOffline2, KnnOnline
from querywise.rankers.single import OneFeature
from querywise.rankers.wrappers import QueryNormalised
from querywise.runtime.arrays import Floats
from querywise.runtime.threads import GivenUpError, Job, alone, checkpoint, current_job, in_threads, working_for
from querywise.service import routes
from querywise.service.api import ApiError
from querywise.service.limits import BATCHES, SIZES, Limits, QueryCost, check_cost
from querywise.service.loaded_model import LoadedModel, ModelFolder
from querywise.service.lookup import Lookup
from querywise.service.routes import create_app
from querywise.service.schema import Document, Query, RankRequest, unread
from querywise.service.service import Service
from querywise.storage import load, save, version_of
from tests.serving import serving
from tests.worlds import inside

DATA = make_judged(40, 8, 4, kinds=2, seed=5)
JSON = {"content-type": "application/json"}
PATIENCE = 20.0  # seconds that a test waits at most for what should come at once


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "model"
    save(KnnOffline2(RankSVM(), k=10).fit(DATA), folder)
    return folder


def documents(features: Floats) -> list[dict[str, Any]]:
    return [{"id": f"d{row}", "features": each.tolist()} for row, each in enumerate(features)]


def asked_for(count: int = 8, **more: Any) -> dict[str, Any]:
    features = np.random.default_rng(1).random((count, 4)).round(6)
    return {"query": {"id": "q"}, "documents": documents(features), **more}


def ask(service: Service, *requests: tuple[str, Any]) -> list[httpx.Response]:
    """The answers to requests that arrive together, in their order."""
    return post(service, *((path, json.dumps(content).encode()) for path, content in requests))


def post(service: Service, *requests: tuple[str, bytes]) -> list[httpx.Response]:
    """The same of bodies."""

    async def all_of_them() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            return list(
                await asyncio.gather(*(client.post(path, content=body, headers=JSON) for path, body in requests))
            )

    return asyncio.run(all_of_them())


def costs(few: float, many: float, power: int = 1) -> QueryCost:
    """Of a hundred documents, and of a thousand; of fewer in proportion."""
    return QueryCost((few / 100, few / 10, few, many), power=power)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


# Work that can be given up


def test_work_stops_at_its_next_checkpoint_once_it_is_given_up() -> None:
    checkpoint()  # nobody can give this up
    job = Job()
    with working_for(job):
        checkpoint()
        with working_for(None):
            assert current_job() is None
        job.given_up = True
        with pytest.raises(GivenUpError):
            checkpoint()
    assert current_job() is None
    checkpoint()


@pytest.mark.parametrize("by_itself", [False, True])
def test_pieces_in_threads_stop_with_the_work_they_are_of(by_itself: bool) -> None:
    job, done = Job(), []

    def piece(number: int) -> None:
        assert current_job() is job
        done.append(number)
        job.given_up = number == 3

    with working_for(job), alone() if by_itself else contextlib.nullcontext(), pytest.raises(GivenUpError):
        in_threads(piece, range(1000))
    assert 4 <= len(done) < 1000
    assert in_threads(lambda number: current_job(), range(4)) == [None] * 4, "the threads work for others again"


@pytest.mark.parametrize("path", ["/v1/rank", "/v1/explain"])
def test_a_request_that_timed_out_frees_its_thread(model: Path, path: str) -> None:
    service = Service(ModelFolder(model), limits=Limits(seconds=0.2))
    service.models.current.quick = False
    begun: list[int] = []
    ended = threading.Event()

    def answer(candidates: Candidates) -> Answer:
        def piece(number: int) -> None:
            begun.append(number)
            time.sleep(0.02)

        try:
            in_threads(piece, range(10_000))
        finally:
            ended.set()
        raise AssertionError("all pieces were done")

    inside(service.models.current.ranker).answer = answer
    (answered,) = ask(service, (path, asked_for()))
    assert (answered.status_code, answered.json()["error"]["code"]) == (503, "too_slow")
    assert ended.wait(PATIENCE)
    assert 0 < len(begun) < 10_000


def test_work_that_does_not_stop_keeps_its_place(model: Path) -> None:
    service = Service(ModelFolder(model), limits=Limits(seconds=0.1, waiting=0))
    service.models.current.quick = False
    go_on = threading.Event()

    def answer(candidates: Candidates) -> Answer:
        go_on.wait(PATIENCE)
        raise DataError("enough")

    inside(service.models.current.ranker).answer = answer
    try:
        first = ask(service, *[("/v1/rank", asked_for())] * (os.cpu_count() or 1))
        assert {each.json()["error"]["code"] for each in first} == {"too_slow"}
        (further,) = ask(service, ("/v1/rank", asked_for()))
        assert further.json()["error"]["code"] == "busy", "all threads are still in use"
    finally:
        go_on.set()
    wait_for(lambda: service.threads._unfinished == 0)
    (again,) = ask(service, ("/v1/rank", asked_for()))
    assert again.json()["error"]["message"] == "enough"


@pytest.mark.parametrize("path", ["/v1/rank", "/v1/explain", "/v1/search"])
def test_a_client_that_hangs_up_frees_its_thread(model: Path, path: str) -> None:
    service = Service(ModelFolder(model), Lookup(judged=DATA), limits=Limits(seconds=60))
    service.models.current.quick = False
    begun, ended = threading.Event(), threading.Event()

    def answer(candidates: Candidates) -> Answer:
        begun.set()
        try:
            in_threads(lambda number: time.sleep(0.02), range(10_000))
        finally:
            ended.set()
        raise AssertionError("all pieces were done")

    inside(service.models.current.ranker).answer = answer
    statuses: list[int] = []
    method, query = ("GET", f"qid={DATA.candidates.query_ids[0]}") if path == "/v1/search" else ("POST", "")
    body = b"" if method == "GET" else json.dumps(asked_for()).encode()

    async def talk() -> None:
        sent = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if sent:
                return sent.pop()
            await asyncio.get_running_loop().run_in_executor(None, begun.wait, PATIENCE)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            statuses.append(message.get("status", 0))

        scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode()}
        scope["query_string"] = query.encode()
        await create_app(service)(
            {**scope, "headers": [(b"host", b"localhost")], "http_version": "1.1"}, inside(receive), send
        )

    asyncio.run(talk())
    assert ended.wait(PATIENCE)
    assert statuses[0] == 400


def test_shapley_values_stop_between_blocks_of_documents() -> None:
    forest = LambdaMART(2).fit(DATA)
    job, blocks = Job(), []
    (booster,) = forest._loaded()
    original = booster.predict

    def predict(features: Floats, **settings: Any) -> Any:
        blocks.append(len(features))
        job.given_up = True
        return original(features, **settings)

    inside(booster).predict = predict
    with working_for(job), pytest.raises(GivenUpError):
        forest.terms(DATA.candidates)
    assert len(blocks) == 1
    assert blocks[0] < len(DATA.labels)


# Explanations


def shapley_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of documents of every call for Shapley values, from now on."""
    seen: list[int] = []
    original = boosting.shapley_values

    def counted(booster: Any, features: Floats, threads: int | None) -> Floats:
        seen.append(len(features))
        return original(booster, features, threads)

    monkeypatch.setattr(boosting, "shapley_values", counted)
    return seen


EXPLAINED: dict[str, Any] = {
    "a forest": LambdaMART(5),
    "a bag": LambdaMART(5, bag=2),
    "on top of another": KnnOffline2(LambdaMART(3, prior="global"), k=20, models=2),
    "in context": QueryContext(LambdaMART(5)),
    "a blend": Blend([QueryContext(LambdaMART(5)), KnnOnline(RankSVM(), k=10)]),
    "a blend of blends": Blend([Blend([LambdaMART(5), OneFeature(1)]), Transform(LambdaMART(5), 3)]),
    "a mixture": Transform(LambdaMART(5), 3),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_parts_are_computed_for_the_two_documents_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = EXPLAINED[name].fit(DATA)
    query = make_judged(1, 50, 4, kinds=2, seed=8).candidates
    whole, scores = contributions(ranker, query), ranker.predict(query)
    rows = shapley_rows(monkeypatch)
    found = why(ranker, query, "q1", "7", "31")
    assert set(rows) == {2}
    here = {label: whole.here[6, column] - whole.here[30, column] for column, label in enumerate(whole.labels)}
    everyone = dict(zip(whole.labels, whole.everyone[6] - whole.everyone[30], strict=True))
    assert {each.feature: each.here for each in found.terms} == pytest.approx(here, abs=1e-12)
    assert {each.feature: each.everyone for each in found.terms} == pytest.approx(everyone, abs=1e-12)
    assert found.difference == pytest.approx(scores[6] - scores[30], abs=1e-9)


def test_models_of_a_blend_are_named_also_where_they_put_both_documents_alike() -> None:
    ranker = Blend([RankSVM(), OneFeature(1)]).fit(DATA)
    features = np.vstack([np.zeros((2, 4)), DATA.candidates.features[:6]])
    found = why(ranker, Candidates(features, np.array([0, 8]), ("q",)), "q", "1", "2")
    assert [each.here for each in found.models] == [0.0, 0.0]
    level = why(ranker, Candidates(features[:2], np.array([0, 2]), ("q",)), "q", "1", "2")
    assert level.models == (), "no model tells any documents apart"


def test_explanations_leave_threads_to_rankings(model: Path) -> None:
    service = Service(ModelFolder(model))
    current = service.models.current
    current.quick = False
    finished: list[str] = []
    ranked = threading.Event()

    def explain(*_: object) -> Any:
        assert ranked.wait(PATIENCE), "no ranking was answered while explanations were under way"
        finished.append("explanation")
        raise DataError("enough")

    inside(current).explain = explain
    original = current.rank

    def rank(*arguments: Any) -> Any:
        finished.append("ranking")
        ranked.set()
        return original(*arguments)

    inside(current).rank = rank
    answers = ask(service, *[("/v1/explain", asked_for())] * 10, ("/v1/rank", asked_for()))
    assert [each.status_code for each in answers] == [422] * 10 + [200], "and none is lost"
    assert finished[0] == "ranking"


# Estimates


def test_an_estimate_grows_with_the_documents() -> None:
    linear, quadratic, fixed = costs(0.01, 0.1), costs(0.01, 0.5, 2), costs(0.01, 0.011)
    assert linear.seconds([0]) == linear.seconds([1]) == 0.0001, "no query is free"
    assert linear.seconds([50]) == pytest.approx(0.005)
    for each in (linear, quadratic, fixed):
        assert [each.seconds([size]) for size in SIZES] == pytest.approx(each.alone)
        times = [each.seconds([count]) for count in (1, 7, 10, 100, 300, 1000, 1001, 5000, 20_000)]
        assert times == sorted(times)
        most = each.most(10.0)
        assert each.seconds([most]) <= 10.0 < each.seconds([most + most // 50 + 2])
    assert linear.seconds([20_000]) == pytest.approx(2.0)
    assert quadratic.seconds([20_000]) == pytest.approx(200.0)
    assert fixed.seconds([20_000]) == pytest.approx(0.22)


def test_the_queries_of_a_batch_cost_what_they_took_in_a_batch() -> None:
    cost = QueryCost((0.01, 0.02, 0.03, 0.1), (0.001, 0.002, 0.003, 0.1))
    assert cost.seconds([1]) == 0.01
    assert cost.seconds([1] * 50 + [10] * 50) == pytest.approx(0.05 + 0.1)
    assert cost.seconds([0] * 1000) == pytest.approx(1.0)
    assert cost.seconds([1, 1000]) == pytest.approx(0.101)
    assert cost.seconds([1, 1]) == pytest.approx(0.01), "no batch costs less than one of its queries alone"
    other = replace(cost, few=(0.004, 0.005, 0.006, 0.1))
    assert other.seconds([1] * 10) == pytest.approx(0.04), "few queries save less than many"
    assert other.seconds([1] * 100) == pytest.approx(0.1)


def test_a_model_is_rehearsed_with_each_number_of_documents_alone_and_in_batches() -> None:
    asked: list[tuple[int, int]] = []

    def seconds(queries: int, size: int, times: int) -> float:
        asked.append((queries, size))
        return queries * (0.001 + size / 1e4)

    found = QueryCost.measured(seconds, lambda: 2)
    assert found.alone == found.together == found.few == pytest.approx((0.0011, 0.002, 0.011, 0.101))
    assert found.power == 2
    assert {each for each in asked if each[0] == 1} == {(1, size) for size in SIZES}
    assert {each for each in asked if each[0] > 1} == {(10, 1), (10, 10), (10, 100), (100, 1), (100, 10)}
    assert BATCHES == (10, 100)
    slow = [QueryCost.measured(lambda *asked: {(1, 100): 2.0}[asked[:2]], power) for power in (lambda: 1, lambda: 2)]
    assert [each.alone for each in slow] == [(2.0, 2.0, 2.0, 20.0), (2.0, 2.0, 2.0, 200.0)], "others would take longer"
    unknown = QueryCost.measured(lambda *asked: {(1, 100): np.inf}[asked[:2]], lambda: 1)
    check_cost(unknown, Limits(), [20_000])
    check_cost(costs(0.0, 0.0), Limits(), [20_000])


@pytest.mark.parametrize("view", [None, TextView()], ids=["documents", "text"])
def test_a_rehearsal_asks_for_models_that_are_made_for_their_query(
    view: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query far from all training queries gets the global model: rehearsed by such, a costly model seems quick."""
    texts = tuple(f"word{query % 7} word{query % 5}" for query in range(30))
    data = make_judged(30, 10, 4, seed=3)
    table = QueryTable(data.candidates.query_ids, texts=texts)
    data = replace(data, candidates=replace(data.candidates, queries=table))
    save(KnnOnline(RankSVM(), view=view, k=8).fit(data), tmp_path / "model")
    far: list[bool] = []
    original = LoadedModel.answer

    def answer(self: LoadedModel, candidates: Candidates) -> Any:
        found = original(self, candidates)
        assert found[0].place is not None
        assert found[0].place.known is not None
        far.extend(found[0].place.known.far().tolist())
        return found

    monkeypatch.setattr(LoadedModel, "answer", answer)
    found = ModelFolder(tmp_path / "model").current
    assert len(far) > 100
    assert not any(far)
    query = Query("q", "nothing of it" if view else None)
    rows = found.candidates([RankRequest(query, [Document("a", unread([1e6] * 4))])])
    found.answer(rows)
    assert far[-1], "what comes after the rehearsal backs off as ever"


def watched_paces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list to which the pace of every request is added when it is ranked."""
    paces: list[str] = []
    original = Service.run

    async def run(self: Service, job: Any, request: Any, pace: Any) -> Any:
        paces.append(pace)
        return await original(self, job, request, pace)

    monkeypatch.setattr(Service, "run", run)
    return paces


@pytest.mark.parametrize("length", [10, 10_000])
def test_a_long_text_is_not_read_in_the_event_loop(model: Path, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(ModelFolder(model))
    service.models.current.quick, service.models.current.cost = True, costs(0.0001, 0.001)
    paces = watched_paces(monkeypatch)
    body = asked_for(2)
    body["query"]["text"] = "x" * length
    batch = {"requests": [body]}
    answers = ask(service, ("/v1/rank", body), ("/v1/rank/batch", batch))
    assert [each.status_code for each in answers] == [200, 200]
    assert paces == ["quick" if length < 1000 else "usual"] * 2


@pytest.mark.parametrize("name", ["a forest", "in context", "a blend", "a mixture"])
def test_explanations_are_rehearsed_with_each_number_of_documents(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(EXPLAINED[name].fit(DATA), tmp_path / "model")
    explained: list[tuple[int, bool]] = []
    original = LoadedModel.explain

    def explain(self: LoadedModel, candidates: Candidates, request: Any) -> Any:
        explained.append((len(candidates.features), request.above is not None))
        return original(self, candidates, request)

    monkeypatch.setattr(LoadedModel, "explain", explain)
    found = ModelFolder(tmp_path / "model").current
    assert {size for size, _ in explained} == set(SIZES)
    assert {size for size, pair in explained if pair} == {size for size in SIZES if size > 1}
    assert found.explaining.known


def test_an_explanation_is_refused_by_what_explanations_cost_and_a_ranking_by_what_rankings_do(model: Path) -> None:
    service = Service(ModelFolder(model), limits=Limits(seconds=5.0))
    service.models.current.explaining = costs(10.0, 100.0)
    explained, ranked = ask(service, ("/v1/explain", asked_for(200)), ("/v1/rank", asked_for(200)))
    assert (explained.status_code, explained.json()["error"]["code"]) == (413, "too_costly")
    assert ranked.status_code == 200


@pytest.fixture(scope="module")
def solving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that solves a quadratic program for every query, however few its documents."""
    folder = tmp_path_factory.mktemp("solving") / "model"
    save(SSER().fit(make_judged(60, 20, 30, kinds=2, seed=5)), folder)
    return folder


def tiny(queries: int, size: int) -> dict[str, Any]:
    rows = np.random.default_rng(2).random((size, 30)).round(3)
    return {"requests": [{"query": {}, "documents": documents(rows)}] * queries}


@pytest.mark.parametrize("size", [0, 1])
def test_a_batch_of_tiny_queries_is_refused_where_each_of_them_takes_its_time(solving: Path, size: int) -> None:
    models = ModelFolder(solving)
    each = models.current.cost.seconds([1] * 1000) / 1000
    assert each > models.current.cost.alone[2] / 200, "a hundredth of the documents is far from a hundredth of the time"
    service = Service(models, limits=Limits(seconds=each * 200))
    (refused,) = ask(service, ("/v1/rank/batch", tiny(1000, size)))
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["where"]) == (413, "too_costly", "requests")
    assert f"for 1000 queries of {1000 * size} documents, and" in error["message"]
    assert re.search(r"Send up to (199|200) such queries at a time\.$", error["message"])


def test_rankings_that_take_seconds_keep_no_other_ranking_waiting(model: Path) -> None:
    service = Service(ModelFolder(model), limits=Limits(seconds=PATIENCE))
    current = service.models.current
    current.quick, current.cost = False, costs(1.0, 10.0)
    original, answered = current.rank, threading.Event()

    def rank(requests: Any, *arguments: Any) -> Any:
        if len(requests) == 1:
            answered.set()
        else:
            assert answered.wait(PATIENCE / 2), "the short ranking waits for the long ones"
        return original(requests, *arguments)

    inside(current).rank = rank
    batches = [("/v1/rank/batch", {"requests": [asked_for(50)] * 4})] * (2 * (os.cpu_count() or 1))
    answers = ask(service, *batches, ("/v1/rank", asked_for(8)))
    assert [each.status_code for each in answers] == [200] * len(answers)


def test_explanations_that_take_seconds_keep_no_other_explanation_waiting(model: Path) -> None:
    service = Service(ModelFolder(model), limits=Limits(seconds=PATIENCE))
    current = service.models.current
    current.explaining = costs(0.1, 10.0)
    original, answered = current.explain, threading.Event()

    def explain(candidates: Candidates, request: Any) -> Any:
        if len(candidates.features) < 10:
            answered.set()
        else:
            assert answered.wait(PATIENCE / 2), "the short explanation waits for the long ones"
        return original(candidates, request)

    inside(current).explain = explain
    answers = ask(service, *[("/v1/explain", asked_for(400))] * 3, ("/v1/explain", asked_for(8)))
    assert [each.status_code for each in answers] == [200] * 4


def test_a_judged_query_that_takes_seconds_keeps_no_other_ranking_waiting(model: Path) -> None:
    service = Service(ModelFolder(model), Lookup(judged=DATA))
    service.models.current.cost = costs(50.0, 500.0)
    used: list[str] = []
    for name in ("threads", "long"):
        pool = getattr(service, name)

        async def run(*arguments: Any, name: str = name, original: Any = pool.run, **more: Any) -> Any:
            used.append(name)
            return await original(*arguments, **more)

        inside(pool).run = run

    async def searched() -> int:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.get("/v1/search", params={"qid": DATA.query_ids[0]})).status_code

    assert asyncio.run(searched()) == 200
    service.models.current.cost = costs(0.001, 0.01)
    assert asyncio.run(searched()) == 200
    assert used == ["long", "threads"]


def test_judged_queries_are_not_searched_one_by_one(model: Path) -> None:
    """There may be tens of thousands of them, and each document that is shown has a grade."""

    class Unsearchable(tuple[str, ...]):
        __slots__ = ()

        def index(self, *_: Any) -> int:
            raise AssertionError("searched")

        def __contains__(self, _: object) -> bool:
            raise AssertionError("searched")

    copied = replace(DATA, candidates=replace(DATA.candidates))
    object.__setattr__(copied.candidates, "query_ids", Unsearchable(DATA.query_ids))
    lookup, last = Lookup(judged=copied), DATA.query_ids[-1]
    current = ModelFolder(model).current
    found = lookup.found(current, lookup.candidates(Query(last), None), 10, judged_as=last)
    labels = DATA.labels[DATA.candidates.rows(len(DATA) - 1)]
    assert sorted(each.grade for each in found.documents if each.grade is not None) == sorted(labels.tolist())


def test_many_long_texts_are_ranked_in_the_threads_of_long_rankings(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, paces = Service(ModelFolder(model)), watched_paces(monkeypatch)
    body = asked_for(2)
    body["query"]["text"] = "word " * 1_900
    batches = [("/v1/rank/batch", {"requests": [body] * count}) for count in (5, 20)]
    assert [each.status_code for each in ask(service, *batches)] == [200, 200]
    assert sorted(paces) == ["long", "usual"]


def test_a_search_for_an_explanation_finds_no_more_than_a_search(model: Path) -> None:
    service = Service(ModelFolder(model))
    (refused,) = ask(service, ("/v1/explain", {"query": {"text": "a word"}, "top": 1_001}))
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "too_many_documents")
    assert "up to 1000" in refused.json()["error"]["message"]


def test_a_batch_of_too_many_queries_is_refused_before_any_is_read(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = Query.__post_init__

    def counted(self: Query) -> None:
        read.append(1)
        original(self)

    monkeypatch.setattr(Query, "__post_init__", counted)
    service = Service(ModelFolder(model), limits=Limits(queries=10))
    before = len(read)
    (refused,) = ask(service, ("/v1/rank/batch", {"requests": [{"query": {}, "documents": []}] * 11}))
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "too_many_queries")
    assert len(read) == before


def test_a_model_of_many_features_is_rehearsed_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a few kilobytes names as many features as it likes."""
    wide = RankSVM().fit(make_judged(6, 5, 3))
    wide.weights_, wide.feature_count_ = np.ones(20_000), 20_000
    save(wide, tmp_path / "model")
    made: list[int] = []
    original = LoadedModel._random_features

    def random_features(self: LoadedModel, rows: int) -> Floats:
        made.append(8 * rows * self.manifest.feature_count)
        return original(self, rows)

    monkeypatch.setattr(LoadedModel, "_random_features", random_features)
    found = ModelFolder(tmp_path / "model").current
    assert max(made) <= 80_000_000
    assert found.cost.known
    assert found.explaining.known
    assert np.isfinite([*found.cost.alone, *(found.cost.together or ()), *found.explaining.alone]).all()


@pytest.mark.parametrize(
    ("ranker", "power"),
    [
        (SSER(), 2),
        (SSER(0.0), 1),
        (QueryNormalised(SSER()), 2),
        (Blend([OneFeature(1), SSER()]), 2),
        (Blend([OneFeature(1), RankSVM()]), 1),
    ],
)
def test_models_that_compare_all_documents_are_known(ranker: Any, power: int, tmp_path: Path) -> None:
    save(ranker.fit(DATA), tmp_path / "model")
    assert ModelFolder(tmp_path / "model").current.cost.power == power


def test_what_cannot_be_answered_in_time_is_refused_before_it_is_begun(model: Path) -> None:
    service = Service(ModelFolder(model), limits=Limits(seconds=5.0))
    current = service.models.current
    current.cost = current.explaining = costs(1.0, 100.0)
    current.quick = False
    begun: list[int] = []
    original = current.ranker.answer

    def answer(candidates: Candidates) -> Answer:
        begun.append(len(candidates.features))
        return original(candidates)

    inside(current.ranker).answer = answer
    for path, content, where in (
        ("/v1/rank", asked_for(400), "documents"),
        ("/v1/rank/batch", {"requests": [asked_for(20), asked_for(400)]}, "requests"),
        ("/v1/explain", asked_for(400, above="d1", below="d2"), "documents"),
    ):
        (refused,) = ask(service, (path, content))
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["where"]) == (413, "too_costly", where)
        assert "This model takes about 16 seconds for " in error["message"]
        assert "and 5 are allowed. Send up to 22" in error["message"]
    assert not begun
    batch = {"requests": [asked_for(80)] * 5}  # as many documents, but in short lists
    small = ask(service, ("/v1/rank", asked_for(200)), ("/v1/rank/batch", batch), ("/v1/explain", asked_for(200)))
    assert [each.status_code for each in small] == [200, 200, 200]
    assert begun


def test_documents_that_are_looked_up_count_too(model: Path) -> None:
    service = Service(ModelFolder(model), limits=Limits(seconds=5.0))
    service.models.current.explaining = costs(1.0, 100.0)
    many = Candidates(np.random.default_rng(0).random((400, 4)), np.array([0, 400]), ("q",))
    object.__setattr__(service.lookup, "candidates", lambda query, top, model: many)
    (refused,) = ask(service, ("/v1/explain", {"query": {"id": "q"}}))
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "too_costly")


def test_a_batch_of_many_short_lists_is_not_taken_for_a_long_one() -> None:
    quadratic = costs(0.01, 1.0, 2)
    check_cost(quadratic, Limits(), [20] * 1000)
    with pytest.raises(ApiError, match="takes about 400 seconds for 20000 documents, and 10 are allowed"):
        check_cost(quadratic, Limits(), [20_000])


def test_an_answer_that_would_take_long_is_not_computed_in_the_event_loop(model: Path) -> None:
    found = ModelFolder(model).current
    found.quick, found.cost = True, costs(0.004, 0.04)
    assert found.is_quick([1000])
    assert not found.is_quick([1001])
    found.cost = costs(0.004, 0.4)  # a hundred times as long for ten times as many
    assert found.is_quick([200])
    assert not found.is_quick([1000])


# Long lists in SSER


@pytest.mark.parametrize("neighbours", [1, 5])
@pytest.mark.parametrize("kind", ["different", "level", "equal", "in groups"])
def test_the_graph_of_a_long_list_is_that_of_all_distances_to_the_bit(kind: str, neighbours: int) -> None:
    rng = np.random.default_rng(0)
    for count, width in ((2, 3), (7, 1), (130, 4), (300, 46)):
        features: Floats = rng.random((count, width))
        if kind == "level":
            features = rng.integers(0, 3, (count, width)) / 2
        elif kind == "equal":
            features = np.repeat(features[:1], count, axis=0)
        elif kind == "in groups":
            features[::3] = features[0]
        nearest = min(neighbours, count - 1)
        whole = graph._energy(graph._likeness(graph._distances(features), nearest), features)
        assert np.array_equal(graph.energy_in_blocks(features, nearest), whole)


def test_no_table_of_all_distances_is_made_of_a_long_list(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, ...]] = []
    original = graph._distances_of_some

    def distances(features: Floats, first: int, last: int) -> Floats:
        found = original(features, first, last)
        sizes.append(found.shape)
        return found

    def whole(features: Floats) -> Floats:
        raise AssertionError("all distances at once")

    monkeypatch.setattr(graph, "_distances_of_some", distances)
    monkeypatch.setattr(graph, "_distances", whole)
    assert np.isfinite(graph.roughness(np.random.default_rng(2).random((1100, 4)), 5)).all()
    assert {columns for _, columns in sizes} == {1100}
    assert max(rows for rows, _ in sizes) <= 128


def test_the_graph_of_a_long_list_can_be_given_up() -> None:
    job = Job()
    job.given_up = True
    with working_for(job), pytest.raises(GivenUpError):
        graph.roughness(np.random.default_rng(0).random((1100, 3)), 5)


# Bodies


class Name(str):
    """A name that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_names_of_features_are_not_searched_one_by_one(tmp_path: Path) -> None:
    width = 500
    names = tuple(Name(f"feature {number}") for number in range(width))
    data = make_judged(4, 5, width, seed=1)
    save(OneFeature(1).fit(data), tmp_path / "model")
    loaded = ModelFolder(tmp_path / "model").current
    found = LoadedModel(loaded.ranker, replace(loaded.manifest, feature_names=names), "v")
    request = {str(name): float(number) for number, name in enumerate(names)}
    text = json.dumps({"query": {}, "documents": [{"id": "a", "features": request}]})
    Name.compared = 0
    candidates = found.candidates([routes._RANK.decode(text)])
    assert candidates.features[0].tolist() == list(map(float, range(width)))
    assert Name.compared < 10 * width


def test_features_by_name_take_as_many_look_ups_as_names_that_were_sent(tmp_path: Path) -> None:
    width = 500
    save(OneFeature(1).fit(make_judged(4, 5, width, seed=1)), tmp_path / "model")
    features = ModelFolder(tmp_path / "model").current.features
    looked: list[str] = []

    class Names(dict[str, int]):
        def get(self, name: str, default: Any = None) -> Any:
            looked.append(name)
            return super().get(name, default)

        def __getitem__(self, name: str) -> int:
            looked.append(name)
            return super().__getitem__(name)

    class Told(tuple[str, ...]):
        def __iter__(self) -> Any:
            raise AssertionError("all names were gone through")

    counted = features._replace(columns=Names(features.columns), names=Told(features.names))
    sent = [{"id": str(row), "features": {"7": row, "3": None} if row % 2 else {}} for row in range(100)]
    asked = routes._RANK.decode(json.dumps({"query": {}, "documents": sent}))
    for absent in (0.0, np.nan):
        looked.clear()
        table = counted._replace(absent=absent).table([asked.documents], ["documents"])
        expected = np.full((100, width), absent)
        expected[1::2, 6] = np.arange(1, 100, 2)
        np.testing.assert_array_equal(table, expected)
        assert len(looked) <= 2 * 100


@pytest.mark.parametrize(("count", "kind"), [(10, "named"), (400, "named"), (400, "arrays")])
def test_many_features_by_name_are_not_read_in_the_event_loop(tmp_path: Path, count: int, kind: str) -> None:
    width = 500
    save(OneFeature(1).fit(make_judged(4, 5, width, seed=1)), tmp_path / "model")
    service = Service(ModelFolder(tmp_path / "model"))
    current = service.models.current
    current.quick, current.cost = True, costs(1e-6, 1e-5)
    where: list[threading.Thread] = []
    rank = current.rank

    def ranked(*arguments: Any) -> Any:
        where.append(threading.current_thread())
        return rank(*arguments)

    inside(current).rank = ranked
    features: Any = {} if kind == "named" else [0] * width
    sent = [{"id": f"d{row}", "features": features} for row in range(count)]
    several = {"requests": [{"query": {}, "documents": sent}]}
    for answer in ask(service, ("/v1/rank", {"query": {}, "documents": sent}), ("/v1/rank/batch", several)):
        assert answer.status_code == 200
    assert {each is threading.main_thread() for each in where} == {count == 10 or kind == "arrays"}
    assert len(where) == 2


@pytest.mark.parametrize("large", [False, True])
def test_large_bodies_are_read_in_a_thread(model: Path, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(ModelFolder(model))
    current = service.models.current
    current.quick, current.cost = True, costs(1e-4, 1e-3)
    where: dict[str, threading.Thread] = {}
    decode, rank = inside(routes).decode_documents, current.rank

    def decoded(*arguments: Any) -> Any:
        where["decoded"] = threading.current_thread()
        return decode(*arguments)

    def ranked(*arguments: Any) -> Any:
        where["ranked"] = threading.current_thread()
        return rank(*arguments)

    monkeypatch.setattr(routes, "decode_documents", decoded)
    inside(current).rank = ranked
    content = asked_for(1000 if large else 8)
    for number, document in enumerate(content["documents"] if large else ()):
        document["id"] = f"{number:01000}"
    (answer,) = ask(service, ("/v1/rank", content))
    assert answer.status_code == 200
    for thread in where.values():
        assert (thread is threading.main_thread()) != large
    assert set(where) == {"decoded", "ranked"}


def test_columns_of_a_query_are_bounded_and_those_that_are_not_known_are_refused(tmp_path: Path) -> None:
    table = QueryTable(DATA.query_ids, columns=np.arange(40.0)[:, None], column_names=("length",))
    data = replace(DATA, candidates=replace(DATA.candidates, queries=table))
    save(KnnOnline(RankSVM(), k=10, view=SideBySide([Columns(), TopMean()])).fit(data), tmp_path / "model")
    service = Service(ModelFolder(tmp_path / "model"))
    assert service.models.current.cost.known, "it is rehearsed with its columns"

    def posted(*columns: dict[str, float]) -> Any:
        requests = [asked_for() | {"query": {"columns": each}} for each in columns]
        (answer,) = ask(service, ("/v1/rank/batch", {"requests": requests}))
        return answer

    assert posted({"length": 3.0}, {"length": 4.0}).status_code == 200
    refused = posted({"length": 3.0}, {"length": 3.0, "width": 1.0})
    assert refused.status_code == 422
    assert "The column 'width' is not known: the model looks at length." in refused.text
    assert refused.json()["error"]["where"] == "requests[1].query.columns"
    for count, told in ((1001, "length <= 1000"), (100_000, "Expected `columns` of up to 100000 bytes.")):
        many = posted({f"column {number}": 1.0 for number in range(count)})
        assert many.status_code == 422
        assert told in many.text
    wrong: Any = {"length": "x"}
    error = posted(wrong).json()["error"]
    assert (error["message"], error["where"]) == (
        "Expected `float`, got `str` in `columns`.",
        "requests[0].query",
    )


@pytest.fixture(scope="module")
def by_vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vectors = np.random.default_rng(3).normal(size=(40, 5))
    data = replace(DATA, candidates=replace(DATA.candidates, queries=QueryTable(DATA.query_ids, vectors=vectors)))
    folder = tmp_path_factory.mktemp("vectors") / "model"
    save(KnnOnline(RankSVM(), k=10, view=SideBySide([VectorView(), TopMean()])).fit(data), folder)
    return folder


def test_vectors_are_refused_where_the_model_looks_at_none_or_at_others(model: Path, by_vectors: Path) -> None:
    def refused(folder: Path, vector: str) -> tuple[str, str]:
        sent = [json.dumps(asked_for() | {"query": {"id": "q"}}), json.dumps(asked_for() | {"query": {"vector": 0}})]
        body = f'{{"requests": [{sent[0]}, {sent[1]}]}}'.replace('"vector": 0', f'"vector": {vector}')
        (answer,) = post(Service(ModelFolder(folder)), ("/v1/rank/batch", body.encode()))
        assert answer.status_code == 422, answer.text
        return answer.json()["error"]["message"], answer.json()["error"]["where"]

    place = "requests[1].query.vector"
    for vector in ("[1]", "[1, 2, 3, 4, 5]", "7"):
        assert refused(model, vector) == ("This model does not look at vectors of queries. Leave `vector` out.", place)
    message, where = refused(by_vectors, "[1, 2]")
    assert (message, where) == (
        "The vector has 2 numbers; the model was trained with 5. Use the same embedding model.",
        place,
    )
    assert refused(by_vectors, '[1, 2, "x", 4, 5]') == ("Expected `float`, got `str`.", f"{place}[2]")
    assert refused(by_vectors, "{}")[1] == place
    assert "up to 500000 bytes" in refused(by_vectors, f"[1{' ' * 500_000}]")[0]


def test_vectors_in_a_request_are_those_of_a_table(by_vectors: Path) -> None:
    service, vector = Service(ModelFolder(by_vectors)), [0.1, -2.5, 3e-3, 0, 7]
    queries: list[dict[str, Any]] = [{"vector": vector}, {"vector": None}, {"vector": [1] * 5}, {}]
    requests = [asked_for() | {"query": each} for each in queries]
    (together,) = ask(service, ("/v1/rank/batch", {"requests": requests}))
    alone = [each.json() for each in ask(service, *(("/v1/rank", each) for each in requests))]
    assert together.json()["responses"] == alone
    assert alone[1] == alone[3]
    features = np.array([each["features"] for each in requests[0]["documents"]])
    table = QueryTable(("q",), vectors=np.array([vector]))
    expected = load(by_vectors).predict(Candidates(features, np.array([0, 8]), ("q",), queries=table))
    found = {each["id"]: each["score"] for each in alone[0]["documents"]}
    assert [found[f"d{row}"] for row in range(8)] == expected.tolist()


@pytest.mark.parametrize("looks", [False, True])
def test_vectors_that_nobody_looks_at_are_never_decoded(model: Path, by_vectors: Path, looks: bool) -> None:
    loaded = ModelFolder(by_vectors if looks else model).current
    vector = f"[{','.join(['1'] * 20_000)}]"
    one = f'{{"query": {{"vector": {vector}}}, "documents": []}}'
    body = f'{{"requests": [{",".join([one] * 100)}]}}'.encode()
    tracemalloc.start()
    try:
        asked, features = inside(routes).decode_documents(routes._BATCH, body, loaded.features)
        with pytest.raises(DataError, match="vector"):
            loaded.rank(asked.requests, features)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(body), "as Python's numbers they would be sixteen times as long"


def large_request() -> dict[str, Any]:
    content = asked_for(1200)
    for number, document in enumerate(content["documents"]):
        document["id"] = f"{number:01000}"
    return content


def test_bodies_are_decoded_while_all_threads_rank(model: Path) -> None:
    service, release = Service(ModelFolder(model), limits=Limits(documents=1000)), threading.Event()

    async def both() -> httpx.Response:
        busy = [asyncio.ensure_future(service.threads.run(release.wait)) for _ in range(os.cpu_count() or 1)]
        await asyncio.sleep(0)  # all of them have begun
        transport = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            answer = await client.post("/v1/rank", json=large_request())
        assert not any(each.done() for each in busy)
        release.set()
        await asyncio.gather(*busy)
        return answer

    try:
        assert asyncio.run(both()).json()["error"]["code"] == "too_many_documents"
    finally:
        release.set()


@pytest.mark.parametrize("path", ["/v1/rank", "/v1/explain"])
def test_large_bodies_that_are_being_answered_are_bounded_together(model: Path, path: str) -> None:
    service, release = Service(ModelFolder(model), limits=Limits(held_bytes=2_000_000)), threading.Event()
    current, large = service.models.current, large_request()
    current.cost = current.explaining = costs(1e-6, 1e-5)
    entered = threading.Event()
    candidates = current.candidates

    def held_up(requests: Any, features: Any = None) -> Any:
        if len(requests[0].documents) > 1000:
            entered.set()
            assert release.wait(PATIENCE)
        return candidates(requests, features)

    inside(current).candidates = held_up

    async def all_of_them() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            first = asyncio.ensure_future(client.post(path, json=large))
            await asyncio.to_thread(entered.wait, PATIENCE)
            second, small = await client.post(path, json=large), await client.post("/v1/rank", json=asked_for())
            release.set()
            return [await first, second, small, await client.post(path, json=large)]

    try:
        answers = asyncio.run(all_of_them())
    finally:
        release.set()
    assert [each.status_code for each in answers] == [200, 503, 200, 200]
    assert answers[1].json()["error"]["code"] == "busy"


def test_a_model_without_columns_takes_none(model: Path) -> None:
    (refused,) = ask(Service(ModelFolder(model)), ("/v1/rank", asked_for() | {"query": {"columns": {"x": 1.0}}}))
    assert refused.status_code == 422
    assert "the model looks at no columns" in refused.text


# All of it, in a real server


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wide") / "model"
    save(OneFeature(1).fit(make_judged(4, 5, 6000, seed=1)), folder)
    return folder


@pytest.mark.parametrize("path", ["/v1/rank", "/v1/explain", "/v1/rank/batch"])
def test_documents_without_features_make_no_table_larger_than_allowed(wide: Path, path: str) -> None:
    service = Service(ModelFolder(wide))
    service.models.current.candidates = None  # type: ignore[assignment]  # no table is begun
    asked: dict[str, Any] = {"query": {}, "documents": [{"id": str(row), "features": {}} for row in range(6000)]}
    (refused,) = ask(service, (path, {"requests": [asked]} if path.endswith("batch") else asked))
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "too_many_documents")
    assert "6000 documents of 6000 features each; up to 5333 such" in refused.text


@pytest.mark.slow
def test_the_service_answers_while_large_bodies_of_named_features_arrive(wide: Path) -> None:
    features = {str(number): 0.5 for number in range(1, 6001)}
    body = {"query": {}, "documents": [{"id": f"d{row}", "features": features} for row in range(60)]}
    with serving(wide) as server, ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(server.post, "/v1/rank", body) for _ in range(6)]
        while not all(each.done() for each in asked):
            assert httpx.get(server.url + "/healthz", timeout=3).status_code == 200
        assert [each.result().status_code for each in asked] == [200] * 6


def test_what_is_told_of_a_wide_model_is_made_once(tmp_path: Path) -> None:
    wide = make_judged(4, 5, 20_000, seed=1)
    names = tuple(f"run.system {number}.score" for number in range(20_000))
    save(OneFeature(1).fit(replace(wide, candidates=replace(wide.candidates, feature_names=names))), tmp_path / "model")
    with serving(tmp_path / "model") as server, ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(server.get, "/v1/model") for _ in range(40)]
        while not all(each.done() for each in asked):
            assert httpx.get(server.url + "/healthz", timeout=3).status_code == 200
        answers = [each.result() for each in asked]
        assert {each.status_code for each in answers} == {200}
        [said] = {each.content for each in answers}
        spent = sum(map(int, Path(f"/proc/{server.process.pid}/stat").read_text().split()[13:15]))
        assert [server.get("/v1/model").content for _ in range(40)] == [said] * 40
        after = sum(map(int, Path(f"/proc/{server.process.pid}/stat").read_text().split()[13:15]))
    assert (len(json.loads(said)["feature_descriptions"]), json.loads(said)["version"]) == (
        20_000,
        version_of(tmp_path / "model")[:12],
    )
    assert after - spent < 100, "hundredths of a second; to make it takes 5"


@pytest.mark.slow
def test_ten_expensive_explanations_at_once_harm_nobody(tmp_path: Path) -> None:
    ranker = Blend([QueryContext(LambdaMART(400, bag=3)), KnnOnline(RankSVM(), k=10)]).fit(DATA)
    save(ranker, tmp_path / "model")
    expensive = asked_for(2000, above="d1", below="d2")
    expected = why(load(tmp_path / "model"), candidates_of(expensive), "q", "d1", "d2")
    with serving(tmp_path / "model", "--timeout", 25) as server, ThreadPoolExecutor(10) as pool:
        asked = [pool.submit(server.post, "/v1/explain", expensive) for _ in range(10)]
        answered = 0
        while not all(each.done() for each in asked):
            good = httpx.post(server.url + "/v1/rank", json=asked_for(100), timeout=10)
            assert good.status_code == 200
            answered += 1
        answers = [each.result() for each in asked]
    assert answered > 0
    statuses = {each.status_code for each in answers}  # 503: not in time, on a machine that is busy
    assert 200 in statuses
    assert statuses <= {200, 503}
    assert {each.json()["difference"] for each in answers if each.status_code == 200} == {expected.difference}


def candidates_of(request: dict[str, Any]) -> Candidates:
    features = np.array([each["features"] for each in request["documents"]])
    ids = tuple(each["id"] for each in request["documents"])
    return Candidates(features, np.array([0, len(features)]), (request["query"]["id"],), document_ids=ids)
