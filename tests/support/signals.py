"""Queries of two kinds, which the scores of their runs tell apart."""

from __future__ import annotations

import numpy as np

from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable
from querywise.rankers.blend import Blend
from querywise.rankers.single import OneFeature

TWO = Blend([OneFeature(0), OneFeature(1)])


def two_kinds(seed: int, queries: int = 90, *, told: bool = True) -> Judged:
    """Half of the queries want the first feature, half the second; the other one holds the same values, mixed up.

    Long lists want the second, or, where nothing is told, it is drawn by lot.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(8, 25, size=queries)
    kinds = (sizes > 15).astype(np.int64) if told else rng.integers(2, size=queries)
    features, labels = [], []
    for size, kind in zip(sizes, kinds, strict=True):
        wanted = (rng.random(size) < 0.3).astype(np.int64)
        right = wanted + 0.5 * rng.normal(size=size)
        both = (right, rng.permutation(right))
        features.append(np.column_stack(both if kind == 0 else both[::-1]))
        labels.append(wanted)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    ids = tuple(f"q{number}" for number in range(queries))
    table = QueryTable(ids, texts=tuple("alpha" if kind else "omega" for kind in kinds))
    return Judged(Candidates(np.vstack(features), starts, ids, queries=table), np.concatenate(labels))
