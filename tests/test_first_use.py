"""The first training on a machine: what another process compiles, and when there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from querywise.data.svmlight import parse
from querywise.jobs import first_use
from querywise.methods import METHODS
from querywise.runtime.compiled import kept_in


def test_training_a_few_made_up_queries_keeps_what_a_training_needs_and_no_more(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", first_use.__name__, "ranksvm"]
    subprocess.run(command, check=True, env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)})
    kept = {path.name.partition("-")[0] for path in tmp_path.rglob("*.nbi")}
    assert {"kernels.direct_sums", "curvature_kernels.curvature_rows"} <= kept
    assert not {"kernels.swept_sums", "svmlight.parse"} & kept  # only for long lists; by the process that reads


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The commands of the processes that are started; the reader's code is kept in an empty folder."""
    commands = []

    class Process:
        def __init__(self, command: list[str], **_: object) -> None:
            commands.append(command)

        def __enter__(self) -> Process:
            return self

        def __exit__(self, *_: object) -> None: ...

        def wait(self) -> None: ...

        def kill(self) -> None: ...

    monkeypatch.setattr("subprocess.Popen", Process)
    monkeypatch.setattr(first_use, "cores", lambda: 2)
    monkeypatch.setattr("querywise.runtime.compiled.kept_in", lambda _: str(tmp_path))
    return commands


def test_a_process_is_started_where_nothing_is_compiled_yet(started: list[list[str]]) -> None:
    with first_use.compiled_beside(METHODS["ranksvm"]) as wait:
        wait()
    assert [command[-1] for command in started] == ["ranksvm"]


def test_no_process_is_started_for_trees(started: list[list[str]]) -> None:
    with first_use.compiled_beside(METHODS["lambdamart"]) as wait:
        wait()
    assert not started


def test_no_process_is_started_where_the_reader_is_compiled(started: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "svmlight.parse-120.py311.nbi").touch()
    with first_use.compiled_beside(METHODS["ranksvm"]) as wait:
        wait()
    assert not started


def test_numba_keeps_the_reader_under_the_name_that_is_looked_for() -> None:
    folder = kept_in(parse)
    assert folder is not None
    assert any(Path(folder).glob("svmlight.parse-*.nbi"))
