"""Factorisation of small symmetric quasi-definite systems, compiled, the same bits for the same system."""

from __future__ import annotations

import numpy as np

from querywise.runtime.arrays import Floats
from querywise.runtime.compiled import compiled, compiled_loosely


@compiled
def weighted_sum(factors: Floats, rows: Floats) -> Floats:
    """Σ_i factors_i · rows_i."""
    found = np.zeros(rows.shape[1])
    for i in range(rows.shape[0]):
        factor = factors[i]
        if factor != 0.0:
            for j in range(rows.shape[1]):
                found[j] += factor * rows[i, j]
    return found


@compiled_loosely
def scalar_product(some: Floats, others: Floats, begin: int, end: int) -> float:
    """The scalar product of two vectors' entries from begin to end, in any order of summation."""
    total = 0.0
    for k in range(begin, end):
        total += some[k] * others[k]
    return total


@compiled
def factor_in_place(system: Floats, positive: int, tie: float) -> None:
    """Factor a symmetric quasi-definite matrix as L S Lᵀ, S = diag(1, …, 1, −1, …, −1) with `positive` ones.

    L takes the place of the lower triangle. tie: regularises the negative block: each of its pivots grows by tie times
    the sum of the pivots so far, so that linearly dependent rows do not make the matrix singular.
    """
    trace = 1e-300
    for j in range(len(system)):
        row, split = system[j], min(j, positive)
        for i in range(j, len(system)):
            value = system[i, j] - scalar_product(system[i], row, 0, split)
            if j >= positive:
                value = -value - scalar_product(system[i], row, split, j)
            if i > j:
                system[i, j] = value / row[j]
            else:
                trace += value if j >= positive else 0.0
                row[j] = np.sqrt(max(value + tie * trace, 1e-300))


@compiled
def substitute(factor: Floats, positive: int, right: Floats) -> None:
    """Solve L S Lᵀ x = right by forward and backward substitution; x takes the place of right."""
    for k in range(len(right)):
        right[k] = (right[k] - scalar_product(factor[k], right, 0, k)) / factor[k, k]
    for k in range(positive, len(right)):
        right[k] = -right[k]
    for k in range(len(right) - 1, -1, -1):
        right[k] /= factor[k, k]
        for i in range(k):
            right[i] -= factor[k, i] * right[k]
