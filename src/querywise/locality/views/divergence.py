"""A query as the divergences of models from a base model on its documents [lin2011]_."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np

from querywise.contracts.protocols import Models, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.locality.views.looking import REFERENCE, DocumentView, Reference, fitted_reference, reference_scores
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import Known, Optional, contents, part
from querywise.runtime.threads import in_threads, one_blas_thread

_BLOCK = 500_000  # scores at a time, in each thread
_NOISE = 1e-12  # of the largest score: a smaller spread, or divergence, is rounding error


@dataclass(eq=False, repr=False)
class Divergence(DocumentView):
    """The Kullback-Leibler divergence of each of several models from a base, over the query's documents.

    Args:
        reference: The base, a feature by name or by number from 0, or a ranker; None is the single model of the ranker
            that uses the view.
        models: Several models (anything with `scores`), or None: every feature by itself is one.
        standardise: Whether to standardize the coordinates on the training queries.

    """

    reference: Reference | None = None
    models: Models | None = None
    _: KW_ONLY
    standardise: bool = True

    stored = contents(
        models=Optional(part(Models, models="coordinates")),
        scaling_=part(Scaling, columns="coordinates"),
        reference_=REFERENCE,
    )

    def by(self, ranker: Ranker, /) -> Divergence:
        """Return the same view with this base, unless it has one of its own."""
        reference = ranker if self.reference is None else self.reference
        return Divergence(reference, self.models, standardise=self.standardise)

    def fit(self, data: Judged, /) -> Self:
        """Fit the base, if needed, and learn the scale of every coordinate."""
        if self.reference is None:
            raise DataError("Divergence alone needs a reference: a feature column or a ranker.")
        self.reference_ = fitted_reference(self.reference, data)
        nothing = np.zeros((0, self._width(data.candidates)))
        found = self._numbers(data.candidates) if self.standardise else nothing
        self._learn_scale(found)
        return self

    def _check_stored(self, known: Known) -> None:
        """Check that there is a coordinate for every feature, if there are no models."""
        if self.models is None:
            known.tie("features", known.sizes["coordinates"], "Divergence.scaling_")

    def _width(self, candidates: Candidates) -> int:
        return candidates.features.shape[1] if self.models is None else len(self.models)

    def _numbers(self, candidates: Candidates) -> Floats:
        width = self._width(candidates)
        found = np.zeros((len(candidates), width))

        def fill(block: tuple[int, int]) -> None:
            first, last = block
            part = candidates if last - first == len(candidates) else candidates.select(np.arange(first, last))
            scores = part.features if self.models is None else self.models.scores(part)
            found[first:last] = divergences(reference_scores(self.reference_, part), scores, part.starts)

        with one_blas_thread():
            in_threads(fill, list(candidates.blocks(_BLOCK // max(width, 1))))
        return found


def divergences(base: Floats, scores: Floats, starts: Ints) -> Floats:
    """Return Σ_d P(d) log(P(d) / P_i(d)) by query and column of scores, P from the base; 0 without documents.

    Scores become a distribution over the query's documents by standardizing them and taking their softmax, so that a
    model's divergence from itself is 0 whatever its scale.

    >>> divergences(np.array([1.0, 2.0]), np.array([[10.0, 2.0], [20.0, 1.0]]), np.array([0, 2])).round(4)
    array([[0.    , 1.5232]])
    """
    found = np.empty((len(starts) - 1, scores.shape[1]))
    divergences_of(np.ascontiguousarray(base), np.ascontiguousarray(scores), starts, found)
    return found


@compiled
def divergences_of(base: Floats, scores: Floats, starts: Ints, found: Floats) -> None:
    """Compute Σ_d P(d) log(P(d) / P_i(d)), queries × models, P and P_i the softmax of standardized scores."""
    for query in range(len(starts) - 1):
        first, last = starts[query], starts[query + 1]
        found[query] = 0.0
        if last > first:
            chances, entropy = _distribution(base[first:last])
            _from(chances, entropy, scores[first:last], found[query])


@compiled
def _distribution(scores: Floats) -> tuple[Floats, float]:
    """Return the softmax of standardized scores, and Σ P log P."""
    size = max(np.max(np.abs(scores)), 1e-300)
    away = scores / size - np.mean(scores / size)
    spread = np.sqrt(np.mean(away * away))
    away = away * 0.0 if spread <= _NOISE else away / spread
    logs = away - np.max(away)
    logs = logs - np.log(np.sum(np.exp(logs)))
    chances = np.exp(logs)
    return chances, np.sum(chances * logs)


@compiled
def _from(chances: Floats, entropy: float, scores: Floats, found: Floats) -> None:
    """Compute Σ P log P − Σ P z_i + log Σ exp z_i, with z_i the standardized scores of model i."""
    documents, models = scores.shape
    size, top = _extremes(scores)
    mean, spread, cross, total = np.zeros(models), np.zeros(models), np.zeros(models), np.zeros(models)
    for row in range(documents):
        for i in range(models):
            mean[i] += scores[row, i] / size[i] / documents
    for row in range(documents):
        for i in range(models):
            away = scores[row, i] / size[i] - mean[i]
            spread[i] += away * away / documents
            cross[i] += chances[row] * away
    for i in range(models):
        spread[i] = 1.0 / np.sqrt(spread[i]) if np.sqrt(spread[i]) > _NOISE else 0.0
    for row in range(documents):
        for i in range(models):
            total[i] += np.exp((scores[row, i] / size[i] - top[i]) * spread[i])
    for i in range(models):
        value = entropy - cross[i] * spread[i] + (top[i] - mean[i]) * spread[i] + np.log(total[i])
        # Set rounding errors to 0: standardized, they would weigh as much as any other coordinate.
        found[i] = value if value > _NOISE else 0.0


@compiled
def _extremes(scores: Floats) -> tuple[Floats, Floats]:
    """Return each model's largest absolute score, 1 if all are 0, and its highest score divided by it.

    Divided by it, scores lie in −1 … 1, and their squares neither overflow nor vanish.
    """
    size, top = np.zeros(scores.shape[1]), np.full(scores.shape[1], -np.inf)
    for row in range(len(scores)):
        for i in range(scores.shape[1]):
            size[i] = max(size[i], abs(scores[row, i]))
            top[i] = max(top[i], scores[row, i])
    for i in range(scores.shape[1]):
        size[i] = size[i] if size[i] > 0.0 else 1.0
        top[i] /= size[i]
    return size, top
