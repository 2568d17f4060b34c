"""Linear models: one, or a table of weights, a row each."""

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

_NOISE = 1e-12  # of the scores' size: a range below it is rounding


def linear_scores(features: Floats, weights: Floats) -> Floats:
    """Weighted sums, row by row in a fixed order: a document's score does not depend on how many others there are."""
    return sums_of_products("ij,j->i", features, weights)


class LinearModel:
    """One linear scoring function."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    def predict(self, seen: Candidates, /) -> Floats:
        """One score per document: the weighted sum of its features."""
        return linear_scores(seen.features, self.weights)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms:
        """Weight × value."""
        return Terms.of(seen, rows, seen.features[rows] * self.weights)

    def form(self) -> Linear:
        """A weighted sum."""
        return Linear(self.weights)


class WeightedSum(OneModel):
    """What linear learners share: a weight for every feature, `weights_`, in the user's units."""

    weights_: Floats

    stored = contents(FITTED, weights_=floats("features"))

    def _predict(self, seen: Candidates, /) -> Floats:
        return linear_scores(seen.features, self.weights_)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms:
        """Weight × value."""
        return Terms.of(seen, rows, seen.features[rows] * self.weights_)

    def form(self) -> Linear:
        """A weighted sum."""
        return Linear(np.asarray(self.weights_, dtype=np.float64))


class LinearLearner(Learner, Protocol):
    """A ranking SVM as its local models use it: its parameters, and the weights it has learned."""

    l2: float
    loss: Literal["squared_hinge", "hinge"]
    pairs: Literal["query", "pair"]
    prior: Literal["global"] | None
    prior_l2: float | None
    tolerance: float | None
    weights_: Floats


class LinearModels:
    """Linear scoring functions, their weights in the units of the features as given."""

    stored = contents(weights=floats("models>0", "features"))

    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, number: int, /) -> LinearModel:
        return LinearModel(self.weights[number])

    def pick(self, candidates: Candidates, model: Ints, /) -> Floats:
        """Each query's documents under the model named for it."""
        if len(model) == 1:
            return linear_scores(candidates.features, self.weights[model[0]])
        scores = np.empty(len(candidates.features))
        for query, number in enumerate(model):
            rows = candidates.rows(query)
            scores[rows] = linear_scores(candidates.features[rows], self.weights[number])
        return scores

    def scores(self, candidates: Candidates, /) -> Floats:
        """Documents × models."""
        return candidates.features @ self.weights.T

    def blend(self, candidates: Candidates, shares: Floats, /) -> Floats:
        """Each query's documents under its own mixture of the models, each model's scores brought to 0 … 1 there."""
        scores = np.empty(len(candidates.features))
        for query, share in enumerate(shares):
            rows = candidates.rows(query)
            if rows.stop > rows.start:
                documents = candidates.features[rows]
                mixed = linear_scores(documents, self.mixture(documents, share))
                # A mixture scores its documents from 0 to its models' shares; an offset moves all alike.
                scores[rows] = mixed - mixed.min()
        return scores

    def mixture(self, documents: Floats, share: Floats) -> Floats:
        """The weights of a mixture of the models on one query's documents: Σ_i share_i w_i / range_i.

        A model that scores all of them alike has no range, and is left out.
        """
        used = np.flatnonzero(share)
        weights = self.weights[used]
        centred = (documents - documents.mean(axis=0)) @ weights.T
        ranges = centred.max(axis=0) - centred.min(axis=0)
        tied = ranges <= _NOISE * (np.abs(documents).max(axis=0) @ np.abs(weights).T)
        mixed: Floats = np.where(tied, 0.0, share[used] / np.where(tied, 1.0, ranges)) @ weights
        return mixed
