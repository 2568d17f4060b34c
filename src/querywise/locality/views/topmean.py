"""A query as its best documents: their mean features [geng2008]_, or two models' mean scores [lin2011]_."""

from __future__ import annotations

import contextlib
from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np

from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.training import Training
from querywise.errors import DataError
from querywise.locality.views.looking import REFERENCE, DocumentView, Reference, fitted_reference, reference_scores
from querywise.runtime.arrays import Floats, for_kernels
from querywise.runtime.compiled import compiled, smallest
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import Known, Several, Whole, contents, part
from querywise.runtime.threads import FEW_FOR_BLAS, one_blas_thread


@dataclass(eq=False, repr=False)
class TopMean(DocumentView):
    """Rank the candidates by a reference, take the best `top`, average their features.

    Args:
        reference: a feature by name or by number from 0, or a ranker; an unfitted one is fitted only on the training
            queries. None is the single model of the ranker that uses the view.
        top: the number of best documents that give a query its position.

    Documents tied at the cutoff share the remaining weight equally. The coordinates are standardized on the training
    queries, unless `standardise` is False.
    """

    reference: Reference | None = None
    top: int = 50
    _: KW_ONLY
    standardise: bool = True

    stored = contents(top=Whole(1), reference_=REFERENCE, scaling_=part(Scaling, columns="features"))

    def fit(self, data: Training, /) -> Self:
        """Fit the reference, if needed, and learn the scale of every coordinate."""
        if not 1 <= self.top < np.inf or self.top != int(self.top):
            raise DataError(f"TopMean(top={self.top}) must be a whole number from 1 up.")
        if self.reference is None:
            raise DataError("TopMean alone needs a reference: a feature column or a ranker.")
        self.reference_ = fitted_reference(self.reference, data)
        self._learn_scale(data.by_query(self._numbers), data.by_query(_largest).max(axis=0, initial=0.0))
        return self

    def _check_stored(self, known: Known) -> None:
        """Check that there is a coordinate for every feature."""
        known.sizes["coordinates"] = known.sizes["features"]

    def by(self, ranker: Ranker, /) -> TopMean:
        """Return the same view with this reference, unless it has one of its own."""
        reference = ranker if self.reference is None else self.reference
        return TopMean(reference, self.top, standardise=self.standardise)

    def relevant_points(self, data: Judged, /) -> Floats:
        """Return each query's position if its top documents were its relevant ones; its own position without any."""
        means = self._numbers(data.candidates)
        for query in range(len(data)):
            rows = data.candidates.rows(query)
            relevant = data.labels[rows] > 0
            if relevant.any():
                means[query] = data.candidates.features[rows][relevant].mean(axis=0)
        return self.scaling_.apply(means)

    def _numbers(self, candidates: Candidates) -> Floats:
        scores = reference_scores(self.reference_, candidates)
        # Threads would wait for each other longer than one query's documents take.
        with contextlib.nullcontext() if candidates.features.size <= FEW_FOR_BLAS else one_blas_thread():
            return self._means_by(scores, candidates)

    def _means_by(self, scores: Floats, candidates: Candidates) -> Floats:
        if len(candidates) == 1 and len(scores):
            return (top_shares(scores, self.top) @ candidates.features)[None, :]
        means = np.zeros((len(candidates), candidates.features.shape[1]))
        for query in range(len(candidates)):
            rows = candidates.rows(query)
            if rows.stop > rows.start:
                means[query] = top_shares(scores[rows], self.top) @ candidates.features[rows]
        return means


def _largest(candidates: Candidates) -> Floats:
    """Return every query's largest absolute feature values."""
    found = np.zeros((len(candidates), candidates.features.shape[1]))
    full = np.flatnonzero(np.diff(candidates.starts))
    if len(full):
        first = candidates.starts[full]
        most, least = (each.reduceat(candidates.features, first) for each in (np.maximum, np.minimum))
        found[full] = np.maximum(most, -least)
    return found


def top_shares(scores: Floats, top: int) -> Floats:
    """Return each document's weight in the mean of the `top` best; those tied at the cut share the rest.

    >>> top_shares(np.array([3.0, 1.0, 2.0, 1.0]), top=3)
    array([0.33333333, 0.16666667, 0.33333333, 0.16666667])
    """
    shares = np.empty(len(scores))
    _share(for_kernels(np.ascontiguousarray(scores)), int(top), shares)
    return shares


@compiled
def _share(scores: Floats, top: int, shares: Floats) -> None:
    """Fill in `top_shares` for one query."""
    count, above, tied = len(scores), 0, 0
    if count <= top:
        shares[:] = 1 / max(count, 1)
        return
    cut = smallest(scores, count - top + 1)
    for score in scores:
        above += score > cut
        tied += score == cut
    for row in range(count):
        shares[row] = 1 / top if scores[row] > cut else (top - above) / tied / top if scores[row] == cut else 0.0


@dataclass(eq=False, repr=False)
class TwoModels(DocumentView):
    """Two numbers: the mean score of the `top` best documents under one model, and under another.

    Args:
        first: A feature by name or by number from 0, or a ranker; an unfitted one is fitted only on the training
            queries. None is the single model of the ranker that uses the view.
        second: The same for the other model.
        top: The number of best documents.
        standardise: Whether to standardize both coordinates on the training queries.

    """

    first: Reference | None = None
    second: Reference | None = None
    top: int = 10
    _: KW_ONLY
    standardise: bool = True

    stored = contents(top=Whole(1), models_=Several(REFERENCE, 2), scaling_=part(Scaling, columns="coordinates"))

    def by(self, ranker: Ranker, /) -> TwoModels:
        """Return the same view with this ranker for a model that was not given."""
        first, second = (ranker if each is None else each for each in (self.first, self.second))
        return TwoModels(first, second, self.top, standardise=self.standardise)

    def fit(self, data: Judged, /) -> Self:
        """Fit the models, if needed, and learn the scale of both coordinates."""
        if not 1 <= self.top < np.inf or self.top != int(self.top):
            raise DataError(f"TwoModels(top={self.top}) must be a whole number from 1 up.")
        if self.first is None or self.second is None:
            raise DataError("TwoModels alone needs two models: feature columns or rankers.")
        self.models_ = tuple(fitted_reference(each, data) for each in (self.first, self.second))
        self._learn_scale(self._numbers(data.candidates))
        return self

    def _check_stored(self, known: Known) -> None:
        """Check that there are two coordinates."""
        known.tie("coordinates", 2, "TwoModels.scaling_")

    def relevant_points(self, data: Judged, /) -> Floats:
        """Return each query's position if its best documents were its relevant ones; its own position without any."""
        means = self._numbers(data.candidates)
        relevant = data.labels > 0
        owner = data.candidates.query_of_row[relevant]
        counts = np.bincount(owner, minlength=len(data))
        for column, model in enumerate(self.models_):
            scores = reference_scores(model, data.candidates)[relevant]
            sums = np.bincount(owner, scores, minlength=len(data))
            means[:, column] = np.where(counts > 0, sums / np.maximum(counts, 1), means[:, column])
        return self.scaling_.apply(means)

    def _numbers(self, candidates: Candidates) -> Floats:
        columns = [reference_scores(model, candidates) for model in self.models_]
        means = np.zeros((len(candidates), 2))
        for query in range(len(candidates)):
            rows = candidates.rows(query)
            count = rows.stop - rows.start
            if count:
                kept = min(self.top, count)
                means[query] = [np.sort(scores[rows])[count - kept :].mean() for scores in columns]
        return means
