"""The plane of two global models: how well a query's best documents score under each [lin2011]_."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np

from querywise.contracts.estimators import Estimator
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.locality.views.looking import REFERENCE, Reference, described, fitted_reference, reference_scores
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import Known, Several, Whole, contents, part


@dataclass(eq=False, repr=False)
class TwoModels(Estimator):
    """Two numbers: the mean score of the `top` best documents under one model, and under another.

    first, second: a feature by name or by number from 0, or a ranker; one that is not fitted is fitted on the training
    queries alone. None is the single model of the ranker the view is used in. Both coordinates are standardised on the
    training queries, unless `standardise` is False.
    """

    first: Reference | None = None
    second: Reference | None = None
    top: int = 10
    _: KW_ONLY
    standardise: bool = True

    stored = contents(top=Whole(1), models_=Several(REFERENCE, 2), scaling_=part(Scaling, columns="coordinates"))

    def by(self, ranker: Ranker, /) -> TwoModels:
        """The same view with this ranker for a model that was not given."""
        first, second = (ranker if each is None else each for each in (self.first, self.second))
        return TwoModels(first, second, self.top, standardise=self.standardise)

    def fit(self, data: Judged, /) -> Self:
        """Fit the models, where they need it, and learn the scale of both coordinates."""
        if not 1 <= self.top < np.inf or self.top != int(self.top):
            raise DataError(f"TwoModels(top={self.top}) must be a whole number from 1 up.")
        if self.first is None or self.second is None:
            raise DataError("TwoModels alone needs two models: feature columns or rankers.")
        self.models_ = tuple(fitted_reference(each, data) for each in (self.first, self.second))
        means = self._means(data.candidates)
        self.scaling_ = Scaling.learn(means, "standard" if self.standardise else "none")
        return self

    def _check_stored(self, known: Known) -> None:
        """There are two coordinates."""
        known.tie("coordinates", 2, "TwoModels.scaling_")

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query."""
        if not hasattr(self, "scaling_"):
            raise NotFittedError(self)
        return self.scaling_.apply(self._means(candidates))

    def known(self, candidates: Candidates, /) -> Bools:
        """The queries with a document that has a feature other than 0."""
        return described(candidates)

    def relevant_points(self, data: Judged, /) -> Floats:
        """Each query's position if its best documents were its relevant ones; its own position where there are none."""
        means = self._means(data.candidates)
        relevant = data.labels > 0
        owner = data.candidates.query_of_row[relevant]
        counts = np.bincount(owner, minlength=len(data))
        for column, model in enumerate(self.models_):
            scores = reference_scores(model, data.candidates)[relevant]
            sums = np.bincount(owner, scores, minlength=len(data))
            means[:, column] = np.where(counts > 0, sums / np.maximum(counts, 1), means[:, column])
        return self.scaling_.apply(means)

    def _means(self, candidates: Candidates) -> Floats:
        columns = [reference_scores(model, candidates) for model in self.models_]
        means = np.zeros((len(candidates), 2))
        for query in range(len(candidates)):
            rows = candidates.rows(query)
            count = rows.stop - rows.start
            if count:
                kept = min(self.top, count)
                means[query] = [np.sort(scores[rows])[count - kept :].mean() for scores in columns]
        return means
