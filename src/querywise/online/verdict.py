"""The verdict of an experiment: who wins, by how much, for which queries, and how many more draws it would take."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from querywise.online.outcomes import Draws
from querywise.online.sequential import ALPHA, Course, course_of, draws_needed, win_rates

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
