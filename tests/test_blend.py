"""Several rankers' scores as one."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.folds import read_folds
from querywise.data.judged import Judged
from querywise.data.letor import write_letor
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.learners.classic.lists import Worth
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.learners.trees.context import QueryContext
from querywise.methods import METHODS, TEXT_VIEW
from querywise.rankers.blend import Blend, learned_weights
from querywise.rankers.knn import KnnOnline
from querywise.rankers.single import OneFeature
from querywise.runtime.cache import caching
from querywise.storage import load, save
from reproduction import blend as reproduction
from tests.worlds import inside, ragged

FIRST, SECOND, THIRD = OneFeature(0), OneFeature(1), OneFeature(2)


def map_of(scores: Any, data: Judged) -> float:
    return float(evaluate(scores, data, measures=["map"]).mean()["map"])


def helpful_and_noise(seed: int, queries: int = 60) -> Judged:
    """Two features that each tell half of what is wanted, and one that tells nothing."""
    data = make_judged(queries, 20, 3, seed=seed)
    rng = np.random.default_rng(seed)
    truth = data.labels + 0.0
    noise = rng.normal(size=(len(truth), 3))
    features = np.column_stack([truth + noise[:, 0], truth + noise[:, 1], noise[:, 2]])
    return replace(data, candidates=replace(data.candidates, features=features))


def test_it_is_the_mean_of_standardised_scores() -> None:
    data = ragged()
    scores = Blend([FIRST, SECOND]).fit(data).predict(data.candidates)
    for query in range(len(data) - 3):
        own = data.candidates.features[data.candidates.rows(query), :2]
        z = (own - own.mean(axis=0)) / own.std(axis=0)
        assert scores[data.candidates.rows(query)] == pytest.approx(z.mean(axis=1), abs=1e-9)


def test_a_query_scored_all_alike_says_nothing() -> None:
    data = ragged()
    features = data.candidates.features.copy()
    features[data.candidates.rows(0), 1] = 0.3
    level = replace(data, candidates=replace(data.candidates, features=features))
    fitted = Blend([FIRST, SECOND]).fit(level)
    assert not fitted.scaled(level.candidates)[level.candidates.rows(0), 1].any()
    alone = Blend([FIRST]).fit(level)
    rows = level.candidates.rows(0)
    assert fitted.predict(level.candidates)[rows] == pytest.approx(alone.predict(level.candidates)[rows] / 2)


def test_ranks_do_not_mind_how_a_ranker_spaces_its_scores() -> None:
    data = ragged()
    bent = data.candidates.features.copy()
    bent[:, 1] = np.exp(3 * bent[:, 1])
    other = replace(data, candidates=replace(data.candidates, features=bent))
    ranked = [Blend([FIRST, SECOND], scores="rank").fit(each).predict(each.candidates) for each in (data, other)]
    assert np.array_equal(ranked[0], ranked[1])
    standard = [Blend([FIRST, SECOND]).fit(each).predict(each.candidates) for each in (data, other)]
    assert not np.allclose(standard[0], standard[1])


def test_weights_are_equal_without_validation_queries_or_where_they_say_nothing() -> None:
    train, valid = helpful_and_noise(1), helpful_and_noise(2)
    assert Blend([FIRST, SECOND, THIRD], weights="learned").fit(train).weights_ == pytest.approx([1 / 3] * 3)
    assert Blend([FIRST, SECOND, THIRD]).fit(train, valid=valid).weights_ == pytest.approx([1 / 3] * 3)
    mute = replace(valid, labels=np.zeros_like(valid.labels))
    fitted = Blend([FIRST, SECOND, THIRD], weights="learned").fit(train, valid=mute)
    assert fitted.weights_ == pytest.approx([1 / 3] * 3)
    nobody = valid.select([])
    assert Blend([FIRST, SECOND], weights="learned").fit(train, valid=nobody).weights_ == pytest.approx([0.5, 0.5])


def test_learned_weights_leave_out_noise_and_do_better_on_other_queries() -> None:
    train, valid, test = (helpful_and_noise(seed) for seed in (1, 2, 3))
    rankers = [FIRST, SECOND, THIRD]
    learned = Blend(rankers, weights="learned", shrinkage=0.0).fit(train, valid=valid)
    assert learned.weights_.sum() == pytest.approx(1.0)
    assert learned.weights_.min() >= 0
    assert learned.weights_[2] < 0.1
    equal = Blend(rankers).fit(train, valid=valid)
    assert map_of(learned.predict(test.candidates), test) > map_of(equal.predict(test.candidates), test) + 0.01


def test_shrinkage_draws_learned_weights_back_to_equal_ones() -> None:
    train, valid = helpful_and_noise(1), helpful_and_noise(2)
    found = [
        Blend([FIRST, THIRD], weights="learned", shrinkage=share).fit(train, valid=valid).weights_
        for share in (0.0, 0.5, 1.0)
    ]
    assert found[1] == pytest.approx((found[0] + 0.5) / 2)
    assert found[2] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("measure", ["map", "ndcg@5"])
def test_no_weights_on_a_grid_are_much_better_on_the_queries_learned_from(measure: str) -> None:
    valid = helpful_and_noise(4, 40)
    fitted = Blend([FIRST, SECOND, THIRD]).fit(valid)
    scaled, worth = fitted.scaled(valid.candidates), Worth(valid, measure)
    found = float(worth.of(scaled @ learned_weights(scaled, worth)).mean())
    grid = [np.array([a, b, 10 - a - b]) / 10 for a, b in product(range(11), repeat=2) if a + b <= 10]
    values = [float(worth.of(scaled @ each).mean()) for each in grid]
    assert found >= max(values) - 0.003
    assert found >= float(worth.of(scaled.sum(axis=1)).mean())


def test_members_stop_early_on_the_validation_queries() -> None:
    data = make_judged(90, 20, 5, seed=1)
    train, valid = data.select(range(60)), data.select(range(60, 90))
    fitted = Blend([LambdaMART(400, patience=10), RankSVM()]).fit(train, valid=valid)
    assert inside(fitted.rankers_[0]).tree_count_ < 400


def test_blends_of_the_same_rankers_fit_them_once() -> None:
    data = make_judged(60, 10, 4)
    train, valid, other = data.select(range(30)), data.select(range(30, 45)), data.select(range(45, 60))
    with caching():
        first = Blend([RankSVM(), LambdaMART(20, patience=2)]).fit(train, valid=valid)
        second = Blend([LambdaMART(20, patience=2)], weights="learned").fit(train, valid=valid)
        third = Blend([LambdaMART(20, patience=2)]).fit(train, valid=other)
    assert second.rankers_[0] is first.rankers_[1]
    assert third.rankers_[0] is not first.rankers_[1]
    fourth = Blend([LambdaMART(20, patience=2)]).fit(train, valid=valid)
    assert fourth.rankers_[0] is not first.rankers_[1]


def test_forests_that_see_the_same_are_asked_at_once_and_say_what_each_says() -> None:
    data, other = make_judged(30, 12, 4, seed=2), make_judged(30, 12, 4, seed=3)
    trees = [LambdaMART(5, leaves=4, bag=2), LambdaMART(4, leaves=4, objective="rank_xendcg"), LambdaMART(3, leaves=40)]
    ranker = Blend([QueryContext(trees[0]), RankSVM(), QueryContext(trees[1]), QueryContext(trees[2], ("rank",))])
    for train in (data, other):
        ranker.fit(train)
        for candidates in (data.candidates, data.candidates.select([3])):
            each = [member.predict(candidates) for member in ranker.rankers_]
            assert np.array_equal(ranker.scaled(candidates), ranker.comparable(np.column_stack(each), candidates))
            assert np.array_equal(ranker.answer(candidates).scores(), ranker.predict(candidates))
        assert ranker._forests is not None
        assert ranker._forests.numbers == (0, 2)
    alone = Blend([QueryContext(trees[0]), trees[1], RankSVM()]).fit(data)
    alone.predict(data)
    assert alone._forests is None


def test_it_is_saved_with_its_weights(tmp_path: Path) -> None:
    train, valid = helpful_and_noise(1), helpful_and_noise(2)
    fitted = Blend([FIRST, SECOND, THIRD], weights="learned", shrinkage=0.2).fit(train, valid=valid)
    save(fitted, tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(inside(again).weights_, fitted.weights_)
    assert np.array_equal(again.predict(valid.candidates), fitted.predict(valid.candidates))


@pytest.mark.parametrize(
    ("ranker", "words"),
    [
        (Blend([]), "no ranker to blend"),
        (Blend([FIRST], scores="softmax"), r"scores='softmax'\) is unknown. Known: standard, rank"),  # type: ignore[arg-type]
        (Blend([FIRST], weights="best"), r"weights='best'\) is unknown. Known: equal, learned"),  # type: ignore[arg-type]
        (Blend([FIRST], shrinkage=1.5), "shrinkage=1.5"),
        (Blend([FIRST], measure="mrr"), "measure='mrr' cannot be optimized"),
    ],
)
def test_what_cannot_be_blended_is_refused(ranker: Blend, words: str) -> None:
    with pytest.raises(DataError, match=words):
        ranker.fit(ragged())


def test_the_method_is_two_forests_in_context_and_a_local_model() -> None:
    built: Any = METHODS["blend"].build(bag=2, context="z+rank", k=7, weights="learned", seed=3)
    pairwise, listwise, knn = built.rankers
    assert isinstance(pairwise, QueryContext)
    assert isinstance(knn, KnnOnline)
    assert (inside(pairwise).learner.objective, inside(listwise).learner.objective) == ("lambdarank", "rank_xendcg")
    first, local = inside(pairwise).learner, inside(knn).learner
    assert (first.bag, first.seed, list(listwise.columns)) == (2, 3, ["z", "rank"])
    assert (knn.k, local.tolerance, local.prior, built.weights) == (7, None, "global", "learned")
    bare: Any = METHODS["blend"].build(context="none")
    assert list(bare.rankers[0].columns) == []


def test_where_queries_have_a_text_a_view_of_it_is_tried_and_the_trees_are_grown_once() -> None:
    plain = make_judged(40, 8, 4, kinds=2)
    texts = tuple(f"{('red', 'blue', 'how')[number % 3]} {number % 5}" for number in range(40))
    data = plain.with_queries(QueryTable(plain.candidates.query_ids, texts=texts))
    method = METHODS["blend"]
    views = method.grid_on(data)["view"]
    assert views == ("top-mean", TEXT_VIEW)
    assert "view" not in method.grid_on(plain)
    with caching():
        fitted: list[Any] = [method.build(view=view, bag=1, trees=5).fit(data) for view in views]
    assert fitted[0].rankers_[0] is fitted[1].rankers_[0]
    assert fitted[0].rankers_[1] is fitted[1].rankers_[1]
    assert not np.allclose(fitted[0].predict(data.candidates), fitted[1].predict(data.candidates))


@pytest.mark.slow
def test_the_parts_of_the_blend_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_judged(50, 8, 4, noise=0.3)
    for part in range(5):
        write_letor(tmp_path / f"S{part + 1}.txt", data.select(range(10 * part, 10 * part + 10)))
    monkeypatch.setattr(reproduction, "BAG", 1)
    monkeypatch.setattr(reproduction, "GROUPS", {"level": ("mean", "spread"), "rank": ("rank",)})
    page = reproduction.reproduce(read_folds(tmp_path), tmp_path / "report")
    assert "50 test queries, flavour letor4; p: paired t-test against lambdamart" in page.read_text()
    numbers = json.loads((tmp_path / "report" / "numbers.json").read_text())
    rows = set(numbers["comparison"]["methods"])
    assert rows >= {"blend", "blend, learned weights", "context + xendcg + single", "blend chosen"}
    assert rows >= {"context, level alone", "context, and rank", "context, every group", "blend, context chosen"}
    assert "blend, weights by neighbours" in rows
    assert set(numbers["validation_map"]) == rows
    assert set(numbers["holm"]) == rows - {"lambdamart"}
    for name, p in numbers["holm"].items():
        assert p >= numbers["comparison"]["methods"][name]["p"]["map"]
    learned = numbers["learned_weights"]["blend, learned weights"]
    assert len(learned) == 5
    assert all(abs(sum(each) - 1) < 1e-9 for each in learned)
    for name in ("lambdamart chosen", "blend chosen"):
        assert [each["bag"] for each in numbers["chosen"][name]] == [1] * 5
