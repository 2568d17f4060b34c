"""Which model answers a query, and the request to Solr that ranks by it."""

from __future__ import annotations

from typing import Any

from querywise import Router

WINDOW = 100


def first_stage(keywords: str) -> dict[str, str]:
    """The query whose best documents are ranked anew, as parameters of /select."""
    return {"q": keywords, "keywords": keywords}


def ranked(keywords: str, model: str) -> dict[str, str]:
    """The request that ranks by a model."""
    return {
        **first_stage(keywords),
        "rq": f"{{!ltr model={model} reRankDocs={WINDOW} efi.keywords=$keywords}}",
        "fl": "id,score",
    }


def routed(router: Router, keywords: str, **known: Any) -> dict[str, str]:
    """The request that ranks by the model that answers this query."""
    return ranked(keywords, router.model(keywords, **known))


def logged(keywords: str, name: str) -> dict[str, str]:
    """The request that fetches the best documents with their features, for a model that looks at them."""
    quoted = keywords.replace("\\", "\\\\").replace("'", "\\'")
    features = f"[features store={name} format=dense efi.keywords='{quoted}']"
    return {**first_stage(keywords), "rows": str(WINDOW), "fl": f"id,{features}"}


def documents_in(answer: Any) -> list[dict[str, float]]:
    """The features of the documents in the engine's answer to `logged`."""
    entries = [document["[features]"].split(",") for document in answer["response"]["docs"]]
    pairs = [[each.rpartition("=") for each in entry] for entry in entries]
    return [{feature: float(value) for feature, _, value in entry} for entry in pairs]
