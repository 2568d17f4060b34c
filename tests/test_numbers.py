"""Numbers of any size and in any script: right, or refused with a reason; never an overflow, NaN or another number."""

from __future__ import annotations

import copy
import json
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from querywise.data.folds import read_folds
from querywise.data.frames import from_arrays, from_frame
from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import read_judgements
from querywise.data.letor import read_letor
from querywise.data.parquet.tables import read_parquet, read_scored, write_scored_part
from querywise.data.query_table import QueryTable
from querywise.data.runs import read_run
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, SolverError
from querywise.evaluation.evaluate import evaluate
from querywise.learners.classic.adarank import AdaRank
from querywise.learners.classic.listnet import ListNet
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.measures.formulas import dcg, find_measure, mean_ndcg, ndcg
from querywise.measures.order import FLAVOURS, RankedList, order
from querywise.measures.score_files import read_scores
from querywise.rankers.knn import KnnOnline
from querywise.rankers.weights.fusion import Fusion
from querywise.rankers.wrappers import OnRuns
from querywise.runtime.arrays import Floats
from querywise.runtime.scaling import Moments, Scaling
from querywise.runtime.values import Json, json_text
from tests.commands import refused, run
from tests.support.rankers import RANKERS, every_kind
from tests.worlds import as_runs


@cache
def world() -> Judged:
    """Queries of two kinds, with texts and classes."""
    data = make_judged(24, 6, 3, kinds=2, seed=1)
    ids, known = data.query_ids, data.candidates.queries
    assert known is not None
    texts = tuple(f"word{number % 5} other{number % 3}" for number in range(len(ids)))
    return data.with_queries(QueryTable(ids, texts=texts, classes=known.classes))


def reshaped(change: Callable[[Floats], Floats]) -> Judged:
    data = world()
    return replace(data, candidates=replace(data.candidates, features=change(np.array(data.candidates.features))))


def with_a_sentinel(features: Floats) -> Floats:
    features[7, 1] = -1.7e308
    return features


ODD: dict[str, tuple[Callable[[Floats], Floats], str]] = {
    "a sentinel": (with_a_sentinel, "Row 8, column 2 of the features is -1.7e\\+308"),
    "all huge": (lambda features: 1e300 * features, "column 1 of the features is .*e\\+(299|300)"),
    "all tiny": (
        lambda features: 1e-300 * features,
        "Column 1 varies by less than 1e-140|column 1 lie within 1e-35 of 0",
    ),
    "none": (lambda features: features[:, :0], "no features|no feature"),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "odd"), [(name, odd) for turn, odd in enumerate(ODD) for name in every_kind(turn, share=len(ODD))]
)
def test_features_of_any_size_are_ranked_rightly_or_refused(name: str, odd: str) -> None:
    change, why = ODD[odd]
    fuses = isinstance(RANKERS[name](), Fusion | OnRuns)
    data = of_runs(change) if fuses else reshaped(change)
    found = asked(name, data)
    if isinstance(found, str):
        of_a_run = "no features|needs the columns|column run.[ab].score of the features is|lie within 1e-35 of 0"
        assert re.search(of_a_run if fuses else why, found)
    else:
        plain = asked(name, of_runs(lambda scores: scores) if fuses else world())
        assert not isinstance(plain, str)
        assert np.isfinite(found).all()
        if data.feature_count:
            starts = data.candidates.starts
            assert order(found, starts).tolist() == order(plain, starts).tolist()


def asked(name: str, data: Judged) -> Floats | str:
    """The scores of a ranker that is fitted on some data, for that data, or why there are none."""
    try:
        found: Floats = RANKERS[name]().fit(data).predict(data.candidates)
    except DataError as error:
        return str(error)
    return found


def of_runs(change: Callable[[Floats], Floats]) -> Judged:
    """The world with the columns of two runs, whose scores are changed."""
    data = as_runs(world())
    features = np.array(data.candidates.features)
    scores = change(features[:, ::2].copy())
    if not scores.shape[1]:
        return replace(data, candidates=replace(data.candidates, features=scores, feature_names=None))
    features[:, ::2] = scores
    return replace(data, candidates=replace(data.candidates, features=features))


@pytest.mark.parametrize("odd", ["a sentinel", "all huge", "all tiny", "none"])
@pytest.mark.parametrize("name", ["RankSVM", "LambdaMART", "ListNet", "ATVT, kernel"])
def test_features_too_large_or_too_small_to_learn_from_are_refused_by_place(name: str, odd: str) -> None:
    change, why = ODD[odd]
    with pytest.raises(DataError, match=why):
        RANKERS[name]().fit(reshaped(change))


def test_a_model_is_not_asked_about_numbers_too_large_for_it() -> None:
    ranker = RANKERS["RankSVM"]().fit(world())
    with pytest.raises(DataError, match=r"Row 8, column 2 of the features is .* Divide the column"):
        ranker.predict(reshaped(with_a_sentinel).candidates)
    named = replace(reshaped(with_a_sentinel).candidates, feature_names=("a", "clicks", "c"))
    with pytest.raises(DataError, match="column clicks"):
        ranker.predict(named)
    assert np.isfinite(ranker.predict(reshaped(lambda features: 1e119 * features).candidates)).all()


@pytest.mark.parametrize("size", [1e20, 1e60, 1e110])
@pytest.mark.parametrize("build", [RankSVM, ListNet, AdaRank, lambda scale: KnnOnline(RankSVM(scale=scale), k=5)])
def test_large_features_that_are_not_to_be_scaled_are_ranked_or_refused(build: Callable[..., Any], size: float) -> None:
    data = reshaped(lambda features: size * features)
    with np.errstate(all="ignore"):
        try:
            found = build(scale="none").fit(data).predict(data.candidates)
        except SolverError as error:
            found = np.zeros(1) if "scale='standard'" in str(error) or "raise l2" in str(error) else np.full(1, np.nan)
    assert np.isfinite(found).all()


def test_a_tiny_column_among_others_is_refused_by_its_number_and_one_of_zeros_is_not() -> None:
    tiny = reshaped(lambda features: features * [1.0, 0.0, 1e-200])
    with pytest.raises(DataError, match="Column 3 varies by less than 1e-140"):
        RANKERS["RankSVM"]().fit(tiny)
    with pytest.raises(DataError, match="column 3 lie within 1e-35 of 0, which trees treat as 0"):
        RANKERS["LambdaMART"]().fit(tiny)
    zero = reshaped(lambda features: features * [1.0, 0.0, 1.0])
    for name in ("RankSVM", "LambdaMART"):
        assert np.isfinite(RANKERS[name]().fit(zero).predict(zero.candidates)).all()


def test_columns_too_faint_to_scale_are_found_in_parts_as_in_the_whole() -> None:
    table = np.array([[1.0, 0.0, 5.0, 3e-200], [2.0, 0.0, 5.0, 1e-200], [3.0, 0.0, 5.0, 1e-200]])
    halves = [Moments.of(table[:1]), Moments.of(table[1:])]
    for parts in ([Moments.of(table)], halves):
        with pytest.raises(DataError, match="Column 4"):
            Scaling.by(parts, "standard")
    assert Scaling.learn(table[:, :3], "standard").spread[1:].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("grade", [1023, 1024, 5000, 2**53])
def test_grades_of_any_height_have_an_ndcg(grade: int) -> None:
    labels = np.array([0, grade, 0, grade - 1])
    high = ndcg(RankedList(labels), None, FLAVOURS["standard"])
    assert high == pytest.approx((1 / math.log2(3) + 0.5 / math.log2(5)) / (1 + 0.5 / math.log2(3)), rel=1e-12)
    assert 0 < mean_ndcg(RankedList(labels), 2, FLAVOURS["standard"]) < 1
    with pytest.raises(DataError, match=f"DCG with grade {grade}.*Give the grades lower numbers"):
        dcg(RankedList(labels), None, FLAVOURS["standard"])
    assert dcg(RankedList(labels), 2, FLAVOURS["trec"]) == pytest.approx(grade / math.log2(3))


@pytest.mark.filterwarnings("error")
def test_all_measures_of_high_grades_are_finite() -> None:
    data = replace(world(), labels=1024 * world().labels)
    scores = data.candidates.features[:, 0]
    found = evaluate(scores, data, measures=["map", "mrr", "p@5", "ndcg@5", "mean_ndcg", "err"])
    assert all(np.isfinite(found[name]).all() for name in ("map", "mrr", "p@5", "ndcg@5", "mean_ndcg", "err"))


@pytest.mark.parametrize("times", [1024, 3 * 10**14])
@pytest.mark.parametrize("name", ["LambdaMART", "LambdaMART, bag, listwise", "RankSVM", "ListNet", "SER"])
def test_high_grades_are_learned_from(name: str, times: int) -> None:
    data = replace(world(), labels=times * world().labels)
    ranker = RANKERS[name]().fit(data)
    assert np.isfinite(ranker.predict(data.candidates)).all()


@pytest.mark.parametrize("zeros", [99_990, 100_000, 250_000])
@pytest.mark.parametrize(("power", "value"), [(999_999, None), (0, 0.0), (None, 0.01)])
def test_a_long_power_of_ten_is_read_as_it_stands(
    tmp_path: Path, zeros: int, power: int | None, value: float | None
) -> None:
    written = f"0.{'0' * zeros}1e{zeros - 1 if power is None else power}"
    (tmp_path / "train.txt").write_text(f"1 qid:1 1:{written}\n")
    if value is None:
        with pytest.raises(DataError, match=r"train.txt:1: the value in '0.000*' is not a finite number"):
            read_letor(tmp_path / "train.txt")
    else:
        assert read_letor(tmp_path / "train.txt").candidates.features.tolist() == [[value]]


@pytest.mark.parametrize("score", ["1_0", "١٢", "1e9999", "nan", "0x10", "１"])
def test_scores_are_written_in_plain_digits(tmp_path: Path, score: str) -> None:
    candidates = Candidates(np.zeros((1, 1)), np.array([0, 1]), ("1",), ("D",))
    (tmp_path / "scores.txt").write_text(f"{score}\n", encoding="utf-8")
    (tmp_path / "run.trec").write_text(f"1 Q0 D 1 {score} tag\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"scores.txt:1: expected one finite number; found"):
        read_scores(tmp_path / "scores.txt", candidates)
    with pytest.raises(DataError, match=r"run.trec:1: expected one finite number; found"):
        read_scores(tmp_path / "run.trec", candidates)
    with pytest.raises(DataError, match=r"run.trec:1: the score is .*; expected a finite number"):
        read_run(tmp_path / "run.trec")


def test_digits_of_other_scripts_number_nothing(tmp_path: Path) -> None:
    (tmp_path / "qrels.tsv").write_text("q\td\t١\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"qrels.tsv:1: expected .* the grade a whole number"):
        list(read_judgements(tmp_path / "qrels.tsv"))
    (tmp_path / "Fold²").mkdir()
    with pytest.raises(DataError, match=r"neither Fold1\.\.Fold5"):
        read_folds(tmp_path)
    write_scored_part(
        tmp_path / "part-٠٠٠٠٠.parquet", Candidates(np.zeros((1, 1)), np.array([0, 1]), ("1",)), np.ones(1)
    )
    with pytest.raises(DataError, match="no scores in this folder"):
        read_scored(tmp_path)
    with pytest.raises(DataError, match="Unknown measure"):
        find_measure("ndcg@1٠")


@pytest.mark.parametrize("options", ["--k 1_0", "--k ²", "--reference +-5", "--reference ²"])
def test_options_are_written_in_plain_digits(tmp_path: Path, options: str) -> None:
    (tmp_path / "train.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.1\n1 qid:2 1:0.5\n0 qid:2 1:0.1\n")
    said = refused(run(tmp_path, "fit", "train.txt", "--method", "knn-online", *options.split(), "--out", "m"))
    assert options in said or "There is no feature" in said


@pytest.mark.parametrize("line", ["\tD1\t1", "q1\t\t1", " \t \t0"])
def test_judgements_need_the_ids_of_query_and_document(tmp_path: Path, line: str) -> None:
    (tmp_path / "qrels.tsv").write_text(f"q0\tD0\t1\n{line}\n")
    with pytest.raises(DataError, match=r"qrels.tsv:2: the id of the (query|document) is empty"):
        list(read_judgements(tmp_path / "qrels.tsv"))


MASKED: Any = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, False], [False, True]])


def test_masked_arrays_are_refused_where_something_is_masked() -> None:
    with pytest.raises(DataError, match="Row 2, column 2 of X is masked"):
        from_arrays(MASKED, [1, 0], qid=["a", "a"])
    with pytest.raises(DataError, match="Row 1 of the labels is masked"):
        from_arrays([[1.0], [2.0]], np.ma.array([1, 0], mask=[True, False]), qid=["a", "a"])
    with pytest.raises(DataError, match="Row 2, column 2 of features is masked"):
        Candidates(MASKED, np.array([0, 2]), ("a",))
    with pytest.raises(DataError, match="Row 2 of the scores is masked"):
        evaluate(np.ma.array([1.0, 2.0], mask=[False, True]), from_arrays([[1.0], [2.0]], [1, 0], qid=["a", "a"]))
    with pytest.raises(DataError, match="Row 1 of query_weights is masked"):
        RANKERS["RankSVM"]().fit(world(), query_weights=np.ma.array(np.ones(24), mask=[True] + 23 * [False]))
    whole: Any = np.ma.array([[1.0], [2.0]], mask=False)
    assert from_arrays(whole, [1, 0], qid=["a", "a"]).candidates.features.tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize(
    "table",
    [
        np.array([["2026-01-01"]], dtype="datetime64[D]"),
        np.array([[timedelta(1)]], dtype="timedelta64[s]"),
        np.array([["1_0"]]),
        np.array([["1_0"]], dtype=object),
        np.array([[1j]]),
    ],
)
def test_what_is_not_a_number_is_no_feature(table: Any) -> None:
    with pytest.raises(DataError, match="X must be a table of numbers; found"):
        from_arrays(table, [1], qid=["a"])


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("label", [date(2026, 1, 1), timedelta(1), "1_0"])
def test_dates_are_no_labels(frame: Callable[..., Any], label: date | timedelta | str) -> None:
    with pytest.raises(DataError, match="label"):
        from_frame(frame({"qid": ["a", "a"], "label": [label, label], "price": [1.0, 2.0]}))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_missing_document_id_is_refused_by_its_row(tmp_path: Path, frame: Callable[..., Any]) -> None:
    table = frame({"qid": ["a", "a"], "label": [0, 1], "docid": ["D1", None], "price": [1.0, 2.0]})
    with pytest.raises(DataError, match="Row 2 has no document id"):
        from_frame(table, document="docid")
    with pytest.raises(DataError, match="Row 2 has no document id"):
        from_arrays([[1.0], [2.0]], [0, 1], qid=["a", "a"], document_ids=["D1", None])  # type: ignore[list-item]
    if isinstance(table, pa.Table):
        pq.write_table(table, tmp_path / "log.parquet")
        with pytest.raises(DataError, match=r"log.parquet: Row 2 has no document id"):
            read_parquet(tmp_path / "log.parquet")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = pa.table([["a", "b"], [1, 0], [1.0, 2.0], [3.0, 4.0]], names=["qid", "label", "price", "price"])
    pq.write_table(twice, tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"log.parquet: there are two columns called 'price'"):
        read_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"two columns called 'price'"):
        read_parquet([tmp_path / "log.parquet", tmp_path / "log.parquet"])
    with pytest.raises(DataError, match="The table has two columns called 'price'"):
        from_frame(pd.DataFrame([["a", 1, 1.0, 2.0]], columns=["qid", "label", "price", "price"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", RANKERS)
def test_copies_of_a_ranker_score_alike(name: str) -> None:
    """Copied and pickled, fitted and not; and what is done to a copy leaves the ranker as it is."""
    data = as_runs(world()) if isinstance(RANKERS[name](), Fusion | OnRuns) else world()
    ranker = RANKERS[name]().fit(data)
    found = ranker.predict(data.candidates)
    for turn, made in enumerate((copy.copy, copy.deepcopy, _pickled)):
        if name not in every_kind(turn):
            continue
        other = made(ranker)
        assert np.array_equal(other.predict(data.candidates), found)
        assert np.array_equal(other.fit(data).predict(data.candidates), found)
        assert np.array_equal(made(RANKERS[name]()).fit(data).predict(data.candidates), found)
        assert np.array_equal(ranker.predict(data.candidates), found)


def _pickled(ranker: Any) -> Any:
    return pickle.loads(pickle.dumps(ranker))


@pytest.mark.parametrize("name", ["ATVT", "ATVT, running", "ATVT, kernel", "LambdaMART"])
def test_regressions_of_trees_can_be_pickled(name: str) -> None:
    ranker = RANKERS[name]().fit(world())
    for made in (copy.deepcopy, _pickled):
        assert np.array_equal(made(ranker).predict(world().candidates), ranker.predict(world().candidates))


def test_json_has_no_numbers_that_are_not_finite() -> None:
    content: Json = {"a": [math.nan, 1.5, math.inf], "b": {"c": -math.inf, "d": "NaN"}, "e": None, "f": True}
    assert json.loads(json_text(content), parse_constant=pytest.fail) == {
        "a": [None, 1.5, None],
        "b": {"c": None, "d": "NaN"},
        "e": None,
        "f": True,
    }
    assert json_text({"a": 1.5}) == json.dumps({"a": 1.5}, indent=1) + "\n"
