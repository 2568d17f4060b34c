"""One model for all queries: a learner's, one feature, or scores computed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from querywise.contracts.answers import ALL, Answer, Facts, Opaque, Rows, Terms, alone
from querywise.contracts.asking import AnyRanker, Asked, OneModel, as_candidates, policy_of
from querywise.contracts.forms import Linear
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.rows import require_whole
from querywise.data.training import Training, as_taken, takes_parts
from querywise.errors import DataError
from querywise.learners.linear import LinearModels
from querywise.measures.formulas import precision_table
from querywise.measures.order import FLAVOURS
from querywise.retrieval.lists import PLAIN, SIMILARITY
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import cached
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import FITTED, Whole, contents, part


@dataclass(eq=False, repr=False)
class Single(AnyRanker):
    """The learner's one model for all queries: the baseline of query-dependent rankers.

    Args:
        learner: the ranker to fit a copy of: RankSVM(), LambdaMART() or any other.

    Raises:
        DataError: If the learner raises it.

    >>> from querywise import RankSVM, Single, make_judged, split
    >>> train, valid, test = split(make_judged(20, 10, 4))
    >>> Single(RankSVM()).fit(train).predict(test).shape
    (40,)
    """

    learner: Ranker

    stored = contents(FITTED, model_=part(Ranker))

    def fit(self, data: Training, /, *, valid: Judged | None = None) -> Self:
        """Fit the learner on all queries; one with early stopping uses `valid`."""
        taken: Any = as_taken(self.learner, data)
        self.model_ = unfitted(self.learner).fit(taken, valid=valid)
        return self

    @property
    def missing_policy(self) -> str:
        """How it treats missing values: as its learner does."""
        return policy_of(self.learner)

    def takes_parts(self) -> bool:
        """Whether it can be fitted on shards, which depends on its learner."""
        return takes_parts(self.learner)

    def _predict(self, seen: Candidates, /) -> Floats:
        return self.model_.predict(seen)

    def _answer(self, seen: Candidates, /) -> Answer:
        return self.model_.answer(seen)


@dataclass(eq=False, repr=False)
class OneFeature(OneModel):
    """Documents ranked by one of their features, largest first.

    Args:
        feature: Its name, or its number from 0; None is the one that ranks the training queries best by mean average
            precision, the first of ties. `similarity.plain` is `similarity` without adapted query vectors.

    """

    feature: int | str | None = None

    stored = contents(FITTED, column_=Whole(below="features"))

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

    def _predict(self, seen: Candidates, /) -> Floats:
        return seen.features[:, self.column_].copy()

    def _answer(self, seen: Candidates, /) -> Answer:
        name = None if self.feature_names_ is None else self.feature_names_[self.column_]
        return super()._answer(seen)._replace(facts=lambda: Facts(feature=name))

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms:
        """Return the feature, and 0 for the others."""
        return Terms.of(seen, rows, seen.features[rows] * self.form().weights)

    def form(self) -> Linear:
        """Return a sum of one feature."""
        weights = np.zeros(self.feature_count_)
        weights[self.column_] = 1.0
        return Linear(weights)


def _best_feature(data: Judged) -> int:
    each_alone = LinearModels(np.eye(data.candidates.features.shape[1]))
    return int(np.argmax(precision_table(each_alone, data, FLAVOURS["standard"]).mean(axis=0)))


class GivenScores:
    """A ranker whose scores were computed elsewhere: looked up by query, and by document or its row in the query."""

    def __init__(self, candidates: Candidates, scores: Floats) -> None:
        self._scores = {query_id: scores[candidates.rows(query)] for query, query_id in enumerate(candidates.query_ids)}
        self.feature_count_ = candidates.features.shape[1]
        self.feature_names_ = candidates.feature_names

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Do nothing: there is nothing to learn."""
        return self

    def predict(self, candidates: Asked, /) -> Floats:
        """Return the scores of these queries' documents, which must be in the order in which they were given."""
        seen = as_candidates(candidates, self)
        unknown = next((each for each in seen.query_ids if each not in self._scores), None)
        if unknown is not None:
            raise DataError(f"There are no scores for query {unknown!r}.")
        scores = np.concatenate([np.zeros(0), *(self._scores[each] for each in seen.query_ids)])
        return scores if isinstance(candidates, (Candidates, Judged)) else seen.in_source_order(scores)

    def answer(self, candidates: Asked, /) -> Answer:
        """Return an answer that knows only the scores."""
        return alone(Opaque(self), as_candidates(candidates, self))._replace(facts=lambda: Facts(elsewhere=True))
