"""Click logs: ten million impressions from Parquet, read and fitted by every model, and the memory that takes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.results import Result, alone
from benchmarks.timing import PRINT_PEAK, numbers_from_python
from querywise.clicks.models import MODELS

_SHARE = float(os.environ.get("QUERYWISE_BENCH_CLICKS", "1"))  # of the pages
_PAGES, _SHOWN, _QUERIES = 1_000_000, 10, 50_000
_PART = 50_000  # pages
_WORK = """
import time
from querywise.clicks.models import MODELS, fit_model
from querywise.clicks.readers import read_clicks
small = read_clicks({small!r})
for name in MODELS:
    fit_model(small, name)  # compiled before anything is measured
begin = time.process_time()
log = read_clicks({path!r})
print(time.process_time() - begin)
for name in MODELS:
    begin = time.process_time()
    fit_model(log, name)
    print(time.process_time() - begin)
"""

_COMMAND = """
import time
from pathlib import Path
from querywise.jobs.clicks import Asked, learn, write
asked = Asked()
for path, out in (({small!r}, {small!r} + ".out"), ({path!r}, {path!r} + ".out")):
    begin = time.process_time()
    write(Path(out), learn(path, asked), asked, report=True, source=path)
print(time.process_time() - begin)
"""


def measure() -> Iterator[Result]:
    """Click logs: ten million impressions from Parquet.

    A made-up log: a million result pages of ten documents, 50,000 queries of long-tailed frequency, positions exchanged
    at random, clicks by a position-based model. Times are CPU times; every model's has reading in it. The memory is the
    most that the whole program held, over reading and all models, and again over all that `querywise clicks` does: it
    reads, compares all models on the last fifth, tests borrowing, judges, and writes the folder with its report.
    QUERYWISE_BENCH_CLICKS=0.1 takes a tenth of it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder, "log.parquet"), Path(folder, "small.parquet")
        pages = int(_PAGES * _SHARE)
        write_log(path, pages)
        write_log(small, 1_000)
        reading, *models, peak = numbers_from_python(_WORK.format(path=str(path), small=str(small)) + PRINT_PEAK)
        whole, held = numbers_from_python(_COMMAND.format(path=str(path), small=str(small)) + PRINT_PEAK)
    yield alone("clicks", f"reading {pages * _SHOWN:,} impressions", ours=reading, unit="s")
    for name, each in zip(MODELS, models, strict=True):
        yield alone("clicks", f"reading and {name}", ours=reading + each, unit="s", below=60)
    yield alone("clicks", "memory, reading and all models", ours=peak / 1e3, unit="GB", below=2)
    yield alone("clicks", "`querywise clicks`, from the log to the folder", ours=whole, unit="s")
    yield alone("clicks", "memory, `querywise clicks`", ours=held / 1e3, unit="GB", below=2)


def write_log(path: Path, pages: int) -> None:
    """A made-up log as Parquet, a part at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(0)
    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("query", "session", "document")),
            *(("position", pa.int32()), ("clicked", pa.int8()), ("time", pa.int64())),
        ]
    )
    share = 1 / np.arange(1, _QUERIES + 1)
    theta = 1 / np.arange(1, _SHOWN + 1)
    with pq.ParquetWriter(path, schema) as out:
        for first in range(0, pages, _PART):
            count = min(_PART, pages - first)
            query = np.repeat(chance.choice(_QUERIES, count, p=share / share.sum()), _SHOWN)
            order = np.argsort(np.arange(_SHOWN) + 2 * chance.random((count, _SHOWN)), axis=1).ravel()
            alpha = (query * 7919 + order * 104_729) % 1_000 / 1_000
            clicked = chance.random(len(query)) < alpha**2 * np.tile(theta, count)
            page = np.repeat(np.arange(first, first + count), _SHOWN)
            columns = [
                pa.array([f"query {each}" for each in query.tolist()]),
                pa.array([f"s{each}" for each in page.tolist()]),
                pa.array([f"d{one}-{two}" for one, two in zip(query.tolist(), order.tolist(), strict=True)]),
                pa.array(np.tile(np.arange(1, _SHOWN + 1, dtype=np.int32), count)),
                pa.array(clicked.astype(np.int8)),
                pa.array(1_700_000_000 + page),
            ]
            out.write_table(pa.Table.from_arrays(columns, schema=schema))
