"""A resumable comparison: finished folds are stored in a folder and not computed again by the next run."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
import threading
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from querywise.data.folds import Fold
from querywise.data.judged import Judged
from querywise.data.labels import values_of
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.evaluation.trained import Extra, Reasons, Trained
from querywise.evaluation.tuning import Choice, Trial
from querywise.runtime.files import atomic_text, make_own_folder, read_stored_text
from querywise.runtime.resume import Record
from querywise.runtime.values import MODERATE, Json, JsonObject, Settings, has_type

_TIMES = ("fit_seconds", "predict_seconds")
_SCORES, _SECONDS, _RECORD = ".csv", ".times.json", ".json"  # the files of a result; the record is written last


class Kept:
    """A folder with the scores (CSV), the choice of parameters and the timings of every method and fold.

    A result is reused only if the data and the method's settings are exactly the same.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        make_own_folder(folder)
        self.folder = folder
        self.settings = settings  # of each method whose results can be reused, as JSON
        self._finished: set[tuple[int, str]] = set()
        self._parts: dict[str, Kept] = {}
        self._looking = threading.Lock()

    def part(self, name: str) -> Kept:
        """Return a subfolder for further runs of the same methods, which count toward the total."""
        return self._parts.setdefault(name, Kept(self.folder / name, self.settings))

    def told(self, folds: int) -> str:
        """Describe how many results are kept; empty if none. `folds` counts those of all runs together."""
        if not (finished := self._count()):
            return ""
        every = counted(folds * len(self.settings), "result")
        return f"{finished} of {every} (a method on a fold each) are kept in {self.folder}"

    def _count(self) -> int:
        return len(self._finished) + sum(each._count() for each in self._parts.values())

    def get(self, number: int, name: str, fold: Fold) -> Trained | None:
        """Return the stored result of a method on a fold with the same data and settings, at any fold number."""
        if name not in self.settings:
            return None  # scores computed elsewhere may have changed
        own, settings = self._stem(number, name), self._settings(name, fold)
        with self._looking:
            others = sorted(each.with_suffix("") for each in self.folder.glob(f"fold*-{file_name(name)}.json"))
            for stem in dict.fromkeys([own, *others]):
                found = _read(stem, settings, fold.test)
                if found is not None:
                    if stem != own:
                        _exchange(own, stem)
                        self.put(number, name, fold, found)
                    self._finished.add((number, name))
                    return found
        return None

    def put(self, number: int, name: str, fold: Fold, trained: Trained) -> None:
        """Store a finished fold; its record is written last, and a result without it does not count."""
        stem = self._stem(number, name)
        _remove(_named(stem, _RECORD))
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["query", "document", "label", "score"])
        writer.writerows(_score_rows(fold.test, trained.scores.tolist()))
        with atomic_text(_named(stem, _SCORES)) as out:
            out.write(table.getvalue())
        seconds = (trained.fit_seconds, trained.predict_seconds)
        spent = {each: value if math.isfinite(value) else None for each, value in zip(_TIMES, seconds, strict=True)}
        with atomic_text(_named(stem, _SECONDS)) as out:
            json.dump(spent, out)
        chosen = {} if trained.choice is None else trained.choice.as_notes()
        content: JsonObject = {
            "scores": _checksum(table.getvalue()),
            "notes": chosen,
            "extra": trained.extra.as_json(),
            "reasons": None if trained.reasons is None else trained.reasons.as_json(),
        }
        Record(_named(stem, _RECORD), self._settings(name, fold)).write(content)
        if name in self.settings:
            self._finished.add((number, name))

    def _settings(self, name: str, fold: Fold) -> Json:
        return {"method": self.settings.get(name), "data": fold.fingerprint(), "version": version("querywise")}

    def _stem(self, number: int, name: str) -> Path:
        return self.folder / f"fold{number + 1}-{file_name(name)}"


def _named(stem: Path, kind: str) -> Path:
    return stem.with_name(f"{stem.name}{kind}")


def _exchange(stem: Path, other: Path) -> None:
    """Swap the stored files of two names. A result without its record does not count."""
    _remove(_named(other, _RECORD))
    try:
        for kind in (_SCORES, _SECONDS, _RECORD):
            if _named(stem, kind).is_file():
                _named(stem, kind).replace(_named(other, kind))
    except OSError as error:
        raise DataError(f"{stem}.*: cannot be renamed ({error.strerror}).") from None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be removed ({error.strerror}).") from None


def file_name(method: str) -> str:
    """Return the stem of a method's file names."""
    plain = re.sub(r"[^A-Za-z0-9.+-]+", "-", method)
    return plain if plain == method else f"{plain}-{_checksum(method)[:8]}"  # names that look alike stay apart


def _read(stem: Path, settings: Json, test: Judged) -> Trained | None:
    """Read the result stored under a name, if its settings match and it is valid for these test queries."""
    try:
        notes = Record(_named(stem, _RECORD), settings).read()
        if notes is None:
            return None
        text = read_stored_text(_named(stem, _SCORES))
        if notes["scores"] != _checksum(text):
            return None
        found = _decoded(notes, text, json.loads(read_stored_text(_named(stem, _SECONDS))))
        _require(found, test)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, DataError):
        return None  # as if it did not exist
    return found


def _decoded(notes: Any, text: str, spent: Any) -> Trained:  # parsed from JSON files, which may hold anything
    values = np.array([float(row["score"]) for row in csv.DictReader(io.StringIO(text))])
    fit, predict = (float("nan") if spent[name] is None else float(spent[name]) for name in _TIMES)
    choice = _read_choice(notes["notes"]) if notes["notes"] else None
    reasons = None if notes["reasons"] is None else Reasons(**notes["reasons"])
    return Trained(values, fit, predict, choice, Extra(**notes["extra"]), reasons=reasons)


def _read_choice(notes: Any) -> Choice:
    """Read the choice that `Choice.as_notes` wrote."""
    by = notes["chosen_by"] or {"measure": "", "flavour": ""}
    tried = tuple(Trial(trial["parameters"], trial["value"]) for trial in notes["tried"])
    return Choice(notes["parameters"], by["measure"], by["flavour"], tried, notes.get("final", {}))


def _require(found: Trained, test: Judged) -> None:
    """Raise ValueError unless the result fits these test queries: same sizes, valid values."""
    extra, reasons, queries = found.extra, found.reasons or Reasons(), len(test)
    right = (
        len(found.scores) == len(test.labels)
        and bool(np.isfinite(found.scores).all())
        and all(math.isnan(each) or 0 <= each < MODERATE for each in (found.fit_seconds, found.predict_seconds))
        and all(has_type(getattr(extra, name), kind) for name, kind in get_type_hints(Extra).items())
        and all(has_type(getattr(reasons, name), kind) for name, kind in get_type_hints(Reasons).items())
        and all(
            each is None or len(each) == queries
            for each in (extra.distances, extra.best_model, extra.relevant_only, extra.places, reasons.why or None)
        )
        and all(len(each) == 2 for each in (extra.moved or {}).values())
        and len(set(map(len, extra.places or ()))) < 2
        and all(len(each) == len(reasons.features) for each in (reasons.here, reasons.everyone, reasons.moved))
        and (reasons.queries > 0 or not reasons.features)
        and all(0 <= each <= 1 + 1e-9 for each in _measured(extra))
        and (extra.halves is None or sorted(extra.halves) == ["best", "other", "own"])
        and len(set(map(len, (extra.halves or {}).values()))) < 2
        and (found.choice is None or _is_choice(found.choice))
        and _are_reasons(reasons, test)
    )
    if not right:
        raise ValueError


def _measured(extra: Extra) -> Iterator[float]:
    """Yield the values of average precision in it."""
    for each in (extra.best_model, extra.by_rank, extra.relevant_only, *(extra.halves or {}).values()):
        yield from each or ()


def _is_choice(choice: Choice) -> bool:
    """Whether a choice consists of plain values that can be shown."""
    settings = (choice.parameters, choice.final, *(each.parameters for each in choice.tried))
    plain = (bool, int, float, str, type(None))
    return (
        isinstance(choice.measure, str)
        and isinstance(choice.flavour, str)
        and all(has_type(each.value, float) and math.isfinite(each.value) for each in choice.tried)
        and all(isinstance(each, dict) for each in settings)
        and all(isinstance(one, plain) for own in settings for each in own.values() for one in _listed(each))
        and choice.edges is not None  # evaluating it checks all of it
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _are_reasons(reasons: Reasons, test: Judged) -> bool:
    """Whether the reasons name existing documents and features."""
    if not reasons.why and not reasons.refused and reasons.features:
        return False
    for size, own in zip(test.candidates.sizes.tolist(), reasons.why, strict=False):
        for row, *pairs in own:
            known = all(feature in range(len(reasons.features)) for feature in pairs[::2])
            if row not in range(size) or len(pairs) % 2 or not known:
                return False
    return True


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _score_rows(test: Judged, scores: Iterable[float]) -> Iterable[tuple[str, str, float, str]]:
    candidates, labels = test.candidates, test.labels if test.gains is None else values_of(test)
    owners = candidates.query_of_row.tolist()
    for row, (owner, label, score) in enumerate(zip(owners, labels.tolist(), scores, strict=True)):
        yield candidates.query_ids[owner], candidates.document_label(row), label, repr(score)
