from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from querywise.data.collections import Document
from querywise.data.letor import read_letor, write_letor
from querywise.data.synthetic import make_judged
from querywise.retrieval.index import build_index, save_index
from querywise.storage import load
from tests.commands import begun, contents, refused, run, run_process

FEATURES = 3
ROWS = 10 * 5


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good and bad files, and a model of three features that was trained once."""
    folder = tmp_path_factory.mktemp("place")
    for name, features in (("train", FEATURES), ("narrow", FEATURES - 1), ("wide", FEATURES + 1)):
        write_letor(folder / f"{name}.txt", make_judged(10, 5, features))
    (folder / "empty.txt").write_text("")
    (folder / "nan.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:nan\n")
    (folder / "unsorted.txt").write_text("1 qid:1 1:0.5\n0 qid:2 1:1\n0 qid:1 1:0.5\n")
    (folder / "few.txt").write_text("0.5\n" * 7)
    for name in ("foreign", "parts"):
        (folder / name).mkdir()
    (folder / "foreign" / "notes.txt").write_text("not a model")
    for part in range(1, 6):
        (folder / "parts" / f"S{part}.txt").write_text(f"1 qid:{part} 1:1\n0 qid:{part} 1:0\n")
    done = run(folder, "fit", "train.txt", "--out", "model")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("fit nowhere.txt --out new", "nowhere.txt: there is no such file"),
        ("fit empty.txt --out new", "empty.txt: the file holds no judged document"),
        ("fit nan.txt --out new", "nan.txt:2: the value in '1:nan' is not a finite number"),
        ("fit unsorted.txt --out new", "unsorted.txt:3: query '1' already began at unsorted.txt:1"),
        (
            "fit train.txt --out new --method nope",
            "Unknown method 'nope'. Known: bm25, vectors, vectors-adapted, ranksvm, ",
        ),
        ("fit train.txt --out new --measure nope", "Unknown measure 'nope'. Known: map, "),
        ("fit train.txt --out new --flavour nope", "Unknown flavour 'nope'. Known: standard, "),
        ("evaluate train.txt few.txt --measures map,nope", "Unknown measure 'nope'. Known: map, "),
        ("evaluate train.txt few.txt --flavour nope", "Unknown flavour 'nope'. Known: standard, "),
        (
            "compare train.txt --methods ranksvm,nope",
            "Unknown method 'nope'. Known: bm25, vectors, vectors-adapted, ranksvm, ",
        ),
        ("fit train.txt --out new --set depth=3", "--set depth=3: this is not a setting of ranksvm. Known: l2, "),
        ("fit train.txt --out new --set l2=high", "--set l2=high: expected a number."),
        ("fit train.txt --out new --set l2=true", "--set l2=true: expected a number."),
        ("fit train.txt --out new --set prior_l2=high", "prior_l2"),
        ("fit train.txt --out new --method lambdamart --set seed=-1", "seed"),
        ("fit train.txt --out new --method lambdamart --set leaves=9999999999", "leaves"),
        ("rank nowhere train.txt", "nowhere: not a model folder: there is no such folder"),
        ("rank foreign train.txt", "foreign: not a model folder: there is no manifest.json in it"),
        ("rank model narrow.txt", f"trained on {FEATURES} features but the documents have {FEATURES - 1}"),
        ("rank model wide.txt", f"trained on {FEATURES} features but the documents have {FEATURES + 1}"),
        ("rank model train.txt --format csv", "Unknown format 'csv'. Known: trec, parquet, scores"),
        ("evaluate train.txt few.txt", f"few.txt: 7 scores for {ROWS} documents"),
        ("fit train.txt --out nowhere/new", "nowhere does not exist; create it first"),
        ("rank model train.txt --out nowhere/new.txt", "nowhere does not exist; create it first"),
        ("evaluate train.txt few.txt --per-query nowhere/new.csv", "nowhere does not exist; create it first"),
        ("fit train.txt --out few.txt", "few.txt: this is a file; a model is a folder"),
        ("fit train.txt --out foreign", "foreign: the folder holds something that is not a querywise model"),
        ("rank model train.txt --out foreign", "foreign: this is a folder"),
        ("fit parts --out new", "parts: this is a folder; say which of its folds to train on with --fold"),
        ("fit parts --fold 6 --out new", "--fold 6: parts has 5 folds"),
        ("fit foreign --fold 1 --out new", "foreign: neither Fold1..Fold5 folders nor the files S1.txt..S5.txt"),
        ("fit train.txt --fold 1 --out new", "train.txt: "),
    ],
)
def test_bad_input_ends_with_one_message_and_nothing_written(place: Path, command: str, message: str) -> None:
    before = contents(place)
    done = run(place, *command.split())
    changed = contents(place)
    shutil.rmtree(place / "new", ignore_errors=True)
    assert message in refused(done)
    assert changed == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("fit parts --fold 0 --out new", "--fold"),
        ("fit train.txt", "--out"),
        ("rank", "model"),
        ("train", "train"),
    ],
)
def test_a_command_typed_wrongly_ends_with_how_it_is_meant(place: Path, command: str, message: str) -> None:
    before = contents(place)
    done = run(place, *command.split())
    assert done.returncode == 2
    assert "Usage: querywise" in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(place) == before


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_behind_standard_output_is_a_message_and_not_a_success(place: Path) -> None:
    with open("/dev/full", "w") as full:
        done = run_process(place, "rank", "model", "train.txt", stdout=full)
    assert done.returncode != 0
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("arguments", ["--version", "--help", "rank model train.txt"])
@pytest.mark.parametrize("output", ["> /dev/full", ">&-"])
def test_output_that_cannot_be_written_is_one_line(place: Path, arguments: str, output: str) -> None:
    command = f"{sys.executable} -m querywise {arguments} {output}"
    done = subprocess.run(["bash", "-c", command], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_letters_that_an_output_lacks_are_escaped(tmp_path: Path) -> None:
    save_index(build_index([Document("d1", "\xe4pfel", "apple")]), tmp_path / "index")
    words = [sys.executable, "-m", "querywise", "search", "index", "apple"]
    surroundings = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env=surroundings)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\xe4pfel" in done.stdout


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """A hint, and what a library written in C prints, would otherwise be written into a file of the user's."""
    program = (
        "import os, sys; from querywise import cli, __main__\n"
        "def main():\n"
        "    with open('own', 'w'):\n"
        "        for number in (1, 2):\n"
        "            try: os.write(number, b'noise')\n"
        "            except OSError: pass\n"
        "        sys.stderr.write('a hint')\n"
        "cli.commands = lambda: main; sys.argv = ['querywise']; __main__.main()"
    )
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -c {shlex.quote(program)} <&- >&- 2>&-"], cwd=tmp_path, check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "own").read_bytes() == b""


@pytest.mark.parametrize("module", ["typer", "querywise.cli.fitting", "typer.main"])
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_before_a_command_runs_ends_without_a_traceback(module: str) -> None:
    program = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from querywise.__main__ import main\n"
        "sys.argv = ['querywise', 'methods']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Processes started here can be interrupted even where the tests themselves run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def feed(process: subprocess.Popen[str], pipe: Path, content: bytes) -> None:
    """Write to a pipe as soon as the process reads from it, so that it is known to be at work."""
    while process.poll() is None:
        try:
            handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.02)
            continue
        os.set_blocking(handle, True)
        with open(handle, "wb") as out:
            out.write(content)
        return


@pytest.mark.slow
def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process says when it is interrupted, once more if a library it was just importing let the first one go."""
    for _ in range(6):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=15)
    raise AssertionError("the process goes on, whatever it is sent")


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_training_keeps_the_older_model(place: Path, tmp_path: Path) -> None:
    write_letor(tmp_path / "large.txt", make_judged(200, 20, FEATURES))
    shutil.copytree(place / "model", tmp_path / "model")
    before = contents(tmp_path / "model")
    os.mkfifo(tmp_path / "pipe.txt")
    settings = ["--out", "model", "--method", "lambdamart", "--set", "trees=100000000"]
    process = begun(tmp_path, "fit", "pipe.txt", *settings)
    try:
        feed(process, tmp_path / "pipe.txt", (tmp_path / "large.txt").read_bytes())
        time.sleep(1.5)
        printed, complaint = interrupted(process)
    finally:
        process.kill()
    assert process.returncode == 130
    assert complaint == "error: interrupted; what was being written has not been changed.\n"
    assert printed == ""
    assert contents(tmp_path / "model") == before
    assert len(load(tmp_path / "model").predict(read_letor(place / "train.txt").candidates)) == ROWS
