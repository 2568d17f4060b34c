"""What is exported is what the engine runs: scored by engines written from their documentation (see emulated.py)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querywise import (
    Blend,
    Candidates,
    DataError,
    Judged,
    KnnOffline2,
    KnnOnline,
    LambdaMART,
    NotFittedError,
    QueryTable,
    RankSVM,
    Router,
    Single,
    TextView,
    export_model,
    make_judged,
    save,
)
from querywise.data.letor import write_letor
from querywise.data.query_table import write_queries
from querywise.exports.arithmetic import Arithmetic, above32, floor32, scaled_within_queries
from querywise.exports.models import Exported, answer_to_nobody
from querywise.exports.routing import route, routing_of
from querywise.exports.solr import written_threshold
from querywise.exports.target import Files, StoredModels, Target
from querywise.exports.targets import TARGETS
from querywise.learners.classic.hyperplanes import MultipleHyperplanes
from querywise.learners.classic.listnet import ListNet
from querywise.learners.regression import KernelRidge
from querywise.learners.trees.context import QueryContext
from querywise.locality.views.columns import Columns, SideBySide
from querywise.locality.views.learned import GradientView
from querywise.rankers.atvt import ATVT
from querywise.rankers.clusters import SelectRanker
from querywise.rankers.ensemble.ensemble import SER
from querywise.rankers.wrappers import QueryNormalised, normalised
from querywise.runtime.values import Json
from tests import commands
from tests.emulated import (
    LearningToRank,
    read_linear,
    read_tensor,
    read_xgboost,
)
from tests.support.exports import ENGINES, RANKERS, ROUTED, WORDS, checked, engine_for, ranks_alike, world
from tests.worlds import REAL_DATA, needs_real_data

EMULATED = ("opensearch", "elasticsearch", "vespa")  # Solr runs: tests/engines


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    data = world()
    return {name: build().fit(data) for name, build in RANKERS.items()}


@pytest.mark.parametrize("ranker", RANKERS)
@pytest.mark.parametrize("engine", ["opensearch", "vespa"])  # elasticsearch, the same as opensearch, is below
def test_the_engine_scores_as_we_do(engine: str, ranker: str, fitted: dict[str, Any], tmp_path: Path) -> None:
    done = export_model(fitted[ranker], engine, tmp_path / "out", data=world(1))
    running = engine_for(engine, tmp_path / "out")
    result = checked(tmp_path / "out", running, engine)
    assert result.returncode == 0, result.stdout + result.stderr
    models = len(done.models)
    assert result.stdout == f"100 documents are scored alike by {models} model{'s' if models > 1 else ''}.\n"
    assert done.exactness is not None
    assert done.exactness.is_exact
    left = [running.documents] if engine == "vespa" else [running.indexes, running.feature_sets]
    assert not any(left), "the check takes away what it brought"
    assert not getattr(running, "models", None)


@pytest.mark.parametrize("ranker", RANKERS)
def test_solrs_arithmetic_ranks_as_we_do(ranker: str, fitted: dict[str, Any], tmp_path: Path) -> None:
    done = export_model(fitted[ranker], "solr", tmp_path / "out", data=world(1))
    assert done.exactness is not None
    assert done.exactness.is_exact  # that this is Solr's arithmetic, Solr itself says: tests/engines


@pytest.mark.parametrize("ranker", ["ranksvm", "trees", "stumps"])
@pytest.mark.parametrize("engine", EMULATED)
def test_without_data_the_check_makes_its_documents_up(
    engine: str, ranker: str, fitted: dict[str, Any], tmp_path: Path
) -> None:
    done = export_model(fitted[ranker], engine, tmp_path / "out", rows=200)
    assert done.exactness is None
    result = checked(tmp_path / "out", engine_for(engine, tmp_path / "out"), engine)
    assert (result.returncode, result.stdout) == (0, "200 documents are scored alike by 1 model.\n"), result
    again = (tmp_path / "out" / "parity.jsonl").read_bytes()
    export_model(fitted[ranker], engine, tmp_path / "out", rows=200)
    assert (tmp_path / "out" / "parity.jsonl").read_bytes() == again


@pytest.mark.parametrize("engine", EMULATED)
def test_the_check_finds_a_model_that_scores_otherwise(engine: str, fitted: dict[str, Any], tmp_path: Path) -> None:
    export_model(fitted["ranksvm"], engine, tmp_path / "out", data=world(1))
    [path] = (tmp_path / "out").glob("weights/*" if engine == "vespa" else "models/*")
    weight = repr(float(fitted["ranksvm"].weights_[0]))
    assert weight in path.read_text()
    path.write_text(path.read_text().replace(weight, repr(float(weight) * 1.001)))
    result = checked(tmp_path / "out", engine_for(engine, tmp_path / "out"), engine)
    assert result.returncode == 1
    assert "documents are scored otherwise; document" in result.stdout


def test_the_check_says_when_the_engine_refuses_or_is_not_there(fitted: dict[str, Any], tmp_path: Path) -> None:
    export_model(fitted["ranksvm"], "opensearch", tmp_path / "out")
    taken = LearningToRank()
    taken.indexes["querywise-parity"] = {}
    result = checked(tmp_path / "out", taken, "opensearch")
    assert result.returncode == 2
    assert "already" in result.stderr
    nowhere = [sys.executable, str(tmp_path / "out" / "check_parity.py"), "--url", "http://127.0.0.1:9"]
    gone = subprocess.run(nowhere, capture_output=True, text=True, check=False)
    assert gone.returncode == 2
    assert "does not answer" in gone.stderr


def test_the_check_compares_the_features_of_a_live_index_with_those_of_training(
    fitted: dict[str, Any], tmp_path: Path
) -> None:
    data = world().candidates
    names = data.feature_names or ()
    data = replace(data, features=np.abs(data.features), document_ids=tuple(f"d{row}" for row in range(720)))
    export_model(fitted["ranksvm"], "opensearch", tmp_path / "out", data=data, rows=60)
    live = [dict(zip(names, row, strict=True)) for row in data.features.tolist()]
    running = LearningToRank()
    running.indexes["shop"] = {f"d{row}": each for row, each in enumerate(live)}
    read = [{"field_value_factor": {"field": name, "missing": 0}} for name in names]
    templates = [{"template_language": "mustache", "template": {"function_score": each}} for each in read]
    sets = zip(names, templates, strict=True)
    running.feature_sets["querywise"] = [{"name": name, **template} for name, template in sets]
    result = checked(tmp_path / "out", running, "opensearch", "--log", "shop")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("The features of 60 documents are computed as in training.\n")
    for each in live:
        each["length"] *= 1.5
    running.indexes["shop"].pop("d0")
    result = checked(tmp_path / "out", running, "opensearch", "--log", "shop")
    assert result.returncode == 1
    assert "shop does not have 1 of 60 documents." in result.stdout
    assert re.search(r"length: 59 of 59 values differ by more than 1%; document d\d+ for '", result.stdout)
    assert "age:" not in result.stdout
    export_model(fitted["ranksvm"], "opensearch", tmp_path / "out")
    result = checked(tmp_path / "out", running, "opensearch", "--log", "shop")
    assert result.returncode == 2
    assert "has no documents of the engine's own" in result.stderr


def scores_in(folder: Path, engine: str, name: str, features: Any) -> Any:
    """One exported model's scores, by the engine's evaluator, from the files alone."""
    export = json.loads((folder / "export.json").read_text())
    file = next(model["file"] for model in export["models"] if model["name"] == name)
    if engine == "vespa":
        weights = read_tensor((folder / file).read_text().strip())
        return features @ np.array([weights[label] for label in export["features"]["in_engine"]])
    content = json.loads((folder / file).read_text())
    inner = content["model"]["model"]
    read = read_linear if inner["type"] == "model/linear" else read_xgboost
    score = read(json.loads(inner["definition"]), export["features"]["names"])
    return np.array([float(score(row)) for row in np.asarray(features, dtype=np.float32)])


@pytest.mark.parametrize(
    ("engine", "ranker"),
    [
        *((engine, ranker) for engine in ("opensearch", "vespa") for ranker in ROUTED if "trees" not in ranker),
        ("opensearch", "local trees"),
    ],
)
def test_the_routed_model_ranks_every_query_as_the_ranker_does(
    engine: str, ranker: str, fitted: dict[str, Any], tmp_path: Path
) -> None:
    test = world(2).candidates
    export_model(fitted[ranker], engine, tmp_path / "out")
    router = Router(tmp_path / "out")
    predicted = fitted[ranker].predict(test)
    assert test.queries is not None
    assert test.queries.texts is not None
    used = set()
    for query in range(len(test)):
        rows = test.rows(query)
        known = {"query_class": test.queries.classes[query]} if test.queries.classes else {}
        looked = {"documents": list(test.features[rows])} if router.requests == 2 else {}
        model = router.model(test.queries.texts[query], **known, **looked)  # type: ignore[arg-type]
        assert ranks_alike(predicted[rows], scores_in(tmp_path / "out", engine, model, test.features[rows]))
        used.add(model)
    assert len(used) > 1


def test_route_names_the_models_by_number(fitted: dict[str, Any]) -> None:
    test = world(2).candidates
    for name in ROUTED:
        found = route(fitted[name], test)
        assert found.shape == (len(test),)
        assert found.min() >= -1
    with pytest.raises(DataError, match="nothing to choose from"):
        route(fitted["ranksvm"], test)


def test_a_view_of_the_text_needs_no_documents() -> None:
    data, test = world(), world(2).candidates
    alone = replace(test, features=np.zeros((0, 5)), starts=np.zeros(len(test) + 1, np.int64))
    for view in (TextView(5), Columns(), SideBySide([TextView(5), Columns()]), GradientView(TextView(5))):
        ranker = KnnOffline2(RankSVM(), k=0.3, models=4, view=view).fit(data)
        found = routing_of(answer_to_nobody(ranker))
        assert found is not None
        assert found.requests == 1
        assert np.array_equal(route(ranker, alone), route(ranker, test))


def test_vespa_takes_the_weights_of_any_linear_learner(tmp_path: Path) -> None:
    ranker, test = KnnOffline2(ListNet(), k=0.4, models=2, view=TextView(5)).fit(world()), world(2).candidates
    export_model(ranker, "vespa", tmp_path / "out")
    router, predicted = Router(tmp_path / "out"), ranker.predict(test)
    assert test.queries is not None
    assert test.queries.texts is not None
    for query, text in enumerate(test.queries.texts):
        weights = np.array(list(router.weights(text).values()))
        assert test.features[test.rows(query)] @ weights == pytest.approx(predicted[test.rows(query)])
    forests = KnnOffline2(LambdaMART(2, leaves=3), k=0.5, models=2, view=TextView(5)).fit(world())
    export_model(forests, "vespa", tmp_path / "out")
    with pytest.raises(DataError, match="are forests, not weighted sums"):
        Router(tmp_path / "out").weights("jaguar")


def test_text_and_class_take_one_request_and_documents_two(fitted: dict[str, Any], tmp_path: Path) -> None:
    expected = {
        "knn-offline-2": (("text",), 1),
        "classes": (("text",), 1),
        "known classes": (("class", "text"), 1),
        "knn by documents": (("documents",), 2),
        "naive": (("documents",), 2),
    }
    for name, (by, requests) in expected.items():
        done = export_model(fitted[name], "opensearch", tmp_path / "out")
        assert done.routing is not None
        assert (done.routing.by, done.routing.requests) == (by, requests)
        said = (tmp_path / "out" / "README.md").read_text()
        assert ("one request to the engine answers a query" in said) == (requests == 1)


def test_a_router_asks_for_what_it_goes_by(fitted: dict[str, Any], tmp_path: Path) -> None:
    export_model(fitted["knn-offline-2"], "solr", tmp_path / "out")
    with pytest.raises(DataError, match="routes on the query's text; its text was not given"):
        Router(tmp_path / "out").model()
    by_columns = KnnOffline2(RankSVM(), k=0.4, models=2, view=Columns()).fit(world())
    export_model(by_columns, "solr", tmp_path / "out")
    assert Router(tmp_path / "out").model(columns={"clicks": 3.0}).startswith("querywise-")
    export_model(fitted["knn by documents"], "solr", tmp_path / "out")
    router = Router(tmp_path / "out")
    with pytest.raises(DataError, match=r"its documents were not given\. .*--first .*--answer FILE"):
        router.model("jaguar")
    with pytest.raises(DataError, match="A document has 2 features; the model was trained on 5"):
        router.model("jaguar", documents=[[1.0, 2.0]])
    export_model(fitted["ranksvm"], "solr", tmp_path / "out")
    with pytest.raises(DataError, match="one model answers all queries"):
        Router(tmp_path / "out")


def test_vespa_takes_the_weights_of_a_model_trained_as_the_query_arrives(tmp_path: Path) -> None:
    ranker, test = KnnOnline(RankSVM(), k=0.3, view=TextView(5)).fit(world()), world(2).candidates
    export_model(ranker, "vespa", tmp_path / "out", data=test)
    router, predicted = Router(tmp_path / "out"), ranker.predict(test)
    assert test.queries is not None
    assert test.queries.texts is not None
    for query in range(len(test)):
        weights = router.weights(test.queries.texts[query])
        assert list(weights) == ["title_bm25", "body_bm25", "clicks", "length", "f_age"]
        rows = test.rows(query)
        assert test.features[rows] @ np.array(list(weights.values())) == pytest.approx(predicted[rows])
    assert checked(tmp_path / "out", engine_for("vespa", tmp_path / "out"), "vespa").returncode == 0


def test_an_absent_feature_counts_as_0_also_where_the_plugin_follows_missing(fitted: dict[str, Any]) -> None:
    from querywise.exports.elasticsearch import model_document
    from querywise.exports.models import exported

    found = exported(fitted["trees"], "m")
    document: Any = model_document(found.models[0], found.features)
    definition = json.loads(document["model"]["model"]["definition"])
    score = read_xgboost(definition, list(found.features), follows_missing=True)
    rng = np.random.default_rng(0)
    for row in world(1).candidates.features[:50].astype(np.float32):
        absent = rng.random(len(row)) < 0.5
        assert score(np.where(absent, np.float32("nan"), row)) == score(np.where(absent, np.float32(0), row))


# Shapes, as the engines document them.


def test_a_linear_model_for_the_plugins(fitted: dict[str, Any], tmp_path: Path) -> None:
    export_model(fitted["ranksvm"], "elasticsearch", tmp_path / "out", name="shop")
    content = json.loads((tmp_path / "out" / "models" / "shop.json").read_text())
    assert set(content) == {"model"}
    assert (content["model"]["name"], content["model"]["model"]["type"]) == ("shop", "model/linear")
    weights = json.loads(content["model"]["model"]["definition"])
    assert weights == dict(
        zip(world().candidates.feature_names or (), fitted["ranksvm"].weights_.tolist(), strict=True)
    )
    features = json.loads((tmp_path / "out" / "featureset.json").read_text())["featureset"]["features"]
    assert features[0] == {
        "name": "title.bm25",
        "params": ["keywords"],
        "template_language": "mustache",
        "template": {"match": {"EDIT_ME_title.bm25": "{{keywords}}"}},
    }


def test_linear_models_and_trees_for_solr(fitted: dict[str, Any], tmp_path: Path) -> None:
    export_model(fitted["ranksvm"], "solr", tmp_path / "out", name="shop")
    content = json.loads((tmp_path / "out" / "models" / "shop.json").read_text())
    assert content["class"] == "org.apache.solr.ltr.model.LinearModel"
    assert [each["name"] for each in content["features"]] == list(content["params"]["weights"])
    assert content["store"] == "shop"
    stored = json.loads((tmp_path / "out" / "features.json").read_text())
    assert {each["store"] for each in stored} == {"shop"}
    export_model(fitted["trees"], "solr", tmp_path / "out")
    tree = json.loads((tmp_path / "out" / "models" / "querywise.json").read_text())["params"]["trees"][0]
    assert tree["weight"] == "1"
    assert set(tree["root"]) == {"feature", "threshold", "left", "right"}
    assert all(isinstance(tree["root"][key], str) for key in ("feature", "threshold"))


def test_a_rank_profile_for_vespa(fitted: dict[str, Any], tmp_path: Path) -> None:
    export_model(fitted["ranksvm"], "vespa", tmp_path / "out", name="shop-search")
    profile = (tmp_path / "out" / "schemas" / "SCHEMA" / "shop_search.profile").read_text()
    assert profile.startswith("rank-profile shop_search {")
    assert "query(w) tensor<double>(feature{}):{title_bm25:" in profile
    assert "expression: attribute(EDIT_ME_title_bm25)" in profile
    assert "expression: sum(query(w) * features)" in profile


def test_features_of_ones_own_are_checked_and_kept(fitted: dict[str, Any], tmp_path: Path) -> None:
    names = ["age", "more", *(world().candidates.feature_names or ())[:4]]
    mine: list[Json] = [{"name": name, "params": ["q"], "template": {"match": {"f": "{{q}}"}}} for name in names]
    shapes: tuple[Json, ...] = (mine, {"features": mine}, {"featureset": {"features": mine}})
    for shape in shapes:
        done = export_model(fitted["ranksvm"], "opensearch", tmp_path / "out", features=shape)
        assert not done.unfinished
        assert json.loads((tmp_path / "out" / "featureset.json").read_text()) == {"featureset": {"features": mine}}
        assert "EDIT_ME" not in (tmp_path / "out" / "README.md").read_text()
    expressions = {name: f"bm25({number})" for number, name in enumerate(names)}
    export_model(fitted["ranksvm"], "vespa", tmp_path / "vespa", features=expressions)
    text = (tmp_path / "vespa" / "schemas" / "SCHEMA" / "querywise.profile").read_text()
    assert "function f_age() {\n        expression: bm25(0)" in text
    mistakes: tuple[tuple[str, Json, str], ...] = (
        ("opensearch", mine[1:], "the model's feature 'age' is not among its 5 features"),
        ("opensearch", [*mine, mine[0]], "'age' appears twice"),
        ("opensearch", {"other": 1}, "The feature set must be"),
        ("opensearch", [{"params": []}], "every feature needs a name"),
        ("solr", {"a": "b"}, "must be a list"),
        ("vespa", ["a"], "must map names to rank expressions"),
    )
    for engine, wrong, words in mistakes:
        with pytest.raises(DataError, match=words):
            export_model(fitted["ranksvm"], engine, tmp_path / "wrong", features=wrong)


# Refusals.


@pytest.mark.parametrize(
    ("ranker", "words"),
    [
        (QueryNormalised(RankSVM()), "on the scale of its query's candidates; an engine's model sees one document"),
        (SER(), "brings every feature to 0 … 1 within the query"),
        (SelectRanker(RankSVM(), 3), "blends models whose scores it brings to 0 … 1 within the query"),
        (QueryContext(RankSVM()), "sees every document beside its query's other candidates; an engine's model"),
        (Blend([RankSVM(), LambdaMART(5)]), "A Blend cannot be exported: it adds up scores of several rankers"),
        (MultipleHyperplanes(), "counts votes among the documents of the query"),
        (ATVT(KernelRidge()), "aTVT over KernelRidge cannot be exported"),
        (KnnOnline(RankSVM(), k=0.3), "stores none.*Fit knn-offline-2, with models=20"),
        (Single(QueryNormalised(RankSVM())), "on the scale of its query's candidates"),
        (KnnOffline2(MultipleHyperplanes(), k=0.5, models=2), "counts votes"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_an_engine_cannot_run_is_refused_with_the_reason(ranker: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        export_model(ranker.fit(world()), "solr", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_other_things_that_are_refused(fitted: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        export_model(RankSVM(), "solr", tmp_path / "out")
    known = "opensearch, elasticsearch, elasticsearch-native, solr, vespa"
    with pytest.raises(DataError, match=rf"Unknown engine 'lucene'. Known: {known}"):
        export_model(fitted["ranksvm"], "lucene", tmp_path / "out")
    with pytest.raises(DataError, match="lowercase letters"):
        export_model(fitted["ranksvm"], "solr", tmp_path / "out", name="My Model")
    with pytest.raises(DataError, match="at least one document"):
        export_model(fitted["ranksvm"], "solr", tmp_path / "out", rows=0)
    empty = Candidates(np.zeros((0, 5)), np.array([0]), ())
    with pytest.raises(DataError, match="no document in this data"):
        export_model(fitted["ranksvm"], "solr", tmp_path / "out", data=empty)
    large = replace(world().candidates, features=world().candidates.features * 1e36)
    with pytest.raises(DataError, match=r"as large as .*; Solr computes with numbers up to 3.4e\+38"):
        export_model(fitted["ranksvm"], "solr", tmp_path / "out", data=large)
    export_model(fitted["ranksvm"], "vespa", tmp_path / "out", data=large)
    online = KnnOnline(LambdaMART(3), k=0.5).fit(world())
    with pytest.raises(DataError, match="Only weighted sums can be sent with a request"):
        export_model(online, "vespa", tmp_path / "out")


def test_data_normalised_within_queries_is_refused(fitted: dict[str, Any], tmp_path: Path) -> None:
    data = world()
    scaled = replace(data, candidates=normalised(data.candidates))
    with pytest.raises(DataError, match=r"100% of the features' ranges .* title\.bm25, body bm25, clicks"):
        export_model(fitted["ranksvm"], "solr", tmp_path / "out", data=scaled)
    export_model(fitted["ranksvm"], "solr", tmp_path / "out", data=scaled, as_is=True)
    assert not scaled_within_queries(data.candidates).is_normalised
    flags = replace(data.candidates, features=(data.candidates.features > 0).astype(np.float64))
    assert not scaled_within_queries(flags).is_normalised, "features that are 0 or 1 by nature"


def test_the_share_of_what_is_normalised_decides_and_its_features_are_named(
    fitted: dict[str, Any], tmp_path: Path
) -> None:
    data = world().candidates
    scaled, raw = normalised(data).features, data.features
    mostly = np.where(np.arange(len(raw))[:, None] // 12 % 5 < 4, scaled, scaled * 0.5)  # four queries of five
    mostly[:, 3] = raw[:, 3]
    found = scaled_within_queries(replace(data, features=mostly))
    assert 0.6 < found.share < 0.75
    assert found.columns == (0, 1, 2, 4)
    message = r"6\d% of the features' ranges within queries .* of title\.bm25, body bm25, clicks, age\. .*as_is=True"
    with pytest.raises(DataError, match=message):
        export_model(fitted["ranksvm"], "solr", tmp_path / "out", data=replace(data, features=mostly))
    model, path = tmp_path / "model", tmp_path / "train.txt"
    save(fitted["ranksvm"], model)
    write_letor(path, replace(world(), candidates=replace(data, features=mostly)))
    words = ("export", str(model), "--to", "solr", "--out", str(tmp_path / "new"), "--data", str(path))
    refused = commands.run(None, *words)
    assert refused.returncode == 2
    assert "say so: --as-is" in " ".join(refused.stderr.split())
    assert commands.run(None, *words, "--as-is").returncode == 0
    one = raw.copy()
    one[:, 0] = scaled[:, 0]  # a share by nature, as of the query's words that a title has
    export_model(fitted["ranksvm"], "solr", tmp_path / "out", data=replace(data, features=one))


# Arithmetic.


@given(st.floats(-1e30, 1e30), st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_thresholds_send_32_bit_values_where_they_should_go(threshold: float, value: float) -> None:
    assert (value < above32(threshold)) == (value <= threshold)
    assert (value <= floor32(threshold)) == (value <= threshold)


@given(st.one_of(st.floats(-1e6, 1e6), st.floats(-3e-6, 3e-6)))
def test_solrs_millionth_is_made_up_for(threshold: float) -> None:
    read = float(np.float32(np.float32(written_threshold(threshold)) + np.float32(1e-6)))
    assert read <= threshold
    assert threshold - read <= max(2e-13, 2.0**-22 * abs(threshold))


def test_values_the_engine_cannot_hold_apart_are_counted(tmp_path: Path) -> None:
    close = 1.0 + np.arange(12) * 1e-9  # one number in 32 bits
    features = np.column_stack([np.tile(close, 20), np.zeros(240)])
    labels = np.tile((close > close[5]).astype(np.int64), 20)
    data = Judged(Candidates(features, np.arange(21) * 12, tuple(map(str, range(20)))), labels)
    ranker = LambdaMART(3, leaves=2, min_documents=5).fit(data)
    done = export_model(ranker, "opensearch", tmp_path / "out", data=data)
    assert done.exactness is not None
    assert done.exactness.astray == 120
    assert not done.exactness.is_exact
    assert "takes 120 another way through a tree" in (tmp_path / "out" / "README.md").read_text()
    exact = export_model(ranker, "vespa", tmp_path / "vespa", data=data)
    assert exact.exactness is not None
    assert exact.exactness.is_exact


# The folder.


class Unsavable(TextView):
    """A view that no model folder can name, so that an export fails half-way."""


def test_an_export_appears_whole_or_not_at_all(fitted: dict[str, Any], tmp_path: Path) -> None:
    broken = KnnOffline2(RankSVM(), k=0.4, models=2, view=Unsavable(3)).fit(world())
    with pytest.raises(DataError, match="cannot be saved"):
        export_model(broken, "opensearch", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    export_model(fitted["ranksvm"], "opensearch", tmp_path / "out", name="old")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    with pytest.raises(DataError, match="cannot be saved"):
        export_model(broken, "opensearch", tmp_path / "out")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_new_export_takes_the_place_of_an_old_one_and_of_nothing_else(fitted: dict[str, Any], tmp_path: Path) -> None:
    export_model(fitted["knn-offline-2"], "solr", tmp_path / "out", name="old")
    export_model(fitted["ranksvm"], "solr", tmp_path / "out", name="new")
    assert [path.name for path in (tmp_path / "out" / "models").iterdir()] == ["new.json"]
    assert not (tmp_path / "out" / "router.py").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "mine").mkdir()
    export_model(fitted["ranksvm"], "solr", tmp_path / "mine")
    shutil.rmtree(tmp_path / "mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("dear diary")
    with pytest.raises(DataError, match="holds something that is not an export"):
        export_model(fitted["ranksvm"], "solr", tmp_path / "mine")
    assert (tmp_path / "mine" / "diary.txt").read_text() == "dear diary"


def test_features_without_names_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    data = make_judged(20, 6, 3)
    export_model(RankSVM().fit(data), "solr", tmp_path / "out", data=data.candidates)
    names = [each["name"] for each in json.loads((tmp_path / "out" / "features.json").read_text())]
    assert names == ["f1", "f2", "f3"]


# The command line, and the router as a user runs it.


def run(*words: object, code: int = 0) -> str:
    return printed(commands.run(None, *words), code)


def run_router(folder: Path, *words: object) -> str:
    return printed(commands.run_script(folder / "router.py", *words))


def printed(done: commands.Done, code: int = 0) -> str:
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def letor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("letor")
    data = world()
    write_letor(root / "train.txt", data)
    assert data.candidates.queries is not None
    write_queries(root / "queries.jsonl", data.candidates.queries)
    settings = ["--method", "knn-offline-2", "--k", "0.3", "--set", "models=4"]
    run("fit", root / "train.txt", *settings, "--view", "text", "--out", root / "by-text")
    run("fit", root / "train.txt", *settings, "--out", root / "by-documents")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["opensearch", "solr", "vespa"])
def test_from_the_command_line_to_a_request(engine: str, letor: Path, tmp_path: Path) -> None:
    out = tmp_path / "export"
    said = run("export", letor / "by-text", "--to", engine, "--out", out, "--data", letor / "train.txt")
    assert f"5 models for {engine} written to {out}" in said
    assert "Queries are routed by text, with one request to the engine each" in said
    assert "fill in what is marked EDIT_ME" in said
    assert "ranks every query as we do" in said
    request = json.loads(run_router(out, "how to install thing 3"))
    router = Router(out)
    model = router.model("how to install thing 3")
    if engine == "vespa":
        assert read_tensor(request["input.query(w)"]) == router.weights("how to install thing 3")
        assert request["ranking"] == "querywise"
    elif engine == "solr":
        assert request["rq"] == f"{{!ltr model={model} reRankDocs=100 efi.keywords=$keywords}}"
    else:
        assert request["rescore"]["query"]["rescore_query"]["sltr"]["model"] == model


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["elasticsearch", "solr", "vespa"])
def test_two_requests_where_documents_are_looked_at(engine: str, letor: Path, tmp_path: Path) -> None:
    out = tmp_path / "export"
    assert "with two requests" in run("export", letor / "by-documents", "--to", engine, "--out", out)
    first = json.loads(run_router(out, "it's jaguar", "--first"))
    documents = [dict(zip(("f1", "f2", "f3", "f4", "f5"), row, strict=True)) for row in np.eye(5).tolist()]
    if engine == "vespa":
        assert first["ranking"] == "querywise"
        older = [{f"rankingExpression({name})": value for name, value in documents[0].items()}, *documents[1:]]
        answer: Any = {"root": {"children": [{"fields": {"matchfeatures": each}} for each in older]}}
    elif engine == "solr":
        assert first["fl"] == "id,[features store=querywise format=dense efi.keywords=$keywords]"
        assert first["keywords"] == "it's jaguar"
        lines = [",".join(f"{name}={value}" for name, value in each.items()) for each in documents]
        answer = {"response": {"docs": [{"[features]": line} for line in lines]}}
    else:
        assert first["ext"]["ltr_log"]["log_specs"]["named_query"] == "features"
        entries = [[{"name": name, "value": value} for name, value in each.items()] for each in documents]
        answer = {"hits": {"hits": [{"fields": {"_ltrlog": [{"features": entry}]}} for entry in entries]}}
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    second = run_router(out, "it's jaguar", "--answer", tmp_path / "answer.json")
    router = Router(out)
    if engine == "vespa":
        assert read_tensor(json.loads(second)["input.query(w)"]) == router.weights(documents=documents)
    else:
        assert router.model(documents=list(np.eye(5))) in second


@pytest.mark.slow
def test_the_command_line_says_json_and_errors(letor: Path, tmp_path: Path) -> None:
    words = ["export", letor / "by-text", "--out", tmp_path / "out", "--to"]
    content = json.loads(run(*words, "solr", "--json", "--name", "shop"))
    assert content["models"] == ["shop-global", "shop-0", "shop-1", "shop-2", "shop-3"]
    assert content["routing"] == {"by": ["text"], "requests": 1}
    assert "Unknown engine 'lucene'" in run(*words, "lucene", code=2)
    (tmp_path / "bad.json").write_text("{")
    assert "bad.json: this is not JSON" in run(*words, "solr", "--feature-set", tmp_path / "bad.json", code=2)
    assert "no such file" in run(*words, "solr", "--feature-set", tmp_path / "none.json", code=2)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["opensearch", "vespa"])
def test_the_commands_of_the_engines_page_do_what_it_says(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parent.parent / "docs" / "engines" / f"{engine}.md").read_text()
    features = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert features is not None
    (tmp_path / "features.json").write_text(features[1])
    data = make_judged(60, 8, 3, kinds=2)
    texts = tuple(f"{WORDS[n % 4]} {n * n}" for n in range(60))
    classes = tuple(("informational", "navigational")[n % 2] for n in range(60))
    table = QueryTable(data.candidates.query_ids, texts=texts, classes=classes)
    write_letor(tmp_path / "train.txt", data)
    write_queries(tmp_path / "queries.jsonl", table)
    (tmp_path / "features.txt").write_text("title\nbody\nclicks\n")
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"^querywise (.*)$", page, re.MULTILINE)
    assert [command.split()[0] for command in shown[:2]] == ["fit", "export"]
    for command in shown[:2]:
        run(*command.split())
    assert "EDIT_ME" not in "".join(path.read_text() for path in (tmp_path / "export").rglob("*.json"))
    result = checked(tmp_path / "export", engine_for(engine, tmp_path / "export"), engine)
    assert result.stdout == "100 documents are scored alike by 21 models.\n", result.stderr
    if engine == "opensearch":
        for command in shown:
            if "classes" in command:
                run(*command.split())
        asked = re.search(r"^python (export-classes/router.py) (\S+ --class \S+)", page, re.MULTILINE)
        assert asked is not None
        command = [sys.executable, asked[1], *asked[2].split()]
        assert "shop-classes-1" in printed(subprocess.run(command, capture_output=True, text=True, check=False))


@needs_real_data
def test_on_cranfields_raw_features_the_engines_rank_as_we_do(tmp_path: Path) -> None:
    from querywise import build_index, judged_candidates, read_collection

    collection = read_collection(REAL_DATA / "cranfield")
    data, _ = judged_candidates(collection, build_index(collection.documents()), top=40)
    numbered = tuple(f"f{place}" for place in range(data.feature_count))  # by their names they would be refused
    data = replace(data, candidates=replace(data.candidates, feature_names=numbered))
    train, test = data.select(range(0, len(data), 2)), data.select(range(1, len(data), 2))
    linear = KnnOffline2(RankSVM(), k=0.3, models=6, view=TextView(20)).fit(train)
    forest = LambdaMART(30).fit(train)
    predicted = linear.predict(test.candidates)
    for engine in (name for name, kind in ENGINES.items() if kind.no_sums is None):
        for ranker in (linear, forest):
            done = export_model(ranker, engine, tmp_path / engine, data=test)
            assert done.exactness is not None
            assert done.exactness.astray == 0
            # Scores may be nearer to each other than the 32 bits of an engine can tell: a pair or two of thousands.
            assert done.exactness.swapped <= done.exactness.pairs // 10_000
            if engine in EMULATED:
                result = checked(tmp_path / engine, engine_for(engine, tmp_path / engine), engine)
                assert result.returncode == 0, result.stdout + result.stderr
        if engine not in EMULATED:
            continue
        export_model(linear, engine, tmp_path / engine)
        names = [f"querywise-{number}" if number >= 0 else "querywise-global" for number in range(-1, 6)]
        for query, number in enumerate(route(linear, test.candidates)):
            rows = test.candidates.rows(query)
            theirs = scores_in(tmp_path / engine, engine, names[number + 1], test.candidates.features[rows])
            assert ranks_alike(predicted[rows], theirs)


def test_files_without_a_place_to_fill_in_are_no_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(exported: Exported, name: str, features: Json) -> Files:
        return Files({"model.sql": f"SELECT 1 AS {exported.features[0]}"}, exported.features)

    plain = StoredModels(Arithmetic(np.float64, float), write, lambda exported, name: "Run it.", "sqlite")
    monkeypatch.setitem(TARGETS, "sqlite", Target("SQLite", plain))
    ranker = RankSVM().fit(make_judged(20, 6, 3))
    assert not export_model(ranker, "sqlite", tmp_path / "plain").unfinished
    assert "EDIT_ME" not in (tmp_path / "plain" / "README.md").read_text()
    assert export_model(ranker, "solr", tmp_path / "template").unfinished


@needs_real_data
@pytest.mark.parametrize("name", ["MQ2008", "OHSUMED"])
def test_letors_files_are_seen_to_be_normalised(name: str) -> None:
    from querywise import read_letor

    assert scaled_within_queries(read_letor(REAL_DATA / name / "S1.txt").candidates).share > 0.99
