"""Views learned from labels: directions that predict queries' loss gradients, and a learned diagonal metric."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from scipy.optimize import nnls

from querywise.contracts.protocols import QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.training import content_order
from querywise.errors import DataError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.neighborhoods import Nearest
from querywise.locality.views.looking import FittedView, following, known_to, looked_at
from querywise.locality.views.topmean import TopMean
from querywise.measures.formulas import average_precisions
from querywise.measures.order import FLAVOURS
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.parameters import parameters_of, unfitted
from querywise.runtime.stored import contents, floats, part
from querywise.runtime.threads import one_blas_thread

_PENALTIES = np.logspace(-2, 4, 13)
_TRIED = 30  # other queries' models tried on each training query


class _OverView(FittedView):
    """The common part of views learned over another view."""

    view: QueryView | None
    view_: QueryView

    def by(self, ranker: Ranker, /) -> Self:
        """Return the same view over one with this ranker as reference, unless it has one of its own."""
        view = following(TopMean() if self.view is None else self.view, ranker)
        return type(self)(**{**parameters_of(self), "view": view})

    def _inside(self, data: Judged) -> Floats:
        """Fit the inner view, and return the training queries' points in it."""
        self.view_ = unfitted(TopMean() if self.view is None else self.view).fit(data)
        return self.view_.points(data.candidates)

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Return what the inner view uses."""
        return looked_at(self.view_)

    def known(self, candidates: Candidates, /) -> Bools:
        """Return the queries that the inner view knows."""
        return known_to(self.view_, candidates)


@dataclass(eq=False, repr=False)
class GradientView(_OverView):
    """The few directions of a view that best predict a query's gradient at the single model.

    A ridge regression, its penalty chosen by leave-one-out, predicts from the view's coordinates each training query's
    gradient at the single ranking SVM. The principal `directions` of its predictions span a space in which near queries
    would change that model alike. Queries without a preference have no gradient and are left out. l2: of that ranking
    SVM.
    """

    view: QueryView | None = None
    directions: int = 3
    _: KW_ONLY
    l2: float = 0.1

    stored = contents(
        view_=part(QueryView, coordinates="inside"),
        centre_=floats("inside"),
        projection_=floats("inside", "coordinates"),
    )

    def fit(self, data: Judged, /) -> Self:
        """Learn the directions."""
        from sklearn.linear_model import RidgeCV

        if self.directions < 1 or self.directions != int(self.directions):
            raise DataError(f"GradientView(directions={self.directions}) must be a whole number from 1 up.")
        points = self._inside(data)
        has_pairs = data.pairs > 0
        self.centre_ = points.mean(axis=0)
        self.projection_ = np.eye(points.shape[1], min(self.directions, points.shape[1]))
        if has_pairs.sum() > 2 and points.shape[1]:
            known = points[has_pairs] - self.centre_
            ready = RankSVM(self.l2, tolerance=None).prepare(data)
            with one_blas_thread():
                slopes = RidgeCV(alphas=_PENALTIES).fit(known, ready.pulls()[has_pairs]).coef_.T
                predicted = known @ slopes
                main = np.linalg.svd(predicted - predicted.mean(axis=0), full_matrices=False)[2]
                self.projection_ = slopes @ _same_sign(main[: self.directions]).T
        return self

    def _points(self, candidates: Candidates) -> Floats:
        points: Floats = (self.view_.points(candidates) - self.centre_) @ self.projection_
        return points


def _same_sign(directions: Floats) -> Floats:
    """Make the largest entry of each direction positive, so that they are the same on every machine."""
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    return directions * np.where(largest < 0, -1.0, 1.0)


@dataclass(eq=False, repr=False)
class LearnedMetric(_OverView):
    """A view with every coordinate scaled by a factor learned from the training queries.

    If they have classes, the factor is the variance between classes over the variance within them. Otherwise other
    queries' local models are tried on each training query, and the squared differences of the coordinates are fitted,
    with non-negative factors, to the loss in average precision. A model is never tried on a query it was trained on. k:
    the share or number of neighbors of those models.
    """

    view: QueryView | None = None
    _: KW_ONLY
    k: float = 0.2
    seed: int = 0

    stored = contents(view_=part(QueryView, coordinates="coordinates"), stretch_=floats("coordinates"))

    def fit(self, data: Judged, /) -> Self:
        """Learn the factors."""
        points = self._inside(data)
        table = data.candidates.queries
        if table is not None and table.classes is not None and len(set(table.classes) - {None}) > 1:
            factors = _by_classes(points, table.classes)
        else:
            factors = self._by_precision_lost(points, data)
        total = factors.sum()
        # Scale factors to mean 1; if nothing was learned, the view stays unchanged.
        self.stretch_ = np.sqrt(factors * len(factors) / total) if total > 0 else np.ones(points.shape[1])
        return self

    def _points(self, candidates: Candidates) -> Floats:
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
    """Return the average precision of one query under several linear models."""
    rows = data.candidates.rows(query)
    scores = data.candidates.features[rows] @ weights.T
    return average_precisions(data.labels[rows], scores, FLAVOURS["standard"])


def _by_classes(points: Floats, classes: tuple[str | None, ...]) -> Floats:
    """Return the ratio of variance between classes to variance within, by coordinate."""
    names = sorted({name for name in classes if name is not None})
    groups = [points[[name == each for each in classes]] for name in names]
    known = np.concatenate(groups)
    within = np.sum([((group - group.mean(axis=0)) ** 2).sum(axis=0) for group in groups], axis=0)
    between = ((known - known.mean(axis=0)) ** 2).sum(axis=0) - within
    ratios: Floats = np.maximum(between, 0.0) / np.where(within > 0, within, np.inf)
    return ratios
