"""The convex problem behind adapted query vectors, and its solver.

A query q is moved to f(q) = q + Σ_i k(q, q_i) r_i by the training queries q_i, with the kernel

    k(q, q') = linear · qᵀq' + exp(gamma · (qᵀq' − 1)),

where the second part is omitted if gamma is None. With K = BBᵀ and Z = BᵀR the training vectors are F = Q + BZ, and Z
minimizes

    L(Z) = Σ_i w_i [log Σ_j exp(f_iᵀd_j / T) − f_iᵀt_i / T] / Σ_i w_i + l2 · ‖Z‖²,

where t_i = Σ_j y_ij d_j is the mean of a query's relevant documents, weighted by their gains. This is the cross-entropy
between those documents and the softmax of similarities: log-sum-exp of a linear function plus a square, hence convex,
with L − L* ≤ ‖∇L‖² / (4 · l2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from querywise.runtime.arrays import Floats
from querywise.runtime.threads import checkpoint, in_threads, one_blas_thread, slices

_ROWS = 128  # training queries at a time, so that their similarities to a few thousand documents stay in the cache
_RANK = 1e-10  # eigenvalues of the kernel below this share of the largest are dropped
_CORRECTIONS = 10  # steps that L-BFGS remembers
Array: TypeAlias = NDArray[np.float32 | np.float64]  # products keep the type of their inputs


class Kernel(NamedTuple):
    """k(q, q') = linear · qᵀq' + exp(gamma · (qᵀq' − 1)); gamma None omits the exponential."""

    linear: float
    gamma: float | None

    def exponential(self, queries: Array, landmarks: Array) -> Array:
        """Return the second part between every query and every landmark, in the type of the queries."""
        assert self.gamma is not None
        products = queries @ landmarks.T
        products -= 1
        np.minimum(products, 0, out=products)  # products of unit vectors exceed 1 only by rounding
        products *= products.dtype.type(self.gamma)
        found: Array = np.exp(products, out=products)
        return found


class AdapterSolution(NamedTuple):
    """Z, the objective there, and a bound on its distance from the minimum."""

    coordinates: Floats
    objective: float
    gap: float
    evaluations: int


@dataclass(frozen=True, eq=False)
class Basis:
    """B with K = BBᵀ: the training queries in coordinates in which the penalty is a plain square.

    Attributes:
        values: B, training queries × coordinates.
        linear_part: maps a query to the first coordinates, of which there are no more than training queries.
        exponential_part: maps the exponential kernel between a query and the landmarks to the other coordinates.
    """

    values: Floats
    linear_part: Floats | None
    exponential_part: Floats | None

    @staticmethod
    def of(kernel: Kernel, queries: Floats, landmarks: Floats) -> Basis:
        """Return the basis of the training queries; the exponential part is spanned by the landmarks (Nyström)."""
        parts: list[Floats] = []
        linear = exponential = None
        if kernel.linear:
            count, dimension = queries.shape
            turned = np.eye(dimension) if count >= dimension else np.linalg.svd(queries, full_matrices=False)[2].T
            linear = np.sqrt(kernel.linear) * turned
            parts.append(queries @ linear)
        if kernel.gamma is not None:
            values, vectors = np.linalg.eigh(kernel.exponential(landmarks, landmarks))
            kept = values > _RANK * values[-1]
            exponential = vectors[:, kept] / np.sqrt(values[kept])
            parts.append(kernel.exponential(queries, landmarks) @ exponential)
        return Basis(np.hstack(parts), linear, exponential)

    def response(self, coordinates: Floats) -> tuple[Floats | None, Floats | None]:
        """Return what is added to a query: qᵀ times the first, and its kernel with the landmarks times the second."""
        linear, exponential, first = self.linear_part, self.exponential_part, 0
        if linear is not None:
            first = linear.shape[1]
            linear = linear @ coordinates[:first]
        return linear, None if exponential is None else exponential @ coordinates[first:]


@dataclass(frozen=True, eq=False)
class AdapterProblem:
    """L as a function of Z.

    Attributes:
        queries: the training queries, of unit length.
        documents: those of the softmax.
        targets: t_i.
        weights: w_i, with sum 1.
        precision: the type of the products; sums are always in double precision.
    """

    basis: Basis
    queries: Floats
    documents: Array
    targets: Floats
    weights: Floats
    temperature: float
    l2: float
    precision: type[np.float32] | type[np.float64] = np.float32

    def value_and_gradient(self, coordinates: Floats) -> tuple[float, Floats]:
        """Return L(Z) and ∇L(Z)."""
        loss, slopes = self._loss_and_slopes(coordinates)
        basis, exact = self._basis, self._in_precision(slopes)

        def product(columns: slice) -> Floats:
            return np.asarray(basis[:, columns].T @ exact, dtype=np.float64)

        parts = in_threads(product, slices(basis.shape[1], max(_ROWS, basis.shape[1] // 4)))
        gradient = np.concatenate([coordinates[:0], *parts])  # there may be no coordinates
        return loss + self.l2 * _square(coordinates), gradient + 2 * self.l2 * coordinates

    def pulls(self, coordinates: Floats) -> Floats:
        """Return R at the minimum: where each training query pulls similar queries.

        There ∇L = Bᵀ(slopes) + 2 · l2 · Z = 0, so Z = BᵀR with R = −slopes / (2 · l2).
        """
        return self._loss_and_slopes(coordinates)[1] / (-2 * self.l2)

    def solve(self, start: Floats | None = None, *, tolerance: float, most: int) -> AdapterSolution:
        """Minimize by L-BFGS until the gap is within the tolerance, for at most `most` steps."""
        shape = (self._basis.shape[1], self.queries.shape[1])
        state = _Evaluated()

        def evaluated(flat: Floats) -> tuple[float, Floats]:
            checkpoint()
            value, gradient = self.value_and_gradient(flat.reshape(shape))
            state.gap, state.count = _square(gradient) / (4 * self.l2), state.count + 1
            return value, gradient.ravel()

        def stop(intermediate_result: OptimizeResult) -> None:
            if state.gap <= tolerance:
                raise StopIteration

        begun = np.zeros(shape) if start is None else start
        with one_blas_thread():
            found = minimize(
                evaluated,
                begun.ravel(),
                jac=True,
                method="L-BFGS-B",
                callback=stop,
                options={"maxiter": most, "maxcor": _CORRECTIONS, "ftol": 0.0, "gtol": 0.0},
            )
        coordinates = found.x.reshape(shape)
        value, gradient = self.value_and_gradient(coordinates)
        return AdapterSolution(coordinates, value, _square(gradient) / (4 * self.l2), state.count)

    def _loss_and_slopes(self, coordinates: Floats) -> tuple[float, Floats]:
        """Return the loss without the penalty, and its slope at every training vector."""
        moved, documents, basis = self._in_precision(coordinates), self._documents, self._basis
        queries, temperature = self._queries, self.precision(self.temperature)

        def block(rows: slice) -> tuple[float, Floats]:
            vectors = queries[rows] + basis[rows] @ moved
            products = vectors @ documents.T
            products /= temperature
            top = products.max(axis=1, keepdims=True)
            products -= top
            np.exp(products, out=products)
            totals = products.sum(axis=1, dtype=np.float64)
            ours = np.einsum("ij,ij->i", vectors, self.targets[rows]) / self.temperature
            loss = float(self.weights[rows] @ (np.log(totals) + top[:, 0] - ours))
            slopes = (products @ documents) / totals[:, None] - self.targets[rows]
            return loss, slopes * (self.weights[rows] / self.temperature)[:, None]

        with one_blas_thread():
            found = in_threads(block, slices(len(queries), _ROWS))
        return sum(loss for loss, _ in found), np.concatenate([slopes for _, slopes in found])

    def _in_precision(self, values: Array) -> Array:
        found: Array = np.ascontiguousarray(values, dtype=self.precision)
        return found

    @cached_property
    def _basis(self) -> Array:
        return self._in_precision(self.basis.values)

    @cached_property
    def _queries(self) -> Array:
        return self._in_precision(self.queries)

    @cached_property
    def _documents(self) -> Array:
        return self._in_precision(self.documents)


@dataclass
class _Evaluated:
    """The gap at the last evaluated point, and the number of evaluations."""

    gap: float = np.inf
    count: int = 0


def _square(values: Floats) -> float:
    return float(np.einsum("ij,ij->", values, values))
