"""Which weights by query are worth it: cross-validation against one set of weights for all queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, Self

import numpy as np

from querywise.contracts.answers import Gain
from querywise.data.judged import Candidates
from querywise.data.ordering import content_order
from querywise.data.query_groups import deal_in_turn
from querywise.rankers.neighbors import Locality
from querywise.rankers.weights.fusion import OwnWeights, Weights
from querywise.rankers.weights.lists import Lists
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.cache import caching
from querywise.runtime.parameters import unfitted
from querywise.runtime.progress import track

FEWEST = 20  # queries; from fewer nothing is chosen
CHOICE = "the best of these in other parts"
_SURE = 3.0  # standard errors that the gain of the choice must exceed: of many ways the best gains two by luck


class Way(Protocol):
    """A way to weights of a query's own."""

    locality_: Locality

    def fit(self, lists: Lists, everyone: Weights, /) -> Self:
        """Learn from judged lists."""
        ...

    def own(self, candidates: Candidates, points: Floats, far: Callable[[], Bools], /) -> OwnWeights:
        """The weights of these queries, from their positions, and which of these are too far away."""
        ...

    def said(self) -> str:
        """What it is, in words."""
        ...


def shrunk(own: Floats, common: Floats, shrinkage: float) -> Floats:
    """w̄ + ρ (u − w̄): with ρ = 0, or where u is w̄, exactly w̄."""
    return common + shrinkage * (own - common)


def cross_validated(
    lists: Lists, ways: Sequence[Way], shrinkages: Sequence[float], everyone: Weights, *, folds: int, seed: int
) -> tuple[list[Gain], int]:
    """The gain of every way and shrinkage over w̄, and the number of the one to take; −1 is w̄.

    Every query is ranked by what was learned from other parts; a group of queries is in one part. The one with the
    highest mean gain is taken, the first of equals, if its gain exceeds one standard error, and that of the choice
    itself, where every part has what was best in the others, exceeds three. The second, the last of the list, keeps out
    what is best by luck: one of many is.
    """
    place, order = np.empty(len(lists.data), dtype=np.int64), content_order(lists.data)
    place[order] = deal_in_turn(np.random.default_rng(seed).permutation(len(order)), folds, lists.data.groups[order])
    commons, found = _held_out(lists, ways, everyone, place)
    usual = lists.values(commons)
    said = [f"{way.said()}, shrinkage={each:g}" for way in ways for each in shrinkages]
    paired = np.array([lists.values(shrunk(own, commons, each)) - usual for own in found for each in shrinkages])
    gains = [
        _gain(name, row) for name, row in zip([*said, CHOICE], [*paired, _of_the_choice(paired, place)], strict=True)
    ]
    best = int(np.argmax([each.gain for each in gains[:-1]]))
    sure = gains[-1].gain > _SURE * gains[-1].error and gains[best].gain > gains[best].error
    taken = sure and gains[best].gain > 0
    return [each._replace(taken=taken and number == best) for number, each in enumerate(gains)], best if taken else -1


def _held_out(lists: Lists, ways: Sequence[Way], everyone: Weights, place: Ints) -> tuple[Floats, Floats]:
    """The common weights and those of every way, for each query by what was learned from other parts."""
    commons = np.empty((len(lists.data), lists.options.shape[1]))
    found = np.empty((len(ways), *commons.shape))
    for part in track(np.unique(place).tolist(), "Weights by query"):
        held, rest = np.flatnonzero(place == part), np.flatnonzero(place != part)
        train, asked = lists.select(rest), lists.data.candidates.select(held)
        common = unfitted(everyone).found_in(train)
        commons[held] = common.weights_
        with caching():
            for number, way in enumerate(ways):
                fitted = unfitted(way).fit(train, common)
                points = fitted.locality_.points(asked)
                found[number, held] = fitted.own(asked, points, partial(fitted.locality_.is_far, points)).weights
    return commons, found


def _of_the_choice(paired: Floats, place: Ints) -> Floats:
    """The gain of every query under what is best in the other parts; 0 where nothing gains there."""
    gains = np.zeros(len(place))
    for part in np.unique(place):
        means = paired[:, place != part].mean(axis=1)
        if means.max() > 0:
            gains[place == part] = paired[int(np.argmax(means)), place == part]
    return gains


def _gain(said: str, paired: Floats) -> Gain:
    return Gain(said, float(paired.mean()), float(paired.std(ddof=1) / np.sqrt(len(paired))), False)
