"""Query-dependent target transformation: y ≈ β_q + α_q h, two numbers per query, for all queries at once [zha2006]_.

Given the fitted function h, every query's (α, β) is its own small convex problem,

    min Σ_j (y_j − β − α h_j)²  +  λ_α |α − 1|^p  +  λ_β |β|^p,        α ≥ 0,  p = 1 or 2

solved exactly from a few sums over the query, those of h about its mean. Where the minimum is not unique, α is the one
nearest 1. α may also be left free, as the paper's own algorithm leaves it.

A monotone transformation lets every group of rows have any non-decreasing function t of its targets instead, which
takes one value for each distinct target y,

    min Σ_j (t(y_j) − h_j)²  +  λ Σ_y (t(y) − y)²,        t non-decreasing

That is isotonic regression of (Σh + λ y) / (n + λ) on y with weights n + λ, n the rows with target y. The paper leaves
functions beyond the linear ones open.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from querywise.runtime.arrays import Bools, Floats, Ints

Penalty = Literal["l2", "l1"]
_FLAT = 1e-18  # of Σh²: a scatter of h below it is rounding, h is constant
LARGEST = 1e100  # stands for infinity
_ROUNDING = 1e-12  # of the terms a slope is made of: one below it is none


class Transforms(NamedTuple):
    """α and β of every query."""

    scale: Floats
    shift: Floats

    @staticmethod
    def none(queries: int) -> Transforms:
        """α = 1 and β = 0: plain regression."""
        return Transforms(np.ones(queries), np.zeros(queries))

    def then(self, later: Transforms) -> Transforms:
        """Both, one after the other: of α y + β, later.α (α y + β) + later.β."""
        return Transforms(later.scale * self.scale, later.scale * self.shift + later.shift)


class _Sums(NamedTuple):
    """What a query's problem depends on, in a = α − 1 and b = β: residuals e = y − h.

    About the means: a query whose h hardly changes beside its level would lose all digits otherwise.
    """

    n: Floats
    mean: Floats  # of h
    scatter: Floats  # Σ(h − mean)²
    level: Floats  # the mean of e
    slant: Floats  # Σ(h − mean) e
    size: Floats  # of the terms in the sums, to tell rounding from slopes
    h_size: Floats


def transforms(
    targets: Floats,
    fitted: Floats,
    starts: Ints,
    *,
    scale_penalty: float,
    shift_penalty: float,
    penalty: Penalty,
    nonnegative: bool = True,
) -> Transforms:
    """The best (α, β) of every query; rows `starts[q]:starts[q + 1]` are query q's. `nonnegative`: α ≥ 0."""
    solve = _ridge if penalty == "l2" else _lasso
    held = min(scale_penalty, LARGEST), min(shift_penalty, LARGEST)
    a, b = solve(_sums(targets, fitted, starts), *held, -1.0 if nonnegative else -np.inf)
    return Transforms(1 + a, b if shift_penalty < LARGEST else np.zeros_like(b))


def squared_errors(
    targets: Floats, fitted: Floats, starts: Ints, found: Transforms, weights: Floats | None = None
) -> float:
    """Σ_q Σ_j (y − β_q − α_q h)², each row times its weight where there are some."""
    sizes = np.diff(starts)
    errors = targets - np.repeat(found.shift, sizes) - np.repeat(found.scale, sizes) * fitted
    return float(errors @ errors if weights is None else (weights * errors) @ errors)


def penalties(
    found: Transforms,
    *,
    scale_penalty: float,
    shift_penalty: float,
    penalty: Penalty,
    weights: Floats | None = None,
) -> float:
    """λ_α ‖α − 1‖_p^p + λ_β ‖β‖_p^p, each query times its weight where there are some."""
    power = 2 if penalty == "l2" else 1
    away, shift = np.abs(found.scale - 1) ** power, np.abs(found.shift) ** power
    if weights is not None:
        away, shift = weights * away, weights * shift
    return float(min(scale_penalty, LARGEST) * away.sum() + min(shift_penalty, LARGEST) * shift.sum())


def _sums(targets: Floats, fitted: Floats, starts: Ints) -> _Sums:
    errors = targets - fitted
    size = np.abs(targets) + np.abs(fitted)
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))

    def total(values: Floats) -> Floats:
        return np.bincount(owner, values, minlength=len(starts) - 1).astype(np.float64)

    n = np.diff(starts).astype(np.float64)
    mean, level = (total(values) / np.maximum(n, 1) for values in (fitted, errors))
    away = fitted - mean[owner]
    return _Sums(
        n,
        mean,
        total(away**2),
        level,
        total(away * (errors - level[owner])),
        total(size),
        total(np.abs(fitted) * size),
    )


def _ridge(sums: _Sums, scale_penalty: float, shift_penalty: float, least: float) -> tuple[Floats, Floats]:
    """P = 2: the normal equations in (α − 1, β); where α − 1 would be below `least`, β anew."""
    zero = np.zeros_like(sums.n)
    a, unique = _slope(sums, zero, zero, scale_penalty, shift_penalty)
    a = np.maximum(np.where(unique, a, 0.0), least)
    return a, _shift(sums, a, zero, shift_penalty)


def _slope(
    sums: _Sums, pull_a: Floats | float, pull_b: Floats | float, extra_a: float, extra_b: float
) -> tuple[Floats, Bools]:
    """The a of the solution of [Σh² + λ, Σh; Σh, n + μ] (a, b) = (Σhe, Σe) − pulls, and where it is unique.

    b is eliminated by hand, so that no two large numbers are subtracted.
    """
    total = np.maximum(sums.n, 1) + extra_b
    bottom = sums.scatter + extra_a + sums.n * sums.mean**2 * (extra_b / total)
    unique = bottom > _FLAT * (sums.scatter + sums.n * sums.mean**2)
    top = sums.slant - pull_a + sums.n * sums.mean * (extra_b / total * sums.level + pull_b / total)
    return np.divide(top, bottom, out=np.zeros_like(bottom), where=unique), unique


def _shift(sums: _Sums, a: Floats, pull_b: Floats | float, extra_b: float) -> Floats:
    """The best b at a given a."""
    right = sums.n * (sums.level - sums.mean * a) - pull_b
    return np.divide(right, sums.n + extra_b, out=np.zeros_like(a), where=sums.n > 0)


def _lasso(sums: _Sums, scale_penalty: float, shift_penalty: float, least: float) -> tuple[Floats, Floats]:
    """P = 1: on each of twelve faces, a < 0, a = 0, a > 0 or α = 0 by b < 0, b = 0 or b > 0, the minimum is explicit.

    The minimum of all is the face's whose own satisfies the conditions of optimality; those nearest a = 0 come first.
    Without a least a there is no boundary, and the faces are nine.
    """
    zero = np.zeros_like(sums.n)
    best_a, best_b, best = zero.copy(), zero.copy(), np.full(len(zero), np.inf)
    done = np.zeros(len(zero), np.bool_)
    for a_sign in (0, -1, 1, None) if least > -np.inf else (0, -1, 1):  # None: the boundary α = 0
        for b_sign in (0, -1, 1):
            a, b, inside = _on_face(sums, scale_penalty, shift_penalty, a_sign, b_sign, least)
            value = np.where(inside, _objective(sums, a, b, scale_penalty, shift_penalty), np.inf)
            optimal = inside & _is_optimal(sums, a, b, scale_penalty, shift_penalty, a_sign, b_sign)
            better = ~done & (optimal | (value < best))
            best_a, best_b = np.where(better, a, best_a), np.where(better, b, best_b)
            best = np.where(better, value, best)
            done |= optimal
    return best_a, best_b


def _on_face(
    sums: _Sums, scale_penalty: float, shift_penalty: float, a_sign: int | None, b_sign: int, least: float
) -> tuple[Floats, Floats, Bools]:
    """The minimum for these signs, and whether it has them."""
    zero = np.zeros_like(sums.n)
    pull_a, pull_b = (a_sign or 0) * scale_penalty / 2, b_sign * shift_penalty / 2
    inside = np.ones(len(zero), np.bool_)
    if not a_sign:
        a = zero - (1.0 if a_sign is None else 0.0)
    elif b_sign:
        a, inside = _slope(sums, pull_a, pull_b, 0.0, 0.0)
    else:
        square = sums.scatter + sums.n * sums.mean**2
        product = sums.slant + sums.n * sums.mean * sums.level
        inside = square > 0
        a = np.divide(product - pull_a, square, out=zero.copy(), where=inside)
    if a_sign:
        inside = inside & (a * a_sign > 0) & (a >= least)
    b = _shift(sums, np.where(inside, a, 0.0), pull_b, 0.0) if b_sign else zero
    inside = inside & (b * b_sign > 0) if b_sign else inside
    return np.where(inside, a, 0.0), np.where(inside, b, 0.0), inside


def _objective(sums: _Sums, a: Floats, b: Floats, scale_penalty: float, shift_penalty: float) -> Floats:
    """The objective without what does not depend on (a, b)."""
    square = sums.n * (b + sums.mean * a - sums.level) ** 2 + sums.scatter * a**2 - 2 * sums.slant * a
    total: Floats = square + scale_penalty * np.abs(a) + shift_penalty * np.abs(b)
    return total


def _is_optimal(
    sums: _Sums, a: Floats, b: Floats, scale_penalty: float, shift_penalty: float, a_sign: int | None, b_sign: int
) -> Bools:
    """Whether no direction leaves the face downhill; along it the point is the minimum already."""
    slope_b = 2 * sums.n * (b + sums.mean * a - sums.level) if b_sign == 0 else -b_sign * shift_penalty
    slope_a = 2 * (sums.scatter * a - sums.slant) + sums.mean * slope_b
    noise_a, noise_b = _ROUNDING * sums.h_size, _ROUNDING * sums.size
    optimal = np.ones(len(a), np.bool_)
    if a_sign == 0:
        optimal &= np.abs(slope_a) <= scale_penalty + noise_a
    elif a_sign is None:
        optimal &= slope_a - scale_penalty >= -noise_a
    if b_sign == 0:
        optimal &= np.abs(slope_b) <= shift_penalty + noise_b
    return optimal


class Bent(NamedTuple):
    """Targets under the best functions, and λ Σ (t(y) − y)² of all groups."""

    targets: Floats
    penalty: float


def bent(targets: Floats, fitted: Floats, starts: Ints, penalty: float) -> Bent:
    """The targets of every group under its best function; rows `starts[g]:starts[g + 1]` are group g's."""
    found, cost = targets.copy(), 0.0
    if penalty >= LARGEST:
        return Bent(found, 0.0)
    for first, last in pairwise(starts.tolist()):
        if first == last:
            continue
        levels, place = np.unique(targets[first:last], return_inverse=True)
        weights = np.bincount(place) + penalty
        wished = (np.bincount(place, fitted[first:last]) + penalty * levels) / weights
        values = isotonic_regression(wished, weights=weights).x
        found[first:last] = values[place]
        cost += penalty * float(np.sum((values - levels) ** 2))
    return Bent(found, cost)


def nearest_lines(before: Floats, after: Floats, starts: Ints) -> Transforms:
    """α and β of the line nearest to each group's change of targets; α is 1 where all its targets are equal."""
    sizes = np.diff(starts)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    count = np.maximum(sizes, 1)

    def total(values: Floats) -> Floats:
        return np.bincount(owner, values, minlength=len(sizes)).astype(np.float64)

    centre, level = total(before) / count, total(after) / count
    away = before - centre[owner]
    spread, joint = total(away**2), total(away * (after - level[owner]))
    scale = np.divide(joint, spread, out=np.ones(len(sizes)), where=spread > 0)
    return Transforms(scale, level - scale * centre)
