"""A reference: what scores a query's documents so that a view can look at the best of them."""

from __future__ import annotations

from typing import Any

from querywise.arrays import Floats
from querywise.data.groups import Candidates
from querywise.data.parts import Training
from querywise.data.rows import column_of
from querywise.parameters import is_fitted, unfitted


def fitted_reference(reference: int | str | Any, data: Training) -> Any:
    """A feature, by name or by number from 0, as its column; a ranker that is not fitted, fitted on these queries."""
    if isinstance(reference, (int, str)):
        return column_of(reference, data.feature_count, data.feature_names)
    return reference if is_fitted(reference) else unfitted(reference).fit(data)


def reference_scores(reference: Any, candidates: Candidates) -> Floats:
    """The scores by a column or a fitted ranker."""
    scores: Floats = candidates.features[:, reference] if isinstance(reference, int) else reference.predict(candidates)
    return scores
