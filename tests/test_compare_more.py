from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from querywise.data.folds import Fold, make_folds
from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.evaluation.compare import CHOSEN, Compared, compare
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.rankings import class_shares, examples
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import tune
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.rankers.single import OneFeature
from querywise.runtime.arrays import Floats
from querywise.runtime.values import Json


def columns(seed: int, good: int, queries: int = 8) -> Judged:
    """Queries whose grades are one of three features; the others are noise. Ids are of this seed alone."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(queries * 6, 3)).round(2)
    labels = rng.integers(0, 3, queries * 6)
    features[:, good] = labels
    ids = tuple(f"{seed}-{query}" for query in range(queries))
    kinds = tuple("even" if query % 2 == 0 else None if query == 1 else "odd" for query in range(queries))
    table = QueryTable(ids, texts=tuple(f"text of {each}" for each in ids), classes=kinds)
    return Judged(Candidates(features, np.arange(queries + 1) * 6, ids, queries=table), labels)


def tuned(feature: int, train: Judged, valid: Judged) -> Any:
    return tune(OneFeature, {"feature": [feature]}, train=train, valid=valid, measure="map")


def untuned(feature: int, train: Judged, valid: Judged) -> OneFeature:
    return OneFeature(feature).fit(train)


FITS: dict[str, Fit] = {f"f{feature}": partial(tuned, feature) for feature in range(3)}
# In the first fold feature 2 is best on validation data, in the second feature 0; on the test data neither is.
FOLDS = [Fold(columns(1, 1), columns(2, 2), columns(3, 1)), Fold(columns(4, 1), columns(5, 0), columns(6, 1))]


@pytest.fixture(scope="module")
def compared() -> Compared:
    return compare(FITS, FOLDS, measures=["map", "ndcg@3"], baseline="f1")


def test_the_choice_is_in_each_fold_the_best_on_its_validation_part(compared: Compared) -> None:
    chosen = compared.with_choice(["f0", "f1", "f2"])
    assert chosen.names == ("f0", "f1", "f2", CHOSEN)
    assert [each.method for each in chosen.trained[CHOSEN]] == ["f2", "f0"]
    for fold, name in enumerate(("f2", "f0")):
        assert chosen.trained[CHOSEN][fold].scores is compared.trained[name][fold].scores
        assert chosen.trained[CHOSEN][fold].fit_seconds == compared.trained[name][fold].fit_seconds
        assert chosen.trained[CHOSEN][fold].valid_value == 1.0
    in_fold = chosen.fold_of == 0
    expected = np.where(in_fold, compared.evaluations["f2"]["map"], compared.evaluations["f0"]["map"])
    assert np.array_equal(chosen.evaluations[CHOSEN]["map"], expected)
    content: Any = chosen.as_json()
    assert content["methods"][CHOSEN]["mean"]["map"] == pytest.approx(float(expected.mean()))


def test_the_choice_is_among_those_named_and_the_first_of_equals(compared: Compared) -> None:
    def methods(*among: str) -> list[Json]:
        return [each.method for each in compared.with_choice(among).trained[CHOSEN]]

    assert methods("f1") == ["f1", "f1"]
    assert methods("f1", "f0")[1] == "f0"
    twins = compare({"a": FITS["f0"], "b": FITS["f0"]}, FOLDS)
    assert [each.method for each in twins.with_choice(["b", "a"]).trained[CHOSEN]] == ["b", "b"]


def test_the_choice_leaves_the_comparison_it_came_from_alone(compared: Compared) -> None:
    before = compared.names
    compared.with_choice(["f0", "f2"])
    assert compared.names == before
    assert compared.trained["f2"][0].method is None


@pytest.mark.parametrize("among", [["plain", "f0"], ["f0", "plain"]])
def test_a_ranker_that_was_not_tried_on_validation_data_is_not_chosen_before_one_that_was(among: list[str]) -> None:
    fits: dict[str, Fit] = {"plain": partial(untuned, 2), "f0": FITS["f0"]}
    compared = compare(fits, FOLDS)
    assert np.isnan(compared.trained["plain"][0].valid_value)
    assert [each.method for each in compared.with_choice(among).trained[CHOSEN]] == ["f0", "f0"]


def test_the_baseline_is_the_first_or_the_one_named(compared: Compared) -> None:
    assert compared.baseline == "f1"
    assert compare(FITS, FOLDS).baseline == "f0"
    for name in compared.names:
        result = compared.against_baseline(name, "map")
        gains = compared.evaluations[name]["map"] - compared.evaluations["f1"]["map"]
        assert result.difference == pytest.approx(float(gains.mean()))
        assert (result.wins, result.losses) == (int((gains > 0).sum()), int((gains < 0).sum()))
    assert compared.as_json()["baseline"] == "f1"


def test_a_baseline_that_is_not_compared_is_refused() -> None:
    with pytest.raises(DataError, match=r"The baseline 'f9' is not among the methods: f0, f1, f2"):
        compare(FITS, FOLDS, baseline="f9")


def test_classes_are_those_of_the_test_queries_and_unknown_ones_are_in_none(compared: Compared) -> None:
    classes = compared.classes
    assert list(classes) == ["even", "odd"]
    assert [int(each.sum()) for each in classes.values()] == [8, 6]
    assert not np.any(classes["even"] & classes["odd"])
    ids = np.array(compared.judged.candidates.query_ids)
    assert set(ids[classes["odd"]]) == {f"{seed}-{query}" for seed in (3, 6) for query in (3, 5, 7)}


def test_without_classes_there_are_none() -> None:
    bare = [
        Fold(*(replace(part, candidates=replace(part.candidates, queries=None)) for part in each)) for each in FOLDS
    ]
    assert compare(FITS, bare).classes == {}


def test_the_paired_test_can_be_of_some_queries(compared: Compared) -> None:
    for chosen in compared.classes.values():
        ours, theirs = (compared.evaluations[name]["map"][chosen] for name in ("f0", "f1"))
        result = compared.against_baseline("f0", "map", chosen)
        expected: Any = stats.ttest_rel(ours, theirs)
        assert result.difference == pytest.approx(float(np.mean(ours - theirs)))
        assert result.p == pytest.approx(float(expected.pvalue))
        assert result.wins + result.ties + result.losses == int(chosen.sum())
    everyone = np.ones(len(compared.judged), dtype=np.bool_)
    assert compared.against_baseline("f0", "map", everyone) == compared.against_baseline("f0", "map")


def test_the_observer_is_told_of_every_ranker_of_every_fold_once_it_is_fitted() -> None:
    told: list[tuple[int, str]] = []
    scores: dict[tuple[int, str], Floats] = {}

    def observe(fold: Fold, name: str, ranker: Any) -> None:
        number = next(place for place, each in enumerate(FOLDS) if each is fold)
        told.append((number, name))
        scores[number, name] = ranker.predict(fold.test.candidates)

    fits: dict[str, Fit] = {**FITS, "plain": partial(untuned, 1)}
    compared = compare(fits, FOLDS, observe=observe)
    assert told == [(fold, name) for fold in range(2) for name in (*FITS, "plain")]
    for (fold, name), each in scores.items():
        assert np.array_equal(each, compared.trained[name][fold].scores)


def test_the_test_queries_come_fold_by_fold_without_their_features(compared: Compared) -> None:
    ids = [each for fold in FOLDS for each in fold.test.candidates.query_ids]
    assert list(compared.judged.candidates.query_ids) == ids
    assert compared.fold_of.tolist() == [0] * 8 + [1] * 8
    assert compared.judged.candidates.features.shape == (96, 0)


# Shares of a class


def test_class_shares_are_what_a_plain_loop_gives() -> None:
    rng = np.random.default_rng(0)
    members = np.where(rng.random((30, 40)) < 0.3, rng.random((30, 40)).round(2), 0.0)
    members[4] = 0.0
    names = [None, "a", "b", "c"]
    theirs, own = ([names[number] for number in rng.integers(0, 4, count)] for count in (40, 30))
    own[7] = "nowhere in training"
    found = class_shares(csr_array(members), theirs, own)
    for query in range(30):
        total = sum(members[query])
        same = sum(weight for weight, name in zip(members[query], theirs, strict=True) if name == own[query])
        if own[query] is None or total == 0:
            assert np.isnan(found[query])
        else:
            assert found[query] == pytest.approx(same / total)
    assert found[7] == 0


def test_class_shares_of_queries_without_a_class_are_unknown() -> None:
    assert np.isnan(class_shares(csr_array(np.ones((1, 2))), ["a", None], [None])).all()
    assert np.isnan(class_shares(csr_array(np.eye(2, 1)), [None], [None, None])).all()
    assert len(class_shares(csr_array((0, 2)), ["a", "b"], [])) == 0


def test_an_empty_class_name_is_no_class() -> None:
    # As `Compared.classes` has it; queries.jsonl may hold "class": "".
    shares = class_shares(csr_array(np.array([[1.0, 1.0], [1.0, 0.0]])), ["a", ""], ["", "a"])
    assert np.isnan(shares[0])
    assert shares[1] == 1.0


# Examples


def test_examples_are_the_largest_gain_the_largest_loss_and_the_middle_of_those_moved() -> None:
    fold = Fold(columns(1, 0), columns(2, 0), columns(3, 1, queries=40))
    compared = compare({"base": FITS["f0"], "other": FITS["f2"]}, [fold], measures=["ndcg@3", "map"])
    gain, loss, middle = examples(compared, "other", "map", top=4)
    gains = compared.evaluations["other"]["map"] - compared.evaluations["base"]["map"]
    moved = np.sort(gains[gains != 0])
    assert gains.min() < 0 < gains.max()
    found = [each.values[1] - each.values[0] for each in (gain, loss, middle)]
    assert found == pytest.approx([gains.max(), gains.min(), moved[len(moved) // 2]])
    assert [each.title for each in (gain, loss, middle)] == [
        "The largest gain",
        "The largest loss",
        "The middle of the queries that moved",
    ]


def test_an_example_shows_the_best_documents_of_both_with_their_grades() -> None:
    fold = Fold(columns(1, 0), columns(2, 0), columns(3, 1, queries=40))
    compared = compare({"base": FITS["f0"], "other": FITS["f2"]}, [fold], measures=["map"])
    test = fold.test
    gains = compared.evaluations["other"]["map"] - compared.evaluations["base"]["map"]
    query = int(np.argmax(gains))
    shown = examples(compared, "other", "map", top=4)[0]
    assert (shown.names, shown.measure) == (("base", "other"), "map")
    assert (shown.query, shown.kind) == (f"text of 3-{query}", test.classes[query])
    rows = np.arange(*test.candidates.rows(query).indices(len(test.labels)))
    for column, documents in zip((0, 2), shown.tops, strict=True):
        best = rows[np.argsort(-test.candidates.features[rows, column], kind="stable")][:4]
        assert documents == tuple((str(row + 1), int(test.labels[row])) for row in best)
    for name, value in zip(shown.names, shown.values, strict=True):
        table = evaluate(compared.scores[name], test, measures=["map"])
        assert value == table["map"][query]


def test_a_ranker_that_moves_nothing_has_no_example(compared: Compared) -> None:
    assert examples(compared, "f1", "map") == []


def test_queries_without_a_text_are_shown_by_their_id() -> None:
    folds = make_folds(make_judged(30, 6, 3))
    fits: dict[str, Fit] = {"base": lambda train, valid: RankSVM().fit(train), "f0": FITS["f0"]}
    shown = examples(compare(fits, folds), "f0", "map")
    assert shown
    assert {each.query for each in shown} <= {f"q{number}" for number in range(1, 31)}
    assert all(each.kind == "kind 1" for each in shown)
