"""Newton's method on the ranking SVM's objective, with a certificate of how far from the optimum it stopped.

    F(w) = λ/2 ‖w‖² + μ/2 ‖w − w₀‖² + Σ_i c_i Σ_{(a,b) ∈ P_i} ℓ(w·(x_ia − x_ib))

F is (λ+μ)-strongly convex, so F(w) − min F ≤ ‖∇F(w)‖² / (2(λ+μ)): the gap is known without knowing the minimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from querywise.arrays import Floats
from querywise.errors import SolverError
from querywise.learners.preferences import Loss, PairSums, Preferences, smoothed_hinge

_MAX_STEPS = 200
_SUFFICIENT = 1e-4
_ROUNDING = 1e-7  # a gap that double precision may not get below when l2 is tiny


@dataclass(frozen=True)
class Ridge:
    """λ/2 ‖w‖² + μ/2 ‖w − w₀‖²: what it costs a model to leave zero, and to leave its centre w₀."""

    l2: float
    centre: Floats
    centre_l2: float = 0.0

    @property
    def strength(self) -> float:
        """λ + μ, the least curvature the objective has in any direction."""
        return self.l2 + self.centre_l2

    @property
    def minimiser(self) -> Floats:
        """Where the two terms alone are least, μ/(λ+μ) · w₀: the model of queries without a single pair."""
        return self.centre * (self.centre_l2 / self.strength)

    def value(self, weights: Floats) -> float:
        """The two terms."""
        away = weights - self.centre
        return float(0.5 * self.l2 * weights @ weights + 0.5 * self.centre_l2 * away @ away)

    def gradient(self, weights: Floats) -> Floats:
        """Their gradient."""
        return self.l2 * weights + self.centre_l2 * (weights - self.centre)


@dataclass(frozen=True)
class Optimum:
    """Weights, the objective there, and the proven bound on its distance from the minimum.

    Where the method went by them, also the documents' scores there and the sums over pairs.
    """

    weights: Floats
    value: float
    gap: float
    scores: Floats | None = None
    sums: PairSums | None = None


@dataclass(frozen=True)
class _Point:
    weights: Floats
    scores: Floats
    sums: PairSums
    value: float


class _Objective:
    """F, its gradient and its Newton step, at a point."""

    def __init__(self, preferences: Preferences, coefficients: Floats, ridge: Ridge, loss: Loss) -> None:
        self.preferences, self.coefficients, self.ridge, self.loss = preferences, coefficients, ridge, loss
        self.row_coefficients = np.repeat(coefficients, np.diff(preferences.starts))

    def at(self, weights: Floats, scores: Floats) -> _Point:
        sums = self.preferences.sums(scores, self.loss)
        return _Point(weights, scores, sums, self.ridge.value(weights) + float(self.coefficients @ sums.losses))

    def gradient(self, point: _Point) -> Floats:
        by_score = self.row_coefficients * point.sums.gradient
        return self.ridge.gradient(point.weights) + self.preferences.by_weights(by_score)

    def slope(self, point: _Point, step: Floats, along: Floats) -> float:
        """The derivative in the direction `step`, which moves the scores by `along`."""
        by_score = self.row_coefficients * point.sums.gradient
        return float(step @ self.ridge.gradient(point.weights) + along @ by_score)

    def newton_step(self, point: _Point, gradient: Floats) -> Floats:
        curvature = self.preferences.curvature(point.scores, point.sums.degree, self.coefficients, self.loss)
        curvature[np.diag_indices_from(curvature)] += self.ridge.strength
        try:
            return -cho_solve(cho_factor(curvature, overwrite_a=True), gradient)
        except LinAlgError:
            raise SolverError(f"l2={self.ridge.l2:g} is too small for these features; raise it.") from None

    def line_search(self, here: _Point, step: Floats, slope: float) -> _Point:
        """The full step where it descends enough; else the point along it where F stops falling, to a tenth."""
        along = self.preferences.scores(step)
        size, low, high = 1.0, (0.0, slope), (np.inf, np.inf)
        there = here
        for trial in range(60):
            there = self.at(here.weights + size * step, here.scores + size * along)
            if trial == 0 and there.value <= here.value + _SUFFICIENT * slope:
                break
            slope_there = self.slope(there, step, along)
            if abs(slope_there) <= 0.1 * abs(slope) and (slope_there <= 0 or there.value < here.value):
                break
            # F is convex, so its slope rises along the way and its zero lies between a negative and a positive one.
            if slope_there < 0:
                low = (size, slope_there)
            else:
                high = (size, slope_there)
            middle = 0.5 * (low[0] + high[0])
            crossing = low[0] - low[1] * (high[0] - low[0]) / (high[1] - low[1])
            size = middle if trial % 2 else crossing
        return there


def minimise(
    preferences: Preferences, coefficients: Floats, *, ridge: Ridge, loss: Loss, tolerance: float, start: Floats
) -> Optimum:
    """Newton steps with a line search until the relative gap is proven to be at most `tolerance`."""
    objective = _Objective(preferences, coefficients, ridge, loss)
    here = objective.at(start, preferences.scores(start))
    gap = np.inf
    for _ in range(_MAX_STEPS):
        gradient = objective.gradient(here)
        gap = float(gradient @ gradient) / (2 * ridge.strength)
        if gap <= tolerance * here.value:
            break
        step = objective.newton_step(here, gradient)
        here = objective.line_search(here, step, float(gradient @ step))
    if not gap <= max(tolerance, _ROUNDING) * here.value:
        raise SolverError(
            f"The ranking SVM stopped up to {gap:.1e} above its minimum of about {here.value:.3g}; a relative gap of "
            f"{tolerance:g} was asked for. Raise l2 ({ridge.l2:g}), or leave scale='standard' to have features alike."
        )
    return Optimum(here.weights, here.value, gap, here.scores, here.sums)


def minimise_hinge(
    preferences: Preferences, coefficients: Floats, *, ridge: Ridge, tolerance: float, start: Floats
) -> Optimum:
    """The hinge loss, by hinges ever less rounded, until rounding and gap together are within `tolerance`.

    The rounded hinge exceeds the hinge by at most δ/4, so the rounded optimum is within Σ_i c_i p_i · δ/4 of the true
    one. Each stage starts where the last one ended.
    """
    pair_weight = float(coefficients @ preferences.pairs)
    half_width = 1.0
    while True:
        loss = smoothed_hinge(half_width)
        stage = minimise(preferences, coefficients, ridge=ridge, loss=loss, tolerance=tolerance / 4, start=start)
        rounding = pair_weight * half_width / 4
        if rounding + stage.gap <= tolerance * (stage.value - rounding):
            return Optimum(stage.weights, stage.value, stage.gap + rounding)
        start = stage.weights
        half_width /= 4
