"""The systems ((λ+μ) I + V·H) x = g of many models: small, symmetric, positive definite, solved more than once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from querywise.errors import SolverError
from querywise.learners.ranksvm.newton import Ridge
from querywise.learners.ranksvm.preferences import total
from querywise.runtime.arrays import Bools, Floats, Ints, Singles, for_kernels
from querywise.runtime.threads import in_threads, slices

_FEW = 16  # features below which LAPACK's LU is as fast
_BLOCK = 64  # systems in hand at a time
LARGE = 96  # features from which on LAPACK factorises one system faster, the call included

_NONE = np.empty((0, 0), np.float32)

Sums = Sequence[tuple[Floats, Singles]]  # V·G and V·H, packed, from every part


class Systems(NamedTuple):
    """Systems ready to be solved: full matrices where features are few, else Cholesky factors, packed as the sums are.

    Factors are in single precision, as the sums that they were made of.
    """

    matrices: Floats
    factors: Singles


def curvature(sums: Sums, strength: float) -> Floats:
    """(λ+μ) I + V·H, a full matrix per row."""
    from querywise.learners.ranksvm import local_kernels

    packed, d = _packed(sums), sums[0][0].shape[1]
    full = np.empty((len(packed), d, d))

    def part(block: slice) -> None:
        local_kernels.unpacked(packed[block], strength, full[block])

    in_threads(part, slices(len(full), _BLOCK))
    return full


def factored(sums: Sums, strength: float, right: Floats, *, again: bool) -> tuple[Floats, Systems]:
    """The solutions for a right side each; and the systems, if they are to be solved again."""
    from querywise.learners.ranksvm import local_kernels

    if right.shape[1] < _FEW:
        ready = Systems(curvature(sums, strength), _NONE)
        return solved(ready, np.arange(len(right)), right), ready
    packed, found = _packed(sums), np.array(right)
    factors = np.empty(packed.shape, np.float32) if again else _NONE

    def part(block: slice) -> None:
        local_kernels.factorise(packed[block], strength, found[block], factors[block])

    in_threads(part, slices(len(packed), _BLOCK))
    return found, Systems(np.empty((0, 0, 0)), factors)


def solved(systems: Systems, rows: Ints, right: Floats) -> Floats:
    """The solutions of some of the systems, a right side each."""
    from querywise.learners.ranksvm import local_kernels

    found, factors = np.array(right), for_kernels(systems.factors)

    def part(block: slice) -> None:
        if right.shape[1] < _FEW:
            found[block] = np.linalg.solve(systems.matrices[rows[block]], right[block][:, :, None])[:, :, 0]
        else:
            local_kernels.solve(factors, rows[block], found[block])

    try:
        in_threads(part, slices(len(rows), _BLOCK))
    except np.linalg.LinAlgError:
        raise SolverError("l2 is too small for these features, a local model is not unique; raise it.") from None
    return found


def solver(packed: Singles, strength: float, d: int) -> Callable[[Floats], Floats]:
    """One system, given by its packed sum: a function of right sides that returns the solutions."""
    from querywise.learners.ranksvm import local_kernels

    if d >= LARGE:
        from scipy.linalg.lapack import dpotrf, dpotrs

        full = np.empty((d, d))
        local_kernels.upper(packed, strength, full)
        factor, failed = dpotrf(full.T, lower=1, clean=0, overwrite_a=1)
        if not failed:
            return lambda right: dpotrs(factor, right, lower=1)[0]
    factors = np.empty((1, len(packed)), np.float32)
    local_kernels.factorise(packed[None, :], strength, np.zeros((1, d)), factors)

    def solve(right: Floats) -> Floats:
        found: Floats = right.copy()
        local_kernels.solve(factors, np.zeros(1, np.int64), found[None, :])
        return found

    return solve


def _packed(sums: Sums) -> Singles:
    return for_kernels(sums[0][1]) if len(sums) == 1 else total([each for _, each in sums])


def first_step(sums: Sums, has_pairs: Bools, ridge: Ridge, centre: Floats, more: bool) -> tuple[Floats, Systems]:
    """The step from w₀ for some rows, and its systems, which can be solved again where more steps may follow."""
    weights = np.where(has_pairs[:, None], centre, ridge.minimiser)
    gradient = np.where(has_pairs[:, None], ridge.gradient(centre) + total([each for each, _ in sums]), 0.0)
    step, systems = factored(sums, ridge.strength, gradient, again=more)
    return weights - step, systems
