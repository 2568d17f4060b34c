"""Judged sets in Parquet: shards of whole queries with a manifest, feature logs, and scores.

A set of shards is a folder: `part-00000.parquet`, … in order, `shards.json` with the feature names and a checksum of
every file, and `queries.jsonl` where more is known of the queries. One shard is a Judged like any other, so whatever
works query by query works on a set that no memory holds. The one module that knows Arrow.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from querywise.data.frames import from_frame
from querywise.data.judged import Candidates, Judged, QueryTable, concatenate, survey_of
from querywise.data.letor import PathLike
from querywise.data.parquet.budget import require_room_for_a_shard, require_room_for_all
from querywise.data.parquet.cutting import COLUMNS, Fitting, by_number, by_rows
from querywise.data.queries import read_queries, read_queries_of, write_queries
from querywise.data.sidefiles import QUERIES
from querywise.data.survey import Survey
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.cache import once
from querywise.runtime.files import atomic_file, atomic_folder, atomic_text, check_folder, read_text
from querywise.runtime.progress import doing, track
from querywise.runtime.threads import in_threads
from querywise.runtime.workers import crew

MANIFEST = "shards.json"
ROWS = 100_000
_Result = TypeVar("_Result")
_FORMAT, _VERSION = "querywise shards", 1
_GROUP = 8_192  # rows in a row group: what is decoded at once
_BLOCK = 512  # rows turned from columns to rows at once, while they are in the processor's cache


@dataclass(frozen=True)
class ShardFile:
    """One Parquet file of whole queries. `first`: how many queries of the set stand before it."""

    folder: Path
    name: str
    rows: int
    queries: int
    checksum: str
    feature_count: int
    feature_names: tuple[str, ...] | None = None
    first: int = 0

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.folder / self.name

    def load(self) -> Judged:
        """The shard in memory, checked against its checksum, with what `queries.jsonl` says of its queries."""
        file = _Opened(self)
        judged = file.fill(np.empty((self.rows, self.feature_count)), np.empty(self.rows, np.int64))
        known = self.folder / QUERIES
        if not known.is_file():
            return judged
        ids = judged.candidates.query_ids
        return judged.with_queries(_about(known, lambda: read_queries_of(known, ids, first=self.first)))


@dataclass(frozen=True, eq=False)
class Shards:
    """A judged set on disk, in files of whole queries; `len` is the number of queries in all of them.

    >>> import tempfile
    >>> from querywise.data.synthetic import make_judged
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shards = write_shards([make_judged(20, 5, 3)], Path(folder) / "train.parquet", rows=40)
    ...     print(len(shards), shards.rows, len(shards.files), len(shards.files[0].load()))
    20 100 3 8
    """

    folder: Path
    files: tuple[ShardFile, ...]
    feature_count: int
    feature_names: tuple[str, ...] | None

    def __len__(self) -> int:
        return sum(file.queries for file in self.files)

    @property
    def rows(self) -> int:
        """How many documents there are in all."""
        return sum(file.rows for file in self.files)

    @property
    def known(self) -> str:
        """A checksum of what is known of the queries beside their documents."""
        path = self.folder / QUERIES
        return _sum(path) if path.is_file() else ""

    @cached_property
    def surveyed(self) -> list[Survey]:
        """What has to be known of every shard before anything is learned; all are read for it, once."""
        found: list[Survey] = crew().each(_survey, self.files, label="Looking through the shards")
        return found

    @property
    def query_ids(self) -> tuple[str, ...]:
        """The id of every query."""
        return tuple(each for part in self.surveyed for each in part.query_ids)

    @property
    def pairs(self) -> Ints:
        """How many preference pairs each query has."""
        return np.concatenate([part.pairs for part in self.surveyed])

    @property
    def in_memory(self) -> bool:
        """Whether all of it is in memory already: it is on disk."""
        return False

    def load(self) -> Judged:
        """All of it in memory, as `whole` gives it; refused where a budget of memory does not allow it."""
        require_room_for_all(self.folder, self.rows, self.feature_count)
        return once("whole", None, self, self.whole)

    def parts(self) -> list[ShardFile]:
        """What is handed to the crew: the files; refused where a budget of memory is too small for one of them."""
        require_room_for_a_shard(self.folder, max(file.rows for file in self.files), self.feature_count)
        return list(self.files)

    def surveys(self) -> list[Survey]:
        """What has to be known of every part before anything is learned."""
        return self.surveyed

    def by_query(self, work: Callable[[Candidates], Floats]) -> Floats:
        """Rows, one for each query: what `work` gives for the candidates of every shard."""
        return np.concatenate(crew().each(_of_candidates, self.parts(), shared=(work,)))

    def has_texts(self) -> bool:
        """Whether queries have a text; the first shard tells."""
        return self.files[0].load().has_texts()

    def fingerprint(self) -> list[str]:
        """What tells one training set from another: a checksum of every file and of what is known of the queries."""
        return [*(file.checksum for file in self.files), self.known]

    def whole(self) -> Judged:
        """All shards in memory as one judged set, in order; needs little more memory than the set itself."""
        features, labels = np.empty((self.rows, self.feature_count)), np.empty(self.rows, np.int64)
        ends = np.cumsum([file.rows for file in self.files]).tolist()

        def read(place: tuple[ShardFile, int]) -> Judged:
            file, end = place
            return _Opened(file).fill(features[end - file.rows : end], labels[end - file.rows : end])

        with doing("Reading"):
            judged = _together(features, labels, in_threads(read, list(zip(self.files, ends, strict=True))))
        known = self.folder / QUERIES
        return _about(known, lambda: judged.with_queries(read_queries(known))) if known.is_file() else judged


def _survey(file: ShardFile) -> Survey:
    return survey_of(file.load())


def _of_candidates(file: ShardFile, work: Callable[[Candidates], Floats]) -> Floats:
    return work(file.load().candidates)


def is_sharded(path: Path) -> bool:
    """Whether a path is a folder of shards."""
    return (path / MANIFEST).is_file()


def open_shards(folder: PathLike) -> Shards:
    """A set of shards, its manifest read and none of its files."""
    root = Path(folder).absolute()
    path = root / MANIFEST
    if not path.is_file():
        what = f"there is no {MANIFEST} in it" if root.is_dir() else "there is no such folder"
        raise DataError(f"{folder}: not a set of shards: {what}. `querywise convert` makes one.")
    try:
        said = json.loads(read_text(path))
        if said["format"] != _FORMAT:
            raise ValueError(f"its format is {said['format']!r}, not {_FORMAT!r}")
        if said["version"] > _VERSION:
            raise DataError(
                f"{path}: these shards are of version {said['version']}, and this querywise reads versions up to "
                f"{_VERSION}. Install a newer querywise, or convert the data anew."
            )
        return _from_manifest(root, said)
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        why = f"it says nothing of {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{path}: the manifest is damaged: {why}. Convert the data anew.") from None


def write_shards(
    parts: Iterable[Judged],
    folder: PathLike,
    *,
    rows: int = ROWS,
    shards: int | None = None,
    queries: QueryTable | None = None,
) -> Shards:
    """Write judged sets, one after the other, as one set of shards of about `rows` rows each; no query is split.

    Parts are taken as they come and held no longer than it takes to write them. With `shards`, everything is held, and
    cut into that many files of about the same number of rows. `queries` says more of the queries than the parts do.
    A folder of shards that is already there is replaced as a whole once all is written, and stays until then. A query
    without documents has no row, and is left out.
    """
    # map, here and below, lets go of a part before it takes the next one
    named = map(lambda number, part: (f"part {number}", part), count(1), parts)
    return write_named_shards(named, folder, rows=rows, shards=shards, queries=queries)


def write_named_shards(
    parts: Iterable[tuple[str, Judged]],
    folder: PathLike,
    *,
    rows: int = ROWS,
    shards: int | None = None,
    queries: QueryTable | None = None,
) -> Shards:
    """The same of parts with names, which messages use."""
    root = Path(folder).absolute()
    if rows < 1:
        raise DataError(f"rows={rows}: a shard has 1 row or more.")
    check_shards_folder(root)
    seen = Fitting(queries)
    checked = map(seen.checked, parts)
    cuts = by_rows(checked, rows) if shards is None else by_number(list(checked), shards)
    with atomic_folder(root) as made:
        written = list(map(partial(_write_shard, made), count(), cuts))
        if not written:
            raise DataError(f"{folder}: there is nothing to write: no document was given.")
        table = seen.table()
        if table is not None:
            write_queries(made / QUERIES, table)
        manifest = {
            "format": _FORMAT,
            "version": _VERSION,
            "features": seen.names,
            "feature_count": seen.width,
            "rows": sum(each["rows"] for each in written),
            "queries": sum(each["queries"] for each in written),
            "shards": written,
        }
        with atomic_text(made / MANIFEST) as out:
            out.write(json.dumps(manifest, indent=1) + "\n")
    return open_shards(root)


def check_shards_folder(path: Path) -> None:
    """Refuse a folder whose place shards cannot take, before any long work is done for them."""
    if path.is_file():
        raise DataError(f"{path}: this is a file; shards are a folder.")
    check_folder(path)
    found = sorted(each.name for each in path.iterdir()) if path.is_dir() else []
    if found and not is_sharded(path):
        raise DataError(f"{path}: the folder holds something that is not shards. Name another, or an empty one.")
    stray = [name for name in found if name not in (MANIFEST, QUERIES) and not is_part(name)]
    if stray:
        raise DataError(f"{path}: {stray[0]!r} is beside the shards here, which are replaced as a whole. Move it away.")


def read_parquet(
    paths: PathLike | Sequence[PathLike], *, qid: str = "qid", label: str | None = "label", docid: str | None = "docid"
) -> Judged:
    """A feature log, one Parquet file or several as one set; a folder stands for the .parquet files in it.

    Every numeric column beside those named is a feature. The rows of a query need not stand together; a missing label
    means that nobody judged the document, and a log without a column `docid` has no document ids.
    """
    names = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files = [file for name in names for file in log_files(Path(name))]
    if not files:
        raise DataError("No file to read was given.")
    pa, _ = _arrow()
    tables = [_log(file) for file in track(files, "Reading")]
    for file, table in zip(files, tables, strict=True):
        if set(table.column_names) != set(tables[0].column_names):
            odd = sorted(set(table.column_names) ^ set(tables[0].column_names))
            raise DataError(
                f"{file}: {files[0]} and this file do not have the same columns; {odd[0]!r} is in one only."
            )
    document = docid if docid != "docid" or docid in tables[0].column_names else None

    def judged(table: Any) -> Judged:
        return from_frame(table, label=label, qid=qid, document=document)

    if len(files) == 1:
        return _about(files[0], lambda: judged(tables[0]))
    try:
        return judged(
            pa.concat_tables([table.select(tables[0].column_names) for table in tables], promote_options="permissive")
        )
    except (DataError, pa.ArrowException) as error:
        for file, table in zip(files, tables, strict=True):  # which of them is it?
            _about(file, lambda table=table: judged(table))  # type: ignore[misc]
        raise DataError(f"{', '.join(map(str, files))}: {error}") from None


def log_files(path: Path) -> list[Path]:
    """The files of a log: the path itself, or the .parquet files in the folder it is, by name."""
    if not path.is_dir():
        return [path]
    found = sorted(
        each for each in path.iterdir() if each.suffix == ".parquet" and not each.name.startswith((".", "_"))
    )
    if not found:
        raise DataError(f"{path}: there is no .parquet file in this folder.")
    return found


class Scored(NamedTuple):
    """Scores as they were written: the query and, where known, the document of every row."""

    query_ids: tuple[str, ...]
    document_ids: tuple[str, ...] | None
    scores: Floats


def write_scored_part(path: PathLike, candidates: Candidates, scores: Floats) -> None:
    """One Parquet file of scores: `qid`, `docid` where the documents have ids, and `score`, in the order of the rows.

    The files of a folder are called `part-00000.parquet`, `part-00001.parquet`, …, which `part_name` gives.
    """
    pa, _ = _arrow()
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (len(candidates.features),) or not np.isfinite(values).all():
        raise DataError(f"{path}: one finite score for each of {len(candidates.features)} documents is needed.")
    fields = [("qid", pa.string()), ("docid", pa.string()), ("score", pa.float64())]
    schema = pa.schema([field for field in fields if field[0] != "docid" or candidates.document_ids is not None])
    owners = candidates.query_of_row

    def columns(rows: slice) -> list[Any]:
        ids = [[candidates.query_ids[query] for query in owners[rows].tolist()]]
        ids += [] if candidates.document_ids is None else [list(candidates.document_ids[rows])]
        return [*ids, values[rows]]

    with atomic_file(Path(path)) as beside:
        _write_table(beside, schema, len(values), columns)


def part_name(number: int) -> str:
    """What the files of a folder are called, counted from 0."""
    return f"part-{number:05d}.parquet"


def read_scored(folder: PathLike) -> Scored:
    """The scores in a folder, its parts in order."""
    pa, _ = _arrow()
    root = Path(folder)
    found = {int(each.name[5:-8]): each for each in root.glob("part-*.parquet") if is_part(each.name)}
    if not found:
        raise DataError(f"{root}: there are no scores in this folder. Expected {part_name(0)}, {part_name(1)}, ….")
    missing = next((number for number in range(len(found)) if number not in found), None)
    if missing is not None:
        raise DataError(f"{root / part_name(missing)}: this part of the scores is missing. Rank the documents again.")
    query_ids: list[str] = []
    document_ids: list[str] | None = []
    scores = []
    for number in range(len(found)):
        path = found[number]
        try:
            table = _parquet(path).read(use_threads=False)
            values = _numpy(table["score"].cast(pa.float64()))
            query_ids += _strings(path, table, "qid") or ()
            known = _strings(path, table, "docid")
        except (pa.ArrowException, KeyError, OSError) as error:
            raise DataError(f"{path}: this is not a part of scores, with columns qid and score ({error}).") from None
        document_ids = None if document_ids is None or known is None else [*document_ids, *known]
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise DataError(f"{path}: row {wrong[0] + 1} has the score {values[wrong[0]]}, not a finite number.")
        scores.append(values)
    known_ids = None if document_ids is None else tuple(document_ids)
    return Scored(tuple(query_ids), known_ids, np.concatenate(scores))


def _write_shard(folder: Path, number: int, pieces: Sequence[Judged]) -> dict[str, Any]:
    """Write the next shard, and give its line of the manifest."""
    name = part_name(number)
    data = concatenate(pieces) if len(pieces) > 1 else pieces[0]
    _write_data(folder / name, data)
    return {"file": name, "rows": len(data.labels), "queries": len(data), "sha256": _sum(folder / name)}


def _write_data(path: Path, data: Judged) -> None:
    """One shard; a column that this shard's documents do not have is left out."""
    pa, _ = _arrow()
    candidates = data.candidates
    optional = (candidates.document_ids, candidates.comments, data.judged)
    kinds = (pa.string(), pa.int64(), pa.string(), pa.string(), pa.bool_())
    own = [
        field
        for field, values in zip(zip(COLUMNS, kinds, strict=True), (1, 1, *optional), strict=True)
        if values is not None
    ]
    schema = pa.schema(
        [
            *own,
            *((name, pa.float64()) for name in _column_names(candidates.features.shape[1], candidates.feature_names)),
        ]
    )
    owners = candidates.query_of_row

    def columns(rows: slice) -> list[Any]:
        ids = [candidates.query_ids[query] for query in owners[rows].tolist()]
        given = [values[rows] for values in optional if values is not None]
        return [ids, data.labels[rows], *given, *np.ascontiguousarray(candidates.features[rows].T)]

    _write_table(path, schema, len(data.labels), columns)


def _write_table(path: Path, schema: Any, rows: int, columns: Callable[[slice], list[Any]]) -> None:
    """A Parquet file, a row group at a time. Real numbers seldom repeat: a dictionary of them would be larger."""
    pa, pq = _arrow()
    try:
        with pq.ParquetWriter(path, schema, compression="snappy", use_dictionary=["qid"]) as out:
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


class _Opened:
    """A shard's file, its bytes and columns found to be what the manifest says."""

    def __init__(self, file: ShardFile) -> None:
        self._file, self._path = file, file.path
        if not self._path.is_file():
            raise DataError(
                f"{self._path}: this shard is missing; {MANIFEST} lists it. Fetch it again, or convert the data anew. "
                f"(Looked for on {socket.gethostname()}: all machines of a cluster must find it under this path.)"
            )
        found = _sum(self._path)
        if found != file.checksum:
            raise DataError(
                f"{self._path}: this shard is damaged: its SHA-256 is {found[:12]}…, and {MANIFEST} says "
                f"{file.checksum[:12]}…. Fetch it again, or convert the data anew."
            )
        self._parquet = _parquet(self._path)
        names = self._parquet.schema_arrow.names
        self._columns = _column_names(file.feature_count, file.feature_names)
        expected = [name for name in COLUMNS if name in names or name in ("qid", "label")] + self._columns
        if sorted(names) != sorted(expected):
            odd = sorted(set(names) ^ set(expected)) or sorted({name for name in names if names.count(name) > 1})
            where = "the file" if odd[0] in names else MANIFEST
            raise DataError(f"{self._path}: the columns are not those of {MANIFEST}; {odd[0]!r} is only in {where}.")
        if self._parquet.metadata.num_rows != file.rows:
            raise DataError(f"{self._path}: {self._parquet.metadata.num_rows} rows; {MANIFEST} says {file.rows}.")

    def fill(self, features: Floats, labels: Ints) -> Judged:
        """The shard, with features and labels put where they belong, a row group at a time."""
        pa, _ = _arrow()
        groups, row = [], 0
        try:
            for number in range(self._parquet.num_row_groups):
                table = self._parquet.read_row_group(number, use_threads=False)
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
            documents, comments = _strings(self._path, rest, "docid"), _strings(self._path, rest, "comment")
            judged = self._numbers(rest, "judged", pa.uint8(), 0) if "judged" in rest.column_names else None
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self._path}: the shard cannot be read ({error}).") from None
        pa.default_memory_pool().release_unused()
        if len(query_ids) != self._file.queries:
            raise DataError(f"{self._path}: {len(query_ids)} queries; {MANIFEST} says {self._file.queries}.")
        return _about(
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
        return _numpy(column.cast(kind))

    def _queries(self, table: Any) -> tuple[tuple[str, ...], Ints]:
        """The queries and where each begins."""
        pa, _ = _arrow()
        column = table.column("qid")
        if column.null_count:
            raise DataError(f"{self._path}: row {column.is_null().to_numpy().argmax() + 1} has no query id.")
        coded = column.cast(pa.string()).combine_chunks().dictionary_encode()
        codes = _numpy(pa.chunked_array([coded.indices]))
        begins = (
            np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]])) if len(codes) else np.zeros(0, np.int64)
        )
        ids = coded.dictionary.to_pylist()
        query_ids = tuple(ids[code] for code in codes[begins].tolist())
        if len(ids) != len(query_ids):
            seen: set[str] = set()
            again = next(each for each in query_ids if each in seen or seen.add(each))  # type: ignore[func-returns-value]
            raise DataError(f"{self._path}: the rows of query {again!r} do not stand together.")
        return query_ids, np.append(begins, len(codes))


def _parquet(path: Path) -> Any:
    """A Parquet file to read from. Arrow's own threads stay out of it: they can abort a program at its end."""
    pa, pq = _arrow()
    try:
        return pq.ParquetFile(pa.OSFile(str(path)), pre_buffer=False)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: this is not a Parquet file, or it is damaged ({error}).") from None


def _numpy(column: Any) -> Any:
    """A column of numbers without nulls as an array; Arrow's own way there imports pandas where it is installed."""
    names = {"double": np.float64, "int64": np.int64, "int32": np.int32, "uint8": np.uint8}
    kind = names[str(column.type)]
    parts = [
        np.frombuffer(chunk.buffers()[1], kind)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in column.chunks
        if len(chunk)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, kind), *parts])


def _turn(columns: Sequence[Floats], rows: Floats) -> None:
    """Columns into rows, a block at a time."""
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK]
        for number, column in enumerate(columns):
            block[:, number] = column[first : first + _BLOCK]


def _together(features: Floats, labels: Ints, parts: Sequence[Judged]) -> Judged:
    """Parts whose features and labels stand in one array already, put together as `concatenate` does."""
    each = [part.candidates for part in parts]
    sizes = np.concatenate([part.sizes for part in each])
    masks = [np.ones(len(part.labels), np.bool_) if part.judged is None else part.judged for part in parts]
    candidates = Candidates(
        features=features,
        starts=np.concatenate([[0], np.cumsum(sizes)]),
        query_ids=tuple(query_id for part in each for query_id in part.query_ids),
        document_ids=_joined([part.document_ids for part in each]),
        comments=_joined([part.comments for part in each]),
        feature_names=each[0].feature_names,
    )
    return Judged(candidates, labels, None if all(part.judged is None for part in parts) else np.concatenate(masks))


def _joined(parts: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    known = [part for part in parts if part is not None]
    return tuple(value for part in known for value in part) if len(known) == len(parts) else None


def _strings(path: Path, table: Any, name: str) -> tuple[str, ...] | None:
    if name not in table.column_names:
        return None
    column = table.column(name)
    if column.null_count:
        row = column.is_null().to_numpy().argmax() + 1
        raise DataError(f"{path}: row {row} has nothing in column {name}; give every row one, or leave the column out.")
    return tuple(column.to_pylist())


def _log(path: Path) -> Any:
    pa, _ = _arrow()
    try:
        return _parquet(path).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: this Parquet file is damaged ({error}).") from None


def _from_manifest(root: Path, said: Any) -> Shards:
    names = None if said["features"] is None else tuple(said["features"])
    count = _count(said["feature_count"], "feature_count")
    if names is not None and (len(names) != count or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"it names {len(names)} features and says there are {count}")
    files: list[ShardFile] = []
    first = 0
    for each in said["shards"]:
        name, checksum = each["file"], each["sha256"]
        if not isinstance(name, str) or not isinstance(checksum, str) or not is_part(name):
            raise ValueError(f"{name!r} is not a shard of it")
        files.append(
            ShardFile(
                root,
                name,
                _count(each["rows"], "rows"),
                _count(each["queries"], "queries"),
                checksum,
                count,
                names,
                first,
            )
        )
        first += files[-1].queries
    shards = Shards(root, tuple(files), count, names)
    if not files or (said["rows"], said["queries"]) != (shards.rows, len(shards)):
        raise ValueError(
            f"it says {said['rows']} rows of {said['queries']} queries; its shards have {shards.rows} of {len(shards)}"
        )
    if len({file.name for file in files}) != len(files):
        raise ValueError("it lists a shard twice")
    return shards


def _count(value: Any, what: str) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{what} is {value!r}")
    return value


def _column_names(count: int, names: tuple[str, ...] | None) -> list[str]:
    return [str(column + 1) for column in range(count)] if names is None else list(names)


def is_part(name: str) -> bool:
    """Whether a file is called as `part_name` calls them."""
    return name.startswith("part-") and name.endswith(".parquet") and name[5:-8].isdecimal()


def _sum(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def _about(path: Path, work: Callable[[], _Result]) -> _Result:
    """The result of the work; a message that does not say which file it is about says so."""
    try:
        return work()
    except DataError as error:
        raise error if str(path) in str(error) else DataError(f"{path}: {error}") from None


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError("Parquet needs pyarrow, which is not installed: pip install 'querywise[cluster]'") from None
    return pyarrow, pyarrow.parquet
