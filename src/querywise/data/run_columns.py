"""The two features of every first-stage run: what it scored a document, and how high it ranked it.

A run called NAME has the columns `run.NAME.score` (the raw score, 0 where the run did not find the document) and
`run.NAME.reciprocal_rank` (1 / rank in the run's own list, 0 where the run did not find the document).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

_PREFIX, _SCORE, _RECIPROCAL_RANK = "run.", ".score", ".reciprocal_rank"


class RunColumns(NamedTuple):
    """One run's name and the numbers, from 0, of its two columns."""

    name: str
    score: int
    reciprocal_rank: int


def run_feature_names(runs: Sequence[str]) -> tuple[str, ...]:
    """The names of the columns of some runs, in order.

    >>> run_feature_names(["bm25"])
    ('run.bm25.score', 'run.bm25.reciprocal_rank')
    """
    return tuple(f"{_PREFIX}{name}{end}" for name in runs for end in (_SCORE, _RECIPROCAL_RANK))


def run_columns(feature_names: Sequence[str] | None) -> list[RunColumns]:
    """The runs that features tell of, in the order of their score columns. A run with one of its columns is none.

    >>> run_columns(["length", "run.bm25.score", "run.bm25.reciprocal_rank"])
    [RunColumns(name='bm25', score=1, reciprocal_rank=2)]
    """
    return list(_found(tuple(feature_names or ())))


@lru_cache(64)  # a service asks for each request
def _found(feature_names: tuple[str, ...]) -> tuple[RunColumns, ...]:
    places = {name: place for place, name in enumerate(feature_names)}
    found = []
    for feature, place in places.items():
        name = feature.removeprefix(_PREFIX).removesuffix(_SCORE)
        if feature == f"{_PREFIX}{name}{_SCORE}" and name:
            rank = places.get(f"{_PREFIX}{name}{_RECIPROCAL_RANK}")
            if rank is not None:
                found.append(RunColumns(name, place, rank))
    return tuple(found)
