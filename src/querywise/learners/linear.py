"""Many linear models: a table of weights, a row each."""

from __future__ import annotations

import numpy as np

from querywise.arrays import Floats, Ints
from querywise.data.groups import Candidates


def linear_scores(features: Floats, weights: Floats) -> Floats:
    """Weighted sums, row by row in a fixed order: a document's score does not depend on how many others there are."""
    scores: Floats = np.einsum("ij,j->i", features, weights)
    return scores


class LinearModels:
    """Linear scoring functions, their weights in the units of the features as given."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    def __len__(self) -> int:
        return len(self.weights)

    def pick(self, candidates: Candidates, model: Ints, /) -> Floats:
        """Each query's documents under the model named for it."""
        scores = np.empty(len(candidates.features))
        for query, number in enumerate(model):
            rows = candidates.rows(query)
            scores[rows] = linear_scores(candidates.features[rows], self.weights[number])
        return scores

    def scores(self, candidates: Candidates, /) -> Floats:
        """Documents × models."""
        return candidates.features @ self.weights.T
