"""Checks of Parquet files and sets of shards against the memory there is, before anything is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from pathlib import Path

from querywise.data.parquet.arrow import LONGEST_ID, Arrow
from querywise.data.parquet.pages import unpacked_bytes
from querywise.errors import DataError
from querywise.runtime.workers import ITSELF, WORKING, require_memory, workers

_ROW_BYTES = 100  # of every row, beside its columns: labels, which query and document it is of, their order
_VALUE_BYTES = 24  # of every value: in Arrow's table, in ours, and in ours with the rows of each query together
_TEXT_COPIES = 5  # of every text: the page, Arrow's distinct texts while they grow and after, and Python's
_WIDTHS = {"DOUBLE": 8, "INT64": 8, "FLOAT": 4, "INT32": 4}  # bytes of a number
_SURELY_LONG = 16  # bytes of an id per character, on average: UTF-8 has 4 at most, and pages have ends in their heads


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
                whole = column.path_in_schema
                name = whole if whole in names else whole.partition(".")[0]
                if name in columns:
                    least = column.num_values * _WIDTHS.get(column.physical_type, 0)  # a dictionary has equal ones once
                    pages = unpacked_bytes(path, opened, column)
                    found[name] += max(column.total_uncompressed_size, least, pages)
    return found


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
