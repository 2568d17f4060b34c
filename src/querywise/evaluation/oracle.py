"""The oracle gap: a ranker against the best choice among its models for every query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from querywise.contracts.answers import Answer, Scorer, answer_of
from querywise.data.judged import Judged
from querywise.measures.formulas import precision_halves
from querywise.measures.order import Flavour, find_flavour, tie_break
from querywise.runtime.arrays import Bools, Floats

_SEED = 0  # of the random halves


@dataclass(frozen=True, eq=False)
class Halves:
    """Average precision on halves of each query's documents, by query, averaged over both halves.

    Attributes:
        own: The ranker's own.
        best: That of the model that is best on the same half.
        other: That of the model that is best on the other half, so that no model is chosen by the judgments that
            evaluate it.

    """

    own: Floats
    best: Floats
    other: Floats

    def as_lists(self) -> dict[str, list[float]]:
        """Return the arrays as lists, by name."""
        return {"own": self.own.tolist(), "best": self.best.tolist(), "other": self.other.tolist()}


@dataclass(frozen=True, eq=False)
class OracleGap:
    """Average precision by rank of the model: what the best, the second best, … of a ranker's models reach.

    `best` is UpperBound, by query: always the model with the highest average precision. `by_rank` is the mean of the
    r-th best over all queries. `relevant_only` chooses a model by the query's true relevant documents, if the ranker
    can. A query that is far from all training queries may use the global model, which is not one of these. `halves`
    estimates how much of the gap is luck.
    """

    best: Floats
    by_rank: Floats
    relevant_only: Floats | None = None
    halves: Halves | None = None


def best_of(by_rank: Floats, count: int) -> float:
    """Return the expected mean of the best of `count` random models, whose r-th best reach `by_rank`.

    The best of the drawn models is the r-th best of all with probability C(L − r, count − 1) / C(L, count). The mean
    never falls when models are added.

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
    """Return the gap of a ranker that stores models; None for any other."""
    return gap_in(answer_of(ranker, data.candidates), data, flavour=flavour)


def gap_in(answer: Answer, data: Judged, *, flavour: str = "standard") -> OracleGap | None:
    """Return the gap of the models in an answer to judged queries."""
    if answer.local.stored is None:
        return None
    models = answer.local.models()
    seen, conventions = replace(data, candidates=answer.seen), find_flavour(flavour)
    ties, half = tie_break(answer.seen, conventions), _one_half(seen)
    table, *tables = precision_halves(models, seen, conventions, half, ties)
    asks = None if answer.place is None else answer.place.nearest_to_relevant
    routed = None if asks is None else asks(seen)
    only = None if routed is None else np.where(routed >= 0, table[np.arange(len(data)), np.maximum(routed, 0)], 0.0)
    ranked = -np.sort(-table, axis=1)
    return OracleGap(ranked[:, 0], ranked.mean(axis=0), only, _halves(answer, tables, seen, conventions, half))


def reachable(reached: float, best: float, halves: Sequence[Halves]) -> float:
    """Return what choosing among the models could reach without knowing the judgments: UpperBound minus luck.

    The best model of a query is partly the one that its judgments happen to favor. Chosen on one half of a query's
    documents and evaluated on the other, it keeps a share of its advantage over the ranker; that share of the whole gap
    is taken to be real, and none of it if the share is negative.

    >>> halves = Halves(own=np.array([0.5]), best=np.array([0.7]), other=np.array([0.55]))
    >>> round(reachable(0.4, 0.8, [halves]), 3)
    0.5
    """
    own, top, other = (
        float(np.concatenate(each).mean())
        for each in zip(*((part.own, part.best, part.other) for part in halves), strict=True)
    )
    share = (other - own) / (top - own) if top > own else 0.0
    return reached + min(max(share, 0.0), 1.0) * (best - reached)


def _halves(answer: Answer, tables: Sequence[Floats], seen: Judged, conventions: Flavour, half: Bools) -> Halves | None:
    """Evaluate models that are chosen and evaluated on different documents of the same query.

    `tables` holds queries × models for each half. Only queries with relevant documents in both halves count; the result
    is None if there are none.
    """
    relevant, query = seen.labels >= conventions.relevant_from, seen.candidates.query_of_row
    counts = [np.bincount(query[relevant & side], minlength=len(seen)) for side in (half, ~half)]
    told = (counts[0] > 0) & (counts[1] > 0)
    if not told.any():
        return None
    one, other = (table[told] for table in tables)
    scores, ties = answer.scores()[:, None], tie_break(answer.seen, conventions)
    own = precision_halves(scores, seen, conventions, half, ties)[1:, told, 0]
    return Halves(
        own=(own[0] + own[1]) / 2,
        best=(one.max(axis=1) + other.max(axis=1)) / 2,
        other=(_chosen(one, other) + _chosen(other, one)) / 2,
    )


def _chosen(by: Floats, measured: Floats) -> Floats:
    """Return, for each query, the value in one table of the model that is best in the other; the mean of ties."""
    best = by == by.max(axis=1, keepdims=True)
    found: Floats = (measured * best).sum(axis=1) / best.sum(axis=1)
    return found


def _one_half(data: Judged) -> Bools:
    """Return a random half of each query's documents, with about half of each grade."""
    chance = np.random.default_rng(_SEED).random(len(data.labels))
    order = np.lexsort((chance, data.labels, data.candidates.query_of_row))
    half = np.zeros(len(order), np.bool_)
    half[order[::2]] = True
    return half
