"""Route a query to its model, and build the request to Solr that ranks by it."""

from __future__ import annotations

from typing import Any

from querywise import Router

WINDOW = 100


def first_stage(keywords: str) -> dict[str, str]:
    """Return the query whose best documents are reranked, as parameters of /select.

    Refer to the words as $keywords, under a parser without a syntax: pasted into `q` they could be an error, or search
    another field. The parser `simple` without operators searches the fields of `qf`, else of `df`; it knows only a lone
    `*`, for all documents.
    """
    return {"defType": "lucene", "q": "{!simple q.operators='' v=$keywords}", "keywords": without_macros(keywords)}


def without_macros(keywords: str) -> str:
    """Return the words with a blank in every ${, which Solr would expand in parameters, and again in features."""
    return keywords.replace("${", "$ {")


def ranked(keywords: str, model: str) -> dict[str, str]:
    """Return the request that ranks by a model."""
    return {
        **first_stage(keywords),
        "rq": f"{{!ltr model={model} reRankDocs={WINDOW} efi.keywords=$keywords}}",
        "fl": "id,score",
    }


def routed(router: Router, keywords: str, **known: Any) -> dict[str, str]:
    """Return the request that ranks by the model of this query."""
    return ranked(keywords, router.model(keywords, **known))


def logged(keywords: str, name: str) -> dict[str, str]:
    """Return the request that fetches the best documents with their features, for a model that uses them."""
    features = f"[features store={name} format=dense efi.keywords=$keywords]"
    return {**first_stage(keywords), "rows": str(WINDOW), "fl": f"id,{features}"}


def documents_in(answer: Any) -> list[dict[str, float]]:
    """Return the features of the documents in the engine's answer to `logged`."""
    entries = [document["[features]"].split(",") for document in answer["response"]["docs"]]
    pairs = [[each.rpartition("=") for each in entry] for entry in entries]
    return [{feature: float(value) for feature, _, value in entry} for entry in pairs]
