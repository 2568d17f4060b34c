"""Judged queries by gain and loss: how good the model's order of each is, beside the orders it is compared with."""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from querywise.data.judged import Judged
from querywise.explanations.explain import depends_on_query
from querywise.measures.formulas import find_measure
from querywise.measures.order import RankedList, find_flavour, ranked_lists
from querywise.runtime.arrays import Ints
from querywise.service.limits import QueryCost
from querywise.service.loaded_model import LoadedModel, PerModel
from querywise.service.lookup import first_stage_ranks
from querywise.service.schema import DifferencesResponse, QueryDifference
from querywise.service.service import Service

MEASURE = "ndcg@10"
EVERYONE = "everyone"
_FLAVOUR = find_flavour("standard")
_MOST = 2_000  # queries that are compared
_UNKNOWN = 200  # as many where nobody knows what an answer costs
_TOGETHER = 20  # queries of one job, at most
_JOB_SECONDS = 0.5  # that a job of several queries takes, about: explanations wait for no more than that


class Differences:
    """The differences of the served model, computed on the first request and kept until the model is replaced."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._kept = PerModel(self._computed)

    async def current(self) -> DifferencesResponse:
        """The differences of the current model."""
        return await self._kept.of(self._service.models.current)

    async def _computed(self, model: LoadedModel) -> DifferencesResponse:
        """Compute some queries at a time, in the threads for explanations, so that other requests need not wait."""
        judged, found = self._service.lookup.judged, list[QueryDifference]()
        if judged is None:
            return DifferencesResponse(model.version, MEASURE, [], 0, [])
        numbers = affordable(judged.candidates.sizes, model.cost, self._service.limits.seconds)
        count = 1  # queries of the next job
        while len(found) < len(numbers):
            some = judged.select(numbers[len(found) : len(found) + count])
            more, seconds = await self._service.explainers.run(partial(_timed_differences, model, some))
            found += more
            count = min(max(int(_JOB_SECONDS / max(seconds / len(more), 1e-9)), 1), 2 * count, _TOGETHER)
        return DifferencesResponse(model.version, MEASURE, list(found[0].others) if found else [], len(judged), found)


def affordable(sizes: Ints, cost: QueryCost, seconds: float) -> Ints:
    """Return the queries to compare, spread over the whole set: about as many as can be answered in this time."""
    count = min(len(sizes), _MOST)
    if not cost.known:
        count = min(count, _UNKNOWN)
    elif count:
        mean = float(np.mean([cost.seconds([size]) for size in sizes.tolist()]))
        count = min(count, max(round(seconds / max(mean, 1e-9)), 1))
    return np.arange(count) * len(sizes) // max(count, 1)


def differences(model: LoadedModel, judged: Judged) -> list[QueryDifference]:
    """The measure of some queries in the model's order, under one model for all, and in each first-stage order.

    What a run did not find is not in its order, and counts as missed.
    """
    measure = find_measure(MEASURE)
    answer, scores = model.answer(judged.candidates)
    ours = ranked_lists(scores, judged, _FLAVOUR)
    common = ranked_lists(answer.by_everyone(), judged, _FLAVOUR) if depends_on_query(model.ranker) else None
    found = []
    for number, query_id in enumerate(judged.query_ids):
        others = {} if common is None else {EVERYONE: common[number]}
        own = judged.select([number])
        for name, ranks in first_stage_ranks(own.candidates, model.manifest.feature_names).items():
            others[name] = _as_found(own, ranks)
        values = {name: measure.of(each, _FLAVOUR) for name, each in others.items()}
        found.append(QueryDifference(query_id, measure.of(ours[number], _FLAVOUR), values))
    return found


def _timed_differences(model: LoadedModel, judged: Judged) -> tuple[list[QueryDifference], float]:
    """Return the differences of some queries, and the seconds that they took."""
    begun = time.perf_counter()
    return differences(model, judged), time.perf_counter() - begun


def _as_found(judged: Judged, ranks: Ints) -> RankedList:
    """Return one query's documents by their ranks; rank 0 means not found."""
    last = len(ranks) + 1
    [every] = ranked_lists(-np.where(ranks > 0, ranks, last).astype(np.float64), judged, _FLAVOUR)
    count = int(np.sum(ranks > 0))
    there = every.is_judged
    missed = np.concatenate([every.missed, every.grades[count:][there[count:]]])
    return RankedList(every.grades[:count], there[:count], missed, every.gains)
