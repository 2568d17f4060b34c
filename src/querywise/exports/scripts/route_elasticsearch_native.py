"""Route a query to its model, and build the request to Elasticsearch's own learning_to_rank that ranks by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from querywise import Router

WINDOW = 100
EXTRACTORS = Path(__file__).resolve().parent / "feature_extractors.json"


def first_stage(keywords: str) -> dict[str, Any]:
    """Return the query whose best documents are reranked.

    Use a query type without a syntax, such as multi_match, match and match_phrase: in a query_string the words of a
    user could be an error, or search another field. `lenient` skips fields that cannot hold words.
    """
    return {"multi_match": {"query": keywords, "fields": ["*"], "lenient": True}}


def ranked(keywords: str, model: str) -> dict[str, Any]:
    """Return the request that ranks by a model."""
    by_model = {"model_id": model, "params": {"keywords": keywords}}
    return {"query": first_stage(keywords), "rescore": {"window_size": WINDOW, "learning_to_rank": by_model}}


def routed(router: Router, keywords: str, **known: Any) -> dict[str, Any]:
    """Return the request that ranks by the model of this query."""
    return ranked(keywords, router.model(keywords, **known))


def logged(keywords: str, name: str) -> dict[str, Any]:
    """Return the request that fetches the best documents with their features, for a model that uses them.

    It goes to INDEX/_search/template?include_named_queries_score=true, as a template: the words of a user are its
    parameter, and not part of it. The boost of 0 keeps the features out of the order of the first stage.
    """
    named = [{"bool": {"must": [each["query"]], "_name": each["feature_name"]}} for each in extractors()]
    features = {"bool": {"should": named, "boost": 0}}
    query = {"bool": {"must": [first_stage("{{keywords}}")], "should": [features]}}
    source = json.dumps({"size": WINDOW, "_source": False, "query": query}, ensure_ascii=False)
    return {"source": source, "params": {"keywords": keywords}}


def extractors() -> list[dict[str, Any]]:
    """Return the features' names and queries."""
    content = json.loads(EXTRACTORS.read_text(encoding="utf-8"))
    return [each["query_extractor"] for each in content["learning_to_rank"]["feature_extractors"]]


def documents_in(answer: Any) -> list[dict[str, float]]:
    """Return the features of the documents in the engine's answer to `logged`; 0 where a query does not match."""
    names = [each["feature_name"] for each in extractors()]
    scores = [hit.get("matched_queries", {}) for hit in answer["hits"]["hits"]]
    return [{name: float(own.get(name, 0.0)) for name in names} for own in scores]
