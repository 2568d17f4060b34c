"""Why rankers order documents as they do, as far as that is known: of one ranker on one fold, and over all folds.

How it is found out is told by the caller of `compare`, which hands in a function of answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from querywise.contracts.answers import Answer
from querywise.data.judged import Judged
from querywise.runtime.arrays import Floats
from querywise.runtime.values import JsonObject


@dataclass(frozen=True)
class Reasons:
    """Why one ranker orders the test documents of one fold as it does. Values are as JSON can hold them.

    refused: why nothing is known; empty where something is. here: the share of each feature in the order under the
    models that score, the mean over `queries` queries; everyone: the same under the ranker's global model; moved: the
    mean of the absolute difference of the two. why: of each query, a list for each of some documents: its row within
    the query, then pairs of a feature's number and what it adds to the score, the largest first.
    """

    refused: str = ""
    features: list[str] = field(default_factory=list)
    queries: int = 0
    here: list[float] = field(default_factory=list)
    everyone: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    why: list[list[list[float]]] = field(default_factory=list)

    def as_json(self) -> JsonObject:
        """All of it, by name."""
        return asdict(self)


# Given an answer to the queries of a test part, why it is as it is.
Explain = Callable[[Answer, Judged], Reasons]


@dataclass(frozen=True)
class Use:
    """How much a feature counts for a ranker, over all folds: under its models, under its global one, and moved."""

    feature: str
    here: float
    everyone: float
    moved: float


def uses(folds: Sequence[Reasons]) -> tuple[Use, ...]:
    """Every feature of a ranker, the one that counts most first: means over the queries of all folds."""
    queries = sum(each.queries for each in folds)
    total: dict[str, Floats] = {}
    for each in folds:
        for name, *shares in zip(each.features, each.here, each.everyone, each.moved, strict=True):
            total[name] = total.get(name, np.zeros(3)) + each.queries * np.array(shares)
    found = [Use(name, *(sums / max(queries, 1)).tolist()) for name, sums in total.items()]
    return tuple(sorted(found, key=lambda each: -each.here))
