"""Engines whose request fuses runs: OpenSearch's hybrid query, Elasticsearch's retrievers, and SQL for PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping

from querywise.errors import DataError
from querywise.exports.target import (
    DEPTH,
    TEXT,
    UNFINISHED,
    VECTOR,
    Request,
    Target,
    as_text,
    by_vectors,
    identifier,
    weight_of,
)
from querywise.runtime.values import Json, JsonObject


def _hybrid_query(weights: Mapping[str, float], technique: str, name: str) -> dict[str, str]:
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


OPENSEARCH = Target(
    "OpenSearch",
    request=Request(
        "hybrid query",
        {"opensearch-min-max": "min_max", "l2": "l2", "z-score": "z_score", "rank": "rrf"},
        _hybrid_query,
        "The processor normalises each sub-query's scores over its own hits, as the model was trained, and adds them "
        "up with the weights, in 32 bits. `pagination_depth` needs OpenSearch 2.19, `z_score` 3.0; weighted reciprocal "
        "ranks (`rank`) need a version whose `score-ranker-processor` takes weights, which 2.19 and 3.0 do not.",
        most=5,
    ),
)


def _retriever(weights: Mapping[str, float], technique: str, name: str) -> dict[str, str]:
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


ELASTICSEARCH = Target(
    "Elasticsearch",
    request=Request(
        "linear or rrf retriever",
        {"opensearch-min-max": "minmax", "l2": "l2_norm", "rank": "rrf"},
        _retriever,
        "Each retriever's scores are normalised over its own hits and added up with the weights. `minmax` gives the "
        "last document of a list 0, where the model was trained with 0.001, and leaves scores as they are where all "
        "are the same, which the model counted as 1. Weighted reciprocal ranks (`rank`) need a version whose `rrf` "
        "retriever takes weights.",
    ),
)


_NAME_BYTES = 63  # most bytes of a name in PostgreSQL, which truncates longer ones
# The normalized score of a list; windows without a frame cover the whole list.
_MEAN = "avg(score) OVER ()"
_NORMALISED = {
    "opensearch-min-max": (
        "CASE WHEN max(score) OVER () = min(score) OVER () THEN 1.0 WHEN score = min(score) OVER () THEN 0.001 "
        "ELSE (score - min(score) OVER ()) / (max(score) OVER () - min(score) OVER ()) END"
    ),
    "l2": "CASE WHEN sum(score * score) OVER () = 0 THEN 0.0 ELSE score / sqrt(sum(score * score) OVER ()) END",
    "z-score": (
        f"CASE WHEN score = {_MEAN} THEN max(score) OVER () WHEN score < {_MEAN} THEN 0.001 "
        f"ELSE (score - {_MEAN}) / stddev_samp(score) OVER () END"
    ),
    "rank": ("1.0 / (60 + rank() OVER (ORDER BY score DESC) + (count(*) OVER (PARTITION BY score) - 1) / 2.0)"),
}


def sql_form(runs: Mapping[str, bool], normalise: str, depth: int) -> str:
    """Return the query, where `runs` tells whether each is by vectors; parameters are in psycopg style.

    They are text, vector and weight_RUN. Names are quoted, so that capital letters count and SQL keywords are names
    too.
    """
    for run in runs:
        if len(_list_of(run).encode()) - 2 > _NAME_BYTES:
            raise DataError(
                f"The run {run!r} has too long a name for PostgreSQL, which takes {_NAME_BYTES - len(' list')} bytes. "
                "Give it a shorter one."
            )
    lists = [
        f"{_list_of(run)} AS (\n{_by_vectors(depth) if vectors else _by_words(depth)}\n)"
        for run, vectors in runs.items()
    ]
    scaled = [f'"{run}" AS (\n    SELECT id, {_NORMALISED[normalise]} AS score FROM {_list_of(run)}\n)' for run in runs]
    names = list(runs)
    joined = f'"{names[0]}"' + "".join(f'\n    FULL JOIN "{run}" USING (id)' for run in names[1:])
    total = "\n        + ".join(f'%(weight_{run})s * COALESCE("{run}".score, 0.0)' for run in names)
    body = f"SELECT id,\n    {total} AS score\nFROM {joined}\nORDER BY score DESC, id\nLIMIT 10;\n"
    return "WITH\n" + ",\n".join([*lists, *scaled]) + "\n" + body


def _list_of(run: str) -> str:
    """Return the name of a run's list, which cannot be the name of a run: runs are words."""
    return f'"{run} list"'


def _by_words(depth: int) -> str:
    # The alias is one that no column of the user is likely to have.
    return f"""\
    SELECT id, ts_rank_cd({UNFINISHED}_tsvector, asked_words)::double precision AS score
    FROM {UNFINISHED}_table, websearch_to_tsquery('english', %(text)s) AS asked_words
    WHERE {UNFINISHED}_tsvector @@ asked_words
    ORDER BY score DESC, id
    LIMIT {depth}"""


def _by_vectors(depth: int) -> str:
    return f"""\
    SELECT id, 1 - ({UNFINISHED}_vector <=> %(vector)s::vector) AS score
    FROM {UNFINISHED}_table
    ORDER BY {UNFINISHED}_vector <=> %(vector)s::vector, id
    LIMIT {depth}"""


def _query(weights: Mapping[str, float], technique: str, name: str) -> dict[str, str]:
    return {"query.sql": sql_form({identifier(run): by_vectors(run) for run in weights}, technique, DEPTH)}


POSTGRES = Target(
    "PostgreSQL",
    request=Request(
        "full text search and pgvector",
        {each: each for each in _NORMALISED},
        _query,
        "The query normalises each list as the model was trained, and adds up with the weights, in 64 bits.",
    ),
)
