from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.judged import Judged
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.tuning import tune
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.views.columns import Columns, SideBySide
from querywise.locality.views.text import TextView
from querywise.locality.views.topmean import TopMean
from querywise.methods import METHODS
from querywise.rankers.knn import KnnOnline
from querywise.runtime import cache as module
from querywise.runtime.cache import cached, caching, signature
from querywise.runtime.scaling import Scaling
from querywise.storage import load, read_manifest, save
from tests.worlds import inside

GRID: dict[str, tuple[Any, ...]] = {
    "l2": (0.1, 1.0),
    "k": (0.2, 12),
    "prior_l2": (0.0, 0.5),
    "view": ("top-mean", "text", "gradient:top-mean+text"),
}
SETTINGS = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]


def worded(data: Judged) -> Judged:
    words = ("red", "blue", "how", "buy", "shoes")
    ids = data.candidates.query_ids
    texts = tuple(f"{words[number % 5]} {words[number % 3]} {words[number % 2]}" for number in range(len(ids)))
    return data.with_queries(QueryTable(ids, texts=texts, classes=data.classes))


@pytest.fixture(scope="module")
def data() -> tuple[Judged, Judged, Judged]:
    """Training, validation and test part."""
    made = worded(make_judged(60, 7, 4, kinds=2, noise=0.3))
    return made.select(range(36)), made.select(range(36, 48)), made.select(range(48, 60))


@pytest.fixture(scope="module")
def alone(data: tuple[Judged, Judged, Judged]) -> dict[str, list[bytes]]:
    """The scores of every method at every setting, each fitted by itself."""
    train, valid, test = data
    return {
        name: [
            METHODS[name].build(**each).fit(train, valid=valid).predict(test.candidates).tobytes() for each in SETTINGS
        ]
        for name in ("knn-online", "knn-offline-1", "knn-offline-2")
    }


@pytest.mark.slow
@pytest.mark.parametrize("room", [2_000_000_000, 20_000, 0])
def test_sharing_changes_no_bit_whatever_the_order_and_the_room(
    data: tuple[Judged, Judged, Judged],
    alone: dict[str, list[bytes]],
    room: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_ROOM", room)
    train, valid, test = data
    work = [(name, place) for name in alone for place in range(len(SETTINGS))]
    mixed = np.random.default_rng(0).permutation(len(work)) if room else range(len(work))
    with caching():
        for number in mixed:
            name, place = work[number]
            ranker: Any = METHODS[name].build(**SETTINGS[place]).fit(train, valid=valid)
            assert ranker.predict(test.candidates).tobytes() == alone[name][place], (name, SETTINGS[place])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["knn-online", "knn-offline-1", "knn-offline-2"])
def test_tuning_shares_and_chooses_what_it_would_choose_without(
    name: str, data: tuple[Judged, Judged, Judged], alone: dict[str, list[bytes]]
) -> None:
    train, valid, test = data
    tuned: Any = tune(METHODS[name].build, GRID, train=train, valid=valid, measure="ndcg@5")
    values = []
    for each in SETTINGS:
        scores = METHODS[name].build(**each).fit(train, valid=valid).predict(valid.candidates)
        values.append(float(evaluate(scores, valid, measures=["ndcg@5"]).values.mean()))
    assert [trial.value for trial in tuned.tried] == values
    assert tuned.parameters == SETTINGS[int(np.argmax(values))]
    assert tuned.ranker.predict(test.candidates).tobytes() == alone[name][int(np.argmax(values))]


class Counter:
    """Makes a number at every call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        return self.calls


def test_outside_nothing_is_remembered() -> None:
    make = Counter()
    assert [cached("a", 1, make, make) for _ in range(3)] == [1, 2, 3]


def test_inside_each_setting_of_each_data_is_made_once() -> None:
    make, here, there = Counter(), object(), object()
    with caching():
        made = [
            cached(what, settings, of, make)
            for _ in range(2)
            for what in ("view", "points")
            for settings in (1, 2)
            for of in (here, there)
        ]
    assert made == [*range(1, 9), *range(1, 9)]


def test_after_the_block_everything_is_forgotten() -> None:
    make, of = Counter(), object()
    with caching():
        cached("a", 1, of, make)
    cached("a", 1, of, make)
    with caching():
        cached("a", 1, of, make)
    assert make.calls == 3


def test_a_block_that_fails_forgets_too() -> None:
    make, of = Counter(), object()

    @caching()
    def fail() -> None:
        cached("a", 1, of, make)
        raise KeyError("oh")

    with pytest.raises(KeyError, match="oh"):
        fail()
    cached("a", 1, of, make)
    assert make.calls == 2


def test_a_block_within_a_block_shares_with_it() -> None:
    make, of = Counter(), object()
    with caching():
        with caching():
            cached("a", 1, of, make)
        cached("a", 1, of, make)
    assert make.calls == 1


def test_what_could_not_be_made_is_made_the_next_time() -> None:
    make, of = Counter(), object()

    def fail() -> int:
        raise ValueError("no")

    with caching():
        with pytest.raises(ValueError, match="no"):
            cached("a", 1, of, fail)
        assert cached("a", 1, of, make) == 1


def different() -> list[Callable[[], Any]]:
    """Settings no two of which are the same; each made anew is the same as before."""
    return [
        lambda: None,
        lambda: 1,
        lambda: 1.0,
        lambda: True,
        lambda: "1",
        lambda: {"l2": 1.0, "k": 2},
        lambda: {"l2": 1.0, "k": 3},
        lambda: [1, 2],
        lambda: [[1], 2],
        lambda: TopMean(0),
        lambda: TopMean(1),
        lambda: TopMean(0, 10),
        lambda: TopMean("bm25"),
        TextView,
        lambda: TextView(seed=1),
        lambda: SideBySide([TopMean(0), TextView()]),
        lambda: SideBySide([TextView(), TopMean(0)]),
        lambda: SideBySide([TopMean(0), TextView(lengths=False)]),
        Columns,
        lambda: Columns(["a"]),
        lambda: Columns(["a", "b"]),
        lambda: RankSVM(0.1),
        lambda: RankSVM(0.1000000000000001),
        lambda: RankSVM(0.1, prior="global", prior_l2=0.5),
    ]


def test_different_settings_are_told_apart_and_the_same_are_not() -> None:
    made = [signature(each()) for each in different()]
    assert len(set(made)) == len(made)
    assert [signature(each()) for each in different()] == made


def test_a_fitted_reference_is_told_by_what_it_learned() -> None:
    first, second = (RankSVM().fit(make_judged(10, 5, 3, seed=seed)) for seed in (0, 1))
    assert signature(TopMean(first)) == signature(TopMean(first))
    assert signature(TopMean(first)) != signature(TopMean(second))
    assert signature(TopMean(first)) != signature(TopMean(RankSVM()))


def test_data_that_is_gone_is_not_taken_for_data_that_came_after() -> None:
    with caching():
        for number in range(50):
            of = make_judged(2, 2, 1, seed=number)
            assert cached("a", 1, of, lambda number=number: number) == number  # type: ignore[misc]


def test_settings_that_are_gone_are_not_taken_for_settings_that_came_after() -> None:
    # Arrays are told apart by identity, which Python gives to another array once the first is gone.
    of = object()
    with caching():
        for number in range(50):
            settings = Scaling(np.full(3, float(number)), np.ones(3))
            assert cached("points", settings, of, lambda number=number: number) == number  # type: ignore[misc]


def test_the_least_recently_used_is_forgotten_beyond_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROOM", 3 * 80)
    made: list[str] = []
    of = object()

    def ask(name: str) -> None:
        def make() -> Any:
            made.append(name)
            return np.zeros(10)

        cached(name, 1, of, make)

    with caching():
        for name in "abcabc":
            ask(name)
        assert made == list("abc")
        ask("a")  # a is now the one used last, b the one used longest ago
        ask("d")
        ask("a")
        assert made == list("abcd")
        ask("b")
        assert made == list("abcdb")


def test_one_thing_larger_than_the_room_is_remembered_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROOM", 10)
    of, made = object(), Counter()
    with caching():
        for _ in range(3):
            cached("a", 1, of, lambda: np.full(100, made()))
    assert made.calls == 1


def test_curvature_is_computed_once_for_all_k_priors_and_views(data: tuple[Judged, Judged, Judged]) -> None:
    train = data[0]
    with caching():
        ready = [RankSVM(0.3, prior=prior, prior_l2=strength).prepare(train) for prior, strength in PRIORS]
        others = [RankSVM(0.4).prepare(train), RankSVM(0.3, pairs="pair").prepare(train), RankSVM(0.3).prepare(data[1])]
    assert all(each.curvatures_ is ready[0].curvatures_ for each in ready)
    assert all(each.curvatures_ is not ready[0].curvatures_ for each in others)


PRIORS: list[tuple[Any, float | None]] = [(None, None), ("global", 0.5), ("global", 5.0), ("global", 0.5)]


@pytest.mark.parametrize("order", [1, -1])
def test_a_shared_learner_is_saved_with_the_prior_it_was_asked_for(
    order: int, data: tuple[Judged, Judged, Judged], tmp_path: Path
) -> None:
    train, _, test = data
    with caching():
        fitted = [
            KnnOnline(RankSVM(0.3, prior=prior, prior_l2=strength), k=9).fit(train)
            for prior, strength in PRIORS[::order]
        ]
    for number, (ranker, (prior, strength)) in enumerate(zip(fitted, PRIORS[::order], strict=True)):
        save(ranker, tmp_path / str(number), notes={"prior_l2": strength})
        again = load(tmp_path / str(number))
        assert read_manifest(tmp_path / str(number)).notes == {"prior_l2": strength}
        for learner in (inside(again).learner, inside(again).prepared_.learner, inside(again).prepared_.everyone):
            assert (learner.l2, learner.prior, learner.prior_l2) == (0.3, prior, strength)
        expected = KnnOnline(RankSVM(0.3, prior=prior, prior_l2=strength), k=9).fit(train)
        for each in (ranker, again):
            assert each.predict(test.candidates).tobytes() == expected.predict(test.candidates).tobytes()


def test_another_class_of_learner_with_the_same_parameters_is_another_learner(
    data: tuple[Judged, Judged, Judged],
) -> None:
    class Backwards(RankSVM):
        def predict(self, candidates: Any, /) -> Any:
            return -super().predict(candidates)

    train, _, test = data
    expected = -RankSVM().fit(train).predict(test.candidates)
    with caching():
        RankSVM().prepare(train)
        assert np.array_equal(Backwards().prepare(train).everyone.predict(test.candidates), expected)
