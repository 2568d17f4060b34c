from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querywise.contracts.protocols import QueryView
from querywise.data.frames import from_arrays
from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, NotFittedError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.views.columns import Columns, SideBySide
from querywise.locality.views.topmean import TopMean, top_shares
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import is_fitted
from querywise.runtime.scaling import Scaling
from tests.worlds import inside

VIEWS: dict[str, Callable[[], Any]] = {
    "TopMean": lambda: TopMean(0),
    "Columns": Columns,
    "SideBySide": lambda: SideBySide([TopMean(0), Columns()]),
}


def with_columns(data: Judged) -> Judged:
    """Each query with its length in words and its age in days."""
    count = len(data)
    values = np.column_stack([np.arange(count, dtype=np.float64), 1000.0 - np.arange(count) ** 2])
    return data.with_queries(QueryTable(data.candidates.query_ids, columns=values, column_names=("words", "age")))


def standardised(points: Floats) -> Floats:
    return np.asarray((points - points.mean(axis=0)) / points.std(axis=0))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 14))
def test_shares_sum_to_1_never_favour_the_lower_score_and_treat_ties_alike(levels: list[int], top: int) -> None:
    scores = np.array(levels, dtype=np.float64)
    shares = top_shares(scores, top)
    assert shares.sum() == pytest.approx(1.0)
    assert np.all(shares >= 0)
    assert np.all(shares <= 1 / min(top, len(scores)) + 1e-12)
    for a in range(len(scores)):
        for b in range(len(scores)):
            if scores[a] == scores[b]:
                assert shares[a] == shares[b]
            if scores[a] > scores[b]:
                assert shares[a] >= shares[b]


def test_documents_tied_at_the_cut_share_the_places_left() -> None:
    # Two places: one for the best, and one that the three tied documents share.
    assert top_shares(np.array([5.0, 9.0, 5.0, 1.0, 5.0]), 2) == pytest.approx([1 / 6, 1 / 2, 1 / 6, 0, 1 / 6])


def test_fewer_documents_than_places_count_alike() -> None:
    assert top_shares(np.array([3.0, 1.0]), 50) == pytest.approx([1 / 2, 1 / 2])


def test_the_point_is_the_mean_of_the_best_by_the_reference_column() -> None:
    data = from_arrays([[3.0, 10.0], [2.0, 20.0], [1.0, 90.0], [7.0, 5.0]], [1, 0, 0, 1], qid=["a", "a", "a", "b"])
    by_first = TopMean(0, top=2, standardise=False).fit(data).points(data.candidates)
    assert by_first == pytest.approx(np.array([[(3 + 2) / 2, (10 + 20) / 2], [7, 5]]))
    by_second = TopMean(1, top=2, standardise=False).fit(data).points(data.candidates)
    assert by_second == pytest.approx(np.array([[(2 + 1) / 2, (20 + 90) / 2], [7, 5]]))


def test_coordinates_are_standardised_on_the_training_queries_only() -> None:
    data = make_judged(30, 8, 3)
    train, test = data.select(range(20)), data.select(range(20, 30))
    plain = TopMean(0, top=4, standardise=False).fit(train)
    view = TopMean(0, top=4).fit(train)
    scaling = Scaling.learn(plain.points(train.candidates), "standard")
    assert view.points(train.candidates) == pytest.approx(standardised(plain.points(train.candidates)))
    assert view.points(test.candidates) == pytest.approx(scaling.apply(plain.points(test.candidates)))


def test_a_reference_given_unfitted_is_fitted_on_the_training_part_and_stays_unfitted() -> None:
    data = make_judged(40, 8, 3)
    first, second = data.select(range(20)), data.select(range(20, 40))
    reference = RankSVM(0.5)
    view = TopMean(reference).fit(first)
    assert not is_fitted(reference)
    assert np.array_equal(inside(view.reference_).weights_, RankSVM(0.5).fit(first).weights_)
    # What was learned from the first part must not live on in the second fit.
    view.fit(second)
    assert not is_fitted(reference)
    assert np.array_equal(inside(view.reference_).weights_, RankSVM(0.5).fit(second).weights_)


def test_a_fitted_reference_is_used_as_it_is() -> None:
    data = make_judged(40, 8, 3)
    reference = RankSVM().fit(data.select(range(20)))
    before = reference.weights_.copy()
    view = TopMean(reference).fit(data.select(range(20, 40)))
    assert view.reference_ is reference
    assert np.array_equal(reference.weights_, before)


def test_a_ranker_and_the_column_it_ranks_by_give_the_same_points() -> None:
    data = make_judged(10, 9, 3)
    ranker = RankSVM().fit(data)
    ranker.weights_ = np.array([0.0, 2.0, 0.0])
    by_ranker, by_column = TopMean(ranker, top=3).fit(data), TopMean(1, top=3).fit(data)
    assert by_ranker.points(data.candidates) == pytest.approx(by_column.points(data.candidates))


def test_a_reference_out_of_range_is_refused_with_both_ways_of_counting() -> None:
    data = make_judged(5, 4, 3)
    for column in (-1, 3):
        with pytest.raises(DataError, match=rf"no feature {column}: there are 3 features, numbered 0 to 2 in Python"):
            TopMean(column).fit(data)


def test_less_than_one_document_is_refused() -> None:
    with pytest.raises(DataError, match=r"TopMean\(top=0\) must be a whole number from 1 up"):
        TopMean(0, top=0).fit(make_judged(5, 4, 3))


def test_the_order_of_a_querys_documents_does_not_matter() -> None:
    candidates = make_judged(10, 9, 3).candidates
    features = candidates.features.round(0)  # many ties
    rng = np.random.default_rng(0)
    rows = np.concatenate([9 * query + rng.permutation(9) for query in range(10)])
    straight, mixed = (replace(candidates, features=each) for each in (features, features[rows]))
    view = TopMean(0, top=4).fit(make_judged(10, 9, 3))
    assert view.points(mixed) == pytest.approx(view.points(straight), abs=1e-12)


def test_a_query_without_documents_has_a_finite_point() -> None:
    data = make_judged(10, 5, 3)
    for reference in (0, RankSVM()):
        view = TopMean(reference).fit(data)
        some = Candidates(data.candidates.features[:5], np.array([0, 0, 5, 5]), ("none", "some", "none again"))
        points = view.points(some)
        assert points.shape == (3, 3)
        assert np.isfinite(points).all()
        assert points[1] == pytest.approx(view.points(data.candidates)[0])


def test_columns_are_the_users_own_standardised() -> None:
    data = with_columns(make_judged(6, 4, 3))
    words, age = np.arange(6.0), 1000 - np.arange(6.0) ** 2
    assert Columns().fit(data).points(data.candidates) == pytest.approx(standardised(np.column_stack([words, age])))


def test_columns_come_in_the_order_of_the_names_asked_for() -> None:
    data = with_columns(make_judged(6, 4, 3))
    words, age = np.arange(6.0), 1000 - np.arange(6.0) ** 2

    def values(*names: str) -> Floats:
        return Columns(names, standardise=False).fit(data).points(data.candidates)

    assert np.array_equal(values("age", "words"), np.column_stack([age, words]))
    assert np.array_equal(values("age"), age[:, None])


def test_new_queries_may_list_their_columns_in_another_order() -> None:
    data = with_columns(make_judged(6, 4, 3))
    table = data.candidates.queries
    assert table is not None
    assert table.columns is not None
    turned = QueryTable(table.ids, columns=table.columns[:, ::-1], column_names=("age", "words"))
    view = Columns().fit(data)
    assert np.array_equal(view.points(data.with_queries(turned).candidates), view.points(data.candidates))


def test_a_query_table_that_is_missing_says_where_to_get_one() -> None:
    data = make_judged(6, 4, 3)
    without_table = replace(data, candidates=replace(data.candidates, queries=None))
    for each in (data, without_table):  # a table of classes alone has no columns either
        with pytest.raises(DataError, match=r"needs columns of the queries, and these have none.*queries\.jsonl"):
            Columns().fit(each)
    with pytest.raises(DataError, match="these have none"):
        Columns().fit(with_columns(data)).points(data.candidates)


def test_an_unknown_column_is_refused_with_those_there_are() -> None:
    with pytest.raises(DataError, match=r"no column 'weight'\. They have: words, age"):
        Columns(["words", "weight"]).fit(with_columns(make_judged(6, 4, 3)))


def test_side_by_side_every_view_counts_the_same_whatever_its_number_of_coordinates() -> None:
    data = with_columns(make_judged(6, 4, 3))
    parts = [TopMean(0).fit(data).points(data.candidates), Columns(["age"]).fit(data).points(data.candidates)]
    points = SideBySide([TopMean(0), Columns(["age"])]).fit(data).points(data.candidates)

    def squared(each: Floats) -> float:
        return float(np.sum((each[0] - each[5]) ** 2))

    assert squared(points) == pytest.approx(squared(parts[0]) / 3 + squared(parts[1]) / 1)
    # Standardised coordinates vary by 1 each, so a view's share of all variance is 1 whatever its number of them.
    assert points[:, :3].var(axis=0).sum() == pytest.approx(1.0)
    assert points[:, 3:].var(axis=0).sum() == pytest.approx(1.0)


def test_the_views_given_are_not_changed() -> None:
    reference = RankSVM()
    views: list[QueryView] = [TopMean(reference), Columns()]
    beside = SideBySide(views).fit(with_columns(make_judged(6, 4, 3)))
    assert beside.views is views
    assert not any(is_fitted(each) for each in (*views, reference))


def test_side_by_side_of_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="at least one view"):
        SideBySide([]).fit(make_judged(6, 4, 3))


@pytest.mark.parametrize("kind", VIEWS)
def test_fitting_returns_the_view_and_a_querys_place_does_not_depend_on_the_others(kind: str) -> None:
    data = with_columns(make_judged(12, 5, 3))
    view = VIEWS[kind]()
    assert view.fit(data) is view
    assert view.points(data.candidates).shape[0] == 12
    alone = np.vstack([view.points(data.candidates.select([query])) for query in range(12)])
    assert alone == pytest.approx(view.points(data.candidates), abs=1e-12)


@pytest.mark.parametrize("kind", VIEWS)
def test_asking_before_fitting_says_what_to_do(kind: str) -> None:
    with pytest.raises(NotFittedError, match=rf"call {kind}\.fit\(data\) first"):
        VIEWS[kind]().points(make_judged(5, 4, 3).candidates)
