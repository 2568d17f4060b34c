"""The common part of views: what they use of a query, and the reference that selects its top documents."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

import numpy as np

from querywise.contracts.estimators import Estimator
from querywise.contracts.protocols import FollowsRanker, PlacesDocuments, QueryView, Ranker, Scorer
from querywise.data.judged import Candidates, Judged
from querywise.data.rows import column_of
from querywise.data.training import Training, as_taken
from querywise.errors import NotFittedError
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.parameters import is_fitted, unfitted
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import AnyOf, Whole, part

_View = TypeVar("_View")
# Of the contracts LooksAt and Knows; isinstance checks of these take 20 times as long in a request.
LOOKS_AT, KNOWN = "looks_at", "known"
Reference: TypeAlias = int | str | Ranker
REFERENCE = AnyOf((Whole(below="features"), part(Ranker)), "the number of a feature, or a fitted ranker")


class FittedView(Estimator):
    """A view that gives queries a position once it has been fitted."""

    def points(self, candidates: Candidates, /) -> Floats:
        """Return one row per query."""
        if not any(name.endswith("_") for name in vars(self)):  # faster than `is_fitted`
            raise NotFittedError(self)
        return self._points(candidates)

    @abstractmethod
    def _points(self, candidates: Candidates) -> Floats: ...


class DocumentView(FittedView):
    """Numbers of a query's documents, standardized on the training queries, unless `standardise` is False."""

    standardise: bool
    scaling_: Scaling

    def known(self, candidates: Candidates, /) -> Bools:
        """Return the queries with a document that has a nonzero feature."""
        return described(candidates)

    def _learn_scale(self, numbers: Floats, size: Floats | None = None) -> None:
        self.scaling_ = Scaling.learn(numbers, "standard" if self.standardise else "none", size)

    def _points(self, candidates: Candidates) -> Floats:
        return self.scaling_.apply(self._numbers(candidates))

    @abstractmethod
    def _numbers(self, candidates: Candidates) -> Floats: ...


def looked_at(*views: QueryView) -> tuple[str, ...]:
    """Return what fitted views need of a query to place it: any of text, vector, columns and documents."""
    every: list[tuple[str, ...]] = [getattr(view, LOOKS_AT, ("documents",)) for view in views]
    return tuple(dict.fromkeys(each for part in every for each in part))


def known_to(view: QueryView, candidates: Candidates) -> Bools:
    """Return which queries a fitted view can represent; the position of the others is meaningless."""
    known: Callable[[Candidates], Bools] | None = getattr(view, KNOWN, None)
    return np.ones(len(candidates), np.bool_) if known is None else known(candidates)


def described(candidates: Candidates) -> Bools:
    """Return which queries have a document with a nonzero feature: without one, documents do not describe a query."""
    if len(candidates) == 1:
        return np.array([bool(np.count_nonzero(candidates.features[:1]) or np.count_nonzero(candidates.features))])
    rows = candidates.query_of_row[candidates.features.any(axis=1)]
    return np.bincount(rows, minlength=len(candidates)) > 0


def without_vector(candidates: Candidates, *views: QueryView) -> Bools:
    """Return which queries have no vector, or a zero one, if any of these fitted views uses it."""
    table = candidates.queries
    if table is None or table.vectors is None or "vector" not in looked_at(*views):
        return np.zeros(len(candidates), np.bool_)
    lacking: Bools = np.asarray(~table.vectors.any(axis=1))
    return lacking


def relevant_points(view: QueryView, data: Judged) -> Floats | None:
    """Return the position of each query's relevant documents; None in a view that does not place documents."""
    return view.relevant_points(data) if isinstance(view, PlacesDocuments) else None


def views_in(ranker: Scorer, kind: type[_View]) -> Iterator[_View]:
    """Yield the views of a kind inside a ranker, at any depth."""
    yield from _views_in(ranker, kind)


def _views_in(thing: object, kind: type[_View]) -> Iterator[_View]:
    inside: Iterable[object] = ()
    if isinstance(thing, kind):
        yield thing
    elif isinstance(thing, (tuple, list)) and thing and not isinstance(thing[0], (str, int, float)):
        inside = thing
    elif type(thing).__module__.startswith("querywise.") and hasattr(thing, "__dict__"):
        inside = vars(thing).values()
    for each in inside:
        yield from _views_in(each, kind)


def following(view: QueryView, ranker: Ranker) -> QueryView:
    """Return the view with this ranker as reference, if it takes one and has none of its own."""
    return view.by(ranker) if isinstance(view, FollowsRanker) else view


def fitted_reference(reference: Reference, data: Training) -> int | Ranker:
    """Return a feature, by name or index, as its column; or a ranker, fitted on these queries if needed."""
    if isinstance(reference, (int, str)):
        return column_of(reference, data.feature_count, data.feature_names)
    if is_fitted(reference):
        return reference
    taken: Any = as_taken(reference, data)
    return unfitted(reference).fit(taken)


def reference_scores(reference: int | Ranker, candidates: Candidates) -> Floats:
    """Return the scores by a column or a fitted ranker."""
    return candidates.features[:, reference] if isinstance(reference, int) else reference.predict(candidates)
