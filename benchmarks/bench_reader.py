"""Reading a LETOR file, against scikit-learn's reader of the same format."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from benchmarks.results import Result, alone, compared
from benchmarks.timing import best_seconds, number_from_python, peak_megabytes
from querywise import read_letor

_ROWS, _COLUMNS, _ROWS_PER_QUERY = 100_000, 136, 120

_FIRST_READ = """
import time
import querywise.data.svmlight
from querywise import read_letor
begin = time.perf_counter()
read_letor({path!r})
print(time.perf_counter() - begin)
"""


def measure() -> Iterator[Result]:
    """Reading: read_letor against scikit-learn's load_svmlight_file(query_id=True).

    100,000 rows × 136 features, six decimals, 30 % zeros. The first two lines are for 1,000 rows.
    """
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.txt"), Path(folder, "large.txt")
        write_svmlight(small, rows=1_000)
        write_svmlight(large, rows=_ROWS)
        yield from _first_use(small, folder)
        read_letor(small)
        _check_same_table(large)
        ours = best_seconds(lambda: read_letor(large), times=5)
        theirs = best_seconds(lambda: load_svmlight_file(large, query_id=True), times=2)
        size = large.stat().st_size / 1e6
        yield compared("reader", f"read {size:.0f} MB", ours=ours, theirs=theirs, unit="s", at_least=10)
        yield Result("reader", "the same, as a speed", size / ours, size / theirs, "MB/s", theirs / ours, "", None)
        yield compared(
            "reader",
            "peak memory",
            ours=peak_megabytes(f"from querywise import read_letor\nread_letor({str(large)!r})"),
            theirs=peak_megabytes(
                f"from sklearn.datasets import load_svmlight_file\nload_svmlight_file({str(large)!r}, query_id=True)"
            ),
            unit="MB",
        )


def write_svmlight(path: Path, *, rows: int, seed: int = 0) -> None:
    """A file of random values with six decimals, about 30 % of them zero, and labels 0 to 4."""
    rng = np.random.default_rng(seed)
    line = "%d qid:%d " + " ".join(f"{column + 1}:%.6f" for column in range(_COLUMNS)) + "\n"
    with path.open("w", encoding="ascii") as out:
        for row in range(rows):
            values = rng.random(_COLUMNS)
            values[rng.random(_COLUMNS) < 0.3] = 0.0
            out.write(line % (rng.integers(5), row // _ROWS_PER_QUERY + 1, *values.tolist()))


def _first_use(path: Path, folder: str) -> Iterator[Result]:
    """The first read of a process, with nothing compiled yet and with the machine code already on disk."""
    code, cache = _FIRST_READ.format(path=str(path)), str(Path(folder, "compiled"))
    compiling = number_from_python(code, NUMBA_CACHE_DIR=cache)
    loading = number_from_python(code, NUMBA_CACHE_DIR=cache)
    yield alone("reader", "first read ever: compiles", ours=compiling, unit="s")
    yield alone("reader", "first read of a process", ours=loading, unit="s")


def _check_same_table(path: Path) -> None:
    """Raise unless both readers give the same values, labels and query ids, to the last bit."""
    ours = read_letor(path)
    features, labels, query_ids = load_svmlight_file(path, query_id=True)
    sizes = np.diff(ours.candidates.starts)
    same = (
        np.array_equal(ours.candidates.features, features.toarray())
        and np.array_equal(ours.labels, labels)
        and np.array_equal(np.repeat(np.array(ours.candidates.query_ids, dtype=np.int64), sizes), query_ids)
    )
    if not same:
        raise RuntimeError("read_letor and load_svmlight_file gave different tables for the same file.")
