"""The name of the model in an engine over HTTP: what the router of the export says, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from querywise import KnnOffline2, RankSVM, Router, TextView, export_model
from querywise.rankers.clusters import QueryClasses
from querywise.rankers.wrappers import QueryNormalised
from querywise.storage import save
from tests.serving import Serving, serving
from tests.support.exports import world

pytestmark = pytest.mark.slow  # several servers


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exports of models that go by text, by documents and by class."""
    folder, data = tmp_path_factory.mktemp("route"), world()
    for name, ranker in (
        ("text", KnnOffline2(RankSVM(), k=0.3, models=12, view=TextView(5))),
        ("documents", KnnOffline2(RankSVM(), k=0.3, models=4)),
        ("class", QueryClasses(RankSVM(), view=TextView(5), known=True)),
    ):
        export_model(ranker.fit(data), "opensearch", folder / name, name="shop", data=data)
    return folder


@pytest.fixture(scope="module")
def by_text(exports: Path) -> Iterator[Serving]:
    with serving(exports / "text" / "model") as server:
        yield server


def test_the_name_is_that_of_the_router(exports: Path, by_text: Serving) -> None:
    router, names = Router(exports / "text"), set()
    for number in range(12):
        text = f"{('how to install', 'jaguar', 'price of', 'define')[number % 4]} thing {number}"
        answer = by_text.post("/v1/route", {"query": {"text": text}, "name": "shop"}).json()
        assert answer["name"] == router.model(text)
        assert answer["model"] == by_text.get("/v1/model").json()["version"]
        names.add(answer["name"])
    assert len(names) > 1
    assert by_text.post("/v1/route", {"query": {"text": "jaguar"}}).json()["name"].startswith("querywise-")


def test_a_query_without_what_routing_depends_on_is_refused(exports: Path, by_text: Serving) -> None:
    answer = by_text.post("/v1/route", {"query": {"id": "7"}})
    assert answer.status_code == 422
    assert "routes on the query's text; its text was not given" in answer.text
    for name in ("No Name", "shop\n", "\nshop"):
        assert by_text.post("/v1/route", {"query": {"text": "a"}, "name": name}).status_code == 422


def test_documents_and_classes_choose_as_the_router_does(exports: Path) -> None:
    names = world().candidates.feature_names or ()
    features = [dict(zip(names, row, strict=True)) for row in world(2).candidates.features[:6].tolist()]
    with serving(exports / "documents" / "model") as server:
        sent = [{"id": str(place), "features": each} for place, each in enumerate(features)]
        answer = server.post("/v1/route", {"query": {"text": "a"}, "name": "shop", "documents": sent}).json()
        assert answer["name"] == Router(exports / "documents").model(documents=features)
        refused = server.post("/v1/route", {"query": {"text": "a"}})
        assert refused.status_code == 422
        assert "its documents were not given" in refused.text
    with serving(exports / "class" / "model") as server:
        answer = server.post("/v1/route", {"query": {"class": "navigational"}, "name": "shop"}).json()
        assert answer["name"] == Router(exports / "class").model(query_class="navigational")


def test_models_that_no_engine_runs_have_no_name_there(tmp_path: Path) -> None:
    save(QueryNormalised(RankSVM()).fit(world()), tmp_path / "whole-list")
    with serving(tmp_path / "whole-list") as server:
        answer = server.post("/v1/route", {"query": {"text": "a"}})
    assert answer.status_code == 422
    assert "cannot be exported" in answer.text
    save(RankSVM().fit(world()), tmp_path / "one")
    with serving(tmp_path / "one") as server:
        assert server.post("/v1/route", {"query": {}, "name": "shop"}).json()["name"] == "shop"
