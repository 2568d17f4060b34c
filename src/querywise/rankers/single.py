"""One model for all queries: the baseline of every query-dependent ranker."""

from __future__ import annotations

from typing import Any, Self

from querywise.contracts.answers import Answer, ready
from querywise.contracts.asking import AnyRanker, answers, predicts
from querywise.contracts.missing import policy_of
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.training import Training, as_taken, takes_parts
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import FITTED, contents, part


class Single(AnyRanker):
    """The learner's one model, for every query: what query-dependent rankers are measured against.

    learner: what is fitted, a copy of it: RankSVM(), LambdaMART() or any ranker.

    Refused: with DataError, what the learner refuses.

    >>> from querywise import RankSVM, Single, make_judged, split
    >>> train, valid, test = split(make_judged(20, 10, 4))
    >>> Single(RankSVM()).fit(train).predict(test).shape
    (40,)
    """

    stored = contents(FITTED, model_=part(Ranker))

    def __init__(self, learner: Ranker) -> None:
        self.learner = learner

    def fit(self, data: Training, /, *, valid: Judged | None = None) -> Self:
        """Fit the learner on all queries; one that stops early does so on `valid`."""
        taken: Any = as_taken(self.learner, data)
        self.model_ = unfitted(self.learner).fit(taken, valid=valid)
        return self

    @property
    def missing_policy(self) -> str:
        """What it does with missing values: as its learner does."""
        return policy_of(self.learner)

    def takes_parts(self) -> bool:
        """Whether it can be fitted on shards: as its learner can."""
        return takes_parts(self.learner)

    @predicts
    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document."""
        seen = ready(self, candidates)
        return self.model_.predict(seen)

    @answers
    def answer(self, candidates: Candidates, /) -> Answer:
        """That of the learner."""
        seen = ready(self, candidates)
        return self.model_.answer(seen)
