"""First-stage runs: the ranked lists of one system, and the two features that candidates get from them.

A run called NAME has the columns `run.NAME.score` (the raw score, 0 if the run did not find the document) and
`run.NAME.reciprocal_rank` (1 / rank in the run's own list, 0 if the run did not find the document).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from querywise.display.words import counted
from querywise.runtime.arrays import Floats

_ROUNDING = 1e-9  # how far two sums of the same terms may differ
_PREFIX, _SCORE, _RECIPROCAL_RANK = "run.", ".score", ".reciprocal_rank"


@dataclass(frozen=True)
class Run:
    """The run of one system: query → document → score, the higher the better.

    `feature` is the column of candidates that holds its scores, if any.
    """

    name: str
    scores: Mapping[str, Mapping[str, float]]
    feature: str | None = None

    def __repr__(self) -> str:
        documents = counted(sum(map(len, self.scores.values())), "document")
        return f"Run({self.name!r}, {counted(len(self.scores), 'query')}, {documents})"


class RunColumns(NamedTuple):
    """A run's name and the indices of its two columns."""

    name: str
    score: int
    reciprocal_rank: int


def run_feature_names(runs: Sequence[str]) -> tuple[str, ...]:
    """Return the column names of some runs, in order.

    >>> run_feature_names(["bm25"])
    ('run.bm25.score', 'run.bm25.reciprocal_rank')
    """
    return tuple(f"{_PREFIX}{name}{end}" for name in runs for end in (_SCORE, _RECIPROCAL_RANK))


def run_columns(feature_names: Sequence[str] | None) -> list[RunColumns]:
    """Return the runs that the features come from, in the order of their score columns; both columns must be present.

    >>> run_columns(["length", "run.bm25.score", "run.bm25.reciprocal_rank"])
    [RunColumns(name='bm25', score=1, reciprocal_rank=2)]
    """
    return list(_found(tuple(feature_names or ())))


@lru_cache(64)  # a service calls this for each request
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


def run_ranked_by(feature: str, features: Floats, feature_names: Sequence[str] | None) -> str | None:
    """Return the run that orders documents like a feature, according to the run columns.

    The feature is one of the run's own columns, or equals the run's score, up to rounding, for all documents in the
    run.

    >>> names = ["bm25 of all fields", "run.bm25.score", "run.bm25.reciprocal_rank"]
    >>> run_ranked_by("bm25 of all fields", np.array([[7.0, 7.0, 1.0], [2.0, 0.0, 0.0]]), names)
    'bm25'
    """
    names = tuple(feature_names or ())
    runs = run_columns(names)
    named = [run.name for run in runs if feature in (run.name, *run_feature_names([run.name]))]
    if named or feature not in names:
        return named[0] if named else None
    values = features[:, names.index(feature)]
    for run in runs:
        found = features[:, run.reciprocal_rank] > 0
        if found.any() and np.allclose(values[found], features[found, run.score], rtol=_ROUNDING, atol=0.0):
            return run.name
    return None
