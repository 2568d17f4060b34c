"""Sums over training queries by the weights of models: V·G, V·H, and the objectives of models on their own rows."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from querywise.errors import SolverError
from querywise.learners.ranksvm.newton import State
from querywise.learners.ranksvm.preferences import SQUARED_HINGE, Preferences, query_ranges, total
from querywise.learners.ranksvm.rounding import Extent
from querywise.learners.weight_rows import WeightRows
from querywise.runtime.arrays import Floats, Singles, for_kernels
from querywise.runtime.threads import in_threads, slices

MANY = 16  # models from which on work is done for all at once, rather than one by one
_DENSE_ROWS = 64  # models from which on V may be multiplied as a dense matrix
_DENSE = 0.2  # the share of queries with weight from which on that is faster, zeros and all
_QUERY_BLOCKS = 16  # gradients are added up in this many parts, whatever the number of threads


class Curved(NamedTuple):
    """Some training queries: the gradient and the packed curvature of each at w₀."""

    gradients: Floats
    curvatures: Singles


def curved_queries(preferences: Preferences, state: State) -> Curved:
    """The gradient and the curvature of every query of a part at the optimum, given its state there."""
    mean = np.where(preferences.pairs > 0, 1 / np.maximum(preferences.pairs, 1), 0.0)
    gradients = preferences.gradients(state.sums.gradient, mean)
    curvatures = preferences.curvatures(state.scores, state.sums.degree, mean, SQUARED_HINGE)  # in single precision
    if not np.isfinite(curvatures.sum(dtype=np.float64)):
        raise SolverError("Features as large as these need scale='standard', or must be divided.")
    return Curved(gradients, curvatures)


def gradient_sums(curved: Curved, shares: WeightRows) -> Floats:
    """A part of V·G."""
    return shares.times(curved.gradients)


def step_sums(curved: Curved, shares: WeightRows) -> tuple[Floats, Singles]:
    """A part of V·G and of V·H, the latter packed."""
    entries = len(shares) * shares.columns
    dense = len(shares) >= _DENSE_ROWS and len(shares.queries) >= _DENSE * entries
    sums = np.empty((len(shares), curved.curvatures.shape[1]), np.float32)
    (_multiply if dense else _gather)(shares, curved.curvatures, sums)
    return gradient_sums(curved, shares), sums


def _multiply(shares: WeightRows, table: Singles, sums: Singles) -> None:
    """Rows of V·H, by matrix products."""
    matrix = shares.matrix().astype(np.float32)

    def part(block: slice) -> None:
        np.dot(matrix[block].toarray(), table, out=sums[block])

    in_threads(part, slices(len(shares), 256))


def _gather(shares: WeightRows, table: Singles, sums: Singles) -> None:
    """Rows of V·H, query by query."""
    from querywise.learners.ranksvm import curvature_kernels

    weights = shares.shares.astype(np.float32)
    pointers, queries, curvatures = for_kernels(shares.pointers), for_kernels(shares.queries), for_kernels(table)

    def part(block: slice) -> None:
        curvature_kernels.packed_sums(pointers[block.start : block.stop + 1], queries, weights, curvatures, sums[block])

    in_threads(part, slices(len(shares), 64))


def objective_sums(pairs: Preferences, shares: WeightRows, weights: Floats) -> tuple[Floats, Floats]:
    """What a part adds to the objectives and gradients of some models."""
    from querywise.learners.ranksvm import kernels

    features, levels, starts, counts = pairs.for_kernels()
    models = for_kernels(weights)
    if len(shares) < MANY:  # for few models threads cost more than they save
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
    """The same in single precision, and the extent of the rows, by which it can be said how far off that may be."""
    values, gradient, largest = _sums_of_many(pairs, shares, for_kernels(weights).astype(np.float32))
    return values, gradient, Extent(float(np.sqrt(largest)), int(np.diff(pairs.starts).max(initial=0)))


def _sums_of_many(pairs: Preferences, shares: WeightRows, models: Floats | Singles) -> tuple[Floats, Floats, float]:
    """Losses and gradients of many models, in the precision that these have, and the largest squared norm of a row."""
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

    parts = in_threads(part, query_ranges(pairs.starts, _QUERY_BLOCKS))
    return total([each[0] for each in parts]), total([each[1] for each in parts]), max(each[2] for each in parts)


def gradients_of(curved: Curved) -> Floats:
    """The gradients of some training queries."""
    return curved.gradients
