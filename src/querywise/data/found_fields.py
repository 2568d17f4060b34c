"""The content of the fields of a collection's documents, and the kinds inferred from it."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from querywise.data.fields import OWN, TRUTH, Fields, FieldSpec, is_missing_value, year_of
from querywise.errors import DataError
from querywise.runtime.values import Json, finite_number, is_finite_number

PLAIN = {*OWN, "title", "text"}  # what a collection without fields has
_MOST = 100_000  # distinct values that are counted
_EXAMPLES, _SHORT = 3, 40
_REPEATED = 20  # occurrences per value of a keyword, on average
_FEW_WORDS = 4  # words per value of a keyword, on average
_YEARS, _MOST_YEARS = (1500, 2100), 0.95
_HEAVY = 2.0  # skewness from which the logarithm is useful
_TITLES = ("title", "name")


class Cell(str):
    """A text from an untyped table, in which numbers are texts too."""

    __slots__ = ()


@dataclass(eq=False)
class FoundField:
    """A summary of one field's values over all documents."""

    name: str
    there: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    distinct: dict[str, None] = field(default_factory=dict)
    items: int = 0
    words: int = 0
    lists: int = 0
    numbers: array[float] = field(default_factory=lambda: array("d"))

    def add(self, value: Json, where: str) -> None:
        """Add one document's value."""
        if is_missing_value(value):
            return
        self.there += 1
        self.lists += isinstance(value, list)
        for each in value if isinstance(value, list) else [value]:
            if is_missing_value(each):
                continue
            self.items += 1
            self.kinds[self._kind(each, where)] += 1
            text = each if isinstance(each, str) else repr(each)
            self.words += text.count(" ") + 1
            if len(self.distinct) < _MOST:
                self.distinct[text] = None

    def _kind(self, value: Json, where: str) -> str:
        if isinstance(value, bool):
            return "boolean"
        if isinstance(value, (int, float)):
            if not is_finite_number(value):
                raise DataError(f"{where}: field {self.name!r} is {value!r:.60}, not a finite number.")
            self.numbers.append(float(value))
            return "number"
        if isinstance(value, Cell) and (typed := _typed(value)) is not None:
            return self._kind(typed, where)
        if isinstance(value, str):
            return "date" if _is_date(value) else "text"
        return "other"

    @property
    def kind(self) -> str:
        """The inferred kind."""
        if not self.there or self.kinds["other"]:
            return "ignored"
        only = next(iter(self.kinds)) if len(self.kinds) == 1 else "text"
        if only != "text" and not self.lists:
            return "date" if only == "number" and self._are_years() else only
        if self.items >= _REPEATED * len(self.distinct) and self.words <= _FEW_WORDS * self.items:
            return "keyword"
        return "texts" if self.lists else "text"

    def _are_years(self) -> bool:
        """Return whether nearly all numbers could be years; 0 means that the year is unknown."""
        values = np.array(self.numbers)
        values = values[values != 0]
        near = (values >= _YEARS[0]) & (values <= _YEARS[1])
        return len(values) > 0 and bool((values == np.floor(values)).all()) and float(near.mean()) >= _MOST_YEARS

    @property
    def spec(self) -> FieldSpec:
        """The settings used for the field unless the user changes them."""
        kind = self.kind
        if kind == "date":
            years = list(self.numbers) or [year_of(each) for each in self.distinct]
            return FieldSpec(self.name, kind, reference=float(math.ceil(max(each for each in years if each))))
        return FieldSpec(self.name, kind, log=kind == "number" and _is_heavy(np.array(self.numbers)))

    def said(self, documents: int) -> str:
        """Return how many documents have the field, and examples."""
        many = f"{len(self.distinct):,}{' or more' if len(self.distinct) == _MOST else ''}"
        shown = ", ".join(_short(each) for each in list(self.distinct)[:_EXAMPLES])
        return f"{documents - self.there:,} of {documents:,} missing; distinct values: {many}, such as {shown}"


def _short(text: str) -> str:
    told = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return told if len(told) <= _SHORT else f"{told[:_SHORT].rstrip()}…"


def _typed(text: str) -> bool | float | None:
    """Return the boolean or number in a cell, or None; a code like 007 stays a text."""
    if text.lower() in TRUTH:
        return TRUTH[text.lower()]
    digits = text.lstrip("+-")
    return None if digits[:1] == "0" and digits[1:2].isdigit() else finite_number(text)


def _is_date(text: str) -> bool:
    try:
        return "-" in text and math.isfinite(year_of(text))
    except ValueError:
        return False


def _is_heavy(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    """Return whether non-negative numbers include a few very large ones."""
    largest = float(values.max())
    if values.min() < 0 or largest == 0:
        return False
    scaled = values / largest
    spread = float(scaled.std())
    return spread > 0 and float(np.mean((scaled - scaled.mean()) ** 3)) / spread**3 > _HEAVY


class FoundFields(NamedTuple):
    """All fields of a collection by name, and the number of documents."""

    fields: dict[str, FoundField]
    documents: int

    @property
    def suggested(self) -> Fields:
        """The settings used for the fields unless the user changes them."""
        specs = tuple(each.spec for each in self.fields.values())
        texts = [each.name for each in specs if each.kind == "text"]
        title = next((name for name in _TITLES if name in texts), texts[0] if texts else None)
        return Fields(specs, title)

    @property
    def notes(self) -> dict[str, str]:
        """A one-line description of each field."""
        return {name: each.said(self.documents) for name, each in self.fields.items()}


def find_fields(records: Iterable[tuple[str, Mapping[str, Json]]]) -> FoundFields:
    """Summarize the fields of all records, each given with its location for messages."""
    found: dict[str, FoundField] = {}
    documents = 0
    for where, record in records:
        documents += 1
        for name, value in record.items():
            if name not in OWN:
                found.setdefault(name, FoundField(name)).add(value, where)
    return FoundFields(found, documents)


def has_fields(record: Mapping[str, Json]) -> bool:
    """Return whether a record has more than title, text and columns; objects, such as `metadata`, do not count."""
    return any(name not in PLAIN and not isinstance(value, (dict, type(None))) for name, value in record.items())
