"""The service beside an embedder that is hostile, silent, slow or gone: ranking goes on, and searching by words."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from playwright.sync_api import Page, expect

from querywise.retrieval.embedders.named import ALLOW
from querywise.retrieval.embedders.remote import KEY
from querywise.service.limits import Limits
from querywise.service.lookup import Circuit, Lookup, QueryVectors
from querywise.service.schema import Query
from tests.commands import output, refused, run
from tests.embedding import Service, embedding_service
from tests.serving import Serving, serving
from tests.support.vectors import collection_with_vectors

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
    embedder.wrong = [401] * 1_000
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


@pytest.mark.parametrize("number", ["3e38", "1e-45", "0"])
def test_a_vector_to_compute_nothing_with_is_no_vector_and_is_not_kept(
    started: Serving, embedder: Service, number: str
) -> None:
    assert not started.get("/v1/search", q="pear").json()["without_vectors"]
    embedder.wrong = [f'{{"data": [{{"embedding": [{number}, {number}]}}]}}'.encode()] * 3
    for _ in range(3):
        found = started.get("/v1/search", q="quince jam")
        assert (found.status_code, found.json()["without_vectors"]) == (200, True), found.text
    assert metric(started, "without_vectors_total") == 3
    if number == "0":  # what embedders give for a text that they know nothing of
        assert metric(started, "embedder_open") == metric(started, "embedder_failures_total") == 0
        assert not started.get("/v1/search", q="quince jam").json()["without_vectors"]
    else:
        assert metric(started, "embedder_open") == 1
        assert metric(started, "embedder_failures_total") == 3
        assert started.get("/healthz").json()["embedder"] == "failing"


def test_a_wrong_vector_is_forgotten_once_the_embedder_is_well(started: Serving, embedder: Service) -> None:
    started.get("/v1/search", q="pear")
    embedder.wrong = [b'{"data": [{"embedding": [3e38, 3e38]}]}']
    assert started.get("/v1/search", q="papaya jam").json()["without_vectors"]
    assert not started.get("/v1/search", q="papaya jam").json()["without_vectors"]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_text_that_the_embedder_does_not_take_says_nothing_about_others(
    started: Serving, embedder: Service, status: int
) -> None:
    embedder.wrong = [status] * 5
    for number in range(5):
        assert started.get("/v1/search", q=f"a very long text {number}").json()["without_vectors"]
    assert metric(started, "embedder_failures_total") == 5
    assert metric(started, "embedder_open") == 0
    assert not started.get("/v1/search", q="a text").json()["without_vectors"]


class _Held:
    """A lookup whose embedder answers when it is let, and notes what it was asked."""

    def __init__(self) -> None:
        self.free, self.asked = threading.Event(), list[str]()

    def needs_vector(self, _: Query) -> bool:
        return True

    def no_vector(self) -> list[float]:
        return [0.0]

    def embedded(self, text: str) -> list[float]:
        self.asked.append(text)
        self.free.wait(20)
        return [1.0]


def test_a_query_that_only_waited_for_a_thread_is_no_failure_of_the_embedder() -> None:
    held = _Held()
    vectors = QueryVectors(cast(Lookup, held), Limits(seconds=0.6))
    vectors.circuit = Circuit(failures=5)  # more than there are threads

    async def asked() -> list[bool]:
        queries = [Query(id="", text=str(number)) for number in range(40)]
        return [without for _, without in await asyncio.gather(*map(vectors.of, queries))]

    try:
        assert asyncio.run(asked()) == [True] * 40
    finally:
        held.free.set()
        vectors.close()
    assert vectors.failures == 40
    assert not vectors.circuit.is_open


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


def test_a_circuit_opens_for_an_embedder_that_fails_every_other_time() -> None:
    now = 0.0
    circuit = Circuit(failures=3, pause=10, clock=lambda: now)
    asked = 0
    while not circuit.is_open and asked < 100:
        assert circuit.allows()
        [circuit.succeeded, circuit.failed][asked % 2]()
        asked += 1
    assert (asked, circuit.allows()) == (8, False)
    now = 10.1
    assert circuit.allows()
    circuit.succeeded()
    for number in range(100):  # one of three that fails is no reason to do without it
        assert circuit.allows()
        [circuit.succeeded, circuit.succeeded, circuit.failed][number % 3]()
