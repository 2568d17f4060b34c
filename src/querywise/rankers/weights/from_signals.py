"""Weights of a query from its signals: one ranking SVM on the runs' scores times the signals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np

from querywise.contracts.estimators import Estimator
from querywise.data.judged import Candidates, Judged
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.neighborhoods import Nearest
from querywise.locality.views.signals import RunSignals
from querywise.rankers.neighbors import Locality
from querywise.rankers.weights.fusion import OwnWeights, Weights
from querywise.rankers.weights.lists import Lists
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.stored import POSITIVE, Number, contents, floats, part


class SignalWeights(Estimator):
    """The common weights, moved by the query's signals.

        u(q) = w̄ + B φ(q) / Σ w₀,   negative entries cut, then with sum 1

    w₀ and B are one ranking SVM on s ⊗ (1, φ(q)): s the runs' scores, φ the signals, standardised on the training
    queries, w₀ the common part with penalty λ, B the rest with penalty μ. Only what the signals change is taken of it:
    the common weights themselves are w̄, which maximises the measure.

    l2, signals_l2: λ and μ; an infinite μ is w̄ for all queries.
    back_off: the share of training queries that are nearer to each other, by their signals, than a query may be to the
    nearest of them; a query farther away has w̄.
    """

    stored = contents(
        l2=POSITIVE,
        signals_l2=Number(above=0.0, finite=False),
        locality_=part(Locality, coordinates="signals"),
        common_=floats("runs", least=0.0),
        slopes_=floats("runs", "signals"),
    )

    def __init__(self, l2: float, signals_l2: float, back_off: float | None) -> None:
        self.l2 = l2
        self.signals_l2 = signals_l2
        self.back_off = back_off

    def fit(self, lists: Lists, everyone: Weights) -> Self:
        """Train the ranking SVM."""
        self.locality_ = Locality(RunSignals(), Nearest(1), self.back_off).fit(lists.data, everyone)
        self.common_ = lists.best
        runs, count = lists.seen.features.shape[1], self.locality_.points_.shape[1]
        self.slopes_ = np.zeros((runs, count))
        if int(lists.data.pairs.sum()) == 0:
            return self
        # A column times c has c² times less penalty in what its weight means for the original column.
        shrunk = float(np.sqrt(self.l2 / self.signals_l2))
        signals = self.locality_.points_[lists.seen.query_of_row]
        products = lists.seen.features[:, :, None] * signals[:, None, :] * shrunk
        features = np.column_stack([lists.seen.features, products.reshape(len(signals), -1)])
        rows = Candidates(features, lists.seen.starts, lists.seen.query_ids)
        found = RankSVM(self.l2, scale="none").fit(Judged(rows, lists.data.labels)).weights_
        level = float(found[:runs].sum())
        if level > 0:
            self.slopes_ = found[runs:].reshape(runs, count) * (shrunk / level)
        return self

    def own(self, candidates: Candidates, points: Floats, far: Callable[[], Bools]) -> OwnWeights:
        """The weights of these queries, from their positions, and which of these are too far away."""
        steps: Floats = np.einsum("qs,rs->qr", points, self.slopes_)
        moved = np.maximum(self.common_ + steps, 0.0)
        totals = moved.sum(axis=1)
        local = steps.any(axis=1) & (totals > 0) & (candidates.sizes > 0) & ~far()
        weights = np.where(local[:, None], moved / np.where(totals > 0, totals, 1.0)[:, None], self.common_)
        return OwnWeights(weights, local)

    def said(self) -> str:
        """What it is, in words."""
        return f"signals, signals_l2={self.signals_l2:g}"
