"""`querywise gateway`: an engine finds, a model orders; what goes wrong in either, told in a sentence.

The engine here is that of `emulated.py`; real ones are in `tests/engines`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from querywise.data.judged import Judged
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.jobs.gateway import open_gateway
from querywise.jobs.log import EngineIndex
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.views.columns import Columns
from querywise.online.outcomes import read_draws
from querywise.rankers.knn import KnnOnline
from querywise.rankers.single import OneFeature
from querywise.service.limits import Limits
from querywise.service.loaded_model import ModelFolder
from querywise.service.routes import create_app
from querywise.service.service import Service
from querywise.storage import save
from tests.commands import refused, run
from tests.emulated import TrainedModels
from tests.emulated import serving as engine_serving
from tests.serving import serving

NAMES = ("words", "clicks", "price")
SHOP: dict[str, dict[str, Any]] = {
    f"D{number}": {"title": f"soap {'jaguar' if number % 2 else 'cat'}", "clicks": 10 * number, "price": 90 - number}
    for number in range(8)
}
FEATURES: Any = [
    {"name": "words", "template": {"match": {"title": "{{keywords}}"}}},
    *(
        {
            "name": each,
            "template": {"function_score": {"query": {"match_all": {}}, "field_value_factor": {"field": each}}},
        }
        for each in ("clicks", "price")
    ),
]
FIRST: Any = {"query": {"match": {"title": "{{keywords}}"}}}
JAGUARS = ["D7", "D5", "D3", "D1"]  # by clicks; the engine has them the other way round, and so has their price


class Shop(TrainedModels):
    """An engine with an index, which can be slow."""

    def __init__(self) -> None:
        super().__init__()
        self.indexes["shop"] = {name: {"_id": name, **each} for name, each in SHOP.items()}
        self.over = threading.Event()

    def answer(self, method: str, path: str, body: str) -> Any:
        if "stuck" in body:
            self.over.wait(60)
        return super().answer(method, path, body)


@pytest.fixture
def engine() -> Shop:
    return Shop()


@pytest.fixture
def url(engine: Shop) -> Iterator[str]:
    with engine_serving(engine) as found:
        yield found
        engine.over.set()


def named(names: tuple[str, ...]) -> Judged:
    data = make_judged(20, 6, 3)
    return replace(data, candidates=replace(data.candidates, feature_names=names))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models by clicks and by price, one of other features, one that needs what no search has, and the files."""
    made = tmp_path_factory.mktemp("gateway")
    data = named(NAMES)
    save(OneFeature("clicks").fit(data), made / "clicks")
    save(OneFeature("price").fit(data), made / "price")
    save(OneFeature(0).fit(make_judged(20, 6, 2)), made / "other")
    save(OneFeature(0).fit(named(("words", "clicks", "colour"))), made / "colour")
    lengths = QueryTable(data.query_ids, columns=np.arange(20.0)[:, None], column_names=("length",))
    save(KnnOnline(RankSVM(), k=5, view=Columns()).fit(data.with_queries(lengths)), made / "columns")
    for name, content in {"features": FEATURES, "first": FIRST, "fixed": {"query": {"match_all": {}}}}.items():
        (made / f"{name}.json").write_text(json.dumps(content))
    return made


def words(url: str, folder: Path, **more: object) -> list[object]:
    files = {"features": folder / "features.json", "first_stage": folder / "first.json"}
    given = {"model": "clicks", "url": url, "index": "shop", **files, **more}
    model = folder / str(given.pop("model"))
    options = [part for name, each in given.items() for part in (f"--{name.replace('_', '-')}", each)]
    return ["opensearch", model, *options]


def ids(answer: dict[str, Any]) -> list[str]:
    return [each["id"] for each in answer["documents"]]


def client(url: str, model: Path, *, seconds: float = 10.0) -> TestClient:
    """The gateway in this process."""
    limits = Limits(seconds=seconds)
    gateway = open_gateway(EngineIndex("opensearch", url, "shop", features=FEATURES, timeout=5.0), FIRST, 4, limits)
    return TestClient(create_app(Service(ModelFolder(model), limits=limits, gateway=gateway)))


def test_the_engine_finds_and_the_model_orders(url: str, folder: Path) -> None:
    with serving(*words(url, folder), command="gateway") as server:
        found = server.get("/v1/hits", q="jaguar", show=3).json()
        assert ids(found) == JAGUARS[:3]
        assert found["documents"][0] == {"id": "D7", "score": 70.0, "source": SHOP["D7"]}
        assert found["model"] == server.get("/v1/model").json()["version"]
        assert set(found) == {"query", "model", "documents"}
        assert server.get("/v1/hits", q="dog").json()["documents"] == []
        assert server.get("/v1/hits", q='jag"uar {{keywords}} \\').json()["documents"] == []
        assert server.get("/v1/hits").status_code == 422
        assert 'gateway_answers_total{outcome="ranked"} 1' in server.get("/metrics").text


def test_only_the_first_candidates_are_ranked(url: str, folder: Path) -> None:
    with client(url, folder / "clicks") as asked:
        assert ids(asked.get("/v1/hits", params={"q": "soap"}).json()) == ["D3", "D2", "D1", "D0"]


def test_two_models_are_drawn_from_and_their_clicks_are_logged(url: str, folder: Path, tmp_path: Path) -> None:
    more = {"against": folder / "price", "log": tmp_path / "log"}
    with serving(*words(url, folder, **more), command="gateway") as server:
        answers = [server.get("/v1/hits", q="jaguar", session=f"s{each}", teams=True).json() for each in range(8)]
        first = {ids(each)[0] for each in answers}
        assert first == {"D7", "D1"}
        for each in answers:
            assert sorted(ids(each)) == sorted(JAGUARS)
            assert [document["source"] for document in each["documents"]] == [SHOP[name] for name in ids(each)]
            event = {"impression": each["impression"], "document": "D7"}
            assert server.post("/v1/events", {"events": [event]}).json()["accepted"] == 1
        again = server.get("/v1/hits", q="jaguar", session="s3").json()
        assert ids(again) == ids(answers[3])
        assert "teams" not in again
        time.sleep(1)  # impressions are written behind their answers
    [draws], _ = read_draws(tmp_path / "log", now=time.time() + 3600)
    assert (len(draws), draws.impressions, int(draws.credits.sum())) == (8, 9, 8)


def test_where_the_model_cannot_rank_the_engines_order_comes_with_a_note(url: str, folder: Path) -> None:
    with client(url, folder / "columns") as asked:
        found = asked.get("/v1/hits", params={"q": "jaguar", "show": 2}).json()
        assert ids(found) == ["D1", "D3"]
        assert found["model"] is None
        assert "needs columns of the queries" in found["note"]
        assert 'outcome="engine"} 1' in asked.get("/metrics").text


def test_an_engine_that_fails_is_said_to_the_user_and_why_in_the_log_alone(
    engine: Shop, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "querywise.service")
    with engine_serving(engine) as url, client(url, folder / "clicks") as asked:
        del engine.indexes["shop"]
        answer = asked.get("/v1/hits", params={"q": "jaguar"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_failed")
        assert "127.0.0.1" not in answer.text
        assert "index_not_found" in caplog.text
        assert asked.get("/healthz").status_code == 200
        assert 'outcome="failed"} 1' in asked.get("/metrics").text


def test_searches_that_the_engine_never_answers_are_given_up_and_others_go_on(url: str, folder: Path) -> None:
    with client(url, folder / "clicks", seconds=0.5) as asked:
        for _ in range(20):
            answer = asked.get("/v1/hits", params={"q": "stuck jaguar"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine_slow")
        assert answer.json()["error"]["message"] == "The search engine took longer than 0.5 seconds."
        assert ids(asked.get("/v1/hits", params={"q": "jaguar"}).json()) == JAGUARS


def test_a_service_without_an_engine_says_so(folder: Path) -> None:
    with TestClient(create_app(Service(ModelFolder(folder / "clicks")))) as asked:
        answer = asked.get("/v1/hits", params={"q": "x"})
        assert answer.status_code == 404
        assert "not started as a gateway" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"url": "http://127.0.0.1:9"}, "http://127.0.0.1:9 does not answer"),
        ({"url": "ftp://here"}, "expected an address like http://localhost:9200"),
        ({"index": "nothing"}, "has no index 'nothing' to search in. Name an existing one."),
        ({"model": "other"}, "The model takes 2 features without names; the engine computes words, clicks, price."),
        ({"model": "colour"}, "The model takes the feature 'colour'; the engine computes words, clicks, price."),
        (
            {"first_stage": "fixed.json"},
            "The first stage must be a search with {{keywords}} for the user's words, like",
        ),
        ({"first_stage": "features.json"}, "The first stage must be a search with {{keywords}}"),
        ({"first_stage": "absent.json"}, "absent.json"),
        ({"features": "first.json"}, "The features must be a list"),
        ({"header": "secret"}, "--header: expected 'Name: value'"),
        ({"against": "price"}, "name a folder to log them to: --log FOLDER."),
        (
            {"against": "other", "log": "log"},
            "the features of this model are not those of the model that it is compared with",
        ),
        ({"model": "nowhere"}, "nowhere"),
    ],
)
def test_a_mistake_is_refused_at_the_start(
    url: str, folder: Path, tmp_path: Path, changed: dict[str, str], said: str
) -> None:
    given: dict[str, object] = {"url": url, **changed}
    given |= {name: folder / changed[name] for name in ("first_stage", "features", "against") if name in changed}
    given |= {"log": tmp_path / "log"} if "log" in changed else {}
    asked = words(str(given.pop("url")), folder, **given)
    assert said in refused(run(folder, "gateway", *asked, "--port", 0))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["solar"], "Unknown engine 'solar'. Known: opensearch, elasticsearch, solr."),
        (["solr"], "Solr logs the features of a store"),
        (["solr", "--store", "s"], "The first stage must be a search with $keywords for the user's words"),
    ],
)
def test_an_engine_that_is_not_known_or_lacks_its_words_is_refused(
    url: str, folder: Path, changed: list[str], said: str
) -> None:
    given = words(url, folder)[1:]
    if "--store" in changed:
        place = given.index("--features")
        del given[place : place + 2]
    assert said in refused(run(folder, "gateway", changed[0], *given, *changed[1:]))
