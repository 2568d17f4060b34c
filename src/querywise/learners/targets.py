"""Target values that know their query: y ≈ β_q + α_q h, two numbers per query, for all queries at once [zha2006]_.

Given the fitted function h, every query's (α, β) is its own small convex problem,

    min Σ_j (y_j − β − α h_j)²  +  λ_α |α − 1|^p  +  λ_β |β|^p,        α ≥ 0,  p = 1 or 2

solved exactly from the query's sums n, Σh, Σh², Σy, Σhy. Where the minimum is not unique, α is the one nearest 1.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from querywise.arrays import Bools, Floats, Ints

Penalty = Literal["l2", "l1"]
_SINGULAR = 1e-12  # of the product of its diagonal: a determinant below it is none
_LARGEST = 1e150  # stands for infinity
_ROUNDING = 1e-12  # of the terms a slope is made of: one below it is none


class Transforms(NamedTuple):
    """α and β of every query."""

    scale: Floats
    shift: Floats

    @staticmethod
    def none(queries: int) -> Transforms:
        """α = 1 and β = 0: plain regression."""
        return Transforms(np.ones(queries), np.zeros(queries))


class _Sums(NamedTuple):
    """What a query's problem depends on, in a = α − 1 and b = β: residuals e = y − h."""

    n: Floats
    h: Floats
    hh: Floats
    e: Floats
    he: Floats
    size: Floats  # of the terms in the sums, to tell rounding from slopes
    h_size: Floats


def transforms(
    targets: Floats, fitted: Floats, starts: Ints, *, scale_penalty: float, shift_penalty: float, penalty: Penalty
) -> Transforms:
    """The best (α, β) of every query; rows `starts[q]:starts[q + 1]` are query q's."""
    sums = _sums(targets, fitted, starts)
    found = (
        _ridge(sums, scale_penalty, shift_penalty) if penalty == "l2" else _lasso(sums, scale_penalty, shift_penalty)
    )
    return Transforms(1 + found[0], found[1])


def squared_errors(targets: Floats, fitted: Floats, starts: Ints, found: Transforms) -> float:
    """Σ_q Σ_j (y − β_q − α_q h)²."""
    sizes = np.diff(starts)
    errors = targets - np.repeat(found.shift, sizes) - np.repeat(found.scale, sizes) * fitted
    return float(errors @ errors)


def penalties(found: Transforms, *, scale_penalty: float, shift_penalty: float, penalty: Penalty) -> float:
    """λ_α ‖α − 1‖_p^p + λ_β ‖β‖_p^p."""
    power = 2 if penalty == "l2" else 1
    away, shift = np.abs(found.scale - 1) ** power, np.abs(found.shift) ** power
    return float(min(scale_penalty, _LARGEST) * away.sum() + min(shift_penalty, _LARGEST) * shift.sum())


def _sums(targets: Floats, fitted: Floats, starts: Ints) -> _Sums:
    errors = targets - fitted
    size = np.abs(targets) + np.abs(fitted)
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))

    def total(values: Floats) -> Floats:
        return np.bincount(owner, values, minlength=len(starts) - 1).astype(np.float64)

    return _Sums(
        np.diff(starts).astype(np.float64),
        *map(total, (fitted, fitted**2, errors, fitted * errors, size, np.abs(fitted) * size)),
    )


def _ridge(sums: _Sums, scale_penalty: float, shift_penalty: float) -> tuple[Floats, Floats]:
    """P = 2: the normal equations in (α − 1, β); at α = 0, where α would be negative, β anew."""
    a, b, unique = _solved(sums, sums.he, sums.e, scale_penalty, shift_penalty)
    level = np.divide(sums.e, sums.n + shift_penalty, out=np.zeros_like(a), where=sums.n + shift_penalty > 0)
    a, b = np.where(unique, a, 0.0), np.where(unique, b, level)
    negative = a < -1
    at_zero = np.divide(sums.e + sums.h, sums.n + shift_penalty, out=np.zeros_like(a), where=negative)
    return np.where(negative, -1.0, a), np.where(negative, at_zero, b)


def _solved(
    sums: _Sums, right_a: Floats, right_b: Floats, extra_a: float, extra_b: float
) -> tuple[Floats, Floats, Bools]:
    """The solution of [Σh² + λ, Σh; Σh, n + μ] (a, b) = right, and where it is unique."""
    top, bottom = sums.hh + extra_a, sums.n + extra_b
    determinant = top * bottom - sums.h**2
    unique = determinant > _SINGULAR * top * bottom
    safe = np.where(unique, determinant, 1.0)
    return (bottom * right_a - sums.h * right_b) / safe, (top * right_b - sums.h * right_a) / safe, unique


def _lasso(sums: _Sums, scale_penalty: float, shift_penalty: float) -> tuple[Floats, Floats]:
    """P = 1: on each of twelve faces, a < 0, a = 0, a > 0 or α = 0 by b < 0, b = 0 or b > 0, the minimum is plain.

    The minimum of all is the face's whose own satisfies the conditions of optimality; those nearest a = 0 come first.
    """
    zero = np.zeros_like(sums.h)
    best_a, best_b, best = zero.copy(), zero.copy(), np.full(len(zero), np.inf)
    done = np.zeros(len(zero), np.bool_)
    for a_sign in (0, -1, 1, None):  # None: the boundary α = 0
        for b_sign in (0, -1, 1):
            a, b, inside = _on_face(sums, scale_penalty, shift_penalty, a_sign, b_sign)
            value = np.where(inside, _objective(sums, a, b, scale_penalty, shift_penalty), np.inf)
            optimal = inside & _is_optimal(sums, a, b, scale_penalty, shift_penalty, a_sign, b_sign)
            better = ~done & (optimal | (value < best))
            best_a, best_b = np.where(better, a, best_a), np.where(better, b, best_b)
            best = np.where(better, value, best)
            done |= optimal
    return best_a, best_b


def _on_face(
    sums: _Sums, scale_penalty: float, shift_penalty: float, a_sign: int | None, b_sign: int
) -> tuple[Floats, Floats, Bools]:
    """The minimum where the signs are these, and whether it has them."""
    zero = np.zeros_like(sums.h)
    right_a = sums.he - (a_sign or 0) * scale_penalty / 2
    right_b = sums.e - b_sign * shift_penalty / 2
    if a_sign is None or a_sign == 0:
        a = zero - (1.0 if a_sign is None else 0.0)
        known = sums.n > 0
        b = zero if b_sign == 0 else np.divide(right_b - a * sums.h, sums.n, out=zero.copy(), where=known)
        inside = known if b_sign else np.ones(len(zero), np.bool_)
    elif b_sign == 0:
        inside = sums.hh > 0
        a, b = np.divide(right_a, sums.hh, out=zero.copy(), where=inside), zero
    else:
        a, b, inside = _solved(sums, right_a, right_b, 0.0, 0.0)
    if a_sign:
        inside = inside & (a * a_sign > 0) & (a >= -1)
    return a, b, inside & (b * b_sign > 0) if b_sign else inside


def _objective(sums: _Sums, a: Floats, b: Floats, scale_penalty: float, shift_penalty: float) -> Floats:
    """The objective without what does not depend on (a, b)."""
    square = sums.n * b**2 + sums.hh * a**2 + 2 * sums.h * a * b - 2 * sums.e * b - 2 * sums.he * a
    total: Floats = square + scale_penalty * np.abs(a) + shift_penalty * np.abs(b)
    return total


def _is_optimal(
    sums: _Sums, a: Floats, b: Floats, scale_penalty: float, shift_penalty: float, a_sign: int | None, b_sign: int
) -> Bools:
    """Whether no direction leaves the face downhill; along it the point is the minimum already."""
    slope_a = 2 * (sums.hh * a + sums.h * b - sums.he)
    slope_b = 2 * (sums.n * b + sums.h * a - sums.e)
    noise_a, noise_b = _ROUNDING * sums.h_size, _ROUNDING * sums.size
    optimal = np.ones(len(a), np.bool_)
    if a_sign == 0:
        optimal &= np.abs(slope_a) <= scale_penalty + noise_a
    elif a_sign is None:
        optimal &= slope_a - scale_penalty >= -noise_a
    if b_sign == 0:
        optimal &= np.abs(slope_b) <= shift_penalty + noise_b
    return optimal
