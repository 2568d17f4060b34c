"""One feature as the score: the ranking of a search engine before anything is learned."""

from __future__ import annotations

from typing import Self

import numpy as np

from querywise.contracts.answers import ALL, Answer, Facts, Rows, Terms, alone, ready
from querywise.contracts.asking import AnyRanker, answers, predicts
from querywise.contracts.forms import Linear
from querywise.data.judged import Candidates, Judged
from querywise.data.rows import require_whole
from querywise.errors import DataError
from querywise.learners.linear import LinearModels
from querywise.measures.flavours import FLAVOURS
from querywise.measures.formulas import precision_table
from querywise.retrieval.lists import PLAIN, SIMILARITY
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import cached
from querywise.runtime.stored import FITTED, Whole, contents


class OneFeature(AnyRanker):
    """Documents in the order of one of their features, largest first.

    feature: its name, or its number from 0; None is the one that ranks the training queries best, by mean average
    precision, the first of equals. `similarity.plain` is `similarity` where query vectors are not adapted.
    """

    stored = contents(FITTED, column_=Whole(below="features"))

    def __init__(self, feature: int | str | None = None) -> None:
        self.feature = feature

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Find the feature's column."""
        require_whole(data.candidates.features, data.feature_names)
        self._remember_features(data)
        if self.feature is None:
            data.require_learnable()
            self.column_ = cached("best feature", None, data, lambda: _best_feature(data))
        elif self.feature in (SIMILARITY, PLAIN):
            names = data.feature_names or ()
            if SIMILARITY not in names:
                raise DataError(
                    f"There is no feature {SIMILARITY!r}: these documents have no vectors. Give a text collection with "
                    "vectors=FOLDER or embed=NAME.",
                    arguments=("vectors", "embed"),
                )
            self.column_ = names.index(self.feature if self.feature in names else SIMILARITY)
        else:
            self.column_ = data.candidates.column_of(self.feature)
        return self

    @predicts
    def predict(self, candidates: Candidates, /) -> Floats:
        """The feature."""
        return ready(self, candidates).features[:, self.column_].copy()

    @answers
    def answer(self, candidates: Candidates, /) -> Answer:
        """One model for all queries: this one."""
        seen, names = ready(self, candidates), self.feature_names_
        facts = Facts(feature=None if names is None else names[self.column_])
        return alone(self, seen)._replace(facts=lambda: facts)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms:
        """The feature, and nothing of the others."""
        return Terms.of(seen, rows, seen.features[rows] * self.form().weights)

    def form(self) -> Linear:
        """A sum of one feature."""
        weights = np.zeros(self.feature_count_)
        weights[self.column_] = 1.0
        return Linear(weights)


def _best_feature(data: Judged) -> int:
    each_alone = LinearModels(np.eye(data.candidates.features.shape[1]))
    return int(np.argmax(precision_table(each_alone, data, FLAVOURS["standard"]).mean(axis=0)))
