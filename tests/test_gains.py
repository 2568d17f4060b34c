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
from sklearn.metrics import ndcg_score

import querywise as qw
from querywise.data.folds import Fold, write_parts
from querywise.data.judged import Judged, concatenate
from querywise.data.labels import values_of
from querywise.data.letor import write_letor
from querywise.data.parquet.tables import read_parquet
from querywise.data.parquet.writing import write_shards
from querywise.errors import DataError
from querywise.learners.classic.adarank import AdaRank
from querywise.learners.classic.hyperplanes import MultipleHyperplanes
from querywise.learners.classic.listnet import ListNet
from querywise.learners.classic.rankboost import RankBoost
from querywise.learners.trees.boosting import TreeRegression
from querywise.learners.trees.growth import Grades
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import unfitted
from tests.worlds import examples, inside

OWN = (0.0, 1.0, 3.0)  # what grades 0, 1 and 2 are worth anyway
LINEAR = (0.0, 1.0, 2.0)
RATES = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1.0)), min_size=2, max_size=12)


def world(seed: int = 0) -> Judged:
    return qw.make_judged(24, 8, 3, noise=0.6, seed=seed)


def rates(seed: int = 0) -> Judged:
    """Real-valued labels: nearly all of those above 0 are distinct."""
    data, rng = world(seed), np.random.default_rng(seed)
    values = data.labels * rng.uniform(0.01, 0.2, len(data.labels))
    qid = np.array(data.query_ids)[data.candidates.query_of_row]
    return qw.from_arrays(data.candidates.features, values, qid=qid, gains=True)


def scores(ranker: Any, data: Judged, **more: Any) -> Floats:
    found: Floats = unfitted(ranker).fit(data, **more).predict(data.candidates)
    return found


@given(RATES)
@settings(max_examples=examples(100), deadline=None)
def test_levels_and_their_table_are_the_labels_given(y: list[float]) -> None:
    data = qw.from_arrays(np.zeros((len(y), 1)), y, qid=["a"] * len(y), gains=True)
    assert values_of(data).tolist() == y
    assert [label > 0 for label in data.labels.tolist()] == [value > 0 for value in y]
    assert np.array_equal(np.argsort(data.labels, kind="stable"), np.argsort(y, kind="stable"))


@given(RATES, st.integers(0, 1000), st.integers(1, 12))
@settings(max_examples=examples(100), deadline=None)
def test_ndcg_of_values_is_scikit_learns(y: list[float], seed: int, k: int) -> None:
    data = qw.from_arrays(np.zeros((len(y), 1)), y, qid=["a"] * len(y), gains=True)
    made = np.random.default_rng(seed).permutation(len(y)).astype(float)
    theirs = ndcg_score([y], [made], k=k, ignore_ties=True)
    for flavour in ("standard", "trec"):  # the value stands in the place of 2^grade - 1 and of the grade
        ours = qw.evaluate(made, data, measures=[f"ndcg@{k}"], flavour=flavour).mean()[f"ndcg@{k}"]
        assert ours == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(("table", "flavours"), [(OWN, ("standard", "letor4", "lightgbm")), (LINEAR, ("trec",))])
def test_measures_with_the_gains_that_grades_have_anyway_are_the_same(table: Any, flavours: tuple[str, ...]) -> None:
    data, names = world(), ["map", "ndcg", "ndcg@3", "mean_ndcg", "dcg@5", "mrr", "p@2", "recall@3", "rbp", "bpref"]
    made = data.candidates.features[:, 0]
    for flavour in flavours:
        ours, theirs = (
            qw.evaluate(made, each, measures=names, flavour=flavour).values
            for each in (replace(data, gains=table), data)
        )
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("ranker", "table"),
    [
        (qw.LambdaMART(10, min_documents=3), OWN),
        (qw.LambdaMART(10, min_documents=3, objective="rank_xendcg"), OWN),
        (qw.RankSVM(), OWN),
        (RankBoost(10), OWN),
        (AdaRank(measure="ndcg@5"), OWN),
        (ListNet(), LINEAR),
        (qw.KnnOnline(qw.RankSVM(), 5), OWN),
        (qw.Naive(qw.LambdaMART(5, min_documents=3), 3), OWN),
        (qw.Blend([qw.RankSVM(), AdaRank()]), OWN),
        (qw.ATVT(TreeRegression(5, min_documents=3)), LINEAR),
        (qw.SER(grades="difference"), LINEAR),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, tuple) else "",
)
def test_models_with_the_gains_that_grades_have_anyway_are_the_same(ranker: Any, table: Any) -> None:
    train, valid = world(), world(1)
    worth, watched = replace(train, gains=table), replace(valid, gains=table)
    assert np.array_equal(scores(ranker, worth, valid=watched), scores(ranker, train, valid=valid))
    assert np.array_equal(scores(ranker, worth), scores(ranker, train))


@pytest.mark.parametrize(
    "ranker",
    [
        qw.LambdaMART(10, min_documents=3),
        qw.LambdaMART(10, min_documents=3, objective="rank_xendcg"),
        qw.RankSVM(),
        ListNet(),
        AdaRank(),
        RankBoost(10),
        qw.KnnOnline(qw.RankSVM(), 5),
        qw.SSER(grades="difference"),
        qw.ATVT(TreeRegression(5, min_documents=3)),
        qw.SelectRanker(qw.RankSVM(), 3),
    ],
    ids=lambda each: type(each).__name__,
)
def test_rankers_learn_from_real_valued_labels(ranker: Any) -> None:
    data = rates()
    ours = qw.evaluate(scores(ranker, data, valid=rates(1)), data, measures=["ndcg@5"]).mean()["ndcg@5"]
    chance = qw.evaluate(np.zeros(len(data.labels)), data, measures=["ndcg@5"]).mean()["ndcg@5"]
    assert ours > chance + 0.1


@pytest.mark.slow
def test_the_recommended_ranker_learns_from_real_valued_labels() -> None:
    data = rates()
    found = qw.recommended().fit(data, valid=rates(1))
    assert qw.evaluate(found.predict(data.candidates), data, measures=["ndcg@5"]).mean()["ndcg@5"] > 0.6


def test_values_and_not_levels_count_for_trees() -> None:
    data = world()
    steep, flat = (replace(data, gains=np.array(table)) for table in ([0.0, 1.0, 1000.0], [0.0, 1.0, 1.001]))
    trees = qw.LambdaMART(10, min_documents=3)
    assert not np.allclose(scores(trees, steep), scores(trees, flat))
    larger = replace(data, gains=np.array([0.0, 8.0, 24.0]))  # the same but for the unit
    assert np.array_equal(scores(trees, larger), scores(trees, data))


def test_training_and_validation_data_need_not_have_one_table() -> None:
    whole = concatenate([rates(), replace_ids(rates(1), "v")])
    train, valid = whole.select(np.arange(24)), whole.select(np.arange(24, 48))
    apart = [qw.from_arrays(each.candidates.features, values_of(each), group=each.candidates.sizes, gains=True)
             for each in (train, valid)]  # fmt: skip
    assert len(inside(apart[0].gains)) < len(inside(whole.gains))
    for ranker in (qw.LambdaMART(10, min_documents=3), qw.ATVT(TreeRegression(5, min_documents=3))):
        assert np.array_equal(scores(ranker, apart[0], valid=apart[1]), scores(ranker, train, valid=valid))


def replace_ids(data: Judged, prefix: str) -> Judged:
    names = tuple(f"{prefix}{name}" for name in data.query_ids)
    return replace(data, candidates=replace(data.candidates, query_ids=names))


def test_sets_put_together_have_one_table() -> None:
    one = qw.from_arrays([[1.0], [2.0]], [0.5, 0.0], qid=["a", "a"], gains=True)
    other = qw.from_arrays([[1.0], [2.0]], [0.2, 0.5], qid=["b", "b"], gains=True)
    both = concatenate([one, other])
    assert values_of(both).tolist() == [0.5, 0.0, 0.2, 0.5]
    assert both.labels.tolist() == [2, 0, 1, 2]
    with pytest.raises(DataError, match="One judged set has real-valued labels"):
        concatenate([one, qw.from_arrays([[1.0]], [1], qid=["c"])])


def many(values: Floats) -> tuple[Judged, Grades]:
    features = np.random.default_rng(1).normal(size=(len(values), 2))
    data = qw.from_arrays(features, values, group=[100] * (len(values) // 100), gains=True)
    return data, Grades.of(data, None, "lambdarank")


def test_more_values_than_lightgbm_is_given_are_put_into_levels() -> None:
    values = np.random.default_rng(0).uniform(0.0, 5.0, 12_000)
    data, grades = many(values)
    assert len(grades.gains) <= 10_000
    rounded = grades.gains[grades.labels(data, np.arange(12_000))] * values.max()
    assert np.abs(rounded - values).max() <= values.max() / 4_999
    assert np.isfinite(scores(qw.LambdaMART(2), data)).all()


def test_levels_keep_small_values_above_zero_and_large_ones_apart() -> None:
    values = np.exp(np.random.default_rng(0).normal(0.0, 4.0, 30_000))
    values[:3_000] = 0.0
    data, grades = many(values)
    labels = grades.labels(data, np.arange(len(values)))
    assert len(grades.gains) == len(np.unique(labels)) <= 10_000
    assert np.array_equal(labels == 0, values == 0)
    order = np.argsort(values)
    assert (np.diff(labels[order]) >= 0).all()
    assert (np.diff(grades.gains) > 0).all()
    assert np.bincount(labels)[1:].max() <= -(-27_000 // 4_999)  # no level holds more than a quantile does
    assert np.abs(grades.gains[labels] - values / values.max()).max() <= 1 / 4_999
    assert grades.gains[1] * values.max() <= values[order][3_000 : 3_000 + 6].max()


@pytest.mark.parametrize("make", [lambda: qw.KnnOnline(qw.LambdaMART(5, min_documents=3), 5), qw.LambdaMART])
def test_a_saved_ranker_scores_the_same(make: Callable[[], Any], tmp_path: Path) -> None:
    data = rates().select(np.arange(8))
    fitted = make().fit(data)
    qw.save(fitted, tmp_path / "model")
    loaded: Any = qw.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(data.candidates), fitted.predict(data.candidates))


def test_frames_and_logs_have_real_valued_labels_too(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "label": [0.5, None, 0.25], "qid": ["a", "a", "b"]})
    data = qw.from_frame(frame, gains=True)
    assert values_of(data).tolist() == [0.5, 0.0, 0.25]
    assert inside(data.judged).tolist() == [True, False, True]
    frame.to_parquet(tmp_path / "log.parquet")
    assert read_parquet(tmp_path / "log.parquet", gains=True).fingerprint() == data.fingerprint()
    with pytest.raises(DataError, match=r"Row 1 has label 0.5; .*gains=True of from_arrays, from_frame"):
        qw.from_frame(frame)


def test_a_comparison_measures_by_the_values(tmp_path: Path) -> None:
    train, valid, test = rates(), rates(1), rates(2)
    fits: dict[str, Any] = {name: lambda train, valid: qw.RankSVM().fit(train) for name in ("ours", "theirs")}
    compared = qw.compare(fits, [Fold(train, valid, test)], measures=["ndcg@5"])
    expected = qw.evaluate(qw.RankSVM().fit(train).predict(test.candidates), test, measures=["ndcg@5"])
    assert np.array_equal(compared.evaluations["ours"].values, expected.values)
    tuned = qw.tune(qw.RankSVM, {"l2": [0.1, 1.0]}, train=train, valid=valid)
    assert tuned.parameters["l2"] in (0.1, 1.0)


@pytest.mark.parametrize(
    ("y", "gains", "message"),
    [
        ([0.5, 0, 1], False, r"Row 1 has label 0.5; a label is a whole number.*need gains=True"),
        ([1, -1, 0], False, r"Row 2 has label -1; a label is a whole number from 0 \(not relevant\) up\.$"),
        ([0.5, -0.1, 1], True, "Row 2 has label -0.1; a real-valued label is a number from 0"),
        ([0.5, np.nan, 1], True, "Row 2 has label nan"),
        ([0.5, np.inf, 1], True, "Row 2 has label inf"),
        (["a", "b", "c"], True, "Labels must be one number per row"),
        ([0.5, 1, 2], [0, 1, 3], r"Row 1 has label 0.5; a label is a whole number"),
        ([0, 1, 3], [0, 1, 3], "gains has 3 entries, from label 0 to 2; there is a 3"),
        ([0, 1, 1], [1, 2], "0 for label 0; found"),
        ([0, 1, 1], [0, 2, 2], "rise from label to label"),
        ([0, 1, 1], [0, np.nan], "finite numbers that rise"),
        ([0, 1, 1], [], "one number per label, from 0 up"),
    ],
)
def test_labels_that_cannot_be_are_refused(y: Any, gains: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        qw.from_arrays([[1.0], [2.0], [3.0]], y, qid=["a", "a", "a"], gains=gains)


@pytest.mark.parametrize(
    ("ranker", "message"),
    [
        (MultipleHyperplanes(), "MultipleHyperplanes does not support real-valued labels"),
        (qw.SER(), r"SER\(grades='three'\) does not support real-valued labels .*set grades='difference'"),
        (qw.SSER(), r"SSER\(grades='three'\) does not support"),
        (qw.ATVT(TreeRegression(2), values=[0, 1]), r"ATVT\(values=…\) does not support .*leave out values"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_methods_without_a_place_for_values_refuse_them(ranker: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        scores(ranker, rates())


@pytest.mark.parametrize(
    "ranker",
    [
        qw.LambdaMART(2),
        qw.ATVT(TreeRegression(2)),
        qw.RankSVM(),
        ListNet(),
        AdaRank(),
        RankBoost(2),
        qw.KnnOnline(qw.RankSVM(), 5),
        qw.Blend([qw.RankSVM(), AdaRank()]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_values_and_grades_do_not_go_together(ranker: Any) -> None:
    for data, valid in ((rates(), world()), (world(), rates())):
        with pytest.raises(DataError, match="One judged set has real-valued labels"):
            scores(ranker, data, valid=valid)


def test_tuning_and_comparing_do_not_mix_values_and_grades() -> None:
    message = "One judged set has real-valued labels"
    with pytest.raises(DataError, match=message):
        qw.tune(lambda **settings: Plain(), {"l2": [0.1, 1.0]}, train=rates(), valid=world())
    for parts in ((rates(), world(1), world(2)), (world(), rates(1), world(2)), (world(), world(1), rates(2))):
        with pytest.raises(DataError, match=message):
            qw.compare({"theirs": lambda train, valid: Plain()}, *parts)


class Plain:
    """A ranker of a user's own, which checks nothing."""

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Plain:
        return self

    def predict(self, candidates: qw.Candidates, /) -> Floats:
        return candidates.features[:, 0]


def test_measures_that_need_grades_are_refused() -> None:
    data = rates()
    made = data.candidates.features[:, 0]
    with pytest.raises(DataError, match="ERR cannot be measured on real-valued labels"):
        qw.evaluate(made, data, measures=["err@10"])
    with pytest.raises(DataError, match="The flavour mslr counts documents as relevant from grade 2 on"):
        qw.evaluate(made, data, flavour="mslr")


def test_files_of_whole_numbers_are_not_written(tmp_path: Path) -> None:
    data = rates()
    for write in (
        lambda: write_letor(tmp_path / "out.txt", data),
        lambda: write_parts(data, tmp_path / "parts"),
        lambda: write_shards([data], tmp_path / "shards"),
    ):
        with pytest.raises(DataError, match="does not support real-valued labels"):
            write()
    assert list(tmp_path.iterdir()) == []


def test_judgements_are_grades_and_are_not_joined_with_values() -> None:
    data = qw.from_arrays([[1.0]], [0.5], qid=["a"], document_ids=["D1"], gains=True)
    with pytest.raises(DataError, match="A set with all that was judged does not support real-valued labels"):
        data.with_judgements({"a": {"D1": 1}})
    whole = qw.from_arrays([[1.0]], [1], qid=["a"], document_ids=["D1"]).with_judgements({"a": {"D1": 1}})
    with pytest.raises(DataError, match="Judgments are grades"):
        replace(whole, gains=np.array([0.0, 0.5]))
