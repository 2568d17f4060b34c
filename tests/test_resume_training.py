"""A training that was interrupted is resumed: finished local models are not trained again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.parquet.writing import write_shards
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.rankers.clusters import Naive
from querywise.rankers.knn import KnnOffline2
from querywise.runtime.parameters import unfitted
from querywise.runtime.resume import _Store, content, finish_calls, finish_jobs, resuming
from querywise.runtime.workers import ThisProcess, use_workers, workers
from querywise.storage import load, save
from tests.commands import begun, plain, run_process


class CutError(Exception):
    pass


def resumed(folder: Path, record: Any) -> Any:
    """Training that is resumed, as `fit` does it."""
    return resuming(folder, record, save=save, load=load)


def jobs(job: Any, items: Any, key: str = "these") -> Any:
    return finish_jobs(workers(), job, items, "Jobs", key)


def cut_after(count: int) -> Any:
    """A job that fails the given number of calls later."""
    calls: list[int] = []

    def job(item: int) -> Any:
        calls.append(item)
        if len(calls) > count:
            raise CutError
        return np.full(3, float(item))

    return job, calls


def test_finished_jobs_are_not_done_again(tmp_path: Path) -> None:
    job, calls = cut_after(2)
    with pytest.raises(CutError), resumed(tmp_path / "kept", {"l2": 1}):
        jobs(job, range(5))
    assert calls == [0, 1, 2]
    job, calls = cut_after(5)
    with resumed(tmp_path / "kept", {"l2": 1}):
        found = jobs(job, range(5))
    assert calls == [2, 3, 4]
    assert [each[0] for each in found] == [0, 1, 2, 3, 4]
    assert not (tmp_path / "kept").exists()


CALLS: list[float] = []


def multiplied(item: float, factor: float) -> Any:
    """Work that fails when it is called for the fourth time."""
    CALLS.append(item)
    if len(CALLS) == 4:
        raise CutError
    return np.full(3, item * factor)


class InParts(ThisProcess):
    """Workers that are asked as those of a cluster are."""

    parts = 2


@pytest.mark.parametrize("pool", [ThisProcess(), InParts()], ids=["this process", "as a cluster"])
def test_finished_calls_of_workers_are_not_made_again(
    tmp_path: Path, pool: ThisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("querywise.runtime.workers._GROUP", 1)  # one after the other
    CALLS.clear()
    items = [float(each) for each in range(6)]
    with use_workers(pool), pytest.raises(CutError), resumed(tmp_path / "kept", {}):
        finish_calls(multiplied, items, shared=(2.0,), label="Calls")
    assert len(list((tmp_path / "kept").glob("*.npy"))) == 3
    with use_workers(pool), resumed(tmp_path / "kept", {}):
        found = finish_calls(multiplied, items[::-1], shared=(2.0,), label="Calls")
        others = finish_calls(multiplied, items[:2], shared=(3.0,), label="Calls")
    assert [each[0] for each in found] == [10, 8, 6, 4, 2, 0]
    assert [each[0] for each in others] == [0, 3], "what is shared is part of what was computed"
    assert sorted(CALLS[4:]) == [0, 1, 3, 4, 5]


def test_jobs_that_come_in_another_order_find_what_was_finished(tmp_path: Path) -> None:
    job, _ = cut_after(3)
    with pytest.raises(CutError), resumed(tmp_path / "kept", {"l2": 1}):
        _ = jobs(job, range(2), "first"), jobs(job, range(5), "second")
    job, calls = cut_after(5)
    with resumed(tmp_path / "kept", {"l2": 1}):
        found = jobs(job, [4, 0, 7], "second")
        jobs(job, [1, 0], "first")
    assert calls == [4, 7], "the three that were finished are told by what they are, not by when they are asked for"
    assert [each[0] for each in found] == [4, 0, 7]


def test_content_is_told_by_value_and_is_the_same_in_every_process(tmp_path: Path) -> None:
    data, other = make_judged(5, 3, 2), make_judged(5, 3, 2, seed=1)
    same = [
        (RankSVM(), RankSVM(l2=1.0)),
        (np.arange(3.0), np.arange(3.0)),
        (data, make_judged(5, 3, 2)),
        (slice(0, 3), slice(0, 3)),
        (make_judged, make_judged),
    ]
    assert all(content(one) == content(another) for one, another in same)
    different = [RankSVM(), RankSVM(l2=2.0), np.arange(3.0), np.arange(3), np.arange(4.0), data, other, slice(0, 3)]
    assert len({content(each) for each in different}) == len(different)
    said = "from querywise import RankSVM; from querywise.runtime.resume import content; print(content(RankSVM()))"
    assert subprocess.check_output([sys.executable, "-c", said], text=True).strip() == content(RankSVM())


def test_what_another_training_left_is_not_used(tmp_path: Path) -> None:
    job, _ = cut_after(2)
    with pytest.raises(CutError), resumed(tmp_path / "kept", {"l2": 1}):
        jobs(job, range(5))
    job, calls = cut_after(5)
    with resumed(tmp_path / "kept", {"l2": 3}):
        jobs(job, range(5))
    assert calls == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "ranker",
    [
        KnnOffline2(RankSVM(), k=12),
        KnnOffline2(RankSVM(l2=0.001, tolerance=1e-9), k=12),  # whose models are refined one by one
        Naive(LambdaMART(trees=5, min_documents=2), 3),
    ],
    ids=["blocks", "refined", "trees"],
)
def test_the_model_is_the_same_after_a_restart(ranker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_judged(60, 8, 5, kinds=3, seed=1)
    shards = write_shards([data], tmp_path / "train.parquet", rows=200)
    taken = shards if isinstance(ranker, KnnOffline2) else data
    expected = unfitted(ranker).fit(taken).predict(data.candidates)
    monkeypatch.setattr("querywise.learners.ranksvm.local_models._MEMORY", 3_000)  # several blocks
    monkeypatch.setattr("querywise.runtime.workers._GROUP", 1)

    def refuse(*given: Any) -> None:
        kept.append(sum(1 for each in (tmp_path / "kept").iterdir() if each.name != "record.json"))
        if kept[-1] >= 2:
            raise CutError

    kept: list[int] = []
    monkeypatch.setattr("querywise.runtime.resume._Store.put", _and_then(refuse))
    with pytest.raises(CutError), resumed(tmp_path / "kept", {}):
        unfitted(ranker).fit(taken)
    assert kept == [1, 2]
    monkeypatch.setattr("querywise.runtime.resume._Store.put", _and_then(lambda *given: kept.append(0)))
    with resumed(tmp_path / "kept", {}):
        again = unfitted(ranker).fit(taken)
    assert again.predict(data.candidates) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert len(kept) > 2, "the rest was still to be done"


def header(shape: str, kind: str = "<f8") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


TAMPERED = {
    "nothing": b"",
    "no array": b"what is this",
    "a huge shape": header("(1000000000000, 8)"),
    "a negative shape": header("(-1, 8)"),
    "objects": header("(1,)", "|O") + b"\x80\x04N.",
    "texts": header("(1,)", "<U2") + b"\0" * 8,
    "a header that is none": b"\x93NUMPY\x01\x00\x0a\x00((((((((((",
    "not numbers": header("(2, 5)") + np.full(10, np.nan).tobytes(),
    "another shape": header("(7, 2)") + np.zeros(14).tobytes(),
    "a number": header("()") + np.zeros(1).tobytes(),
}


@pytest.mark.parametrize("damage", TAMPERED.values(), ids=TAMPERED)
def test_kept_work_that_was_tampered_with_is_done_again_or_refused(
    damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, ranker = make_judged(60, 8, 5, kinds=3, seed=1), KnnOffline2(RankSVM(), k=12)
    shards = write_shards([data], tmp_path / "train.parquet", rows=200)
    expected = unfitted(ranker).fit(shards).predict(data.candidates)
    monkeypatch.setattr("querywise.learners.ranksvm.local_models._MEMORY", 3_000)

    def cut(*given: Any) -> None:
        raise CutError

    monkeypatch.setattr("querywise.runtime.resume._Store.put", _and_then(cut))
    with pytest.raises(CutError), resumed(tmp_path / "kept", {}):
        unfitted(ranker).fit(shards)
    monkeypatch.setattr("querywise.runtime.resume._Store.put", _KEEP)
    (kept,) = (tmp_path / "kept").glob("*.npy")
    kept.write_bytes(damage)
    try:
        with resumed(tmp_path / "kept", {}):
            again = unfitted(ranker).fit(shards)
    except DataError as error:
        assert "the saved work there does not match this training" in str(error)  # noqa: PT017
        assert kept.exists()
    else:
        assert again.predict(data.candidates) == pytest.approx(expected, rel=1e-12, abs=1e-12)


_KEEP = _Store.put


def _and_then(more: Any) -> Any:
    def both(self: Any, name: str, result: Any) -> None:
        _KEEP(self, name, result)
        more(name, result)

    return both


@pytest.mark.slow
def test_a_killed_fit_goes_on(tmp_path: Path) -> None:
    data = make_judged(400, 10, 60, kinds=3, seed=1)
    write_shards([data], tmp_path / "train.parquet", rows=2_000)
    command = ["fit", "train.parquet", "--method", "knn-offline-2", "--k", "100", "--quiet"]
    # Small blocks, so that there is a middle to be killed in.
    (tmp_path / "sitecustomize.py").write_text(
        "import querywise.learners.ranksvm.local_models as c\nc._MEMORY = 300_000\n"
    )
    places = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**plain(), "PYTHONPATH": places}
    # First, so that all later ones load compiled code: code that was just compiled may round the last bit otherwise.
    for name in ("compiling", "undisturbed"):
        assert run_process(tmp_path, *command, "--out", name, env=environment).returncode == 0
    process = begun(tmp_path, *command, "--out", "model", env=environment)
    beside = tmp_path / ".model.unfinished"
    finished: list[Path] = []
    for _ in range(2_000):
        finished = list(beside.glob("*.npy")) if beside.is_dir() else []
        if len(finished) > 1 or process.poll() is not None:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was over before it could be killed"
    assert not (tmp_path / "model").exists()
    assert finished
    assert run_process(tmp_path, *command, "--out", "model", env=environment).returncode == 0
    assert not beside.exists()
    model, other = (next((tmp_path / name).glob("*.safetensors")).read_bytes() for name in ("model", "undisturbed"))
    assert model == other
