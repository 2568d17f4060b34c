"""A collection with fields in a real OpenSearch: its index, and its features logged as scores of named queries."""

from __future__ import annotations

from pathlib import Path

from tests.commands import run_script
from tests.emulated import LearningToRank, serving
from tests.engines import fielded
from tests.engines.opensearch import OpenSearch

INDEX = "fields"


def test_the_log_has_our_features_and_a_forest_on_it_scores_alike(search: OpenSearch, tmp_path: Path) -> None:
    made = fielded.Logged(tmp_path, "opensearch", "none")  # the distribution for tests has no stemmers
    search.ask("PUT", INDEX, {**made.index, "settings": {**made.index["settings"], "number_of_shards": 1}})
    search.fill(INDEX, fielded.documents())
    search.ask("POST", f"{INDEX}/_forcemerge?max_num_segments=1")
    features = made.folder / "engine" / "features.json"
    log, differences = made.log(search.url, INDEX, "--features", features)
    fielded.check(log, differences)
    assert differences["fields.hit"]["differ"] > 0, "a field that has a stop word alone counts with us"
    export = made.export(features)
    with serving(LearningToRank()) as url:  # the plugin is not to be had everywhere
        checked = run_script(export / "check_parity.py", "--url", url)
    assert checked.returncode == 0, checked.stderr
    assert "scored alike" in checked.stdout
