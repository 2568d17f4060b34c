"""A projection of a view onto the directions that predict queries' loss gradients."""

from __future__ import annotations

from typing import Self

import numpy as np

from querywise.contracts.estimators import Estimator
from querywise.contracts.protocols import QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.views.looking import known_to, looked_at
from querywise.locality.views.references import following
from querywise.locality.views.topmean import TopMean
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import contents, floats, part
from querywise.runtime.threads import one_blas_thread

_PENALTIES = np.logspace(-2, 4, 13)


class GradientView(Estimator):
    """The few directions of a view that best predict a query's gradient at the single model.

    A ridge regression, its penalty chosen by leave-one-out, predicts from the view's coordinates each training query's
    gradient at the single ranking SVM. The principal `directions` of its predictions make a space in which near queries
    would change that model alike. Queries without a preference have no gradient and are left out. l2: of that ranking
    SVM.
    """

    stored = contents(
        view_=part(QueryView, coordinates="inside"),
        centre_=floats("inside"),
        projection_=floats("inside", "coordinates"),
    )

    def __init__(self, view: QueryView | None = None, directions: int = 3, *, l2: float = 0.1) -> None:
        self.view = view
        self.directions = directions
        self.l2 = l2

    def by(self, ranker: Ranker, /) -> GradientView:
        """The same over a view with this ranker as reference, unless it has one of its own."""
        view = TopMean() if self.view is None else self.view
        return GradientView(following(view, ranker), self.directions, l2=self.l2)

    def fit(self, data: Judged, /) -> Self:
        """Learn the directions."""
        from sklearn.linear_model import RidgeCV

        if self.directions < 1 or self.directions != int(self.directions):
            raise DataError(f"GradientView(directions={self.directions}) must be a whole number from 1 up.")
        self.view_ = unfitted(TopMean() if self.view is None else self.view).fit(data)
        points = self.view_.points(data.candidates)
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

    @property
    def looks_at(self) -> tuple[str, ...]:
        """What the inner view uses."""
        return looked_at(self.view_)

    def known(self, candidates: Candidates, /) -> Bools:
        """The queries that the inner view knows."""
        return known_to(self.view_, candidates)

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query."""
        if not hasattr(self, "projection_"):
            raise NotFittedError(self)
        points: Floats = (self.view_.points(candidates) - self.centre_) @ self.projection_
        return points


def _same_sign(directions: Floats) -> Floats:
    """Directions whose largest entry is positive, so that they are the same on every machine."""
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    return directions * np.where(largest < 0, -1.0, 1.0)
