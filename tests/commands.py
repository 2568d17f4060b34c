"""The command line for tests: in this process, which is quick, or in one of its own, as a user runs it."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import re
import runpy
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TextIO
from unittest import mock

import typer.rich_utils

from querywise.cli import main
from reproduction.__main__ import command as reproducing

QUERYWISE = str(Path(sys.executable).with_name("querywise"))
REPRODUCTION = str(Path(__file__).parent.parent / "reproduction" / "__main__.py")
Done = subprocess.CompletedProcess[str]

_EDGE = re.compile(r"\Ahint: Chosen at the edge of the grid: [^\n]*\n\Z")
_WIDTHS = ("COLUMNS", "LINES", "TERMINAL_WIDTH")
# What Python shows and hides unless it is told otherwise; pytest makes errors of warnings.
_FILTERS: list[tuple[Any, type[Warning], str]] = [
    ("ignore", ResourceWarning, ""),
    ("ignore", ImportWarning, ""),
    ("ignore", PendingDeprecationWarning, ""),
    ("ignore", DeprecationWarning, ""),
    ("default", DeprecationWarning, "__main__"),
]


def plain() -> dict[str, str]:
    """This environment without what asks for colours or a width; a machine that builds may ask for colours.

    Nor is there progress, which would be on standard error or not, as the machine is slow or quick.
    """
    wanted = {name: value for name, value in os.environ.items() if "COLOR" not in name and name != "GITHUB_ACTIONS"}
    return {name: value for name, value in wanted.items() if name not in _WIDTHS} | {"QUERYWISE_PROGRESS": "off"}


def run(folder: Path | None, *words: object) -> Done:
    """A command in a folder, called in this process; the result is that of `run_process`.

    It calls what the installed script calls. What a command changes in this process is set back afterwards. For what
    depends on the process itself, like signals, closed pipes or what is imported, take `run_process` or `begun`.
    """
    return _uninterrupted(_called(main, [QUERYWISE, *map(str, words)], folder))


def reproduce(folder: Path | None, *words: object) -> Done:
    """`python -m reproduction` in a folder, called in this process; the result is that of a process of its own."""
    return _uninterrupted(_called(lambda: main(reproducing()), [REPRODUCTION, *map(str, words)], folder))


def run_script(script: Path, *words: object) -> Done:
    """A Python script with arguments, called in this process; the result is that of a process of its own."""

    def program() -> None:
        runpy.run_path(str(script), run_name="__main__")

    with mock.patch.object(sys, "path", [str(script.parent), *sys.path]):
        done = _called(program, [str(script), *map(str, words)], None)
    for name in [path.stem for path in script.parent.glob("*.py")]:
        sys.modules.pop(name, None)  # another script has another one of this name beside it
    return done


def run_process(folder: Path | None, *words: object, **more: Any) -> Done:
    """A command in a folder, in a process of its own; `more` is for `subprocess.run`."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    settings: dict[str, Any] = {"env": plain(), "timeout": 120, "encoding": "utf-8", **streams, **more}
    return subprocess.run([QUERYWISE, *map(str, words)], cwd=folder, check=False, **settings)


def begun(folder: Path, *words: object, **more: Any) -> subprocess.Popen[str]:
    """A process with a command that was just started; `more` is for `subprocess.Popen`."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    settings: dict[str, Any] = {"env": plain(), "encoding": "utf-8", **streams, **more}
    return subprocess.Popen([QUERYWISE, *map(str, words)], cwd=folder, **settings)


def output(done: Done) -> str:
    """What a command printed that went well, with nothing on standard error, where no terminal is.

    Only that a parameter was chosen at the edge of its grid may be said there, as often happens on small data.
    """
    assert (done.returncode, _EDGE.sub("", done.stderr)) == (0, ""), done.stderr
    return done.stdout


def refused(done: Done) -> str:
    """The one line with which a command refused bad input."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, "one message, on one line"
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def contents(folder: Path) -> dict[str, bytes]:
    """Every file under the folder and what is in it; a folder counts as an empty file."""
    return {str(path.relative_to(folder)): b"" if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


def _uninterrupted(done: Done) -> Done:
    if done.returncode == 130:
        raise KeyboardInterrupt  # the command line took it for its own
    return done


def _called(program: Callable[[], object], command: list[str], folder: Path | None) -> Done:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        with _as_in_a_process(command, folder), _standard_streams(out, errors):
            code = contextvars.Context().run(_exit_code, program)
        return subprocess.CompletedProcess(command, code, _content(out), _content(errors))


def _exit_code(program: Callable[[], object]) -> int:
    try:
        program()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except Exception:  # noqa: BLE001 - Python itself would print it
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8")


@contextlib.contextmanager
def _as_in_a_process(command: list[str], folder: Path | None) -> Iterator[None]:
    """The arguments, the folder and the settings that a process of its own begins with, while the block runs."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(Path.cwd() if folder is None else folder))
        stack.enter_context(mock.patch.dict(os.environ, plain(), clear=True))
        stack.enter_context(mock.patch.object(sys, "argv", command))
        stack.enter_context(mock.patch.object(sys, "excepthook", sys.__excepthook__))
        # In `python -m pytest`, Typer would call the program that.
        package = "reproduction" if command[0] == REPRODUCTION else None
        stack.enter_context(mock.patch.object(sys.modules["__main__"], "__package__", package, create=True))
        for name in ("FORCE_TERMINAL", "MAX_WIDTH"):  # taken from the environment when imported
            stack.enter_context(mock.patch.object(typer.rich_utils, name, None))
        stack.enter_context(_default_warnings())
        stack.enter_context(_default_logging())
        yield


@contextlib.contextmanager
def _default_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for action, category, module in _FILTERS:
            warnings.filterwarnings(action, category=category, module=module)
        warnings.showwarning = _show
        yield


def _show(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    (file or sys.stderr).write(warnings.formatwarning(message, category, filename, lineno, line))


@contextlib.contextmanager
def _default_logging() -> Iterator[None]:
    """Logging that nobody has set up; handlers and levels are set back at the end."""
    root = logging.getLogger()
    loggers = [root, *(each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger))]
    before = [(each, each.level) for each in loggers]
    handlers = root.handlers[:]
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for each, level in before:
            each.setLevel(level)


@contextlib.contextmanager
def _standard_streams(out: IO[bytes], errors: IO[bytes]) -> Iterator[None]:
    """Standard output and error in files, also for what is not written in Python, and standard input empty."""
    before = [os.dup(number) for number in range(3)]
    ours = sys.stdin, sys.stdout, sys.stderr
    for stream in ours[1:]:
        stream.flush()
    try:
        with open(os.devnull, "rb") as nothing:
            for number, file in enumerate((nothing, out, errors)):
                os.dup2(file.fileno(), number)
        with (
            open(0, encoding="utf-8", closefd=False) as sys.stdin,
            open(1, "w", encoding="utf-8", closefd=False) as sys.stdout,
            open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False) as sys.stderr,
        ):
            yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = ours
        for number, copy in enumerate(before):
            os.dup2(copy, number)
            os.close(copy)
