"""Judgments: the grades of documents for queries, whether or not they are among the candidates.

Files are TREC qrels, `query 0 document grade`, or BEIR's `query <tab> document <tab> grade` lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from querywise.data.compressed import first_words, lines_of, read_packed_text
from querywise.data.judge_log import LOG_BESIDE, JudgeLog, lines_of_log
from querywise.data.rows import is_missing, query_numbers, rows_of
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.runtime.arrays import Ints, frozen
from querywise.runtime.files import atomic_text, read_stored_text

Grades = Mapping[str, Mapping[str, int]]  # query → document → grade

UNKNOWN = -(2**62)  # the grade of an unjudged document
_NAMES = {
    "query": ("query", "qid", "query_id", "query-id"),
    "document": ("document", "docid", "doc_id", "document_id", "corpus-id"),
    "grade": ("grade", "label", "relevance", "score"),
}
_HEADINGS = ("score", "grade", "relevance", "label")


class Columns(Protocol):
    """A table: pandas, polars, Arrow, or lists by name."""

    def __getitem__(self, name: str, /) -> ArrayLike:
        """Return one column."""


class Judgement(NamedTuple):
    """The grade of a document for a query, with its file and line."""

    query: str
    document: str
    grade: int
    where: str


@dataclass(frozen=True, eq=False)
class Judgements:
    """Judged documents by query, with their grades; grades below 0, which TREC uses for spam, are kept.

    Query `i` owns `document_ids[starts[i]:starts[i + 1]]` and their grades; `len` is the number of queries.

    >>> found = Judgements(np.array([0, 2, 2]), ("D7", "D9"), np.array([1, -1]))
    >>> len(found), found.of(0), found.relevant().tolist()
    (2, {'D7': 1, 'D9': -1}, [1, 0])
    """

    starts: Ints
    document_ids: tuple[str, ...]
    grades: Ints

    def __post_init__(self) -> None:
        starts, grades = np.asarray(self.starts, np.int64), np.asarray(self.grades, np.int64)
        if starts.ndim != 1 or not len(starts) or starts[0] != 0 or (np.diff(starts) < 0).any():
            raise DataError(f"starts must be numbers that begin at 0 and never decrease; found {starts.ravel()[:8]}.")
        if not len(self.document_ids) == len(grades) == starts[-1]:
            raise DataError(
                f"There are {len(self.document_ids)} document ids and {len(grades)} grades, and starts ends at "
                f"{starts[-1]}."
            )
        object.__setattr__(self, "starts", frozen(starts))
        object.__setattr__(self, "grades", frozen(grades))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        return f"Judgements({counted(len(self), 'query')}, {counted(len(self.grades), 'document')})"

    @staticmethod
    def by_query(tables: Iterable[Mapping[str, int]]) -> Judgements:
        """Return the judgments, given the grades of every query in order."""
        known = list(tables)
        return Judgements(
            np.cumsum([0, *map(len, known)]),
            tuple(document for each in known for document in each),
            np.array([grade for each in known for grade in each.values()], np.int64),
        )

    def rows(self, query: int) -> slice:
        """Return the entries of one query."""
        return slice(int(self.starts[query]), int(self.starts[query + 1]))

    def of(self, query: int) -> dict[str, int]:
        """Return the documents of one query with their grades."""
        rows = self.rows(query)
        return dict(zip(self.document_ids[rows], self.grades[rows].tolist(), strict=True))

    def relevant(self, relevant_from: int = 1) -> Ints:
        """Return the number of documents of each query that have at least this grade."""
        owners = np.repeat(np.arange(len(self)), np.diff(self.starts))
        return np.bincount(owners[self.grades >= relevant_from], minlength=len(self))

    def select(self, queries: Ints | Sequence[int]) -> Judgements:
        """Return the judgments of some queries, in the given order."""
        chosen = query_numbers(queries)
        rows = rows_of(self.starts, chosen)
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[chosen])])
        return Judgements(starts, tuple(self.document_ids[row] for row in rows), self.grades[rows])


def grades_of_rows(grades: Grades, query_ids: Sequence[str], starts: Ints, documents: tuple[str, ...] | None) -> Ints:
    """Return the grade of every candidate of some queries; `UNKNOWN` if it is unjudged."""
    if documents is None:
        raise DataError(
            "The documents have no ids, so judgments cannot be joined with them. In a LETOR file an id stands at the "
            "end of a line: '#docid = D7'."
        )
    found = np.empty(len(documents), np.int64)
    for query, query_id in enumerate(query_ids):
        own, first, last = grades.get(query_id, {}), int(starts[query]), int(starts[query + 1])
        found[first:last] = [own.get(each, UNKNOWN) for each in documents[first:last]]
    return found


def beyond(grades: Grades, query_ids: Sequence[str], starts: Ints, documents: tuple[str, ...]) -> Judgements:
    """Return what labels cannot hold: grades of documents that are not candidates, and grades below 0."""
    missed = []
    for query, query_id in enumerate(query_ids):
        own = set(documents[int(starts[query]) : int(starts[query + 1])])
        known = grades.get(query_id, {})
        missed.append({document: grade for document, grade in known.items() if grade < 0 or document not in own})
    return Judgements.by_query(missed)


def join_judgements(parts: Sequence[Judgements | None]) -> Judgements | None:
    """Join the judgments of several sets, which either all have them or all lack them."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    if len(known) < len(parts):
        raise DataError(
            f"{len(known)} of {len(parts)} sets have all judgments, the others only the labels of their "
            "candidates, so measures would count one thing here and another there. Give the judgments of all of "
            "them (a .qrels file beside every file), or of none."
        )
    offsets = np.cumsum([0, *(len(part.grades) for part in known)])
    starts = [part.starts[1:] + offset for part, offset in zip(known, offsets, strict=False)]
    return Judgements(
        np.concatenate([[0], *starts]),
        tuple(document for part in known for document in part.document_ids),
        np.concatenate([part.grades for part in known]),
    )


def read_judgements(path: str | os.PathLike[str]) -> Iterator[Judgement]:
    """Yield the judgments of a file in either form; a pair that is judged twice must have one grade.

    If a service for judging keeps a log beside the file, the last grade in the log wins.
    """
    log = Path(path).with_name(Path(path).name + LOG_BESIDE)
    newer = JudgeLog(lines_of_log(log, read_stored_text(log))).newest() if log.is_file() else {}
    yield from (each for each in parsed(path, read_packed_text(Path(path))) if each[:2] not in newer)
    for (query, document), (grade, where) in newer.items():
        if grade is not None:
            yield Judgement(query, document, grade, where)


def parsed(path: str | os.PathLike[str], text: str) -> Iterator[Judgement]:
    """Yield the judgments in the text of a file."""
    seen: dict[tuple[str, str], tuple[str, int]] = {}
    headed = False  # columns with a heading are tab-separated, and a query may be any text
    for number, line in lines_of(text):
        words = line.split("\t") if line.count("\t") == 2 else line.split()
        if number == 1 and words[-1].strip() in _HEADINGS:
            headed = True
            continue
        where = f"{path}:{number}"
        if len(words) not in (3, 4) or not re.fullmatch(r"[+-]?[0-9]{1,9}", words[-1].strip()):
            raise DataError(
                f"{where}: expected 'query <tab> document <tab> grade' or 'query 0 document grade', the grade a whole "
                f"number; found {line[:80]!r}."
            )
        query, document, grade = words[0].strip(), words[-2].strip(), int(words[-1])
        if not headed and re.search(r"\s(0|Q0)$", query):
            raise DataError(f"{where}: the query would be {query!r}; put tabs between all words, or spaces.")
        if not query or not document:
            what = "document" if query else "query"
            raise DataError(f"{where}: the id of the {what} is empty; every judgment needs both. Found {line[:80]!r}.")
        before = seen.setdefault((query, document), (where, grade))
        if before[1] != grade:
            raise DataError(
                f"{where}: document {document!r} of query {query!r} has grade {grade} here and {before[1]} at "
                f"{before[0]}. Keep one of them."
            )
        if before[0] == where:
            yield Judgement(query, document, grade, where)


def read_grades(path: str | os.PathLike[str]) -> dict[str, dict[str, int]]:
    """Return the judgments of a file, by query and document. Raise DataError if there are none."""
    found = grades_of(read_judgements(Path(path)))
    if not found:
        raise DataError(f"{path}: the file holds no judgment. Expected lines of 'query 0 document grade'.")
    return found


def grades_of(judgements: Iterable[Judgement]) -> dict[str, dict[str, int]]:
    """Return judgments by query and document."""
    found: dict[str, dict[str, int]] = {}
    for each in judgements:
        found.setdefault(each.query, {})[each.document] = each.grade
    return found


def grades_from(table: Grades | Columns) -> Grades:
    """Return judgments by query and document, from such a mapping or from a table with a row for each."""
    if isinstance(table, Mapping) and all(isinstance(each, Mapping) for each in table.values()):
        return {query: _checked(query, own) for query, own in table.items()}
    columns: list[list[Any]] = []
    names = table if isinstance(table, Mapping) else getattr(table, "column_names", getattr(table, "columns", ()))
    for what, known in _NAMES.items():
        name = next((each for each in known if each in names), None)
        if name is None:
            raise DataError(
                f"The table of judgments has no column for the {what}: one of {', '.join(known)}. "
                f"It has: {', '.join(map(str, names))}."
            )
        columns.append(np.asarray(table[name], dtype=object).tolist())
    if len(set(map(len, columns))) > 1:
        raise DataError(f"The columns of the judgments have {' and '.join(str(len(each)) for each in columns)} rows.")
    found: dict[str, dict[str, int]] = {}
    for row, (query, document, grade) in enumerate(zip(*columns, strict=True), start=1):
        if is_missing(query) or is_missing(document) or not _is_grade(grade):
            raise DataError(
                f"Row {row} of the judgments is {query!r}, {document!r}, {grade!r}; expected a query, a document and "
                "a whole number as its grade."
            )
        before = found.setdefault(str(query), {}).setdefault(str(document), int(grade))
        if before != grade:
            raise DataError(
                f"Row {row} of the judgments gives document {document!r} of query {query!r} grade {grade}; a row "
                f"before gave it {before}. Keep one of them."
            )
    return found


def _checked(query: str, own: Mapping[str, int]) -> dict[str, int]:
    for document, grade in own.items():
        if not _is_grade(grade):
            raise DataError(
                f"The grade of document {document!r} of query {query!r} is {grade!r}; expected a whole number."
            )
    return {document: int(grade) for document, grade in own.items()}


def _is_grade(value: object) -> bool:
    whole = isinstance(value, (int, np.integer)) or (isinstance(value, (float, np.floating)) and value.is_integer())
    return whole and not isinstance(value, bool) and abs(int(value)) < -UNKNOWN  # type: ignore[call-overload]


def is_qrels(path: Path) -> bool:
    """Return whether a file's first line is a judgment rather than a judged document with features."""
    words = [] if path.suffix == ".jsonl" else first_words(path)
    if len(words) not in (3, 4) or words[1].startswith("qid:"):
        return False
    return words[-1] in _HEADINGS or re.fullmatch(r"[+-]?[0-9]{1,9}", words[-1]) is not None


def write_judgements(
    path: Path, query_ids: Sequence[str], grades: Sequence[Mapping[str, int]], *, source: str = "0"
) -> None:
    """Write TREC qrels: `query 0 document grade`, query by query; `source` replaces the unused 0."""
    lines = qrels(dict(zip(query_ids, grades, strict=True)), source)
    with atomic_text(path) as out:
        out.writelines(lines)


def qrels(grades: Grades, source: str = "0") -> list[str]:
    """Make the lines of TREC qrels; see `write_judgements`."""
    for name in (source, *grades, *(document for each in grades.values() for document in each)):
        if not name or re.search(r"\s", name):
            raise DataError(f"{name!r} cannot be written to TREC qrels: it is empty or has a space in it.")
    return [f"{query} {source} {document} {own[document]}\n" for query, own in grades.items() for document in own]
