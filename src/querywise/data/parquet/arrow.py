"""Parquet files by Arrow: opened, checked, read as arrays, strings and coded ids, written by row groups."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from querywise.data.rows import is_missing
from querywise.errors import DataError
from querywise.runtime.arrays import Ints
from querywise.runtime.values import is_whole

Arrow: TypeAlias = Any  # a table, a column, a schema or a file of Arrow's: pyarrow comes without types
_Result = TypeVar("_Result")

_TEXTS = ("string", "large_string", "binary", "large_binary")
LONGEST_ID = 10_000  # characters
_GROUP = 8_192  # rows in a row group: what is decoded at once


def part_name(number: int) -> str:
    """What the files of a folder are called, counted from 0."""
    return f"part-{number:05d}.parquet"


def write_table(path: Path, schema: Arrow, rows: int, columns: Callable[[slice], list[Arrow]]) -> None:
    """A Parquet file with checksums, a row group at a time.

    Real numbers seldom repeat: a dictionary of them would be larger.
    """
    pa, pq = arrow()
    try:
        with pq.ParquetWriter(
            path, schema, compression="snappy", use_dictionary=["qid"], write_page_checksum=True
        ) as out:
            for first in range(0, rows, _GROUP):
                arrays = [
                    pa.array(values, field.type)
                    for field, values in zip(schema, columns(slice(first, first + _GROUP)), strict=True)
                ]
                out.write_table(pa.Table.from_arrays(arrays, schema=schema))
    except UnicodeEncodeError as error:
        raise DataError(
            f"{error.object!r:.60} cannot be written as UTF-8 text; an id or name has half a character."
        ) from None
    with open(path, "rb") as written:
        os.fsync(written.fileno())


def open_parquet(path: Path, *, coded: bool = False) -> Arrow:
    """A Parquet file to read from; checksums that it has are compared.

    Without Arrow's own threads, which can abort a program at its end.

    coded: texts are read as numbers of the distinct ones, as the file has them: a text of a megabyte in every row of a
    small file would fill the memory.
    """
    pa, pq = arrow()
    try:
        settings = {"pre_buffer": False, "page_checksum_verification": True}
        file = pq.ParquetFile(pa.OSFile(str(path)), **settings)
        texts = [field.name for field in file.schema_arrow if str(field.type) in _TEXTS and coded]
        return pq.ParquetFile(pa.OSFile(str(path)), read_dictionary=texts, **settings) if texts else file
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: this is not a Parquet file, or it is damaged ({error}).") from None


def checked(table: Arrow) -> Arrow:
    """A table that was read, if its values are what their types say; texts in a Parquet file can be any bytes."""
    table.validate(full=True)
    return table


def to_numpy(column: Arrow) -> Arrow:
    """A column of numbers without nulls as an array; Arrow's own way there imports pandas where it is installed."""
    names = {"double": np.float64, "int64": np.int64, "int32": np.int32, "uint8": np.uint8}
    kind = names[str(column.type)]
    parts = [
        np.frombuffer(chunk.buffers()[1], kind)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in column.chunks
        if len(chunk)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, kind), *parts])


def distinct_values(column: Arrow) -> list[tuple[Ints, list[Arrow]]] | None:
    """By chunk, the number of each row's value among the distinct ones, −1 for a null, and these values.

    None of a column that is not Arrow's, or that holds lists or records.
    """
    if not hasattr(column, "dictionary_encode"):
        return None
    pa, _ = arrow()
    try:
        chunks = [chunk.dictionary_encode() for chunk in column.chunks]  # each its own texts, not those of all
    except pa.ArrowException:
        return None
    try:
        return [
            (to_numpy(pa.chunked_array([chunk.indices.cast("int64").fill_null(-1)])), chunk.dictionary.to_pylist())
            for chunk in chunks
        ]
    except (pa.ArrowException, OverflowError, ValueError) as error:  # a year 5,000,000, or a time zone that is nowhere
        raise DataError(
            f"A column of ids holds {column.type}, with values that Python cannot hold ({error})."
        ) from None


def _has_one(path: Path, table: Arrow, name: str) -> bool:
    """Whether a table has a column; refused if it has two of that name."""
    count: int = table.column_names.count(name)
    if count > 1:
        raise DataError(f"{path}: there are two columns {name}; keep one of them.")
    return count == 1


def strings_of(path: Path, table: Arrow, name: str) -> tuple[str, ...] | None:
    """A column of text; None where the table does not have it."""
    if not _has_one(path, table, name):
        return None
    column = table.column(name)
    types = arrow()[0].types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)):
        raise DataError(f"{path}: column {name} holds {column.type}; expected text.")
    if column.null_count:
        row = column.is_null().to_numpy().argmax() + 1
        raise DataError(f"{path}: row {row} has nothing in column {name}; give every row one, or leave the column out.")
    found: list[str] = []
    for numbers, values in distinct_values(column) or []:  # so that equal texts are one
        found += [values[number] for number in numbers.tolist()]
    return tuple(found)


def ids_of(path: Path, table: Arrow, name: str) -> tuple[str, ...] | None:
    """A column of ids, none of them longer than an id may be; None where the table does not have it."""
    if _has_one(path, table, name):
        require_short(path, table.column(name), name)
    return strings_of(path, table, name)


def require_short(path: Path, column: Arrow, name: str) -> None:
    """Refuse a column with an id that is too long, before any is copied."""
    import pyarrow.compute as pc

    row = 1
    for chunk in column.chunks:
        coded = arrow()[0].types.is_dictionary(chunk.type)
        texts = chunk.dictionary if coded else chunk
        if str(texts.type) in _TEXTS and len(texts) and len(chunk):
            lengths = pc.binary_length(texts).fill_null(0)
            lengths = lengths.take(chunk.indices.fill_null(0)) if coded else lengths
            place = pc.index(lengths, pc.max(lengths)).as_py()
            found = chunk[place].as_py()
            if found is not None and len(found) > LONGEST_ID:
                raise DataError(
                    f"{path}: row {row + place} has {len(found)} characters in column {name}; an id has at most "
                    f"{LONGEST_ID}."
                )
        row += len(chunk)


def is_part(name: str) -> bool:
    """Whether a file is called as `part_name` calls them."""
    return name.startswith("part-") and name.endswith(".parquet") and is_whole(name[5:-8])


def about(path: Path, work: Callable[[], _Result]) -> _Result:
    """The result of the work; the message of an error that does not name the file gets its name."""
    try:
        return work()
    except DataError as error:
        raise error if str(path) in str(error) else DataError(f"{path}: {error}") from None


def arrow() -> tuple[ModuleType, ModuleType]:
    """The modules pyarrow and pyarrow.parquet, or what to install."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError("Parquet needs pyarrow, which is not installed: pip install 'querywise[cluster]'") from None
    return pyarrow, pyarrow.parquet


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


def _items(column: Any) -> list[Any]:
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    return values if isinstance(values, list) else [values]
