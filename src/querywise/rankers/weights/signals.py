"""A query as its signals: what its lists and its text say of it without a label."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np

from querywise.data.judged import Candidates, Judged
from querywise.data.run_columns import run_columns
from querywise.errors import DataError, NotFittedError
from querywise.retrieval.signals import Signals, signals
from querywise.runtime.arrays import Floats
from querywise.runtime.scaling import Scaling

_FARTHEST = 3.0  # standard deviations that a signal counts at most


class RunSignals:
    """A query as its signals (`retrieval/signals.py`), standardised on the training queries and cut at ±3."""

    def fit(self, data: Judged, /) -> Self:
        """Learn the scale of every signal."""
        if not run_columns(data.feature_names):
            raise DataError(
                "The view RunSignals needs the columns run.NAME.score and run.NAME.reciprocal_rank of first-stage "
                "runs; the features have none."
            )
        self.feature_names_ = data.feature_names
        self.names_, found = self.signals(data.candidates)
        self.scaling_ = Scaling.learn(found, "standard")
        return self

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query."""
        if not hasattr(self, "scaling_"):
            raise NotFittedError(self)
        found: Floats = np.clip(self.scaling_.apply(self.signals(candidates).values), -_FARTHEST, _FARTHEST)
        return found

    def signals(self, candidates: Candidates) -> Signals:
        """The signals as they are; columns without names are those of training."""
        return signals(replace(candidates, feature_names=self.feature_names_))
