"""An engine's arithmetic: which side of a threshold a value falls on, and how far its order is ours."""

from __future__ import annotations

import numpy as np
import pytest

from querywise.contracts.forms import Forest, Leaf, Linear, Split
from querywise.data.judged import Candidates
from querywise.exports.arithmetic import Arithmetic, Exactness, exactness, floor32
from querywise.exports.models import Exported, NamedModel
from querywise.runtime.arrays import Floats

SINGLE = Arithmetic(np.float32, floor32)
DOUBLE = Arithmetic(np.float64, float)
LARGE = 2.0**24  # 32-bit numbers from here on are 2 apart
# Two of the first query's documents are alike; 32 bits lose two steps of 1, and round one of 1.5 up.
ROWS = np.array([[LARGE, 1.0, 1.0], [LARGE, 1.5, 0.0], [LARGE, 1.0, 1.0], [2.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
DOCUMENTS = Candidates(ROWS, np.array([0, 3, 5]), ("a", "b"))


def summing(weight: float) -> Exported:
    weights = np.full(3, weight)

    def own(features: Floats) -> Floats:
        return np.asarray(features @ weights)

    return Exported(("x", "y", "z"), (NamedModel("sum", -1, "every query", Linear(weights), own),))


def test_an_order_that_rounding_turns_round_is_counted_within_queries_and_among_different_scores() -> None:
    assert exactness(summing(0.125), DOCUMENTS, SINGLE) == Exactness(1, 5, 0, pairs=2, swapped=1)
    assert exactness(summing(0.125), DOCUMENTS, DOUBLE) == Exactness(1, 5, 0, pairs=2, swapped=0)


@pytest.mark.parametrize("arithmetic", [SINGLE, DOUBLE])
def test_a_value_at_the_threshold_goes_low(arithmetic: Arithmetic) -> None:
    forest = Forest((Split(0, 0.5, Leaf(1.0), Leaf(2.0)),))
    just_above = float(np.nextafter(np.float32(0.5), np.float32(1)))
    assert arithmetic.scores(forest, np.array([[0.5], [just_above], [0.0]])).tolist() == [1.0, 2.0, 1.0]


def test_a_score_that_is_rounded_at_the_end_may_differ_in_proportion_to_itself() -> None:
    rounded = Arithmetic(np.float32, floor32, wider=np.float64)
    features = np.array([[1e-3], [1.0], [1e3]])
    bound = rounded.tolerance(Linear(np.ones(1)), features) / features[:, 0]
    assert (bound > np.finfo(np.float32).eps / 2).all()
    assert (bound < 4 * np.finfo(np.float32).eps).all()
