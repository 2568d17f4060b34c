"""What goes wrong between an export and OpenSearch: one clear message, and what is in service stays in service."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from querywise import KnnOffline2, RankSVM, TextView, export_model
from tests.engines import ltr_plugin, opensearch
from tests.engines.breaking import breaking
from tests.engines.opensearch import OpenSearch
from tests.support.exports import world


def feature_set(field: str = "clicks") -> Any:
    """Features that read numbers of documents."""
    names = world().candidates.feature_names or ()
    reads = {"query": {"match_all": {}}, "field_value_factor": {"field": field, "missing": 0}, "boost_mode": "replace"}
    template = {"function_score": reads}
    return [{"name": name, "params": [], "template_language": "mustache", "template": template} for name in names]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes") / "export"
    ranker = KnnOffline2(RankSVM(), k=0.3, models=6, view=TextView(5)).fit(world())
    export_model(ranker, "opensearch", folder, name="mistakes", features=feature_set())
    return folder


def upload(export: Path, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "upload.py", "--url", url, *words]
    return subprocess.run(command, cwd=export, capture_output=True, text=True, timeout=120, check=False)


def test_a_server_that_is_not_there_or_slow_takes_one_line(export: Path) -> None:
    gone = upload(export, "http://127.0.0.1:9")
    assert (gone.returncode, gone.stderr.count("\n")) == (2, 1)
    assert "http://127.0.0.1:9 does not answer" in gone.stderr
    with socket.create_server(("127.0.0.1", 0)) as slow:
        late = upload(export, f"http://127.0.0.1:{slow.getsockname()[1]}", "--timeout", "0.5")
    assert late.returncode == 2
    assert "no answer within 0.5 seconds; see --timeout" in late.stderr
    assert "expected a number of seconds above 0" in upload(export, "http://127.0.0.1:9", "--timeout", "0").stderr


def test_an_engine_without_the_plugin_is_told_apart(search: OpenSearch, export: Path) -> None:
    if ltr_plugin.is_there(opensearch.VERSION):
        pytest.skip("this server has the plugin; without it this test runs")
    done = upload(export, search.url)
    assert done.returncode == 2
    assert "has no Learning to Rank plugin, or not on this node" in done.stderr
    assert f"install the release made for version {opensearch.VERSION} on every node" in done.stderr


def scored(search: OpenSearch, model: str) -> list[tuple[str, float]]:
    by_model = {"sltr": {"model": model, "params": {}}}
    weights = {"query_weight": 0, "rescore_query_weight": 1, "rescore_query": by_model}
    asked = {"query": {"match_all": {}}, "rescore": {"window_size": 10, "query": weights}}
    hits = search.ask("POST", "mistakes/_search", asked)["hits"]["hits"]
    return [(hit["_id"], hit["_score"]) for hit in hits]


@pytest.fixture(scope="module")
def served(learning: OpenSearch, export: Path) -> tuple[OpenSearch, list[tuple[str, float]]]:
    """The models in service, and what they give."""
    learning.ask("PUT", "mistakes", {"settings": {"number_of_shards": 1}})
    learning.fill("mistakes", {str(number): {"clicks": number, "other": 9 - number} for number in range(5)})
    done = upload(export, learning.url)
    assert done.stdout == "The feature set mistakes and 7 models are in the engine.\n", done.stderr
    return learning, scored(learning, "mistakes-0")


def test_uploading_again_changes_nothing(served: Any, export: Path) -> None:
    search, before = served
    assert "(8 of them were there before)" in upload(export, search.url).stdout
    assert scored(search, "mistakes-0") == before


def test_a_feature_set_of_that_name_with_other_features_is_left_alone(
    served: Any, export: Path, tmp_path: Path
) -> None:
    search, before = served
    ranker = KnnOffline2(RankSVM(), k=0.3, models=6, view=TextView(5)).fit(world())
    export_model(ranker, "opensearch", tmp_path / "other", name="mistakes", features=feature_set("other"))
    done = upload(tmp_path / "other", search.url)
    assert done.returncode == 2
    assert "There is a feature set mistakes already, with another definition of title.bm25" in done.stderr
    assert "--name mistakes-2" in done.stderr
    newer = KnnOffline2(RankSVM(l2=30.0), k=0.3, models=6, view=TextView(5)).fit(world())
    export_model(newer, "opensearch", tmp_path / "newer", name="mistakes", features=feature_set())
    done = upload(tmp_path / "newer", search.url)
    assert done.returncode == 2
    assert "There is a model mistakes-global already, with other weights" in done.stderr
    assert scored(search, "mistakes-0") == before


def test_a_model_that_is_too_large_is_named_with_its_size(served: Any, tmp_path: Path) -> None:
    search, before = served
    export_model(RankSVM().fit(world()), "opensearch", tmp_path / "large", name="large", features=feature_set())
    path = tmp_path / "large" / "models" / "large.json"
    content = json.loads(path.read_text())
    stump = {"nodeid": 0, "leaf": 0.123456789}
    trees = {"type": "model/xgboost+json", "definition": json.dumps([stump] * (opensearch.LARGEST // 20))}
    path.write_text(json.dumps({"model": {**content["model"], "model": trees}}))
    done = upload(tmp_path / "large", search.url)
    assert done.returncode == 2
    assert re.search(r"the engine does not take \d+\.\d MB at once", done.stderr), done.stderr
    assert "Models in service were not changed" in done.stderr
    assert scored(search, "mistakes-0") == before
    upload(tmp_path / "large", search.url, "--remove")


def test_an_upload_that_breaks_off_goes_on_and_the_old_models_answer_meanwhile(served: Any, tmp_path: Path) -> None:
    search, before = served
    newer = KnnOffline2(RankSVM(l2=30.0), k=0.3, models=6, view=TextView(5)).fit(world())
    export_model(newer, "opensearch", tmp_path / "two", name="mistakes-2", features=feature_set())
    with breaking(search.url, "POST", 3, "_createmodel") as way:
        broken = upload(tmp_path / "two", way)
    assert broken.returncode == 2
    assert "4 of 8 items were uploaded" in broken.stderr
    assert "Run upload.py again to continue" in broken.stderr
    assert scored(search, "mistakes-0") == before
    assert "(4 of them were there before)" in upload(tmp_path / "two", search.url).stdout
    assert scored(search, "mistakes-2-0") != before
    assert scored(search, "mistakes-0") == before
