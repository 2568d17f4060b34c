"""Elasticsearch's retrievers that fuse runs: linear, and rrf for reciprocal ranks."""

from __future__ import annotations

from collections.abc import Mapping

from querywise.exports.requests import DEPTH, TEXT, VECTOR, by_vectors, weight_of
from querywise.exports.target import UNFINISHED, Request, Target, as_text
from querywise.runtime.values import Json, JsonObject


def _write(weights: Mapping[str, float], technique: str, name: str) -> dict[str, str]:
    retrievers: list[Json] = []
    for run in weights:
        knn: JsonObject = {
            "knn": {
                "field": f"{UNFINISHED}_vector_field",
                "query_vector": VECTOR,
                "k": DEPTH,
                "num_candidates": 2 * DEPTH,
            }
        }
        words: JsonObject = {"standard": {"query": {"match": {f"{UNFINISHED}_text_field": {"query": TEXT}}}}}
        own: JsonObject = {"retriever": knn if by_vectors(run) else words, "weight": weight_of(run)}
        retrievers.append(own if technique == "rrf" else {**own, "normalizer": technique})
    content: JsonObject = {"retrievers": retrievers, "rank_window_size": DEPTH}
    retriever: JsonObject = {"rrf": {**content, "rank_constant": 60}} if technique == "rrf" else {"linear": content}
    return {"request.json": as_text({"size": 10, "retriever": retriever})}


TARGET = Target(
    "Elasticsearch",
    request=Request(
        "linear or rrf retriever",
        {"opensearch-min-max": "minmax", "l2": "l2_norm", "rank": "rrf"},
        _write,
        "Each retriever's scores are normalised over its own hits and added up with the weights. `minmax` gives the "
        "last document of a list 0, where the model was trained with 0.001, and leaves scores as they are where all "
        "are the same, which the model counted as 1. Weighted reciprocal ranks (`rank`) need a version whose `rrf` "
        "retriever takes weights.",
    ),
)
