"""The judging page in a browser: two judges, by keyboard alone, to the end of a draw and back out as qrels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from querywise.data.judgements import read_grades
from tests.axe import violations
from tests.desk import MARKUP, PAIRS, TOKEN, words, write_desk
from tests.serving import Serving, serving

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("service page")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_desk(tmp_path)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[Serving]:
    with serving(*words(folder), token=TOKEN) as found:
        yield found


def window(browser: Browser, **more: Any) -> Page:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce", **more)
    context.set_default_timeout(40_000)
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    return page


def entered(page: Page, server: Serving, name: str) -> None:
    """Give the token and a name, by keyboard alone."""
    page.goto(server.url)
    expect(page.locator("#token-box")).to_be_focused()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#name-box")).to_be_focused()
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    settled(page)


def settled(page: Page) -> None:
    expect(page.locator("#judging")).to_be_visible()
    expect(page.locator("#main")).to_have_attribute("aria-busy", "false")


def press(page: Page, key: str) -> None:
    page.keyboard.press(key)
    page.wait_for_timeout(20)
    settled(page)


def rows(page: Page, panel: str) -> list[list[str]]:
    table = page.locator(f"#{panel}-panel tbody tr")
    return [each.locator("td").all_inner_texts() for each in table.all()]


def taken_out(page: Page, name: str, folder: Path) -> Path:
    with page.expect_download() as download:
        page.get_by_role("button", name=name, exact=True).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_two_judges_walk_to_the_end_by_keyboard_and_their_grades_are_read_back(
    browser: Browser, server: Serving, folder: Path
) -> None:
    ann = window(browser)
    entered(ann, server, "ann lee")
    expect(ann.locator("#who-name")).to_have_text("ann_lee")
    expect(ann.locator("#far")).to_have_text("1 of 12 documents, 12 left")
    first = ann.locator("#paper-title").inner_text()
    press(ann, "s")
    expect(ann.locator("#far")).to_have_text("2 of 12 documents, 12 left")
    press(ann, "p")
    expect(ann.locator("#paper-title")).to_have_text(first)
    press(ann, "ArrowRight")
    for number in range(11):
        press(ann, str(number % 4))
    expect(ann.locator("#far")).to_have_text("1 of 12 documents, 1 left")
    expect(ann.locator("#paper-title")).to_have_text(first)
    press(ann, "9")
    expect(ann.locator("#far")).to_have_text("1 of 12 documents, 1 left")
    press(ann, "2")
    expect(ann.locator("#all-done")).to_have_text(re.compile("You have graded all 12 documents"))
    assert rows(ann, "progress") == [
        ["by somebody", "12", "0"],
        ["by two or more", "0", "12"],
        ["by ann_lee (you)", "12", "0"],
    ]
    expect(ann.locator("#progress-panel")).to_contain_text("without a gap: 12 of 12 documents now")

    bob = window(browser)
    entered(bob, server, "bob")
    for number in range(12):
        expect(bob.locator("#others")).to_be_hidden()
        press(bob, str(number % 3))
    expect(bob.locator("#others")).to_have_text(re.compile(r"Grades of others: ann_lee [0-3]\."))
    expect(bob.locator("#agreement-panel tbody td").last).to_have_text(
        re.compile(r"^−?[\d.]+ \(−?[\d.]+ to −?[\d.]+\)$")
    )
    assert rows(bob, "agreement")[0][:2] == ["ann_lee, bob", "12"]

    expect(bob.locator("#standing-panel")).to_contain_text("Say before how many you will judge")
    bob.get_by_role("button", name="Look", exact=True).click()
    expect(bob.locator("#standing-panel .said").first).to_have_text("12 of 12 documents drawn are judged.")
    log = (folder / "given.qrels.judged-log").read_text()
    by_bob = read_grades(taken_out(bob, "bob", folder))
    assert sum(map(len, by_bob.values())) == 12
    for query, document in PAIRS:
        assert f"{query} bob {document} {by_bob[query][document]}\n" in log
    assert read_grades(taken_out(bob, "All, median", folder)) == read_grades(folder / "given.qrels")


def test_undo_notes_and_help_by_keyboard_and_the_name_is_kept(browser: Browser, server: Serving, folder: Path) -> None:
    page = window(browser)
    entered(page, server, "ann")
    title = page.locator("#paper-title").inner_text()
    press(page, "3")
    expect(page.locator("#last")).to_contain_text("has your grade 3")
    press(page, "u")
    expect(page.locator("#paper-title")).to_have_text(title)
    expect(page.locator(".mark[aria-pressed=true]")).to_have_count(0)
    press(page, "u")
    expect(page.locator("#wrong")).to_have_text("There is no grade of ann to take back.")
    press(page, "e")
    expect(page.locator("#note-box")).to_be_focused()
    page.keyboard.type(f"3 times {MARKUP}")
    press(page, "Control+Enter")
    expect(page.locator("#note-open")).to_have_class("noted")
    press(page, "e")
    page.keyboard.type("no more")
    press(page, "Escape")
    expect(page.locator("#note-box")).to_have_value(f"3 times {MARKUP}")
    press(page, "?")
    expect(page.get_by_role("dialog")).to_contain_text("skip: it comes again at the end")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    press(page, "1")
    page.reload()
    settled(page)
    expect(page.locator("#who-name")).to_have_text("ann")
    expect(page.locator("#far")).to_have_text("2 of 12 documents, 11 left")
    press(page, "p")
    expect(page.locator(".mark[aria-pressed=true] strong")).to_have_text("1")
    press(page, "x")
    expect(page.locator(".mark[aria-pressed=true]")).to_have_count(0)
    notes = taken_out(page, "Notes", folder).read_text()
    assert f'"3 times {MARKUP}"' in notes or f"3 times {MARKUP}" in notes
    assert "undo\n" in (folder / "given.qrels.judged-log").read_text()


def test_what_texts_hold_is_shown_as_text_and_a_wrong_name_is_told(browser: Browser, server: Serving) -> None:
    page = window(browser)
    entered(page, server, "ann")
    seen = set()
    for _ in range(11):
        seen |= {page.locator("#asked").inner_text(), page.locator("#paper-title").inner_text()}
        press(page, "n")
    assert MARKUP in seen
    assert page.locator("#sheet img").count() == 0
    page.get_by_role("button", name="change").click()
    page.locator("#name-box").fill("<b>eve</b>")
    page.keyboard.press("Enter")
    expect(page.locator("#name-wrong")).to_contain_text("A judge's name has 1 to 40 letters")
    page.locator("#name-box").fill("eve")
    page.keyboard.press("Enter")
    settled(page)
    expect(page.locator("#who-name")).to_have_text("eve")


def test_a_service_that_is_gone_is_told_and_the_grade_can_be_given_again(browser: Browser, folder: Path) -> None:
    page = window(browser)
    with serving(*words(folder), token=TOKEN) as server:
        entered(page, server, "ann")
    press(page, "2")
    expect(page.locator("#wrong")).to_contain_text("cannot be reached. Is it still running?")
    expect(page.locator(".mark[aria-pressed=true]")).to_have_count(0)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_all_is_within_the_screen(
    browser: Browser, server: Serving, scheme: Any, width: int
) -> None:
    page = window(browser, bypass_csp=True, color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(server.url)
    page.wait_for_selector("#token:not([hidden])")
    found = {"token": violations(page)}
    entered(page, server, "ann")
    press(page, "1")
    press(page, "p")
    press(page, "e")
    found["a pair"] = violations(page)
    page.locator("#paper").focus()
    press(page, "?")
    found["keys"] = violations(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="change").click()
    page.wait_for_selector("#known-names button")
    found["name"] = violations(page)
    assert {name: each for name, each in found.items() if each} == {}
    inside, shown = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert inside <= shown
