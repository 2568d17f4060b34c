from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import querywise as qw
from querywise.data.folds import Fold, write_parts
from querywise.data.judged import Judged, concatenate
from querywise.data.letor import write_letor
from querywise.data.parquet.writing import write_shards
from querywise.errors import DataError
from querywise.learners.classic.adarank import AdaRank
from querywise.learners.classic.hyperplanes import MultipleHyperplanes
from querywise.learners.classic.listnet import ListNet
from querywise.learners.classic.rankboost import RankBoost
from querywise.learners.local_models import PreparedRows
from querywise.learners.regression import KernelRidge
from querywise.learners.trees.boosting import TreeRegression
from querywise.learners.trees.context import QueryContext
from querywise.rankers.wrappers import QueryNormalised
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import unfitted
from tests.worlds import examples, inside

LEARNERS: list[Any] = [
    qw.RankSVM(),
    qw.RankSVM(pairs="pair"),
    qw.LambdaMART(10, min_documents=3),
    ListNet(),
    AdaRank(),
    RankBoost(10),
    MultipleHyperplanes(),
    QueryContext(qw.RankSVM()),
]
RANKERS: list[Any] = [
    qw.Single(qw.RankSVM()),
    qw.KnnOnline(qw.RankSVM(), 5),
    qw.KnnOffline1(qw.RankSVM(), 5),
    qw.KnnOffline2(qw.RankSVM(), 5),
    qw.KnnOnline(ListNet(), 5),
    qw.Naive(qw.RankSVM(), 3),
    qw.Transform(qw.RankSVM(), 3),
    qw.Blend([qw.RankSVM(), ListNet()]),
    QueryNormalised(qw.RankSVM()),
]


def world(seed: int = 0) -> Judged:
    return qw.make_judged(24, 8, 3, noise=0.6, seed=seed)


def weights_for(data: Judged, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).uniform(0.1, 3.0, len(data))


def scores(ranker: Any, data: Judged, **more: Any) -> Floats:
    found: Floats = unfitted(ranker).fit(data, **more).predict(data.candidates)
    return found


def name_of(ranker: Any) -> str:
    return f"{type(ranker).__name__}-{type(getattr(ranker, 'learner', None)).__name__}"


@pytest.mark.parametrize("learner", LEARNERS, ids=name_of)
def test_weights_of_the_data_are_those_given_to_fit(learner: Any) -> None:
    data = world()
    weights = weights_for(data)
    ours = scores(learner, data.with_weights(weights))
    assert np.array_equal(ours, scores(learner, data, query_weights=weights))
    assert not np.array_equal(ours, scores(learner, data))
    doubled = scores(learner, data.with_weights(weights), query_weights=weights)
    assert np.array_equal(doubled, scores(learner, data, query_weights=weights * weights))


@pytest.mark.parametrize("ranker", RANKERS, ids=name_of)
def test_rankers_take_query_weights_and_weights_that_are_alike_change_nothing(ranker: Any) -> None:
    data = world()
    plain = scores(ranker, data)
    assert np.array_equal(scores(ranker, data.with_weights(np.full(len(data), 2.0))), plain)
    assert not np.allclose(scores(ranker, data.with_weights(weights_for(data))), plain)


@given(st.integers(0, 10_000))
@settings(max_examples=examples(20), deadline=None)
def test_query_weights_multiply_the_rows_of_v(seed: int) -> None:
    data, rng = world(), np.random.default_rng(seed)
    weights, rows = rng.uniform(0.1, 3.0, len(data)), rng.random((3, len(data))) * (rng.random((3, len(data))) > 0.5)
    learner = qw.RankSVM(tolerance=1e-9)
    prepared = learner.prepare(data.with_weights(weights))
    ours = inside(prepared.models(csr_array(rows))).weights
    each = [learner.fit(data, query_weights=weights * row).weights_ if row.any() else ours[0] * 0 for row in rows]
    assert np.allclose(ours, each, atol=1e-3)
    inner = PreparedRows(ListNet()).fit(data.with_weights(weights)).models(csr_array(rows))
    for number, row in enumerate(rows):
        if np.ptp(row) > 0:
            theirs = ListNet().fit(data.select(row > 0), query_weights=(weights * row)[row > 0])
            assert np.array_equal(inside(inner[number]).weights_, theirs.weights_)


def test_a_query_of_weight_two_counts_as_one_that_is_there_twice() -> None:
    data = world()
    again = replace(data.candidates.select([3]), query_ids=("again",), queries=None)
    bare = replace(data, candidates=replace(data.candidates, queries=None))
    twice = concatenate([bare, Judged(again, data.select([3]).labels)])
    weights = np.where(np.arange(len(data)) == 3, 2.0, 1.0)
    for learner in (qw.RankSVM(scale="none"), ListNet(scale="none")):
        ours, theirs = (unfitted(learner).fit(each).weights_ for each in (bare.with_weights(weights), twice))
        assert np.allclose(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "ranker",
    [
        qw.KnnOnline(qw.RankSVM(), 5),
        qw.KnnOffline2(qw.RankSVM(), 5),
        qw.KnnOnline(qw.LambdaMART(5, min_documents=3), 5),
    ],
    ids=name_of,
)
def test_a_saved_ranker_keeps_the_weights(ranker: Any, tmp_path: Path) -> None:
    data = world().select(np.arange(8))
    trees = isinstance(ranker.learner, qw.LambdaMART)
    documents = np.random.default_rng(2).uniform(0.5, 2.0, len(data.labels)) if trees else None
    fitted = unfitted(ranker).fit(data.with_weights(weights_for(data), documents))
    qw.save(fitted, tmp_path / "model")
    loaded: Any = qw.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(data.candidates), fitted.predict(data.candidates))
    assert qw.explain(loaded, data.candidates, "q1").query_id == "q1"


def test_tune_and_compare_train_with_the_weights() -> None:
    train, valid, test = (world(seed) for seed in range(3))
    weighted = train.with_weights(weights_for(train))
    tuned = qw.tune(qw.RankSVM, {"l2": [0.1, 1.0]}, train=weighted, valid=valid)
    by_hand = qw.RankSVM(inside(tuned.parameters["l2"])).fit(weighted)
    assert np.array_equal(inside(tuned.ranker).weights_, by_hand.weights_)
    fits: dict[str, Any] = {"ours": lambda train, valid: qw.RankSVM().fit(train)}
    compared = qw.compare(fits, [Fold(weighted, valid, test)])
    assert np.array_equal(compared.scores["ours"], qw.RankSVM().fit(weighted).predict(test.candidates))


def test_weights_go_with_their_queries_and_documents() -> None:
    data = world()
    by_query, by_row = weights_for(data), np.arange(1.0, len(data.labels) + 1)
    weighted = data.with_weights(dict(zip(data.query_ids, by_query, strict=True)), by_row)
    parts = qw.split(weighted)
    together = concatenate(parts)
    for query, name in enumerate(together.query_ids):
        place = data.query_ids.index(name)
        assert inside(together.query_weights)[query] == by_query[place]
        own = inside(together.document_weights)[together.candidates.rows(query)]
        assert np.array_equal(own, by_row[data.candidates.rows(place)])
    mixed = concatenate([parts[0], parts[1].with_weights()])
    assert inside(mixed.query_weights)[len(parts[0]) :].tolist() == [1.0] * len(parts[1])
    assert weighted.fingerprint() != data.fingerprint() != data.with_weights(None, by_row).fingerprint()
    assert weighted.with_weights().fingerprint() == data.fingerprint()


def test_weights_come_with_arrays_and_frames_in_any_order_of_rows() -> None:
    X, y, qid, weight = [[1.0], [2.0], [3.0]], [1, 0, 0], ["b", "a", "b"], [5.0, 6.0, 7.0]
    data = qw.from_arrays(X, y, qid=qid, weight=weight, query_weights=[2.0, 3.0])
    assert data.query_ids == ("b", "a")
    assert inside(data.document_weights).tolist() == [5.0, 7.0, 6.0]
    assert inside(data.query_weights).tolist() == [2.0, 3.0]
    by_id = qw.from_arrays(X, y, qid=[8, 7, 8], query_weights={"7": 3.0, "8": 2.0})
    assert inside(by_id.query_weights).tolist() == [2.0, 3.0]
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "label": y, "qid": qid, "weight": weight})
    framed = qw.from_frame(frame, weight="weight")
    assert inside(framed.document_weights).tolist() == [5.0, 7.0, 6.0]
    assert framed.feature_names == ("x",)


def test_document_weights_are_lightgbms_sample_weights() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    data = qw.make_judged(60, 10, 3, noise=0.6)
    data = replace(data, candidates=replace(data.candidates, queries=None))
    by_row = np.random.default_rng(4).uniform(0.2, 3.0, len(data.labels))
    ours = scores(qw.LambdaMART(1, leaves=7, learning_rate=1.0), data.with_weights(documents=by_row))
    theirs = lightgbm.train(
        {"objective": "lambdarank", "num_leaves": 7, "learning_rate": 1.0, "verbose": -1, "num_threads": 1,
         "label_gain": ((np.exp2(np.arange(3)) - 1) / 3).tolist(), "min_data_in_leaf": 20},
        lightgbm.Dataset(
            data.candidates.features, data.labels, weight=by_row / by_row.mean(), group=data.candidates.sizes
        ),
        num_boost_round=1,
    ).predict(data.candidates.features)  # fmt: skip
    assert np.allclose(ours, theirs, atol=1e-6)
    assert not np.allclose(ours, scores(qw.LambdaMART(1, leaves=7, learning_rate=1.0), data))


def test_document_weights_that_are_alike_change_nothing_and_within_queries_are_query_weights() -> None:
    data, trees = world(), qw.LambdaMART(10, min_documents=3)
    alike = data.with_weights(documents=np.full(len(data.labels), 3.0))
    assert np.array_equal(scores(trees, alike), scores(trees, data))
    weights = weights_for(data)
    by_row = data.with_weights(documents=np.repeat(weights, data.candidates.sizes))
    assert np.allclose(scores(trees, by_row), scores(trees, data.with_weights(weights)))
    watched = scores(trees, data, valid=alike)
    assert np.array_equal(watched, scores(trees, data, valid=by_row)), "validation counts all documents the same"


def plain_regression(**more: Any) -> qw.ATVT:
    trees = TreeRegression(10, min_documents=3)
    return qw.ATVT(trees, scale_penalty=np.inf, shift_penalty=np.inf, **more)


@pytest.mark.parametrize(
    "ranker", [plain_regression(), qw.ATVT(TreeRegression(10, min_documents=3), rounds=0)], ids=["infinite", "rounds=0"]
)
def test_plain_regression_takes_both_kinds_of_weights(ranker: qw.ATVT) -> None:
    data = world()
    by_query, by_row = weights_for(data), np.random.default_rng(5).uniform(0.5, 2.0, len(data.labels))
    product = by_row * np.repeat(by_query, data.candidates.sizes)
    theirs = TreeRegression(10, min_documents=3).fit(
        data.candidates.features, data.labels.astype(float), product / product.mean()
    )
    ours = scores(ranker, data.with_weights(by_query, by_row))
    assert np.array_equal(ours, theirs.predict(data.candidates.features))


def test_atvt_minimises_the_weighted_objective() -> None:
    data = world()
    ranker = qw.ATVT(KernelRidge(), scale_penalty=1.0, shift_penalty=1.0, rounds=5, tolerance=0.0)
    trace = unfitted(ranker).fit(data.with_weights(weights_for(data))).trace_
    assert len(trace) > 5
    assert np.all(np.diff(trace) <= 1e-9 * trace[0])
    alike = scores(ranker, data.with_weights(np.full(len(data), 4.0)))
    assert np.array_equal(alike, scores(ranker, data))


def test_measures_are_weighted_only_where_asked_for() -> None:
    data = world()
    weights = weights_for(data)
    weighted = data.with_weights(weights)
    found = qw.evaluate(data.candidates.features[:, 0], weighted, measures=["ndcg@5"])
    assert found.mean() == qw.evaluate(data.candidates.features[:, 0], data, measures=["ndcg@5"]).mean()
    assert found.mean(weights)["ndcg@5"] == pytest.approx(np.average(found["ndcg@5"], weights=weights))
    with pytest.raises(DataError, match="24 queries"):
        found.mean([1.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda data: data.with_weights([1.0]), r"There are 24 queries, and query weights of shape \(1,\)"),
        (lambda data: data.with_weights(documents=[1.0]), r"There are 192 documents, and document weights of shape"),
        (
            lambda data: data.with_weights(np.zeros(24)),
            r"The weight of query 'q1' is 0.0; weights are finite numbers ab",
        ),
        (lambda data: data.with_weights(np.full(24, np.nan)), "The weight of query 'q1' is nan"),
        (lambda data: data.with_weights(documents=np.full(192, -1.0)), "of the document in row 1 is -1.0"),
        (lambda data: data.with_weights(["high"] * 24), "The weights of queries cannot be read as numbers"),
        (lambda data: data.with_weights({"q1": 1.0}), "Query 'q2' has no weight in query_weights"),
        (lambda data: data.with_weights(np.ma.array(np.ones(24), mask=[True] * 24)), "query_weights is masked"),
    ],
)
def test_weights_that_cannot_be_are_refused(make: Callable[[Judged], Judged], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make(world())


@pytest.mark.parametrize(
    "ranker",
    [*(each for each in LEARNERS if not isinstance(each, qw.LambdaMART)), *RANKERS, qw.SER(), qw.SSER()],
    ids=name_of,
)
def test_document_weights_are_refused_where_they_have_no_place(ranker: Any) -> None:
    data = world()
    with pytest.raises(DataError, match=r"does not support (them|document weights): .*[Tt]rees"):
        scores(ranker, data.with_weights(documents=np.arange(1.0, len(data.labels) + 1)))


@pytest.mark.parametrize(
    ("ranker", "message"),
    [
        (qw.SER(), "SER does not support query weights: all queries have the same cost"),
        (qw.SSER(), "SSER does not support query weights"),
        (qw.ATVT(TreeRegression(2), per="class"), "ATVT does not support query weights: with per='class'"),
        (qw.ATVT(TreeRegression(2), transform="monotone", variant="running"), "ATVT does not support query weights"),
    ],
    ids=["SER", "SSER", "per class", "monotone"],
)
def test_query_weights_are_refused_where_they_have_no_place(ranker: Any, message: str) -> None:
    data = world()
    with pytest.raises(DataError, match=message):
        scores(ranker, data.with_weights(weights_for(data)))


def test_atvt_refuses_document_weights_unless_it_is_plain_regression() -> None:
    data = world()
    with pytest.raises(DataError, match="ATVT does not support document weights: every query's α and β"):
        scores(qw.ATVT(TreeRegression(2)), data.with_weights(documents=np.arange(1.0, len(data.labels) + 1)))


def test_files_without_a_place_for_weights_are_not_written(tmp_path: Path) -> None:
    data = world()
    weighted = data.with_weights(weights_for(data))
    for write in (
        lambda: write_letor(tmp_path / "out.txt", weighted),
        lambda: write_parts(weighted, tmp_path / "parts"),
        lambda: write_shards([weighted], tmp_path / "shards"),
    ):
        with pytest.raises(DataError, match=r"does not support weights. Remove them first: data.with_weights\(\)"):
            write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("query_weights_", np.full(8, 1e300), "weights are finite numbers above 0"),
        ("query_weights_", np.ones(3), "has 3 queries; expected 8"),
        ("document_weights_", np.ones(3), "has 3 rows; expected 64"),
        ("gains_", np.array([0.0, 1.0]), "gains has 2 entries, from label 0 to 1; there is a 2"),
        ("gains_", np.array([0.0, 2.0, 1.0]), "rise from label to label"),
    ],
)
def test_a_damaged_model_is_refused(name: str, value: Floats, message: str, tmp_path: Path) -> None:
    fitted = qw.KnnOnline(ListNet(), 5).fit(world().select(np.arange(8)))
    setattr(fitted.prepared_, name, value)
    qw.save(fitted, tmp_path / "model")
    with pytest.raises(qw.ModelFileError, match=message):
        qw.load(tmp_path / "model")
