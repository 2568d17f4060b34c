"""querywise.sklearn.Ranker: what scikit-learn asks of an estimator, and its tools around it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, GroupKFold, PredefinedSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from querywise import load, save
from querywise.data.frames import from_arrays
from querywise.data.judged import Judged
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.tuning import cross_validated, tune
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.rankers.blend import Blend
from querywise.rankers.knn import KnnOnline
from querywise.rankers.single import OneFeature, Single
from querywise.rankers.wrappers import MissingValues
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.parameters import unfitted
from querywise.sklearn import Ranker

# scikit-learn's checks know rows, not queries: they run on all rows as one query. What fails, and why:
_WHOLE = "pairs and lists of documents have no place for weights of single documents, which the check gives"
EXPECTED = {
    "check_sample_weights_not_overwritten": _WHOLE,
    "check_sample_weight_equivalence_on_dense_data": _WHOLE,
    "check_sample_weight_equivalence_on_sparse_data": _WHOLE,
}
_BY_LIST = "a blend brings scores to one scale within the query, so they depend on the query's other documents"


class Rows(NamedTuple):
    """Rows as scikit-learn's users have them, those of a query anywhere."""

    X: Floats
    y: Ints
    qid: Ints


@pytest.fixture(scope="module")
def rows() -> Rows:
    made = make_judged(40, 8, 4, kinds=2, noise=0.5, seed=5)
    turn = np.random.default_rng(1).permutation(len(made.labels))
    return Rows(made.candidates.features[turn], made.labels[turn], made.candidates.query_of_row[turn] + 100)


@pytest.fixture(scope="module")
def data(rows: Rows) -> Judged:
    return from_arrays(rows.X, rows.y, qid=rows.qid)


@pytest.fixture
def routed() -> Iterator[None]:
    """As users switch it on, for one test."""
    before = sklearn.get_config()["enable_metadata_routing"]
    sklearn.set_config(enable_metadata_routing=True)
    yield
    sklearn.set_config(enable_metadata_routing=before)


@pytest.mark.parametrize(
    ("ranker", "expected"),
    [
        (RankSVM(), EXPECTED),
        pytest.param(LambdaMART(3), {}, marks=pytest.mark.slow),
        pytest.param(KnnOnline(RankSVM(), k=1.0), EXPECTED, marks=pytest.mark.slow),
        pytest.param(
            Blend([RankSVM(), OneFeature(0)]),
            {**EXPECTED, "check_methods_subset_invariance": _BY_LIST},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["RankSVM", "LambdaMART", "KnnOnline", "Blend"],
)
def test_scikit_learns_own_checks_pass_but_for_those_listed(ranker: Any, expected: dict[str, str]) -> None:
    results = check_estimator(
        Ranker(ranker, without_qid="one query"), expected_failed_checks=expected, on_skip=None, on_fail="raise"
    )
    assert len(results) > 40
    assert {each["check_name"] for each in results if each["status"] == "xfail"} == set(expected)
    assert {each["status"] for each in results} <= {"passed", "xfail", "skipped"}


def test_it_fits_and_scores_as_the_ranker_inside(rows: Rows, data: Judged) -> None:
    ours = KnnOnline(RankSVM(l2=0.3), k=7).fit(data)
    theirs = Ranker(KnnOnline(RankSVM(l2=0.3), k=7), measure="ndcg@5").fit(rows.X, rows.y, qid=rows.qid)
    scores = ours.predict(data.candidates)
    assert np.array_equal(theirs.predict(rows.X, qid=rows.qid), data.candidates.in_source_order(scores))
    expected = evaluate(scores, data, measures=["ndcg@5"], order="grouped").mean()["ndcg@5"]
    assert theirs.score(rows.X, rows.y, qid=rows.qid) == expected


def test_scores_are_in_the_order_of_the_rows(rows: Rows) -> None:
    theirs = Ranker(OneFeature(2)).fit(rows.X, rows.y, qid=rows.qid)
    assert np.array_equal(theirs.predict(rows.X, qid=rows.qid), rows.X[:, 2])
    turn = np.random.default_rng(7).permutation(len(rows.y))
    assert np.array_equal(theirs.predict(rows.X[turn], qid=rows.qid[turn]), rows.X[turn, 2])


def test_the_ranker_given_is_not_changed(rows: Rows) -> None:
    given = RankSVM()
    fitted = Ranker(given).fit(rows.X, rows.y, qid=rows.qid)
    assert not hasattr(given, "weights_")
    assert repr(fitted) == "Ranker(ranker=RankSVM())"
    assert "object at 0x" not in fitted._repr_html_()
    assert "RankSVM" in fitted._repr_html_()


@pytest.mark.slow
def test_without_a_ranker_it_is_the_recommended_one(rows: Rows) -> None:
    assert type(Ranker().fit(rows.X, rows.y, qid=rows.qid).ranker_) is Blend


FORMS: dict[str, Callable[[Any], Any]] = {
    "list": lambda X: X.tolist(),
    "sparse array": csr_array,
    "sparse matrix": csr_matrix,
    "pandas": lambda X: pd.DataFrame(X, columns=["a", "b", "c", "d"]),
    "polars": lambda X: pl.DataFrame(X, schema=["a", "b", "c", "d"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_rows_gives_the_same_scores(rows: Rows, form: str) -> None:
    expected = Ranker(RankSVM()).fit(rows.X, rows.y, qid=rows.qid).predict(rows.X, qid=rows.qid)
    given: Any = FORMS[form](rows.X)
    fitted: Any = Ranker(RankSVM()).fit(given, pd.Series(rows.y), qid=pl.Series(rows.qid))
    assert np.array_equal(fitted.predict(given, qid=pd.Series(rows.qid)), expected)
    assert fitted.n_features_in_ == 4
    named = form in ("pandas", "polars")
    assert list(getattr(fitted, "feature_names_in_", [])) == (list("abcd") if named else [])
    assert fitted.ranker_.feature_names_ == (tuple("abcd") if named else None)


def test_columns_in_another_order_are_refused(rows: Rows) -> None:
    table = FORMS["pandas"](rows.X)
    fitted = Ranker(RankSVM()).fit(table, rows.y, qid=rows.qid)
    with pytest.raises(ValueError, match="must be in the same order"):
        fitted.predict(table[list("badc")], qid=rows.qid)


# ---- the tools of scikit-learn


@pytest.mark.usefixtures("routed")
def test_a_grid_search_runs_as_written(rows: Rows) -> None:
    X, y, qid = rows
    search = GridSearchCV(
        Ranker(KnnOnline(RankSVM())), {"ranker__k": [0.1, 0.3], "ranker__learner__l2": [0.1, 1]}, cv=GroupKFold(5)
    )
    search.fit(X, y, qid=qid, groups=qid)
    assert set(search.best_params_) == {"ranker__k", "ranker__learner__l2"}
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.predict(X, qid=qid).shape == y.shape  # search.predict takes no metadata
    assert 0.5 < search.score(X, y, qid=qid) <= 1
    assert search.best_estimator_.ranker_.k == search.best_params_["ranker__k"]


GRID = {"k": [0.1, 0.4], "l2": [0.01, 1.0, 100.0]}


def knn(k: float, l2: float) -> KnnOnline:
    return KnnOnline(RankSVM(l2=l2), k)


def searched(rows: Rows, fold_of_query: Ints) -> Any:
    names = {"ranker__k": GRID["k"], "ranker__learner__l2": GRID["l2"]}
    split = PredefinedSplit(fold_of_query[rows.qid - 100])
    search = GridSearchCV(Ranker(KnnOnline(RankSVM()), measure="map"), names, cv=split, refit=False)
    return search.fit(rows.X, rows.y, qid=rows.qid)


@pytest.mark.usefixtures("routed")
def test_a_grid_search_finds_what_tune_finds_on_the_same_split(rows: Rows, data: Judged) -> None:
    fold_of_query = np.where(np.arange(40) % 4 == 0, 0, -1)  # −1: always trained on
    place = fold_of_query[np.array([int(query_id) for query_id in data.query_ids]) - 100]
    train, valid = (data.select(np.flatnonzero(place == fold)) for fold in (-1, 0))
    search, tuned = searched(rows, fold_of_query), tune(knn, GRID, train=train, valid=valid)
    assert search.cv_results_["mean_test_score"] == pytest.approx([trial.value for trial in tuned.tried], abs=1e-12)
    best = {"ranker__k": tuned.parameters["k"], "ranker__learner__l2": tuned.parameters["l2"]}
    assert search.best_params_ == best
    assert len({trial.value for trial in tuned.tried}) > 3, "there is something to choose"


@pytest.mark.usefixtures("routed")
def test_a_grid_search_finds_what_cross_validation_finds_on_the_same_folds(rows: Rows, data: Judged) -> None:
    tried = cross_validated(knn, GRID, data=data, folds=4, seed=3)
    fold_of_query = np.empty(40, np.int64)
    number = np.array([int(query_id) for query_id in data.query_ids]) - 100
    fold_of_query[number] = np.random.default_rng(3).permutation(40) % 4
    search = searched(rows, fold_of_query)
    assert search.cv_results_["mean_test_score"] == pytest.approx([trial.value for trial in tried], abs=1e-12)
    best = max(tried, key=lambda trial: trial.value).parameters
    assert search.best_params_ == {"ranker__k": best["k"], "ranker__learner__l2": best["l2"]}


@pytest.mark.slow
@pytest.mark.usefixtures("routed")
def test_a_grid_search_runs_in_two_processes(rows: Rows) -> None:
    searches = [
        GridSearchCV(Ranker(LambdaMART(10, threads=1)), {"ranker__leaves": [3, 7]}, cv=GroupKFold(2), n_jobs=jobs).fit(
            rows.X, rows.y, qid=rows.qid, groups=rows.qid
        )
        for jobs in (1, 2)
    ]
    one, two = (each.cv_results_["mean_test_score"] for each in searches)
    assert np.array_equal(one, two)


@pytest.mark.usefixtures("routed")
def test_cross_validation_and_pipelines_pass_queries_on(rows: Rows, data: Judged) -> None:
    X, y, qid = rows
    params = {"qid": qid, "groups": qid}
    plain = cross_val_score(Ranker(RankSVM()), X, y, cv=GroupKFold(4), params=params)
    assert len(plain) == 4
    assert (plain > 0.4).all()
    pipeline = make_pipeline(StandardScaler(), Ranker(RankSVM()))
    # RankSVM scales its features by itself: scaling them before changes nothing.
    assert cross_val_score(pipeline, X, y, cv=GroupKFold(4), params=params) == pytest.approx(plain)
    pipeline.fit(X, y, qid=qid)
    assert pipeline.score(X, y, qid=qid) == pytest.approx(Ranker(RankSVM()).fit(X, y, qid=qid).score(X, y, qid=qid))
    assert pipeline.predict(X, qid=qid).shape == y.shape
    assert "ranker=RankSVM()" in repr(clone(pipeline))


def test_permutation_importance_is_given_the_queries_by_its_scorer(rows: Rows) -> None:
    fitted: Any = Ranker(OneFeature()).fit(rows.X, rows.y, qid=rows.qid)
    best = fitted.ranker_.column_
    found = permutation_importance(
        fitted,
        rows.X,
        rows.y,
        scoring=lambda ranker, X, y: ranker.score(X, y, qid=rows.qid),  # rows stay where they are
        n_repeats=3,
        random_state=0,
    )
    assert found.importances_mean[best] > 0.01
    assert not np.delete(found.importances_mean, best).any()


def test_copies_and_pickles_are_the_same(rows: Rows, tmp_path: Path) -> None:
    X, y, qid = rows
    fitted = Ranker(LambdaMART(5), validation=0.25, seed=3).fit(X, y, qid=qid)
    joblib.dump(fitted, tmp_path / "ranker.joblib")
    for again in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "ranker.joblib")):
        assert np.array_equal(again.predict(X, qid=qid), fitted.predict(X, qid=qid))
    assert repr(clone(fitted)) == repr(fitted)
    assert np.array_equal(clone(fitted).fit(X, y, qid=qid).predict(X, qid=qid), fitted.predict(X, qid=qid))
    save(fitted.ranker_, tmp_path / "model")
    found = load(tmp_path / "model").predict(from_arrays(X, qid=qid).candidates)
    assert np.array_equal(np.sort(found), np.sort(fitted.predict(X, qid=qid)))


# ---- queries, weights, validation


def test_without_queries_it_says_what_to_do(rows: Rows) -> None:
    fitted = Ranker(RankSVM()).fit(rows.X, rows.y, qid=rows.qid)
    with pytest.raises(DataError, match=r"Ranker\.fit needs the query of every row: fit\(X, y, qid=…\)\. .*set_config"):
        Ranker(RankSVM()).fit(rows.X, rows.y)
    with pytest.raises(DataError, match=r"predict\(X, qid=…\)"):
        fitted.predict(rows.X)
    with pytest.raises(DataError, match=r"score\(X, y, qid=…\)"):
        fitted.score(rows.X, rows.y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"measure": "nonsense"}, "Unknown measure 'nonsense'"),
        ({"validation": 0.0}, r"validation=0\.0\) must be a share of the queries between 0\.0 and 1\.0, or None"),
        ({"validation": 1}, "validation=1"),
        ({"validation": 0.001}, "leaves one side of 40 queries empty"),
    ],
)
def test_wrong_options_are_refused(rows: Rows, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        Ranker(RankSVM(), **options).fit(rows.X, rows.y, qid=rows.qid)


def test_another_way_without_queries_is_refused(rows: Rows) -> None:
    wrong: Any = "nonsense"
    with pytest.raises(DataError, match="without_qid='nonsense'"):
        Ranker(RankSVM(), without_qid=wrong).fit(rows.X, rows.y)


def test_wrong_rows_are_refused(rows: Rows) -> None:
    with pytest.raises(DataError, match="320 rows but there are 319 query ids"):
        Ranker(RankSVM()).fit(rows.X, rows.y, qid=rows.qid[1:])
    with pytest.raises(DataError, match="RankSVM is a class"):
        Ranker(RankSVM).fit(rows.X, rows.y, qid=rows.qid)  # type: ignore[arg-type]
    gaps = np.where(rows.X > 1, np.nan, rows.X)
    ours = r"X contains NaN\. Feature 1 is missing in \d+ of \d+ documents .*MissingValues\(ranker.*missing='native'"
    for X in (gaps, csr_array(gaps)):
        with pytest.raises(DataError, match=ours):
            Ranker(RankSVM()).fit(X, rows.y, qid=rows.qid)
        with pytest.raises(DataError, match=ours):
            Ranker(RankSVM()).fit(rows.X, rows.y, qid=rows.qid).predict(X, qid=rows.qid)
    with pytest.raises(DataError, match=r"X contains NaN\. Feature b is missing"):
        Ranker(RankSVM()).fit(pd.DataFrame(gaps[:, :2], columns=["b", "c"]), rows.y, qid=rows.qid)


@pytest.mark.parametrize("ranker", [RankSVM(), KnnOnline(RankSVM(), k=9), LambdaMART(5)], ids=str)
def test_weights_that_queries_have_are_those_of_queries(rows: Rows, data: Judged, ranker: Any) -> None:
    weights = rows.qid % 3 + 1.0
    by_query = np.array([int(query_id) % 3 + 1.0 for query_id in data.query_ids])
    ours = unfitted(ranker).fit(data.with_weights(by_query))
    theirs = Ranker(ranker).fit(rows.X, rows.y, qid=rows.qid, sample_weight=weights)
    expected = data.candidates.in_source_order(ours.predict(data))
    assert np.array_equal(theirs.predict(rows.X, qid=rows.qid), expected)
    plain = Ranker(ranker).fit(rows.X, rows.y, qid=rows.qid)
    assert not np.array_equal(plain.predict(rows.X, qid=rows.qid), expected)


def test_other_weights_are_those_of_documents(rows: Rows, data: Judged) -> None:
    weights = np.arange(len(rows.y)) % 5 + 1.0
    assert data.candidates.source_rows is not None
    ours = LambdaMART(5).fit(data.with_weights(documents=weights[data.candidates.source_rows]))
    theirs = Ranker(LambdaMART(5)).fit(rows.X, rows.y, qid=rows.qid, sample_weight=weights)
    expected = data.candidates.in_source_order(ours.predict(data))
    assert np.array_equal(theirs.predict(rows.X, qid=rows.qid), expected)


@pytest.mark.parametrize("every", [True, False])
def test_rows_of_weight_zero_are_left_out(rows: Rows, every: bool) -> None:
    X, y, qid = rows
    kept = qid % 3 > 0 if every else np.arange(len(y)) % 3 > 0
    zero = Ranker(RankSVM()).fit(X, y, qid=qid, sample_weight=kept * 2.0)
    without = Ranker(RankSVM()).fit(X[kept], y[kept], qid=qid[kept])
    assert zero.predict(X, qid=qid) == pytest.approx(without.predict(X, qid=qid), abs=1e-12)


def test_a_ranker_with_a_policy_takes_missing_values(rows: Rows) -> None:
    X = np.where(rows.X > 1.5, np.nan, rows.X)
    fitted = Ranker(MissingValues(RankSVM())).fit(X, rows.y, qid=rows.qid, sample_weight=(rows.qid % 2).astype(float))
    assert np.isfinite(fitted.predict(X, qid=rows.qid)).all()
    table = pd.DataFrame(X, columns=list("abcd")).assign(qid=rows.qid)
    assert np.array_equal(fitted.ranker_.predict(table), fitted.predict(X, qid=rows.qid))


def test_real_valued_labels_are_gains(rows: Rows) -> None:
    X, y, qid = rows
    with pytest.raises(DataError, match="label"):
        Ranker(RankSVM()).fit(X, y * 0.3, qid=qid)
    fitted = Ranker(RankSVM(), gains=True).fit(X, y * 0.3, qid=qid, sample_weight=(qid % 2).astype(float))
    assert 0 < fitted.score(X, y * 0.3, qid=qid) <= 1


def test_a_weighted_score_is_the_weighted_mean(rows: Rows, data: Judged) -> None:
    X, y, qid = rows
    fitted = Ranker(RankSVM(), measure="map").fit(X, y, qid=qid)
    by_query = np.array([int(query_id) % 3 for query_id in data.query_ids])
    values = evaluate(fitted.ranker_, data, measures="map").values[:, 0]
    assert fitted.score(X, y, qid=qid, sample_weight=qid % 3) == pytest.approx(np.average(values, weights=by_query))


@pytest.mark.usefixtures("routed")
def test_a_search_passes_weights_to_fit_and_asks_whether_scores_have_them_too(rows: Rows) -> None:
    X, y, qid = rows
    given = {"qid": qid, "groups": qid, "sample_weight": qid % 3}

    def search(ranker: Any) -> Any:
        return GridSearchCV(ranker, {"ranker__l2": [0.1, 1.0]}, cv=GroupKFold(4)).fit(X, y, **given)

    with pytest.raises(UnsetMetadataPassedError, match="set_score_request"):
        search(Ranker(RankSVM()))
    plain, weighted = (search(Ranker(RankSVM()).set_score_request(sample_weight=asked)) for asked in (False, True))
    assert not np.array_equal(plain.cv_results_["mean_test_score"], weighted.cv_results_["mean_test_score"])


def test_equal_weights_are_none_for_every_ranker(rows: Rows) -> None:
    plain: Any = Ranker(Single(RankSVM())).fit(rows.X, rows.y, qid=rows.qid)
    equal: Any = Ranker(Single(RankSVM())).fit(rows.X, rows.y, qid=rows.qid, sample_weight=np.full(len(rows.y), 3.0))
    assert np.array_equal(equal.ranker_.model_.weights_, plain.ranker_.model_.weights_)


def test_weights_that_mean_nothing_are_refused(rows: Rows) -> None:
    X, y, qid = rows
    with pytest.raises(DataError, match="does not support"):
        Ranker(RankSVM()).fit(X, y, qid=qid, sample_weight=np.arange(len(y)) + 1.0)
    with pytest.raises(DataError, match=r"is -1; weights are finite numbers from 0 up"):
        Ranker(RankSVM()).fit(X, y, qid=qid, sample_weight=np.where(qid == qid[0], -1.0, 1.0))
    with pytest.raises(DataError, match="are zero"):
        Ranker(RankSVM()).fit(X, y, qid=qid, sample_weight=np.zeros(len(y)))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        Ranker(RankSVM()).fit(X, y, qid=qid, sample_weight=np.ones(3))
    fitted = Ranker(RankSVM()).fit(X, y, qid=qid)
    with pytest.raises(DataError, match=r"in rows of query '\d+'\. A query is measured as a whole"):
        fitted.score(X, y, qid=qid, sample_weight=np.arange(len(y)) + 1.0)


def test_a_share_of_the_queries_decides_when_to_stop(rows: Rows) -> None:
    X, y, qid = rows
    learner = LambdaMART(60, patience=3, min_documents=3, learning_rate=0.3)
    stopped = Ranker(learner, validation=0.3).fit(X, y, qid=qid)
    weighed = Ranker(learner, validation=0.3).fit(X, y, qid=qid, sample_weight=(qid % 2 + 1))
    assert not np.array_equal(stopped.predict(X, qid=qid), Ranker(learner).fit(X, y, qid=qid).predict(X, qid=qid))
    assert not np.array_equal(stopped.predict(X, qid=qid), weighed.predict(X, qid=qid))
