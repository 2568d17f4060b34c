"""Writing judged sets as shards, and converting files of any kind to them, with one file in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.coverage import whole_grades
from querywise.data.judged import Candidates, Judged, concatenate
from querywise.data.judgements import Grades
from querywise.data.labels import refuse_unwritable
from querywise.data.letor import QUERIES
from querywise.data.parquet.arrow import arrow, is_part, part_name, write_table
from querywise.data.parquet.shards import COLUMNS, FORMAT, MANIFEST, VERSION, Shards, column_names, open_shards
from querywise.data.parquet.tables import JUDGEMENTS, LogColumns, write_grades
from querywise.data.query_table import QueryTable, join_tables, read_queries, write_queries
from querywise.data.reader import Files, Options
from querywise.data.readers import folder_of, reader_of
from querywise.data.rows import first_repeated
from querywise.errors import DataError
from querywise.runtime.files import OutputFolder, PathLike, atomic_file, atomic_folder, atomic_text, checksum_of, sealed
from querywise.runtime.progress import track
from querywise.runtime.values import Json

ROWS = 100_000


def write_shards(
    parts: Iterable[Judged],
    folder: PathLike,
    *,
    rows: int = ROWS,
    shards: int | None = None,
    queries: QueryTable | None = None,
    names: Iterable[str] | None = None,
) -> Shards:
    """Write a sequence of judged sets as one set of shards of about `rows` rows each; no query is split.

    Parts are consumed one by one and released once written. With `shards`, all of them are kept in memory and split
    into that many files of about equal size. `queries` is query data in addition to that of the parts; `names` are the
    parts' names for messages.

    An existing folder of shards is replaced as a whole once everything is written, and stays until then. Queries
    without documents are dropped, unless all judgments are known.
    """
    root = Path(folder).absolute()
    if rows < 1:
        raise DataError(f"rows={rows}: a shard has 1 row or more.")
    check_shards_folder(root)
    seen = Fitting(queries)
    # map, here and below, releases a part before it takes the next one
    checked = map(seen.checked, (f"part {number}" for number in count(1)) if names is None else names, parts)
    cuts = by_rows(checked, rows) if shards is None else by_number(list(checked), shards)
    with atomic_folder(root) as made:
        written = list(map(partial(_write_shard, made), count(), cuts))
        if not written:
            raise DataError(f"{folder}: there is nothing to write: no document was given.")
        table = seen.table()
        if table is not None:
            write_queries(made / QUERIES, table)
        grades = seen.grades()
        if grades is not None:
            write_grades(made / JUDGEMENTS, grades)
        manifest: dict[str, Json] = {
            "format": FORMAT,
            "version": VERSION,
            "features": seen.names,
            "feature_count": seen.width,
            "rows": sum(each["rows"] for each in written),
            "queries": sum(each["queries"] for each in written),
            "queries_sha256": None if table is None else checksum_of(made / QUERIES),
            "judgements_sha256": None if grades is None else checksum_of(made / JUDGEMENTS),
            "shards": written,
        }
        with atomic_text(made / MANIFEST) as out:
            out.write(json.dumps(sealed(manifest), indent=1) + "\n")
    return open_shards(root)


_FOLDER = OutputFolder(
    a_file="this is a file; shards are a folder.",
    other="the folder holds something that is not shards. Name another, or an empty one.",
    manifest=MANIFEST,
    belongs=lambda name: name in (MANIFEST, QUERIES, JUDGEMENTS) or is_part(name),
    stray="is beside the shards here, which are replaced as a whole. Move it away.",
)
check_shards_folder = _FOLDER.check


def _write_shard(folder: Path, number: int, pieces: Sequence[Judged]) -> dict[str, Any]:
    """Write the next shard, and return its entry in the manifest."""
    name = part_name(number)
    data = concatenate(pieces) if len(pieces) > 1 else pieces[0]
    _write_data(folder / name, data)
    return {"file": name, "rows": len(data.labels), "queries": len(data), "sha256": checksum_of(folder / name)}


def _write_data(path: Path, data: Judged) -> None:
    """Write one shard, without the optional columns that its documents lack."""
    pa, _ = arrow()
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
            *((name, pa.float64()) for name in column_names(candidates.features.shape[1], candidates.feature_names)),
        ]
    )
    owners = candidates.query_of_row

    def columns(rows: slice) -> list[Any]:
        ids = [candidates.query_ids[query] for query in owners[rows].tolist()]
        given = [values[rows] for values in optional if values is not None]
        return [ids, data.labels[rows], *given, *np.ascontiguousarray(candidates.features[rows].T)]

    write_table(path, schema, len(data.labels), columns)


def write_log(path: PathLike, data: Judged) -> None:
    """Write a judged set as one Parquet file that `read_parquet` reads: a feature log."""
    with atomic_file(Path(path)) as beside:
        _write_data(Path(beside), data)


class Fitting:
    """Properties of the parts written so far, against which the next one is checked."""

    def __init__(self, queries: QueryTable | None) -> None:
        self.width = -1
        self.names: tuple[str, ...] | None = None
        self._given = queries
        self._known = None if queries is None else frozenset(queries.ids)
        self._parts: list[str] = []
        self._homes: dict[str, int] = {}  # the index of every query's part, in the order of the rows
        self._tables: list[QueryTable | None] = []
        self._without: list[QueryTable | None] = []  # queries with judgments but no documents
        self._judged: dict[str, dict[str, int]] = {}

    def checked(self, name: str, whole: Judged) -> Judged:
        """Return the part without what shards cannot hold. Raise DataError if it does not match earlier parts."""
        refuse_unwritable(whole, "A set of shards")
        self._note_judgements(name, whole)
        empty = whole.candidates.sizes == 0
        part = whole.select(~empty) if empty.any() else whole
        candidates = part.candidates
        if np.isnan(candidates.features).any():
            raise DataError(f"{name} has missing values, which shards do not hold. Fill them, or keep a Parquet log.")
        width, names = candidates.features.shape[1], candidates.feature_names
        if self.width < 0:
            self.width, self.names = width, names
            _refuse_names(names)
        self._parts.append(name)
        if width != self.width:
            raise DataError(
                f"{name} has {width} features, {self._parts[0]} has {self.width}. All need the same ones; for sparse "
                "files that leave out their last columns, state their number."
            )
        if names != self.names:
            raise DataError(
                f"{name} has different feature names from {self._parts[0]}. All need the same ones, in the same order."
            )
        for query_id in candidates.query_ids:
            home = self._homes.setdefault(query_id, len(self._parts) - 1)
            if home < len(self._parts) - 1:
                raise DataError(
                    f"Query {query_id!r} is in {self._parts[home]} and again in {name}. All rows of a query must stand "
                    "together, in one of them."
                )
            if self._known is not None and query_id not in self._known:
                raise DataError(
                    f"Query {query_id!r} of {name} is not in the query table; every query needs a row there."
                )
        self._tables.append(candidates.queries)
        if whole.missed is not None and empty.any():
            self._without.append(whole.candidates.select(empty).queries)
        return part.candidates_only()

    def _note_judgements(self, name: str, part: Judged) -> None:
        """Record all judgments of the part, which must be known for every part or for none."""
        if self._parts and (part.missed is None) == bool(self._judged):
            one, other = (self._parts[0], name) if part.missed is None else (name, self._parts[0])
            raise DataError(
                f"{one} has all judgments, {other} only the labels of its candidates.  Give the "
                "judgments of all of them (a .qrels file beside every file), or of none."
            )
        if part.missed is not None:
            self._judged |= dict(zip(part.query_ids, whole_grades(part), strict=True))

    def grades(self) -> Grades | None:
        """Return all judgments, or None if they are unknown."""
        return self._judged or None

    def table(self) -> QueryTable | None:
        """Return the data of all queries, in the order of the rows."""
        every = [*self._tables, *self._without]
        tables = [table for table in every if table is not None]
        if self._given is not None:
            others = [query for query in self._judged if query not in self._homes]
            table = self._with_groups(self._given.select((*self._homes, *others)), tables)
        elif len(tables) == len(every) and tables:
            table = join_tables(tables)
        else:
            return None
        odd = next((each for each in table.ids if not each.strip() or not each.isprintable()), None)
        if odd is not None:
            raise DataError(f"Query id {odd!r} cannot be written to {QUERIES}: it is empty or cannot be printed.")
        return table

    def _with_groups(self, table: QueryTable, tables: Sequence[QueryTable]) -> QueryTable:
        """Return the given table, with the groups of the parts if it has none."""
        named = {query: group for each in tables for query, group in zip(each.ids, each.groups or (), strict=False)}
        if table.groups is not None or not named:
            return table
        return replace(table, groups=tuple(named.get(query) for query in table.ids))


def _refuse_names(names: tuple[str, ...] | None) -> None:
    for name in names or ():
        if name in COLUMNS:
            raise DataError(
                f"A feature is called {name!r}; so is a column that shards may have beside the features "
                f"({', '.join(COLUMNS)}). Rename the feature."
            )
    if (repeated := first_repeated(names or ())) is not None:
        raise DataError(f"Two features are called {repeated!r}; every feature needs a unique name.")


def by_rows(parts: Iterable[Judged], rows: int) -> Iterator[list[Judged]]:
    """Yield the pieces of one shard after the other, each filled with as many whole queries as fit."""
    pieces: list[Judged] = []
    held = 0
    for part in parts:
        starts, first = part.candidates.starts, 0
        while first < len(part):
            last = int(np.searchsorted(starts, starts[first] + rows - held, "right")) - 1
            if not held:
                last = max(last, first + 1)  # a single query may be larger than a shard
            if last > first:
                pieces.append(_piece(part, first, last))
                held += int(starts[last] - starts[first])
                first = last
            if first < len(part):
                yield pieces
                pieces, held = [], 0
        if pieces and len(pieces[-1]) < len(part):
            pieces[-1] = _on_its_own(pieces[-1])
        del part  # before making the next one
    if pieces:
        yield pieces


def by_number(parts: Sequence[Judged], shards: int) -> Iterator[list[Judged]]:
    """Yield the pieces of this many shards, split between queries so that row counts are as equal as possible."""
    sizes = np.concatenate([np.zeros(0, np.int64), *(part.candidates.sizes for part in parts)])
    if not 1 <= shards <= max(1, len(sizes)):
        raise DataError(f"{shards} shards cannot be made of {len(sizes)} queries: each shard needs at least one.")
    ends = np.concatenate([[0], np.cumsum(sizes)])
    goals = ends[-1] * np.arange(1, shards) / shards
    after = np.searchsorted(ends, goals)
    nearest = after - (goals - ends[np.maximum(after - 1, 0)] < ends[np.minimum(after, len(sizes))] - goals)
    cuts = [0]
    for number, cut in enumerate(nearest.tolist(), start=1):
        cuts.append(min(max(cut, cuts[-1] + 1), len(sizes) - (shards - number)))
    befores = np.cumsum([0, *(len(part) for part in parts)])
    for first, last in pairwise([*cuts, len(sizes)]):
        spans = [
            (part, max(first - before, 0), min(last - before, len(part)))
            for part, before in zip(parts, befores, strict=False)
        ]
        pieces = [_piece(part, begin, end) for part, begin, end in spans if begin < end]
        if pieces:
            yield pieces


def _on_its_own(piece: Judged) -> Judged:
    """Return a copy that does not keep the original part in memory."""
    return replace(piece, candidates=replace(piece.candidates, features=piece.candidates.features.copy()))


def _piece(part: Judged, first: int, last: int) -> Judged:
    """Return a run of queries without copying their features."""
    whole = part.candidates
    rows = slice(int(whole.starts[first]), int(whole.starts[last]))
    candidates = Candidates(
        features=whole.features[rows],
        starts=whole.starts[first : last + 1] - rows.start,
        query_ids=whole.query_ids[first:last],
        document_ids=None if whole.document_ids is None else whole.document_ids[rows],
        comments=None if whole.comments is None else whole.comments[rows],
        feature_names=whole.feature_names,
    )
    return Judged(candidates, part.labels[rows], None if part.judged is None else part.judged[rows])


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
    """Convert files to one set of shards.

    Sparse LETOR files are widened to the widest, for which they are scanned first, or to `features`. The side files of
    the first file, `features.txt` and `queries.jsonl`, are written too.
    """
    inputs = [Path(path) for path in paths]
    if not inputs:
        raise DataError("No file to convert was given.")
    check_shards_folder(Path(folder))
    known = _known_queries(inputs[0], queries)
    files = _files(inputs, Options(features, columns=columns or LogColumns(), names=inputs[0].parent))
    parts, names = (read() for _, read in track(files, "Converting")), [str(path) for path, _ in files]
    try:
        return write_shards(parts, folder, rows=rows, shards=shards, queries=known, names=names)
    except DataError as error:
        if known is None or queries is not None or "query table" not in str(error):
            raise
        said = f"{error} It is {_beside(inputs[0])}; or name another file with queries=PATH."
        raise DataError(said, arguments=("queries",)) from None


def _files(inputs: Sequence[Path], options: Options) -> Files:
    """Return every file with a function that reads it; files of different widths are widened to the widest."""
    readers = [reader_of(path) for path in inputs]
    scanned = [(path, reader.width) for path, reader in zip(inputs, readers, strict=True) if reader.width is not None]
    if options.features is None and len(scanned) > 1:
        options = replace(options, features=max(width(path) for path, width in track(scanned, "Columns")))
    found = [reader.parts(path, options) for path, reader in zip(inputs, readers, strict=True)]
    return [each for files in found for each in files]


def _beside(path: Path) -> Path:
    return folder_of(path) / QUERIES


def _known_queries(first: Path, queries: PathLike | None) -> QueryTable | None:
    """Return the given table, or the one beside the first file unless it is a shard, which has its own."""
    if queries is not None:
        return read_queries(queries)
    return read_queries(_beside(first)) if _beside(first).is_file() and not reader_of(first).own_queries else None
