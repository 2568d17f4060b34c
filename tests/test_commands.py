"""A command run inside the tests does what it does in a process of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer

from querywise.cli import options
from querywise.data.letor import write_letor
from querywise.data.parquet.writing import write_shards
from querywise.data.synthetic import make_judged
from querywise.runtime.workers import workers
from tests import commands
from tests.commands import contents, plain, run, run_process, run_script


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some data, a model, two runs and a small collection."""
    folder = tmp_path_factory.mktemp("place")
    data = make_judged(12, 5, 3)
    write_letor(folder / "train.txt", data)
    write_shards([data], folder / "train.parquet", shards=2)
    (folder / "größe.txt").write_text("1 qid:ü 1:nan\n")
    assert run(folder, "fit", "train.txt", "--out", "model", "--quiet").returncode == 0
    for name in ("a", "b"):
        assert run(folder, "rank", "model", "train.txt", "--out", f"{name}.trec").returncode == 0
    (folder / "docs").mkdir()
    (folder / "docs" / "corpus.jsonl").write_text('{"_id": "D1", "title": "Straße", "text": "a [b] fig"}\n')
    assert run(folder, "index", "docs", "--out", "index").returncode == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--help", 0),
        ("fit --fold 0", 2),  # typed wrongly
        ("fit größe.txt --out new", 2),  # bad data
        ("methods querywise", 0),  # says something on standard error too
        ("fit train.parquet --memory 400MB --set l2=1 --out new", 0),
        ("rank model train.txt", 0),
        ("compare train.txt --methods none --scores a=a.trec --measures map", 0),
        ("search index fig", 0),
        ("fuse a.trec b.trec --out new", 0),
        ("export model --to solr --out new", 0),
    ],
)
def test_it_is_the_same_in_this_process_and_in_its_own(place: Path, tmp_path: Path, command: str, code: int) -> None:
    words = command.split()
    folders = [Path(shutil.copytree(place, tmp_path / name)) for name in ("here", "there")]
    here, there = run(folders[0], *words), run_process(folders[1], *words)
    assert (here.args, here.returncode) == (there.args, there.returncode)
    assert there.returncode == code
    assert here.stdout.encode() == there.stdout.encode()
    assert here.stderr.encode() == there.stderr.encode()
    assert here.stdout + here.stderr
    mine, other = (contents(folder) for folder in folders)
    assert mine.keys() == other.keys()


@pytest.mark.parametrize("words", [["--help"], ["--url", "http://127.0.0.1:9"]])
def test_so_is_a_script(place: Path, tmp_path: Path, words: list[str]) -> None:
    assert run(place, "export", "model", "--to", "solr", "--out", tmp_path / "out").returncode == 0
    script = tmp_path / "out" / "check_parity.py"
    here = run_script(script, *words)
    there = subprocess.run([sys.executable, script, *words], env=plain(), capture_output=True, text=True, check=False)
    assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)
    assert here.stdout + here.stderr


# What a command may do to the process it runs in


def doing(work: Any, monkeypatch: pytest.MonkeyPatch) -> commands.Done:
    """A command that does what it is told here."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(options.guarded_command(work))
    monkeypatch.setattr(commands, "main", app)
    return run(None)


def state() -> list[object]:
    root = logging.getLogger()
    levels = [root.level, logging.getLogger("uvicorn").level]
    streams = [sys.stdin, sys.stdout, sys.stderr, *map(os.fstat, range(3))]
    filters = [*warnings.filters], warnings.showwarning
    return [
        dict(os.environ),
        Path.cwd(),
        sys.argv,
        sys.excepthook,
        [*root.handlers],
        levels,
        streams,
        filters,
        workers(),
    ]


def test_what_a_command_changes_is_set_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    before = state()

    def work() -> None:
        assert "FORCE_COLOR" not in os.environ
        os.environ["QUERYWISE_TOKEN"] = "secret"
        os.chdir(tmp_path)
        warnings.simplefilter("ignore")
        logging.basicConfig(level=logging.DEBUG)
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        sys.stdout = sys.stderr

    done = doing(work, monkeypatch)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [repr(each) for each in state()] == [repr(each) for each in before]


def test_everything_written_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        assert sys.stdin.read() == ""
        assert not any(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
        sys.stdout.write("text ü\n")
        sys.stdout.flush()
        sys.stdout.buffer.write(b"bytes\n")
        sys.stdout.flush()
        os.write(1, b"below\n")
        warnings.warn("careful", stacklevel=1)
        warnings.warn("hidden", DeprecationWarning, stacklevel=1)
        logging.getLogger("querywise").warning("logged")
        os.write(2, b"below\n")

    done = doing(work, monkeypatch)
    assert (done.returncode, done.stdout) == (0, "text ü\nbytes\nbelow\n")
    first, _, *others = done.stderr.splitlines()
    assert first.endswith("UserWarning: careful")
    assert others == ["logged", "below"]


@pytest.mark.parametrize(("given", "code", "stderr"), [(None, 0, ""), (3, 3, ""), ("enough", 1, "enough\n")])
def test_what_a_program_ends_with_is_its_exit_code(
    given: int | str | None, code: int, stderr: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave() -> None:
        raise SystemExit(given)

    monkeypatch.setattr(commands, "main", leave)
    done = run(None)
    assert (done.returncode, done.stderr) == (code, stderr)


def test_a_fault_is_printed_as_python_prints_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        raise RuntimeError("a fault")

    before = sys.excepthook
    done = doing(work, monkeypatch)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("\nRuntimeError: a fault\n")
    assert sys.excepthook is before


def test_an_interrupt_from_the_keyboard_ends_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        doing(work, monkeypatch)
        pytest.fail("it was taken for the command's own")


def test_the_package_run_as_a_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "querywise", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == run_process(None, "--version").stdout
