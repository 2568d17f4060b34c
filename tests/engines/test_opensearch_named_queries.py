"""Features as scores of named queries, as exports for Elasticsearch's own learning_to_rank ask for them.

OpenSearch has named queries with scores, from the time when it and Elasticsearch were one. What it has not here is the
template that the request is sent as; it is filled in before.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from querywise import LambdaMART, Router, export_model
from querywise.rankers.clusters import Naive
from tests.commands import run_script
from tests.engines import pages, shop
from tests.engines.opensearch import OpenSearch
from tests.support.exports import positive

INDEX = "named"


@pytest.fixture(scope="module")
def features() -> Any:
    [text] = [block.text for block in pages.blocks("elasticsearch-native") if block.language == "json"]
    return json.loads(text)


def test_features_are_scores_of_their_own_and_leave_the_first_stage_as_it_is(
    search: OpenSearch, features: Any, tmp_path: Path
) -> None:
    search.ask("PUT", INDEX, {"settings": {"number_of_shards": 1}})
    search.fill(INDEX, shop.documents())
    made = positive()
    names = ("title", "body", "clicks")
    data = replace(
        made, candidates=replace(made.candidates, features=made.candidates.features[:, :3], feature_names=names)
    )
    export_model(Naive(LambdaMART(2, leaves=3), 2).fit(data), "elasticsearch-native", tmp_path, features=features)
    words = shop.judgements()[0]["text"]
    asked = json.loads(run_script(tmp_path / "router.py", words, "--first").stdout)
    filled = json.loads(asked["source"].replace("{{keywords}}", asked["params"]["keywords"]))
    answer = search.ask("POST", f"{INDEX}/_search?include_named_queries_score=true", filled)
    first = {"size": filled["size"], "query": filled["query"]["bool"]["must"][0]}
    alone = search.ask("POST", f"{INDEX}/_search", first)["hits"]["hits"]
    hits = answer["hits"]["hits"]
    assert [(hit["_id"], hit["_score"]) for hit in hits] == [(hit["_id"], hit["_score"]) for hit in alone]
    assert len(hits) > 5
    for each in (extractor["query_extractor"] for extractor in features["learning_to_rank"]["feature_extractors"]):
        query = json.loads(json.dumps(each["query"]).replace("{{keywords}}", words))
        found = search.ask("POST", f"{INDEX}/_search", {"size": 1000, "query": query})["hits"]["hits"]
        scores = {hit["_id"]: hit["_score"] for hit in found}
        name = each["feature_name"]
        assert [hit["matched_queries"].get(name) for hit in hits] == [scores.get(hit["_id"]) for hit in hits]
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    second = run_script(tmp_path / "router.py", words, "--answer", str(tmp_path / "answer.json"))
    documents = [{"title": 0.0, "body": 0.0, **hit["matched_queries"]} for hit in hits]
    model = json.loads(second.stdout)["rescore"]["learning_to_rank"]["model_id"]
    assert model == Router(tmp_path).model(documents=documents)
