"""Newton's method for the programs of `quadratic` with a smoothed hinge, from a solution of a similar program.

The smoothed loss of a row has the slope α = clip(C/2 + (1 − b·w) / give, 0, C): the program is then differentiable and
piecewise quadratic. Each step is Newton's in the weights that are above 0, or would become so, cut off at 0, and halved
until the objective falls: it cannot cycle.
"""

from __future__ import annotations

import numpy as np

from querywise.rankers.ensemble.active_sets import (
    ABOVE,
    BELOW,
    KINK,
    Guess,
    Program,
    factor_in_place,
    scalar_product,
    substitute,
    weighted_sum,
)
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled, compiled_loosely

_MOST_ROUNDS = 60  # it takes about ten
_ENOUGH = 1e-6  # of the terms of the gradient: what is left of it
_SHORTEST = 1e-5  # of a step: one that has to be shorter is rounding
_DESCENT = 1e-4  # of what the slope promises: a step has to bring as much


@compiled
def smoothed_newton(program: Program, guess: Guess, give: float) -> int:
    """Minimise from the guess's weights, and read the active sets off the minimum; the number of rounds."""
    weights, prices = guess.weights, guess.prices
    margins, push = weighted_sum(weights, program.columns), weighted_sum(weights, program.curvature)
    value, rounds = scalar_product(weights, push, 0, len(weights)) / 2 + _loss(margins, give, program.cost), 0
    for _ in range(_MOST_ROUNDS):
        rounds += 1
        for i in range(len(margins)):
            prices[i] = min(max(program.cost / 2 + (1.0 - margins[i]) / give, 0.0), program.cost)
        pull = weighted_sum(prices, program.rows)
        f, worst = _to_change(weights, push, pull)
        if worst <= _ENOUGH:
            break
        step, t = _newton_direction(program, guess, f, push, pull, give), 1.0
        while t > _SHORTEST:
            moved = _moved(weights, f, step, t)
            further, pushed = weighted_sum(moved, program.columns), weighted_sum(moved, program.curvature)
            least = scalar_product(moved, pushed, 0, len(moved)) / 2 + _loss(further, give, program.cost)
            promised = 0.0
            for j in range(len(weights)):
                promised += (push[j] - pull[j]) * (moved[j] - weights[j])
            if least <= value + _DESCENT * promised:
                break
            t /= 2
        if t <= _SHORTEST:
            break
        for j in range(len(weights)):
            weights[j] = moved[j]
        margins, push, value = further, pushed, least
    for j in range(len(weights)):
        guess.free[j] = weights[j] > 0.0
    for i in range(len(prices)):
        guess.side[i] = ABOVE if prices[i] <= 0.0 else BELOW if prices[i] >= program.cost else KINK
    return rounds


@compiled
def _moved(weights: Floats, f: Ints, step: Floats, t: float) -> Floats:
    found = np.empty(len(weights))
    for j in range(len(weights)):
        found[j] = weights[j]
    for a in range(len(f)):
        found[f[a]] = max(weights[f[a]] + t * step[a], 0.0)
    return found


@compiled_loosely
def _loss(margins: Floats, give: float, cost: float) -> float:
    """The smoothed loss of all rows: 0, cost · (1 − margin), or a parabola between."""
    total, half = 0.0, give * cost / 2
    for i in range(len(margins)):
        short = 1.0 - margins[i]
        within = min(max(short + half, 0.0), 2 * half)
        total += within * within / (2 * give) + cost * max(short - half, 0.0)
    return total


@compiled
def _to_change(weights: Floats, push: Floats, pull: Floats) -> tuple[Ints, float]:
    """The weights that are above 0 or should be, and the largest slope among them, relative to its terms."""
    found, many = np.empty(len(weights), np.int64), 0
    worst, largest = 0.0, 1.0
    for j in range(len(weights)):
        slope = push[j] - pull[j]
        largest = max(largest, abs(push[j]), abs(pull[j]))
        if weights[j] > 0.0 or slope < 0.0:
            found[many] = j
            many += 1
            worst = max(worst, abs(slope))
    return found[:many], worst / largest


@compiled
def _newton_direction(program: Program, guess: Guess, f: Ints, push: Floats, pull: Floats, give: float) -> Floats:
    """The change of the weights f to where their slopes, push − pull, would be 0."""
    n = len(f)
    system, right, row = np.empty((n, n)), np.empty(n), np.empty(n)
    for a in range(n):
        right[a] = pull[f[a]] - push[f[a]]
        for b in range(a + 1):
            system[a, b] = program.curvature[f[a], f[b]]
    for i in range(len(guess.prices)):
        if 0.0 < guess.prices[i] < program.cost:
            for a in range(n):
                row[a] = program.rows[i, f[a]]
            for a in range(n):
                factor = row[a] / give
                for b in range(a + 1):
                    system[a, b] += factor * row[b]
    factor_in_place(system, n, 0.0)
    substitute(system, n, right)
    return right
