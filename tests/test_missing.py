"""Missing values: refused without a policy, the mean with a column that marks it, or the side that trees learn."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from querywise import (
    Blend,
    Candidates,
    DataError,
    Judged,
    KnnOffline2,
    KnnOnline,
    LambdaMART,
    ModelFileError,
    Naive,
    QueryClasses,
    RankSVM,
    Single,
    evaluate,
    explain,
    export_model,
    feature_importance,
    from_arrays,
    from_frame,
    load,
    make_judged,
    recommended,
    save,
    why,
)
from querywise.contracts.asking import policy_of
from querywise.data.folds import write_parts
from querywise.data.judged import concatenate
from querywise.data.letor import write_letor
from querywise.data.parquet.tables import read_parquet
from querywise.data.parquet.writing import write_shards
from querywise.learners.trees.context import QueryContext
from querywise.learners.trees.growth import lightgbm
from querywise.methods import METHODS, find_method
from querywise.rankers.wrappers import MissingValues, QueryNormalised
from querywise.retrieval.reading import read_judged
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import caching
from querywise.service.loaded_model import LoadedModel
from querywise.service.schema import RankRequest
from querywise.storage import read_manifest
from tests.commands import output, refused, run
from tests.serving import serving
from tests.support.exports import ENGINES
from tests.support.rankers import RANKERS, fitted_once, for_ranker, worded
from tests.worlds import with_gaps

POLICIES = r"'mean', .*MissingValues\(ranker, policy='mean'\).*missing=mean; or 'native', .*missing=native"
NAMES = ("bm25", "clicks", "age", "price")
WHOLE = worded(make_judged(40, 9, 4, kinds=2, seed=7))


def named(data: Judged) -> Judged:
    return replace(data, candidates=replace(data.candidates, feature_names=NAMES))


def allowed(data: Judged) -> Judged:
    """The same data, read so that values might be missing; none is."""
    return replace(data, candidates=replace(data.candidates, missing="allowed"))


def asked(features: Floats, data: Judged) -> Candidates:
    return replace(data.candidates, features=features, missing="allowed")


GAPS = named(with_gaps(WHOLE))


# Getting in


@pytest.mark.parametrize(
    "read",
    [
        lambda **how: from_arrays([[1.0, np.nan], [2.0, 3.0]], [0, 1], qid=[1, 1], **how),
        lambda **how: from_frame(
            pd.DataFrame({"qid": [1, 1], "label": [0, 1], "1": [1.0, 2.0], "2": [None, 3.0]}), **how
        ),
        lambda **how: Judged(Candidates(np.array([[1.0, np.nan]]), np.array([0, 1]), ("q",), **how), np.array([0])),
    ],
    ids=["arrays", "frame", "candidates"],
)
def test_nan_gets_in_where_it_is_allowed_and_is_refused_with_the_policies_elsewhere(read: Any) -> None:
    with pytest.raises(DataError, match=f"Row 1, column 2 of features is nan.*missing='allowed'.*{POLICIES}"):
        read()
    found = read(missing="allowed").candidates
    assert np.isnan(found.features[0, 1])
    assert found.features[0, 0] == 1.0
    with pytest.raises(DataError, match="missing='mean': expected 'refused' or 'allowed'"):
        read(missing="mean")


def test_infinity_is_never_allowed() -> None:
    with pytest.raises(DataError, match="Row 2, column 1 of features is inf"):
        from_arrays([[np.nan], [np.inf]], [0, 1], qid=[1, 1], missing="allowed")


def test_sets_keep_their_gaps_when_they_are_cut_and_put_together() -> None:
    again = concatenate([GAPS.select(range(10)), GAPS.select(range(10, 40))])
    assert np.array_equal(again.candidates.features, GAPS.candidates.features, equal_nan=True)


def test_files_that_hold_numbers_alone_refuse_gaps(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a LETOR file cannot hold missing values"):
        write_letor(tmp_path / "train.txt", GAPS)
    with pytest.raises(DataError, match="part 1 has missing values, which shards do not hold"):
        write_shards([GAPS], tmp_path / "train.parquet")
    assert not list(tmp_path.iterdir())


# Without a policy


# In the process that has fitted them for the conformance tests.
WITHOUT = [name for name in RANKERS if policy_of(RANKERS[name]()) == "zero"]


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in WITHOUT])
def test_a_ranker_without_a_policy_refuses_before_it_computes(name: str) -> None:
    whole = for_ranker(name, WHOLE)
    features = whole.candidates.features.copy()
    features[5:17, 0] = np.nan
    gaps = replace(whole, candidates=replace(whole.candidates, features=features, missing="allowed"))
    label = gaps.candidates.feature_label(0)
    refusal = f"Feature {label} is missing in 12 of 360 documents, and this ranker has no policy.*{POLICIES}"
    with pytest.raises(DataError, match=refusal):
        RANKERS[name]().fit(gaps)
    for ask in (fitted_once(name).ranker.predict, fitted_once(name).ranker.answer):
        with pytest.raises(DataError, match="is missing in 12 of 360 documents"):
            ask(replace(gaps.candidates, feature_names=whole.feature_names))


NATIVE = LambdaMART(3, missing="native")


@pytest.mark.parametrize(
    "ranker",
    [
        KnnOnline(NATIVE, k=5),
        KnnOffline2(NATIVE, k=5, models=2),
        Naive(NATIVE, 3),
        QueryClasses(NATIVE),
        Blend([NATIVE]),
        QueryContext(NATIVE),
        QueryNormalised(NATIVE),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_computes_with_features_around_native_trees_refuses_gaps(ranker: Any) -> None:
    with pytest.raises(DataError, match=r"Feature bm25 is missing in \d+ of 360 documents \(2 more features"):
        ranker.fit(GAPS)


def test_a_validation_part_with_gaps_is_refused_too() -> None:
    for ranker in (LambdaMART(3), QueryNormalised(RankSVM()), Blend([RankSVM()], weights="learned")):
        with pytest.raises(DataError, match="is missing in"):
            ranker.fit(named(WHOLE), valid=GAPS)


# The mean


def test_without_gaps_in_training_the_ranker_inside_is_what_it_would_be_alone() -> None:
    for alone in (RankSVM(), LambdaMART(5), KnnOnline(RankSVM(), k=5)):
        scores = alone.fit(WHOLE).predict(WHOLE.candidates)
        for data in (WHOLE, allowed(WHOLE)):
            filled = MissingValues(alone).fit(data, valid=data if isinstance(alone, RankSVM) else None)
            assert np.array_equal(filled.predict(WHOLE.candidates), scores)
            assert filled.ranker_.feature_count_ == 4
    with pytest.raises(DataError, match="trained with 'bm25'"):
        MissingValues(RankSVM()).fit(GAPS).predict(replace(GAPS.candidates, feature_names=("a", *NAMES[1:])))


def test_it_is_scikit_learns_imputer_with_indicators_beside_the_same_ranker() -> None:
    from sklearn.impute import SimpleImputer

    imputer = SimpleImputer(add_indicator=True).fit(GAPS.candidates.features)
    table = imputer.transform(GAPS.candidates.features)
    ours = MissingValues(RankSVM()).fit(GAPS)
    assert ours.filled(GAPS.candidates).features == pytest.approx(table, rel=1e-14, abs=1e-14)
    assert ours.filled(GAPS.candidates).feature_names == (*NAMES, "missing bm25", "missing clicks", "missing age")
    beside = replace(WHOLE, candidates=replace(WHOLE.candidates, features=table))
    theirs = RankSVM().fit(beside).predict(beside.candidates)
    assert ours.predict(GAPS.candidates) == pytest.approx(theirs, rel=1e-9, abs=1e-9)


def test_a_feature_that_is_missing_for_the_first_time_when_ranking_is_the_mean() -> None:
    ranker = MissingValues(RankSVM()).fit(GAPS)
    features = np.nan_to_num(GAPS.candidates.features)
    features[:, 3] = np.nan
    filled = features.copy()
    filled[:, 3] = ranker.means_[3]
    assert np.array_equal(ranker.predict(asked(features, GAPS)), ranker.predict(asked(filled, GAPS)))


def test_means_do_not_depend_on_the_order_of_training_queries() -> None:
    turned = GAPS.select(np.random.default_rng(0).permutation(len(GAPS)))
    ours, theirs = (MissingValues(RankSVM()).fit(data).means_ for data in (GAPS, turned))
    assert np.array_equal(ours, theirs)


def test_a_grid_fills_once_and_gives_the_same_scores() -> None:
    def scores(k: int) -> Floats:
        ranker = MissingValues(Blend([KnnOnline(RankSVM(), k=k), LambdaMART(3)], weights="learned"))
        return ranker.fit(GAPS, valid=GAPS.select(range(10))).predict(GAPS.candidates)

    alone = [scores(k) for k in (5, 10)]
    with caching():
        assert np.array_equal([scores(k) for k in (5, 10)], alone)


def test_what_has_no_mean_and_what_is_no_policy_is_refused() -> None:
    features = GAPS.candidates.features.copy()
    features[:, 1] = np.nan
    with pytest.raises(DataError, match="Feature clicks is missing in all 360 training documents, so it has no mean"):
        MissingValues(RankSVM()).fit(replace(GAPS, candidates=asked(features, GAPS)))
    with pytest.raises(DataError, match=r"MissingValues\(policy='median'\) is unknown. Known: mean"):
        MissingValues(RankSVM(), policy="median").fit(GAPS)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"LambdaMART\(missing='mean'\) is unknown. Known: zero, native"):
        LambdaMART(3, missing="mean").fit(GAPS)  # type: ignore[arg-type]


def test_explanations_name_the_columns_that_mark_gaps() -> None:
    ranker = MissingValues(KnnOnline(RankSVM(), k=5)).fit(with_gaps(WHOLE))
    candidates = with_gaps(WHOLE).candidates
    reason = why(ranker, candidates, "q3", "1", "3")
    scores = ranker.predict(candidates)
    assert reason.difference == pytest.approx(scores[18] - scores[20])
    assert {term.feature for term in reason.terms} == {"1", "2", "3", "4", "missing 1", "missing 2", "missing 3"}
    assert explain(ranker, candidates, "q3").neighbours
    assert "missing 2" in feature_importance(ranker, candidates).features
    assert np.isfinite(feature_importance(native(), GAPS, repeats=1).values).all()


# The side that trees learn


@cache
def native(bag: int = 1) -> LambdaMART:
    return LambdaMART(12, bag=bag, missing="native").fit(GAPS)


TABLES: dict[str, Floats] = {
    "gaps": GAPS.candidates.features,
    "nothing but gaps": np.full_like(GAPS.candidates.features, np.nan),
    "zeros": np.zeros_like(GAPS.candidates.features),
    "zeros for gaps": np.nan_to_num(GAPS.candidates.features),
    "gaps where training had none": np.where(np.arange(4) == 3, np.nan, WHOLE.candidates.features),
    "large": np.full_like(GAPS.candidates.features, 1e100),
}


@pytest.mark.parametrize("table", TABLES)
def test_trees_send_missing_values_where_lightgbm_does_to_the_last_bit(table: str) -> None:
    features = TABLES[table]
    theirs = lightgbm().Booster(model_str=native().models_[0]).predict(features)
    assert np.array_equal(native().predict(asked(features, GAPS)), theirs)
    both = [lightgbm().Booster(model_str=model).predict(features) for model in native(2).models_]
    assert np.array_equal(native(2).predict(asked(features, GAPS)), (both[0] + both[1]) / 2)


def test_trees_have_learned_both_sides_and_splits_of_gaps_alone() -> None:
    kinds = {word for line in native().models_[0].split("\n") if "decision_type=" in line for word in line[14:].split()}
    assert kinds == {"2", "8", "10"}
    assert " inf" in native().models_[0]


def test_without_gaps_native_trees_are_the_same_trees() -> None:
    assert LambdaMART(5, missing="native").fit(allowed(WHOLE)).models_ == LambdaMART(5).fit(WHOLE).models_
    stopped = [
        LambdaMART(20, patience=3, missing=missing).fit(allowed(WHOLE), valid=allowed(WHOLE)).models_
        for missing in ("zero", "native")
    ]
    assert stopped[0] == stopped[1]


def test_native_trees_validate_explain_and_stand_alone() -> None:
    ranker = LambdaMART(20, patience=3, missing="native").fit(GAPS, valid=GAPS.select(range(10)))
    reason = why(ranker, GAPS.candidates, "q3", "1", "3")
    scores = ranker.predict(GAPS.candidates)
    assert reason.difference == pytest.approx(scores[18] - scores[20])
    single = Single(NATIVE).fit(GAPS)
    assert np.array_equal(
        single.predict(GAPS.candidates), LambdaMART(3, missing="native").fit(GAPS).predict(GAPS.candidates)
    )
    assert policy_of(single) == "native"


# Stored


FITTED: dict[str, Any] = {
    "mean": lambda: MissingValues(KnnOffline2(RankSVM(), k=10)).fit(GAPS),
    "native": native,
    "zero": lambda: RankSVM().fit(named(WHOLE)),
}


@cache
def fitted(policy: str) -> Any:
    return FITTED[policy]()


@pytest.mark.parametrize("policy", FITTED)
def test_the_policy_is_stored_with_the_model(policy: str, tmp_path: Path) -> None:
    save(fitted(policy), tmp_path / "model")
    assert read_manifest(tmp_path / "model").missing == policy == policy_of(load(tmp_path / "model"))
    candidates = (named(WHOLE) if policy == "zero" else GAPS).candidates
    assert np.array_equal(load(tmp_path / "model").predict(candidates), fitted(policy).predict(candidates))


def test_a_manifest_that_says_another_policy_than_its_model_is_refused(tmp_path: Path) -> None:
    from querywise.runtime.files import digest_of

    save(fitted("native"), tmp_path / "model")
    path = tmp_path / "model" / "manifest.json"
    body = {name: value for name, value in json.loads(path.read_text()).items() if name != "sha256"}
    body["missing"] = "zero"
    path.write_text(json.dumps({**body, "sha256": digest_of(body)}))
    with pytest.raises(ModelFileError, match="missing values are treated as 'zero', the model 'native'"):
        load(tmp_path / "model")


# By name, and from the command line


def test_every_method_on_features_has_the_setting() -> None:
    having = {name for name, method in METHODS.items() if "missing" in method.settings}
    assert set(METHODS) - having == {
        "rrf", "combsum", "weights", "weights-by-query", "margin", "entropy", "forest"
    }  # fmt: skip
    for name in having:
        choices = METHODS[name].settings["missing"].choices
        assert choices == (("zero", "mean", "native") if name == "lambdamart" else ("zero", "mean"))
        assert isinstance(METHODS[name].build(missing="mean"), MissingValues)
        assert not isinstance(METHODS[name].build(), MissingValues)
    assert policy_of(find_method("lambdamart").build(missing="native")) == "native"
    assert isinstance(recommended(missing="mean"), MissingValues)
    with pytest.raises(DataError, match="missing='native' is for trees on the features as they are"):
        find_method("lambdamart").build(missing="native", normalise="query")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A feature log with nulls."""
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    frame = pd.DataFrame(GAPS.candidates.features, columns=list(NAMES))
    frame.insert(0, "qid", np.repeat(GAPS.query_ids, GAPS.candidates.sizes))
    frame.insert(1, "label", GAPS.labels)
    frame.insert(2, "docid", [f"d{row}" for row in range(len(frame))])
    frame.to_parquet(path)
    return path


def test_the_command_line_fits_ranks_explains_and_evaluates_with_gaps(log: Path, tmp_path: Path) -> None:
    said = refused(run(None, "fit", log, "--method", "ranksvm", "--out", tmp_path / "model"))
    assert "column clicks of features is nan" in said
    assert "missing=mean" in said
    for method, policy in (("ranksvm", "mean"), ("lambdamart", "native")):
        model, scores = tmp_path / method, tmp_path / f"{method}.txt"
        more = ("--set", "trees=5") if method == "lambdamart" else ()
        output(run(None, "fit", log, "--method", method, "--set", f"missing={policy}", *more, "--out", model))
        output(run(None, "rank", model, log, "--out", scores))
        data = read_parquet(log, missing="allowed")
        written = np.loadtxt(scores)
        assert np.array_equal(written, data.candidates.in_source_order(load(model).predict(data.candidates)))
        assert "ndcg" in output(run(None, "evaluate", log, scores)).lower()
        rows = 18 + np.flatnonzero(np.isnan(GAPS.candidates.features[18:27]).any(axis=1))
        pair = ("--above", f"d{rows[0]}", "--below", f"d{rows[1]}")
        told = output(run(None, "explain", model, log, "--qid", "q3", *pair))
        assert "missing" in told
        assert "nan" not in told.split()


def test_compare_takes_the_setting_too(log: Path) -> None:
    words = ("compare", log, "--methods", "ranksvm", "--set", "missing=mean", "--set", "l2=1", "--json")
    found = json.loads(output(run(None, *words)))
    assert "ranksvm" in json.dumps(found)
    assert "column clicks of features is nan" in refused(run(None, *words[:4]))


@pytest.mark.parametrize("policy", ["mean", "native"])
def test_files_where_what_is_left_out_is_zero_refuse_a_policy(policy: str, log: Path, tmp_path: Path) -> None:
    letor, shards, folds = tmp_path / "sparse.txt", tmp_path / "shards", tmp_path / "folds"
    write_letor(letor, WHOLE)
    write_shards([WHOLE], shards)
    write_parts(WHOLE, folds)
    setting = ("--set", f"missing={policy}", "--method", "lambdamart", "--out", tmp_path / "model")
    for data in ((letor,), (shards,), (folds, "--fold", 1), (log, "--valid", letor), (letor, "--valid", letor)):
        said = refused(run(None, "fit", *data, *setting))
        assert "cannot have: a feature that is left out is 0" in said
        assert "is 0. Leave the setting out; or train on a Parquet log, or in Python on arrays or tables" in said
    for path in (letor, shards, folds):
        words = ("compare", path, "--methods", "lambdamart", "--set", f"missing={policy}")
        assert "cannot have: a feature that is left out is 0" in refused(run(None, *words))
    assert not (tmp_path / "model").exists()
    assert "no such file" in refused(run(None, "fit", tmp_path / "none.txt", *setting)).lower()


@pytest.mark.parametrize("policy", ["mean", "native"])
def test_what_is_left_out_is_served_as_it_was_trained_where_nothing_could_be_missing(
    policy: str, tmp_path: Path
) -> None:
    """A sparse LETOR file: half of the documents leave out the second feature, so it is 0 in training."""
    rng, path = np.random.default_rng(0), tmp_path / "sparse.txt"
    lines = []
    for row in range(400):
        first, there = rng.random(), rng.random() < 0.5
        second = f" 2:{5 + rng.random():.4f}" if there else ""
        lines.append(f"{int(first + there > 1)} qid:{row // 10} 1:{first:.4f}{second}")
    path.write_text("\n".join(lines) + "\n")
    ranker: Any = MissingValues(RankSVM()) if policy == "mean" else LambdaMART(20, min_documents=3, missing="native")
    data = read_judged(path, missing="allowed")
    save(ranker.fit(data), tmp_path / "model")
    model, query = LoadedModel.from_folder(tmp_path / "model"), data.candidates.select([3])
    for absent in (None, 0.0):
        documents = [
            {"id": str(row), "features": [one, two or absent]} for row, (one, two) in enumerate(query.features)
        ]
        content = json.dumps({"query": {"id": "3"}, "documents": documents})
        found = model.rank([msgspec.json.decode(content, type=RankRequest)])[0][0].documents
        scores = {each.id: each.score for each in found}
        assert [scores[str(row)] for row in range(10)] == ranker.predict(query).tolist()


# Over HTTP


def body(features: Floats, *, by_name: bool) -> dict[str, Any]:
    rows = [[None if np.isnan(value) else value for value in row] for row in features.tolist()]
    names = [{name: value for name, value in zip(NAMES, row, strict=True) if value is not None} for row in rows]
    documents = [{"id": f"d{place}", "features": each} for place, each in enumerate(names if by_name else rows)]
    return {"query": {"id": "q3", "text": "red"}, "documents": documents}


@pytest.mark.parametrize("policy", ["mean", "native"])
def test_null_or_no_name_in_a_request_is_a_missing_value_with_the_same_digits(policy: str, tmp_path: Path) -> None:
    save(fitted(policy), tmp_path / "model")
    model, query = LoadedModel.from_folder(tmp_path / "model"), GAPS.candidates.select([3])
    expected = fitted(policy).predict(query).tolist()
    for by_name in (False, True):
        request = msgspec.json.decode(json.dumps(body(query.features, by_name=by_name)), type=RankRequest)
        found = model.rank([request])[0][0].documents
        assert {each.id: each.score for each in found} == {f"d{row}": score for row, score in enumerate(expected)}


@pytest.mark.slow
def test_the_service_ranks_and_explains_documents_with_gaps(tmp_path: Path) -> None:
    save(native(), tmp_path / "model")
    query = GAPS.candidates.select([3])
    with serving(tmp_path / "model", "--timeout", 25) as server:
        answer = server.post("/v1/rank", body(query.features, by_name=False)).json()
        found = {each["id"]: each["score"] for each in answer["documents"]}
        assert [found[f"d{row}"] for row in range(len(found))] == native().predict(query).tolist()
        assert server.get("/v1/model").json()["missing"] == "native"
        content = {**body(query.features, by_name=True), "above": "d0", "below": "d2"}
        explained = server.post("/v1/explain", content)
        assert explained.status_code == 200
        assert any(term["above"] is None or term["below"] is None for term in explained.json()["terms"])


def test_the_example_of_the_documentation_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parent.parent / "docs" / "data.md").read_text().partition("## Missing values")[2]
    code, shown = re.findall(r"```(?:python)?\n(.*?)```", page, re.DOTALL)[:2]
    exec(compile(code, "data.md", "exec"), {})
    assert capsys.readouterr().out == shown


# Other libraries' models


def test_other_libraries_take_missing_values_or_refuse_them_as_they_do() -> None:
    from sklearn.linear_model import LinearRegression

    rows = GAPS.candidates
    model = lightgbm().LGBMRanker(n_estimators=5, verbose=-1).fit(rows.features, GAPS.labels, group=rows.sizes)
    table = evaluate(model, GAPS, measures=["ndcg@10"])
    assert table.mean() == evaluate(model.booster_.predict(rows.features), GAPS, measures=["ndcg@10"]).mean()
    linear = LinearRegression().fit(WHOLE.candidates.features, WHOLE.labels)
    with pytest.raises(DataError, match=r"LinearRegression could not predict\. ValueError: .*NaN"):
        evaluate(linear, GAPS)


# In engines


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_refuse_models_that_have_learned_gaps_and_say_what_they_do_otherwise(
    engine: str, tmp_path: Path
) -> None:
    for ranker in (fitted("mean"), native()):
        with pytest.raises(
            DataError, match=r"cannot be exported: .*engine's model gets 0 for a feature that a document"
        ):
            export_model(ranker, engine, tmp_path / "out")
    features = np.abs(WHOLE.candidates.features)  # as one of the engines wants them
    whole = named(replace(WHOLE, candidates=replace(WHOLE.candidates, features=features)))
    unfilled = MissingValues(LambdaMART(3)).fit(whole)
    export_model(unfilled, engine, tmp_path / "mean", data=whole)
    export_model(LambdaMART(3).fit(whole), engine, tmp_path / "zero", data=whole)
    export_model(LambdaMART(3, missing="native").fit(whole), engine, tmp_path / "native", data=whole)
    said = "In querywise it is the mean of training, so such a document is scored otherwise there."
    readmes = {name: (tmp_path / name / "README.md").read_text() for name in ("mean", "zero", "native")}
    assert all("A feature that a document does not have counts as 0." in each for each in readmes.values())
    assert [name for name, text in readmes.items() if said in text] == ["mean"]
    with pytest.raises(DataError, match=r"This data has missing values\. An engine gets 0"):
        export_model(unfilled, engine, tmp_path / "other", data=GAPS)
