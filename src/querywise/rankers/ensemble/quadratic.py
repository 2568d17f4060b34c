"""Small quadratic programs, solved exactly: non-negative weights, a hinge loss for every row.

    min_{w ≥ 0}  ½ wᵀM w  +  C Σ_i max(0, 1 − b_i·w),        M symmetric, M ⪰ I

At the minimum some weights are 0 and the others free. Rows with margin b_i·w < 1 have the dual variable (price) C, rows
with margin > 1 the price 0, and a few rows lie on the hinge's kink, with margin 1 and a price between. Given these
active sets, w is the solution of one linear system.

The solver is therefore a primal-dual active set method (`active_sets`): guess the sets, from a similar program if there
is one, solve, and move everything that violates its condition to another set, all at once. The KKT residual tells how
exact a solution is. If the method cycles, one of two other methods finds the sets.

If the solution of a similar program is known, Newton's method starts there, with a hinge that is smoothed less each
time. The smoothed loss of a row has the slope α = clip(C/2 + (1 − b·w) / give, 0, C): the program is then
differentiable and piecewise quadratic. Each step is Newton's in the weights that are above 0, or would become so,
clipped at 0, and halved until the objective falls: it cannot cycle. If that fails, or if no similar program is known,
Mehrotra's interior point method is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from querywise.errors import SolverError
from querywise.rankers.ensemble.active_sets import (
    ABOVE,
    BELOW,
    KINK,
    TOLERANCE,
    Guess,
    Program,
    active_set_method,
    attempt,
    factor_in_place,
    kkt_residual,
    scalar_product,
    solve_on_sets,
    substitute,
    weighted_sum,
)
from querywise.runtime.arrays import Bools, Floats, Ints, for_kernels
from querywise.runtime.compiled import compiled, compiled_loosely

_SMOOTHING = (0.05, 0.01, 0.002, 0.0004)  # widths of the smoothed kink: margins of 1 ± half of it
_MOST_ROUNDS = 60  # it usually takes about ten
_ENOUGH = 1e-6  # the gradient that may remain, relative to its terms
_SHORTEST = 1e-5  # the shortest step: a shorter one is rounding error
_DESCENT = 1e-4  # the share of the predicted decrease that a step must achieve
_MOST_STEPS = 100  # it usually takes one or two dozen


@dataclass(frozen=True, eq=False)
class Solution:
    """The minimizer, the rows' dual variables (prices) 0 ≤ α ≤ C, and the active sets, a start for a similar program.

    `residual` is the largest violation of the KKT conditions w = max(0, w − g) and α = clip(α + 1 − b·w, 0, C), with
    the gradient g = Mw − Bᵀα; the first is relative to the largest of the terms in g.
    """

    weights: Floats
    prices: Floats
    free: Bools
    side: Ints
    residual: float
    rounds: int


def solve(curvature: Floats, rows: Floats, cost: float, start: Solution | None = None) -> Solution:
    """Return the minimum; raise SolverError if the KKT residual stays above 1e-8, which no known program causes."""
    count, width = rows.shape
    rows = for_kernels(np.ascontiguousarray(rows, dtype=np.float64))
    curvature = np.ascontiguousarray(curvature, dtype=np.float64)
    program = Program(curvature, rows, np.ascontiguousarray(rows.T), float(cost))
    if start is None or (len(start.free), len(start.side)) != (width, count):  # no start, or one of another size
        start, free, side = None, np.ones(width, np.bool_), np.full(count, BELOW, np.int64)
    else:
        free, side = start.free.copy(), start.side.astype(np.int64)
    guess = Guess(free, side, np.zeros(width), np.zeros(count))
    rounds, residual = _solve(program, guess, start is not None)
    if not residual <= TOLERANCE:
        raise SolverError(
            f"A program of {width} weights and {count} rows was solved to a residual of {residual:.1e} only."
        )
    return Solution(guess.weights, guess.prices, guess.free, guess.side, residual, rounds)


def _solve(program: Program, guess: Guess, warm: bool) -> tuple[int, float]:
    """Turn the guess into the solution; return the number of rounds and the KKT residual."""
    rounds, residual = _tried(program, guess)
    if residual <= TOLERANCE:
        return rounds, residual
    if warm:
        solve_on_sets(program, guess)
    for give in _SMOOTHING if warm else ():
        rounds += smoothed_newton(program, guess, give / program.cost)
        more, residual = _tried(program, guess)
        rounds += more
        if residual <= TOLERANCE:
            return rounds, residual
    for plain in (False, True):
        rounds += interior_point(program, guess, plain)
        residual = min(kkt_residual(program, guess), _tried(program, guess)[1])
        if residual <= TOLERANCE:
            break
    return rounds, residual


def _tried(program: Program, guess: Guess) -> tuple[int, float]:
    """Try the active set method from these sets; on success the guess becomes the solution, the same from any start."""
    again = Guess(guess.free.copy(), guess.side.copy(), guess.weights.copy(), guess.prices.copy())
    rounds, residual = attempt(program, again)
    if residual <= TOLERANCE:
        guess.free[:], guess.side[:], guess.weights[:], guess.prices[:] = again
    return rounds, residual


@compiled
def smoothed_newton(program: Program, guess: Guess, give: float) -> int:
    """Minimize from the guess's weights, and derive the active sets from the minimum; return the rounds."""
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
    """Return the smoothed loss of all rows: 0, cost · (1 − margin), or a parabola between."""
    total, half = 0.0, give * cost / 2
    for i in range(len(margins)):
        short = 1.0 - margins[i]
        within = min(max(short + half, 0.0), 2 * half)
        total += within * within / (2 * give) + cost * max(short - half, 0.0)
    return total


@compiled
def _to_change(weights: Floats, push: Floats, pull: Floats) -> tuple[Ints, float]:
    """Return the weights that are above 0 or should be, and the largest slope among them, relative to its terms."""
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
    """Return the change of the weights f that brings their slopes, push − pull, to 0."""
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
    """The target changes of the products weights · slopes, prices · over and spare · under."""

    weights: Floats
    prices: Floats
    spare: Floats


class _Newton(NamedTuple):
    """The Newton system at an iterate: its factor and residuals, used by predictor and corrector."""

    factor: Floats  # of M + diag(slopes / weights) + Bᵀ diag(1 / stretch) B
    stretch: Floats
    pull: Floats  # Bᵀα
    push: Floats  # Mw
    shortfall: Floats  # 1 − Bw − under + over, the primal residual


@compiled
def interior_point(program: Program, guess: Guess, plain: bool) -> int:
    """Guess the active sets by Mehrotra's predictor-corrector interior point method; return the rounds it took.

    Whenever the duality gap has become 30 times smaller, the active sets are derived from the iterate and tried; the
    method stops when they are optimal. `plain` omits the predictor, for programs so badly scaled that it misleads.
    """
    # Roughly how much a row's margin changes with its price.
    rise = weighted_sum(1.0 / np.diag(program.curvature), program.columns**2)
    at = _interior_start(program)
    rounds, enough = 0, 1e-5
    for _ in range(_MOST_STEPS):
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
    """Return a strictly positive start on the scale of the rows."""
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
    """Return the sum of all complementary products, which is the duality gap at a feasible iterate."""
    return np.sum(at.weights * at.slopes) + np.sum(at.prices * at.over) + np.sum(at.spare * at.under)


@compiled
def _nearest_sets(program: Program, guess: Guess, at: _Interior, rise: Floats) -> None:
    """Set the active sets nearest to an iterate: of a variable and its complement, the smaller is taken as 0."""
    guess.free[:] = at.weights > at.slopes / np.diag(program.curvature)
    for i in range(len(rise)):
        if at.prices[i] * rise[i] < at.over[i]:
            guess.side[i] = ABOVE
        else:
            guess.side[i] = BELOW if at.spare[i] * rise[i] < at.under[i] else KINK
    guess.prices[:] = at.prices


@compiled
def _newton_system(program: Program, at: _Interior, pull: Floats, push: Floats) -> _Newton:
    """Return the Newton system reduced to the weights, factored."""
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
    """Return the next iterate: a predictor chooses the centering, a corrector the direction; 0.995 of the limit."""
    affine = _Targets(-at.weights * at.slopes, -at.prices * at.over, -at.spare * at.under)
    predictor = _direction(program, at, newton, affine)
    targets = _centred(at, predictor, gap, plain)
    by = _direction(program, at, newton, targets)
    t = _step_length(at, by)
    t *= 0.995
    return _iterate_after(at, by, t)


@compiled
def _direction(program: Program, at: _Interior, newton: _Newton, targets: _Targets) -> _Direction:
    """Return the Newton direction that changes the complementary products by the targets, to first order."""
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
    """Return the longest step, up to 1, after which no variable is negative."""
    fastest = max(1.0, np.max(-by.weights / at.weights), np.max(-by.slopes / at.slopes))
    for i in range(len(at.prices)):
        change = by.prices[i]
        fastest = max(fastest, -change / at.prices[i], change / at.spare[i])
        fastest = max(fastest, -by.over[i] / at.over[i], -by.under[i] / at.under[i])
    return 1.0 / fastest


@compiled
def _centred(at: _Interior, predictor: _Direction, gap: float, plain: bool) -> _Targets:
    """Return Mehrotra's targets: every product μ = σ · gap / n, σ = (gap after predictor / gap)³, minus second order.

    Plain takes σ = 0.2 and leaves the second-order terms out.
    """
    pairs = len(at.weights) + 2 * len(at.prices)
    if plain:
        aim, second = 0.2 * gap / pairs, 0.0
    else:
        left = _gap(_iterate_after(at, predictor, _step_length(at, predictor)))
        aim, second = gap / pairs * (left / gap) ** 3, 1.0
    return _Targets(
        aim - at.weights * at.slopes - second * predictor.weights * predictor.slopes,
        aim - at.prices * at.over - second * predictor.prices * predictor.over,
        aim - at.spare * at.under + second * predictor.prices * predictor.under,
    )


@compiled
def _iterate_after(at: _Interior, by: _Direction, t: float) -> _Interior:
    """Return the iterate after a step of length t."""
    return _Interior(
        at.weights + t * by.weights,
        at.slopes + t * by.slopes,
        at.prices + t * by.prices,
        at.over + t * by.over,
        at.spare - t * by.prices,
        at.under + t * by.under,
    )
