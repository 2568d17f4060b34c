"""Back-off in the service: counted in /metrics, told by /v1/explain and on the page's route."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from querywise import (
    Blend,
    Judged,
    KnnOnline,
    QueryTable,
    RankSVM,
    TextView,
    WeightsByQuery,
    make_judged,
    save,
)
from querywise.data.collections import Document
from querywise.retrieval.features import candidates_for
from querywise.retrieval.index import build_index
from querywise.service.loaded_model import ModelFolder
from querywise.service.lookup import Lookup
from querywise.service.routes import create_app
from querywise.service.service import Service
from tests.worlds import as_runs

WORDS = ("red", "green", "blue", "large", "small", "cat", "dog", "snake", "river", "stone")


def told(service: Service, *requests: tuple[str, dict[str, Any]]) -> list[Any]:
    """The answers to these requests, one after the other; a GET where the body is one of parameters, then /metrics."""

    async def ask() -> list[Any]:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            found: list[Any] = []
            for path, content in requests:
                got = path.startswith("/v1/search")
                done = await (client.get(path, params=content) if got else client.post(path, json=content))
                assert done.status_code == 200, done.text
                found.append(done.json())
            lines = (await client.get("/metrics")).text.splitlines()
            found.append(next(int(line.split()[1]) for line in lines if line.startswith("querywise_back_offs_total ")))
            return found

    return asyncio.run(ask())


def queries_of_words() -> QueryTable:
    texts = tuple(f"{first} {second}" for first in WORDS for second in WORDS if first < second)
    return QueryTable(tuple(f"q{number}" for number in range(len(texts))), texts=texts)


@pytest.mark.parametrize("blended", [False, True])
def test_a_search_for_unknown_words_is_answered_by_the_global_model_and_counted(tmp_path: Path, blended: bool) -> None:
    rng, table = np.random.default_rng(0), queries_of_words()
    pages = [
        Document(f"d{each}", " ".join(rng.choice(WORDS, 2)), " ".join(rng.choice(WORDS, 12))) for each in range(60)
    ]
    index = build_index([*pages, Document("odd", "zzzz", "zzzz qqqq among red and green")])
    candidates = candidates_for(index, table, top=20)
    judged = Judged(candidates, (rng.random(len(candidates.features)) < 0.3).astype(np.int64))
    online = KnnOnline(RankSVM(0.1), k=5, view=TextView(3))
    ranker: Any = Blend([RankSVM(1.0), online]) if blended else online
    save(ranker.fit(judged), tmp_path / "model")
    service = Service(ModelFolder(tmp_path / "model"), Lookup(index))
    known, unknown, counted = told(service, ("/v1/search", {"q": "red cat"}), ("/v1/search", {"q": "zzzz qqqq"}))
    assert not known["explanation"]["is_global"]
    assert "note" not in known["explanation"]
    assert unknown["explanation"]["is_global"]
    assert unknown["explanation"]["note"] == "the training queries have none of its words"
    assert all(each["score"] == each["score_everyone"] for each in unknown["documents"])
    assert counted == 1
    documents = [{"id": "d", "features": [1.0] * 27}]
    asked = [("/v1/rank", {"query": {"text": text}, "documents": documents}) for text in ("red cat", "zzzz", "")]
    explained = [("/v1/explain", each) for _, each in asked]
    *answers, counted = told(service, *asked, *explained)
    assert counted == 1 + 2, "explanations are not counted: what they explain was"
    assert [bool(each.get("note")) for each in answers[3:]] == [False, True, True]


def test_weights_for_all_queries_are_counted_as_a_back_off_too(tmp_path: Path) -> None:
    table = queries_of_words()
    data = as_runs(make_judged(len(table), 8, 2, seed=1))
    data = data.with_queries(QueryTable(data.candidates.query_ids, texts=table.texts))
    ranker = WeightsByQuery(way="neighbours", kappa=0.0, shrinkage=1.0).fit(data)
    save(ranker, tmp_path / "model")
    service = Service(ModelFolder(tmp_path / "model"))
    asked = [("/v1/weights", {"query": {"text": text}}) for text in ("red cat", "zzzz qqqq", "")]
    *found, counted = told(service, *asked)
    common = dict(zip(ranker.runs_, ranker.weights_.tolist(), strict=True))
    assert [each == common for each in found] == [False, True, True]
    assert counted == 2
