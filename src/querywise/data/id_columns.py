"""Columns of ids, coded: a number for every row, and the distinct ids once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from querywise.data.parquet.arrow import Arrow, distinct_values
from querywise.errors import DataError
from querywise.runtime.arrays import Ints


class CodedIds(NamedTuple):
    """The number of every row's id, and the ids, in the order of their first rows."""

    codes: Ints
    names: tuple[str, ...]

    def in_order(self, rows: Ints) -> tuple[str, ...]:
        """The ids of these rows."""
        return tuple([self.names[code] for code in self.codes[rows].tolist()])


def coded_ids(column: Arrow, text: Callable[[Arrow, int], str]) -> CodedIds:
    """The ids of a column: an Arrow column, an array or anything with an item per row.

    text: what an id is as text, given the number of its row, from 1 on; raises DataError if it is none.
    """
    found: dict[str, int] = {}
    parts = distinct_values(column)
    if parts is None:
        every = [found.setdefault(text(each, row), len(found)) for row, each in enumerate(_items(column), 1)]
        return CodedIds(np.array(every, np.int64), tuple(found))
    codes, row = [np.zeros(0, np.int64)], 1
    for numbers, values in parts:
        used, first = np.unique(numbers, return_index=True)
        known = np.zeros(len(values) + 1, np.int64)  # its last entry is that of −1, a null
        for place in np.argsort(first).tolist():
            number = int(used[place])
            name = text(None if number < 0 else values[number], row + int(first[place]))
            known[number] = found.setdefault(name, len(found))
        codes.append(known[numbers])
        row += len(numbers)
    return CodedIds(np.concatenate(codes), tuple(found))


def values_of(column: Arrow) -> list[Arrow]:
    """The value of every row; equal ones of an Arrow column are the same object."""
    parts = distinct_values(column)
    if parts is None:
        return _items(column)
    return [values[number] if number >= 0 else None for numbers, values in parts for number in numbers.tolist()]


def query_id(value: Arrow, row: int) -> str:
    """A query id as text: 7 and 7.0 are both "7"."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if is_missing(value):
        raise DataError(f"Row {row} has no query id; every row needs one.")
    if isinstance(value, (list, dict)):
        raise DataError(f"Row {row} has the query id {value!r}; expected one text or number per row.")
    whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def document_id(value: Arrow, row: int) -> str:
    """A document id as text."""
    if is_missing(value):
        raise DataError(f"Row {row} has no document id; give every row one, or leave the ids out.")
    return str(value)


def is_missing(value: Arrow) -> bool:
    """Whether it stands for no value: None, NaN, and pandas' NA, which has no truth value."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True


def _items(column: Any) -> list[Any]:
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    return values if isinstance(values, list) else [values]
