"""Exact search by vectors, and candidates found by words and by vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from querywise.data.collections import Collection, Document
from querywise.data.coverage import CoverageByRuns
from querywise.data.judgements import Judgement
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import run_columns
from querywise.data.vectors import CollectionVectors, Numbers, as_vectors
from querywise.errors import DataError
from querywise.retrieval.features import candidates_for, feature_names, judged_candidates
from querywise.retrieval.index import Index, build_index, load_index, save_index
from querywise.retrieval.indexed_vectors import vectors_of, with_vectors
from querywise.retrieval.vector_search import VectorIndex
from querywise.runtime.arrays import Floats

DOCUMENTS = [
    Document("cat", "jaguar", "a large cat of the forest"),
    Document("car", "jaguar", "a fast car"),
    Document("snake", "python", "a large snake"),
    Document("code", "python", "a language to program in"),
    Document("none", "empty", "nothing to compare"),
]
VECTORS = np.array([[1.0, 0.1, 0.0], [0.0, 1.0, 0.0], [2.0, 0.0, 0.2], [0.0, 0.2, 1.0], [0.0, 0.0, 0.0]])
QUERIES = QueryTable(
    ("animals", "coding"),
    texts=("jaguar", "software"),
    vectors=np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 3.0]]),
)


def indexed(values: Numbers = VECTORS, *, order: list[int] | None = None, titles: Numbers | None = None) -> Index:
    ids = [each.id for each in DOCUMENTS]
    order = order or list(range(len(ids)))
    documents = as_vectors([ids[place] for place in order], values[order])
    other = None if titles is None else as_vectors(ids, titles)
    return with_vectors(build_index(DOCUMENTS), CollectionVectors(documents, titles=other))


def cosines(queries: Floats, values: Numbers) -> Floats:
    wide = values.astype(np.float64)
    lengths, sizes = np.linalg.norm(wide, axis=1), np.linalg.norm(queries, axis=1)
    found: Floats = queries @ wide.T / np.maximum(lengths, 1e-300) / np.maximum(sizes, 1e-300)[:, None]
    found[:, lengths == 0] = -np.inf
    return found


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("count", "dimension"), [(40, 3), (3_000, 16), (70_000, 4)])
def test_it_finds_what_comparing_with_every_document_finds(count: int, dimension: int, kind: type[np.float16]) -> None:
    rng = np.random.default_rng(count)
    values = (rng.normal(size=(count, dimension)) * rng.lognormal(size=(count, 1))).astype(kind)
    values[5], values[10:30] = 0, values[7]
    queries = rng.normal(size=(20, dimension))
    queries[3], queries[4] = 0, values[7]
    lengths = np.linalg.norm(values.astype(np.float64), axis=1)

    found = VectorIndex(values, lengths).search(queries, top=25)

    expected = cosines(queries, values)
    assert len(found[3].documents) == 0
    assert found[4].documents[:21].tolist() == [7, *range(10, 30)]  # equals in the order of documents
    for query in (0, 1, 2, 4, 19):
        best = np.sort(expected[query])[::-1][:25]
        np.testing.assert_allclose(found[query].scores, best, atol=1e-12)
        np.testing.assert_allclose(expected[query][found[query].documents], best, atol=1e-12)


def test_many_alike_are_all_told_apart() -> None:
    """Single precision cannot order these; the last of them is the best."""
    values = np.ones((5_000, 8))
    values[:, 0] += np.arange(5_000) * 1e-12
    index = VectorIndex(values, np.linalg.norm(values, axis=1))

    found = index.search(np.eye(1, 8), top=3)[0]

    assert found.documents.tolist() == [4_999, 4_998, 4_997]


def test_one_query_alone_is_answered_to_the_last_bit_as_among_others() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(9_000, 33)).astype(np.float32)
    queries = rng.normal(size=(150, 33))
    index = VectorIndex(values, np.linalg.norm(values.astype(np.float64), axis=1))

    together, alone = index.search(queries, top=20)[140], index.search(queries[140:141], top=20)[0]

    assert together.documents.tolist() == alone.documents.tolist()
    assert together.scores.tolist() == alone.scores.tolist()


def test_queries_of_another_dimension_are_refused() -> None:
    with pytest.raises(DataError, match="The queries' vectors have 2 numbers, the documents' 3"):
        VectorIndex(VECTORS, np.ones(5)).search(np.ones((1, 2)), top=2)
    with pytest.raises(DataError, match="top=0"):
        VectorIndex(VECTORS, np.ones(5)).search(np.ones((1, 3)), top=0)


def test_candidates_are_what_either_finds() -> None:
    found = candidates_for(indexed(), QUERIES, top=2, vector_top=2)

    assert found.document_ids == ("car", "cat", "snake", "code", "snake")
    assert found.sizes.tolist() == [3, 2]
    names = found.feature_names or ()
    table = {name: found.features[:, column] for column, name in enumerate(names)}
    assert [(run.name, names[run.score]) for run in run_columns(names)] == [
        ("bm25", "run.bm25.score"),
        ("vectors", "run.vectors.score"),
    ]
    assert table["run.bm25.reciprocal_rank"].tolist() == [1, 1 / 2, 0, 0, 0]
    assert table["run.bm25.rank"].tolist() == [1, 2, 3, 1, 1]
    assert table["found_by"].tolist() == [1, 2, 1, 1, 1]
    assert table["run.vectors.reciprocal_rank"].tolist() == [0, 1, 1 / 2, 1, 1 / 2]
    assert table["run.vectors.rank"].tolist() == [3, 1, 2, 1, 2]
    assert table["similarity"][0] == 0.0
    np.testing.assert_allclose(table["similarity"][2], 2 / np.sqrt(4.04))
    assert table["run.vectors.score"].tolist() == table["similarity"].tolist()


def test_features_of_a_query_alone_are_those_among_others() -> None:
    index = indexed()
    together = candidates_for(index, QUERIES)
    for query, query_id in enumerate(QUERIES.ids):
        alone = candidates_for(index, QUERIES.select([query_id]))
        assert alone.feature_names == together.feature_names == feature_names(index)
        assert alone.features.tolist() == together.features[together.rows(query)].tolist()


def test_vectors_in_another_order_than_the_documents_give_the_same(tmp_path: Path) -> None:
    other = indexed(order=[3, 1, 4, 0, 2])
    save_index(other, tmp_path / "index")
    expected = candidates_for(indexed(), QUERIES)

    for index in (other, load_index(tmp_path / "index")):
        found = candidates_for(index, QUERIES)
        assert found.document_ids == expected.document_ids
        assert found.features.tolist() == expected.features.tolist()


def test_similarity_to_titles_is_a_feature_where_they_have_vectors() -> None:
    found = candidates_for(indexed(titles=VECTORS[::-1].copy()), QUERIES.select(["animals"]))
    column = (found.feature_names or ()).index("similarity.title")
    values = dict(zip(found.document_ids or (), found.features[:, column].tolist(), strict=True))
    assert values["cat"] == 0.0
    np.testing.assert_allclose(values["snake"], 2 / np.sqrt(4.04))


def test_an_index_without_vectors_is_as_it_was() -> None:
    index = build_index(DOCUMENTS)
    assert vectors_of(index) is None
    assert "similarity" not in feature_names(index)
    assert candidates_for(index, QUERIES).sizes.tolist() == [2, 0]


def test_queries_without_vectors_are_refused_where_documents_have_them() -> None:
    with pytest.raises(DataError, match="so the queries need vectors too"):
        candidates_for(indexed(), QueryTable(("q",), texts=("jaguar",)))


def test_documents_without_a_vector_and_vectors_without_a_document_are_refused() -> None:
    index, ids = build_index(DOCUMENTS), [each.id for each in DOCUMENTS]
    with pytest.raises(DataError, match="1 of 5 documents in the corpus have no vector here; the first is 'none'"):
        with_vectors(index, CollectionVectors(as_vectors(ids[:4], VECTORS[:4])))
    more = CollectionVectors(as_vectors([*ids, "other"], np.ones((6, 3))))
    with pytest.raises(DataError, match="row 6 is the vector of document 'other', which is not in the corpus"):
        with_vectors(index, more)
    assert len(vectors_of(with_vectors(index, more, skip_unknown=True)) or ()) == 5


def test_recall_is_told_of_either_list_and_of_both() -> None:
    judgements = [Judgement("animals", each, 1, "here") for each in ("cat", "car", "snake", "none")]
    collection = Collection("animals", lambda: DOCUMENTS, QUERIES, tuple(judgements))

    judged, coverage = judged_candidates(collection, indexed(), top=2, vector_top=2, add_judged=True)

    assert isinstance(coverage, CoverageByRuns)
    assert coverage.by_run == {"bm25": 0.5, "vectors": 0.5}
    assert (coverage.recall, coverage.added) == (0.75, 1)
    assert (
        "Recall of the candidates that each list found: bm25 0.5000, vectors 0.5000; together 0.7500."
        in coverage.lines()
    )
    assert judged.candidates.queries is not None
    assert judged.candidates.queries.vectors is not None
