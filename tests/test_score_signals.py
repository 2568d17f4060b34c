"""What is known of queries without labels: signs, and training queries under blends that never saw their labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from querywise.data.judged import Candidates
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.views.columns import Columns
from querywise.locality.views.learned import GradientView, LearnedMetric
from querywise.locality.views.topmean import TopMean
from querywise.rankers.blend import Blend, CrossFitting, score_signals, usual_spreads
from querywise.rankers.knn import KnnOnline
from tests.support.signals import TWO, two_kinds
from tests.worlds import ragged


def cross_fitting(blend: Any, *, view: Any = None, folds: int = 3, measure: str = "map") -> CrossFitting:
    return CrossFitting("Ours", blend, view, folds, measure, seed=0)


def test_a_querys_labels_have_no_part_in_its_own_signs() -> None:
    data = make_judged(40, 10, 4, kinds=2, seed=3)
    labels = data.labels.copy()
    labels[data.candidates.rows(7)] = labels[data.candidates.rows(7)][::-1]
    other = replace(data, labels=labels)
    learned = cross_fitting(Blend([RankSVM(), KnnOnline(RankSVM(), k=5)]), view=TopMean())
    ours, theirs = learned.over(data, None), learned.over(other, None)
    assert ours is not None
    assert theirs is not None
    assert np.array_equal(ours.score_signals[7], theirs.score_signals[7])
    assert not np.array_equal(ours.score_signals, theirs.score_signals)  # those of queries whose rankers saw it
    # Rankers that learn nothing: only what its own order is worth is another number.
    ours, theirs = cross_fitting(TWO).over(data, None), cross_fitting(TWO).over(other, None)
    assert ours is not None
    assert theirs is not None
    assert np.array_equal(ours.score_signals, theirs.score_signals)
    same = (ours.values == theirs.values).all(axis=1)
    assert np.flatnonzero(~same).tolist() == [7]


def test_too_few_queries_or_none_to_learn_from_are_not_crossed() -> None:
    data = two_kinds(1)
    assert cross_fitting(TWO).over(data.select(range(15)), None) is None
    assert cross_fitting(TWO).over(replace(data, labels=np.zeros_like(data.labels)), None) is None


def test_signs_do_not_mind_the_order_of_documents_or_the_scale_of_scores() -> None:
    candidates = ragged(2).candidates
    scores = candidates.features[:, :3]
    usual = usual_spreads(scores, candidates)
    told = score_signals(scores, candidates, usual)
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [rng.permutation(np.arange(*candidates.rows(q).indices(len(scores)))) for q in range(len(candidates))]
    )
    assert np.array_equal(score_signals(scores[rows], candidates, usual), told)
    bent = scores * [2.0, 8.0, 0.5]
    assert score_signals(bent, candidates, usual_spreads(bent, candidates)) == pytest.approx(told, abs=1e-12)
    assert np.isfinite(told).all()


def test_signs_say_what_they_should() -> None:
    candidates = Candidates(np.zeros((21, 1)), np.array([0, 20, 21, 21]), ("long", "one", "none"))
    first = np.arange(20.0)
    second = np.concatenate([first[10:], first[:10]])  # the other half on top
    level = np.zeros(20)
    scores = np.vstack([np.column_stack([first, second, level]), [[5.0, 6.0, 7.0]]])
    long, one, none = score_signals(scores, candidates, np.array([first.std(), first.std() / 3, 0.0]))
    correlation, common, spreads, falls = long[:3], long[3:6], long[6:9], long[9:12]
    assert correlation == pytest.approx([np.corrcoef(first, second)[0, 1], 0.0, 0.0])
    assert common == pytest.approx([0.0, 0.5, 0.5])
    assert spreads == pytest.approx([0.5, 0.75, 0.5])
    assert falls == pytest.approx([9 / first.std(), 9 / first.std(), 0.0])
    assert long[12] == pytest.approx(np.log(21))
    assert one[:6] == pytest.approx(np.ones(6))
    assert one[9:12] == pytest.approx(np.zeros(3))
    assert not none.any()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (cross_fitting(RankSVM()), "needs a Blend"),
        (cross_fitting(TWO, folds=1), "folds=1"),
        (cross_fitting(TWO, measure="mrr"), "measure='mrr' cannot be optimized"),
        (cross_fitting(TWO, view=GradientView()), "cannot use a GradientView"),
        (cross_fitting(TWO, view=LearnedMetric()), "cannot use a LearnedMetric"),
        (cross_fitting(TWO, view=Columns()), "these have none"),
        (cross_fitting(Blend([KnnOnline(RankSVM(), k=70)])), "fits its blend on 60 of the training queries at a time"),
    ],
)
def test_what_cannot_be_crossed_is_refused(asked: CrossFitting, words: str) -> None:
    def cross_fitted() -> None:
        asked.check()
        asked.over(two_kinds(1), None)

    with pytest.raises(DataError, match=words):
        cross_fitted()
