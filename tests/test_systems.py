"""Systems that are not ours, and rankers as objects, in `evaluate` and `compare`."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import querywise as qw
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.evaluation.compare import Compared
from querywise.evaluation.differences import Evaluated
from querywise.evaluation.findings import findings
from querywise.evaluation.significance import holm
from querywise.evaluation.trained import Fit
from querywise.report.terminal import comparison_table
from querywise.runtime.arrays import Floats

DATA = qw.make_judged(40, 8, 4, noise=0.3)
FOLD = qw.make_folds(DATA)[0]
TRAIN, VALID, TEST = FOLD
X, Y, GROUP = TRAIN.candidates.features, TRAIN.labels, TRAIN.candidates.sizes


def library(name: str) -> Any:
    """A library of the extra `peers`; a machine that builds the project must have it."""
    return __import__(name) if os.environ.get("CI") else pytest.importorskip(name)


def lightgbm_ranker() -> Any:
    return library("lightgbm").LGBMRanker(n_estimators=5, min_child_samples=2, verbosity=-1, n_jobs=1)


def xgboost_ranker() -> Any:
    return library("xgboost").XGBRanker(n_estimators=5, n_jobs=1)


def catboost_ranker() -> Any:
    return library("catboost").CatBoostRanker(iterations=5, thread_count=1)


def names_and_means(compared: Compared) -> dict[str, float]:
    return {name: compared.evaluations[name].mean()["map"] for name in compared.names}


# One system


def test_a_ranker_is_evaluated_as_its_scores_are() -> None:
    ranker = qw.RankSVM().fit(TRAIN)
    found, expected = qw.evaluate(ranker, TEST), qw.evaluate(ranker.predict(TEST.candidates), TEST)
    assert found.values.tolist() == expected.values.tolist()
    assert found.query_ids == expected.query_ids


def test_any_object_that_predicts_is_evaluated() -> None:
    class Backwards:
        def predict(self, candidates: Candidates) -> Floats:
            return -candidates.features[:, 0]

    expected = qw.evaluate(-TEST.candidates.features[:, 0], TEST)
    assert qw.evaluate(Backwards(), TEST).values.tolist() == expected.values.tolist()


class OfFeatures:
    """An object of nobody's library, whose argument is not called X."""

    def predict(self, features: Floats) -> Floats:
        return features[:, 0]


def test_an_object_that_takes_features_by_another_name_is_told_to_come_as_a_function() -> None:
    model = OfFeatures()
    said = (
        r"OfFeatures could not predict from Candidates. TypeError: .* If it takes an array .*: lambda X: model.predict"
    )
    with pytest.raises(DataError, match=said):
        qw.evaluate(model, TEST)
    with pytest.raises(DataError, match=said):
        qw.compare([model], test=TEST)
    expected = qw.evaluate(TEST.candidates.features[:, 0], TEST).values
    assert np.array_equal(qw.evaluate(model.predict, TEST).values, expected)


def test_whether_an_object_has_learned_is_what_it_says_in_any_form() -> None:
    class Says(OfX):
        is_fitted = True

    class SaysNot(OfX):
        is_fitted = False

    class Slots:
        __slots__ = ("weights_",)

        def fit(self, X: Floats, y: Floats) -> Slots:
            self.weights_ = X[0]
            return self

        def predict(self, X: Floats) -> Floats:
            return X[:, 0]

    expected = qw.evaluate(TEST.candidates.features[:, 0], TEST).values
    features = TEST.candidates.features
    for fitted in (Says(), Slots().fit(features, features[:, 0])):
        assert np.array_equal(qw.evaluate(fitted, TEST).values, expected)
    for learned_nothing in (SaysNot(), Slots()):
        with pytest.raises(NotFittedError):
            qw.evaluate(learned_nothing, TEST)


class OfX:
    def fit(self, X: Floats, y: Floats) -> OfX:
        return self

    def predict(self, X: Floats) -> Floats:
        return X[:, 0]


def test_a_ranker_that_is_not_fitted_is_refused() -> None:
    with pytest.raises(NotFittedError, match="This RankSVM has not been fitted yet"):
        qw.evaluate(qw.RankSVM(), TEST)
    with pytest.raises(NotFittedError, match="This Ridge has not been fitted yet"):
        qw.evaluate(Ridge(), TEST)
    with pytest.raises(DataError, match=r"RankSVM is a class; expected an object of it: RankSVM\(…\)\."):
        qw.evaluate(qw.RankSVM, TEST)


def test_what_is_evaluated_on_must_have_labels() -> None:
    nothing: Any = TEST.candidates
    with pytest.raises(DataError, match="Expected a Judged set, which has labels, to evaluate on; found a Candidates"):
        qw.evaluate(lambda X: X[:, 0], nothing)


def test_what_neither_is_nor_gives_scores_is_refused() -> None:
    found: Any = qw.tune(qw.RankSVM, {"l2": [1.0]}, train=TRAIN, valid=VALID)
    with pytest.raises(
        DataError, match="Scores are numbers, one per document, or come from what predicts them; found a Tu"
    ):
        qw.evaluate(found, TEST)
    assert len(qw.evaluate(found.ranker, TEST)) == len(TEST)


# Functions of features


def test_a_function_of_features_gets_one_row_per_document() -> None:
    expected = qw.evaluate(TEST.candidates.features[:, 1], TEST)
    assert qw.evaluate(lambda X: X[:, 1], TEST).values.tolist() == expected.values.tolist()
    assert qw.evaluate(lambda X, column=1: X[:, column], TEST).values.tolist() == expected.values.tolist()


def test_a_function_gets_groups_under_the_names_it_has_for_them() -> None:
    seen: dict[str, Any] = {}

    def by_sizes(X: Floats, group: Any) -> Floats:
        seen["group"] = group
        starts = np.cumsum(group) - group
        centres: Floats = np.repeat(np.add.reduceat(X[:, 0], starts) / group, group)
        return X[:, 0] - centres

    def by_query(X: Floats, *, qid: Any) -> Floats:
        seen["qid"] = qid
        return X[:, 0]

    whole = qw.evaluate(TEST.candidates.features[:, 0], TEST).values.tolist()
    assert qw.evaluate(by_sizes, TEST).values.tolist() == whole
    assert qw.evaluate(by_query, TEST).values.tolist() == whole
    assert seen["group"].tolist() == TEST.candidates.sizes.tolist()
    assert seen["qid"].tolist() == [TEST.query_ids[query] for query in TEST.candidates.query_of_row]


def wrong_length(X: Floats) -> Floats:
    return X[1:, 0]


def two_columns(X: Floats) -> Floats:
    return X[:, :2]


def not_numbers(X: Floats) -> Floats:
    return np.where(np.arange(len(X)) == 3, np.nan, X[:, 0])


def fails(X: Floats) -> Floats:
    raise KeyError("title")


def words(X: Floats) -> list[str]:
    return ["high"] * len(X)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (wrong_length, r"^wrong_length: There are 64 documents but 63 scores; one score per document is needed\.$"),
        (two_columns, r"^two_columns: There are 64 documents but scores of shape \(64, 2\)"),
        (not_numbers, r"^not_numbers: The score of document .* is nan\.$"),
        (fails, r"^fails could not predict\. KeyError: 'title'$"),
        (
            words,
            r"^words: Scores are numbers, one per document.* found a list \(could not convert string to float: 'high'",
        ),
    ],
)
def test_wrong_scores_are_refused_by_the_name_of_their_system(function: Callable[[Floats], Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        qw.evaluate(function, TEST)
    with pytest.raises(DataError, match=said):
        qw.compare([qw.RankSVM(), function], FOLD)


def test_a_function_of_something_else_is_refused() -> None:
    with pytest.raises(DataError, match="function: expected a function of one argument, the features, a row per docu"):
        qw.evaluate(lambda X, weights: X @ weights, TEST)


# Models of other libraries, fitted


def test_lightgbms_models_predict_as_they_do_themselves() -> None:
    model = lightgbm_ranker().fit(X, Y, group=GROUP)
    expected = qw.evaluate(model.booster_.predict(TEST.candidates.features), TEST).values.tolist()
    assert qw.evaluate(model, TEST).values.tolist() == expected
    assert qw.evaluate(model.booster_, TEST).values.tolist() == expected


def test_xgboosts_models_predict_as_they_do_themselves() -> None:
    xgboost = library("xgboost")
    model = xgboost_ranker().fit(X, Y, qid=TRAIN.candidates.query_of_row)
    expected = qw.evaluate(model.predict(TEST.candidates.features), TEST).values.tolist()
    assert qw.evaluate(model, TEST).values.tolist() == expected
    assert qw.evaluate(model.get_booster(), TEST).values.tolist() == expected
    named = xgboost.train({"nthread": 1}, xgboost.DMatrix(X, Y, feature_names=["a", "b", "c", "d"]), 3)
    matrix = xgboost.DMatrix(TEST.candidates.features, feature_names=["a", "b", "c", "d"])
    assert qw.evaluate(named, TEST).values.tolist() == qw.evaluate(named.predict(matrix), TEST).values.tolist()


def test_catboosts_models_predict_as_they_do_themselves() -> None:
    pool = library("catboost").Pool(X, Y, group_id=TRAIN.candidates.query_of_row)
    model = catboost_ranker().set_params(allow_writing_files=False).fit(pool, verbose=False)
    expected = qw.evaluate(model.predict(TEST.candidates.features), TEST).values.tolist()
    assert qw.evaluate(model, TEST).values.tolist() == expected


def test_scikit_learns_regressors_predict_as_they_do_themselves() -> None:
    for model in (Ridge(), make_pipeline(StandardScaler(), Ridge())):
        model.fit(X, Y)
        expected = qw.evaluate(model.predict(TEST.candidates.features), TEST).values.tolist()
        assert qw.evaluate(model, TEST).values.tolist() == expected
    column = Ridge().fit(X, Y[:, None])  # gives a column of scores
    assert qw.evaluate(column, TEST).values.tolist() == qw.evaluate(Ridge().fit(X, Y), TEST).values.tolist()


def test_a_pipeline_that_goes_by_names_is_asked_about_a_table() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    model = make_pipeline(make_column_transformer((StandardScaler(), ["d", "a"])), Ridge()).fit(table, Y)
    expected = model.predict(pandas.DataFrame(TEST.candidates.features, columns=["a", "b", "c", "d"]))
    assert qw.evaluate(model, TEST).values.tolist() == qw.evaluate(expected, TEST).values.tolist()


def test_other_features_than_those_of_training_are_refused() -> None:
    models = [
        lightgbm_ranker().fit(X[:, :3], Y, group=GROUP),
        xgboost_ranker().fit(X[:, :3], Y, qid=TRAIN.candidates.query_of_row),
        Ridge().fit(X[:, :3], Y),
    ]
    for model in models:
        said = rf"^{type(model).__name__}: The model was trained on 3 features but the documents have 4\."
        with pytest.raises(DataError, match=said):
            qw.evaluate(model, TEST)


def test_columns_in_another_order_are_refused_where_both_have_names() -> None:
    pandas = pytest.importorskip("pandas")
    names, turned = ("title score", "b", "c", "d"), ("title score", "c", "b", "d")
    model = lightgbm_ranker().fit(pandas.DataFrame(X, columns=list(names)), Y, group=GROUP)

    def test_with(columns: tuple[str, ...]) -> Judged:
        queries = [TEST.query_ids[query] for query in TEST.candidates.query_of_row]
        return qw.from_arrays(TEST.candidates.features, TEST.labels, qid=queries, feature_names=columns)

    assert qw.evaluate(model, test_with(names)).values.tolist() == qw.evaluate(model, TEST).values.tolist()
    with pytest.raises(DataError, match=r"^LGBMRanker: Feature 2 is 'c' but the model was trained with 'b' there"):
        qw.evaluate(model, test_with(turned))


def test_a_classifier_is_told_to_give_its_probabilities() -> None:
    model = LogisticRegression().fit(X, Y > 0)
    with pytest.raises(DataError, match=r"LogisticRegression is a classifier.*lambda X: model\.predict_proba"):
        qw.evaluate(model, TEST)
    with pytest.raises(DataError, match="LogisticRegression is a classifier"):
        qw.compare([LogisticRegression(), qw.RankSVM()], FOLD)
    assert len(qw.evaluate(lambda X: model.predict_proba(X)[:, 1], TEST)) == len(TEST)


# Several systems


def test_a_comparison_of_objects_is_that_of_functions_that_fit_them() -> None:
    def fit(train: Judged, valid: Judged) -> qw.LambdaMART:
        return qw.LambdaMART(trees=5).fit(train, valid=valid)

    asked: dict[str, Fit] = {"trees": fit, "linear": lambda train, valid: qw.RankSVM().fit(train)}
    expected = qw.compare(asked, [FOLD], measures=["map"])
    systems: list[Any] = [qw.LambdaMART(trees=5), qw.RankSVM()]
    for found in (
        qw.compare(systems, TRAIN, VALID, TEST, measures=["map"]),
        qw.compare(systems, train=TRAIN, valid=VALID, test=TEST, measures=["map"]),
        qw.compare(systems, FOLD, measures=["map"]),
        qw.compare(systems, [FOLD], measures=["map"]),
    ):
        assert list(names_and_means(found).values()) == list(names_and_means(expected).values())
        assert found.names == ("LambdaMART", "RankSVM")
        assert found.given == ()
    assert not hasattr(systems[1], "feature_count_"), "what was given stays as it is"


def test_over_folds_every_fold_has_a_model_of_its_own() -> None:
    compared = qw.compare([qw.RankSVM(), Ridge()], qw.make_folds(DATA), measures=["map"])
    assert len(compared.judged) == len(DATA)
    assert len(compared.trained["Ridge"]) == 5


def test_plain_tuples_of_three_parts_are_taken_as_folds() -> None:
    folds = list(qw.make_folds(DATA))
    expected = names_and_means(qw.compare([qw.RankSVM()], folds, measures=["map"]))
    plain = [(fold.train, fold.valid, fold.test) for fold in folds]
    assert type(plain[0]) is tuple
    for given in (plain, tuple(plain), [folds[0], *plain[1:]]):
        assert names_and_means(qw.compare([qw.RankSVM()], given, measures=["map"])) == expected


def test_one_plain_tuple_of_three_parts_is_one_fold() -> None:
    expected = names_and_means(qw.compare([qw.RankSVM()], FOLD, measures=["map"]))
    assert names_and_means(qw.compare([qw.RankSVM()], (TRAIN, VALID, TEST), measures=["map"])) == expected
    assert names_and_means(qw.compare([qw.RankSVM()], [(TRAIN, VALID, TEST)], measures=["map"])) == expected


@pytest.mark.parametrize(
    ("folds", "said"),
    [
        ((TRAIN, VALID), r"^folds: expected the three parts \(train, valid, test\), found 2\. Give train, valid and"),
        ([FOLD, (TRAIN, TEST)], r"^folds\[1\]: expected the three parts \(train, valid, test\), found 2\. Give"),
        ([(TRAIN, VALID, TEST.candidates)], r"^folds\[0\]\.test: expected a Judged set, found a Candidates\. Give"),
        ([FOLD, "Fold2"], r"^folds\[1\]: expected a fold, \(train, valid, test\), found a str\. Give train"),
        ((TRAIN, VALID, X), r"^test: expected a Judged set, found a ndarray\. Give"),
        (X, r"^folds: found a ndarray\. Give train, valid and test, or folds: a list of \(train, valid, test\)"),
        ((fold for fold in [FOLD]), r"^folds: found a generator\. Give train, valid and test"),
        ([], r"^There is nothing to compare: no fold was given\.$"),
    ],
)
@pytest.mark.parametrize("asked", [qw.compare, qw.learning_curves])
def test_what_are_no_folds_is_refused_with_what_was_found(asked: Any, folds: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        asked([qw.RankSVM()], folds)


def test_a_fitted_system_is_used_as_it_is_and_the_table_says_so() -> None:
    ranker = qw.RankSVM(l2=100.0).fit(VALID)
    compared = qw.compare({"ours": ranker, "new": qw.RankSVM()}, TRAIN, VALID, TEST, measures=["map"])
    assert compared.given == ("ours",)
    assert "Fitted before and used as given: ours;" in repr(compared)
    assert "Fitted before and used as given: ours;" in compared._repr_html_()
    assert names_and_means(compared)["ours"] == qw.evaluate(ranker, TEST, measures=["map"]).mean()["map"]
    assert np.isnan(compared.fit_seconds("ours"))
    assert compared.predict_milliseconds("ours") > 0
    screen = Console(file=io.StringIO(), width=200)
    screen.print(comparison_table(compared))
    assert isinstance(screen.file, io.StringIO)
    assert "Fitted before and used as given: ours; whether what they learned from" in screen.file.getvalue()


def test_fitted_systems_need_a_test_part_alone() -> None:
    compared = qw.compare([qw.RankSVM().fit(TRAIN), lambda X: X[:, 0]], test=TEST)
    assert compared.names == compared.given == ("RankSVM", "function")
    with pytest.raises(DataError, match=r"^train: expected a Judged set, there is none\. Give train, valid and test"):
        qw.compare([qw.RankSVM()], test=TEST)


def test_names_are_made_of_the_objects_and_told_apart() -> None:
    systems: list[Any] = [qw.RankSVM(), qw.RankSVM().fit(TRAIN), Ridge(), Ridge(alpha=2.0), wrong_length]
    systems += [lambda X: X[:, 0], lambda X: X[:, 1], partial(column, number=2)]
    try:
        qw.compare(systems, FOLD, baseline="?")
    except DataError as error:
        names = str(error).partition("methods: ")[2].rstrip(".").split(", ")
    assert len(set(names)) == len(names) == len(systems)
    assert names[1].startswith("RankSVM")
    assert names[1].endswith(" (fitted)")
    assert names[2:] == ["Ridge()", "Ridge(alpha=2.0)", "wrong_length", "function", "function 2", "column"]


def column(X: Floats, *, number: int = 0) -> Floats:
    return X[:, number]


def test_the_baseline_is_named_or_given_as_itself() -> None:
    ranker = qw.RankSVM()
    systems: list[Any] = [Ridge(), ranker]
    assert qw.compare(systems, FOLD).baseline == "Ridge"
    assert qw.compare(systems, FOLD, baseline=ranker).baseline == "RankSVM"
    assert qw.compare(systems, FOLD, baseline="RankSVM").baseline == "RankSVM"
    with pytest.raises(DataError, match="The baseline is not among the systems compared: Ridge, RankSVM"):
        qw.compare(systems, FOLD, baseline=qw.RankSVM())


def test_tests_are_corrected_by_holm_for_the_number_of_systems() -> None:
    compared = qw.compare([qw.RankSVM(), Ridge(), lambda X: X[:, 0], lambda X: -X[:, 0]], FOLD)
    others = compared.names[1:]
    for measure in compared.measures:
        raw = [compared.against_baseline(name, measure).p for name in others]
        assert [compared.corrected()[name][measure] for name in others] == list(holm(raw))
        found = findings(compared, measure)
        assert [each.corrected for each in found.others] == list(holm(raw))
        fewer = findings(compared, measure, left_out=[others[0]])
        assert [each.corrected for each in fewer.others] == [None, *holm(raw[1:])]
    assert Evaluated(compared.evaluations).corrected("t") == compared.corrected()


def test_one_evaluation_under_two_names_is_compared_with_itself() -> None:
    once = qw.evaluate(TEST.candidates.features[:, 0], TEST, measures=["map"])
    assert Evaluated({"first": once, "again": once}).corrected("t") == {"again": {"map": 1.0}}


def test_unfitted_models_of_other_libraries_are_fitted_by_their_own_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    systems = [
        lightgbm_ranker(),
        xgboost_ranker(),
        catboost_ranker(),
        Ridge(),
        make_pipeline(StandardScaler(), Ridge()),
    ]
    compared = qw.compare([qw.RankSVM(), *systems], TRAIN, VALID, TEST, measures=["map"])
    means = names_and_means(compared)
    assert compared.given == ()
    alone = lightgbm_ranker().fit(X, Y, group=GROUP)
    assert means["LGBMRanker"] == qw.evaluate(alone, TEST, measures=["map"]).mean()["map"]
    alone = xgboost_ranker().fit(X, Y, qid=TRAIN.candidates.query_of_row)
    assert means["XGBRanker"] == qw.evaluate(alone, TEST, measures=["map"]).mean()["map"]
    assert means["Ridge"] == qw.evaluate(Ridge().fit(X, Y), TEST, measures=["map"]).mean()["map"]
    assert not systems[2].is_fitted()
    assert all(compared.megabytes(name) > 0 for name in compared.names)
    assert list(tmp_path.iterdir()) == [], "nothing is written beside"


def test_the_validation_part_may_stop_another_librarys_model() -> None:
    model = lightgbm_ranker().set_params(n_estimators=200, early_stopping_round=3)
    compared = qw.compare([model], TRAIN, VALID, TEST, measures=["map"])
    assert compared.fit_seconds("LGBMRanker") > 0


def test_what_cannot_be_fitted_here_is_refused_with_a_reason() -> None:
    with pytest.raises(DataError, match="KMeans: it is neither a regressor nor a ranker"):
        qw.compare([KMeans(2), qw.RankSVM()], FOLD)
    with pytest.raises(
        DataError, match=r"Ridge could not be fitted here \(fit it yourself, and pass the fitted system\)\. Inva"
    ):
        qw.compare([Ridge(alpha=-1.0), qw.RankSVM()], FOLD)


def test_what_cannot_be_compared_is_refused() -> None:
    nothing: Any = [TEST.candidates.features[:, 0]]
    with pytest.raises(
        DataError, match=r"ndarray: a ndarray cannot be compared\. Expected a ranker, a model of LightGBM"
    ):
        qw.compare(nothing, FOLD)
    with pytest.raises(DataError, match=r"RankSVM is a class; expected an object of it: RankSVM\(…\)"):
        qw.compare([qw.RankSVM], FOLD)
    one: Any = qw.RankSVM()
    with pytest.raises(
        DataError, match="Expected a list of systems to compare, or a mapping of names; found a RankSVM"
    ):
        qw.compare(one, FOLD)
    with pytest.raises(DataError, match="Folds have their own validation and test parts"):
        qw.compare([qw.RankSVM()], qw.make_folds(DATA), VALID, TEST)
    wrong: Any = TEST.candidates
    with pytest.raises(DataError, match="test: expected a Judged set, found a Candidates"):
        qw.compare([qw.RankSVM()], TRAIN, VALID, wrong)


@pytest.mark.slow
def test_no_other_library_is_imported_unless_its_model_is_given() -> None:
    script = (
        "import sys, querywise as qw\n"
        "data = qw.make_judged(10, 4, 2)\n"
        "qw.compare([qw.RankSVM(), lambda X: X[:, 0]], *qw.make_folds(data)[0])\n"
        "print({'xgboost', 'catboost', 'lightgbm'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_weights_are_refused_where_another_librarys_model_is_to_be_fitted() -> None:
    weighted = TRAIN.with_weights(np.arange(1.0, len(TRAIN) + 1))
    for model in (Ridge(), lightgbm_ranker(), catboost_ranker()):
        with pytest.raises(DataError, match=rf"^{type(model).__name__}: the data has weights\. Fit it with them yours"):
            qw.compare([model], weighted, VALID, TEST)


def test_real_valued_labels_are_what_a_regressor_is_fitted_to() -> None:
    worth = np.array([0.0, 0.05, 0.4])[DATA.labels]
    data = qw.from_arrays(DATA.candidates.features, worth, qid=DATA.candidates.query_of_row, gains=True)
    train, valid, test = qw.make_folds(data)[0]
    assert train.gains is not None
    own = Ridge().fit(train.candidates.features, train.gains[train.labels])
    compared = qw.compare({"here": Ridge(), "before": own}, train, valid, test)
    assert compared.scores["here"].tolist() == compared.scores["before"].tolist()
    with pytest.raises(DataError, match=r"^LGBMRanker: the labels have gains"):
        qw.compare([lightgbm_ranker()], train, valid, test)


# A new user's first lines, as the documents have them

FIRST_LINES = """
train, valid, test = qw.split(qw.from_arrays(X, y, group=group))
ranker = qw.recommended().fit(train, valid=valid)
table = qw.evaluate(ranker, test)
compared = qw.compare([qw.LambdaMART(), ranker, lightgbm_model], train, valid, test)
"""


@pytest.mark.slow
def test_a_lightgbm_users_first_lines_run_as_written() -> None:
    lightgbm_model = lightgbm_ranker().fit(X, Y, group=GROUP).booster_
    whole = {"X": DATA.candidates.features, "y": DATA.labels, "group": DATA.candidates.sizes}
    found: dict[str, Any] = {"qw": qw, "lightgbm_model": lightgbm_model, **whole}
    exec(FIRST_LINES, found)
    compared = found["compared"]
    assert compared.names == ("LambdaMART", "Blend", "lightgbm Booster")
    assert compared.baseline == "LambdaMART"
    assert compared.given == ("Blend", "lightgbm Booster")
    assert found["table"].mean() == compared.evaluations["Blend"].mean()
