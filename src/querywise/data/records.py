"""Records of documents with fields: from `corpus.jsonl`, CSV, TSV and Parquet files, data frames and dictionaries."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from querywise.data.fields import FILE, Cell, Fields, find_fields, has_fields, read_fields
from querywise.data.frames import Table, is_table, rows_of_table
from querywise.data.query_table import read_record
from querywise.errors import DataError
from querywise.runtime.values import Json, JsonObject

CORPUS = ("corpus.jsonl", "corpus.parquet", "corpus.csv", "corpus.tsv")
Rows: TypeAlias = "Table | Iterable[Mapping[str, Json]]"  # a data frame, or dictionaries
Records = Iterator[tuple[str, JsonObject]]  # each with its location for messages
EXAMPLE = '{"_id": "D7", "title": "jaguar", "text": "a large cat"}'
_IDS = ("_id", "id", "docid", "document_id")  # id columns of tables; the first one present counts
_SNIFFED = 1_000  # records that are checked for fields
_LONGEST = 2**27  # of a cell, in characters


def corpus_in(root: Path) -> Path | None:
    """Return the file with the documents of a folder, or the file itself."""
    if root.is_dir():
        return next((root / name for name in CORPUS if (root / name).is_file()), None)
    return root if root.is_file() else None


def records_of(corpus: Path) -> Records:
    """Yield the records of a file, one at a time."""
    if corpus.suffix == ".parquet":
        yield from _numbered(_parquet(corpus), corpus)
    elif corpus.suffix in (".csv", ".tsv"):
        yield from _numbered(_cells(corpus), corpus)
    else:
        for where, line in text_lines(corpus):
            yield where, read_record(line, where, example=EXAMPLE)


def text_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the non-blank lines of a text file, each with its location for messages."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if raw.strip():
                    where = f"{path}:{number}"
                    try:
                        yield where, raw.decode("utf-8-sig")
                    except UnicodeDecodeError as error:
                        said = f"{where}: byte {error.start} of the line is not UTF-8 text. Convert the file."
                        raise DataError(said) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def given_records(documents: Rows) -> list[tuple[str, JsonObject]]:
    """Return records from dictionaries or from a data frame, each with its row for messages."""
    known: Any = documents  # a data frame or not
    rows = rows_of_table(known) if is_table(known) else known
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise DataError(f"expected dictionaries or a data frame with a row each; found {type(documents).__name__}.")
    return list(_numbered(((f"row {place}", row) for place, row in enumerate(rows, start=1)), None))


def fields_of(corpus: Path) -> Fields | None:
    """Return the fields of a file's documents; None if they have only title, text and columns.

    They come from `fields.toml` beside the file, or else are inferred from all documents.
    """
    beside = corpus.with_name(FILE)
    if beside.is_file():
        return read_fields(beside)
    try:
        found = any(has_fields(record) for _, record in islice(records_of(corpus), _SNIFFED))
    except DataError:  # reported when documents are read
        return None
    if not found:
        return None
    return find_fields(records_of(corpus)).suggested


def fields_of_records(records: Iterable[tuple[str, JsonObject]]) -> Fields | None:
    """Return the fields of records in memory, or None."""
    known = list(records)
    return find_fields(known).suggested if any(has_fields(record) for _, record in known) else None


def _numbered(rows: Iterable[tuple[str, Any]], corpus: Path | None) -> Records:
    """Yield rows as records with an `_id`."""
    for place, row in rows:
        where = place if corpus is None else f"{corpus}: {place}"
        if not isinstance(row, Mapping):
            raise DataError(f"{where}: expected a dictionary; found {row!r:.60}.")
        record = {str(name): _plain(value) for name, value in row.items()}
        name = next((each for each in _IDS if each in record), None)
        value = None if name is None else record.pop(name)
        if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
            raise DataError(
                f"{where}: expected an id in a column {', '.join(_IDS[:-1])} or {_IDS[-1]}; found {value!r}."
            )
        if not str(value).isprintable():
            raise DataError(f"{where}: the id {value!r:.60} has unprintable characters.")
        yield where, {"_id": str(value), **record}


def _plain(value: Any) -> Json:
    """Return a table's value as JSON; NaN, which tables use for missing values, becomes null."""
    if isinstance(value, (str, bool, int, type(None))):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        return _plain(value.tolist())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]
    if hasattr(value, "isoformat"):  # dates; NaT has no text
        return str(value.isoformat()) if value == value else None
    try:
        return _plain(float(value))
    except (TypeError, ValueError, OverflowError):
        return {"unknown": type(value).__name__}


def _cells(corpus: Path) -> Iterator[tuple[str, JsonObject]]:
    """Yield the rows of a CSV or TSV file with a heading; an empty cell is missing."""
    csv.field_size_limit(_LONGEST)
    try:
        with corpus.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter="\t" if corpus.suffix == ".tsv" else ",", strict=True)
            heading = next(rows, [])
            if len(set(heading)) < len(heading):
                raise DataError(f"{corpus}: two columns of the heading have the same name: {', '.join(heading)}.")
            for row in rows:
                if len(row) != len(heading):
                    if not row:
                        continue
                    raise DataError(
                        f"{corpus}:{rows.line_num}: found {len(row)} cells; the heading has {len(heading)} columns."
                    )
                cells = (Cell(each) if each else None for each in row)
                yield f"line {rows.line_num}", dict(zip(heading, cells, strict=True))
    except UnicodeDecodeError as error:
        raise DataError(f"{corpus}: byte {error.start} is not UTF-8 text. Convert the file to UTF-8.") from None
    except csv.Error as error:
        raise DataError(f"{corpus}: this is not a table ({error}).") from None
    except OSError as error:
        raise DataError(f"{corpus}: cannot be read ({error.strerror}).") from None


def _parquet(corpus: Path) -> Iterator[tuple[str, JsonObject]]:
    from querywise.data.parquet.arrow import about, checked, open_parquet

    file, row = open_parquet(corpus), 0
    batches = iter(file.iter_batches(batch_size=4_096))

    def following() -> list[JsonObject] | None:
        batch = next(batches, None)
        return None if batch is None else list(checked(batch).to_pylist())

    while (rows := about(corpus, following)) is not None:
        for each in rows:
            row += 1
            yield f"row {row}", each
