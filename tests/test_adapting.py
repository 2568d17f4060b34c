"""Candidates found by adapted query vectors: what learns from what, in folds, curves, models and search."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from querywise import RankSVM, load, save
from querywise.contracts.answers import adapter_of
from querywise.data.collections import Collection
from querywise.data.folds import Fold, make_folds
from querywise.data.judged import Judged
from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.evaluation.compare import compare
from querywise.evaluation.learning_curves import cut, learning_curves
from querywise.methods import METHODS
from querywise.retrieval.adapted_vectors import AdaptedVectors
from querywise.retrieval.adapting import Adaptation
from querywise.retrieval.features import ADAPTED, candidates_for, feature_names, judged_candidates
from querywise.retrieval.index import Index
from querywise.retrieval.lists import PLAIN, SIMILARITY, VECTORS
from querywise.retrieval.reading import Retrieval
from querywise.retrieval.search import answer
from querywise.retrieval.side_by_side import unit
from querywise.service.loaded_model import LoadedModel, ModelFolder
from querywise.service.lookup import Lookup
from querywise.service.routes import create_app
from querywise.service.schema import Query
from querywise.service.service import Service
from reproduction.linear_maps import LinearMap, LlamaIndexMap, RagliteMap
from reproduction.vectors import LEARNING, OTHERS, reproduce
from tests import commands
from tests.support.adapting import DIMENSION, made


@pytest.fixture(scope="module")
def world() -> tuple[Collection, Index, Judged]:
    collection, index = made()
    return collection, index, judged_candidates(collection, index, top=10, vector_top=10)[0]


def adaptation(world: tuple[Collection, Index, Judged], kind: str = "by-query") -> Adaptation:
    collection, index, _ = world
    return Adaptation(collection, index, "by-query" if kind == "by-query" else "auto", top=10, vector_top=10)


def test_a_fold_is_found_by_vectors_that_learned_from_its_training_part(
    world: tuple[Collection, Index, Judged],
) -> None:
    fold = make_folds(world[2])[0]
    found = adaptation(world).fold(fold)
    for part, before in zip(found, fold, strict=True):
        assert part.query_ids == before.query_ids
        assert part.feature_names == feature_names(world[1], adapted=True)
        assert [run.name for run in part.runs] == ["bm25", VECTORS, ADAPTED]
        assert part.candidates.queries is not None
        assert before.candidates.queries is not None
        assert np.array_equal(part.candidates.queries.vectors, before.candidates.queries.vectors)  # type: ignore[arg-type]
    plain, moved = (
        found.test.candidates.features[:, found.test.candidates.column_of(each)] for each in (PLAIN, SIMILARITY)
    )
    assert moved[found.test.labels > 0].mean() > plain[found.test.labels > 0].mean() + 0.2


def test_judgments_of_other_parts_teach_nothing(world: tuple[Collection, Index, Judged]) -> None:
    """A planted leak: every test and validation query is said to be answered by one document."""
    collection, index, judged = world
    fold = make_folds(judged)[0]
    outside = {*fold.valid.query_ids, *fold.test.query_ids}
    planted = tuple(each._replace(document="d0") for each in collection.judgements if each.query in outside)
    kept = tuple(each for each in collection.judgements if each.query not in outside)
    changed = replace(collection, judgements=kept + tuple({each.query: each for each in planted}.values()))
    found = adaptation(world).fold(fold)
    again = Adaptation(changed, index, "by-query", top=10, vector_top=10).fold(fold)
    assert np.array_equal(found.train.candidates.features, again.train.candidates.features)
    assert np.array_equal(found.test.candidates.features, again.test.candidates.features)


def test_the_planted_leak_would_be_found() -> None:
    """Where nothing can be learned from other queries, an adapter that saw a query's own judgments still finds them."""
    collection, index = made(helpful=False)
    judged = judged_candidates(collection, index, top=10, vector_top=10)[0]
    own = Adaptation(collection, index, "by-query", top=10, vector_top=10)
    train, adapter = own.learned(make_folds(judged)[0].train)
    leaking = own.found_by(make_folds(judged)[0].train, adapter)
    assert leaking.labels.sum() > 1.2 * train.labels.sum()


def test_auto_leaves_queries_where_they_are_if_that_gains_nothing() -> None:
    collection, index = made(helpful=False)
    judged = judged_candidates(collection, index, top=10, vector_top=10)[0]
    fold = make_folds(judged)[0]
    found = Adaptation(collection, index, "auto", top=10, vector_top=10).fold(fold)
    assert np.array_equal(found.test.candidates.features, fold.test.candidates.features)
    assert found.test.feature_names == fold.test.feature_names
    small = Fold(*(part.select(range(min(len(part), 30))) for part in fold))
    assert Adaptation(*made(), "auto", top=10, vector_top=10).fold(small).test.feature_names == fold.test.feature_names


def test_both_rows_of_vectors_are_measured_on_their_own_lists(world: tuple[Collection, Index, Judged]) -> None:
    folds = make_folds(world[2]).learning(adaptation(world).fold)
    rankers = {name: METHODS[name].build() for name in ("vectors", "vectors-adapted")}
    found = compare(rankers, folds, measures="ndcg@10")
    means = {name: float(found.evaluations[name].mean()["ndcg@10"]) for name in rankers}
    assert means["vectors-adapted"] > means["vectors"] + 0.3
    plain = compare(rankers, make_folds(world[2]), measures="ndcg@10")
    assert float(plain.evaluations["vectors"].mean()["ndcg@10"]) == means["vectors"]


def test_learning_curves_learn_the_vectors_anew_at_every_size(world: tuple[Collection, Index, Judged]) -> None:
    seen: list[int] = []
    own = adaptation(world)

    def counting(fold: Fold) -> Fold:
        seen.append(len(fold.train))
        return own.fold(fold)

    folds = make_folds(world[2]).learning(counting)
    assert folds.sizes() == [96] * 5
    assert seen == []
    learning_curves({"vectors": METHODS["vectors-adapted"].build()}, folds, measures="ndcg@10")
    assert sorted(set(seen)) == [30, 60, 96]
    assert len(cut(folds[0], 30).train) == 30


def test_a_model_keeps_its_adapter_for_new_queries(tmp_path: Path, world: tuple[Collection, Index, Judged]) -> None:
    collection, index, judged = world
    train, adapter = adaptation(world).learned(judged)
    ranker = RankSVM().fit(train)
    assert adapter_of(ranker) is None
    ranker.with_adapter(adapter)
    save(ranker, tmp_path / "model")
    again = load(tmp_path / "model")
    kept = adapter_of(again)
    assert kept is not None
    assert collection.queries is not None
    assert collection.queries.vectors is not None
    query = collection.queries.select(["q5"])
    assert query.vectors is not None
    assert np.array_equal(kept.transform(query.vectors), adapter.transform(query.vectors))
    table = QueryTable(("query",), texts=query.texts, vectors=query.vectors)
    candidates = candidates_for(index, table, top=10, vector_top=10, adapted=adapter.transform(query.vectors))
    expected = candidates.document_ids
    shown = answer(index, "word5", ranker=again, vector=query.vectors[0], top=10, vector_top=10)
    assert expected is not None
    assert {each.document for each in shown} == set(expected)


def test_wrong_choices_are_refused() -> None:
    for adapt in ("yes", "linear", "by-query"):
        with pytest.raises(DataError, match="adapt="):
            Retrieval(adapt=adapt)
    assert Retrieval(adapt="auto").adapt == "auto"


def test_the_service_searches_by_adapted_vectors(tmp_path: Path, world: tuple[Collection, Index, Judged]) -> None:
    collection, index, judged = world
    train, adapter = adaptation(world).learned(judged)
    ranker = RankSVM().fit(train)
    ranker.with_adapter(adapter)
    save(ranker, tmp_path / "model", notes={"vectors": {"top": 10, "vector_top": 10, "dimension": DIMENSION}})
    assert collection.queries is not None
    assert collection.queries.vectors is not None
    vector = collection.queries.vectors[5]
    model, lookup = LoadedModel.from_folder(tmp_path / "model"), Lookup(index)
    lookup.check(model)
    found = lookup.candidates(Query(id="q", text="word5", vector=vector.tolist()), None, model)
    table = QueryTable(("q",), texts=("word5",), vectors=vector[None])
    expected = candidates_for(index, table, top=10, vector_top=10, adapted=adapter.transform(vector[None]))
    assert found.document_ids == expected.document_ids
    assert np.array_equal(found.features, expected.features)


@pytest.mark.slow
@pytest.mark.parametrize("theirs", [LlamaIndexMap(20, 1e-2), RagliteMap()])
def test_a_linear_map_of_another_library_brings_queries_nearer_to_their_answers(
    world: tuple[Collection, Index, Judged], theirs: LinearMap
) -> None:
    given, documents, gains = adaptation(world).given(world[2])
    queries = np.asarray(given.values, dtype=np.float64)
    moved = theirs.fit(given, documents, gains).transform(queries)
    every = np.asarray(documents.of(np.arange(len(documents))), dtype=np.float64)
    before, after = ((unit(each) @ every.T * gains.toarray()).sum() for each in (queries, moved))
    assert after > before


@pytest.mark.slow
def test_reproduce_vectors_tests_every_ranking_against_its_plain_self(
    tmp_path: Path, world: tuple[Collection, Index, Judged]
) -> None:
    collection, index, judged = world

    table = reproduce(
        make_folds(judged), Adaptation(collection, index, "auto", top=10, vector_top=10), tmp_path / "out"
    )
    lines = [line for line in table.read_text().splitlines() if line.startswith("| ")]
    rows = [line.split("|")[1].strip() for line in lines]
    alone = [f"vectors, {name}" for name in (*OTHERS, *LEARNING, "auto")]
    assert rows[2:12] == [*alone, "candidates", "rrf", "weights", "blend"]
    numbers = json.loads((tmp_path / "out" / "numbers.json").read_text())
    found = numbers["rows"]["vectors, by query"]["ndcg@10"]
    assert found["p_holm"] < 0.01
    assert found["adapted"] > found["plain"]
    assert [*numbers["rows"]["candidates"]] == ["recall@100"]
    sizes = numbers["curves"]["sizes"]
    assert sizes == [30, 96]
    assert [row for row in rows if row.isdecimal()] == 3 * [str(size) for size in sizes]
    assert (tmp_path / "out" / "curves.svg").exists()


def test_the_service_gives_the_vector_to_search_an_engine_by(
    tmp_path: Path, world: tuple[Collection, Index, Judged]
) -> None:
    collection, index, judged = world
    train, adapter = adaptation(world).learned(judged)
    ranker = RankSVM().fit(train)
    plain = RankSVM().fit(judged)
    ranker.with_adapter(adapter)
    save(ranker, tmp_path / "model")
    save(plain, tmp_path / "plain")
    assert collection.queries is not None
    assert collection.queries.vectors is not None
    own = collection.queries.vectors[5]

    async def ask(model: str, body: object) -> httpx.Response:
        service = Service(ModelFolder(tmp_path / model), Lookup(index))
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.post("/v1/vector", json=body)

    moved = asyncio.run(ask("model", {"query": {"vector": own.tolist()}})).json()
    assert moved["adapted"] is True
    assert np.array_equal(moved["vector"], adapter.transform(own))
    assert moved["shift"] is None
    told = asyncio.run(ask("model", {"query": {"vector": own.tolist()}, "explain": True})).json()["shift"]
    assert [each["query"]["id"] for each in told["pulls"][:3]] == [
        each.query for each in adapter.explain(own).pulls[:3]
    ]
    assert {each["query"]["id"] for each in told["pulls"]} <= set(judged.query_ids)
    for dtype in ("float64", "float32"):
        table = asyncio.run(ask("model", {"query": {"vector": own.tolist()}, "dtype": dtype})).json()["vector"]
        assert (table["dtype"], table["shape"]) == (dtype, [1, DIMENSION])
        numbers = np.frombuffer(base64.b64decode(table["base64"]), np.dtype(dtype).newbyteorder("<"))
        assert np.array_equal(numbers, adapter.transform(own).astype(dtype))
    assert asyncio.run(ask("plain", {"query": {"vector": own.tolist()}})).json()["vector"] == own.tolist()
    for model, body in (
        ("model", {"query": {"vector": [1.0]}}),
        ("plain", {"query": {}}),
        ("model", {"query": {"vector": "x"}}),
        ("model", {"query": {"vector": own.tolist()}, "dtype": "float16"}),
    ):
        refused = asyncio.run(ask(model, body))
        assert refused.status_code == 422, refused.text
        assert refused.json()["error"]["message"]


def test_a_model_that_adapts_vectors_of_another_dimension_than_the_index_is_not_served(
    tmp_path: Path, world: tuple[Collection, Index, Judged]
) -> None:
    _, index, judged = world
    chance = np.random.default_rng(0)
    adapter = AdaptedVectors("linear", l2=1.0, gate=False).fit(
        chance.normal(size=(5, 3)), chance.normal(size=(5, 3)), {"0": {"0": 1.0}, "1": {"1": 1.0}}
    )
    save(RankSVM().fit(adaptation(world).learned(judged).train).with_adapter(adapter), tmp_path / "model")
    with pytest.raises(DataError, match="this adapter was trained on vectors of 3 numbers"):
        Lookup(index).check(LoadedModel.from_folder(tmp_path / "model"))


def test_reproduce_vectors_is_refused_without_vectors(tmp_path: Path) -> None:
    told = commands.refused(commands.reproduce(tmp_path, "vectors", "nowhere", "--embed", "lsa", "--out", "made"))
    assert "takes no vectors" not in told
    assert "nowhere" in told
