"""What an answer costs, estimated before it is begun: requests that cannot be answered in time are refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from querywise.service.errors import ApiError
from querywise.service.limits import Limits

FEW, MANY = 100, 1_000  # documents of the two rehearsals
_SLOW_SECONDS = 0.5  # of a rehearsal with few documents: one with many would take too long
_MARGIN = 2  # an estimate may be so many times too high: the machine was busy during the rehearsal


@dataclass(frozen=True)
class Cost:
    """The seconds that a model takes for the documents of one query, measured with few and with many.

    Beyond `MANY` the time grows with that power of the number of documents. A model that could not be rehearsed costs
    an unknown time, infinite here, and nothing is refused.
    """

    few: float
    many: float
    power: int = 1

    @staticmethod
    def measured(seconds: Callable[[int, int], float], power: Callable[[], int]) -> Cost:
        """By rehearsals; `seconds` takes the number of documents and of repetitions, and returns the shortest time.

        power: asked for when the model has been rehearsed.
        """
        few = seconds(FEW, 3)
        if not math.isfinite(few):
            return Cost(few, few)
        if few > _SLOW_SECONDS:
            return Cost(few, few * (MANY / FEW) ** power(), power())
        return Cost(few, max(seconds(MANY, 2), few), power())

    def seconds(self, documents: int) -> float:
        """The estimate for so many documents of one query."""
        if documents <= FEW:
            return self.few * documents / FEW
        between = math.log(self.many / self.few) / math.log(MANY / FEW)
        return float(self.many * (documents / MANY) ** (between if documents <= MANY else self.power))

    def most(self, seconds: float) -> int:
        """About how many documents of one query can be ranked in so many seconds."""
        low, high = 1, 2
        while self.seconds(high) <= seconds:
            low, high = high, 2 * high
        while high - low > max(low // 100, 1):
            middle = (low + high) // 2
            low, high = (middle, high) if self.seconds(middle) <= seconds else (low, middle)
        return low


def check_cost(cost: Cost, limits: Limits, sizes: Sequence[int]) -> None:
    """Refuse queries of so many documents each if ranking them would surely take longer than is allowed."""
    if not math.isfinite(cost.few) or not cost.few > 0:
        return
    allowed = _MARGIN * limits.seconds
    if cost.seconds(sum(sizes)) <= allowed:
        return
    needed = sum(map(cost.seconds, sizes))
    if needed > allowed:
        raise ApiError(
            413,
            "too_costly",
            f"This model takes about {needed:.0f} seconds for {sum(sizes)} documents, and {limits.seconds:g} are "
            f"allowed. Send up to {cost.most(limits.seconds)} documents at a time.",
            "documents" if len(sizes) == 1 else "requests",
        )
