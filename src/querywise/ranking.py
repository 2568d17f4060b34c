"""Scores → order. The one place that sorts, with the one tie rule: tied documents keep their order.

Also the forms in which scores travel: one number per line, TREC run files, and folders of Parquet parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from querywise.answers import Answer, Facts, Opaque, alone
from querywise.arrays import Floats, Ints
from querywise.data.groups import Candidates, Judged
from querywise.data.letor import PathLike
from querywise.data.shards import read_scored
from querywise.errors import DataError
from querywise.files import atomic_text, read_text

_Given = tuple[str, str, str, float]  # where it was said, query, document, score


def order(scores: Floats, starts: Ints, *, tie_break: Ints | None = None) -> Ints:
    """Row numbers, best first within each query; tied documents keep their order, or go by `tie_break`, lowest first.

    >>> order(np.array([1.0, 3.0, 3.0, 0.5]), np.array([0, 3, 4]))
    array([1, 2, 0, 3])
    """
    queries = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    keys = (-scores, queries) if tie_break is None else (tie_break, -scores, queries)
    return np.lexsort(keys)


def check_scores(scores: ArrayLike, candidates: Candidates) -> Floats:
    """Scores as an array of floats: one finite number per document, or a DataError."""
    values = np.asarray(scores, dtype=np.float64)
    rows = len(candidates.features)
    if values.shape != (rows,):
        found = f"{len(values)} scores" if values.ndim == 1 else f"scores of shape {values.shape}"
        raise DataError(f"There are {rows} documents but {found}; one score per document is needed.")
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise DataError(f"The score of document {candidates.document_label(int(wrong[0]))} is {values[wrong[0]]}.")
    return values


def write_scores(path: PathLike, scores: Floats) -> None:
    """One score per line, in the order of the rows, exact to the last bit."""
    with atomic_text(Path(path)) as out:
        out.writelines(f"{score!r}\n" for score in scores.tolist())


def write_run(path: PathLike, candidates: Candidates, scores: Floats, *, tag: str = "querywise") -> None:
    """A TREC run: `query Q0 document rank score tag`, best first. Documents without an id are called by row number."""
    values = check_scores(scores, candidates)
    rows = order(values, candidates.starts)
    for name in (*candidates.query_ids, *(candidates.document_ids or ())):
        if not name or re.search(r"\s", name):
            raise DataError(f"{name!r} cannot stand in a TREC run: it is empty or has a space in it.")
    with atomic_text(Path(path)) as out:
        for query, query_id in enumerate(candidates.query_ids):
            for rank, row in enumerate(rows[candidates.rows(query)].tolist(), start=1):
                out.write(f"{query_id} Q0 {candidates.document_label(row)} {rank} {float(values[row])!r} {tag}\n")


class GivenScores:
    """A ranker whose scores were made elsewhere: looked up by query, and by document or by its place in the query."""

    def __init__(self, candidates: Candidates, scores: Floats) -> None:
        self._scores = {query_id: scores[candidates.rows(query)] for query, query_id in enumerate(candidates.query_ids)}
        self.feature_count_ = candidates.features.shape[1]
        self.feature_names_ = candidates.feature_names

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """There is nothing to learn."""
        return self

    def predict(self, candidates: Candidates, /) -> Floats:
        """The scores of these queries' documents, which must be in the order in which they were given."""
        unknown = next((each for each in candidates.query_ids if each not in self._scores), None)
        if unknown is not None:
            raise DataError(f"There are no scores for query {unknown!r}.")
        return np.concatenate([np.zeros(0), *(self._scores[each] for each in candidates.query_ids)])

    def answer(self, candidates: Candidates, /) -> Answer:
        """Nothing is known but the scores."""
        return replace(alone(Opaque(self), candidates), facts=lambda: Facts(elsewhere=True))


def read_scores(path: PathLike, candidates: Candidates) -> Floats:
    """Scores for `candidates`: one number per line, a TREC run matched by ids, or a folder of Parquet parts."""
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
    return values


def _number(where: str, words: list[str]) -> float:
    try:
        value = float(words[0]) if len(words) == 1 else float("nan")
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
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
    """By order where the documents are in the order in which they were ranked, else by ids where they have some."""
    found = read_scored(folder)
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
    """Scores brought to the documents they are of."""
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
