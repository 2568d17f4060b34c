"""Views of facts that come with a query: columns, vectors, signals of text and runs; and views side by side."""

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

_FARTHEST = 3.0  # standard deviations at which a signal of RunSignals is clipped


@dataclass(eq=False, repr=False)
class Columns(FittedView):
    """The user's own columns of each query, standardized on the training queries (`queries.jsonl`: `columns`).

    Args:
        names: The columns, in order; None takes all.
        standardise: Whether to standardize them.

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
        """Return that it uses only the columns of a query."""
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
    """Several views side by side; each has the same weight in a distance, whatever its coordinates and scale."""

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
        """Check that a query has the coordinates of all views."""
        known.sizes["coordinates"] = sum(known.size_of(view, "coordinates") for view in self.views_)

    def by(self, ranker: Ranker, /) -> SideBySide:
        """Return the same views, with this ranker for those without a reference of their own."""
        return SideBySide([following(view, ranker) for view in self.views])

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Return what any of them uses."""
        return looked_at(*self.views_)

    def known(self, candidates: Candidates, /) -> Bools:
        """Return the queries that any of them knows."""
        found: Bools = np.any([known_to(view, candidates) for view in self.views_], axis=0)
        return found

    def _points(self, candidates: Candidates) -> Floats:
        """Return the views' coordinates, each view scaled to total variance 1 over the training queries."""
        parts = [view.points(candidates) for view in self.views_]
        return np.hstack([part * scale for part, scale in zip(parts, self.scales_, strict=True)])


def columns_of(ranker: Scorer) -> frozenset[str]:
    """Return the query columns used by any view inside a fitted ranker."""
    return frozenset(name for view in views_in(ranker, Columns) for name in getattr(view, "names_", ()))


def _spread(points: Floats) -> float:
    """Return the variance of all coordinates together, ignoring rounding errors in constant ones."""
    variance = points.var(axis=0)
    return float(variance[np.sqrt(variance) > 1e-12 * np.abs(points.mean(axis=0))].sum())


class SignalView(FittedView):
    """Length, top scores, margins, spread and entropy of each list, overlap and correlation of the two, standardized.

    The lists are those of the first-stage runs among the features, as text collections with vectors have them; without
    runs, there are only the length of the query and the number of its candidates.
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
        """Return the raw signals."""
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
        """Return the names of the signals: `signal bm25.margin`."""
        return tuple(f"signal {name}" for name in self.signals(candidates).names)

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Return that it uses the text and the documents that the runs retrieved."""
        return ("text", "documents")


class RunSignals(SignalView):
    """The same signals for weights of runs: always of the runs in training, and clipped at ±3."""

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
        """Check that the features include runs, and a coordinate for each of their signals."""
        runs = [run.name for run in run_columns(self.feature_names_)]
        require(len(runs) > 0, "RunSignals.feature_names_ name no run")
        known.tie("coordinates", len(signal_names(runs)), "RunSignals.scaling_")

    def signals(self, candidates: Candidates) -> Signals:
        """Return the raw signals; columns without names are those of training."""
        return super().signals(replace(candidates, feature_names=self.feature_names_))

    def _points(self, candidates: Candidates) -> Floats:
        found: Floats = np.clip(super()._points(candidates), -_FARTHEST, _FARTHEST)
        return found

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Return that it uses the documents that the runs retrieved."""
        return ("documents",)


class VectorView(FittedView):
    """The vector of a query, normalized to length 1, so that near queries are those of similar meaning.

    The vectors come with the queries (`queries.jsonl`: `vector`, or the vectors of a text collection). A query without
    a vector, or with a zero vector, is placed at the mean of the training queries, and is not `known`.
    """

    stored = contents(centre_=floats("coordinates"))

    def fit(self, data: Judged, /) -> Self:
        """Learn the mean, and the dimension."""
        units, known = _units(data.candidates)
        if not known.any():
            raise DataError("The view VectorView needs vectors of the queries, but all of them are zero vectors.")
        self.centre_ = units[known].mean(axis=0)
        return self

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Return that it uses only the vector of a query."""
        return ("vector",)

    def known(self, candidates: Candidates, /) -> Bools:
        """Return the queries with a nonzero vector."""
        return _units(candidates)[1]

    def _points(self, candidates: Candidates) -> Floats:
        units, known = _units(candidates)
        if not units.shape[1]:  # these queries have no vectors
            return np.tile(self.centre_, (len(units), 1))
        if units.shape[1] != len(self.centre_):
            raise DataError(
                f"The queries' vectors have {units.shape[1]} numbers; the model was trained with {len(self.centre_)}. "
                "Use the same embedding model."
            )
        units[~known] = self.centre_
        return units


def vector_lengths(ranker: Scorer) -> frozenset[int]:
    """Return the vector dimensions expected by the views inside a fitted ranker."""
    return frozenset(len(view.centre_) for view in views_in(ranker, VectorView) if hasattr(view, "centre_"))


def _units(candidates: Candidates) -> tuple[Floats, Bools]:
    """Return vectors of length 1, and which of them are nonzero."""
    table = candidates.queries
    if table is None or table.vectors is None:
        raise DataError(
            "The view VectorView needs the vectors of the queries, and these have none. Give a queries.jsonl whose "
            'lines have a "vector": data.with_queries(read_queries(path)); over HTTP, query.vector.',
            arguments=("queries",),
        )
    lengths = np.sqrt(np.einsum("ij,ij->i", table.vectors, table.vectors))
    return table.vectors / np.where(lengths > 0, lengths, 1.0)[:, None], lengths > 0
