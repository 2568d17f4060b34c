"""docs/engines/gateway.md in a real Solr: candidates from the engine, the order from a model."""

from __future__ import annotations

import json

import pytest

from tests.engines import pages, shop
from tests.engines.gateways import Page
from tests.engines.solr import Solr


@pytest.fixture(scope="module")
def page(node: Solr, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page followed up to the model, with the features of Solr's own page."""
    node.create("gateway", defaults={"df": "body", "qf": "title^2 body"})
    node.fill("gateway", shop.documents())
    features = [block.text for block in pages.blocks("solr") if block.language == "json" and '"store"' in block.text]
    node.ask("PUT", "gateway/schema/feature-store", json.loads(features[0]))
    node.reload("gateway")
    made = Page("solr", node.url, "gateway", tmp_path_factory.mktemp("gateway"))
    made.fit()
    return made


def test_the_order_is_that_of_the_model_for_the_engines_candidates(node: Solr, page: Page) -> None:
    first = json.loads((page.folder / "first-stage.json").read_text())

    def own(text: str) -> list[str]:
        asked = {**first, "defType": "lucene", "keywords": text.replace("${", "$ {"), "rows": "100", "fl": "id"}
        return [each["id"] for each in node.select("gateway", asked)]

    with page.gateway() as server:
        page.check_order(server, own)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"index": "nothing"}, "has no collection 'nothing' to search in"),
        ({"store": "nothing"}, "'nothing' has no features"),
        ({"first_stage": "wrong.json"}, "400"),
    ],
)
def test_what_the_engine_refuses_is_told_at_the_start(page: Page, changed: dict[str, str], said: str) -> None:
    (page.folder / "wrong.json").write_text('{"q": "{!nonsense v=$keywords}"}')
    assert said in page.refused(**changed)
