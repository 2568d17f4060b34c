"""Checks of Parquet files and sets of shards against the memory there is, before anything is read.

The heads of pages say how large each page becomes, and Arrow goes by them, whatever the footer says. A head is a record
in Thrift's compact form: fields of a type and a number, the latter as a step from the one before.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Set
from pathlib import Path
from typing import BinaryIO

from querywise.data.parquet.arrow import LONGEST_ID, Arrow
from querywise.errors import DataError
from querywise.runtime.workers import ITSELF, WORKING, require_memory, workers

_ROW_BYTES = 100  # of every row, beside its columns: labels, which query and document it is of, their order
_VALUE_BYTES = 24  # of every value: in Arrow's table, in ours, and in ours with the rows of each query together
_TEXT_COPIES = 5  # of every text: the page, Arrow's distinct texts while they grow and after, and Python's
_WIDTHS = {"DOUBLE": 8, "INT64": 8, "FLOAT": 4, "INT32": 4}  # bytes of a number
_SURELY_LONG = 16  # bytes of an id per character, on average: UTF-8 has 4 at most, and pages have ends in their heads

_UNPACKED, _PACKED = 2, 3  # the fields of a head: the bytes of its page unpacked, and as they are
_NOTHING, _BYTE, _INTEGERS, _DOUBLE, _TEXT, _LISTS, _RECORD = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12
_DEEPEST = 8  # records in records
_HEADS = 4_096, 16_000_000  # bytes in which a head is looked for: statistics, of long texts, may be in it


def rows_of(file: Arrow) -> int:
    """How many rows a Parquet file has, by its footer."""
    metadata = file.metadata
    groups = sum(int(metadata.row_group(each).num_rows) for each in range(metadata.num_row_groups))
    return max(int(metadata.num_rows), groups)


def memory_to_read(path: Path, file: Arrow, columns: Iterable[str]) -> int:
    """How many bytes it takes to read some columns of a Parquet file, by its footer and the heads of its pages."""
    used = set(columns)
    sizes, rows = _sizes(path, file, used), rows_of(file)
    copied = sum(sizes[field.name] * _copies(field.type) for field in file.schema_arrow if field.name in used)
    return rows * (_ROW_BYTES + _VALUE_BYTES * len(used)) + copied


def require_short_ids(path: Path, file: Arrow, columns: Iterable[str]) -> None:
    """Refuse a file whose footer, or pages, say that its ids are too long, before one of them is read."""
    columns = list(columns)
    sizes, rows = _sizes(path, file, set(columns)), rows_of(file)
    for name in columns:
        if sizes[name] > max(rows, 1) * _SURELY_LONG * LONGEST_ID:
            raise DataError(
                f"{path}: column {name} has {sizes[name] / 1e6:.0f} MB in {rows} rows; expected ids of at most "
                f"{LONGEST_ID} characters. Leave long texts out of it."
            )


def require_room_to_read(path: Path, file: Arrow, columns: Iterable[str], ids: Iterable[str], instead: str) -> None:
    """Refuse a Parquet file whose columns take more than the memory there is, or whose ids are too long."""
    columns = list(columns)
    require_short_ids(path, file, ids)
    require_memory(
        memory_to_read(path, file, columns),
        f"{path}: reading {rows_of(file)} rows of {len(columns)} columns takes",
        instead,
    )


def _sizes(path: Path, file: Arrow, columns: Set[str]) -> Counter[str]:
    """The bytes of some columns, decompressed, by the footer or by their pages: whichever says more."""
    names, found = set(file.schema_arrow.names), Counter[str]()
    with path.open("rb", buffering=0) as opened:
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            for place in range(group.num_columns):
                column = group.column(place)
                whole = _path_of(path, column)
                name = whole if whole in names else whole.partition(".")[0]
                if name in columns:
                    least = column.num_values * _WIDTHS.get(column.physical_type, 0)  # a dictionary has equal ones once
                    pages = unpacked_bytes(path, opened, column)
                    found[name] += max(column.total_uncompressed_size, least, pages)
    return found


def _path_of(path: Path, column: Arrow) -> str:
    """The name that a row group says of a column, which may be no text though that of the schema is."""
    try:
        return str(column.path_in_schema)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this Parquet file is damaged (the name of a column: {error}).") from None


def _copies(kind: Arrow) -> int:
    """How often reading copies the values of a column."""
    return _TEXT_COPIES if "string" in str(kind) or "binary" in str(kind) else 2 if kind.num_fields else 1


def require_room_for_a_shard(folder: Path, rows: int, features: int) -> None:
    """Refuse a budget in which the largest shard, of so many rows, cannot be worked on."""
    shard = 8 * rows * features
    memory, needed = workers().memory, ITSELF + (WORKING + 1) * shard
    if memory is not None and memory <= ITSELF:
        raise DataError(
            f"{memory / 1e6:.0f} MB are allowed; Python and its libraries alone take {ITSELF / 1e6:.0f} MB. Allow more."
        )
    if memory is not None and needed > memory:
        raise DataError(
            f"{folder}: its largest shard takes {shard / 1e6:.0f} MB, and working on it {needed / 1e6:.0f} MB in all; "
            f"{memory / 1e6:.0f} MB are allowed. Allow more, or convert the data into smaller shards."
        )


def require_room_for_all(folder: Path, rows: int, features: int) -> None:
    """Refuse a budget in which all shards, of so many rows together, cannot be in memory at once."""
    memory, size = workers().memory, 8 * rows * features
    if memory is not None and 2 * size + ITSELF > memory:
        raise DataError(
            f"{folder}: what is asked for needs all {rows} documents in memory at once, {size / 1e9:.1f} GB; "
            f"{memory / 1e9:.1f} GB are allowed. ranksvm, single and the knn-offline methods go shard by shard."
        )


def unpacked_bytes(path: Path, file: BinaryIO, column: Arrow) -> int:
    """The bytes of a column's pages, unpacked, by the heads of the pages.

    file: the opened file. column: what its footer says of the column in one row group: where its pages are, and how
    many bytes they have.
    """
    if column.num_values == 0:  # Arrow reads none of its pages, and their places may be anything
        return 0
    place, total = int(column.data_page_offset), 0
    if column.has_dictionary_page and column.dictionary_page_offset:
        place = min(place, int(column.dictionary_page_offset))
    end = place + column.total_compressed_size
    try:
        if not 0 <= place <= end <= os.fstat(file.fileno()).st_size:
            raise ValueError
        while place < end:
            length, said = _head(file, place)
            if min(said[_PACKED], said[_UNPACKED]) < 0:
                raise ValueError
            place, total = place + length + said[_PACKED], total + said[_UNPACKED]
    except (KeyError, ValueError):
        raise DataError(
            f"{path}: this Parquet file is damaged (the pages of column {column.path_in_schema} are not where, or not "
            "what, its footer says)."
        ) from None
    return total


def _head(file: BinaryIO, place: int) -> tuple[int, dict[int, int]]:
    """The length of the head at a place, and its whole numbers by the numbers of their fields."""
    for most in _HEADS:
        file.seek(place)
        said: dict[int, int] = {}
        try:
            return _record(file.read(most), 0, said, _DEEPEST), said
        except IndexError:  # it is longer
            continue
    raise ValueError


def _record(content: bytes, at: int, said: dict[int, int], deeper: int) -> int:
    """Read the whole numbers of a record by the numbers of their fields; gives where it ends."""
    if not deeper:
        raise ValueError
    field = 0
    while head := content[at]:
        at, kind = at + 1, head & 15
        if head >> 4:
            field += head >> 4
        else:
            number, at = _number(content, at)
            field = _signed(number)
        if kind in _INTEGERS:
            number, at = _number(content, at)
            said[field] = _signed(number)
        elif kind not in _NOTHING:  # yes or no is the type itself
            at = _past(content, at, kind, deeper)
    return at + 1


def _past(content: bytes, at: int, kind: int, deeper: int) -> int:
    """Where a value of a type ends."""
    if kind == _RECORD:
        return _record(content, at, {}, deeper - 1)
    if kind == _TEXT:
        length, at = _number(content, at)
        return at + length
    if kind in _INTEGERS:
        return _number(content, at)[1]
    if kind not in _LISTS:
        return at + {_BYTE: 1, _DOUBLE: 8, **dict.fromkeys(_NOTHING, 1)}[kind]
    count, inner = content[at] >> 4, content[at] & 15
    at += 1
    if count == 15:  # a longer list
        count, at = _number(content, at)
    for _ in range(count):
        at = _past(content, at, inner, deeper - 1)
    return at


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    found = 0
    for shift in range(0, 70, 7):
        found |= (content[at] & 127) << shift
        at += 1
        if content[at - 1] < 128:
            return found, at
    raise ValueError


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)
