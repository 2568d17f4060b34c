"""A rule people try by hand: trust a run as far as its own list looks sure of itself."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, Self

import numpy as np

from querywise.contracts.answers import Answer
from querywise.data.judged import Candidates, Judged
from querywise.data.labels import refuse_weights
from querywise.data.normalisation import EngineNormalisation
from querywise.errors import DataError
from querywise.rankers.weights.fusion import Fusion, OwnWeights
from querywise.rankers.weights.lists import check_normalise
from querywise.retrieval.signals import signals
from querywise.runtime.arrays import Floats
from querywise.runtime.stored import Whole, contents, floats

SIGNS = ("margin", "entropy")


@dataclass(eq=False, repr=False)
class Confidence(Fusion):
    """One run's weight is its confidence in a query; the other runs share the rest. No label is used.

    The confidence is the share of training queries in which that run is less sure than here: by the margin of its top
    score, how far it is above the second, or by the entropy of its scores, where less is surer.

    sign: what says how sure a run is.
    run: the run whose confidence decides, by name; none is the last run for margin, and the first for entropy.
    normalise: how a run's scores are made comparable over its own list, as engines do it. opensearch-min-max, l2 and
    z-score are OpenSearch's; rank is 1/(60 + rank), as in reciprocal rank fusion. A document that a run did not find
    counts 0 there.
    """

    sign: Literal["margin", "entropy"] = "margin"
    run: str | None = None
    _: KW_ONLY
    normalise: EngineNormalisation = "opensearch-min-max"

    stored = contents(run_=Whole(below="runs"), levels_=floats("queries"))

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Remember how sure the run is in every training query."""
        check_normalise(type(self), self.normalise)
        if self.sign not in SIGNS:
            raise DataError(f"Confidence(sign={self.sign!r}) is unknown. Known: {', '.join(SIGNS)}.")
        refuse_weights(data, type(self).__name__, "it compares a query with all training queries, which count the same")
        self.remember(data)
        runs = self.runs_
        if self.run is not None and self.run not in runs:
            raise DataError(f"Confidence(run={self.run!r}): there is no such run. There are: {', '.join(runs)}.")
        usual = len(runs) - 1 if self.sign == "margin" else 0
        self.run_ = usual if self.run is None else runs.index(self.run)
        self.weights_ = self._weights(np.full(1, 0.5))[0]
        self.levels_ = np.sort(self._sureness(data.candidates))
        return self

    def _answer(self, seen: Candidates, /) -> Answer:
        """Weights of its own for each query with documents."""
        return self.fused(self.lists(seen), lambda: OwnWeights(self._own(seen), seen.sizes > 0))

    def _own(self, candidates: Candidates) -> Floats:
        sure = self._sureness(candidates)
        below = np.searchsorted(self.levels_, sure, "left") + np.searchsorted(self.levels_, sure, "right")
        return self._weights(below / max(2 * len(self.levels_), 1))

    def _weights(self, confidence: Floats) -> Floats:
        count = len(self.runs_)
        found = np.repeat((1 - confidence)[:, None] / (count - 1), count, axis=1)
        found[:, self.run_] = confidence
        return found

    def _sureness(self, candidates: Candidates) -> Floats:
        names, values = signals(replace(candidates, feature_names=self.feature_names_))
        found = values[:, names.index(f"{self.runs_[self.run_]}.{self.sign}")]
        # Rounded, so that sums in another order make no difference.
        return np.round(found if self.sign == "margin" else -found, 12)
