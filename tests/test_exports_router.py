"""router.py, which an export joins from an engine's own part and the part that all engines share."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

from querywise import KnnOffline2, LambdaMART, RankSVM, Router, TextView, export_model
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.exports.scripts import (
    check_elasticsearch,
    check_parity,
    route_elasticsearch,
    route_elasticsearch_native,
    route_solr,
    route_vespa,
)
from querywise.rankers.clusters import Naive
from tests.emulated import LearningToRank, TrainedModels, Vespa
from tests.query_languages import BadRequestError, found_by_elasticsearch, found_by_vespa, words_in
from tests.support.exports import ENGINES, NUMBERS, SHOP, TRICKY, assert_clean, shop, with_words, world, written


class Part(Protocol):
    """What an engine's own part has, as the shared part asks for it."""

    WINDOW: int

    def first_stage(self, keywords: str) -> dict[str, Any]: ...

    def routed(self, router: Router, keywords: str, **known: Any) -> dict[str, Any]: ...

    def logged(self, keywords: str, name: str) -> dict[str, Any]: ...

    def documents_in(self, answer: Any) -> list[dict[str, float]]: ...


PARTS: dict[str, Part] = {
    "Elasticsearch or OpenSearch": route_elasticsearch,
    "Elasticsearch's own learning_to_rank": route_elasticsearch_native,
    "Solr": route_solr,
    "Vespa": route_vespa,
}


@pytest.fixture(scope="module")
def by_text() -> KnnOffline2:
    return KnnOffline2(RankSVM(), k=0.3, models=4, view=TextView(5)).fit(world())


@pytest.fixture(scope="module")
def trees_by_text() -> KnnOffline2:
    return KnnOffline2(LambdaMART(2, leaves=3), k=0.3, models=4, view=TextView(5)).fit(world())


@pytest.fixture
def for_engine(engine: str, by_text: KnnOffline2, trees_by_text: KnnOffline2) -> KnnOffline2:
    """A ranker routed by text that the engine can run."""
    return by_text if ENGINES[engine].no_sums is None else trees_by_text


@pytest.mark.parametrize("engine", ENGINES)
def test_a_check_is_one_clean_file_for_its_engine_that_needs_python_alone(
    engine: str, for_engine: KnnOffline2, tmp_path: Path
) -> None:
    export_model(for_engine, engine, tmp_path / "out")
    place = tmp_path / "out" / "check_parity.py"
    assert_clean(place)
    tree = ast.parse(place.read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    assert {str(module).partition(".")[0] for module in imported} <= sys.stdlib_module_names
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    own = {"opensearch": "Elasticsearch"}.get(engine, engine.title().replace("-", ""))
    assert classes & {"Elasticsearch", "ElasticsearchNative", "Solr", "Vespa"} == {own}
    done = subprocess.run([sys.executable, "-I", place, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert own.removesuffix("Native") in done.stdout.partition("\n\n")[2].partition("\n")[0]
    for option in ("--url", "--header", "--collection", "--log", "--name", "--timeout"):
        assert f"  {option} " in done.stdout


def test_a_router_refuses_a_keyword_it_does_not_know(by_text: KnnOffline2, tmp_path: Path) -> None:
    export_model(by_text, "vespa", tmp_path / "out")
    misspelt: dict[str, Any] = {"query_clas": "navigational"}
    with pytest.raises(TypeError, match="Unexpected keyword argument 'query_clas'; known are query_class, "):
        Router(tmp_path / "out").model("jaguar", **misspelt)


def test_a_router_says_what_is_wrong_with_documents_and_columns(tmp_path: Path) -> None:
    data = make_judged(20, 10, 3, kinds=2)
    export_model(Naive(RankSVM(), clusters=2).fit(data), "opensearch", tmp_path / "out")
    router = Router(tmp_path / "out")
    for odd in ("abc", ["a", "b", "c"], None, 5, [10**400] * 3, [[1.0]] * 3):
        with pytest.raises(DataError, match="A document must be a list of numbers, or numbers by name; found"):
            router.model(documents=[odd])  # type: ignore[list-item]
    with pytest.raises(DataError, match="A document has 2 features; the model was trained on 3"):
        router.model(documents=[[1.0, 2.0]])
    with pytest.raises(DataError, match="must be numbers by name"):
        router.model(documents=[[1.0, 2.0, 3.0]], columns={"clicks": 10**400})
    manifest = json.loads((tmp_path / "out" / "export.json").read_text())
    manifest["features"]["in_engine"] = ["f1", "f1", "f2"]
    (tmp_path / "out" / "export.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"export.json: its features are not those of the model"):
        Router(tmp_path / "out")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_router_is_one_clean_file_that_begins_with_what_users_change(
    engine: str, for_engine: KnnOffline2, tmp_path: Path
) -> None:
    export_model(for_engine, engine, tmp_path / "out")
    place = tmp_path / "out" / "router.py"
    text = place.read_text()
    assert_clean(place)
    assert "querywise.exports" not in text, "the file needs its folder and the package, not our parts"
    said = text.partition("\n")[0]
    assert sum(f"to {title} that" in said for title in PARTS) == 1
    order = [text.index(f"\n{words}") for words in ("import ", "WINDOW = ", "def first_stage(", "HERE = ", "def main(")]
    assert order == sorted(order)
    assert text.count("if __name__") == 1


# The words of a user are words, whatever they look like.

FEATURES = ("title.bm25", "body bm25", *NUMBERS)


class Engine(Protocol):
    """An engine with the export and the documents of a shop; ids of what it finds, and its whole answer."""

    def features(self) -> Any: ...

    def bring(self, folder: Path) -> None: ...

    def ask(self, request: dict[str, Any]) -> tuple[list[str], Any]: ...


class InElasticsearch:
    def features(self) -> Any:
        common = {"params": ["keywords"], "template_language": "mustache"}
        reads = [{"function_score": {"field_value_factor": {"field": each, "missing": 0}}} for each in NUMBERS]
        templates = [{"match": {field: "{{keywords}}"}} for field in ("title", "body")]
        pairs = zip(FEATURES, [*templates, *reads], strict=True)
        return [{"name": name, "template": template, **common} for name, template in pairs]

    def bring(self, folder: Path) -> None:
        self.engine = LearningToRank()
        self.engine.indexes["shop"] = shop()
        self.engine.answer("POST", "/_ltr/_featureset/querywise", (folder / "featureset.json").read_text())
        for path in folder.glob("models/*.json"):
            self.engine.answer("POST", "/_ltr/_featureset/querywise/_createmodel", path.read_text())

    def ask(self, request: dict[str, Any]) -> tuple[list[str], Any]:
        answer = self.engine.answer("POST", "/shop/_search", json.dumps(request))
        return [hit["_id"] for hit in answer["hits"]["hits"]], answer


class InVespa:
    def features(self) -> Any:
        return None

    def bring(self, folder: Path) -> None:
        self.engine = Vespa(folder / "parity-app")
        values = {f"value{place}": 1.0 for place in range(len(FEATURES))}
        self.engine.documents = {name: {**texts, **values} for name, texts in SHOP.items()}

    def ask(self, request: dict[str, Any]) -> tuple[list[str], Any]:
        answer = self.engine.answer("POST", "/search/", json.dumps(request))
        hits = answer["root"]["children"]
        return [hit["fields"]["documentid"].rpartition(":")[2] for hit in hits], answer


class InElasticsearchNative:
    def features(self) -> Any:
        reads = [{"function_score": {"field_value_factor": {"field": each, "missing": 0}}} for each in NUMBERS]
        queries = [{"match": {field: "{{keywords}}"}} for field in ("title", "body")]
        pairs = zip(FEATURES, [*queries, *reads], strict=True)
        return [{"query_extractor": {"feature_name": name, "query": query}} for name, query in pairs]

    def bring(self, folder: Path) -> None:
        self.engine = TrainedModels()
        self.engine.indexes["shop"] = {name: {"_id": name, **document} for name, document in shop().items()}
        for path in folder.glob("models/*.json"):
            self.engine.answer("PUT", f"/_ml/trained_models/{path.stem}", path.read_text())

    def ask(self, request: dict[str, Any]) -> tuple[list[str], Any]:
        place = "_search/template?include_named_queries_score=true" if "source" in request else "_search"
        answer = self.engine.answer("POST", f"/shop/{place}", json.dumps(request))
        return [hit["_id"] for hit in answer["hits"]["hits"]], answer


SHOPS: dict[str, type[Engine]] = {
    "opensearch": InElasticsearch,
    "elasticsearch-native": InElasticsearchNative,
    "vespa": InVespa,
}


@pytest.mark.parametrize("engine", SHOPS)
def test_words_are_words_in_one_request(
    engine: str,
    for_engine: KnnOffline2,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = SHOPS[engine]()
    export_model(for_engine, engine, tmp_path / "out", features=running.features())
    running.bring(tmp_path / "out")
    for words in TRICKY:
        found, _ = running.ask(written(tmp_path / "out", monkeypatch, capsys, "--", words))
        assert sorted(found) == with_words(words), words


@pytest.mark.parametrize("engine", SHOPS)
def test_words_are_words_in_two_requests(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running, answer = SHOPS[engine](), tmp_path / "answer.json"
    learner = RankSVM() if ENGINES[engine].no_sums is None else LambdaMART(2, leaves=3)
    export_model(Naive(learner, 2).fit(world()), engine, tmp_path / "out", features=running.features())
    running.bring(tmp_path / "out")
    for words in TRICKY:
        first, said = running.ask(written(tmp_path / "out", monkeypatch, capsys, "--first", "--", words))
        assert sorted(first) == with_words(words), words
        answer.write_text(json.dumps(said))
        request = written(tmp_path / "out", monkeypatch, capsys, "--answer", str(answer), "--", words)
        assert sorted(running.ask(request)[0]) == sorted(first), words


class Direct(check_parity.Server):
    """An engine without HTTP in between."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        content = body if isinstance(body, str) else json.dumps(body)
        found: dict[str, Any] = self.engine.answer(method, f"/{path}", content)
        return found


def test_the_check_has_features_computed_for_words(by_text: KnnOffline2, tmp_path: Path) -> None:
    running = InElasticsearch()
    export_model(by_text, "opensearch", tmp_path / "out", features=running.features())
    running.bring(tmp_path / "out")
    export = json.loads((tmp_path / "out" / "export.json").read_text())
    check = check_elasticsearch.Elasticsearch(Direct(running.engine), export, "parity", "scratch")
    for words in TRICKY:
        found = check.logged("shop", words, ["b", "c"])
        for name in ("b", "c"):
            expected = [float(bool(words_in(words) & words_in(SHOP[name][field]))) for field in ("title", "body")]
            assert list(found[name].values()) == [*expected, 1.0, 1.0, 1.0], words


def test_the_engines_of_the_tests_refuse_or_follow_a_syntax_as_engines_do() -> None:
    for words in TRICKY[0], "jaguar AND (", "title:", "a/b", "[1 TO", "jaguar NOT", "jaguar^":
        for asked in ({"query_string": {"query": words}}, {"bool": {"must": [{"query_string": {"query": words}}]}}):
            with pytest.raises(BadRequestError, match="Failed to parse query"):
                found_by_elasticsearch(asked, SHOP["b"])
    for words, expected in (("title:jaguar", ["b"]), ("jaguar -cat", ["c"]), ("NOT jaguar", [])):
        by_string = {"query_string": {"query": words}}
        by_user_query = {"yql": "select * from sources * where userQuery()", "query": words}
        assert [name for name, texts in SHOP.items() if found_by_elasticsearch(by_string, texts)] == expected
        assert [name for name, texts in SHOP.items() if found_by_vespa(by_user_query, texts)] == expected
    with pytest.raises(BadRequestError, match="gave no query"):
        found_by_vespa(
            {"yql": 'select * from sources * where ({grammar: "tokenize"}userInput(@words))', "words": "*:*"}, SHOP["b"]
        )
