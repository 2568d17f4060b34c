"""What an answer costs, estimated before it is begun: requests that cannot be answered in time are refused."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from querywise.service.limits import Limits
from querywise.service.responses import ApiError

SIZES = (1, 10, 100, 1_000)  # documents of a query in the rehearsals
BATCHES = (10, 100)  # queries of a batch in the rehearsals
USUAL = SIZES.index(100)  # the size of the first rehearsal, and of what is called quick
SLOW_SECONDS = 0.5  # a rehearsal that would take longer is left out
_MARGIN = 2  # an estimate may be so many times too high: the machine was busy during the rehearsal

Rehearsal = Callable[[int, int, int], float]


@dataclass(frozen=True)
class QueryCost:
    """The seconds that a model takes for one query, measured with each number of documents in `SIZES`.

    alone: of a request with one query. Beyond the largest size the time grows with that power of the number of
    documents. A model that could not be rehearsed costs an unknown time, infinite here, and nothing is refused.
    together: of each query in a batch; None: as much as alone. few: of each in a batch of fewer queries than the
    largest that was rehearsed; None: as much as together.
    """

    alone: tuple[float, ...]
    together: tuple[float, ...] | None = None
    power: int = 1
    few: tuple[float, ...] | None = None

    @staticmethod
    def measured(seconds: Rehearsal, power: Callable[[], int]) -> QueryCost:
        """By rehearsals; `seconds` takes queries, documents of each, and repetitions, and returns the shortest time.

        A rehearsal that would take too long, or too much memory, is left out: a longer list is taken to cost by the
        power, and a query in a batch as much as alone.

        power: asked for when the model has been rehearsed.
        """
        usual = seconds(1, SIZES[USUAL], 3)
        if not math.isfinite(usual):
            return QueryCost((usual,) * len(SIZES))
        alone = [min(seconds(1, size, 3), usual) if usual <= SLOW_SECONDS else usual for size in SIZES[:USUAL]]
        alone.append(usual)
        for before, size in zip(SIZES[USUAL:], SIZES[USUAL + 1 :], strict=False):
            found = math.inf if alone[-1] > SLOW_SECONDS else max(seconds(1, size, 2), alone[-1])
            alone.append(found if math.isfinite(found) else alone[-1] * (size / before) ** power())
        few, many = zip(
            *(_in_a_batch(seconds, *each) for each in zip(SIZES[: USUAL + 1], alone, strict=False)), strict=True
        )
        longer = alone[USUAL + 1 :]
        return QueryCost(tuple(alone), (*many, *longer), power(), (*few, *longer))

    @property
    def known(self) -> bool:
        """Whether the model could be rehearsed."""
        return math.isfinite(self.alone[USUAL]) and self.alone[0] > 0

    def seconds(self, sizes: Sequence[int]) -> float:
        """The estimate for a request whose queries have so many documents each."""
        if len(sizes) == 1:
            return self._at(self.alone, sizes[0])
        each = (self.few if len(sizes) < BATCHES[-1] else None) or self.together or self.alone
        longest = self._at(self.alone, max(sizes, default=0))  # what a batch of few queries does not save
        return max(sum(count * self._at(each, size) for size, count in Counter(sizes).items()), longest)

    def _at(self, known: tuple[float, ...], documents: int) -> float:
        """Between two sizes by the power that leads from one to the other; no query costs less than one document."""
        count = max(documents, SIZES[0])
        last = next((number for number, size in enumerate(SIZES) if size >= count), len(SIZES))
        if last == len(SIZES):
            return known[-1] * math.pow(count / SIZES[-1], self.power)
        if SIZES[last] == count:
            return known[last]
        share = math.log(count / SIZES[last - 1]) / math.log(SIZES[last] / SIZES[last - 1])
        return known[last - 1] * math.pow(known[last] / known[last - 1], share)

    def most(self, seconds: float) -> int:
        """About how many documents of one query can be ranked in so many seconds."""
        low, high = 1, 2
        while self.seconds([high]) <= seconds:
            low, high = high, 2 * high
        while high - low > max(low // 100, 1):
            middle = (low + high) // 2
            low, high = (middle, high) if self.seconds([middle]) <= seconds else (low, middle)
        return low


def _in_a_batch(seconds: Rehearsal, size: int, alone: float) -> tuple[float, float]:
    """The seconds for each query of a small batch and of a large one, as far as they can be rehearsed."""
    found = [alone]
    for queries in BATCHES:
        each = seconds(queries, size, 2) / queries if queries * found[-1] <= SLOW_SECONDS else math.inf
        found.append(each if math.isfinite(each) else found[-1])
    return found[1], found[2]


def check_cost(cost: QueryCost, limits: Limits, sizes: Sequence[int]) -> None:
    """Refuse queries of so many documents each if ranking them would surely take longer than is allowed."""
    needed = cost.seconds(sizes) if cost.known else 0.0
    if needed <= _MARGIN * limits.seconds:
        return
    fitting = int(len(sizes) * limits.seconds / needed)
    if fitting:
        count, instead = f"{len(sizes)} queries of {sum(sizes)} documents", f"{fitting} such queries"
    else:
        count, instead = f"{sum(sizes)} documents", f"{cost.most(limits.seconds)} documents"
    raise ApiError(
        413,
        "too_costly",
        f"This model takes about {needed:.0f} seconds for {count}, and {limits.seconds:g} are allowed. Send up to "
        f"{instead} at a time.",
        "documents" if len(sizes) == 1 else "requests",
    )
