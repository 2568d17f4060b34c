"""Fields of documents: their kinds, found or read from the file `fields.toml`, and reading of their values."""

from __future__ import annotations

import calendar
import math
import re
import tomllib
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from querywise.errors import DataError
from querywise.runtime.files import atomic_text, read_text
from querywise.runtime.values import Json, JsonObject, finite_number, is_finite_number

FILE = "fields.toml"
TEXTS = ("text", "texts", "keyword")  # kinds with words
KINDS = {
    "text": "words to search",
    "texts": "a list of texts, each with an end of its own",
    "keyword": "names that a query may say, one or a list",
    "number": "a number",
    "date": "a date, or a year",
    "boolean": "true or false",
    "ignored": "not used",
}
TRUTH = {"true": True, "false": False}  # as texts
OWN = ("_id", "columns")  # entries of a record that are not fields
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2})(?:[T ].*)?)?)?")
_QUOTED = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'""")
_DEEPEST, _LONGEST = 10, 10_000_000  # dots and brackets in a line; characters in the file
_MOST = 1_000  # most fields used: each has its own numbers for every document
_HEAVIEST, _LAST_YEAR = 1e9, 9999
Value = tuple[str, ...] | float  # texts item by item; a number, or NaN if it is missing
Values = Mapping[str, Value]


@dataclass(frozen=True)
class FieldSpec:
    """The kind and the settings of one field.

    Attributes:
        weight: the weight of a text field in BM25F and in sums over fields, non-negative.
        log: whether to add the logarithm of a number as well.
        reference: the year from which the age of a date is counted.
    """

    name: str
    kind: str
    weight: float = 1.0
    log: bool = False
    reference: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DataError(f"field {self.name!r} has the kind {self.kind!r}; expected one of {', '.join(KINDS)}.")
        if not is_finite_number(self.weight) or not 0 <= self.weight <= _HEAVIEST:
            raise DataError(
                f"field {self.name!r} has the weight {self.weight!r:.60}; expected a number from 0 to {_HEAVIEST:g}."
            )
        if type(self.log) is not bool:
            raise DataError(f"field {self.name!r} has log = {self.log!r}; expected true or false.")
        if self.reference is not None and not (
            is_finite_number(self.reference) and -_LAST_YEAR <= self.reference <= _LAST_YEAR
        ):
            raise DataError(
                f"field {self.name!r} has the reference {self.reference!r:.60}; expected a year, like 2024.5."
            )

    @property
    def has_words(self) -> bool:
        """Whether its values are texts."""
        return self.kind in TEXTS

    def read(self, value: Json, where: str) -> Value:
        """Return a document's value; a missing one is an empty tuple or NaN. `where` is its location for messages."""
        if is_missing_value(value):
            return () if self.has_words else math.nan
        try:
            return self._texts(value) if self.has_words else self._number(value)
        except (ValueError, OverflowError):
            raise DataError(
                f"{where}: field {self.name!r} is {value!r:.60}, but its kind is {self.kind}. Correct the value, "
                f"or change the kind in {FILE}."
            ) from None

    def _texts(self, value: Json) -> tuple[str, ...]:
        items = value if isinstance(value, list) else [value]
        texts = tuple(_word_of(each) for each in items if not is_missing_value(each))
        return (" ".join(texts),) if self.kind == "text" and texts else texts

    def _number(self, value: Json) -> float:
        if self.kind == "boolean" and isinstance(value, str):
            value = TRUTH.get(value.lower())
        elif isinstance(value, str) and (found := finite_number(value)) is not None:
            value = found
        if self.kind == "date":
            return year_of(value)
        if self.kind == "boolean" and value in (True, False):  # including 0 and 1
            return float(value)
        if self.kind == "number" and is_finite_number(value):
            return float(value)
        raise ValueError


def _word_of(value: Json) -> str:
    if isinstance(value, str):
        return value
    if not is_finite_number(value):
        raise ValueError
    return f"{value:g}" if isinstance(value, float) else str(value)


def is_missing_value(value: Json) -> bool:
    """Return whether a field's value is missing: null, an empty or blank text, or an empty list."""
    return value is None or (isinstance(value, str) and not value.strip()) or (isinstance(value, list) and not value)


def year_of(value: Json) -> float:
    """Return a date in years, given a year, or a text like 2024, 2024-07 or 2024-07-01T12:00; else raise ValueError.

    Year 0 does not exist; it means unknown and becomes NaN.

    >>> year_of(2024), year_of("2024-07-01")
    (2024.0, 2024.4972677595629)
    """
    if isinstance(value, bool):
        raise ValueError
    if isinstance(value, (int, float)):
        if not is_finite_number(value) or not -_LAST_YEAR <= value <= _LAST_YEAR:
            raise ValueError
        return float(value) if value else math.nan
    found = _DATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError
    year, month, day = (int(part) if part else None for part in found.groups())
    if not year:
        raise ValueError
    if month is None:
        return float(year)
    made = datetime(year, month, day or 1, tzinfo=UTC)
    return year + (made.timetuple().tm_yday - 1) / (366 if calendar.isleap(year) else 365)


def written_values(values: Values) -> JsonObject:
    """Return values as a record holds them; years and booleans become numbers."""
    texts = {name: list(each) for name, each in values.items() if isinstance(each, tuple) and each}
    return texts | {name: each for name, each in values.items() if isinstance(each, float) and math.isfinite(each)}


@dataclass(frozen=True)
class Fields:
    """The kinds of all fields of a collection's documents, in order.

    Attributes:
        title: the field that is the title, or None.
        vectors: the fields whose text is embedded; if empty, all fields with words.
    """

    specs: tuple[FieldSpec, ...]
    title: str | None = None
    vectors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = {each.name: each for each in self.specs}
        used = len(self.words) + len(self.numbers)
        if len(named) < len(self.specs) or used > _MOST:
            raise DataError(
                f"found {used} fields, of {len(named)} names; expected {_MOST:,} at most, each with a unique name. "
                f"Say in {FILE} which of them are ignored."
            )
        for name in filter(None, (self.title, *self.vectors)):
            if name not in named or not named[name].has_words:
                raise DataError(
                    f"{name!r} is not a field with words; the fields with words are: {', '.join(self.words) or 'none'}."
                )

    @property
    def words(self) -> tuple[str, ...]:
        """The names of the fields with words, in order."""
        return tuple(each.name for each in self.specs if each.has_words)

    @property
    def numbers(self) -> tuple[FieldSpec, ...]:
        """The fields with a number for each document, including dates and booleans."""
        return tuple(each for each in self.specs if each.kind in ("number", "date", "boolean"))

    def read(self, record: Mapping[str, Json], where: str) -> dict[str, Value]:
        """Return the values of a record by field; undeclared fields are skipped."""
        return {each.name: each.read(record.get(each.name), where) for each in self.specs if each.kind != "ignored"}

    def title_of(self, values: Values) -> str:
        """Return the title of a document."""
        return "" if self.title is None else self._joined([self.title], values)

    def body_of(self, values: Values) -> str:
        """Return all words except those of the title, field by field."""
        return self._joined([name for name in self.words if name != self.title], values)

    def embedded(self, values: Values) -> tuple[str, str]:
        """Return the title and the text of a document for embedding."""
        if not self.vectors:
            return self.title_of(values), self.body_of(values)
        title = self.title_of(values) if self.title in self.vectors else ""
        return title, self._joined([name for name in self.vectors if name != self.title], values)

    @staticmethod
    def _joined(names: Sequence[str], values: Values) -> str:
        parts = (values[name] for name in names)
        return "\n".join("\n".join(part) for part in parts if isinstance(part, tuple) and part)

    def told(self) -> str:
        """Describe the kinds of all fields in a sentence."""
        kinds = {kind: [each.name for each in self.specs if each.kind == kind] for kind in KINDS}
        said = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
        return f"Fields of the documents: {said} (title: {self.title or 'none'})."

    def as_json(self) -> JsonObject:
        """Return the fields as an index and a model store them."""
        specs = [{name: getattr(each, name) for name in _SPEC} for each in self.specs]
        return {"title": self.title, "vectors": list(self.vectors), "fields": specs}

    @staticmethod
    def from_json(value: Json, where: str) -> Fields:
        """Return the fields that `as_json` wrote."""
        known = value if isinstance(value, dict) else {}
        try:
            specs = tuple(FieldSpec(**each) for each in known["fields"])
            names = [each.name for each in specs] + [each for each in (known["title"], *known["vectors"]) if each]
            if not all(isinstance(each, str) for each in names):
                raise TypeError
            return Fields(specs, known["title"], tuple(known["vectors"]))
        except (DataError, TypeError, KeyError):
            raise DataError(f"{where}: its description of the fields is invalid. Create it again.") from None


_SPEC = tuple(each.name for each in fields(FieldSpec))


def read_fields(path: Path) -> Fields:
    """Read a `fields.toml`."""
    text = read_text(path)
    deep = next((line for line in text.split("\n") if _is_deep(line)), None) if len(text) <= _LONGEST else text
    if deep is not None:
        raise DataError(f"{path}: found {deep:.60}; expected title, vectors and tables like [field.brand].")
    try:
        said = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers with thousands of digits, and deeply nested lists
        raise DataError(f"{path}: this is not TOML ({error}).") from None
    title, vectors = said.pop("title", None), said.pop("vectors", [])
    named = said.pop("field", {})
    if said:
        raise DataError(f"{path}: found {next(iter(said))!r}; expected title, vectors and tables like [field.brand].")
    if not (title is None or isinstance(title, str)) or not isinstance(vectors, list) or not isinstance(named, dict):
        raise DataError(f'{path}: expected title = "NAME", vectors = ["NAME", …] and tables like [field.brand].')
    try:
        return Fields(tuple(_spec(name, each) for name, each in named.items()), title or None, tuple(vectors))
    except (DataError, TypeError) as error:
        raise DataError(f"{path}: {error}") from None


def _is_deep(line: str) -> bool:
    """Return whether a line nests tables, which takes quadratic memory to parse."""
    plain = _QUOTED.sub("", line).partition("#")[0]
    return plain.count(".") + plain.count("[") + plain.count("{") > _DEEPEST


def _spec(name: str, said: Any) -> FieldSpec:
    known = said if isinstance(said, dict) else {}
    stray = next((each for each in known if each not in _SPEC or each == "name"), None)
    if stray is not None or "kind" not in known:
        what = f"has {stray!r}" if stray is not None else "has no kind"
        raise DataError(f"field {name!r} {what}; expected kind, and optionally weight, log and reference.")
    return FieldSpec(name, **known)


def write_fields(path: Path, found: Fields, notes: Mapping[str, str]) -> None:
    """Write a `fields.toml`; `notes` go into a comment above each field."""
    with atomic_text(path) as out:
        out.write(fields_text(found, notes))


def fields_text(found: Fields, notes: Mapping[str, str]) -> str:
    """Return the text of a `fields.toml`."""
    lines = [
        "# The kind of each field of the documents. Edit this file: every command reads it.",
        *(f"# {kind}: {said}" for kind, said in KINDS.items()),
        "",
        f"title = {_quoted(found.title or '')}",
        f"vectors = [{', '.join(map(_quoted, found.vectors))}]  # whose text is embedded; [] is all words",
    ]
    for each in found.specs:
        lines += ["", f"[field.{_quoted(each.name)}]", *(f"# {line}" for line in [notes.get(each.name, "")] if line)]
        lines.append(f'kind = "{each.kind}"')
        lines += [f"weight = {float(each.weight)!r}"] if each.has_words else []
        lines += [f"log = {str(each.log).lower()}"] if each.kind == "number" else []
        lines += [f"reference = {each.reference!r}"] if each.reference is not None else []
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a text as a basic string of TOML."""
    escaped = "".join(
        f"\\{each}" if each in '"\\' else each if each.isprintable() else f"\\U{ord(each):08x}" for each in text
    )
    return f'"{escaped}"'


PLAIN = {*OWN, "title", "text"}  # what a collection without fields has
_DISTINCT = 100_000  # distinct values that are counted
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
            if len(self.distinct) < _DISTINCT:
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
        many = f"{len(self.distinct):,}{' or more' if len(self.distinct) == _DISTINCT else ''}"
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
