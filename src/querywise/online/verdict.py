"""The verdict of an experiment: who wins, by how much, for which queries, and how many more draws it would take.

An e-value and a confidence sequence decide: they are valid after every draw.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
from scipy.special import betaln

from querywise.errors import DataError
from querywise.online.outcomes import Draws
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


_FEWEST_LOST = 2  # wins by which a query is lost on balance
_MOST_LOST = 10  # queries that are listed


class Contest(NamedTuple):
    """A ranking against the first one, among some draws.

    Attributes:
        name: The name of the draws, or of the ranking.
        draws: The number of all of them.
        alpha: The level of this test, after the correction.
        low, high: The confidence sequence of its win rate at that level.
        course: The course of the test, over draws with a winner.
        places: The indices of these draws.

    """

    name: str
    draws: int
    alpha: float
    low: float
    high: float
    course: Course
    places: tuple[int, ...]

    @property
    def wins(self) -> int:
        """The number of draws that the ranking won."""
        return int(self.course.wins[-1]) if len(self.course.wins) else 0

    @property
    def losses(self) -> int:
        """The number of draws that the first ranking won."""
        return int(self.course.losses[-1]) if len(self.course.losses) else 0

    @property
    def rate(self) -> float:
        """The share of draws with a winner that it won; NaN without any."""
        total = self.wins + self.losses
        return self.wins / total if total else math.nan

    @property
    def e_value(self) -> float:
        """The current e-value against 1/2."""
        return float(np.exp(min(self.course.log_e[-1], 700.0))) if len(self.course.log_e) else 1.0

    @property
    def more_draws(self) -> int | None:
        """About how many more draws with a winner would decide, at the observed win rate; None if it cannot."""
        needed = draws_needed(self.rate, self.alpha) if self.wins + self.losses else None
        if needed is None or self.course.decided is not None:
            return None
        return max(needed - self.wins - self.losses, 1)


class Verdict(NamedTuple):
    """The contests of an experiment: of every ranking with the first, and by kind of query under one correction.

    Attributes:
        lost: Queries that the last ranking lost most, with its wins and losses.
        more_impressions: About how many more would decide it at the observed win rate; None if it is decided, or cannot
            be.

    """

    draws: Draws
    contests: tuple[Contest, ...]
    kinds: tuple[Contest, ...]
    lost: tuple[tuple[str, int, int], ...]
    more_impressions: int | None


def verdict_of(draws: Draws, alpha: float = ALPHA) -> Verdict:
    """Test every ranking against the first, which is the one that is served."""
    rivals = range(1, len(draws.arms))
    contests = tuple(_contest(draws, arm, draws.arms[arm], alpha / len(rivals)) for arm in rivals)
    last = len(draws.arms) - 1
    names = sorted({kind for own in draws.kinds for kind in own})
    kinds = tuple(_contest(draws, last, name, alpha / len(names), kind=name) for name in names)
    main = contests[-1]
    more = main.more_draws
    decided = main.wins + main.losses
    impressions = None if more is None else math.ceil(more * draws.impressions / decided)
    return Verdict(draws, contests, kinds, _lost(draws, last), impressions)


def _contest(draws: Draws, arm: int, name: str, alpha: float, kind: str | None = None) -> Contest:
    chosen = np.array([kind is None or kind in own for own in draws.kinds], np.bool_)
    places, won = draws.contest(arm, chosen)
    course = course_of(won, alpha)
    low, high = win_rates(course.wins[-1:], course.losses[-1:], alpha)
    ends = (float(low[0]), float(high[0])) if len(won) else (0.0, 1.0)
    return Contest(name, int(chosen.sum()), alpha, *ends, course, tuple(places.tolist()))


def _lost(draws: Draws, arm: int) -> tuple[tuple[str, int, int], ...]:
    wins, losses = Counter[str](), Counter[str]()
    places, won = draws.contest(arm)
    for place, is_win in zip(places.tolist(), won.tolist(), strict=True):
        (wins if is_win else losses)[draws.query[place]] += 1
    worst = sorted(losses, key=lambda query: (wins[query] - losses[query], query))[:_MOST_LOST]
    return tuple((query, wins[query], losses[query]) for query in worst if losses[query] - wins[query] >= _FEWEST_LOST)
