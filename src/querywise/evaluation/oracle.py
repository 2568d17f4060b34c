"""How much better could the models of a ranker do, if the best of them were known for every query?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from querywise.arrays import Floats
from querywise.data.groups import Judged
from querywise.evaluation.evaluate import tie_break
from querywise.measures import average_precisions, find_flavour

_BLOCK = 8_000_000  # scores at a time


@dataclass(frozen=True, eq=False)
class OracleGap:
    """Average precision by rank of the model: what the best, the second best, … of a ranker's models reach.

    `best` is UpperBound, query by query: always the model with the highest average precision. `by_rank` is the mean of
    the r-th best over all queries. `relevant_only` routes by the query's true relevant documents, where the ranker can.
    """

    best: Floats
    by_rank: Floats
    relevant_only: Floats | None = None

    def rank_of(self, value: float) -> int | None:
        """The rank, from 1, of the first model whose mean is at most a value; None if all are above."""
        below = np.flatnonzero(self.by_rank <= value)
        return int(below[0]) + 1 if len(below) else None


def oracle_gap(ranker: Any, data: Judged, *, flavour: str = "standard") -> OracleGap | None:
    """The gap of a ranker made of several models; None for one that is not (it has no `several_models`)."""
    if not hasattr(ranker, "several_models"):
        return None
    models = ranker.several_models()
    candidates = data.candidates
    conventions = find_flavour(flavour)
    ties = tie_break(candidates, conventions)
    table = np.zeros((len(data), len(models)))
    size = max(1, _BLOCK // max(len(models), 1))
    first = 0
    while first < len(data):
        last = max(first + 1, int(np.searchsorted(candidates.starts, candidates.starts[first] + size, "right")) - 1)
        last = min(last, len(data))
        part = data.select(np.arange(first, last))
        scores = models.scores(part.candidates)
        for query in range(len(part)):
            rows = part.candidates.rows(query)
            labels, own = part.labels[rows], scores[rows]
            if ties is not None:
                turn = np.argsort(ties[candidates.rows(first + query)], kind="stable")
                labels, own = labels[turn], own[turn]
            table[first + query] = average_precisions(labels, own, conventions)
        first = last
    routed = ranker.routed_by_relevance(data) if hasattr(ranker, "routed_by_relevance") else None
    only = None if routed is None else np.where(routed >= 0, table[np.arange(len(data)), np.maximum(routed, 0)], 0.0)
    ranked = -np.sort(-table, axis=1)
    return OracleGap(ranked[:, 0], ranked.mean(axis=0), only)
