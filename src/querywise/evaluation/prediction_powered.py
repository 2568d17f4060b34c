"""Prediction-powered estimates: the mean of a few human values, made more precise by cheap values of many queries.

With h the human value of each of n queries, drawn at random from N, and c the cheap value of all N:

    θ̂ = λ · mean_all(c) + mean_human(h − λ c)

is unbiased for every λ, whatever the cheap values are. With s²(c) over all queries, and s²(e) and s(c, e) of
e = h − λ c over the human ones, which are among all,

    s²(θ̂) = λ² s²(c) / N + s²(e) / n + 2 λ s(c, e) / N.

λ = s(h, c) / s²(c), clipped to [0, 1], minimizes it; λ = 0 uses the human values alone. Intervals and tests are
Student's with n − 1 degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints

CONFIDENCE = 0.95


@dataclass(frozen=True)
class MeanEstimate:
    """A mean over queries, or a mean difference, with its standard error.

    Attributes:
        interval: The 95 % confidence interval of the true mean.
        weight: λ, the weight of the cheap values.
        human, cheap: The mean of the human values alone, and that of the cheap values of all queries.
        worth: The number of human queries that would give the same error without cheap values.

    """

    value: float
    error: float
    interval: tuple[float, float]
    p: float
    weight: float
    human: float
    cheap: float
    worth: float


def estimate(human: Floats, cheap: Floats, chosen: Ints, *, weight: float | None = None) -> MeanEstimate:
    """Estimate the mean human value over all queries that have a cheap value.

    Args:
        human: The values of the human queries.
        cheap: The values of all queries.
        chosen: The indices of the human queries among all.
        weight: λ; None is the best for these values.

    Returns:
        The estimate with its error, interval and p.

    >>> found = estimate(np.array([0.2, 0.6, 0.7]), np.array([0.3, 0.5, 0.8, 0.4, 0.6]), np.array([0, 1, 2]))
    >>> round(found.value, 3), round(found.weight, 3)
    (0.487, 0.947)
    >>> round(estimate(np.array([0.2, 0.6, 0.7]), np.ones(5), np.array([0, 1, 2])).value, 3)  # constant: λ = 0
    0.5

    """
    from scipy.special import stdtr, stdtrit  # scipy.stats takes a second to import

    count, every = len(human), len(cheap)
    if len(chosen) != count or count < 2:
        raise DataError(f"{count} human values of {len(chosen)} queries; a mean and its error need two or more.")
    own = cheap[chosen]
    if weight is None:
        spread = float(own.var(ddof=1))
        best = float(np.cov(human, own)[0, 1]) / spread if spread > 0 else 0.0
        weight = min(max(best, 0.0), 1.0)
    rest = human - weight * own
    value = weight * float(cheap.mean()) + float(rest.mean())
    shared = float(np.cov(own, rest)[0, 1])
    variance = weight**2 * float(cheap.var(ddof=1)) / every + float(rest.var(ddof=1)) / count
    error = float(np.sqrt(max(variance + 2 * weight * shared / every, 0.0)))
    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * error
    p = float(2 * stdtr(count - 1, -abs(value) / error)) if error > 0 else float(value == 0)
    worth = float(human.var(ddof=1)) / error**2 if error > 0 else float(count)
    means = float(human.mean()), float(cheap.mean())
    return MeanEstimate(value, error, (value - half, value + half), p, weight, *means, worth)
