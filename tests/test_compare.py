from __future__ import annotations

import io
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rich.console import Console
from scipy import stats

from querywise.data.folds import make_folds
from querywise.data.judged import Judged
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.evaluation.compare import compare
from querywise.evaluation.significance import paired_t_test
from querywise.evaluation.trained import Fit
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.report.terminal import comparison_table
from querywise.runtime.arrays import Floats


@given(arrays(np.float64, st.tuples(st.integers(2, 40), st.just(2)), elements=st.floats(0, 1, width=16)))
def test_the_t_test_is_scipys(values: Floats) -> None:
    ours, theirs = values[:, 0], values[:, 1]
    result = paired_t_test(ours, theirs)
    if np.ptp(ours - theirs) > 0:
        expected: Any = stats.ttest_rel(ours, theirs)
        assert result.p == pytest.approx(expected.pvalue, rel=1e-9, abs=1e-300)
    assert result.wins + result.ties + result.losses == len(ours)
    assert result.difference == pytest.approx(float(np.mean(ours - theirs)))


def test_two_copies_of_one_ranker_are_no_evidence() -> None:
    values = np.array([0.1, 0.5, 0.3])
    assert paired_t_test(values, values).p == 1.0


def test_values_of_different_queries_are_refused() -> None:
    with pytest.raises(DataError, match="same queries: 3 against 2"):
        paired_t_test(np.zeros(3), np.zeros(2))


def fit(l2: float, train: Judged, valid: Judged) -> RankSVM:
    return RankSVM(l2).fit(train)


def test_every_test_query_of_every_fold_is_counted_once() -> None:
    data = make_judged(50, 8, 4, noise=0.1)
    compared = compare({"strong": partial(fit, 1.0), "weak": partial(fit, 1e9)}, make_folds(data), measures=["map"])
    table = compared.evaluations["strong"]
    assert sorted(table.query_ids) == sorted(data.candidates.query_ids)
    assert compared.against_baseline("strong", "map").p == 1.0
    content: Any = compared.as_json()
    assert content["queries"] == 50
    assert content["methods"]["weak"]["p"]["map"] == compared.against_baseline("weak", "map").p
    screen = Console(file=io.StringIO(), width=120)
    screen.print(comparison_table(compared))
    assert isinstance(screen.file, io.StringIO)
    assert "50 test queries, flavour standard; p: paired t-test against strong" in screen.file.getvalue()


def test_a_planted_difference_is_found() -> None:
    class Backwards(RankSVM):
        def predict(self, candidates: Any, /) -> Floats:
            return -super().predict(candidates)

    data = make_judged(50, 8, 4, noise=0.1)
    fits: dict[str, Fit] = {"right": partial(fit, 1.0), "wrong": lambda train, valid: Backwards().fit(train)}
    result = compare(fits, make_folds(data), measures=["map"]).against_baseline("wrong", "map")
    assert result.difference < -0.2
    assert result.p < 1e-6


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(DataError, match="no ranker was given"):
        compare({}, [])
    with pytest.raises(DataError, match="no fold was given"):
        compare({"one": partial(fit, 1.0)}, [])
