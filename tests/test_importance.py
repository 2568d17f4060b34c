"""Which features count in a ranker's order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from querywise import Blend, KnnOnline, LambdaMART, RankSVM, evaluate, feature_importance, from_arrays, make_judged
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError, ModelFileError, NotFittedError
from querywise.explanations.contributions import contributions
from querywise.learners.trees.context import QueryContext
from querywise.learners.trees.growth import lightgbm
from querywise.runtime.arrays import Floats


@pytest.fixture(scope="module")
def data() -> Judged:
    return make_judged(30, 8, 4, noise=0.7)


@pytest.fixture(scope="module")
def forest(data: Judged) -> LambdaMART:
    return LambdaMART(trees=10, leaves=4, bag=2).fit(data)


class FirstFeature:
    """A system of which nothing is known but its scores."""

    def predict(self, candidates: Candidates, /) -> Floats:
        return candidates.features[:, 0]


def test_of_a_linear_model_it_is_weight_times_spread_within_queries(data: Judged) -> None:
    ranker, documents = RankSVM().fit(data), data.candidates
    found = feature_importance(ranker, data)
    spreads = [documents.features[documents.rows(query)].std(axis=0) for query in range(len(documents))]
    expected = np.mean([np.abs(ranker.weights_) * spread for spread in spreads], axis=0)
    assert found.how == "contributions"
    assert found.values.tolist() == pytest.approx(sorted(expected, reverse=True))
    assert [found[str(column + 1)] for column in range(4)] == pytest.approx(expected)
    assert feature_importance(ranker, documents).values.tolist() == found.values.tolist(), "labels are not needed"


def test_what_is_the_same_for_all_documents_of_a_query_does_not_count(data: Judged) -> None:
    features = np.column_stack([data.candidates.features, data.candidates.query_of_row * 10.0])
    ids = [data.query_ids[query] for query in data.candidates.query_of_row]
    wider = from_arrays(features, data.labels, qid=ids, feature_names=["a", "b", "c", "d", "of the query"])
    for ranker in (RankSVM(), LambdaMART(trees=10)):
        found = feature_importance(ranker.fit(wider), wider, repeats=1)
        assert found["of the query"] == pytest.approx(0, abs=1e-9)
        assert found.features[0] != "of the query"


def test_of_local_models_it_is_each_querys_own(data: Judged) -> None:
    for ranker in (KnnOnline(RankSVM(), k=5), Blend([RankSVM(), KnnOnline(RankSVM(), k=5)])):
        fitted = ranker.fit(data)
        found = feature_importance(fitted, data)
        parts = [contributions(fitted, data.candidates.select([query])).here.std(axis=0) for query in range(len(data))]
        assert found.how == "contributions"
        assert [found[str(column + 1)] for column in range(4)] == pytest.approx(np.mean(parts, axis=0).tolist())
        assert found.errors is not None
        assert sorted(found.errors) == pytest.approx(sorted(np.std(parts, axis=0, ddof=1) / np.sqrt(len(parts))))


def test_permutation_of_the_one_feature_that_decides(data: Judged) -> None:
    found = feature_importance(FirstFeature(), data, measure="map", repeats=3, seed=1)
    assert found.how == "permutation"
    assert found.features[0] == "1"
    assert [found[each] for each in ("2", "3", "4")] == [0, 0, 0]
    again = feature_importance(FirstFeature(), data, measure="map", repeats=3, seed=1)
    assert again.values.tolist() == found.values.tolist()
    other = feature_importance(FirstFeature(), data, measure="map", repeats=3, seed=2)
    assert other.values.tolist() != found.values.tolist()


def test_permutation_falls_to_what_a_random_order_reaches(data: Judged) -> None:
    found = feature_importance(FirstFeature(), data, measure="map", repeats=30)
    rng = np.random.default_rng(0)
    before = evaluate(data.candidates.features[:, 0], data, measures=["map"]).mean()["map"]
    random = np.mean([evaluate(rng.random(len(data.labels)), data, measures=["map"]).mean()["map"] for _ in range(30)])
    assert found["1"] == pytest.approx(before - random, abs=0.02)


def test_gain_is_lightgbms_own(data: Judged, forest: LambdaMART) -> None:
    own = [lightgbm().Booster(model_str=text).feature_importance("gain") for text in forest.models_]
    found = feature_importance(forest, data, how="gain")
    assert [found[str(column + 1)] for column in range(4)] == pytest.approx(np.mean(own, axis=0).tolist(), rel=1e-4)
    assert found.errors is None
    above = LambdaMART(trees=5, leaves=4, base=forest).fit(data)
    assert (above.gains() >= forest.gains()).all()
    assert above.gains().sum() > forest.gains().sum()


def test_trees_are_permuted_and_have_shapley_values(data: Judged, forest: LambdaMART) -> None:
    assert feature_importance(forest, data, repeats=1).how == "permutation"
    shapley = feature_importance(forest, data, how="contributions")
    parts = [contributions(forest, data.candidates.select([query])).here.std(axis=0) for query in range(len(data))]
    assert sorted(shapley.values) == pytest.approx(sorted(np.mean(parts, axis=0)))
    context = QueryContext(LambdaMART(trees=5, leaves=4)).fit(data)
    assert "z-score of feature 1" in feature_importance(context, data, how="contributions").features


def test_names_are_those_of_training(data: Judged) -> None:
    ids = [data.query_ids[query] for query in data.candidates.query_of_row]
    named = from_arrays(data.candidates.features, data.labels, qid=ids, feature_names=["a", "b", "c", "d"])
    for how in ("contributions", "permutation"):
        found = feature_importance(RankSVM().fit(named), data, how=how, repeats=1)
        assert sorted(found.features) == ["a", "b", "c", "d"]


def test_it_shows_itself(data: Judged, forest: LambdaMART) -> None:
    from matplotlib import pyplot

    found = feature_importance(RankSVM().fit(data), data)
    assert repr(found).startswith("FeatureImportance(by contributions: ")
    assert repr(found).endswith(" and 1 feature more)")
    frame: Any = found.to_frame()
    assert list(frame.columns) == ["feature", "importance", "error", "how"]
    assert frame["importance"].tolist() == found.values.tolist()
    assert found._repr_html_().count("<tr") == 5
    axes = found.plot(most=2)
    assert [bar.get_width() for bar in axes.patches] == found.values[:2].tolist()  # type: ignore[attr-defined]
    gain = feature_importance(forest, data, how="gain")
    assert "standard error" not in gain._repr_html_()
    assert gain.plot(ax=axes) is axes
    assert np.isnan(np.asarray(as_any(gain.to_frame())["error"], float)).all()
    pyplot.close("all")
    assert len(found) == 4


def as_any(frame: Any) -> Any:
    return frame


def test_other_libraries_models_and_functions_have_it_by_permutation(data: Judged) -> None:
    features = data.candidates.features
    booster = lightgbm().train(
        {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5},
        lightgbm().Dataset(features, data.labels),
        num_boost_round=5,
    )
    for system in (booster, Ridge().fit(features, data.labels), lambda X: 2 * booster.predict(X)):
        found = feature_importance(system, data, repeats=2)
        same = feature_importance(Wrapped(system), data, repeats=2)
        assert found.how == "permutation"
        assert (found.features, found.values.tolist()) == (same.features, same.values.tolist())
    with pytest.raises(DataError, match=r"A Booster's score is not a sum over features.*Use how='permutation'"):
        feature_importance(booster, data, how="contributions")
    with pytest.raises(DataError, match=r"Importance by gain.*Use how='permutation'"):
        feature_importance(booster, data, how="gain")
    with pytest.raises(DataError, match="str: expected a function of one argument"):
        feature_importance("booster", data)  # type: ignore[arg-type]


class Wrapped:
    """The same scores, of a class that takes Candidates."""

    def __init__(self, system: Any) -> None:
        self.system = system

    def predict(self, candidates: Candidates, /) -> Floats:
        scores: Floats = (self.system.predict if hasattr(self.system, "predict") else self.system)(candidates.features)
        return scores


def test_mistakes_are_told(data: Judged, forest: LambdaMART) -> None:
    with pytest.raises(DataError, match="Known: 'contributions', 'gain', 'permutation'"):
        feature_importance(forest, data, how="magic")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"Importance by gain is for one model of boosted trees.*how='permutation'"):
        feature_importance(RankSVM().fit(data), data, how="gain")
    with pytest.raises(DataError, match="needs labels; give Judged"):
        feature_importance(forest, data.candidates)
    with pytest.raises(DataError, match=r"not a sum over features.*Use how='permutation'"):
        feature_importance(FirstFeature(), data, how="contributions")
    with pytest.raises(DataError, match=r"repeats=0\) must be from 1 up"):
        feature_importance(forest, data, repeats=0)
    with pytest.raises(DataError, match="There is no document"):
        feature_importance(forest, data.select([]))
    with pytest.raises(NotFittedError):
        feature_importance(RankSVM(), data)
    with pytest.raises(DataError, match="There is no feature 'x'"):
        feature_importance(forest, data, how="gain")["x"]


def test_trees_without_gains_are_refused(data: Judged, forest: LambdaMART) -> None:
    damaged = LambdaMART(trees=10, leaves=4).fit(data)
    for text in ("", "split_gain=nan nan\n", "split_gain=1\n"):
        lines = [text.rstrip() if line.startswith("split_gain=") else line for line in forest.models_[0].split("\n")]
        damaged.models_ = ("\n".join(lines),)
        with pytest.raises(ModelFileError):
            feature_importance(damaged, data, how="gain")
