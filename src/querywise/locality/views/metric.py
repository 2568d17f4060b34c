"""A learned diagonal metric: coordinates scaled so that the local models of near queries suit each other."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.optimize import nnls

from querywise.contracts.estimators import Estimator
from querywise.contracts.protocols import QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.ordering import content_order
from querywise.errors import NotFittedError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.neighborhoods import Nearest
from querywise.locality.views.looking import known_to, looked_at
from querywise.locality.views.references import following
from querywise.locality.views.topmean import TopMean
from querywise.measures.flavours import FLAVOURS
from querywise.measures.formulas import average_precisions
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import contents, floats, part

_TRIED = 30  # other queries' models tried on each training query


class LearnedMetric(Estimator):
    """A view with every coordinate scaled by a factor learned from the training queries.

    Where they have classes, the factor is the variance between classes over the variance within them. Otherwise other
    queries' local models are tried on each training query, and the squared differences of the
    coordinates are fitted, with non-negative factors, to the loss in average precision. A model is
    never tried on a query it was trained on. k: the share or number of neighbours of those models.
    """

    stored = contents(view_=part(QueryView, coordinates="coordinates"), stretch_=floats("coordinates"))

    def __init__(self, view: QueryView | None = None, *, k: float = 0.2, seed: int = 0) -> None:
        self.view = view
        self.k = k
        self.seed = seed

    def by(self, ranker: Ranker, /) -> LearnedMetric:
        """The same over a view with this ranker as reference, unless it has one of its own."""
        view = TopMean() if self.view is None else self.view
        return LearnedMetric(following(view, ranker), k=self.k, seed=self.seed)

    def fit(self, data: Judged, /) -> Self:
        """Learn the factors."""
        self.view_ = unfitted(TopMean() if self.view is None else self.view).fit(data)
        points = self.view_.points(data.candidates)
        table = data.candidates.queries
        if table is not None and table.classes is not None and len(set(table.classes) - {None}) > 1:
            factors = _by_classes(points, table.classes)
        else:
            factors = self._by_precision_lost(points, data)
        total = factors.sum()
        # Factors of mean 1; where nothing was learned, the view stays as it is.
        self.stretch_ = np.sqrt(factors * len(factors) / total) if total > 0 else np.ones(points.shape[1])
        return self

    @property
    def looks_at(self) -> tuple[str, ...]:
        """What the inner view uses."""
        return looked_at(self.view_)

    def known(self, candidates: Candidates, /) -> Bools:
        """The queries that the inner view knows."""
        return known_to(self.view_, candidates)

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query."""
        if not hasattr(self, "stretch_"):
            raise NotFittedError(self)
        stretched: Floats = self.view_.points(candidates) * self.stretch_
        return stretched

    def _by_precision_lost(self, points: Floats, data: Judged) -> Floats:
        members = Nearest(self.k).fit(points).weights(points)
        models = RankSVM(tolerance=None).prepare(data).models(members)
        trained_on = members.toarray() > 0
        rng = np.random.default_rng(self.seed)
        differences, losses = [np.zeros((0, points.shape[1]))], [np.zeros(0)]
        order = content_order(data)
        for query in order[data.pairs[order] > 0]:
            others = order[~trained_on[order, query]]
            tried = rng.permutation(others)[:_TRIED]
            if len(tried) > 1:
                lost = -_precisions(data, int(query), models.weights[tried])
                apart = (points[tried] - points[query]) ** 2
                differences.append(apart - apart.mean(axis=0))
                losses.append(lost - lost.mean())
        apart, lost = np.concatenate(differences), np.concatenate(losses)
        return nnls(apart, lost)[0] if len(lost) else np.zeros(points.shape[1])


def _precisions(data: Judged, query: int, weights: Floats) -> Floats:
    """The average precision of one query under several linear models."""
    rows = data.candidates.rows(query)
    scores = data.candidates.features[rows] @ weights.T
    return average_precisions(data.labels[rows], scores, FLAVOURS["standard"])


def _by_classes(points: Floats, classes: tuple[str | None, ...]) -> Floats:
    """Variance between the classes over variance within, coordinate by coordinate."""
    names = sorted({name for name in classes if name is not None})
    groups = [points[[name == each for each in classes]] for name in names]
    known = np.concatenate(groups)
    within = np.sum([((group - group.mean(axis=0)) ** 2).sum(axis=0) for group in groups], axis=0)
    between = ((known - known.mean(axis=0)) ** 2).sum(axis=0) - within
    ratios: Floats = np.maximum(between, 0.0) / np.where(within > 0, within, np.inf)
    return ratios
