"""Blends whose weights follow how each ranker served training queries like this one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.judged import Judged
from querywise.errors import DataError
from querywise.explanations.explain import depends_on_query, explain
from querywise.learners.classic.lists import Worth
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.views.learned import GradientView
from querywise.locality.views.text import TextView
from querywise.rankers.blend import Blend, CrossFitting, NearbyBlend
from querywise.rankers.knn import KnnOnline
from querywise.rankers.single import OneFeature
from querywise.runtime.cache import caching
from querywise.storage import load, save
from tests.support.signals import TWO, two_kinds


def reached(ranker: Any, data: Judged) -> float:
    return float(Worth(data, "map").of(ranker.predict(data.candidates)).mean())


def test_where_signs_tell_the_right_ranker_counts_more_and_the_order_is_better() -> None:
    train, test = two_kinds(1), two_kinds(101)
    fitted = NearbyBlend(TWO).fit(train)
    weights = fitted.model_weights(test.candidates)
    right = (test.candidates.sizes > 15).astype(np.int64)
    assert weights.sum(axis=1) == pytest.approx(np.ones(len(test)))
    assert np.mean(weights[np.arange(len(test)), right] > 0.5) > 0.8
    blend = reached(TWO.fit(train), test)
    assert reached(fitted, test) > blend + 0.05
    assert reached(NearbyBlend(TWO, floor=1.0).fit(train), test) > reached(fitted, test)


def test_a_view_tells_what_the_scores_do_not() -> None:
    train, test = two_kinds(1, told=False), two_kinds(101, told=False)
    assert reached(NearbyBlend(TWO, view=TextView(2)).fit(train), test) > reached(TWO.fit(train), test) + 0.03


def test_weights_are_what_the_rankers_reached_on_the_nearest_queries_that_they_had_not_seen() -> None:
    train = two_kinds(1)
    fitted = NearbyBlend(TWO, k=7, measure="ndcg@5", folds=4, seed=2).fit(train)
    cross_fitted = CrossFitting("Ours", TWO, None, 4, "ndcg@5", seed=2).over(train, None)
    assert cross_fitted is not None
    centre, spread = cross_fitted.score_signals.mean(axis=0), cross_fitted.score_signals.std(axis=0)
    places = (cross_fitted.score_signals - centre) / np.where(spread > 0, spread, 1.0)
    weights = fitted.model_weights(train.candidates)
    for query in (0, 17, 44):  # whose signs are the crossed ones, as these rankers learn nothing
        near = np.argsort(((places - places[query]) ** 2).sum(axis=1), kind="stable")[:7]
        expected = cross_fitted.values[near, :2].sum(axis=0)
        assert weights[query] == pytest.approx(expected / expected.sum(), abs=1e-9)
    scaled = fitted.blend_.scaled(train.candidates)
    expected = (weights[train.candidates.query_of_row] * scaled).sum(axis=1)
    assert fitted.predict(train.candidates) == pytest.approx(expected, abs=1e-12)


def test_the_weights_of_the_blend_come_in() -> None:
    train = two_kinds(1)
    fitted = NearbyBlend(TWO, k=9).fit(train)
    plain = fitted.model_weights(train.candidates)
    fitted.blend_.weights_ = np.array([0.8, 0.2])
    expected = plain * [0.8, 0.2]
    assert fitted.model_weights(train.candidates) == pytest.approx(expected / expected.sum(axis=1, keepdims=True))


def test_a_floor_leaves_rankers_out() -> None:
    train = two_kinds(1)
    every, best = (NearbyBlend(TWO, floor=floor).fit(train).model_weights(train.candidates) for floor in (0.0, 1.0))
    assert (every > 0).all()
    clear = every[:, 0] != every[:, 1]
    assert np.array_equal(best[clear], np.eye(2)[every.argmax(axis=1)][clear])


def test_few_queries_and_worthless_neighbours_leave_the_weights_of_the_blend() -> None:
    data = two_kinds(1)
    few = NearbyBlend(TWO).fit(data.select(range(15)))
    assert few.nearest_ is None
    assert np.array_equal(few.predict(data.candidates), TWO.fit(data).predict(data.candidates))
    fitted = NearbyBlend(TWO).fit(data)
    fitted.values_ = np.zeros_like(fitted.values_)
    assert np.array_equal(fitted.model_weights(data.candidates), np.full((90, 2), 0.5))
    mute = NearbyBlend(TWO).fit(replace(data, labels=np.zeros_like(data.labels)))
    assert mute.nearest_ is None


def test_folds_are_fitted_once_for_all_that_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    data = two_kinds(1)
    seen: list[int] = []
    fit = OneFeature.fit

    def counted(self: OneFeature, data: Judged, /, **more: Any) -> OneFeature:
        seen.append(len(data))
        return fit(self, data, **more)

    monkeypatch.setattr(OneFeature, "fit", counted)
    with caching():
        NearbyBlend(TWO).fit(data)
        before = len(seen)
        NearbyBlend(TWO, k=5).fit(data)
        NearbyBlend(TWO, floor=0.5, measure="ndcg").fit(data)
    assert 60 in seen[:before]
    assert 60 not in seen[before:]


def test_it_is_saved_with_what_it_learned_and_explained(tmp_path: Path) -> None:
    train, test = two_kinds(1), two_kinds(101)
    fitted = NearbyBlend(Blend([KnnOnline(RankSVM(), k=20), OneFeature(1)]), view=TextView(2)).fit(train)
    save(fitted, tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict(test.candidates), fitted.predict(test.candidates))
    assert depends_on_query(NearbyBlend(TWO).fit(train))
    assert not depends_on_query(NearbyBlend(TWO).fit(train.select(range(15))))
    found = explain(fitted, train.candidates, "q3")
    weights = fitted.model_weights(train.candidates)[3]
    assert [each.name for each in found.models] == ["KnnOnline of RankSVM", "OneFeature"]
    assert [each.weight for each in found.models] == weights.tolist()
    assert found.neighbours


@pytest.mark.parametrize(
    ("ranker", "words"),
    [
        (NearbyBlend(RankSVM()), r"NearbyBlend needs a Blend, as in NearbyBlend\(Blend"),  # type: ignore[arg-type]
        (NearbyBlend(TWO, k=91), r"k=91\) must be 1 to 90"),
        (NearbyBlend(TWO, floor=1.5), "floor=1.5 must be a share"),
        (NearbyBlend(TWO, folds=1), "folds=1"),
        (NearbyBlend(TWO, measure="mrr"), "measure='mrr' cannot be optimized"),
        (NearbyBlend(TWO, view=GradientView()), "NearbyBlend cannot use a GradientView"),
    ],
)
def test_what_cannot_be_weighed_is_refused(ranker: NearbyBlend, words: str) -> None:
    with pytest.raises(DataError, match=words):
        ranker.fit(two_kinds(1))
