"""A query as its signals: what its text and its first-stage runs tell of it without a label."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np

from querywise.contracts.estimators import Estimator
from querywise.data.judged import Candidates, Judged
from querywise.data.run_columns import run_columns
from querywise.errors import DataError, NotFittedError
from querywise.retrieval.signals import Signals, signal_names, signals
from querywise.runtime.arrays import Floats
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import Known, Optional, Several, Text, contents, part, require

_FARTHEST = 3.0  # standard deviations that a signal of RunSignals counts at most


class SignalView(Estimator):
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

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query."""
        if not hasattr(self, "scaling_"):
            raise NotFittedError(self)
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

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query."""
        found: Floats = np.clip(super().points(candidates), -_FARTHEST, _FARTHEST)
        return found

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The documents that the runs found."""
        return ("documents",)
