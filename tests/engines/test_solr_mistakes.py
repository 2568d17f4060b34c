"""What goes wrong between an export and Solr: one clear message, and what is there, and in service, stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise import Candidates, KnnOffline2, RankSVM, Router, TextView, export_model
from querywise.exports.scripts import check_solr
from querywise.exports.scripts.check_parity import Server
from querywise.rankers.clusters import Naive
from tests.commands import Done, run_script
from tests.engines.breaking import breaking
from tests.engines.solr import Solr, scoring
from tests.query_languages import words_in
from tests.support.exports import (
    NUMBERS,
    RANKERS,
    ROUTED,
    SHOP,
    TRICKY,
    answering,
    ranks_alike,
    shop,
    with_words,
    world,
    written,
)

NAMES = world().candidates.feature_names or ()
CLASSES = "org.apache.solr.ltr.feature"


def features(*, field: str = "price_d") -> Any:
    """Features that read a number of a document."""
    params = {"field": field}
    return [{"name": name, "class": f"{CLASSES}.FieldValueFeature", "params": params} for name in NAMES]


def of_words() -> Any:
    """Features of words in the title and the body, and of numbers."""
    queries = [{"q": f"{{!simple q.operators='' qf={field}}}${{keywords}}"} for field in ("title", "body")]
    given = [
        *(("SolrFeature", each) for each in queries),
        *(("FieldValueFeature", {"field": f"{each}_d"}) for each in NUMBERS),
    ]
    pairs = zip(NAMES, given, strict=True)
    return [{"name": name, "class": f"{CLASSES}.{kind}", "params": params} for name, (kind, params) in pairs]


@pytest.fixture(scope="module")
def core(node: Solr) -> str:
    node.create("mistakes", defaults={"defType": "edismax", "qf": "title body"})
    node.fill("mistakes", {f"d{number}": {"price_d": 9.0 - number, "other_d": number} for number in range(5)})
    return "mistakes"


@pytest.fixture
def empty(node: Solr, core: str) -> Iterator[str]:
    """The core, with nothing of an export in it before and after."""
    assert (node.models(core), node.stores(core)) == ([], [])
    yield core
    for model in node.models(core):
        node.ask("DELETE", f"{core}/schema/model-store/{model}")
    for store in node.stores(core):
        node.ask("DELETE", f"{core}/schema/feature-store/{store}")
    node.reload(core)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes") / "export"
    ranker = KnnOffline2(RankSVM(), k=0.3, models=6, view=TextView(5)).fit(world())
    export_model(ranker, "solr", folder, name="mistakes", features=features())
    return folder


def upload(export: Path, url: str, core: str, *words: str) -> Done:
    return run_script(export / "upload.py", "--url", url, "--collection", core, *words)


def check(export: Path, url: str, core: str, *words: str) -> Done:
    return run_script(export / "check_parity.py", "--url", url, "--collection", core, *words)


def one_line(done: Done) -> str:
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def scored(node: Solr, core: str, model: str) -> list[tuple[str, float]]:
    asked = {"defType": "lucene", "q": "*:*", "rq": f"{{!ltr model={model} reRankDocs=10}}", "fl": "id,score"}
    return [(each["id"], each["score"]) for each in node.select(core, asked)]


def test_a_server_that_is_not_there_or_slow_takes_one_line(export: Path) -> None:
    assert "http://127.0.0.1:9/solr does not answer" in one_line(upload(export, "http://127.0.0.1:9/solr", "shop"))
    with answering() as url:
        assert "no answer within 0.3 seconds; see --timeout" in one_line(
            upload(export, url, "shop", "--timeout", "0.3")
        )
    assert "expected letters" in one_line(upload(export, "http://127.0.0.1:9/solr", "a/b"))


def test_a_core_without_the_module_or_none_at_all_is_told_apart(node: Solr, export: Path) -> None:
    node.create("plain", ltr=False)
    assert "The collection plain has no Learning to Rank module" in one_line(upload(export, node.url, "plain"))
    assert "has no collection nothing. Is --collection right" in one_line(upload(export, node.url, "nothing"))
    assert "has no Learning to Rank module" in one_line(check(export, node.url, "plain"))
    assert node.count("plain") == 0


def test_what_is_there_stays_and_names_that_are_taken_are_refused(
    node: Solr, empty: str, export: Path, tmp_path: Path
) -> None:
    assert upload(export, node.url, empty).stdout == "The feature store mistakes and 7 models are in mistakes.\n"
    before = scored(node, empty, "mistakes-0")
    assert len(before) == 5
    assert "(8 of them were there before)" in upload(export, node.url, empty).stdout
    other = KnnOffline2(RankSVM(), k=0.5, models=6, view=TextView(5)).fit(world())
    export_model(other, "solr", tmp_path / "other", name="mistakes", features=features())
    said = one_line(upload(tmp_path / "other", node.url, empty))
    assert "There is a model mistakes-global already, with other" in said or "There is a model mistakes-" in said
    assert "--name mistakes-2" in said
    export_model(other, "solr", tmp_path / "fields", name="mistakes", features=features(field="other_d"))
    said = one_line(upload(tmp_path / "fields", node.url, empty))
    assert "There is a feature store mistakes already, with another definition of title.bm25" in said
    mine = [{"store": "mistakes", "name": "mine", "class": f"{CLASSES}.ValueFeature", "params": {"value": 1}}]
    node.ask("PUT", f"{empty}/schema/feature-store", mine)
    assert "features of its own (mine)" in one_line(upload(export, node.url, empty))
    assert scored(node, empty, "mistakes-0") == before


def test_an_upload_that_broke_off_leaves_the_old_in_service_and_goes_on(
    node: Solr, empty: str, export: Path, tmp_path: Path
) -> None:
    upload(export, node.url, empty)
    before = scored(node, empty, "mistakes-0")
    newer = KnnOffline2(RankSVM(), k=0.5, models=6, view=TextView(5)).fit(world())
    export_model(newer, "solr", tmp_path / "new", name="newer", features=features())
    with breaking(node.url, "PUT", 4) as url:
        broken = upload(tmp_path / "new", url, empty)
    assert broken.returncode == 2
    assert "the connection broke off" in broken.stderr
    assert "4 of 8 items were uploaded. Models in service were not changed" in broken.stderr
    assert scored(node, empty, "mistakes-0") == before
    assert "(4 of them were there before)" in upload(tmp_path / "new", node.url, empty).stdout
    assert scored(node, empty, "newer-0") != before
    assert upload(tmp_path / "new", node.url, empty, "--remove").returncode == 0
    assert scored(node, empty, "mistakes-0") == before
    assert node.stores(empty) == ["mistakes"]


def test_the_check_leaves_stores_documents_and_models_alone(node: Solr, empty: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_model(RankSVM().fit(world()), "solr", folder)
    mine = [{"store": "querywise-parity", "name": "mine", "class": f"{CLASSES}.ValueFeature", "params": {"value": 1}}]
    node.ask("PUT", f"{empty}/schema/feature-store", mine)
    assert "a feature store called querywise-parity" in one_line(check(folder, node.url, empty))
    assert node.stores(empty) == ["querywise-parity"]
    assert node.count(empty) == 5
    assert check(folder, node.url, empty, "--name", "other").returncode == 0
    node.ask("DELETE", f"{empty}/schema/feature-store/querywise-parity")
    node.fill(empty, {"querywise-parity-3": {"title": "mine"}})
    assert "a document whose id begins with querywise-parity-" in one_line(check(folder, node.url, empty))
    assert node.count(empty) == 6
    node.ask("POST", f"{empty}/update?commit=true", {"delete": ["querywise-parity-3"]})
    node.ask("PUT", f"{empty}/schema/feature-store", [{**each, "store": "mine"} for each in features()])
    content = json.loads((folder / "models" / "querywise.json").read_text())
    node.ask("PUT", f"{empty}/schema/model-store", {**content, "name": "querywise-parity-querywise", "store": "mine"})
    assert "a model called querywise-parity-querywise" in one_line(check(folder, node.url, empty))
    assert node.models(empty) == ["querywise-parity-querywise"]
    assert (node.count(empty), node.stores(empty)) == (5, ["mine"])


def test_the_check_finds_a_model_that_scores_otherwise(node: Solr, empty: str, tmp_path: Path) -> None:
    ranker = RankSVM().fit(world())
    export_model(ranker, "solr", tmp_path / "out", data=world(1))
    path = tmp_path / "out" / "models" / "querywise.json"
    weight = repr(float(ranker.weights_[0]))
    path.write_text(path.read_text().replace(weight, repr(float(weight) * 1.001)))
    done = check(tmp_path / "out", node.url, empty)
    assert done.returncode == 1
    assert "documents are scored otherwise; document" in done.stdout


def test_the_check_compares_the_features_of_a_live_core_with_those_of_training(
    node: Solr, empty: str, tmp_path: Path
) -> None:
    data = replace(world().candidates, document_ids=tuple(f"t{row}" for row in range(720)))
    reads: Any = [
        {"name": name, "class": f"{CLASSES}.FieldValueFeature", "params": {"field": f"n{place}_d"}}
        for place, name in enumerate(NAMES)
    ]
    folder = tmp_path / "out"
    export_model(RankSVM().fit(world()), "solr", folder, data=data, rows=60, features=reads, name="live")
    live = {
        f"t{row}": {f"n{place}_d": value for place, value in enumerate(values)}
        for row, values in enumerate(data.features.tolist())
    }
    node.fill(empty, live)
    upload(folder, node.url, empty)
    done = check(folder, node.url, empty, "--log", empty)
    assert done.returncode == 0, done
    assert done.stdout.endswith("The features of 60 documents are computed as in training.\n")
    node.fill(empty, {name: {**each, "n3_d": each["n3_d"] * 1.5} for name, each in live.items()})
    node.ask("POST", f"{empty}/update?commit=true", {"delete": ["t0"]})
    done = check(folder, node.url, empty, "--log", empty)
    assert done.returncode == 1
    assert f"{empty} does not have 1 of 60 documents." in done.stdout
    assert "length: 59 of 59 values differ by more than 1%; document t" in done.stdout
    assert "age:" not in done.stdout
    node.ask("POST", f"{empty}/update?commit=true", {"delete": list(live)})


@pytest.mark.parametrize("ranker", ROUTED)
def test_the_routed_model_ranks_every_query_as_the_ranker_does(
    ranker: str, node: Solr, empty: str, tmp_path: Path
) -> None:
    fitted, test = RANKERS[ranker]().fit(world()), world(2).candidates
    export_model(fitted, "solr", tmp_path / "out", data=test, rows=len(test.features))
    router, predicted = Router(tmp_path / "out"), fitted.predict(test)
    assert test.queries is not None
    assert test.queries.texts is not None
    with scoring(node, empty, tmp_path / "out") as scores:
        by_model = {each["name"]: scores(each["name"]) for each in router.manifest["models"]}
    used = set()
    for query in range(len(test)):
        rows = test.rows(query)
        known = {"query_class": test.queries.classes[query]} if test.queries.classes else {}
        looked = {"documents": list(test.features[rows])} if router.requests == 2 else {}
        model = router.model(test.queries.texts[query], **known, **looked)  # type: ignore[arg-type]
        theirs = np.array([by_model[model][str(row)] for row in range(rows.start, rows.stop)])
        assert ranks_alike(predicted[rows], theirs)
        used.add(model)
    assert len(used) > 1


@pytest.fixture(scope="module")
def words(node: Solr) -> str:
    """A core with the shop whose handler has a syntax of its own."""
    node.create("words", defaults={"defType": "edismax", "qf": "title^2 body"})
    node.fill(
        "words",
        {
            name: {key if key in ("title", "body") else f"{key}_d": value for key, value in each.items()}
            for name, each in shop().items()
        },
    )
    return "words"


def test_words_are_words_in_one_request_and_in_two(
    node: Solr, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = KnnOffline2(RankSVM(), k=0.3, models=4, view=TextView(5)).fit(world())
    export_model(one, "solr", tmp_path / "one", name="one", features=of_words())
    export_model(Naive(RankSVM(), 2).fit(world()), "solr", tmp_path / "two", name="two", features=of_words())
    for folder in ("one", "two"):
        assert upload(tmp_path / folder, node.url, words).returncode == 0
    for text in TRICKY:
        request = written(tmp_path / "one", monkeypatch, capsys, "--", text)
        assert sorted(each["id"] for each in node.select(words, request)) == with_words(text), text
        request = written(tmp_path / "two", monkeypatch, capsys, "--first", "--", text)
        found = node.select(words, request)
        assert sorted(each["id"] for each in found) == with_words(text), text
        (tmp_path / "answer.json").write_text(json.dumps({"response": {"docs": found}}))
        answer = ("--answer", str(tmp_path / "answer.json"))
        request = written(tmp_path / "two", monkeypatch, capsys, *answer, "--", text)
        assert sorted(each["id"] for each in node.select(words, request)) == with_words(text), text


def test_the_check_has_features_computed_for_words(node: Solr, words: str, tmp_path: Path) -> None:
    export_model(RankSVM().fit(world()), "solr", tmp_path / "out", name="checked", features=of_words())
    assert upload(tmp_path / "out", node.url, words).returncode == 0
    content = json.loads((tmp_path / "out" / "export.json").read_text())
    asks = check_solr.Solr(Server(node.url, {}), content, "parity", words)
    for text in TRICKY:
        found = asks.logged(words, text, ["b", "c"])
        for name in ("b", "c"):
            there = [bool(words_in(text) & words_in(SHOP[name][field])) for field in ("title", "body")]
            values = list(found[name].values())
            assert [value > 0 for value in values[:2]] == there, text
            assert values[2:] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("ranker", ["ranksvm", "trees", "stumps"])
def test_a_feature_that_a_document_does_not_have_counts_as_0(
    ranker: str, node: Solr, empty: str, tmp_path: Path
) -> None:
    reads: Any = [
        {"name": name, "class": f"{CLASSES}.FieldValueFeature", "params": {"field": f"n{place}_d"}}
        for place, name in enumerate(NAMES)
    ]
    fitted, table = RANKERS[ranker]().fit(world()), world(1).candidates.features[:60].copy()
    lacking = np.random.default_rng(0).random(table.shape) < 0.4
    table[lacking] = 0.0
    export_model(fitted, "solr", tmp_path / "out", name="lacking", features=reads)
    upload(tmp_path / "out", node.url, empty)
    documents = {
        f"m{row}": {f"n{place}_d": table[row, place] for place in np.flatnonzero(~lacking[row]).tolist()}
        for row in range(len(table))
    }
    node.fill(empty, documents)
    asked = {"defType": "lucene", "q": "{!prefix f=id}m", "rq": "{!ltr model=lacking reRankDocs=60}"}
    found = {each["id"]: each["score"] for each in node.select(empty, {**asked, "fl": "id,score", "rows": "60"})}
    node.ask("POST", f"{empty}/update?commit=true", {"delete": list(documents)})
    one = Candidates(table, np.array([0, len(table)]), ("q",), feature_names=NAMES)
    expected = fitted.predict(one)
    assert [found[f"m{row}"] for row in range(len(table))] == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-4)
