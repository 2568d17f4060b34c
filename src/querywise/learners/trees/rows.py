"""The rows that trees are trained on, and how much each counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from querywise.contracts.protocols import Ranker
from querywise.data.judged import Judged
from querywise.data.ordering import content_order
from querywise.learners.trees.grades import Grades
from querywise.learners.trees.growth import lightgbm
from querywise.measures.flavours import FLAVOURS
from querywise.measures.formulas import ideal_shares
from querywise.runtime.arrays import Floats, Ints

if TYPE_CHECKING:
    from lightgbm import Dataset

# LightGBM refuses queries with more documents than this; longer ones are trained on a sample.
LONGEST_QUERY = 10_000


def training_rows(data: Judged, queries: Ints, seed: int) -> tuple[Ints, Ints]:
    """The rows of these queries, and how many each has; of a very long one all relevant ones and a seeded sample."""
    rng = np.random.default_rng(seed)
    chosen = []
    for query in queries:
        rows = np.arange(*data.candidates.rows(query).indices(len(data.labels)))
        if len(rows) > LONGEST_QUERY:
            by_label = rows[np.lexsort((rng.random(len(rows)), -data.labels[rows]))]
            rows = np.sort(by_label[:LONGEST_QUERY])
        chosen.append(rows)
    return np.concatenate(chosen), np.array([len(rows) for rows in chosen])


def weighted_rows(data: Judged, weights: Floats, seed: int, *, by_document: bool) -> tuple[Ints, Ints, Floats | None]:
    """The rows of queries that count, how many each query has, and the weight of each row; None where all are the same.

    by_document: whether the weights that documents have count too; what chooses counts all documents the same.
    """
    order = content_order(data)  # bins, sums and random numbers by query go by the order of the rows
    kept = order[(weights[order] > 0) & (data.candidates.sizes[order] > 0)]
    rows, sizes = training_rows(data, kept, seed)
    # Mean 1: LightGBM's limits on leaves are absolute, and weights are relative.
    by_row = np.repeat(weights[kept] / (weights[kept] @ sizes / sizes.sum()), sizes)
    if data.document_weights is not None and by_document:
        by_row = by_row * data.document_weights[rows]
        by_row /= by_row.mean()
    return rows, sizes, None if np.ptp(by_row) == 0 else by_row


def weights_watched(valid: Judged, cut: int) -> Floats:
    """Weights of validation queries with which LightGBM's NDCG, of candidates alone, is NDCG of all judgements."""
    shares = ideal_shares(valid, cut, FLAVOURS["standard"])
    return shares if shares.any() else np.ones(len(valid))


def binned_rows(
    data: Judged, weights: Floats, grades: Grades, seed: int, base: Ranker | None, training: Dataset | None = None
) -> Dataset:
    """The rows that count, as LightGBM takes them. base: whose scores to start from. training: whose bins to use."""
    rows, sizes, by_row = weighted_rows(data, weights, seed, by_document=training is None)
    found: Dataset = lightgbm().Dataset(
        data.candidates.features[rows],
        label=grades.labels(data, rows),
        weight=by_row,
        group=sizes,
        init_score=None if base is None else base.predict(data.candidates)[rows],
        reference=training,
        params={"verbose": -1, "seed": seed, "feature_pre_filter": False},
        free_raw_data=True,
    )
    return found
