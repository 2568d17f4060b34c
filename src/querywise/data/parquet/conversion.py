"""Files of any kind → shards: LETOR text, Parquet logs, or shards that are cut anew; one file in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from querywise.data.judged import Judged
from querywise.data.letor import PathLike, letor_width, read_letor
from querywise.data.parquet.judgements import of_queries
from querywise.data.parquet.logs import GROUP, log_files, read_parquet
from querywise.data.parquet.shard import ShardFile
from querywise.data.parquet.shards import Shards, is_sharded, open_shards
from querywise.data.parquet.writing import ROWS, check_shards_folder, write_named_shards
from querywise.data.queries import read_queries
from querywise.data.query_table import QueryTable
from querywise.data.sidefiles import QUERIES, with_side_judgements, with_side_names
from querywise.data.sources import Kind, kind_of
from querywise.errors import DataError
from querywise.runtime.progress import track


@dataclass(frozen=True)
class Columns:
    """The column names of a Parquet log; without a label column nothing is judged."""

    qid: str = "qid"
    label: str | None = "label"
    docid: str | None = "docid"
    query_group: str | None = GROUP


def convert(
    paths: Sequence[PathLike],
    folder: PathLike,
    *,
    rows: int = ROWS,
    shards: int | None = None,
    columns: Columns | None = None,
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
    files = _files(inputs, columns or Columns(), features)
    try:
        return write_named_shards(_read(files), folder, rows=rows, shards=shards, queries=known)
    except DataError as error:
        if known is None or queries is not None or "query table" not in str(error):
            raise
        said = f"{error} It is {_beside(inputs[0])}; or name another file with queries=PATH."
        raise DataError(said, arguments=("queries",)) from None


def _files(inputs: Sequence[Path], columns: Columns, features: int | None) -> list[tuple[Path, Callable[[], Judged]]]:
    """Every file with a way to read it."""
    letor = [path for path in inputs if kind_of(path) not in (Kind.SHARDS, Kind.LOG)]
    if features is None and len(letor) > 1:
        features = max(letor_width(path) for path in track(letor, "Columns"))

    def log(path: Path) -> Judged:
        return read_parquet(path, **asdict(columns))

    def text(path: Path) -> Judged:
        read = with_side_judgements(read_letor(path, features=features), [path])
        return with_side_names(read, inputs[0].parent)

    found: list[tuple[Path, Callable[[], Judged]]] = []
    for path in inputs:
        kind = kind_of(path)
        if kind is Kind.SHARDS:
            found += _pieces(open_shards(path))
        elif kind is Kind.LOG:
            found += [(file, lambda file=file: log(file)) for file in log_files(path)]  # type: ignore[misc]
        else:
            found.append((path, lambda path=path: text(path)))  # type: ignore[misc]
    return found


def _pieces(shards: Shards) -> list[tuple[Path, Callable[[], Judged]]]:
    """The files of a set of shards, each with all that was judged of its queries; the last with queries without any."""
    grades = shards.grades()
    if grades is None:
        return [(file.path, file.load) for file in shards.files]
    known, left = grades, set(grades)

    def piece(file: ShardFile) -> Judged:
        part = file.load()
        left.difference_update(part.query_ids)
        others = tuple(query for query in known if query in left) if file is shards.files[-1] else ()
        return part.with_judgements(of_queries(known, (*part.query_ids, *others)))

    return [(file.path, partial(piece, file)) for file in shards.files]


def _read(files: Sequence[tuple[Path, Callable[[], Judged]]]) -> Iterator[tuple[str, Judged]]:
    for path, read in track(files, "Converting"):
        yield str(path), read()


def _beside(path: Path) -> Path:
    return (path if path.is_dir() else path.parent) / QUERIES


def _known_queries(first: Path, queries: PathLike | None) -> QueryTable | None:
    """The table given, or the one beside the first file; shards have their own."""
    if queries is not None:
        return read_queries(queries)
    return read_queries(_beside(first)) if _beside(first).is_file() and not is_sharded(first) else None
