"""Weights of runs in engines' requests: the same weights as from Python, and SQL that adds up as the model does."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import statistics
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from querywise import Router, export_model
from querywise.data.normalisation import ENGINE_NORMALISATIONS
from querywise.errors import DataError
from querywise.exports import targets
from querywise.exports.fusion import sql_form
from querywise.exports.routing import HybridRouter, filled
from querywise.exports.target import by_vectors
from querywise.exports.targets import FUSE_RUNS
from querywise.exports.writing import export_hybrid
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.rankers.weights.by_query import WeightsByQuery
from querywise.rankers.weights.fusion import EqualWeights, Weights
from querywise.storage import save
from tests import commands
from tests.support.placeholders import weights_in
from tests.support.runs import RUNS, lists_of, planted, text_of
from tests.worlds import as_runs, ragged

ROOT = Path(__file__).parent.parent
DATA = planted(120)
NEAR = WeightsByQuery(way="neighbours", kappa=0.0, shrinkage=0.5)


@pytest.mark.parametrize("engine", FUSE_RUNS)
def test_a_routers_request_has_the_weights_that_python_gives(engine: str, tmp_path: Path) -> None:
    ranker = NEAR.fit(DATA)
    done = export_hybrid(ranker, engine, tmp_path / "export")
    assert done.weights == dict(zip(RUNS, ranker.weights_.tolist(), strict=True))
    assert done.by == ("text",)
    router, offline = HybridRouter(tmp_path / "export"), ranker.run_weights(DATA.candidates)
    for query in range(0, 120, 17):
        request: Any = router.request(text_of(query), vector=[0.1, 0.2], runs=lists_of(query))
        weights = router.weights(text_of(query))
        assert list(weights.values()) == pytest.approx(offline[query].tolist(), abs=1e-12)
        assert (found := weights_in(tmp_path / "export", request))
        assert found == {run: weights[run] for run in found}
        assert "$" not in json.dumps(request).replace("%(", "")


def test_opensearchs_request_is_a_hybrid_query_with_its_pipeline(tmp_path: Path) -> None:
    export_hybrid(Weights("z-score").fit(DATA), "opensearch-hybrid", tmp_path / "export")
    request: Any = HybridRouter(tmp_path / "export").request("disk", vector=[1])
    words, vectors = request["query"]["hybrid"]["queries"]
    assert words == {"match": {"EDIT_ME_text_field": {"query": "disk"}}}
    assert vectors == {"knn": {"EDIT_ME_vector_field": {"vector": [1.0], "k": 100}}}
    processor = request["search_pipeline"]["phase_results_processors"][0]["normalization-processor"]
    assert processor["normalization"] == {"technique": "z_score"}
    assert processor["combination"]["technique"] == "arithmetic_mean"


@pytest.mark.parametrize(
    ("engine", "place"),
    [
        ("opensearch-hybrid", "score-ranker-processor"),
        ("elasticsearch-retriever", '"rrf"'),
        ("vespa", "reciprocal_rank"),
    ],
)
def test_weights_of_ranks_are_weighted_reciprocal_rank_fusion(engine: str, place: str, tmp_path: Path) -> None:
    export_hybrid(EqualWeights("rank").fit(DATA), engine, tmp_path / "export")
    assert any(place in path.read_text() for path in (tmp_path / "export").glob("*.*") if path.suffix != ".md")


class Deviation:
    """PostgreSQL's stddev_samp, for SQLite."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def step(self, value: float) -> None:
        self.values.append(value)

    def inverse(self, value: float) -> None:
        self.values.remove(value)

    def value(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    finalize = value


@pytest.mark.parametrize("normalise", ENGINE_NORMALISATIONS)
def test_the_sql_scores_as_the_model_does(normalise: Any, tmp_path: Path) -> None:
    """The lists themselves are PostgreSQL's; what is made of them runs in SQLite too."""
    ranker = Weights(normalise).fit(DATA)
    text = sql_form({run: by_vectors(run) for run in RUNS}, normalise, 100)
    made = "WITH\n" + text[text.index('"words" AS (') :].replace("LIMIT 10", "LIMIT 100")
    made = made.replace("%(weight_words)s", ":words").replace("%(weight_vectors)s", ":vectors")
    weights = dict(zip(RUNS, ranker.weights_.tolist(), strict=True))
    database = sqlite3.connect(":memory:")
    database.create_window_function("stddev_samp", 1, Deviation)
    for query in (0, 3, 8):
        for run, own in lists_of(query).items():
            database.execute(f'CREATE TABLE "{run} list" (id TEXT, score REAL)')
            database.executemany(f'INSERT INTO "{run} list" VALUES (?, ?)', own.items())
        found = dict(database.execute(made, weights).fetchall())
        rows = DATA.candidates.rows(query)
        expected = dict(
            zip((DATA.candidates.document_ids or ())[rows], ranker.predict(DATA.candidates)[rows].tolist(), strict=True)
        )
        assert found == pytest.approx({each: expected[each] for each in found}, rel=1e-9)
        assert set(found) == {each for own in lists_of(query).values() for each in own}
        for run in RUNS:
            database.execute(f'DROP TABLE "{run} list"')


def test_names_of_runs_that_sql_reads_otherwise_are_quoted(tmp_path: Path) -> None:
    """Capitals, words of SQL, and a name that is that of another's list."""
    runs = ("select", "order", "Words", "words", "words_list", "user")
    export_hybrid(EqualWeights().fit(as_runs(ragged(features=6), runs)), "postgres", tmp_path / "sql")
    text = (tmp_path / "sql" / "query.sql").read_text()
    made = re.findall(r"^(\S.*) AS \($", text, re.MULTILINE)
    assert made == [*(f'"{run} list"' for run in runs), *(f'"{run}"' for run in runs)]
    assert len({each.strip('"')[:63] for each in made}) == 12
    bare = re.sub(r'"[^"]*"|%\(\w+\)s', "", text)
    assert not any(re.search(rf"\b{run}\b", bare) for run in ("Words", "words", "words_list", "user"))
    database = sqlite3.connect(":memory:")  # which knows the words, but not capitals
    kept = {run: by_vectors(run) for run in runs if run != "Words"}
    text = sql_form(kept, "l2", 100)
    for run in kept:
        database.execute(f'CREATE TABLE "{run} list" (id TEXT, score REAL)')
        database.execute(f'INSERT INTO "{run} list" VALUES (?, 1.0)', (run,))
    scaled = "WITH\n" + text[text.index('"select" AS (') :]
    found = database.execute(re.sub(r"%\(weight_(\w+)\)s", "1.0", scaled)).fetchall()
    assert dict(found) == dict.fromkeys(kept, 1.0)
    with pytest.raises(DataError, match="has too long a name for PostgreSQL, which takes 58 bytes"):
        sql_form({"é" * 30: False}, "l2", 100)


def test_contributings_engine_is_a_file_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, line = re.findall(r"```py\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    meilisearch = ModuleType("querywise.exports.meilisearch")
    exec(compile(code, "meilisearch.py", "exec"), vars(meilisearch))
    for name, target in eval(f"{{{line}}}", {"meilisearch": meilisearch}).items():
        monkeypatch.setitem(targets.TARGETS, name, target)
    ranker = NEAR.fit(DATA)
    export_model(ranker, "meilisearch", tmp_path / "export")
    request: Any = Router(tmp_path / "export").request(text_of(3), vector=[0.5])
    assert request["hybrid"]["semanticRatio"] == pytest.approx(ranker.run_weights(DATA.candidates)[3, 1], abs=1e-12)
    assert request["q"] == text_of(3)
    three = EqualWeights().fit(as_runs(ragged(), ("a", "b", "vectors")))
    with pytest.raises(DataError, match="fuses up to 2 runs; the model weighs 3"):
        export_model(three, "meilisearch", tmp_path / "three")


@pytest.mark.slow
def test_the_command_writes_the_export_and_its_router_prints_a_request(tmp_path: Path) -> None:
    save(NEAR.fit(DATA), tmp_path / "fusion")
    text = commands.output(commands.run(tmp_path, "export", "fusion", "--to", "elasticsearch-retriever", "--out", "es"))
    assert "Weights of 2 runs for elasticsearch-retriever written to es: words" in text
    assert "by text: router.py" in text
    (tmp_path / "vector.json").write_text("[0.5, 0.25]")
    command = [sys.executable, "es/router.py", "how can disk", "vector.json"]
    request = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout)
    assert weights_in(tmp_path / "es", request) == HybridRouter(tmp_path / "es").weights("how can disk")
    (tmp_path / "es" / "request.json").write_text("{}")
    refused = commands.refused(
        commands.run(tmp_path, "export", "fusion", "--to", "elasticsearch-retriever", "--out", "es")
    )
    assert "request.json changed or was added since" in refused


def test_what_cannot_be_exported_is_refused_with_the_reason(tmp_path: Path) -> None:
    out = tmp_path / "export"
    with pytest.raises(DataError, match="has no normalisation 'z-score', which the model was fitted with"):
        export_hybrid(Weights("z-score").fit(DATA), "vespa", out)
    with pytest.raises(DataError, match=r"'solr' cannot fuse runs\. Known: opensearch-hybrid"):
        export_hybrid(Weights().fit(DATA), "solr", out)
    with pytest.raises(DataError, match="takes weights of first-stage runs, and a RankSVM has none"):
        export_hybrid(RankSVM().fit(ragged()), "postgres", out)
    with pytest.raises(DataError, match="fuses up to 5 runs; the model weighs 6"):
        export_hybrid(EqualWeights().fit(as_runs(ragged(features=6), tuple("abcdef"))), "opensearch-hybrid", out)
    with pytest.raises(DataError, match="have the same name without their special characters"):
        export_hybrid(EqualWeights().fit(as_runs(ragged(), ("a-b", "a.b"))), "vespa", out)
    assert not out.exists()
    export_hybrid(Weights().fit(DATA), "opensearch-hybrid", out)
    with pytest.raises(DataError, match=r"has '\$vector', which was not given"):
        HybridRouter(out).request("disk")
    export_hybrid(Weights().fit(DATA), "postgres", tmp_path / "sql")
    for given, said in (({"text": "disk"}, "the parameter 'vector'"), ({"vector": [1.0]}, "the parameter 'text'")):
        with pytest.raises(DataError, match=said):
            HybridRouter(tmp_path / "sql").request(**given)
    with pytest.raises(DataError, match=r"has '\$text_field', which is unknown"):
        filled({"query": "$text_field"}, {"$text": "disk"})
    with pytest.raises(DataError, match=r"has '\$text' within the text 'title:\$text'. A placeholder is a whole value"):
        filled({"query": ["title:$text"]}, {"$text": "disk"})


def test_a_request_nested_deeper_than_python_goes_is_refused(tmp_path: Path) -> None:
    export_hybrid(Weights().fit(DATA), "opensearch-hybrid", tmp_path / "export")
    for depth in (700, 5_000):  # as deep as JSON is read, and deeper
        for opening, closing in (("[", "]"), ('{"a": [', "]}")):
            (tmp_path / "export" / "request.json").write_text(opening * depth + closing * depth)
            with pytest.raises(DataError, match=r"request.json: (its values are nested too deep|this is not JSON)"):
                HybridRouter(tmp_path / "export").request("disk", vector=[1.0])


def test_a_router_says_what_is_wrong_with_what_it_is_given(tmp_path: Path) -> None:
    export_hybrid(Weights().fit(DATA), "postgres", tmp_path / "export")
    router = HybridRouter(tmp_path / "export")
    for vector in ({"a": 1}, ["a"], [], [math.nan], 3, [10**400]):
        with pytest.raises(DataError, match="vector must be a list of finite numbers; found"):
            router.weights("disk", vector=vector)  # type: ignore[arg-type]
    for runs in ([1.0], {"words": 3}, {"words": {"d1": "x"}}, {"words": {"d1": math.inf}}, {"words": {"d1": 10**400}}):
        with pytest.raises(DataError, match="scores must be finite numbers by run and document"):
            router.weights("disk", runs=runs)  # type: ignore[arg-type]
    (tmp_path / "export" / "export.json").write_text("[]")
    with pytest.raises(DataError, match="not the manifest of a querywise export"):
        HybridRouter(tmp_path / "export")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("disk", "none.json"), "none.json: this cannot be read as JSON"),
        (("disk", "deep.json"), "deep.json: this cannot be read as JSON"),
        (("disk", "export/router.py"), "router.py: this cannot be read as JSON"),
        (("disk",), "the parameter 'vector', which was not given"),
        ((), "The request to the engine for a query, with its weights: python router.py"),
    ],
)
def test_a_routers_script_refuses_without_a_traceback(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    export_hybrid(Weights().fit(DATA), "postgres", tmp_path / "export")
    (tmp_path / "deep.json").write_text("[" * 5000)
    command = [sys.executable, "export/router.py", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_weights_of_all_queries_need_no_text(tmp_path: Path) -> None:
    ranker = Weights().fit(DATA)
    export_hybrid(ranker, "postgres", tmp_path / "export")
    router = HybridRouter(tmp_path / "export")
    assert np.array_equal(list(router.weights().values()), ranker.weights_)
