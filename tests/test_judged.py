from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querywise.data.frames import from_arrays
from querywise.data.judged import Candidates, Judged, concatenate
from querywise.data.query_table import QueryTable
from querywise.data.rows import LARGEST, count_pairs, is_moderate
from querywise.errors import DataError
from querywise.runtime.arrays import Floats


def three_queries() -> Judged:
    """Query a owns rows 0 and 1, b row 2, c rows 3 to 5; a row's feature is its number."""
    candidates = Candidates(
        features=np.arange(6.0)[:, None],
        starts=np.array([0, 2, 3, 6]),
        query_ids=("a", "b", "c"),
        document_ids=("a1", "a2", "b1", "c1", "c2", "c3"),
        comments=tuple(f"comment {row}" for row in range(6)),
        feature_names=("number",),
        queries=QueryTable(("a", "b", "c"), texts=("ay", None, "sea"), classes=("vowel", None, None)),
    )
    return Judged(candidates, np.array([1, 0, 2, 0, 1, 0]), np.array([True, True, True, True, True, False]))


def plain(*query_ids: str, columns: int = 1) -> Judged:
    """One document labelled 1 for every query."""
    features = np.ones((len(query_ids), columns))
    candidates = Candidates(features, np.arange(len(query_ids) + 1), tuple(query_ids))
    return Judged(candidates, np.ones(len(query_ids), np.int64))


def test_a_query_is_a_slice_of_rows() -> None:
    candidates = three_queries().candidates
    assert len(candidates) == 3
    assert [candidates.rows(query) for query in range(3)] == [slice(0, 2), slice(2, 3), slice(3, 6)]
    assert candidates.sizes.tolist() == [2, 1, 3]
    assert candidates.query_of_row.tolist() == [0, 0, 1, 2, 2, 2]


def test_labels_of_columns_and_documents_fall_back_to_numbers_counted_from_1() -> None:
    named, bare = three_queries().candidates, plain("x").candidates
    assert (named.feature_label(0), named.document_label(2)) == ("number", "b1")
    assert (bare.feature_label(0), bare.document_label(0)) == ("1", "1")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.arange(6.0)}, "features must be a table of rows and columns; found 1 dimension"),
        ({"features": np.full((6, 1), np.inf)}, "Row 1, column number of features is inf"),
        ({"starts": np.array([0, 2, 6])}, "starts must be 4 row numbers"),
        ({"starts": np.array([1, 2, 3, 6])}, "begin at 0"),
        ({"starts": np.array([0, 3, 2, 6])}, "never decrease"),
        ({"starts": np.array(6)}, "starts must be 4 row numbers"),
        ({"starts": np.array([0, 2, 3, 5])}, "starts ends at row 5 but there are 6 rows"),
        ({"query_ids": ("a", "b", "a"), "queries": None}, "Query 'a' appears twice"),
        ({"document_ids": ("a1",)}, "6 rows of features but 1 document ids"),
        ({"comments": ("so", "so")}, "6 rows of features but 2 comments"),
        ({"feature_names": ("one", "two")}, "1 features but 2 feature names"),
        ({"queries": QueryTable(("c", "b", "a"))}, "is not in the order of the documents; use with_queries"),
    ],
)
def test_candidates_that_contradict_themselves_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        replace(three_queries().candidates, **changes)


def test_a_bad_value_is_named_by_row_and_column_even_where_sums_overflow() -> None:
    large = np.finfo(np.float64).max
    Candidates(np.array([[large, large], [-large, -large]]), np.array([0, 2]), ("a",))
    with pytest.raises(DataError, match="Row 2, column 1 of features is nan"):
        Candidates(np.array([[large, large], [np.nan, 0.0]]), np.array([0, 2]), ("a",))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([1, 0]), "6 rows of features but 2 labels"),
        (np.array([0, 0, 0.5, 0, 0, 0]), "Row 3 has label 0.5"),
        (np.array([0, -1, 0, 0, 0, 0]), "Row 2 has label -1"),
        (np.array([0, 0, 0, 0, 0, np.nan]), "Row 6 has label nan"),
        (np.array([np.inf, 0, 0, 0, 0, 0]), "Row 1 has label inf"),
        (np.array(["good"] * 6), "one number per row; found <U4"),
        (np.zeros((6, 1)), "one number per row; found float64 of shape (6, 1)"),
    ],
)
def test_labels_are_whole_numbers_from_0_up_one_per_row(labels: Floats, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        Judged(three_queries().candidates, labels)  # type: ignore[arg-type]


def test_whole_labels_of_any_kind_become_integers() -> None:
    for labels in (np.array([2.0, 0.0]), np.array([2, 0], np.uint8), [2, 0]):
        judged = Judged(plain("x", "y").candidates, labels)  # type: ignore[arg-type]
        assert judged.labels.dtype == np.int64
        assert judged.labels.tolist() == [2, 0]


def test_an_unjudged_document_carries_label_0_and_the_mask_covers_every_row() -> None:
    candidates = plain("x", "y").candidates
    assert Judged(candidates, np.array([3, 0]), np.array([True, False])).judged is not None
    with pytest.raises(DataError, match="Row 2 is marked unjudged but carries label 3"):
        Judged(candidates, np.array([0, 3]), np.array([True, False]))
    with pytest.raises(DataError, match=re.escape("2 rows of features but the judged mask has shape (3,)")):
        Judged(candidates, np.array([0, 0]), np.ones(3, np.bool_))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": ("1", "1", "2")}, "Query '1' appears twice"),
        ({"texts": ("one",)}, "3 query ids but 1 texts"),
        ({"classes": ("one", None)}, "3 query ids but 2 classes"),
        ({"columns": np.ones((2, 1)), "column_names": ("length",)}, "3 query ids but 2 columns"),
        ({"columns": np.ones((3, 2)), "column_names": ("length",)}, "2 columns but 1 column names"),
        ({"columns": np.ones(3)}, "must be a table of rows and columns"),
        ({"columns": np.full((3, 1), np.nan), "column_names": ("length",)}, "Row 1, column 1 of QueryTable.columns"),
    ],
)
def test_a_query_table_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        replace(QueryTable(("1", "2", "3")), **changes)


def test_a_query_table_gives_its_rows_in_the_order_asked_for() -> None:
    table = QueryTable(("1", "2"), ("one", "two"), (None, "even"), np.array([[1.0], [2.0]]), ("value",))
    turned = table.select(["2", "1"])
    assert (turned.ids, turned.texts, turned.classes) == (("2", "1"), ("two", "one"), ("even", None))
    assert turned.columns is not None
    assert turned.columns.tolist() == [[2.0], [1.0]]
    with pytest.raises(DataError, match="1 of 2 queries are not in the query table, the first is '3'"):
        table.select(["1", "3"])


def test_nothing_inside_can_be_written_to_and_the_callers_arrays_stay_their_own() -> None:
    features, starts, labels, mask = np.ones((2, 1)), np.array([0, 2]), np.array([1, 0]), np.array([True, False])
    columns = np.ones((1, 1))
    table = QueryTable(("a",), columns=columns, column_names=("length",))
    judged = Judged(Candidates(features, starts, ("a",), queries=table), labels, mask)
    inside = (judged.candidates.features, judged.candidates.starts, judged.labels, judged.judged, table.columns)
    for array in inside:
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert all(array.flags.writeable for array in (features, starts, labels, mask, columns))
    with pytest.raises(FrozenInstanceError):
        judged.labels = labels  # type: ignore[misc]


def test_source_rows_cannot_be_written_to_either() -> None:
    rows = from_arrays([[1.0], [2.0], [3.0]], qid=["a", "b", "a"]).candidates.source_rows
    assert rows is not None
    assert not rows.flags.writeable


def test_select_takes_whole_queries_in_the_order_asked_for() -> None:
    chosen = three_queries().select([2, 0])
    candidates = chosen.candidates
    assert candidates.features.ravel().tolist() == [3, 4, 5, 0, 1]
    assert (candidates.query_ids, candidates.starts.tolist()) == (("c", "a"), [0, 3, 5])
    assert candidates.document_ids == ("c1", "c2", "c3", "a1", "a2")
    assert candidates.comments == tuple(f"comment {row}" for row in (3, 4, 5, 0, 1))
    assert candidates.queries is not None
    assert candidates.queries.texts == ("sea", "ay")
    assert chosen.labels.tolist() == [0, 1, 0, 1, 0]
    assert chosen.judged is not None
    assert chosen.judged.tolist() == [True, True, False, True, True]
    assert len(three_queries().select([])) == 0


@pytest.mark.parametrize("query", [-1, -2, 3])
def test_a_query_number_that_does_not_exist_brings_no_other_querys_rows(query: int) -> None:
    with pytest.raises((DataError, IndexError)):
        three_queries().select([query])


def test_a_query_cannot_be_selected_twice() -> None:
    with pytest.raises(DataError, match="Query 'a' appears twice"):
        three_queries().select([0, 0])


def test_concatenate_undoes_select() -> None:
    whole = three_queries()
    again = concatenate([whole.select([0]), whole.select([1, 2])])
    assert again.candidates.features.tolist() == whole.candidates.features.tolist()
    assert again.candidates.starts.tolist() == whole.candidates.starts.tolist()
    for name in ("query_ids", "document_ids", "comments", "feature_names"):
        assert getattr(again.candidates, name) == getattr(whole.candidates, name)
    assert again.labels.tolist() == whole.labels.tolist()
    assert again.judged is not None
    assert again.judged.tolist() == [True, True, True, True, True, False]
    assert again.candidates.queries is not None
    assert again.candidates.queries.texts == ("ay", None, "sea")


def test_where_one_part_has_all_judged_its_rows_count_as_judged() -> None:
    half = replace(plain("x", "y"), labels=np.array([1, 0]), judged=np.array([True, False]))
    assert concatenate([plain("z"), plain("w")]).judged is None
    mask = concatenate([plain("z"), half]).judged
    assert mask is not None
    assert mask.tolist() == [True, True, False]


def test_parts_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(DataError, match="no judged set was given"):
        concatenate([])
    with pytest.raises(DataError, match="Query 'x' appears twice"):
        concatenate([plain("x"), plain("x")])
    with pytest.raises(DataError, match=r"\b2\b.*\b1\b"):
        concatenate([plain("x", columns=2), plain("y", columns=1)])


def test_query_columns_of_different_names_are_not_mixed() -> None:
    def with_column(query_id: str, name: str) -> Judged:
        return plain(query_id).with_queries(QueryTable((query_id,), columns=np.ones((1, 1)), column_names=(name,)))

    with pytest.raises(DataError, match="width"):
        concatenate([with_column("x", "length"), with_column("y", "width")])


@given(st.lists(st.lists(st.integers(0, 4), max_size=8), max_size=6))
def test_pairs_are_counted_as_if_written_down(queries: list[list[int]]) -> None:
    labels = np.array([label for query in queries for label in query], dtype=np.int64)
    starts = np.cumsum([0, *map(len, queries)])
    expected = [sum(a > b for a in query for b in query) for query in queries]
    assert count_pairs(labels, starts).tolist() == expected


def test_queries_without_documents_are_allowed() -> None:
    judged = Judged(Candidates(np.ones((2, 1)), np.array([0, 0, 2, 2]), ("none", "two", "nil")), np.array([1, 0]))
    assert judged.candidates.sizes.tolist() == [0, 2, 0]
    assert judged.pairs.tolist() == [0, 1, 0]
    assert judged.select([2, 1, 0]).candidates.starts.tolist() == [0, 0, 2, 2]
    assert concatenate([judged, plain("more")]).candidates.starts.tolist() == [0, 0, 2, 2, 3]
    nothing = Judged(Candidates(np.ones((0, 1)), np.array([0]), ()), np.zeros(0, np.int64))
    assert (len(nothing), nothing.pairs.tolist()) == (0, [])


def test_other_columns_than_those_of_training_are_refused_with_both_numbers() -> None:
    candidates = plain("x", columns=3).candidates
    candidates.require_features(3, ("any", "names", "do"))
    with pytest.raises(DataError, match=r"trained on 5 features but the documents have 3\..* sparse file"):
        candidates.require_features(5)
    with pytest.raises(DataError, match=r"trained on 2 features but the documents have 3\.") as caught:
        candidates.require_features(2)
    assert "sparse" not in str(caught.value)


def test_columns_in_another_order_than_in_training_are_refused_by_name() -> None:
    candidates = replace(plain("x", columns=2).candidates, feature_names=("age", "length"))
    candidates.require_features(2, ("age", "length"))
    with pytest.raises(DataError, match="Feature 1 is 'age' but the model was trained with 'length' there"):
        candidates.require_features(2, ("length", "age"))


def test_data_without_any_preference_teaches_nothing() -> None:
    three_queries().require_preferences()
    with pytest.raises(DataError, match="None of the 2 queries has two documents with different labels"):
        plain("x", "y").require_preferences()


@pytest.mark.parametrize("rows", [0, 1, 1000, 1024, 1025, 5000])  # of 8: pieces of 8,192 numbers
@pytest.mark.parametrize("value", [LARGEST * 1.001, -LARGEST * 2, np.inf, np.nan])
def test_one_number_too_large_is_found_wherever_it_is(rows: int, value: float) -> None:
    numbers = np.random.default_rng(0).normal(size=(rows, 8))
    assert is_moderate(numbers)
    for row in {0, rows // 2, rows - 1} if rows else ():
        before, numbers[row, 3] = numbers[row, 3], value
        assert not is_moderate(numbers)
        numbers[row, 3] = before
