"""A reference: the feature or ranker that selects a query's top documents for a view."""

from __future__ import annotations

from typing import Any, TypeAlias

from querywise.contracts.protocols import FollowsRanker, QueryView, Ranker
from querywise.data.judged import Candidates
from querywise.data.rows import column_of
from querywise.data.training import Training, as_taken
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import is_fitted, unfitted
from querywise.runtime.stored import AnyOf, Whole, part

Reference: TypeAlias = int | str | Ranker
REFERENCE = AnyOf((Whole(below="features"), part(Ranker)), "the number of a feature, or a fitted ranker")


def following(view: QueryView, ranker: Ranker) -> QueryView:
    """A view with this ranker as reference, where it takes one and has none of its own."""
    return view.by(ranker) if isinstance(view, FollowsRanker) else view


def fitted_reference(reference: Reference, data: Training) -> int | Ranker:
    """A feature, by name or by number from 0, as its column; a ranker that is not fitted, fitted on these queries."""
    if isinstance(reference, (int, str)):
        return column_of(reference, data.feature_count, data.feature_names)
    if is_fitted(reference):
        return reference
    taken: Any = as_taken(reference, data)
    return unfitted(reference).fit(taken)


def reference_scores(reference: int | Ranker, candidates: Candidates) -> Floats:
    """The scores by a column or a fitted ranker."""
    return candidates.features[:, reference] if isinstance(reference, int) else reference.predict(candidates)
