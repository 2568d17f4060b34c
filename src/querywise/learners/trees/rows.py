"""The rows that trees are trained on, and how much each counts."""

from __future__ import annotations

import numpy as np

from querywise.data.judged import Judged
from querywise.data.ordering import content_order
from querywise.runtime.arrays import Floats, Ints

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
