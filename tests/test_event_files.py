"""The log of an experiment, packed as Parquet: nothing is lost, and what cannot be packed so stays as it is."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from querywise.clicks.readers import read_clicks
from querywise.data.click_files import is_event_log, logged_events
from querywise.data.parquet.events import read_events
from querywise.errors import DataError
from querywise.online import log as log_module
from querywise.online.log import EventLog, click_record, draw_once


def test_what_is_full_is_packed_as_parquet_without_losing_anything(tmp_path: Path) -> None:
    log, lines = EventLog(tmp_path / "log", file_bytes=3_000), []
    for number in range(40):
        drawn = draw_once(log.key, {"a": ["1"], "b": ["2"]}, f'sofa "{number}\n', "s" if number % 3 else None, None)
        signed = drawn.id.signed(log.key)
        lines += [drawn.record(signed), click_record(signed, "1", "click", number or None, time.time())]
        for line in lines[-2:]:
            done = log.add(partial(bytes, line), len(line), awaited=True)
            assert done is not None
            done.result()
        for _ in range(500):
            if len(list((tmp_path / "log").glob("*.ndjson"))) < 2:
                break
            time.sleep(0.01)
    log.close()
    tables = sorted((tmp_path / "log").glob("*.parquet"))
    assert len(tables) > 3
    assert not list((tmp_path / "log").glob("*.gz"))

    def kept() -> list[str]:
        return sorted(json.dumps(record, sort_keys=True) for _, record in logged_events(tmp_path / "log"))

    expected = sorted(json.dumps(json.loads(line), sort_keys=True) for line in lines)
    assert kept() == expected
    columns = pyarrow.parquet.read_table(tables[0]).to_pylist()
    assert json.loads(columns[0]["query_response_hit_ids"]) in (["1", "2"], ["2", "1"])
    plain = tables[0].with_suffix(".ndjson")
    own = [record for _, record in read_events(tables[0])]
    plain.write_text("".join(f"{json.dumps(each)}\n" for each in own))
    assert kept() == expected, "one that was packed and not removed counts once"
    for each in (tmp_path / "log").glob("*.ndjson"):
        each.unlink()
    assert read_clicks(tmp_path / "log").queries[0].startswith('sofa "')


def test_what_parquet_cannot_hold_and_what_is_no_log_is_told(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    plain = tmp_path / "log" / "log-1.ndjson"
    plain.write_text('{"query_id": "a", "user_query": "\\ud800", "query_response_hit_ids": ["d"]}\n')
    log_module._packed(plain)
    assert [each.name for each in (tmp_path / "log").iterdir()] == ["log-1.ndjson.gz"]
    assert len(list(logged_events(tmp_path / "log"))) == 1
    table = {"action_name": ["click"], "query_id": ["a"], "event_attributes": ["{"]}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "log" / "log-2.parquet")
    with pytest.raises(DataError, match=r"log-2.parquet: invalid JSON or text near row 1"):
        list(logged_events(tmp_path / "log"))
    pyarrow.parquet.write_table(pyarrow.table(table | {"query_id": [1]}), tmp_path / "log" / "log-2.parquet")
    with pytest.raises(DataError, match=r"column query_id holds .*; expected text"):
        list(logged_events(tmp_path / "log"))
    (tmp_path / "features").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"qid": ["1"]}), tmp_path / "features" / "log-1.parquet")
    assert not is_event_log(tmp_path / "features")
