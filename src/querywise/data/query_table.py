"""QueryTable: data of queries besides their documents, and the side file `queries.jsonl` that stores it.

The file has one JSON object per line: `_id`, and any of `text`, `class`, `group` (text or a whole number), `columns` (a
mapping from name to number) and `vector` (a list of numbers).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.rows import checked_matrix, refuse_repeated
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints, Singles, frozen
from querywise.runtime.files import PathLike, atomic_text, read_text
from querywise.runtime.values import Json, JsonObject, is_finite_number

_TEXTS, _ARRAYS = ("texts", "classes", "groups"), ("columns", "vectors")  # with an entry for each query
_NO_VECTOR = frozen(np.zeros((1, 0)))
SHORTEST, LONGEST = 1e-18, 1e18  # lengths of vectors whose products fit into single precision


@dataclass(frozen=True, eq=False)
class QueryTable:
    """Query-level data: text, class, columns of the user's own, a vector from an embedding model, and a group.

    Args:
        ids: the id of every query, no two the same.
        texts, classes: one per query, None if it is unknown; or None for all.
        columns: queries × columns, finite numbers of the user's own.
        column_names: one per column.
        vectors: queries × dimensions. An empty vector or one of zeros means unknown.
        groups: one per query, or None for all. Queries of one group, such as the wordings of one need, are never
            separated by folds and splits; a query whose group is None is a group of its own.

    Raises:
        DataError: Lengths that do not match, duplicate ids, and numbers that are not finite.

    >>> from querywise import QueryTable
    >>> QueryTable(("q1", "q2"), texts=("jaguar speed", "python list"), classes=("animal", "code"))
    QueryTable(2 queries, texts, 2 classes)
    """

    ids: tuple[str, ...]
    texts: tuple[str | None, ...] | None = None
    classes: tuple[str | None, ...] | None = None
    columns: Floats | None = None
    column_names: tuple[str, ...] = ()
    vectors: Floats | None = None
    groups: tuple[str | None, ...] | None = None

    def __post_init__(self) -> None:
        refuse_repeated(self.ids)
        for name, values in self._known.items():
            if len(values) != len(self.ids):
                raise DataError(f"QueryTable has {len(self.ids)} query ids but {len(values)} {name}.")
        if self.vectors is not None:
            object.__setattr__(self, "vectors", checked_matrix(self.vectors, "QueryTable.vectors")[0])
            for row in odd_lengths(self.vectors)[:1]:
                raise DataError(odd_vector(f"The vector of query {self.ids[row]!r}", self.vectors[row]))
        if self.columns is not None:
            object.__setattr__(self, "columns", checked_matrix(self.columns, "QueryTable.columns")[0])
            if len(self.column_names) != self.columns.shape[1]:
                raise DataError(
                    f"QueryTable has {self.columns.shape[1]} columns but {len(self.column_names)} column names."
                )

    @classmethod
    def of_query(cls, query_id: str, text: str | None, class_: str | None) -> QueryTable:
        """Return a table of one query without vector and columns, as most queries of a service are."""
        known = text is not None or class_ is not None
        made = object.__new__(cls)
        made.__dict__.update(
            ids=(query_id,),
            texts=(text,) if known else None,
            classes=(class_,) if known else None,
            columns=None,
            column_names=(),
            vectors=_NO_VECTOR,
            groups=None,
        )
        return made

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"QueryTable({', '.join([counted(len(self), 'query'), *self.holds])})"

    @property
    def holds(self) -> list[str]:
        """The content besides the ids, in words, with counts."""
        named = {each for each in self.classes or () if each}
        known = [
            None if self.texts is None else "texts",
            None if self.classes is None else counted(len(named), "class", "classes"),
            None if self.columns is None else counted(self.columns.shape[1], "column"),
            None if self.vectors is None else f"vectors of {counted(self.vectors.shape[1], 'number')}",
            None if self.groups is None else counted(len({each for each in self.groups if each}), "group"),
        ]
        return [each for each in known if each is not None]

    def select(self, ids: Sequence[str]) -> QueryTable:
        """Return the rows of `ids`, in that order. Raise DataError for an id that is not in the table."""
        position = {query_id: row for row, query_id in enumerate(self.ids)}
        unknown = [query_id for query_id in ids if query_id not in position]
        if unknown:
            raise DataError(
                f"{len(unknown)} of {len(ids)} queries are not in the query table, the first is {unknown[0]!r}. "
                "Every query of the documents needs a row there."
            )
        rows = [position[query_id] for query_id in ids]
        picked: dict[str, Any] = {
            name: values[rows] if name in _ARRAYS else tuple(values[row] for row in rows)
            for name, values in self._known.items()
        }
        return replace(self, ids=tuple(ids), **picked)

    def with_unknown(self, ids: Sequence[str]) -> QueryTable:
        """Return the table followed by queries without data; they get the mean of every column.

        Their vectors are zeros.
        """
        unknown = (None,) * len(ids)
        longer: dict[str, Any] = {
            name: (*values, *unknown) for name, values in self._known.items() if name not in _ARRAYS
        }
        if self.columns is not None:
            means = self.columns.mean(axis=0) if len(self.columns) else np.zeros(self.columns.shape[1])
            longer["columns"] = np.vstack([self.columns, np.tile(means, (len(ids), 1))])
        if self.vectors is not None:
            longer["vectors"] = np.pad(self.vectors, ((0, len(ids)), (0, 0)))
        return replace(self, ids=(*self.ids, *ids), **longer)

    @property
    def _known(self) -> dict[str, Any]:
        """The known data of the queries by name, each with an entry per query."""
        return {name: values for name in (*_TEXTS, *_ARRAYS) if (values := getattr(self, name)) is not None}


def join_tables(tables: Sequence[QueryTable]) -> QueryTable:
    """Join query tables, dropping data that one of them lacks, except for groups, which some queries may have."""
    held = {name: [known[name] for table in tables if name in (known := table._known)] for name in (*_TEXTS, *_ARRAYS)}
    vectors = held["vectors"]
    odd = next((each for each in vectors if each.shape[1] != vectors[0].shape[1]), None)
    if odd is not None:
        raise DataError(
            f"Some queries have vectors of {vectors[0].shape[1]} numbers, others of {odd.shape[1]}; all must come from "
            "the same embedding model."
        )
    for table in tables:
        if table.column_names != tables[0].column_names:
            raise DataError(
                f"Some queries have the columns {', '.join(tables[0].column_names) or '(none)'}, others "
                f"{', '.join(table.column_names) or '(none)'}; all need the same ones, in the same order."
            )
    joined: dict[str, Any] = {
        name: np.concatenate(parts) if name in _ARRAYS else tuple(value for part in parts for value in part)
        for name, parts in held.items()
        if len(parts) == len(tables)
    }
    if held["groups"]:
        joined["groups"] = tuple(name for table in tables for name in table.groups or (None,) * len(table))
    ids = tuple(query_id for table in tables for query_id in table.ids)
    return QueryTable(ids, column_names=tables[0].column_names if "columns" in joined else (), **joined)


def odd_lengths(vectors: Floats | Singles) -> Ints:
    """Return the rows with vectors that are not finite, or whose length is out of range."""
    wide = np.asarray(vectors, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    rows = np.flatnonzero(~((lengths <= LONGEST) & (lengths >= SHORTEST)))
    return rows[wide[rows].any(axis=1)]


def odd_vector(place: str, vector: Floats) -> str:
    """Describe what is wrong with such a vector; `place` is its name in messages."""
    wrong = np.flatnonzero(~np.isfinite(vector))
    if len(wrong):
        return f"{place}, column {wrong[0] + 1} is {vector[wrong[0]]}; every number must be finite. Create it again."
    return (
        f"{place}: the largest of its numbers is {np.abs(vector).max():g}; a vector's length must be between "
        f"{SHORTEST:g} and {LONGEST:g}, or 0. Divide all vectors by a constant."
    )


def read_queries(path: PathLike, *, text: str | None = None) -> QueryTable:
    """Read a `queries.jsonl` file, or its content `text` if it has been read already."""
    found = read_text(Path(path)) if text is None else text
    return _table(path, enumerate(found.split("\n"), start=1))


def read_queries_of(path: PathLike, ids: tuple[str, ...], *, first: int = 0) -> QueryTable:
    """Read the file's data of some queries.

    They are expected after its first `first` lines, where `write_queries` puts the queries of one shard, so that a long
    file need not be parsed for a few of them; otherwise the whole file is searched.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            table = _table(path, enumerate(islice(file, first, first + len(ids)), start=first + 1))
        if table.ids == ids:
            return table
    except (DataError, OSError, UnicodeDecodeError):
        pass  # reading the whole file reports what is wrong, and where
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
            raise DataError(f"{where}: query {query_id!r} is already on line {records[query_id][0]}.")
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
    """Write a table that `read_queries` can read."""
    with atomic_text(Path(path)) as out:
        for row, query_id in enumerate(table.ids):
            record: JsonObject = {"_id": query_id}
            for name, values in (("text", table.texts), ("class", table.classes), ("group", table.groups)):
                if values is not None and values[row] is not None:
                    record[name] = values[row]
            if table.columns is not None:
                record["columns"] = dict(zip(table.column_names, table.columns[row].tolist(), strict=True))
            if table.vectors is not None:
                record["vector"] = table.vectors[row].tolist()
            out.write(json_line(record))


def json_line(record: Mapping[str, Json]) -> str:
    """Return a record as one line of JSON; a lone surrogate, which UTF-8 cannot hold, stays escaped."""
    line = json.dumps(record, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        line = json.dumps(record)
    return line + "\n"


def read_record(line: str, where: str, *, example: str) -> JsonObject:
    """Parse one line of JSON with an `_id`."""
    expected = f'an object with an "_id", for example {example}'
    record = read_object(line, where, expected)
    if type(record.get("_id")) not in (str, int):
        raise DataError(f"{where}: expected {expected}.")
    if not str(record["_id"]).strip():
        raise DataError(f'{where}: the "_id" is empty.')
    if not str(record["_id"]).isprintable():
        raise DataError(f'{where}: the "_id" {record["_id"]!r:.60} has unprintable characters.')
    return record


def read_object(line: str, where: str, expected: str) -> JsonObject:
    """Parse one line of JSON that is an object; `where` and `expected` are for messages."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: this is not JSON ({error.msg} at character {error.pos + 1}).") from None
    except ValueError as error:
        raise DataError(f"{where}: this holds a number that cannot be read ({error}).") from None
    except RecursionError:
        raise DataError(f"{where}: this JSON is nested too deeply to be a record.") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: expected {expected}.")
    return record


def _strings(
    path: str, lines: Sequence[tuple[int, JsonObject]], key: str, *, numbers: bool = False
) -> tuple[str | None, ...] | None:
    """Return the texts under a key, or None if no query has one; `numbers` accepts whole numbers as texts."""
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
    """Return the vector of every query, or None if none has one."""
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
