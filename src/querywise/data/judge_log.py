"""The log of judges with names. Every grade, note and undo is one appended line; nothing is ever removed.

A line is `query JUDGE document`, followed by a grade, by `-` if the grade was withdrawn, by `undo`, or by `note` and a
JSON string. The judge `0` has no name: such lines come from a service without names, and the last one of a pair counts.
"""

from __future__ import annotations

import json
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from querywise.errors import DataError

Pair = tuple[str, str]  # query, document
Rule = Literal["median", "majority"]

LOG_BESIDE = ".judged-log"  # suffix of the log whose grades are newer than those in the file beside it
NOBODY = "0"  # replaces a name
RULES: dict[Rule, str] = {
    "median": "The median of the judges' grades, rounded down.",
    "majority": "The grade that most judges gave; of several such grades the lowest.",
}
MOST_LETTERS = 2_000  # of a note
MOST_NAME = 40
_GRADE = re.compile(r"[+-]?[0-9]{1,9}")


class Line(NamedTuple):
    """A line of the log; `note` is None unless the line is a note, `grade` is None if it was withdrawn."""

    judge: str
    query: str
    document: str
    grade: int | None
    where: str
    note: str | None = None
    undo: bool = False

    @property
    def text(self) -> str:
        """The line as it appears in the log."""
        what = "-" if self.grade is None else str(self.grade)
        if self.undo:
            what = "undo"
        elif self.note is not None:
            what = f"note {json.dumps(self.note)}"
        return f"{self.query} {self.judge} {self.document} {what}\n"


def is_name(text: str) -> bool:
    """Return whether a judge may have this name.

    >>> [is_name(each) for each in ("ann", "Zoë-2", "0", "two words", "=1+1", "<b>", "")]
    [True, True, False, False, False, False, False]
    """
    letters = all(each.isalnum() or each in "._-" or unicodedata.category(each) in ("Mn", "Mc") for each in text)
    return (
        letters
        and 0 < len(text) <= MOST_NAME
        and text[0].isalnum()
        and text != NOBODY
        and unicodedata.normalize("NFC", text) == text
    )


def lines_of_log(path: Path, text: str, first: int = 1) -> Iterator[Line]:
    """Read the lines of a log. An unterminated last line is incomplete and skipped.

    Args:
        path: The path of the log.
        text: The log, or its end.
        first: The number of the first line of the text.

    Yields:
        Every line.

    Raises:
        DataError: If a line is not of one of the four kinds.
    """
    for number, line in enumerate(text.split("\n")[:-1], start=first):
        words, where = line.split(" ", 4), f"{path}:{number}"
        found = _line(words, where) if len(words) > 3 and all(words[:3]) else None
        if found is None:
            raise DataError(
                f"{where}: expected 'query 0 document grade', the grade a number or -; or with a judge's name in the "
                f"place of 0, then also undo or a note. Found {line[:80]!r}."
            )
        yield found


def _line(words: list[str], where: str) -> Line | None:
    query, judge, document, what = words[:4]
    if judge != NOBODY and not is_name(judge):
        return None
    if what == "note" and len(words) == 5 and judge != NOBODY:
        note = _note(words[4])
        return None if note is None else Line(judge, query, document, None, where, note)
    if len(words) == 4 and (what == "-" or _GRADE.fullmatch(what)):
        return Line(judge, query, document, None if what == "-" else int(what), where)
    return Line(judge, query, document, None, where, undo=True) if words[3:] == ["undo"] and judge != NOBODY else None


def _note(text: str) -> str | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, str) and len(found) <= MOST_LETTERS else None


class JudgeLog:
    """The state that the lines of a log lead to.

    Attributes:
        judges: every name, in order of appearance.
        notes: by judge and pair.
        by_pair: the grades of every pair that a judge with a name has graded, by judge.
    """

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self.judges: list[str] = []
        self.notes: dict[tuple[str, Pair], str] = {}
        self.by_pair: dict[Pair, dict[str, int]] = {}
        self._nobody: dict[Pair, Line] = {}
        self._given: dict[tuple[str, Pair], list[Line]] = {}  # lines that were not undone, the newest last
        self._acts: dict[str, list[Pair]] = {}
        for each in lines:
            self.add(each)

    def add(self, line: Line) -> None:
        """Add one line."""
        judge, pair = line.judge, (line.query, line.document)
        if judge == NOBODY:
            self._nobody[pair] = line
            return
        if judge not in self._acts:
            self.judges.append(judge)
        acts, given = self._acts.setdefault(judge, []), self._given.setdefault((judge, pair), [])
        if line.note is not None:
            self.notes[judge, pair] = line.note
            if not line.note:
                del self.notes[judge, pair]
            return
        if not line.undo:
            given.append(line)
            acts.append(pair)
        elif given:
            given.pop()
            del acts[len(acts) - 1 - acts[::-1].index(pair)]
        own = self.by_pair.setdefault(pair, {})
        own.pop(judge, None)
        if given and given[-1].grade is not None:
            own[judge] = given[-1].grade
        elif not own:
            del self.by_pair[pair]

    def last_of(self, judge: str, among: Container[Pair]) -> Pair | None:
        """Return the pair among some that a judge's next undo affects."""
        return next((pair for pair in reversed(self._acts.get(judge, ())) if pair in among), None)

    def grades_of(self, judge: str) -> dict[str, dict[str, int]]:
        """Return the grades of one judge, by query and document."""
        return _by_query((pair, own[judge]) for pair, own in self.by_pair.items() if judge in own)

    def of_all(self, rule: Rule = "median") -> dict[str, dict[str, int]]:
        """Return one grade for each pair that a judge with a name has graded, by a rule."""
        return _by_query((pair, together(list(own.values()), rule)) for pair, own in self.by_pair.items())

    def newest(self) -> dict[Pair, tuple[int | None, str]]:
        """Return what replaces a file's own grades, with its line; None if a grade was withdrawn."""
        found: dict[Pair, tuple[int | None, str]] = {
            pair: (line.grade, line.where) for pair, line in self._nobody.items()
        }
        for pair, own in self.by_pair.items():
            where = max(self._given[judge, pair][-1].where for judge in own)
            found[pair] = together(list(own.values())), where
        return found


def _by_query(grades: Iterable[tuple[Pair, int]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (query, document), grade in grades:
        found.setdefault(query, {})[document] = grade
    return found


def together(grades: list[int], rule: Rule = "median") -> int:
    """Combine several grades into one.

    >>> together([1, 3, 3]), together([0, 3]), together([2, 2, 1, 1], "majority")
    (3, 1, 1)
    """
    if rule == "median":
        return int(statistics.median(grades) // 1)
    count = Counter(grades)
    return min(grade for grade, number in count.items() if number == max(count.values()))
