"""A judged set on disk: shards of whole queries, and a manifest that lists them.

A set of shards is a folder: `part-00000.parquet`, … in order, `shards.json` with the feature names and a checksum of
every file, `queries.jsonl` if there is query data, and `judgements.parquet` if all judgments are known. A single shard
is an ordinary Judged, so anything that works query by query works on a set larger than memory.
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.judged import Candidates, Judged, Survey, concatenate, survey_of
from querywise.data.judgements import Grades
from querywise.data.letor import QUERIES
from querywise.data.parquet.arrow import (
    about,
    arrow,
    checked,
    coded_ids,
    ids_of,
    is_part,
    open_parquet,
    require_room_for_a_shard,
    require_room_for_all,
    require_room_to_read,
    require_short,
    strings_of,
    to_numpy,
)
from querywise.data.parquet.tables import JUDGEMENTS, read_grades
from querywise.data.query_table import read_queries, read_queries_of
from querywise.data.rows import first_repeated
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.files import SEAL, PathLike, checksum_of, is_sealed, read_stored_text, recover_folder
from querywise.runtime.progress import doing
from querywise.runtime.threads import in_threads
from querywise.runtime.workers import workers

MANIFEST = "shards.json"
COLUMNS = ("qid", "label", "docid", "comment", "judged")  # columns that a shard has or may have besides the features

_SMALL = 64_000_000  # bytes of features that any file may have
_DENSEST = 50  # bytes of features per byte of a file: Snappy compresses to a twentieth at best
_BLOCK = 512  # rows transposed at once, while they are in the processor's cache

FORMAT, VERSION = "querywise shards", 3  # 2 added checksums of side files, 3 judgments


@dataclass(frozen=True)
class ShardFile:
    """One Parquet file of whole queries; `first` is the number of queries in the files before it."""

    folder: Path
    name: str
    rows: int
    queries: int
    checksum: str
    feature_count: int
    feature_names: tuple[str, ...] | None = None
    first: int = 0
    known: str | None = None  # the checksum of the query data, if the set was written with any

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.folder / self.name

    def require_plausible(self) -> None:
        """Raise DataError if the manifest's counts are wrong, where they are large compared to the file's size."""
        size = self.path.stat().st_size if self.path.is_file() else 0
        if 8 * self.rows * self.feature_count > max(_SMALL, _DENSEST * size):
            OpenedShard(self)

    def load(self) -> Judged:
        """Return the shard in memory, verified against its checksum, with the query data of `queries.jsonl`."""
        with _told_if_replaced(self):
            file = OpenedShard(self)
            judged = file.fill(np.empty((self.rows, self.feature_count)))
            known = query_data(self.folder, self.known)
            if known is None:
                return judged
            ids = judged.candidates.query_ids
            return judged.with_queries(about(known, lambda: read_queries_of(known, ids, first=self.first)))


@contextlib.contextmanager
def _told_if_replaced(*files: ShardFile) -> Iterator[None]:
    """Report that shards were replaced, if they were, instead of an error that calls them damaged."""
    try:
        yield
    except DataError:
        others = files
        with contextlib.suppress(DataError):
            others = open_shards(files[0].folder).files
        if set(files) <= set(others):
            raise
        raise DataError(
            f"{files[0].folder}: the shards were replaced by others while they were read. Start again."
        ) from None


def query_data(folder: Path, checksum: str | None) -> Path | None:
    """Return the path of a set's query data, verified against the manifest, or None if there is none."""
    path = folder / QUERIES
    if checksum is None:
        return path if path.is_file() else None  # added later
    if not path.is_file():
        raise DataError(f"{path}: the query data is missing; {MANIFEST} lists it. Fetch it, or convert the data again.")
    stat = path.stat()
    if _checksum_then(path, stat.st_size, stat.st_mtime_ns) != checksum:
        raise DataError(
            f"{path}: damaged, or changed since it was written with the shards: its SHA-256 is not that of {MANIFEST}. "
            "Fetch it again, or convert the data again."
        )
    return path


@functools.lru_cache(maxsize=64)
def _checksum_then(path: Path, size: int, changed: int) -> str:
    """Return the checksum of a file that all shards read; it is computed again when the file changes."""
    return checksum_of(path)


class OpenedShard:
    """An open shard, whose content and columns are verified against the manifest."""

    def __init__(self, file: ShardFile) -> None:
        self._file, self._path = file, file.path
        if not self._path.is_file():
            raise DataError(
                f"{self._path}: this shard is missing; {MANIFEST} lists it. Fetch it again, or convert the data again. "
                f"(Looked for on {socket.gethostname()}: all machines of a cluster must find it under this path.)"
            )
        found = checksum_of(self._path)
        if found != file.checksum:
            raise DataError(
                f"{self._path}: this shard is damaged: its SHA-256 is {found[:12]}…, and {MANIFEST} says "
                f"{file.checksum[:12]}…. Fetch it again, or convert the data again."
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

    def fill(self, features: Floats) -> Judged:
        """Read the shard, writing its features into the given array, one row group at a time."""
        pa, _ = arrow()
        labels, groups, row = np.empty(len(features), np.int64), [], 0
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
                del table  # before reading the next one
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
            raise DataError(f"{self._path}: row {row} has no value in column {name}; every value must be given.")
        return to_numpy(column.cast(kind))

    def _queries(self, table: Any) -> tuple[tuple[str, ...], Ints]:
        """Return the query ids and where each query begins."""
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
            raise DataError(f"{self._path}: the rows of query {first_repeated(query_ids)!r} are not consecutive.")
        return query_ids, np.append(begins, len(codes))


def _turn(columns: Sequence[Floats], rows: Floats) -> None:
    """Transpose columns into rows, a block at a time."""
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK]
        for number, column in enumerate(columns):
            block[:, number] = column[first : first + _BLOCK]


def column_names(count: int, names: tuple[str, ...] | None) -> list[str]:
    """Return the names of the feature columns: the features' names, or their numbers from 1."""
    return [str(column + 1) for column in range(count)] if names is None else list(names)


@dataclass(frozen=True, eq=False)
class Shards:
    """A judged set on disk, in files of whole queries; `len` is the number of queries in all of them.

    `open_shards` opens one, `querywise convert` and `write_shards` write one. RankSVM, and Single, KnnOffline1 and
    KnnOffline2 with it, are fitted shard by shard; others load the whole set.

    Args:
        folder: the folder of the files.
        files: the shards, in order.
        feature_count: how many features a document has.
        feature_names: their names, or None.
        judged: the checksum of all judgments; None if they are unknown.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import Shards, make_judged
    >>> from querywise.data.parquet.writing import write_shards
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shards = write_shards([make_judged(20, 5, 3)], Path(folder) / "train.parquet", rows=40)
    ...     print(isinstance(shards, Shards), len(shards), shards.rows, len(shards.files))
    True 20 100 3
    """

    folder: Path
    files: tuple[ShardFile, ...]
    feature_count: int
    feature_names: tuple[str, ...] | None
    judged: str | None = None  # the checksum of the judgments, if they are known

    query_weights = document_weights = gains = None  # training weights are equal, and labels are grades
    in_memory = False

    def __len__(self) -> int:
        return sum(file.queries for file in self.files)

    def __repr__(self) -> str:
        queries, documents = counted(len(self), "query"), counted(self.rows, "document")
        files, features = counted(len(self.files), "file"), counted(self.feature_count, "feature")
        return f"Shards({str(self.folder)!r}: {queries}, {documents}, {features}, {files})"

    @property
    def rows(self) -> int:
        """The number of documents."""
        return sum(file.rows for file in self.files)

    @property
    def known(self) -> str:
        """A checksum of the query data."""
        path = query_data(self.folder, self.files[0].known)
        return checksum_of(path) if path is not None else ""

    @cached_property
    def surveyed(self) -> list[Survey]:
        """The summary of every shard, which training needs first; all shards are read for it, once."""
        found: list[Survey] = workers().each(_survey, self.files, label="Looking through the shards")
        return found

    @property
    def query_ids(self) -> tuple[str, ...]:
        """The id of every query."""
        return tuple(each for part in self.surveyed for each in part.query_ids)

    @property
    def pairs(self) -> Ints:
        """The number of preference pairs of each query."""
        return np.concatenate([part.pairs for part in self.surveyed])

    def load(self) -> Judged:
        """Return the whole set in memory. Raise DataError if the memory budget does not allow it."""
        require_room_for_all(self.folder, self.rows, self.feature_count)
        return cached("whole", None, self, self.whole)

    def parts(self) -> list[ShardFile]:
        """Return the parts for workers: the files.

        Raise DataError if the memory budget is too small for one of them.
        """
        require_room_for_a_shard(self.folder, max(file.rows for file in self.files), self.feature_count)
        return list(self.files)

    def surveys(self) -> list[Survey]:
        """Return the summary of every part, which training needs first."""
        return self.surveyed

    def by_query(self, work: Callable[[Candidates], Floats]) -> Floats:
        """Return the result of `work` for the candidates of every shard, a row per query."""
        return np.concatenate(workers().each(_of_candidates, self.parts(), shared=(work,)))

    def has_texts(self) -> bool:
        """Return whether queries have texts, judging by the first shard."""
        return self.files[0].load().has_texts()

    def fingerprint(self) -> list[str]:
        """Return checksums of every file and of the query data, which identify the training set."""
        return [*(file.checksum for file in self.files), self.known, *([] if self.judged is None else [self.judged])]

    def grades(self) -> Grades | None:
        """Return all judgments, or None if they are unknown."""
        return None if self.judged is None else read_grades(self.folder, self.judged)

    def pieces(self) -> list[tuple[Path, Callable[[], Judged]]]:
        """Return every file with a function that reads it and all judgments of its queries.

        The last one also holds the judged queries that are in no file.
        """
        grades = self.grades()
        if grades is None:
            return [(file.path, file.load) for file in self.files]
        known, left = grades, set(grades)

        def piece(file: ShardFile) -> Judged:
            part = file.load()
            left.difference_update(part.query_ids)
            others = tuple(query for query in known if query in left) if file is self.files[-1] else ()
            own = {query: known[query] for query in (*part.query_ids, *others) if query in known}
            return part.with_judgements(own)

        return [(file.path, partial(piece, file)) for file in self.files]

    def whole(self) -> Judged:
        """Return all shards as one judged set in memory, in order.

        This needs little more memory than the set itself.
        """
        with _told_if_replaced(*self.files):
            return self._whole()

    def _whole(self) -> Judged:
        for file in self.files:
            file.require_plausible()
        features, ends = np.empty((self.rows, self.feature_count)), np.cumsum([file.rows for file in self.files])

        def read(place: tuple[ShardFile, int]) -> Judged:
            file, end = place
            return OpenedShard(file).fill(features[end - file.rows : end])

        with doing("Reading"):
            parts = in_threads(read, list(zip(self.files, ends.tolist(), strict=True)))
            judged = concatenate(parts, features=features)
        grades = self.grades()
        if grades is not None:
            judged = about(self.folder / JUDGEMENTS, lambda: judged.with_judgements(grades))
        known = query_data(self.folder, self.files[0].known)
        return judged if known is None else about(known, lambda: judged.with_queries(read_queries(known)))


def _survey(file: ShardFile) -> Survey:
    return survey_of(file.load())


def _of_candidates(file: ShardFile, work: Callable[[Candidates], Floats]) -> Floats:
    return work(file.load().candidates)


def is_sharded(path: Path) -> bool:
    """Return whether a path is a folder of shards."""
    return (path / MANIFEST).is_file()


def open_shards(folder: PathLike) -> Shards:
    """Open a set of shards by reading its manifest, but none of its files.

    Args:
        folder: a folder written by `querywise convert` or `write_shards`.

    Returns:
        Shards, which `fit` accepts like a Judged set; `load()` reads the whole set into memory.

    Raises:
        DataError: The folder has no manifest, is damaged, or is of a newer version.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import RankSVM, make_judged, open_shards
    >>> from querywise.data.parquet.writing import write_shards
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_shards([make_judged(20, 5, 3)], Path(folder) / "train.parquet", rows=40)
    ...     print(RankSVM().fit(open_shards(Path(folder) / "train.parquet")).weights_.shape)
    (3,)
    """
    root = Path(folder).absolute()
    path = root / MANIFEST
    recover_folder(root)
    if not path.is_file():
        what = f"there is no {MANIFEST} in it" if root.is_dir() else "there is no such folder"
        raise DataError(f"{folder}: not a set of shards: {what}. `querywise convert` makes one.")
    try:
        said = json.loads(read_stored_text(path))
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']!r}, not {FORMAT!r}")
        if said["version"] > VERSION:
            raise DataError(
                f"{path}: these shards are of version {said['version']}, and this querywise reads versions up to "
                f"{VERSION}. Install a newer querywise, or convert the data again."
            )
        shards = _from_manifest(root, said)
        if (said["version"] > 1 or SEAL in said) and not is_sealed(said):  # other programs may write version 1
            raise ValueError("it does not say what was written")
        return shards
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{path}: the manifest is damaged: {why}. Convert the data again.") from None


def _from_manifest(root: Path, said: Any) -> Shards:
    names = None if said["features"] is None else tuple(said["features"])
    count = _count(said["feature_count"], "feature_count")
    if names is not None and (len(names) != count or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"it names {len(names)} features and states {count}")
    known = said["queries_sha256"] if said["version"] > 1 else None
    judged = said["judgements_sha256"] if said["version"] > 2 else None
    for name, checksum in (("queries_sha256", known), ("judgements_sha256", judged)):
        if not isinstance(checksum, str | None):
            raise ValueError(f"{name} is {checksum!r}")
    files: list[ShardFile] = []
    first = 0
    for each in said["shards"]:
        name, checksum = each["file"], each["sha256"]
        if not isinstance(name, str) or not isinstance(checksum, str) or not is_part(name):
            raise ValueError(f"{name!r} is not a shard of it")
        rows, queries = (_count(each[what], what) for what in ("rows", "queries"))
        files.append(ShardFile(root, name, rows, queries, checksum, count, names, first, known))
        first += files[-1].queries
    shards = Shards(root, tuple(files), count, names, judged)
    if not files or (said["rows"], said["queries"]) != (shards.rows, len(shards)):
        raise ValueError(
            f"it states {said['rows']} rows of {said['queries']} queries; its shards have {shards.rows} of "
            f"{len(shards)}"
        )
    if len({file.name for file in files}) != len(files):
        raise ValueError("it lists a shard twice")
    return shards


def _count(value: Any, what: str) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{what} is {value!r}")
    return value
