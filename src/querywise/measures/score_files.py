"""The file formats of scores: one number per line, TREC run files, and folders of Parquet files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from querywise.data.judged import Candidates
from querywise.data.parquet.tables import read_scored
from querywise.data.run_columns import Run
from querywise.errors import DataError
from querywise.measures.order import ScoreOrder, check_scores, order
from querywise.runtime.arrays import Floats
from querywise.runtime.files import PathLike, atomic_text, make_folder, read_text
from querywise.runtime.values import finite_number

_Given = tuple[str, str, str, float]  # file and line, query, document, score


def write_scores(path: PathLike, scores: Floats) -> None:
    """Write one score per line, in the order of the rows, exact to the last bit."""
    with atomic_text(Path(path)) as out:
        out.writelines(f"{score!r}\n" for score in scores.tolist())


def write_run(path: PathLike, candidates: Candidates, scores: Floats, *, tag: str = "querywise") -> None:
    """Write a TREC run: `query Q0 document rank score tag`, best first.

    The row number replaces a missing document id.
    """
    values = check_scores(scores, candidates)
    rows = order(values, candidates.starts)
    unfit = unfit_for_runs((*candidates.query_ids, *(candidates.document_ids or ())))
    if unfit:
        raise DataError(f"{unfit[0]!r} cannot be written to a TREC run: it is empty or has a space in it.")
    with atomic_text(Path(path)) as out:
        for query, query_id in enumerate(candidates.query_ids):
            for rank, row in enumerate(rows[candidates.rows(query)].tolist(), start=1):
                out.write(f"{query_id} Q0 {candidates.document_label(row)} {rank} {float(values[row])!r} {tag}\n")


def unfit_for_runs(names: Iterable[str]) -> list[str]:
    """Return the first id that a TREC run cannot hold, if any: it is empty, or contains a space."""
    return list(islice((name for name in names if not name or re.search(r"\s", name)), 1))


def read_scores(path: PathLike, candidates: Candidates, *, order: ScoreOrder | None = None) -> Floats:
    """Return scores for `candidates`: one number per line, a TREC run matched by ids, or a folder of Parquet files.

    Args:
        path: the file or the folder.
        candidates: the documents.
        order: the order of numbers without ids if the rows of a query were not together in the input: "rows", that of
            the input, or "grouped", that of `candidates`. Without it, such numbers raise DataError.

    """
    if Path(path).is_dir():
        return _from_parts(Path(path), candidates)
    lines = [(n, line.split()) for n, line in enumerate(read_text(Path(path)).split("\n"), 1) if line.strip()]
    if not lines:
        raise DataError(f"{path}: the file holds no score.")
    if len(lines[0][1]) == 6:
        return _from_run(str(path), lines, candidates)
    values = np.array([_number(f"{path}:{number}", words) for number, words in lines])
    rows = len(candidates.features)
    if len(values) != rows:
        raise DataError(f"{path}: {len(values)} scores for {rows} documents; one score per document is needed.")
    return check_scores(values, candidates, order)


def _number(where: str, words: list[str]) -> float:
    value = finite_number(words[0]) if len(words) == 1 else None
    if value is None:
        raise DataError(f"{where}: expected one finite number; found {' '.join(words)[:60]!r}.")
    return value


def _from_run(path: str, lines: list[tuple[int, list[str]]], candidates: Candidates) -> Floats:
    def given() -> Iterator[_Given]:
        for number, words in lines:
            where = f"{path}:{number}"
            if len(words) != 6:
                raise DataError(f"{where}: expected 'query Q0 document rank score tag'; found {len(words)} words.")
            yield where, words[0], words[2], _number(where, words[4:5])

    return _matched(path, given(), candidates)


def _from_parts(folder: Path, candidates: Candidates) -> Floats:
    """Match scores by order if the documents are still in that order, else by ids if there are any."""
    found = read_scored(folder, most=len(candidates.features))
    owners = [candidates.query_ids[query] for query in candidates.query_of_row.tolist()]
    both_known = found.document_ids is not None and candidates.document_ids is not None
    if list(found.query_ids) == owners and (not both_known or found.document_ids == candidates.document_ids):
        return found.scores
    if both_known:
        rows = zip(found.query_ids, found.document_ids or (), found.scores.tolist(), strict=True)
        given = ((f"{folder}: row {number}", *row) for number, row in enumerate(rows, start=1))
        return _matched(str(folder), given, candidates)
    if len(found.scores) != len(owners):
        raise DataError(f"{folder}: {len(found.scores)} scores for {len(owners)} documents; one each is needed.")
    row = next(row for row, pair in enumerate(zip(found.query_ids, owners, strict=True)) if pair[0] != pair[1])
    raise DataError(
        f"{folder}: row {row + 1} is a document of query {found.query_ids[row]!r}; expected {owners[row]!r}. Without "
        "document ids the scores must be in the order of the data."
    )


def _matched(path: str, given: Iterable[_Given], candidates: Candidates) -> Floats:
    """Return scores matched to their documents."""
    place = {
        (query_id, candidates.document_label(row)): row
        for query, query_id in enumerate(candidates.query_ids)
        for row in range(*candidates.rows(query).indices(len(candidates.features)))
    }
    values = np.full(len(candidates.features), np.nan)
    for where, query_id, document_id, score in given:
        row = place.get((query_id, document_id))
        if row is None:
            raise DataError(f"{where}: document {document_id!r} of query {query_id!r} is not in the judged data.")
        if not np.isnan(values[row]):
            raise DataError(f"{where}: document {document_id!r} of query {query_id!r} is scored a second time.")
        values[row] = score
    missing = np.flatnonzero(np.isnan(values))
    if len(missing):
        row = int(missing[0])
        query_id = candidates.query_ids[candidates.query_of_row[row]]
        raise DataError(
            f"{path}: {len(missing)} documents have no score, the first is {candidates.document_label(row)!r} "
            f"of query {query_id!r}. Every judged document needs one."
        )
    return values


def write_runs(runs: Iterable[Run], folder: Path) -> None:
    """Write every run as `NAME.trec` to a folder."""
    make_folder(folder)
    for run in runs:
        values = [score for found in run.scores.values() for score in found.values()]
        alone = Candidates(
            features=np.array(values).reshape(-1, 1),
            starts=np.cumsum([0, *map(len, run.scores.values())]),
            query_ids=tuple(run.scores),
            document_ids=tuple(document for found in run.scores.values() for document in found),
        )
        write_run(folder / f"{run.name}.trec", alone, alone.features[:, 0], tag=run.name)
