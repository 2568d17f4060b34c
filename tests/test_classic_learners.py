"""RankBoost, ListNet, AdaRank and multiple hyperplanes, each against a slow and plain implementation of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from querywise.data.judged import Candidates, Judged
from querywise.data.normalisation import borda
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, NotFittedError
from querywise.evaluation.evaluate import evaluate
from querywise.learners.classic.adarank import AdaRank
from querywise.learners.classic.hyperplanes import MultipleHyperplanes
from querywise.learners.classic.listnet import ListNet, _Lists
from querywise.learners.classic.lists import BestRound, Worth
from querywise.learners.classic.rankboost import RankBoost
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.measures.formulas import find_measure
from querywise.measures.order import FLAVOURS, RankedList, order
from querywise.rankers.clusters import SelectRanker
from querywise.rankers.knn import KnnOffline2, KnnOnline
from querywise.rankers.single import OneFeature
from querywise.runtime.arrays import Floats
from tests.worlds import ragged

LEARNERS: dict[str, Callable[[], Any]] = {
    "RankBoost": lambda: RankBoost(15),
    "RankBoost, slow": lambda: RankBoost(15, thresholds=4, learning_rate=0.3),
    "ListNet": ListNet,
    "AdaRank": AdaRank,
    "AdaRank, ndcg": lambda: AdaRank(30, measure="ndcg@3", scale="none"),
    "AdaRank, repeating": lambda: AdaRank(repeat=True),
    "MultipleHyperplanes": MultipleHyperplanes,
}


@pytest.fixture(params=LEARNERS, ids=str)
def build(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return LEARNERS[request.param]


def listed(data: Judged) -> list[tuple[Floats, list[int]]]:
    """Each query's features and labels, for plain loops."""
    candidates = data.candidates
    return [
        (candidates.features[candidates.rows(q)], data.labels[candidates.rows(q)].tolist()) for q in range(len(data))
    ]


def mean_map(scores: Floats, data: Judged) -> float:
    return evaluate(scores, data, measures=["map"]).mean()["map"]


# What all four promise


def test_query_weights_are_relative(build: Callable[[], Any]) -> None:
    data = make_judged(20, 10, 4)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, size=20)
    cached = build().fit(data, query_weights=weights).predict(data.candidates)
    scaled = build().fit(data, query_weights=256 * weights).predict(data.candidates)
    assert np.array_equal(cached, scaled)
    tripled = build().fit(data, query_weights=3 * weights).predict(data.candidates)
    assert tripled == pytest.approx(cached, rel=1e-6, abs=1e-9)


def test_a_query_of_weight_zero_might_as_well_not_be_there(build: Callable[[], Any]) -> None:
    data = make_judged(20, 10, 4)
    without = build().fit(data, query_weights=np.repeat([1.0, 0.0], 10)).predict(data.candidates)
    alone = build().fit(data.select(range(10))).predict(data.candidates)
    assert np.array_equal(without, alone)


def test_weights_matter(build: Callable[[], Any]) -> None:
    data = make_judged(20, 10, 4, kinds=2)
    one_kind = np.array([1.0 if each == "kind 1" else 1e-6 for each in data.classes])
    even = build().fit(data).predict(data.candidates)
    assert not np.array_equal(build().fit(data, query_weights=one_kind).predict(data.candidates), even)


def test_queries_without_pairs_are_ignored(build: Callable[[], Any]) -> None:
    data = ragged()
    with_pairs = data.select(np.flatnonzero(data.pairs > 0))
    everything = build().fit(data).predict(data.candidates)
    assert np.array_equal(build().fit(with_pairs).predict(data.candidates), everything)


def test_no_preference_and_no_weight_are_refused(build: Callable[[], Any]) -> None:
    data = ragged()
    with pytest.raises(DataError, match="no preference to learn from"):
        build().fit(replace(data, labels=np.zeros_like(data.labels)))
    with pytest.raises(DataError, match="All query weights are 0"):
        build().fit(data, query_weights=np.zeros(len(data)))
    with pytest.raises(DataError, match="None of the queries whose weight is above 0"):
        build().fit(data, query_weights=(data.pairs == 0).astype(np.float64))


def test_any_grade_is_legal(build: Callable[[], Any]) -> None:
    data = make_judged(20, 10, 4, grades=2, noise=0.3)
    huge = build().fit(Judged(data.candidates, data.labels * 10**12)).predict(data.candidates)
    assert np.isfinite(huge).all()
    assert mean_map(huge, data) > 0.4


def test_identical_documents_tie_and_other_queries_have_no_say(build: Callable[[], Any]) -> None:
    data = make_judged(20, 10, 4)
    features = data.candidates.features.copy()
    features[3] = features[7]
    twins = replace(data.candidates, features=features)
    model = build().fit(data)
    scores = model.predict(twins)
    assert scores[3] == scores[7]
    assert np.array_equal(model.predict(twins.select([0])), scores[:10])


def test_predicting_before_fitting_and_other_columns_are_refused(build: Callable[[], Any]) -> None:
    data = make_judged(8, 6, 4)
    with pytest.raises(NotFittedError):
        build().predict(data.candidates)
    with pytest.raises(DataError, match="trained on 4 features"):
        build().fit(data).predict(Candidates(np.zeros((2, 3)), np.array([0, 2]), ("q",)))


def test_features_that_never_change_are_fine(build: Callable[[], Any]) -> None:
    data = make_judged(12, 8, 3)
    constant = replace(data, candidates=replace(data.candidates, features=np.full((len(data.labels), 2), 0.1)))
    scores = build().fit(constant).predict(constant.candidates)
    assert np.ptp(scores) == 0


@pytest.mark.parametrize(
    "around",
    [
        lambda each: KnnOnline(each, k=5),
        lambda each: KnnOffline2(each, models=3),
        lambda each: SelectRanker(each, 3, 2),
    ],
    ids=["KnnOnline", "KnnOffline2", "SelectRanker"],
)
def test_it_serves_as_a_local_learner(build: Callable[[], Any], around: Callable[[Any], Any]) -> None:
    data = make_judged(40, 9, 4, kinds=2, seed=7)
    train, valid = data.select(range(25)), data.select(range(25, 40))
    scores = around(build()).fit(train, valid=valid).predict(valid.candidates)
    assert np.isfinite(scores).all()
    assert mean_map(scores, valid) > mean_map(np.zeros(len(scores)), valid)


def test_it_clearly_beats_the_best_feature(build: Callable[[], Any]) -> None:
    data = make_judged(120, 20, 5, noise=0.3, seed=1)
    train, valid, test = data.select(range(60)), data.select(range(60, 90)), data.select(range(90, 120))
    fitted = mean_map(build().fit(train, valid=valid).predict(test.candidates), test)
    assert fitted > mean_map(OneFeature().fit(train).predict(test.candidates), test) + 0.05
    assert fitted > mean_map(np.zeros(len(test.labels)), test) + 0.3


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (RankBoost(0), r"RankBoost\(rounds=0\) must be a whole number between 1 and"),
        (RankBoost(2.5), r"rounds=2.5"),  # type: ignore[arg-type]
        (RankBoost(thresholds=0), "thresholds=0"),
        (RankBoost(thresholds=70_000), "at most 65535"),
        (RankBoost(patience=0), "patience=0"),
        (RankBoost(learning_rate=0.0), "above 0 and at most 1"),
        (ListNet(0.0), r"ListNet\(l2=0.0\) must be a positive number"),
        (ListNet(float("nan")), "positive number"),
        (ListNet(scale="rank"), "Known: 'standard', 'none'"),  # type: ignore[arg-type]
        (AdaRank(0), "rounds=0"),
        (AdaRank(patience=0), "patience=0"),
        (AdaRank(measure="dcg"), "Known: map, ndcg or ndcg@k"),
        (AdaRank(measure="infap"), "Unknown measure 'infap'"),
        (AdaRank(measure="bpref"), "measure='bpref' cannot be optimized"),
        (AdaRank(measure=3), "Known: map, ndcg or ndcg@k"),  # type: ignore[arg-type]
        (AdaRank(scale="rank"), "Known: 'standard', 'none'"),  # type: ignore[arg-type]
        (MultipleHyperplanes(-1.0), "must be a positive number"),
        (MultipleHyperplanes(loss="logistic"), "Known: squared_hinge, hinge"),  # type: ignore[arg-type]
    ],
)
def test_a_parameter_that_cannot_be_is_refused(learner: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        learner.fit(ragged())


# What an order is worth, and when to stop


@pytest.mark.parametrize("measure", ["map", "ndcg", "ndcg@1", "ndcg@5"])
def test_an_order_is_worth_what_the_measures_say(measure: str) -> None:
    data = ragged(5)
    scores = np.random.default_rng(1).normal(size=len(data.labels)).round(1)
    ranked = data.labels[order(scores, data.candidates.starts)]
    right = [
        find_measure(measure).of(RankedList(ranked[data.candidates.rows(q)]), FLAVOURS["standard"])
        for q in range(len(data))
    ]
    assert Worth(data, measure).of(scores) == pytest.approx(right, abs=1e-12)


def test_a_list_may_be_empty() -> None:
    nothing = Judged(Candidates(np.zeros((2, 1)), np.array([0, 0, 2, 2]), ("a", "b", "c")), np.array([0, 1]))
    assert Worth(nothing, "map").of(np.array([1.0, 0.0])) == pytest.approx([0.0, 0.5, 0.0])


def test_the_best_round_is_the_first_of_equals() -> None:
    data = Judged(Candidates(np.zeros((2, 1)), np.array([0, 2]), ("a",)), np.array([1, 0]))
    wrong, right = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    best = BestRound(data, "map", 2)
    assert [best.goes_on(scores) for scores in (wrong, right, right, wrong)] == [True, True, True, False]
    assert best.count == 2
    unwatched = BestRound(None, "map", 1)
    assert all(unwatched.goes_on(np.zeros(0)) for _ in range(3))
    assert unwatched.count == 3


@pytest.mark.parametrize("learner", [RankBoost(60, patience=5), AdaRank(60, patience=5)], ids=["RankBoost", "AdaRank"])
def test_validation_data_stops_it_at_its_best_round(learner: Any) -> None:
    data = make_judged(40, 12, 5, seed=3)
    train, valid = data.select(range(20)), data.select(range(20, 40))
    stopped = learner.fit(train, valid=valid)
    kept = stopped.round_count_
    reached = mean_map(stopped.predict(valid.candidates), valid)
    assert 1 <= kept < 60
    for rounds in (max(kept - 1, 1), kept + 1, kept + 2):
        assert mean_map(type(learner)(rounds).fit(train).predict(valid.candidates), valid) <= reached + 1e-12
    assert learner.local(stopped).rounds == kept
    with pytest.raises(DataError, match="trained on 5 features"):
        learner.fit(train, valid=make_judged(5, 5, 3))


# RankBoost


def enumerated_rankboost(data: Judged, query_weights: Floats, rounds: int, rate: float) -> tuple[Floats, list[float]]:
    """RankBoost with every pair and every stump written down: scores of the training documents, loss by round."""
    pairs, shares = [], []
    for query, (_, labels) in enumerate(listed(data)):
        first = int(data.candidates.starts[query])
        own = [(first + a, first + b) for a in range(len(labels)) for b in range(len(labels)) if labels[a] > labels[b]]
        pairs += own
        shares += [query_weights[query] / len(own)] * len(own)
    weights = np.array(shares) / sum(shares)
    x = data.candidates.features
    stumps = [(x[:, f] > theta).astype(float) for f in range(x.shape[1]) for theta in np.unique(x[:, f])[:-1]]
    scores, losses = np.zeros(len(x)), []
    for _ in range(rounds):
        share = weights / weights.sum()
        orders = [sum(s * (h[a] - h[b]) for s, (a, b) in zip(share, pairs, strict=True)) for h in stumps]
        best = int(np.argmax(np.abs(orders)))
        alpha = rate * 0.5 * np.log((1 + orders[best]) / (1 - orders[best]))
        scores += alpha * stumps[best]
        weights *= [np.exp(-alpha * (stumps[best][a] - stumps[best][b])) for a, b in pairs]
        losses.append(float(weights.sum()))
    return scores, losses


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_rankboost_is_what_enumerating_pairs_gives(rate: float) -> None:
    data = ragged(2, queries=6, features=3, grades=4)
    data = data.select(np.flatnonzero(data.pairs > 0))
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(data))
    model = RankBoost(8, thresholds=1000, learning_rate=rate).fit(data, query_weights=weights)
    scores, losses = enumerated_rankboost(data, weights, 8, rate)
    assert model.predict(data.candidates) == pytest.approx(scores, abs=1e-9)
    assert model.losses_ == pytest.approx(losses, abs=1e-9)


def test_rankboosts_loss_falls_every_round() -> None:
    losses = RankBoost(100).fit(make_judged(30, 15, 5)).losses_
    assert len(losses) == 100
    assert np.all(np.diff(np.concatenate([[1.0], losses])) < 0)


def test_rankboost_stops_when_every_pair_is_in_order() -> None:
    features = np.arange(12.0)[:, None] % 4
    data = Judged(Candidates(features, np.array([0, 4, 8, 12]), ("a", "b", "c")), (features[:, 0] > 1).astype(int))
    model = RankBoost(300).fit(data)
    assert model.round_count_ < 10
    assert np.isfinite(model.stump_weights_).all()


def test_rankboost_prefers_small_values_where_they_are_better() -> None:
    data = make_judged(20, 10, 1, noise=0.1)
    turned = replace(data, candidates=replace(data.candidates, features=-data.candidates.features))
    plain, backwards = (RankBoost(20, thresholds=1000).fit(each) for each in (data, turned))
    assert np.diff(backwards.predict(turned.candidates)) == pytest.approx(
        np.diff(plain.predict(data.candidates)), abs=1e-9
    )


# ListNet


def plain_cross_entropy(weights: Floats, data: Judged, query_weights: Floats, l2: float) -> float:
    total = 0.0
    for weight, (x, labels) in zip(query_weights / query_weights.sum(), listed(data), strict=True):
        target = np.exp(labels) / np.exp(labels).sum()
        chance = np.exp(x @ weights) / np.exp(x @ weights).sum()
        total -= weight * float(target @ np.log(chance))
    return total + l2 / 2 * float(weights @ weights)


def test_listnets_gradient_is_the_slope_of_its_objective() -> None:
    data = ragged(4, queries=8)
    data = data.select(np.flatnonzero(data.pairs > 0))
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(data))
    lists = _Lists(data.candidates.features, data, weights / weights.sum(), 0.1)
    somewhere = np.array([0.3, -0.2, 0.1, 0.5])
    value, slope = lists.value_and_gradient(somewhere)
    assert value == pytest.approx(plain_cross_entropy(somewhere, data, weights, 0.1), abs=1e-12)
    steps = 1e-6 * np.eye(4)
    rises = [lists.value_and_gradient(somewhere + h)[0] - lists.value_and_gradient(somewhere - h)[0] for h in steps]
    assert slope == pytest.approx(np.array(rises) / 2e-6, abs=1e-8)


def test_listnet_finds_the_optimum() -> None:
    data = ragged(4, queries=8)
    data = data.select(np.flatnonzero(data.pairs > 0))
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(data))
    model = ListNet(0.05, scale="none").fit(data, query_weights=weights)
    plain = minimize(plain_cross_entropy, np.zeros(4), (data, weights, 0.05), method="BFGS", options={"gtol": 1e-6})
    assert model.weights_ == pytest.approx(plain.x, abs=1e-4)
    assert model.objective_ == pytest.approx(plain.fun, abs=1e-9)
    assert 0 <= model.gap_ < 1e-10


def test_listnets_curvature_is_the_slope_of_its_gradient() -> None:
    data = ragged(4, queries=8)
    data = data.select(np.flatnonzero(data.pairs > 0))
    lists = _Lists(data.candidates.features, data, np.full(len(data), 1 / len(data)), 0.1)
    somewhere, steps = np.array([0.3, -0.2, 0.1, 0.5]), 1e-6 * np.eye(4)
    rises = [lists.value_and_gradient(somewhere + h)[1] - lists.value_and_gradient(somewhere - h)[1] for h in steps]
    assert lists.curvature(somewhere) == pytest.approx(np.array(rises) / 2e-6, abs=1e-8)


@pytest.mark.parametrize("l2", [1e-6, 1.0, 1e6])
def test_listnet_takes_features_of_any_size(l2: float) -> None:
    data = make_judged(20, 10, 3, noise=0.0)
    stretched = replace(data.candidates, features=data.candidates.features * [1e6, 1.0, 1e-3])
    assert ListNet(l2, scale="none").fit(replace(data, candidates=stretched)).gap_ < 1e-6


def test_listnets_weights_are_in_the_users_units() -> None:
    data = make_judged(20, 10, 3)
    stretched = replace(data.candidates, features=data.candidates.features * [1000.0, 1.0, 0.001] + 5)
    plain, moved = ListNet().fit(data), ListNet().fit(replace(data, candidates=stretched))
    assert moved.weights_ * [1000.0, 1.0, 0.001] == pytest.approx(plain.weights_, rel=1e-5)


# AdaRank


def plain_adarank(
    data: Judged, query_weights: Floats, measure: str, repeat: bool, rounds: int
) -> list[tuple[int, float]]:
    """AdaRank as its paper's box says, with a loop for everything."""

    def worth(scores: Floats, query: int) -> float:
        rows = data.candidates.rows(query)
        best_first = np.argsort(-scores[rows], kind="stable")
        return find_measure(measure).of(RankedList(data.labels[rows][best_first]), FLAVOURS["standard"])

    x, queries = data.candidates.features, range(len(data))
    weak = [(f, sign) for sign in (1.0, -1.0) for f in range(x.shape[1])]
    share, scores = query_weights / query_weights.sum(), np.zeros(len(x))
    chosen: list[tuple[int, float]] = []
    for _ in range(rounds):
        if not repeat:
            weak = [(f, sign) for f, sign in weak if f not in [each for each, _ in chosen]]
        means = [sum(share[q] * worth(sign * x[:, f], q) for q in queries) for f, sign in weak]
        f, sign = weak[int(np.argmax(means))]
        up = sum(share[q] * (1 + worth(sign * x[:, f], q)) for q in queries)
        down = sum(share[q] * (1 - worth(sign * x[:, f], q)) for q in queries)
        alpha = 0.5 * float(np.log(up / down))
        scores = scores + alpha * sign * x[:, f]
        chosen.append((f, sign * alpha))
        share = np.array([query_weights[q] * np.exp(-worth(scores, q)) for q in queries])
        share /= share.sum()
    return chosen


@pytest.mark.parametrize("repeat", [True, False])
@pytest.mark.parametrize("measure", ["map", "ndcg@3", "ndcg"])
def test_adarank_is_what_the_papers_loop_gives(measure: str, repeat: bool) -> None:
    data = make_judged(10, 12, 4, kinds=2, seed=12)
    data = replace(data, candidates=replace(data.candidates, features=-data.candidates.features.round(1)))
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(data))
    model = AdaRank(4, measure=measure, repeat=repeat, scale="none").fit(data, query_weights=weights)
    chosen = plain_adarank(data, weights, measure, repeat, 4)
    assert model.round_count_ >= 3
    assert repeat or model.round_count_ == 4
    assert model.columns_.tolist() == [f for f, _ in chosen][: model.round_count_]
    assert model.steps_ == pytest.approx([alpha for _, alpha in chosen][: model.round_count_], abs=1e-9)
    assert model.steps_.min() < 0
    assert model.weights_ == pytest.approx(
        [sum(a for f, a in chosen[: model.round_count_] if f == each) for each in range(4)], abs=1e-12
    )


def test_adarank_stops_when_nothing_changes_or_every_feature_had_its_turn() -> None:
    features = np.column_stack([np.arange(12.0) % 4, np.ones(12)])
    data = Judged(Candidates(features, np.array([0, 4, 8, 12]), ("a", "b", "c")), (features[:, 0] > 1).astype(int))
    assert AdaRank(300, repeat=True).fit(data).columns_.tolist() == [0]
    cached = AdaRank(300).fit(data)
    assert cached.columns_.tolist() == [0, 1]
    assert np.isfinite(cached.weights_).all()


# Multiple hyperplanes


def test_hyperplanes_are_ranking_svms_of_two_grades_and_votes_add_up() -> None:
    data = ragged(6, queries=15)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(data))
    model = MultipleHyperplanes(0.5).fit(data, query_weights=weights)
    assert model.grades_.tolist() == [[0, 1], [0, 2], [1, 2]]
    votes = np.zeros(len(data.labels))
    for (lower, upper), hyperplane in zip(model.grades_, model.hyperplanes_, strict=True):
        kept, features, labels, sizes = [], [], [], []
        for query, (x, own) in enumerate(listed(data)):
            if lower in own and upper in own:
                rows = [row for row, label in enumerate(own) if label in (lower, upper)]
                kept.append(query)
                features.append(x[rows])
                labels += [own[row] for row in rows]
                sizes.append(len(rows))
        two = Judged(Candidates(np.vstack(features), np.cumsum([0, *sizes]), tuple(map(str, kept))), np.array(labels))
        alone = RankSVM(0.5).fit(two, query_weights=weights[kept])
        assert hyperplane == pytest.approx(alone.weights_, abs=1e-12)
        scores = np.einsum("ij,j->i", data.candidates.features, hyperplane)
        owner = data.candidates.query_of_row
        for a in range(len(votes)):
            others = scores[owner == owner[a]]
            votes[a] += sum(int(scores[a] > other) - int(scores[a] < other) for other in others)
    assert np.array_equal(model.predict(data.candidates), votes)


def test_tied_documents_share_their_votes() -> None:
    assert borda(np.array([3.0, 1.0, 3.0, 3.0])).tolist() == [1.0, -3.0, 1.0, 1.0]
    assert borda(np.zeros(5)).tolist() == [0.0] * 5
    assert borda(np.zeros(0)).shape == (0,)


def test_two_grades_make_one_hyperplane_which_orders_as_the_ranking_svm_does() -> None:
    data = make_judged(20, 10, 4, grades=2)
    model, machine = MultipleHyperplanes().fit(data), RankSVM().fit(data)
    assert len(model.hyperplanes_) == 1
    starts = data.candidates.starts
    assert np.array_equal(
        order(model.predict(data.candidates), starts), order(machine.predict(data.candidates), starts)
    )


def test_grades_that_never_meet_make_no_hyperplane() -> None:
    features = np.arange(8.0)[:, None]
    data = Judged(Candidates(features, np.array([0, 4, 8]), ("a", "b")), np.array([0, 0, 1, 1, 0, 0, 2, 2]))
    assert MultipleHyperplanes().fit(data).grades_.tolist() == [[0, 1], [0, 2]]
