"""Route a query to its weights or profile, and build the request to Vespa that ranks by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from querywise import Router

WINDOW = 100


def first_stage(keywords: str) -> dict[str, Any]:
    """Return the query whose documents are ranked, as parameters of /search/.

    Refer to the words as @keywords, with a grammar without a syntax, such as `tokenize`: in other grammars, and in
    userQuery(), the words of a user could drop documents, or search another field.
    """
    condition = '({grammar: "tokenize", allowEmpty: true}userInput(@keywords))'
    return {"yql": f"select * from sources * where {condition}", "keywords": keywords, "hits": WINDOW}


def by_weights(keywords: str, profile: str, weights: dict[str, float]) -> dict[str, Any]:
    """Return the request that ranks by weights sent along."""
    cells = ",".join(f"{label}:{value!r}" for label, value in weights.items())
    return {**first_stage(keywords), "ranking": profile, "input.query(w)": f"{{{cells}}}"}


def by_profile(keywords: str, profile: str) -> dict[str, Any]:
    """Return the request that ranks by its own profile."""
    return {**first_stage(keywords), "ranking": profile}


def routed(router: Router, keywords: str, **known: Any) -> dict[str, Any]:
    """Return the request that ranks by the weights, or the profile, of this query."""
    files = {model["name"]: Path(model["file"]) for model in router.manifest["models"]}
    if all(path.suffix == ".txt" for path in files.values()):
        return by_weights(keywords, profile_of(router.manifest["name"]), router.weights(keywords, **known))
    return by_profile(keywords, files[router.model(keywords, **known)].stem)


def logged(keywords: str, name: str) -> dict[str, Any]:
    """Return the request that fetches the best documents with their features, for a model that uses them."""
    return by_profile(keywords, profile_of(name))


def profile_of(name: str) -> str:
    """Return the profile of the global model, by the name of the export."""
    return name.replace("-", "_")


def documents_in(answer: Any) -> list[dict[str, float]]:
    """Return the features of the documents in the engine's answer to `logged`; empty without children."""
    if "errors" in answer["root"]:
        raise ValueError("The engine answered with errors.")
    entries = [hit["fields"]["matchfeatures"] for hit in answer["root"].get("children", [])]
    return [{function_in(name): value for name, value in entry.items()} for entry in entries]


def function_in(name: str) -> str:
    """Return a function's own name, which older versions of Vespa wrap in rankingExpression(…)."""
    wrapped = name.startswith("rankingExpression(") and name.endswith(")")
    return name[len("rankingExpression(") : -1] if wrapped else name
