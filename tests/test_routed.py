"""Queries left to one ranker of a blend where signs without labels tell which."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.groups import Candidates, Judged, QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.explanations import depends_on_query, explain
from querywise.learners.lists import Worth
from querywise.learners.ranksvm import RankSVM
from querywise.methods import METHODS
from querywise.rankers.blend import Blend
from querywise.rankers.column import OneFeature
from querywise.rankers.gains import LinearGains, NearbyGains
from querywise.rankers.gradients import GradientView
from querywise.rankers.knn import KnnOnline
from querywise.rankers.metric import LearnedMetric
from querywise.rankers.routed import Routed
from querywise.rankers.signs import signs, usual_spreads
from querywise.sharing import sharing
from querywise.storage import load, save
from querywise.views.columns import Columns
from querywise.views.text import TextView
from querywise.views.topmean import TopMean
from tests.worlds import ragged

TWO = Blend([OneFeature(0), OneFeature(1)])


def two_kinds(seed: int, queries: int = 90, *, told: bool = True) -> Judged:
    """Half of the queries want the first feature, half the second; the other one holds the same values, mixed up.

    Long lists want the second, or, where nothing is told, it is drawn by lot.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(8, 25, size=queries)
    kinds = (sizes > 15).astype(np.int64) if told else rng.integers(2, size=queries)
    features, labels = [], []
    for size, kind in zip(sizes, kinds, strict=True):
        wanted = (rng.random(size) < 0.3).astype(np.int64)
        right = wanted + 0.5 * rng.normal(size=size)
        both = (right, rng.permutation(right))
        features.append(np.column_stack(both if kind == 0 else both[::-1]))
        labels.append(wanted)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    ids = tuple(f"q{number}" for number in range(queries))
    table = QueryTable(ids, texts=tuple("alpha" if kind else "omega" for kind in kinds))
    return Judged(Candidates(np.vstack(features), starts, ids, queries=table), np.concatenate(labels))


def share_closed(ranker: Routed, data: Judged) -> float:
    """How much of the way from the blend to the best option of each query is gone."""
    worth = Worth(data, "map")
    every = np.array([worth.of(each) for each in ranker.several_models().scores(data.candidates).T])
    blend = every[-1].mean()
    reached = worth.of(ranker.predict(data.candidates)).mean()
    return float((reached - blend) / (every.max(axis=0).mean() - blend))


@pytest.mark.parametrize("seed", [1, 2])
def test_where_signs_tell_which_ranker_is_right_most_of_the_gap_is_closed(seed: int) -> None:
    fitted = Routed(TWO).fit(two_kinds(seed))
    test = two_kinds(seed + 100)
    assert share_closed(fitted, test) > 0.5
    assert fitted.closed_ > 0.5
    assert 0.5 < fitted.routed_ <= 1
    chosen = fitted.chosen(test.candidates)
    right = (test.candidates.sizes > 15).astype(np.int64)
    assert np.mean(chosen[chosen >= 0] == right[chosen >= 0]) > 0.85


def test_a_view_tells_what_the_scores_do_not() -> None:
    train, test = two_kinds(1, told=False), two_kinds(101, told=False)
    fitted = Routed(TWO, view=TextView(2)).fit(train)
    assert share_closed(fitted, test) > 0.5


@pytest.mark.parametrize("seed", range(5))
def test_where_nothing_tells_the_blend_answers_everywhere(seed: int) -> None:
    train, test = two_kinds(seed, told=False), two_kinds(seed + 100, told=False)
    fitted = Routed(TWO).fit(train)
    assert np.all(fitted.chosen(test.candidates) == -1)
    assert np.array_equal(fitted.predict(test.candidates), TWO.fit(train).predict(test.candidates))
    assert (fitted.closed_, fitted.routed_) == (0.0, 0.0)
    assert fitted.gap_ > 0.05  # there is something to gain, but nobody knows where


def test_more_caution_routes_less() -> None:
    train = two_kinds(3)
    assert Routed(TWO, caution=2.0).fit(train).predictor_ is not None
    assert Routed(TWO, caution=1000.0).fit(train).predictor_ is None


def test_a_routed_query_has_the_scores_of_its_ranker_and_the_others_those_of_the_blend() -> None:
    train, test = two_kinds(1), two_kinds(101)
    fitted = Routed(TWO).fit(train)
    fitted.bar_ = 0.1  # so that some are left to the blend
    chosen = fitted.chosen(test.candidates)
    assert set(chosen) == {-1, 0, 1}
    scores, scaled = fitted.predict(test.candidates), fitted.blend_.scaled(test.candidates)
    blend = fitted.blend_.predict(test.candidates)
    weights = fitted.model_weights(test.candidates)
    for query, number in enumerate(chosen):
        rows = test.candidates.rows(query)
        assert np.array_equal(scores[rows], blend[rows] if number < 0 else scaled[rows, number])
        assert weights[query].tolist() == ([0.5, 0.5] if number < 0 else [float(number == 0), float(number == 1)])


def test_a_step_on_the_way_leans_to_the_ranker() -> None:
    train, test = two_kinds(1), two_kinds(101)
    fitted = Routed(TWO, step=0.4).fit(train)
    weights, scaled = fitted.model_weights(test.candidates), fitted.blend_.scaled(test.candidates)
    assert {tuple(row) for row in weights.round(9)} >= {(0.7, 0.3), (0.3, 0.7)}
    expected = (weights[test.candidates.query_of_row] * scaled).sum(axis=1)
    assert fitted.predict(test.candidates) == pytest.approx(expected, abs=1e-12)
    assert 0.1 < share_closed(fitted, test) < share_closed(Routed(TWO).fit(train), test)


def test_a_querys_labels_have_no_part_in_its_own_signs_and_promises() -> None:
    data = make_judged(40, 10, 4, kinds=2, seed=3)
    labels = data.labels.copy()
    labels[data.candidates.rows(7)] = labels[data.candidates.rows(7)][::-1]
    other = replace(data, labels=labels)
    learned = Routed(Blend([RankSVM(), KnnOnline(RankSVM(), k=5)]), view=TopMean())
    ours, theirs = learned.crossed(data), learned.crossed(other)
    assert ours is not None
    assert theirs is not None
    assert np.array_equal(ours.signs[7], theirs.signs[7])
    assert not np.array_equal(ours.signs, theirs.signs)  # those of queries whose rankers saw it
    # Rankers that learn nothing: only its own gain is another one, and what is promised without it is the same.
    fixed = Routed(TWO)
    ours, theirs = fixed.crossed(data), fixed.crossed(other)
    assert ours is not None
    assert theirs is not None
    assert not np.array_equal(ours.gains[7], theirs.gains[7])
    for predictor in (LinearGains(1.0), LinearGains(0.1), NearbyGains(0.1), NearbyGains(0.3)):
        first, second = (
            predictor.fit(each.signs, each.gains).left_out(each.signs, each.gains) for each in (ours, theirs)
        )
        assert first[7] == pytest.approx(second[7], abs=1e-12)
        assert not np.allclose(first, second, atol=1e-12)


@pytest.mark.parametrize("predictor", [LinearGains(0.3), NearbyGains(0.25)])
def test_what_is_promised_without_a_query_is_what_the_others_alone_promise(predictor: Any) -> None:
    rng = np.random.default_rng(0)
    told, gains = rng.normal(size=(25, 4)), rng.normal(size=(25, 3))
    told[3] = told[4]
    told = (told - told.mean(axis=0)) / told.std(axis=0)
    found = predictor.fit(told, gains).left_out(told, gains)
    for query in range(25):
        rest = np.delete(np.arange(25), query)
        if isinstance(predictor, LinearGains):
            # Written out: a free level, the penalty of all queries, the scale of all queries.
            sides = np.column_stack([np.ones(24), told[rest]])
            penalty = np.diag([0.0, *[0.3 * 25] * 4])
            slopes = np.linalg.solve(sides.T @ sides + penalty, sides.T @ gains[rest])
            expected = slopes[0] + told[query] @ slopes[1:]
        else:
            near = np.argsort(((told[rest] - told[query]) ** 2).sum(axis=1), kind="stable")[:6]
            expected = gains[rest][near].mean(axis=0)
        assert found[query] == pytest.approx(expected, abs=1e-9)


def test_signs_do_not_mind_the_order_of_documents_or_the_scale_of_scores() -> None:
    candidates = ragged(2).candidates
    scores = candidates.features[:, :3]
    usual = usual_spreads(scores, candidates)
    told = signs(scores, candidates, usual)
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [rng.permutation(np.arange(*candidates.rows(q).indices(len(scores)))) for q in range(len(candidates))]
    )
    assert np.array_equal(signs(scores[rows], candidates, usual), told)
    bent = scores * [2.0, 8.0, 0.5]
    assert signs(bent, candidates, usual_spreads(bent, candidates)) == pytest.approx(told, abs=1e-12)
    assert np.isfinite(told).all()


def test_signs_say_what_they_should() -> None:
    candidates = Candidates(np.zeros((21, 1)), np.array([0, 20, 21, 21]), ("long", "one", "none"))
    first = np.arange(20.0)
    second = np.concatenate([first[10:], first[:10]])  # the other half on top
    level = np.zeros(20)
    scores = np.vstack([np.column_stack([first, second, level]), [[5.0, 6.0, 7.0]]])
    long, one, none = signs(scores, candidates, np.array([first.std(), first.std() / 3, 0.0]))
    correlation, common, spreads, falls = long[:3], long[3:6], long[6:9], long[9:12]
    assert correlation == pytest.approx([np.corrcoef(first, second)[0, 1], 0.0, 0.0])
    assert common == pytest.approx([0.0, 0.5, 0.5])
    assert spreads == pytest.approx([0.5, 0.75, 0.5])
    assert falls == pytest.approx([9 / first.std(), 9 / first.std(), 0.0])
    assert long[12] == pytest.approx(np.log(21))
    assert one[:6] == pytest.approx(np.ones(6))
    assert one[9:12] == pytest.approx(np.zeros(3))
    assert not none.any()


def test_few_queries_or_none_to_learn_from_are_left_to_the_blend() -> None:
    data = two_kinds(1)
    few = Routed(TWO).fit(data.select(range(15)))
    assert few.predictor_ is None
    mute = Routed(TWO).fit(replace(data, labels=np.zeros_like(data.labels)))
    assert mute.predictor_ is None
    assert np.array_equal(mute.predict(data.candidates), TWO.fit(data).predict(data.candidates))


def test_folds_are_fitted_once_for_all_that_share_them() -> None:
    data = two_kinds(1)
    seen: list[int] = []

    class Watched(Routed):
        def crossed(self, data: Judged, *, valid: Judged | None = None) -> Any:
            seen.append(len(data))
            return super().crossed(data, valid=valid)

    with sharing():
        for caution in (0.0, 2.0):
            Watched(TWO, caution=caution).fit(data)
        Watched(TWO, folds=4).fit(data)
    assert seen == [90, 90]


def test_it_is_saved_with_what_it_learned(tmp_path: Path) -> None:
    train, test = two_kinds(1), two_kinds(101)
    for view in (None, TextView(2)):
        fitted = Routed(TWO, view=view).fit(train)
        save(fitted, tmp_path / "model")
        again = load(tmp_path / "model")
        assert np.array_equal(again.chosen(test.candidates), fitted.chosen(test.candidates))
        assert np.array_equal(again.predict(test.candidates), fitted.predict(test.candidates))
        assert (again.closed_, again.routed_, again.gap_) == (fitted.closed_, fitted.routed_, fitted.gap_)


def test_an_explanation_names_the_ranker_that_answers() -> None:
    train = two_kinds(1)
    fitted = Routed(Blend([KnnOnline(RankSVM(), k=20), OneFeature(1)]), caution=0.0).fit(train)
    assert depends_on_query(fitted)
    chosen = fitted.chosen(train.candidates)
    assert set(chosen) == {-1, 0, 1}
    for number in (-1, 0, 1):
        query = int(np.flatnonzero(chosen == number)[0])
        found = explain(fitted, train.candidates, f"q{query}")
        assert not found.is_global
        assert [each.name for each in found.models] == ["KnnOnline of RankSVM", "OneFeature"]
        assert [each.weight for each in found.models] == ([0.5, 0.5] if number < 0 else [1.0 - number, float(number)])
        assert bool(found.neighbours) == (number != 1)


@pytest.mark.parametrize(
    ("ranker", "words"),
    [
        (Routed(RankSVM()), "needs a Blend"),  # type: ignore[arg-type]
        (Routed(TWO, folds=1), "folds=1"),
        (Routed(TWO, measure="mrr"), "measure='mrr' cannot be learned by"),
        (Routed(TWO, step=0.0), r"step=0.0\) must be a number above 0"),
        (Routed(TWO, caution=-1.0), r"caution=-1.0\) must be a number from 0 up"),
        (Routed(TWO, view=GradientView()), "cannot go by a GradientView"),
        (Routed(TWO, view=LearnedMetric()), "cannot go by a LearnedMetric"),
        (Routed(TWO, view=Columns()), "these have none"),
        (
            Routed(Blend([KnnOnline(RankSVM(), k=70)])),
            "fits its blend on 60 of the training queries at a time: Nearest",
        ),
    ],
)
def test_what_cannot_be_routed_is_refused(ranker: Routed, words: str) -> None:
    with pytest.raises(DataError, match=words):
        ranker.fit(two_kinds(1))


def test_the_method_routes_between_the_rankers_of_querywise() -> None:
    built: Any = METHODS["routed"].build(bag=2, measure="ndcg@10", folds=4, signs_view="top-mean")
    assert len(built.blend.rankers) == 3
    assert built.blend.rankers[0].learner.bag == 2
    assert (built.measure, built.folds) == ("ndcg@10", 4)
    assert isinstance(built.view, TopMean)
