"""Read click logs of every kind as impressions, in blocks: tables, a page per line, and User Behavior Insights.

The queries and events of User Behavior Insights come from a file, or from the engine that keeps them, page by page.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from querywise.clicks.impressions import Coder, Codes, ImpressionRows, Impressions, Notes, assembled
from querywise.data.click_files import (
    columns_in,
    delimiter_of,
    events_of,
    header_of,
    is_event_log,
    kind_of,
    lines_of,
    logged_events,
    opened,
    shown_in,
)
from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.files import PathLike
from querywise.runtime.progress import doing
from querywise.runtime.values import Json
from querywise.runtime.workers import ITSELF, require_memory

if TYPE_CHECKING:
    from querywise.data.parquet.arrow import Arrow


_BLOCK = 100_000  # rows
_TRUE = {"1", "1.0", "true", "t", "yes", "y"}
_FALSE = {"0", "0.0", "false", "f", "no", "n", ""}
_MILLISECONDS = 1e11  # larger times are in milliseconds since 1970, not in seconds
_FIRST, _LAST = -62_135_596_800.0, 253_402_300_799.0  # the years 1 and 9999
_MOST_ORDINAL = 2**31 - 2
_ROW_BYTES = 130  # memory per row, including temporary copies
_TEXT_BYTES = 150  # memory per distinct string beside its letters: its table entry
_EVENT_BYTES = 250  # memory per event
_INSTEAD = "Give a part of the log."
_RECORDS = 100_000  # events between checks of the memory that they take
CLICKS = ("click", "item_click")
_IDS = ("query", "document", "session")
Records = Iterator[tuple[str, Mapping[str, Json]]]  # the source of each, and its JSON


def read_clicks(path: PathLike, *, actions: Sequence[str] = CLICKS, device: str | None = None) -> Impressions:
    """Read a click log: a file, or the address of an engine with User Behavior Insights.

    Args:
        path: CSV, TSV or Parquet with a row for every document shown; a file with a page per line; UBI as NDJSON; or
            the folder that a service logs to.
        actions: The UBI events that count as clicks.
        device: Reads only the rows of this device, from a table with a device column; None reads all.

    Returns:
        Impressions, pages in the order of time.

    Raises:
        DataError: If the file is not a click log, or a row is invalid.

    """
    if device is not None and (
        str(path).startswith(("http://", "https://")) or kind_of(Path(path)) in ("lines", "events")
    ):
        raise _no_device(path, device)
    if str(path).startswith(("http://", "https://")):
        return from_events(records_of(str(path)), actions)
    file = Path(path)
    if is_event_log(file):
        return from_events(logged_events(file), actions)
    if not file.is_file():
        with opened(file):  # raises the error with the reason
            pass
    kind = kind_of(file)
    if kind is None:
        raise DataError(
            f"{file}: this is not a click log. Expected columns query, document and clicked, with position, session "
            "and time where they are known; or query, shown and clicked with one page per line; or UBI's queries and "
            "events as NDJSON."
        )
    with doing("Reading"):
        if kind == "events":
            return from_events(((f"{file}:{line}", record) for line, record in events_of(file)), actions)
        if kind == "lines":
            return _from_lines(file)
        parts, notes = _from_table(_parquet_blocks(file) if kind == "parquet" else _text_blocks(file), device)
        if device is not None and device not in notes.devices:
            raise _no_device(path, device, notes.devices)
        return parts.whole(notes)


def _no_device(path: PathLike, device: str, known: Collection[str] = ()) -> DataError:
    has = f"its devices are {', '.join(sorted(known)[:10])}" if known else "it has no column of devices"
    return DataError(f"{path}: there is no row of device={device!r}; {has}.", arguments=("device",))


class _Parts:
    """Blocks of rows, joined at the end."""

    def __init__(self) -> None:
        self.queries, self.documents, self.sessions = Coder(), Coder(), Coder()
        self.blocks: list[ImpressionRows] = []
        self._counted, self._bytes = [0, 0, 0], 0

    def text_bytes(self) -> int:
        """Return the memory of the distinct strings so far, measuring those new since the last call."""
        for place, each in enumerate((self.queries, self.documents, self.sessions)):
            new = islice(reversed(each.known), len(each.known) - self._counted[place])
            self._bytes += sum(sys.getsizeof(text) + _TEXT_BYTES for text in new)
            self._counted[place] = len(each.known)
        return self._bytes

    def whole(self, notes: Notes) -> Impressions:
        if not self.blocks:
            raise DataError("There is no impression in the log: no document was shown for any query.")
        propensity = None
        if all(each.propensity is not None for each in self.blocks):
            propensity = np.concatenate([each.propensity for each in self.blocks])
        rows = _joined(self.blocks, propensity)
        rows = rows._replace(query=self.queries.keep(rows.query), document=self.documents.keep(rows.document))
        self.blocks = []
        return assembled(rows, self.queries, self.documents, notes)


_Block = tuple[int, Mapping[str, Sequence[str] | Codes | Floats]]  # its first row, and its columns by our names


def _from_table(blocks: Iterator[_Block], device: str | None) -> tuple[_Parts, Notes]:
    parts, notes, none, devices = _Parts(), Notes(), -1, Coder()
    for first, block in blocks:
        mine: Bools | None = None
        if "device" in block:
            kinds = _codes(devices, block["device"])
            for each, rows in zip(*np.unique(kinds, return_counts=True), strict=True):
                name = devices.names[each]
                notes.devices[name] = notes.devices.get(name, 0) + int(rows)
            mine = None if device is None else kinds == devices.code(device)
        count = len(block["query"])
        notes.rows += count
        query, document = _codes(parts.queries, block["query"]), _codes(parts.documents, block["document"])
        session = np.full(count, none, np.int32)
        if "session" in block:
            session = _codes(parts.sessions, block["session"])
        position = np.full(count, none, np.int32)
        if "position" in block:
            position = _whole(block["position"], first)
        time = _times(block["time"], first) if "time" in block else np.full(count, np.nan)
        propensity = _numbers(block["propensity"], first, "propensity") if "propensity" in block else None
        rows = ImpressionRows(query, document, position, _clicks(block, first), session, time, propensity)
        parts.blocks.append(rows if mine is None else rows.of(mine))
        _require_room(notes.rows, parts.text_bytes())
    return parts, notes


def _require_room(rows: int, text_bytes: int = 0, row_bytes: int = _ROW_BYTES) -> None:
    """Raise DataError if the rows and distinct strings counted so far exceed the memory."""
    require_memory(ITSELF + rows * row_bytes + text_bytes, f"{rows:,} rows of a click log take", _INSTEAD)


def _codes(coder: Coder, values: Sequence[str] | Codes | Floats) -> Codes:
    if isinstance(values, _Coded):
        found: Codes = coder.codes(values.names)[values.numbers]
        return found
    return coder.codes([str(each) for each in values])


class _Coded(Sequence[str]):
    """An Arrow column as indices into its distinct strings."""

    def __init__(self, numbers: Ints, names: Sequence[str]) -> None:
        self.numbers, self.names = numbers, names

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, row: int) -> str:  # type: ignore[override]  # no slices
        return self.names[int(self.numbers[row])]


def _text_blocks(path: Path) -> Iterator[_Block]:
    """Yield the rows of a CSV or TSV file."""
    with opened(path) as file:
        names, reader = _header(path, file)
        wanted = {name: names.index(own) for name, own in columns_in(names).items()}
        first = 2
        block: list[list[str]] = []
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                raise DataError(
                    f"{path}: row {first + len(block)} has {len(row)} columns; the first line names {len(names)}."
                )
            block.append(row)
            if len(block) == _BLOCK:
                yield first, _by_name(block, wanted)
                first, block = first + len(block), []
        if block:
            yield first, _by_name(block, wanted)


def _header(path: Path, file: TextIO) -> tuple[list[str], Iterator[list[str]]]:
    lines = lines_of(path, file)
    line = next((each for each in lines if each.strip()), "")
    names = header_of(line)
    if names is None:
        raise DataError(f"{path}: the first line names no columns; found {line[:60]!r}.")
    return names, csv.reader(lines, delimiter=delimiter_of(line))


def _by_name(rows: list[list[str]], wanted: Mapping[str, int]) -> dict[str, Sequence[str] | Codes | Floats]:
    columns = list(zip(*rows, strict=True))
    return {name: columns[place] for name, place in wanted.items()}


def _parquet_blocks(path: Path) -> Iterator[_Block]:
    """Yield the rows of a Parquet file."""
    from querywise.data.parquet.arrow import arrow, open_parquet, require_room_to_read, rows_of

    pa, _ = arrow()
    file, first = open_parquet(path, coded=True), 1
    wanted = columns_in(file.schema_arrow.names)
    _require_room(rows_of(file))
    ids = [own for name, own in wanted.items() if name in _IDS]
    require_room_to_read(path, file, wanted.values(), ids, _INSTEAD, by_group=True)
    try:
        for group in range(file.metadata.num_row_groups):  # a batch of several groups might not fit into memory
            chosen = {"row_groups": [group], "columns": list(wanted.values())}
            for batch in file.iter_batches(_BLOCK, **chosen, use_threads=False):
                yield first, {name: _arrow_column(batch.column(own), name, first) for name, own in wanted.items()}
                first += batch.num_rows
    except (pa.ArrowException, OSError, KeyError) as error:  # KeyError: a repeated column
        raise DataError(f"{path}: this Parquet file is damaged ({error}).") from None


def _arrow_column(column: Arrow, name: str, first: int) -> Sequence[str] | Codes | Floats:
    from querywise.data.parquet.arrow import arrow, document_id

    pa, _ = arrow()
    if column.null_count and name in ("query", "document", "clicked", "session"):
        row = first + int(column.is_null().to_numpy(zero_copy_only=False).argmax())
        raise DataError(f"Row {row} has nothing in the column of the {name}; every row needs one.")
    if name in _IDS:
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        every = np.asarray(coded.indices.cast("int64").to_numpy(zero_copy_only=False), np.int64)
        used, numbers = np.unique(every, return_inverse=True)  # a dictionary may be that of all blocks
        return _Coded(numbers, [document_id(each, first) for each in coded.dictionary.take(pa.array(used)).to_pylist()])
    if pa.types.is_timestamp(column.type):
        return np.asarray(column.cast(pa.timestamp("us", column.type.tz)).cast("int64").to_numpy(False)) / 1e6
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        found: Floats = np.asarray(column.cast("float64").to_numpy(zero_copy_only=False), np.float64)
        return found
    return ["" if each is None else str(each) for each in column.to_pylist()]


def _numbers(values: Sequence[str] | Codes | Floats, first: int, what: str) -> Floats:
    """Return the numbers of a column; raise DataError with the row if one is not a number."""
    if isinstance(values, np.ndarray):
        found = values.astype(np.float64)
    else:
        try:
            found = np.array([float(each) if each.strip() else math.nan for each in values])
        except ValueError:
            row = next(row for row, each in enumerate(values) if each.strip() and not _is_number(each))
            raise DataError(f"Row {first + row} has the {what} {values[row]!r:.40}; expected a number.") from None
    if what == "propensity" and not ((found > 0) & (found <= 1)).all():
        row = int(np.flatnonzero(~((found > 0) & (found <= 1)))[0])
        raise DataError(f"Row {first + row} has the propensity {found[row]:g}; expected a number above 0, at most 1.")
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _whole(values: Sequence[str] | Codes | Floats, first: int) -> Codes:
    found = _numbers(values, first, "position")
    wrong = np.flatnonzero(~(np.isnan(found) | ((found >= 0) & (found == np.floor(found)) & (found < 2**31 - 2))))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(f"Row {first + row} has the position {found[row]:g}; expected a whole number from 1 (or 0) up.")
    return np.where(np.isnan(found), -1, found).astype(np.int32)


def _clicks(block: Mapping[str, Sequence[str] | Codes | Floats], first: int) -> Bools:
    values = block["clicked"]
    if isinstance(values, np.ndarray):
        wrong = np.flatnonzero(~(values >= 0))
        if len(wrong):
            raise DataError(f"Row {first + int(wrong[0])} has {values[wrong[0]]:g} in the column of clicks.")
        found: Bools = values > 0
        return found
    found = np.zeros(len(values), np.bool_)
    for row, each in enumerate(values):
        text = each.strip().lower()
        if text in _TRUE or (text not in _FALSE and text.isdecimal()):
            found[row] = True
        elif text not in _FALSE:
            raise DataError(f"Row {first + row} has {each!r:.40} among the clicks; expected 0, 1, true or false.")
    return found


def _times(values: Sequence[str] | Codes | Floats, first: int) -> Floats:
    if isinstance(values, np.ndarray):
        found = values.astype(np.float64)
        found = np.where(found > _MILLISECONDS, found / 1e3, found)
        wrong = np.flatnonzero(~(np.isnan(found) | ((found >= _FIRST) & (found <= _LAST))))
        if len(wrong):
            _time(float(values[wrong[0]]), f"Row {first + int(wrong[0])}")
        return found
    return np.array([_time(each, f"Row {first + row}") for row, each in enumerate(values)])


def _time(value: Json, where: str) -> float:
    """Return seconds since 1970 from a number, or from a text like 2024-12-10T00:01:29Z; NaN if empty."""
    if value is None or value == "":
        return math.nan
    try:
        if isinstance(value, (int, float)) or (isinstance(value, str) and _is_number(value)):
            seconds = float(value)
            seconds = seconds / 1e3 if seconds > _MILLISECONDS else seconds
        else:
            found = datetime.fromisoformat(str(value).strip())
            seconds = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
        if math.isnan(seconds) or _FIRST <= seconds <= _LAST:
            return seconds
    except (ValueError, OverflowError):
        pass
    raise DataError(
        f"{where} has the time {_shown(value)}; expected a text like 2024-12-10T00:01:29Z, or seconds since 1970."
    )


def _shown(value: Json) -> str:
    """Return the beginning of a value for a message; an integer may have more digits than Python prints."""
    return f"{value!r:.40}" if not isinstance(value, int) or abs(value) < 2**63 else "a number of many digits"


def _from_lines(path: Path) -> Impressions:
    """Read one page per line: its query, the documents shown from the first position on, and those clicked."""
    shown, clicks = _Parts(), _Clicks()
    notes, none = Notes(), np.nan
    with opened(path) as file:
        names, reader = _header(path, file)
        found, listed = columns_in(names), shown_in(names)
        assert listed is not None
        places = {name: names.index(own) for name, own in found.items()} | {"shown": names.index(listed)}
        for page, row in enumerate(reader):
            if not row:
                continue
            if len(row) != len(names):
                raise DataError(f"{path}:{page + 2}: {len(row)} columns; the first line names {len(names)}.")
            documents = shown.documents.codes(row[places["shown"]].split())
            clicks.add(page, shown.documents.codes(row[places["clicked"]].split()))
            count = len(documents)
            query = np.full(count, shown.queries.code(row[places["query"]]), np.int32)
            time = _time(row[places["time"]], f"{path}:{page + 2}") if "time" in places else none
            session = np.full(count, page, np.int32)
            position = np.arange(1, count + 1, dtype=np.int32)
            shown.blocks.append(
                ImpressionRows(query, documents, position, np.zeros(count, bool), session, np.full(count, time), None)
            )
            notes.rows += count
            if notes.rows // _BLOCK > (notes.rows - count) // _BLOCK:
                _require_room(notes.rows, shown.text_bytes())
            if len(shown.blocks) == _BLOCK:  # merge many small arrays into one
                shown.blocks = [_joined(shown.blocks)]
    if shown.blocks:
        whole = _joined(shown.blocks)
        shown.blocks = [whole._replace(clicked=clicks.on(whole, notes))]
    return shown.whole(notes)


def _joined(blocks: list[ImpressionRows], propensity: Floats | None = None) -> ImpressionRows:
    query, document, position, clicked, session, time, _ = zip(*blocks, strict=True)
    one, two, three = (np.concatenate(each) for each in (query, document, position))
    return ImpressionRows(
        one, two, three, np.concatenate(clicked), np.concatenate(session), np.concatenate(time), propensity
    )


class _Clicks:
    """Clicks by page and document, matched with the documents shown."""

    def __init__(self) -> None:
        self.pages: list[Codes] = []
        self.documents: list[Codes] = []

    def add(self, page: int, documents: Codes) -> None:
        self.pages.append(np.full(len(documents), page, np.int32))
        self.documents.append(documents)

    def on(self, rows: ImpressionRows, notes: Notes) -> Bools:
        """Return which rows were clicked, counting repeated clicks and clicks on documents that were not shown."""
        if not self.pages:
            return np.zeros(len(rows.query), np.bool_)
        width = np.int64(1 + max(rows.document.max(), np.concatenate(self.documents).max(initial=0)))
        keys = np.concatenate(self.pages) * width + np.concatenate(self.documents)
        clicked = np.unique(keys)
        shown = rows.session * width + rows.document
        notes.repeated = len(keys) - len(clicked)
        notes.outside = int((~np.isin(clicked, shown)).sum())
        return np.isin(shown, clicked)


def from_events(records: Records, actions: Sequence[str] = CLICKS) -> Impressions:
    """Read User Behavior Insights: impressions from events, or from a query's list of results if it has no events."""
    parts, notes, clicks, pages = _Parts(), Notes(), _Clicks(), _Pages()
    wanted = set(actions)
    for number, (where, record) in enumerate(records, start=1):
        pages.add(where, record, parts, clicks, notes, wanted)
        if number % _RECORDS == 0:
            _require_room(max(number, pages.rows_so_far), parts.text_bytes(), _EVENT_BYTES)
    rows = pages.rows(parts)
    if rows is None:
        raise DataError(
            "There is no impression in the events: no event has action_name impression with event_attributes.object, "
            "and no query has query_response_hit_ids. Without what was shown, clicks say nothing."
        )
    parts.blocks = [rows._replace(clicked=clicks.on(rows, notes))]
    made = parts.whole(notes)
    return replace(made, client=pages.clients_of(made.session))


class _Pages:
    """Queries and events of UBI as rows. A page is a query's id; a client may have many."""

    def __init__(self) -> None:
        self.ids, self.names = Coder(), Coder()
        self.clients: dict[int, int] = {}
        self.texts: dict[int, str] = {}
        self.times: dict[int, float] = {}
        self.lists: dict[int, Codes] = {}
        self.page: list[int] = []
        self.document: list[int] = []
        self.position: list[int] = []
        self.listed = 0  # documents of all lists

    @property
    def rows_so_far(self) -> int:
        """The largest possible number of rows so far."""
        return len(self.page) + self.listed

    def add(
        self,
        where: str,
        record: Mapping[str, Json],
        parts: _Parts,
        clicks: _Clicks,
        notes: Notes,
        actions: set[str],
    ) -> None:
        """Add one query or event."""
        name, action = record.get("query_id"), record.get("action_name")
        if not isinstance(name, str):
            notes.unreadable += 1
            return
        page = self.ids.code(name)
        text, client = record.get("user_query"), record.get("client_id")
        if isinstance(client, str) and client:
            self.clients.setdefault(page, self.names.code(client))
        if isinstance(text, str) and text.strip():
            self.texts.setdefault(page, text)
        if action is None:
            self._query(page, record, parts, where)
        elif action == "impression" or (isinstance(action, str) and action in actions):
            document, position = _object_of(record)
            if document is None:
                notes.unreadable += 1
            elif action == "impression":
                self.page.append(page)
                self.document.append(parts.documents.code(document))
                self.position.append(-1 if position is None else position)
                self.times.setdefault(page, _time(record.get("timestamp"), where))
            else:
                clicks.add(page, parts.documents.codes([document]))

    def _query(self, page: int, record: Mapping[str, Json], parts: _Parts, where: str) -> None:
        self.times[page] = _time(record.get("timestamp"), where)
        listed = record.get("query_response_hit_ids")
        if isinstance(listed, (list, tuple)) and listed:
            self.listed += len(listed)
            self.lists[page] = parts.documents.codes([_id_of(each) or "" for each in listed])

    def clients_of(self, pages: Codes) -> Codes | None:
        """Return the client of each page, −1 if unknown; None if no page has one."""
        if not self.clients:
            return None
        return np.fromiter((self.clients.get(each, -1) for each in pages.tolist()), np.int32, len(pages))

    def rows(self, parts: _Parts) -> ImpressionRows | None:
        """Return the impressions of queries whose text is known."""
        seen, first = set(self.page), 0 if min(self.position, default=1) == 0 else 1
        lists = [(number, own) for number, own in self.lists.items() if number not in seen]
        sizes = [len(own) for _, own in lists]
        page = np.array([*self.page, *np.repeat([number for number, _ in lists], sizes).tolist()], np.int32)
        document = np.concatenate([np.array(self.document, np.int32), *(own for _, own in lists)])
        places = [np.arange(first, size + first, dtype=np.int32) for size in sizes]
        position = np.concatenate([np.array(self.position, np.int32), *places])
        known = np.array([number in self.texts for number in page.tolist()], np.bool_)
        page, document, position = page[known], document[known], position[known]
        if not len(page):
            return None
        query = np.array([parts.queries.code(self.texts[number]) for number in page.tolist()], np.int32)
        time = np.array([self.times.get(number, math.nan) for number in page.tolist()])
        position = position if (position >= 0).all() else np.full(len(page), -1, np.int32)
        return ImpressionRows(query, document, position, np.zeros(len(page), bool), page, time, None)


def _object_of(record: Mapping[str, Json]) -> tuple[str | None, int | None]:
    """Return the document of an event, and its position."""
    more = record.get("event_attributes")
    if not isinstance(more, Mapping):
        return None, None
    found, place = more.get("object"), more.get("position")
    name = found.get("object_id") if isinstance(found, Mapping) else None
    ordinal = place.get("ordinal") if isinstance(place, Mapping) else None
    return (
        _id_of(name),
        ordinal if isinstance(ordinal, int) and 0 <= ordinal <= _MOST_ORDINAL else None,
    )


def _id_of(value: Json) -> str | None:
    """Return an id as text; None if there is none."""
    return str(value) or None if isinstance(value, str) or (isinstance(value, int) and abs(value) < 2**63) else None


_INDICES = ("ubi_queries", "ubi_events")  # of an engine
_PAGE = 1_000  # records per response
_LARGEST, _SILENCE, _SECONDS = 50_000_000, 30.0, 120.0
_NESTED = 200  # lists and objects per record, on average: each takes many times its bytes in memory


def records_of(address: str) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Yield the queries, then the events, of an engine such as http://localhost:9200, by its scroll API."""
    base = address.rstrip("/")
    for index in _INDICES:
        found = _asked(f"{base}/{index}/_search?scroll=2m", {"size": _PAGE, "sort": ["_doc"]})
        while hits := _hits(found, base):
            for hit in hits:
                source = hit.get("_source", {})
                if not isinstance(source, dict):
                    raise DataError(f"{base}/{index}: expected a record in _source, found {source!r:.60}.")
                yield f"{base}/{index}/{hit.get('_id')}", source
            found = _asked(f"{base}/_search/scroll", {"scroll": "2m", "scroll_id": found.get("_scroll_id")})


def _asked(url: str, body: Mapping[str, Json]) -> Mapping[str, Json]:
    from querywise.runtime.http_client import RequestError, ask

    try:
        answer = ask(
            "POST",
            url,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            largest=_LARGEST,
            silence=_SILENCE,
            seconds=_SECONDS,
        )
    except RequestError as error:
        raise DataError(f"{url}: no answer ({error}). Is this the address of an engine with UBI's indices?") from None
    if answer.status != 200:
        raise DataError(f"{url}: the engine answers with status {answer.status}: {answer.shown(200)!r}.")
    if answer.content.count(b"{") + answer.content.count(b"[") > _PAGE * _NESTED:
        raise DataError(f"{url}: the answer has more values than {_PAGE} records have: {answer.shown(80)!r}.")
    try:
        found = json.loads(answer.content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DataError(f"{url}: the answer is no JSON record: {answer.shown(80)!r}.")
    return found


def _hits(answer: Mapping[str, Json], base: str) -> list[Mapping[str, Json]]:
    outer = answer.get("hits")
    found = outer.get("hits") if isinstance(outer, Mapping) else None
    if not isinstance(found, list) or len(found) > _PAGE or not all(isinstance(each, Mapping) for each in found):
        raise DataError(f"{base}: the answer has no hits, or more than were requested; expected a search response.")
    return found
