"""A query as what comes with it: the user's columns, its vector, signals of its text and runs; views side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Self

import numpy as np

from querywise.contracts.answers import Scorer
from querywise.contracts.protocols import QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.run_columns import run_columns
from querywise.errors import DataError
from querywise.locality.views.looking import FittedView, following, known_to, looked_at, views_in
from querywise.retrieval.signals import Signals, signal_names, signals
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.parameters import unfitted
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import Known, Optional, Several, Text, contents, floats, part, require

_FARTHEST = 3.0  # standard deviations that a signal of RunSignals counts at most


@dataclass(eq=False, repr=False)
class Columns(FittedView):
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

    def _points(self, candidates: Candidates) -> Floats:
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
class SideBySide(FittedView):
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

    def _points(self, candidates: Candidates) -> Floats:
        """The views' coordinates, each view's total variance over the training queries 1."""
        parts = [view.points(candidates) for view in self.views_]
        return np.hstack([part * scale for part, scale in zip(parts, self.scales_, strict=True)])


def columns_of(ranker: Scorer) -> frozenset[str]:
    """The columns of a query that any view inside of a fitted ranker looks at."""
    return frozenset(name for view in views_in(ranker, Columns) for name in getattr(view, "names_", ()))


def _spread(points: Floats) -> float:
    """The variance of all coordinates together; rounding in the mean of a constant one does not count."""
    variance = points.var(axis=0)
    return float(variance[np.sqrt(variance) > 1e-12 * np.abs(points.mean(axis=0))].sum())


class SignalView(FittedView):
    """Length, top scores, margins, spread and entropy of either list, overlap and correlation of the two, standardised.

    The lists are those of the first-stage runs among the features, as text collections with vectors have them; without
    runs, the length of a query and the number of its candidates are all there is.
    """

    stored = contents(scaling_=part(Scaling, columns="coordinates"))

    def fit(self, data: Judged, /) -> Self:
        """Learn the scale of every signal."""
        self._learn(data.candidates)
        return self

    def _learn(self, candidates: Candidates) -> Signals:
        found = self.signals(candidates)
        self.scaling_ = Scaling.learn(found.values, "standard")
        return found

    def signals(self, candidates: Candidates) -> Signals:
        """The signals as they are."""
        return signals(candidates)

    def _points(self, candidates: Candidates) -> Floats:
        found = self.signals(candidates)
        if found.values.shape[1] != len(self.scaling_.centre):
            raise DataError(
                f"The view SignalView was trained with {len(self.scaling_.centre)} signals of a query, and these have "
                f"{len(found.names)}. Give the features their names, with those of the runs: run.NAME.score and "
                "run.NAME.reciprocal_rank."
            )
        return self.scaling_.apply(found.values)

    def coordinate_names(self, candidates: Candidates, /) -> tuple[str, ...]:
        """What the signals are called: `signal bm25.margin`."""
        return tuple(f"signal {name}" for name in self.signals(candidates).names)

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The text, and the documents that the runs found."""
        return ("text", "documents")


class RunSignals(SignalView):
    """The same for weights of runs: always of the runs it was trained with, and every signal cut at ±3."""

    stored = contents(
        feature_names_=Optional(Several(Text(), "features")),
        names_=Several(Text(), "coordinates"),
    )

    def fit(self, data: Judged, /) -> Self:
        """Learn the scale of every signal."""
        if not run_columns(data.feature_names):
            raise DataError(
                "The view RunSignals needs the columns run.NAME.score and run.NAME.reciprocal_rank of first-stage "
                "runs; the features have none."
            )
        self.feature_names_ = data.feature_names
        self.names_ = self._learn(data.candidates).names
        return self

    def _check_stored(self, known: Known) -> None:
        """There are runs among the features, and a coordinate for each of their signals."""
        runs = [run.name for run in run_columns(self.feature_names_)]
        require(len(runs) > 0, "RunSignals.feature_names_ name no run")
        known.tie("coordinates", len(signal_names(runs)), "RunSignals.scaling_")

    def signals(self, candidates: Candidates) -> Signals:
        """The signals as they are; columns without names are those of training."""
        return super().signals(replace(candidates, feature_names=self.feature_names_))

    def _points(self, candidates: Candidates) -> Floats:
        found: Floats = np.clip(super()._points(candidates), -_FARTHEST, _FARTHEST)
        return found

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The documents that the runs found."""
        return ("documents",)


class VectorView(FittedView):
    """The vector of a query, made of length 1, so that near queries are those of similar meaning.

    The vectors come with the queries (`queries.jsonl`: `vector`, or the vectors of a text collection). A query
    without a vector, or with one that is 0 throughout, is put at the mean of the training queries, and is not `known`.
    """

    stored = contents(centre_=floats("coordinates"))

    def fit(self, data: Judged, /) -> Self:
        """Learn the mean, and the dimension."""
        units, known = _units(data.candidates)
        if not known.any():
            raise DataError("The view VectorView needs vectors of the queries, and all of these are 0 throughout.")
        self.centre_ = units[known].mean(axis=0)
        return self

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The vector of a query alone."""
        return ("vector",)

    def known(self, candidates: Candidates, /) -> Bools:
        """The queries with a vector that is not 0 throughout."""
        return _units(candidates)[1]

    def _points(self, candidates: Candidates) -> Floats:
        units, known = _units(candidates)
        if not units.shape[1]:  # no vector came with these queries
            return np.tile(self.centre_, (len(units), 1))
        if units.shape[1] != len(self.centre_):
            raise DataError(
                f"The queries' vectors have {units.shape[1]} numbers; the model was trained with {len(self.centre_)}. "
                "Use the same embedding model."
            )
        units[~known] = self.centre_
        return units


def vector_lengths(ranker: Scorer) -> frozenset[int]:
    """How many numbers the vector of a query has, by each view inside of a fitted ranker that looks at it."""
    return frozenset(len(view.centre_) for view in views_in(ranker, VectorView) if hasattr(view, "centre_"))


def _units(candidates: Candidates) -> tuple[Floats, Bools]:
    """Vectors of length 1, and which of them are no zeros."""
    table = candidates.queries
    if table is None or table.vectors is None:
        raise DataError(
            "The view VectorView needs the vectors of the queries, and these have none. Give a queries.jsonl whose "
            'lines have a "vector": data.with_queries(read_queries(path)); over HTTP, query.vector.',
            arguments=("queries",),
        )
    lengths = np.sqrt(np.einsum("ij,ij->i", table.vectors, table.vectors))
    return table.vectors / np.where(lengths > 0, lengths, 1.0)[:, None], lengths > 0
