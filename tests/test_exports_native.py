"""Exports for Elasticsearch's own learning_to_rank: trees, with a query for every feature (see emulated.py)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querywise import (
    Candidates,
    DataError,
    KnnOffline2,
    LambdaMART,
    RankSVM,
    Router,
    TextView,
    export_model,
    load,
    make_judged,
)
from querywise.contracts.forms import Forest, Leaf, Split
from querywise.data.letor import write_letor
from querywise.exports.arithmetic import above32, floor32
from querywise.exports.elasticsearch_native import TARGET, model_content
from querywise.exports.models import NamedModel
from querywise.learners.classic.rankboost import RankBoost
from querywise.learners.trees.boosting import TreeRegression
from querywise.rankers.atvt import ATVT
from querywise.rankers.clusters import Naive, QueryClasses
from querywise.runtime.values import Json
from tests.commands import Done, run, run_script
from tests.emulated import TrainedModels, ensemble_in, serving, trained_leaf, trained_score
from tests.support.exports import Asked, Said, checked, definitions, one_line, positive, ranks_alike, replying, world
from tests.worlds import REAL_DATA, needs_real_data

NATIVE = "elasticsearch-native"
NAMES = world().candidates.feature_names or ()
RANKERS: dict[str, Any] = {
    "trees": lambda: LambdaMART(8, leaves=7),
    "stumps": lambda: RankBoost(12),
    "atvt": lambda: ATVT(TreeRegression(6)),
    "local trees": lambda: KnnOffline2(LambdaMART(4, leaves=4, prior="global"), k=0.4, models=3, view=TextView(5)),
    "classes": lambda: QueryClasses(LambdaMART(3, leaves=4), known=True, view=TextView(5)),
    "by documents": lambda: Naive(LambdaMART(3, leaves=4), 2),
}


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    data = positive()
    return {name: build().fit(data) for name, build in RANKERS.items()}


# Scores.


@pytest.mark.parametrize("ranker", RANKERS)
def test_the_engine_scores_as_we_do(ranker: str, fitted: dict[str, Any], tmp_path: Path) -> None:
    done = export_model(fitted[ranker], NATIVE, tmp_path / "out", data=positive(1))
    assert done.exactness is not None
    assert done.exactness.is_exact
    engine = TrainedModels()
    result = checked(tmp_path / "out", engine, NATIVE)
    assert result.returncode == 0, result.stdout + result.stderr
    count = f"{len(done.models)} model{'s' if len(done.models) > 1 else ''}"
    assert result.stdout == f"100 documents are scored alike by {count}.\n"
    assert (engine.indexes, engine.models) == ({}, {}), "everything is removed again"


@pytest.mark.parametrize("ranker", ["trees", "stumps", "local trees"])
def test_without_data_the_check_makes_its_documents_up(ranker: str, fitted: dict[str, Any], tmp_path: Path) -> None:
    export_model(fitted[ranker], NATIVE, tmp_path / "out", rows=200)
    lines = [json.loads(line) for line in (tmp_path / "out" / "parity.jsonl").read_text().splitlines()]
    values = np.array([list(line["features"].values()) for line in lines])
    assert values.min() == 0, "a query's score is not negative"
    assert len(np.unique(values)) > 15
    assert checked(tmp_path / "out", TrainedModels(), NATIVE).returncode == 0


def test_a_score_is_rounded_once(fitted: dict[str, Any], tmp_path: Path) -> None:
    """Tolerances are of the score's 32 bits, and not of a sum in 32 bits."""
    export_model(fitted["trees"], NATIVE, tmp_path / "native", data=positive(1))
    export_model(fitted["trees"], "elasticsearch", tmp_path / "plugin", data=positive(1))
    lines = {name: (tmp_path / name / "parity.jsonl").read_text().splitlines() for name in ("native", "plugin")}
    bounds = {name: [json.loads(line)["tolerance"]["querywise"] for line in each] for name, each in lines.items()}
    assert sum(bounds["native"]) < sum(bounds["plugin"]) / 2


def scored(ranker: Any, folder: Path, features: Any) -> tuple[Any, Any]:
    """Our scores of some documents, and those of the exported model by its file alone; 0 is left out there."""
    export_model(ranker, NATIVE, folder, rows=20)
    content = json.loads((folder / "models" / "querywise.json").read_text())
    trees = [each["tree"] for each in ensemble_in(content)["trained_models"]]
    held = np.asarray(features, np.float32).astype(np.float64)
    rows = [{name: value or None for name, value in zip(NAMES, row, strict=True)} for row in held.tolist()]
    theirs = np.array([float(np.float32(sum(trained_leaf(tree, row) for tree in trees))) for row in rows])
    return ranker.predict(Candidates(held, np.array([0, len(held)]), ("q",), feature_names=NAMES)), theirs


def test_values_beside_every_threshold_go_the_right_way(fitted: dict[str, Any], tmp_path: Path) -> None:
    export_model(fitted["trees"], NATIVE, tmp_path / "out")
    content = json.loads((tmp_path / "out" / "models" / "querywise.json").read_text())
    rows = []
    for each in ensemble_in(content)["trained_models"]:
        for node in each["tree"]["tree_structure"]:
            if "threshold" in node:
                for value in (floor32(node["threshold"]), above32(node["threshold"])):
                    row = np.full(len(NAMES), 0.25)
                    row[node["split_feature"]] = max(value, 0.0)
                    rows.append(row)
    ours, theirs = scored(fitted["trees"], tmp_path / "out", rows)
    assert len(rows) > 60
    np.testing.assert_allclose(theirs, ours, rtol=2e-7, atol=1e-12)


@given(
    st.one_of(st.floats(-1e30, 1e30), st.just(-0.0), st.floats(-1e-37, 1e-37)),
    st.floats(0, width=32, allow_infinity=False),
)
def test_a_split_sends_every_32_bit_value_and_absent_ones_where_they_should_go(threshold: float, value: float) -> None:
    form = Forest((Split(0, threshold, Leaf(-1.0), Leaf(2.0)),))
    model = NamedModel("m", -1, "all", form, lambda features: features[:, 0])
    [each] = ensemble_in(model_content(model, ("f",), {}))["trained_models"]
    assert trained_leaf(each["tree"], {"f": value}) == (-1.0 if value <= threshold else 2.0)
    assert trained_leaf(each["tree"], {}) == (-1.0 if threshold >= 0 else 2.0)
    assert TARGET.models is not None
    assert TARGET.models.arithmetic.scores(form, np.array([[value]]))[0] == (-1.0 if value <= threshold else 2.0)


def test_a_model_without_trees_gives_0() -> None:
    model = NamedModel("m", -1, "all", Forest(()), lambda features: features[:, 0])
    config: Any = {"learning_to_rank": {"feature_extractors": []}}
    assert trained_score(model_content(model, ("f",), config), {"_id": "a"}, {}) == 0.0


def test_names_with_spaces_and_other_scripts(tmp_path: Path) -> None:
    names = ("title bm25", "größe", "価格", 'a "quoted" {name}', "age.days")
    data = replace(positive(), candidates=replace(positive().candidates, feature_names=names))
    export_model(LambdaMART(4, leaves=5).fit(data), NATIVE, tmp_path / "out", data=data)
    engine = TrainedModels()
    assert checked(tmp_path / "out", engine, NATIVE).returncode == 0
    content = json.loads((tmp_path / "out" / "models" / "querywise.json").read_text())
    assert tuple(ensemble_in(content)["feature_names"]) == names
    extractors = content["inference_config"]["learning_to_rank"]["feature_extractors"]
    assert [each["query_extractor"]["feature_name"] for each in extractors] == list(names)


@pytest.mark.slow
def test_500_trees_of_31_leaves(tmp_path: Path) -> None:
    ranker = LambdaMART(500, leaves=31, min_documents=5).fit(positive())
    ours, theirs = scored(ranker, tmp_path / "out", positive(1).candidates.features[:100])
    np.testing.assert_allclose(theirs, ours, rtol=3e-7, atol=1e-9)
    path = tmp_path / "out" / "models" / "querywise.json"
    trees = ensemble_in(json.loads(path.read_text()))["trained_models"]
    assert len(trees) == 500
    assert max(len(each["tree"]["tree_structure"]) for each in trees) == 61
    assert path.stat().st_size < 2e6, "the definition is compressed"


@needs_real_data
def test_on_cranfields_features_the_engine_ranks_as_we_do(tmp_path: Path) -> None:
    from querywise import build_index, judged_candidates, read_collection

    collection = read_collection(REAL_DATA / "cranfield")
    data, _ = judged_candidates(collection, build_index(collection.documents()), top=40)
    features = data.candidates.features - np.minimum(data.candidates.features.min(axis=0), 0.0)
    numbered = tuple(f"f{place}" for place in range(data.feature_count))  # by their names they would be refused
    data = replace(data, candidates=replace(data.candidates, features=features, feature_names=numbered))
    train, test = data.select(range(0, len(data), 2)), data.select(range(1, len(data), 2))
    done = export_model(LambdaMART(30).fit(train), NATIVE, tmp_path / "out", data=test)
    assert done.exactness is not None
    assert done.exactness.astray <= done.exactness.documents // 1000
    result = checked(tmp_path / "out", TrainedModels(), NATIVE)
    assert result.returncode == 0, result.stdout + result.stderr


# The check.


def test_the_check_finds_a_model_that_scores_otherwise(fitted: dict[str, Any], tmp_path: Path) -> None:
    export_model(fitted["trees"], NATIVE, tmp_path / "out", data=positive(1))
    export_model(fitted["stumps"], NATIVE, tmp_path / "other", data=positive(1))
    place = Path("models") / "querywise.json"
    (tmp_path / "out" / place).write_text((tmp_path / "other" / place).read_text())
    result = checked(tmp_path / "out", TrainedModels(), NATIVE)
    assert result.returncode == 1
    assert "documents are scored otherwise; document" in result.stdout


def test_the_check_leaves_alone_what_it_did_not_make(fitted: dict[str, Any], tmp_path: Path) -> None:
    export_model(fitted["trees"], NATIVE, tmp_path / "out")
    engine = TrainedModels()
    engine.models["querywise-parity-0"] = {"mine": True}
    said = one_line(checked(tmp_path / "out", engine, NATIVE))
    assert "There is a model called querywise-parity-0 already" in said
    assert 'curl -X DELETE "$URL/_ml/trained_models/querywise-parity-0"' in said
    assert (engine.indexes, engine.models) == ({}, {"querywise-parity-0": {"mine": True}})
    engine.indexes["querywise-parity"] = {}
    assert "an index called querywise-parity" in one_line(checked(tmp_path / "out", engine, NATIVE))
    assert checked(tmp_path / "out", engine, NATIVE, "--name", "other").returncode == 0
    assert engine.indexes == {"querywise-parity": {}}


def test_the_check_compares_the_features_of_a_live_index_with_those_of_training(
    fitted: dict[str, Any], tmp_path: Path
) -> None:
    data = replace(positive().candidates, document_ids=tuple(f"d{row}" for row in range(720)))
    reads = [{"query": {"exists": {"field": name}}, "field_value_factor": {"field": name}} for name in NAMES]
    queries = [{"bool": {"must": [{"function_score": each}, {"match": {"title": "{{keywords}}"}}]}} for each in reads]
    pairs = zip(NAMES, queries, strict=True)
    mine: Any = [{"query_extractor": {"feature_name": name, "query": query}} for name, query in pairs]
    export_model(fitted["trees"], NATIVE, tmp_path / "out", data=data, rows=60, features=mine)
    assert data.queries is not None
    assert data.queries.texts is not None
    engine = TrainedModels()
    words = [str(data.queries.texts[query]) for query in data.query_of_row]
    engine.indexes["shop"] = {
        f"d{row}": {"_id": f"d{row}", "title": words[row], **{n: v for n, v in zip(NAMES, values, strict=True) if v}}
        for row, values in enumerate(data.features.tolist())
    }
    # The score of `must` is a sum, and its match is worth 1 here.
    for document in engine.indexes["shop"].values():
        document.update({name: document[name] - 1 for name in NAMES if document.get(name, 0) >= 1})
    result = checked(tmp_path / "out", engine, NATIVE, "--log", "shop")
    assert "does not have" not in result.stdout
    assert "title.bm25: " in result.stdout, "values below 1 are off by the 1 of the match"
    assert "length:" not in result.stdout, "values above it agree"


# What is refused.


@pytest.mark.parametrize("ranker", [RankSVM, lambda: KnnOffline2(RankSVM(), k=0.3, models=3, view=TextView(5))])
def test_weighted_sums_are_refused_with_what_to_do_instead(ranker: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a weighted sum of features: .*learning_to_rank runs trees alone") as error:
        export_model(ranker().fit(world()), NATIVE, tmp_path / "out", data=world())
    for words in ("export to elasticsearch;", "docs/engines/gateway.md", "fit trees (lambdamart)"):
        assert words in str(error.value)
    assert not (tmp_path / "out").exists()


def test_features_below_0_are_refused_by_name(fitted: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"5 of 5 features have values below 0; length is as low as -\d+") as error:
        export_model(fitted["trees"], NATIVE, tmp_path / "out", data=world())
    assert "the score of a query, which is never below it. Train on features as the engine logs" in str(error.value)


@pytest.mark.parametrize("name", ["shop-", "shop_", "s" * 51])
def test_names_that_are_no_ids_are_refused(name: str, fitted: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="ids of models end in a letter or digit"):
        export_model(fitted["trees"], NATIVE, tmp_path / "out", name=name)
    assert checked_with_name(fitted["local trees"], tmp_path / "long", "s" * 50).returncode == 0


def checked_with_name(ranker: Any, folder: Path, name: str) -> Done:
    export_model(ranker, NATIVE, folder, name=name, rows=3, force=True)
    return checked(folder, TrainedModels(), NATIVE)


def test_features_of_ones_own_are_checked_and_kept_in_the_models_order(fitted: dict[str, Any], tmp_path: Path) -> None:
    def own(*names: str) -> Any:
        return [{"query_extractor": {"feature_name": each, "query": {"match": {"title": each}}}} for each in names]

    mistakes: list[Any] = [{"features": []}, [{"field_extractor": {}}], [{"query_extractor": {"query": "a"}}], 3, "a"]
    for mistake in mistakes:
        with pytest.raises(DataError, match=r"The features must be a list of \{\"query_extractor\""):
            export_model(fitted["trees"], NATIVE, tmp_path / "out", features=mistake)
    with pytest.raises(DataError, match=r"the model's feature 'title.bm25' is not among its 4 features"):
        export_model(fitted["trees"], NATIVE, tmp_path / "out", features=own(*NAMES[1:]))
    with pytest.raises(DataError, match="'age' appears twice"):
        export_model(fitted["trees"], NATIVE, tmp_path / "out", features=own(*NAMES, "age"))
    given: Json = {"learning_to_rank": {"feature_extractors": own("more", *reversed(NAMES))}}
    done = export_model(fitted["trees"], NATIVE, tmp_path / "out", features=given)
    assert not done.unfinished
    written = json.loads((tmp_path / "out" / "feature_extractors.json").read_text())
    assert written == {"learning_to_rank": {"feature_extractors": own(*NAMES)}}
    again = export_model(fitted["trees"], NATIVE, tmp_path / "again", features=written)
    assert not again.unfinished


def test_the_template_says_what_to_fill_in(fitted: dict[str, Any], tmp_path: Path) -> None:
    assert export_model(fitted["trees"], NATIVE, tmp_path / "out").unfinished
    content = json.loads((tmp_path / "out" / "feature_extractors.json").read_text())
    [first, *_] = content["learning_to_rank"]["feature_extractors"]
    assert first["query_extractor"]["query"] == {"match": {"EDIT_ME_title.bm25": "{{keywords}}"}}
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "Elasticsearch 8.15 or later" in readme
    assert '"learning_to_rank": {"model_id": "querywise", "params": {"keywords": "jaguar"}}' in readme


PAGE = (Path(__file__).parent.parent / "docs" / "engines" / "elasticsearch-native.md").read_text()


def told(pattern: str) -> str:
    found = re.search(pattern, PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_judged(60, 8, 3, kinds=2)
    data = replace(data, candidates=replace(data.candidates, features=np.abs(data.candidates.features)))
    write_letor(tmp_path / "train.txt", data)
    (tmp_path / "features.txt").write_text("title\nbody\nclicks\n")
    (tmp_path / "features.json").write_text(told(r"```json\n(.*?)```"))
    monkeypatch.chdir(tmp_path)
    engine = TrainedModels()
    commands = [line for line in told(r"```\n(querywise fit.*?)```").splitlines() if line]
    assert len(commands) == 4
    said = []
    with serving(engine) as url:
        for command in commands:
            program, *words = shlex.split(command.replace("$URL", url))
            done = run(tmp_path, *words) if program == "querywise" else run_script(tmp_path / words[0], *words[1:])
            assert done.returncode == 0, done.stderr
            said.append(done.stdout)
    assert said[2:] == [
        "100 documents are scored alike by 1 model.\n",
        "1 model of shop-native is in the engine.\n",
    ]
    numbers = {"7555": ("a jaguar", 2), "1370": ("jaguar cars", 1), "1": ("another", 5)}
    engine.indexes["shop"] = {name: {"_id": name, "title": t, "clicks": c} for name, (t, c) in numbers.items()}
    logged = engine.answer("POST", "/shop/_search?include_named_queries_score=true", told(r"score=true\n(\{.*?\n\})"))
    assert {hit["_id"]: hit["matched_queries"] for hit in logged["hits"]["hits"]} == {
        "7555": {"title": 1.0, "clicks": 2.0},
        "1370": {"title": 1.0, "clicks": 1.0},
    }
    ranked = engine.answer("POST", "/shop/_search", told(r"POST shop/_search\n(\{.*?\n\})"))["hits"]["hits"]
    assert [hit["_id"] for hit in ranked] != []
    rows = np.array([[1.0, 0.0, numbers[hit["_id"]][1]] for hit in ranked])
    ours = load(tmp_path / "forest").predict(Candidates(rows, np.array([0, len(rows)]), ("q",)))
    np.testing.assert_allclose([hit["_score"] for hit in ranked], ours, rtol=1e-6)


# Routing.


@pytest.mark.parametrize("ranker", ["local trees", "classes", "by documents"])
def test_the_routed_model_ranks_every_query_as_the_ranker_does(
    ranker: str, fitted: dict[str, Any], tmp_path: Path
) -> None:
    test = positive(2).candidates
    export_model(fitted[ranker], NATIVE, tmp_path / "out")
    router, predicted = Router(tmp_path / "out"), fitted[ranker].predict(test)
    assert test.queries is not None
    assert test.queries.texts is not None
    assert test.queries.classes is not None
    used = set()
    for query in range(20):
        rows = test.rows(query)
        looked: Any = {"documents": list(test.features[rows])} if router.requests == 2 else {}
        model = router.model(test.queries.texts[query], query_class=test.queries.classes[query], **looked)
        content = json.loads((tmp_path / "out" / "models" / f"{model}.json").read_text())
        trees = [each["tree"] for each in ensemble_in(content)["trained_models"]]
        named = [dict(zip(NAMES, row, strict=True)) for row in test.features[rows].tolist()]
        theirs = np.array([sum(trained_leaf(tree, row) for tree in trees) for row in named])
        assert ranks_alike(predicted[rows], theirs)
        used.add(model)
    assert len(used) > 1


def test_the_answer_to_the_first_request_needs_the_scores_of_the_features(
    fitted: dict[str, Any], tmp_path: Path
) -> None:
    export_model(fitted["by documents"], NATIVE, tmp_path / "out")
    answer = tmp_path / "answer.json"
    for hits in ([{"_id": "a", "matched_queries": ["age"]}], [{"_id": "a", "matched_queries": {"age": "old"}}]):
        answer.write_text(json.dumps({"hits": {"hits": hits}}))
        said = one_line(run_script(tmp_path / "out" / "router.py", "jaguar", "--answer", str(answer)))
        assert "no documents with their features; send what --first prints. Found: {" in said
    answer.write_text(json.dumps({"hits": {"hits": [{"_id": "a", "matched_queries": {"age": 2.0}}, {"_id": "b"}]}}))
    done = run_script(tmp_path / "out" / "router.py", "jaguar", "--answer", str(answer))
    assert done.returncode == 0, done.stderr
    assert re.search(r'"model_id": "querywise-[01]"', done.stdout)


# Uploads.


@pytest.fixture(scope="module")
def export(fitted: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native") / "export"
    export_model(fitted["local trees"], NATIVE, folder, name="shop", features=definitions(NATIVE))
    return folder


def upload(folder: Path, engine: Any, *words: str) -> Done:
    with serving(engine) as url:
        return run_script(folder / "upload.py", "--url", url, *words)


def test_what_is_there_stays_and_names_that_are_taken_are_refused(
    export: Path, fitted: dict[str, Any], tmp_path: Path
) -> None:
    engine = TrainedModels()
    assert upload(export, engine).stdout == "4 models of shop are in the engine.\n"
    before = dict(engine.models)
    assert list(before) == ["shop-global", "shop-0", "shop-1", "shop-2"]
    assert upload(export, engine).stdout == "4 models of shop are in the engine (4 of them were there before).\n"
    del engine.models["shop-1"]
    assert "(3 of them were there before)" in upload(export, engine).stdout
    assert engine.models == before
    other = KnnOffline2(LambdaMART(5, leaves=4), k=0.4, models=3, view=TextView(5)).fit(positive())
    export_model(other, NATIVE, tmp_path / "other", name="shop", features=definitions(NATIVE))
    said = one_line(upload(tmp_path / "other", engine))
    assert "There is a model shop-global already, with other trees or features" in said
    assert "--name shop-2" in said
    assert engine.models == before
    engine.models["shop-2"] = {"description": "made by someone else"}
    assert "There is a model shop-2 already" in one_line(upload(export, engine))
    engine.models = {**before, "mine": {}}
    assert upload(export, engine, "--remove").stdout == "4 models of shop are gone from the engine.\n"
    assert upload(export, engine, "--remove").returncode == 0
    assert engine.models == {"mine": {}}
    export_model(fitted["trees"], NATIVE, tmp_path / "one", name="one", features=definitions(NATIVE))
    assert upload(tmp_path / "one", engine).stdout == "1 model of one is in the engine.\n"


class Breaking(TrainedModels):
    """Takes two models, and then no more."""

    def answer(self, method: str, path: str, body: str) -> Any:
        if method == "PUT" and len(self.models) == 2:
            raise KeyError("circuit_breaking_exception")
        return super().answer(method, path, body)


def test_an_upload_that_broke_off_goes_on(export: Path) -> None:
    broken, engine = Breaking(), TrainedModels()
    done = upload(export, broken)
    assert (done.returncode, done.stdout) == (2, "")
    assert "2 of 4 items were uploaded. Models in service were not changed" in done.stderr
    engine.models = broken.models
    assert "(2 of them were there before)" in upload(export, engine).stdout


VERSION = Said(200, {"version": {"number": "8.17.0", "build_flavor": "default"}})
FORBIDDEN = {"error": {"type": "security_exception", "reason": "action [cluster:admin] is unauthorized for user [r]"}}
LICENCE = {"error": {"type": "security_exception", "reason": "current license is non-compliant for [ml]"}}


@contextmanager
def refusing(code: int, content: Any) -> Iterator[tuple[str, list[Asked]]]:
    """Elasticsearch without the models, that refuses to write with this answer."""

    def replies(asked: Asked) -> Said:
        if asked.path == "/":
            return VERSION
        return Said(404, {"error": "not found"}) if asked.method == "GET" else Said(code, content)

    with replying(replies) as found:
        yield found


def test_a_user_without_rights_or_a_cluster_without_a_licence_is_told_so(export: Path) -> None:
    place = export / "upload.py"
    with refusing(403, FORBIDDEN) as (url, _):
        done = run_script(place, "--url", url)
        assert done.returncode == 2
        assert "Upload as a user who may write models (the cluster privilege manage_ml); --header" in done.stderr
        assert "0 of 4 items were uploaded" in done.stderr
        assert "Upload as a user who may write models" in one_line(run_script(place, "--url", url, "--remove"))
        assert "403" in one_line(run_script(export / "check_parity.py", "--url", url))
    with replying(lambda _: Said(401, FORBIDDEN)) as (url, seen):
        assert "--header passes credentials" in one_line(run_script(place, "--url", url))
        assert len(seen) == 1
    with refusing(403, LICENCE) as (url, _):
        done = run_script(place, "--url", url)
        assert "needs an Enterprise licence, or a trial (curl -X POST" in done.stderr
        assert "--header" not in done.stderr, "another user would not help"


def test_a_model_larger_than_the_engine_takes_is_named_with_its_size(export: Path) -> None:
    with refusing(413, {}) as (url, _):
        done = run_script(export / "upload.py", "--url", url)
    assert re.search(r"PUT shop-global: the engine does not take 0\.0 MB at once", done.stderr)


def test_engines_of_another_kind_or_version_are_told_apart(export: Path) -> None:
    both = ("upload.py", "check_parity.py")
    for version, words in (
        ({"number": "8.14.3", "build_flavor": "default"}, "is Elasticsearch 8.14.3; its own learning_to_rank takes"),
        ({"number": "7.17.0"}, "from version 8.15 on. Upgrade it, or export for its plugin: --to"),
        ({"number": "3.1.0", "distribution": "opensearch"}, "is OpenSearch 3.1.0, which has no such rescorer: export"),
        ({}, "does not say which version of Elasticsearch it is. Is --url right?"),
        (None, "does not say which version of Elasticsearch it is"),
    ):
        for script in both:
            with replying(lambda _, content=version: Said(200, {"version": content})) as (url, seen):  # type: ignore[misc]
                assert words in one_line(run_script(export / script, "--url", url))
                assert len(seen) == 1, "nothing was made"
    engine = TrainedModels()
    engine.version = {"number": "8.11.0", "build_flavor": "serverless"}
    assert upload(export, engine).returncode == 0
    with refusing(400, {"error": "no handler found for uri [/_ml/trained_models/shop-global]"}) as (url, _):
        assert "This node has no machine learning" in run_script(export / "upload.py", "--url", url).stderr
