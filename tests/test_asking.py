"""What `predict` and `answer` may be asked about, and what `fit` says to those who call it as other libraries do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from querywise.data.frames import from_arrays, from_frame
from querywise.data.judged import Judged
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, NotFittedError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.rankers.blend import Blend
from querywise.rankers.knn import KnnOffline2, KnnOnline
from querywise.rankers.single import OneFeature
from tests.support.rankers import RANKERS

BUILDS: dict[str, Callable[[], Any]] = {
    "RankSVM": RankSVM,
    "LambdaMART": lambda: LambdaMART(5),
    "KnnOnline": lambda: KnnOnline(RankSVM(), k=3),
    "KnnOffline2": lambda: KnnOffline2(RankSVM(), k=3),
    "Blend": lambda: Blend([RankSVM(), OneFeature(0)]),
}
NAMES = ("bm25", "age", "clicks")


@pytest.fixture(scope="module")
def data() -> Judged:
    return make_judged(12, 6, 3, seed=1)


@pytest.fixture(scope="module")
def frame(data: Judged) -> pd.DataFrame:
    """The documents as a table, its rows shuffled over all queries."""
    candidates = data.candidates
    table = pd.DataFrame(candidates.features, columns=list(NAMES))
    table["qid"] = [candidates.query_ids[query] for query in candidates.query_of_row]
    table["label"] = data.labels
    return table.sample(frac=1.0, random_state=3)


@pytest.fixture(scope="module", params=BUILDS)
def ranker(request: pytest.FixtureRequest, frame: pd.DataFrame) -> Any:
    return BUILDS[request.param]().fit(from_frame(frame))


KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda table: table,
    "polars": lambda table: pl.from_dict({name: table[name].to_numpy() for name in table.columns}),
    "Arrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_scored_row_by_row(ranker: Any, frame: pd.DataFrame, kind: str) -> None:
    judged = from_frame(frame)
    expected = judged.candidates.in_source_order(ranker.predict(judged.candidates))
    assert np.array_equal(ranker.predict(KINDS[kind](frame)), expected)
    assert np.array_equal(ranker.predict(KINDS[kind](frame.drop(columns="label"))), expected)
    assert np.array_equal(ranker.predict(KINDS[kind](frame[["label", *NAMES[::-1], "qid"]].assign(more=1.0))), expected)


def test_each_row_has_the_score_of_its_own_document(frame: pd.DataFrame) -> None:
    assert OneFeature("age").fit(from_frame(frame)).predict(frame).tolist() == frame["age"].tolist()


def test_labels_of_any_kind_in_a_table_do_not_matter(ranker: Any, frame: pd.DataFrame) -> None:
    expected = ranker.predict(frame)
    for labels in (np.nan, -1, 0.5, "unknown"):
        assert np.array_equal(ranker.predict(frame.assign(label=labels)), expected)


def test_a_table_for_a_ranker_without_names_is_read_as_from_frame_reads_it(data: Judged, frame: pd.DataFrame) -> None:
    ranker = RankSVM().fit(data)
    assert ranker.feature_names_ is None
    judged = from_frame(frame)
    assert np.array_equal(ranker.predict(frame), judged.candidates.in_source_order(ranker.predict(judged.candidates)))


def test_the_answer_to_a_table_is_that_to_its_documents(ranker: Any, frame: pd.DataFrame) -> None:
    candidates = from_frame(frame).candidates
    answer = ranker.answer(frame)
    assert answer.seen.query_ids == candidates.query_ids
    assert np.array_equal(answer.scores(), ranker.answer(candidates).scores())


def test_what_a_table_lacks_is_said(ranker: Any, frame: pd.DataFrame) -> None:
    with pytest.raises(
        DataError, match=r"The table has no column 'qid'\. It has: bm25, age, clicks, label\. .*from_frame\(table, qid="
    ):
        ranker.predict(frame.drop(columns="qid"))
    with pytest.raises(DataError, match="The table has no column 'age'"):
        ranker.predict(frame.drop(columns="age"))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (np.zeros((4, 3)), r"a numpy array of shape \(4, 3\)\. Group its rows by query first: from_arrays\(X, qid=…\)"),
        ([[1.0, 2.0, 3.0]], r"found a list\. Group its rows by query first: from_arrays\(X, qid=…\)\.candidates"),
        (pl.LazyFrame({"qid": [1]}), r"found a polars LazyFrame\. Call its collect\(\) first"),
        (None, r"found a NoneType\."),
        ("test.txt", r"found a str\."),
    ],
)
def test_anything_else_is_refused_with_what_to_do(ranker: Any, asked: Any, words: str) -> None:
    for method in (ranker.predict, ranker.answer):
        with pytest.raises(DataError, match=r"predict takes Candidates, a Judged set or a table; found .*") as error:
            method(asked)
        assert error.match(words)


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_one_that_is_not_fitted_says_so_first(build: Callable[[], Any], frame: pd.DataFrame, data: Judged) -> None:
    for asked in (frame, data, data.candidates, np.zeros((2, 3))):
        with pytest.raises(NotFittedError):
            build().predict(asked)


@pytest.mark.parametrize("build", RANKERS.values(), ids=RANKERS)
def test_fit_says_what_it_takes(build: Callable[[], Any], data: Judged, frame: pd.DataFrame) -> None:
    X, y = data.candidates.features, data.labels
    name = type(build()).__name__
    tail = r"For scikit-learn's fit\(X, y, qid=…\) see querywise\.sklearn\.Ranker\."
    matrix = (
        rf"{name}\.fit takes a Judged set; found a numpy array of shape \(72, 3\), a numpy array of shape \(72,\)\. "
    )
    with pytest.raises(DataError, match=matrix + rf"from_arrays\(X, y, qid=…\), or with group=…, makes one\. {tail}"):
        build().fit(X, y)
    with pytest.raises(DataError, match="found a numpy array"):
        build().fit(X, y, group=[6] * 12)
    with pytest.raises(DataError, match=r"found a pandas DataFrame of shape \(72, 5\)\. from_frame\(table\) makes one"):
        build().fit(frame)
    with pytest.raises(DataError, match=r"found a querywise Candidates\. from_arrays"):
        build().fit(data.candidates)
    with pytest.raises(DataError, match="found nothing"):
        build().fit(X=X, y=y)
    for valid, found in ((frame, "a pandas DataFrame"), (data.candidates, "a querywise Candidates"), (X, "a numpy")):
        with pytest.raises(
            DataError, match=rf"{name}\.fit\(…, valid=…\) takes a Judged set; found {found}.* makes one"
        ):
            build().fit(data, valid=valid)


def test_arrays_are_grouped_as_the_message_says(data: Judged) -> None:
    ranker, candidates = RankSVM().fit(data), data.candidates
    qid = [candidates.query_ids[query] for query in candidates.query_of_row]
    scores = ranker.predict(from_arrays(candidates.features, qid=qid).candidates)
    assert np.array_equal(scores, ranker.predict(data))
