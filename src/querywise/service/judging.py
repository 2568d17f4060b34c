"""Judgments that are given on the page, kept as TREC qrels.

`JudgementFile` has one grade for a pair, and the texts of its queries in a file beside it; `JudgesFile` has those of
several judges, with names.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from querywise.data.collections import TEXTS_BESIDE
from querywise.data.judge_log import LOG_BESIDE, NOBODY, JudgeLog, Line, lines_of_log
from querywise.data.judgements import grades_of, parsed, write_judgements
from querywise.data.query_table import json_line, read_queries
from querywise.errors import DataError
from querywise.runtime.files import append_bytes, check_writable, read_regular_file
from querywise.runtime.locks import locked
from querywise.runtime.threads import checkpoint
from querywise.service.api import ApiError
from querywise.service.schema import KnownQuery

MOST_BYTES = 16_000_000  # of the file, of its log, and of the file of texts
LOG_BYTES = 1_000_000  # that a log may have whatever the size of the file: tens of thousands of grades
WHOLE_BYTES = 100_000  # of a file that is written whole with every grade, which takes milliseconds
MOST_GRADE = 9  # what one key can type
LOCK_SECONDS = 2.0  # for others to finish writing
MOST_JUDGES = 50  # with names, in one file
_USUAL_GRADE = 3  # the highest, where no judged data says another
_PACKED = (".gz", ".xz")
logger = logging.getLogger("querywise.service")
_Result = TypeVar("_Result")


class _State(NamedTuple):
    """The state of a file, which changes once it is replaced or written to."""

    inode: int
    changed: int
    size: int


class JudgementFile:
    """A qrels file that grows by one grade at a time, and may be edited by others meanwhile.

    path: the file, created with the first judgment. Its contents stay, except for grades that are given again.
    usual: the highest grade of the judged data that is served; 0 if there is none.
    whole_bytes: a larger file gets a log beside it, to which grades are appended, until `compact` is called.

    `texts`: the file beside it that has the text of every query judged here, as `queries.jsonl`. `highest`: the highest
    grade that can be given.
    """

    def __init__(
        self, path: Path, *, usual: int = 0, most_bytes: int = MOST_BYTES, whole_bytes: int = WHOLE_BYTES
    ) -> None:
        self.path = path.resolve() if path.is_symlink() else path
        self.log = self.path.with_name(self.path.name + LOG_BESIDE)
        self.texts = self.path.with_name(self.path.name + TEXTS_BESIDE)
        self._most, self._whole = most_bytes, whole_bytes
        self._changing = threading.Lock()
        self._read_at: tuple[_State | None, ...] | None = None
        self._grades: dict[str, dict[str, int]] = {}
        self._bytes = 0  # of a file of these grades
        self._known: set[str] = set()
        self._log_end = self._texts_end = 0  # bytes of complete lines: power may fail within one
        self._check()
        with self._changing:
            self._read()
        self.compact()  # what a service that was killed has left
        given = max((grade for own in self._grades.values() for grade in own.values()), default=0)
        self.highest = min(max(usual or _USUAL_GRADE, given), MOST_GRADE)

    @staticmethod
    def opened(path: Path, token: str | None, *, usual: int = 0) -> JudgementFile:
        """Return the file of a service with this token. Raise DataError without a token, or if the file is unusable."""
        require_token(path, token)
        return JudgementFile(path, usual=usual)

    def of(self, query: str) -> dict[str, int]:
        """Return the grades of a query's documents in the file, or those read last if it cannot be read now."""
        if self._changing.acquire(blocking=False):  # nobody who looks waits for one who writes
            try:
                with contextlib.suppress(DataError, OSError):
                    self._read()
            finally:
                self._changing.release()
        return dict(self._grades.get(query, {}))

    def judge(self, query: KnownQuery, document: str, grade: int | None) -> int:
        """Keep a grade, which replaces an earlier one; None removes it. Return the number of grades."""
        for name in (query.id, document):
            if not name or re.search(r"\s", name) or not name.isprintable():
                raise ApiError(
                    422, "no_id", f"{name!r} cannot be written to TREC qrels: it is empty or has a space in it."
                )
        if grade is not None and not 0 <= grade <= self.highest:
            raise ApiError(422, "no_grade", f"Grade {grade} is not one of 0 to {self.highest}.", "grade")
        with self._alone():
            self._read()
            checkpoint()  # nothing is written for a request that was given up
            if self._grades.get(query.id, {}).get(document) != grade:
                self._write(query, document, grade)
            return sum(map(len, self._grades.values()))

    def compact(self) -> None:
        """Write the grades of the log to the file, and remove the log."""
        if not self.log.exists():
            return
        try:
            with self._alone():
                self._read()
                self._write_whole()
        except ApiError as error:
            logger.warning("%s: the newest grades stay in %s: %s", self.path, self.log.name, error.message)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with alone(self.path, self._changing):
            yield

    def _check(self) -> None:
        check_files(self.path, self.log, self.texts)

    def _states(self) -> tuple[_State | None, ...]:
        return _state(self.path), _state(self.log), _state(self.texts)

    def _read(self) -> None:
        """Read the files if they have changed since they were last read or written."""
        now, before = self._states(), self._read_at
        if now == before:
            return
        for path, state in zip((self.path, self.log, self.texts), now, strict=True):
            if state is not None and state.size > self._most:
                raise DataError(f"{path}: {state.size} bytes; expected {self._most} at most. Name another file.")
        file, log, texts = now
        grades, size, end = self._grades, self._bytes, self._log_end
        known, texts_end = self._known, self._texts_end
        if before is None or before[0] != file or not _grown(before[1], log):
            found = b"" if file is None else self._content(self.path)
            grades, end = grades_of(parsed(self.path, _decoded(self.path, found))), 0
            size = sum(_size_of(query, own) for query, own in grades.items())
        if log is not None:
            grades, size, end = self._with_log(grades, size, end)
        if before is None or before[2] != texts:
            known, texts_end = self._ids_of_texts() if texts is not None else (set(), 0)
        self._grades, self._bytes, self._log_end = grades, size, end
        self._known, self._texts_end = known, texts_end
        self._read_at = now

    def _content(self, path: Path) -> bytes:
        return read_regular_file(path, path.parent, self._most)

    def _with_log(
        self, grades: dict[str, dict[str, int]], size: int, end: int
    ) -> tuple[dict[str, dict[str, int]], int, int]:
        """The grades with those in the log after so many bytes, their size, and where its last complete line ends."""
        found = self._content(self.log)[end:]
        found, changed = found[: found.rfind(b"\n") + 1], dict(grades)
        for line in lines_of_log(self.log, _decoded(self.log, found)):
            if line.judge != NOBODY:
                said = (
                    f"{line.where}: judges with names grade pairs into this file. Serve those pairs, or name another."
                )
                raise DataError(said, arguments=("judge", "pairs"))
            size += _put(changed, line.query, line.document, line.grade)
        return changed, size, end + len(found)

    def _ids_of_texts(self) -> tuple[set[str], int]:
        """The queries whose texts are known, and where the last complete line of the file ends."""
        content = self._content(self.texts)
        last = content[content.rfind(b"\n") + 1 :]
        try:
            json.loads(last or b"{}")
        except (ValueError, RecursionError):
            content = content[: len(content) - len(last)]
        text = _decoded(self.texts, content)
        return set(read_queries(self.texts, text=text).ids) if text.strip() else set(), len(content)

    def _write(self, query: KnownQuery, document: str, grade: int | None) -> None:
        line = f"{query.id} 0 {document} {'-' if grade is None else grade}\n".encode()
        size, end = self._size(self.path) + self._log_end, self._log_end + len(line)
        changed = dict(self._grades)
        larger = self._bytes + _put(changed, query.id, document, grade)
        if grade is not None:
            self._require_room(larger)
            self._write_text(query)
        if size > self._whole and end <= max(self._most - self._size(self.path), min(LOG_BYTES, self._most)):
            append_bytes(self.log, line, after=self._log_end, like=self.path)
            self._grades, self._bytes, self._log_end = changed, larger, end
            self._read_at = self._states()
        else:
            before = self._grades, self._bytes
            self._grades, self._bytes = changed, larger
            try:
                self._write_whole()
            except BaseException:
                self._grades, self._bytes = before
                raise

    def _write_whole(self) -> None:
        write_judgements(self.path, tuple(self._grades), tuple(self._grades.values()))
        self.log.unlink(missing_ok=True)  # if this does not happen, it says the same as the file
        self._log_end, self._read_at = 0, self._states()

    def _write_text(self, query: KnownQuery) -> None:
        """Add the query to the file of texts, unless it is there."""
        if query.id in self._known or query.text is None:
            return
        line = json_line({"_id": query.id, "text": query.text, **({"class": query.class_} if query.class_ else {})})
        end = self._texts_end
        gap = b"\n" if end and self._content(self.texts)[end - 1 : end] != b"\n" else b""
        self._require_room(end + len(gap) + len(line.encode()))
        append_bytes(self.texts, gap + line.encode(), after=end, like=self.path)
        self._texts_end = end + len(gap) + len(line.encode())
        self._known.add(query.id)

    def _size(self, path: Path) -> int:
        state = _state(path)
        return 0 if state is None else state.size

    def _require_room(self, size: int) -> None:
        if size > self._most:
            message = (
                f"The file of judgments is full: it may have {self._most} bytes. Start the service with another file."
            )
            raise ApiError(413, "file_full", message)


class JudgesFile:
    """A qrels file beside whose log judges with names append their grades; nothing in either is changed or removed.

    path: the file; an empty one is made with the first line of the log. `highest`: the highest grade to be given.
    """

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self.path = path.resolve() if path.is_symlink() else path
        self.log = self.path.with_name(self.path.name + LOG_BESIDE)
        self._most = most_bytes
        self._changing = threading.Lock()
        check_files(self.path, self.log)
        self._found, self._end, self._lines = JudgeLog(), 0, 0
        self._read_at: _State | None = None
        with self._changing:
            self._read()
        content = read_regular_file(self.path, self.path.parent, most_bytes) if self.path.exists() else b""
        given = [each.grade for each in parsed(self.path, _decoded(self.path, content))]
        given += [grade for own in self._found.by_pair.values() for grade in own.values()]
        self.highest = min(max([_USUAL_GRADE, *given]), MOST_GRADE)

    def look(self, seen: Callable[[JudgeLog], _Result]) -> _Result:
        """Return what a function makes of the log as it is now."""
        with held(self.path, self._changing):
            self._read()
            return seen(self._found)

    def keep(self, made: Callable[[JudgeLog], Line | None]) -> None:
        """Append the line that a function makes of the log as it is now, if it makes one."""
        with alone(self.path, self._changing):
            self._read()
            checkpoint()  # nothing is written for a request that was given up
            line = made(self._found)
            if line is None:
                return
            if line.judge not in self._found.judges and len(self._found.judges) >= MOST_JUDGES:
                raise ApiError(422, "many_judges", f"There are {MOST_JUDGES} judges; no more names are taken.", "judge")
            content = line.text.encode()
            if self._end + len(content) > self._most:
                message = f"The log of judgments is full: it may have {self._most} bytes. Start with another file."
                raise ApiError(413, "file_full", message)
            if not self.path.exists():
                write_judgements(self.path, (), ())
            append_bytes(self.log, content, after=self._end, like=self.path)
            self._found.add(line)
            self._end, self._lines, self._read_at = self._end + len(content), self._lines + 1, _state(self.log)

    def _read(self) -> None:
        """Read what others have appended; read the whole log again if it was replaced."""
        now = _state(self.log)
        if now == self._read_at:
            return
        if now is None or not _grown(self._read_at, now):
            self._found, self._end, self._lines, self._read_at = JudgeLog(), 0, 0, None
        if now is None:
            return
        found = read_regular_file(self.log, self.log.parent, self._most)[self._end :]
        found = found[: found.rfind(b"\n") + 1]
        lines = list(lines_of_log(self.log, _decoded(self.log, found), self._lines + 1))
        for line in lines:
            self._found.add(line)
        self._end, self._lines, self._read_at = self._end + len(found), self._lines + len(lines), now


def require_token(path: Path, token: str | None) -> None:
    """Raise DataError unless judging needs a token: otherwise anybody could give judgments."""
    if token is None:
        said = f"judge={str(path)!r}: judging needs a token. Set QUERYWISE_TOKEN, or name a file that has one."
        raise DataError(said, arguments=("judge", "token_file"))


def check_files(path: Path, *beside: Path) -> None:
    """Raise DataError for files that cannot be written, before anything is served."""
    if path.suffix in _PACKED:
        raise DataError(f"{path}: judgments are written as plain text; name a file without {path.suffix}.")
    for each in (path, *beside):
        check_writable(each)
        if each.exists() and not each.is_file():
            raise DataError(f"{each}: not a regular file; name one, or a new one.")
        if each.exists() and not os.access(each, os.W_OK):
            raise DataError(f"{each}: no permission to write to this file.")


@contextlib.contextmanager
def held(path: Path, changing: threading.Lock) -> Iterator[None]:
    """Lock a file against other threads. Raise an error if one takes long, or the file cannot be read or written."""
    if not changing.acquire(timeout=LOCK_SECONDS):
        raise ApiError(503, "locked", f"{path}: somebody else is writing to it. Try again in a moment.")
    try:
        yield
    except (DataError, OSError) as error:
        raise ApiError(500, "not_read", f"The judgments cannot be read. {error}") from None
    finally:
        changing.release()


@contextlib.contextmanager
def alone(path: Path, changing: threading.Lock) -> Iterator[None]:
    """Lock a file against other writers, in this process and elsewhere. Raise an error if one of them takes long."""
    said = f"{path}: somebody else is writing to it"
    with contextlib.ExitStack() as kept:
        if not changing.acquire(timeout=LOCK_SECONDS):
            raise ApiError(503, "locked", f"The judgment was not kept. {said}. Try again in a moment.")
        kept.callback(changing.release)
        try:
            try:
                lock = path.with_name(f".{path.name}.lock")
                kept.enter_context(locked(lock, busy=said, seconds=LOCK_SECONDS))
            except DataError as error:
                raise ApiError(503, "locked", f"The judgment was not kept. {error}") from None
            yield
        except (DataError, OSError) as error:
            raise ApiError(500, "not_kept", f"The judgment was not kept. {error}") from None


def id_of_text(text: str) -> str:
    """Return the id of a query that has none; queries with the same words, in any case, have the same id."""
    return f"text-{hashlib.sha256(plain(text).encode(errors='surrogatepass')).hexdigest()[:12]}"


def plain(text: str) -> str:
    """Return a query's text in the form in which texts are compared.

    >>> plain(" Free a  DISK ")
    'free a disk'
    """
    return " ".join(text.casefold().split())


def _put(grades: dict[str, dict[str, int]], query: str, document: str, grade: int | None) -> int:
    """Change a grade, and return by how many bytes the file grows.

    The grades of the query are another dictionary then: others may be reading the one before.
    """
    before = grades.get(query, {})
    own = {name: old for name, old in before.items() if name != document or grade is not None}
    if grade is not None:
        own[document] = grade
    grades[query] = own
    if not own:
        del grades[query]
    now, then = (_size_of(query, {document: each[document]}) if document in each else 0 for each in (own, before))
    return now - then


def _size_of(query: str, own: dict[str, int]) -> int:
    """The bytes of the lines of one query's grades in a file."""
    return sum(len(f"{query} 0 {document} {grade}\n".encode()) for document, grade in own.items())


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8 text. Convert the file to UTF-8.") from None


def _grown(before: _State | None, now: _State | None) -> bool:
    """Whether a log is the same as before, perhaps with more lines."""
    return before is None or (now is not None and before.inode == now.inode and before.size <= now.size)


def _state(path: Path) -> _State | None:
    """Return a file's state; None if it does not exist. Raise an error for a pipe or the like, which could block."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{path}: not a regular file.")
    return _State(found.st_ino, found.st_mtime_ns, found.st_size)
