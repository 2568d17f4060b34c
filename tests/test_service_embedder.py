"""The service beside an embedder that is hostile, silent, slow or gone: ranking goes on, and searching by words."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from querywise.retrieval.embedders.named import ALLOW
from querywise.retrieval.embedders.remote import KEY
from querywise.service.query_vectors import Circuit
from tests.commands import output, refused, run
from tests.embedding import Service, embedding_service
from tests.serving import Serving, serving
from tests.test_cli_vectors import collection_with_vectors

SECONDS = 2.0  # that an answer may take


@pytest.fixture(scope="module")
def embedder() -> Iterator[Service]:
    with embedding_service() as found:
        yield found


@pytest.fixture(scope="module")
def place(embedder: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection, its features, an index and a model with vectors of the embedder."""
    folder = tmp_path_factory.mktemp("embedded")
    collection_with_vectors(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "before"))
        embed = ("--embed", embedder.address, "-q")
        output(run(folder, "fit", "docs", *embed, "--set", "l2=1", "--out", "model"))
        output(run(folder, "index", "docs", *embed, "--out", "index"))
        output(run(folder, "features", "docs", *embed, "--out", "features"))
    return folder


@pytest.fixture
def started(place: Path, embedder: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """A service whose embedder is named; nothing that this answered is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    embedder.wrong = []
    with serving(*served(place), "--embed", embedder.address, "--timeout", SECONDS) as server:
        yield server
    embedder.wrong = []


def served(place: Path) -> tuple[object, ...]:
    return (place / "model", "--index", place / "index", "--data", place / "features" / "S1.txt")


def metric(server: Serving, name: str) -> float:
    found = re.search(rf"^querywise_{name} (\S+)$", server.get("/metrics").text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def test_an_address_that_the_index_alone_names_is_not_served(
    place: Path, embedder: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(KEY, "sesame-77")
    embedder.asked = []
    said = refused(run(place, "serve", *served(place), "--port", 0))
    assert f"The index names the embedder '{embedder.address}'" in said
    assert f"with --embed {embedder.address}, or in the environment variable {ALLOW}" in said
    assert embedder.asked == []
    monkeypatch.setenv(ALLOW, embedder.origin)
    with serving(*served(place)) as server:
        assert not server.get("/v1/search", q="apple jam").json()["without_vectors"]
    assert embedder.asked[-1] == ["apple jam"]
    assert list(tmp_path.iterdir()) == [], "what anybody searches for is not kept on disk"


def test_a_silent_embedder_stops_neither_ranking_nor_searching_by_words(started: Serving, embedder: Service) -> None:
    query = started.get("/v1/queries").json()["queries"][0]["id"]
    features = started.get("/v1/model").json()["feature_count"]
    documents = [{"id": str(row), "features": [float(row)] * features} for row in range(5_000)]
    good = started.get("/v1/search", q="pear jam").json()
    assert not good["without_vectors"]
    assert any("vectors" in each["ranks"] for each in good["documents"])
    embedder.wrong = ["late"] * 1_000

    def searched(number: int) -> tuple[float, dict[str, object]]:
        begun = time.monotonic()
        found = started.get("/v1/search", q=f"pear jam {number}")
        assert found.status_code == 200, found.text
        return time.monotonic() - begun, found.json()

    with ThreadPoolExecutor(12) as pool:
        searches = [pool.submit(searched, number) for number in range(12)]
        for _ in range(3):
            for answer in (
                started.get("/v1/queries"),
                started.get("/v1/search", qid=query),
                started.post("/v1/rank", {"query": {"id": "q"}, "documents": documents}),
                started.get("/healthz"),
            ):
                assert answer.status_code == 200, answer.text
                assert answer.elapsed.total_seconds() < SECONDS
        found = [each.result() for each in searches]
    assert max(seconds for seconds, _ in found) < SECONDS + 1, (
        "connecting, reading and retries are in the request's time"
    )
    for _, each in found:
        assert each["without_vectors"] is True
        assert isinstance(each["documents"], list)
        assert each["documents"][0]["ranks"].keys() <= {"bm25", "fused"}
        assert each["documents"][0]["id"] in ("jam-pear", "tree-pear")


def test_an_embedder_that_fails_is_left_alone_and_that_is_told(started: Serving, embedder: Service) -> None:
    assert started.get("/healthz").json() == {"status": "alive"}
    assert metric(started, "embedder_open") == 0
    embedder.wrong = [400] * 1_000
    for number in range(3):
        assert started.get("/v1/search", q=f"plum {number}").json()["without_vectors"]
    health = started.get("/healthz")
    assert (health.status_code, health.json()) == (200, {"status": "alive", "embedder": "failing"})
    assert metric(started, "embedder_open") == 1
    asked = len(embedder.asked)
    begun = time.monotonic()
    for number in range(5):
        assert started.get("/v1/search", q=f"fig {number}").json()["without_vectors"]
    pair = {"above": "tree-fig", "below": "jam-fig"}
    told = started.post("/v1/explain", {"query": {"id": "q", "text": "fig tree"}, **pair}).json()
    assert told["without_vectors"] is True
    assert time.monotonic() - begun < 5
    assert len(embedder.asked) == asked, "nobody waits for it meanwhile"
    assert metric(started, "embedder_failures_total") == 3
    assert metric(started, "without_vectors_total") == 9


def test_a_large_answer_of_an_embedder_does_not_keep_others_waiting(started: Serving, embedder: Service) -> None:
    started.get("/v1/search", q="lime jam")
    embedder.wrong, embedder.sent = ["endless"], 0
    with ThreadPoolExecutor(1) as pool:
        search = pool.submit(started.get, "/v1/search", q="melon jam")
        while not search.done():
            assert started.get("/healthz").elapsed.total_seconds() < 1
        assert search.result().json()["without_vectors"] is True
    assert embedder.sent < 20_000_000


@pytest.mark.browser
@pytest.mark.xdist_group("service page")
def test_the_page_says_that_a_query_was_searched_for_by_words_alone(
    page: Page, started: Serving, embedder: Service
) -> None:
    page.goto(f"{started.url}/?q=kiwi+jam")
    expect(page.locator("#ours > li").first).to_be_visible()
    expect(page.locator("#note")).to_be_hidden()
    embedder.wrong = [400] * 10
    page.goto(f"{started.url}/?q=mango+jam")
    expect(page.locator("#note")).to_have_text("Found by words alone: the embedder did not make this query’s vector.")


def test_a_circuit_opens_after_failures_in_a_row_and_lets_one_trial_through_after_a_pause() -> None:
    now = 0.0
    circuit = Circuit(failures=3, pause=10, clock=lambda: now)
    for _ in range(2):
        assert circuit.allows()
        circuit.failed()
    circuit.succeeded()
    for _ in range(3):
        assert circuit.allows()
        circuit.failed()
    assert circuit.is_open
    now = 9.9
    assert not circuit.allows()
    now = 10.1
    assert [circuit.allows() for _ in range(5)] == [True, False, False, False, False]
    circuit.failed()
    now = 20.0
    assert not circuit.allows()
    now = 20.2
    assert circuit.allows()
    circuit.succeeded()
    assert circuit.allows()
    circuit.failed()
    assert circuit.allows(), "it takes as many failures again"
