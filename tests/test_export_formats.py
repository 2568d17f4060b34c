"""Folders of earlier formats: exports that version 0.2.0 wrote, read and written over by this one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from querywise import HybridRouter, RankSVM, Router, export_model
from querywise.errors import DataError
from querywise.rankers.weights.fusion import Weights
from tests.support.exports import world
from tests.support.runs import planted

GOLDEN = Path(__file__).parent / "golden" / "exports"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
VECTOR = [0.5, 0.25]


def golden(name: str, tmp_path: Path) -> Path:
    """A copy of a golden export, its scripts under their own names."""
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    for script in folder.glob("*.py.txt"):
        script.rename(script.with_suffix(""))
    return folder


def printed(folder: Path, *words: str) -> Any:
    """What the router of a folder prints."""
    command = [sys.executable, str(folder / "router.py"), *words]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_an_export_of_models_of_format_1_routes_as_it_did(tmp_path: Path) -> None:
    folder = golden("models-vespa", tmp_path)
    assert json.loads((folder / "export.json").read_text())["format_version"] == 1
    router, found = Router(folder), EXPECTED["models-vespa"]
    for text, expected in found.items():
        assert router.model(text) == expected["model"]
        assert router.weights(text) == pytest.approx(expected["weights"], rel=1e-12)
    assert len({each["model"] for each in found.values()}) > 1
    assert router.requests == 1
    last = list(found)[-1]
    assert printed(folder, last)["ranking"] == "shop"


@pytest.mark.parametrize("engine", ["opensearch-hybrid", "postgres"])
def test_an_export_of_weights_of_format_1_gives_the_requests_it_gave(engine: str, tmp_path: Path) -> None:
    folder = golden(f"weights-{engine}", tmp_path)
    assert json.loads((folder / "export.json").read_text())["format_version"] == 1
    router = HybridRouter(folder)
    for text, expected in EXPECTED[folder.name].items():
        assert router.weights(text) == expected["weights"]
        assert router.request(text, vector=VECTOR) == expected["request"]
    (tmp_path / "vector.json").write_text(json.dumps(VECTOR))
    assert printed(folder, text, str(tmp_path / "vector.json")) == expected["request"]


def test_an_export_of_format_1_is_written_over_unless_it_was_changed(tmp_path: Path) -> None:
    folder = golden("models-vespa", tmp_path)
    ranker = RankSVM().fit(world())
    with pytest.raises(DataError, match="holds an export for vespa, and this one is for solr"):
        export_model(ranker, "solr", folder)
    (folder / "README.md").write_text("mine")
    with pytest.raises(DataError, match=r"README\.md changed or was added since"):
        export_model(ranker, "vespa", folder)
    export_model(ranker, "vespa", folder, force=True)
    assert not (folder / "router.py").exists()


def test_both_kinds_of_exports_have_one_manifest(tmp_path: Path) -> None:
    export_model(RankSVM().fit(world()), "vespa", tmp_path / "models", rows=2)
    export_model(Weights().fit(planted(12)), "vespa", tmp_path / "weights")
    models, weights = (json.loads((tmp_path / each / "export.json").read_text()) for each in ("models", "weights"))
    assert list(models) == list(weights)
    assert models["format_version"] == weights["format_version"] == 2
    assert models["request"] is None
    assert weights["features"] is None
    assert weights["models"] == []
    assert set(weights["request"]["weights"]) == {"words", "vectors"}


def test_a_router_says_what_its_export_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has weights of runs, and no models"):
        Router(golden("weights-postgres", tmp_path)).model("disk")
    with pytest.raises(DataError, match="has models, and no weights of runs"):
        Router(golden("models-vespa", tmp_path)).request("disk")


@pytest.mark.parametrize("version", [3, None, "2"])
def test_a_folder_of_a_later_format_is_refused_and_not_written_over(version: Any, tmp_path: Path) -> None:
    folder = golden("models-vespa", tmp_path)
    manifest = json.loads((folder / "export.json").read_text())
    (folder / "export.json").write_text(json.dumps({**manifest, "format_version": version}))
    said = rf"format version {version!r}; this querywise reads versions up to 2\. Update querywise"
    with pytest.raises(DataError, match=said):
        Router(folder)
    with pytest.raises(DataError, match=said):
        export_model(RankSVM().fit(world()), "vespa", folder, force=True)
