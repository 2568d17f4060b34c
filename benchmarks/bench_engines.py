"""Latency in a real engine: the first stage alone, ranked anew by one model, by a routed model, and by the gateway.

`python -m benchmarks.bench_engines FILE` writes the table of docs/engines.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.results import Result, alone
from querywise import KnnOffline2, RankSVM, Router, TextView, export_model
from querywise.data.judged import Judged
from querywise.retrieval.reading import read_judged
from tests.engines import ltr_plugin, opensearch, pages, shop
from tests.engines.artifacts import UnavailableError
from tests.engines.gateways import Page

DOCUMENTS, REQUESTS, _WARM = 20_000, 400, 100
_WORDS = [each["text"] for each in shop.judgements()]


def measure() -> Iterator[Result]:
    """Engines: OpenSearch and Solr over 20,000 documents here, 400 requests each way in turn, 100 before them.

    Every request asks for ten documents. The first stage is a `multi_match` over two fields; the hundred best are
    ranked anew by a weighted sum of three features in the engine, by one of 20 such models that the router chooses by
    the query's text, or by `blend` behind `querywise gateway`, as docs/engines/gateway.md starts it.
    """
    try:
        opensearch.fetch()
    except UnavailableError as error:
        print(f"engines: skipped. {error}")
        return
    for way, times in measured().items():
        yield alone("engines", f"OpenSearch, {way}, half within", ours=statistics.median(times), unit="ms")
        yield alone("engines", f"OpenSearch, {way}, 99 % within", ours=p99(times), unit="ms")
    from benchmarks import bench_solr

    for way, times in bench_solr.measured().items():
        yield alone("engines", f"Solr, {way}, half within", ours=statistics.median(times), unit="ms")
        yield alone("engines", f"Solr, {way}, 99 % within", ours=p99(times), unit="ms")


def measured() -> dict[str, list[float]]:
    """Milliseconds of every request, by the way a query is answered; the ways take turns."""
    ltr = ltr_plugin.is_there(opensearch.VERSION)
    with opensearch.serving(ltr=ltr) as search, _page(search) as page:
        folder, client = page.folder, Client(search.url)
        data = read_judged(folder / "log.parquet")
        ways: dict[str, Callable[[str], Any]] = {"first stage": lambda words: client.ask(_first(words))}
        if ltr:
            ways |= _in_the_engine(search, client, folder, data)
        with page.gateway() as server, httpx.Client(base_url=server.url, timeout=60) as asked:
            ways["blend behind the gateway"] = lambda words: asked.get("/v1/hits", params={"q": words}).json()
            return timed(ways)


def _in_the_engine(
    search: opensearch.OpenSearch, client: Client, folder: Path, data: Judged
) -> dict[str, Callable[[str], Any]]:
    """Models that were uploaded: one for all queries, and one of 20 by the query's text."""
    features = json.loads(next(block.text for block in pages.blocks("opensearch") if block.language == "json"))
    export_model(RankSVM().fit(data), "opensearch", folder / "one", name="one", features=features)
    local = KnnOffline2(RankSVM(), k=0.2, models=20, view=TextView(8)).fit(data)
    export_model(local, "opensearch", folder / "routed", name="routed", features=features)
    for name in ("one", "routed"):
        pages.run(f"{sys.executable} {name}/upload.py --url {search.url}", folder)
    router = Router(folder / "routed")
    return {
        "one model in the engine": lambda words: client.ask(_rescored(words, "one")),
        "a routed model in the engine": lambda words: client.ask(_rescored(words, router.model(words))),
    }


class Client:
    """One connection to the engine that stays open."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)

    def ask(self, body: Any) -> Any:
        """The engine's answer to a search."""
        self._connection.request("POST", "/shop/_search", json.dumps(body), {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        content = json.loads(answer.read())
        assert answer.status == 200, content
        return content


def timed(ways: dict[str, Callable[[str], Any]]) -> dict[str, list[float]]:
    """Milliseconds of every request, after some that warm the engine up."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(_WARM + REQUESTS):
        for way, answer in ways.items():
            begun = time.perf_counter()
            answer(_WORDS[number % len(_WORDS)])
            times[way].append(1000 * (time.perf_counter() - begun))
    return {way: every[_WARM:] for way, every in times.items()}


def p99(times: list[float]) -> float:
    """The time that 99 of 100 requests take at most."""
    return statistics.quantiles(times, n=100)[98]


def _first(words: str) -> Any:
    return {"query": {"multi_match": {"query": words, "fields": ["title", "body"]}}}


def _rescored(words: str, model: str) -> Any:
    by_model = {"sltr": {"model": model, "params": {"keywords": words}}}
    weights = {"query_weight": 0, "rescore_query_weight": 1, "rescore_query": by_model}
    return {**_first(words), "rescore": {"window_size": 100, "query": weights}}


@contextlib.contextmanager
def _page(search: opensearch.OpenSearch) -> Iterator[Page]:
    """An index of products, and the gateway's page followed up to its model."""
    search.ask("PUT", "shop", {"settings": {"number_of_shards": 1}})
    search.fill("shop", shop.documents())
    more = list(shop.documents(DOCUMENTS, seed=7).items())[len(shop.documents()) :]
    for place in range(0, len(more), 5000):
        search.fill("shop", dict(more[place : place + 5000]))
    with tempfile.TemporaryDirectory(prefix="querywise-bench-") as above:
        made = Page("opensearch", search.url, "shop", Path(above))
        made.fit()
        yield made


def table(engine: str, command: str, found: dict[str, list[float]]) -> str:
    """The times in Markdown."""
    rows = [f"| {way} | {statistics.median(times):.1f} | {p99(times):.1f} |" for way, times in found.items()]
    said = f"{engine}, {DOCUMENTS:,} documents, {REQUESTS} requests each way, in turn, by"
    head = [
        f"{said} `python -m benchmarks.{command}`:",
        "",
        "| way | half within, ms | 99 % within, ms |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


if __name__ == "__main__":
    text = table(f"OpenSearch {opensearch.VERSION}", "bench_engines", measured())
    Path(sys.argv[1]).write_text(text, encoding="utf-8")
