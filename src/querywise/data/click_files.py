"""What click logs look like: the names of their columns, and how a path is recognized as one."""

from __future__ import annotations

import csv
import gzip
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

# Column → the names it has in logs, in lower case without spaces, dots, dashes and underscores.
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
SHOWN = ("shown", "documents", "results", "impressions")  # of a log with a page a line
_NEEDED = ("query", "document", "clicked")
GROWING = "log-"  # how the names of files begin that a service adds events to
PACKED = ".parquet"  # how those end that it has packed; without Arrow it is .ndjson.gz
_EVENTS = ('"action_name"', '"user_query"', '"ubi_queries"', '"ubi_events"')
_LOOKED = 65_536  # characters of a first line
_LONGEST, _MOST_EMPTY = 10_000_000, 1_000_000  # characters of any other, and lines without any


def plain(name: str) -> str:
    """A column name without case, spaces, dots, dashes and underscores."""
    return "".join(letter for letter in name.casefold() if letter not in " ._-")


def columns_in(names: Sequence[str]) -> dict[str, str]:
    """Which column of a file has what: our name of it → the file's."""
    by_plain = {plain(each): each for each in reversed(names)}
    found: dict[str, str] = {}
    for name, known in COLUMNS.items():
        first = next((each for each in known if each in by_plain), None)
        if first is not None:
            found[name] = by_plain[first]
    return found


def kind_of(path: Path) -> Kind | None:
    """What kind of click log a file is; None where it is none."""
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
    """Whether a path is a click log; any file may be asked, and folders are none."""
    return path.is_file() and kind_of(path) is not None


def header_of(line: str) -> list[str] | None:
    """The columns named by the first line of a CSV or TSV file; None where it has fewer than two."""
    line = line.removeprefix("\ufeff").rstrip("\r\n")
    try:
        found = next(csv.reader([line], delimiter=delimiter_of(line)), [])
    except csv.Error:
        return None
    return found if len(found) > 1 else None


def delimiter_of(line: str) -> str:
    """What separates the columns of a file with this first line."""
    return "\t" if "\t" in line else ";" if line.count(";") > line.count(",") else ","


def shown_in(names: Sequence[str]) -> str | None:
    """The column with the documents of a page, where a line is a page."""
    return next((each for each in names if plain(each) in SHOWN), None)


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """A text file, plain or packed by gzip or xz, to read piece by piece."""
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
    """The lines of a file, none too long, and not too many of them empty: half a megabyte unpacks to a gigabyte."""
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
    """Whether these are columns of a click log: a table with labels is a feature log that counts clicks too."""
    return all(each in columns_in(names) for each in _NEEDED) and not {"label", "grade"} & {
        plain(each) for each in names
    }


def _parquet_names(path: Path) -> list[str]:
    """The columns of a Parquet file; none where Arrow is not installed or the file is damaged."""
    try:
        from querywise.data.parquet.arrow import open_parquet

        return list(open_parquet(path).schema_arrow.names)
    except DataError:
        return []


def is_event_log(path: Path) -> bool:
    """Whether a path is a folder of events that a service adds to."""
    if not path.is_dir():
        return False
    tables = path.glob(f"{GROWING}*{PACKED}")
    return any(path.glob(f"{GROWING}*.ndjson*")) or any(map(_is_event_table, tables))


def _is_event_table(path: Path) -> bool:
    from querywise.data.parquet.events import is_event_table

    return is_event_table(path)


def logged_events(folder: Path) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Every record in a folder of events with where it stands, in the order in which files were begun."""
    tables = folder.glob(f"{GROWING}*{PACKED}")
    for file in sorted([*folder.glob(f"{GROWING}*.ndjson*"), *tables]):
        plain = file.with_suffix(".ndjson") if file.suffix == PACKED else file.with_suffix("")
        if not file.is_file() or (file.suffix in (".gz", PACKED) and plain.exists()):
            continue  # a process was killed before it removed the one that it had packed
        for number, record in _packed_events(file) if file.suffix == PACKED else events_of(file, growing=True):
            yield f"{file}:{number}", record


def _packed_events(path: Path) -> Iterator[tuple[int, Mapping[str, Json]]]:
    from querywise.data.parquet.events import read_events

    return read_events(path)


def events_of(path: Path, *, growing: bool = False) -> Iterator[tuple[int, Mapping[str, Json]]]:
    """The records of an NDJSON file with their line numbers, without the lines of a bulk request that name an index.

    growing: a last line without its end is being written, or was when a process was killed, and is left out.
    """
    with opened(path) as file:
        for number, line in enumerate(lines_of(path, file), start=1):
            if not line.strip() or (growing and not line.endswith("\n")):
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                raise DataError(f"{path}:{number}: invalid JSON; expected one record a line.") from None
            if not isinstance(record, dict):
                raise DataError(f"{path}:{number}: expected a record, found {line.strip()[:60]!r}.")
            if len(record) == 1 and next(iter(record)) in ("index", "create"):
                continue
            source = record.get("_source", record)
            if not isinstance(source, dict):
                raise DataError(f"{path}:{number}: expected a record in _source, found {source!r:.60}.")
            yield number, source
