"""The rows that trees are trained on."""

from __future__ import annotations

import numpy as np

from querywise.data.judged import Judged
from querywise.runtime.arrays import Ints

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
