"""Weights of first-stage runs: for all queries, and for each query its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from querywise.contracts.asking import facts_of
from querywise.contracts.run_weights import run_weights
from querywise.data.judged import Candidates, Judged
from querywise.data.run_columns import run_columns, run_feature_names
from querywise.data.synthetic import make_judged
from querywise.data.training import content_order
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.explanations.explain import explain, why
from querywise.methods import METHODS
from querywise.rankers.weights.by_query import ForestWeights, WeightsByQuery
from querywise.rankers.weights.fusion import (
    Confidence,
    EqualWeights,
    Fusion,
    ReciprocalRank,
    RunLists,
    Weights,
    best_of,
    normalised_runs,
    options_for,
)
from querywise.retrieval.signals import signals
from querywise.storage import load, save
from tests.support.runs import RUNS, planted
from tests.worlds import as_runs, ragged


def mean_map(ranker: Fusion, data: Judged) -> float:
    return float(evaluate(ranker.predict(data.candidates), data, measures=["map"]).values.mean())


def test_the_score_is_the_weighted_sum_of_normalised_lists() -> None:
    features = np.array([[9.0, 1.0, 0.0, 0.0], [5.0, 0.5, 0.2, 0.5], [1.0, 1 / 3, 0.7, 1.0], [0.0, 0.0, 0.0, 0.0]])
    candidates = Candidates(features, np.array([0, 4]), ("q",), feature_names=run_feature_names(RUNS))
    ranker = Weights().fit(Judged(candidates, np.array([0, 0, 1, 0])))
    ranker.weights_ = np.array([0.25, 0.75])
    assert ranker.runs_ == RUNS
    assert ranker.predict(candidates) == pytest.approx([0.25, 0.25 * 0.5 + 0.75 * 0.001, 0.25 * 0.001 + 0.75, 0.0])


def test_equal_weights_of_ranks_order_as_reciprocal_rank_fusion() -> None:
    data = as_runs(make_judged(20, 12, 2, seed=3))
    runs = [run.score for run in run_columns(data.feature_names)]
    plain = replace(
        data, candidates=replace(data.candidates, features=data.candidates.features[:, runs], feature_names=None)
    )
    expected = ReciprocalRank().fit(plain).predict(plain.candidates)
    assert EqualWeights("rank").fit(data).predict(data.candidates) == pytest.approx(expected / 2, rel=1e-12)


def test_equal_weights_take_weighted_queries_and_the_others_say_why_not() -> None:
    data = planted(20)
    weighted = data.with_weights(np.arange(1.0, 21.0), np.ones(len(data.labels)))
    for ranker in (EqualWeights("rank"), EqualWeights()):
        ours, plain = (ranker.fit(each).predict(data.candidates) for each in (weighted, data))
        assert np.array_equal(ours, plain)
    with pytest.raises(DataError, match=r"Weights does not support .*chooses weights of runs by the plain mean"):
        Weights().fit(weighted)
    with pytest.raises(DataError, match=r"Confidence does not support .*compares a query with all training queries"):
        Confidence().fit(weighted)


def test_weights_maximise_the_measure_over_the_grid() -> None:
    data = planted(60, told=False)
    found = Weights(measure="ndcg@5").fit(data)
    lists = RunLists.of(data, run_columns(data.feature_names), "opensearch-min-max", "ndcg@5")
    ranker = Weights(measure="ndcg@5").fit(data)
    reached = []
    for option in options_for(2):
        ranker.weights_ = option
        reached.append(evaluate(ranker.predict(data.candidates), data, measures=["ndcg@5"]).values.mean())
    assert lists.table.mean(axis=0) == pytest.approx(reached, abs=1e-12)
    assert reached[best_of(np.array(reached), options_for(2), found.weights_)] == pytest.approx(max(reached))
    assert found.weights_.tolist() in options_for(2).tolist()


def test_training_and_validation_queries_count_alike_each_once() -> None:
    data = planted(60)
    whole = Weights().fit(data)
    parts = Weights().fit(data.select(np.arange(40)), valid=data.select(np.arange(20, 60)))
    assert np.array_equal(whole.weights_, parts.weights_)


def test_what_the_runs_missed_counts() -> None:
    data = planted(30)
    ids = data.candidates.document_ids or ()
    of_row = data.candidates.query_of_row
    grades = {
        query: {ids[row]: int(data.labels[row]) for row in np.flatnonzero(of_row == number)} | {"missed": 1}
        for number, query in enumerate(data.query_ids)
    }
    known = data.with_judgements(grades)
    lists = [RunLists.of(each, run_columns(data.feature_names), "l2", "map") for each in (data, known)]
    assert (lists[1].table < lists[0].table).all()


def test_more_than_three_runs_are_searched_from_a_coarser_grid() -> None:
    base = make_judged(40, 12, 5, noise=0.2, seed=1)
    data = as_runs(base, ("a", "b", "c", "d", "e"))
    found = Weights().fit(data)
    assert found.weights_.sum() == pytest.approx(1)
    lists = RunLists.of(data, run_columns(data.feature_names), "opensearch-min-max", "map")
    assert len(lists.options) == 126
    kept = lists.with_best()
    assert (kept.options == kept.best).all(axis=1).any()
    assert np.array_equal(kept.best, found.weights_)
    assert kept.table.mean(axis=0).max() == pytest.approx(mean_map(found, data))
    local = WeightsByQuery(way="neighbours", kappa=np.inf, shrinkage=1.0).fit(data)
    assert np.array_equal(local.predict(data.candidates), found.predict(data.candidates))


def test_ties_go_to_the_nearest_to_equal_weights_and_then_to_the_first() -> None:
    options = options_for(2)
    assert options[best_of(np.zeros(21), options, np.array([0.5, 0.5]))].tolist() == [0.5, 0.5]
    values = np.isin(np.arange(21), (9, 11)).astype(np.float64)
    assert best_of(values, options, np.array([0.5, 0.5])) == 9


@pytest.mark.parametrize(
    "settings",
    [
        {"way": "neighbours", "kappa": np.inf, "shrinkage": 1.0},
        {"way": "neighbours", "kappa": np.inf, "shrinkage": 0.25},
        {"way": "neighbours", "kappa": 0.0, "shrinkage": 0.0},
        {"way": "signals", "signals_l2": np.inf, "shrinkage": 1.0},
        {"way": "signals", "signals_l2": np.inf, "shrinkage": 0.5},
        {"way": "signals", "signals_l2": 0.01, "shrinkage": 0.0},
    ],
)
def test_the_limits_are_the_weights_for_all_queries_bit_for_bit(settings: dict[str, float | str]) -> None:
    data = planted(60)
    common, local = Weights().fit(data), WeightsByQuery(**settings).fit(data)  # type: ignore[arg-type]
    assert np.array_equal(local.run_weights(data.candidates), common.run_weights(data.candidates))
    assert np.array_equal(local.predict(data.candidates), common.predict(data.candidates))


def oracle(data: Judged) -> float:
    """The mean measure if every query had its best weights."""
    return float(
        RunLists.of(data, run_columns(data.feature_names), "opensearch-min-max", "map").table.max(axis=1).mean()
    )


@pytest.mark.slow
def test_half_of_the_oracles_gap_is_closed_where_the_text_says_the_kind_of_query() -> None:
    train, test = planted(seed=1), planted(seed=2)
    common, local = Weights().fit(train), WeightsByQuery().fit(train)
    usual = mean_map(common, test)
    assert (mean_map(local, test) - usual) / (oracle(test) - usual) >= 0.5
    gains = facts_of(local).gains
    assert sum(each.taken for each in gains) == 1
    taken = next(each for each in gains if each.taken)
    assert taken.gain > taken.error
    assert taken.tried.startswith("neighbours")


def test_signals_tell_the_kind_of_query_too() -> None:
    train, test = planted(seed=1), planted(seed=2)
    local = WeightsByQuery(way="signals").fit(train)
    assert mean_map(local, test) > mean_map(Weights().fit(train), test) + 0.02


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_without_structure_the_weights_for_all_queries_are_returned(seed: int) -> None:
    data = planted(told=False, seed=seed)
    common, local = Weights().fit(data), WeightsByQuery().fit(data)
    assert facts_of(local).gains
    assert not any(each.taken for each in facts_of(local).gains)
    assert not local.answer(data.candidates).varies
    assert np.array_equal(local.predict(data.candidates), common.predict(data.candidates))


def test_too_few_queries_leave_nothing_to_choose() -> None:
    data = planted(12)
    local = WeightsByQuery().fit(data)
    assert facts_of(local).gains == ()
    assert np.array_equal(local.predict(data.candidates), Weights().fit(data).predict(data.candidates))


def test_a_far_query_and_one_without_documents_have_the_weights_for_all() -> None:
    data = planted(120)
    local = WeightsByQuery(way="signals", signals_l2=0.1, shrinkage=1.0).fit(data)
    far = data.candidates.features[:20].copy()
    far[:, 0] *= 1e6
    far[:, 1] = 0.0
    far[0, 1] = 1.0
    odd = Candidates(far, np.array([0, 20, 20]), ("far", "empty"), feature_names=data.feature_names)
    assert np.array_equal(local.run_weights(odd), np.tile(local.weights_, (2, 1)))
    near = local.run_weights(data.candidates)
    assert (near != local.weights_).any(axis=1).mean() > 0.8
    assert near.min() >= 0
    assert near.sum(axis=1) == pytest.approx(np.ones(120))


def test_an_explanation_says_the_weights() -> None:
    data = planted(120)
    local = WeightsByQuery(way="neighbours", kappa=0.0, shrinkage=1.0).fit(data)
    weights = local.run_weights(data.candidates)
    query = int(np.flatnonzero((weights != local.weights_).any(axis=1))[0])
    found = explain(local, data.candidates, data.query_ids[query])
    assert {each.feature: each.here for each in found.departures} == dict(zip(RUNS, weights[query], strict=True))
    assert {each.feature: each.everyone for each in found.departures} == dict(zip(RUNS, local.weights_, strict=True))
    assert len(found.neighbours) >= 12, "some share the last places"
    assert sum(each.weight for each in found.neighbours) == pytest.approx(1)
    first, second = (data.candidates.document_ids or ())[query * 20 : query * 20 + 2]
    reason = why(local, data.candidates, data.query_ids[query], first, second)
    own = local.predict(data.candidates)[query * 20 : query * 20 + 2]
    assert reason.difference == pytest.approx(own[0] - own[1])


def test_margin_and_entropy_trust_the_run_that_stands_out() -> None:
    data = planted(80)
    margin, entropy = Confidence().fit(data), Confidence("entropy").fit(data)
    names, values = signals(data.candidates)
    weights = margin.run_weights(data.candidates)[:, 1]
    order = np.argsort(values[:, names.index("vectors.margin")])
    assert (np.diff(weights[order]) >= 0).all()
    uneven = np.argsort(-values[:, names.index("words.entropy")])
    assert (np.diff(entropy.run_weights(data.candidates)[:, 0][uneven]) >= 0).all()


def test_a_forest_predicts_as_scikit_learn_does() -> None:
    from sklearn.ensemble import RandomForestRegressor

    data = planted(80)
    ranker = ForestWeights(trees=7, seed=3).fit(data)
    points = ranker.view_.points(data.candidates)
    lists = RunLists.of(data, run_columns(data.feature_names), "opensearch-min-max", "map")
    order = content_order(data)  # in which rows are drawn
    grown = RandomForestRegressor(7, min_samples_leaf=2, random_state=3).fit(points[order], lists.table[order])
    expected = grown.predict(points)
    chosen = [options_for(2)[best_of(each, options_for(2), ranker.weights_)] for each in expected]
    assert np.array_equal(ranker.run_weights(data.candidates), np.array(chosen))


def test_weights_survive_a_folder(tmp_path: Path) -> None:
    data = planted(120)
    for name in ("weights", "weights-by-query", "forest", "margin"):
        ranker = METHODS[name].build().fit(data)
        save(ranker, tmp_path / name)
        again = load(tmp_path / name)
        found, expected = (run_weights(each.answer(data.candidates)) for each in (again, ranker))
        assert np.array_equal(found, expected)
        assert facts_of(again).gains == facts_of(ranker).gains


@pytest.mark.parametrize("method", ["rrf", "combsum", "weights", "weights-by-query", "margin", "entropy", "forest"])
def test_data_without_runs_is_refused(method: str) -> None:
    with pytest.raises(DataError, match=r"needs the columns run\.NAME\.score and run\.NAME\.reciprocal_rank of two"):
        METHODS[method].build().fit(ragged())


def test_one_run_alone_is_refused_by_name() -> None:
    with pytest.raises(DataError, match="the features have only those of a"):
        Weights().fit(as_runs(make_judged(5, 5, 2), ("a",)))


def test_a_rank_that_is_none_is_refused_with_its_document() -> None:
    candidates = Candidates(
        np.array([[1.0, 3.0, 0.0, 0.0]]), np.array([0, 1]), ("q",), ("D7",), feature_names=run_feature_names(RUNS)
    )
    with pytest.raises(DataError, match=r"Document D7: run\.words\.reciprocal_rank is 3\.0; expected 1 / rank"):
        normalised_runs(candidates, run_columns(candidates.feature_names), "l2")


@pytest.mark.parametrize(
    ("ranker", "message"),
    [
        (Weights("median"), r"Weights\(normalise='median'\) is unknown. Known: opensearch-min-max, l2, z-score, rank"),  # type: ignore[arg-type]
        (Weights(measure="mrr"), "measure='mrr' cannot be optimized"),
        (WeightsByQuery(way="luck"), r"WeightsByQuery\(way='luck'\) is unknown. Known: chosen, neighbours, signals"),  # type: ignore[arg-type]
        (WeightsByQuery(kappa=-1), r"kappa=-1\) must be a number from 0 up"),
        (WeightsByQuery(l2=0), r"l2=0\) must be a positive number"),
        (WeightsByQuery(shrinkage=2), r"shrinkage=2\) must lie between 0 and 1"),
        (WeightsByQuery(folds=1), r"folds=1\) must be a whole number between 2"),
        (Confidence(run="c"), r"run='c'\): there is no such run. There are: words, vectors"),
        (Confidence("size"), r"sign='size'\) is unknown. Known: margin, entropy"),  # type: ignore[arg-type]
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(ranker: Weights, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ranker.fit(planted(30))
