"""The `queries.jsonl` side file: what is known of each query beside its documents.

One JSON object per line: `_id`, and any of `text`, `class` and `columns` (a mapping from name to number).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from querywise.arrays import Floats
from querywise.data.groups import QueryTable
from querywise.data.letor import PathLike
from querywise.errors import DataError
from querywise.files import read_text


def read_queries(path: PathLike) -> QueryTable:
    """Read a `queries.jsonl` file."""
    records: dict[str, tuple[int, dict[str, Any]]] = {}
    for number, line in enumerate(read_text(Path(path)).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        record = _record(line, where)
        query_id = str(record["_id"])
        if query_id in records:
            raise DataError(f"{where}: query {query_id!r} already stands on line {records[query_id][0]}.")
        records[query_id] = (number, record)
    if not records:
        raise DataError(f'{path}: the file holds no query. Expected lines like {{"_id": "7", "text": "jaguar"}}.')
    lines = list(records.values())
    names, columns = _columns(str(path), lines)
    return QueryTable(
        ids=tuple(records),
        texts=_strings(str(path), lines, "text"),
        classes=_strings(str(path), lines, "class"),
        columns=columns,
        column_names=names,
    )


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: this is not JSON ({error.msg} at character {error.pos + 1}).") from None
    except ValueError as error:
        raise DataError(f"{where}: this holds a number that cannot be read ({error}).") from None
    except RecursionError:
        raise DataError(f"{where}: this JSON is nested too deeply to be a query.") from None
    if not isinstance(record, dict) or type(record.get("_id")) not in (str, int):
        raise DataError(f'{where}: expected an object with an "_id", for example {{"_id": "7", "text": "jaguar"}}.')
    return record


def _strings(path: str, lines: Sequence[tuple[int, dict[str, Any]]], key: str) -> tuple[str | None, ...] | None:
    for number, record in lines:
        if not isinstance(record.get(key), (str, type(None))):
            raise DataError(f'{path}:{number}: "{key}" must be text; found {record[key]!r}.')
    values = tuple(record.get(key) for _, record in lines)
    return None if all(value is None for value in values) else values


def _columns(path: str, lines: Sequence[tuple[int, dict[str, Any]]]) -> tuple[tuple[str, ...], Floats | None]:
    if not any("columns" in record for _, record in lines):
        return (), None
    names: tuple[str, ...] | None = None
    rows: list[list[float]] = []
    for number, record in lines:
        given = record.get("columns")
        if not isinstance(given, dict):
            raise DataError(f'{path}:{number}: "columns" must map names to numbers, and every query must have them.')
        names = tuple(given) if names is None else names
        if set(given) != set(names):
            raise DataError(
                f"{path}:{number}: the columns are {sorted(given)}; line {lines[0][0]} has {sorted(names)}."
            )
        for name, value in given.items():
            if not _is_finite_number(value):
                raise DataError(f"{path}:{number}: column {name!r} is {value!r}, not a finite number.")
        rows.append([float(given[name]) for name in names])
    return names or (), np.array(rows, dtype=np.float64).reshape(len(rows), -1)


def _is_finite_number(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number larger than any double
        return False
