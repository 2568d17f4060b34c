"""Systems by the ranks at which they put the relevant documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from querywise.data.folds import Fold
from querywise.data.judged import Candidates, Judged
from querywise.evaluation.compare import compare
from querywise.evaluation.findings import Findings, findings
from querywise.evaluation.trained import Fit
from querywise.rankers.single import GivenScores
from querywise.runtime.arrays import Floats


def one_relevant(ranks: Sequence[int], documents: int = 10) -> Floats:
    """Scores that put the one relevant document, the first, at these ranks: average precisions 1 / rank."""
    scores = np.tile(-np.arange(documents, dtype=np.float64), (len(ranks), 1))
    scores[:, 0] = [0.5 - rank for rank in ranks]
    return scores.ravel()


def planted(
    named: Mapping[str, Sequence[int]] | None = None, *, measure: str = "map", test: str = "t", **more: Sequence[int]
) -> Findings:
    """Systems by the rank at which each puts the relevant document of each query; the first is the baseline."""
    ranks = {**(named or {}), **more}
    queries = len(next(iter(ranks.values())))
    labels = np.tile([1] + [0] * 9, queries)
    ids = tuple(f"q{number}" for number in range(queries))
    data = Judged(Candidates(np.zeros((10 * queries, 1)), np.arange(queries + 1) * 10, ids), labels)

    def looked_up(each: Sequence[int]) -> Fit:
        ranker = GivenScores(data.candidates, one_relevant(each))
        return lambda train, valid: ranker

    fits = {name: looked_up(each) for name, each in ranks.items()}
    return findings(compare(fits, [Fold(data, data, data)], measures=[measure]), measure, test=test)
