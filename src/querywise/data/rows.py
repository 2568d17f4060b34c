"""Rows, labels and columns as arrays: the rows of queries, their pairs, and checks.

Missing features are NaN, if the reader was told to allow them. A ranker handles them if it has a policy for them
(`missing_policy`); any other raises DataError before it computes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints, frozen
from querywise.runtime.threads import FEW_FOR_BLAS
from querywise.runtime.values import Json

_Value = TypeVar("_Value")
Missing: TypeAlias = Literal["refused", "allowed"]
ZERO, MEAN, NATIVE = "zero", "mean", "native"
_CHOICES = (
    "'mean', the mean of training with a column that marks it: querywise.rankers.wrappers.MissingValues(ranker, "
    "policy='mean'), recommended(missing='mean') or the setting missing=mean; or 'native', the side that trees learn: "
    "LambdaMART(missing='native') or the setting missing=native"
)
ALLOW = (
    f"Or keep them with missing='allowed' and choose what the model puts in their place: {_CHOICES}. On the command "
    "line the setting does both."
)

_MANY = 10_000_000  # size from which threads pay off
LARGEST = 1e120  # the largest number that rankers compute with: its square, and sums of many such, are finite


def reading_for(policy: Json) -> Missing:
    """Return whether a model with this policy accepts missing values; the policy may be the value of a setting."""
    return "allowed" if policy in (MEAN, NATIVE) else "refused"


def check_missing(missing: str) -> None:
    """Raise DataError for an unknown value of a reader's argument `missing`."""
    if missing not in ("refused", "allowed"):
        raise DataError(
            f"missing={missing!r}: expected 'refused' or 'allowed'. A model's policy says how missing values are "
            "replaced: "
            f"{_CHOICES}.",
            arguments=("missing",),
        )


def require_whole(features: Floats, names: tuple[str, ...] | None) -> None:
    """Raise DataError for missing values, listing the alternatives."""
    counts = np.isnan(features).sum(axis=0)
    having = np.flatnonzero(counts)
    if not len(having):
        return
    column, rows = int(having[0]), len(features)
    label = names[column] if names is not None else str(column + 1)
    others = f" ({len(having) - 1} more features have missing values)" if len(having) > 1 else ""
    raise DataError(
        f"Feature {label} is missing in {counts[column]} of {rows} documents{others}, and this ranker has no policy "
        f"for it. Choose one: {_CHOICES}. Or fill them first."
    )


def count_pairs(labels: Ints, starts: Ints) -> Ints:
    """Return the number of pairs (a, b) with label a above label b in each query: all pairs minus the tied ones.

    >>> count_pairs(np.array([2, 0, 1, 0, 0]), np.array([0, 3, 5]))
    array([3, 0])
    """
    sizes = np.diff(starts)
    queries = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((labels, queries))
    same = np.diff(labels[order]) == 0
    same &= np.diff(queries[order]) == 0
    first = np.flatnonzero(np.concatenate([[True], ~same])) if len(labels) else np.zeros(0, np.int64)
    lengths = np.diff(np.concatenate([first, [len(labels)]]))
    tied = np.bincount(queries[order][first], weights=lengths * (lengths - 1) / 2, minlength=len(sizes))
    pairs: Ints = sizes * (sizes - 1) // 2 - tied.astype(np.int64)
    return pairs


def require_preferences(pairs: Ints) -> None:
    """Raise DataError if no query has a pair to learn from."""
    if not np.any(pairs):
        raise DataError(
            f"None of the {len(pairs)} queries has two documents with different labels, so there is no preference "
            "to learn from. Check that the labels were read."
        )


def rows_of(starts: Ints, queries: Ints) -> Ints:
    """Return the row indices of some queries, query by query."""
    if len(queries) and not 0 <= queries.min() <= queries.max() < len(starts) - 1:
        raise DataError(
            f"Queries are numbered 0 to {len(starts) - 2}; {queries.min()} to {queries.max()} were requested."
        )
    sizes = np.diff(starts)[queries]
    ends = np.cumsum(sizes)
    rows: Ints = np.repeat(starts[queries] - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0)
    return rows


def column_of(feature: int | str, count: int, names: tuple[str, ...] | None) -> int:
    """Return the column index of a feature, given its index or its name."""
    if isinstance(feature, str):
        if names is None or feature not in names:
            known = "the features have no names; give its number" if names is None else f"there are {', '.join(names)}"
            raise DataError(f"There is no feature {feature!r}: {known}.")
        return names.index(feature)
    if not 0 <= feature < count:
        raise DataError(
            f"There is no feature {feature}: there are {count} features, numbered 0 to {count - 1} in Python and 1 "
            f"to {count} in files."
        )
    return int(feature)


def require_moderate(features: Floats, names: tuple[str, ...] | None) -> None:
    """Raise DataError for features so large that computations could overflow."""
    beyond = np.argwhere(np.abs(features) > LARGEST)
    if len(beyond):
        row, column = beyond[0]
        label = names[column] if names is not None else str(column + 1)
        raise DataError(
            f"Row {row + 1}, column {label} of the features is {features[row, column]}; rankers compute with numbers "
            f"up to {LARGEST:g}. Divide the column by a constant, or replace a number that stands for a missing one."
        )


def refuse_masked(values: ArrayLike, what: str) -> None:
    """Raise DataError for a masked array with masked values, since the numbers behind the mask mean nothing."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        place = np.argwhere(np.ma.getmaskarray(values))[0] + 1
        where = f"Row {place[0]}" + (f", column {place[1]}" if len(place) > 1 else "")
        raise DataError(f"{where} of {what} is masked, so it has no value. Fill masked values first: array.filled(0).")


def as_labels(values: ArrayLike) -> Ints:
    """Return relevance labels as integers.

    Raise DataError, naming the row, for a fraction, a negative number or NaN.
    """
    refuse_masked(values, "the labels")
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise DataError(f"Labels must be one number per row; found {array.dtype} of shape {array.shape}.")
    with np.errstate(invalid="ignore"):
        labels = array.astype(np.int64)
    wrong = np.flatnonzero((labels != array) | (labels < 0))
    if len(wrong):
        raise DataError(
            f"Row {wrong[0] + 1} has label {array[wrong[0]]}; a label is a whole number from 0 (not relevant) up."
        )
    return labels


def checked_matrix(
    values: Floats, what: str, names: tuple[str, ...] | None = None, missing: Missing = "refused"
) -> tuple[Floats, bool]:
    """Return a frozen table of finite numbers, and whether all of them are known to be moderate.

    `missing` may allow NaN. Anything else raises DataError with its row and column.
    """
    refuse_masked(values, what)
    matrix = np.ascontiguousarray(values, dtype=np.float64)
    if matrix.ndim != 2:
        raise DataError(f"{what} must be a table of rows and columns; found {matrix.ndim} dimension(s).")
    moderate = is_moderate(matrix)  # a cheap test before the exact one
    wrong = None if moderate else np.isinf(matrix) if missing == "allowed" else ~np.isfinite(matrix)
    if wrong is not None and wrong.any():
        row, column = np.argwhere(wrong)[0]
        label = names[column] if names is not None and column < len(names) else str(column + 1)
        allow = f" {ALLOW}" if np.isnan(matrix[row, column]) and what == "features" else ""
        raise DataError(
            f"Row {row + 1}, column {label} of {what} is {matrix[row, column]}; every value must be a finite number. "
            f"Fill missing values first.{allow}"
        )
    return frozen(matrix), moderate


def is_moderate(matrix: Floats) -> bool:
    """Return whether all numbers are certainly moderate: none exceeds the root of the sum of squares."""
    numbers, square = matrix.ravel(), 0.0
    # In pieces that BLAS processes without threads: for one query's few numbers, waiting for threads can take a hundred
    # times as long.
    size = FEW_FOR_BLAS if len(numbers) < _MANY else len(numbers)
    for first in range(0, len(numbers), size):
        piece = numbers[first : first + size]
        square += float(np.vdot(piece, piece))
    return square <= LARGEST**2


def query_numbers(queries: Ints | Sequence[int]) -> Ints:
    """Return query indices, given indices or a mask."""
    chosen = np.asarray(queries)
    return np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64)


def pick(values: tuple[str, ...] | None, rows: Ints) -> tuple[str, ...] | None:
    """Return the texts of some rows, if rows have texts."""
    return None if values is None else tuple(values[row] for row in rows)


def refuse_repeated(ids: tuple[str, ...]) -> None:
    """Raise DataError if two query ids are the same."""
    if len(set(ids)) != len(ids):
        raise DataError(f"Query {first_repeated(ids)!r} appears twice; every query needs a unique id.")


def join_known(parts: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Join several tuples; None if one of them is None."""
    known = [part for part in parts if part is not None]
    return tuple(value for part in known for value in part) if len(known) == len(parts) else None


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurred before, or None if all are distinct."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def is_missing(value: _Value) -> bool:
    """Return whether a value is missing: None, NaN, or pandas' NA, which has no truth value."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True
