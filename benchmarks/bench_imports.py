"""What it costs to start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.results import Result, alone
from benchmarks.timing import process_seconds


def measure() -> Iterator[Result]:
    """Starting: Python in a fresh process, wall time from its start to its exit."""
    nothing = _python("pass")
    yield alone("imports", "pass", ours=nothing, unit="s")
    everything = _python("import querywise")
    yield alone("imports", "import querywise", ours=everything, unit="s", below=0.5)
    yield alone("imports", "import querywise, less pass", ours=everything - nothing, unit="s")
    yield alone("imports", "from querywise import RankSVM", ours=_python("from querywise import RankSVM"), unit="s")
    script = Path(sys.executable).with_name("querywise")
    yield alone("imports", "querywise --help", ours=process_seconds([str(script), "--help"]), unit="s", below=1)


def _python(code: str) -> float:
    return process_seconds([sys.executable, "-c", code])
