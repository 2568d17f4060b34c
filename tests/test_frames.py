from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csr_array, csr_matrix

from querywise.data.frames import from_arrays, from_frame
from querywise.data.judged import Judged
from querywise.data.parquet.tables import read_parquet
from querywise.errors import DataError
from querywise.learners.ranksvm.ranksvm import RankSVM
from tests.support.pages import BLOCK, printed_by

Columns = Mapping[str, list[Any]]
KINDS: list[Callable[[Columns], Any]] = [pd.DataFrame, pl.DataFrame, pa.table]
every_kind_of_table = pytest.mark.parametrize("table", KINDS, ids=["pandas", "polars", "pyarrow"])

# Rows 1 and 3 belong to query b, row 2 to a; nobody judged row 3.
SCATTERED: Columns = {
    "qid": ["b", "a", "b"],
    "label": [2, 0, None],
    "clicks": [1, 2, 3],
    "price": [0.5, 1.5, 2.5],
    "title": ["x", "y", "z"],
}


def test_scattered_rows_are_brought_together_queries_in_order_of_appearance() -> None:
    data = from_arrays([[1.0], [2.0], [3.0], [4.0]], [1, 2, 3, 4], qid=["b", "a", "b", "a"], document_ids="wxyz")
    candidates = data.candidates
    assert (candidates.query_ids, candidates.starts.tolist()) == (("b", "a"), [0, 2, 4])
    assert candidates.features.ravel().tolist() == [1, 3, 2, 4]
    assert data.labels.tolist() == [1, 3, 2, 4]
    assert candidates.document_ids == ("w", "y", "x", "z")


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_scores_go_back_to_the_order_of_the_input(qid: list[int]) -> None:
    row_numbers = np.arange(float(len(qid)))
    candidates = from_arrays(row_numbers[:, None], qid=qid).candidates
    assert candidates.in_source_order(candidates.features[:, 0]).tolist() == row_numbers.tolist()
    assert [int(candidates.query_ids[query]) for query in candidates.query_of_row] == [
        qid[int(row)] for row in candidates.features[:, 0]
    ]


def test_rows_that_stand_together_stay_where_they_are() -> None:
    candidates = from_arrays([[1.0], [2.0], [3.0]], qid=["b", "b", "a"]).candidates
    assert candidates.source_rows is None
    assert candidates.in_source_order(np.array([7.0, 8.0, 9.0])).tolist() == [7, 8, 9]


def test_the_callers_arrays_are_left_alone() -> None:
    X, y, qid = np.array([[1.0], [2.0], [3.0]]), np.array([1, 0, 2]), np.array([1, 2, 1])
    from_arrays(X, y, qid=qid)
    assert (X.ravel().tolist(), y.tolist(), qid.tolist()) == ([1, 2, 3], [1, 0, 2], [1, 2, 1])
    assert X.flags.writeable
    assert y.flags.writeable


@pytest.mark.parametrize("kind", [csr_matrix, csr_array, coo_array])
def test_a_sparse_matrix_is_its_dense_table(kind: Callable[[Any], Any]) -> None:
    dense = np.array([[0.0, 1.0], [2.0, 0.0]])
    assert from_arrays(kind(dense), [1, 0], qid=[1, 1]).candidates.features.tolist() == dense.tolist()


def test_without_labels_nobody_judged_anything() -> None:
    data = from_arrays([[1.0], [2.0]], qid=[1, 1])
    assert data.labels.tolist() == [0, 0]
    assert data.judged is not None
    assert data.judged.tolist() == [False, False]


@pytest.mark.parametrize(
    ("qid", "query_ids"),
    [
        ([7, 8], ("7", "8")),
        ([7.0, 8.5], ("7", "8.5")),
        (["07", "é"], ("07", "é")),
        (np.array([2**62 + 1, 2**62]), (str(2**62 + 1), str(2**62))),
        (pd.Series([7, 8]), ("7", "8")),
        (pd.Series(["a", "b"], dtype="category"), ("a", "b")),
        (pl.Series(["a", "b"]), ("a", "b")),
        (np.array([b"a", b"\xc3\xa9"]), ("a", "é")),
    ],
)
def test_query_ids_of_any_kind_become_texts(qid: ArrayLike, query_ids: tuple[str, ...]) -> None:
    assert from_arrays([[1.0], [2.0]], qid=qid).candidates.query_ids == query_ids


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": [1.0, 2.0, 3.0]}, "X must be a table of rows and columns; found 1 dimension"),
        ({"X": [["high"], ["low"], ["mid"]]}, "X cannot be read as a table of numbers"),
        ({"X": [[1.0], [2.0, 3.0], [4.0]]}, "X cannot be read as a table of numbers"),
        ({"X": np.zeros((0, 2)), "y": [], "qid": []}, "X has no rows"),
        ({"qid": ["a", "b"]}, r"X has 3 rows but there are 2 query ids"),
        ({"qid": "a"}, r"X has 3 rows but there are 1 query ids"),
        ({"qid": ["a", None, "a"]}, "Row 2 has no query id"),
        ({"qid": [1.0, 2.0, float("nan")]}, "Row 3 has no query id"),
        ({"qid": ["a", float("nan"), "a"]}, "Row 2 has no query id"),
        ({"qid": pd.array(["a", "b", None], dtype="string")}, "Row 3 has no query id"),
        ({"y": [1, 0]}, "X has 3 rows but y has 2 labels"),
        ({"y": [1, 0, 0.5]}, "Row 3 has label 0.5"),
        ({"y": ["good", "bad", "bad"]}, "Labels must be one number per row"),
        ({"document_ids": ["D1"]}, "3 rows but 1 document ids"),
        ({"feature_names": ["one", "two"]}, "1 features but 2 feature names"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"X": [[1.0], [2.0], [3.0]], "y": [1, 0, 0], "qid": ["a", "b", "a"]}
    with pytest.raises(DataError, match=message):
        from_arrays(**{**arguments, **changes})


def test_a_missing_value_is_named_by_the_row_and_column_of_the_input() -> None:
    X = [[1.0, 1.0], [2.0, 2.0], [3.0, np.nan], [4.0, 4.0]]
    with pytest.raises(DataError, match="Row 3, column 2 of features is nan"):
        from_arrays(X, qid=["a", "a", "a", "b"])
    with pytest.raises(DataError, match="Row 3, column price of features is nan"):
        from_arrays(X, qid=["a", "a", "a", "b"], feature_names=["clicks", "price"])
    with pytest.raises(DataError, match="Row 3, column 2 of features is nan"):
        from_arrays(X, qid=["a", "b", "a", "b"])


def as_lists(data: Judged) -> tuple[Any, ...]:
    candidates = data.candidates
    judged = None if data.judged is None else data.judged.tolist()
    return (
        candidates.features.tolist(),
        candidates.starts.tolist(),
        candidates.query_ids,
        candidates.document_ids,
        candidates.feature_names,
        data.labels.tolist(),
        judged,
    )


@every_kind_of_table
def test_every_kind_of_table_gives_the_same_set(table: Callable[[Columns], Any]) -> None:
    """Numeric columns are the features, texts are left out, and a missing label means unjudged."""
    data = from_frame(table(SCATTERED), document="title")
    assert as_lists(data) == (
        [[1, 0.5], [3, 2.5], [2, 1.5]],
        [0, 2, 3],
        ("b", "a"),
        ("x", "z", "y"),
        ("clicks", "price"),
        [2, 0, 0],
        [True, False, True],
    )
    assert data.candidates.in_source_order(data.candidates.features[:, 0]).tolist() == [1, 2, 3]


@every_kind_of_table
def test_the_columns_can_be_named(table: Callable[[Columns], Any]) -> None:
    renamed = table({"query": SCATTERED["qid"], "grade": [2, 0, 1], "a": [1, 2, 3], "b": [True, False, True]})
    data = from_frame(renamed, label="grade", qid="query", features=["b", "a"])
    assert data.candidates.feature_names == ("b", "a")
    assert data.candidates.features.tolist() == [[1, 1], [1, 3], [0, 2]]
    assert data.judged is None
    unjudged = from_frame(renamed, label=None, qid="query", features=["a"])
    assert unjudged.judged is not None
    assert unjudged.judged.tolist() == [False, False, False]


@every_kind_of_table
@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"qid": "query"}, "no column 'query'. It has: qid, label, clicks, price, title"),
        ({}, {"label": "grade"}, "no column 'grade'. It has: qid, label, clicks, price, title"),
        ({}, {"features": ["clicks", "length"]}, "no column 'length'. It has: qid, label, clicks, price, title"),
        ({}, {"features": ["title"]}, "Feature column 'title' holds String, not numbers"),
        ({"clicks": ["p", "q", "r"], "price": ["p", "q", "r"]}, {}, "no numeric feature column beside label, qid"),
        ({"price": [0.5, 1.5, None]}, {}, "Row 3, column price of features is nan"),
        ({"price": [0.5, float("inf"), 1.5]}, {}, "Row 2, column price of features is inf"),
        ({"label": [1.0, 0.0, 0.5]}, {}, "Row 3 has label 0.5"),
        ({"label": [1, -1, None]}, {}, "Row 2 has label -1"),
        ({"label": ["good", "bad", "bad"]}, {}, "label"),
        ({"qid": ["b", None, "b"]}, {}, "Row 2 has no query id"),
        ({"qid": [7, None, 7]}, {}, "Row 2 has no query id"),
    ],
)
def test_a_table_that_says_too_little_is_refused(
    table: Callable[[Columns], Any], changes: dict[str, list[Any]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        from_frame(table({**SCATTERED, **changes}), **options)


@every_kind_of_table
def test_a_table_without_rows_is_refused_as_arrays_are(table: Callable[[Columns], Any]) -> None:
    with pytest.raises(DataError, match="no rows"):
        from_frame(table({"qid": ["a"], "label": [1], "price": [1.0]})[:0])


@pytest.mark.parametrize(
    ("qid", "query_ids"),
    [
        (pd.Series([20, 10, 20]), ("20", "10")),
        (pd.Series([20.0, 10.0, 20.0]), ("20", "10")),
        (pd.Series(["q20", "q10", "q20"]), ("q20", "q10")),
        (pd.Series([20, 10, 20], dtype="Int64"), ("20", "10")),
        (pd.Series(["q20", "q10", "q20"], dtype="string"), ("q20", "q10")),
        (pd.Series(["q20", "q10", "q20"], dtype="category"), ("q20", "q10")),
    ],
)
def test_pandas_query_ids_may_be_whole_numbers_floats_or_texts(qid: Any, query_ids: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"qid": qid.array, "label": [1, 0, 0], "price": [1.0, 2.0, 3.0]}, index=[9, 5, 7])
    data = from_frame(frame)
    assert data.candidates.query_ids == query_ids
    assert data.candidates.features.ravel().tolist() == [1, 3, 2]


@pytest.mark.parametrize("kind", ["Int64", "string"])
def test_a_missing_query_id_in_a_pandas_column_of_its_own_kind_is_refused(kind: str) -> None:
    qid = pd.array([7, None] if kind == "Int64" else ["a", None], dtype=kind)
    with pytest.raises(DataError, match="Row 2 has no query id"):
        from_frame(pd.DataFrame({"qid": qid, "label": [1, 0], "price": [1.0, 2.0]}))


def test_missing_labels_in_a_pandas_column_of_integers_mean_unjudged() -> None:
    label = pd.array([3, None], dtype="Int64")
    data = from_frame(pd.DataFrame({"qid": [1, 1], "label": label, "price": [1.0, 2.0]}))
    assert data.labels.tolist() == [3, 0]
    assert data.judged is not None
    assert data.judged.tolist() == [True, False]


def test_the_columns_of_a_table_name_the_features_of_an_array() -> None:
    X, y, qid = [[1.0, 2.0], [3.0, 4.0]], [0, 1], [1, 1]
    tables = [pd.DataFrame(X, columns=["a", "b"]), pl.DataFrame(X, schema=["a", "b"], orient="row")]
    for table in tables:
        data = from_arrays(table, y, qid=qid)
        assert data.candidates.feature_names == ("a", "b")
        assert data.candidates.features.tolist() == X
        assert from_arrays(table, y, qid=qid, feature_names=["c", "d"]).candidates.feature_names == ("c", "d")
    assert from_arrays(pd.DataFrame(X), y, qid=qid).candidates.feature_names is None, "columns by number have no names"
    with pytest.raises(
        DataError, match=r"X has a column 'qid', which is not a feature\. Read such a table with from_frame\(X\)"
    ):
        from_arrays(pd.DataFrame(X, columns=["qid", "b"]), y, qid=qid)


def test_columns_by_number_are_refused_with_what_to_do() -> None:
    numbered = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]]).assign(qid=1, label=[0, 1])
    with pytest.raises(DataError, match=r"a column called 0; expected strings as names: table\.columns = "):
        from_frame(numbered)
    ranker = RankSVM().fit(from_arrays([[1.0, 2.0], [3.0, 4.0]], [0, 1], qid=[1, 1]))
    with pytest.raises(DataError, match="a column called 0; expected strings as names"):
        ranker.predict(numbered)


def test_values_of_labels_without_labels_are_refused() -> None:
    with pytest.raises(DataError, match="gains= gives the value of each label, but there are no labels"):
        from_arrays([[1.0]], qid=[1], gains=[0.3])


def test_a_judged_set_shows_the_values_that_its_labels_stand_for() -> None:
    data = from_arrays([[1.0], [2.0], [3.0]], [0.0, 0.3, 0.3], qid=[1, 1, 1], gains=True)
    assert "values 0: 1, 0.3: 2" in repr(data)
    assert "values" in data._repr_html_()


IDS = ["b", "a", "b", "7"]


@pytest.mark.parametrize(
    "qid",
    [
        np.array(IDS)[:, None],
        np.array(IDS, object)[:, None],
        pd.DataFrame({"query": IDS}),
        pd.DataFrame({"query": pd.array(IDS, "string")}),
        pd.Series(IDS, index=[3, 2, 1, 0]),
        pl.DataFrame({"query": IDS}),
        pl.Series(IDS),
        pa.table({"query": IDS}),
    ],
    ids=["column", "objects", "pandas", "pandas string", "pandas series", "polars", "polars series", "Arrow"],
)
def test_query_ids_in_one_column_are_the_ids(qid: Any) -> None:
    assert from_arrays(np.eye(4), qid=qid).query_ids == ("b", "a", "7")


def test_numbers_in_one_column_are_ids_as_in_a_row() -> None:
    for qid in (np.array([[3], [3], [1]]), np.array([[3.0], [3.0], [1.0]]), pd.DataFrame({"q": [3, 3, 1]})):
        assert from_arrays(np.eye(3), qid=qid).query_ids == ("3", "1")


@pytest.mark.parametrize(
    ("qid", "said"),
    [
        (np.zeros((3, 2)), r"one query id per row; found a ndarray of shape \(3, 2\)"),
        (np.zeros((3, 1, 1)), r"found a ndarray of shape \(3, 1, 1\)"),
        (pd.DataFrame({"a": [1, 1, 1], "b": [1, 1, 1]}), r"found a DataFrame of shape \(3, 2\)"),
        ([[0], [0], [1]], r"Row 1 has the query id \[0\]; expected one text or number per row"),
        ([np.array([0]), np.array([1]), np.array([1])], r"Row 1 has the query id \[0\]"),
        (pd.DataFrame({"a": ["x", None, "y"]}), "Row 2 has no query id"),
        (np.array([[1.0], [np.nan], [1.0]]), "Row 2 has no query id"),
    ],
)
def test_query_ids_that_are_not_one_per_row_are_refused(qid: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        from_arrays(np.eye(3), qid=qid)


def click_log() -> dict[str, list[Any]]:
    """A row per impression: D1 is shown three times for q1, and once for q2."""
    return {
        "qid": ["q1", "q1", "q2", "q1", "q1"],
        "docid": ["D1", "D2", "D1", "D1", "D1"],
        "bm25": [3.0, 2.0, 1.0, 3.0, 3.0],
        "label": [1, 0, 0, 0, 1],
    }


def test_a_click_log_is_refused_with_what_it_looks_like_and_where_to_go(tmp_path: Path) -> None:
    log = click_log()
    said = (
        r"Query 'q1' has the document 'D1' 3 times, and 5 rows have 3 pairs of query and document\. This looks like a "
        r'click log, a row per impression; expected one row per query and document\. .*docs/data\.md, "Click logs"'
    )
    for frame in (pd.DataFrame(log), pl.DataFrame(log), pa.table(log)):
        with pytest.raises(DataError, match=f"^{said}"):
            from_frame(frame, document="docid")
    rows: Any = log["docid"]
    with pytest.raises(DataError, match=f"^{said}"):
        from_arrays(np.array(log["bm25"])[:, None], log["label"], qid=log["qid"], document_ids=rows)
    pq.write_table(pa.table(log), tmp_path / "log.parquet")
    with pytest.raises(DataError, match=rf"log\.parquet: {said}"):
        read_parquet(tmp_path / "log.parquet")
    page = (Path(__file__).parent.parent / "docs" / "data.md").read_text().partition("### Click logs")[2]
    _, code, shown = BLOCK.findall(page)[0]
    assert printed_by(code, "docs/data.md", {}) == shown


def test_repeated_rows_are_taken_where_no_document_has_an_id_or_nothing_is_judged() -> None:
    log = pd.DataFrame(click_log())
    assert from_frame(log).candidates.sizes.tolist() == [4, 1]
    assert from_frame(log, label=None, document="docid").candidates.sizes.tolist() == [4, 1]
    other = log.assign(docid=["D1", "D2", "D1", "D3", "D4"])
    assert from_frame(other, document="docid").candidates.sizes.tolist() == [4, 1]
