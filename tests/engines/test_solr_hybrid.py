"""Weights of runs in Solr's rerank query: the ranking that the model gives to the same candidates."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from querywise.contracts.run_weights import weights_of_query
from querywise.data.judgements import Judgement
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import Run
from querywise.data.runs import judge, tabulate_runs
from querywise.rankers.weights.by_query import WeightsByQuery
from tests.engines import pages, shop
from tests.engines.solr import Solr

PARSER = "{!simple q.operators='' qf=%s v=$keywords}"
TEXTS = [each["text"] for each in shop.judgements()]


@pytest.fixture(scope="module")
def core(node: Solr) -> str:
    node.create("hybrid")
    node.fill("hybrid", shop.documents())
    return "hybrid"


def lists(node: Solr, core: str, text: str) -> dict[str, dict[str, float]]:
    """The body's best 100, and the title's scores of those of them that it finds."""
    asked = {"q": PARSER % "body", "keywords": text, "fl": "id,score", "rows": "100", "sort": "score desc,id asc"}
    body = {each["id"]: each["score"] for each in node.select(core, asked)}
    among = {**asked, "q": PARSER % "title", "fq": "{!terms f=id v=$found}", "found": ",".join(body)}
    return {"body": body, "title": {each["id"]: each["score"] for each in node.select(core, among)}}


def request_of_the_page() -> Any:
    """The function that the page shows."""
    page = (pages.PAGES / "hybrid.md").read_text()
    found = re.search(r"```python\n(def rerank\(.*?)```", page, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    return names["rerank"]


def test_solrs_rerank_gives_the_ranking_of_the_model(node: Solr, core: str) -> None:
    found = {f"q{number}": lists(node, core, text) for number, text in enumerate(TEXTS)}
    runs = [Run(run, {query: own[run] for query, own in found.items() if own[run]}) for run in ("body", "title")]
    grades = [
        Judgement(f"q{number}", name, label, "here")
        for number, each in enumerate(shop.judgements())
        for name, label in each["labels"].items()
    ]
    data = judge(tabulate_runs(runs), grades)[0]
    ids = data.candidates.query_ids
    table = QueryTable(ids, texts=tuple(TEXTS[int(query[1:])] for query in ids))
    data = replace(data, candidates=replace(data.candidates, queries=table))
    ranker = WeightsByQuery("l2", way="neighbours", kappa=0.0, shrinkage=0.5).fit(data)
    rerank, predicted, checked = request_of_the_page(), ranker.predict(data.candidates), 0
    assert data.candidates.document_ids is not None
    for query, name in enumerate(ids):
        text, rows = TEXTS[int(name[1:])], data.candidates.rows(query)
        weights = weights_of_query(ranker, QueryTable(("query",), texts=(text,)), None)
        if not found[name]["title"] or not min(weights.values()) > 0:
            continue
        asked = rerank(text, weights, found[name])
        there = [each["id"] for each in node.select(core, {**asked, "rows": "100"})]
        ours = dict(zip(data.candidates.document_ids[rows], predicted[rows].tolist(), strict=True))
        in_their_order = np.array([ours[each] for each in there])
        assert set(there) == set(ours)
        assert (np.diff(in_their_order) <= 1e-6 * np.abs(in_their_order).max()).all(), text
        checked += 1
    assert checked > 20
