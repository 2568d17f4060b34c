"""Every write, with each of its file operations failing in turn: the old or the new is there, and the next succeeds."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.collections import Document
from querywise.data.folds import make_folds
from querywise.data.judged import Judged
from querywise.data.judgements import read_grades, write_judgements
from querywise.data.letor import read_letor, write_letor
from querywise.data.parquet.shards import open_shards
from querywise.data.parquet.writing import write_shards
from querywise.data.synthetic import make_judged
from querywise.errors import QuerywiseError
from querywise.evaluation.resume import Kept
from querywise.evaluation.trained import Trained
from querywise.exports.hybrid_folder import HybridRouter, export_hybrid
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.rankers.weights.fusion import EqualWeights
from querywise.retrieval.index import build_index, load_index, save_index
from querywise.service.errors import ApiError
from querywise.service.judging import JudgementFile
from querywise.service.schema import KnownQuery
from querywise.storage import load, save
from tests.worlds import as_runs

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_counting: list[int] = []  # while operations are counted: those so far, and the one that fails


def _watch(event: str, details: tuple[Any, ...]) -> None:
    """Before a file is changed, or opened for writing: fail if it is this operation's turn."""
    if _counting and (event in _CHANGES or (event == "open" and isinstance(details[2], int) and details[2] & _WRITES)):
        _turn(event)


def _turn(event: str) -> None:
    _counting[0] += 1
    if _counting[0] == _counting[1]:
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
    """Something that is written in place of what was written before: by a number, which reading tells again."""

    write: Callable[[Path, int], Any]
    read: Callable[[Path], int]


def data(number: int) -> Judged:
    return make_judged(3 + number, 4, 3)


def judged(path: Path, number: int, **settings: int) -> None:
    JudgementFile(path, **settings).judge(KnownQuery("q", "jaguar"), "D1", number)


def compacted(path: Path, number: int) -> None:
    file = JudgementFile(path, whole_bytes=0)
    file.judge(KnownQuery("q", "jaguar"), "D1", number)
    file.compact()


def grade_of(path: Path) -> int:
    return read_grades(path)["q"]["D1"]


FOLD = make_folds(data(9))[0]


def keep(folder: Path, number: int) -> None:
    scores = np.full(len(FOLD.test.labels), float(number))
    Kept(folder, {"ours": {}}).put(0, "ours", FOLD, Trained(scores, 1.0, 1.0))


def kept(folder: Path) -> int:
    found = Kept(folder, {"ours": {}}).get(0, "ours", FOLD)
    return 0 if found is None else int(found.scores[0])  # 0: it is computed anew


WRITES = {
    "a model": Write(
        lambda path, number: save(RankSVM(float(number)).fit(data(1)), path),
        lambda path: int(load(path).l2),  # type: ignore[attr-defined]
    ),
    "an index": Write(
        lambda path, number: save_index(build_index([Document(f"d{each}", "", "cat") for each in range(number)]), path),
        lambda path: len(load_index(path)),
    ),
    "shards": Write(
        lambda path, number: write_shards([data(number)], path, rows=5),
        lambda path: len(open_shards(path).whole()) - 3,
    ),
    "features": Write(lambda path, number: write_letor(path, data(number)), lambda path: len(read_letor(path)) - 3),
    "judgements": Write(
        lambda path, number: write_judgements(path, ("q",), ({"D1": number},)),
        lambda path: read_grades(path)["q"]["D1"],
    ),
    "an export": Write(
        lambda path, number: export_hybrid(
            EqualWeights().fit(as_runs(make_judged(3, 4, 1 + number), tuple("abc"[: 1 + number]))), "postgres", path
        ),
        lambda path: len(HybridRouter(path).weights("x")) - 1,
    ),
    "a grade": Write(judged, grade_of),
    "a grade in a log": Write(lambda path, number: judged(path, number, whole_bytes=0), grade_of),
    "a log that is compacted": Write(compacted, grade_of),
    "a finished fold": Write(keep, kept),
}


LONG = ("an index", "an export", "shards")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in WRITES]
)
def test_whichever_operation_fails_the_old_or_the_new_is_there_and_the_next_attempt_succeeds(
    name: str, tmp_path: Path
) -> None:
    each, number, said = WRITES[name], 0, list[str]()
    while True:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "written"
        each.write(path, 1)
        there = _names(folder)
        with failing_at(number):
            try:
                each.write(path, 2)
            except (QuerywiseError, ApiError) as error:
                said.append(str(error))
            done = _counting[0] < number
        assert each.read(path) in ({2} if done else {0, 1, 2}), f"operation {number}"
        each.write(path, 2)
        assert each.read(path) == 2, f"operation {number}"
        assert _names(folder) <= there | _names(folder, hidden=False), f"operation {number} leaves something behind"
        if done:
            break
    assert len(said) > 2
    assert not any("\n" in each for each in said)
    assert number > 4


def _names(folder: Path, *, hidden: bool = True) -> set[str]:
    found = (str(each.relative_to(folder)) for each in folder.rglob("*"))
    return {each for each in found if hidden or not any(part.startswith(".") for part in Path(each).parts)}
