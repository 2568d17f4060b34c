"""Small tables in Parquet files: feature logs, judgments, scores and vectors.

A feature log becomes a judged set. All judgments of a set of shards are in `judgements.parquet` beside them, with a
query, a document and a grade per row. Scores are in a folder of parts; vectors in a column of ids and a column of lists
of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from querywise.data.frames import from_frame
from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import Grades
from querywise.data.parquet.arrow import (
    Arrow,
    about,
    arrow,
    checked,
    ids_of,
    is_part,
    memory_to_read,
    open_parquet,
    part_name,
    require_room_to_read,
    require_short,
    require_short_ids,
    rows_of,
    to_numpy,
    values_of,
    write_table,
)
from querywise.data.rows import Missing, first_repeated
from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.runtime.files import PathLike, atomic_file, checksum_of, paths_of, recover_folder
from querywise.runtime.progress import track
from querywise.runtime.workers import require_memory

JUDGEMENTS = "judgements.parquet"
_COLUMNS = ("query", "document", "grade")

_ID, _VECTOR = "_id", "vector"
_KINDS = {"halffloat": np.float16, "float": np.float32, "double": np.float64}

GROUP = "query_group"  # the column of query groups, if a log has one


def write_grades(path: Path, grades: Grades) -> None:
    """Write the judgments of all queries, query by query."""
    pa, _ = arrow()
    queries = [query for query, own in grades.items() for _ in own]
    documents = [document for own in grades.values() for document in own]
    values = np.array([grade for own in grades.values() for grade in own.values()], np.int64)
    schema = pa.schema([("query", pa.string()), ("document", pa.string()), ("grade", pa.int64())])
    write_table(path, schema, len(values), lambda rows: [queries[rows], documents[rows], values[rows]])


def read_grades(folder: Path, checksum: str) -> Grades:
    """Return the judgments of all queries, verified against the manifest's checksum."""
    path = folder / JUDGEMENTS
    if not path.is_file():
        raise DataError(f"{path}: the judgments are missing; the manifest lists them. Convert the data again.")
    if checksum_of(path) != checksum:
        raise DataError(
            f"{path}: damaged, or changed since it was written with the shards: its SHA-256 is not the manifest's. "
            "Fetch it again, or convert the data again."
        )
    pa, _ = arrow()
    file = open_parquet(path, coded=True)
    require_room_to_read(path, file, _COLUMNS, _COLUMNS[:2], "Judge fewer documents, or allow more memory.")
    try:
        table = checked(file.read(columns=list(_COLUMNS), use_threads=False))
        values = table.column("grade").cast(pa.int64())
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{path}: the judgments cannot be read ({error}). Convert the data again.") from None
    queries, documents = ids_of(path, table, "query"), ids_of(path, table, "document")
    if queries is None or documents is None or values.null_count:
        raise DataError(f"{path}: expected the columns query, document and grade; found {file.schema_arrow.names}.")
    found: dict[str, dict[str, int]] = {}
    for query, document, grade in zip(queries, documents, to_numpy(values).tolist(), strict=True):
        found.setdefault(query, {})[document] = grade
    return found


class Scored(NamedTuple):
    """Stored scores: the query and, if known, the document of every row."""

    query_ids: tuple[str, ...]
    document_ids: tuple[str, ...] | None
    scores: Floats


def write_scored_part(path: PathLike, candidates: Candidates, scores: Floats) -> None:
    """Write a Parquet file of scores: `qid`, `docid` if documents have ids, and `score`, in the order of the rows.

    The files of a folder are named `part-00000.parquet`, `part-00001.parquet`, …; see `part_name`.
    """
    pa, _ = arrow()
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
        write_table(beside, schema, len(values), columns)


def read_scored(folder: PathLike, *, most: int | None = None) -> Scored:
    """Return the scores in a folder, its parts in order.

    Raise DataError if the footers of the files declare more than `most` scores, before any is read.
    """
    pa, _ = arrow()
    root = Path(folder)
    recover_folder(root)
    found = {int(each.name[5:-8]): each for each in root.glob("part-*.parquet") if is_part(each.name)}
    if not found:
        raise DataError(f"{root}: there are no scores in this folder. Expected {part_name(0)}, {part_name(1)}, ….")
    missing = next((number for number in range(len(found)) if number not in found), None)
    if missing is not None:
        raise DataError(f"{root / part_name(missing)}: this part of the scores is missing. Rank the documents again.")
    files = [open_parquet(found[number], coded=True) for number in range(len(found))]
    for number, file in enumerate(files):
        if not {"qid", "score"} <= set(file.schema_arrow.names):
            raise DataError(f"{found[number]}: this is not a part of scores, with columns qid and score.")
    count = sum(map(rows_of, files))
    if most is not None and count > most:
        raise DataError(f"{root}: {count} scores for {most} documents; one each is needed.")
    query_ids: list[str] = []
    document_ids: list[str] | None = []
    scores = []
    for number, file in enumerate(files):
        path, ids = found[number], [name for name in ("qid", "docid") if name in file.schema_arrow.names]
        require_room_to_read(path, file, [*ids, "score"], ids, "Rank the documents in parts.")
        try:
            table = checked(file.read(columns=[*ids, "score"], use_threads=False))
            values = to_numpy(table["score"].cast(pa.float64()))
            query_ids += ids_of(path, table.select(["qid"]), "qid") or ()
            known = ids_of(path, table, "docid")
        except (pa.ArrowException, KeyError, OSError) as error:
            raise DataError(f"{path}: this is not a part of scores, with columns qid and score ({error}).") from None
        document_ids = None if document_ids is None or known is None else [*document_ids, *known]
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise DataError(f"{path}: row {wrong[0] + 1} has the score {values[wrong[0]]}, not a finite number.")
        scores.append(values)
    known_ids = None if document_ids is None else tuple(document_ids)
    return Scored(tuple(query_ids), known_ids, np.concatenate(scores))


def read_parquet_vectors(path: Path) -> tuple[list[str], NDArray[np.float16 | np.float32 | np.float64]]:
    """Return the ids and the vectors of a file; every list must be as long as the first."""
    file = open_parquet(path, coded=True)
    lacking = next((name for name in (_ID, _VECTOR) if file.schema_arrow.names.count(name) != 1), None)
    if lacking is not None:
        found = "more than one column" if lacking in file.schema_arrow.names else "no column"
        raise DataError(
            f"{path}: there is {found} {lacking!r}; expected {_ID} and {_VECTOR}, found "
            f"{', '.join(file.schema_arrow.names[:8])}."
        )
    require_room_to_read(path, file, [_ID, _VECTOR], [_ID], "A .npy file is mapped into memory instead.")
    table = _read(path, file, [_ID, _VECTOR])
    require_short(path, table.column(_ID), _ID)
    ids = values_of(table.column(_ID))
    wrong = next((row for row, each in enumerate(ids) if type(each) not in (str, int) or not str(each).strip()), None)
    if wrong is not None:
        raise DataError(f"{path}: row {wrong + 1} has the {_ID} {ids[wrong]!r:.60}; expected a text.")
    return [str(each) for each in ids], _table(path, table.column(_VECTOR))


def _table(path: Path, column: Arrow) -> NDArray[np.float16 | np.float32 | np.float64]:
    """Return a column of lists of numbers as a table."""
    pa, _ = arrow()
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    fixed = pa.types.is_fixed_size_list(column.type)
    kind = _KINDS.get(str(column.type.value_type)) if is_list or fixed else None
    if kind is None:
        raise DataError(f"{path}: the column {_VECTOR} is of type {column.type}; expected lists of float or double.")
    parts, width, first = [], None, 0
    for chunk in column.chunks:
        if chunk.null_count:
            row = first + int(np.flatnonzero(chunk.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError(f"{path}: row {row + 1} has no {_VECTOR}; give every row one, or leave the row out.")
        if len(chunk):
            lengths = np.diff(chunk.offsets.to_numpy()) if is_list else np.full(len(chunk), column.type.list_size)
            width = int(lengths[0]) if width is None else width
            odd = np.flatnonzero(lengths != width)
            if len(odd):
                row = int(odd[0])
                raise DataError(f"{path}: row {first + row + 1} has {lengths[row]} numbers; the first has {width}.")
            parts.append(np.asarray(chunk.flatten().to_numpy(zero_copy_only=False), kind).reshape(len(chunk), width))
        first += len(chunk)
    return np.concatenate(parts) if parts else np.zeros((0, 1), kind)


@dataclass(frozen=True)
class LogColumns:
    """The column names of a Parquet log; without a label column all documents are unjudged."""

    qid: str = "qid"
    label: str | None = "label"
    docid: str | None = "docid"
    query_group: str | None = GROUP


def read_parquet(
    paths: PathLike | Sequence[PathLike],
    *,
    qid: str = "qid",
    label: str | None = "label",
    docid: str | None = "docid",
    query_group: str | None = GROUP,
    gains: bool | Sequence[float] = False,
    missing: Missing = "refused",
) -> Judged:
    """Read a feature log from one or several Parquet files; a folder stands for the .parquet files in it.

    Every numeric column without another role is a feature. The rows of a query need not be contiguous; a missing label
    means that the document is unjudged, and a log without a column `docid` has no document ids. A column `query_group`,
    if any, holds the group of every row's query, which folds keep together. For `gains` see `from_arrays`. With
    `missing="allowed"`, features may be null or NaN, for rankers with a policy for them.
    """
    files = [file for path in paths_of(paths) for file in log_files(path)]
    if not files:
        raise DataError("No file to read was given.")
    pa, _ = arrow()
    named, ids = {qid, label, docid, query_group}, {qid, docid}
    _require_room(files, named, ids)
    tables = [_log(file, named, ids) for file in track(files, "Reading")]
    for file, table in zip(files, tables, strict=True):
        if set(table.column_names) != set(tables[0].column_names):
            odd = sorted(set(table.column_names) ^ set(tables[0].column_names))
            raise DataError(
                f"{file}: {files[0]} and this file do not have the same columns; {odd[0]!r} is in one only."
            )
    document = docid if docid != "docid" or docid in tables[0].column_names else None
    group = query_group if query_group != GROUP or query_group in tables[0].column_names else None

    def judged(table: Any) -> Judged:
        return from_frame(
            table, label=label, qid=qid, document=document, query_group=group, gains=gains, missing=missing
        )

    if len(files) == 1:
        return about(files[0], lambda: judged(tables[0]))
    try:
        return judged(
            pa.concat_tables([table.select(tables[0].column_names) for table in tables], promote_options="permissive")
        )
    except (DataError, pa.ArrowException) as error:
        for file, table in zip(files, tables, strict=True):  # find the faulty file
            about(file, lambda table=table: judged(table))  # type: ignore[misc]
        raise DataError(f"{', '.join(map(str, files))}: {error}") from None


def log_files(path: Path) -> list[Path]:
    """Return the files of a log: the path itself, or the .parquet files in the folder, by name."""
    if not path.is_dir():
        return [path]
    found = sorted(
        each for each in path.iterdir() if each.suffix == ".parquet" and not each.name.startswith((".", "_"))
    )
    if not found:
        raise DataError(f"{path}: there is no .parquet file in this folder.")
    return found


def _require_room(files: Sequence[Path], named: Set[str | None], ids: Set[str | None]) -> None:
    """Raise DataError if the footers declare more data than fits into memory, before any row is read."""
    rows = needed = columns = 0
    for path in files:
        file = open_parquet(path)
        used = _used(file, named)
        require_short_ids(path, file, [name for name in used if name in ids])
        rows, columns, needed = rows + rows_of(file), max(columns, len(used)), needed + memory_to_read(path, file, used)
    require_memory(
        needed,
        f"{files[0]}{' and the files after it' if len(files) > 1 else ''}: reading {rows} rows of {columns} columns "
        "takes",
        "Cut the log into smaller files, of whole queries; `querywise convert` reads one at a time.",
    )


def _used(file: Arrow, named: Set[str | None]) -> list[str]:
    """Return the columns to read: those with a role, and numeric ones."""
    types = arrow()[0].types
    numeric = (types.is_integer, types.is_floating, types.is_decimal)
    return [
        field.name
        for field in file.schema_arrow
        if not field.type.num_fields and (field.name in named or any(each(field.type) for each in numeric))
    ]


def _log(path: Path, named: Set[str | None], ids: Set[str | None]) -> Arrow:
    """Return the columns of a log; unused ones have no values."""
    pa, _ = arrow()
    file = open_parquet(path, coded=True)
    names = file.schema_arrow.names
    repeated = first_repeated(names)
    if repeated is not None:
        raise DataError(f"{path}: there are two columns called {repeated!r}; every column needs a unique name.")
    plain = [field.name for field in file.schema_arrow if not field.type.num_fields]  # neither lists nor records
    used = _used(file, named)
    table = _read(path, file, used)
    for name in (each for each in used if each in ids):
        require_short(path, table.column(name), name)
    nothing = pa.chunked_array([pa.nulls(table.num_rows)])
    return pa.table([table.column(name) if name in used else nothing for name in plain], names=plain)


def _read(path: Path, file: Arrow, columns: Sequence[str]) -> Arrow:
    """Read some columns of an open file."""
    try:
        return checked(file.read(columns=list(columns), use_threads=False))
    except (arrow()[0].ArrowException, OSError) as error:
        raise DataError(f"{path}: this Parquet file is damaged ({error}).") from None
