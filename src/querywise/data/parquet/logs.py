"""Feature logs in Parquet files, as a judged set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from querywise.data.frames import from_frame
from querywise.data.judged import Judged
from querywise.data.letor import PathLike
from querywise.data.missing import Missing
from querywise.data.parquet.arrow import about, arrow, open_parquet
from querywise.errors import DataError
from querywise.runtime.memory import require_memory
from querywise.runtime.progress import track

_ROW_BYTES = 100  # of every row, beside its columns: labels, which query and document it is of, their order
_VALUE_BYTES = 24  # of every value: in Arrow's table, in ours, and in ours with the rows of each query together
GROUP = "query_group"  # the column of groups of queries, where a log has one


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
    _require_room(files)
    tables = [_log(file) for file in track(files, "Reading")]
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


def _require_room(files: Sequence[Path]) -> None:
    """Refuse files whose footers have more rows of columns than memory holds, before any row is read."""
    rows = needed = columns = 0
    for path in files:
        file = open_parquet(path)
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        count = max(file.metadata.num_rows, sum(each.num_rows for each in groups))
        rows, columns = rows + count, max(columns, len(file.schema_arrow))
        needed += count * (_ROW_BYTES + _VALUE_BYTES * len(file.schema_arrow))
        needed += sum(max(each.total_byte_size, 0) for each in groups)  # long texts, each of them once
    require_memory(
        needed,
        f"{files[0]}{' and the files after it' if len(files) > 1 else ''}: reading {rows} rows of {columns} columns "
        "takes",
        "Cut the log into smaller files, of whole queries; `querywise convert` reads one at a time.",
    )


def _log(path: Path) -> Any:
    pa, _ = arrow()
    file = open_parquet(path, coded=True)
    names = file.schema_arrow.names
    repeated = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if repeated is not None:
        raise DataError(f"{path}: there are two columns called {repeated!r}; every column needs a name of its own.")
    plain = [field.name for field in file.schema_arrow if not field.type.num_fields]  # no lists, no records
    try:
        return file.read(columns=plain, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: this Parquet file is damaged ({error}).") from None
