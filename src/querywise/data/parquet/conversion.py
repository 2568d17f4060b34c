"""Files of any kind → shards: LETOR text, Parquet logs, or shards that are cut anew; one file in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from querywise.data.judged import Judged
from querywise.data.parquet.logs import LogColumns
from querywise.data.parquet.shards import Shards
from querywise.data.parquet.writing import ROWS, check_shards_folder, write_named_shards
from querywise.data.queries import read_queries
from querywise.data.query_table import QueryTable
from querywise.data.readers import Files, Options, folder_of, reader_of
from querywise.data.sidefiles import QUERIES
from querywise.errors import DataError
from querywise.runtime.files import PathLike
from querywise.runtime.progress import track


def convert(
    paths: Sequence[PathLike],
    folder: PathLike,
    *,
    rows: int = ROWS,
    shards: int | None = None,
    columns: LogColumns | None = None,
    features: int | None = None,
    queries: PathLike | None = None,
) -> Shards:
    """Write files as one set of shards.

    Sparse LETOR files are widened to the widest, for which they are scanned once before, or to `features`. The side
    files of the first file, `features.txt` and `queries.jsonl`, are written too.
    """
    inputs = [Path(path) for path in paths]
    if not inputs:
        raise DataError("No file to convert was given.")
    check_shards_folder(Path(folder))
    known = _known_queries(inputs[0], queries)
    files = _files(inputs, Options(features, columns=columns or LogColumns(), names=inputs[0].parent))
    try:
        return write_named_shards(_read(files), folder, rows=rows, shards=shards, queries=known)
    except DataError as error:
        if known is None or queries is not None or "query table" not in str(error):
            raise
        said = f"{error} It is {_beside(inputs[0])}; or name another file with queries=PATH."
        raise DataError(said, arguments=("queries",)) from None


def _files(inputs: Sequence[Path], options: Options) -> Files:
    """Every file with a way to read it; those of different widths are widened to the widest."""
    readers = [reader_of(path) for path in inputs]
    scanned = [(path, reader.width) for path, reader in zip(inputs, readers, strict=True) if reader.width is not None]
    if options.features is None and len(scanned) > 1:
        options = replace(options, features=max(width(path) for path, width in track(scanned, "Columns")))
    found = [reader.files(path, options) for path, reader in zip(inputs, readers, strict=True)]
    return [each for files in found for each in files]


def _read(files: Files) -> Iterator[tuple[str, Judged]]:
    for path, read in track(files, "Converting"):
        yield str(path), read()


def _beside(path: Path) -> Path:
    return folder_of(path) / QUERIES


def _known_queries(first: Path, queries: PathLike | None) -> QueryTable | None:
    """The table given, or the one beside the first file; shards have their own."""
    if queries is not None:
        return read_queries(queries)
    return read_queries(_beside(first)) if _beside(first).is_file() and not reader_of(first).own_queries else None
