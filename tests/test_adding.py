"""KnnOnline.add against a fit on all training queries that keeps the global model, the scaling and the view."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.folds import read_folds
from querywise.data.frames import from_arrays
from querywise.data.judged import Judged, concatenate
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, NotFittedError
from querywise.learners.local_models import PreparedRows
from querywise.learners.ranksvm.local_models import PreparedRankSVM
from querywise.learners.ranksvm.newton import Optimum, State
from querywise.learners.ranksvm.preferences import SQUARED_HINGE, PreferenceParts, Preferences
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.locality.neighborhoods import Radius
from querywise.locality.views.text import TextView
from querywise.rankers.knn import KnnOnline
from querywise.rankers.neighbors import Locality, neighborhood_or_nearest
from querywise.runtime.arrays import Floats
from querywise.runtime.scaling import Scaling
from querywise.storage.models import load, save
from tests.worlds import REAL_DATA, examples, needs_real_data, ragged


class Held:
    """A view that is fitted already and stays so."""

    def __init__(self, view: Any) -> None:
        self.view = view

    def fit(self, data: Judged, /) -> Any:
        return self.view

    def points(self, candidates: Any, /) -> Floats:
        raise NotImplementedError


def fitted_on(both: Judged, ranker: KnnOnline, base: Judged) -> KnnOnline:
    """A ranker fitted on `both` that keeps what the given one learned from `base` but its training queries."""
    other, learner, everyone = copy.copy(ranker), ranker.learner, ranker.prepared_.everyone
    prepared: Any
    if isinstance(learner, RankSVM):
        scaling = Scaling.learn(base.candidates.features, learner.scale)
        pairs = Preferences(scaling.apply(both.candidates.features), both.labels, both.candidates.starts)
        weights = everyone.weights_ * scaling.spread  # type: ignore[attr-defined]
        scores = pairs.scores(weights)
        optimum = Optimum(weights, 0.0, 0.0, [State(scores, pairs.sums(scores, SQUARED_HINGE))])  # type: ignore[list-item]
        prepared = PreparedRankSVM(learner).fit(everyone, PreferenceParts.of(pairs), scaling, optimum)  # type: ignore[arg-type]
        if both.query_weights is not None:
            prepared.weighted(both.query_weights)
    else:
        prepared = PreparedRows(learner).fit(both)
        prepared.everyone_ = everyone
    locality = Locality(
        Held(ranker.locality_.view_), neighborhood_or_nearest(ranker.neighborhood, ranker.k), ranker.back_off
    )
    other.prepared_, other.locality_ = prepared, locality.fit(both, everyone)
    return other


def one_by_one(ranker: KnnOnline, data: Judged) -> Floats:
    return np.concatenate([ranker.predict(data.select([query])) for query in range(len(data))])


LEARNERS = {
    "certified": RankSVM(),
    "bare": RankSVM(tolerance=None),
    "to its center": RankSVM(0.1, prior="global", prior_l2=1.0, tolerance=1e-8),
    "hinge by pair": RankSVM(loss="hinge", pairs="pair"),
    "as they are": RankSVM(scale="none"),
}


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
@settings(max_examples=examples(20))
@given(
    cut=st.integers(3, 23),
    k=st.sampled_from([1, 3, 0.3, 1.0]),
    weighted=st.sampled_from([(), (0,), (1,), (0, 1)]),
    seed=st.integers(0, 99),
)
def test_adding_is_a_fit_on_both_sets_by_the_same_global_model(
    learner: RankSVM, cut: int, k: float, weighted: tuple[int, ...], seed: int
) -> None:
    data, test = ragged(seed, queries=24), ragged(seed + 100, queries=9)
    parts = [data.select(range(cut)), data.select(range(cut, 24))]
    for part in weighted:
        parts[part] = parts[part].with_weights(np.linspace(0.5, 2.0, len(parts[part])))
    if not parts[0].pairs.any():
        return
    ranker = KnnOnline(learner, k=k).fit(parts[0])
    before = ranker.predict(test)
    added, expected = ranker.add(parts[1]), fitted_on(concatenate(parts), ranker, parts[0])
    assert added.predict(test) == pytest.approx(expected.predict(test), abs=1e-8)
    assert one_by_one(added, test) == pytest.approx(one_by_one(expected, test), abs=1e-8)
    ours, theirs = (each.training_queries(test.candidates).toarray() for each in (added, expected))
    assert np.array_equal(ours, theirs)
    assert np.array_equal(ranker.predict(test), before)


@needs_real_data
@pytest.mark.parametrize("name", ["MQ2008", "OHSUMED"])
@pytest.mark.parametrize("tolerance", [1e-3, None])
def test_adding_half_of_the_training_queries_of_real_data(name: str, tolerance: float | None) -> None:
    train, valid, _ = read_folds(REAL_DATA / name)[0]
    cut = len(train) // 2
    base, later = train.select(range(cut)), train.select(range(cut, len(train)))
    ranker = KnnOnline(RankSVM(tolerance=tolerance)).fit(base)
    added, expected = ranker.add(later), fitted_on(train, ranker, base)
    assert added.predict(valid) == pytest.approx(expected.predict(valid), abs=1e-8)
    assert not np.allclose(added.predict(valid), ranker.predict(valid))


def test_models_of_any_learner_are_trained_on_added_queries() -> None:
    data, test = make_judged(36, 10, 4, kinds=2), make_judged(6, 10, 4, kinds=2, seed=1)
    base, later = (data.select(range(*part)) for part in ((0, 18), (18, 36)))
    ranker = KnnOnline(LambdaMART(4), k=12).fit(base)
    added = ranker.add(later)
    assert np.array_equal(added.predict(test), fitted_on(data, ranker, base).predict(test))
    assert not np.array_equal(added.predict(test), ranker.predict(test))


def test_adding_in_two_steps_or_none_is_adding_at_once() -> None:
    data, test = ragged(3, queries=30), ragged(4, queries=8)
    ranker = KnnOnline(RankSVM(tolerance=1e-8), k=0.3).fit(data.select(range(10)))
    at_once = ranker.add(data.select(range(10, 30)))
    by_steps = ranker.add(data.select(range(10, 20))).add(data.select([])).add(data.select(range(20, 30)))
    assert by_steps.predict(test) == pytest.approx(at_once.predict(test), abs=1e-8)


def test_queries_where_there_were_none_get_models_of_those_added() -> None:
    near, far = ragged(0), ragged(1, queries=25).select(range(15, 25))
    far = replace(far, candidates=replace(far.candidates, features=far.candidates.features + 40))
    ranker = KnnOnline(RankSVM(), neighborhood=Radius(2.0)).fit(near)
    assert ranker.training_queries(far.candidates).nnz == 0
    assert ranker.add(far).training_queries(far.candidates).nnz > 0


@pytest.mark.parametrize("learner", [RankSVM(), RankSVM(tolerance=None), LambdaMART(3)])
def test_a_stored_ranker_is_added_to_and_stored_again(learner: Any, tmp_path: Path) -> None:
    data, test = make_judged(40, 8, 4, kinds=2), make_judged(6, 8, 4, kinds=2, seed=1)
    ranker = KnnOnline(learner, k=8).fit(data.select(range(20)))
    save(ranker, tmp_path / "model")
    loaded: Any = load(tmp_path / "model")
    added = loaded.add(data.select(range(20, 40)))
    save(added, tmp_path / "model")
    expected = ranker.add(data.select(range(20, 40))).predict(test)
    assert np.array_equal(load(tmp_path / "model").predict(test), expected)
    assert added.answer(test).facts() is not None


def test_what_cannot_be_added_is_refused_in_words_and_changes_nothing() -> None:
    data, test = make_judged(20, 6, 3), make_judged(4, 6, 3, seed=1)
    base, later = data.select(range(12)), data.select(range(12, 20))
    with pytest.raises(NotFittedError, match="KnnOnline"):
        KnnOnline(RankSVM()).add(later)
    ranker, trees = (KnnOnline(learner, k=5).fit(base) for learner in (RankSVM(), LambdaMART(3)))
    before = ranker.predict(test), trees.predict(test)
    wide = replace(later, candidates=replace(later.candidates, features=later.candidates.features[:, :2]))
    gaps = from_arrays([[np.nan, 1.0, 2.0], [1.0, 2.0, 3.0]], [0, 1], qid=["new", "new"], missing="allowed")
    values = replace(later, gains=np.array([0.0, 0.5, 2.0]))
    by_row = later.with_weights(documents=np.ones(len(later.labels)))
    for added, refusal in (
        (wide, "trained on 3 features but the documents have 2"),
        (data.select(range(10, 14)), "Query 'q11' is a training query already. Leave it out, or fit the ranker again"),
        (gaps, "Feature 1 is missing in 1 of 2 documents"),
        (by_row, "document weights"),
        (later.candidates, r"^add takes a Judged set: .*; found Candidates\.$"),
    ):
        with pytest.raises(DataError, match=refusal):
            ranker.add(added)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="real-valued labels"):
        trees.add(values)
    with pytest.raises(DataError, match="no document weights, so added ones cannot have any"):
        trees.add(by_row)
    assert np.array_equal(ranker.predict(test), before[0])
    assert np.array_equal(trees.predict(test), before[1])


def test_queries_that_the_view_cannot_place_are_refused_by_the_view() -> None:
    texts = QueryTable(("q1", "q2", "q3"), texts=("jaguar speed", "jaguar car", "python list"))
    data = make_judged(4, 6, 3)
    ranker = KnnOnline(RankSVM(), k=2, view=TextView()).fit(data.select(range(3)).with_queries(texts))
    with pytest.raises(DataError, match="text"):
        ranker.add(data.select([3]))
