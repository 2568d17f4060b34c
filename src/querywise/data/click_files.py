"""The format of click logs: the names of their columns, and how to recognize one."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import lzma
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TextIO, cast

from querywise.errors import DataError
from querywise.runtime.values import Json

Kind = Literal["rows", "lines", "events", "parquet"]

# Column → its names in logs, in lower case without spaces, dots, dashes and underscores.
COLUMNS: dict[str, tuple[str, ...]] = {
    "query": ("query", "userquery", "querytext", "searchterm", "searchterms", "keywords", "q", "queryid", "qid"),
    "document": ("document", "documentid", "doc", "docid", "item", "itemid", "objectid", "product", "productid", "url"),
    "position": ("position", "rank", "pos", "ordinal"),
    "clicked": ("clicked", "click", "clicks", "isclick", "isclicked"),
    "session": ("session", "sessionid", "searchid", "impressionid", "requestid", "visitid"),
    "time": ("time", "timestamp", "datetime", "date", "ts"),
    "propensity": ("propensity", "propensityscore", "examination"),
    "device": ("device", "devicetype", "devicecategory"),
}
SHOWN = ("shown", "documents", "results", "impressions")  # in a log with one result page per line
_NEEDED = ("query", "document", "clicked")
GROWING = "log-"  # prefix of the files to which a service appends events
PACKED = ".parquet"  # suffix of packed files; without Arrow it is .ndjson.gz
_EVENTS = ('"action_name"', '"user_query"', '"ubi_queries"', '"ubi_events"')
_LOOKED = 65_536  # characters read of a first line
_LONGEST, _MOST_EMPTY = 10_000_000, 1_000_000  # limits for other lines, and for the number of empty lines


def plain(name: str) -> str:
    """Return a column name in lower case, without spaces, dots, dashes and underscores."""
    return "".join(letter for letter in name.casefold() if letter not in " ._-")


def columns_in(names: Sequence[str]) -> dict[str, str]:
    """Return the columns of a file by meaning: our name → the file's."""
    by_plain = {plain(each): each for each in reversed(names)}
    found: dict[str, str] = {}
    for name, known in COLUMNS.items():
        first = next((each for each in known if each in by_plain), None)
        if first is not None:
            found[name] = by_plain[first]
    return found


def kind_of(path: Path) -> Kind | None:
    """Return the kind of click log that a file is; None if it is not one."""
    if path.suffix == ".parquet":
        return "parquet" if path.is_file() and _is_table(_parquet_names(path)) else None
    try:
        with opened(path) as file:
            line = next((each for each in _lines(file) if each.strip()), "")
    except (OSError, UnicodeDecodeError, EOFError, lzma.LZMAError, DataError):
        return None
    if line.lstrip().startswith("{"):
        return "events" if any(each in line for each in _EVENTS) else None
    names = header_of(line)
    if names is not None and {"query", "clicked"} <= columns_in(names).keys() and shown_in(names) is not None:
        return "lines"
    return "rows" if names is not None and _is_table(names) else None


def is_click_log(path: Path) -> bool:
    """Return whether a path is a click log; folders are not."""
    return path.is_file() and kind_of(path) is not None


def header_of(line: str) -> list[str] | None:
    """Return the columns named by the first line of a CSV or TSV file; None if there are fewer than two."""
    line = line.removeprefix("\ufeff").rstrip("\r\n")
    try:
        found = next(csv.reader([line], delimiter=delimiter_of(line)), [])
    except csv.Error:
        return None
    return found if len(found) > 1 else None


def delimiter_of(line: str) -> str:
    """Return the delimiter of a file, given its first line."""
    return "\t" if "\t" in line else ";" if line.count(";") > line.count(",") else ","


def shown_in(names: Sequence[str]) -> str | None:
    """Return the column with the documents of a page, if each line is a page."""
    return next((each for each in names if plain(each) in SHOWN), None)


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open a text file, plain or compressed by gzip or xz, to be read in pieces."""
    try:
        with open(path, "rb") as raw:
            begin = raw.read(6)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file (looked in {path.absolute().parent}).") from None
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder; a click log is a file.") from None
    packed = gzip.open if begin.startswith(b"\x1f\x8b") else lzma.open if begin.startswith(b"\xfd7zXZ") else open
    try:
        with packed(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield cast("TextIO", file)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8 text. Convert the file to UTF-8.") from None
    except (EOFError, OSError, lzma.LZMAError, zlib.error, csv.Error) as error:
        raise DataError(f"{path}: cannot be read ({error}).") from None


def lines_of(path: Path, file: TextIO) -> Iterator[str]:
    """Yield the lines of a file, limiting their length and the number of empty ones: 0.5 MB may unpack to 1 GB."""
    number = empty = 0
    while line := file.readline(_LONGEST):
        number, empty = number + 1, empty + (len(line) < len("\r\n\n"))
        if len(line) == _LONGEST or empty > _MOST_EMPTY:
            what = f"a line of more than {_LONGEST:,} characters" if empty <= _MOST_EMPTY else "lines without anything"
            raise DataError(f"{path}:{number}: {what}; this is no click log.")
        yield line


def _lines(file: TextIO) -> Iterator[str]:
    for _ in range(100):
        line = file.readline(_LOOKED)
        if not line:
            return
        yield line


def _is_table(names: Sequence[str]) -> bool:
    """Return whether these are columns of a click log: a table with labels is a feature log, even with clicks."""
    return all(each in columns_in(names) for each in _NEEDED) and not {"label", "grade"} & {
        plain(each) for each in names
    }


def _parquet_names(path: Path) -> list[str]:
    """Return the columns of a Parquet file; empty if Arrow is not installed or the file is damaged."""
    try:
        from querywise.data.parquet.arrow import open_parquet

        return list(open_parquet(path).schema_arrow.names)
    except DataError:
        return []


def is_event_log(path: Path) -> bool:
    """Return whether a path is a folder to which a service appends events."""
    if not path.is_dir():
        return False
    tables = path.glob(f"{GROWING}*{PACKED}")
    return any(path.glob(f"{GROWING}*.ndjson*")) or any(map(_is_event_table, tables))


def _is_event_table(path: Path) -> bool:
    from querywise.data.parquet.events import is_event_table

    return is_event_table(path)


def logged_events(folder: Path) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Yield every record in a folder of events with its location, in the order in which files were started.

    A service packs files meanwhile: each is read once, plain as long as it is there, else packed.
    """
    found = [*folder.glob(f"{GROWING}*.ndjson*"), *folder.glob(f"{GROWING}*{PACKED}")]
    for name in sorted({each.name.partition(".ndjson")[0].removesuffix(PACKED) for each in found}):
        for path in (folder / f"{name}{suffix}" for suffix in (".ndjson", ".ndjson.gz", PACKED)):
            if not path.is_file():
                continue
            records = _packed_events(path) if path.suffix == PACKED else events_of(path, growing=True)
            try:
                first = next(records, None)
            except DataError:
                if path.is_file():
                    raise
                continue  # packed and removed in this moment
            if first is not None:
                for number, record in itertools.chain([first], records):
                    yield f"{path}:{number}", record
            break  # one that was packed and not removed, by a process that was killed, counts once


def _packed_events(path: Path) -> Iterator[tuple[int, Mapping[str, Json]]]:
    from querywise.data.parquet.events import read_events

    return read_events(path)


def events_of(path: Path, *, growing: bool = False) -> Iterator[tuple[int, Mapping[str, Json]]]:
    """Yield the records of an NDJSON file with their line numbers, skipping index lines of bulk requests.

    `growing` skips an unterminated last line, which is still being written or was left by a killed process.
    """
    with opened(path) as file:
        for number, line in enumerate(lines_of(path, file), start=1):
            if not line.strip() or (growing and not line.endswith("\n")):
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                raise DataError(f"{path}:{number}: invalid JSON; expected one record per line.") from None
            if not isinstance(record, dict):
                raise DataError(f"{path}:{number}: expected a record, found {line.strip()[:60]!r}.")
            if len(record) == 1 and next(iter(record)) in ("index", "create"):
                continue
            source = record.get("_source", record)
            if not isinstance(source, dict):
                raise DataError(f"{path}:{number}: expected a record in _source, found {source!r:.60}.")
            yield number, source
