"""Linear models: single ones, or a table with a row of weights for each."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np

from querywise.contracts.answers import ALL, Rows, Terms
from querywise.contracts.asking import OneModel
from querywise.contracts.forms import Linear
from querywise.contracts.protocols import Learner
from querywise.data.judged import Candidates
from querywise.runtime.arrays import Floats, Ints, sums_of_products
from querywise.runtime.stored import FITTED, contents, floats

_NOISE = 1e-12  # relative to the scores' size: smaller ranges are rounding errors


def linear_scores(features: Floats, weights: Floats) -> Floats:
    """Return weighted sums, row by row in a fixed order, so that scores do not depend on the number of documents."""
    return sums_of_products("ij,j->i", features, weights)


class LinearModel:
    """One linear scoring function."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    def predict(self, seen: Candidates, /) -> Floats:
        """Return one score per document: the weighted sum of its features."""
        return linear_scores(seen.features, self.weights)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms:
        """Return each feature's weight × value."""
        return Terms.of(seen, rows, seen.features[rows] * self.weights)

    def form(self) -> Linear:
        """Return the model as a weighted sum."""
        return Linear(self.weights)


class WeightedSum(OneModel):
    """Base class of linear learners: `weights_` holds one weight per feature, for unscaled features."""

    weights_: Floats

    stored = contents(FITTED, weights_=floats("features"))

    def _predict(self, seen: Candidates, /) -> Floats:
        return linear_scores(seen.features, self.weights_)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms:
        """Return each feature's weight × value."""
        return Terms.of(seen, rows, seen.features[rows] * self.weights_)

    def form(self) -> Linear:
        """Return the model as a weighted sum."""
        return Linear(np.asarray(self.weights_, dtype=np.float64))


class LinearLearner(Learner, Protocol):
    """A ranking SVM as its local models use it: its parameters, and its learned weights."""

    l2: float
    loss: Literal["squared_hinge", "hinge"]
    pairs: Literal["query", "pair"]
    prior: Literal["global"] | None
    prior_l2: float | None
    tolerance: float | None
    weights_: Floats


class LinearModels:
    """Linear scoring functions; their weights are for unscaled features."""

    stored = contents(weights=floats("models>0", "features"))

    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, number: int, /) -> LinearModel:
        return LinearModel(self.weights[number])

    def pick(self, candidates: Candidates, model: Ints, /) -> Floats:
        """Return the scores of each query's documents by the model chosen for it."""
        if len(model) == 1:
            return linear_scores(candidates.features, self.weights[model[0]])
        scores = np.empty(len(candidates.features))
        for query, number in enumerate(model):
            rows = candidates.rows(query)
            scores[rows] = linear_scores(candidates.features[rows], self.weights[number])
        return scores

    def scores(self, candidates: Candidates, /) -> Floats:
        """Return scores, documents × models."""
        return candidates.features @ self.weights.T

    def blend(self, candidates: Candidates, shares: Floats, /) -> Floats:
        """Return scores by each query's own mixture of models, each model's scores scaled to 0 … 1 within the query."""
        scores = np.empty(len(candidates.features))
        for query, share in enumerate(shares):
            rows = candidates.rows(query)
            if rows.stop > rows.start:
                documents = candidates.features[rows]
                mixed = linear_scores(documents, self.mixture(documents, share))
                # A mixture's scores start at the sum of its models' minima; subtracting an offset changes no order.
                scores[rows] = mixed - mixed.min()
        return scores

    def mixture(self, documents: Floats, share: Floats) -> Floats:
        """Return the weights of a mixture of models on one query's documents: Σ_i share_i w_i / range_i.

        A model that scores all documents alike has no range and is skipped.
        """
        used = np.flatnonzero(share)
        weights = self.weights[used]
        centred = (documents - documents.mean(axis=0)) @ weights.T
        ranges = centred.max(axis=0) - centred.min(axis=0)
        tied = ranges <= _NOISE * (np.abs(documents).max(axis=0) @ np.abs(weights).T)
        mixed: Floats = np.where(tied, 0.0, share[used] / np.where(tied, 1.0, ranges)) @ weights
        return mixed
