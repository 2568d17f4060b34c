"""Utilities for listwise and boosted learners: queries with pairs, their measures, the best round."""

from __future__ import annotations

import numpy as np

from querywise.data.coverage import relevant_judged
from querywise.data.judged import Judged
from querywise.data.judgements import Judgements
from querywise.data.labels import values_of
from querywise.errors import DataError
from querywise.learners.weights import check_query_weights
from querywise.measures.formulas import average_precision, discounts, find_measure, ndcg
from querywise.measures.order import FLAVOURS, order
from querywise.runtime.arrays import Floats, Ints

_LARGEST = 2**31 - 1
_RISE = 1e-9  # smaller rises of a measure are rounding errors


def with_pairs(data: Judged, query_weights: Floats | None) -> tuple[Judged, Floats]:
    """Return the queries that have pairs and a positive weight, and their weights, which sum to 1.

    The other queries are dropped first, so that a query of weight 0 does not affect scales or thresholds either.
    """
    data.require_preferences()
    weights = check_query_weights(query_weights, data)
    if not weights.any():
        raise DataError("All query weights are 0, so there is no query to learn from.")
    used = np.flatnonzero((weights > 0) & (data.pairs > 0))
    if not len(used):
        raise DataError(
            "None of the queries whose weight is above 0 has two documents with different labels, so there is no "
            "preference to learn from."
        )
    kept = weights[used] / weights[used].max()
    return data if len(used) == len(data) else data.select(used), kept / kept.sum()


class Worth:
    """The measure of a ranked judged set: `map`, `ndcg` or `ndcg@k` of all queries at once.

    The values are those of `measures` in the standard flavour, which counts all judgments; a query without a relevant
    document counts 0.

    >>> from querywise import from_arrays
    >>> data = from_arrays([[1.0], [2.0], [3.0]], [1, 0, 1], qid=["a", "a", "b"])
    >>> Worth(data, "map").of(data.candidates.features[:, 0])
    array([0.5, 1. ])
    """

    def __init__(self, data: Judged, measure: str) -> None:
        check_worth(measure)
        found = find_measure(measure)
        candidates = data.candidates
        self._labels, self._starts, self._owner = data.labels, candidates.starts, candidates.query_of_row
        self._place = np.arange(len(data.labels)) - np.repeat(candidates.starts[:-1], candidates.sizes)
        self._by_precision = found.function is average_precision
        self._values = (data.labels > 0).astype(np.float64) if self._by_precision else _gains(data)
        longest = int(candidates.sizes.max(initial=0))
        shares = 1 / discounts(longest, FLAVOURS["standard"])
        shares[longest if found.k is None else found.k :] = 0.0
        self._shares = shares[self._place]
        best = self._per_query(self._ranked(data.labels.astype(np.float64)))
        if data.missed is not None:
            best = self._best_of_all(data, data.missed, found.k)
        self._best = np.where(best > 0, best, 1.0)

    def of(self, scores: Floats) -> Floats:
        """Return one value per query, with its documents ranked by these scores; ties keep their order."""
        return self._per_query(self._ranked(scores)) / self._best

    def _best_of_all(self, data: Judged, missed: Judgements, k: int | None) -> Floats:
        """Return the values of the ideal order of all judged documents, including those that are not candidates."""
        if self._by_precision:
            return relevant_judged(data).astype(np.float64)
        found, highest = np.zeros(len(data)), _highest_grades(data)
        for query in range(len(data)):
            own = data.labels[data.candidates.rows(query)]
            grades = np.sort(np.concatenate([own, np.maximum(missed.grades[missed.rows(query)], 0)]))[::-1][:k]
            worth = np.exp2(grades - highest[query]) - np.exp2(-highest[query])
            found[query] = np.sum(worth / discounts(len(grades), FLAVOURS["standard"]))
        return found

    def _ranked(self, scores: Floats) -> Floats:
        ranked: Floats = self._values[order(scores, self._starts)]
        return ranked

    def _per_query(self, ranked: Floats) -> Floats:
        terms = ranked * (self._precisions(ranked) if self._by_precision else self._shares)
        sums: Floats = np.bincount(self._owner, weights=terms, minlength=len(self._starts) - 1).astype(np.float64)
        return sums

    def _precisions(self, hits: Floats) -> Floats:
        found = np.concatenate([[0.0], np.cumsum(hits)])
        precisions: Floats = (found[1:] - found[self._starts[self._owner]]) / (self._place + 1)
        return precisions


def _gains(data: Judged) -> Floats:
    """Return 2^label − 1, divided by 2 to the query's highest grade; NDCG stays the same, and no gain is too large.

    If labels stand for values, the values are returned instead.
    """
    if data.gains is not None:
        return values_of(data)
    top = _highest_grades(data)[data.candidates.query_of_row]
    gains: Floats = np.exp2(data.labels - top) - np.exp2(-top)
    return gains


def _highest_grades(data: Judged) -> Floats:
    """Return the highest grade of every query, among its candidates and beyond them."""
    highest = np.zeros(len(data))
    np.maximum.at(highest, data.candidates.query_of_row, data.labels)
    if data.missed is not None:
        np.maximum.at(highest, np.repeat(np.arange(len(data)), np.diff(data.missed.starts)), data.missed.grades)
    return highest


def check_worth(measure: str) -> None:
    """Raise DataError for a measure other than `map`, `ndcg` and `ndcg@k`."""
    if not isinstance(measure, str) or find_measure(measure).function not in (average_precision, ndcg):
        raise DataError(f"measure={measure!r} cannot be optimized. Known: map, ndcg or ndcg@k.")


class BestRound:
    """The round that ranks validation data best, the first if tied; without such data, the last round."""

    def __init__(self, valid: Judged | None, measure: str, patience: int) -> None:
        self._worth = None if valid is None or not len(valid) else Worth(valid, measure)
        self._patience = patience
        self._highest = -np.inf
        self._seen = 0
        self.count = 0

    def goes_on(self, scores: Floats) -> bool:
        """Record the validation scores after one more round; return False once they have not improved for too long."""
        self._seen += 1
        value = np.inf if self._worth is None else float(self._worth.of(scores).mean())
        if self._worth is None or value > self._highest + _RISE:
            self._highest, self.count = value, self._seen
        return self._seen - self.count < self._patience


def check_counts(whose: type, **counts: tuple[int, int]) -> None:
    """Raise DataError unless each parameter is a whole number from its given minimum up."""
    for name, (value, lowest) in counts.items():
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not whole or not lowest <= value <= _LARGEST:
            raise DataError(
                f"{whose.__name__}({name}={value!r}) must be a whole number between {lowest} and {_LARGEST}."
            )


def per_row(values: Floats, starts: Ints) -> Floats:
    """Return the value of each query, repeated for its documents."""
    return np.repeat(values, np.diff(starts))
