from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from querywise.contracts.answers import Answer, Local, Once, PretrainedModels, Scorer, alone
from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.evaluation.compare import compare
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.findings import OracleFinding, findings
from querywise.evaluation.oracle import OracleGap, oracle_gap, reachable
from querywise.learners.linear import LinearModel
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.views.columns import Columns
from querywise.locality.views.topmean import TopMean
from querywise.measures.formulas import average_precision, average_precisions, precision_halves, precision_table
from querywise.measures.order import FLAVOURS, RankedList
from querywise.rankers.clusters import QueryClasses
from querywise.rankers.knn import KnnOffline1, KnnOffline2, KnnOnline
from querywise.rankers.single import Single
from querywise.rankers.wrappers import QueryNormalised, normalised
from querywise.report.sections import gap_lines
from querywise.runtime.arrays import Floats, Ints
from tests.worlds import examples, ragged, two_faced


class Linear:
    """Several linear models that nobody trained; whole weights and features, so that no sum depends on its order."""

    def __init__(self, weights: Ints) -> None:
        self.weights = weights

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, number: int, /) -> LinearModel:
        return LinearModel(self.weights[number].astype(np.float64))

    def pick(self, candidates: Candidates, model: Ints, /) -> Floats:
        raise NotImplementedError

    def blend(self, candidates: Candidates, shares: Floats, /) -> Floats:
        raise NotImplementedError

    def predict(self, candidates: Candidates, /) -> Floats:
        return self[0].predict(candidates)

    def answer(self, candidates: Candidates, /) -> Answer:
        local = Local(Once(lambda: self), stored=PretrainedModels(str, np.ones(len(self), np.bool_)))
        return alone(self[0], candidates)._replace(varies=True, local=local)

    def scores(self, candidates: Candidates, /) -> Floats:
        found: Floats = candidates.features @ self.weights.T.astype(np.float64)
        return found


def gap_of(ranker: Scorer, data: Judged, flavour: str = "standard") -> OracleGap:
    found = oracle_gap(ranker, data, flavour=flavour)
    assert found is not None
    return found


def whole_numbers(seed: int = 0) -> Judged:
    """Queries of several sizes, one of them of one document, one without a relevant one."""
    made = ragged(seed)
    features = np.random.default_rng(seed).integers(-4, 5, made.candidates.features.shape).astype(np.float64)
    return Judged(Candidates(features, made.candidates.starts, made.candidates.query_ids), made.labels)


WEIGHTS = np.random.default_rng(1).integers(-3, 4, (9, 4))


# Average precision under many scorings at once


@pytest.mark.parametrize("flavour", FLAVOURS.values(), ids=FLAVOURS)
@given(
    labels=arrays(np.int64, st.shared(st.integers(1, 12), key="n"), elements=st.integers(0, 3)),
    scores=arrays(
        np.float64, st.tuples(st.shared(st.integers(1, 12), key="n"), st.integers(1, 5)), elements=st.integers(0, 4)
    ),
)
@settings(deadline=None, max_examples=examples(40))
def test_many_scorings_at_once_are_each_alone(labels: Ints, scores: Floats, flavour: Any) -> None:
    found = average_precisions(labels, scores, flavour)
    for column, value in zip(scores.T, found, strict=True):
        ranked = labels[np.argsort(-column, kind="stable")]
        assert value == pytest.approx(average_precision(RankedList(ranked), None, flavour))


# The gap


def test_the_best_model_is_looked_up_query_by_query() -> None:
    data = whole_numbers()
    table = np.column_stack(
        [evaluate(data.candidates.features @ each, data, measures=["map"])["map"] for each in WEIGHTS]
    )
    gap = gap_of(Linear(WEIGHTS), data)
    assert gap.best == pytest.approx(table.max(axis=1))
    assert gap.by_rank == pytest.approx(np.sort(table, axis=1)[:, ::-1].mean(axis=0))
    assert gap.relevant_only is None


def test_the_mean_by_rank_starts_at_the_upper_bound_and_never_rises() -> None:
    gap = gap_of(Linear(WEIGHTS), whole_numbers())
    assert gap.by_rank[0] == pytest.approx(gap.best.mean())
    assert (np.diff(gap.by_rank) <= 0).all()
    assert len(gap.by_rank) == len(WEIGHTS)


def test_the_upper_bound_never_falls_when_models_are_added() -> None:
    data = whole_numbers()
    bounds = np.array([gap_of(Linear(WEIGHTS[:count]), data).best for count in range(1, len(WEIGHTS) + 1)])
    assert (np.diff(bounds, axis=0) >= 0).all()
    assert bounds[0].mean() < bounds[-1].mean(), "in this world more models do help"


def test_one_model_has_no_gap() -> None:
    data = whole_numbers()
    own = evaluate(data.candidates.features @ WEIGHTS[2], data, measures=["map"])["map"]
    assert gap_of(Linear(WEIGHTS[2:3]), data).best == pytest.approx(own)


@pytest.mark.parametrize("block", [1, 7, 40, 300])
def test_the_size_of_the_blocks_changes_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = whole_numbers()
    whole = gap_of(Linear(WEIGHTS), data)
    monkeypatch.setattr("querywise.measures.formulas._BLOCK", block * len(WEIGHTS))
    parts = gap_of(Linear(WEIGHTS), data)
    assert np.array_equal(parts.best, whole.best)
    assert np.array_equal(parts.by_rank, whole.by_rank)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_gap_goes_by_the_flavour_and_its_rule_for_ties(flavour: str) -> None:
    made = whole_numbers()
    names = tuple(f"d{number:03}" for number in range(len(made.labels)))
    data = replace(made, candidates=replace(made.candidates, document_ids=names))
    tables = [
        evaluate(data.candidates.features @ each, data, measures=["map"], flavour=flavour)["map"] for each in WEIGHTS
    ]
    assert gap_of(Linear(WEIGHTS), data, flavour).best == pytest.approx(np.max(tables, axis=0))


# Which rankers have one


@pytest.fixture(scope="module")
def kinds() -> tuple[Judged, Judged]:
    data = make_judged(40, 8, 4, kinds=2, noise=0.3)
    return data.select(range(28)), data.select(range(28, 40))


def test_rankers_of_one_model_have_no_gap(kinds: tuple[Judged, Judged]) -> None:
    train, test = kinds
    for ranker in (Single(RankSVM()), KnnOnline(RankSVM(), 5), RankSVM()):
        assert oracle_gap(ranker.fit(train), test) is None


@pytest.mark.parametrize(
    ("ranker", "models"),
    [
        (QueryClasses(RankSVM()), 2),
        (KnnOffline1(RankSVM(), 6, back_off=None), 28),
        (KnnOffline2(RankSVM(), 6, back_off=None), 28),
        (KnnOffline2(RankSVM(), 6, models=3, back_off=None), 3),
    ],
    ids=["query-classes", "knn-offline-1", "knn-offline-2", "knn-offline-2 of 3 models"],
)
def test_rankers_of_several_models_reach_at_most_their_upper_bound(
    ranker: Any, models: int, kinds: tuple[Judged, Judged]
) -> None:
    train, test = kinds
    ranker.fit(train)
    gap = gap_of(ranker, test)
    own = evaluate(ranker.predict(test.candidates), test, measures=["map"])["map"]
    assert len(gap.by_rank) == models
    assert (own <= gap.best + 1e-12).all()
    assert (gap.by_rank[0] >= gap.by_rank).all()


def test_the_models_of_the_gap_are_those_that_answer(kinds: tuple[Judged, Judged]) -> None:
    train, test = kinds
    ranker = KnnOffline2(RankSVM(), 6, back_off=None).fit(train)
    scores = ranker.several_models().scores(test.candidates)
    chosen = np.repeat(ranker.chosen(test.candidates), test.candidates.sizes)
    assert scores[np.arange(len(chosen)), chosen] == pytest.approx(ranker.predict(test.candidates))


# Routing by the true relevant documents


def two_sided(labels: list[int]) -> Judged:
    """One query whose first document is of the even kind and above, whose second is of the odd kind and below."""
    return Judged(Candidates(np.array([[1.0, 1.0], [-1.0, -1.0]]), np.array([0, 2]), ("new",)), np.array(labels))


@pytest.fixture(scope="module")
def routed() -> KnnOffline2:
    return KnnOffline2(RankSVM(), 4, view=TopMean(0, top=1)).fit(two_faced(8))


@pytest.mark.parametrize(("labels", "kind"), [([1, 0], 0), ([0, 1], 1)])
def test_a_query_is_routed_to_the_model_of_queries_like_its_relevant_documents(
    routed: KnnOffline2, labels: list[int], kind: int
) -> None:
    query = two_sided(labels)
    assert routed.chosen(query.candidates)[0] % 2 == 0, "its best document by feature 0 is of the even kind"
    found = routed.routed_by_relevance(query)
    assert found is not None
    assert found[0] % 2 == kind
    gap = gap_of(routed, query)
    assert gap.relevant_only is not None
    assert gap.relevant_only.tolist() == [1.0]


def test_a_query_without_a_relevant_document_is_routed_nowhere_and_counts_0(routed: KnnOffline2) -> None:
    query = two_sided([0, 0])
    found = routed.routed_by_relevance(query)
    assert found is not None
    assert found.tolist() == [-1]
    gap = gap_of(routed, query)
    assert gap.relevant_only is not None
    assert gap.relevant_only.tolist() == [0.0]


def test_what_relevance_chooses_is_one_of_the_models(kinds: tuple[Judged, Judged]) -> None:
    train, test = kinds
    ranker = KnnOffline2(RankSVM(), 6).fit(train)
    gap = gap_of(ranker, test)
    found = ranker.routed_by_relevance(test)
    assert gap.relevant_only is not None
    assert found is not None
    scores = ranker.several_models().scores(test.candidates)
    for query, model in enumerate(found.tolist()):
        table = evaluate(scores[:, model], test, measures=["map"])["map"]
        assert gap.relevant_only[query] == pytest.approx(table[query])
    assert (gap.relevant_only <= gap.best).all()


def test_a_view_that_does_not_place_documents_routes_nothing() -> None:
    data = two_faced(8)
    moods = np.array([[1.0 if query % 2 == 0 else -1.0] for query in range(8)])
    known = data.with_queries(QueryTable(data.candidates.query_ids, columns=moods, column_names=("mood",)))
    ranker = KnnOffline2(RankSVM(), 4, view=Columns()).fit(known)
    assert ranker.routed_by_relevance(known) is None
    gap = gap_of(ranker, known)
    assert gap.relevant_only is None
    assert gap.best == pytest.approx(np.ones(8))


def test_query_classes_know_no_route(kinds: tuple[Judged, Judged]) -> None:
    train, test = kinds
    assert gap_of(QueryClasses(RankSVM()).fit(train), test).relevant_only is None


# How far away, and where


def test_a_training_query_is_at_no_distance_and_others_are_at_some(kinds: tuple[Judged, Judged]) -> None:
    train, test = kinds
    for ranker in (KnnOnline(RankSVM(), 6).fit(train), KnnOffline2(RankSVM(), 6).fit(train)):
        assert ranker.distances(train.candidates) == pytest.approx(np.zeros(len(train)), abs=1e-6)
        places, known = ranker.places(test.candidates), ranker.places(train.candidates)
        gaps = np.sqrt(((places[:, None, :] - known[None, :, :]) ** 2).sum(axis=2)).min(axis=1)
        assert ranker.distances(test.candidates) == pytest.approx(gaps)


def test_the_gap_of_a_wrapped_ranker_is_that_of_what_it_wraps(kinds: tuple[Judged, Judged]) -> None:
    train, test = kinds
    seen = [replace(part, candidates=normalised(part.candidates)) for part in (train, test)]
    found = gap_of(QueryNormalised(KnnOffline2(RankSVM(), k=8)).fit(train), test)
    expected = gap_of(KnnOffline2(RankSVM(), k=8).fit(seen[0]), seen[1])
    assert np.array_equal(found.best, expected.best)
    assert np.array_equal(found.by_rank, expected.by_rank)
    assert found.relevant_only is not None
    assert expected.relevant_only is not None
    assert np.array_equal(found.relevant_only, expected.relevant_only)


# What of it is luck


@pytest.mark.parametrize("tied", [False, True])
def test_of_a_half_only_the_order_of_its_own_documents_counts(tied: bool) -> None:
    data, flavour = whole_numbers(), FLAVOURS["standard"]
    half = np.random.default_rng(5).random(len(data.labels)) < 0.5
    ties = -np.arange(len(data.labels)) if tied else None
    scores = Linear(WEIGHTS).scores(data.candidates)
    found = precision_halves(Linear(WEIGHTS), data, flavour, half, ties)
    assert np.array_equal(found, precision_halves(scores, data, flavour, half, ties))
    assert np.array_equal(found[0], precision_table(scores, data, flavour, ties))
    for part, side in zip(found[1:], (half, ~half), strict=True):
        for query in range(len(data)):
            rows = np.arange(len(data.labels))[data.candidates.rows(query)]
            rows = rows[side[rows]][:: -1 if tied else 1]
            for model in range(len(WEIGHTS)):
                ranked = data.labels[rows][np.argsort(-scores[rows, model], kind="stable")]
                assert part[query, model] == pytest.approx(average_precision(RankedList(ranked), None, flavour))


def drawn(kinds: int, seed: int = 0) -> tuple[Judged, Linear]:
    """Queries of several kinds, each with a feature of its own that ranks it well; of none, all rank about alike.

    The ranker has a model of each of eight features, and answers by the first.
    """
    rng = np.random.default_rng(seed)
    queries, documents, features = 200, 40, 8
    labels = (rng.random(queries * documents) < 0.3).astype(np.int64)
    table = rng.normal(size=(queries * documents, features))
    if kinds:
        table[np.arange(len(table)), np.repeat(np.arange(queries) % kinds, documents)] += 2.0 * labels
    else:
        table += labels[:, None]
    candidates = Candidates(table, np.arange(queries + 1) * documents, tuple(map(str, range(queries))))
    return Judged(candidates, labels), Linear(np.eye(features, dtype=np.int64))


def test_what_picking_models_could_reach_is_said_without_riddles() -> None:
    data = make_judged(20, 10, 3)
    systems = {"base": lambda X: X[:, 0], "other": lambda X: X[:, 1]}
    found = findings(compare(systems, data, data, data, measures=["map"]), "map")
    gaps = [
        OracleFinding("blend", 3, 0.1453, 0.1506, 0.1456, None, 0.1410, None, (), {}),
        OracleFinding("knn", 9, 0.14, 0.2, None, None, 0.1410, None, (), {}),
    ]
    assert gap_lines(replace(found, oracles=tuple(gaps))) == [
        "Picking the best of blend's 3 models for each query, without seeing its judgments, could reach MAP 0.1456. "
        "blend (0.1453) has 93% of that gain over base (0.1410).",
        "Picking the best of knn's 9 models for each query by its judgments would reach MAP 0.2000. "
        "knn (0.1400) is below base (0.1410).",
    ]


def test_a_gap_that_is_noise_is_not_reachable_and_one_that_is_real_is() -> None:
    for (data, ranker), low, high in ((drawn(kinds=0), 0.0, 0.1), (drawn(kinds=8), 0.8, 1.0)):
        gap = gap_of(ranker, data)
        assert gap.halves is not None
        reached = float(evaluate(data.candidates.features[:, 0], data, measures=["map"])["map"].mean())
        best = float(gap.best.mean())
        assert best > reached + 0.1
        assert low <= (reachable(reached, best, [gap.halves]) - reached) / (best - reached) <= high


def test_queries_with_relevant_documents_in_one_half_alone_tell_nothing() -> None:
    candidates = Candidates(np.arange(8.0)[:, None], np.array([0, 4, 8]), ("a", "b"))
    gap = gap_of(Linear(np.ones((2, 1), np.int64)), Judged(candidates, np.array([1, 0, 0, 0] * 2)))
    assert gap.halves is None


@pytest.mark.parametrize(
    ("reached", "reachable", "closed"), [(0.45, 0.5, 0.5), (0.45, None, 0.25), (0.39, 0.5, None), (0.4, 0.4, None)]
)
def test_a_method_below_the_baseline_closes_nothing(
    reached: float, reachable: float | None, closed: float | None
) -> None:
    found = OracleFinding("a", 3, reached, 0.6, reachable, None, 0.4, None, (), {})
    assert found.closed == (None if closed is None else pytest.approx(closed))
