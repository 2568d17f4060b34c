"""Asked for exact search, OpenSearch returns for an exported, adapted vector the documents that our own search does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from querywise import Router, export_model
from querywise.exports.target import VECTOR
from querywise.retrieval.indexed_vectors import vectors_of
from tests.engines.opensearch import OpenSearch
from tests.support.adapted_runs import World
from tests.support.placeholders import placed

INDEX, TOP, QUERIES = "adapted", 25, 30


def test_exact_search_by_the_adapted_vector_finds_what_ours_does(search: OpenSearch, tmp_path: Path) -> None:
    world = World()
    vectors, ids = vectors_of(world.index), world.index.document_ids
    assert vectors is not None
    knn = {"type": "knn_vector", "dimension": vectors.dimension}
    knn |= {"method": {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil"}}
    fields = {"body": {"type": "text"}, "vector": knn}
    settings = {"index.knn": True, "number_of_shards": 1}
    search.ask("PUT", INDEX, {"settings": settings, "mappings": {"properties": fields}})
    table = np.asarray(vectors.of(np.arange(len(ids))))
    bodies = {each.id: each.text for each in world.collection.documents()}
    search.fill(
        INDEX, {name: {"body": bodies[name], "vector": row.tolist()} for name, row in zip(ids, table, strict=True)}
    )
    export_model(world.ranker, "opensearch-hybrid", tmp_path / "export")
    form = tmp_path / "export" / "request.json"
    text = form.read_text().replace("EDIT_ME_vector_field", "vector").replace("EDIT_ME_text_field", "body")
    form.write_text(text)
    router, moved = Router(tmp_path / "export"), 0
    for query in world.queries[:QUERIES]:
        request: Any = router.request("word3", vector=query.tolist())
        asked = placed(tmp_path / "export", request)[VECTOR]
        given = {"field": "vector", "query_value": asked, "space_type": "cosinesimil"}
        script = {"source": "knn_score", "lang": "knn", "params": given}
        exact = {"script_score": {"query": {"match_all": {}}, "script": script}}
        hits = search.ask("POST", f"{INDEX}/_search", {"size": TOP, "query": exact})["hits"]["hits"]
        (ours,) = vectors.search(world.adapter.transform(query)[None], top=TOP)
        expected = dict(zip((ids[each] for each in ours.documents.tolist()), ours.scores.tolist(), strict=True))
        found = {hit["_id"]: 2 * hit["_score"] - 1 for hit in hits}  # a score is (1 + cosine) / 2
        _same_but_ties(found, expected)
        assert search.ask("POST", f"{INDEX}/_search", request)["hits"]["hits"], "the exported request itself"
        (plain,) = vectors.search(query[None], top=TOP)
        moved += set(found) != {ids[each] for each in plain.documents.tolist()}
    assert moved == QUERIES, "the vector as it was would have found others"


def _same_but_ties(found: dict[str, float], expected: dict[str, float]) -> None:
    """The same documents but for those as similar as the last one, within the 32 bits of the engine."""
    last = min(expected.values())
    assert len(found) == len(expected)
    for name in set(found) ^ set(expected):
        assert abs((found | expected)[name] - last) < 1e-5, name
    for name in set(found) & set(expected):
        assert abs(found[name] - expected[name]) < 1e-5, name
