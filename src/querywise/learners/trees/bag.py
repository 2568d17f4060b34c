"""The forests of a bag, grown side by side: a thread takes one that waits, grows a few trees and lets it wait again.

Threads that share the work on one tree wait for each other after every split. A forest depends on itself alone, so
which of them grows when changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from querywise.learners.trees.growth import hush, own_gains
from querywise.runtime.progress import doing
from querywise.runtime.threads import checkpoint, with_help

_AT_A_TIME = 5  # trees: forests come to their ends at about the same time


class Booster(Protocol):
    """A forest of LightGBM's."""

    def update(self) -> bool:
        """Grow one tree more."""

    def eval_valid(self) -> list[tuple[str, str, float, bool]]:
        """The measures on validation data: of which set, their names and values, and whether higher is better."""

    def current_iteration(self) -> int:
        """How many trees there are."""

    def model_to_string(self, num_iteration: int) -> str:
        """So many trees, written down."""


class Growing:
    """A forest under way.

    trees: at most so many. patience: with it, growing ends once the measure on validation data has not risen for so
    many trees, and those after the highest are dropped.
    """

    def __init__(self, booster: Booster, trees: int, patience: int | None) -> None:
        self.booster = booster
        self.trees = trees
        self.patience = patience
        self.count = self.best = 0
        self._highest = float("-inf")

    def grow(self, trees: int) -> bool:
        """Grow so many trees more; False once there is no more to grow."""
        for _ in range(min(trees, self.trees - self.count)):
            self.booster.update()
            self.count += 1
            if self.patience is not None:
                value = self.booster.eval_valid()[0][2]
                if self.best == 0 or value > self._highest:
                    self._highest, self.best = value, self.count
                if self.count - self.best >= self.patience:
                    return False
        return self.count < self.trees

    def grown(self) -> tuple[int, str]:
        """How many trees are kept, and all of them as LightGBM writes them down."""
        count = self.booster.current_iteration() if self.patience is None else self.best
        return count, self.booster.model_to_string(num_iteration=count)


def grow(forests: Sequence[Callable[[], Growing]], at_once: int) -> list[tuple[int, str]]:
    """What each forest has grown, so many of them at once; one by one, they take the memory of one."""
    if at_once == 1:
        return [found for forest in forests for found in _together([forest], 1)]
    return _together(forests, at_once)


def _together(forests: Sequence[Callable[[], Growing]], at_once: int) -> list[tuple[int, str]]:
    with doing("Growing trees"), own_gains() as need_no_gains:
        growing = [start() for start in forests]
        if all(each.patience is None for each in growing):
            need_no_gains()
        waiting = deque(growing)

        def work() -> None:
            hush()
            while True:
                checkpoint()
                try:
                    forest = waiting.popleft()
                except IndexError:  # those that are left are being grown
                    return
                if forest.grow(_AT_A_TIME):
                    waiting.append(forest)

        try:
            with_help(work, at_once - 1)
        finally:
            waiting.clear()  # of a job that is given up, nothing grows on
        return [each.grown() for each in growing]
