"""One shard: a Parquet file of whole queries, checked against what the manifest says of it, as a judged set."""

from __future__ import annotations

import functools
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.id_columns import coded_ids
from querywise.data.judged import Candidates, Judged
from querywise.data.parquet.arrow import (
    about,
    arrow,
    checked,
    ids_of,
    open_parquet,
    require_short,
    strings_of,
    to_numpy,
)
from querywise.data.parquet.budget import require_room_to_read
from querywise.data.parquet.cutting import COLUMNS
from querywise.data.queries import read_queries_of
from querywise.data.sidefiles import QUERIES
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.files import checksum_of

MANIFEST = "shards.json"


_SMALL = 64_000_000  # bytes of features that any file may have
_DENSEST = 50  # bytes of features per byte of a file: Snappy packs to a twentieth at best
_BLOCK = 512  # rows turned from columns to rows at once, while they are in the processor's cache


@dataclass(frozen=True)
class ShardFile:
    """One Parquet file of whole queries. `first`: how many queries of the set are before it."""

    folder: Path
    name: str
    rows: int
    queries: int
    checksum: str
    feature_count: int
    feature_names: tuple[str, ...] | None = None
    first: int = 0
    known: str | None = None  # the checksum of the query data, where the set was written with some

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.folder / self.name

    def require_plausible(self) -> None:
        """Refuse counts that are not those of the file, where they are large beside its size."""
        size = self.path.stat().st_size if self.path.is_file() else 0
        if 8 * self.rows * self.feature_count > max(_SMALL, _DENSEST * size):
            OpenedShard(self)

    def load(self) -> Judged:
        """The shard in memory, checked against its checksum, with the query data of `queries.jsonl`."""
        file = OpenedShard(self)
        judged = file.fill(np.empty((self.rows, self.feature_count)), np.empty(self.rows, np.int64))
        known = query_data(self.folder, self.known)
        if known is None:
            return judged
        ids = judged.candidates.query_ids
        return judged.with_queries(about(known, lambda: read_queries_of(known, ids, first=self.first)))


def query_data(folder: Path, checksum: str | None) -> Path | None:
    """Where the query data of a set of shards is, checked against the manifest; None where there is none."""
    path = folder / QUERIES
    if checksum is None:
        return path if path.is_file() else None  # put there later on
    if not path.is_file():
        raise DataError(f"{path}: the query data is missing; {MANIFEST} lists it. Fetch it, or convert the data anew.")
    stat = path.stat()
    if _checksum_then(path, stat.st_size, stat.st_mtime_ns) != checksum:
        raise DataError(
            f"{path}: damaged, or changed since it was written with the shards: its SHA-256 is not that of {MANIFEST}. "
            "Fetch it again, or convert the data anew."
        )
    return path


@functools.lru_cache(maxsize=64)
def _checksum_then(path: Path, size: int, changed: int) -> str:
    """The checksum of a file that every shard reads a part of; computed again once the file has changed."""
    return checksum_of(path)


class OpenedShard:
    """A shard's file, its bytes and columns checked against the manifest."""

    def __init__(self, file: ShardFile) -> None:
        self._file, self._path = file, file.path
        if not self._path.is_file():
            raise DataError(
                f"{self._path}: this shard is missing; {MANIFEST} lists it. Fetch it again, or convert the data anew. "
                f"(Looked for on {socket.gethostname()}: all machines of a cluster must find it under this path.)"
            )
        found = checksum_of(self._path)
        if found != file.checksum:
            raise DataError(
                f"{self._path}: this shard is damaged: its SHA-256 is {found[:12]}…, and {MANIFEST} says "
                f"{file.checksum[:12]}…. Fetch it again, or convert the data anew."
            )
        self._parquet = open_parquet(self._path, coded=True)
        names = self._parquet.schema_arrow.names
        self._columns = column_names(file.feature_count, file.feature_names)
        expected = [name for name in COLUMNS if name in names or name in ("qid", "label")] + self._columns
        if sorted(names) != sorted(expected):
            odd = sorted(set(names) ^ set(expected)) or sorted({name for name in names if names.count(name) > 1})
            where = "the file" if odd[0] in names else MANIFEST
            raise DataError(f"{self._path}: the columns are not those of {MANIFEST}; {odd[0]!r} is only in {where}.")
        if self._parquet.metadata.num_rows != file.rows:
            raise DataError(f"{self._path}: {self._parquet.metadata.num_rows} rows; {MANIFEST} says {file.rows}.")
        ids = [name for name in ("qid", "docid") if name in names]
        require_room_to_read(self._path, self._parquet, names, ids, "Convert the data into smaller shards.")

    def fill(self, features: Floats, labels: Ints) -> Judged:
        """The shard, with features and labels put where they belong, a row group at a time."""
        pa, _ = arrow()
        groups, row = [], 0
        try:
            for number in range(self._parquet.num_row_groups):
                table = checked(self._parquet.read_row_group(number, use_threads=False))
                rows = slice(row, row + table.num_rows)
                labels[rows] = self._numbers(table, "label", pa.int64(), row)
                _turn([self._numbers(table, name, pa.float64(), row) for name in self._columns], features[rows])
                groups.append(
                    table.select([name for name in COLUMNS if name in table.column_names and name != "label"])
                )
                row += table.num_rows
                del table  # before the next one is read
            rest = pa.concat_tables(groups)
            query_ids, starts = self._queries(rest)
            documents, comments = ids_of(self._path, rest, "docid"), strings_of(self._path, rest, "comment")
            judged = self._numbers(rest, "judged", pa.uint8(), 0) if "judged" in rest.column_names else None
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self._path}: the shard cannot be read ({error}).") from None
        pa.default_memory_pool().release_unused()
        if len(query_ids) != self._file.queries:
            raise DataError(f"{self._path}: {len(query_ids)} queries; {MANIFEST} says {self._file.queries}.")
        return about(
            self._path,
            lambda: Judged(
                Candidates(features, starts, query_ids, documents, comments, self._file.feature_names), labels, judged
            ),
        )

    def _numbers(self, table: Any, name: str, kind: Any, before: int) -> Any:
        column = table.column(name)
        if column.null_count:
            row = before + column.is_null().to_numpy().argmax() + 1
            raise DataError(f"{self._path}: row {row} has nothing in column {name}; every value must be given.")
        return to_numpy(column.cast(kind))

    def _queries(self, table: Any) -> tuple[tuple[str, ...], Ints]:
        """The queries and where each begins."""
        column = table.column("qid")
        if column.null_count:
            raise DataError(f"{self._path}: row {column.is_null().to_numpy().argmax() + 1} has no query id.")
        require_short(self._path, column, "qid")
        codes, ids = coded_ids(column, lambda value, row: str(value))
        begins = (
            np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]])) if len(codes) else np.zeros(0, np.int64)
        )
        query_ids = tuple(ids[code] for code in codes[begins].tolist())
        if len(ids) != len(query_ids):
            seen: set[str] = set()
            again = next(each for each in query_ids if each in seen or seen.add(each))  # type: ignore[func-returns-value]
            raise DataError(f"{self._path}: the rows of query {again!r} do not stand together.")
        return query_ids, np.append(begins, len(codes))


def _turn(columns: Sequence[Floats], rows: Floats) -> None:
    """Columns into rows, a block at a time."""
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK]
        for number, column in enumerate(columns):
            block[:, number] = column[first : first + _BLOCK]


def column_names(count: int, names: tuple[str, ...] | None) -> list[str]:
    """What the columns of the features are called: by name, or by number from 1."""
    return [str(column + 1) for column in range(count)] if names is None else list(names)
