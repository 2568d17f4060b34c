"""What the page shows of a query whose vector learned: the judged queries that moved it, and what that changed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from querywise.data.collections import Collection, Document, write_collection
from querywise.data.judgements import Judgement
from querywise.data.query_table import QueryTable
from tests.fruit import FRUIT
from tests.serving import COMMAND, Serving, serving

pytestmark = pytest.mark.browser
QUERY = "buy a ripe fig"


def collection() -> Collection:
    """Whoever buys wants the shop's page, which speaks of other things."""
    words = {"shop": "sold here fresh in crates", "farm": "buy land and raise ripe", "tale": "a ripe story to buy of"}
    documents = [
        Document(f"{kind}-{fruit}", f"{fruit} {kind}", f"{own} {fruit}")
        for fruit in FRUIT
        for kind, own in words.items()
    ]
    asked = [(f"{way}-{fruit}", f"{way} a ripe {fruit}") for fruit in FRUIT for way in ("buy", "get")]
    judgements = tuple(Judgement(query, f"shop-{text.split()[-1]}", 1, "here") for query, text in asked)
    ids, texts = zip(*asked, strict=True)
    return Collection("fruit", lambda: documents, QueryTable(ids, texts), judgements)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A model whose query vectors learned, and an index that embeds queries."""
    folder = tmp_path_factory.mktemp("moved")
    write_collection(collection(), folder / "fruit")
    for words in (
        ("index", folder / "fruit", "--embed", "lsa:8", "--out", folder / "index"),
        (
            "fit",
            folder / "fruit",
            "--embed",
            "lsa:8",
            "--adapt",
            "by-query",
            "--method",
            "single",
            "--out",
            folder / "m",
        ),
    ):
        subprocess.run([COMMAND, *map(str, words), "--quiet"], check=True)
    with serving(folder / "m", "--index", folder / "index", "--queries", folder / "fruit" / "queries.jsonl") as found:
        yield found


def told(server: Serving, query: str = QUERY) -> dict[str, Any]:
    found: dict[str, Any] = server.post("/v1/vector", {"query": {"text": query}, "explain": True}).json()["shift"]
    return found


def test_the_judged_queries_that_moved_a_query_and_what_that_changed(page: Page, server: Serving) -> None:
    shift = told(server)
    assert shift["gained"], "else there is nothing to see"
    assert [each["share"] for each in shift["pulls"]] == sorted((each["share"] for each in shift["pulls"]), key=abs)[
        ::-1
    ]
    page.goto(f"{server.url}/?q={QUERY}")
    expect(page.locator("#moved-title")).to_be_visible()
    assert float(page.locator("#moved-lead data").get_attribute("value") or "nan") == shift["cosine"]
    assert all(each["query"]["id"].split("-")[1] == each["query"]["text"].split()[-1] for each in shift["pulls"])
    pulls = page.locator("#pulls li")
    assert pulls.locator("code").all_inner_texts() == [each["query"]["id"] for each in shift["pulls"]]
    shares = [float(each.get_attribute("value") or "nan") for each in pulls.locator("span:nth-of-type(2) data").all()]
    assert shares == [each["share"] for each in shift["pulls"]]
    shown = page.locator("#shifted li code").all_inner_texts()
    assert shown == [each["id"] for name in ("gained", "lost") for each in shift[name]]
    first = shift["gained"][0]
    assert first["rank"] <= 10 < (first["rank_plain"] or 101)
    expect(page.locator("#shifted .move.up").first).to_contain_text(
        f"{first['rank_plain'] or 'below 100'} → {first['rank']}"
    )
    assert page.locator("#shifted .move.down").count() == len(shift["lost"])


def test_documents_gained_and_lost_are_those_of_the_two_lists(server: Serving) -> None:
    shift = told(server)
    assert len(shift["gained"]) == len(shift["lost"])
    for each in shift["lost"]:
        assert each["rank_plain"] <= 10 < (each["rank"] or 101)
    without = server.post("/v1/vector", {"query": {"text": QUERY}}).json()
    assert without["shift"] is None


@pytest.mark.parametrize("width", [390, 1280])
def test_what_moved_a_query_is_within_the_screen(page: Page, server: Serving, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{server.url}/?q={QUERY}")
    expect(page.locator("#shifted li").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_query_that_led_here_can_be_asked(page: Page, server: Serving) -> None:
    page.goto(f"{server.url}/?q={QUERY}")
    page.locator("#pulls a").filter(has_not_text=QUERY).first.click()  # the query itself is a judged one too
    expect(page.locator("#query")).not_to_contain_text(QUERY)
    expect(page.locator("#pulls li").first).to_be_visible()
