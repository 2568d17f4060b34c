from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import rel_entr, softmax

from querywise.data.frames import from_arrays
from querywise.data.judged import Candidates, Judged
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, NotFittedError
from querywise.evaluation.evaluate import evaluate
from querywise.learners.linear import LinearModels
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.views.divergence import Divergence, divergences
from querywise.locality.views.topmean import TwoModels
from querywise.rankers.clusters import Transform
from querywise.rankers.knn import KnnOffline2
from querywise.rankers.single import OneFeature
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import is_fitted
from tests.worlds import examples, inside, ragged

VIEWS: dict[str, Callable[[], Any]] = {
    "Divergence": lambda: Divergence(0),
    "TwoModels": lambda: TwoModels(0, 1),
}


def in_one_query(base: Floats, scores: Floats) -> Floats:
    found: Floats = divergences(base, scores, np.array([0, len(base)]))[0]
    return found


@pytest.fixture(params=VIEWS, name="view")
def a_view(request: pytest.FixtureRequest) -> Any:
    return VIEWS[request.param]()


def standardised(points: Floats) -> Floats:
    return np.asarray((points - points.mean(axis=0)) / points.std(axis=0))


# The divergence of models


def distribution(scores: Floats) -> Floats:
    """The softmax of standardised scores; all alike is uniform."""
    centred = scores - scores.mean()
    return np.asarray(softmax(centred / scores.std() if np.ptp(scores) > 0 else np.zeros(len(scores))))


def by_scipy(base: Floats, scores: Floats) -> list[float]:
    return [float(rel_entr(distribution(base), distribution(column)).sum()) for column in scores.T]


documents = st.shared(st.integers(1, 10), key="documents")
levels = st.integers(-30, 30).map(float)
a_base = arrays(np.float64, documents, elements=levels)
some_models = arrays(np.float64, st.tuples(documents, st.integers(1, 4)), elements=levels)


@given(a_base, some_models)
@settings(deadline=None)
def test_the_divergence_is_the_relative_entropy_of_the_two_distributions(base: Floats, scores: Floats) -> None:
    assert in_one_query(base, scores) == pytest.approx(by_scipy(base, scores), abs=1e-9)


@given(a_base, some_models)
@settings(deadline=None)
def test_a_divergence_is_finite_and_never_negative(base: Floats, scores: Floats) -> None:
    found = in_one_query(base, scores)
    assert np.isfinite(found).all()
    assert (found >= 0).all()


@given(a_base, st.floats(1e-3, 1e3), st.integers(-1000, 1000))
@settings(deadline=None)
def test_a_model_does_not_diverge_from_itself_whatever_its_scale_and_level(
    base: Floats, factor: float, level: int
) -> None:
    alike = np.column_stack([base, factor * base, base + level, factor * base - level])
    assert in_one_query(base, alike) == pytest.approx(np.zeros(4), abs=1e-9)


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e-100, 1e100, 1e160, 1e300])
def test_the_largest_and_the_smallest_scores_diverge_like_any_others(size: float) -> None:
    base, other = np.array([1.0, 2.0, 5.0, -3.0]), np.array([0.0, 4.0, 1.0, 1.0])
    expected = by_scipy(base, np.column_stack([base, other]))
    assert in_one_query(base, size * np.column_stack([base, other])) == pytest.approx(expected, abs=1e-9)
    assert in_one_query(size * base, np.column_stack([base, other])) == pytest.approx(expected, abs=1e-9)


def test_one_score_that_dwarfs_all_others_is_finite() -> None:
    base = np.zeros(1000)
    base[0] = 1e12
    found = in_one_query(base, np.column_stack([base, -base, np.arange(1000.0), np.zeros(1000)]))
    assert np.isfinite(found).all()
    assert found[0] == 0
    assert (found[1:] > 0).all()


def test_two_models_that_turn_all_around_diverge_more_than_two_that_nearly_agree() -> None:
    base = np.array([1.0, 2.0, 3.0, 4.0])
    nearly, turned = in_one_query(base, np.column_stack([[1.0, 2.0, 4.0, 3.0], -base]))
    assert 0 < nearly < turned


def test_all_tied_under_both_is_no_divergence_and_rounding_is_a_tie() -> None:
    tied = np.full(3, 0.1 + 0.2)
    noisy = np.array([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, 0.6])
    assert np.ptp(noisy) > 0
    assert in_one_query(tied, np.column_stack([tied, noisy, [7.0, 7.0, 7.0]])).tolist() == [0.0] * 3
    assert in_one_query(noisy, np.column_stack([tied, noisy, [7.0, 7.0, 7.0]])).tolist() == [0.0] * 3


def test_queries_of_one_document_or_none_do_not_diverge() -> None:
    assert in_one_query(np.array([3.0]), np.array([[-5.0, 0.0]])).tolist() == [0.0, 0.0]
    assert in_one_query(np.zeros(0), np.zeros((0, 2))).tolist() == [0.0, 0.0]


# The view of it


def test_every_feature_by_itself_is_a_model_where_none_are_given() -> None:
    data = ragged(1)
    points = Divergence(2, standardise=False).fit(data).points(data.candidates)
    x = data.candidates.features
    for query in range(len(data)):
        rows = data.candidates.rows(query)
        assert points[query] == pytest.approx(by_scipy(x[rows, 2], x[rows]), abs=1e-9)
    assert points[:, 2] == pytest.approx(np.zeros(len(data)), abs=1e-12)


@pytest.mark.parametrize("reference", range(4))
def test_the_rounding_in_a_bases_divergence_from_itself_is_not_blown_up_to_a_coordinate(reference: int) -> None:
    data = make_judged(30, 17, 4)
    points = Divergence(reference).fit(data).points(data.candidates)
    assert points[:, reference].tolist() == [0.0] * 30
    others = np.delete(points, reference, axis=1)
    assert others.std(axis=0) == pytest.approx(np.ones(3))


def test_models_given_are_those_that_diverge() -> None:
    data, weights = ragged(2), np.random.default_rng(0).normal(size=(3, 4))
    base = RankSVM().fit(data)
    points = Divergence(base, LinearModels(weights), standardise=False).fit(data).points(data.candidates)
    x = data.candidates.features
    expected = [
        by_scipy(base.predict(data.candidates)[rows], x[rows] @ weights.T)
        for rows in map(data.candidates.rows, range(len(data) - 1))
    ]
    assert points[:-1] == pytest.approx(np.array(expected), abs=1e-9)
    assert points[-1] == pytest.approx(np.zeros(3), abs=1e-12), "the last query's documents are all alike"


def test_the_size_of_the_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = ragged(3)
    whole = Divergence(0).fit(data).points(data.candidates)
    for block in (1, 4 * 13, 4 * 30):
        monkeypatch.setattr("querywise.locality.views.divergence._BLOCK", block)
        assert Divergence(0).fit(data).points(data.candidates) == pytest.approx(whole, abs=1e-12)


def test_a_divergence_without_a_base_says_what_it_needs() -> None:
    with pytest.raises(DataError, match="Divergence alone needs a reference: a feature column or a ranker"):
        Divergence().fit(ragged())


# The plane of two models


def mean_of_best(scores: Floats, top: int) -> float:
    best = sorted(map(float, scores), reverse=True)[:top]
    return sum(best) / len(best)


@given(st.integers(0, 10_000), st.integers(1, 12))
@settings(deadline=None, max_examples=examples(20))
def test_a_querys_place_is_the_mean_score_of_the_best_by_each_model(seed: int, top: int) -> None:
    data = ragged(seed)
    ranker = RankSVM().fit(data)
    points = TwoModels(3, ranker, top, standardise=False).fit(data).points(data.candidates)
    for query in range(len(data)):
        rows = data.candidates.rows(query)
        columns = data.candidates.features[rows, 3], ranker.predict(data.candidates)[rows]
        assert points[query] == pytest.approx([mean_of_best(scores, top) for scores in columns])


def test_each_model_has_best_documents_of_its_own() -> None:
    data = from_arrays([[3.0, 10.0], [2.0, 20.0], [1.0, 90.0], [7.0, 5.0]], [1, 0, 0, 1], qid=["a", "a", "a", "b"])
    points = TwoModels(0, 1, top=2, standardise=False).fit(data).points(data.candidates)
    assert points == pytest.approx(np.array([[(3 + 2) / 2, (90 + 20) / 2], [7, 5]]))


def test_a_query_lies_where_its_relevant_documents_would_put_it() -> None:
    data = ragged(5)
    ranker = RankSVM().fit(data)
    view = TwoModels(0, ranker, top=3).fit(data)
    plain = TwoModels(0, ranker, top=3, standardise=False).fit(data)
    means = plain.points(data.candidates)
    expected = means.copy()
    scores = np.column_stack([data.candidates.features[:, 0], ranker.predict(data.candidates)])
    for query in range(len(data)):
        rows = range(*data.candidates.rows(query).indices(len(scores)))
        relevant = [scores[row] for row in rows if data.labels[row] > 0]
        if relevant:
            expected[query] = np.mean(relevant, axis=0)
    assert (expected == means).all(axis=1).any(), "a query without a relevant document stays where it is"
    assert plain.relevant_points(data) == pytest.approx(expected)
    assert view.relevant_points(data) == pytest.approx((expected - means.mean(axis=0)) / means.std(axis=0))


@pytest.mark.parametrize("top", [0, -1, 2.5, np.nan, np.inf])
def test_a_top_that_is_no_number_of_documents_is_refused(top: Any) -> None:
    with pytest.raises(DataError, match=rf"TwoModels\(top={top}\) must be a whole number from 1 up"):
        TwoModels(0, 1, top).fit(ragged())


@pytest.mark.parametrize("models", [(None, None), (0, None), (None, 1)])
def test_a_plane_without_two_models_says_what_it_needs(models: tuple[int | None, int | None]) -> None:
    with pytest.raises(DataError, match="TwoModels alone needs two models: feature columns or rankers"):
        TwoModels(*models).fit(ragged())


def test_a_model_left_open_is_the_rankers_own() -> None:
    data, ranker = ragged(6), RankSVM().fit(ragged(6))
    open_one, closed = TwoModels(0).by(ranker), TwoModels(0, ranker)
    assert open_one.fit(data).points(data.candidates) == pytest.approx(closed.fit(data).points(data.candidates))
    kept = TwoModels(0, 1).by(ranker)
    assert (kept.first, kept.second) == (0, 1)
    assert TwoModels(None, 1, 4).by(ranker).top == 4
    assert Divergence().by(ranker).reference is ranker
    assert Divergence(2).by(ranker).reference == 2


# What both promise


def test_coordinates_are_standardised_on_the_training_queries_only(view: Any) -> None:
    data = make_judged(30, 8, 3)
    train, test = data.select(range(20)), data.select(range(20, 30))
    plain = VIEWS[type(view).__name__]()
    plain.standardise = False
    known, new = plain.fit(train).points(train.candidates), plain.points(test.candidates)
    view.fit(train)
    moves = known.std(axis=0) > 1e-12
    assert view.points(train.candidates)[:, moves] == pytest.approx(standardised(known[:, moves]))
    assert view.points(test.candidates)[:, moves] == pytest.approx(
        (new[:, moves] - known[:, moves].mean(axis=0)) / known[:, moves].std(axis=0)
    )


def test_fitting_returns_the_view_and_a_querys_place_does_not_depend_on_the_others(view: Any) -> None:
    data = make_judged(12, 5, 3)
    assert view.fit(data) is view
    assert view.points(data.candidates).shape[0] == 12
    alone = np.vstack([view.points(data.candidates.select([query])) for query in range(12)])
    assert alone == pytest.approx(view.points(data.candidates), abs=1e-12)


def test_the_order_of_a_querys_documents_does_not_matter(view: Any) -> None:
    candidates = make_judged(10, 9, 3).candidates
    rng = np.random.default_rng(0)
    rows = np.concatenate([9 * query + rng.permutation(9) for query in range(10)])
    mixed = replace(candidates, features=candidates.features[rows])
    view.fit(make_judged(10, 9, 3))
    assert view.points(mixed) == pytest.approx(view.points(candidates), abs=1e-9)


def test_a_query_without_documents_has_a_finite_point(view: Any) -> None:
    data = make_judged(10, 5, 3)
    view.fit(data)
    some = Candidates(data.candidates.features[:5], np.array([0, 0, 5, 5]), ("none", "some", "none again"))
    assert np.isfinite(view.points(some)).all()
    assert view.points(some)[1] == pytest.approx(view.points(data.candidates)[0])
    nobody = Candidates(np.zeros((0, 3)), np.array([0]), ())
    assert view.points(nobody).shape == (0, view.points(some).shape[1])


def test_asking_before_fitting_says_what_to_do(view: Any) -> None:
    with pytest.raises(NotFittedError, match=rf"call {type(view).__name__}\.fit\(data\) first"):
        view.points(make_judged(5, 4, 3).candidates)


def test_a_reference_out_of_range_or_without_a_name_is_refused() -> None:
    for view in (Divergence(3), TwoModels(3, 0), TwoModels(0, 3)):
        with pytest.raises(DataError, match=r"no feature 3: there are 3 features, numbered 0 to 2 in Python"):
            view.fit(make_judged(5, 4, 3))
    for named in (Divergence("bm25"), TwoModels("bm25", 0), TwoModels(0, "bm25")):
        with pytest.raises(DataError, match=r"no feature 'bm25'"):
            named.fit(make_judged(5, 4, 3))


def test_a_feature_may_be_named() -> None:
    data = make_judged(8, 5, 3)
    named = replace(data, candidates=replace(data.candidates, feature_names=("age", "bm25", "clicks")))
    for by_name, by_number in ((Divergence("bm25"), Divergence(1)), (TwoModels("bm25", "age"), TwoModels(1, 0))):
        expected = by_number.fit(named).points(named.candidates)
        assert np.array_equal(by_name.fit(named).points(named.candidates), expected)


def test_rankers_given_unfitted_are_fitted_on_the_training_part_and_stay_unfitted() -> None:
    data = make_judged(20, 8, 3)
    given_models = RankSVM(0.5), OneFeature()
    plane, view = TwoModels(*given_models).fit(data), Divergence(given_models[0]).fit(data)
    assert not any(is_fitted(each) for each in given_models)
    assert np.array_equal(inside(plane.models_[0]).weights_, RankSVM(0.5).fit(data).weights_)
    assert np.array_equal(inside(view.reference_).weights_, RankSVM(0.5).fit(data).weights_)
    assert inside(plane.models_[1]).column_ == OneFeature().fit(data).column_


@pytest.mark.parametrize("ranker", [KnnOffline2, Transform])
def test_both_place_queries_for_any_ranker(ranker: Callable[..., Any]) -> None:
    train, test = ragged(1, queries=25), ragged(2)
    for seen in (Divergence(), TwoModels(0)):
        scores = ranker(RankSVM(), 5, view=seen).fit(train).predict(test.candidates)
        assert np.isfinite(scores).all()
        assert not is_fitted(seen)


# The feature that ranks best


def map_of(column: Floats, data: Judged) -> float:
    return evaluate(column, data, measures=["map"]).mean()["map"]


@pytest.mark.parametrize("seed", range(5))
def test_the_feature_that_ranks_the_training_queries_best_is_the_one_taken(seed: int) -> None:
    data = make_judged(15, 8, 5, seed=seed)
    values = [map_of(column, data) for column in data.candidates.features.T]
    best = int(np.argmax(values))
    assert OneFeature().fit(data).column_ == best
    assert np.array_equal(OneFeature().fit(data).predict(data.candidates), data.candidates.features[:, best])


def test_the_first_of_equally_good_features_is_taken() -> None:
    data = make_judged(15, 8, 3, seed=1)
    best = OneFeature().fit(data).column_
    x = data.candidates.features
    twins = replace(data, candidates=replace(data.candidates, features=np.column_stack([x, 2 * x, x])))
    assert OneFeature().fit(twins).column_ == best


def test_what_ranks_best_is_found_on_the_training_queries_and_kept() -> None:
    train = from_arrays([[1.0, 2.0], [2.0, 1.0]], [1, 0], qid=["a", "a"])
    test = from_arrays([[1.0, 2.0], [2.0, 1.0]], [0, 1], qid=["b", "b"])
    ranker = OneFeature().fit(train)
    assert ranker.column_ == 1
    assert ranker.predict(test.candidates).tolist() == [2.0, 1.0]
    assert OneFeature().fit(test).column_ == 0
