"""Score normalisation across lists: min-max, z-scores, ranks, Borda counts; and as engines do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from querywise.runtime.arrays import Floats


def minmax(scores: Floats) -> Floats:
    """From 1/n for the worst of n scores to 1 for the best; 1 for all where they are the same.

    >>> minmax(np.array([10.0, 40.0, 20.0, 30.0])).tolist()
    [0.25, 1.0, 0.5, 0.75]
    """
    last = 1 / len(scores)
    return _in_order(scores, lambda levels: last + (1 - last) * _spread_out(levels))


def zscore(scores: Floats) -> Floats:
    """Standard deviations above the score one mean step below the worst; 1 for all where they are the same.

    >>> zscore(np.array([1.0, 3.0])).tolist()
    [2.0, 4.0]
    """
    deviation = float(np.std(_spread_out(scores)))
    step = 1 / max(len(scores) - 1, 1)
    return _in_order(scores, lambda levels: (_spread_out(levels) + step) / deviation if deviation else levels * 0 + 1)


def by_rank(scores: Floats) -> Floats:
    """(n + 1 − rank)/n of n scores; equal ones share their mean rank.

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
_LEAST = 0.001  # what OpenSearch gives a document of a list in the place of 0


def opensearch_min_max(scores: Floats) -> Floats:
    """OpenSearch's `min_max`: (s − min)/(max − min), 0.001 in the place of 0, 1 for all where they are the same.

    As in MinMaxScoreNormalizer of the plugin neural-search, which computes in 32 bits.

    >>> opensearch_min_max(np.array([9.0, 5.0, 1.0])).tolist()
    [1.0, 0.5, 0.001]
    """
    spread = _spread_out(scores)
    return np.where(spread == 0, _LEAST, spread)


def l2(scores: Floats) -> Floats:
    """OpenSearch's `l2`, Elasticsearch's `l2_norm`: s/√Σs²; 0 for all where every score is 0.

    >>> l2(np.array([3.0, 4.0])).tolist()
    [0.6, 0.8]
    """
    largest = float(np.abs(scores).max(initial=0.0))
    if largest == 0:
        return np.zeros(len(scores))
    shares = scores / largest  # squares of these neither overflow nor vanish
    return shares / float(np.sqrt(np.sum(shares * shares)))


def z_score(scores: Floats) -> Floats:
    """OpenSearch's `z_score`: (s − mean)/deviation, 0.001 in the place of 0 and of what is below.

    The deviation is that of a sample, with n − 1 below. A score that equals the mean in 32 bits gets the highest score
    as it stands: as in ZScoreNormalizer of the plugin neural-search. So do lists of one document.

    >>> z_score(np.array([8.0, 2.0, 1.0, 1.0])).round(4).tolist()
    [1.4852, 0.001, 0.001, 0.001]
    """
    size = max(float(np.abs(scores).max(initial=0.0)), np.finfo(np.float64).tiny)
    away = scores / size - float(np.mean(scores / size))
    deviation = float(np.sqrt(np.sum(away * away) / max(len(scores) - 1, 1)))
    with np.errstate(over="ignore"):  # beyond 32 bits: no engine has such scores
        level = scores.astype(np.float32) == np.float32(np.mean(scores / size) * size)
    found = np.maximum(away / deviation, _LEAST) if deviation > 0 else np.full(len(scores), scores.min())
    return np.where(level, scores.max(), np.where(found > 0, found, _LEAST))


def reciprocal_ranks(ranks: Floats) -> Floats:
    """1/(60 + rank): weighted sums of these are the weighted reciprocal rank fusion of engines."""
    return 1 / (RANK_CONSTANT + ranks)


EngineNormalisation = Literal["opensearch-min-max", "l2", "z-score", "rank"]
_OF_SCORES: dict[str, Callable[[Floats], Floats]] = {
    "opensearch-min-max": opensearch_min_max,
    "l2": l2,
    "z-score": z_score,
}
ENGINE_NORMALISATIONS = (*_OF_SCORES, "rank")


def as_in_engine(normalise: str, scores: Floats, ranks: Floats) -> Floats:
    """The scores of one list, not empty, as an engine normalises them; its ranks, from 1, count for `rank` alone."""
    return reciprocal_ranks(ranks) if normalise == "rank" else _OF_SCORES[normalise](scores)


def _spread_out(levels: Floats) -> Floats:
    """From 0 for the lowest to 1 for the highest; 1 for all where they are the same."""
    low, high = levels.min() / 2, levels.max() / 2  # halves, so that the largest numbers do not overflow
    return (levels / 2 - low) / (high - low) if high > low else np.ones(len(levels))


def _in_order(scores: Floats, scale: Callable[[Floats], Floats]) -> Floats:
    """Scores on another scale, different ones still different: a long tail of tiny scores keeps its order."""
    levels, place = np.unique(scores, return_inverse=True)
    values = scale(levels)
    for level in range(1, len(values) if np.any(np.diff(values) <= 0) else 0):
        values[level] = max(values[level], np.nextafter(values[level - 1], np.inf))
    return values[place]


def borda(scores: Floats) -> Floats:
    """For each of one query's documents, how many score strictly less, less how many score strictly more.

    >>> borda(np.array([0.5, 2.0, 0.5, 1.0]))
    array([-2.,  3., -2.,  1.])
    """
    ranked = np.sort(scores)
    below = np.searchsorted(ranked, scores, side="left")
    not_above = np.searchsorted(ranked, scores, side="right")
    return (below + not_above - len(scores)).astype(np.float64)
