"""The certificate of a model: F is strongly convex, so that F(w) is at most ‖∇F(w)‖² / (2(λ+μ)) above its minimum."""

from __future__ import annotations

import numpy as np

from querywise.learners.ranksvm.newton import Ridge
from querywise.learners.ranksvm.preferences import total
from querywise.learners.ranksvm.rounding import Extent, errors
from querywise.learners.ranksvm.spread import Spread
from querywise.learners.ranksvm.weighted_sums import objective_sums, single_sums
from querywise.learners.weight_rows import WeightRows
from querywise.runtime.arrays import Floats

Gaps = tuple[Floats, Floats, Floats]  # at most how far F is above its minimum, F at least, and ∇F, of a model per row


def gaps(spread: Spread, shares: WeightRows, weights: Floats, ridge: Ridge) -> Gaps:
    """By objectives and gradients of each model on the rows of the queries it has a share in."""
    parts = spread.workers.each(objective_sums, *spread.asked(spread.pairs, shares), shared=(weights,))
    values, gradient = _ridges(weights, ridge)
    for each in parts:
        values += each[0]
        gradient += each[1]
    return _squares(gradient) / (2 * ridge.strength), values, gradient


def gaps_if_rounded(spread: Spread, shares: WeightRows, weights: Floats, ridge: Ridge) -> Gaps:
    """By the same in single precision: the gap is what it can be at most, and F what it is at least."""
    parts = spread.workers.each(single_sums, *spread.asked(spread.pairs, shares), shared=(weights,))
    losses, (values, gradient) = total([each for each, _, _ in parts]), _ridges(weights, ridge)
    extent = Extent(*(max(each) for each in zip(*(each for _, _, each in parts), strict=True)))
    losses_off, gradient_off = errors(np.sqrt(_squares(weights)), losses, weights.shape[1], extent)
    gradient += total([each for _, each, _ in parts])
    most = (np.sqrt(_squares(gradient)) + gradient_off) ** 2
    return most / (2 * ridge.strength), values + losses - losses_off, gradient


def _ridges(weights: Floats, ridge: Ridge) -> tuple[Floats, Floats]:
    """What penalties add to the objectives and to their gradients."""
    away = weights - ridge.centre
    values = 0.5 * ridge.l2 * _squares(weights)
    values += 0.5 * ridge.centre_l2 * _squares(away)
    return values, ridge.l2 * weights + ridge.centre_l2 * away


def _squares(rows: Floats) -> Floats:
    squares: Floats = np.einsum("ij,ij->i", rows, rows)
    return squares
