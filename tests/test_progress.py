from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from querywise.data.folds import split
from querywise.data.letor import write_letor
from querywise.data.synthetic import make_judged
from querywise.evaluation import pace
from querywise.evaluation.compare import compare
from querywise.evaluation.pace import Times
from querywise.evaluation.tuning import TunedFit
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.runtime import progress
from querywise.runtime.progress import Lines, Ongoing, duration
from tests.commands import plain


class Screen:
    """Remembers what would have been drawn."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, label: str, total: int | None, unit: str = "") -> int:
        self.seen.append(f"begin {label}")
        return len(self.seen)

    def advance(self, task: int) -> None:
        raise AssertionError("nothing to count")

    def end(self, task: int) -> None:
        self.seen.append("end")

    def expect(self, label: str, seconds: float) -> None:
        raise AssertionError("nothing to expect")

    def say(self, text: str) -> None:
        raise AssertionError("nothing to say")


@pytest.fixture
def screen() -> Iterator[Screen]:
    drawn = Screen()
    progress._on_screen.append(drawn)
    yield drawn
    progress._on_screen.remove(drawn)


def test_what_goes_on_several_times_at_once_is_shown_once(screen: Screen) -> None:
    work = Ongoing("Compiling")
    work.begin()
    work.begin()
    work.end()
    assert screen.seen == ["begin Compiling"]
    work.end()
    assert screen.seen == ["begin Compiling", "end"]


def test_without_a_screen_nothing_happens() -> None:
    work = Ongoing("Compiling")
    work.begin()
    work.end()


@pytest.mark.slow
def test_compilation_is_announced_the_first_time_and_not_the_second(tmp_path: Path) -> None:
    script = """
import querywise.runtime.progress as progress
class Screen:
    def begin(self, label, total, unit=""): print(label)
    def end(self, task): pass
progress._on_screen.append(Screen())
import numpy as np
from querywise.rankers.ensemble.active_sets import scalar_product
scalar_product(np.ones(2), np.ones(2), 0, 2)
"""
    command = [sys.executable, "-c", script]
    fresh = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True, env=fresh).stdout for _ in range(2)
    )
    assert "Compiling, the first time only" in first
    assert second == ""


# A line after a tenth of a second instead of ten, and estimates however short the rest: a test need not last.
SOON = """
import querywise.evaluation.pace as pace
import querywise.runtime.progress as lines
lines.FIRST, lines.EVERY, pace.LONG, pace.SOON = 0.1, 0.2, 0.0, 0.0
from querywise.cli import main
main()
"""
COMPARE = ["compare", "data.txt", "--methods", "single,knn-offline-2,ranksvm"]
LINE = re.compile(r"progress: after \d+ s: .+")


def redirected(folder: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    """A command whose output goes to a pipe, which says soon how far it is."""
    known = {name: value for name, value in plain().items() if name != progress.SWITCH}
    known["XDG_CACHE_HOME"] = str(folder / "cache")
    command = [sys.executable, "-c", SOON, *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=folder, env=known | environment, text=True, **pipes)  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Processes started here can be interrupted even where the tests themselves run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("progress")
    write_letor(folder / "data.txt", make_judged(60, 10, 5, seed=3))
    return folder


@pytest.mark.slow
def test_a_redirected_comparison_says_how_far_it_is_and_about_how_long_it_takes(place: Path, tmp_path: Path) -> None:
    printed, said = redirected(place, *COMPARE, XDG_CACHE_HOME=str(tmp_path)).communicate(timeout=120)
    lines = [line for line in said.splitlines() if not line.startswith("hint: ")]
    assert all(line.startswith("progress: ") for line in lines), said
    assert any(LINE.fullmatch(line) and "Folds (" in line and "about" in line for line in lines), said
    first, second = (line for line in lines if not LINE.fullmatch(line))
    assert first == (
        "progress: 3 methods on 5 folds: how long this takes is not known yet, and will be after the first fold; "
        "not timed on this machine before: single, knn-offline-2, ranksvm"
    )
    assert re.fullmatch(r"progress: fold 1 of 5 took \d+ s; the other 4 about .+ more", second)
    assert "progress" not in printed
    again = redirected(place, *COMPARE, XDG_CACHE_HOME=str(tmp_path)).communicate(timeout=120)[1]
    known = r"progress: 3 methods on 5 folds: about .+ \(.+: .+\), going by earlier comparisons on this machine"
    assert re.search(f"^{known}$", again, re.MULTILINE), again
    assert "not timed" not in again
    more = redirected(place, *COMPARE[:-1], "single,bm25,ranksvm", XDG_CACHE_HOME=str(tmp_path))
    assert "not timed on this machine before: bm25\n" in more.communicate(timeout=120)[1]


@pytest.fixture
def times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of times, in a folder of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "querywise" / "times.json"


SMALL, LARGE = make_judged(20, 10, 5), make_judged(80, 10, 5)


def test_a_time_is_scaled_from_the_most_similar_size(times: Path) -> None:
    one, three = (TunedFit(RankSVM, {"l2": values}) for values in ([1.0], [0.1, 1.0, 10.0]))
    assert Times().seconds("svm", one, SMALL) is None
    Times().keep([("svm", one, SMALL, 2.0)])
    assert Times().seconds("svm", one, SMALL) == 2.0
    assert Times().seconds("svm", one, LARGE) == pytest.approx(8.0), "four times the documents"
    assert Times().seconds("svm", three, SMALL) == pytest.approx(6.0), "three settings are tried"
    Times().keep([("svm", one, LARGE, 100.0)])
    assert Times().seconds("svm", three, LARGE) == pytest.approx(300.0)
    assert Times().seconds("svm", one, SMALL) == 2.0
    assert Times().seconds("other", one, SMALL) is None
    assert Times().seconds("svm", TunedFit(RankSVM, {}, fixed={"l2": 1.0}), SMALL) is None, "other settings"


def test_a_grid_tried_on_a_sample_is_timed_as_one(times: Path) -> None:
    few, many = make_judged(1_000, 2, 2), make_judged(4_000, 2, 2)
    grid = TunedFit(RankSVM, {"l2": [0.1, 1.0, 10.0]})
    Times().keep([("svm", grid, few, 3.0)])
    on_a_sample = 3 * 800 + 4_000  # queries fitted on, where 1,000 queries were fitted on three times
    assert Times().seconds("svm", grid, many) == pytest.approx(3.0 * on_a_sample / 3_000)


def test_nothing_is_said_of_a_training_part_far_from_all_that_were_timed(times: Path) -> None:
    fit = TunedFit(RankSVM, {})
    Times().keep([("svm", fit, make_judged(2, 5, 5), 0.1)])
    assert Times().seconds("svm", fit, LARGE) is None, "eighty times the documents"
    assert Times().seconds("svm", fit, SMALL) == pytest.approx(2.0)


def test_the_file_of_times_holds_no_names(times: Path) -> None:
    Times().keep([("run secret-project.trec", TunedFit(RankSVM, {}, fixed={"view": "/home/me"}), SMALL, 1.0)])
    text = times.read_text()
    assert re.fullmatch(r'\{"[0-9a-f]{16}": \[\[20, 200, 5, 1, 1\.0\]\]\}', text), text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"a": 3}',
        b'{"a": [[1, 2]]}',
        b'{"a": [[1, 0, 3, 4, 5]]}',
        b'{"a": [[1, 2, 3, 4, NaN]]}',
    ],
)
def test_a_damaged_file_of_times_is_as_good_as_none(times: Path, content: bytes) -> None:
    times.parent.mkdir(parents=True)
    times.write_bytes(content)
    fit = TunedFit(RankSVM, {})
    assert Times().seconds("svm", fit, SMALL) is None
    Times().keep([("svm", fit, SMALL, 2.0)])
    assert Times().seconds("svm", fit, SMALL) == 2.0


def test_times_that_cannot_be_written_are_not_missed(times: Path) -> None:
    times.parent.parent.mkdir()
    times.parent.write_text("a file where the folder should be")
    Times().keep([("svm", TunedFit(RankSVM, {}), SMALL, 2.0)])
    assert Times().seconds("svm", TunedFit(RankSVM, {}), SMALL) is None


def test_nothing_is_kept_where_no_progress_is_shown(times: Path) -> None:
    compare([RankSVM()], *split(SMALL))
    assert not times.exists()


def test_a_line_says_what_is_counted() -> None:
    shown = Lines()
    shown.advance(shown.begin("Explaining rankings", 114, "queries"))
    shown.begin("Folds", 5)
    assert "Explaining rankings: 1 of 114 queries, Folds (0 of 5 done)" in shown._line(time.monotonic())


def test_a_line_says_that_the_rest_is_not_known_until_it_is() -> None:
    shown = Lines()
    shown.begin("Indexing", None)
    assert "known" not in shown._line(time.monotonic()), "nothing is counted"
    task, now = shown.begin("Folds", 5), time.monotonic()
    assert shown._line(time.monotonic()).endswith("Folds (0 of 5 done); how much longer is not known yet")
    shown.expect("Folds", 600.0)
    assert shown._line(now + 60).endswith("Folds (0 of 5 done); about 9 min more")
    assert shown._line(now + 700).endswith("; how much longer is not known yet"), "it took longer than expected"
    shown.advance(task)
    assert re.search(r"Folds \(1 of 5 done\); about .+ more$", shown._line(time.monotonic()))


@pytest.mark.slow
@pytest.mark.parametrize("off", ["option", "environment"])
def test_progress_can_be_turned_off(place: Path, off: str) -> None:
    words = ["compare", "data.txt", "--methods", "single", "--set", "l2=1"]
    switch = {progress.SWITCH: "off"} if off == "environment" else {}
    process = redirected(place, *words, *([] if switch else ["--quiet"]), **switch)
    said = process.communicate(timeout=120)[1]
    assert (process.returncode, said) == (0, "")


def test_short_work_says_nothing(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(progress.SWITCH, raising=False)
    with progress.shown():
        assert list(progress.track([1, 2], "Parts")) == [1, 2]
        with progress.doing("Something"):
            pass
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_comparison_says_what_is_kept_and_how_to_go_on(
    place: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "a report"
    process = redirected(place, *COMPARE, "--out", str(out), QUERYWISE_PROGRESS="off")
    try:
        while not (out / "runs" / "fold2-single.json").exists():
            assert process.poll() is None, "the command was over before it could be stopped"
            time.sleep(0.01)
        process.send_signal(number)
        printed, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, printed) == (code, "")
    again = f"The same command goes on from there: querywise {' '.join(COMPARE)} --out"
    words = re.escape(f"kept in {out / 'runs'}. {again}")
    assert re.fullmatch(rf"error: interrupted; \d+ of 15 results \(a method on a fold each\) are {words} '.+'\n", said)
    if number == signal.SIGTERM:
        goes_on(place, out)


SWALLOWING = """
import os, signal, sys, time
from querywise.runtime.progress import never_swallowed, stoppable

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(60)

with stoppable(), never_swallowed():
    try:
        thing = Finalized()
        del thing
        time.sleep(60)
    except KeyboardInterrupt as stop:
        print(type(stop).__name__)
"""


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "Terminated")])
def test_an_interrupt_within_a_finalizer_is_not_lost(number: signal.Signals, name: str) -> None:
    words = [sys.executable, "-c", SWALLOWING, str(int(number))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{name}\n", "")


def goes_on(place: Path, out: Path) -> None:
    """The same command again uses what was kept and ends with a report."""
    kept = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("fold1-*")}
    again = redirected(place, *COMPARE, "--out", str(out), QUERYWISE_PROGRESS="off")
    again.communicate(timeout=120)
    assert again.returncode == 0
    assert (out / "report.html").is_file()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_times_are_told_as_people_say_them() -> None:
    assert [duration(each) for each in (0.2, 8.3, 89, 100, 4000)] == ["1 s", "8 s", "89 s", "2 min", "1.1 h"]


@pytest.mark.slow
def test_a_redirected_command_names_compilation_as_such(place: Path, tmp_path: Path) -> None:
    words = ["fit", "data.txt", "--method", "listnet", "--out", str(tmp_path / "model")]
    process = redirected(place, *words, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 0, said
    assert "Compiling, the first time only" in said


def test_names_of_methods_are_said_without_commands_for_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(pace, "announce", said.append)
    pace.Pace(2, {"run": lambda train, valid: RankSVM()})._say("run a\x1b[31m")
    assert said == ["1 method on 2 folds: run a\\x1b[31m"]
