"""Scores of data whose rows were brought together by query: which document each belongs to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import querywise as qw
from querywise.data.judged import Judged
from querywise.errors import DataError
from querywise.measures.score_files import read_scores
from querywise.sklearn import Ranker
from tests.commands import output, run

NAMES = ["bm25", "age", "clicks"]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """The rows of all queries, mixed."""
    data = qw.make_judged(15, 6, 3, noise=0.3, seed=2)
    frame = pd.DataFrame(data.candidates.features, columns=NAMES)
    frame["qid"] = np.repeat(data.query_ids, data.candidates.sizes)
    frame["label"] = data.labels
    return frame.sample(frac=1.0, random_state=1)


@pytest.fixture(scope="module")
def data(table: pd.DataFrame) -> Judged:
    return qw.from_frame(table)


@pytest.fixture(scope="module")
def ranker(data: Judged) -> qw.RankSVM:
    return qw.RankSVM().fit(data)


def test_scores_without_an_order_are_refused_with_what_to_do(
    table: pd.DataFrame, data: Judged, ranker: qw.RankSVM
) -> None:
    for scores in (ranker.predict(table), ranker.predict(data)):
        with pytest.raises(DataError, match=r"brought together by query.*the ranker itself.*'rows'.*'grouped'"):
            qw.evaluate(scores, data)


def test_both_orders_give_what_the_ranker_itself_gives(table: pd.DataFrame, data: Judged, ranker: qw.RankSVM) -> None:
    expected = qw.evaluate(ranker, data).values.tolist()
    assert qw.evaluate(ranker.predict(table), data, order="rows").values.tolist() == expected
    assert qw.evaluate(ranker.predict(data), data, order="grouped").values.tolist() == expected
    assert qw.evaluate(ranker.predict(table), data, order="grouped").values.tolist() != expected


def test_a_part_of_the_queries_has_the_order_of_the_input_too(data: Judged, ranker: qw.RankSVM) -> None:
    part = data.select([7, 2, 11])
    scores = ranker.predict(part)
    expected = qw.evaluate(ranker, part).values.tolist()
    assert qw.evaluate(part.candidates.in_source_order(scores), part, order="rows").values.tolist() == expected
    one = data.select([4])  # the rows of one query have kept their order
    assert qw.evaluate(ranker.predict(one), one).values.tolist() == qw.evaluate(ranker, one).values.tolist()


def test_data_that_was_in_order_needs_no_word_and_takes_either(table: pd.DataFrame, ranker: qw.RankSVM) -> None:
    together = qw.from_frame(table.sort_values("qid", kind="stable"))
    scores, expected = ranker.predict(together), qw.evaluate(ranker, together).values.tolist()
    assert qw.evaluate(scores, together).values.tolist() == expected
    assert qw.evaluate(scores, together, order="rows").values.tolist() == expected
    assert qw.evaluate(scores, together, order="grouped").values.tolist() == expected


def test_a_wrong_score_is_named_by_its_own_document(data: Judged, table: pd.DataFrame) -> None:
    scores = np.zeros(len(table))
    scores[3] = np.nan
    assert data.candidates.source_rows is not None
    place = data.candidates.source_rows.tolist().index(3) + 1
    with pytest.raises(DataError, match=rf"document {place} is nan"):
        qw.evaluate(scores, data, order="rows")
    with pytest.raises(DataError, match="There are 90 documents but 2 scores"):
        qw.evaluate([1.0, 2.0], data)


def test_unknown_orders_and_an_order_of_a_ranker_are_refused(data: Judged, ranker: qw.RankSVM) -> None:
    with pytest.raises(DataError, match="order='input': expected 'rows'"):
        qw.evaluate(ranker.predict(data), data, order="input")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="order='rows' is for scores that are given as numbers"):
        qw.evaluate(ranker, data, order="rows")


def test_what_asks_rankers_itself_knows_the_order(table: pd.DataFrame, data: Judged, ranker: qw.RankSVM) -> None:
    tuned = qw.tune(qw.RankSVM, {"l2": [1.0]}, train=data, valid=data)
    assert tuned.tried[0].value == qw.evaluate(tuned.ranker, data).mean()["map"]
    assert len(qw.feature_importance(ranker, data, how="permutation").values) == 3
    X, y, qid = table[NAMES], table["label"], table["qid"]
    own = Ranker(qw.RankSVM()).fit(X, y, qid=qid)
    assert own.score(X, y, qid=qid) == pytest.approx(qw.evaluate(ranker, data).mean()["ndcg@10"])
    compared = qw.compare({"itself": ranker, "scores": lambda X: ranker.predict(data)}, test=data)
    assert compared.evaluations["itself"].mean() == compared.evaluations["scores"].mean()
    with pytest.raises(DataError, match=r"scores in the order of test\.candidates are compared as one"):
        qw.compare({"scores": ranker.predict(data)}, test=data)  # type: ignore[dict-item]


def test_files_of_one_score_per_line_are_in_the_order_of_the_log(
    table: pd.DataFrame, data: Judged, tmp_path: Path
) -> None:
    log, model, scores = tmp_path / "log.parquet", tmp_path / "model", tmp_path / "scores.txt"
    table.to_parquet(log, index=False)
    output(run(None, "fit", log, "--method", "ranksvm", "--set", "l2=1", "--out", model))
    output(run(None, "rank", model, log, "--out", scores))
    loaded = qw.load(model)
    assert np.array_equal(np.loadtxt(scores), loaded.predict(table))
    expected = qw.evaluate(loaded, data, measures="map")
    found = json.loads(output(run(None, "evaluate", log, scores, "--measures", "map", "--json")))
    assert json.dumps(expected.mean()["map"]) in json.dumps(found)
    words = ("compare", log, "--methods", "none", "--scores", f"ours={scores}", "--measures", "map", "--json")
    ours = json.loads(output(run(None, *words)))["methods"]["ours"]
    assert ours["mean"]["map"] == pytest.approx(expected.mean()["map"])
    assert np.array_equal(read_scores(scores, data.candidates, order="rows"), loaded.predict(data.candidates))
    with pytest.raises(DataError, match="brought together by query"):
        read_scores(scores, data.candidates)
