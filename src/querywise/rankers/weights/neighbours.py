"""Weights of a query from the training queries around it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.estimators import Estimator
from querywise.contracts.protocols import QueryView
from querywise.data.judged import Candidates
from querywise.locality.neighborhoods import Nearest, distances
from querywise.locality.views.looking import looked_at
from querywise.locality.views.text import TextView
from querywise.rankers.neighbors import Locality, is_lost, without
from querywise.rankers.weights.fusion import OwnWeights, Weights
from querywise.rankers.weights.lists import Lists
from querywise.rankers.weights.options import best_of
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.parameters import forget_derived
from querywise.runtime.stored import Number, contents, floats, part


class NeighbourWeights(Estimator):
    """The weights that rank a query's neighbours and, κ times, all training queries best.

        u(q) = argmax_w  Σ_i v_i(q) T_i(w) + κ T̄(w)

    T_i(w) is the measure of training query i under weights w, T̄ its mean over all, v(q) the neighbours' weights, with
    sum 1. Of equally good weights u is the nearest to w̄. A query without neighbours, too far from all training queries,
    or without anything that would give it a position (a word, a vector) has w̄.

    view, k: the neighbours are the k nearest in a view; by default of the query's text, and without texts in TopMean.
    kappa: κ; infinity is w̄ for all queries.
    back_off: the share of training queries that are nearer to each other than a query may be to the nearest of them.
    """

    stored = contents(
        kappa=Number(least=0.0, finite=False),
        locality_=part(Locality, queries="queries"),
        options_=floats("options>0", "runs", least=0.0),
        table_=floats("queries", "options"),
        common_=floats("runs", least=0.0),
    )

    def __init__(self, view: QueryView | None, k: float, kappa: float, back_off: float | None) -> None:
        self.view = view
        self.k = k
        self.kappa = kappa
        self.back_off = back_off

    def fit(self, lists: Lists, everyone: Weights) -> Self:
        """Compute the training queries' positions, and keep their measures under all weights."""
        view = TextView() if self.view is None and lists.data.has_texts() else self.view
        kept = lists.with_best()
        self.locality_ = Locality(view, Nearest(self.k), self.back_off).fit(lists.data, everyone)
        self.options_, self.table_, self.common_ = kept.options, kept.table, kept.best
        forget_derived(self)
        return self

    @cached_property
    def _mean(self) -> Floats:
        return np.asarray(self.table_.mean(axis=0))

    def neighbours(self, points: Floats, far: Bools) -> csr_array:
        """New queries × training queries; an empty row is w̄."""
        if far.all():
            return csr_array((len(points), len(self.locality_.points_)))
        return without(self.locality_.weights(points), far)

    def own(self, candidates: Candidates, points: Floats, far: Callable[[], Bools]) -> OwnWeights:
        """The weights of these queries, from their positions, and which of these are too far away."""
        totals, near = self._around_one(points) if len(points) == 1 else self._around(points, far())
        share = 1 / (1 + self.kappa)
        values = share * near + (1 - share) * self._mean
        found = np.array([self.options_[best_of(each, self.options_, self.common_)] for each in values])
        local = (totals > 0) & has_position(candidates, looked_at(self.locality_.view_))
        return OwnWeights(np.where(local[:, None], found.reshape(-1, len(self.common_)), self.common_), local)

    def _around(self, points: Floats, far: Bools) -> tuple[Floats, Floats]:
        """Per query the sum of its neighbours' weights, 0 where it has none, and Σ_i v_i T_i."""
        rows = self.neighbours(points, far)
        totals = np.asarray(rows.sum(axis=1), dtype=np.float64).ravel()
        return totals, np.asarray(rows @ self.table_) / np.where(totals > 0, totals, 1.0)[:, None]

    def _around_one(self, points: Floats) -> tuple[Floats, Floats]:
        """The same for one query, as in a request: without sparse matrices, and with one look at all points."""
        nearest_queries, nobody = self.locality_.neighborhood_, (np.zeros(1), np.zeros((1, len(self.options_))))
        if is_lost(points)[0]:
            return nobody
        assert isinstance(nearest_queries, Nearest), "fit has made it"
        nearest, found = nearest_queries.around(points[0])
        gap = distances(points, self.locality_.points_[[nearest]], nearest_queries.metric)[0]
        if gap > self.locality_.farthest:
            return nobody
        total = found.weights.sum()
        near = np.add.reduce(self.table_[found.columns] * found.weights[:, None], axis=0)
        return np.array([total]), near[None, :] / total

    def said(self) -> str:
        """What it is, in words."""
        return f"neighbours, kappa={self.kappa:g}"


def has_position(candidates: Candidates, by: tuple[str, ...]) -> Bools:
    """Which queries have something of what gives a position: documents, words, a vector that is not 0; or columns."""
    table, found = candidates.queries, np.zeros(len(candidates), np.bool_)
    if "columns" in by:
        return np.ones(len(candidates), np.bool_)
    if "documents" in by:
        found |= candidates.sizes > 0
    if "text" in by and table is not None and table.texts is not None:
        found |= np.array([bool((text or "").strip()) for text in table.texts], np.bool_)
    if "vector" in by and table is not None and table.vectors is not None:
        found |= table.vectors.any(axis=1)
    return found
