"""Parquet files by Arrow: checked against the available memory, read as arrays and ids, and written.

Page headers declare how large each page becomes when decompressed, and Arrow trusts them, whatever the footer says. A
header is a record in Thrift's compact protocol: fields with a type and a number, encoded as the difference from the
previous one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Set
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

import numpy as np

from querywise.data.rows import is_missing
from querywise.errors import DataError
from querywise.runtime.arrays import Ints
from querywise.runtime.values import is_whole
from querywise.runtime.workers import ITSELF, WORKING, require_memory, workers

Arrow: TypeAlias = Any  # a table, column, schema or file of Arrow: pyarrow is untyped
_Result = TypeVar("_Result")

_TEXTS = ("string", "large_string", "binary", "large_binary")
LONGEST_ID = 10_000  # characters
_GROUP = 8_192  # rows in a row group, which is decoded at once
_ROW_BYTES = 100  # per row, besides its columns: labels, query and document indices, their order
_VALUE_BYTES = 24  # per value: in Arrow's table, in ours, and in ours grouped by query
_TEXT_COPIES = 5  # copies of each text: the page, Arrow's distinct texts while growing and finished, and Python's
_WIDTHS = {"DOUBLE": 8, "INT64": 8, "FLOAT": 4, "INT32": 4}  # bytes of a number
_SURELY_LONG = 16  # average bytes of an id per character: UTF-8 has 4 at most, and page headers contain extreme values

_UNPACKED, _PACKED = 2, 3  # header fields: the sizes of the page uncompressed and compressed
_NOTHING, _BYTE, _INTEGERS, _DOUBLE, _TEXT, _LISTS, _RECORD = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12
_DEEPEST = 8  # nesting depth of records
_HEADS = 4_096, 16_000_000  # bytes to search for a header, which may contain statistics of long texts


def part_name(number: int) -> str:
    """Return the name of a folder's file, counted from 0."""
    return f"part-{number:05d}.parquet"


def write_table(path: Path, schema: Arrow, rows: int, columns: Callable[[slice], list[Arrow]]) -> None:
    """Write a Parquet file with checksums, one row group at a time.

    Real numbers rarely repeat: a dictionary of them would be larger.
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
            f"{error.object!r:.60} cannot be written as UTF-8 text; an id or name has half of a surrogate pair."
        ) from None
    with open(path, "rb") as written:
        os.fsync(written.fileno())


def open_parquet(path: Path, *, coded: bool = False) -> Arrow:
    """Open a Parquet file for reading, verifying its checksums if it has any.

    Arrow's own threads are not used, since they can abort a program when it exits.

    `coded` reads texts as indices of distinct ones, as the file stores them: a text of a megabyte in every row of a
    small file would otherwise fill the memory.
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
    """Return a table after validating its values: texts in a Parquet file can be arbitrary bytes."""
    table.validate(full=True)
    return table


def to_numpy(column: Arrow) -> Arrow:
    """Return a column of numbers without nulls as an array.

    Arrow's own conversion imports pandas if it is installed.
    """
    names = {"double": np.float64, "int64": np.int64, "int32": np.int32, "uint8": np.uint8}
    kind = names[str(column.type)]
    parts = [
        np.frombuffer(chunk.buffers()[1], kind)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in column.chunks
        if len(chunk)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, kind), *parts])


def distinct_values(column: Arrow) -> list[tuple[Ints, list[Arrow]]] | None:
    """Return for each chunk the index of each row's value among the distinct ones, −1 for null, and these values.

    The result is None if the column is not Arrow's, or contains lists or records.
    """
    if not hasattr(column, "dictionary_encode"):
        return None
    pa, _ = arrow()
    try:
        chunks = [chunk.dictionary_encode() for chunk in column.chunks]  # chunk by chunk, rather than over all texts
    except pa.ArrowException:
        return None
    try:
        return [
            (to_numpy(pa.chunked_array([chunk.indices.cast("int64").fill_null(-1)])), chunk.dictionary.to_pylist())
            for chunk in chunks
        ]
    except (pa.ArrowException, OverflowError, ValueError) as error:  # the year 5,000,000, or an unknown time zone
        raise DataError(
            f"A column of ids holds {column.type}, with values that Python cannot hold ({error})."
        ) from None


def _has_one(path: Path, table: Arrow, name: str) -> bool:
    """Return whether a table has a column. Raise DataError if two have the name."""
    count: int = table.column_names.count(name)
    if count > 1:
        raise DataError(f"{path}: there are two columns {name}; keep one of them.")
    return count == 1


def strings_of(path: Path, table: Arrow, name: str) -> tuple[str, ...] | None:
    """Return a column of text, or None if the table lacks it."""
    if not _has_one(path, table, name):
        return None
    column = table.column(name)
    types = arrow()[0].types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)):
        raise DataError(f"{path}: column {name} holds {column.type}; expected text.")
    if column.null_count:
        row = column.is_null().to_numpy().argmax() + 1
        raise DataError(
            f"{path}: row {row} has no value in column {name}; give every row one, or leave the column out."
        )
    found: list[str] = []
    for numbers, values in distinct_values(column) or []:  # so that equal texts are one object
        found += [values[number] for number in numbers.tolist()]
    return tuple(found)


def ids_of(path: Path, table: Arrow, name: str) -> tuple[str, ...] | None:
    """Return a column of ids after checking their length, or None if the table lacks it."""
    if _has_one(path, table, name):
        require_short(path, table.column(name), name)
    return strings_of(path, table, name)


def require_short(path: Path, column: Arrow, name: str) -> None:
    """Raise DataError if a column has an overlong id, before any is copied."""
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
    """Return whether a file has a name made by `part_name`."""
    return name.startswith("part-") and name.endswith(".parquet") and is_whole(name[5:-8])


def about(path: Path, work: Callable[[], _Result]) -> _Result:
    """Return the result of the work, adding the file's name to error messages that lack it."""
    try:
        return work()
    except DataError as error:
        raise error if str(path) in str(error) else DataError(f"{path}: {error}") from None


def arrow() -> tuple[ModuleType, ModuleType]:
    """Return the modules pyarrow and pyarrow.parquet. Raise DataError with install instructions if they are missing."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError("Parquet needs pyarrow, which is not installed: pip install 'querywise[parquet]'") from None
    return pyarrow, pyarrow.parquet


class CodedIds(NamedTuple):
    """The index of every row's id, and the ids in the order of their first rows."""

    codes: Ints
    names: tuple[str, ...]

    def in_order(self, rows: Ints) -> tuple[str, ...]:
        """Return the ids of these rows."""
        return tuple([self.names[code] for code in self.codes[rows].tolist()])


def coded_ids(column: Arrow, text: Callable[[Arrow, int], str]) -> CodedIds:
    """Return the ids of a column: an Arrow column, an array or any sequence with an item per row.

    `text` converts an id to text, given its row number from 1; it raises DataError for an invalid id.
    """
    found: dict[str, int] = {}
    parts = distinct_values(column)
    if parts is None:
        every = [found.setdefault(text(each, row), len(found)) for row, each in enumerate(_items(column), 1)]
        return CodedIds(np.array(every, np.int64), tuple(found))
    codes, row = [np.zeros(0, np.int64)], 1
    for numbers, values in parts:
        used, first = np.unique(numbers, return_index=True)
        known = np.zeros(len(values) + 1, np.int64)  # the last entry is for −1, a null
        for place in np.argsort(first).tolist():
            number = int(used[place])
            name = text(None if number < 0 else values[number], row + int(first[place]))
            known[number] = found.setdefault(name, len(found))
        codes.append(known[numbers])
        row += len(numbers)
    return CodedIds(np.concatenate(codes), tuple(found))


def values_of(column: Arrow) -> list[Arrow]:
    """Return the value of every row; equal values of an Arrow column are the same object."""
    parts = distinct_values(column)
    if parts is None:
        return _items(column)
    return [values[number] if number >= 0 else None for numbers, values in parts for number in numbers.tolist()]


def query_id(value: Arrow, row: int) -> str:
    """Return a query id as text: 7 and 7.0 both become "7"."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if is_missing(value):
        raise DataError(f"Row {row} has no query id; every row needs one.")
    if isinstance(value, (list, dict)):
        raise DataError(f"Row {row} has the query id {value!r}; expected one text or number per row.")
    whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value)) if whole else _as_text(value, row)


def document_id(value: Arrow, row: int) -> str:
    """Return a document id as text."""
    if is_missing(value):
        raise DataError(f"Row {row} has no document id; give every row one, or leave the ids out.")
    return _as_text(value, row)


def _as_text(value: Arrow, row: int) -> str:
    """Return an id as text; bytes are decoded as UTF-8."""
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise DataError(f"Row {row} has the id {value!r:.60}, which is not UTF-8 text; write ids as texts.") from None


def _items(column: Any) -> list[Any]:
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    return values if isinstance(values, list) else [values]


def rows_of(file: Arrow) -> int:
    """Return the number of rows of a Parquet file, from its footer."""
    metadata = file.metadata
    groups = sum(int(metadata.row_group(each).num_rows) for each in range(metadata.num_row_groups))
    return max(int(metadata.num_rows), groups)


def memory_to_read(path: Path, file: Arrow, columns: Iterable[str], *, by_group: bool = False) -> int:
    """Return the bytes needed to read some columns of a Parquet file, from its footer and page headers.

    With `by_group`, row groups are read one after the other, so only the largest counts.
    """
    used, found = set(columns), [0]
    every = range(file.metadata.num_row_groups)
    for groups in [every[each : each + 1] for each in every] if by_group else [every]:
        rows = file.metadata.row_group(groups[0]).num_rows if by_group else rows_of(file)
        sizes = _sizes(path, file, used, groups)
        copied = sum(sizes[field.name] * _copies(field.type) for field in file.schema_arrow if field.name in used)
        found.append(rows * (_ROW_BYTES + _VALUE_BYTES * len(used)) + copied)
    return max(found)


def require_short_ids(path: Path, file: Arrow, columns: Iterable[str]) -> None:
    """Raise DataError if the footer or the pages declare overlong ids, before any is read."""
    columns = list(columns)
    sizes, rows = _sizes(path, file, set(columns), range(file.metadata.num_row_groups)), rows_of(file)
    for name in columns:
        if sizes[name] > max(rows, 1) * _SURELY_LONG * LONGEST_ID:
            raise DataError(
                f"{path}: column {name} has {sizes[name] / 1e6:.0f} MB in {rows} rows; expected ids of at most "
                f"{LONGEST_ID} characters. Leave long texts out of it."
            )


def require_room_to_read(
    path: Path, file: Arrow, columns: Iterable[str], ids: Iterable[str], instead: str, *, by_group: bool = False
) -> None:
    """Raise DataError if a Parquet file's columns need more memory than there is, or if its ids are too long."""
    columns = list(columns)
    require_short_ids(path, file, ids)
    require_memory(
        memory_to_read(path, file, columns, by_group=by_group),
        f"{path}: reading {rows_of(file)} rows of {len(columns)} columns takes",
        instead,
    )


def _sizes(path: Path, file: Arrow, columns: Set[str], groups: Iterable[int]) -> Counter[str]:
    """Return the decompressed bytes of columns in some row groups: the larger of what footer and pages declare."""
    names, found = set(file.schema_arrow.names), Counter[str]()
    with path.open("rb", buffering=0) as opened:
        for number in groups:
            group = file.metadata.row_group(number)
            for place in range(group.num_columns):
                column = group.column(place)
                whole = _path_of(path, column)
                name = whole if whole in names else whole.partition(".")[0]
                if name in columns:
                    # a dictionary stores equal values once
                    least = column.num_values * _WIDTHS.get(column.physical_type, 0)
                    pages = unpacked_bytes(path, opened, column)
                    found[name] += max(column.total_uncompressed_size, least, pages)
    return found


def _path_of(path: Path, column: Arrow) -> str:
    """Return the name of a column in a row group, which may be invalid text even if the schema's is not."""
    try:
        return str(column.path_in_schema)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this Parquet file is damaged (the name of a column: {error}).") from None


def _copies(kind: Arrow) -> int:
    """Return how often reading copies the values of a column."""
    return _TEXT_COPIES if "string" in str(kind) or "binary" in str(kind) else 2 if kind.num_fields else 1


def require_room_for_a_shard(folder: Path, rows: int, features: int) -> None:
    """Raise DataError if the memory budget is too small to work on the largest shard."""
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
    """Raise DataError if the memory budget is too small for all shards at once."""
    memory, size = workers().memory, 8 * rows * features
    if memory is not None and 2 * size + ITSELF > memory:
        raise DataError(
            f"{folder}: this operation needs all {rows} documents in memory at once, {size / 1e9:.1f} GB; "
            f"{memory / 1e9:.1f} GB are allowed. ranksvm, single and the knn-offline methods go shard by shard."
        )


def unpacked_bytes(path: Path, file: BinaryIO, column: Arrow) -> int:
    """Return the decompressed bytes of a column's pages, from the page headers.

    Args:
        path: the file's path, for messages.
        file: the open file.
        column: the footer's entry for the column in one row group: the position and size of its pages.
    """
    if column.num_values == 0:  # Arrow reads none of its pages, so their positions may be invalid
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
            f"{path}: this Parquet file is damaged (the pages of column {column.path_in_schema} do not match its "
            "footer)."
        ) from None
    return total


def _head(file: BinaryIO, place: int) -> tuple[int, dict[int, int]]:
    """Return the length of the header at a position, and its whole numbers by field number."""
    for most in _HEADS:
        file.seek(place)
        said: dict[int, int] = {}
        try:
            return _record(file.read(most), 0, said, _DEEPEST), said
        except IndexError:  # the header is longer
            continue
    raise ValueError


def _record(content: bytes, at: int, said: dict[int, int], deeper: int) -> int:
    """Read the whole numbers of a record by field number; return where it ends."""
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
        elif kind not in _NOTHING:  # for booleans the type is the value
            at = _past(content, at, kind, deeper)
    return at + 1


def _past(content: bytes, at: int, kind: int, deeper: int) -> int:
    """Return where a value of a type ends."""
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
    if count == 15:  # the length of a longer list follows
        count, at = _number(content, at)
    for _ in range(count):
        at = _past(content, at, inner, deeper - 1)
    return at


def _number(content: bytes, at: int) -> tuple[int, int]:
    """Read a number of seven bits per byte, lowest first; return it and where it ends."""
    found = 0
    for shift in range(0, 70, 7):
        found |= (content[at] & 127) << shift
        at += 1
        if content[at - 1] < 128:
            return found, at
    raise ValueError


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)
