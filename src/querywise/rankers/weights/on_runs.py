"""Any ranker on first-stage runs: a feature per run, its score made comparable over its own list."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from querywise.contracts.answers import Answer, refused
from querywise.contracts.asking import AnyRanker
from querywise.contracts.forms import depends_on_the_list
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.normalisation import NORMALISATIONS
from querywise.data.run_columns import run_columns
from querywise.errors import DataError
from querywise.rankers.weights.lists import runs_of
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import FITTED, Known, contents, part


@dataclass(eq=False, repr=False)
class OnRuns(AnyRanker):
    """A ranker on a feature per run: the run's score, normalised over its own list, 0 where it has no such document.

    The features are those of `join_runs`, made of the columns run.NAME.score and run.NAME.reciprocal_rank.

    normalise: minmax goes from 1/n for the worst of n documents to 1, zscore counts standard deviations above the
    worst, rank is (n + 1 − rank)/n, none leaves scores as they are, which must then be above 0.
    """

    ranker: Ranker
    normalise: Literal["minmax", "zscore", "rank", "none"] = "minmax"

    stored = contents(FITTED, ranker_=part(Ranker, features="runs"))

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Fit the ranker on the runs' features."""
        if self.normalise not in NORMALISATIONS:
            raise DataError(f"Unknown normalisation {self.normalise!r}. Known: {', '.join(NORMALISATIONS)}.")
        runs_of(type(self), data.feature_names)
        data.candidates.require_moderate()
        self._remember_features(data)
        held_out = None if valid is None else replace(valid, candidates=self.joined(valid.candidates))
        self.ranker_ = unfitted(self.ranker).fit(replace(data, candidates=self.joined(data.candidates)), valid=held_out)
        return self

    def _check_stored(self, known: Known) -> None:
        """The ranker inside sees the runs among the features."""
        known.tie("runs", len(run_columns(self.feature_names_)), "OnRuns.ranker_")

    def _predict(self, seen: Candidates, /) -> Floats:
        return self.ranker_.predict(self.joined(seen))

    def _answer(self, seen: Candidates, /) -> Answer:
        why = depends_on_the_list(type(self), "sees every run's scores on the scale of its own list")
        return refused(self.ranker_.answer(self.joined(seen)), why)

    def joined(self, candidates: Candidates) -> Candidates:
        """The documents with a feature per run."""
        runs, scale = run_columns(self.feature_names_), NORMALISATIONS[self.normalise]
        found = np.zeros((len(candidates.features), len(runs)))
        for query in range(len(candidates)):
            rows = candidates.rows(query)
            for column, run in enumerate(runs):
                listed = np.flatnonzero(candidates.features[rows, run.reciprocal_rank] > 0) + rows.start
                if len(listed):
                    found[listed, column] = scale(candidates.features[listed, run.score])
        return replace(candidates, features=found, feature_names=tuple(run.name for run in runs))
