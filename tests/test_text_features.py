from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.collections import Collection, Document, read_collection, write_collection
from querywise.data.coverage import Coverage
from querywise.data.judged import Judged
from querywise.data.judgements import Judgement
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import run_feature_names
from querywise.errors import DataError
from querywise.retrieval.bm25 import search
from querywise.retrieval.features import candidates_for, descriptions, feature_names, features_of, judged_candidates
from querywise.retrieval.index import Index, build_index, load_index, save_index
from querywise.retrieval.lists import RUNS
from querywise.retrieval.scores import NAMES, Smoothing
from tests.worlds import examples

DOCUMENTS = [
    Document("jag", "jaguar", "a large cat", {"clicks": 3.0, "age": -1.0}),
    Document("pyt", "python", "a large snake", {"age": 0.5, "clicks": 0.0}),
    Document("rus", "rust", "brown flakes of old iron", {"clicks": 7.0, "age": 0.0}),
    Document("nil", "", "", {"clicks": 1e9, "age": 1e-9}),
]
QUERIES = QueryTable(
    ("cats", "snakes", "zebras", "metal", "large"),
    texts=("large cats", "snakes", "zebra", "iron", "large"),
    classes=("animal", "animal", "animal", None, None),
)
GRADES = [
    ("large", "rus", 1),
    ("large", "pyt", 0),
    ("cats", "jag", 2),
    ("cats", "rus", 1),
    ("cats", "pyt", 0),
    ("snakes", "pyt", 1),
    ("zebras", "jag", 1),
]


def judgements(rows: list[tuple[str, str, int]]) -> tuple[Judgement, ...]:
    return tuple(Judgement(*row, f"qrels.tsv:{line}") for line, row in enumerate(rows, start=1))


ANIMALS = Collection("animals", lambda: DOCUMENTS, QUERIES, judgements(GRADES))


@pytest.fixture(scope="module")
def index() -> Index:
    return build_index(DOCUMENTS)


def rows(data: Judged) -> list[tuple[str, str, int, bool]]:
    """Query, document, grade, judged."""
    documents, judged = data.candidates.document_ids, data.judged
    assert documents is not None
    assert judged is not None
    queries = [data.candidates.query_ids[query] for query in data.candidates.query_of_row]
    return list(zip(queries, documents, data.labels.tolist(), judged.tolist(), strict=True))


def test_candidates_carry_their_grades_and_what_nobody_judged_is_zero(index: Index) -> None:
    data, _ = judged_candidates(ANIMALS, index)
    assert data.candidates.query_ids == ("cats", "snakes", "zebras", "large")
    assert rows(data) == [
        ("cats", "jag", 2, True),
        ("cats", "pyt", 0, True),
        ("snakes", "pyt", 1, True),
        ("large", "jag", 0, False),
        ("large", "pyt", 0, True),
    ]
    assert data.candidates.comments == ("docid = jag", "docid = pyt", "docid = pyt", "docid = jag", "docid = pyt")


def test_coverage_says_what_the_candidates_hold_and_miss(index: Index) -> None:
    _, coverage = judged_candidates(ANIMALS, index)
    assert coverage == Coverage(
        queries=4, unjudged=1, without_candidates=1, without_relevant=1, relevant=5, found=2, depth=2, recall=0.375
    )


def test_a_query_without_a_match_is_kept_without_rows(index: Index) -> None:
    data, _ = judged_candidates(ANIMALS, index)
    assert data.candidates.sizes.tolist() == [2, 1, 0, 2]
    assert len(data) == 4


def test_fewer_candidates_are_the_best_of_them(index: Index) -> None:
    data, coverage = judged_candidates(ANIMALS, index, top=1)
    assert [row[:2] for row in rows(data)] == [("cats", "jag"), ("snakes", "pyt"), ("large", "jag")]
    assert (coverage.found, coverage.without_relevant, coverage.without_candidates) == (2, 1, 1)


def test_the_query_table_goes_along(index: Index) -> None:
    for candidates in (judged_candidates(ANIMALS, index)[0].candidates, candidates_for(index, QUERIES)):
        table = candidates.queries
        assert table is not None
        assert table.ids == candidates.query_ids
        assert table.texts is not None
        assert table.classes is not None
        place = table.ids.index("snakes")
        assert (table.texts[place], table.classes[place]) == ("snakes", "animal")


def test_judged_documents_are_added_and_marked(index: Index) -> None:
    data, coverage = judged_candidates(ANIMALS, index, add_judged=True)
    assert rows(data) == [
        ("cats", "jag", 2, True),
        ("cats", "pyt", 0, True),
        ("cats", "rus", 1, True),
        ("snakes", "pyt", 1, True),
        ("zebras", "jag", 1, True),
        ("large", "jag", 0, False),
        ("large", "pyt", 0, True),
        ("large", "rus", 1, True),
    ]
    comments = data.candidates.comments
    assert comments is not None
    added = [comment.endswith(" added = 1") for comment in comments]
    assert added == [False, False, True, False, True, False, False, True]
    assert comments[2] == "docid = rus added = 1"
    assert (coverage.added, coverage.relevant, coverage.without_relevant) == (3, 5, 0)


def test_an_added_document_has_the_features_of_any_other(index: Index) -> None:
    data, _ = judged_candidates(ANIMALS, index, add_judged=True)
    alone = features_of(index, "large cats", np.array([2]))
    np.testing.assert_allclose(data.candidates.features[2], alone[0], rtol=1e-12)


def test_a_query_whose_words_are_nowhere_is_unmatched_even_if_documents_are_added(index: Index) -> None:
    assert judged_candidates(ANIMALS, index, add_judged=True)[1].without_candidates == 1


def test_a_judged_document_that_is_not_there_is_named_or_skipped(index: Index) -> None:
    stray = Collection("x", lambda: DOCUMENTS, QUERIES, judgements([*GRADES, ("metal", "D9", 1)]))
    with pytest.raises(DataError, match=r"^qrels\.tsv:8: document 'D9' of query 'metal' is not in the corpus"):
        judged_candidates(stray, index)
    data, coverage = judged_candidates(stray, index, skip_unknown=True)
    assert rows(data) == rows(judged_candidates(ANIMALS, index)[0])
    assert (coverage.queries, coverage.unjudged, coverage.relevant) == (4, 1, 5)


def test_judgements_of_other_documents_altogether_are_refused(index: Index) -> None:
    other = Collection("x", lambda: DOCUMENTS, QUERIES, judgements([("cats", "D9", 1), ("large", "D8", 0)]))
    with pytest.raises(DataError, match="none of the judged documents is in the corpus"):
        judged_candidates(other, index, skip_unknown=True)


@pytest.mark.parametrize("queries", [None, QueryTable(("cats",))])
def test_queries_with_a_text_are_needed(index: Index, queries: QueryTable | None) -> None:
    with pytest.raises(DataError, match="animals: the collection has no queries with a text"):
        judged_candidates(Collection("animals", lambda: DOCUMENTS, queries, ANIMALS.judgements), index)


def test_judgements_are_needed(index: Index) -> None:
    with pytest.raises(DataError, match="animals: the collection has no judgments"):
        judged_candidates(Collection("animals", lambda: DOCUMENTS, QUERIES), index)


def test_fewer_than_one_candidate_is_refused(index: Index) -> None:
    with pytest.raises(DataError, match="top=0"):
        judged_candidates(ANIMALS, index, top=0)
    with pytest.raises(DataError, match="top=-3"):
        candidates_for(index, QUERIES, top=-3)


# The columns


def test_the_columns_are_the_scores_the_lengths_and_the_users_own(index: Index) -> None:
    names = (*NAMES, "length.title", "length.body", "clicks", "age")
    assert feature_names(index) == names
    candidates = candidates_for(index, QUERIES)
    assert candidates.feature_names == names
    assert candidates.features.shape == (6, 29)
    assert candidates.document_ids == ("jag", "pyt", "pyt", "rus", "jag", "pyt")
    assert candidates.features[:4, 25:].tolist() == [
        [1, 2, 3.0, -1.0],
        [1, 2, 0.0, 0.5],
        [1, 2, 0.0, 0.5],
        [1, 4, 7.0, 0.0],
    ]


def test_without_columns_the_scores_and_lengths_remain() -> None:
    bare = build_index([Document("a", "", "cat")])
    assert feature_names(bare) == (*NAMES, "length.title", "length.body")
    assert candidates_for(bare, QueryTable(("q",), texts=("cat",))).features.shape == (1, 27)


def test_all_features_are_finite_and_those_of_an_empty_document_too(index: Index) -> None:
    found = features_of(index, "large cat zebra", np.arange(4))
    assert found.shape == (4, 29)
    assert np.isfinite(found).all()
    assert found[3, 25:27].tolist() == [0, 0]


def test_candidates_come_best_first(index: Index) -> None:
    candidates = candidates_for(index, QUERIES)
    for query, text in enumerate(QUERIES.texts or ()):
        ids = (candidates.document_ids or ())[candidates.rows(query)]
        assert ids == tuple(index.document_ids[int(place)] for place in search(index, text or "").documents)


def test_no_query_that_matches_gives_no_row(index: Index) -> None:
    candidates = candidates_for(index, QueryTable(("a", "b", "c"), texts=("zebra", None, "the")))
    assert candidates.features.shape == (0, 29)
    assert candidates.sizes.tolist() == [0, 0, 0]


def test_other_parameters_reach_retrieval_and_scores(index: Index) -> None:
    smoothing = Smoothing(k1=0.0, dirichlet=1.0)
    usual, other = candidates_for(index, QUERIES), candidates_for(index, QUERIES, smoothing=smoothing)
    for name in ("H1.bm25", "H3.dirichlet"):
        assert not np.allclose(usual.features[:, NAMES.index(name)], other.features[:, NAMES.index(name)])
    assert np.array_equal(usual.features[:, :20], other.features[:, :20])
    judged = judged_candidates(ANIMALS, index, smoothing=smoothing)[0].candidates
    assert judged.features[:3].tobytes() == other.features[:3].tobytes()


WORDS = st.lists(st.sampled_from(["fig", "plum", "kiwi", "date"]), max_size=6).map(" ".join)


@settings(deadline=None, max_examples=examples(50))
@given(texts=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=8), asked=st.lists(WORDS, min_size=1, max_size=5))
def test_one_query_at_a_time_gives_the_features_of_all_at_once(texts: list[tuple[str, str]], asked: list[str]) -> None:
    index = build_index([Document(f"D{i}", title, body) for i, (title, body) in enumerate(texts)])
    table = QueryTable(tuple(f"q{i}" for i in range(len(asked))), texts=tuple(asked))
    together = candidates_for(index, table, top=3)
    for place, query in enumerate(table.ids):
        alone = candidates_for(index, table.select([query]), top=3)
        assert alone.features.tobytes() == together.features[together.rows(place)].tobytes()
        assert alone.document_ids == (together.document_ids or ())[together.rows(place)]


def test_files_give_the_candidates_that_memory_gives(index: Index, tmp_path: Path) -> None:
    write_collection(ANIMALS, tmp_path / "animals")
    collection = read_collection(tmp_path / "animals")
    save_index(build_index(collection.documents()), tmp_path / "index")
    data, coverage = judged_candidates(collection, load_index(tmp_path / "index"), add_judged=True)
    expected, known = judged_candidates(ANIMALS, index, add_judged=True)
    assert (rows(data), coverage) == (rows(expected), known)
    assert data.candidates.features.tobytes() == expected.candidates.features.tobytes()


def test_every_feature_but_one_s_own_column_has_a_description(index: Index) -> None:
    names = feature_names(index)
    assert set(names) - set(descriptions(names)) == set(index.column_names) != set()
    ranks = ("run.bm25.rank", "run.vectors.rank")
    listed = ("similarity", "similarity.title", *run_feature_names(RUNS), *ranks, "found_by")
    assert list(descriptions((*names, *listed)))[-len(listed) :] == list(listed)
    assert descriptions(("L1.title", "similarity", "price")) == {}, "columns that are called so by chance"
