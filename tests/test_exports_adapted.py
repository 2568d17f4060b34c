"""Exports of a model with an adapter put the adapted vector into the engine's own vector query."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise import Router, export_model
from querywise.contracts.protocols import Ranker
from querywise.data.collections import Collection
from querywise.exports.manifest import read_manifest
from querywise.exports.targets import FUSE_RUNS
from querywise.rankers.weights.fusion import Weights
from querywise.retrieval.adapting import Adaptation
from querywise.retrieval.features import judged_candidates
from querywise.retrieval.index import Index
from querywise.runtime.arrays import Floats
from tests.test_adapting import made


class World:
    """A collection whose query vectors learn, and weights of its runs that were fitted on candidates found by them."""

    def __init__(self) -> None:
        self.collection: Collection
        self.index: Index
        self.collection, self.index = made()
        judged = judged_candidates(self.collection, self.index, top=10, vector_top=10)[0]
        train, self.adapter = Adaptation(self.collection, self.index, "by-query", top=10, vector_top=10).learned(judged)
        self.ranker: Ranker = Weights().fit(train).with_adapter(self.adapter)

    @property
    def queries(self) -> Floats:
        """The queries' own vectors."""
        table = self.collection.queries
        assert table is not None
        assert table.vectors is not None
        return table.vectors


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def vector_in(request: Any) -> list[float]:
    """The vector of a request of any engine."""
    if "parameters" in request:
        found: list[float] = json.loads(request["parameters"]["vector"])
        return found
    if "yql" in request:
        return list(request["input.query(q)"])
    if "retriever" in request:
        retrievers = request["retriever"]["linear"]["retrievers"]
        return next(list(each["retriever"]["knn"]["query_vector"]) for each in retrievers if "knn" in each["retriever"])
    queries = request["query"]["hybrid"]["queries"]
    return next(list(next(iter(each["knn"].values()))["vector"]) for each in queries if "knn" in each)


@pytest.mark.parametrize("engine", FUSE_RUNS)
def test_the_request_has_the_adapted_vector(engine: str, world: World, tmp_path: Path) -> None:
    export_model(world.ranker, engine, tmp_path / "export")
    router = Router(tmp_path / "export")
    for query in world.queries[:5]:
        asked = vector_in(router.request("word3", vector=query.tolist()))
        assert np.allclose(asked, world.adapter.transform(query), atol=1e-12)
        assert not np.allclose(asked, query, atol=0.1)


def test_the_export_moves_vectors_without_querywise(world: World, tmp_path: Path) -> None:
    export_model(world.ranker, "postgres", tmp_path / "export")
    assert read_manifest(tmp_path / "export")["adapter"] == {"tables": "adapter.npz", "script": "transform.py"}
    assert "transform.py" in (tmp_path / "export" / "README.md").read_text()
    np.save(tmp_path / "queries.npy", world.queries)
    script = [sys.executable, "transform.py", str(tmp_path / "queries.npy"), str(tmp_path / "moved.npy")]
    subprocess.run(script, cwd=tmp_path / "export", check=True)
    assert np.abs(np.load(tmp_path / "moved.npy") - world.adapter.transform(world.queries)).max() < 1e-6


def test_router_py_moves_the_vector_it_is_given(world: World, tmp_path: Path) -> None:
    export_model(world.ranker, "opensearch-hybrid", tmp_path / "export")
    (tmp_path / "vector.json").write_text(json.dumps(world.queries[3].tolist()))
    command = [sys.executable, "router.py", "word3", str(tmp_path / "vector.json")]
    done = subprocess.run(command, cwd=tmp_path / "export", check=True, capture_output=True, text=True)
    assert np.allclose(vector_in(json.loads(done.stdout)), world.adapter.transform(world.queries[3]), atol=1e-12)


def test_without_an_adapter_nothing_is_moved_and_no_file_is_added(world: World, tmp_path: Path) -> None:
    judged = judged_candidates(world.collection, world.index, top=10, vector_top=10)[0]
    export_model(Weights().fit(judged), "postgres", tmp_path / "export")
    assert read_manifest(tmp_path / "export")["adapter"] is None
    assert not (tmp_path / "export" / "transform.py").exists()
    own = world.queries[3].tolist()
    assert vector_in(Router(tmp_path / "export").request("word3", vector=own)) == own
