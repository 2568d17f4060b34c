"""The first training on a machine: what another process compiles, and when there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from querywise.data.svmlight import parse
from querywise.jobs import first_use
from querywise.runtime.compiled import kept_in

_TRAINING = "from querywise import RankSVM, make_judged; RankSVM().fit(make_judged(8, 4, 3))"


def run_python(arguments: list[str], kept: Path) -> str:
    """What Python prints; compiled code is kept in this folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(kept)}
    return subprocess.run([sys.executable, "-P", *arguments], check=True, env=environment, stdout=-1, text=True).stdout


def test_what_a_training_needs_is_kept_and_no_more(tmp_path: Path) -> None:
    run_python(["-m", first_use.__name__], tmp_path)
    kept = {path.name.partition("-")[0] for path in tmp_path.rglob("*.nbi")}
    assert {"kernels.direct_sums", "local_kernels.curvature_rows"} <= kept
    assert not {"kernels.swept_sums", "svmlight.parse"} & kept  # only for long lists; by the process that reads
    run_python(["-c", _TRAINING], tmp_path)
    assert {path.name.partition("-")[0] for path in tmp_path.rglob("*.nbi")} == kept


def test_a_helper_is_compiled_once_whatever_constants_it_is_called_with(tmp_path: Path) -> None:
    run_python(
        ["-c", "import numpy; from querywise.runtime.compiled import smallest; smallest(numpy.ones(3), 2)"], tmp_path
    )
    assert len([*tmp_path.rglob("compiled._moved_down-*.nbc")]) == 1  # with 0, False and True


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

        def wait(self, timeout: float) -> None: ...

        def kill(self) -> None: ...

    monkeypatch.setattr("subprocess.Popen", Process)
    monkeypatch.setattr(first_use, "cores", lambda: 2)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return commands


def test_a_process_is_started_where_nothing_is_compiled_yet(started: list[list[str]]) -> None:
    with first_use.compiled_beside("ranksvm") as wait:
        wait()
    assert [command[-1] for command in started] == [first_use.__name__]


def test_no_process_is_started_for_trees(started: list[list[str]]) -> None:
    with first_use.compiled_beside("lambdamart") as wait:
        wait()
    assert not started


def test_no_process_is_started_where_the_reader_is_compiled(started: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "data_1f").mkdir()
    (tmp_path / "data_1f" / "svmlight.parse-120.py311.nbi").touch()
    with first_use.compiled_beside("ranksvm") as wait:
        wait()
    assert not started


def test_a_job_has_a_process_until_all_its_kernels_are_kept(started: list[list[str]], tmp_path: Path) -> None:
    for folder, file in (("data_1f", "svmlight.parse"), ("ranksvm_2e", "kernels.swept")):
        with first_use.beside("a.job", "data.svmlight.parse", "learners.ranksvm.kernels.swept") as wait:
            wait()
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{file}-120.py311.nbi").touch()
    with first_use.beside("a.job", "data.svmlight.parse", "learners.ranksvm.kernels.swept") as wait:
        wait()
    assert [command[-1] for command in started] == ["a.job", "a.job"]


def test_in_a_given_folder_numba_keeps_the_reader_where_it_is_looked_for(tmp_path: Path) -> None:
    asking = "from querywise.data.svmlight import parse; from querywise.runtime.compiled import kept_in"
    assert Path(run_python(["-c", f"{asking}; print(kept_in(parse))"], tmp_path).strip()).parent == tmp_path


def test_beside_its_module_numba_keeps_the_reader_where_it_is_looked_for(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = kept_in(parse)
    assert folder is not None
    assert any(Path(folder).glob("svmlight.parse-*.nbi"))
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    with first_use.compiled_beside("ranksvm") as wait:
        wait()
    assert not started


def test_without_a_folder_of_its_own_the_reader_is_looked_for_where_numba_keeps_it(
    started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("querywise.runtime.compiled.kept_in", lambda _: str(tmp_path))
    for reader in (None, tmp_path / "svmlight.parse-120.py311.nbi"):
        if reader is not None:
            reader.touch()
        with first_use.compiled_beside("ranksvm") as wait:
            wait()
    assert len(started) == 1
