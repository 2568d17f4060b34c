"""Newton's method on the ranking SVM's objective, with a certificate of how far from the optimum it stopped.

    F(w) = λ/2 ‖w‖² + μ/2 ‖w − w₀‖² + Σ_i c_i Σ_{(a,b) ∈ P_i} ℓ(w·(x_ia − x_ib))

F is (λ+μ)-strongly convex, so F(w) − min F ≤ ‖∇F(w)‖² / (2(λ+μ)): the gap is known without knowing the minimum.
Over w ≥ 0 the gap is at most Σ_j max{−g_j (u − w_j) − (λ+μ)/2 (u − w_j)² : u ≥ 0}, g = ∇F(w): g_j² / (2(λ+μ)) where
w_j ≥ g_j/(λ+μ), else g_j w_j − (λ+μ)/2 w_j², which is 0 for a weight of 0 that the gradient holds there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular

from querywise.errors import SolverError
from querywise.learners.ranksvm.preferences import (
    SQUARED_HINGE,
    Loss,
    PairSums,
    PreferenceParts,
    Preferences,
    smoothed_hinge,
    total,
)
from querywise.runtime.arrays import Floats
from querywise.runtime.workers import Kept

_MAX_STEPS = 200
_SUFFICIENT = 1e-4
_ROUNDING = 1e-7  # a relative gap that double precision may not get below if l2 is tiny


@dataclass(frozen=True)
class Ridge:
    """λ/2 ‖w‖² + μ/2 ‖w − w₀‖²: the penalties on the distances from zero and from the prior's center w₀."""

    l2: float
    centre: Floats
    centre_l2: float = 0.0

    @property
    def strength(self) -> float:
        """λ + μ, the smallest curvature of the objective in any direction."""
        return self.l2 + self.centre_l2

    @property
    def minimiser(self) -> Floats:
        """The minimum of the two terms alone, μ/(λ+μ) · w₀: the model of queries without pairs."""
        return self.centre * (self.centre_l2 / self.strength)

    def value(self, weights: Floats) -> float:
        """Return the two terms."""
        away = weights - self.centre
        return float(0.5 * self.l2 * weights @ weights + 0.5 * self.centre_l2 * away @ away)

    def gradient(self, weights: Floats) -> Floats:
        """Return their gradient."""
        return self.l2 * weights + self.centre_l2 * (weights - self.centre)


@dataclass(frozen=True)
class Optimum:
    """Weights, the objective there, and a proven bound on its distance from the minimum.

    With Newton's method also the state of every part, kept by workers: scores and sums over pairs.
    """

    weights: Floats
    value: float
    gap: float
    states: Sequence[Kept] | None = None


@dataclass(frozen=True)
class _Point:
    weights: Floats
    value: float
    gradient: Floats
    states: Sequence[Kept]  # of every part: scores and sums over pairs


class _Objective:
    """F, its gradient and its Newton step at a point, as sums over all parts of the preferences."""

    def __init__(self, preferences: PreferenceParts, coefficients: Floats, ridge: Ridge, loss: Loss) -> None:
        self.workers, self.parts = preferences.workers, preferences.parts
        self.coefficients = preferences.split(coefficients)
        self.ridge, self.loss = ridge, loss

    def begin(self, weights: Floats) -> _Point:
        """Return the point at some weights."""
        seen, states = self.workers.both(_losses_at_weights, self.parts, self.coefficients, shared=(weights, self.loss))
        return self._point(weights, seen, states)

    def curvature(self, point: _Point) -> Floats:
        """Return the second derivative of the losses there."""
        return total(self.workers.each(_curvature_of, self.parts, self.coefficients, point.states, shared=(self.loss,)))

    def newton_step(self, point: _Point) -> Floats:
        """Return the step to the minimum of the second-order model there."""
        return -cho_solve(self._factor(point), point.gradient)

    def nonnegative_step(self, point: _Point) -> Floats:
        """Return the step to the second-order model's minimum over non-negative weights u: ½ uᵀHu − (Hw − g)ᵀu."""
        from scipy.optimize import nnls

        root = np.triu(self._factor(point)[0])  # H = RᵀR, so the model is ½ ‖Ru − R⁻ᵀ(Hw − g)‖² plus a constant
        goal = root @ point.weights - solve_triangular(root, point.gradient, trans="T")
        return np.asarray(nnls(root, goal)[0] - point.weights)

    def _factor(self, point: _Point) -> tuple[Floats, bool]:
        """Return the Cholesky factor of the second derivative of F there."""
        curvature = self.curvature(point)
        curvature[np.diag_indices_from(curvature)] += self.ridge.strength
        if not (np.isfinite(curvature).all() and np.isfinite(point.gradient).all()):
            raise SolverError(
                "The ranking SVM's loss is not a number: features are too large. Set scale='standard', or divide them."
            )
        try:
            factor: tuple[Floats, bool] = cho_factor(curvature, overwrite_a=True)
            return factor
        except LinAlgError:
            raise SolverError(f"l2={self.ridge.l2:g} is too small for these features; raise it.") from None

    def line_search(self, here: _Point, step: Floats) -> _Point:
        """Return the full step if it descends enough, else roughly the point along it where F stops falling."""
        slope = float(here.gradient @ step)
        columns = (self.parts, self.coefficients, here.states)
        seen, moved = self.workers.both(_full_step, *columns, shared=(step, self.loss))
        there = self._point(here.weights + step, seen, moved)
        if there.value <= here.value + _SUFFICIENT * slope:
            return there
        along = moved
        size, low, high = 1.0, (0.0, slope), (np.inf, np.inf)
        for trial in range(60):
            slope_there = float(there.gradient @ step)
            if abs(slope_there) <= 0.1 * abs(slope) and (slope_there <= 0 or there.value < here.value):
                break
            # F is convex, so its slope rises along the step, with its zero between a negative and a positive slope.
            if slope_there < 0:
                low = (size, slope_there)
            else:
                high = (size, slope_there)
            middle = 0.5 * (low[0] + high[0])
            crossing = low[0] - low[1] * (high[0] - low[0]) / (high[1] - low[1])
            size = middle if trial % 2 else crossing
            seen, moved = self.workers.both(_partial_step, *columns, along, shared=(size, self.loss))
            there = self._point(here.weights + size * step, seen, moved)
        return there

    def _point(self, weights: Floats, seen: Sequence[tuple[float, Floats]], states: Sequence[Kept]) -> _Point:
        value = self.ridge.value(weights) + sum(each for each, _ in seen)
        return _Point(weights, value, self.ridge.gradient(weights) + total([each for _, each in seen]), states)


class State(NamedTuple):
    """The state of one part of the preferences at some weights; `along` is the change of the scores by a full step."""

    scores: Floats
    sums: PairSums
    along: Floats | None = None


_Losses = tuple[float, Floats]  # the weighted losses of one part, and their gradient


def _losses_at_weights(part: Preferences, coefficients: Floats, weights: Floats, loss: Loss) -> tuple[_Losses, State]:
    """Return the losses and the state of one part at some weights."""
    return _losses_at(part, coefficients, part.scores(weights), loss)


def _full_step(
    part: Preferences, coefficients: Floats, state: State, step: Floats, loss: Loss
) -> tuple[_Losses, State]:
    """Return one part after the full Newton step."""
    along = part.scores(step)
    return _losses_at(part, coefficients, state.scores + along, loss, along)


def _partial_step(
    part: Preferences, coefficients: Floats, state: State, whole: State, size: float, loss: Loss
) -> tuple[_Losses, State]:
    """Return one part after `size` times the step; scores are linear in the weights, so no product is recomputed."""
    assert whole.along is not None
    return _losses_at(part, coefficients, state.scores + size * whole.along, loss)


def _losses_at(
    part: Preferences, coefficients: Floats, scores: Floats, loss: Loss, along: Floats | None = None
) -> tuple[_Losses, State]:
    """Return the losses of one part at some scores, their gradient by the weights, and the state for further steps."""
    sums = part.sums(scores, loss)
    by_score = np.repeat(coefficients, np.diff(part.starts)) * sums.gradient
    return (float(coefficients @ sums.losses), part.by_weights(by_score)), State(scores, sums, along)


def _curvature_of(part: Preferences, coefficients: Floats, state: State, loss: Loss) -> Floats:
    return part.curvature(state.scores, state.sums.degree, coefficients, loss)


def minimise(
    preferences: PreferenceParts,
    coefficients: Floats,
    *,
    ridge: Ridge,
    loss: Loss,
    tolerance: float,
    start: Floats,
    nonnegative: bool = False,
) -> Optimum:
    """Take Newton steps with a line search until the relative gap is proven to be at most `tolerance`.

    With `nonnegative`, minimize over non-negative weights, starting from such weights.
    """
    objective = _Objective(preferences, coefficients, ridge, loss)
    here = objective.begin(start)
    gap = np.inf
    for _ in range(_MAX_STEPS):
        if nonnegative:
            gap = _gap_over_nonnegative(here, ridge.strength)
        else:
            gap = float(here.gradient @ here.gradient) / (2 * ridge.strength)
        if gap <= tolerance * here.value:
            break
        step = objective.nonnegative_step(here) if nonnegative else objective.newton_step(here)
        here = objective.line_search(here, step)
    if not gap <= max(tolerance, _ROUNDING) * here.value:
        raise SolverError(
            f"The ranking SVM stopped up to {gap:.1e} above its minimum of about {here.value:.3g}; a relative gap of "
            f"{tolerance:g} was required. Raise l2 ({ridge.l2:g}), or leave scale='standard' so that features have "
            "the same scale."
        )
    return Optimum(here.weights, here.value, gap, here.states)


def _gap_over_nonnegative(point: _Point, strength: float) -> float:
    """Return a bound on F's distance from its minimum over non-negative weights."""
    weights, pull = point.weights, point.gradient
    least = np.maximum(weights - pull / strength, 0.0)  # where each coordinate attains the bound
    away = least - weights
    return float(-(pull @ away) - 0.5 * strength * (away @ away))


def minimise_hinge(
    preferences: PreferenceParts,
    coefficients: Floats,
    *,
    ridge: Ridge,
    tolerance: float,
    start: Floats,
    nonnegative: bool = False,
) -> Optimum:
    """Minimize the hinge loss by ever less smoothed hinges, until smoothing and gap together are within `tolerance`.

    The smoothed hinge exceeds the hinge by at most δ/4, so its optimum is within Σ_i c_i p_i · δ/4 of the true one.
    Each stage starts where the last one ended.
    """
    pair_weight = float(coefficients @ preferences.pairs)
    half_width = 1.0
    while True:
        loss = smoothed_hinge(half_width)
        stage = minimise(
            preferences,
            coefficients,
            ridge=ridge,
            loss=loss,
            tolerance=tolerance / 4,
            start=start,
            nonnegative=nonnegative,
        )
        rounding = pair_weight * half_width / 4
        if rounding + stage.gap <= tolerance * (stage.value - rounding):
            return Optimum(stage.weights, stage.value, stage.gap + rounding)
        start = stage.weights
        half_width /= 4


def refined(
    chosen: Sequence[Preferences], share: Floats, start: Floats, ridge: Ridge, loss: str, tolerance: float
) -> Floats:
    """Return the model of one row of V by Newton's method, from its pairs in every part."""
    preferences = Preferences.joined(chosen)
    coefficients, spread = share / preferences.pairs, PreferenceParts.of(preferences)
    if loss == "hinge":
        return minimise_hinge(spread, coefficients, ridge=ridge, tolerance=tolerance, start=start).weights
    return minimise(spread, coefficients, ridge=ridge, loss=SQUARED_HINGE, tolerance=tolerance, start=start).weights
