"""The `queries.jsonl` side file: query-level data.

One JSON object per line: `_id`, and any of `text`, `class`, `group` (text or a whole number), `columns` (a mapping from
name to number) and `vector` (a list of numbers).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeGuard

import numpy as np

from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.runtime.files import PathLike, atomic_text, read_text
from querywise.runtime.values import Json, JsonObject


def read_queries(path: PathLike, *, text: str | None = None) -> QueryTable:
    """Read a `queries.jsonl` file; `text` is its content, where it has been read."""
    found = read_text(Path(path)) if text is None else text
    return _table(path, enumerate(found.split("\n"), start=1))


def read_queries_of(path: PathLike, ids: tuple[str, ...], *, first: int = 0) -> QueryTable:
    """The file's data of some queries.

    They are looked for after its first `first` lines, where `write_queries` leaves the queries of one shard, so that a
    long file need not be parsed for a few of them; if they are not there, in all of it.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            table = _table(path, enumerate(islice(file, first, first + len(ids)), start=first + 1))
        if table.ids == ids:
            return table
    except (DataError, OSError, UnicodeDecodeError):
        pass  # reading all of it reports what is wrong, and where
    return read_queries(path).select(ids)


def _table(path: PathLike, numbered: Iterable[tuple[int, str]]) -> QueryTable:
    records: dict[str, tuple[int, JsonObject]] = {}
    for number, line in numbered:
        if not line.strip():
            continue
        where = f"{path}:{number}"
        record = read_record(line, where, example='{"_id": "7", "text": "jaguar"}')
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
        vectors=_vectors(str(path), lines),
        groups=_strings(str(path), lines, "group", numbers=True),
    )


def write_queries(path: PathLike, table: QueryTable) -> None:
    """Write a table so that `read_queries` gives it back."""
    with atomic_text(Path(path)) as out:
        for row, query_id in enumerate(table.ids):
            record: JsonObject = {"_id": query_id}
            if table.texts is not None and table.texts[row] is not None:
                record["text"] = table.texts[row]
            if table.classes is not None and table.classes[row] is not None:
                record["class"] = table.classes[row]
            if table.groups is not None and table.groups[row] is not None:
                record["group"] = table.groups[row]
            if table.columns is not None:
                record["columns"] = dict(zip(table.column_names, table.columns[row].tolist(), strict=True))
            if table.vectors is not None:
                record["vector"] = table.vectors[row].tolist()
            out.write(json_line(record))


def json_line(record: Mapping[str, Json]) -> str:
    """One line of JSON; half a surrogate pair, which UTF-8 cannot hold, stays an escape."""
    line = json.dumps(record, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        line = json.dumps(record)
    return line + "\n"


def read_record(line: str, where: str, *, example: str) -> JsonObject:
    """One line of JSON with an `_id`."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: this is not JSON ({error.msg} at character {error.pos + 1}).") from None
    except ValueError as error:
        raise DataError(f"{where}: this holds a number that cannot be read ({error}).") from None
    except RecursionError:
        raise DataError(f"{where}: this JSON is nested too deeply to be a record.") from None
    if not isinstance(record, dict) or type(record.get("_id")) not in (str, int):
        raise DataError(f'{where}: expected an object with an "_id", for example {example}.')
    if not str(record["_id"]).strip():
        raise DataError(f'{where}: the "_id" is empty.')
    if not str(record["_id"]).isprintable():
        raise DataError(f'{where}: the "_id" {record["_id"]!r:.60} has characters in it that cannot be printed.')
    return record


def _strings(
    path: str, lines: Sequence[tuple[int, JsonObject]], key: str, *, numbers: bool = False
) -> tuple[str | None, ...] | None:
    """The texts under a key; None where no query has one. numbers: whether whole numbers are read as texts too."""
    values: list[str | None] = []
    for number, record in lines:
        value = record.get(key)
        if numbers and type(value) is int:
            value = str(value)
        if value is not None and not isinstance(value, str):
            kind = "text or a whole number" if numbers else "text"
            raise DataError(f'{path}:{number}: "{key}" must be {kind}; found {value!r}.')
        if numbers and value is not None and not value.strip():
            raise DataError(f'{path}:{number}: "{key}" is empty. Leave it out for a query that is in no group.')
        values.append(value)
    return None if all(value is None for value in values) else tuple(values)


def _columns(path: str, lines: Sequence[tuple[int, JsonObject]]) -> tuple[tuple[str, ...], Floats | None]:
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
            if not is_finite_number(value):
                raise DataError(f"{path}:{number}: column {name!r} is {value!r}, not a finite number.")
        rows.append([float(given[name]) for name in names])
    return names or (), np.array(rows, dtype=np.float64).reshape(len(rows), -1)


def _vectors(path: str, lines: Sequence[tuple[int, JsonObject]]) -> Floats | None:
    """The vector of every query; None where none has one."""
    if not any("vector" in record for _, record in lines):
        return None
    rows: list[list[float]] = []
    for number, record in lines:
        given = record.get("vector")
        if not isinstance(given, list) or not given or not all(map(is_finite_number, given)):
            raise DataError(
                f'{path}:{number}: "vector" must be a list of finite numbers, and every query must have one; found '
                f"{given!r:.60}."
            )
        if rows and len(given) != len(rows[0]):
            raise DataError(
                f"{path}:{number}: the vector has {len(given)} numbers; line {lines[0][0]} has {len(rows[0])}. All "
                "must come from the same embedding model."
            )
        rows.append([float(each) for each in given])
    return np.array(rows)


def is_finite_number(value: Json) -> TypeGuard[int | float]:
    """Whether a JSON value is a number that a double can hold."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number larger than any double
        return False
