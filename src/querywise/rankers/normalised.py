"""Features on the scale of their own query, inside the model, so that it is not forgotten when it is served."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np

from querywise.arrays import Floats
from querywise.data.groups import Candidates, Judged
from querywise.errors import NotFittedError
from querywise.parameters import unfitted

# What evaluation and the command line ask a ranker, where it can tell.
_OF_ITSELF = ("sizes", "moved", "f1_")
_OF_QUERIES = ("distances", "places")


class QueryNormalised:
    """A ranker that sees every feature on the scale of its query's candidates, 0 the smallest, 1 the largest.

    As LETOR's query-level normalisation; a feature that is the same for all candidates is 0. It takes the whole list
    of candidates to score one of them, which a search engine's own models cannot do.
    """

    def __init__(self, ranker: Any) -> None:
        self.ranker = ranker

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Fit the ranker on normalised features."""
        held_out = None if valid is None else replace(valid, candidates=normalised(valid.candidates))
        self.ranker_ = unfitted(self.ranker).fit(replace(data, candidates=normalised(data.candidates)), valid=held_out)
        self.feature_count_ = data.candidates.features.shape[1]
        self.feature_names_ = data.candidates.feature_names
        return self

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document."""
        if not hasattr(self, "ranker_"):
            raise NotFittedError(self)
        candidates.require_features(self.feature_count_, self.feature_names_)
        scores: Floats = self.ranker_.predict(normalised(candidates))
        return scores

    def __getattr__(self, name: str) -> Any:
        """What the ranker inside tells of itself, and of queries once their features are normalised."""
        if name not in (*_OF_ITSELF, *_OF_QUERIES) or "ranker_" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no {name}.")
        told = getattr(self.ranker_, name)
        return told if name in _OF_ITSELF else lambda candidates: told(normalised(candidates))


def normalised(candidates: Candidates) -> Candidates:
    """The same candidates, (x − min) / (max − min) over each query.

    >>> features = np.array([[2.0, 5.0], [4.0, 5.0], [3.0, 5.0]])
    >>> normalised(Candidates(features, np.array([0, 3]), ("q",))).features[:, 0].tolist()
    [0.0, 1.0, 0.5]
    """
    filled = np.flatnonzero(candidates.sizes)
    if not len(filled):
        return candidates
    first, sizes = candidates.starts[filled], candidates.sizes[filled]
    low = np.repeat(np.minimum.reduceat(candidates.features, first), sizes, axis=0)
    high = np.repeat(np.maximum.reduceat(candidates.features, first), sizes, axis=0)
    spread = high / 2 - low / 2  # halves, so that the largest numbers do not overflow
    return replace(candidates, features=(candidates.features / 2 - low / 2) / np.where(spread > 0, spread, 1.0))
