"""The rows that trees are trained on, how much each counts, and their labels as LightGBM takes them.

These are whole numbers from 0 up without gaps, each with what it is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from querywise.contracts.protocols import Ranker
from querywise.data.judged import Judged
from querywise.data.labels import require_same_labels, values_of
from querywise.data.ordering import content_order
from querywise.learners.trees.growth import lightgbm
from querywise.measures.flavours import FLAVOURS
from querywise.measures.formulas import ideal_shares
from querywise.runtime.arrays import Floats, Ints

if TYPE_CHECKING:
    from lightgbm import Dataset

# LightGBM refuses queries with more documents than this; longer ones are trained on a sample.
LONGEST_QUERY = 10_000
_MOST = 10_000  # distinct values that LightGBM is given; it keeps a count of each for every query
_GRADES = 4  # the highest grade that values are rounded to for a listwise cross entropy


@dataclass(frozen=True, eq=False)
class Grades:
    """The distinct labels of training and validation data, ascending from 0 on: grades, or values where they have some.

    gains: what each is worth, between 0 and 1. Of more values than LightGBM is given, `known` is the highest of each
    level, and a level is worth the mean of its values.
    """

    known: Floats | Ints
    gains: Floats
    unit: float | None = None  # what grade 1 is worth, where values are rounded to grades

    @staticmethod
    def of(data: Judged, valid: Judged | None, objective: str) -> Grades:
        """Those of training data, and of validation data where there is some."""
        parts = [data] if valid is None else [data, valid]
        require_same_labels(parts)
        if data.gains is None:
            return _exponential(np.unique(np.concatenate([[0], *(part.labels for part in parts)])).astype(np.int64))
        values = np.unique(np.concatenate([[0.0], *(values_of(part) for part in parts)]))
        if objective == "rank_xendcg":
            return _rounded(values)
        if len(values) > _MOST:
            return _levels(values)
        return Grades(values, _readable(values / values[-1]) if values[-1] > 0 else np.zeros(1))

    def labels(self, data: Judged, rows: Ints) -> Ints:
        """LightGBM's labels of some rows."""
        if data.gains is None:
            return np.searchsorted(self.known, data.labels[rows])
        values = values_of(data)[rows]
        if self.unit is not None:
            return np.searchsorted(self.known, _as_grades(values, self.unit))
        return np.searchsorted(self.known, values)


def _levels(values: Floats) -> Grades:
    """At most 10,000 levels of ascending distinct values, of which 0 is the first and has a level of its own.

    The values above 0 are cut at 4,999 quantiles, which keep small values apart where some are very large, and at 4,999
    equal steps up to the highest, which keep large ones apart.
    """
    parts, above = (_MOST - 1) // 2, values[1:]
    quantiles = above[np.arange(1, parts + 1) * len(above) // parts - 1]
    cuts = np.unique(np.concatenate([[0.0], quantiles, np.linspace(0.0, values[-1], parts + 1)]))
    taken, level, sizes = np.unique(np.searchsorted(cuts, values), return_inverse=True, return_counts=True)
    return Grades(cuts[taken], _readable(np.bincount(level, values / values[-1]) / sizes))


def _exponential(grades: Ints, unit: float | None = None) -> Grades:
    """Grades worth 2^grade − 1, divided by what the highest is worth: 2^grade may not fit a double."""
    highest = float(grades.max())
    gains = np.exp2(grades - highest) - np.exp2(-highest)
    return Grades(grades, _readable(gains / gains.max()) if gains.max() > 0 else np.zeros(1), unit)


def _rounded(values: Floats) -> Grades:
    """Values as whole grades, of which a listwise cross entropy has 2^grade: log2(1 + value / unit), rounded.

    The unit is 1 where all values are 2^grade − 1 already, else it makes the highest value grade 4.
    """
    exact = np.log2(1 + values)
    unit = 1.0 if np.array_equal(exact, np.rint(exact)) else float(values[-1]) / (2**_GRADES - 1)
    return _exponential(np.unique(_as_grades(values, unit)), unit)


def _as_grades(values: Floats, unit: float) -> Ints:
    found: Ints = np.rint(np.log2(1 + values / unit)).astype(np.int64)
    return found


def _readable(gains: Floats) -> Floats:
    """The gains, with 0 for those that LightGBM cannot read because they are too small."""
    return np.where(gains < np.finfo(np.float64).tiny, 0.0, gains)


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
