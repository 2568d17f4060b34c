"""When a comparison is decided: an e-value and a confidence sequence that are valid after every draw.

Among draws with a winner, B wins each with probability 1/2 if nobody prefers either list. The beta-binomial mixture

    e = Beta(a + w, a + l) / (Beta(a, a) · r^w · (1 − r)^l),   w wins of B, l of A, against the win rate r,

is a martingale from 1 if r is true (Robbins 1970), so that it ever reaches 1/α with probability α at most (Ville 1939),
however often one looks and whenever the test ends. The win rates against which e is below 1/α are the confidence
sequence: with probability 1 − α it contains the true one at every look.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import betaln

from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints

PRIOR = 50.0  # a: most power at win rates around 0.52 to 0.6, which better rankings have
ALPHA = 0.05
_POWER_DEVIATIONS = 0.8416  # below it are 20 % of a normal distribution: power 80 %
_MOST_DRAWS = 10**12


def log_e_value(wins: Floats | Ints, losses: Floats | Ints, rate: Floats | float = 0.5, prior: float = PRIOR) -> Floats:
    """Return the natural logarithm of e, against a win rate.

    >>> float(log_e_value(np.array(70), np.array(30)).round(3))
    3.7
    """
    mixture = betaln(prior + wins, prior + losses) - betaln(prior, prior)
    found: Floats = np.asarray(mixture - _times_log(wins, rate) - _times_log(losses, 1 - np.asarray(rate)))
    return found


def _times_log(counts: Floats | Ints, rate: Floats | float) -> Floats:
    """Return counts times a logarithm; 0 where the count is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(np.asarray(counts) == 0, 0.0, counts * np.log(rate))
    return found


def win_rates(wins: Ints, losses: Ints, alpha: float = ALPHA, prior: float = PRIOR) -> tuple[Floats, Floats]:
    """Return the lower and upper ends of the confidence sequence, by bisection: log e is convex in the rate.

    >>> low, high = win_rates(np.array([0, 70]), np.array([0, 30]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.509], [1.0, 0.853])
    """
    wins, losses, limit = np.asarray(wins, np.float64), np.asarray(losses, np.float64), -math.log(alpha)
    total = wins + losses
    best = np.where(total > 0, wins / np.maximum(total, 1), 0.5)

    def bisected(outside: float) -> Floats:
        inside, out = best.copy(), np.full_like(best, outside)
        for _ in range(60):
            middle = (inside + out) / 2
            is_in = log_e_value(wins, losses, middle, prior) < limit
            inside, out = np.where(is_in, middle, inside), np.where(is_in, out, middle)
        return out

    return bisected(0.0), bisected(1.0)


class Course(NamedTuple):
    """The course of a test: after every draw with a winner, the wins and losses of B, and the logarithm of e.

    `decided` is the draw, from 0, at which e first reached 1/α; None if it never did.
    """

    wins: Ints
    losses: Ints
    log_e: Floats
    decided: int | None

    @property
    def is_better(self) -> bool | None:
        """Whether B was better when the test was decided; None if it is not decided."""
        return None if self.decided is None else bool(self.wins[self.decided] > self.losses[self.decided])


def course_of(won: Bools, alpha: float = ALPHA, prior: float = PRIOR) -> Course:
    """Test draws in their order, where `won` tells whether B won each draw with a winner.

    >>> course_of(np.ones(30, bool)).decided
    28
    """
    if not 0 < alpha < 1:
        raise DataError(f"alpha={alpha}: expected a number between 0 and 1.", arguments=("alpha",))
    wins = np.cumsum(won, dtype=np.int64)
    losses = np.arange(1, len(won) + 1) - wins
    log_e = log_e_value(wins, losses, prior=prior)
    reached = np.flatnonzero(log_e >= -math.log(alpha))
    return Course(wins, losses, log_e, int(reached[0]) if len(reached) else None)


def draws_needed(rate: float, alpha: float = ALPHA, prior: float = PRIOR) -> int | None:
    """Return about how many draws with a winner decide with power 80 % at this true win rate; None at 1/2.

    This is the normal approximation for one look at the end; intermediate looks need no more.

    >>> draws_needed(0.55), draws_needed(0.5)
    (1517, None)
    """

    def decides(draws: int) -> bool:
        deviation = math.sqrt(draws * rate * (1 - rate))
        wins = np.array(max(draws * max(rate, 1 - rate) - _POWER_DEVIATIONS * deviation, 0.0))
        return bool(wins > draws / 2 and log_e_value(wins, draws - wins, prior=prior) >= -math.log(alpha))

    most = 1
    while not decides(most):
        if most > _MOST_DRAWS:
            return None
        most *= 2
    fewest = most // 2
    while most - fewest > 1:
        middle = (fewest + most) // 2
        fewest, most = (fewest, middle) if decides(middle) else (middle, most)
    return most
