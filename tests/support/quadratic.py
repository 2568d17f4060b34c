"""An independent solver of quadratic programs, and what a solution must satisfy."""

from __future__ import annotations

from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from querywise.runtime.arrays import Floats


def objective(curvature: Floats, rows: Floats, cost: float, weights: Floats) -> float:
    return float(0.5 * weights @ curvature @ weights + cost * np.maximum(0, 1 - rows @ weights).sum())


def by_clarabel(curvature: Floats, rows: Floats, cost: float) -> Floats:
    """The weights an interior point method finds, with a variable for every row's loss: w, ξ ≥ 0 and Bw + ξ ≥ 1."""
    count, width = rows.shape
    if count == 0:
        return np.zeros(width)
    quadratic = sparse.block_diag([np.triu(curvature), sparse.csc_array((count, count))], format="csc")
    linear = np.concatenate([np.zeros(width), np.full(count, cost)])
    left = sparse.vstack(
        [-sparse.eye_array(width + count), -sparse.hstack([sparse.csc_array(rows), sparse.eye_array(count)])],
        format="csc",
    )
    right = np.concatenate([np.zeros(width + count), -np.ones(count)])
    wanted: Any = clarabel.DefaultSettings()
    wanted.verbose = False
    wanted.max_threads = 1
    wanted.tol_gap_abs = wanted.tol_gap_rel = wanted.tol_feas = 1e-12
    cones = [clarabel.NonnegativeConeT(width + 2 * count)]
    found = clarabel.DefaultSolver(sparse.csc_matrix(quadratic), linear, sparse.csc_matrix(left), right, cones, wanted)
    weights: Floats = np.array(found.solve().x, dtype=np.float64)[:width]
    return np.maximum(weights, 0.0)


def kkt_residual(curvature: Floats, rows: Floats, cost: float, weights: Floats, prices: Floats) -> float:
    """How far from optimal: a fixed point of a projected step in the weights, and in the prices."""
    push, pull = curvature @ weights, rows.T @ prices
    largest = max(1.0, np.abs(push).max(), np.abs(pull).max(initial=0.0))
    in_weights = np.abs(weights - np.maximum(weights - push + pull, 0.0)).max() / largest
    in_prices = np.abs(prices - np.clip(prices + 1 - rows @ weights, 0.0, cost)).max(initial=0.0)
    return float(np.maximum(in_weights, in_prices))
