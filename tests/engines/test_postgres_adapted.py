"""Asked for exact search, PostgreSQL with pgvector returns for an adapted vector the documents that our search does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from querywise import Router, export_model
from querywise.retrieval.indexed_vectors import vectors_of
from tests.engines import postgres
from tests.engines.artifacts import UnavailableError
from tests.engines.conftest import without
from tests.support.adapted_runs import World

TOP, QUERIES = 25, 30


def test_exact_search_by_the_adapted_vector_finds_what_ours_does(tmp_path: Path) -> None:
    try:
        postgres.fetch()
    except UnavailableError as error:
        without(error)
    world = World()
    vectors, ids = vectors_of(world.index), world.index.document_ids
    assert vectors is not None
    table = np.asarray(vectors.of(np.arange(len(ids))))
    bodies = {each.id: each.text for each in world.collection.documents()}
    export_model(world.ranker, "postgres", tmp_path / "export")
    form = tmp_path / "export" / "query.sql"
    names = {"EDIT_ME_tsvector": "words", "EDIT_ME_table": "texts", "EDIT_ME_vector": "vector"}
    text = form.read_text()
    for name, own in names.items():
        text = text.replace(name, own)
    form.write_text(text)
    router = Router(tmp_path / "export")
    with postgres.serving() as words, psycopg.connect(words) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute(
            f"CREATE TABLE texts (id text PRIMARY KEY, body text, vector vector({vectors.dimension}), "
            "words tsvector GENERATED ALWAYS AS (to_tsvector('english', body)) STORED)"
        )
        for name, row in zip(ids, table.tolist(), strict=True):
            connection.execute("INSERT INTO texts VALUES (%s, %s, %s)", (name, bodies[name], json.dumps(row)))
        for query in world.queries[:QUERIES]:
            request: Any = router.request("word3", vector=query.tolist())
            asked = "SELECT id, 1 - (vector <=> %(vector)s::vector) FROM texts ORDER BY vector <=> %(vector)s::vector"
            rows = connection.execute(f"{asked} LIMIT {TOP}", {"vector": request["parameters"]["vector"]}).fetchall()
            found = {str(name): float(similarity) for name, similarity in rows}
            (ours,) = vectors.search(world.adapter.transform(query)[None], top=TOP)
            expected = dict(zip((ids[each] for each in ours.documents.tolist()), ours.scores.tolist(), strict=True))
            last = min(expected.values())
            for name in set(found) ^ set(expected):
                assert abs((found | expected)[name] - last) < 1e-5, name
            assert all(abs(found[name] - expected[name]) < 1e-5 for name in set(found) & set(expected))
            assert connection.execute(request["sql"], request["parameters"]).fetchall(), "the exported SQL itself"
