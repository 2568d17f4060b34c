"""`querywise log` and `querywise fields --engine`: an engine's features of judged documents, in a file to train on.

The engines here are those of `emulated.py`; real ones are in `tests/engines`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from querywise import read_judged
from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.exports.scripts.check_parity import Server
from querywise.exports.targets import TARGETS
from querywise.jobs.log import EngineIndex, log_features
from tests.commands import run
from tests.emulated import LearningToRank, TrainedModels, serving

FILMS: dict[str, dict[str, Any]] = {
    "D1": {"title": "Big Fish", "actors": ["Ewan McGregor", "Albert Finney"], "votes": 900, "year": 2003, "seen": True},
    "D2": {"title": "Trainspotting", "actors": ["Ewan McGregor"], "votes": 4, "seen": False},
    "D3": {"title": "Fish Tank", "actors": ["Katie Jarvis"], "votes": 40, "year": 2009, "seen": True},
}
QUERIES = {"q1": "ewan mcgregor", "q2": 'fish "{{keywords}}" \\', "q3": "nobody judged this"}
GRADES = {"q1": {"D1": 1, "D2": 2}, "q2": {"D3": 1, "D1": 0}}
VOTES = {"function_score": {"query": {"match_all": {}}, "field_value_factor": {"field": "votes", "missing": 0}}}
WORDS = {"match": {"title": "{{keywords}}"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    def write(name: str, lines: list[str]) -> None:
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))

    write("corpus.jsonl", [json.dumps({"_id": name, **each}) for name, each in FILMS.items()])
    write("queries.jsonl", [json.dumps({"_id": name, "text": text, "group": "g"}) for name, text in QUERIES.items()])
    write("qrels.tsv", [f"{query}\t{name}\t{grade}" for query, own in GRADES.items() for name, grade in own.items()])
    how = {"params": ["keywords"], "template_language": "mustache"}
    features = [{"name": "words", **how, "template": WORDS}, {"name": "votes", **how, "template": VOTES}]
    (tmp_path / "features.json").write_text(json.dumps({"featureset": {"features": features}}))
    return tmp_path


@pytest.fixture
def native() -> Iterator[str]:
    engine = TrainedModels()
    engine.indexes["films"] = {name: {"_id": name, **each} for name, each in FILMS.items()}
    with serving(engine) as url:
        yield url


@pytest.fixture
def plugin(folder: Path) -> Iterator[str]:
    engine = LearningToRank()
    engine.indexes["films"] = {name: {"_id": name, **each} for name, each in FILMS.items()}
    engine.feature_sets["log"] = json.loads((folder / "features.json").read_text())["featureset"]["features"]
    with serving(engine) as url:
        yield url


def logged(folder: Path, url: str, *more: object, index: str = "films") -> Path:
    (folder / "log").mkdir()
    out = folder / "log" / "log.parquet"
    asked = ("--url", url, "--index", index, "--queries", folder, "--out", out)
    done = run(folder, "log", "elasticsearch", *asked, *more)
    assert done.returncode == 0, done.stderr
    assert "4 documents of 2 queries with 2 features" in done.stdout
    return out


def check(out: Path) -> None:
    """Documents in the order of the judgements, whose features are the engine's, with the text of their query."""
    found = read_judged(out)
    assert found.candidates.document_ids == ("D1", "D2", "D3", "D1")
    assert found.feature_names == ("words", "votes")
    assert found.candidates.features.tolist() == [[0, 900], [0, 4], [1, 40], [1, 900]]
    assert found.labels.tolist() == [1, 2, 1, 0]
    table = found.candidates.queries
    assert table is not None
    assert (table.texts, table.groups) == ((QUERIES["q1"], QUERIES["q2"]), ("g", "g"))


def test_scores_of_named_queries_are_logged(folder: Path, native: str) -> None:
    check(logged(folder, native, "--features", folder / "features.json"))


def test_what_the_plugin_logs_is_logged(folder: Path, plugin: str) -> None:
    check(logged(folder, plugin, "--store", "log"))


def test_a_document_that_the_engine_does_not_have_is_left_out_and_counted(folder: Path, native: str) -> None:
    with (folder / "qrels.tsv").open("a") as file:
        file.write("q1\tD9\t1\n")
    asked = ("--url", native, "--index", "films", "--queries", folder, "--features", folder / "features.json")
    done = run(folder, "log", "opensearch", *asked, "--out", folder / "log.parquet", "--json")
    assert json.loads(done.stdout)["absent"] == 1
    assert read_judged(folder / "log.parquet").candidates.document_ids == ("D1", "D2", "D3", "D1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["solar", "--store", "x"], "Unknown engine 'solar'. Known: opensearch, elasticsearch, solr."),
        (["opensearch"], "Name what the engine computes"),
        (["opensearch", "--store", "x", "--features", "features.json"], "Name what the engine computes"),
        (["solr", "--features", "features.json"], "Solr logs the features of a store"),
        (["opensearch", "--features", "qrels.tsv"], "qrels.tsv"),
        (["opensearch", "--features", "wrong.json"], "The features must be a list"),
        (["opensearch", "--features", "features.json", "--index", "none"], "index_not_found"),
        (["opensearch", "--features", "features.json", "--header", "secret"], "--header: expected 'Name: value'"),
        (["opensearch", "--features", "features.json", "--queries", "queries.jsonl"], "name the judgments too"),
        (["opensearch", "--features", "features.json", "--qrels", "others.tsv"], "none of the judged documents"),
        (["opensearch", "--features", "features.json", "--url", "ftp://here"], "expected an address like"),
        (["opensearch", "--features", "features.json", "--url", "http://127.0.0.1:9"], "does not answer"),
    ],
)
def test_a_mistake_is_told_in_a_line_and_nothing_is_written(
    folder: Path, native: str, words: list[str], said: str
) -> None:
    (folder / "wrong.json").write_text('{"featureset": {"features": [{"name": "words"}]}}')
    (folder / "others.tsv").write_text("q1\tE1\t1\n")
    asked = ["--url", native, "--index", "films", "--queries", ".", "--out", "log.parquet"]
    done = run(folder, "log", words[0], *asked, *words[1:])
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "log.parquet").exists()


@pytest.mark.parametrize("engine", [name for name, each in TARGETS.items() if each.fields is not None])
def test_the_fields_are_written_for_every_engine_that_searches_by_fields(folder: Path, engine: str) -> None:
    done = run(folder, "fields", folder, "--engine", engine, "--out", folder / "engine", "--json")
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout)["features"]
    assert {"title.bm25", "actors.bm25", "fields.sum", "votes", "year", "year.missing"} <= {*names}
    assert (folder / "engine" / "index.json").exists() == (engine != "vespa")
    content = (folder / "engine" / "features.json").read_text()
    assert "EDIT_ME" not in content
    assert "2006" in content, "the median year stands for a missing one"


def test_what_no_score_can_be_is_no_feature(folder: Path) -> None:
    (folder / "corpus.jsonl").write_text(
        '{"_id": "D1", "title": "a", "change": -2, "made": "2003-12-25"}\n{"_id": "D2", "title": "b", "change": 1}\n'
    )
    done = run(folder, "fields", folder, "--engine", "opensearch", "--out", folder / "engine", "--json")
    names = json.loads(done.stdout)["features"]
    assert {"change", "made"} & {*names} == set()
    assert "made.missing" in names
    mapped = json.loads((folder / "engine" / "index.json").read_text())["mappings"]["properties"]
    assert (mapped["change"]["type"], mapped["made"]["type"]) == ("double", "date")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "solar", "--out", "engine"], "Unknown engine 'solar'"),
        (["--engine", "solr"], "name a folder for them with --out"),
    ],
)
def test_fields_for_an_engine_refuse_what_cannot_be(folder: Path, words: list[str], said: str) -> None:
    done = run(folder, "fields", folder, *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_collection_without_fields_of_its_own_is_refused(folder: Path) -> None:
    (folder / "corpus.jsonl").write_text('{"_id": "D1", "title": "a", "text": "b"}\n')
    done = run(folder, "fields", folder, "--engine", "solr", "--out", folder / "engine")
    assert (done.returncode, "no fields of their own" in done.stderr) == (2, True)


@pytest.mark.parametrize("score", ["1e999", "NaN", "1" + "0" * 400, '"1"', "null", "[]"])
def test_a_score_that_is_no_finite_number_is_refused(score: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"hits": {"hits": [{"_id": "D1", "matched_queries": {"words": json.loads(score)}}]}}
    monkeypatch.setattr(Server, "ask", lambda *_: answer)
    index = EngineIndex("opensearch", "http://localhost:9", "films", features=[{"name": "words", "template": WORDS}])
    with pytest.raises(DataError, match=r"the score of 'words' is .*, not a finite number"):
        log_features(index, QueryTable(("q1",), texts=("fish",)), {"q1": {"D1": 1}})
