"""Judged sets written as shards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.joining import concatenate
from querywise.data.judged import Judged
from querywise.data.parquet.arrow import arrow, is_part, part_name, write_table
from querywise.data.parquet.cutting import COLUMNS, Fitting, by_number, by_rows
from querywise.data.parquet.judgements import JUDGEMENTS, write_grades
from querywise.data.parquet.shard import MANIFEST, column_names
from querywise.data.parquet.shards import FORMAT, VERSION, Shards, open_shards
from querywise.data.queries import write_queries
from querywise.data.query_table import QueryTable
from querywise.data.sidefiles import QUERIES
from querywise.errors import DataError
from querywise.runtime.files import OutputFolder, PathLike, atomic_folder, atomic_text, checksum_of, sealed
from querywise.runtime.values import Json

ROWS = 100_000


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
    cut into that many files of about the same number of rows. `queries`: query data beside that of the parts.
    A folder of shards that is already there is replaced as a whole once all is written, and stays until then. A query
    without documents has no row; it is left out, unless all that was judged is known.
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


def _is_of_shards(name: str) -> bool:
    return name in (MANIFEST, QUERIES, JUDGEMENTS) or is_part(name)


_FOLDER = OutputFolder(
    a_file="this is a file; shards are a folder.",
    other="the folder holds something that is not shards. Name another, or an empty one.",
    manifest=MANIFEST,
    belongs=_is_of_shards,
    stray="is beside the shards here, which are replaced as a whole. Move it away.",
)
check_shards_folder = _FOLDER.check


def _write_shard(folder: Path, number: int, pieces: Sequence[Judged]) -> dict[str, Any]:
    """Write the next shard, and give its line of the manifest."""
    name = part_name(number)
    data = concatenate(pieces) if len(pieces) > 1 else pieces[0]
    _write_data(folder / name, data)
    return {"file": name, "rows": len(data.labels), "queries": len(data), "sha256": checksum_of(folder / name)}


def _write_data(path: Path, data: Judged) -> None:
    """One shard; a column that this shard's documents do not have is left out."""
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
