"""What the first stage made of a query's candidates, before any model: the order of each run, and of all fused."""

from __future__ import annotations

import numpy as np

from querywise.contracts.answers import Answer
from querywise.contracts.forms import Linear
from querywise.contracts.run_weights import run_weights
from querywise.data.judged import Candidates
from querywise.data.normalisation import reciprocal_ranks
from querywise.data.run_columns import run_columns
from querywise.measures.order import order
from querywise.retrieval.scores import BM25
from querywise.runtime.arrays import Floats, Ints
from querywise.service.schema import RunWeight

FUSED = "fused"


def first_stage_ranks(candidates: Candidates, names: tuple[str, ...] | None = None) -> dict[str, Ints]:
    """The rank of every candidate of one query in each run, from 1; 0 where the run did not find it.

    `fused`: where there are several runs, by the sum of 1 / (60 + rank) over those that found it. None of them is known
    where no feature tells of a run or of BM25. names: those of the model, where the data has none.
    """
    names = candidates.feature_names or names or ()
    runs = run_columns(names)
    if not runs:
        return {"bm25": _ranks(candidates.features[:, names.index(BM25)])} if BM25 in names else {}
    found = {run.name: _ranks(candidates.features[:, run.reciprocal_rank]) for run in runs}
    if len(runs) > 1:
        ranks = np.array(list(found.values()), dtype=np.float64)
        parts = np.where(ranks > 0, reciprocal_ranks(np.maximum(ranks, 1)), 0.0)
        found[FUSED] = _ranks(parts.sum(axis=0))
    return found


def weights_of_runs(answer: Answer) -> list[RunWeight]:
    """How much each run counts for the first query of an answer, and for all queries; none if the model weighs none."""
    if not answer.runs:
        return []
    form = answer.everyone.form()
    common = form.weights.tolist() if isinstance(form, Linear) else [None] * len(answer.runs)
    own = run_weights(answer)[0].tolist()
    return [RunWeight(name, here, all_) for name, here, all_ in zip(answer.runs, own, common, strict=True)]


def _ranks(scores: Floats) -> Ints:
    """The rank of each score, from 1; 0 for one that is not above 0."""
    best = order(scores, np.array([0, len(scores)]))
    ranks = np.empty(len(scores), np.int64)
    ranks[best] = np.arange(1, len(scores) + 1)
    return np.where(scores > 0, ranks, 0)
