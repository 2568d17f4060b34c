"""The systems ((λ+μ) I + V·H) x = g of many models: small, symmetric, positive definite, solved more than once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from querywise.errors import SolverError
from querywise.learners.ranksvm.preferences import total
from querywise.runtime.arrays import Floats, Ints, Singles, for_kernels
from querywise.runtime.threads import in_threads, slices

_FEW = 16  # features below which LAPACK's LU is as fast
_BLOCK = 64  # systems in hand at a time


def curvature(sums: Sequence[tuple[Floats, Singles]], strength: float) -> Floats:
    """(λ+μ) I + V·H, a full matrix per row, from the parts of its sums."""
    from querywise.learners.ranksvm import curvature_kernels

    packed, d = _packed(sums), sums[0][0].shape[1]
    full = np.empty((len(packed), d, d))

    def part(block: slice) -> None:
        curvature_kernels.unpacked(packed[block], strength, full[block])

    in_threads(part, slices(len(full), _BLOCK))
    return full


def factored(sums: Sequence[tuple[Floats, Singles]], strength: float, right: Floats) -> tuple[Floats, Floats]:
    """The systems, ready to be solved again, and their solutions for a right side each.

    Ready are Cholesky factors U in the upper triangles, UᵀU = (λ+μ) I + V·H; of few features, the matrices.
    """
    from querywise.learners.ranksvm import curvature_kernels

    d = right.shape[1]
    if d < _FEW:
        full = curvature(sums, strength)
        return full, solved(full, np.arange(len(full)), right)
    packed, found = _packed(sums), np.array(right)
    factors = np.empty((len(packed), d, d))

    def part(block: slice) -> None:
        curvature_kernels.factorise(packed[block], strength, factors[block], found[block])

    in_threads(part, slices(len(factors), _BLOCK))
    return factors, found


def solved(factors: Floats, rows: Ints, right: Floats) -> Floats:
    """The solutions of some of the systems that are ready, a right side each."""
    from querywise.learners.ranksvm import curvature_kernels

    given, found = for_kernels(factors), np.array(right)

    def part(block: slice) -> None:
        if right.shape[1] < _FEW:
            found[block] = np.linalg.solve(factors[rows[block]], right[block][:, :, None])[:, :, 0]
        else:
            curvature_kernels.solve(given, rows[block], found[block])

    try:
        in_threads(part, slices(len(rows), _BLOCK))
    except np.linalg.LinAlgError:
        raise SolverError("l2 is too small for these features, a local model is not unique; raise it.") from None
    return found


def _packed(sums: Sequence[tuple[Floats, Singles]]) -> Singles:
    return for_kernels(sums[0][1]) if len(sums) == 1 else total([each for _, each in sums])
