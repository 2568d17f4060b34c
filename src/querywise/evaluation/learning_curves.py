"""The same comparison with fewer training queries: 30, twice as many, and so on up to all of them."""

from __future__ import annotations

import numpy as np

from querywise.data.folds import Fold
from querywise.data.judged import Judged

SMALLEST = 30  # training queries
_FEWEST_VALID = 10  # validation queries


def sizes_up_to(most: int) -> tuple[int, ...]:
    """30 and twice as many each time, and all of them.

    >>> sizes_up_to(300)
    (30, 60, 120, 240, 300)
    """
    sizes, size = [], SMALLEST
    while size < most:
        sizes.append(size)
        size *= 2
    return (*sizes, most)


def cut(fold: Fold, size: int) -> Fold:
    """A fold with so many of its training queries, and as small a share of its validation queries."""
    share = size / len(fold.train)
    few = min(max(round(share * len(fold.valid)), _FEWEST_VALID), len(fold.valid))
    return Fold(some(fold.train, size), some(fold.valid, few), fold.test)


def some(data: Judged, count: int) -> Judged:
    """So many queries, drawn at random; fewer are among those of more."""
    return data.select(np.sort(np.random.default_rng(0).permutation(len(data))[:count]))
