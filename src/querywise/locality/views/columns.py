"""Views made of the user's own columns, and of other views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np

from querywise.contracts.answers import Scorer
from querywise.contracts.estimators import Estimator
from querywise.contracts.protocols import QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.locality.views.looking import following, known_to, looked_at, views_in
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.parameters import unfitted
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import Known, Several, Text, contents, floats, part


@dataclass(eq=False, repr=False)
class Columns(Estimator):
    """The user's own columns of each query, standardised on the training queries (`queries.jsonl`: `columns`).

    names: which of them, and in which order; None takes all.
    """

    names: Sequence[str] | None = None
    _: KW_ONLY
    standardise: bool = True

    stored = contents(names_=Several(Text(), "coordinates"), scaling_=part(Scaling, columns="coordinates"))

    def fit(self, data: Judged, /) -> Self:
        """Learn the scale of every column."""
        table = data.candidates.queries
        asked = (self.names,) if isinstance(self.names, str) else self.names
        self.names_ = tuple(asked) if asked is not None else (() if table is None else table.column_names)
        self.scaling_ = Scaling.learn(self._values(data.candidates), "standard" if self.standardise else "none")
        return self

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The columns of a query alone."""
        return ("columns",)

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query."""
        if not hasattr(self, "scaling_"):
            raise NotFittedError(self)
        return self.scaling_.apply(self._values(candidates))

    def _values(self, candidates: Candidates) -> Floats:
        table = candidates.queries
        if table is None or table.columns is None:
            raise DataError(
                "The view Columns needs columns of the queries, and these have none. Give a queries.jsonl whose "
                'lines have "columns": data.with_queries(read_queries(path)); over HTTP, query.columns.',
                arguments=("queries",),
            )
        unknown = [name for name in self.names_ if name not in table.column_names]
        if unknown:
            raise DataError(f"The queries have no column {unknown[0]!r}. They have: {', '.join(table.column_names)}.")
        return table.columns[:, [table.column_names.index(name) for name in self.names_]]


@dataclass(eq=False, repr=False)
class SideBySide(Estimator):
    """Several views beside each other; each counts the same in a distance, whatever its coordinates and scale."""

    views: Sequence[QueryView]

    stored = contents(views_=Several(part(QueryView), "views"), scales_=floats("views"))

    def fit(self, data: Judged, /) -> Self:
        """Fit every view."""
        if not self.views:
            raise DataError("SideBySide needs at least one view.")
        self.views_ = tuple(unfitted(view).fit(data) for view in self.views)
        spreads = [_spread(view.points(data.candidates)) for view in self.views_]
        self.scales_ = np.array([1.0 if spread == 0 else 1 / np.sqrt(spread) for spread in spreads])
        return self

    def _check_stored(self, known: Known) -> None:
        """A query has the coordinates of all views."""
        known.sizes["coordinates"] = sum(known.size_of(view, "coordinates") for view in self.views_)

    def by(self, ranker: Ranker, /) -> SideBySide:
        """The same views; those without a reference of their own use this ranker."""
        return SideBySide([following(view, ranker) for view in self.views])

    @property
    def looks_at(self) -> tuple[str, ...]:
        """What all of them look at."""
        return looked_at(*self.views_)

    def known(self, candidates: Candidates, /) -> Bools:
        """The queries that any of them knows."""
        found: Bools = np.any([known_to(view, candidates) for view in self.views_], axis=0)
        return found

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query: the views' coordinates, each view's total variance over the training queries 1."""
        if not hasattr(self, "views_"):
            raise NotFittedError(self)
        parts = [view.points(candidates) for view in self.views_]
        return np.hstack([part * scale for part, scale in zip(parts, self.scales_, strict=True)])


def columns_of(ranker: Scorer) -> frozenset[str]:
    """The columns of a query that any view inside of a fitted ranker looks at."""
    return frozenset(name for view in views_in(ranker, Columns) for name in getattr(view, "names_", ()))


def _spread(points: Floats) -> float:
    """The variance of all coordinates together; rounding in the mean of a constant one does not count."""
    variance = points.var(axis=0)
    return float(variance[np.sqrt(variance) > 1e-12 * np.abs(points.mean(axis=0))].sum())
