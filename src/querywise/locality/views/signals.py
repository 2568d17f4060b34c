"""A query as its signals: what its text and its first-stage runs tell of it."""

from __future__ import annotations

from typing import Self

from querywise.data.judged import Candidates, Judged
from querywise.data.run_columns import run_columns
from querywise.errors import DataError, NotFittedError
from querywise.retrieval.signals import signals
from querywise.runtime.arrays import Floats
from querywise.runtime.scaling import Scaling


class SignalView:
    """Length, top scores, margins, spread and entropy of either list, overlap and correlation of the two, standardised.

    The lists are those of the first-stage runs among the features, as text collections with vectors have them.
    """

    def fit(self, data: Judged, /) -> Self:
        """Learn the scale of every signal."""
        self.scaling_ = Scaling.learn(_values(data.candidates), "standard")
        return self

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query."""
        if not hasattr(self, "scaling_"):
            raise NotFittedError(self)
        return self.scaling_.apply(_values(candidates))

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The text, and the documents that the runs found."""
        return ("text", "documents")


def _values(candidates: Candidates) -> Floats:
    if not run_columns(candidates.feature_names):
        raise DataError(
            "The view SignalView needs first-stage runs among the features, run.NAME.score and "
            "run.NAME.reciprocal_rank, and there are none. A text collection with vectors has them."
        )
    return signals(candidates).values
