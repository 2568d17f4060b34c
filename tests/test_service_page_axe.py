"""The page of the service for all who look at it: what axe-core finds, and features that say what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.axe import violations
from tests.fruit import write_served
from tests.serving import Serving, serving

pytestmark = pytest.mark.browser
TOKEN = "open-sesame"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("looked-at")
    write_served(folder)
    known = ("--data", folder / "judged.txt", "--queries", folder / "queries.jsonl")
    judging = ("--judge", folder / "given.qrels")
    with serving(folder / "local", "--index", folder / "index", *known, *judging, token=TOKEN) as found:
        yield found


@pytest.fixture
def page(browser: Browser, server: Serving) -> Iterator[Page]:
    """A window that knows the token, and lets axe-core in."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, bypass_csp=True, reduced_motion="reduce")
    context.set_default_timeout(40_000)
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.goto(f"{server.url}/docs")
    made.evaluate(f"sessionStorage.setItem('querywise.token', '{TOKEN}')")
    yield made
    context.close()
    assert wrong == []


def opened(page: Page, server: Serving, path: str, until: str) -> None:
    page.goto(server.url + path)
    page.wait_for_selector(until)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page: Page, server: Serving, scheme: Any, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    found = {}
    for name, path, until in (
        ("welcome", "/", "#examples a"),
        ("results", "/?qid=grow-fig&by=gain", "#standing data"),
        ("nothing", "/?q=nowhere", "#nothing:not([hidden])"),
        ("problem", "/?qid=nobody", "#problem:not([hidden])"),
        ("reference", "/docs", "#bodies section"),
    ):
        opened(page, server, path, until)
        found[name] = violations(page)
    opened(page, server, "/?qid=grow-fig", "#ours li[data-id] .give")
    page.locator("#ours .give").nth(1).click()
    expect(page.locator("#status")).to_contain_text("fig trees: ")  # a grade, or none again
    found["judged"] = violations(page)
    page.locator("#departures .meant").first.focus()
    found["a feature explained"] = violations(page)
    page.locator(".ask").first.click()
    page.wait_for_selector("#reason .sum")
    page.locator("#reason .meant").first.focus()
    found["why"] = violations(page)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.locator("#box").fill("")
    page.locator("#box").press_sequentially("fig")
    page.wait_for_selector("#suggestions:not([hidden])")
    found["suggestions"] = violations(page)
    assert {name: each for name, each in found.items() if each} == {}


def test_axe_finds_what_is_wrong(page: Page, server: Serving) -> None:
    opened(page, server, "/?qid=grow-fig", "#ours li[data-id]")
    page.evaluate("document.getElementById('beside-line').querySelector('label').remove()")
    assert [rule for rule, _ in violations(page)] == ["select-name"]


def test_a_feature_says_what_it_means_to_pointer_and_keyboard(page: Page, server: Serving) -> None:
    opened(page, server, "/?qid=grow-fig", "#departures li")
    feature = page.locator("#departures .feature").filter(has_text="length.body")
    button, meaning = feature.get_by_role("button"), feature.get_by_role("tooltip", include_hidden=True)
    assert button.get_attribute("aria-describedby") == meaning.get_attribute("id")
    expect(meaning).to_be_hidden()
    button.hover()
    expect(meaning).to_be_visible()
    expect(meaning).to_have_text("How many words the text has.")
    meaning.hover()
    expect(meaning).to_be_visible()
    page.mouse.move(5, 5)
    expect(meaning).to_be_hidden()
    button.focus()
    expect(meaning).to_be_visible()
    page.keyboard.press("Escape")
    expect(meaning).to_be_hidden()
    page.keyboard.press("Enter")
    expect(meaning).to_be_visible()
    own = page.locator("#departures li, .terms li").filter(has_text="stock")
    assert own.get_by_role("button").count() == 0, "nobody knows what a column of one's own means"


def test_escape_closes_the_meaning_first_and_then_the_dialog(page: Page, server: Serving) -> None:
    opened(page, server, "/?qid=grow-fig", "#ours li[data-id]")
    page.locator(".ask").first.click()
    page.wait_for_selector("#reason .sum")
    page.mouse.move(5, 5)
    page.locator("#reason .meant").first.focus()
    expect(page.locator("#reason .meaning").first).to_be_visible()
    box, around = page.locator("#reason .meaning").first.bounding_box(), page.locator("#why").bounding_box()
    assert box is not None
    assert around is not None
    assert around["x"] <= box["x"]
    assert box["x"] + box["width"] <= around["x"] + around["width"]
    page.keyboard.press("Escape")
    expect(page.locator("#reason .meaning").first).to_be_hidden()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
