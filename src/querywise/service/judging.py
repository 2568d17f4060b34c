"""Judgements that are given on the page, kept as TREC qrels, with the texts of their queries in a file beside it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from pathlib import Path
from typing import NamedTuple

from querywise.data.collections import TEXTS_BESIDE
from querywise.data.judgements import grades_of, read_judgements, write_judgements
from querywise.data.queries import json_line, read_queries
from querywise.errors import DataError
from querywise.runtime.files import check_writable, read_text, write_bytes
from querywise.runtime.locks import locked
from querywise.service.errors import ApiError
from querywise.service.schema import KnownQuery

MOST_BYTES = 16_000_000  # of either file
MOST_GRADE = 9  # what one key can type
_USUAL_GRADE = 3  # the highest, where no judged data says another
_PACKED = (".gz", ".xz")


class _State(NamedTuple):
    """What is another once a file has been replaced or written to."""

    inode: int
    changed: int
    size: int


class JudgementFile:
    """A qrels file that grows by one grade at a time, and may be edited by others meanwhile.

    path: the file; it is made with the first judgement. What is in it stays, but for the grades that are given anew.
    usual: the highest grade of the judged data that is served; 0 if there is none.

    `texts`: the file beside it that has the text of every query judged here, as `queries.jsonl`. `highest`: the highest
    grade that can be given.
    """

    def __init__(self, path: Path, *, usual: int = 0, most_bytes: int = MOST_BYTES) -> None:
        self.path = path.resolve() if path.is_symlink() else path
        self.texts = self.path.with_name(self.path.name + TEXTS_BESIDE)
        self._most = most_bytes
        self._changing = threading.Lock()
        self._read_at: tuple[_State | None, _State | None] | None = None
        self._grades: dict[str, dict[str, int]] = {}
        self._known: frozenset[str] = frozenset()
        self._check()
        with self._changing:
            self._read()
        given = max((grade for own in self._grades.values() for grade in own.values()), default=0)
        self.highest = min(max(usual or _USUAL_GRADE, given), MOST_GRADE)

    @staticmethod
    def opened(path: Path, token: str | None, *, usual: int = 0) -> JudgementFile:
        """The file of a service with this token; refused if it has none, or if the file cannot be used."""
        if token is None:
            said = f"judge={str(path)!r}: judging needs a token. Set QUERYWISE_TOKEN, or name a file that has one."
            raise DataError(said, arguments=("judge", "token_file"))
        return JudgementFile(path, usual=usual)

    def of(self, query: str) -> dict[str, int]:
        """The grades of a query's documents, as they are in the file; as they were last if it cannot be read now."""
        if self._changing.acquire(blocking=False):  # nobody who looks waits for one who writes
            try:
                with contextlib.suppress(DataError, OSError):
                    self._read()
            finally:
                self._changing.release()
        return dict(self._grades.get(query, {}))

    def judge(self, query: KnownQuery, document: str, grade: int | None) -> int:
        """Keep a grade, which takes the place of the one before; None removes it. How many grades there are now."""
        for name in (query.id, document):
            if not name or re.search(r"\s", name) or not name.isprintable():
                raise ApiError(422, "no_id", f"{name!r} cannot stand in TREC qrels: it is empty or has a space in it.")
        if grade is not None and not 0 <= grade <= self.highest:
            raise ApiError(422, "no_grade", f"Grade {grade} is not one of 0 to {self.highest}.", "grade")
        with self._changing:
            try:
                with locked(self.path.with_name(f".{self.path.name}.lock")):
                    self._read()
                    if self._grades.get(query.id, {}).get(document) != grade:
                        self._write(query, document, grade)
            except (DataError, OSError) as error:
                raise ApiError(500, "not_kept", f"The judgement was not kept. {error}") from None
            return sum(map(len, self._grades.values()))

    def _check(self) -> None:
        """Refuse files that cannot be written, before anything is served."""
        if self.path.suffix in _PACKED:
            raise DataError(
                f"{self.path}: judgements are written as plain text; name a file without {self.path.suffix}."
            )
        for path in (self.path, self.texts):
            check_writable(path)
            if path.exists() and not path.is_file():
                raise DataError(f"{path}: not a regular file; name one, or a new one.")
            if path.exists() and not os.access(path, os.W_OK):
                raise DataError(f"{path}: no permission to write to this file.")

    def _read(self) -> None:
        """Read the two files if they are others than when they were last read or written."""
        now = (_state(self.path), _state(self.texts))
        if now == self._read_at:
            return
        for path, state in zip((self.path, self.texts), now, strict=True):
            if state is not None and state.size > self._most:
                raise DataError(f"{path}: {state.size} bytes; expected {self._most} at most. Name another file.")
        grades = {} if now[0] is None else grades_of(read_judgements(self.path))
        self._known = frozenset(read_queries(self.texts).ids) if now[1] is not None and now[1].size else frozenset()
        self._grades, self._read_at = grades, now

    def _write(self, query: KnownQuery, document: str, grade: int | None) -> None:
        own = {**self._grades.get(query.id, {})}
        if grade is None:
            own.pop(document, None)
        else:
            own[document] = grade
            self._require_room(self.path, len(f"{query.id} 0 {document} {grade}\n".encode()))
            self._write_text(query)
        grades = {**self._grades, query.id: own}
        if not own:
            del grades[query.id]
        write_judgements(self.path, tuple(grades), tuple(grades.values()))
        self._grades, self._read_at = grades, (_state(self.path), _state(self.texts))

    def _write_text(self, query: KnownQuery) -> None:
        """Add the query to the file of texts, unless it is there."""
        if query.id in self._known or query.text is None:
            return
        line = json_line({"_id": query.id, "text": query.text, **({"class": query.class_} if query.class_ else {})})
        self._require_room(self.texts, len(line.encode()))
        before = read_text(self.texts) if self.texts.exists() else ""
        gap = "" if not before or before.endswith("\n") else "\n"
        write_bytes(self.texts, f"{before}{gap}{line}".encode())
        self._known |= {query.id}

    def _require_room(self, path: Path, more: int) -> None:
        state = _state(path)
        if (0 if state is None else state.size) + more > self._most:
            message = (
                f"The file of judgements is full: it may have {self._most} bytes. Start the service with another file."
            )
            raise ApiError(413, "file_full", message)


def id_of_text(text: str) -> str:
    """The id of a query that nobody has given one: of the same words, in any case, it is the same."""
    return f"text-{hashlib.sha256(plain(text).encode(errors='surrogatepass')).hexdigest()[:12]}"


def plain(text: str) -> str:
    """A query's text as it is compared with others.

    >>> plain(" Free a  DISK ")
    'free a disk'
    """
    return " ".join(text.casefold().split())


def _state(path: Path) -> _State | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return _State(found.st_ino, found.st_mtime_ns, found.st_size)
