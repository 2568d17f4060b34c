"""The report in a browser, opened as a file, as its reader opens it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from querywise.data.folds import make_folds
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.evaluation.evaluate import evaluate
from querywise.jobs.compare import CompareOptions, run
from querywise.measures.score_files import write_scores
from tests.axe import violations

pytestmark = pytest.mark.browser

LONG = "a_system_of_somebody_else_with_no_space_in_its_name"
TITLE = f"Compared on {LONG}_and_longer_than_the_screen_of_a_telephone.txt"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every section, a system nobody timed, and names and texts of any length."""
    folder = tmp_path_factory.mktemp("page")
    made = make_judged(40, 10, 4, kinds=2, noise=0.5)
    ids = made.candidates.query_ids
    assert made.candidates.queries is not None
    table = QueryTable(ids, texts=tuple(f"a question {each} " * 12 for each in ids), classes=made.classes)
    documents = tuple(f"documentation_of_something_{row}.html" for row in range(len(made.labels)))
    data = replace(made, candidates=replace(made.candidates, queries=table, document_ids=documents))
    write_scores(folder / "theirs.txt", data.labels + np.random.default_rng(0).normal(size=len(data.labels)))
    asked = CompareOptions(
        ("single", "knn-offline-2", "query-classes"),
        (f"{LONG}={folder / 'theirs.txt'}",),
        fixed={"l2": 1.0, "prior_l2": 0.5, "view": "top-mean"},
    )
    page = run(asked, make_folds(data), folder / "r", title=TITLE)[1]
    assert page is not None
    return page


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(window: Page, page_file: Path) -> Page:
    """The report, opened anew."""
    window.set_viewport_size({"width": 1200, "height": 800})
    window.emulate_media(media="screen", color_scheme="light")
    window.goto(page_file.as_uri())
    return window


def column(page: Page, table: int, heading: str) -> list[str]:
    """The texts of one column, from the top."""
    found: list[str] = page.evaluate(
        """([table, heading]) => {
            const found = document.querySelectorAll("table")[table];
            const place = [...found.tHead.rows[0].cells].findIndex((cell) => cell.textContent === heading);
            return [...found.tBodies[0].rows].map((row) => row.cells[place].textContent);
        }""",
        [table, heading],
    )
    return found


def table_with(page: Page, heading: str) -> int:
    """The number of the first table that has a column of this heading."""
    found: int = page.evaluate(
        """(heading) => [...document.querySelectorAll("table")].findIndex(
            (table) => [...table.tHead.rows[0].cells].some((cell) => cell.textContent === heading))""",
        heading,
    )
    assert found >= 0
    return found


def click(page: Page, table: int, heading: str) -> None:
    whole = re.compile(f"^{re.escape(heading)}$")
    page.locator("table").nth(table).locator("th button").filter(has_text=whole).click()


# Nothing but the file


def test_the_page_needs_nothing_but_itself_and_says_nothing(browser: Browser, page_file: Path) -> None:
    asked: list[str] = []
    said: list[str] = []
    opened = browser.new_page()
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.goto(page_file.as_uri(), wait_until="networkidle")
    opened.evaluate("document.querySelectorAll('th button').forEach((button) => button.click())")
    opened.close()
    assert {url for url in asked if not url.startswith("data:")} == {page_file.as_uri()}
    assert said == []


def test_the_page_is_whole_where_scripts_are_forbidden(browser: Browser, page_file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(page_file.as_uri())
    assert opened.locator(".verdict").inner_text() != ""
    assert opened.locator("tbody tr").first.is_visible()
    assert opened.locator("h2").count() == 9
    assert opened.locator("noscript tbody tr").first.is_visible()
    context.close()


def test_the_page_opens_with_its_verdict(page: Page) -> None:
    assert page.title() == TITLE
    assert page.locator("h1").count() == 1
    parts = [page.locator(name) for name in (".verdict", ".winner", ".numbers", ".differences", ".made dl")]
    for width, height in ((1280, 800), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        boxes = [part.bounding_box() for part in parts]
        ends = [box["y"] + box["height"] for box in boxes if box is not None]
        assert len(ends) == len(parts)
        assert max(ends) <= height, "all of it is seen without scrolling"


# Sorting


def test_a_click_sorts_by_number_and_another_reverses(page: Page) -> None:
    for heading in ("map", "ndcg@10"):
        before = column(page, 0, heading)
        click(page, 0, heading)
        assert column(page, 0, heading) == sorted(before, key=float)
        click(page, 0, heading)
        assert column(page, 0, heading) == sorted(before, key=float, reverse=True)


def test_numbers_are_sorted_by_value_and_not_by_letter(page: Page) -> None:
    # Differences have signs, times have many sizes: "+0.1" < "-0.1" and "10" < "9" by letter.
    click(page, 0, "Δ map")
    signed = [float(text) for text in column(page, 0, "Δ map") if text]
    assert signed == sorted(signed)
    timings = table_with(page, "ranking, ms per query")
    click(page, timings, "ranking, ms per query")
    times = [float(text) for text in column(page, timings, "ranking, ms per query") if text]
    assert times == sorted(times)
    assert len(times) == 3


@pytest.mark.parametrize("heading", ["Δ map", "p (map)", "training, s", "on validation", "RelevantOnly"])
def test_empty_cells_come_last_both_ways(page: Page, heading: str) -> None:
    table = table_with(page, heading)
    empty = column(page, table, heading).count("")
    assert empty > 0
    # Begin with an order in which an empty cell is in the middle.
    page.evaluate(
        """([table, heading]) => {
            const found = document.querySelectorAll("table")[table];
            const place = [...found.tHead.rows[0].cells].findIndex((cell) => cell.textContent === heading);
            const rows = [...found.tBodies[0].rows];
            const some = rows.filter((row) => row.cells[place].textContent === "");
            const others = rows.filter((row) => row.cells[place].textContent !== "").reverse();
            found.tBodies[0].append(others[0], ...some, ...others.slice(1));
        }""",
        [table, heading],
    )
    for _ in range(2):
        click(page, table, heading)
        texts = column(page, table, heading)
        assert texts[-empty:] == [""] * empty
        assert all(texts[:-empty])


def test_texts_are_sorted_by_letter(page: Page) -> None:
    click(page, 0, "method")
    assert column(page, 0, "method") == sorted(column(page, 0, "method"))
    click(page, 0, "method")
    assert column(page, 0, "method") == sorted(column(page, 0, "method"), reverse=True)


def test_rows_stay_whole_and_the_answer_stays_marked(page: Page) -> None:
    rows = page.evaluate("[...document.querySelectorAll('table')[0].tBodies[0].rows].map((row) => row.outerHTML)")
    click(page, 0, "ndcg@10")
    after = page.evaluate("[...document.querySelectorAll('table')[0].tBodies[0].rows].map((row) => row.outerHTML)")
    assert sorted(after) == sorted(rows)
    assert page.locator("table").first.locator("tr.marked").count() == 1


def test_one_table_is_sorted_and_the_others_stay(page: Page) -> None:
    others = page.evaluate("[...document.querySelectorAll('table')].slice(1).map((table) => table.outerHTML)")
    click(page, 0, "map")
    again = page.evaluate("[...document.querySelectorAll('table')].slice(1).map((table) => table.outerHTML)")
    assert others == again


def test_tables_are_sorted_by_keyboard(page: Page) -> None:
    before = column(page, 0, "map")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "map":
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none", "where the keyboard is can be seen"
    page.keyboard.press("Enter")
    assert column(page, 0, "map") == sorted(before, key=float)
    page.keyboard.press("Space")
    assert column(page, 0, "map") == sorted(before, key=float, reverse=True)


def test_a_screen_reader_is_told_what_a_table_is_sorted_by(page: Page) -> None:
    headings = page.locator("table").first.locator("th")
    click(page, 0, "map")
    assert [each.get_attribute("aria-sort") for each in headings.all()].count("ascending") == 1
    click(page, 0, "ndcg@10")
    click(page, 0, "ndcg@10")
    sorts = [each.get_attribute("aria-sort") for each in headings.all()]
    assert [each for each in sorts if each] == ["descending"]
    assert all(each.get_attribute("scope") == "col" for each in headings.all())
    told = page.locator("table").first.get_by_role("button", name="ndcg@10", exact=True)
    assert told.count() == 1, "the triangle is for the eye"


# Every query


def queries(page: Page) -> list[str]:
    """The texts of the rows of the table of every query."""
    found: list[str] = page.locator("tr.query td:first-child").all_inner_texts()
    return found


def test_every_query_is_listed_and_sorted_by_its_difference(page: Page) -> None:
    assert len(queries(page)) == 40
    table = table_with(page, "difference")
    before = [float(text.replace("−", "-")) for text in column(page, table, "difference")]
    assert before == sorted(before, reverse=True)
    headings = page.locator("#every-query th")
    assert [each.get_attribute("aria-sort") for each in headings.all()].count("descending") == 1
    click(page, table, "difference")
    after = [float(text.replace("−", "-")) for text in column(page, table, "difference")]
    assert after == sorted(before)
    assert page.evaluate("document.activeElement.textContent") == "difference", "the keyboard stays where it was"
    click(page, table, "relevant")
    counts = [int(text) for text in column(page, table, "relevant")]
    assert counts == sorted(counts, reverse=True)


def test_queries_are_found_by_word_and_filtered_by_class_and_outcome(page: Page) -> None:
    page.get_by_label("Find in queries").fill("QUESTION q7 ")
    expect(page.locator("tr.query")).to_have_count(1)
    assert "1 of 40" in page.get_by_role("status").inner_text()
    page.get_by_label("Find in queries").fill("")
    expect(page.locator("tr.query")).to_have_count(40)
    table = table_with(page, "difference")
    outcomes = page.locator(".controls label").filter(has_text=re.compile("^Difference")).locator("select")
    outcomes.select_option("losses")
    assert {text[0] for text in column(page, table, "difference")} == {"−"}
    outcomes.select_option("all queries")
    classes = page.locator(".controls label").filter(has_text=re.compile("^Class")).locator("select")
    kind = classes.locator("option").nth(1).inner_text()
    classes.select_option(kind)
    assert set(column(page, table, "class")) == {kind}
    assert 0 < len(queries(page)) < 40


def test_a_click_opens_both_rankings_of_a_query(page: Page) -> None:
    page.locator("tr.query button").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".rankings table").count() == 2
    names = page.locator(".rankings h3").all_inner_texts()
    assert [name.split(":")[0] for name in names] == ["single", LONG]
    ranks = page.locator(".rankings table").first.locator("tbody tr:not(.further) td:first-child").all_inner_texts()
    assert ranks[:3] == ["1", "2", "3"]
    assert len(page.locator(".whole").inner_text()) > 150, "the whole text"
    page.keyboard.press("Enter")
    assert page.locator(".rankings").count() == 0


def test_an_opened_query_says_why_its_documents_are_there(page: Page) -> None:
    page.locator("tr.query button").first.click()
    first, second = (page.locator(".rankings > div").nth(number) for number in (0, 1))
    assert first.locator(".why").count() >= 5
    assert re.fullmatch(r"why: (feature \d [+−]\d+\.\d\d(, )?)+", first.locator(".why").first.text_content() or "")
    assert second.locator(".why").count() == 0
    assert second.locator(".about").inner_text() == "Its scores were computed elsewhere."


def test_what_the_models_use_is_a_table_and_a_figure(page: Page) -> None:
    section = page.locator("#features")
    headings = section.locator("th").all_inner_texts()
    assert [each.split("\n")[0] for each in headings][:2] == ["feature", "single"]
    assert sum("by query" in each for each in headings) == 1
    assert section.locator("svg.chart title").count() >= 12, "four features under three models"


def test_sections_and_queries_have_addresses(page: Page, page_file: Path) -> None:
    for link in page.locator("nav a").all():
        link.click()
        top = page.evaluate("document.querySelector(location.hash).getBoundingClientRect().top")
        assert top < 800
    page.goto(page_file.as_uri() + "#query=q7")
    page.reload()
    assert page.locator(".facts").inner_text().startswith("query q7 ")


def test_further_rankings_are_loaded_from_the_folder(browser: Browser, tmp_path: Path) -> None:
    data = make_judged(1000, 12, 2, noise=0.5)
    names = tuple(f"a_document_with_a_name_that_takes_its_room_{row}" for row in range(len(data.labels)))
    data = replace(data, candidates=replace(data.candidates, document_ids=names))
    for number in (1, 2):
        noise = np.random.default_rng(number).normal(size=len(data.labels))
        write_scores(tmp_path / f"{number}.txt", data.labels + number * noise)
    asked = CompareOptions((), tuple(f"s{number}={tmp_path / f'{number}.txt'}" for number in (1, 2)), measures="map")
    page = run(asked, make_folds(data), tmp_path / "r", title="Many")[1]
    assert page is not None
    assert page.stat().st_size < 1_500_000
    assert list((page.parent / "rankings").iterdir())
    opened = browser.new_page()
    opened.goto(page.as_uri())
    far = opened.evaluate(
        "(() => { const d = JSON.parse(document.getElementById('queries-data').textContent);"
        " return d.ids[d.file.findIndex((each) => each > 0)]; })()"
    )
    assert opened.locator("tr.query").count() == 100
    opened.goto(f"{page.as_uri()}#query={far}")
    opened.locator(".rankings table").first.wait_for()
    assert opened.locator(".rankings table").count() == 2
    for path in (page.parent / "rankings").iterdir():
        path.unlink()
    opened.reload()
    opened.get_by_text("beside this page, which is not there").wait_for()
    opened.close()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of more methods and queries than are shown at once."""
    folder = tmp_path_factory.mktemp("many")
    data = make_judged(130, 6, 2, noise=0.5)
    for number in range(16):
        noise = np.random.default_rng(number).normal(size=len(data.labels))
        write_scores(folder / f"{number}.txt", data.labels + noise)
    scores = tuple(f"a system number {number} of many={folder / f'{number}.txt'}" for number in range(16))
    page = run(CompareOptions((), scores, measures="map"), make_folds(data), folder / "r", title="Many")[1]
    assert page is not None
    return page


def test_many_methods_leave_the_table_of_queries_uncut(window: Page, many: Path) -> None:
    window.emulate_media(media="screen", color_scheme="light")
    for width, columns in ((1280, 16), (1000, 4), (390, 4), (320, 4)):
        window.set_viewport_size({"width": width, "height": 800})
        window.goto(many.as_uri())
        shown = "(table) => [...table.tHead.rows[0].cells].filter((cell) => cell.offsetWidth).length"
        table = window.locator("table.all")
        assert (width, table.evaluate(shown)) == (width, columns)
        reach = table.evaluate("(table) => table.getBoundingClientRect().right - document.documentElement.clientWidth")
        assert reach <= 0
        assert window.evaluate("document.documentElement.scrollWidth") <= width


def test_headings_stay_below_the_navigation_while_queries_are_read(window: Page, many: Path) -> None:
    window.emulate_media(media="screen", color_scheme="light")
    window.set_viewport_size({"width": 1280, "height": 800})
    window.goto(many.as_uri())
    for number in (3, 60):
        row = window.locator("tr.query").nth(number)
        row.evaluate("(row) => row.scrollIntoView()")
        top, bottom = window.locator("table.all thead").evaluate(
            "(head) => [head.getBoundingClientRect().top, head.getBoundingClientRect().bottom]"
        )
        assert top >= window.locator("nav").evaluate("(nav) => nav.getBoundingClientRect().bottom") - 1
        assert row.evaluate("(row) => row.getBoundingClientRect().top") >= bottom - 1, "what is looked for is seen"


def test_paper_says_where_the_other_queries_are(window: Page, many: Path) -> None:
    window.emulate_media(media="screen")
    window.goto(many.as_uri())
    told = window.locator(".pager p")
    assert told.inner_text() == "130 queries; 1 to 100 are shown"
    window.emulate_media(media="print")
    assert told.inner_text().endswith("shown; all of them are in queries.csv and values.csv beside this page")
    window.set_viewport_size({"width": 718, "height": 1000})
    assert window.locator("table.all").evaluate("(table) => table.getBoundingClientRect().right") <= 719


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    page.locator("tr.query button").first.click()
    assert violations(page) == []


# Looks

OVERLAPS = """() => {
    const found = [];
    for (const drawing of document.querySelectorAll("svg.chart, figure.differences, :root > svg, svg:root")) {
        const texts = [...drawing.querySelectorAll("text, .name, .by, .ticks span, figcaption")];
        const boxes = texts.map((each) => [each.textContent, each.getBoundingClientRect()]);
        for (const [number, [one, a]] of boxes.entries()) {
            for (const [two, b] of boxes.slice(number + 1)) {
                const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                if (wide > 1 && high > 3) found.push(`${one} / ${two}`);
            }
        }
    }
    return found;
}"""


@pytest.mark.parametrize("width", [390, 1280])
def test_no_two_texts_of_a_figure_overlap(page: Page, page_file: Path, many: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for report in (page_file, many):
        page.goto(report.as_uri())
        assert page.evaluate(OVERLAPS) == []
        for figure in sorted((report.parent / "figures").iterdir()):
            page.goto(figure.as_uri())
            assert (figure.name, page.evaluate(OVERLAPS)) == (figure.name, [])


def test_no_table_is_cut_at_1280_pixels(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    cut = "[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth + 1)"
    assert page.evaluate(f"{cut}.map((each) => each.getAttribute('aria-label'))") == []


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
    for (const element of document.querySelectorAll(
        "h1, h2, p, th button, td, caption, figcaption, footer, text, dt, dd, li, small, label, a, span")) {
        if (!element.textContent.trim()) continue;
        const above = element.parentElement.getAttribute("class");
        const name = element.tagName.toUpperCase() + (above ? "." + above : "");
        const style = getComputedStyle(element);
        const colour = element.tagName === "text" ? style.fill : style.color;
        const [a, b] = [light(rgb(colour)), light(ground(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        found[name] = Math.min(found[name] ?? 99, ratio);
    }
    return found;
}"""


@pytest.mark.parametrize("media", ["screen", "print"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_in_both_colour_schemes(page: Page, scheme: Any, media: Any) -> None:
    page.emulate_media(color_scheme=scheme, media=media)
    ratios = page.evaluate(CONTRASTS)
    assert {"H1.first", "P", "TD", "TD.marked", "CAPTION", "FIGCAPTION", "TEXT.chart", "DT", "LI.legend"} <= set(ratios)
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with learning curves, one of them level and of a long name."""
    folder = tmp_path_factory.mktemp("curves")
    data = make_judged(120, 8, 4, kinds=2, noise=0.5)
    write_scores(folder / "theirs.txt", data.labels + np.random.default_rng(0).normal(size=len(data.labels)))
    asked = CompareOptions(("single", "ranksvm"), (f"{LONG}={folder / 'theirs.txt'}",), fixed={"l2": 1.0}, curves=True)
    page = run(asked, make_folds(data), folder / "r", title=TITLE)[1]
    assert page is not None
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_learning_curves_are_a_table_and_a_figure_that_can_be_read(page: Page, curves: Path, scheme: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{curves.as_uri()}#curves")
    page.get_by_role("link", name="Learning curves").click()
    table = table_with(page, "training queries")
    assert column(page, table, "training queries") == ["30", "60", "72"]
    assert len(set(column(page, table, LONG))) == 1
    chart = page.locator("#curves svg.chart")
    assert chart.get_attribute("aria-label") == "map with more and more training queries"
    assert chart.locator("polyline").count() == 3
    assert chart.locator("path title").count() == 9, "values under the pointer"
    colours = chart.locator("polyline").evaluate_all("(every) => every.map((each) => getComputedStyle(each).stroke)")
    assert len(set(colours)) == 3
    assert page.evaluate(OVERLAPS) == []
    assert min(page.evaluate(CONTRASTS).values()) >= 4.5
    scrolled = page.locator("#curves .scroll").evaluate("(each) => each.scrollWidth - each.clientWidth")
    assert scrolled <= 1, "the table is not cut"
    assert violations(page) == []


def test_the_two_colour_schemes_are_two(page: Page) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


def test_a_heading_under_the_pointer_or_the_keyboard_can_be_read(page: Page) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.locator("th button").first.hover()
        assert min(page.evaluate(CONTRASTS).values()) >= 4.5


def test_figures_are_drawn_and_say_what_they_show(page: Page) -> None:
    charts = page.locator("svg.chart").all()
    assert len(charts) >= 6
    for chart in charts:
        assert len(chart.get_attribute("aria-label") or "") > 10
        box = chart.bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 50
        assert chart.locator("title").count() > 1, "values under the pointer"


def test_no_word_of_a_figure_is_cut_off(page: Page, page_file: Path) -> None:
    figures = sorted((page_file.parent / "figures").iterdir())
    assert len(figures) >= 6
    for figure in figures:
        page.goto(figure.as_uri())
        cut = page.evaluate(
            """() => {
                const sheet = document.documentElement.getBoundingClientRect();
                return [...document.querySelectorAll("text")].filter((text) => {
                    const box = text.getBoundingClientRect();
                    return box.left < sheet.left - 1 || box.right > sheet.right + 1 || box.bottom > sheet.bottom + 1;
                }).map((text) => text.textContent);
            }"""
        )
        assert (figure.name, cut) == (figure.name, [])


def test_long_texts_have_room_for_several_words_in_a_line(page: Page) -> None:
    widths = page.evaluate(
        """[...document.querySelectorAll("td:not(.number)")].filter((cell) => cell.textContent.length > 100)
            .map((cell) => cell.clientWidth)"""
    )
    assert widths
    assert min(widths) >= 150


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_the_page_is_never_wider_than_the_screen(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    inside, shown = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert inside <= shown
    for table in page.locator("table").all():
        assert table.evaluate("(table) => table.parentElement.clientWidth <= document.documentElement.clientWidth")


def test_on_a_narrow_screen_every_column_can_be_scrolled_to(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for table in page.locator("table").all():
        reach = table.evaluate(
            """(table) => {
                const box = table.parentElement;
                box.scrollLeft = 100000;
                return table.getBoundingClientRect().right - box.getBoundingClientRect().right;
            }"""
        )
        assert reach <= 1


def test_a_wide_table_can_be_scrolled_by_keyboard(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    last = page.locator("table").first.locator("th button").last
    last.focus()
    box = last.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 391


def test_on_paper_nothing_is_hidden(page: Page) -> None:
    page.emulate_media(media="print")
    hidden = page.evaluate(
        """[...document.querySelectorAll("main, main *")].filter((element) => {
            const style = getComputedStyle(element);
            const clipped = style.overflowX !== "visible" && element.scrollWidth > element.clientWidth;
            if (element.closest(".controls, .pager button, noscript, .track, .unseen")) return false;
            return style.display === "none" || style.visibility !== "visible" || style.opacity !== "1" || clipped;
        }).map((element) => element.outerHTML.slice(0, 80))"""
    )
    assert hidden == []
    assert page.locator("td").count() > 100


def test_on_paper_no_table_is_wider_than_the_sheet(page: Page) -> None:
    # A4 is 794 pixels wide, less margins of 1 cm on both sides.
    page.set_viewport_size({"width": 718, "height": 1000})
    page.emulate_media(media="print")
    wide = page.evaluate(
        """[...document.querySelectorAll("table")].filter(
            (table) => table.getBoundingClientRect().right > document.documentElement.clientWidth + 1
        ).map((table) => [...table.tHead.rows[0].cells].map((cell) => cell.textContent).join(", ").slice(0, 80))"""
    )
    assert wide == []


@pytest.mark.parametrize(
    ("back", "ink"), [("rgb(255, 255, 255)", "rgb(17, 17, 17)"), ("rgb(17, 17, 17)", "rgb(221, 221, 221)")]
)
def test_tables_in_a_notebook_take_the_colours_of_the_page(window: Page, back: str, ink: str) -> None:
    data = make_judged(20, 5, 3)
    shown = evaluate(data.labels, data)._repr_html_() + data._repr_html_()
    asked: list[str] = []
    window.on("request", lambda request: asked.append(request.url))
    window.set_content(f"<body style='background:{back};color:{ink}'>{shown}</body>")
    styles = "each => ({ink: getComputedStyle(each).color, back: getComputedStyle(each).backgroundColor})"
    cells = window.eval_on_selector_all("th, td", f"cells => cells.map({styles})")
    assert len(cells) > 20
    assert {each["ink"] for each in cells} == {ink}
    assert {each["back"] for each in cells} == {"rgba(0, 0, 0, 0)"}
    assert asked == []
