"""The statistics of a part of a training set that training needs first."""

from __future__ import annotations

from typing import NamedTuple

from querywise.runtime.arrays import Ints
from querywise.runtime.scaling import Moments


class Survey(NamedTuple):
    """The queries of a part, how many preference pairs each has, and how its features are spread."""

    query_ids: tuple[str, ...]
    pairs: Ints
    moments: Moments
