"""Normalisation as engines do it. Values are worked out by hand from OpenSearch's sources and its own tests.

Sources: github.com/opensearch-project/neural-search, src/main/java/org/opensearch/neuralsearch/processor/normalization,
MinMaxScoreNormalizer, L2ScoreNormalizer, ZScoreNormalizer and RRFScoreNormalizer, and their tests.
"""

from __future__ import annotations

import numpy as np
import pytest

from querywise.data.normalisation import (
    ENGINE_NORMALISATIONS,
    as_in_engine,
    l2,
    opensearch_min_max,
    reciprocal_ranks,
    z_score,
)
from querywise.runtime.arrays import Floats


def floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((2.0, 1.5, 1.0), (1.0, 0.5, 0.001)),  # testNormalizeSingleScore_unbounded and …_zeroResultFloorsToMinScore
        ((0.7,), (1.0,)),  # testNormalizeSingleScore_singleScoreEdgeCase_returnsOne
        ((3.0, 3.0), (1.0, 1.0)),
        ((10.0, 0.001, 0.0), (1.0, 0.0001, 0.001)),  # the floor replaces 0 alone, and may overtake what is just above
    ],
)
def test_min_max_is_opensearchs(scores: tuple[float, ...], expected: tuple[float, ...]) -> None:
    assert opensearch_min_max(floats(*scores)) == pytest.approx(expected, rel=1e-12)


def test_l2_is_opensearchs() -> None:
    assert l2(floats(3.0, 4.0)) == pytest.approx([0.6, 0.8], rel=1e-15)  # testL2Norm_isRootOfSumOfSquares
    assert l2(floats(0.0, 0.0)).tolist() == [0.0, 0.0]  # testNormalizeSingleScore_zeroNorm_returnsMinScore
    assert l2(floats(3e200, 4e200)) == pytest.approx([0.6, 0.8], rel=1e-15)


def test_z_score_is_opensearchs() -> None:
    # testStatsAccumulator_exposesMeanStandardDeviationMaxAndMin: mean 5.6666665, sample deviation 3.2145503.
    found = z_score(floats(2.0, 7.0, 8.0))
    assert found == pytest.approx([0.001, (7 - 17 / 3) / 3.2145503, (8 - 17 / 3) / 3.2145503], rel=1e-7)


def test_a_score_at_the_mean_gets_the_highest_raw_score_as_in_opensearch() -> None:
    # testNormalizeSingleScore_scoreEqualsMean_returnsMax: max 9 of scores with mean 5.
    assert z_score(floats(9.0, 5.0, 1.0)) == pytest.approx([1.0, 9.0, 0.001])
    assert z_score(floats(4.0)).tolist() == [4.0]  # a list of one is its own mean
    assert z_score(floats(4.0, 4.0)).tolist() == [4.0, 4.0]


def test_ranks_are_those_of_reciprocal_rank_fusion() -> None:
    # scoreForRank(rank from 0, 60) = 1 / (60 + rank + 1), rounded there to ten decimals.
    assert reciprocal_ranks(floats(1, 2, 40)) == pytest.approx([0.0163934426, 0.0161290323, 0.01], abs=5e-11)


@pytest.mark.parametrize("normalise", ENGINE_NORMALISATIONS)
@pytest.mark.parametrize("scores", [(1e300, -1e300, 5.0), (1e-300, 2e-300), (0.0,), (-3.0, -1.0, -2.0)])
def test_no_list_makes_a_number_that_is_not_finite(normalise: str, scores: tuple[float, ...]) -> None:
    found = as_in_engine(normalise, floats(*scores), floats(*range(1, len(scores) + 1)))
    assert found.shape == (len(scores),)
    assert np.isfinite(found).all()
