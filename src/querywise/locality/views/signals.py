"""A query as its signals: what its text and its first-stage runs tell of it."""

from __future__ import annotations

from typing import Self

from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.retrieval.signals import signals
from querywise.runtime.arrays import Floats
from querywise.runtime.scaling import Scaling


class SignalView:
    """Length, top scores, margins, spread and entropy of either list, overlap and correlation of the two, standardised.

    The lists are those of the first-stage runs among the features, as text collections with vectors have them; without
    runs, the length of a query and the number of its candidates are all there is.
    """

    def fit(self, data: Judged, /) -> Self:
        """Learn the scale of every signal."""
        self.scaling_ = Scaling.learn(signals(data.candidates).values, "standard")
        return self

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query."""
        if not hasattr(self, "scaling_"):
            raise NotFittedError(self)
        found = signals(candidates)
        if found.values.shape[1] != len(self.scaling_.centre):
            raise DataError(
                f"The view SignalView was trained with {len(self.scaling_.centre)} signals of a query, and these have "
                f"{len(found.names)}. Give the features their names, with those of the runs: run.NAME.score and "
                "run.NAME.reciprocal_rank."
            )
        return self.scaling_.apply(found.values)

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The text, and the documents that the runs found."""
        return ("text", "documents")
