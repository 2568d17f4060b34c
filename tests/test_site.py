"""The documentation as a site: it is complete, builds, loads nothing from elsewhere, and its search finds things."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

import querywise

ROOT = Path(__file__).parent.parent
SOUGHT = {
    "NDCG": "measures.html",
    "SelectRanker": "api/rankers.html#querywise.rankers.clusters.SelectRanker",
    "RankSVM": "api/learners.html#querywise.learners.ranksvm.ranksvm.RankSVM",
    "back-off": "api/rankers.html#querywise.rankers.knn.KnnOffline1",
    "querywise fuse": "cli.html#querywise-fuse",
    "/v1/weights": "http.html#post-v1weights",
    "OpenSearch": "engines/opensearch.html",
    "gains": "data.html#gains-real-valued-labels",
    "missing values": "data.html#missing-values",
    "GridSearchCV": "python.html#scikit-learn",
}  # what is typed, and the place that must be among the first three hits


def part_of_site(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_on_one_page_of_the_reference() -> None:
    names = [name for _, _, group in part_of_site("hooks").API.values() for name in group]
    assert sorted(name for name in names if "." not in name) == [
        name for name in dir(querywise) if not name.startswith("_")
    ]


def test_docstrings_become_lists_of_parameters_and_blocks_of_code() -> None:
    said = (
        "As `Naive` [geng2008]_.\n\nArgs:\n    k: how many,\n        or a share.\n    seed, other: where it starts.\n\n"
        "Note: no more."
    )
    assert part_of_site("docstrings").as_markdown(f"{said}\n\n>>> 1 + 1\n2") == (
        "As [`Naive`][querywise.rankers.clusters.Naive] \\[geng2008\\].\n\n"
        "- **`k`**: how many,\n  or a share.\n- **`seed`, `other`**: where it starts.\n\n"
        "Note: no more.\n\n\n```pycon\n>>> 1 + 1\n2\n```"
    )


def test_what_comes_back_and_what_is_raised_stand_out() -> None:
    said = "Returns:\n    A table.\n\nRaises:\n    DataError: No rows,\n        and no columns."
    assert part_of_site("docstrings").as_markdown(said) == (
        "**Returns**: A table.\n\n**Raises**: DataError: No rows,\nand no columns."
    )


def test_the_first_use_of_a_term_leads_to_the_glossary_and_code_is_left_alone() -> None:
    link, anchors = (
        part_of_site("docstrings").with_terms,
        {"back-off": "back-off", "preference pair": "preference-pair"},
    )
    assert link("`back-off`: Preference pairs; a preference pair.", anchors, set()) == (
        "`back-off`: [Preference pairs](../glossary.md#preference-pair); a preference pair."
    )
    assert link("A [back-off][x] of mine, no back-off-like thing.", anchors, set()) == (
        "A [back-off][x] of mine, no back-off-like thing."
    )
    assert link("Its back-off.", anchors, {"back-off"}) == "Its back-off."
    assert link("No glossary yet.", {}, set()) == "No glossary yet."


def test_names_of_classes_between_words_lead_to_the_reference() -> None:
    link = part_of_site("docstrings").with_names
    assert link("With DataError, as `DataError`. Cluster, MAP and RankSVM.", "RankSVM") == (
        "With [DataError][querywise.errors.DataError], as `DataError`. Cluster, MAP and RankSVM."
    )
    assert link("So:\n\n    RankSVM()", "x") == "So:\n\n    RankSVM()"


def test_terms_of_the_glossary_lead_to_its_headings() -> None:
    glossary = ROOT / "docs" / "glossary.md"
    if not glossary.is_file():
        pytest.skip("there is no glossary yet")
    found = part_of_site("docstrings").terms()
    headings = {line.removeprefix("### ").lower() for line in glossary.read_text().splitlines() if line[:4] == "### "}
    assert found
    assert {anchor.replace("-", " ") for anchor in found.values()} <= {each.replace("-", " ") for each in headings}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the site is served, built without a warning; with --quiet, warnings would not count as such."""
    built = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(built)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


def found(page: Page, sought: str) -> list[str]:
    """The places that the site's search shows in its first three hits; a hit is a page and its best sections."""
    page.evaluate("document.querySelectorAll('.md-search-result__item').forEach(item => item.dataset.old = true)")
    field = page.locator("input[name=query]")
    field.fill(sought)
    field.press("End")
    hits = page.locator(".md-search-result__item:not([data-old])")
    hits.first.wait_for()
    links = [link for hit in hits.all()[:3] for link in hit.locator("a.md-search-result__link:visible").all()]
    parts = [urlsplit(link.evaluate("link => link.href")) for link in links]
    return [part.path.removeprefix("/") + (f"#{part.fragment}" if part.fragment else "") for part in parts]


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.xdist_group("site")
def test_the_sites_own_search_finds_ten_things_among_its_first_three(address: str, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{address}/index.html")
    first = {sought: found(page, sought) for sought in SOUGHT}
    assert {sought: places for sought, places in first.items() if SOUGHT[sought] not in places} == {}


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.xdist_group("site")
def test_pages_load_nothing_from_elsewhere_and_are_as_wide_as_the_screen(address: str, browser: Browser) -> None:
    asked: list[str] = []
    for width in (1280, 390):  # a page each: one that is resized moves its search field for a moment
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.on("request", lambda request: asked.append(request.url))
        for name in ("index", "reproduction", "reproduction/geng2008", "methods", "api/rankers"):
            page.goto(f"{address}/{name}.html")
            assert page.evaluate("document.documentElement.scrollWidth") == width, name
    assert asked
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
