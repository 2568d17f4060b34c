"""Prediction-powered estimates: the mean of a few human values, made surer by cheap values of many more queries.

With h the human value of each of n queries, drawn at random from N, and c the cheap value of all N:

    θ̂ = λ · mean_all(c) + mean_human(h − λ c)

is unbiased for every λ, whatever the cheap values are. With s²(c) over all queries, and s²(e) and s(c, e) of
e = h − λ c over the human ones, which are among all,

    s²(θ̂) = λ² s²(c) / N + s²(e) / n + 2 λ s(c, e) / N.

λ = s(h, c) / s²(c), cut to [0, 1], makes it smallest; λ = 0 is the human values alone. Intervals and tests are
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

    interval: holds the true mean in 95 of 100 samples of queries. weight: λ, what the cheap values count. human, cheap:
    the mean of the human values alone, and of the cheap ones of all queries. worth: the number of human queries that
    would give the same error without cheap values.
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
    """Estimate the mean human value over the queries that the cheap values are of.

    human: the values of the human queries. cheap: those of all queries. chosen: which of all are the human ones.
    weight: λ; None: the best by these values.

    >>> found = estimate(np.array([0.2, 0.6, 0.7]), np.array([0.3, 0.5, 0.8, 0.4, 0.6]), np.array([0, 1, 2]))
    >>> round(found.value, 3), round(found.weight, 3)
    (0.487, 0.947)
    >>> round(estimate(np.array([0.2, 0.6, 0.7]), np.ones(5), np.array([0, 1, 2])).value, 3)  # tells nothing: λ = 0
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
