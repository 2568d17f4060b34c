"""Every write, with each of its file operations failing in turn, the process killed there, or the disk full.

Then the old or the new must be there whole, and the next attempt must succeed and leave nothing else behind.
`python -m tests.failing_disks FOLDER NAME …` kills the writes of these names everywhere and prints what it found.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from querywise.clicks.identifiable import what_is_known
from querywise.clicks.impressions import Coder, ImpressionRows, Notes, assembled
from querywise.clicks.judgments import judge
from querywise.data.click_files import logged_events
from querywise.data.click_judgments import read_gains, read_manifest
from querywise.data.collections import Collection, Document, read_collection, write_collection
from querywise.data.fields import Fields, FieldSpec, read_fields, write_fields
from querywise.data.folds import make_folds, write_parts
from querywise.data.judge_log import Line
from querywise.data.judged import Judged
from querywise.data.judgements import read_grades, write_judgements
from querywise.data.letor import read_letor, write_letor
from querywise.data.parquet.shards import open_shards
from querywise.data.parquet.tables import read_scored
from querywise.data.parquet.writing import write_shards
from querywise.data.query_table import QueryTable, read_queries, write_queries
from querywise.data.runs import read_run
from querywise.data.synthetic import make_judged
from querywise.errors import Hint, QuerywiseError
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.next_judgments import Pair
from querywise.evaluation.pace import Times
from querywise.evaluation.resume import Kept
from querywise.evaluation.trained import Trained
from querywise.exports.routing import HybridRouter
from querywise.exports.writing import SCRIPT, TABLES, export_hybrid, export_model
from querywise.jobs import demo
from querywise.jobs.adapt import apply, export
from querywise.jobs.boosts import LearnedBoosts
from querywise.jobs.boosts import write as write_boosts
from querywise.jobs.clicks import ClickOptions, LogFindings
from querywise.jobs.clicks import write as write_clicks
from querywise.jobs.evaluate import write_scored
from querywise.jobs.judging import read_draw, write_draw
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.measures.score_files import write_run, write_scores
from querywise.online import log as log_module
from querywise.online.log import EventLog, click_record
from querywise.rankers.knn import KnnOffline2
from querywise.rankers.single import OneFeature
from querywise.rankers.weights.fusion import EqualWeights
from querywise.retrieval.adapted_vectors import AdaptedVectors
from querywise.retrieval.boosts import Boosts, read_boosts
from querywise.retrieval.embedders.remote import KeptVectors
from querywise.retrieval.index import Index, build_index, load_index, save_index
from querywise.retrieval.indexed_vectors import vectors_of, with_usearch
from querywise.retrieval.words import Tokeniser
from querywise.runtime.resume import Record, _Store
from querywise.service.api import ApiError
from querywise.service.judging import JudgementFile, JudgesFile
from querywise.service.schema import KnownQuery
from querywise.storage import load, save
from querywise.storage.models import promote
from tests.worlds import as_runs

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_KILLED, _WRONG, _HELD_UP = 77, 78, 60  # codes of a process that ended as it should, or by an error; seconds
_USERS = {"written", "written/querywise"}  # what users name, or may move: links there are followed
_named: list[Path] = []  # while names are collected: those of what is made, written or renamed
_collecting: list[bool] = []
_counting: list[int] = []  # while operations are counted: those so far, and the one that fails
_kills: list[bool] = []  # whether the process ends there


def _watch(event: str, details: tuple[Any, ...]) -> None:
    """Before a file is changed, or opened for writing: fail if it is this operation's turn."""
    if not _counting and not _collecting:
        return
    if event in _CHANGES or (event == "open" and isinstance(details[2], int) and details[2] & _WRITES):
        if _collecting:
            _named.extend(Path(os.fsdecode(each)) for each in details[:2] if isinstance(each, (str, bytes, Path)))
        if _counting:
            _turn(event)


def _turn(event: str) -> None:
    _counting[0] += 1
    if _counting[0] == _counting[1]:
        if _kills:
            os._exit(_KILLED)
        raise OSError(errno.ENOSPC, f"No space left on device ({event})")


sys.addaudithook(_watch)


@contextlib.contextmanager
def failing_at(number: int) -> Iterator[None]:
    """The operation of this number fails, counted from 1: opening for writing, renaming, removing, synchronising, …"""
    original = os.fsync

    def fsync(fd: Any) -> None:
        if _counting:
            _turn("fsync")
        original(fd)

    _counting[:] = [0, number]
    os.fsync = fsync
    try:
        yield
    finally:
        os.fsync = original
        _counting.clear()


@dataclass(frozen=True)
class Write:
    """Something that is written in place of what was written before: by a number, which reading tells again.

    long: it takes seconds to try every operation. quiet: what cannot be written is not told. anew: reading gives 0
    where it is to be computed anew. counted: reading gives how many are there.
    """

    write: Callable[[Path, int], Any]
    read: Callable[[Path], int]
    long: bool = False
    quiet: bool = False
    anew: bool = False
    counted: bool = False


@cache
def data(number: int) -> Judged:
    return make_judged(3 + number, 4, 3)


@cache
def fitted(number: int) -> Any:
    return RankSVM(float(number)).fit(data(1))


@cache
def local(number: int) -> Any:
    return KnnOffline2(RankSVM(), k=2, models=number).fit(make_judged(8, 4, 3))


@cache
def fused(number: int) -> Any:
    return EqualWeights().fit(as_runs(make_judged(3, 4, 1 + number), tuple("abc"[: 1 + number])))


@cache
def indexed(number: int) -> Index:
    return build_index([Document(f"d{each}", "", "cat") for each in range(number)])


@cache
def searched(number: int) -> Index:
    from tests.support.vectors import indexed

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a hint at its recall
        return with_usearch(indexed(seed=number))


@cache
def found(number: int) -> Any:
    from tests.support.ranks import planted

    return planted(base=[1, 2, 5, 10], other=[10, 4, 3, number])


def documents(index: Index) -> int:
    """1 or 2, whichever of the indexes with a graph it is; the graph is read and checked too."""

    def first(index: Index) -> list[float]:
        vectors = vectors_of(index)
        assert vectors is not None
        found: list[float] = np.asarray(vectors.of(np.array([0])))[0].tolist()
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return next(each for each in (1, 2) if first(index) == first(searched(each)))


def judged(path: Path, number: int, **settings: int) -> None:
    JudgementFile(path, **settings).judge(KnownQuery("q", "jaguar"), "D1", number)


def compacted(path: Path, number: int) -> None:
    file = JudgementFile(path, whole_bytes=0)
    file.judge(KnownQuery("q", "jaguar"), "D1", number)
    file.compact()


def judged_by_name(path: Path, number: int) -> None:
    JudgesFile(path).keep(lambda _: Line("ann", "q", "D1", number, ""))


def grade_of(path: Path) -> int:
    return read_grades(path)["q"]["D1"]


@cache
def adapter(number: int) -> AdaptedVectors:
    queries, documents = np.eye(4), np.eye(4)[::-1].copy()
    made = AdaptedVectors("by-query", gamma=float(number), l2=0.01, gate=False)
    return made.fit(queries, documents, {str(each): {"0": 1.0} for each in range(3)})


@cache
def judged_by(number: int) -> Any:
    row, pages = np.zeros(4, np.int32), np.arange(4, dtype=np.int32) // 2
    asked = ClickOptions(model="document-ctr", borrow="off")
    queries, documents = Coder(), Coder()
    codes = queries.codes(["sofa", "sofa", "chair", "chair"]), documents.codes(["a", "b", "a", "b"])
    clicks = np.array([True, False, number == 1, number == 2])
    log = assembled(
        ImpressionRows(*codes, row - 1, clicks, pages, np.full(4, np.nan), None), queries, documents, Notes()
    )
    known = what_is_known(log)
    return LogFindings(log, log.bots(), {}, known, judge(log, "document-ctr", known), None), asked


def most_gained(folder: Path) -> int:
    """1 or 2: which of the documents of the second query has more."""
    gains = read_gains(folder)["chair"]
    assert read_manifest(folder)["model"] == "document-ctr"
    assert len(read_queries(folder / "queries.jsonl")) == 2
    return 1 if gains["a"].gain > gains["b"].gain else 2


def boosted(number: int) -> LearnedBoosts:
    boosts = Boosts("most_fields", {"title": float(number)})
    return LearnedBoosts(boosts, {}, data(1), {}, {}, None, {}, Tokeniser("english"))


@cache
def fold() -> Any:
    return make_folds(data(9))[0]


def keep(folder: Path, number: int) -> None:
    scores = np.full(len(fold().test.labels), float(number))
    Kept(folder, {"ours": {}}).put(0, "ours", fold(), Trained(scores, 1.0, 1.0))


def kept(folder: Path) -> int:
    read = Kept(folder, {"ours": {}}).get(0, "ours", fold())
    return 0 if read is None else int(read.scores[0])


def keep_part(folder: Path, number: int, part: Any) -> None:
    folder.mkdir(exist_ok=True)
    _Store(folder, save, load).put("part", part)


def kept_part(folder: Path, number_of: Callable[[Any], int]) -> int:
    part = _Store(folder, save, load).get("part")
    return 0 if part is None else number_of(part)


def keep_vectors(folder: Path, number: int) -> None:
    KeptVectors(folder, "model").add([f"text {number}"], np.full((1, 3), number, np.float32))


def kept_vectors(folder: Path) -> int:
    return len(KeptVectors(folder, "model").found(["text 1", "text 2"]))


def fit(train: Judged, valid: Judged) -> Any:
    raise AssertionError("nothing is fitted here")


def keep_times(folder: Path, number: int) -> None:
    with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder)}):
        Times().keep([("method", fit, data(1), float(number))])


def kept_times(folder: Path) -> int:
    with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder)}):
        return int(Times().seconds("method", fit, data(1)) or 0)


def keep_demo_times(folder: Path, number: int) -> None:
    with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder)}):
        demo._timed("few-1", float(number))


def kept_demo_times(folder: Path) -> int:
    with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder)}):
        return int(demo._known_times().get("few-1", 0))


def write_some(path: Path, number: int) -> None:
    write_collection(
        Collection("docs", partial(iter, [Document(f"d{each}", "", "cat") for each in range(number)])), path
    )


@cache
def better(number: int) -> Path:
    folder = Path(tempfile.mkdtemp()) / "model"
    save(fitted(number), folder)
    return folder


def promoted(path: Path, number: int) -> None:
    models = [better(each) for each in (1, 2)]  # both are made with the first write, before any fault
    promote(models[number - 1], path)


def click(path: Path, number: int) -> None:
    log = EventLog(path)
    try:
        done = log.add(lambda: click_record("impression", f"D{number}", "click", None, 0.0), 100, awaited=True)
        assert done is not None
        done.result()
    finally:
        log.close()


def click_and_pack(path: Path, number: int) -> None:
    click(path, number)
    for each in path.glob("*.ndjson"):
        log_module._packed(each)


def clicked(path: Path) -> int:
    found = (record["event_attributes"] for _, record in logged_events(path))
    return len({each["object"]["object_id"] for each in found})  # type: ignore[index,call-overload]


def report(path: Path, number: int) -> None:
    from querywise.report.writing import write_report

    write_report(found(number), path, title=f"number {number}")


def queries_beside(path: Path) -> Path:
    """Query vectors in a file, written before any fault."""
    place = path.parent.parent / "queries.npy"
    if not place.exists():
        np.save(place, np.eye(4))
    return place


def moved_by_adapter(path: Path) -> int:
    return next(each for each in (1, 2) if np.array_equal(np.load(path), adapter(each).transform(np.eye(4))))


def with_fields(number: int) -> Collection:
    known = Fields((FieldSpec("maker", "keyword"),))
    every = [Document(f"d{each}", "", "", values={"maker": ("acme",)}) for each in range(number)]
    return Collection("docs", partial(iter, every), fields=known)


def constant(number: int) -> Judged:
    """A set whose first feature is the number throughout."""
    whole = data(1)
    features = np.full_like(whole.candidates.features, float(number))
    return Judged(type(whole.candidates)(features, whole.candidates.starts, whole.query_ids), whole.labels)


WRITES = {
    "a model": Write(
        lambda path, number: save(fitted(number), path),
        lambda path: int(load(path).l2),  # type: ignore[attr-defined]
    ),
    "a promoted model": Write(
        promoted,
        lambda path: int(load(path).l2),  # type: ignore[attr-defined]
    ),
    "an index": Write(
        lambda path, number: save_index(indexed(number), path), lambda path: len(load_index(path)), long=True
    ),
    "an index with a graph": Write(
        lambda path, number: save_index(searched(number), path), lambda path: documents(load_index(path)), long=True
    ),
    "shards": Write(
        lambda path, number: write_shards([data(number)], path, rows=5),
        lambda path: len(open_shards(path).whole()) - 3,
        long=True,
    ),
    "features": Write(lambda path, number: write_letor(path, data(number)), lambda path: len(read_letor(path)) - 3),
    "a folder of features": Write(
        lambda path, number: write_parts(make_judged(9 + number, 3, 2), path),
        lambda path: sum(len(read_letor(path / f"S{part}.txt")) for part in range(1, 6)) - 9,
        long=True,
    ),
    "judgements": Write(lambda path, number: write_judgements(path, ("q",), ({"D1": number},)), grade_of),
    "queries": Write(
        lambda path, number: write_queries(path, QueryTable(("a", "b")[:number], texts=("cat", "dog")[:number])),
        lambda path: len(read_queries(path)),
    ),
    "a collection": Write(write_some, lambda path: sum(1 for _ in read_collection(path).documents())),
    "a run": Write(
        lambda path, number: write_run(path, constant(number).candidates, constant(number).candidates.features[:, 0]),
        lambda path: int(next(iter(next(iter(read_run(path).scores.values())).values()))),
    ),
    "scores": Write(
        lambda path, number: write_scores(path, np.full(3, float(number))),
        lambda path: int(float(path.read_text().split()[0])),
    ),
    "scores in Parquet": Write(
        lambda path, number: write_scored(OneFeature(1).fit(constant(1)), f"{number}", constant(number), path),
        lambda path: int(read_scored(path).scores[0]),
        long=True,
    ),
    "an evaluation": Write(
        lambda path, number: evaluate(np.zeros(len(data(number).labels)), data(number)).write_csv(path),
        lambda path: len(path.read_text().splitlines()) - 4,
    ),
    "an evaluation in JSON": Write(
        lambda path, number: evaluate(np.zeros(len(data(number).labels)), data(number)).write_json(path),
        lambda path: len(json.loads(path.read_text())["queries"]) - 3,
    ),
    "a report": Write(
        report,
        lambda path: next(each for each in (1, 2) if f"number {each}" in (path / "report.html").read_text()),
        long=True,
    ),
    "an export": Write(
        lambda path, number: export_hybrid(fused(number), "postgres", path),
        lambda path: len(HybridRouter(path).weights("x")) - 1,
        long=True,
    ),
    "a routed export": Write(
        lambda path, number: export_model(local(number), "opensearch", path, rows=2),
        lambda path: load(path / "model").models,  # type: ignore[attr-defined]
        long=True,
    ),
    "a grade": Write(judged, grade_of),
    "a grade in a log": Write(lambda path, number: judged(path, number, whole_bytes=0), grade_of),
    "a grade of a judge with a name": Write(judged_by_name, grade_of),
    "a log that is compacted": Write(compacted, grade_of),
    "a click": Write(click, clicked, counted=True),
    "a click that is packed": Write(click_and_pack, clicked, counted=True),
    "a finished fold": Write(keep, kept, anew=True),
    "a finished array": Write(
        lambda path, number: keep_part(path, number, np.full(3, float(number))),
        lambda path: kept_part(path, lambda part: int(part[0])),
        anew=True,
    ),
    "a finished model": Write(
        lambda path, number: keep_part(path, number, fitted(number)),
        lambda path: kept_part(path, lambda part: int(part.l2)),
        anew=True,
    ),
    "a record": Write(
        lambda path, number: Record(path, {}).write({"number": number}),
        lambda path: int((Record(path, {}).read() or {"number": 0})["number"]),  # type: ignore[arg-type]
    ),
    "an adapter": Write(
        lambda path, number: save(adapter(number), path),
        lambda path: int(load(path).gamma),  # type: ignore[attr-defined]
    ),
    "an exported adapter": Write(
        lambda path, number: export(adapter(number), path),
        lambda path: int(np.load(path / TABLES)["gamma"] if (path / SCRIPT).is_file() else 0),
    ),
    "adapted vectors": Write(lambda path, number: apply(adapter(number), queries_beside(path), path), moved_by_adapter),
    "judgments from clicks": Write(
        lambda path, number: write_clicks(path, *judged_by(number), report=number == 2), most_gained, long=True
    ),
    "fields of documents": Write(
        lambda path, number: write_fields(path, Fields((FieldSpec("a", "text", weight=float(number)),)), {}),
        lambda path: int(read_fields(path).specs[0].weight),
    ),
    "a collection with fields": Write(
        lambda path, number: write_collection(with_fields(number), path),
        lambda path: int(sum(1 for _ in read_collection(path).documents())),
    ),
    "boosts": Write(
        lambda path, number: write_boosts(boosted(number), path),
        lambda path: int(read_boosts(path, ["title"]).boosts["title"]),
    ),
    "a draw of what to judge": Write(
        lambda path, number: write_draw(path, [Pair("q", "d", 1.0, float(number))]),
        lambda path: int(read_draw(path)[0].priority),
    ),
    "vectors that are kept": Write(keep_vectors, kept_vectors, counted=True),
    "times that are kept": Write(keep_times, kept_times, quiet=True),
    "times of the demonstration": Write(keep_demo_times, kept_demo_times, quiet=True),
}
SHORT = tuple(name for name, each in WRITES.items() if not each.long)


@dataclass
class Tried:
    """How many faults a write was tried with, what was wrong afterwards, and what was told."""

    points: int = 0
    problems: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)


# Runs a write with the fault of a number, from 1; whether there is none of this number, and what was told or is wrong.
Fault = Callable[[Callable[[], Any], int], tuple[bool, str]]


def tried(name: str, root: Path, fault: Fault) -> Tried:
    """What becomes of a write under every fault of a kind."""
    each, outcome, done = WRITES[name], Tried(), False
    while not done:
        outcome.points += 1
        folder = root / f"{outcome.points}"
        folder.mkdir(parents=True)
        path = folder / "written"
        each.write(path, 1)
        there = _names(folder)
        try:
            done, told = fault(partial(each.write, path, 2), outcome.points)
            outcome.told += [told] if told else []
            after = each.read(path)
            _must(after in ({2} if done and not told else {1, 2} | ({0} if each.anew else set())), f"{after} is there")
            each.write(path, 2)
            _must(each.read(path) == 2, "the next attempt is not there")
            left = _names(folder) - there - _names(folder, hidden=False)
            _must(not left, f"{sorted(left)} are left behind")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            outcome.problems.append(f"{name}, fault {outcome.points}: {type(error).__name__}: {error}")
            done = done or len(outcome.problems) > 20
    outcome.points -= 1
    return outcome


def _must(right: bool, otherwise: str) -> None:
    if not right:
        raise AssertionError(otherwise)


def failing(write: Callable[[], Any], number: int) -> tuple[bool, str]:
    """The operation of this number fails."""
    told = ""
    with failing_at(number):
        try:
            write()
        except (QuerywiseError, ApiError) as error:
            told = str(error)
        return _counting[0] < number, told


def full(write: Callable[[], Any], number: int) -> tuple[bool, str]:
    """No file may have more than so many bytes: 0, 1, 2, 4, 8, … up to where all have room."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    told = ""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0 if number == 1 else 2 ** (number - 2), before[1]))
    try:
        write()
    except (QuerywiseError, ApiError) as error:
        told = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    return number > 24, told


def killed(write: Callable[[], Any], number: int) -> tuple[bool, str]:
    """The process ends at the operation of this number, at once."""
    child = os.fork()
    if not child:
        signal.alarm(_HELD_UP)
        _kills.append(True)
        code = _WRONG
        try:
            with failing_at(number):
                write()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _must(code in (0, _KILLED), f"the process ended with {code}")
    return code == 0, ""


def killed_everywhere(root: Path, names: Sequence[str]) -> dict[str, Tried]:
    """What becomes of these writes when they are killed, in forks of another process, which has no threads yet."""
    command = [sys.executable, "-m", "tests.failing_disks", str(root), *names]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent)
    return {name: Tried(**each) for name, each in json.loads(done.stdout).items()}


def names_written(name: str, folder: Path) -> list[str]:
    """Every name that a write makes, opens or renames, first of a new place and then in place of an older one.

    Those that users name themselves are left out, and all but one within a folder that is not yet in its place.
    """
    folder.mkdir()
    _named.clear()
    _collecting.append(True)
    try:
        for number in (1, 2):
            WRITES[name].write(folder / "written", number)
    finally:
        _collecting.clear()
    inside = {str(each.relative_to(folder)) for each in _named if each.is_relative_to(folder)}
    hidden = {each: next((one for one in Path(each).parents if one.name.startswith(".")), None) for each in inside}
    within = {folder: each for each, folder in sorted(hidden.items()) if folder is not None}
    return sorted({each for each, folder in hidden.items() if folder is None} - {"."} - _USERS | set(within.values()))


def linked(name: str, root: Path) -> Tried:
    """What becomes of a write where each of the names it uses is a link to something else of the user's."""
    outcome = Tried()
    cases = itertools.product(names_written(name, root / "names"), _LINKS.items(), (False, True))
    for own, (kind, link), there in cases:
        outcome.points += 1
        folder, mine = root / f"{outcome.points}" / "folder", root / f"{outcome.points}" / "mine"
        (mine / "deep").mkdir(parents=True)
        folder.mkdir()
        for file in (mine / "thesis", mine / "deep" / "notes"):
            file.write_text("precious")
            file.chmod(0o640)
        if there:
            WRITES[name].write(folder / "written", 1)
        planted = folder / own
        planted.parent.mkdir(parents=True, exist_ok=True)
        if planted.is_dir():
            shutil.rmtree(planted)
        planted.unlink(missing_ok=True)
        before = _states(mine)
        link(planted, mine)
        told = ""
        try:
            WRITES[name].write(folder / "written", 2)
        except (QuerywiseError, ApiError, Hint) as error:
            told = str(error)
            outcome.told.append(told)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            told = f"{type(error).__name__}: {error}"
            outcome.problems.append(f"{name}, {own} as {kind}: {told}")
        if _states(mine) != before:
            outcome.problems.append(f"{name}, {own} as {kind}: what it leads to was changed ({told or 'no error'})")
        if (folder / "written").is_symlink():
            outcome.problems.append(f"{name}, {own} as {kind}: the output is a link now")
        unsure = WRITES[name].quiet or WRITES[name].counted
        if not told and not unsure and WRITES[name].read(folder / "written") != 2:
            outcome.problems.append(f"{name}, {own} as {kind}: it was not written, and this was not told")
    return outcome


_LINKS: dict[str, Callable[[Path, Path], None]] = {
    "a link to a file": lambda path, mine: path.symlink_to(mine / "thesis"),
    "a link to a folder": lambda path, mine: path.symlink_to(mine),
    "a link to a new name": lambda path, mine: path.symlink_to(mine / "new"),
    "a second name of a file": lambda path, mine: path.hardlink_to(mine / "thesis"),
}


def _states(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(each.relative_to(folder)): (each.stat().st_mode, each.read_bytes() if each.is_file() else b"")
        for each in folder.rglob("*")
    }


def _names(folder: Path, *, hidden: bool = True) -> set[str]:
    names = (str(each.relative_to(folder)) for each in folder.rglob("*"))
    return {each for each in names if hidden or not any(part.startswith(".") for part in Path(each).parts)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of a fork where there are threads: none of them holds anything here
    print(json.dumps({name: asdict(tried(name, Path(sys.argv[1]) / name, killed)) for name in sys.argv[2:]}))
