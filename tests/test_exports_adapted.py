"""Exports of a model with an adapter put the adapted vector into the engine's own vector query."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from querywise import Router, export_model
from querywise.exports.manifest import read_manifest
from querywise.exports.target import VECTOR
from querywise.exports.targets import FUSE_RUNS
from querywise.rankers.weights.fusion import Weights
from querywise.retrieval.features import judged_candidates
from tests.support.adapted_runs import World
from tests.support.placeholders import placed


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.mark.parametrize("engine", FUSE_RUNS)
def test_the_request_has_the_adapted_vector(engine: str, world: World, tmp_path: Path) -> None:
    export_model(world.ranker, engine, tmp_path / "export")
    router = Router(tmp_path / "export")
    for query in world.queries[:5]:
        asked = placed(tmp_path / "export", router.request("word3", vector=query.tolist()))[VECTOR]
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
    asked = placed(tmp_path / "export", json.loads(done.stdout))[VECTOR]
    assert np.allclose(asked, world.adapter.transform(world.queries[3]), atol=1e-12)


def test_without_an_adapter_nothing_is_moved_and_no_file_is_added(world: World, tmp_path: Path) -> None:
    judged = judged_candidates(world.collection, world.index, top=10, vector_top=10)[0]
    export_model(Weights().fit(judged), "postgres", tmp_path / "export")
    assert read_manifest(tmp_path / "export")["adapter"] is None
    assert not (tmp_path / "export" / "transform.py").exists()
    own = world.queries[3].tolist()
    request = Router(tmp_path / "export").request("word3", vector=own)
    assert placed(tmp_path / "export", request)[VECTOR] == own
