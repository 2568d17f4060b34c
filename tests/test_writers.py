"""Writers beside writers, writers beside readers, and writers that are killed: nothing is lost, nothing is mixed."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from querywise.data.collections import Document
from querywise.data.folds import write_parts
from querywise.data.letor import write_letor
from querywise.data.parquet.writing import write_shards
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, ModelFileError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.measures.score_files import write_scores
from querywise.retrieval.index import Index, build_index, load_index, save_index
from querywise.runtime import files, locks
from querywise.runtime.files import atomic_folder, atomic_text, read_steadily
from querywise.runtime.locks import NoLocksError, locked
from querywise.runtime.resume import Record, resume_folder
from querywise.service.loaded_model import LoadedModel, ModelFolder
from querywise.storage import load, save
from tests.commands import contents, refused, run
from tests.kills import COMMANDS, Command, Killer, kill_everywhere, killer
from tests.worlds import GOLDEN, inside


def fitted(l2: float) -> RankSVM:
    return RankSVM(l2).fit(make_judged(20, 8, 3))


def animals(count: int) -> Index:
    return build_index([Document(f"d{number}", "", "cat dog " * count) for number in range(count)])


def beside(work: Callable[[int], None], count: int) -> list[threading.Thread]:
    """Threads that do the same work at the same time, each with its own number."""
    begin = threading.Barrier(count)

    def begun(number: int) -> None:
        begin.wait()
        work(number)

    threads = [threading.Thread(target=begun, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


# Writers beside writers and readers.


def test_those_who_save_into_one_folder_at_once_lose_no_model_and_hinder_no_reader(tmp_path: Path) -> None:
    rankers = [fitted(1.0), fitted(2.0)]
    folder = tmp_path / "model"
    save(rankers[0], folder)

    def saves(number: int) -> None:
        for _ in range(40):
            save(rankers[number], folder)

    threads = beside(saves, 2)
    while any(thread.is_alive() for thread in threads):
        assert inside(load(folder)).l2 in (1.0, 2.0)
    assert inside(load(folder)).l2 in (1.0, 2.0)
    arrays = [name for name in contents(folder) if name != "manifest.json"]
    assert len(arrays) == 1
    assert arrays[0].startswith("arrays-")


def test_those_who_save_into_a_new_folder_at_once_leave_one_model(tmp_path: Path) -> None:
    rankers = [fitted(l2) for l2 in (1.0, 2.0, 3.0, 4.0)]
    for turn in range(15):
        folder = tmp_path / str(turn)
        threads = beside(lambda number, folder=folder: save(rankers[number], folder), 4)  # type: ignore[misc]
        for thread in threads:
            thread.join()
        assert inside(load(folder)).l2 in (1.0, 2.0, 3.0, 4.0)
        assert len(contents(folder)) == 2


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_reader_of_a_folder_that_is_replaced_gets_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_one_step: bool
) -> None:
    if not in_one_step:
        monkeypatch.setattr(files, "exchange", lambda *_: False)
    indexes = [animals(3), animals(5)]
    folder = tmp_path / "index"
    save_index(indexes[0], folder)

    def saves(number: int) -> None:
        for _ in range(25):
            save_index(indexes[number], folder)

    threads = beside(saves, 2)
    while any(thread.is_alive() for thread in threads):
        found = load_index(folder)
        assert (len(found), len(found.fields["body"].lengths)) in ((3, 3), (5, 5))
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_another_writer_puts_aside_is_never_called_a_file(tmp_path: Path) -> None:
    folder, new, aside = (tmp_path / name for name in ("index", "new", "aside"))
    folder.mkdir()

    def replaces(_: int) -> None:
        for _ in range(20_000):
            new.mkdir()
            folder.rename(aside)
            new.rename(folder)
            aside.rmdir()

    [thread] = beside(replaces, 1)
    checked = files.OutputFolder(a_file="this is a file.")
    while thread.is_alive():
        checked.check(folder)


def test_files_and_folders_written_at_once_are_each_whole(tmp_path: Path) -> None:
    def writes(number: int) -> None:
        for _ in range(30):
            with atomic_text(tmp_path / "file") as out:
                out.write(str(number) * 50_000)
            with atomic_folder(tmp_path / "folder") as made:
                for name in "ab":
                    (made / name).write_text(str(number))

    for thread in beside(writes, 4):
        thread.join()
    assert len(set((tmp_path / "file").read_text())) == 1
    assert contents(tmp_path / "folder")["a"] == contents(tmp_path / "folder")["b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_folder_that_is_always_another_is_not_read_for_ever(tmp_path: Path) -> None:
    numbers = itertools.count()

    def replaced() -> None:
        (tmp_path / "manifest.json").write_text("x" * next(numbers))

    with pytest.raises(ModelFileError, match="replaced faster than it can be read"):
        read_steadily(tmp_path, "manifest.json", replaced)


def test_without_locks_nothing_young_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer, who cannot be seen, may be about to name it."""

    def none(*_: object, **__: object) -> None:
        raise NoLocksError

    monkeypatch.setattr(locks, "_lock", none)
    folder = tmp_path / "model"
    save(fitted(1.0), folder)
    first = next(folder.glob("arrays-*"))
    save(fitted(2.0), folder)
    assert inside(load(folder)).l2 == 2.0
    assert first.exists()
    os.utime(first, (0, 0))
    save(fitted(3.0), folder)
    assert not first.exists()
    save_index(animals(3), tmp_path / "index")
    save_index(animals(5), tmp_path / "index")
    assert len(load_index(tmp_path / "index")) == 5


def test_a_second_run_with_the_same_unfinished_parts_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    with resume_folder(tmp_path / "parts", {"a": 1}):
        with (
            pytest.raises(DataError, match=rf"another run keeps .* here: process {os.getpid()} on .* since \d{{4}}-"),
            resume_folder(tmp_path / "parts", {"a": 1}),
        ):
            pass
        (tmp_path / "parts" / "one").write_text("")
    assert list(tmp_path.iterdir()) == []


def test_a_second_comparison_into_one_folder_is_refused(tmp_path: Path) -> None:
    write_letor(tmp_path / "data.txt", make_judged(12, 5, 3))
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out" / ".lock"):
        said = refused(run(tmp_path, "compare", "data.txt", "--methods", "single", "--out", "out"))
    assert "out: another comparison is being written here: process" in said


def test_new_parts_replace_all_old_ones_and_nothing_else(tmp_path: Path) -> None:
    named = make_judged(12, 5, 3)
    write_parts(named, tmp_path / "parts")
    (tmp_path / "parts" / "features.txt").write_text("a\nb\nc\n")  # of an older set, whose names these were
    write_parts(make_judged(12, 5, 3, seed=1), tmp_path / "parts")
    assert sorted(contents(tmp_path / "parts")) == [*(f"S{number}.txt" for number in range(1, 6)), "queries.jsonl"]
    (tmp_path / "parts" / "mine.txt").write_text("")
    with pytest.raises(DataError, match=r"'mine\.txt' is in this folder, which would be replaced as a whole"):
        write_parts(named, tmp_path / "parts")


# Writers that are killed.


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kills") / "root"
    root.mkdir()
    return root


@pytest.fixture(scope="module")
def killing(place: Path) -> Iterator[Killer]:
    with killer(place) as found:
        yield found


def some(changes: int, *, over: bool, costly: bool) -> list[int]:
    """In the middle, and where one folder takes the place of another; `python -m benchmarks faults` tries all."""
    end = max(changes - 2, 1)
    return [end] if costly else sorted({max(changes // 2, 1), *([end] if over else [])})


@pytest.mark.slow
@pytest.mark.xdist_group("kills")
@pytest.mark.parametrize(
    ("command", "over"),
    [
        pytest.param(
            command, over, id=f"{command.words.split()[0]} {command.out}-{'over an old one' if over else 'new'}"
        )
        for command in COMMANDS
        for over in ((True,) if command.costly else (True, False))
    ],
)
def test_a_command_that_is_killed_loses_nothing_and_blocks_nothing(
    killing: Killer, place: Path, command: Command, over: bool
) -> None:
    assert (
        kill_everywhere(killing, place, command, over=over, points=partial(some, over=over, costly=command.costly)) > 0
    )


def test_what_killed_writers_leave_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".file.part").write_text("half")
    (tmp_path / ".folder.part").mkdir()
    (tmp_path / ".folder.part" / "half").write_text("half")
    (tmp_path / ".folder.old").mkdir()
    (tmp_path / ".folder.lock").write_text("process 1")
    with atomic_text(tmp_path / "file") as out:
        out.write("whole")
    with atomic_folder(tmp_path / "folder") as made:
        (made / "whole").write_text("")
    assert sorted(contents(tmp_path)) == ["file", "folder", "folder/whole"]


def test_a_folder_left_by_a_killed_save_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in (".lock", ".manifest.json.part", "arrays-0123456789abcdef.safetensors"):
        (folder / name).write_text("")
    save(fitted(1.0), folder)
    assert len(contents(folder)) == 2
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("")
    with pytest.raises(DataError, match="not a querywise model"):
        save(fitted(1.0), tmp_path / "other")


def test_a_folder_moved_away_by_a_killed_run_comes_back_to_readers_and_writers(tmp_path: Path) -> None:
    save_index(animals(3), tmp_path / "index")
    (tmp_path / "index").rename(tmp_path / ".index.old")
    assert len(load_index(tmp_path / "index")) == 3
    (tmp_path / "index").rename(tmp_path / ".index.old")
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "index"):
        raise KeyboardInterrupt
    assert len(load_index(tmp_path / "index")) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    save_index(animals(3), tmp_path / "real")
    (tmp_path / "index").symlink_to("real")
    save_index(animals(5), tmp_path / "index")
    assert (tmp_path / "index").is_symlink()
    assert len(load_index(tmp_path / "real")) == 5


def test_every_file_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fsync

    def noted(opened: int) -> None:
        synced.append(os.fstat(opened).st_ino)
        sync(opened)

    monkeypatch.setattr(os, "fsync", noted)
    save_index(animals(3), tmp_path / "index")
    save(fitted(1.0), tmp_path / "model")
    written = [each for name in ("index", "model") for each in (tmp_path / name, *(tmp_path / name).iterdir())]
    assert {each.stat().st_ino for each in [*written, tmp_path]} <= set(synced)


# Models that are replaced are let go.


def test_loaded_models_and_their_answers_are_freed_by_reference_count() -> None:
    gc.collect()
    gc.freeze()  # what is there already is not searched again for every folder
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)  # what only the search for cycles would free is kept, to be looked at
    try:
        for folder in sorted(path.parent for path in GOLDEN.rglob("manifest.json")):
            if folder.name.startswith("routed"):
                continue  # no longer there
            found = LoadedModel.from_folder(folder)  # it ranks some documents
            watched = weakref.ref(found.ranker)
            del found
            end = time.monotonic() + 30
            while watched() is not None and time.monotonic() < end:
                time.sleep(0.001)  # a thread that has just finished its part may still hold it
            assert watched() is None, folder
            gc.collect()
            ours = {type(each) for each in gc.garbage if type(each).__module__.startswith("querywise")}
            assert not ours, folder
            gc.garbage.clear()
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


def test_fifty_reloads_keep_one_model(tmp_path: Path) -> None:
    save(fitted(1.0), tmp_path / "model")
    served = ModelFolder(tmp_path / "model")
    gc.disable()
    try:
        seen = []
        for turn in range(50):
            save(fitted(2.0 + turn), tmp_path / "model")
            assert served.refresh() == "replaced"
            seen.append(weakref.ref(served.current.ranker))
        assert sum(each() is not None for each in seen) == 1
    finally:
        gc.enable()
    assert np.isfinite(inside(served.current.ranker).l2)


# Links that lie where querywise makes files of its own, as an unpacked archive may have them.


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of the user's that commands are not told of, beside data and a collection."""
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    write_letor(tmp_path / "train.txt", make_judged(12, 5, 3))
    (tmp_path / "coll").mkdir()
    (tmp_path / "coll" / "corpus.jsonl").write_text('{"_id": "D7", "title": "jaguar", "text": "a large cat"}\n')
    (tmp_path / "out").mkdir()
    return tmp_path / "mine"


def test_an_index_is_not_written_through_a_link_beside_it(foreign: Path, tmp_path: Path) -> None:
    before = contents(foreign)
    (tmp_path / "out" / ".idx.part").symlink_to("../mine")
    assert run(tmp_path, "index", "coll", "--out", "out/idx").returncode == 0
    assert contents(foreign) == before
    assert len(load_index(tmp_path / "out" / "idx")) == 1
    for name in (".idx.part", ".idx.2.part"):
        assert not (tmp_path / "out" / name).exists() or (tmp_path / "out" / name).is_symlink()


def test_a_model_is_not_written_through_a_link_in_its_folder(foreign: Path, tmp_path: Path) -> None:
    save(fitted(1.0), tmp_path / "model")
    (tmp_path / "model" / ".manifest.json.part").symlink_to("../mine/thesis.txt")
    done = run(tmp_path, "fit", "train.txt", "--set", "l2=2", "--out", "model")
    assert done.returncode == 0, done.stderr
    assert contents(foreign) == {"deep": b"", "thesis.txt": b"precious"}
    assert not (tmp_path / "model" / "manifest.json").is_symlink()
    assert inside(load(tmp_path / "model")).l2 == 2.0


def test_scores_are_not_written_through_a_link_and_nothing_in_its_folder_is_removed(
    foreign: Path, tmp_path: Path
) -> None:
    save(fitted(1.0), tmp_path / "model")
    (tmp_path / "out" / ".scores.parquet.unfinished").symlink_to("../mine")
    said = refused(run(tmp_path, "rank", "model", "train.txt", "--out", "out/scores.parquet"))
    assert ".scores.parquet.unfinished: this is a link to ../mine, where querywise makes" in said
    assert said.endswith("Remove it.\n")
    assert contents(foreign) == {"deep": b"", "thesis.txt": b"precious"}


@pytest.mark.parametrize("name", ["runs", "figures", "rankings"])
def test_a_report_is_not_written_through_a_link_in_its_folder(foreign: Path, tmp_path: Path, name: str) -> None:
    (foreign / "1.js").write_text("mine")
    (tmp_path / "out" / ".report.html.part").symlink_to("../mine/thesis.txt")
    (tmp_path / "out" / name).symlink_to("../mine")
    before = contents(foreign)
    said = refused(run(tmp_path, "compare", "train.txt", "--methods", "single", "--out", "out"))
    assert f"{name}: this is a link to ../mine" in said
    (tmp_path / "out" / name).unlink()
    assert run(tmp_path, "compare", "train.txt", "--methods", "single", "--out", "out").returncode == 0
    assert contents(foreign) == before
    assert not (tmp_path / "out" / "report.html").is_symlink()


def test_a_training_that_is_resumed_follows_no_link(foreign: Path, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    Record(tmp_path / "parts" / "record.json", {"a": 1}).write()
    (tmp_path / "parts" / "0-0").symlink_to("../mine")
    with resume_folder(tmp_path / "parts", {"a": 1}):
        assert [each.name for each in (tmp_path / "parts").iterdir()] == ["record.json"]
    (tmp_path / "parts").symlink_to("mine")
    with pytest.raises(DataError, match="parts: this is a link to mine"), resume_folder(tmp_path / "parts", {"a": 1}):
        pass
    assert contents(foreign) == {"deep": b"", "thesis.txt": b"precious"}


def test_an_output_that_is_named_as_a_link_is_written_where_it_leads(foreign: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    assert run(tmp_path, "compare", "train.txt", "--methods", "single", "--out", "link").returncode == 0
    assert (tmp_path / "elsewhere" / "report.html").is_file()
    (tmp_path / "empty").mkdir()
    (tmp_path / "index").symlink_to("empty")
    assert run(tmp_path, "index", "coll", "--out", "index").returncode == 0
    assert len(load_index(tmp_path / "empty")) == 1


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root may give files away")
def test_a_part_that_another_user_made_is_not_written_into(tmp_path: Path) -> None:
    """Where all may make files: what is written would be that user's to read, and to change once it is in its place."""
    tmp_path.chmod(0o1777)
    planted, file = tmp_path / ".model.part", tmp_path / ".scores.txt.part"
    planted.mkdir(0o777)
    (planted / "theirs").write_text("theirs")
    file.write_text("theirs")
    for each in (planted, file):
        os.chown(each, 12345, 12345)
        each.chmod(0o777)
    write_shards([make_judged(3, 4, 3)], tmp_path / "model", rows=5)
    write_scores(tmp_path / "scores.txt", np.ones(3))
    assert (tmp_path / "model").stat().st_uid == (tmp_path / "scores.txt").stat().st_uid == 0
    assert [each.name for each in planted.iterdir()] == ["theirs"]
    assert file.read_text() == "theirs"
    assert {each.name for each in tmp_path.iterdir()} == {".model.part", ".scores.txt.part", "model", "scores.txt"}
