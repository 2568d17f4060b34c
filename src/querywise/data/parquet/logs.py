"""Feature logs in Parquet files, as a judged set."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from querywise.data.frames import from_frame
from querywise.data.judged import Judged
from querywise.data.parquet.arrow import Arrow, about, arrow, checked, open_parquet, require_short
from querywise.data.parquet.budget import memory_to_read, require_short_ids, rows_of
from querywise.data.rows import Missing, first_repeated
from querywise.errors import DataError
from querywise.runtime.files import PathLike
from querywise.runtime.progress import track
from querywise.runtime.workers import require_memory

GROUP = "query_group"  # the column of groups of queries, where a log has one


@dataclass(frozen=True)
class LogColumns:
    """The column names of a Parquet log; without a label column nothing is judged."""

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
    """A feature log, one Parquet file or several as one set; a folder stands for the .parquet files in it.

    Every numeric column beside those named is a feature. The rows of a query need not be contiguous; a missing label
    means that the document is unjudged, and a log without a column `docid` has no document ids. A column `query_group`,
    if there is one, has the group of every row's query, which folds keep together. For `gains` see `from_arrays`.
    `missing="allowed"`: features may be null or NaN, which rankers with a policy for them take.
    """
    names = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files = [file for name in names for file in log_files(Path(name))]
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
        for file, table in zip(files, tables, strict=True):  # find the file that is at fault
            about(file, lambda table=table: judged(table))  # type: ignore[misc]
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


def _require_room(files: Sequence[Path], named: Set[str | None], ids: Set[str | None]) -> None:
    """Refuse files whose footers have more rows of columns than memory holds, before any row is read."""
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
    """The columns that are read: those with a name of their own, and numbers."""
    types = arrow()[0].types
    numeric = (types.is_integer, types.is_floating, types.is_decimal)
    return [
        field.name
        for field in file.schema_arrow
        if not field.type.num_fields and (field.name in named or any(each(field.type) for each in numeric))
    ]


def _log(path: Path, named: Set[str | None], ids: Set[str | None]) -> Arrow:
    """The columns of a log, those that are not used without their values."""
    pa, _ = arrow()
    file = open_parquet(path, coded=True)
    names = file.schema_arrow.names
    repeated = first_repeated(names)
    if repeated is not None:
        raise DataError(f"{path}: there are two columns called {repeated!r}; every column needs a name of its own.")
    plain = [field.name for field in file.schema_arrow if not field.type.num_fields]  # no lists, no records
    used = _used(file, named)
    try:
        table = checked(file.read(columns=used, use_threads=False))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: this Parquet file is damaged ({error}).") from None
    for name in used:
        if name in ids:
            require_short(path, table.column(name), name)
    nothing = pa.chunked_array([pa.nulls(table.num_rows)])
    return pa.table([table.column(name) if name in used else nothing for name in plain], names=plain)
