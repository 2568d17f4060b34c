"""Multiple hyperplanes: a ranking SVM for every pair of grades, combined by Borda count [qin2007]_.

Grades 0, 1, 2 give three tasks: 1 above 0, 2 above 0, 2 above 1. Each gets its own hyperplane, trained only on the
documents with its two grades. To rank a query, each hyperplane orders its documents; by Borda's count a document scores

    Σ_h (documents that h puts strictly below it − documents that h puts strictly above it)
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from itertools import combinations
from typing import Literal, Self

import numpy as np

from querywise.contracts.asking import OneModel
from querywise.contracts.forms import Refusal, depends_on_the_list
from querywise.data.judged import Candidates, Judged
from querywise.data.labels import refuse_gains
from querywise.data.normalisation import borda
from querywise.learners.classic.lists import with_pairs
from querywise.learners.linear import linear_scores
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.runtime.arrays import Floats
from querywise.runtime.progress import doing
from querywise.runtime.scaling import Scale
from querywise.runtime.stored import FITTED, POSITIVE, contents, floats, ints


@dataclass(eq=False, repr=False)
class MultipleHyperplanes(OneModel):
    """A ranking SVM per pair of grades, combined by Borda count (MHR-BC).

    Args:
        l2: λ of every ranking SVM, how strongly its weights are shrunk toward 0.
        loss: `squared_hinge`, ℓ(t) = max(0, 1 − t)², or `hinge`, ℓ(t) = max(0, 1 − t).
        pairs: every `query` counts the same whatever its number of pairs, or every `pair` does.
        scale: features are standardized inside, or not (`none`).

    Pairs of grades that never occur in the same query are skipped. `grades_` are the pairs of grades, lower first;
    `hyperplanes_` holds their weights in the units of the features as given, one row each. All hyperplanes have equal
    votes, and scores are whole numbers, so documents may tie.

    >>> from querywise import from_arrays
    >>> data = from_arrays([[0.0], [1.0], [2.0]], [0, 1, 2], qid=[7, 7, 7])
    >>> MultipleHyperplanes().fit(data).predict(data.candidates)
    array([-6.,  0.,  6.])
    """

    l2: float = 1.0
    _: KW_ONLY
    loss: Literal["squared_hinge", "hinge"] = "squared_hinge"
    pairs: Literal["query", "pair"] = "query"
    scale: Scale = "standard"

    stored = contents(
        FITTED,
        l2=POSITIVE,
        grades_=ints("hyperplanes", 2),
        hyperplanes_=floats("hyperplanes", "features"),
    )

    def fit(self, data: Judged, /, *, query_weights: Floats | None = None, valid: Judged | None = None) -> Self:
        """Train every hyperplane. There is no early stopping: `valid` is ignored."""
        refuse_gains(data, "MultipleHyperplanes", "it trains a hyperplane for every two grades, and values are many")
        used, weights = with_pairs(data, query_weights)
        grades, hyperplanes = [], []
        with doing("Training hyperplanes"):
            for lower, upper in combinations(np.unique(used.labels).tolist(), 2):
                two, own = _of_two_grades(used, weights, lower, upper)
                if len(two):
                    grades.append((lower, upper))
                    machine = RankSVM(self.l2, loss=self.loss, pairs=self.pairs, scale=self.scale)
                    hyperplanes.append(machine.fit(two, query_weights=own).weights_)
        self.grades_ = np.array(grades, np.int64)
        self.hyperplanes_ = np.array(hyperplanes)
        return self

    def _predict(self, seen: Candidates, /) -> Floats:
        """Return the Borda counts: how many of the query's documents are below each one minus how many are above it."""
        votes = np.zeros(len(seen.features))
        for weights in self.hyperplanes_:
            scores = linear_scores(seen.features, weights)
            for query in range(len(seen)):
                rows = seen.rows(query)
                votes[rows] += borda(scores[rows])
        return votes

    def form(self) -> Refusal:
        """Return a refusal: an engine cannot count votes."""
        return depends_on_the_list(type(self), "counts votes among the documents of the query", "Fit ranksvm instead.")


def _of_two_grades(data: Judged, query_weights: Floats, lower: int, upper: int) -> tuple[Judged, Floats]:
    """Return the documents with one of two grades, for queries that have both, and the weights of these queries."""
    candidates, kept = data.candidates, np.isin(data.labels, (lower, upper))
    sizes = np.bincount(candidates.query_of_row[kept], minlength=len(data))
    few = Candidates(candidates.features[kept], np.concatenate([[0], np.cumsum(sizes)]), candidates.query_ids)
    two = Judged(few, data.labels[kept])
    queries = np.flatnonzero(two.pairs > 0)
    return two.select(queries), query_weights[queries]
