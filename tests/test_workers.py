"""This process as the worker: with all the memory it wants, and within a budget."""

from __future__ import annotations

import contextlib
import gc
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from querywise.data.judged import Judged
from querywise.data.parquet.shards import Shards, open_shards
from querywise.data.parquet.writing import write_shards
from querywise.data.synthetic import make_judged
from querywise.data.training import Training, takes_parts
from querywise.errors import DataError
from querywise.learners.classic.listnet import ListNet
from querywise.learners.linear import LinearModels
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.rankers.knn import KnnOffline1, KnnOffline2
from querywise.rankers.single import Single
from querywise.runtime.arrays import Floats
from querywise.runtime.scaling import Moments
from querywise.runtime.workers import ITSELF, WORKING, ThisProcess, use_workers, workers
from querywise.storage import load
from tests.commands import refused, run
from tests.worlds import examples, pairwise

NOTHING, PLENTY = 1, 10**12  # budgets: everything kept waits on disk, or nothing does
TRAIN = make_judged(queries=48, documents=12, features=6, kinds=3)
TEST = make_judged(queries=20, documents=12, features=6, kinds=3, seed=1).candidates


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """The files that wait on disk now."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def files() -> list[Path]:
        gc.collect()
        return sorted(path for path in tmp_path.glob("querywise-*/*") if path.is_file())

    return files


@pytest.fixture(params=[None, NOTHING, PLENTY], ids=["free", "on disk", "in memory"])
def pool(request: pytest.FixtureRequest, disk: Callable[[], list[Path]]) -> ThisProcess:
    return ThisProcess(request.param)


def add(one: Floats, other: Floats, more: float = 0.0) -> Floats:
    return one + other + more


def halves(one: Floats, factor: float) -> tuple[float, Floats]:
    return float(one[0]), one * factor


def numbers(count: int) -> list[Floats]:
    return [np.full(3, float(number)) for number in range(count)]


def itself(thing: Any) -> Any:
    return thing


# Calls


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("label", [None, "Adding"])
@pytest.mark.parametrize("count", [0, 1, 2, 37])
def test_results_are_in_the_order_of_the_calls(
    pool: ThisProcess, count: int, label: str | None, side_by_side: bool
) -> None:
    columns = numbers(count), numbers(2 * count)[count:]
    expected = [2 * number + count + 0.5 for number in range(count)]
    found = pool.each(add, *columns, shared=(0.5,), label=label, side_by_side=side_by_side)
    assert [each.tolist() for each in found] == [[value] * 3 for value in expected]
    assert [each[0] for each in pool.stream(add, *columns, shared=(0.5,))] == expected
    assert [each[0] for each in pool.each(itself, pool.keep(add, *columns, shared=(0.5,)))] == expected
    seen, kept = pool.both(halves, columns[0], shared=(3.0,))
    assert seen == list(range(count))
    assert [each[0] for each in pool.each(itself, kept)] == [3.0 * number for number in range(count)]
    together = pool.together(lambda number: number**2, range(count), "Squares", side_by_side=side_by_side)
    assert together == [number**2 for number in range(count)]


def test_a_stream_works_only_when_asked(pool: ThisProcess) -> None:
    begun: list[int] = []
    results = pool.stream(lambda number: begun.append(number) or number, [1, 2, 3])  # type: ignore[func-returns-value]
    assert begun == []
    assert next(results) == 1
    assert begun == [1]
    assert list(results) == [2, 3]


def test_what_is_kept_can_be_handed_to_any_call(pool: ThisProcess) -> None:
    kept = pool.keep(add, numbers(4), numbers(4))
    again = pool.keep(add, kept, numbers(4))
    first, second = pool.both(halves, again, shared=(2.0,))
    assert first == [0.0, 3.0, 6.0, 9.0]
    for found in (pool.each(add, second, kept), pool.each(add, second, kept, side_by_side=True)):
        assert [each.tolist() for each in found] == [[8.0 * number] * 3 for number in range(4)]
    assert [each[0] for each in pool.stream(add, second, kept)] == [0.0, 8.0, 16.0, 24.0]
    (shared,) = pool.keep(itself, [np.ones(3)])
    for side_by_side in (False, True):
        found = pool.each(add, numbers(3), shared=(shared,), side_by_side=side_by_side)
        assert [each.tolist() for each in found] == [[number + 1.0] * 3 for number in range(3)]
    assert [each[0] for each in pool.each(itself, pool.keep(add, numbers(3), shared=(shared,)))] == [1.0, 2.0, 3.0]
    assert pool.both(add_both, numbers(3), shared=(shared,))[0] == [1.0, 2.0, 3.0]


def add_both(one: Floats, other: Floats) -> tuple[float, Floats]:
    return float(one[0] + other[0]), one


def test_an_error_of_the_work_comes_through_as_it_is(pool: ThisProcess) -> None:
    def work(number: int) -> tuple[int, int]:
        if number == 2:
            raise DataError("the third")
        return number, number

    ways: list[Callable[[], Any]] = [
        lambda: pool.each(work, [0, 1, 2, 3]),
        lambda: pool.each(work, [0, 1, 2, 3], side_by_side=True),
        lambda: list(pool.stream(work, [0, 1, 2, 3])),
        lambda: pool.keep(work, [0, 1, 2, 3]),
        lambda: pool.both(work, [0, 1, 2, 3]),
        lambda: pool.together(work, [0, 1, 2, 3], "Jobs"),
        lambda: pool.together(work, [0, 1, 2, 3], "Jobs", side_by_side=True),
    ]
    for way in ways:
        with pytest.raises(DataError, match=r"^the third$"):
            way()


def test_columns_of_different_lengths_are_a_mistake(pool: ThisProcess) -> None:
    with pytest.raises(ValueError, match="argument 2 is longer"):
        pool.each(add, numbers(2), numbers(3))
    with pytest.raises(ValueError, match="argument 2 is longer"):
        pool.keep(add, numbers(2), numbers(3))


def test_at_work_restores_who_was_at_work_before() -> None:
    before = workers()
    assert before.memory is None
    one, other = ThisProcess(NOTHING), ThisProcess(PLENTY)
    with use_workers(one) as those:
        assert those is one
        assert workers() is one
        with contextlib.suppress(DataError), use_workers(other):
            assert workers() is other
            raise DataError("in the middle")
        assert workers() is one
    assert workers() is before


# On disk


def mixed(number: int) -> dict[str, Any]:
    """Arrays of several kinds and things that are no array."""
    rng = np.random.default_rng(number)
    return {
        "doubles": rng.normal(size=(50, 7)),
        "singles": rng.normal(size=9).astype(np.float32),
        "columns": np.asfortranarray(rng.normal(size=(4, 5))),
        "strided": rng.normal(size=(6, 6))[::2, 1:],
        "odd": np.array([np.nan, -0.0, np.inf, 5e-324]),
        "nothing": np.zeros((0, 3)),
        "twice": (shared := rng.integers(9, size=5), shared),
        "text": f"número {number}",
    }


def same_bits(one: Any, other: Any) -> None:
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
        assert other.flags.writeable
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name, value in one.items():
            same_bits(value, other[name])
    elif isinstance(one, tuple):
        for mine, theirs in zip(one, other, strict=True):
            same_bits(mine, theirs)
    else:
        assert one == other


def test_a_tiny_budget_keeps_everything_on_disk_with_the_same_bits(disk: Callable[[], list[Path]]) -> None:
    pool = ThisProcess(NOTHING)
    kept = pool.keep(mixed, range(5))
    files = disk()
    assert len(files) == 5
    assert all(path.stat().st_size > 50 * 7 * 8 for path in files)
    assert all(path.parent.stat().st_mode & 0o077 == 0 for path in files), "for nobody else"
    for number, found in enumerate(pool.each(itself, kept)):
        same_bits(mixed(number), found)
    (found,) = pool.each(itself, kept[:1])
    found["doubles"][:] = 0.0
    same_bits(mixed(0), pool.each(itself, kept[:1])[0])


def test_files_go_when_what_they_hold_is_let_go(disk: Callable[[], list[Path]]) -> None:
    pool = ThisProcess(NOTHING)
    kept = pool.keep(mixed, range(3))
    _, more = pool.both(halves, numbers(2), shared=(1.0,))
    assert len(disk()) == 5
    del kept[1]
    assert len(disk()) == 4
    del kept
    assert len(disk()) == 2
    del more
    assert disk() == []


def test_nothing_is_left_of_a_crew_that_is_let_go(disk: Callable[[], list[Path]], tmp_path: Path) -> None:
    pool = ThisProcess(NOTHING)
    kept = pool.keep(mixed, range(2))
    assert len(list(tmp_path.iterdir())) == 1
    del kept
    del pool
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_what_is_kept_outlives_the_crew_that_kept_it(disk: Callable[[], list[Path]]) -> None:
    kept = ThisProcess(NOTHING).keep(mixed, range(2))
    gc.collect()
    same_bits(mixed(1), ThisProcess(NOTHING).each(itself, kept)[1])


def test_within_a_wide_budget_nothing_goes_to_disk(disk: Callable[[], list[Path]]) -> None:
    pool = ThisProcess(PLENTY)
    kept = pool.keep(mixed, range(5))
    assert disk() == []
    same_bits(mixed(4), pool.each(itself, kept)[4])


def test_nothing_is_kept_on_disk_without_a_budget(disk: Callable[[], list[Path]], tmp_path: Path) -> None:
    kept = ThisProcess().keep(mixed, range(5))
    assert isinstance(kept[0], dict)
    assert list(tmp_path.iterdir()) == []


# Training on shards


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The training set in one, three and sixteen files."""
    place = tmp_path_factory.mktemp("shards")
    for count in (1, 3, 16):
        write_shards([TRAIN], place / f"{count}.parquet", shards=count)
    return {count: place / f"{count}.parquet" for count in (1, 3, 16)}


@contextlib.contextmanager
def on_disk(shards: Shards) -> Iterator[None]:
    """As little memory as is allowed for some shards, in a process that has more than that already."""
    allowed = ITSELF + (WORKING + 1) * 8 * max(file.rows for file in shards.files) * shards.feature_count
    ballast = np.ones(allowed // 8 + 1)
    with use_workers(ThisProcess(allowed)):
        yield
    del ballast


def weights_of(models: Any) -> Floats:
    assert isinstance(models, LinearModels)
    return models.weights


def alike(found: Floats, expected: Floats, shards: int, rounding: float) -> None:
    """The same to the last bit in one shard, to some rounding in several."""
    if shards == 1:
        assert found.tobytes() == expected.tobytes()
    else:
        np.testing.assert_allclose(found, expected, rtol=0, atol=rounding * np.abs(expected).max())


def told(data: Training) -> list[Any]:
    """What a training set says of itself, wherever it is."""
    parts: list[Any] = list(data.parts())
    return [
        len(data),
        data.query_ids,
        data.pairs.tolist(),
        data.feature_count,
        data.feature_names,
        data.has_texts(),
        data.by_query(lambda candidates: candidates.sizes.astype(np.float64)).tolist(),
        [each for part in data.surveys() for each in part.query_ids],
        [query_id for part in parts for query_id in part.load().query_ids],
        data.load().labels.tolist(),
    ]


COUNTS = pytest.mark.parametrize("count", [1, 3, 16])


@COUNTS
def test_a_training_set_says_the_same_in_memory_and_on_disk(folders: dict[int, Path], count: int) -> None:
    shards = open_shards(folders[count])
    assert told(shards) == told(TRAIN)
    assert (shards.in_memory, TRAIN.in_memory) == (False, True)
    assert shards.fingerprint() == open_shards(folders[count]).fingerprint()
    assert TRAIN.fingerprint() == TRAIN.select(range(len(TRAIN))).fingerprint() != TRAIN.select([0]).fingerprint()


def test_a_ranker_takes_parts_where_it_says_so() -> None:
    class Careful(RankSVM):
        def takes_parts(self) -> bool:
            return False

    assert takes_parts(RankSVM())
    assert takes_parts(Single(RankSVM()))
    assert not takes_parts(Careful())
    assert not takes_parts(ListNet())


BUDGET = pytest.mark.parametrize("budget", [False, True], ids=["free", "budget"])


@pytest.mark.parametrize(
    ("count", "budget", "options"),
    pairwise([1, 3, 16], [False, True], [{}, {"loss": "hinge"}, {"pairs": "pair", "scale": "none", "l2": 0.1}]),
    ids=str,
)
def test_a_ranking_svm_is_the_same_however_its_data_is_cut(
    folders: dict[int, Path], count: int, budget: bool, options: dict[str, Any], disk: Callable[[], list[Path]]
) -> None:
    expected = RankSVM(**options).fit(TRAIN)
    shards = open_shards(folders[count])
    assert len(shards.files) == count
    learner = RankSVM(**options)
    with on_disk(shards) if budget else contextlib.nullcontext():
        preferences = learner.fit_preferences(shards)[0]
        assert len(disk()) == (count if budget else 0), "the pairs of every shard wait on disk"
        del preferences
    rounding = 1e-6 if options.get("loss") == "hinge" else 1e-9
    alike(learner.weights_, expected.weights_, count, rounding)
    assert learner.objective_ == pytest.approx(expected.objective_, rel=1e-9)


@pytest.mark.parametrize(
    ("count", "budget", "options"),
    pairwise(
        [1, 3, 16],
        [False, True],
        [{}, {"tolerance": None}, {"tolerance": 1e-9}, {"prior": "global", "prior_l2": 0.5}],
    ),
    ids=str,
)
def test_local_models_are_the_same_however_their_data_is_cut(
    folders: dict[int, Path], count: int, budget: bool, options: dict[str, Any], disk: Callable[[], list[Path]]
) -> None:
    expected = KnnOffline2(RankSVM(**options), k=9).fit(TRAIN)
    shards = open_shards(folders[count])
    with on_disk(shards) if budget else contextlib.nullcontext():
        found = KnnOffline2(RankSVM(**options), k=9).fit(shards)
    alike(weights_of(found.several_models()), weights_of(expected.several_models()), count, 1e-6)
    alike(found.predict(TEST), expected.predict(TEST), count, 1e-6)
    assert found.chosen(TEST).tolist() == expected.chosen(TEST).tolist()


@COUNTS
@BUDGET
def test_local_models_of_the_hinge_too(folders: dict[int, Path], count: int, budget: bool) -> None:
    learner = RankSVM(loss="hinge", tolerance=1e-2)
    expected = KnnOffline1(learner, k=4).fit(TRAIN)
    shards = open_shards(folders[count])
    with on_disk(shards) if budget else contextlib.nullcontext():
        found = KnnOffline1(learner, k=4).fit(shards)
    alike(weights_of(found.several_models()), weights_of(expected.several_models()), count, 1e-6)


@COUNTS
def test_curvature_waits_on_disk(folders: dict[int, Path], count: int, disk: Callable[[], list[Path]]) -> None:
    shards = open_shards(folders[count])
    expected = RankSVM().prepare(TRAIN)
    with on_disk(shards):
        prepared = RankSVM().prepare(shards)
        assert len(disk()) == 2 * count, "the pairs and the curvature of every shard"
        alike(prepared.pulls(), expected.pulls(), count, 1e-5)
        gathered = prepared.gathered()
        assert disk() == []
    if count > 1:
        assert gathered.features_ is not None
        assert expected.features_ is not None
        np.testing.assert_allclose(gathered.features_, expected.features_, rtol=0, atol=1e-12)
        np.testing.assert_allclose(gathered.curvatures_, expected.curvatures_, rtol=0, atol=1e-5)


def test_a_budget_too_small_for_a_shard_is_refused(folders: dict[int, Path]) -> None:
    shards = open_shards(folders[3])
    said = r"3\.parquet: its largest shard takes 0 MB, and .* Allow more, or convert the data into smaller shards\.$"
    with use_workers(ThisProcess(ITSELF + 1)), pytest.raises(DataError, match=said):
        RankSVM().fit(shards)


def test_a_set_that_does_not_fit_is_not_read_whole(folders: dict[int, Path]) -> None:
    shards = open_shards(folders[3])
    with use_workers(ThisProcess(ITSELF + 16 * TRAIN.candidates.features.size)):
        assert len(shards.load()) == len(TRAIN)
    with use_workers(ThisProcess(ITSELF + 8 * TRAIN.candidates.features.size - 1)):
        with pytest.raises(DataError, match=r"needs all 576 documents in memory at once, 0\.0 GB; 0\.3 GB are allowed"):
            shards.load()
        ranker = Single(RankSVM())
        assert ranker.takes_parts()


# Moments


@st.composite
def tables(draw: st.DrawFn) -> list[Floats]:
    width = draw(st.integers(1, 3))
    rows = st.integers(0, 5).map(lambda count: (count, width))
    values = st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)
    return draw(st.lists(hnp.arrays(np.float64, rows, elements=values), min_size=1, max_size=5))


@settings(max_examples=examples(200), deadline=None)
@given(parts=tables())
def test_moments_of_parts_are_those_of_the_whole(parts: list[Floats]) -> None:
    stacked = np.concatenate(parts)
    found = Moments.of(parts[0])
    for part in parts[1:]:
        found = found.beside(Moments.of(part))
    expected = Moments.of(stacked)
    size = np.abs(stacked).max(initial=1e-300)
    assert found.rows == expected.rows == len(stacked)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=1e-14 * size)
    np.testing.assert_allclose(found.square, expected.square, rtol=0, atol=1e-13 * size**2)


# The command line


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards, and the same as a LETOR file."""
    from querywise.data.letor import write_letor

    folder = tmp_path_factory.mktemp("place")
    data = Judged(TRAIN.candidates, TRAIN.labels)
    write_shards([data], folder / "train.parquet", shards=16)
    write_letor(folder / "train.txt", data)
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train.parquet --memory 100MB", "100 MB are allowed; Python and its libraries alone take 300 MB. Allow more."),
        (
            "train.parquet --memory 300.01MB --method select-ranker",
            "train.parquet: this operation needs all 576 documents in memory at once, 0.0 GB; 0.3 GB are allowed.",
        ),
        (
            "train.txt --memory 4GB",
            "--memory applies to one set of shards as stored, without --features, --queries or --fold.",
        ),
        ("train.parquet --memory nonsense", "--memory nonsense: expected a size like 4GB or 800MB."),
        ("train.parquet --memory=-1GB", "--memory -1GB: expected a size like 4GB or 800MB."),
        ("train.parquet --memory 0", "--memory 0: expected a size like 4GB or 800MB."),
        (
            "train.parquet --memory 4GB --cluster auto",
            "--memory is for one machine; a cluster uses the memory that Ray was",
        ),
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused(place: Path, words: str, message: str) -> None:
    before = sorted(path.name for path in place.iterdir())
    done = run(place, "fit", *words.split(), "--out", "new")
    assert message in refused(done)
    assert sorted(path.name for path in place.iterdir()) == before


@pytest.mark.slow
def test_a_model_within_a_budget_is_the_same(place: Path, tmp_path: Path) -> None:
    budget = "300.02 MB"  # room for some of the shards, not for all
    words = ["train.parquet", "--method", "knn-offline-2", "--set", "l2=0.3", "--k", 9, "--memory", budget]
    done = run(place, "fit", *words, "--out", tmp_path / "model")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    expected = KnnOffline2(RankSVM(l2=0.3), k=9).fit(open_shards(place / "train.parquet"))
    np.testing.assert_allclose(load(tmp_path / "model").predict(TEST), expected.predict(TEST), rtol=1e-9)
