"""A query by how differently models see its documents: divergences from a base model [lin2011]_."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from querywise.arrays import Floats
from querywise.data.groups import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.scaling import Scaling
from querywise.views.references import fitted_reference, reference_scores

_BLOCK = 8_000_000  # scores at a time
_NOISE = 1e-12  # of the largest score: below it a spread is rounding; so is a divergence


class Divergence:
    """The Kullback-Leibler divergence of each of several models from a base, over the query's documents.

    reference: the base, a feature by name or by number from 0, or a ranker; None is the single model of the ranker the
    view is used in. models: several models (anything with `scores`), or None: every feature by itself is one. The
    coordinates are standardised on the training queries, unless `standardise` is False.
    """

    def __init__(self, reference: int | Any | None = None, models: Any = None, *, standardise: bool = True) -> None:
        self.reference = reference
        self.models = models
        self.standardise = standardise

    def by(self, ranker: Any) -> Divergence:
        """The same view with this base, unless it has one of its own."""
        reference = ranker if self.reference is None else self.reference
        return Divergence(reference, self.models, standardise=self.standardise)

    def fit(self, data: Judged, /) -> Self:
        """Fit the base, if it needs it, and learn the scale of every coordinate."""
        if self.reference is None:
            raise DataError("Divergence alone needs a reference: a feature column or a ranker.")
        self.reference_ = fitted_reference(self.reference, data)
        found = self._divergences(data.candidates)
        self.scaling_ = Scaling.learn(found, "standard" if self.standardise else "none")
        return self

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query."""
        if not hasattr(self, "scaling_"):
            raise NotFittedError(self)
        return self.scaling_.apply(self._divergences(candidates))

    def _divergences(self, candidates: Candidates) -> Floats:
        width = candidates.features.shape[1] if self.models is None else len(self.models)
        found = np.zeros((len(candidates), width))
        for first, last in candidates.blocks(_BLOCK // max(width, 1)):
            part = candidates if last - first == len(candidates) else candidates.select(np.arange(first, last))
            base = reference_scores(self.reference_, part)
            scores = part.features if self.models is None else self.models.scores(part)
            for query in range(len(part)):
                rows = part.rows(query)
                found[first + query] = divergences(base[rows], scores[rows])
        return found


def divergences(base: Floats, scores: Floats) -> Floats:
    """Σ_d P(d) log(P(d) / P_i(d)) of every column of scores, P by the base; 0 for a query without documents.

    Scores become a distribution over the query's documents by standardising them and taking their softmax, so that a
    model's divergence from itself is 0 whatever its scale.

    >>> divergences(np.array([1.0, 2.0]), np.array([[10.0, 2.0], [20.0, 1.0]])).round(4)
    array([0.    , 1.5232])
    """
    if not len(base):
        return np.zeros(scores.shape[1])
    own, other = _log_distributions(base[:, None]), _log_distributions(scores)
    found = np.sum(np.exp(own) * (own - other), axis=0)
    # Rounding must not be left: standardised, it would weigh as much as any other coordinate.
    return np.where(found > _NOISE, found, 0.0)


def _log_distributions(scores: Floats) -> Floats:
    largest = np.abs(scores).max(axis=0)
    within = scores / np.where(largest > 0, largest, 1.0)  # −1 … 1, whose squares neither overflow nor vanish
    centred = within - within.mean(axis=0)
    spread = np.sqrt(np.mean(centred**2, axis=0))
    tied = spread <= _NOISE
    standard = np.where(tied, 0.0, centred / np.where(tied, 1.0, spread))
    highest = standard.max(axis=0)
    sums: Floats = standard - highest - np.log(np.exp(standard - highest).sum(axis=0))
    return sums
