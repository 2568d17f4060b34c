"""Route a query to its model, and build the request to Elasticsearch or OpenSearch that ranks by it."""

from __future__ import annotations

from typing import Any

from querywise import Router

WINDOW = 100


def first_stage(keywords: str) -> dict[str, Any]:
    """Return the query whose best documents are reranked.

    Use a query type without a syntax, such as multi_match, match and match_phrase: in a query_string the words of a
    user could be an error, or search another field. `lenient` skips fields that cannot hold words.
    """
    return {"multi_match": {"query": keywords, "fields": ["*"], "lenient": True}}


def ranked(keywords: str, model: str) -> dict[str, Any]:
    """Return the request that ranks by a model."""
    by_model = {"sltr": {"model": model, "params": {"keywords": keywords}}}
    weights = {"query_weight": 0, "rescore_query_weight": 1}
    return {
        "query": first_stage(keywords),
        "rescore": {"window_size": WINDOW, "query": {**weights, "rescore_query": by_model}},
    }


def routed(router: Router, keywords: str, **known: Any) -> dict[str, Any]:
    """Return the request that ranks by the model of this query."""
    return ranked(keywords, router.model(keywords, **known))


def logged(keywords: str, name: str) -> dict[str, Any]:
    """Return the request that fetches the best documents with their features, for a model that uses them."""
    features = {"sltr": {"_name": "features", "featureset": name, "params": {"keywords": keywords}}}
    return {
        "size": WINDOW,
        "query": {"bool": {"must": [first_stage(keywords)], "filter": [features]}},
        "ext": {"ltr_log": {"log_specs": {"name": "features", "named_query": "features", "missing_as_zero": True}}},
    }


def documents_in(answer: Any) -> list[dict[str, float]]:
    """Return the features of the documents in the engine's answer to `logged`."""
    entries = [hit["fields"]["_ltrlog"][0]["features"] for hit in answer["hits"]["hits"]]
    return [{each["name"]: each.get("value", 0.0) for each in entry} for entry in entries]
