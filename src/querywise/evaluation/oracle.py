"""The oracle gap: a ranker against the best choice among its models for every query."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from querywise.contracts.answers import Answer, Scorer, answer_of
from querywise.data.judged import Judged
from querywise.measures.flavours import find_flavour
from querywise.measures.formulas import precision_table
from querywise.measures.lists import tie_break
from querywise.runtime.arrays import Floats


@dataclass(frozen=True, eq=False)
class OracleGap:
    """Average precision by rank of the model: what the best, the second best, … of a ranker's models reach.

    `best` is UpperBound, query by query: always the model with the highest average precision. `by_rank` is the mean of
    the r-th best over all queries. `relevant_only` routes by the query's true relevant documents, where the ranker can.
    A query that is far from all training queries may have the global model, which is not one of these.
    """

    best: Floats
    by_rank: Floats
    relevant_only: Floats | None = None

    def best_of(self, count: int) -> float:
        """UpperBound with so many of the models, drawn at random; see `best_of`."""
        return best_of(self.by_rank, count)

    def rank_of(self, value: float) -> int | None:
        """The rank, from 1, of the first model whose mean is at most a value; None if all are above."""
        below = np.flatnonzero(self.by_rank <= value)
        return int(below[0]) + 1 if len(below) else None


def best_of(by_rank: Floats, count: int) -> float:
    """The expected mean of the best of `count` models, drawn at random from those whose r-th best reach `by_rank`.

    The best of the drawn is the r-th of all with probability C(L − r, count − 1) / C(L, count). It never falls when
    models are added.

    >>> best_of(np.array([0.9, 0.6, 0.3]), 1), best_of(np.array([0.9, 0.6, 0.3]), 2)
    (0.6, 0.8)
    """
    models = len(by_rank)
    chance, total = count / models, 0.0
    for rank, value in enumerate(by_rank.tolist(), start=1):
        total += chance * value
        chance *= max(models - rank - count + 1, 0) / max(models - rank, 1)
    return float(round(total, 12))


def oracle_gap(ranker: Scorer, data: Judged, *, flavour: str = "standard") -> OracleGap | None:
    """The gap of a ranker made of stored models; None for any other."""
    return gap_in(answer_of(ranker, data.candidates), data, flavour=flavour)


def gap_in(answer: Answer, data: Judged, *, flavour: str = "standard") -> OracleGap | None:
    """The gap of the models in an answer to some judged queries."""
    if answer.stored is None:
        return None
    seen, conventions = replace(data, candidates=answer.seen), find_flavour(flavour)
    table = precision_table(answer.stored.models, seen, conventions, tie_break(answer.seen, conventions))
    asks = None if answer.place is None else answer.place.nearest_to_relevant
    routed = None if asks is None else asks(seen)
    only = None if routed is None else np.where(routed >= 0, table[np.arange(len(data)), np.maximum(routed, 0)], 0.0)
    ranked = -np.sort(-table, axis=1)
    return OracleGap(ranked[:, 0], ranked.mean(axis=0), only)
