"""docs/engines/gateway.md in a real OpenSearch: candidates from the engine, the order from a model."""

from __future__ import annotations

import pytest

from querywise.online.outcomes import read_draws
from tests import commands
from tests.engines import shop
from tests.engines.gateways import Page
from tests.engines.opensearch import OpenSearch


@pytest.fixture(scope="module")
def page(search: OpenSearch, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page followed up to the model."""
    search.ask("PUT", "gateway", {"settings": {"number_of_shards": 1}})
    search.fill("gateway", shop.documents())
    made = Page("opensearch", search.url, "gateway", tmp_path_factory.mktemp("gateway"))
    made.fit()
    return made


def test_the_order_is_that_of_the_model_for_the_engines_candidates(search: OpenSearch, page: Page) -> None:
    def own(text: str) -> list[str]:
        first = {"multi_match": {"query": text, "fields": ["title", "body"]}}
        found = search.ask("POST", "gateway/_search", {"size": 100, "query": first, "_source": False})
        return [hit["_id"] for hit in found["hits"]["hits"]]

    with page.gateway() as server:
        page.check_order(server, own)


def test_two_models_are_compared_in_front_of_the_engine(page: Page) -> None:
    for name, l2 in (("a", 0.01), ("b", 1000)):
        done = commands.run(
            page.folder, "fit", "log.parquet", "--method", "ranksvm", "--set", f"l2={l2}", "--out", name
        )
        assert done.returncode == 0, done.stderr
    with page.gateway("--against") as server:
        found = server.get("/v1/hits", q="car paint", session="s").json()
        event = {"impression": found["impression"], "document": found["documents"][0]["id"]}
        assert server.post("/v1/events", {"events": [event]}).json()["accepted"] == 1
    draws, noted = read_draws(page.folder / "log")
    assert len(draws) == 1
    assert noted.unsigned == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"index": "nothing"}, "has no index 'nothing' to search in"),
        ({"features": "wrong.json"}, "unknown query [mtach]"),
        ({"first_stage": "wrong-stage.json"}, "unknown query [mtach]"),
    ],
)
def test_what_the_engine_refuses_is_told_at_the_start(page: Page, changed: dict[str, str], said: str) -> None:
    broken = '{"mtach": {"title": "{{keywords}}"}}'
    (page.folder / "wrong.json").write_text(f'[{{"name": "title", "template": {broken}}}]')
    (page.folder / "wrong-stage.json").write_text(f'{{"query": {broken}}}')
    assert said in page.refused(**changed)
