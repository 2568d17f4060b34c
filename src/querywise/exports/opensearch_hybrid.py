"""OpenSearch's hybrid query, with the search pipeline that normalises and weighs its sub-queries in the request."""

from __future__ import annotations

from collections.abc import Mapping

from querywise.exports.requests import DEPTH, TEXT, VECTOR, by_vectors, weight_of
from querywise.exports.target import UNFINISHED, Request, Target, as_text
from querywise.runtime.values import Json, JsonObject


def _write(weights: Mapping[str, float], technique: str, name: str) -> dict[str, str]:
    queries: list[Json] = [
        {"knn": {f"{UNFINISHED}_vector_field": {"vector": VECTOR, "k": DEPTH}}}
        if by_vectors(run)
        else {"match": {f"{UNFINISHED}_text_field": {"query": TEXT}}}
        for run in weights
    ]
    parameters: JsonObject = {"weights": [weight_of(run) for run in weights]}
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
    return {"request.json": as_text(request)}


TARGET = Target(
    "OpenSearch",
    request=Request(
        "hybrid query",
        {"opensearch-min-max": "min_max", "l2": "l2", "z-score": "z_score", "rank": "rrf"},
        _write,
        "The processor normalises each sub-query's scores over its own hits, as the model was trained, and adds them "
        "up with the weights, in 32 bits. `pagination_depth` needs OpenSearch 2.19, `z_score` 3.0; weighted reciprocal "
        "ranks (`rank`) need a version whose `score-ranker-processor` takes weights, which 2.19 and 3.0 do not.",
        most=5,
    ),
)
