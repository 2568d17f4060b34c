"""router.py, which an export joins from an engine's own part and the part that all engines share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

from querywise import KnnOffline2, RankSVM, Router, TextView, export_model
from querywise.exports.scripts import route_elasticsearch, route_solr, route_vespa
from querywise.exports.writing import ENGINES
from tests.test_exports import world

ROOT = Path(__file__).parent.parent


class Part(Protocol):
    """What an engine's own part has, as the shared part asks for it."""

    WINDOW: int

    def first_stage(self, keywords: str) -> dict[str, Any]: ...

    def routed(self, router: Router, keywords: str, **known: Any) -> dict[str, Any]: ...

    def logged(self, keywords: str, name: str) -> dict[str, Any]: ...

    def documents_in(self, answer: Any) -> list[dict[str, float]]: ...


PARTS: dict[str, Part] = {"Elasticsearch or OpenSearch": route_elasticsearch, "Solr": route_solr, "Vespa": route_vespa}


@pytest.fixture(scope="module")
def by_text() -> KnnOffline2:
    return KnnOffline2(RankSVM(), k=0.3, models=4, view=TextView(5)).fit(world())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_router_is_one_clean_file_that_begins_with_what_users_change(
    engine: str, by_text: KnnOffline2, tmp_path: Path
) -> None:
    export_model(by_text, engine, tmp_path / "out")
    place = tmp_path / "out" / "router.py"
    text = place.read_text()
    ruff = [sys.executable, "-m", "ruff"]
    for asked in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        command = [*ruff, *asked, "--config", str(ROOT / "pyproject.toml"), str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "querywise.exports" not in text, "the file needs its folder and the package, not our parts"
    said = text.partition("\n")[0]
    assert sum(title in said for title in PARTS) == 1
    order = [text.index(f"\n{words}") for words in ("import ", "WINDOW = ", "def first_stage(", "HERE = ", "def main(")]
    assert order == sorted(order)
    assert text.count("if __name__") == 1
