"""The certificate of a model: F is strongly convex, so that F(w) is at most ‖∇F(w)‖² / (2(λ+μ)) above its minimum.

Losses and gradients may be summed in single precision, with an allowance for rounding errors. u = 2⁻²⁴ bounds the
relative error of one operation, and a sum of n terms, in any order, is off by at most n u times the sum of their sizes.
Let R be the largest norm of a centerd row, n the length of the longest list, d the number of features, and v̄ the mean
of v = max(0, 1 − t) over the pairs, which is at most √loss. Then, up to terms in u²,

    a score is off by (d + 2) u R‖w‖, and v by at most η = 2 (d + 4) u R‖w‖ + 2 u,
    the gradient, the mean of 2 v (x_b − x_a), by at most 4 R (η + 2 (n + 2) u v̄),
    the loss, the mean of v², by at most v̄ (2 (n + 5) u (1 + R‖w‖) + 2 η) + η².
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar, cast

import numpy as np

from querywise.learners.ranksvm.newton import Ridge
from querywise.learners.ranksvm.preferences import Preferences, query_ranges, total
from querywise.learners.ranksvm.systems import Spread
from querywise.learners.weights import WeightRows
from querywise.runtime.arrays import Floats, Ints, Singles, for_kernels
from querywise.runtime.threads import in_threads

MANY = 16  # from this many models on, all are processed together rather than one by one
_UNIT = 2.0**-24
_SPARE = 1.1  # for the terms in u², and because v̄ is known only from rounded losses
_ALIGNED = 8  # columns: this many numbers are multiplied at a time
_Number = TypeVar("_Number", Floats, float)

# per model: an upper bound on F's distance from its minimum, a lower bound on F, and ∇F
Gaps = tuple[Floats, Floats, Floats]


class Extent(NamedTuple):
    """The largest norm of a centered row, and the length of the longest list."""

    radius: float
    longest: int


def errors(norms: _Number, losses: _Number, columns: int, extent: Extent) -> tuple[_Number, _Number]:
    """Return bounds on the errors of losses and of the gradient's norm, for models of these norms."""
    radius, longest = extent
    reach = radius * norms
    mean = abs(losses) ** 0.5
    off = 2 * _UNIT * ((columns + 4) * reach + 1)
    losses_off = mean * (2 * (longest + 5) * _UNIT * (1 + reach) + 2 * off) + off**2
    return _SPARE * losses_off, _SPARE * 4 * radius * (off + 2 * (longest + 2) * _UNIT * mean)


class Objective(NamedTuple):
    """A lower bound on a model's losses, their gradient, and a bound on the error of its norm."""

    losses: float
    gradient: Floats
    off: float


class RoundedRows(NamedTuple):
    """The rows of preferences in single precision, centered per query, which changes no margin.

    Columns of zeros pad their number to one that multiplies fastest.
    """

    features: Singles
    extent: Extent

    @staticmethod
    def of(pairs: Preferences) -> RoundedRows:
        """Return the rows of all queries."""
        (rows, columns), sizes = pairs.features.shape, np.diff(pairs.starts)
        features = np.zeros((rows, columns + -columns % _ALIGNED), np.float32)
        largest = 0.0
        for begin, end in zip(pairs.starts[:-1].tolist(), pairs.starts[1:].tolist(), strict=True):
            if end > begin:
                own = pairs.features[begin:end]
                centred = own - own.mean(axis=0)
                largest = max(largest, float(np.einsum("ij,ij->i", centred, centred).max()))
                features[begin:end, :columns] = centred
        return RoundedRows(features, Extent(math.sqrt(largest), int(sizes.max(initial=0))))

    def objective(self, pairs: Preferences, queries: Ints, shares: Floats, weights: Floats) -> Objective:
        """Return the objective of one model over some queries, with their shares."""
        from querywise.learners.ranksvm import local_kernels

        gradient, (_, levels, starts, counts) = np.zeros(len(weights)), pairs.for_kernels()
        rounded = np.zeros(self.features.shape[1], np.float32)
        rounded[: len(weights)] = weights
        losses = local_kernels.rounded_objective(
            cast("Floats", self.features), levels, starts, counts, queries, shares, cast("Floats", rounded), gradient
        )
        off, gradient_off = errors(math.sqrt(weights @ weights), losses, len(weights), self.extent)
        return Objective(losses - off, gradient, gradient_off)


def objective_sums(pairs: Preferences, shares: WeightRows, weights: Floats) -> tuple[Floats, Floats]:
    """Return a part's contribution to the objectives and gradients of some models."""
    from querywise.learners.ranksvm import kernels

    features, levels, starts, counts = pairs.for_kernels()
    models = for_kernels(weights)
    if len(shares) < MANY:  # for few models, threads cost more than they save
        values, gradient = np.zeros(len(weights)), np.zeros_like(weights)
        for number in range(len(shares)):
            queries, share = shares.row(number)
            values[number] = kernels.model_objective(
                features, levels, starts, counts, queries, share, models[number], gradient[number]
            )
        return values, gradient
    values, gradient, _ = _sums_of_many(pairs, shares, models)
    return values, gradient


def single_sums(pairs: Preferences, shares: WeightRows, weights: Floats) -> tuple[Floats, Floats, Extent]:
    """Return the same in single precision, and the extent of the rows, which bounds the error."""
    values, gradient, largest = _sums_of_many(pairs, shares, for_kernels(weights).astype(np.float32))
    return values, gradient, Extent(float(np.sqrt(largest)), int(np.diff(pairs.starts).max(initial=0)))


def _sums_of_many(pairs: Preferences, shares: WeightRows, models: Floats | Singles) -> tuple[Floats, Floats, float]:
    """Return losses and gradients of many models, in the models' precision, and the largest squared norm of a row."""
    from querywise.learners.ranksvm import kernels

    features, levels, starts, counts = pairs.for_kernels()
    by_query = shares.by_query()

    def part(queries: range) -> tuple[Floats, Floats, float]:
        values, gradient = np.zeros(len(models)), np.zeros(models.shape)
        largest = kernels.model_objectives(
            features, levels, starts, counts, by_query.pointers, by_query.queries, by_query.shares,
            cast("Floats", models), queries.start, queries.stop, values, gradient,
        )  # fmt: skip
        return values, gradient, largest

    parts = in_threads(part, query_ranges(pairs.starts))
    return total([each[0] for each in parts]), total([each[1] for each in parts]), max(each[2] for each in parts)


def gaps(spread: Spread, shares: WeightRows, weights: Floats, ridge: Ridge) -> Gaps:
    """Return the gaps of models, from objectives and gradients on the queries that each has a share in."""
    parts = spread.workers.each(objective_sums, *spread.asked(spread.pairs, shares), shared=(weights,))
    values, gradient = _ridges(weights, ridge)
    for each in parts:
        values += each[0]
        gradient += each[1]
    return _squares(gradient) / (2 * ridge.strength), values, gradient


def gaps_if_rounded(spread: Spread, shares: WeightRows, weights: Floats, ridge: Ridge) -> Gaps:
    """Return the same from single precision: an upper bound on the gap, and a lower bound on F."""
    parts = spread.workers.each(single_sums, *spread.asked(spread.pairs, shares), shared=(weights,))
    losses, (values, gradient) = total([each for each, _, _ in parts]), _ridges(weights, ridge)
    extent = Extent(*(max(each) for each in zip(*(each for _, _, each in parts), strict=True)))
    losses_off, gradient_off = errors(np.sqrt(_squares(weights)), losses, weights.shape[1], extent)
    gradient += total([each for _, each, _ in parts])
    most = (np.sqrt(_squares(gradient)) + gradient_off) ** 2
    return most / (2 * ridge.strength), values + losses - losses_off, gradient


def _ridges(weights: Floats, ridge: Ridge) -> tuple[Floats, Floats]:
    """Return the penalties' contributions to the objectives and to their gradients."""
    away = weights - ridge.centre
    values = 0.5 * ridge.l2 * _squares(weights)
    values += 0.5 * ridge.centre_l2 * _squares(away)
    return values, ridge.l2 * weights + ridge.centre_l2 * away


def _squares(rows: Floats) -> Floats:
    squares: Floats = np.einsum("ij,ij->i", rows, rows)
    return squares
