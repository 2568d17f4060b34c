"""One feature as it stands: what a search engine gives before anything is learned."""

from __future__ import annotations

from typing import Self

from querywise.arrays import Floats
from querywise.data.groups import Candidates, Judged
from querywise.errors import NotFittedError


class OneFeature:
    """Documents in the order of one of their features, largest first. feature: its name, or its number from 0."""

    def __init__(self, feature: int | str) -> None:
        self.feature = feature

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Find the column."""
        self.feature_count_ = data.candidates.features.shape[1]
        self.feature_names_ = data.candidates.feature_names
        self.column_ = data.candidates.column_of(self.feature)
        return self

    def predict(self, candidates: Candidates, /) -> Floats:
        """The feature."""
        if not hasattr(self, "column_"):
            raise NotFittedError(self)
        candidates.require_features(self.feature_count_, self.feature_names_)
        return candidates.features[:, self.column_].copy()
