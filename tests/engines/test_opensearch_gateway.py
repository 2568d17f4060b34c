"""docs/engines/gateway.md in a real OpenSearch: candidates from the engine, the order from the service."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import querywise
from querywise.retrieval.reading import read_judged
from querywise.storage import load
from tests import commands
from tests.engines import pages, shop
from tests.engines.opensearch import OpenSearch
from tests.engines.processes import free_port, listens
from tests.serving import serving

INDEX, FEATURES = "gateway", ("title", "body", "clicks")


@pytest.fixture(scope="module")
def folder(search: OpenSearch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page followed up to the model."""
    search.ask("PUT", INDEX, {"settings": {"number_of_shards": 1}})
    search.fill(INDEX, shop.documents())
    made = tmp_path_factory.mktemp("gateway")
    (made / "judgements.jsonl").write_text(shop.judgement_lines())
    [code] = [block.text for block in pages.blocks("gateway") if block.language == "python"]
    (made / "gateway.py").write_text(code)
    lines = [line for block in pages.blocks("gateway") if block.is_commands for line in block.text.splitlines()]
    assert [line.split()[0] for line in lines] == ["python", "querywise", "querywise", "python", "curl"]
    pages.run(lines[0], made, INDEX_URL=f"{search.url}/{INDEX}")
    done = commands.run(made, *lines[1].split()[1:])
    assert done.returncode == 0, done.stderr
    return made


@contextlib.contextmanager
def running(search: OpenSearch, folder: Path, service: str) -> Iterator[Callable[[str], Any]]:
    """The page's gateway as a process; gives what it answers to words."""
    port = free_port()
    variables = {"INDEX_URL": f"{search.url}/{INDEX}", "SERVICE_URL": service, "SECONDS": "60"}
    command = [sys.executable, "gateway.py", "serve", str(port)]
    process = subprocess.Popen(command, cwd=folder, env={**os.environ, **variables}, stderr=subprocess.DEVNULL)

    def asked(words: str) -> Any:
        where = f"http://127.0.0.1:{port}/search?{urllib.parse.urlencode({'q': words})}"
        return json.loads(pages.run(f"curl '{where}'", folder))

    try:
        while not listens(port):
            assert process.poll() is None, "the gateway ended"
        yield asked
    finally:
        process.terminate()
        process.wait()


def as_candidates(hits: Any, words: str) -> querywise.Candidates:
    """The documents of an answer with the features that the engine computed for them."""
    rows = [[hit["matched_queries"].get(name, 0.0) for name in FEATURES] for hit in hits]
    return querywise.Candidates(
        np.array(rows),
        np.array([0, len(rows)]),
        ("q",),
        document_ids=tuple(hit["_id"] for hit in hits),
        feature_names=FEATURES,
        queries=querywise.QueryTable(("q",), texts=(words,)),
    )


def test_the_order_is_that_of_the_model_for_the_same_candidates(search: OpenSearch, folder: Path) -> None:
    ranker = load(folder / "blend")
    with serving(folder / "blend") as served, running(search, folder, served.url) as asked:
        version = served.get("/v1/model").json()["version"]
        for words in ("how to clean a jaguar", "car paint", "größe jaguar & co"):
            found = asked(words)
            assert found["ranked_by"] == version
            scores = ranker.predict(as_candidates(found["hits"], words))
            assert scores.tolist() == pytest.approx([hit["_score"] for hit in found["hits"]])
            assert np.all(np.diff(scores) <= 0)
            assert len(scores) > 50


def test_features_are_logged_as_requests_get_them_later(search: OpenSearch, folder: Path) -> None:
    data = read_judged(folder / "train.txt")
    assert data.candidates.feature_names == FEATURES
    logged = dict(zip(data.candidates.document_ids or (), data.candidates.features.tolist(), strict=True))
    query = shop.judgements()[-1]  # the last one's rows are the last of each document
    with running(search, folder, "http://127.0.0.1:9") as asked:
        later = as_candidates(asked(query["text"])["hits"], query["text"])
    both = [name for name in later.document_ids or () if name in query["labels"]]
    assert len(both) > 3
    features = dict(zip(later.document_ids or (), later.features.tolist(), strict=True))
    assert all(features[name] == logged[name] for name in both)


def test_without_the_service_the_engines_order_comes_back(search: OpenSearch, folder: Path) -> None:
    with running(search, folder, "http://127.0.0.1:9") as asked:
        found = asked("car paint")
    assert found["ranked_by"] == "engine"
    assert "refused" in found["note"]
    first = {"multi_match": {"query": "car paint", "fields": ["title", "body"]}}
    own = search.ask("POST", f"{INDEX}/_search", {"size": 100, "query": first})["hits"]["hits"]
    assert [hit["_score"] for hit in found["hits"]] == pytest.approx([hit["_score"] for hit in own])


def test_without_the_engine_the_gateway_says_so(folder: Path) -> None:
    with running(OpenSearch("http://127.0.0.1:9"), folder, "http://127.0.0.1:9") as asked:
        assert "refused" in asked("car paint")["error"]
