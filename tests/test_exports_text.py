"""Models of a text collection: an engine computes BM25 and numbers, and what else they use is refused by name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from querywise import (
    DataError,
    Judged,
    KnnOffline2,
    LambdaMART,
    QueryTable,
    RankSVM,
    build_index,
    export_model,
    judged_candidates,
    save,
)
from querywise.contracts.protocols import Ranker
from querywise.data.collections import Collection, Document
from querywise.data.judgements import Judgement
from querywise.rankers.single import OneFeature
from querywise.retrieval.scores import NAMES, Smoothing
from tests import commands
from tests.support.exports import ENGINES

WORDS = ("jaguar", "python", "cat", "snake", "car", "river", "engine", "forest")


def collection() -> Collection:
    rng = np.random.default_rng(3)
    documents = [
        Document(f"D{place}", " ".join(rng.choice(WORDS, 3)), " ".join(rng.choice(WORDS, 9)), {"popularity": place / 7})
        for place in range(40)
    ]
    queries = QueryTable(tuple(f"q{place}" for place in range(8)), texts=WORDS)
    grades = tuple(
        Judgement(f"q{place}", each.id, int(word in each.title), "here")
        for place, word in enumerate(WORDS)
        for each in documents
    )
    return Collection("zoo", lambda: documents, queries, grades)


@pytest.fixture(scope="module")
def judged() -> Judged:
    made = collection()
    return judged_candidates(made, build_index(made.documents()))[0]


def test_what_no_engine_computes_is_refused_with_the_list(judged: Judged, tmp_path: Path) -> None:
    ranker = RankSVM().fit(judged)
    for engine in (name for name, kind in ENGINES.items() if kind.no_sums is None):
        with pytest.raises(DataError) as error:
            export_model(ranker, engine, tmp_path / engine)
        said = str(error.value)
        assert re.search(r"does not compute 2\d of the features that the model uses: L1\.title, L2\.title, ", said)
        assert "H5.absolute_discount. It computes H1.bm25, length.title, length.body, popularity." in said
        assert "Train on features that the engine logs" in said
        assert not (tmp_path / engine).exists()
    with pytest.raises(DataError, match=r"learning_to_rank does not compute \d+ of the features that the model uses"):
        export_model(LambdaMART(5, min_documents=2).fit(judged), "elasticsearch-native", tmp_path / "native")
    save(ranker, tmp_path / "model")
    done = commands.run(None, "export", tmp_path / "model", "--to", "solr", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "give a feature set that says" in " ".join(done.stderr.split())


def test_what_an_engine_computes_is_mapped(judged: Judged, tmp_path: Path) -> None:
    ranker = of_numbers(judged)
    export_model(ranker, "opensearch", tmp_path / "opensearch")
    content = json.loads((tmp_path / "opensearch" / "featureset.json").read_text())
    found = {each["name"]: each["template"] for each in content["featureset"]["features"]}
    assert found["L1.title"] == {"match_none": {}}, "no model uses it"
    assert found["H1.bm25"] == {"match": {"EDIT_ME_title_and_body": {"query": "{{keywords}}", "boost": 2.2}}}
    assert found["popularity"]["function_score"]["field_value_factor"] == {"field": "EDIT_ME_popularity", "missing": 0}
    export_model(ranker, "solr", tmp_path / "solr")
    stored = {each["name"]: each for each in json.loads((tmp_path / "solr" / "features.json").read_text())}
    assert stored["H1.bm25"]["params"] == {"q": "{!simple q.operators='' qf=EDIT_ME_title_and_body^2.2}${keywords}"}
    assert stored["length.title"]["class"].endswith(".FieldValueFeature")
    assert stored["H3.dirichlet"]["params"] == {"value": 0}
    export_model(ranker, "vespa", tmp_path / "vespa")
    profile = (tmp_path / "vespa" / "schemas" / "SCHEMA" / "querywise.profile").read_text()
    assert "function H1_bm25() {\n        expression: bm25(EDIT_ME_title_and_body)" in profile
    assert "function L1_title() {\n        expression: 0\n" in profile


def of_numbers(judged: Judged) -> Ranker:
    """A model that uses BM25 and the numbers alone."""
    features = judged.candidates.features.copy()
    features[:, [place for place, name in enumerate(NAMES) if name != "H1.bm25"]] = 0.0
    return RankSVM().fit(replace(judged, candidates=replace(judged.candidates, features=features)))


def test_bm25_alone_is_exported_and_a_feature_set_says_the_rest(judged: Judged, tmp_path: Path) -> None:
    bm25 = OneFeature(NAMES.index("H1.bm25")).fit(judged)
    assert export_model(bm25, "solr", tmp_path / "bm25", data=judged).unfinished
    names = judged.candidates.feature_names or ()
    mine = {name: f"attribute(f{place})" for place, name in enumerate(names)}
    assert not export_model(RankSVM().fit(judged), "vespa", tmp_path / "mine", features=dict(mine)).unfinished


def test_routing_by_documents_looks_at_every_feature(judged: Judged, tmp_path: Path) -> None:
    features = judged.candidates.features.copy()
    features[:, [place for place, name in enumerate(NAMES) if name != "H1.bm25"]] = 0.0
    plain = replace(judged, candidates=replace(judged.candidates, features=features))
    local = KnnOffline2(RankSVM(), k=0.5, models=2).fit(plain)
    with pytest.raises(DataError, match="does not compute 24 of the features"):
        export_model(local, "opensearch", tmp_path / "out")


def test_the_factor_of_bm25_is_that_of_the_features() -> None:
    from querywise.exports.models import BM25_FACTOR

    assert pytest.approx(Smoothing().k1 + 1) == BM25_FACTOR
