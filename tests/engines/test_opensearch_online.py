"""The loop of docs/online.md in front of a real OpenSearch: two models, made-up users in a browser and over HTTP.

The users are there two hours ago by the gateway's clock, so that their click windows have closed.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, expect

from querywise.rankers.single import OneFeature
from querywise.retrieval.reading import read_judged
from querywise.storage import save, version_of
from tests import commands
from tests.engines import pages, shop
from tests.engines.gateways import Page
from tests.engines.opensearch import OpenSearch
from tests.serving import Serving, started

pytestmark = pytest.mark.browser
HOURS = 2
EARLIER = f"""
import sys, time
now = time.time
time.time = lambda: now() - {3600 * HOURS}
from querywise.cli import main
sys.argv[0] = "querywise"
main()
"""
HTTP_VISITORS, BROWSER_VISITORS = 150, 6
QUERIES = [each["text"] for each in shop.judgements()]


@contextmanager
def website(gateway: str, page: str) -> Iterator[str]:
    """A shop's site: its page of results, products, and the gateway's paths on it; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/v1/"):
                self.answered(httpx.get(gateway + self.path, timeout=60))
            else:
                self.content(200, "text/html", (page if self.path.startswith("/search") else "a product").encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent = {name: self.headers[name] for name in ("Content-Type", "Origin")}
            self.answered(httpx.post(gateway + self.path, content=body, headers=sent, timeout=60))

        def answered(self, answer: httpx.Response) -> None:
            self.content(answer.status_code, answer.headers["content-type"], answer.content)

        def content(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def likes(query: str, title: str) -> bool:
    """What a made-up user clicks: a title with a word of the query, whatever else is true of the product."""
    return bool(set(query.split()) & set(title.split()))


def visit_by_http(server: Serving, number: int) -> int:
    """One user asks, and clicks what they like; the number of clicks."""
    query = QUERIES[number % len(QUERIES)]
    found = server.get("/v1/hits", q=query, session=f"visitor {number}").json()
    liked = [each["id"] for each in found["documents"] if likes(query, each["source"]["title"])]
    if liked:
        events = [{"impression": found["impression"], "document": each} for each in liked]
        assert server.post("/v1/events", {"events": events}).json()["accepted"] == len(liked)
    return len(liked)


def visit_by_browser(browser: Browser, site: str, number: int) -> int:
    """The same in a browser of its own, on the page that the documentation shows."""
    query, context = QUERIES[number % len(QUERIES)], browser.new_context()
    page, clicks = context.new_page(), 0
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(f"{site}/search?q={quote(query)}")
    expect(page.locator("#hits a")).to_have_count(10)
    titles = page.locator("#hits a").all_inner_texts()
    for place, title in enumerate(titles):
        if likes(query, title):
            with page.expect_response("**/v1/events") as kept:
                page.locator("#hits a").nth(place).click(modifiers=["Control"])
            assert kept.value.json()["accepted"] == 1
            clicks += 1
    page.reload()
    expect(page.locator("#hits a")).to_have_count(10)
    assert page.locator("#hits a").all_inner_texts() == titles, "a repeat has the same list"
    context.close()
    assert wrong == []
    return clicks


@pytest.fixture(scope="module")
def followed(search: OpenSearch, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The gateway's page followed up to the log of features, and two models of it."""
    search.ask("PUT", "online", {"settings": {"number_of_shards": 1}})
    search.fill("online", shop.documents())
    made = Page("opensearch", search.url, "online", tmp_path_factory.mktemp("online"))
    done = commands.run(made.folder, "log", *made.words("log"))
    assert done.returncode == 0, done.stderr
    data = read_judged(made.folder / "log.parquet")
    save(OneFeature("clicks").fit(data), made.folder / "a")
    save(OneFeature("title").fit(data), made.folder / "b")
    return made


def test_two_models_before_users_of_a_shop_are_compared_and_the_better_one_is_promoted(
    followed: Page, browser: Browser
) -> None:
    folder, blocks = followed.folder, pages.blocks("../online")
    lines = [shlex.split(line) for block in blocks for line in block.text.splitlines() if line.startswith("querywise ")]
    [gateway] = [each[1:] for each in lines if each[1] == "gateway"]
    [shown] = [block.text for block in blocks if block.language == "html"]
    own = {"http://localhost:9200": followed.url, "shop": followed.index}
    words = [
        own.get(each, str(folder / each) if re.fullmatch(r"[a-z-]+(/|\.json)", each) else each) for each in gateway
    ]
    better, worse = (version_of(folder / name)[:12] for name in "ba")
    started_earlier = [sys.executable, "-c", EARLIER, *words, "--allowed-host", "localhost", "--port", "0"]
    with started(started_earlier) as server, website(server.url, shown) as site, ThreadPoolExecutor(4) as threads:
        clicks = sum(threads.map(lambda number: visit_by_http(server, number), range(HTTP_VISITORS)))
        clicks += sum(visit_by_browser(browser, site, HTTP_VISITORS + number) for number in range(BROWSER_VISITORS))
        counted = f'querywise_online_events_total{{outcome="accepted"}} {clicks}'
        assert counted in server.get("/metrics").text
        time.sleep(1)  # impressions are written behind their answers
        told = json.loads(commands.output(commands.run(folder, "online", "log/", "--json")))
        assert told["arms"] == [worse, better]
        assert told["draws"] == HTTP_VISITORS + BROWSER_VISITORS
        assert told["impressions"] == HTTP_VISITORS + 2 * BROWSER_VISITORS
        assert set(told["left_out"].values()) == {0}
        assert told["contests"][0]["better"], told["notes"]
        page = browser.new_page()
        page.goto(f"{server.url}/?experiment")
        expect(page.locator("#experiment-title")).to_have_text(f"Users prefer {better}", timeout=60_000)
        page.close()
        for line in [each[1:] for each in lines if each[1] in ("online", "promote")][:2]:
            assert commands.run(folder, *line).returncode == 0
        assert "</svg>" in (folder / "rate.svg").read_text()
        for _ in range(200):
            if server.get("/v1/model").json()["version"] == better:
                break
            time.sleep(0.05)
        assert server.get("/v1/hits", q="car paint").json()["model"] == better
