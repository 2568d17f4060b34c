"""RankBoost: boosted threshold stumps that minimize the exponential loss over pairs, one per round [freund2003]_.

    Σ_i v_i · (1/p_i) Σ_{(a,b) ∈ P_i} exp(H(b) − H(a)),   H(x) = Σ_t α_t · [x_f(t) > θ_t]

Each round adds the stump with the largest |r|, where r = Σ D(a,b) (h(a) − h(b)) and D are the pairs' current shares of
the loss, with the weight α = ½ ln((1 + r)/(1 − r)).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np

from querywise.contracts.answers import ALL, Rows, Terms
from querywise.contracts.asking import OneModel
from querywise.contracts.forms import Forest, Leaf, Split
from querywise.contracts.protocols import Learner
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.learners.classic.lists import BestRound, check_counts, with_pairs
from querywise.learners.ranksvm.preferences import dense_levels
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.parameters import unfitted
from querywise.runtime.progress import doing
from querywise.runtime.stored import COUNT, FITTED, Whole, contents, floats, ints
from querywise.runtime.threads import in_threads
from querywise.runtime.values import is_finite_number

_SURE = 1 - 1e-6  # an r of 1 would have infinite weight
_NOTHING = 1e-12  # relative to the initial loss, or to r: less is rounding error
_MOST_THRESHOLDS = 65_535
_BLOCK = 2_000_000  # feature values scanned at a time, in each thread


@dataclass(eq=False, repr=False)
class RankBoost(OneModel):
    """Boosted stumps on single features, each weighted by how well it orders pairs that are still in the wrong order.

    Args:
        rounds: the maximum number of stumps; with a validation set, those up to its highest MAP are kept.
        thresholds: the number of thresholds to try on each feature, quantiles of its distinct training values.
        learning_rate: the share of its weight that a stump gets.
        patience: training stops when validation MAP has not risen for this many rounds.

    A negative weight is a stump that prefers small values. `losses_` is the loss after each round, 1 before the first.

    >>> from querywise import from_arrays
    >>> data = from_arrays([[0.0, 5.0], [1.0, 3.0], [2.0, 4.0]], [0, 1, 2], qid=[7, 7, 7])
    >>> scores = RankBoost(20).fit(data).predict(data.candidates)
    >>> bool(scores[2] > scores[1] > scores[0])
    True
    """

    rounds: int = 300
    _: KW_ONLY
    thresholds: int = 16
    learning_rate: float = 1.0
    patience: int = 50

    stored = contents(
        FITTED,
        rounds=COUNT,
        patience=COUNT,
        round_count_=Whole(0, size="rounds"),
        columns_=ints("rounds", below="features"),
        thresholds_=floats("rounds"),
        stump_weights_=floats("rounds"),
        losses_=floats("rounds"),
    )

    def fit(self, data: Judged, /, *, query_weights: Floats | None = None, valid: Judged | None = None) -> Self:
        """Add stumps; with `valid`, until early stopping."""
        self._check_parameters()
        candidates = data.candidates
        if valid is not None:
            valid.candidates.require_features(candidates.features.shape[1], candidates.feature_names)
        used, weights = with_pairs(data, query_weights)
        with doing("Boosting stumps"):
            self._boost(_Pairs(used, weights, self.thresholds), valid)
        return self

    def local(self, everyone: Learner, /) -> RankBoost:
        """Return the learner of local models, with as many stumps as the global model."""
        assert isinstance(everyone, RankBoost), "the global model of this learner"
        few = unfitted(self)
        few.rounds = max(everyone.round_count_, 1)
        return few

    def _predict(self, seen: Candidates, /) -> Floats:
        """Return the sum of the weights of the stumps whose threshold a document exceeds."""
        scores = np.zeros(len(seen.features))
        for column, threshold, weight in zip(self.columns_, self.thresholds_, self.stump_weights_, strict=True):
            scores += weight * (seen.features[:, column] > threshold)
        return scores

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms:
        """Return for each feature the sum of the weights of its stumps whose threshold the document exceeds."""
        features = seen.features[rows]
        added = np.zeros(features.shape)
        for column, threshold, weight in zip(self.columns_, self.thresholds_, self.stump_weights_, strict=True):
            added[:, column] += weight * (features[:, column] > threshold)
        return Terms.of(seen, rows, added)

    def form(self) -> Forest:
        """Return a tree with one split for every stump."""
        stumps = zip(self.columns_, self.thresholds_, self.stump_weights_, strict=True)
        grown = tuple(Split(int(column), float(cut), Leaf(0.0), Leaf(float(weight))) for column, cut, weight in stumps)
        return Forest(grown or (Leaf(0.0),))

    def _boost(self, pairs: _Pairs, valid: Judged | None) -> None:
        columns, thresholds, weights, losses = [], [], [], []
        best = BestRound(valid, "map", self.patience)
        watched = np.zeros(0 if valid is None else len(valid.labels))
        for _ in range(self.rounds):
            r, column, number = pairs.best_stump()
            if abs(r) <= _NOTHING:
                break
            weight = self.learning_rate * float(np.arctanh(np.clip(r, -_SURE, _SURE)))
            threshold = float(pairs.thresholds[column][number])
            losses.append(pairs.add(column, number, weight))
            columns.append(column)
            thresholds.append(threshold)
            weights.append(weight)
            if valid is not None:
                watched += weight * (valid.candidates.features[:, column] > threshold)
            if not best.goes_on(watched) or losses[-1] <= _NOTHING:
                break
        self.round_count_ = best.count
        self.columns_ = np.array(columns[: best.count], np.int64)
        self.thresholds_ = np.array(thresholds[: best.count], np.float64)
        self.stump_weights_ = np.array(weights[: best.count], np.float64)
        self.losses_ = np.array(losses[: best.count], np.float64)

    def _check_parameters(self) -> None:
        check_counts(type(self), rounds=(self.rounds, 1), thresholds=(self.thresholds, 1), patience=(self.patience, 1))
        if self.thresholds > _MOST_THRESHOLDS:
            raise DataError(f"RankBoost(thresholds={self.thresholds}) must be at most {_MOST_THRESHOLDS}.")
        if not (is_finite_number(self.learning_rate) and 0 < self.learning_rate <= 1):
            raise DataError(f"RankBoost(learning_rate={self.learning_rate!r}) must be above 0 and at most 1.")


class _Pairs:
    """The training pairs, never enumerated, and their weights under the stumps added so far."""

    def __init__(self, data: Judged, query_weights: Floats, thresholds: int) -> None:
        from querywise.learners.classic import stumps  # importing numba takes half a second

        self._kernels = stumps
        # The kernels are compiled for writable arrays; read-only ones would trigger a second compilation.
        self._starts = data.candidates.starts.copy()
        rows, self._levels = dense_levels(data.labels, self._starts)
        columns = np.ascontiguousarray(data.candidates.features[rows].T)
        self.thresholds = [_thresholds(column, thresholds) for column in columns]
        self._codes = np.empty(columns.shape, np.uint16)
        for column, values in enumerate(columns):
            self._codes[column] = np.searchsorted(self.thresholds[column], values)
        self._counts = np.array([len(each) for each in self.thresholds], np.int64)
        self._shares = query_weights / data.pairs
        self._scores, self._potentials = np.zeros(len(rows)), np.zeros(len(rows))
        self._loss = self._weigh()

    def best_stump(self) -> tuple[float, int, int]:
        """Return the stump with the largest |r|: r, its feature and the index of its threshold."""
        step = max(1, _BLOCK // len(self._scores))
        blocks = [(first, min(first + step, len(self._codes))) for first in range(0, len(self._codes), step)]
        kernel, pairs = self._kernels.best_stump, (self._codes, self._counts, self._potentials)
        found = in_threads(lambda block: kernel(*pairs, *block), blocks)
        weight, column, number = max(found, key=lambda each: abs(each[0]), default=(0.0, -1, -1))
        return weight / self._loss, column, number

    def add(self, column: int, number: int, weight: float) -> float:
        """Add a stump to the scores and return the remaining loss."""
        self._scores += weight * (self._codes[column] > number)
        self._loss = self._weigh()
        return self._loss

    def _weigh(self) -> float:
        return self._kernels.potentials(self._scores, self._levels, self._starts, self._shares, self._potentials)


def _thresholds(values: Floats, count: int) -> Floats:
    """Return quantiles of the distinct values, or all of them if few, except the largest, which nothing exceeds.

    >>> _thresholds(np.array([3.0, 1.0, 2.0, 2.0]), 5), _thresholds(np.arange(10.0), 2)
    (array([1., 2.]), array([3., 6.]))
    """
    distinct = np.unique(values)
    if len(distinct) <= count + 1:
        return distinct[:-1]
    places: Ints = np.arange(1, count + 1) * len(distinct) // (count + 1)
    return distinct[places]
