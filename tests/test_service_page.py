"""The page of the service in a browser, over a real server, as its visitors see it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.fruit import LONG, MARKUP, write_served

pytestmark = pytest.mark.browser

QUERYWISE = str(Path(sys.executable).with_name("querywise"))
TOKEN = "open-sesame"
QUERY = "grow fig juice"


def started(*words: object, log: Path) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name != "QUERYWISE_TOKEN"}
    command = [QUERYWISE, "serve", *map(str, words), "--port", "0"]
    with log.open("wb") as out:
        return subprocess.Popen(command, env=environment, stdout=out, stderr=out)


def address(process: subprocess.Popen[bytes], log: Path, *, minutes: int = 1) -> str:
    """Where a server listens, once it does."""
    for _ in range(600 * minutes):
        found = re.search(r"on (http://[\d.:]+)", log.read_text())
        if found:
            return found[1]
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"not listening after {minutes} minutes: {log.read_text()}")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Servers: to `search`, to `choose` judged queries from, to `judge`, and a `bare` one; these two have a token."""
    folder = tmp_path_factory.mktemp("served")
    write_served(folder)
    (folder / "token").write_text(TOKEN)
    known = ("--data", folder / "judged.txt", "--queries", folder / "queries.jsonl")
    judging = ("--judge", folder / "given.qrels")
    asked: dict[str, tuple[object, ...]] = {
        "search": (folder / "local", "--index", folder / "index", *known),
        "choose": (folder / "single", *known),
        "judge": (folder / "local", "--index", folder / "index", *known, "--token-file", folder / "token", *judging),
        "bare": (folder / "local", "--token-file", folder / "token"),
    }
    running = {name: started(*words, log=folder / f"{name}.log") for name, words in asked.items()}
    try:
        yield {name: address(process, folder / f"{name}.log") for name, process in running.items()} | {
            "folder": str(folder)
        }
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait(timeout=60)


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    made.set_default_timeout(40_000)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A window in which nothing goes wrong unseen."""
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("dialog", lambda dialog: wrong.append(dialog.message))
    yield opened
    assert wrong == []


def answer(base: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    sent = None if body is None else json.dumps(body).encode()
    with urlopen(Request(base + path, data=sent, headers={"content-type": "application/json"})) as got:
        said: dict[str, Any] = json.load(got)
        return said


def searched(page: Page, base: str, query: str = QUERY) -> dict[str, Any]:
    """Open the page at a query; what the service says of it."""
    page.goto(f"{base}/?{urlencode({'q': query})}")
    page.wait_for_selector("#ours li[data-id]")
    return answer(base, f"/v1/search?q={quote(query)}")


def ids(page: Page, side: str) -> list[str]:
    return [each.get_attribute("data-id") or "" for each in page.locator(f"#{side} > li").all()]


def values(place: Locator) -> list[float]:
    """The numbers in a place, as the service gave them; what is written is them, rounded."""
    exact = [float(each.get_attribute("value") or "nan") for each in place.locator("data").all()]
    for number, text in zip(exact, place.locator("data").all_inner_texts(), strict=True):
        read = float(text.replace("−", "-").replace("+", "").removesuffix(" %"))
        meant = 100 * number if text.endswith("%") else number
        assert read == pytest.approx(meant, rel=0.06, abs=1e-6), (text, number)
    return exact


def is_within_the_screen(page: Page) -> bool:
    inside, shown = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    return bool(inside <= shown)


# Searching


def test_a_first_visit_says_what_to_do_and_a_click_does_it(page: Page, servers: dict[str, str]) -> None:
    page.goto(servers["search"])
    expect(page.get_by_role("heading", level=1)).to_have_text("What does a query’s own model change?")
    expect(page.locator("#model")).to_contain_text("KnnOnline · 28 features")
    examples = page.locator("#examples a")
    assert examples.count() == 6
    assert {each.locator(".kind").inner_text() for each in examples.all()} == {"buy", "grow"}
    examples.first.click()
    page.wait_for_selector("#ours li[data-id]")
    assert "qid=" in page.url


def test_a_search_shows_both_orders_as_the_service_has_them(page: Page, servers: dict[str, str]) -> None:
    page.goto(servers["search"])
    page.locator("#box").fill(QUERY)
    page.keyboard.press("Enter")
    page.wait_for_selector("#ours li[data-id]")
    assert page.url.endswith("/?q=grow+fig+juice")
    found = answer(servers["search"], f"/v1/search?q={quote(QUERY)}")["documents"]
    by_rank = {name: {each[name]: each["id"] for each in found} for name in ("rank", "rank_everyone")}
    assert ids(page, "ours") == [by_rank["rank"][place] for place in range(1, 11)]
    assert ids(page, "theirs") == [by_rank["rank_everyone"][place] for place in range(1, 11)]
    assert ids(page, "ours") != ids(page, "theirs"), "else there is nothing to see in this test"
    assert page.locator(".grade").count() == 0, "nobody judged what a search finds"
    boxes = [page.locator(f"#{side}").bounding_box() for side in ("theirs", "ours")]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"], "side by side"
    expect(page.get_by_role("status")).to_contain_text("10 documents")
    assert page.title() == f"{QUERY} – querywise"


def test_every_document_says_how_far_it_moved_in_colour_sign_and_words(page: Page, servers: dict[str, str]) -> None:
    found = searched(page, servers["search"])
    seen = set()
    for each in found["documents"]:
        if each["rank"] > 10:
            continue
        mark = page.locator(f"#ours li[data-id='{each['id']}'] .move")
        by = each["rank_everyone"] - each["rank"]
        heard = mark.locator(".unseen").inner_text()
        seen.add((by > 0) - (by < 0))
        if by == 0:
            assert heard == "in the same place"
            continue
        assert mark.locator("[aria-hidden]").first.inner_text() == f"{'▲' if by > 0 else '▼'} {abs(by)}"
        assert heard.startswith(f"{abs(by)} place{'' if abs(by) == 1 else 's'} {'up' if by > 0 else 'down'} from ")
        assert ("new in this list" in heard) == (each["rank_everyone"] > 10)
    assert {1, -1} <= seen
    up, down = (
        page.locator(f"#ours .move.{way}").first.evaluate("(mark) => getComputedStyle(mark).color")
        for way in ("up", "down")
    )
    assert up != down


def test_a_document_under_the_pointer_is_lit_in_both_lists(page: Page, servers: dict[str, str]) -> None:
    searched(page, servers["search"])
    both = next(each for each in ids(page, "ours") if each in ids(page, "theirs"))
    page.locator(f"#ours li[data-id='{both}'] .title").hover()
    assert page.locator("#columns li.lit").count() == 2
    assert page.locator("#ties path.lit").count() == 1
    page.get_by_role("heading", level=1).hover()
    assert page.locator("#columns .lit").count() == 0


def test_more_documents_are_shown_until_there_are_no_more(page: Page, servers: dict[str, str]) -> None:
    assert searched(page, servers["search"])["candidates"] == 26
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("#ours > li")).to_have_count(26)
    expect(page.locator("#theirs > li")).to_have_count(26)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    assert page.evaluate("document.activeElement.dataset.id") == ids(page, "ours")[10]


def test_what_is_particular_to_the_query_is_in_the_service_s_numbers(page: Page, servers: dict[str, str]) -> None:
    found = searched(page, servers["search"])
    told = found["explanation"]
    count = told["counts"]["neighbours"]
    expect(page.locator("#own-lead")).to_contain_text(f"trained on {count} training queries")
    items = page.locator("#neighbours li")
    assert items.count() == len(told["neighbours"]) > 3
    for item, each, known in zip(items.all(), told["neighbours"], found["neighbours"], strict=True):
        assert values(item) == [each["distance"], each["pull"]]
        assert item.locator(".head > :first-child").inner_text() == known["text"]
        assert item.locator(".kind").inner_text() == known["class"]
        assert item.locator("code").inner_text() == each["query_id"]
    rows = page.locator("#departures li")
    assert rows.count() == len(told["departures"]) > 3
    for row, each in zip(rows.all(), told["departures"], strict=True):
        assert row.locator("code").inner_text() == each["feature"]
        assert values(row) == [each["everyone"], each["here"], each["effect"]]
        shares = row.locator(".bar").evaluate_all("(bars) => bars.map((bar) => parseFloat(bar.style.width))")
        assert max(shares) <= 50
        if abs(each["here"]) > abs(each["everyone"]) and each["spread"] > 0:
            assert shares[0] > shares[1]


# Why


def test_why_is_told_in_the_service_s_numbers(page: Page, servers: dict[str, str]) -> None:
    searched(page, servers["search"])
    above, below = ids(page, "ours")[:2]
    page.get_by_role("button", name=re.compile("^Why is ")).first.click()
    page.wait_for_selector("#reason .sum")
    asked = {"query": {"text": QUERY}, "above": above, "below": below, "top": 100}
    reason = answer(servers["search"], "/v1/explain", asked)
    assert [page.locator(f"#{name}").input_value() for name in ("above", "below")] == [above, below]
    for part in ("difference", "everyone", "local"):
        assert values(page.locator(f"[data-part={part}]")) == [reason[part]]
    terms = page.locator(".terms li")
    assert terms.count() == 9
    for row, term in zip(terms.all()[:8], reason["terms"][:8], strict=True):
        assert row.get_attribute("data-feature") == term["feature"]
        assert values(row) == [term["here"], term["everyone"]]
    rest = values(terms.last)
    assert rest == pytest.approx([sum(term[name] for term in reason["terms"][8:]) for name in ("here", "everyone")])
    page.get_by_role("button", name="show all").click()
    assert terms.count() == len(reason["terms"]) == 28
    shown = [values(row) for row in terms.all()]
    assert sum(here for here, _ in shown) == pytest.approx(reason["difference"])
    hardest = sorted(reason["neighbours"], key=lambda each: -abs(each["pull"]))[:5]
    told = [values(item) for item in page.locator("#reason .neighbours li").all()]
    assert told == [[each["distance"], each["pull"]] for each in hardest]


def test_any_two_documents_can_be_compared(page: Page, servers: dict[str, str]) -> None:
    searched(page, servers["search"])
    page.locator(".ask").first.click()
    page.wait_for_selector("#reason .sum")
    first, last = ids(page, "ours")[0], ids(page, "ours")[9]
    page.locator("#above").select_option(last)
    page.locator("#below").select_option(first)
    asked = {"query": {"text": QUERY}, "above": last, "below": first, "top": 100}
    difference = answer(servers["search"], "/v1/explain", asked)["difference"]
    assert difference < 0
    expect(page.locator("[data-part=difference] data")).to_have_attribute("value", str(difference))
    page.locator("#below").select_option(last)
    expect(page.locator("#reason")).to_have_text("Choose two different documents.")


def test_the_explanation_of_a_judged_query_is_of_its_own_documents(page: Page, servers: dict[str, str]) -> None:
    page.goto(f"{servers['search']}/?qid=buy-plum")
    page.locator(".ask").first.click()
    page.wait_for_selector("#reason .sum")
    above, below = ids(page, "ours")[:2]
    asked = {"query": {"id": "buy-plum"}, "above": above, "below": below}
    reason = answer(servers["search"], "/v1/explain", asked)
    assert values(page.locator("[data-part=difference]")) == [reason["difference"]]


# Choosing


def test_judged_queries_come_up_while_typing_and_are_chosen_by_keyboard(page: Page, servers: dict[str, str]) -> None:
    page.goto(servers["search"])
    box = page.locator("#box")
    expect(box).to_be_visible()  # it is not until the model is known
    box.press_sequentially("cherry")
    options = page.get_by_role("listbox").get_by_role("option")
    expect(options).to_have_count(2)
    expect(box).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator(f"#{box.get_attribute('aria-activedescendant')}").inner_text().startswith("grow cherry juice")
    assert [each.get_attribute("aria-selected") for each in options.all()] == ["false", "true"]
    page.keyboard.press("Enter")
    page.wait_for_selector("#ours li[data-id]")
    assert page.url.endswith("?qid=grow-cherry")
    expect(box).to_have_attribute("aria-expanded", "false")
    expect(box).to_have_value("grow cherry juice")
    graded = page.locator("#ours .grade.good")
    assert graded.count() == 1
    assert graded.locator(".unseen").inner_text() == "judged 2"
    assert page.locator("#ours li").filter(has=page.locator(".good")).get_attribute("data-id") == "farm-cherry"


def test_suggestions_go_away(page: Page, servers: dict[str, str]) -> None:
    page.goto(servers["search"])
    box = page.locator("#box")
    for leave in ("by key", "by click"):
        box.fill("")
        box.press_sequentially("fig")
        expect(page.get_by_role("listbox")).to_be_visible()
        if leave == "by key":
            page.keyboard.press("Escape")
        else:
            page.mouse.click(5, 790)
        expect(page.get_by_role("listbox")).to_be_hidden()
    expect(box).to_have_value("fig")


def test_the_address_is_the_state_and_back_goes_back(page: Page, servers: dict[str, str]) -> None:
    searched(page, servers["search"])
    before = ids(page, "ours")
    box = page.locator("#box")
    box.fill("buy kiwi juice")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("buy kiwi juice")
    page.get_by_role("link", name="What its model is made of").click()
    page.go_back()
    assert page.url.endswith("?q=buy+kiwi+juice"), "a step within the page is no new search"
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text(QUERY)
    expect(box).to_have_value(QUERY)
    assert ids(page, "ours") == before
    page.go_forward()
    expect(page.get_by_role("heading", level=1)).to_have_text("buy kiwi juice")


def test_an_answer_that_comes_late_does_not_replace_a_later_one(page: Page, servers: dict[str, str]) -> None:
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route(re.compile(r"/v1/search\?q=buy\+fig"), hold)
    page.goto(servers["search"])
    box = page.locator("#box")
    for text in ("buy fig juice", "grow melon juice"):
        box.fill(text)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/?q={text.replace(' ', '+')}")
    page.wait_for_selector("#ours li[data-id]")
    assert len(held) == 1
    held[0].continue_()
    page.wait_for_timeout(300)
    expect(page.get_by_role("heading", level=1)).to_have_text("grow melon juice")


# When there is nothing to show


def test_what_is_not_found_is_said(page: Page, servers: dict[str, str]) -> None:
    page.goto(f"{servers['search']}/?q=zzyzx")
    expect(page.get_by_role("heading", level=1)).to_have_text("Nothing found for “zzyzx”")
    expect(page.get_by_role("status")).to_have_text("Nothing found.")


def test_what_the_service_complains_of_is_shown_in_its_words(page: Page, servers: dict[str, str]) -> None:
    page.goto(f"{servers['search']}/?qid=nobody")
    expect(page.get_by_role("alert")).to_contain_text("Query 'nobody' has no text")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_contain_text("Query 'nobody' has no text")
    page.get_by_role("link", name="Start over").click()
    expect(page.locator("#examples")).to_be_visible()


def test_a_service_that_cannot_be_reached_can_be_asked_again(
    context: BrowserContext, page: Page, servers: dict[str, str]
) -> None:
    page.goto(servers["search"])
    page.wait_for_selector("#examples a")
    context.set_offline(True)
    page.locator("#box").fill(QUERY)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector("#ours li[data-id]")
    context.set_offline(True)
    page.locator(".ask").first.click()
    expect(page.locator("#reason [role=alert]")).to_contain_text("cannot be reached")
    context.set_offline(False)
    page.locator("#reason").get_by_role("button", name="Try again").click()
    page.wait_for_selector("#reason .sum")


def test_a_service_that_does_not_answer_is_not_waited_for_for_ever(page: Page, servers: dict[str, str]) -> None:
    page.clock.install()
    page.route("**/v1/search*", lambda _: None)
    page.goto(f"{servers['search']}/?{urlencode({'q': QUERY})}")
    page.wait_for_selector("#ours li.blank")
    page.clock.run_for(30_000)  # time goes on by itself too, so half of the way
    expect(page.get_by_role("alert")).to_be_hidden()
    page.clock.run_for(31_000)
    expect(page.get_by_role("alert")).to_contain_text("has not answered for 60 seconds")


def test_one_model_for_all_has_one_column_and_its_queries_are_chosen(page: Page, servers: dict[str, str]) -> None:
    page.goto(servers["choose"])
    expect(page.get_by_role("heading", level=1)).to_have_text("How does this model rank?")
    box = page.locator("#box")
    expect(box).to_have_attribute("placeholder", "Choose one of 25 judged queries")
    box.click()
    expect(page.get_by_role("listbox").get_by_role("option")).to_have_count(8)
    box.fill("nothing like it")
    expect(page.get_by_role("listbox").get_by_role("option")).to_have_text(["No judged query has these letters."])
    page.keyboard.press("Enter")
    expect(page.locator("#examples")).to_be_visible()
    box.fill("grow lime")
    page.keyboard.press("Enter")
    page.wait_for_selector("#ours li[data-id]")
    assert page.url.endswith("?qid=grow-lime")
    expect(page.locator("#summary")).to_contain_text("This model is the same for all queries")
    expect(page.locator("#theirs")).to_be_hidden()
    expect(page.locator("#own")).to_be_hidden()
    assert page.locator("#ours .move").count() == 0
    page.locator(".ask").first.click()
    page.wait_for_selector("#reason .sum")
    assert page.locator("#reason .sum li").count() == 1


def test_a_token_is_asked_for_and_a_bare_service_shows_a_request(page: Page, servers: dict[str, str]) -> None:
    page.goto(servers["bare"])
    field = page.get_by_role("textbox", name="Token")
    expect(field).to_be_focused()
    field.fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("That token was not accepted")
    field.fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("This service ranks documents that are sent to it")
    expect(page.locator("#box")).to_be_hidden()
    page.reload()
    expect(page.locator("#request")).to_contain_text(f"curl {servers['bare']}/v1/rank")
    request = page.locator("#request").inner_text()
    assert TOKEN not in request, "what is shown may be copied anywhere"
    body = request.partition("-d '")[2].removesuffix("'").encode()
    assert '-H "Content-Type: application/json"' in request
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    sent = Request(f"{servers['bare']}/v1/rank", data=body, headers=headers)
    with urlopen(sent) as got:
        assert {each["id"] for each in json.load(got)["documents"]} == {"a", "b"}


# Judging


def entered(page: Page, base: str, path: str) -> None:
    """Open the page at a service that asks for a token."""
    page.goto(base + path)
    page.get_by_role("textbox", name="Token").fill(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("#ours li[data-id]")


def pressed(page: Page, side: str, document: str) -> list[str]:
    return page.locator(f"#{side} li[data-id='{document}'] .give[aria-pressed=true]").all_inner_texts()


def test_a_result_is_judged_and_stands_in_the_file(page: Page, servers: dict[str, str]) -> None:
    file = Path(servers["folder"]) / "given.qrels"
    entered(page, servers["judge"], "/?qid=grow-fig")
    document = next(each for each in ids(page, "ours") if each in ids(page, "theirs"))
    buttons = page.locator(f"#ours li[data-id='{document}'] .give")
    assert buttons.all_inner_texts() == ["0", "1", "2"], "the grades of the data"
    buttons.nth(2).click()
    expect(page.get_by_role("status")).to_contain_text("grade 2, kept")
    assert f"grow-fig 0 {document} 2\n" in file.read_text()
    assert pressed(page, "ours", document) == pressed(page, "theirs", document) == ["2"]
    buttons.nth(0).click()
    expect(page.get_by_role("status")).to_contain_text("grade 0, kept")
    page.reload()
    page.wait_for_selector("#ours li[data-id]")
    assert pressed(page, "ours", document) == ["0"], "as it was left"
    page.locator(f"#ours li[data-id='{document}']").focus()
    page.keyboard.press("1")
    expect(page.get_by_role("status")).to_contain_text("grade 1, kept")
    assert f"grow-fig 0 {document} 1\n" in file.read_text()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.get_by_role("status")).to_contain_text("no grade")
    assert document not in file.read_text()
    assert pressed(page, "ours", document) == []


def test_the_command_to_train_on_what_was_judged_is_at_the_foot(page: Page, servers: dict[str, str]) -> None:
    entered(page, servers["judge"], "/?qid=grow-fig")
    page.get_by_text("Train the model on what was judged here").click()
    folder = Path(servers["folder"])
    shown = page.locator("#retrain-command").inner_text()
    assert shlex.split(shown)[:5] == ["querywise", "fit", "FOLDER", "--also-judged", str(folder / "given.qrels")]
    assert shlex.split(shown)[-2:] == ["--out", str(folder / "local")]


def test_a_grade_that_cannot_be_kept_is_taken_back_and_said(page: Page, servers: dict[str, str]) -> None:
    entered(page, servers["judge"], f"/?{urlencode({'q': QUERY})}")
    message = "The judgment was not kept. <b>The disk is full.</b>"
    wrong = {"error": {"code": "not_kept", "message": message, "where": None}}
    page.route("**/v1/judgements", lambda route: route.fulfill(status=500, json=wrong))
    first = ids(page, "ours")[0]
    page.locator(f"#ours li[data-id='{first}'] .give").nth(1).click()
    expect(page.locator("#columns [role=alert]")).to_have_text(message)
    assert pressed(page, "ours", first) == []


def test_where_nothing_is_judged_there_is_nothing_to_press(page: Page, servers: dict[str, str]) -> None:
    searched(page, servers["search"])
    assert page.locator(".give").count() == 0
    expect(page.locator(".keys .grades")).to_be_hidden()


# The first stage, long texts, the reference


def test_the_first_stage_can_be_chosen_beside_the_model(page: Page, servers: dict[str, str]) -> None:
    found = searched(page, servers["search"])["documents"]
    page.get_by_label("Compare with").select_option("bm25")
    expect(page.locator("#theirs-title")).to_have_text("BM25")
    ranks = {each["ranks"]["bm25"]: each["id"] for each in found}
    assert ids(page, "theirs") == [ranks[place] for place in range(1, 11)]
    first = next(each for each in found if each["rank"] == 1)
    by = first["ranks"]["bm25"] - 1
    heard = page.locator("#ours > li").first.locator(".move .unseen").inner_text()
    assert heard.startswith(f"{by} place" if by else "in the same place")
    expect(page.locator("#summary")).to_contain_text("elsewhere than in the order of BM25")
    page.locator("#box").fill("buy kiwi juice")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("buy kiwi juice")
    expect(page.locator("#theirs-title")).to_have_text("BM25")


def test_a_long_query_is_cut_and_can_be_read_whole(page: Page, servers: dict[str, str]) -> None:
    searched(page, servers["search"], "fig juice " * 60)
    more = page.locator(".asked").get_by_role("button", name="more")
    short = page.get_by_role("heading", level=1).bounding_box()
    more.click()
    long = page.get_by_role("heading", level=1).bounding_box()
    assert short is not None
    assert long is not None
    assert long["height"] > 1.5 * short["height"]
    page.get_by_role("button", name="less").press("Enter")
    expect(more).to_have_attribute("aria-expanded", "false")
    searched(page, servers["search"])
    assert page.locator(".asked .cut").count() == 0


def test_the_reference_has_every_path_and_loads_nothing_from_elsewhere(page: Page, servers: dict[str, str]) -> None:
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    searched(page, servers["search"])
    page.get_by_role("link", name="The reference of this service’s API").click()
    page.wait_for_selector("#bodies section")
    shown = page.locator("#paths h2").all_inner_texts()
    described = answer(servers["search"], "/openapi.json")
    assert shown == [f"{way.upper()} {path}" for path, ways in described["paths"].items() for way in ways]
    assert page.locator("#bodies section").count() == len(described["components"]["schemas"])
    assert {url for url in asked if not url.startswith((servers["search"], "data:"))} == set()
    assert said == []
    page.goto(f"{servers['bare']}/docs")
    expect(page.get_by_role("status")).to_contain_text("asks for a token")


# Only what is here


def test_nothing_is_asked_of_anybody_else_and_nothing_is_complained_of(page: Page, servers: dict[str, str]) -> None:
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto(servers["search"], wait_until="networkidle")
    searched(page, servers["search"])
    page.locator(".ask").first.click()
    page.wait_for_selector("#reason .sum")
    assert {url for url in asked if not url.startswith((servers["search"], "data:"))} == set()
    assert len(asked) > 5
    assert said == []


def test_markup_in_a_document_is_text(page: Page, servers: dict[str, str]) -> None:
    searched(page, servers["search"])
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("#ours > li")).to_have_count(26)
    assert page.locator("#ours [data-id=markup] .title").inner_text() == MARKUP
    assert page.locator("main img").count() == 0
    page.goto(f"{servers['search']}/?{urlencode({'q': MARKUP})}")
    page.wait_for_selector("#ours li[data-id]")
    assert page.get_by_role("heading", level=1).inner_text() == MARKUP


# By keyboard, and for those who listen


def test_everything_goes_by_keyboard(page: Page, servers: dict[str, str]) -> None:
    page.goto(servers["search"])
    page.wait_for_selector("#examples a")
    page.keyboard.press("/")
    expect(page.locator("#box")).to_be_focused()
    page.keyboard.type(QUERY)
    page.keyboard.press("Enter")
    page.wait_for_selector("#ours li[data-id]")
    ours, theirs = ids(page, "ours"), ids(page, "theirs")

    def focused() -> tuple[str, str]:
        side, document = page.evaluate(
            "[document.activeElement.parentNode.id, document.activeElement.dataset.id ?? document.activeElement.id]"
        )
        return side, document

    page.keyboard.press("ArrowDown")
    assert focused() == ("ours", ours[0])
    page.keyboard.press("ArrowDown")
    assert focused() == ("ours", ours[1])
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("End")
    assert focused() == ("ours", ours[9])
    page.keyboard.press("ArrowDown")
    assert focused() == ("ours", ours[9])
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert focused() == ("theirs", ours[0] if ours[0] in theirs else theirs[0])
    page.keyboard.press("ArrowRight")
    assert focused()[0] == "ours"
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_selector("#reason .sum")
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    assert [page.locator(f"#{name}").input_value() for name in ("above", "below")] == ours[:2]
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert focused() == ("ours", ours[0]), "one is where one was"
    page.keyboard.press("/")
    expect(page.locator("#box")).to_be_focused()


def test_tab_goes_through_the_page_and_out_of_it(page: Page, servers: dict[str, str]) -> None:
    searched(page, servers["search"])
    page.evaluate("document.activeElement.blur()")
    seen: list[str] = []
    for _ in range(80):
        page.keyboard.press("Tab")
        name = page.evaluate(
            """(() => {
                const found = document.activeElement;
                return found === document.body ? "" : found.id || found.className || found.textContent;
            })()"""
        )
        if not name:
            break
        seen.append(name)
    assert {"skip", "name", "box", "ask", "more"} <= set(seen)
    assert name == "", "the way out"
    assert seen.count("doc") + seen.count("doc lit") == 2, "one stop for each list"


def test_everything_has_a_name_to_be_called_by(page: Page, servers: dict[str, str]) -> None:
    searched(page, servers["search"])
    page.locator(".ask").first.click()
    page.wait_for_selector("#reason .sum")
    nameless = page.evaluate(
        """[...document.querySelectorAll("button, a, input, select")].filter((each) => !(
            each.textContent.trim() || each.getAttribute("aria-label") || each.labels?.length))
            .map((each) => each.outerHTML)"""
    )
    assert nameless == []
    twice = page.evaluate(
        """[...document.querySelectorAll("[id]")].map((each) => each.id)
            .filter((id, place, all) => all.indexOf(id) !== place)"""
    )
    assert twice == []
    lost = page.evaluate(
        """[...document.querySelectorAll("[aria-labelledby], [aria-controls], [for]")]
            .filter((each) => each.checkVisibility())
            .flatMap((each) => ["aria-labelledby", "aria-controls", "for"].map((name) => each.getAttribute(name)))
            .filter((id) => id && !document.getElementById(id))"""
    )
    assert lost == []
    page.keyboard.press("Escape")
    for landmark in ("banner", "main", "search", "contentinfo"):
        assert page.get_by_role(landmark).count() == 1, landmark


# Looks

CONTRASTS = """() => {
    const rgb = (text) => (text.match(/[0-9.]+/g) || []).map(Number);
    const light = (colour) => {
        const [r, g, b] = colour.slice(0, 3).map((part) => {
            const share = part / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
        for (let each = element; each; each = each.parentElement) {
            const colour = rgb(getComputedStyle(each).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const found = {};
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.textContent.trim() || !element.checkVisibility() || element.closest(".unseen")) continue;
        const name = element.tagName.toLowerCase() + (element.className ? "." + element.className : "");
        const [a, b] = [light(rgb(getComputedStyle(element).color)), light(ground(element))];
        found[name] = Math.min(found[name] ?? 99, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
    }
    return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_in_both_colour_schemes(page: Page, servers: dict[str, str], scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(f"{servers['search']}/?qid=grow-fig")
    page.wait_for_selector("#ours li[data-id]")
    page.locator("#ours li").first.focus()
    ratios = page.evaluate(CONTRASTS)
    assert {"h1", "span.title", "p.id", "p.snippet", "span.kind", "button.ask", "span.figures"} & set(ratios)
    page.keyboard.press("Enter")
    page.wait_for_selector("#reason .sum")
    ratios |= {f"why {name}": ratio for name, ratio in page.evaluate(CONTRASTS).items()}
    for path in ("/", "/?qid=nobody"):
        page.goto(servers["search"] + path)
        page.wait_for_selector("#examples a, #problem:not([hidden])")
        ratios |= {f"{path} {name}": ratio for name, ratio in page.evaluate(CONTRASTS).items()}
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}
    lightness = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0]")
    assert (int(lightness) > 128) == (scheme == "light")


@pytest.mark.parametrize("width", [320, 360, 390, 768, 1280])
def test_the_page_is_never_wider_than_the_screen(page: Page, servers: dict[str, str], width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(servers["search"])
    page.wait_for_selector("#examples a")
    assert is_within_the_screen(page)
    searched(page, servers["search"], f"{LONG} juice")
    assert is_within_the_screen(page)
    page.locator(".ask").first.click()
    page.wait_for_selector("#reason .sum")
    inside, shown = page.locator("#why").evaluate("(dialog) => [dialog.scrollWidth, dialog.clientWidth]")
    assert inside <= shown <= width
    page.goto(f"{servers['search']}/?qid={LONG}")
    page.wait_for_selector("#problem:not([hidden])")
    assert is_within_the_screen(page)


def test_on_a_telephone_one_order_is_seen_at_a_time(page: Page, servers: dict[str, str]) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    searched(page, servers["search"])
    ours, theirs = page.locator("#ours"), page.locator("#theirs")
    expect(ours).to_be_visible()
    expect(theirs).to_be_hidden()
    page.get_by_role("button", name="One model for all").click()
    expect(theirs).to_be_visible()
    expect(ours).to_be_hidden()
    expect(page.get_by_role("button", name="One model for all")).to_have_attribute("aria-pressed", "true")
    for target in page.locator("button:visible").all():
        box = target.bounding_box()
        assert box is not None
        assert min(box["height"], box["width"]) >= 24, "a finger can meet it"


def test_waiting_does_not_move_what_is_there(page: Page, servers: dict[str, str]) -> None:
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/v1/search*", hold)
    page.goto(f"{servers['search']}/?{urlencode({'q': QUERY})}")
    page.wait_for_selector("#ours li.blank")
    expect(page.locator("#progress")).to_be_visible()
    expect(page.get_by_role("main")).to_have_attribute("aria-busy", "true")
    before = page.locator("#ours").bounding_box()
    held[0].continue_()
    page.wait_for_selector("#ours li[data-id]")
    after = page.locator("#ours").bounding_box()
    expect(page.locator("#progress")).to_be_hidden()
    assert before is not None
    assert after is not None
    assert (before["x"], before["y"], before["width"]) == (after["x"], after["y"], after["width"])


# The demonstration

WANTED = {  # what a Python programmer expects, among how many first documents
    "read a csv file": ({"csv"}, 3),
    "open a zip archive": ({"zipfile", "zipfile.ZipFile"}, 3),
    "http server": ({"http.server"}, 3),
    "run a command and capture its output": ({"subprocess.run", "subprocess.check_output"}, 3),
}
if sys.version_info < (3, 12):  # from then on the sources of datetime have no documentation
    # Third or fourth: the two are so close that the order in which a processor adds up decides.
    WANTED["parse a date"] = ({"datetime.datetime.strptime", "datetime.date.fromisoformat", "datetime"}, 4)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("demo") / "log"
    process = started("--demo", log=log)
    try:
        yield address(process, log, minutes=5)
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.slow
def test_the_demonstration_finds_what_a_programmer_expects_and_says_why(page: Page, demo: str) -> None:
    for query, (wanted, among) in WANTED.items():
        searched(page, demo, query)
        assert wanted.intersection(ids(page, "ours")[:among]), (query, ids(page, "ours")[:among])
    page.goto(f"{demo}/?{urlencode({'q': 'open a zip archive'})}")
    page.wait_for_selector("#ours li[data-id]")
    shown = page.locator('#ours li[data-id="zipfile.ZipFile"] .snippet')
    expect(shown).to_contain_text("Class with methods to open, read, write, close, list zip files.")
    assert shown.locator("mark").all_inner_texts()[:2] == ["open", "zip"]


@pytest.mark.slow
def test_judged_queries_of_the_demonstration_are_asked_of_the_copy_without_them(page: Page, demo: str) -> None:
    """In whole pages a judged query would be its own answer's first sentence."""
    known = answer(demo, "/v1/queries?limit=5")["queries"]
    assert known
    for query in known:
        found = answer(demo, f"/v1/search?qid={quote(query['id'])}")["documents"]
        assert all(query["text"] not in each["snippet"] for each in found)
    whole = answer(demo, "/v1/search?q=" + quote("open a zip archive"))["documents"]
    assert any(each["snippet"].startswith("Class with methods to open") for each in whole)
