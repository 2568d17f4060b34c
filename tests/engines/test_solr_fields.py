"""A collection with fields in a real Solr: its index, its features logged, a forest on them, and the parity report."""

from __future__ import annotations

import pytest

from tests.commands import run_script
from tests.engines import fielded
from tests.engines.solr import Solr

CORE, STORE = "fields", "querywise-log"


@pytest.fixture(scope="module")
def logged(node: Solr, tmp_path_factory: pytest.TempPathFactory) -> fielded.Logged:
    made = fielded.Logged(tmp_path_factory.mktemp("fields"), "solr", "english")
    node.create(CORE)
    for name, content in made.index["files"].items():
        (node.home / "configsets" / CORE / "conf" / name).write_text(content)
    known = ("title", "body", "clicks")  # of every core of the tests
    node.ask("POST", f"{CORE}/schema", {"delete-field": [{"name": name} for name in known]})
    node.ask("POST", f"{CORE}/schema", made.index["schema"])
    node.fill(CORE, fielded.documents())
    node.ask("PUT", f"{CORE}/schema/feature-store", made.features)
    node.reload(CORE)
    return made


def test_the_log_has_our_features_and_a_forest_on_it_scores_alike(node: Solr, logged: fielded.Logged) -> None:
    log, differences = logged.log(node.url, CORE, "--store", STORE)
    fielded.check(log, differences)
    features = logged.folder / "engine" / "features.json"
    export = logged.export(features)
    node.create("fields-scratch")
    checked = run_script(export / "check_parity.py", "--url", node.url, "--collection", "fields-scratch")
    assert checked.returncode == 0, checked.stderr
    assert "scored alike" in checked.stdout
