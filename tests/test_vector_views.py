"""Views by a query's vector and by its signals: offline, saved, over HTTP and in an export's router."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from querywise import KnnOnline, RankSVM, load, save
from querywise.contracts.answers import Answer
from querywise.data.collections import Collection
from querywise.data.collections import Document as Described
from querywise.data.judged import Candidates, Judged, concatenate
from querywise.data.judgements import Judgement
from querywise.data.query_table import QueryTable, join_tables, read_queries, write_queries
from querywise.data.run_columns import run_feature_names
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.explanations.explain import as_dict, explain
from querywise.exports.routing import Router
from querywise.exports.writing import export_model
from querywise.locality.views.columns import RunSignals, SignalView, VectorView
from querywise.locality.views.learned import GradientView
from querywise.locality.views.topmean import TopMean
from querywise.methods import find_method
from querywise.methods.parts import view_named
from querywise.rankers.clusters import Naive
from querywise.retrieval.embedding import query_vector, with_embedded
from querywise.retrieval.features import judged_candidates
from querywise.retrieval.index import build_index
from querywise.retrieval.signals import signals
from querywise.runtime.values import JsonObject
from querywise.service.loaded_model import LoadedModel
from querywise.service.lookup import Lookup
from querywise.service.schema import Document, Query, RankRequest, unread


def world(queries: int = 30) -> Judged:
    """Queries of two kinds; their vectors say which, and two features are those of a run."""
    data = make_judged(queries=queries, documents=8, features=4, kinds=2)
    kinds = np.array([name == "kind 1" for name in data.classes], dtype=np.float64)
    noise = np.random.default_rng(0).normal(size=(queries, 2))
    vectors = np.column_stack([5 * kinds, 5 * (1 - kinds), noise])
    table = data.candidates.queries
    assert table is not None
    names = ("a", "b", *run_feature_names(["bm25"]))
    known = replace(table, vectors=vectors, texts=tuple(f"query {place}" for place in range(queries)))
    return replace(data, candidates=replace(data.candidates, queries=known, feature_names=names))


def test_points_are_vectors_of_length_one_and_unknown_ones_the_mean() -> None:
    data = world()
    view = VectorView().fit(data)
    points = view.points(data.candidates)

    assert view.looks_at == ("vector",)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)
    table = data.candidates.queries
    assert table is not None
    assert table.vectors is not None
    nothing = replace(data.candidates, queries=replace(table, vectors=np.zeros_like(table.vectors)))
    np.testing.assert_allclose(view.points(nothing), np.tile(points.mean(axis=0), (30, 1)))
    with pytest.raises(DataError, match="all of them are zero vectors"):
        VectorView().fit(replace(data, candidates=nothing))


def test_queries_without_vectors_or_with_others_are_refused() -> None:
    data = world()
    view = VectorView().fit(data)
    table = data.candidates.queries
    assert table is not None
    assert table.vectors is not None
    with pytest.raises(DataError, match="needs the vectors of the queries, and these have none"):
        view.points(replace(data.candidates, queries=replace(table, vectors=None)))
    with pytest.raises(DataError, match="vectors have 3 numbers; the model was trained with 4"):
        view.points(replace(data.candidates, queries=replace(table, vectors=table.vectors[:, :3])))


@pytest.mark.parametrize("view", ["vector", "gradient:vector"])
def test_a_request_without_a_vector_is_answered_by_the_global_model_and_says_so(tmp_path: Path, view: str) -> None:
    data = world()
    known = data.candidates.queries
    assert known is not None
    assert known.vectors is not None
    save(KnnOnline(RankSVM(), k=5, view=view_named(TopMean, view)).fit(data), tmp_path / "model")
    model = LoadedModel.from_folder(tmp_path / "model")
    documents = [Document(str(row), unread(each.tolist())) for row, each in enumerate(data.candidates.features[:8])]
    alone = RankRequest(Query("q", "some words"), documents)
    with_vector = RankRequest(Query("q", vector=known.vectors[0].tolist()), documents)

    answer, scores = model.answer(model.candidates([alone]))
    np.testing.assert_array_equal(scores, answer.by_everyone())
    own, _ = model.answer(model.candidates([with_vector]))
    assert not np.array_equal(own.scores(), own.by_everyone())
    said = explain(model.ranker, model.candidates([alone]), "q")
    assert (said.is_global, said.neighbours, said.note) == (True, (), "it has no vector")
    assert as_dict(said)["note"] == "it has no vector"
    assert "note" not in as_dict(explain(model.ranker, model.candidates([with_vector]), "q"))
    together, behind = model.rank([with_vector, alone, with_vector])
    assert together == [model.rank([each])[0][0] for each in (with_vector, alone, with_vector)]
    assert [len(each.seen) for each in behind] == [2, 1]
    assert answer.place is not None
    assert answer.place.known is not None
    assert np.isfinite(answer.place.known.distances()).all()


def test_a_request_without_a_vector_is_refused_where_no_training_query_is_measured_to(tmp_path: Path) -> None:
    data = world()
    save(Naive(RankSVM(), 2, view=VectorView()).fit(data), tmp_path / "model")
    model = LoadedModel.from_folder(tmp_path / "model")
    documents = [Document(str(row), unread(each.tolist())) for row, each in enumerate(data.candidates.features[:8])]
    alone = RankRequest(Query("q", "some words"), documents)
    with pytest.raises(DataError, match=r"needs the vector of a query, query\.vector, and the request has none"):
        model.rank([alone])


@pytest.mark.parametrize("size", [1e300, 1e19, 1e-19, 1e-300])
def test_a_querys_vector_that_no_computation_can_hold_is_refused(size: float) -> None:
    with pytest.raises(DataError, match=r"vector of query .b.: the largest .* must be between 1e-18 and 1e\+18, or 0"):
        QueryTable(("a", "b"), vectors=np.array([[0.0, 0.0], [size, 0.0]]))


def test_signals_are_a_view_where_there_are_runs() -> None:
    data = world()
    points = SignalView().fit(data).points(data.candidates)
    assert points.shape == signals(data.candidates).values.shape
    np.testing.assert_allclose(points.mean(axis=0), 0, atol=1e-9)
    nameless = replace(data.candidates, feature_names=None)
    with pytest.raises(DataError, match="was trained with 7 signals of a query, and these have 2"):
        SignalView().fit(data).points(nameless)
    assert SignalView().fit(replace(data, candidates=nameless)).points(nameless).shape == (30, 2)


def test_names_people_type_give_these_views() -> None:
    assert isinstance(view_named(TopMean, "vector"), VectorView)
    assert isinstance(view_named(TopMean, "signals"), SignalView)
    inside = view_named(TopMean, "gradient:vector")
    assert isinstance(inside, GradientView)
    assert isinstance(inside.view, VectorView)


def test_signals_of_runs_are_the_same_signals_cut_at_three_standard_deviations() -> None:
    data = world(200)
    plain, cut = (view.fit(data).points(data.candidates) for view in (SignalView(), RunSignals()))
    assert np.array_equal(cut, np.clip(plain, -3.0, 3.0))
    assert np.abs(plain).max() > 3.0
    nameless = replace(data.candidates, feature_names=None)
    assert np.array_equal(RunSignals().fit(data).points(nameless), cut), "the names are those of training"
    with pytest.raises(DataError, match="The view RunSignals needs the columns"):
        RunSignals().fit(replace(data, candidates=nameless))


@pytest.mark.parametrize("view", ["vector", "signals", "gradient:vector", "vector+signals+top-mean"])
def test_a_model_with_such_a_view_is_saved_and_answers_requests_alike(tmp_path: Path, view: str) -> None:
    data = world()
    ranker = find_method("knn-offline-1").build(k=5, view=view)
    ranker.fit(data)
    save(ranker, tmp_path / "m")
    loaded = load(tmp_path / "m")
    expected = ranker.predict(data.candidates)
    assert loaded.predict(data.candidates).tolist() == expected.tolist()

    table, rows = data.candidates.queries, data.candidates.rows(3)
    assert table is not None
    assert table.vectors is not None
    assert table.texts is not None
    query = Query("x", text=table.texts[3], vector=table.vectors[3].tolist())
    documents = [Document(str(row), unread(each.tolist())) for row, each in enumerate(data.candidates.features[rows])]
    answered = LoadedModel.from_folder(tmp_path / "m").rank([RankRequest(query, documents)])[0][0]
    scores = {each.id: each.score for each in answered.documents}
    np.testing.assert_allclose([scores[str(row)] for row in range(8)], expected[rows], rtol=1e-12)


def test_requests_with_vectors_of_two_dimensions_are_refused(tmp_path: Path) -> None:
    save(RankSVM().fit(world()), tmp_path / "m")
    requests = [RankRequest(Query(str(size), vector=[1.0] * size), []) for size in (3, 2)]
    with pytest.raises(DataError, match="Query '2' has a vector of 2 numbers; the first has 3"):
        LoadedModel.from_folder(tmp_path / "m").candidates(requests)


def test_an_exports_router_goes_by_the_vector(tmp_path: Path) -> None:
    data = world()
    ranker = find_method("naive").build(clusters=2, view="vector")
    ranker.fit(data)
    export_model(ranker, "elasticsearch", tmp_path / "e")
    router = Router(tmp_path / "e")
    table = data.candidates.queries
    assert table is not None
    assert table.vectors is not None

    chosen = {router.model(vector=vector.tolist()) for vector in table.vectors}

    assert len(chosen) == 2
    with pytest.raises(DataError, match=r"its vector was not given\. With router\.py: --vector"):
        router.model("jaguar")
    with pytest.raises(DataError, match="must be a list of finite numbers"):
        router.model(vector=["x"])  # type: ignore[list-item]


def test_vectors_of_queries_are_written_and_read(tmp_path: Path) -> None:
    table = QueryTable(("a", "b"), vectors=np.array([[0.1, -2.0], [0.0, 1e-7]]))
    write_queries(tmp_path / "queries.jsonl", table)
    found = read_queries(tmp_path / "queries.jsonl")
    assert found.vectors is not None
    assert found.vectors.tolist() == [[0.1, -2.0], [0.0, 1e-7]]
    for lines, said in (
        ('{"_id": "a", "vector": [1]}\n{"_id": "b"}', 'queries.jsonl:2: "vector" must be a list'),
        ('{"_id": "a", "vector": [1, NaN]}', 'queries.jsonl:1: "vector" must be a list'),
        ('{"_id": "a", "vector": [1]}\n{"_id": "b", "vector": [1, 2]}', "queries.jsonl:2: the vector has 2 numbers"),
    ):
        (tmp_path / "queries.jsonl").write_text(lines + "\n")
        with pytest.raises(DataError, match=said):
            read_queries(tmp_path / "queries.jsonl")


def test_vectors_travel_with_their_queries() -> None:
    table = QueryTable(("a", "b", "c"), vectors=np.arange(6.0).reshape(3, 2))
    chosen = table.select(["c", "a"])
    assert chosen.vectors is not None
    assert chosen.vectors.tolist() == [[4, 5], [0, 1]]
    more = table.with_unknown(["d"]).vectors
    assert more is not None
    assert more[3].tolist() == [0, 0]
    joined = join_tables([table.select(["b"]), table.select(["a"])]).vectors
    assert joined is not None
    assert joined.tolist() == [[2, 3], [0, 1]]
    with pytest.raises(DataError, match="vectors of 2 numbers, others of 3"):
        join_tables([table, QueryTable(("x",), vectors=np.ones((1, 3)))])
    with pytest.raises(DataError, match="3 query ids but 2 vectors"):
        QueryTable(("a", "b", "c"), vectors=np.ones((2, 2)))
    with pytest.raises(DataError, match=r"Row 1, column 2 of QueryTable\.vectors is nan"):
        QueryTable(("a",), vectors=np.array([[1.0, np.nan]]))


def test_other_vectors_make_another_training_set() -> None:
    data = world()
    table = data.candidates.queries
    assert table is not None
    assert table.vectors is not None
    other = data.with_queries(replace(table, vectors=table.vectors + 1))
    assert other.fingerprint() != data.fingerprint()
    halves = [data.select(range(15)), data.select(range(15, 30))]
    assert concatenate(halves).fingerprint() == data.fingerprint()


def test_candidates_keep_the_vectors_they_come_with() -> None:
    candidates: Candidates = world().candidates.select([4])
    assert candidates.queries is not None
    assert candidates.queries.vectors is not None
    assert candidates.queries.vectors.shape == (1, 4)


def test_the_service_finds_what_offline_retrieval_finds(tmp_path: Path) -> None:
    texts = ["a large cat", "a fast car", "a large snake", "a language to program in", "cats and dogs", "a car race"]
    documents = [Described(f"D{place}", text.split()[-1], text) for place, text in enumerate(texts)]
    index = with_embedded(build_index(documents), documents, "lsa")
    queries = QueryTable(("a", "b"), texts=("large cats", "fast cars"))
    table = replace(queries, vectors=np.stack([query_vector(index, text) for text in ("large cats", "fast cars")]))
    judgements = tuple(Judgement(query, document, 1, "here") for query, document in (("a", "D0"), ("b", "D1")))
    judged, _ = judged_candidates(Collection("zoo", lambda: documents, table, judgements), index)
    notes: JsonObject = {"vectors": {"embedder": index.notes["embedder"]}}
    save(RankSVM().fit(judged), tmp_path / "m", notes=notes)
    model, lookup = LoadedModel.from_folder(tmp_path / "m"), Lookup(index=index)
    lookup.check(model)

    found = lookup.candidates(Query("x", text="large cats"), 50)

    assert found.document_ids == judged.candidates.document_ids[judged.candidates.rows(0)]  # type: ignore[index]
    assert found.features.tolist() == judged.candidates.features[judged.candidates.rows(0)].tolist()
    vector = query_vector(index, "large cats")
    given = lookup.candidates(Query("x", text="large cats", vector=vector.tolist()), 50)
    assert given.features.tolist() == found.features.tolist()
    other = [Described(each.id, each.title, each.text[::-1]) for each in documents]
    with pytest.raises(DataError, match=r"the vectors of the model, lsa|those of the model have"):
        Lookup(index=with_embedded(build_index(other), other, "lsa")).check(model)


def test_a_model_is_rehearsed_with_a_vector_and_with_a_judged_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no visitor waits until local models are compiled; random documents without a vector do not reach them."""
    data, probe = world(), [1.0, 0.5, 0.25, 0.0]
    notes: JsonObject = {"vectors": {"embedder": {"name": "ours", "dimension": 4, "probe": list(probe)}}}
    save(KnnOnline(RankSVM(), k=5, view=VectorView()).fit(data), tmp_path / "m", notes=notes)
    asked: list[Candidates] = []
    answered = KnnOnline.answer

    def listening(ranker: KnnOnline, candidates: Candidates, /) -> Answer:
        asked.append(candidates)
        return answered(ranker, candidates)

    monkeypatch.setattr(KnnOnline, "answer", listening)
    model = LoadedModel.from_folder(tmp_path / "m")
    vectors = [each.queries.vectors.tolist() for each in asked if each.queries and each.queries.vectors is not None]
    assert vectors[0] == [probe]
    Lookup(judged=data).check(model)
    assert asked[-1].query_ids == data.query_ids[:1]
    Lookup(judged=data.select([])).check(model)
