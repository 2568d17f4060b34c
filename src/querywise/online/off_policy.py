"""Off-policy estimates: the clicks of another policy, from the log of a policy with known probabilities.

Every logged row, drawn with probability p, counts with the weight w = q / p, where q is the probability that the other
policy would have drawn it. With r the click:

    IPS = Σ w·r / n     SNIPS = Σ w·r / Σ w     clipped = Σ min(w, M)·r / n     DR = Σ (v + w·(r − m)) / n,

m a model's click rate of the drawn item and v its mean over what the other policy would draw. IPS and DR are unbiased
if p is right and above 0 wherever q is; clipping lowers the estimate and its variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints

QUANTILE = 0.99  # of the weights, above which they are clipped
_NORMAL = 1.959964  # the normal quantile of a 95 % interval
_FEW = 30  # effective clicks or draws, below which an interval is a rough guess
_COVERED = 0.95  # the share of the other policy's draws that the log must cover
_SMOOTHING = 1_000.0  # draws at the mean rate that are added to each item's own


class PolicyEstimate(NamedTuple):
    """An estimate with its 95 % interval, its effective number of clicks, and a warning if it is unreliable."""

    name: str
    value: float
    error: float
    low: float
    high: float
    clicks: float
    warning: str


def estimates(
    clicked: Bools | Floats, weights: Floats, predicted: Floats | None = None, expected: Floats | None = None
) -> tuple[PolicyEstimate, ...]:
    """Return every estimate of another policy's mean click, from rows that were drawn independently.

    Args:
        clicked: 0 or 1, or any reward.
        weights: q / p.
        predicted: m, for the doubly robust estimate; see `rates`.
        expected: v, for the doubly robust estimate; see `rates`.

    Each may have a column for each position of a page; then the clicks of a whole page are estimated.

    >>> clicks, weights = np.array([1.0, 0.0, 1.0, 0.0]), np.array([2.0, 0.0, 1.0, 1.0])
    >>> [round(each.value, 3) for each in estimates(clicks, weights)]
    [0.75, 0.75, 0.745]

    """
    reward, weight = (np.asarray(each, np.float64) for each in (clicked, weights))
    if not weight.size or reward.shape != weight.shape or not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise DataError(f"{weight.size} weights for {reward.size} rows; expected a weight of 0 or more for every row.")
    if not weight.any():
        raise DataError("The other policy would have chosen none of the logged actions, so it cannot be evaluated.")
    reward, weight = reward.reshape(len(reward), -1), weight.reshape(len(weight), -1)
    most, total = float(np.quantile(weight[weight > 0], QUANTILE)), np.maximum(weight.sum(axis=0), 1e-300)
    gained = weight * reward
    normalized = gained.sum(axis=0) / total
    parts = {
        "IPS": gained,
        "SNIPS": normalized + (gained - weight * normalized) * len(weight) / total,
        "clipped": np.minimum(weight, most) * reward,
    }
    if predicted is not None and expected is not None:
        parts["doubly robust"] = (expected + weights * (clicked - predicted)).reshape(reward.shape)
    clicks, draws = _effective(gained), _effective(weight)
    warning = _warning(clicks, draws, weight)
    return tuple(_estimate(name, each.sum(axis=1), clicks, warning) for name, each in parts.items())


def _estimate(name: str, parts: Floats, clicks: float, warning: str) -> PolicyEstimate:
    value = float(parts.mean())
    error = float(parts.std(ddof=1) / math.sqrt(len(parts))) if len(parts) > 1 else math.nan
    return PolicyEstimate(name, value, error, value - _NORMAL * error, value + _NORMAL * error, clicks, warning)


def _effective(weights: Floats) -> float:
    """Return how many rows of equal weight would carry as much information (Kish)."""
    squares = float((weights**2).sum())
    return float(weights.sum() ** 2 / squares) if squares else 0.0


def _warning(clicks: float, draws: float, weight: Floats) -> str:
    """Return why an estimate is unreliable; the mean weight is 1 if the log covers all of the other policy's draws."""
    covered, error = float(weight.mean()), float(weight.mean(axis=1).std() / math.sqrt(len(weight)))
    if covered + 3 * error < _COVERED:
        return f"about {1 - covered:.0%} of what it would show was never shown there, so its clicks are not in this"
    if clicks < _FEW:
        return f"rests on {clicks:.1f} clicks in effect; its interval is a rough guess"
    few = draws < max(_FEW, weight.size / 100)
    return f"rests on {draws:.0f} of {weight.size} draws in effect" if few else ""


def rates(clicked: Bools | Floats, item: Ints, chances: Floats) -> tuple[Floats, Floats]:
    """Fit click rates by item, for the doubly robust estimate; return m of the drawn items, and v.

    Args:
        clicked: 0 or 1, or any reward.
        item: The items drawn, from 0.
        chances: The probability of every item under the other policy, a row for each draw, or one for all.

    Rates are shrunk toward the mean, and those of each half of the rows are learned from the other half.

    """
    reward, halves = np.asarray(clicked, np.float64), np.arange(len(item)) % 2
    chances = np.atleast_2d(chances)
    predicted, expected = np.empty(len(item)), np.empty(len(item))
    for half in (0, 1):
        others, own = halves != half, halves == half
        mean = float(reward[others].mean()) if others.any() else 0.0
        clicks = np.bincount(item[others], reward[others], chances.shape[1])
        drawn = np.bincount(item[others], minlength=chances.shape[1])
        rate = (clicks + _SMOOTHING * mean) / (drawn + _SMOOTHING)
        predicted[own] = rate[item[own]]
        expected[own] = (chances[own] if len(chances) > 1 else chances) @ rate
    return predicted, expected


def page_weights(order: Sequence[str], shown: Sequence[str], chances: Sequence[float]) -> Floats:
    """Return weights by position for a ranker with this order: 1 / probability of a document that it shows there too.

    Positions with a different document get 0.
    """
    return np.array(
        [
            1 / chance if place < len(order) and order[place] == document and chance > 0 else 0.0
            for place, (document, chance) in enumerate(zip(shown, chances, strict=True))
        ]
    )
