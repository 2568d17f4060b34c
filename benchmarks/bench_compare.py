"""A whole comparison, as one runs it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench_knn import REAL
from benchmarks.results import Result, above, alone
from benchmarks.timing import seconds

_METHODS = "single,lambdamart,knn-online,knn-offline-1,knn-offline-2,select-ranker,blend"


def measure() -> Iterator[Result]:
    """A comparison: querywise compare on MQ2008, five folds, seven methods, from the files to the report.

    Parameters are chosen on validation data from the usual grids. The floor is what lambdamart and blend alone take,
    whose trees LightGBM grows.
    """
    if not REAL.is_dir():
        print("MQ2008 is not in shared/data beside the project, so it is left out.")
        return
    trees = _seconds("lambdamart,blend")
    yield above(
        trees,
        alone("compare", "MQ2008, seven methods, from file to report", ours=_seconds(_METHODS), unit="s", below=40),
    )


def _seconds(methods: str) -> float:
    """One run into a new folder: another would find there what the first has finished."""
    script = Path(sys.executable).with_name("querywise")
    with tempfile.TemporaryDirectory() as place:
        words = [str(script), "compare", str(REAL), "--methods", methods, "--out", f"{place}/report", "--quiet"]
        return seconds(lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL))
