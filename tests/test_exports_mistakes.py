"""Ordinary mistakes around an export end in one line, and nothing of the user's is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise import Blend, DataError, KnnOffline2, LambdaMART, RankSVM, Router, export_model
from querywise.data.letor import write_letor
from querywise.learners.classic.listnet import ListNet
from querywise.learners.classic.rankboost import RankBoost
from querywise.learners.trees.context import QueryContext
from querywise.rankers.clusters import Naive, QueryClasses
from querywise.runtime.values import Json
from querywise.storage import save
from tests.commands import Done, run, run_script
from tests.emulated import LearningToRank
from tests.support.exports import answering, checked, engine_for, one_line, world


@pytest.fixture(scope="module")
def linear() -> RankSVM:
    return RankSVM().fit(world())


def run_check(folder: Path, *words: str) -> str:
    return one_line(run_script(folder / "check_parity.py", *words))


# Rankers that need the whole list.


@pytest.mark.parametrize(
    ("ranker", "words"),
    [
        (lambda: Blend([RankSVM(), ListNet()]), "A Blend cannot be exported: it adds up scores"),
        (lambda: QueryContext(RankSVM()), "A QueryContext cannot be exported: it sees every document beside"),
        (lambda: KnnOffline2(QueryContext(RankSVM()), k=0.5, models=2), "A QueryContext cannot be exported: it sees"),
    ],
    ids=["blend", "context", "local context"],
)
def test_rankers_that_need_the_whole_list_are_refused(ranker: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        export_model(ranker().fit(world()), "opensearch", tmp_path / "out")


# The check touches only what it made.


def test_the_check_leaves_an_index_alone_that_it_did_not_make(linear: RankSVM, tmp_path: Path) -> None:
    export_model(linear, "opensearch", tmp_path / "out")
    engine = LearningToRank()
    mine: dict[str, dict[str, float]] = {"a": {"price": 1.0}}
    engine.indexes["querywise-parity"] = mine
    said = one_line(checked(tmp_path / "out", engine, "opensearch"))
    assert "There is an index called querywise-parity already" in said
    assert 'curl -X DELETE "$URL/querywise-parity"' in said
    assert "--name" in said
    assert engine.indexes == {"querywise-parity": mine}
    result = checked(tmp_path / "out", engine, "opensearch", "--name", "other")
    assert result.returncode == 0, result.stderr
    assert engine.indexes == {"querywise-parity": mine}
    assert (engine.feature_sets, engine.models) == ({}, {})


def test_the_check_leaves_feature_sets_and_models_alone_that_it_did_not_make(linear: RankSVM, tmp_path: Path) -> None:
    export_model(linear, "elasticsearch", tmp_path / "out")
    engine = LearningToRank()
    engine.feature_sets["querywise-parity"] = [{"name": "mine"}]
    assert "a feature set called querywise-parity" in one_line(checked(tmp_path / "out", engine, "elasticsearch"))
    assert engine.feature_sets == {"querywise-parity": [{"name": "mine"}]}
    assert engine.indexes == {}, "what it made before it stopped is removed"
    engine = LearningToRank()
    engine.models["querywise-parity-querywise"] = "mine"
    assert "a model called querywise-parity-querywise" in one_line(checked(tmp_path / "out", engine, "elasticsearch"))
    assert (engine.models, engine.feature_sets, engine.indexes) == ({"querywise-parity-querywise": "mine"}, {}, {})


class Stubborn(LearningToRank):
    """Takes no model, and removes nothing."""

    def answer(self, method: str, path: str, body: str) -> Any:
        if method == "DELETE" or path.endswith("_createmodel"):
            raise KeyError(f"{method} is not allowed")
        return super().answer(method, path, body)


def test_what_could_not_be_removed_does_not_hide_the_first_error(linear: RankSVM, tmp_path: Path) -> None:
    export_model(linear, "opensearch", tmp_path / "out")
    result = checked(tmp_path / "out", Stubborn(), "opensearch")
    assert result.returncode == 2
    said = result.stderr.splitlines()
    assert [line.split(":")[0] for line in said[:2]] == ["Not removed", "Not removed"]
    assert "_createmodel: 400" in said[2]
    assert len(said) == 3


# The check says in one line what went wrong.


def test_words_with_line_separators_are_read_back(linear: RankSVM, tmp_path: Path) -> None:
    data = world().candidates
    assert data.queries is not None
    table = replace(data.queries, texts=tuple("ja\u2028gu\x85ar" for _ in data.query_ids))
    known = replace(data, queries=table, document_ids=tuple(f"d{row}" for row in range(len(data.features))))
    export_model(linear, "vespa", tmp_path / "out", data=known)
    result = checked(tmp_path / "out", engine_for("vespa", tmp_path / "out"), "vespa")
    assert (result.returncode, result.stdout) == (0, "100 documents are scored alike by 1 model.\n"), result.stderr
    kept = (tmp_path / "out" / "parity.jsonl").read_bytes()
    assert kept.isascii()
    assert json.loads(kept.split(b"\n")[0])["keywords"] == "ja\u2028gu\x85ar"


class Saying:
    """Answers everything alike."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def answer(self, method: str, path: str, body: str) -> Any:
        return self.content


def test_mistakes_in_how_the_check_is_called_take_one_line(linear: RankSVM, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_model(linear, "opensearch", out)
    url = ("--url", "http://127.0.0.1:9")
    assert "--url foo: expected an address like http://localhost:9200" in run_check(out, "--url", "foo")
    assert "expected an address" in run_check(out, "--url", "file:///etc")
    assert "does not answer" in run_check(out, *url)
    assert "expected 'Name: value'" in run_check(out, *url, "--header", "Authorization")
    assert "a character that HTTP headers cannot hold" in run_check(out, *url, "--header", "Authorization: Žluť")
    assert "a character that HTTP headers cannot hold" in run_check(out, *url, "--header", "A: b\nc: d")
    assert "--name My: expected lowercase letters" in run_check(out, *url, "--name", "My")
    assert "--timeout 0" in run_check(out, *url, "--timeout", "0")
    (out / "parity.jsonl").unlink()
    assert "parity.jsonl: cannot be read" in run_check(out, *url)
    (out / "export.json").write_text("{")
    assert "export.json: this is not JSON" in run_check(out, *url)


def test_servers_that_are_no_engine_take_one_line(linear: RankSVM, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_model(linear, "opensearch", out, rows=3)
    html = b"HTTP/1.0 200 OK\r\n\r\n<html>\n<title>Welcome</title>"
    for said, words in (
        (html, "not that of a search engine; it begins '<html> <title>Welcome</title>'. Is --url right?"),
        (b"HTTP/1.0 200 OK\r\n\r\n[1]", "not that of a search engine"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n{", "the connection broke off"),
        (b"SSH-2.0\r\n", "the connection broke off"),
        (b"\r\n", "the connection broke off"),
        (b"HTTP/1.0 503 Busy\r\n\r\n{\n1\n}", "PUT querywise-parity: 503 { 1 }"),
    ):
        with answering(said) as url:
            assert words in run_check(out, "--url", url)
    with answering() as url:
        assert "no answer within 0.2 seconds; see --timeout" in run_check(out, "--url", url, "--timeout", "0.2")


@pytest.mark.parametrize("engine", ["opensearch", "solr", "vespa"])
def test_an_answer_without_hits_takes_one_line(engine: str, linear: RankSVM, tmp_path: Path) -> None:
    export_model(linear, engine, tmp_path / "out", rows=3)
    answer = {"timed_out": True, "root": {"errors": []}, "response": {}, "hits": {"hits": [{"_id": "0"}]}}
    result = checked(tmp_path / "out", Saying(answer), engine)
    assert "The engine's answer lacks what was requested: {" in one_line(result)


# Routers.


@pytest.fixture(scope="module")
def by_documents() -> Naive:
    return Naive(RankSVM(), 2).fit(world())


@pytest.fixture(scope="module")
def by_class() -> QueryClasses:
    return QueryClasses(RankSVM(), known=True).fit(world())


def routed(folder: Path, *words: str) -> Done:
    return run_script(folder / "router.py", "jaguar", *words)


@pytest.mark.parametrize("engine", ["opensearch", "solr", "vespa"])
def test_mistakes_in_how_a_router_is_asked_take_one_line(engine: str, by_documents: Naive, tmp_path: Path) -> None:
    out, answer = tmp_path / "out", tmp_path / "answer.json"
    export_model(by_documents, engine, out)
    said = one_line(routed(out))
    assert "its documents were not given" in said
    assert "--first" in said
    assert "--answer" in said
    assert "answer.json: the engine's answer cannot be read" in one_line(routed(out, "--answer", str(answer)))
    answer.write_text("<html>")
    assert "answer.json: the engine's answer cannot be read" in one_line(routed(out, "--answer", str(answer)))
    answer.write_text(json.dumps({"error": {"reason": "no such model"}, "root": {"errors": [{"code": 8}]}}))
    said = one_line(routed(out, "--answer", str(answer)))
    assert "no documents with their features; send what --first prints. Found: {" in said


def test_a_router_refuses_features_it_does_not_know(by_documents: Naive, tmp_path: Path) -> None:
    names = world().candidates.feature_names or ()
    mine: list[Json] = [{"name": name, "params": [], "template": {"match_all": {}}} for name in (*names, "more")]
    export_model(by_documents, "opensearch", tmp_path / "out", features=mine)
    router = Router(tmp_path / "out")
    known = dict.fromkeys(names, 1.0)
    assert router.model(documents=[{**known, "more": 3.0}]) == router.model(documents=[known])
    assert router.model(documents=[{"age": 0.0}]) == router.model(documents=[np.zeros(5)])
    with pytest.raises(DataError, match=r"the feature 'titel'; the model knows title.bm25, body bm25"):
        router.model(documents=[{**known, "titel": 1.0}])
    for nothing in ({}, {"more": 1.0}):
        with pytest.raises(DataError, match="none of the model's features"):
            router.model(documents=[known, nothing])
    with pytest.raises(DataError, match="must be numbers by name"):
        router.model(documents=[{**known, "age": "old"}])  # type: ignore[dict-item]
    with pytest.raises(DataError, match="The query's columns must be numbers by name"):
        router.model(documents=[known], columns=["clicks"])  # type: ignore[arg-type]


def test_a_class_takes_one_request_and_is_not_ignored_without_a_word(
    by_documents: Naive, by_class: QueryClasses, tmp_path: Path
) -> None:
    export_model(by_class, "solr", tmp_path / "by-class")
    asked = routed(tmp_path / "by-class", "--class", "navigational")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert "model=querywise-1 " in asked.stdout
    said = one_line(routed(tmp_path / "by-class", "--class", "other"))
    assert "--first" in said
    assert "'other' is ignored: the model was trained on the classes informational, navigational, tra" in said
    export_model(by_documents, "solr", tmp_path / "by-documents")
    first = routed(tmp_path / "by-documents", "--class", "navigational", "--first")
    assert first.returncode == 0
    assert "is ignored: this model routes on the query's documents" in first.stderr
    assert "known=true" in first.stderr


# Folders.


@pytest.mark.parametrize("engine", ["opensearch", "solr", "vespa"])
def test_edits_are_not_lost_to_a_new_export(engine: str, by_documents: Naive, tmp_path: Path) -> None:
    out = tmp_path / "out"
    features = {"opensearch": "featureset.json", "solr": "features.json", "vespa": "schemas/SCHEMA/querywise.profile"}
    for place in ("router.py", features[engine], "request.json"):
        export_model(by_documents, engine, out, force=True)
        export_model(by_documents, engine, out)
        before = (out / place).read_text() if (out / place).exists() else ""
        (out / place).write_text(before + " ")
        with pytest.raises(DataError, match=f"{place} changed or was added since .*force=True"):
            export_model(by_documents, engine, out)
        assert (out / place).read_text() == before + " "
    export_model(by_documents, engine, out, force=True)
    assert not (out / "request.json").exists()


def test_another_engines_export_is_not_written_over(linear: RankSVM, tmp_path: Path) -> None:
    export_model(linear, "opensearch", tmp_path / "out")
    for force in (False, True):
        with pytest.raises(DataError, match=r"holds an export for opensearch, and this one is for elasticsearch"):
            export_model(linear, "elasticsearch", tmp_path / "out", force=force)
    (tmp_path / "out" / "export.json").write_text("[]")
    with pytest.raises(DataError, match="not the manifest of a querywise export"):
        export_model(linear, "opensearch", tmp_path / "out")


# The command line.


@pytest.fixture(scope="module")
def saved(linear: RankSVM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("saved")
    unnamed = replace(world().candidates, feature_names=None, queries=None)
    save(RankSVM().fit(replace(world(), candidates=unnamed)), root / "model")
    narrow = replace(unnamed, features=unnamed.features[:, :3])
    write_letor(root / "narrow.txt", replace(world(), candidates=narrow))
    return root


def test_the_command_line_says_what_is_missing(saved: Path, tmp_path: Path) -> None:
    def export(*words: object) -> Done:
        return run(None, "export", saved / "model", "--to", "solr", "--out", tmp_path / "out", *words)

    narrow = saved / "narrow.txt"
    assert "trained on 5 features but the documents have 3" in one_line(export("--data", narrow))
    assert export("--data", narrow, "--features", 5).returncode == 0
    assert "--queries describes the documents in --data" in one_line(export("--queries", narrow))
    (tmp_path / "out" / "features.json").write_text("[]")
    assert "features.json changed" in one_line(export())
    again = export("--force")
    assert again.returncode == 0
    assert "Give --data" in again.stdout


# What an engine cannot hold or name.


@pytest.mark.parametrize("engine", ["opensearch", "solr"])
def test_thresholds_beyond_32_bits_are_refused(engine: str, tmp_path: Path) -> None:
    data = world()
    features = data.candidates.features.copy()
    features[:, 0] = np.where(features[:, 1] > np.median(features[:, 1]), 3e39, 1e39)
    labels = (features[:, 0] > 2e39).astype(np.int64)
    large = replace(data, candidates=replace(data.candidates, features=features), labels=labels)
    for learner in (RankBoost(2), LambdaMART(2, leaves=2)):
        with pytest.raises(DataError, match=r"threshold is as large as .*numbers up to 3.4e\+38"):
            export_model(learner.fit(large), engine, tmp_path / "out")
        export_model(learner.fit(large), "vespa", tmp_path / "vespa")


def named(*names: str) -> RankSVM:
    return RankSVM().fit(replace(world(), candidates=replace(world().candidates, feature_names=names)))


def test_names_that_an_engine_reads_otherwise(tmp_path: Path) -> None:
    ranker = named("bm25", "if", "a,b", "body bm25", "f_bm25")
    with pytest.raises(DataError, match="'a,b' has a comma in its name"):
        export_model(ranker, "solr", tmp_path / "solr")
    export_model(ranker, "vespa", tmp_path / "vespa")
    export = json.loads((tmp_path / "vespa" / "export.json").read_text())
    assert export["features"]["in_engine"] == ["f_bm25", "f_if", "a_b", "body_bm25", "f_bm25_2"]
    export_model(named("a", "b", "c", "body bm25", "e}"), "solr", tmp_path / "solr")
    template = json.loads((tmp_path / "solr" / "features.json").read_text())
    assert [each["params"]["q"] for each in template[3:]] == [
        "{!simple q.operators='' qf=EDIT_ME_body_bm25}${keywords}",
        "{!simple q.operators='' qf=EDIT_ME_e_}${keywords}",
    ]
