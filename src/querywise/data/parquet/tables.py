"""Small tables in Parquet files: judgements, scores and vectors.

All that was judged of a set of shards is in `judgements.parquet` beside them, a query, a document and a grade a row.
Scores are in a folder of parts; vectors in a column of ids and a column of lists of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from querywise.data.judged import Candidates
from querywise.data.judgements import Grades
from querywise.data.parquet.arrow import (
    Arrow,
    arrow,
    checked,
    ids_of,
    is_part,
    open_parquet,
    part_name,
    require_short,
    to_numpy,
    values_of,
    write_table,
)
from querywise.data.parquet.budget import require_room_to_read, rows_of
from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.runtime.files import PathLike, atomic_file, checksum_of, recover_folder

JUDGEMENTS = "judgements.parquet"
_COLUMNS = ("query", "document", "grade")

_ID, _VECTOR = "_id", "vector"
_KINDS = {"halffloat": np.float16, "float": np.float32, "double": np.float64}


def write_grades(path: Path, grades: Grades) -> None:
    """Write the judgements of all queries, query after query."""
    pa, _ = arrow()
    queries = [query for query, own in grades.items() for _ in own]
    documents = [document for own in grades.values() for document in own]
    values = np.array([grade for own in grades.values() for grade in own.values()], np.int64)
    schema = pa.schema([("query", pa.string()), ("document", pa.string()), ("grade", pa.int64())])
    write_table(path, schema, len(values), lambda rows: [queries[rows], documents[rows], values[rows]])


def read_grades(folder: Path, checksum: str) -> Grades:
    """The judgements of all queries, checked against the manifest's checksum."""
    path = folder / JUDGEMENTS
    if not path.is_file():
        raise DataError(f"{path}: the judgements are missing; the manifest lists them. Convert the data anew.")
    if checksum_of(path) != checksum:
        raise DataError(
            f"{path}: damaged, or changed since it was written with the shards: its SHA-256 is not the manifest's. "
            "Fetch it again, or convert the data anew."
        )
    pa, _ = arrow()
    file = open_parquet(path, coded=True)
    require_room_to_read(path, file, _COLUMNS, _COLUMNS[:2], "Judge fewer documents, or allow more memory.")
    try:
        table = checked(file.read(columns=list(_COLUMNS), use_threads=False))
        values = table.column("grade").cast(pa.int64())
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{path}: the judgements cannot be read ({error}). Convert the data anew.") from None
    queries, documents = ids_of(path, table, "query"), ids_of(path, table, "document")
    if queries is None or documents is None or values.null_count:
        raise DataError(f"{path}: expected the columns query, document and grade; found {file.schema_arrow.names}.")
    found: dict[str, dict[str, int]] = {}
    for query, document, grade in zip(queries, documents, to_numpy(values).tolist(), strict=True):
        found.setdefault(query, {})[document] = grade
    return found


def of_queries(grades: Grades, query_ids: tuple[str, ...]) -> Mapping[str, Mapping[str, int]]:
    """Those of some queries."""
    return {query: grades[query] for query in query_ids if query in grades}


class Scored(NamedTuple):
    """Scores as they were written: the query and, where known, the document of every row."""

    query_ids: tuple[str, ...]
    document_ids: tuple[str, ...] | None
    scores: Floats


def write_scored_part(path: PathLike, candidates: Candidates, scores: Floats) -> None:
    """One Parquet file of scores: `qid`, `docid` where the documents have ids, and `score`, in the order of the rows.

    The files of a folder are called `part-00000.parquet`, `part-00001.parquet`, …, which `part_name` gives.
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
    """The scores in a folder, its parts in order.

    most: how many there may be; more are refused by the footers of the files, before a score is read.
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
    """The ids and the vectors of a file; every list must be as long as the first."""
    pa, _ = arrow()
    file = open_parquet(path, coded=True)
    lacking = next((name for name in (_ID, _VECTOR) if file.schema_arrow.names.count(name) != 1), None)
    if lacking is not None:
        found = "more than one column" if lacking in file.schema_arrow.names else "no column"
        raise DataError(
            f"{path}: there is {found} {lacking!r}; expected {_ID} and {_VECTOR}, found "
            f"{', '.join(file.schema_arrow.names[:8])}."
        )
    require_room_to_read(path, file, [_ID, _VECTOR], [_ID], "A .npy file is mapped into memory instead.")
    try:
        table = checked(file.read(columns=[_ID, _VECTOR], use_threads=False))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: this Parquet file is damaged ({error}).") from None
    require_short(path, table.column(_ID), _ID)
    ids = values_of(table.column(_ID))
    wrong = next((row for row, each in enumerate(ids) if type(each) not in (str, int) or not str(each).strip()), None)
    if wrong is not None:
        raise DataError(f"{path}: row {wrong + 1} has the {_ID} {ids[wrong]!r:.60}; expected a text.")
    return [str(each) for each in ids], _table(path, table.column(_VECTOR))


def _table(path: Path, column: Arrow) -> NDArray[np.float16 | np.float32 | np.float64]:
    """A column of lists of numbers as a table."""
    pa, _ = arrow()
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    fixed = pa.types.is_fixed_size_list(column.type)
    kind = _KINDS.get(str(column.type.value_type)) if is_list or fixed else None
    if kind is None:
        raise DataError(f"{path}: the column {_VECTOR} is of type {column.type}; expected lists of float or double.")
    parts, width, first = [], None, 0
    for chunk in column.chunks:
        _refuse_nulls(path, chunk, first)
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


def _refuse_nulls(path: Path, chunk: Arrow, first: int) -> None:
    if chunk.null_count:
        row = first + int(np.flatnonzero(chunk.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{path}: row {row + 1} has no {_VECTOR}; give every row one, or leave the row out.")
