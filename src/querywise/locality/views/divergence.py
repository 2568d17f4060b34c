"""A query as the divergences of models from a base model on its documents [lin2011]_."""

from __future__ import annotations

from typing import Self

import numpy as np

from querywise.contracts.estimators import Estimator
from querywise.contracts.protocols import Models, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.locality.views.looking import described
from querywise.locality.views.references import REFERENCE, Reference, fitted_reference, reference_scores
from querywise.runtime.arrays import Bools, Floats, Ints, for_kernels
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import Known, Optional, contents, part
from querywise.runtime.threads import in_threads, one_blas_thread

_BLOCK = 500_000  # scores at a time, in each thread


class Divergence(Estimator):
    """The Kullback-Leibler divergence of each of several models from a base, over the query's documents.

    reference: the base, a feature by name or by number from 0, or a ranker; None is the single model of the ranker the
    view is used in. models: several models (anything with `scores`), or None: every feature by itself is one. The
    coordinates are standardised on the training queries, unless `standardise` is False.
    """

    stored = contents(
        models=Optional(part(Models, models="coordinates")),
        scaling_=part(Scaling, columns="coordinates"),
        reference_=REFERENCE,
    )

    def __init__(
        self, reference: Reference | None = None, models: Models | None = None, *, standardise: bool = True
    ) -> None:
        self.reference = reference
        self.models = models
        self.standardise = standardise

    def by(self, ranker: Ranker, /) -> Divergence:
        """The same view with this base, unless it has one of its own."""
        reference = ranker if self.reference is None else self.reference
        return Divergence(reference, self.models, standardise=self.standardise)

    def fit(self, data: Judged, /) -> Self:
        """Fit the base, if it needs it, and learn the scale of every coordinate."""
        if self.reference is None:
            raise DataError("Divergence alone needs a reference: a feature column or a ranker.")
        self.reference_ = fitted_reference(self.reference, data)
        nothing = np.zeros((0, self._width(data.candidates)))
        found = self._divergences(data.candidates) if self.standardise else nothing
        self.scaling_ = Scaling.learn(found, "standard" if self.standardise else "none")
        return self

    def _check_stored(self, known: Known) -> None:
        """Without models there is a coordinate for every feature."""
        if self.models is None:
            known.tie("features", known.sizes["coordinates"], "Divergence.scaling_")

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query."""
        if not hasattr(self, "scaling_"):
            raise NotFittedError(self)
        return self.scaling_.apply(self._divergences(candidates))

    def some_points(self, candidates: Candidates, wanted: Bools, /) -> Floats:
        """The coordinates that are wanted, queries × models, the others 0 before they are standardised."""
        if not hasattr(self, "scaling_"):
            raise NotFittedError(self)
        return self.scaling_.apply(self._divergences(candidates, wanted))

    def known(self, candidates: Candidates, /) -> Bools:
        """The queries with a document that has a feature other than 0."""
        return described(candidates)

    def _width(self, candidates: Candidates) -> int:
        return candidates.features.shape[1] if self.models is None else len(self.models)

    def _divergences(self, candidates: Candidates, wanted: Bools | None = None) -> Floats:
        from querywise.locality.views.distributions import divergences_where

        width = self._width(candidates)
        found = np.zeros((len(candidates), width))

        def fill(block: tuple[int, int]) -> None:
            first, last = block
            part = candidates if last - first == len(candidates) else candidates.select(np.arange(first, last))
            scores = part.features if self.models is None else self.models.scores(part)
            base = reference_scores(self.reference_, part)
            if wanted is None:
                found[first:last] = divergences(base, scores, part.starts)
            else:
                own, rows = wanted[first:last], np.ascontiguousarray(scores)
                divergences_where(np.ascontiguousarray(base), rows, for_kernels(part.starts), own, found[first:last])

        with one_blas_thread():
            in_threads(fill, list(candidates.blocks(_BLOCK // max(width, 1))))
        return found


def divergences(base: Floats, scores: Floats, starts: Ints) -> Floats:
    """Σ_d P(d) log(P(d) / P_i(d)) of every query and column of scores, P by the base; 0 for a query without documents.

    Scores become a distribution over the query's documents by standardising them and taking their softmax, so that a
    model's divergence from itself is 0 whatever its scale.

    >>> divergences(np.array([1.0, 2.0]), np.array([[10.0, 2.0], [20.0, 1.0]]), np.array([0, 2])).round(4)
    array([[0.    , 1.5232]])
    """
    from querywise.locality.views.distributions import divergences_of

    found = np.empty((len(starts) - 1, scores.shape[1]))
    divergences_of(np.ascontiguousarray(base), np.ascontiguousarray(scores), starts, found)
    return found
