"""A comparison is resumed: finished folds are kept in a folder, and not computed again by the next run."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.folds import Fold
from querywise.data.gains import values_of
from querywise.data.judged import Judged
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.evaluation.reasons import Reasons
from querywise.evaluation.trained import Extra, Trained
from querywise.evaluation.tuning import Choice, Trial
from querywise.runtime.files import atomic_text, make_folder, read_text
from querywise.runtime.resume import Record
from querywise.runtime.values import Json, JsonObject, Settings

_TIMES = ("fit_seconds", "predict_seconds")


class Kept:
    """A folder with, for every method and fold, its scores (CSV), how its parameters were chosen, and its timings.

    What is there is used again only where the data and the method's settings are the very same.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        make_folder(folder)
        self.folder = folder
        self.settings = settings  # of each method that can be used again, as JSON can hold them
        self._finished: set[tuple[int, str]] = set()
        self._parts: dict[str, Kept] = {}

    def part(self, name: str) -> Kept:
        """A folder within this one for further runs of the same methods, which are counted with these."""
        return self._parts.setdefault(name, Kept(self.folder / name, self.settings))

    def told(self, folds: int) -> str:
        """What is kept so far, of how much; empty where there is nothing. folds: of all runs together."""
        if not (finished := self._count()):
            return ""
        every = counted(folds * len(self.settings), "result")
        return f"{finished} of {every} (a method on a fold each) are kept in {self.folder}"

    def _count(self) -> int:
        return len(self._finished) + sum(each._count() for each in self._parts.values())

    def get(self, number: int, name: str, fold: Fold) -> Trained | None:
        """The stored result of a method on a fold, if data and settings are the same."""
        scores, _, times = self._paths(number, name)
        if name not in self.settings:
            return None  # scores computed elsewhere may have changed
        try:
            notes = self._record(number, name, fold).read()
            if notes is None:
                return None
            text = read_text(scores)
            if notes["scores"] != _checksum(text):
                return None
            found = _read(notes, text, json.loads(read_text(times)))
        except (ValueError, KeyError, TypeError, DataError):
            return None
        self._finished.add((number, name))
        return found

    def put(self, number: int, name: str, fold: Fold, trained: Trained) -> None:
        """Keep a finished fold; its record is written last, and without it nothing counts as kept."""
        scores, notes, times = self._paths(number, name)
        notes.unlink(missing_ok=True)
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["query", "document", "label", "score"])
        writer.writerows(_score_rows(fold.test, trained.scores.tolist()))
        with atomic_text(scores) as out:
            out.write(table.getvalue())
        seconds = (trained.fit_seconds, trained.predict_seconds)
        spent = {each: value if math.isfinite(value) else None for each, value in zip(_TIMES, seconds, strict=True)}
        with atomic_text(times) as out:
            json.dump(spent, out)
        chosen = {} if trained.choice is None else trained.choice.as_notes()
        content: JsonObject = {
            "scores": _checksum(table.getvalue()),
            "notes": chosen,
            "extra": trained.extra.as_json(),
            "reasons": None if trained.reasons is None else trained.reasons.as_json(),
        }
        self._record(number, name, fold).write(content)
        if name in self.settings:
            self._finished.add((number, name))

    def _record(self, number: int, name: str, fold: Fold) -> Record:
        settings: Json = {"method": self.settings.get(name), "data": fold.fingerprint()}
        return Record(self._paths(number, name)[1], settings)

    def _paths(self, number: int, name: str) -> tuple[Path, Path, Path]:
        stem = f"fold{number + 1}-{file_name(name)}"
        return self.folder / f"{stem}.csv", self.folder / f"{stem}.json", self.folder / f"{stem}.times.json"


def file_name(method: str) -> str:
    """What the files of a method are called."""
    plain = re.sub(r"[^A-Za-z0-9.+-]+", "-", method)
    return plain if plain == method else f"{plain}-{_checksum(method)[:8]}"  # names that look alike stay apart


def _read(notes: Any, text: str, spent: Any) -> Trained:  # what was read from JSON files; it may be anything
    values = np.array([float(row["score"]) for row in csv.DictReader(io.StringIO(text))])
    fit, predict = (float("nan") if spent[name] is None else float(spent[name]) for name in _TIMES)
    choice = _read_choice(notes["notes"]) if notes["notes"] else None
    reasons = None if notes["reasons"] is None else Reasons(**notes["reasons"])
    return Trained(values, fit, predict, choice, Extra(**notes["extra"]), reasons=reasons)


def _read_choice(notes: Any) -> Choice:
    """The choice that `Choice.as_notes` describes."""
    by = notes["chosen_by"] or {"measure": "", "flavour": ""}
    tried = tuple(Trial(trial["parameters"], trial["value"]) for trial in notes["tried"])
    return Choice(notes["parameters"], by["measure"], by["flavour"], tried, notes.get("final", {}))


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _score_rows(test: Judged, scores: Iterable[float]) -> Iterable[tuple[str, str, float, str]]:
    candidates, labels = test.candidates, test.labels if test.gains is None else values_of(test)
    owners = candidates.query_of_row.tolist()
    for row, (owner, label, score) in enumerate(zip(owners, labels.tolist(), scores, strict=True)):
        yield candidates.query_ids[owner], candidates.document_label(row), label, repr(score)
