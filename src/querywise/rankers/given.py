"""Scores computed elsewhere, as a ranker."""

from __future__ import annotations

from typing import Self

import numpy as np

from querywise.contracts.answers import Answer, Facts, Opaque, alone
from querywise.contracts.asking import answers, predicts
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.runtime.arrays import Floats


class GivenScores:
    """A ranker whose scores were computed elsewhere: looked up by query, and by document or its row in the query."""

    def __init__(self, candidates: Candidates, scores: Floats) -> None:
        self._scores = {query_id: scores[candidates.rows(query)] for query, query_id in enumerate(candidates.query_ids)}
        self.feature_count_ = candidates.features.shape[1]
        self.feature_names_ = candidates.feature_names

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """There is nothing to learn."""
        return self

    @predicts
    def predict(self, candidates: Candidates, /) -> Floats:
        """The scores of these queries' documents, which must be in the order in which they were given."""
        unknown = next((each for each in candidates.query_ids if each not in self._scores), None)
        if unknown is not None:
            raise DataError(f"There are no scores for query {unknown!r}.")
        return np.concatenate([np.zeros(0), *(self._scores[each] for each in candidates.query_ids)])

    @answers
    def answer(self, candidates: Candidates, /) -> Answer:
        """Nothing is known but the scores."""
        return alone(Opaque(self), candidates)._replace(facts=lambda: Facts(elsewhere=True))
