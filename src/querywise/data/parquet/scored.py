"""Scores in a folder of Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from querywise.data.judged import Candidates
from querywise.data.parquet.arrow import arrow, checked, ids_of, is_part, open_parquet, part_name, to_numpy, write_table
from querywise.data.parquet.budget import require_room_to_read, rows_of
from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.runtime.files import PathLike, atomic_file, recover_folder


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
