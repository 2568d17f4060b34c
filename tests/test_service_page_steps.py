"""Stepping through judged queries on the page, by gain and loss."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from querywise.storage import load, save
from tests.fruit import write_served
from tests.serving import Serving, serving

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stepped")
    write_served(made)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Serving]:
    known = ("--data", folder / "judged.txt", "--queries", folder / "queries.jsonl")
    with serving(folder / "local", "--index", folder / "index", *known) as found:
        yield found


def by_gain(server: Serving, against: str) -> list[tuple[str, float]]:
    """The queries from the greatest gain on; those that gain as much in their order."""
    said: dict[str, Any] = server.get("/v1/differences").json()
    gains = [(each["id"], each["value"] - each["others"][against]) for each in said["queries"]]
    return sorted(gains, key=lambda each: -each[1])


def is_at(page: Page, query: str, by: str) -> None:
    expect(page).to_have_url(re.compile(rf"\?qid={query}&by={by}$"))
    expect(page.locator("#columns")).not_to_have_class(re.compile("waiting"))


def test_buttons_and_keys_go_from_the_greatest_gain_or_loss_to_the_next(page: Page, server: Serving) -> None:
    order = by_gain(server, "everyone")
    assert order[0][1] > 0
    page.goto(server.url)
    page.get_by_label("Judged queries by", exact=True).select_option("gain")
    is_at(page, order[0][0], "gain")
    expect(page.locator("#standing")).to_have_text(
        re.compile(r"^1 of 25 queries: NDCG@10 1\.00 by the model, 0\.631 un")
    )
    assert float(page.locator("#standing data").last.get_attribute("value") or "nan") == order[0][1]
    page.get_by_role("button", name="Next").click()
    is_at(page, order[1][0], "gain")
    expect(page.get_by_role("button", name="Next")).to_be_focused()
    page.keyboard.press("n")
    is_at(page, order[2][0], "gain")
    page.keyboard.press("p")
    is_at(page, order[1][0], "gain")
    page.get_by_role("button", name="Previous").click()
    is_at(page, order[0][0], "gain")
    page.keyboard.press("p")
    expect(page.get_by_role("status")).to_have_text("There is no earlier query.")
    shown = page.locator("#standing data").last
    highest = shown.get_attribute("value") or ""
    page.get_by_label("Judged queries by", exact=True).select_option("loss")
    expect(page).to_have_url(re.compile("by=loss$"))
    expect(shown).not_to_have_attribute("value", highest)
    expect(page.locator("#standing")).to_contain_text("1 of 25")
    lowest = float(shown.get_attribute("value") or "nan")
    assert lowest == order[-1][1] == min(gain for _, gain in order)


def test_the_place_is_kept_over_a_reload_and_goes_by_the_order_beside(page: Page, server: Serving) -> None:
    order = by_gain(server, "bm25")
    page.goto(f"{server.url}/?qid={order[1][0]}&by=gain")
    expect(page.locator("#standing")).to_contain_text("under one model for all")
    page.locator("#beside").select_option("bm25")
    expect(page.locator("#standing")).to_contain_text("2 of 25")
    expect(page.locator("#standing")).to_contain_text("in the order of BM25")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Next").click()
    is_at(page, order[2][0], "gain")
    expect(page.locator("#beside")).to_have_value("bm25")


def test_nothing_is_computed_before_somebody_steps_and_letters_can_be_typed(page: Page, server: Serving) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{server.url}/?qid=buy-fig")
    page.wait_for_selector("#ours li[data-id]")
    page.locator("#box").fill("")
    page.locator("#box").press_sequentially("nap")
    expect(page.locator("#box")).to_have_value("nap")
    assert not [url for url in asked if "differences" in url]


def test_a_model_that_is_replaced_meanwhile_is_stepped_through_anew(page: Page, folder: Path) -> None:
    shutil.copytree(folder / "local", folder / "changing")
    known = ("--data", folder / "judged.txt", "--queries", folder / "queries.jsonl")
    with serving(folder / "changing", "--index", folder / "index", *known) as server:
        page.goto(server.url)
        page.get_by_label("Judged queries by", exact=True).select_option("gain")
        expect(page.locator("#standing")).to_contain_text("under one model for all")
        save(load(folder / "single"), folder / "changing")
        before = page.locator("#model code").inner_text()
        while server.get("/v1/model").json()["version"] == before:
            page.wait_for_timeout(100)
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Next").click()
        expect(page.locator("#model code")).not_to_have_text(before)
        page.get_by_role("button", name="Next").click()
        expect(page.locator("#standing")).to_contain_text("in the order of BM25")
        assert page.locator("#theirs li").count() == 10


def test_without_judged_queries_there_is_nothing_to_step_through(page: Page, folder: Path) -> None:
    with serving(folder / "local", "--index", folder / "index") as server:
        page.goto(f"{server.url}/?q=fig")
        page.wait_for_selector("#ours li[data-id]")
        expect(page.locator("#steps")).to_be_hidden()
        page.keyboard.press("n")
        assert page.url.endswith("?q=fig")
