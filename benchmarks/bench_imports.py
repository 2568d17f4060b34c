"""What it costs to start."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.results import Result, above, alone
from benchmarks.timing import process_seconds, seconds
from querywise import make_judged
from querywise.data.letor import write_letor

_INSTALLATIONS = 3


def measure() -> Iterator[Result]:
    """Starting: Python in a fresh process, wall time from its start to its exit.

    The first fit is that of a fresh installation, which compiles; the best of three counts.
    """
    nothing = _python("pass")
    yield alone("imports", "pass", ours=nothing, unit="s")
    everything = _python("import querywise")
    yield alone("imports", "import querywise", ours=everything, unit="s", below=0.5)
    yield alone("imports", "import querywise, less pass", ours=everything - nothing, unit="s")
    yield alone("imports", "from querywise import RankSVM", ours=_python("from querywise import RankSVM"), unit="s")
    script = Path(sys.executable).with_name("querywise")
    yield alone("imports", "querywise --help", ours=process_seconds([str(script), "--help"]), unit="s", below=1)
    compiling = min(_compiling(script) for _ in range(_INSTALLATIONS))
    yield above(0.0, alone("imports", "the first querywise fit over the second", ours=compiling, unit="s", below=4))


def _compiling(script: Path) -> float:
    """How much longer the first command of a fresh installation takes, by what it compiles."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_letor(place / "train.txt", make_judged(100, 10, 46))
        took = []
        for turn in range(2):
            command = [script, "fit", place / "train.txt", "--out", place / f"model{turn}"]
            environment = {**os.environ, "NUMBA_CACHE_DIR": str(place / "compiled")}
            took.append(seconds(partial(subprocess.run, command, env=environment, check=True, capture_output=True)))
    return took[0] - took[1]


def _python(code: str) -> float:
    return process_seconds([sys.executable, "-c", code])
