from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from querywise.data.folds import read_folds
from querywise.data.judged import Candidates, Judged
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, NotFittedError
from querywise.rankers.ensemble.ensemble import SER, SSER, agreements, preference_matrix
from querywise.rankers.ensemble.graph import roughness
from querywise.rankers.ensemble.quadratic import Solution, solve
from querywise.rankers.wrappers import normalised
from querywise.runtime.arrays import Floats, Ints
from tests.support.quadratic import by_clarabel, kkt_residual, objective
from tests.worlds import REAL_DATA, examples, needs_real_data, ragged

Kind = Literal["three", "difference"]
KINDS: list[Kind] = ["three", "difference"]

# Agreement


def wanted(label: int, other: int, top: int, kind: Kind, theta: float) -> float:
    """How much a document should stand above another, as the paper has it."""
    if kind == "difference":
        return (label - other) / max(top, 1)
    if label == other or top == 0:
        return 0.0
    if label >= top and other >= top:
        return 0.0
    if label >= top:
        return 1.0 if other == 0 else theta
    if other >= top:
        return -1.0 if label == 0 else -theta
    return 0.0


def dense(column: Floats, labels: Ints, top: int, kind: Kind, theta: float, delta: float) -> tuple[Floats, Floats]:
    """A and R, number by number."""
    n = len(labels)
    a, r = np.zeros((n, n)), np.zeros((n, n))
    for k in range(n):
        for l in range(n):  # noqa: E741
            a[k, l] = wanted(int(labels[k]), int(labels[l]), top, kind, theta)
            r[k, l] = float(column[k] > column[l]) + (delta if k == l else 0.0)
    return a, r / r.sum(axis=0)


@st.composite
def judged_scores(draw: st.DrawFn) -> tuple[Floats, Ints]:
    documents, rankers = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    scores = st.integers(-3, 3).map(float) if draw(st.booleans()) else st.floats(-1e6, 1e6)
    return (
        draw(arrays(np.float64, (documents, rankers), elements=scores)),
        draw(arrays(np.int64, documents, elements=st.integers(0, 4))),
    )


@given(judged_scores(), st.sampled_from(KINDS), st.integers(0, 2), st.floats(0, 1), st.floats(0.01, 100))
@settings(deadline=None)
def test_agreement_is_the_trace_of_what_is_wanted_and_what_is_found(
    world: tuple[Floats, Ints], kind: Kind, beyond: int, theta: float, delta: float
) -> None:
    scores, labels = world
    top = int(labels.max()) + beyond
    found = agreements(scores, labels, top=top, kind=kind, theta=theta, smoothing=delta)
    for column, agreement in zip(scores.T, found, strict=True):
        a, r = dense(column, labels, top, kind, theta, delta)
        assert agreement == pytest.approx(np.trace(a.T @ r), rel=1e-10, abs=1e-10)


@given(judged_scores(), st.sampled_from(KINDS), st.floats(0, 1), st.floats(0.01, 100), st.floats(0.1, 100))
@settings(deadline=None)
def test_the_other_agreement_falls_with_the_distance_of_the_two(
    world: tuple[Floats, Ints], kind: Kind, theta: float, delta: float, scale: float
) -> None:
    scores, labels = world
    top = int(labels.max())
    found = agreements(scores, labels, top=top, kind=kind, theta=theta, smoothing=delta, similarity="rbf", scale=scale)
    for column, agreement in zip(scores.T, found, strict=True):
        a, r = dense(column, labels, top, kind, theta, delta)
        assert agreement == pytest.approx(np.exp(-np.linalg.norm(a - r) / scale), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_agreement_holds_for_long_lists_and_many_ties(kind: Kind) -> None:
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 3, size=70), rng.normal(size=(70, 3))
    scores[:, 1] = scores[:, 1].round()
    scores[:, 2] = labels
    found = agreements(scores, labels, top=2, kind=kind)
    for column, agreement in zip(scores.T, found, strict=True):
        a, r = dense(column, labels, 2, kind, 0.5, 1.0)
        assert agreement == pytest.approx(np.trace(a.T @ r), rel=1e-10)
    assert found.argmax() == 2, "nobody agrees more than the judgments themselves"


@given(judged_scores(), st.sampled_from(KINDS), st.sampled_from(["trace", "rbf"]))
@settings(deadline=None)
def test_only_the_order_of_a_rankers_scores_counts(world: tuple[Floats, Ints], kind: Kind, similarity: Any) -> None:
    scores, labels = world
    ranks = np.column_stack([np.unique(column, return_inverse=True)[1] for column in scores.T]).astype(np.float64)
    for turned in (ranks, np.exp(ranks), 1e9 * ranks - 7, ranks**3):
        assert np.array_equal(
            agreements(turned, labels, top=4, kind=kind, similarity=similarity),
            agreements(scores, labels, top=4, kind=kind, similarity=similarity),
        )


@given(judged_scores(), st.sampled_from(KINDS), st.integers(0, 1000))
@settings(deadline=None)
def test_the_order_of_the_documents_does_not_matter(world: tuple[Floats, Ints], kind: Kind, seed: int) -> None:
    scores, labels = world
    turned = np.random.default_rng(seed).permutation(len(labels))
    found = agreements(scores[turned], labels[turned], top=4, kind=kind)
    assert found == pytest.approx(agreements(scores, labels, top=4, kind=kind), abs=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_ranker_that_scores_all_alike_agrees_with_nothing(kind: Kind) -> None:
    found = agreements(np.full((4, 1), 3.0), np.array([0, 2, 1, 0]), top=2, kind=kind)
    assert found.tolist() == [0.0]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_that_are_all_alike_want_nothing(kind: Kind) -> None:
    scores = np.arange(8.0).reshape(4, 2)
    for label in (0, 1, 2):
        assert agreements(scores, np.full(4, label), top=2, kind=kind).tolist() == [0.0, 0.0]


@given(st.lists(st.integers(0, 9), unique=True, min_size=1).map(sorted), st.sampled_from(KINDS), st.floats(0, 1))
@settings(deadline=None)
def test_what_is_wanted_is_the_opposite_the_other_way_round(grades: list[int], kind: Kind, theta: float) -> None:
    top = grades[-1]
    found = preference_matrix(np.array(grades), top, kind, theta)
    assert np.array_equal(found, -found.T)
    for row, label in zip(found, grades, strict=True):
        assert row == pytest.approx([wanted(label, other, top, kind, theta) for other in grades], abs=1e-15)


def test_possibly_relevant_over_irrelevant_counts_nothing_as_the_paper_has_it() -> None:
    found = preference_matrix(np.array([0, 1, 2]), 2, "three", 0.5)
    assert found[1, 0] == found[0, 1] == 0
    assert found[2].tolist() == [1.0, 0.5, 0.0]
    # A ranker that puts the possibly relevant on top and the other that puts it last are told apart by nothing.
    scores = np.array([[2.0, 1.0], [1.0, 2.0]])
    assert agreements(scores, np.array([1, 0]), top=2).tolist() == [0.0, 0.0]
    assert agreements(scores, np.array([1, 0]), top=2, kind="difference").tolist() == [0.25, -0.25]


# The graph


def edges(documents: Floats, neighbours: int) -> dict[tuple[int, int], float]:
    """Who names whom as near, and how far that is."""
    found: dict[tuple[int, int], float] = {}
    for k in range(len(documents)):
        gaps = {
            other: float(np.sqrt(sum((documents[k] - documents[other]) ** 2)))
            for other in range(len(documents))
            if other != k
        }
        if gaps:
            last = sorted(gaps.values())[min(neighbours, len(gaps)) - 1]
            found |= {(k, other): gap for other, gap in gaps.items() if gap <= last * (1 + 1e-12)}
    return found


def dense_roughness(documents: Floats, neighbours: int) -> Floats:
    """GᵀLG, the graph and its Laplacian written out."""
    n = len(documents)
    near = edges(documents, neighbours)
    sigma = float(np.median(list(near.values()))) if near else 1.0
    sigma = sigma if sigma > 0 else 1.0
    s = np.zeros((n, n))
    for (k, other), gap in near.items():
        s[k, other] = s[other, k] = np.exp(-(gap**2) / (2 * sigma**2))
    degree = s.sum(axis=1)
    laplacian = np.zeros((n, n))
    for k in range(n):
        for other in range(n):
            if degree[k] > 0 and degree[other] > 0:
                laplacian[k, other] = (1.0 if k == other else 0.0) - s[k, other] / np.sqrt(degree[k]) / np.sqrt(
                    degree[other]
                )
    return np.asarray(documents.T @ laplacian @ documents)


@st.composite
def some_documents(draw: st.DrawFn) -> Floats:
    """Few values, so that many are equally near and some the same; or any."""
    shape = draw(st.integers(0, 14)), draw(st.integers(1, 4))
    few = st.integers(0, 4).map(lambda number: number / 4)
    many = st.integers(0, 1000).map(lambda number: number / 1000)
    return draw(arrays(np.float64, shape, elements=few if draw(st.booleans()) else many))


@given(some_documents(), st.integers(1, 7))
@settings(deadline=None, max_examples=examples(200))
def test_roughness_is_that_of_the_graph_written_out(documents: Floats, neighbours: int) -> None:
    expected = dense_roughness(documents, neighbours)
    assert roughness(documents, neighbours) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_roughness_holds_for_long_lists() -> None:
    rng = np.random.default_rng(0)
    for documents in (rng.random((80, 10)), rng.random((80, 3)).round(1)):
        assert roughness(documents, 5) == pytest.approx(dense_roughness(documents, 5), rel=1e-9, abs=1e-9)


def test_all_documents_equally_near_at_the_last_place_join() -> None:
    # One in the middle, six around it at the same distance: with two neighbours it still has all six.
    corners = np.vstack([np.zeros(3), np.eye(3), -np.eye(3)])
    assert len([pair for pair in edges(corners, 2) if pair[0] == 0]) == 6
    assert roughness(corners, 2) == pytest.approx(dense_roughness(corners, 2), abs=1e-12)
    assert roughness(corners, 2) == pytest.approx(roughness(corners[[3, 2, 5, 0, 6, 1, 4]], 2), abs=1e-12)


@given(some_documents(), st.integers(1, 7), st.integers(0, 1000))
@settings(deadline=None)
def test_roughness_is_never_negative_and_does_not_see_the_order(documents: Floats, neighbours: int, seed: int) -> None:
    found = roughness(documents, neighbours)
    assert np.array_equal(found, found.T)
    assert np.linalg.eigvalsh(found).min() >= -1e-10 * (1 + np.abs(found).max())
    turned = np.random.default_rng(seed).permutation(len(documents))
    assert roughness(documents[turned], neighbours) == pytest.approx(found, abs=1e-9)


@pytest.mark.parametrize("documents", [np.zeros((0, 3)), np.ones((1, 3)), np.ones((7, 3)), np.zeros((2, 3))])
def test_nothing_alone_or_all_alike_is_not_rough(documents: Floats) -> None:
    assert roughness(documents, 5) == pytest.approx(np.zeros((3, 3)), abs=1e-12)


def test_two_documents_are_a_pair() -> None:
    # One edge of weight exp(−½) either way: L is [[1, −1], [−1, 1]].
    assert roughness(np.array([[0.0, 1.0], [1.0, 1.0]]), 5) == pytest.approx(np.array([[1.0, 0.0], [0.0, 0.0]]))


def test_astronomically_uneven_gaps_are_no_trouble() -> None:
    uneven = np.array([[0.0], [1e-160], [2e-160], [3e-160], [1.0]])
    found = roughness(uneven, 2)
    assert np.isfinite(found).all()
    assert found[0, 0] >= 0


# SER


def programs_of(ranker: SSER, candidates: Candidates) -> list[Floats]:
    """M of every query, made from the graph written out."""
    features = normalised(candidates).features
    width = features.shape[1]
    return [
        np.eye(width) + ranker.gamma * dense_roughness(features[candidates.rows(query)], ranker.neighbours)
        for query in range(len(candidates))
    ]


@pytest.fixture(scope="module")
def halves() -> tuple[Judged, Judged]:
    data = make_judged(40, 12, 6, kinds=2, noise=0.3, seed=0)
    return data.select(range(25)), data.select(range(25, 40))


SETTINGS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "difference": {"grades": "difference", "cost": 10.0},
    "rbf": {"similarity": "rbf", "similarity_scale": 5.0, "cost": 0.1},
    "norm": {"norm": 10.0, "theta": 0.2, "smoothing": 3.0},
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("world", ["ragged", "synthetic"])
def test_the_weights_are_those_an_interior_point_method_finds_for_rows_written_out(name: str, world: str) -> None:
    chosen = SETTINGS[name]
    data = ragged(1) if world == "ragged" else make_judged(20, 9, 6, seed=3)
    ranker = SER(**chosen).fit(data)
    features, top = normalised(data.candidates).features, int(data.labels.max())
    rows = []
    for query in range(len(data)):
        own = data.candidates.rows(query)
        if len(set(data.labels[own].tolist())) < 2:
            continue
        row = []
        for column in features[own].T:
            a, r = dense(
                column, data.labels[own], top, chosen.get("grades", "three"), chosen.get("theta", 0.5),
                chosen.get("smoothing", 1.0),
            )  # fmt: skip
            apart = np.exp(-np.linalg.norm(a - r) / 5.0)
            row.append(apart if chosen.get("similarity") == "rbf" else np.trace(a.T @ r))
        if any(row):
            size = sum(abs(number) for number in row)
            rows.append(np.array(row) * (1 if "norm" not in chosen else chosen["norm"] / size))
    assert ranker.rows_ == pytest.approx(np.array(rows), abs=1e-9)
    program = np.eye(features.shape[1]), np.array(rows), ranker.cost
    theirs = by_clarabel(*program)
    assert ranker.weights_ == pytest.approx(theirs, abs=1e-5)
    assert objective(*program, ranker.weights_) == pytest.approx(objective(*program, theirs), rel=1e-8)
    assert ranker.predict(data.candidates) == pytest.approx(features @ theirs, abs=1e-5)


def test_norm_brings_every_row_to_the_same_size(halves: tuple[Judged, Judged]) -> None:
    plain, scaled = SER().fit(halves[0]), SER(norm=10.0).fit(halves[0])
    assert np.abs(scaled.rows_).sum(axis=1) == pytest.approx(np.full(len(scaled.rows_), 10.0))
    sizes = np.abs(plain.rows_).sum(axis=1, keepdims=True)
    assert scaled.rows_ == pytest.approx(10 * plain.rows_ / sizes)
    assert not np.allclose(sizes, sizes[0])


def test_no_weight_is_negative_and_the_best_ranker_has_the_most() -> None:
    data = make_judged(40, 12, 3, seed=1)
    merit = data.labels + 0.1 * np.random.default_rng(0).normal(size=len(data.labels))
    features = np.column_stack([-merit, merit, data.candidates.features[:, 0]])
    ranker = SER().fit(replace(data, candidates=replace(data.candidates, features=features)))
    assert (ranker.weights_ >= 0).all()
    assert ranker.weights_[0] == 0
    assert ranker.weights_.argmax() == 1


def test_features_in_other_units_change_nothing(halves: tuple[Judged, Judged]) -> None:
    train, test = halves
    units = np.array([1e-5, 1.0, 1e5, 3.0, 0.1, 7.0])
    for ranker in (SER(), SSER()):
        ours = ranker.fit(train).predict(test.candidates)
        theirs = ranker.fit(
            replace(train, candidates=replace(train.candidates, features=train.candidates.features * units + 7))
        )
        found = theirs.predict(replace(test.candidates, features=test.candidates.features * units + 7))
        assert found == pytest.approx(ours, abs=1e-6)


# SSER


def test_without_gamma_it_is_ser(halves: tuple[Judged, Judged]) -> None:
    train, test = halves
    for chosen in SETTINGS.values():
        supervised, none = SER(**chosen).fit(train), SSER(0.0, **chosen).fit(train)
        assert none.predict(test.candidates) == pytest.approx(supervised.predict(test.candidates), abs=1e-10)
        almost = SSER(1e-13, **chosen).fit(train)
        assert almost.predict(test.candidates) == pytest.approx(supervised.predict(test.candidates), abs=1e-9)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_weights_of_every_query_solve_its_own_program(name: str, halves: tuple[Judged, Judged]) -> None:
    train, test = halves
    for gamma in (0.1, 5.0, 1e3):
        ranker = SSER(gamma, neighbours=3, **SETTINGS[name]).fit(train)
        found = ranker.query_weights(test.candidates)
        for weights, curvature in zip(found, programs_of(ranker, test.candidates), strict=True):
            program = curvature, ranker.rows_, ranker.cost
            assert (weights >= 0).all()
            theirs = objective(*program, by_clarabel(*program))
            assert objective(*program, weights) == pytest.approx(theirs, rel=1e-8)


@pytest.mark.parametrize("norm", [None, 10.0])
def test_a_larger_gamma_never_makes_scores_rougher(norm: float | None) -> None:
    for seed in range(4):
        data = ragged(seed)
        features = normalised(data.candidates).features
        rough = [roughness(features[data.candidates.rows(query)], 5) for query in range(len(data))]
        before = np.full(len(data), np.inf)
        for gamma in (0.0, 0.01, 0.1, 0.5, 2.0, 10.0, 1e3):
            weights = SSER(gamma, norm=norm).fit(data).query_weights(data.candidates)
            now = np.array([w @ matrix @ w for w, matrix in zip(weights, rough, strict=True)])
            assert (now <= before + 1e-9).all()
            before = now
        first = SSER(0.0, norm=norm).fit(data).weights_
        assert before.sum() < 0.5 * sum(first @ matrix @ first for matrix in rough)


def test_the_weights_shown_are_the_weights_used(halves: tuple[Judged, Judged]) -> None:
    train, test = halves
    ranker = SSER(2.0).fit(train)
    weights, scores = ranker.query_weights(test.candidates), ranker.predict(test.candidates)
    assert weights.shape == (len(test), 6)
    assert len(np.unique(weights.round(6), axis=0)) > 1, "queries differ"
    features = normalised(test.candidates).features
    for query, own in enumerate(weights):
        rows = test.candidates.rows(query)
        assert scores[rows] == pytest.approx(features[rows] @ own, abs=1e-12)


def test_a_training_query_starts_from_its_own_solution(halves: tuple[Judged, Judged]) -> None:
    train = halves[0]
    ranker = SSER(0.5).fit(train)
    features = normalised(train.candidates).features
    for query in range(len(train.candidates)):
        matrix = ranker.program(features[train.candidates.rows(query)])
        start = ranker.start(matrix)
        assert solve(matrix, ranker.rows_, ranker.cost, start).rounds == 1


def test_a_query_is_answered_alike_whoever_it_comes_with(halves: tuple[Judged, Judged]) -> None:
    train, test = halves
    ranker = SSER(2.0).fit(train)
    together = ranker.query_weights(test.candidates)
    for query in (0, 7, 14):
        assert ranker.query_weights(test.candidates.select([query]))[0] == pytest.approx(together[query], abs=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 50.0])
def test_identical_documents_get_identical_scores(gamma: float, halves: tuple[Judged, Judged]) -> None:
    train, test = halves
    twice = np.repeat(test.candidates.features[:12], 2, axis=0)
    candidates = Candidates(twice, np.array([0, 24]), ("twins",))
    scores = SSER(gamma).fit(train).predict(candidates).reshape(12, 2)
    assert np.array_equal(scores[:, 0], scores[:, 1])
    assert len(np.unique(scores)) > 1


def test_the_order_of_documents_does_not_change_their_scores(halves: tuple[Judged, Judged]) -> None:
    train, test = halves
    ranker = SSER(2.0).fit(train)
    alone = test.candidates.select([3])
    turned = np.random.default_rng(0).permutation(12)
    scores = ranker.predict(replace(alone, features=alone.features[turned]))
    assert scores == pytest.approx(ranker.predict(alone)[turned], abs=1e-9)


@pytest.mark.parametrize("build", [SER, SSER])
def test_lists_of_none_of_one_and_of_ties_are_answered(build: Callable[[], Any], halves: tuple[Judged, Judged]) -> None:
    ranker = build().fit(halves[0])
    x = halves[1].candidates.features
    features = np.vstack([x[:1], np.repeat(x[1:2], 8, axis=0), x[2:4]])
    candidates = Candidates(features, np.array([0, 1, 1, 9, 11]), ("one", "none", "tied", "two"))
    scores = ranker.predict(candidates)
    assert np.isfinite(scores).all()
    assert scores[:9].tolist() == [0.0] * 9, "what is the same for all candidates is 0"
    assert ranker.predict(Candidates(np.zeros((0, 6)), np.array([0]), ())).shape == (0,)


def test_training_queries_that_want_nothing_are_passed_over() -> None:
    data = ragged(2)
    telling = data.select(np.flatnonzero(data.pairs > 0))
    assert len(telling) < len(data)
    assert np.array_equal(SER().fit(data).weights_, SER().fit(telling).weights_)


def test_preferences_the_paper_does_not_count_leave_no_weight() -> None:
    # The top grade is in a query of its own, where it is preferred to nothing.
    features = np.array([[0.0, 3.0], [1.0, 1.0], [0.5, 2.0], [2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    data = Judged(Candidates(features, np.array([0, 4, 6]), ("a", "b")), np.array([0, 1, 0, 1, 2, 2]))
    for ranker in (SER(), SSER()):
        assert ranker.fit(data).weights_.tolist() == [0.0, 0.0]
        assert ranker.predict(data.candidates).tolist() == [0.0] * 6
    assert SER(grades="difference").fit(data).weights_.any()


# What is refused


@pytest.mark.parametrize(
    ("name", "value"),
    [("cost", wrong) for wrong in (0.0, -1.0, np.nan, np.inf)]
    + [("norm", wrong) for wrong in (0.0, -1.0, np.nan, np.inf)]
    + [("smoothing", wrong) for wrong in (0.0, -1.0, np.nan, np.inf)]
    + [("similarity_scale", wrong) for wrong in (0.0, -1.0, np.nan, np.inf)]
    + [("theta", wrong) for wrong in (2.0, -0.1, np.nan)]
    + [("grades", "four"), ("similarity", "cosine")],
)
@pytest.mark.parametrize("build", [SER, SSER])
def test_settings_that_cannot_be_meant_are_refused(build: Callable[..., Any], name: str, value: Any) -> None:
    with pytest.raises(DataError, match=name):
        build(**{name: value}).fit(ragged())


@pytest.mark.parametrize(
    ("name", "value"),
    [("gamma", -1.0), ("gamma", np.nan), ("gamma", np.inf), ("neighbours", 0), ("neighbours", -3), ("neighbours", 2.5)],
)
def test_gammas_and_neighbours_that_cannot_be_meant_are_refused(name: str, value: Any) -> None:
    with pytest.raises(DataError, match=name):
        SSER(**{name: value}).fit(ragged())


@pytest.mark.parametrize("build", [SER, SSER])
def test_data_without_a_single_preference_is_refused(build: Callable[[], Any]) -> None:
    data = ragged()
    with pytest.raises(DataError, match="no preference to learn from"):
        build().fit(replace(data, labels=np.zeros_like(data.labels)))


@pytest.mark.parametrize("build", [SER, SSER])
def test_predicting_before_fitting_or_from_other_columns_is_refused(build: Callable[[], Any]) -> None:
    with pytest.raises(NotFittedError, match=rf"call {build().__class__.__name__}\.fit\(data\) first"):
        build().predict(ragged().candidates)
    with pytest.raises(DataError, match="trained on 4 features but the documents have 5"):
        build().fit(ragged()).predict(ragged(features=5).candidates)


# Real data


@pytest.fixture(scope="module")
def first_fold() -> tuple[Judged, Judged]:
    fold = read_folds(REAL_DATA / "OHSUMED")[0]
    return fold.train, fold.test


@needs_real_data
@pytest.mark.parametrize("norm", [None, 10.0])
@pytest.mark.parametrize("gamma", [0.1, 0.5, 5.0])
def test_every_query_of_ohsumed_is_answered_exactly(
    gamma: float, norm: float | None, first_fold: tuple[Judged, Judged]
) -> None:
    train, test = first_fold
    ranker = SSER(gamma, norm=norm).fit(train)
    assert kkt_residual(np.eye(45), ranker.rows_, ranker.cost, ranker.weights_, ranker.prices_) <= 1e-8
    start = Solution(ranker.weights_, ranker.prices_, ranker.free_, ranker.side_, ranker.residual_, 0)
    features, used = normalised(test.candidates).features, ranker.query_weights(test.candidates)
    for query, weights in enumerate(used):
        curvature = ranker.program(features[test.candidates.rows(query)])
        program = curvature, ranker.rows_, ranker.cost
        found = solve(*program, start)
        assert np.array_equal(found.weights, weights)
        assert kkt_residual(*program, found.weights, found.prices) <= 1e-8
        if query < 5:
            theirs = objective(*program, by_clarabel(*program))
            assert objective(*program, weights) == pytest.approx(theirs, rel=1e-8)


@needs_real_data
def test_the_graphs_of_ohsumed_are_those_written_out(first_fold: tuple[Judged, Judged]) -> None:
    candidates = first_fold[1].candidates
    features = normalised(candidates).features
    for query in np.argsort(candidates.sizes, kind="stable")[:3]:
        documents = features[candidates.rows(int(query))]
        assert roughness(documents, 5) == pytest.approx(dense_roughness(documents, 5), rel=1e-8, abs=1e-8)
