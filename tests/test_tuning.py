from __future__ import annotations

from typing import Any, Self

import numpy as np
import pytest

from querywise.data.judged import Candidates, Judged
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.evaluation import tuning
from querywise.evaluation.tuning import TunedFit, cross_validate, tune, tune_or_fit
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.methods import METHODS, find_method, parse_settings
from querywise.report.terminal import trials_table
from querywise.runtime.arrays import Floats


class OneColumn:
    """Ranks by one column: which one is best is plain to see."""

    def __init__(self, column: int = 0, sign: float = 1.0) -> None:
        self.column = column
        self.sign = sign

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> OneColumn:
        return self

    def predict(self, candidates: Candidates, /) -> Floats:
        return self.sign * candidates.features[:, self.column]


@pytest.fixture
def data() -> Judged:
    """Column 1 is the label itself; the others are noise."""
    made = make_judged(20, 10, 3)
    features = made.candidates.features.copy()
    features[:, 1] = made.labels
    return Judged(Candidates(features, made.candidates.starts, made.candidates.query_ids), made.labels)


def test_the_best_on_validation_wins_and_everything_tried_is_remembered(data: Judged) -> None:
    tuned = tune(OneColumn, {"column": [0, 1, 2], "sign": [-1.0, 1.0]}, train=data, valid=data, measure="ndcg@5")
    assert tuned.parameters == {"column": 1, "sign": 1.0}
    assert tuned.ranker.column == 1
    assert [trial.parameters["column"] for trial in tuned.tried] == [0, 0, 1, 1, 2, 2]
    assert max(trial.value for trial in tuned.tried) == 1.0


def test_the_first_of_equals_wins(data: Judged) -> None:
    assert tune(OneColumn, {"column": [1], "sign": [2.0, 1.0, 3.0]}, train=data, valid=data).parameters["sign"] == 2.0


def test_an_empty_grid_is_one_setting(data: Judged) -> None:
    assert len(tune(OneColumn, {}, train=data, valid=data).tried) == 1


def test_without_validation_data_the_defaults_and_what_is_fixed_hold(data: Judged) -> None:
    tuned = tune_or_fit(RankSVM, {"l2": [1, 2, 3]}, fixed={"l2": 0.25}, train=data, valid=None)
    assert tuned.ranker.l2 == 0.25
    assert tuned.tried == ()
    assert tuned.as_notes()["chosen_by"] is None


def test_what_is_fixed_is_taken_out_of_the_grid(data: Judged) -> None:
    tuned = tune_or_fit(OneColumn, {"column": [0, 1, 2]}, fixed={"column": 2}, train=data, valid=data)
    assert [trial.parameters for trial in tuned.tried] == [{"column": 2}]


def test_every_method_builds_every_point_of_its_grid() -> None:
    for method in METHODS.values():
        for name, values in method.grid.items():
            assert name in method.settings
            for value in values:
                assert hasattr(method.build(**{name: value}), "fit")
        assert method.description[0].islower()
        assert not method.description.endswith(".")


def test_an_unknown_method_is_named_with_the_known_ones() -> None:
    with pytest.raises(
        DataError, match=r"Unknown method 'svm'\. Known: bm25, vectors, vectors-adapted, ranksvm, lambdamart"
    ):
        find_method("svm")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("l2=0.3", {"l2": 0.3}),
        ("l2=3", {"l2": 3}),
        ("loss=hinge", {"loss": "hinge"}),
        ("tolerance=null", {"tolerance": None}),
    ],
)
def test_settings_are_read_as_what_they_look_like(text: str, value: dict[str, Any]) -> None:
    assert parse_settings(find_method("ranksvm"), [text]) == value


@pytest.mark.parametrize(
    ("method", "text", "words"),
    [
        ("ranksvm", "lambda=3", "lambda=3: this is not a setting of ranksvm. Known: l2, loss"),
        ("ranksvm", "l2", "l2: this is not a setting"),
        ("ranksvm", "l2=abc", "l2=abc: expected a number"),
        ("lambdamart", "leaves=1.5", "leaves=1.5: expected a whole number"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(method: str, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        parse_settings(find_method(method), [text])


def test_made_up_data_is_the_same_every_time() -> None:
    assert np.array_equal(make_judged(3, 4, 5).candidates.features, make_judged(3, 4, 5).candidates.features)


def test_the_table_of_what_was_tried_says_where_its_figures_come_from() -> None:
    data = make_judged(20, 6, 3)
    train, valid = data.select(range(10)), data.select(range(10, 20))
    grid = {"l2": (0.1, 1.0)}
    held_out = tune(METHODS["ranksvm"].build, grid, train=train, valid=valid)
    crossed = cross_validate(METHODS["ranksvm"].build, grid, fixed={}, data=data, folds=2)
    headings = [str(trials_table(each).columns[-1].header) for each in (held_out, crossed)]
    assert headings == ["map on valid", "map by cross-validation"]


def test_of_many_queries_a_grid_is_tried_on_some_and_the_best_fitted_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    train, valid = make_judged(60, 8, 3, seed=1), make_judged(40, 8, 3, seed=2)
    seen: list[tuple[int, int]] = []

    class Watched(RankSVM):
        def fit(self, data: Judged, /, **others: Any) -> Self:  # type: ignore[override]
            seen.append((len(data), len(others["valid"])))
            return super().fit(data)

    fitting = TunedFit(Watched, {"l2": [0.1, 1.0]})
    fitting(train, valid)
    assert seen == [(60, 40)] * 2, "so few are all tried"
    monkeypatch.setattr(tuning, "MOST_TRIED", 30)
    monkeypatch.setattr(tuning, "SAMPLED", 30)
    monkeypatch.setattr(tuning, "MEASURED", 15)
    seen.clear()
    found = fitting(train, valid)
    assert seen == [(30, 15), (30, 15), (60, 40)]
    assert len(found.tried) == 2
    again = RankSVM(l2=float(str(found.parameters["l2"]))).fit(train)
    assert np.array_equal(found.ranker.weights_, again.weights_)
    seen.clear()
    TunedFit(Watched, {"l2": [0.1, 1.0]}, fixed={"l2": 1.0})(train, valid)
    assert seen == [(60, 40)], "nothing is chosen"
