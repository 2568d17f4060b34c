"""Events of an experiment's log as Parquet: a row for each User Behavior Insights record.

Texts are stored as columns, lists and objects as columns of JSON.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from querywise.data.parquet.arrow import Arrow, arrow, open_parquet, require_room_to_read
from querywise.errors import DataError
from querywise.runtime.values import Json

_TEXTS = ("action_name", "query_id", "user_query", "timestamp", "application", "client_id")
_PARTS = ("query_response_hit_ids", "query_attributes", "event_attributes")  # stored as JSON
_COLUMNS = (*_TEXTS, *_PARTS)
_AT_ONCE, _GROUP = 1_000, 20_000  # records between two pauses, and in a row group
_PAUSE_SECONDS = 0.005  # lets other threads of the process answer requests
_MOST_LETTERS = 2_000_000_000  # of JSON in one file: one text may occur in many rows


def write_events(records: Iterator[Mapping[str, Json]], out: Path) -> None:
    """Write records as Parquet.

    Args:
        records: the records, in order.
        out: the file to write.

    Raises:
        DataError: Arrow is not installed, or a record contains something that the columns cannot hold.
    """
    pa, pq = arrow()
    schema, waiting = pa.schema([(name, pa.string()) for name in _COLUMNS]), list[Arrow]()
    with out.open("wb") as file, pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as made:
        while rows := list(map(_row, islice(records, _AT_ONCE))):
            try:
                waiting.append(pa.Table.from_pylist(rows, schema=schema))
            except UnicodeEncodeError as error:
                raise DataError(f"{error.object!r:.60} cannot be written as UTF-8 text.") from None
            if len(waiting) * _AT_ONCE >= _GROUP:
                made.write_table(pa.concat_tables(waiting))
                waiting = []
            time.sleep(_PAUSE_SECONDS)
        if waiting:
            made.write_table(pa.concat_tables(waiting))
    with out.open("rb") as written:
        os.fsync(written.fileno())


def _row(record: Mapping[str, Json]) -> dict[str, str]:
    known = all(isinstance(value, str) if name in _TEXTS else name in _PARTS for name, value in record.items())
    if not known or None in record.values():
        raise DataError(f"{json.dumps(record)[:60]} has more fields than a log has columns.")
    return {
        name: value if name in _TEXTS and isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        for name, value in record.items()
    }


def is_event_table(path: Path) -> bool:
    """Return whether a Parquet file contains events; False if Arrow is not installed or the file is damaged."""
    try:
        return {"action_name", "query_id", "event_attributes"} <= set(open_parquet(path).schema_arrow.names)
    except DataError:
        return False


def read_events(path: Path) -> Iterator[tuple[int, Mapping[str, Json]]]:
    """Yield the records of a file with their row numbers; repeated texts are stored once.

    Raises:
        DataError: The file is damaged, too large for the memory, or not a log.
    """
    pa, _ = arrow()
    file = open_parquet(path, coded=True)
    names = [name for name in _COLUMNS if name in file.schema_arrow.names]
    require_room_to_read(path, file, names, (), "Move it away.")
    number = letters = 0
    try:
        for batch in file.iter_batches(_GROUP, columns=names, use_threads=False):
            columns = {name: _texts(path, batch.column(name), name) for name in names}
            for row in range(batch.num_rows):
                number += 1
                found = {name: text for name, own in columns.items() if (text := own[1][own[0][row]]) is not None}
                letters += sum(len(text) for name, text in found.items() if name in _PARTS)
                if letters > _MOST_LETTERS:
                    raise DataError(f"{path}: more than {_MOST_LETTERS:,} characters; this is no log of events.")
                yield number, {name: json.loads(text) if name in _PARTS else text for name, text in found.items()}
    except DataError:
        raise
    except (pa.ArrowException, OSError, KeyError, IndexError) as error:
        raise DataError(f"{path}: this Parquet file is damaged ({error}).") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: invalid JSON or text near row {number}.") from None


def _texts(path: Path, column: Any, name: str) -> tuple[Sequence[int], list[str | None]]:
    """Return for each row the index of its text, and the texts, the last of which stands for null."""
    pa, _ = arrow()
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    if not all(isinstance(text, str) for text in texts):
        raise DataError(f"{path}: column {name} holds {column.type}; expected text.")
    return coded.indices.cast("int64").fill_null(len(texts)).to_pylist(), [*texts, None]
