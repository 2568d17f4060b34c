"""A whole comparison, as one runs it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench_knn import REAL
from benchmarks.results import Result, above, alone
from benchmarks.timing import process_seconds

_METHODS = "single,lambdamart,knn-online,knn-offline-1,knn-offline-2,select-ranker,blend"


def measure() -> Iterator[Result]:
    """A comparison: querywise compare on MQ2008, five folds, seven methods, from the files to the report.

    Parameters are chosen on validation data from the usual grids. The floor is what lambdamart and blend alone take,
    whose trees LightGBM grows.
    """
    if not REAL.is_dir():
        print("MQ2008 is not in shared/data beside the project, so it is left out.")
        return
    everything = _seconds(_METHODS)
    yield above(
        _seconds("lambdamart,blend"),
        alone("compare", "MQ2008, seven methods, from file to report", ours=everything, unit="s", below=40),
    )


def _seconds(methods: str) -> float:
    script = Path(sys.executable).with_name("querywise")
    with tempfile.TemporaryDirectory() as place:
        return process_seconds(
            [str(script), "compare", str(REAL), "--methods", methods, "--out", f"{place}/report", "--quiet"], times=1
        )
