"""Mehrotra's interior point method for the programs of `quadratic`, which finds the active sets of hard ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.rankers.ensemble.active_sets import (
    ABOVE,
    BELOW,
    KINK,
    TOLERANCE,
    Guess,
    Program,
    active_set_method,
    factor_in_place,
    kkt_residual,
    scalar_product,
    substitute,
    weighted_sum,
)
from querywise.runtime.arrays import Floats
from querywise.runtime.compiled import compiled

_MOST_ROUNDS = 100  # it takes a dozen or two


class _Interior(NamedTuple):
    """An iterate of the interior point method: variables and their complements, all strictly positive.

    At the optimum the product of each variable and its complement is 0.
    """

    weights: Floats
    slopes: Floats  # the complement of the weights: the gradient ∂/∂w
    prices: Floats
    over: Floats  # the complement of the prices: the part of a margin above 1
    spare: Floats  # C − prices
    under: Floats  # the complement of spare: the hinge loss


class _Direction(NamedTuple):
    """A Newton direction; spare changes by the opposite of prices."""

    weights: Floats
    slopes: Floats
    prices: Floats
    over: Floats
    under: Floats


class _Targets(NamedTuple):
    """How much the products weights · slopes, prices · over and spare · under are to change."""

    weights: Floats
    prices: Floats
    spare: Floats


class _Newton(NamedTuple):
    """The Newton system at an iterate: its factor and residuals, which predictor and corrector share."""

    factor: Floats  # of M + diag(slopes / weights) + Bᵀ diag(1 / stretch) B
    stretch: Floats
    pull: Floats  # Bᵀα
    push: Floats  # Mw
    shortfall: Floats  # 1 − Bw − under + over, the primal residual


@compiled
def interior_point(program: Program, guess: Guess, plain: bool) -> int:
    """Guess the active sets by Mehrotra's predictor-corrector interior point method; the rounds that took.

    Every time the duality gap has become 30 times smaller, the active sets are read off the iterate and tried; the
    method stops where they are optimal. Plain is without the predictor, for programs so badly scaled that it misleads.
    """
    # About how much a row's margin changes with its price.
    rise = weighted_sum(1.0 / np.diag(program.curvature), program.columns**2)
    at = _interior_start(program)
    rounds, enough = 0, 1e-5
    for _ in range(_MOST_ROUNDS):
        rounds += 1
        pull, push = weighted_sum(at.prices, program.rows), weighted_sum(at.weights, program.curvature)
        gap = _gap(at)
        relative = gap / (np.sum(at.weights * push) / 2 + program.cost * np.sum(at.under))
        if relative < enough:
            enough = relative / 30
            _nearest_sets(program, guess, at, rise)
            more, done = active_set_method(program, guess, True)
            rounds += more
            if done and kkt_residual(program, guess) <= TOLERANCE:
                break
        newton = _newton_system(program, at, pull, push)
        at = _interior_step(program, at, newton, gap, plain)
        if not np.isfinite(
            np.sum(at.weights) + np.sum(at.slopes) + np.sum(at.prices) + np.sum(at.over) + np.sum(at.under)
        ):
            break
    return rounds


@compiled
def _interior_start(program: Program) -> _Interior:
    """A strictly positive start on the scale of the rows."""
    cost = program.cost
    count, width = program.rows.shape
    scale = max(np.sum(np.abs(program.rows)) / max(count, 1), 1e-300)
    half = cost / 2
    return _Interior(
        np.full(width, 1.0 / scale),
        np.full(width, cost * scale),
        np.full(count, half),
        np.ones(count),
        np.full(count, half),
        np.ones(count),
    )


@compiled
def _gap(at: _Interior) -> float:
    """The sum of all complementary products, which is the duality gap at a feasible iterate."""
    return np.sum(at.weights * at.slopes) + np.sum(at.prices * at.over) + np.sum(at.spare * at.under)


@compiled
def _nearest_sets(program: Program, guess: Guess, at: _Interior, rise: Floats) -> None:
    """The active sets nearest to an iterate: of a variable and its complement, the smaller one is taken for 0."""
    guess.free[:] = at.weights > at.slopes / np.diag(program.curvature)
    for i in range(len(rise)):
        if at.prices[i] * rise[i] < at.over[i]:
            guess.side[i] = ABOVE
        else:
            guess.side[i] = BELOW if at.spare[i] * rise[i] < at.under[i] else KINK
    guess.prices[:] = at.prices


@compiled
def _newton_system(program: Program, at: _Interior, pull: Floats, push: Floats) -> _Newton:
    """The Newton system reduced to the weights, factored."""
    curvature, columns = program.curvature, program.columns
    width, count = columns.shape
    stretch = at.over / at.prices + at.under / at.spare
    scaled = columns / stretch
    system = np.empty((width, width))
    for j in range(width):
        for k in range(j + 1):
            system[j, k] = curvature[j, k] + scalar_product(columns[j], scaled[k], 0, count)
        system[j, j] += at.slopes[j] / at.weights[j]
    factor_in_place(system, width, 0.0)
    shortfall = 1.0 - weighted_sum(at.weights, columns) - at.under + at.over
    return _Newton(system, stretch, pull, push, shortfall)


@compiled
def _interior_step(program: Program, at: _Interior, newton: _Newton, gap: float, plain: bool) -> _Interior:
    """The next iterate: a predictor chooses the centring, a corrector the direction; 0.995 of the way to the limit."""
    affine = _Targets(-at.weights * at.slopes, -at.prices * at.over, -at.spare * at.under)
    predictor = _direction(program, at, newton, affine)
    targets = _centred(at, predictor, gap, plain)
    by = _direction(program, at, newton, targets)
    t = _step_length(at, by)
    t *= 0.995
    return _moved(at, by, t)


@compiled
def _direction(program: Program, at: _Interior, newton: _Newton, targets: _Targets) -> _Direction:
    """The Newton direction that changes the complementary products by the targets, to first order."""
    lift = newton.shortfall - targets.spare / at.spare + targets.prices / at.prices
    weights = newton.pull - newton.push + at.slopes + targets.weights / at.weights
    weights = weights + weighted_sum(lift / newton.stretch, program.rows)
    substitute(newton.factor, len(weights), weights)
    prices = (lift - weighted_sum(weights, program.columns)) / newton.stretch
    return _Direction(
        weights,
        (targets.weights - at.slopes * weights) / at.weights,
        prices,
        (targets.prices - at.over * prices) / at.prices,
        (targets.spare + at.under * prices) / at.spare,
    )


@compiled
def _step_length(at: _Interior, by: _Direction) -> float:
    """The longest step, up to 1, after which no variable is negative."""
    fastest = max(1.0, np.max(-by.weights / at.weights), np.max(-by.slopes / at.slopes))
    for i in range(len(at.prices)):
        change = by.prices[i]
        fastest = max(fastest, -change / at.prices[i], change / at.spare[i])
        fastest = max(fastest, -by.over[i] / at.over[i], -by.under[i] / at.under[i])
    return 1.0 / fastest


@compiled
def _centred(at: _Interior, predictor: _Direction, gap: float, plain: bool) -> _Targets:
    """Mehrotra's targets: every product μ = σ · gap / n, σ = (gap after the predictor / gap)³, less the second order.

    Plain takes σ = 0.2 and leaves the second-order terms out.
    """
    pairs = len(at.weights) + 2 * len(at.prices)
    if plain:
        aim, second = 0.2 * gap / pairs, 0.0
    else:
        left = _gap(_moved(at, predictor, _step_length(at, predictor)))
        aim, second = gap / pairs * (left / gap) ** 3, 1.0
    return _Targets(
        aim - at.weights * at.slopes - second * predictor.weights * predictor.slopes,
        aim - at.prices * at.over - second * predictor.prices * predictor.over,
        aim - at.spare * at.under + second * predictor.prices * predictor.under,
    )


@compiled
def _moved(at: _Interior, by: _Direction, t: float) -> _Interior:
    """The iterate after a step of length t."""
    return _Interior(
        at.weights + t * by.weights,
        at.slopes + t * by.slopes,
        at.prices + t * by.prices,
        at.over + t * by.over,
        at.spare - t * by.prices,
        at.under + t * by.under,
    )
