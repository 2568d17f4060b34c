"""Weights of runs in the requests of engines that fuse runs themselves: one request form per engine.

A form is JSON, or SQL, in which `$text`, `$vector` and `$weight:RUN` stand for what a query brings. What only the user
knows, as the names of fields, is marked EDIT_ME.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from querywise.errors import DataError
from querywise.exports.engine import UNFINISHED, as_text
from querywise.exports.hybrid_sql import sql_form
from querywise.exports.vespa import decimal
from querywise.runtime.values import Json, JsonObject

DEPTH = 100  # documents of each run
_TEXT, _VECTOR, _WEIGHT = "$text", "$vector", "$weight:"
_BY_VECTORS = ("vector", "knn", "dense", "embedding")  # what the name of a run by vectors has in it


@dataclass(frozen=True)
class Form:
    """What is written for an engine: the request's file and its text, and other files."""

    request: str
    texts: Mapping[str, str]


@dataclass(frozen=True)
class Hybrid:
    """An engine that fuses runs.

    normalisations: its name of each of ours that it has. write: makes the form, from the runs, the engine's name of the
    normalisation, the common weights and the name of the export. most: how many runs it takes. meaning: what the
    weights mean there, for the README.
    """

    title: str
    normalisations: Mapping[str, str]
    write: Callable[[Sequence[str], str, Mapping[str, float], str], Form]
    meaning: str
    most: int = 1000


def by_vectors(run: str) -> bool:
    """Whether a run is of vectors, by its name: its part of the request then has a vector, and else the text."""
    return any(each in run.lower() for each in _BY_VECTORS)


def filled(form: Json, values: Mapping[str, Json]) -> Json:
    """A form with its placeholders replaced: each is a whole text."""
    if isinstance(form, dict):
        return {name: filled(each, values) for name, each in form.items()}
    if isinstance(form, list):
        return [filled(each, values) for each in form]
    if isinstance(form, str) and form.startswith("$"):
        if form not in values:
            raise DataError(f"The request has {form!r}, which nothing stands for. Known: {', '.join(values)}.")
        found = values[form]
        if found is None:
            raise DataError(f"The request has {form!r}, and the query was given without it.")
        return found
    return form


def values_of(text: str | None, vector: Sequence[float] | None, weights: Mapping[str, float]) -> dict[str, Json]:
    """What the placeholders of a form stand for."""
    found: dict[str, Json] = {_TEXT: text, _VECTOR: None if vector is None else [float(each) for each in vector]}
    return found | {f"{_WEIGHT}{run}": weight for run, weight in weights.items()}


def identifier(run: str) -> str:
    """A run's name as a word of letters, digits and underscores."""
    word = re.sub(r"\W", "_", run)
    return f"r_{word}" if word[:1].isdigit() else word


def _weights(runs: Sequence[str]) -> list[Json]:
    return [f"{_WEIGHT}{run}" for run in runs]


def _opensearch(runs: Sequence[str], technique: str, weights: Mapping[str, float], name: str) -> Form:
    queries: list[Json] = [
        {"knn": {f"{UNFINISHED}_vector_field": {"vector": _VECTOR, "k": DEPTH}}}
        if by_vectors(run)
        else {"match": {f"{UNFINISHED}_text_field": {"query": _TEXT}}}
        for run in runs
    ]
    parameters: JsonObject = {"weights": _weights(runs)}
    processor: JsonObject = {
        "normalization-processor": {
            "normalization": {"technique": technique},
            "combination": {"technique": "arithmetic_mean", "parameters": parameters},
        }
    }
    if technique == "rrf":
        combination: JsonObject = {"technique": "rrf", "rank_constant": 60, "parameters": parameters}
        processor = {"score-ranker-processor": {"combination": combination}}
    request: JsonObject = {
        "size": 10,
        "query": {"hybrid": {"queries": queries, "pagination_depth": DEPTH}},
        "search_pipeline": {"phase_results_processors": [processor]},
    }
    return Form("request.json", {"request.json": as_text(request)})


def _elasticsearch(runs: Sequence[str], technique: str, weights: Mapping[str, float], name: str) -> Form:
    retrievers: list[Json] = []
    for run in runs:
        knn: JsonObject = {
            "knn": {
                "field": f"{UNFINISHED}_vector_field",
                "query_vector": _VECTOR,
                "k": DEPTH,
                "num_candidates": 2 * DEPTH,
            }
        }
        words: JsonObject = {"standard": {"query": {"match": {f"{UNFINISHED}_text_field": {"query": _TEXT}}}}}
        own: JsonObject = {"retriever": knn if by_vectors(run) else words, "weight": f"{_WEIGHT}{run}"}
        retrievers.append(own if technique == "rrf" else {**own, "normalizer": technique})
    content: JsonObject = {"retrievers": retrievers, "rank_window_size": DEPTH}
    kind = "rrf" if technique == "rrf" else "linear"
    retriever: JsonObject = {kind: {**content, "rank_constant": 60} if kind == "rrf" else content}
    return Form("request.json", {"request.json": as_text({"size": 10, "retriever": retriever})})


def _vespa(runs: Sequence[str], technique: str, weights: Mapping[str, float], name: str) -> Form:
    profile = identifier(name)
    found = [
        f"({{targetHits: {DEPTH}}}nearestNeighbor({UNFINISHED}_vector_field, q))"
        if by_vectors(run)
        else f'({{targetHits: {DEPTH}, grammar: "tokenize", allowEmpty: true}}userInput(@text))'
        for run in runs
    ]
    request: JsonObject = {
        "yql": f"select * from sources * where {' or '.join(found)}",
        "text": _TEXT,
        "ranking": profile,
        "hits": 10,
        **({"input.query(q)": _VECTOR} if any(map(by_vectors, runs)) else {}),
        **{f"input.query(w_{identifier(run)})": f"{_WEIGHT}{run}" for run in runs},
    }
    inputs = [f"        query(w_{identifier(run)}): {decimal(weights[run])}" for run in runs]
    if any(map(by_vectors, runs)):
        inputs.append(f"        query(q) tensor<float>(x[{UNFINISHED}_dimension])")
    functions = [
        f"    function run_{identifier(run)}() {{\n        expression: "
        + (f"closeness(field, {UNFINISHED}_vector_field)" if by_vectors(run) else f"bm25({UNFINISHED}_text_field)")
        + "\n    }"
        for run in runs
    ]
    scaled = {"normalize_linear": "normalize_linear(run_{})", "reciprocal_rank": "reciprocal_rank(run_{}, 60)"}[
        technique
    ]
    total = " + ".join(f"query(w_{each}) * {scaled.format(each)}" for each in map(identifier, runs))
    first = " + ".join(f"run_{identifier(run)}" for run in runs)
    lines = [
        f"rank-profile {profile} {{",
        "    inputs {",
        *inputs,
        "    }",
        *functions,
        f"    first-phase {{\n        expression: {first}\n    }}",
        f"    global-phase {{\n        rerank-count: {2 * DEPTH}\n        expression: {total}\n    }}",
        "}",
    ]
    return Form("request.json", {"request.json": as_text(request), f"{profile}.profile": "\n".join(lines) + "\n"})


def _postgres(runs: Sequence[str], technique: str, weights: Mapping[str, float], name: str) -> Form:
    words = {identifier(run): by_vectors(run) for run in runs}
    return Form("query.sql", {"query.sql": sql_form(words, technique, DEPTH)})


HYBRIDS: dict[str, Hybrid] = {
    "opensearch-hybrid": Hybrid(
        "OpenSearch (hybrid query)",
        {"opensearch-min-max": "min_max", "l2": "l2", "z-score": "z_score", "rank": "rrf"},
        _opensearch,
        "The processor normalises each sub-query's scores over its own hits, as the model was trained, and adds them "
        "up with the weights, in 32 bits. `pagination_depth` needs OpenSearch 2.19, `z_score` 3.0; weighted reciprocal "
        "ranks (`rank`) need a version whose `score-ranker-processor` takes weights, which 2.19 and 3.0 do not.",
        most=5,
    ),
    "elasticsearch-retriever": Hybrid(
        "Elasticsearch (linear or rrf retriever)",
        {"opensearch-min-max": "minmax", "l2": "l2_norm", "rank": "rrf"},
        _elasticsearch,
        "Each retriever's scores are normalised over its own hits and added up with the weights. `minmax` gives the "
        "last document of a list 0, where the model was trained with 0.001, and leaves scores as they are where all "
        "are the same, which the model counted as 1. Weighted reciprocal ranks (`rank`) need a version whose `rrf` "
        "retriever takes weights.",
    ),
    "vespa": Hybrid(
        "Vespa (query inputs)",
        {"opensearch-min-max": "normalize_linear", "rank": "reciprocal_rank"},
        _vespa,
        "Vespa normalises over all documents that reach the global phase, and computes every run's score for each of "
        "them. The model was trained on each run's own list, with 0 for what it did not find: scores differ, most for "
        "documents that one run alone found.",
    ),
    "postgres": Hybrid(
        "PostgreSQL (full text search and pgvector)",
        {each: each for each in ("opensearch-min-max", "l2", "z-score", "rank")},
        _postgres,
        "The query normalises each list as the model was trained, and adds up with the weights, in 64 bits.",
    ),
}
