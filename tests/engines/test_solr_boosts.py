"""Learned boosts as `qf` of a real Solr, added up and by Solr's own tie: our scores, and so our order."""

from __future__ import annotations

import pytest

from querywise.exports.targets import TARGETS
from querywise.retrieval.boosts import DISMAX, MOST
from tests.engines.boosting import TEXTS, Predicted, check
from tests.engines.solr import Solr

CORE = "boosts"


@pytest.fixture(scope="module")
def predicted(node: Solr, tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    made = Predicted(tmp_path_factory.mktemp("boosts"))
    node.create(CORE, ltr=False)
    index = made.indexes["solr"]
    for name, content in index["files"].items():
        (node.home / "configsets" / CORE / "conf" / name).write_text(content)
    known = ("title", "body")  # of every core of the tests
    node.ask("POST", f"{CORE}/schema", {"delete-field": [{"name": name} for name in known]})
    node.ask("POST", f"{CORE}/schema", index["schema"])
    node.fill(CORE, made.documents)
    return made


@pytest.mark.parametrize("form", [MOST, DISMAX])
def test_qf_gives_the_scores_that_boosts_predict(node: Solr, predicted: Predicted, form: str) -> None:
    write = TARGETS["solr"].fields
    assert write is not None
    assert write.request is not None
    assert predicted.learned[form]["requests"]["solr"] == write.request(predicted.every(form)[0])
    for boosts in predicted.every(form):
        asked = {name: str(value) for name, value in (write.request(boosts) or {}).items()}
        for text, own in zip(TEXTS, predicted.scores(boosts), strict=True):
            found = node.select(CORE, {**asked, "q": text, "fl": "id,score", "rows": "1000"})
            check(own, {each["id"]: each["score"] for each in found}, f"{text}: {boosts}")
