"""Score normalization across lists: min-max, z-scores, ranks, Borda counts, and the variants of engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from querywise.runtime.arrays import Floats


def minmax(scores: Floats) -> Floats:
    """Scale n scores to 1/n for the worst … 1 for the best; if all are equal, to 1.

    >>> minmax(np.array([10.0, 40.0, 20.0, 30.0])).tolist()
    [0.25, 1.0, 0.5, 0.75]
    """
    last = 1 / len(scores)
    return _in_order(scores, lambda levels: last + (1 - last) * _spread_out(levels))


def zscore(scores: Floats) -> Floats:
    """Return standard deviations above the point one mean step below the worst score; 1 if all are equal.

    >>> zscore(np.array([1.0, 3.0])).tolist()
    [2.0, 4.0]
    """
    deviation = float(np.std(_spread_out(scores)))
    step = 1 / max(len(scores) - 1, 1)
    return _in_order(scores, lambda levels: (_spread_out(levels) + step) / deviation if deviation else levels * 0 + 1)


def by_rank(scores: Floats) -> Floats:
    """Return (n + 1 − rank)/n for each of n scores; ties share their mean rank.

    >>> by_rank(np.array([7.0, 3.0, 3.0, 1.0])).tolist()
    [1.0, 0.625, 0.625, 0.25]
    """
    return (len(scores) + 1 + borda(scores)) / (2 * len(scores))


NORMALISATIONS: dict[str, Callable[[Floats], Floats]] = {
    "minmax": minmax,
    "zscore": zscore,
    "rank": by_rank,
    "none": lambda scores: scores,
}


RANK_CONSTANT = 60  # of reciprocal rank fusion, in OpenSearch and Elasticsearch
_LEAST = 0.001  # OpenSearch's replacement for 0


def opensearch_min_max(scores: Floats) -> Floats:
    """Normalize like OpenSearch's `min_max`: (s − min)/(max − min), with 0.001 instead of 0; 1 if all are equal.

    See MinMaxScoreNormalizer of the plugin neural-search, which computes in 32 bits.

    >>> opensearch_min_max(np.array([9.0, 5.0, 1.0])).tolist()
    [1.0, 0.5, 0.001]
    """
    spread = _spread_out(scores)
    return np.where(spread == 0, _LEAST, spread)


def l2(scores: Floats) -> Floats:
    """Normalize like OpenSearch's `l2` and Elasticsearch's `l2_norm`: s/√Σs²; 0 if every score is 0.

    >>> l2(np.array([3.0, 4.0])).tolist()
    [0.6, 0.8]
    """
    largest = float(np.abs(scores).max(initial=0.0))
    if largest == 0:
        return np.zeros(len(scores))
    shares = scores / largest  # squares of these neither overflow nor underflow
    return shares / float(np.sqrt(np.sum(shares * shares)))


def z_score(scores: Floats) -> Floats:
    """Normalize like OpenSearch's `z_score`: (s − mean)/deviation, with 0.001 instead of 0 and less.

    The deviation is that of a sample, with divisor n − 1. A score that equals the mean in 32 bits gets the highest raw
    score, as in ZScoreNormalizer of the plugin neural-search. So does the score of a single document.

    >>> z_score(np.array([8.0, 2.0, 1.0, 1.0])).round(4).tolist()
    [1.4852, 0.001, 0.001, 0.001]
    """
    size = max(float(np.abs(scores).max(initial=0.0)), np.finfo(np.float64).tiny)
    away = scores / size - float(np.mean(scores / size))
    deviation = float(np.sqrt(np.sum(away * away) / max(len(scores) - 1, 1)))
    with np.errstate(over="ignore"):  # scores beyond 32 bits do not occur in engines
        level = scores.astype(np.float32) == np.float32(np.mean(scores / size) * size)
    found = np.maximum(away / deviation, _LEAST) if deviation > 0 else np.full(len(scores), scores.min())
    return np.where(level, scores.max(), np.where(found > 0, found, _LEAST))


def reciprocal_ranks(ranks: Floats) -> Floats:
    """Return 1/(60 + rank); weighted sums of these are the weighted reciprocal rank fusion of engines."""
    return 1 / (RANK_CONSTANT + ranks)


EngineNormalisation = Literal["opensearch-min-max", "l2", "z-score", "rank"]
_OF_SCORES: dict[str, Callable[[Floats], Floats]] = {
    "opensearch-min-max": opensearch_min_max,
    "l2": l2,
    "z-score": z_score,
}
ENGINE_NORMALISATIONS = (*_OF_SCORES, "rank")


def as_in_engine(normalise: str, scores: Floats, ranks: Floats) -> Floats:
    """Normalize the scores of one non-empty list like an engine; ranks, from 1, are used by `rank` only."""
    return reciprocal_ranks(ranks) if normalise == "rank" else _OF_SCORES[normalise](scores)


def _spread_out(levels: Floats) -> Floats:
    """Scale to 0 for the lowest … 1 for the highest; 1 if all are equal."""
    low, high = levels.min() / 2, levels.max() / 2  # halves, so that the largest numbers do not overflow
    return (levels / 2 - low) / (high - low) if high > low else np.ones(len(levels))


def _in_order(scores: Floats, scale: Callable[[Floats], Floats]) -> Floats:
    """Rescale scores so that distinct ones stay distinct: a long tail of tiny scores keeps its order."""
    levels, place = np.unique(scores, return_inverse=True)
    values = scale(levels)
    for level in range(1, len(values) if np.any(np.diff(values) <= 0) else 0):
        values[level] = max(values[level], np.nextafter(values[level - 1], np.inf))
    return values[place]


def borda(scores: Floats) -> Floats:
    """Return for each document of a query how many score strictly lower, minus how many score strictly higher.

    >>> borda(np.array([0.5, 2.0, 0.5, 1.0]))
    array([-2.,  3., -2.,  1.])
    """
    ranked = np.sort(scores)
    below = np.searchsorted(ranked, scores, side="left")
    not_above = np.searchsorted(ranked, scores, side="right")
    return (below + not_above - len(scores)).astype(np.float64)
