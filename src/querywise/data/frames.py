"""Arrays and data frames (pandas, polars, Arrow) as a judged set.

Rows of a query need not be contiguous: they are grouped, and `candidates.in_source_order(scores)` restores the order of
the input.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from querywise.data.compressed import lines_of, read_packed_text
from querywise.data.judged import Candidates, Judged
from querywise.data.labels import checked_weights, labels_from
from querywise.data.parquet.arrow import CodedIds, coded_ids, document_id, query_id, values_of
from querywise.data.query_groups import Groups, groups_of_rows, listed
from querywise.data.rows import Missing, check_missing, checked_matrix, is_missing, refuse_masked
from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.values import Json

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame
    from numpy.typing import ArrayLike
    from scipy.sparse import sparray, spmatrix

Table: TypeAlias = "IntoDataFrame"  # of pandas, polars or Arrow


def from_arrays(
    X: ArrayLike | sparray | spmatrix,
    y: ArrayLike | None = None,
    *,
    qid: ArrayLike | None = None,
    group: ArrayLike | PathLike[str] | None = None,
    document_ids: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    gains: bool | Sequence[float] = False,
    weight: ArrayLike | None = None,
    query_weights: ArrayLike | Mapping[str, float] | None = None,
    query_groups: Groups | None = None,
    missing: Missing = "refused",
) -> Judged:
    """Return a judged set from a feature matrix, labels and the query of each row.

    Args:
        X: a matrix, dense or sparse, or a table of pandas, polars or Arrow, whose columns give the features their
            names.
        y: one label per row, whole numbers from 0 (not relevant) up, or as `gains` says. Without labels every document
            is unjudged; pass `.candidates` of the result to `predict`.
        qid: one query id per row, also as an array or table of one column. Rows may be in any order.
        group: instead, how many consecutive rows each query has, as in LightGBM, or the file with these sizes, one per
            line. The queries' ids are then "1", "2", and so on.
        document_ids: one text per row.
        feature_names: one text per column, instead of those of a table.
        gains: False, labels are grades, whole numbers from 0 up. True, they are real values from 0 up, such as click
            rates, which are their own gains. A table gives the gain of each whole label, like LightGBM's `label_gain`.
        weight: how much each document counts in training, one number per row, above 0.
        query_weights: how much each query counts in training, in the order in which queries first appear, or by id;
            above 0.
        query_groups: queries that folds and splits keep together, such as the wordings of one need: a text or whole
            number for every row, the same in all rows of a query, or for every query in the order in which they first
            appear, or by id. None: a query on its own.
        missing: "refused", or "allowed": X may hold NaN, which rankers with a policy for missing values take.

    Returns:
        A Judged set, its rows grouped by query; `candidates.in_source_order(scores)` has scores in the order of X.

    Raises:
        DataError: Lengths that do not match, no rows, labels below 0, neither `qid` nor `group`, a duplicate document
            in a query, as in a click log, and NaN unless allowed.

    >>> from querywise import from_arrays
    >>> data = from_arrays([[1.0], [2.0], [3.0]], [0, 1, 0], qid=["b", "a", "b"])
    >>> data.candidates.query_ids, data.candidates.features.ravel().tolist()
    (('b', 'a'), [1.0, 3.0, 2.0])
    """
    features = _matrix(X)
    ids = _query_ids(qid, group, len(features))
    if len(ids.codes) != len(features):
        raise DataError(f"X has {len(features)} rows but there are {len(ids.codes)} query ids; one per row is needed.")
    if not len(features):
        raise DataError("X has no rows; there is nothing to rank.")
    if y is None and gains is not False:
        raise DataError(
            "gains= gives the value of each label, but there are no labels: y is missing. Pass the labels as y."
        )
    labels, values = (np.zeros(len(features), np.int64), None) if y is None else labels_from(y, gains)
    if len(labels) != len(features):
        raise DataError(f"X has {len(features)} rows but y has {len(labels)} labels.")
    judged = np.zeros(len(features), np.bool_) if y is None else None
    names = _names_of(X) if feature_names is None else tuple(map(str, feature_names))
    data = _grouped(features, labels, judged, ids, document_ids, names, missing)
    return _with_groups(_with_worth(data, values, weight, query_weights), query_groups)


def from_frame(
    frame: IntoDataFrame,
    *,
    label: str | None = "label",
    qid: str = "qid",
    document: str | None = None,
    features: Sequence[str] | None = None,
    gains: bool | Sequence[float] = False,
    weight: str | None = None,
    query_group: str | None = None,
    missing: Missing = "refused",
) -> Judged:
    """Return a judged set from a pandas, polars or Arrow table.

    Args:
        frame: the table, one row per (query, document) pair, in any order.
        label: the column of labels, whole numbers from 0 (not relevant) up. A missing label means that the document is
            unjudged; None means that all are.
        qid: the column of query ids.
        document: the column of document ids, or None.
        features: the feature columns, by default every numeric column that is neither label, query id, document id,
            weight nor group.
        gains: False, labels are grades. True, they are real values from 0 up. Or the gain of each whole label; see
            `from_arrays`.
        weight: the column that says how much each document counts in training, or None.
        query_group: the column of groups of queries, which folds and splits keep together, or None; the same in all
            rows of a query.
        missing: "refused", or "allowed": features may be null or NaN, which rankers with a policy for them take.

    Returns:
        A Judged set, its rows grouped by query.

    Raises:
        DataError: A column that does not exist or is not numeric, no rows, a duplicate document in a query, as
            in a click log, and missing features unless allowed.

    >>> import pandas as pd
    >>> from querywise import from_frame
    >>> from_frame(pd.DataFrame({"qid": ["a", "a"], "label": [1, 0], "bm25": [3.0, 1.0], "length": [90, 70]}))
    Judged(1 query, 2 documents, 2 features, grades 0: 1, 1: 1)
    """
    import narwhals as nw

    try:
        table = nw.from_native(frame, eager_only=True, pass_through=False)
    except nw.exceptions.DuplicateError as error:
        name = str(error).partition("- ")[2].rpartition("'")[0]
        raise DataError(f"The table has two columns called {name}'; every column needs a unique name.") from None
    _require_texts(table.columns)
    asked = [name for name in (label, qid, document, weight, query_group, *(features or ())) if name is not None]
    absent = [name for name in asked if name not in table.columns]
    if absent:
        raise DataError(f"The table has no column {absent[0]!r}. It has: {', '.join(table.columns)}.")
    taken = {label, qid, document, weight, query_group}
    names = [
        name
        for name in table.columns
        if name not in taken and (table[name].dtype.is_numeric() or name in (features or ()))
    ]
    columns = list(features) if features is not None else names
    if not columns:
        raise DataError(f"The table has no numeric feature column beside {', '.join(asked)}.")
    for name in columns:
        if not (table[name].dtype.is_numeric() or table[name].dtype == nw.Boolean):
            raise DataError(f"Feature column {name!r} holds {table[name].dtype}, not numbers.")
    if label is not None and (table[label].dtype.is_temporal() or table[label].dtype in (nw.String, nw.Categorical)):
        raise DataError(f"Label column {label!r} holds {table[label].dtype}, not numbers from 0 (not relevant) up.")
    if not len(table):
        raise DataError("The table has no rows; there is nothing to rank.")
    matrix = np.empty((len(table), len(columns)))
    for place, name in enumerate(columns):
        matrix[:, place] = _filled(table[name].to_numpy(), name)
    judged, labels, values = np.zeros(len(table), np.bool_), np.zeros(len(table), np.int64), None
    if label is not None:
        given = _filled(table[label].to_numpy(), label)
        judged = ~np.isnan(given)
        labels, values = labels_from(np.where(judged, given, 0.0), gains)
    document_ids = None if document is None else table[document].to_native()
    marked, ids = None if judged.all() else judged, coded_ids(table[qid].to_native(), query_id)
    data = _grouped(matrix, labels, marked, ids, document_ids, tuple(columns), missing)
    data = _with_worth(data, values, None if weight is None else _filled(table[weight].to_numpy(), weight), None)
    return data if query_group is None else _with_groups(data, values_of(table[query_group].to_native()))


def _with_worth(
    data: Judged,
    gains: Floats | None,
    weight: ArrayLike | None,
    query_weights: ArrayLike | Mapping[str, float] | None,
) -> Judged:
    """Return the data with gains and weights; document weights are given in the order of the input."""
    if weight is not None:
        weight, order = checked_weights(weight, len(data.labels), "document"), data.candidates.source_rows
        weight = weight if order is None else weight[order]
    known = data if gains is None else replace(data, gains=gains)
    return known if weight is None and query_weights is None else known.with_weights(query_weights, weight)


def _with_groups(data: Judged, groups: Groups | None) -> Judged:
    """Return the data with groups of queries, given by id, one per query, or one per row in the order of the input."""
    if groups is None or isinstance(groups, Mapping):
        return data if groups is None else data.with_groups(groups)
    given = listed(groups)
    rows, order = len(data.labels), data.candidates.source_rows
    if len(given) == rows:
        by_row = given if order is None else [given[row] for row in order.tolist()]
        return data.with_groups(groups_of_rows(by_row, data.candidates.starts, data.query_ids))
    if len(given) != len(data):
        raise DataError(
            f"There are {rows} rows of {len(data)} queries but {len(given)} query groups; give one per row, or one per "
            "query."
        )
    return data.with_groups(given)


def _query_ids(qid: ArrayLike | None, group: ArrayLike | PathLike[str] | None, rows: int) -> CodedIds:
    """Return the query id of every row, from exactly one of the two arguments."""
    if qid is not None and group is not None:
        raise DataError(
            "Both qid= and group= were given. Give one: an id for every row, or the number of rows of each."
        )
    if group is not None:
        return coded_ids(ids_from_groups(group, rows), query_id)
    if qid is None:
        raise DataError(
            "Which rows belong to which query? Give qid=, a query id for every row, or group=, how many "
            "consecutive rows each query has."
        )
    return coded_ids(_column(qid), query_id)


def _column(qid: Any) -> Any:
    """Return query ids as a flat sequence; they may be given as an array or table with one column."""
    shape: tuple[int, ...] = tuple(getattr(qid, "shape", ()))
    if len(shape) < 2:
        return qid
    if len(shape) > 2 or shape[1] != 1:
        raise DataError(f"qid must be one query id per row; found a {type(qid).__name__} of shape {shape}.")
    return np.asarray(qid)[:, 0]


def is_table(thing: Table | Candidates | Judged | ArrayLike) -> bool:
    """Return whether `from_frame` could read an object."""
    import narwhals as nw

    return nw.dependencies.is_into_dataframe(thing)


def rows_of_table(table: Table) -> Sequence[Mapping[str, Json]]:
    """Return the rows of a data frame with unconverted cells."""
    import narwhals as nw

    found: list[dict[str, Any]] = nw.from_native(table, eager_only=True).rows(named=True)
    return found


def candidates_of(frame: Table, names: tuple[str, ...] | None = None, missing: Missing = "refused") -> Candidates:
    """Return the documents of a table as `from_frame` reads them, ignoring its labels.

    Args:
        frame: the table.
        names: the feature columns, in this order; None means every numeric column except label and query id.
        missing: whether features may be missing.
    """
    import narwhals as nw

    table = nw.from_native(frame, eager_only=True)
    _require_texts(table.columns)
    if "qid" not in table.columns:
        raise DataError(
            f"The table has no column 'qid'. It has: {', '.join(table.columns)}. If another column has the query of "
            "every row, from_frame(table, qid='…', label=None).candidates reads it."
        )
    if names is None:
        names = tuple(each for each in table.columns if each not in ("label", "qid") and table[each].dtype.is_numeric())
    return from_frame(frame, label=None, features=names, missing=missing).candidates


def _grouped(
    features: Floats,
    labels: Ints,
    judged: Bools | None,
    queries: CodedIds,
    document_ids: Any,
    names: tuple[str, ...] | None,
    allowed: Missing,
) -> Judged:
    """Group the rows by query: queries in order of first appearance, rows in the order of the input."""
    if document_ids is not None and len(document_ids) != len(labels):
        raise DataError(f"There are {len(labels)} rows but {len(document_ids)} document ids.")
    documents = None if document_ids is None else coded_ids(document_ids, document_id)
    if documents is not None and (judged is None or judged.any()):
        _refuse_repeats(queries, documents)
    check_missing(allowed)
    # checked here, so that messages name the rows of the input
    features = checked_matrix(features, "features", names, allowed)[0]
    rows = np.argsort(queries.codes, kind="stable")
    grouped = bool(np.all(rows[1:] > rows[:-1]))
    candidates = Candidates(
        features=features if grouped else features[rows],
        starts=np.concatenate([[0], np.cumsum(np.bincount(queries.codes))]),
        query_ids=queries.names,
        document_ids=None
        if documents is None
        else tuple(documents.names[row] for row in documents.codes[rows].tolist()),
        feature_names=names,
        source_rows=None if grouped else rows,
        missing=allowed,
    )
    return Judged(candidates, labels[rows], None if judged is None else judged[rows])


def _refuse_repeats(queries: CodedIds, documents: CodedIds) -> None:
    """Raise DataError if labeled rows repeat a document within a query, as in a click log with a row per impression."""
    pairs = queries.codes * len(documents.names) + documents.codes
    found, first, times = np.unique(pairs, return_index=True, return_counts=True)
    if len(found) == len(pairs):
        return
    row = first[times == times.max()].min()
    query, document = queries.names[queries.codes[row]], documents.names[documents.codes[row]]
    raise DataError(
        f"Query {query!r} has the document {document!r} {times.max()} times, and {len(pairs):,} rows have "
        f"{len(found):,} pairs of query and document. This looks like a click log, a row per impression; expected one "
        "row per query and document. Merge the rows of each pair first, with one label for all its clicks: "
        'docs/data.md, "Click logs", shows how.'
    )


def _matrix(X: ArrayLike | sparray | spmatrix) -> Floats:
    dense: Any = X.toarray() if hasattr(X, "toarray") else X
    refuse_masked(dense, "X")
    try:
        given = np.asarray(dense)
        objects = given.ravel().tolist() if given.dtype == object else []
        if given.dtype.kind not in "biufO" or any(isinstance(each, (str, bytes)) for each in objects):
            raise DataError(f"X must be a table of numbers; found {given.dtype}.")
        matrix = given.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"X cannot be read as a table of numbers: {error}.") from None
    if matrix.ndim != 2:
        raise DataError(f"X must be a table of rows and columns; found {matrix.ndim} dimension(s).")
    return matrix


def _names_of(X: Any) -> tuple[str, ...] | None:
    """Return the names of a table's columns if they are texts; None for a matrix."""
    found = X.columns if hasattr(X, "columns") else getattr(X, "column_names", ())
    names = tuple(each for each in found if isinstance(each, str))
    if not names or len(names) < len(found):
        return None
    taken = next((each for each in names if each in ("qid", "label")), None)
    if taken is not None:
        raise DataError(
            f"X has a column {taken!r}, which is not a feature. Read such a table with from_frame(X), or drop the "
            "column."
        )
    return names


def _require_texts(columns: Sequence[Any]) -> None:
    """Raise DataError if the columns of a table have names that are not texts."""
    odd = next((each for each in columns if not isinstance(each, str)), None)
    if odd is not None:
        raise DataError(
            f"The table has a column called {odd!r}; expected strings as names: "
            "table.columns = table.columns.map(str), or from_arrays(X, y, qid=…) for a matrix."
        )


def _filled(values: np.ndarray[Any, Any], name: str) -> Floats:
    """Return numbers as floats, with NaN for missing ones."""
    try:
        if values.dtype == object:
            return np.array([np.nan if is_missing(value) else float(value) for value in values.tolist()])
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"Column {name!r} does not hold numbers: {error}.") from None


def ids_from_groups(group: ArrayLike | os.PathLike[str], rows: int) -> list[str]:
    """Return a query id for every row: "1" for the rows of the first group, "2" for those of the second, and so on.

    `group` holds the sizes, or is the path of a file with one size per line.

    >>> ids_from_groups([2, 1], 3)
    ['1', '1', '2']
    """
    sizes = read_groups(group) if isinstance(group, (str, os.PathLike)) else _sizes(group)
    if sizes.sum() != rows:
        raise DataError(
            f"X has {rows} rows but the {len(sizes)} group sizes add up to {sizes.sum()}. group= is how many rows each "
            "query has, in the order of the rows; an id for every row is qid=."
        )
    return [str(number) for number in np.repeat(np.arange(1, len(sizes) + 1), sizes).tolist()]


def read_groups(path: str | os.PathLike[str]) -> Ints:
    """Read the group sizes in a file, one per line, as in LightGBM's `train.query` and `train.group` files."""
    sizes = []
    for number, line in lines_of(read_packed_text(Path(path))):
        word = line.strip()
        if not re.fullmatch(r"[0-9]{1,15}", word) or not int(word):
            raise DataError(f"{path}:{number}: expected a group size, a whole number from 1 up; found {line[:80]!r}.")
        sizes.append(int(word))
    return np.array(sizes, np.int64)


def _sizes(group: ArrayLike) -> Ints:
    refuse_masked(group, "group")
    given = np.asarray(group)
    if given.ndim != 1 or given.dtype.kind not in "iuf":
        raise DataError(f"group must be one whole number per query; found {given.dtype} of shape {given.shape}.")
    with np.errstate(invalid="ignore"):
        sizes = given.astype(np.int64)
    wrong = np.flatnonzero((sizes != given) | (sizes < 1))
    if len(wrong):
        raise DataError(
            f"Group {wrong[0] + 1} has size {given[wrong[0]]}; a group size is a whole number from 1 up. Leave out "
            "queries without rows."
        )
    return sizes
