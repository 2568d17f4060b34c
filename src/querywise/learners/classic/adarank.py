"""AdaRank: boosting of single features that optimizes a ranking measure directly, one feature per round [xu2007]_.

    P_i ∝ v_i exp(−E_i(f)),   k = argmax Σ_i P_i E_i(h_k),   α = ½ ln(Σ_i P_i (1 + E_i(h_k)) / Σ_i P_i (1 − E_i(h_k)))

E_i is the measure of query i, f = Σ α h the ranker so far, and a weak ranker h is a feature in either direction.
Queries that f ranks badly determine the next feature.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np

from querywise.contracts.protocols import Learner
from querywise.data.judged import Judged
from querywise.learners.classic.lists import BestRound, Worth, check_counts, check_worth, with_pairs
from querywise.learners.linear import WeightedSum
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import unfitted
from querywise.runtime.progress import doing
from querywise.runtime.scaling import Scale, Scaling
from querywise.runtime.stored import COUNT, Whole, contents, floats, ints

_SURE = 1 - 1e-6  # a feature that ranks every list perfectly would have infinite weight


@dataclass(eq=False, repr=False)
class AdaRank(WeightedSum):
    """A linear ranker boosted from single features, each weighted by how well it ranks queries still ranked badly.

    Args:
        rounds: the maximum number of rounds. With a validation set, the rounds up to the best one are kept.
        measure: the boosted measure: `map`, `ndcg` or `ndcg@k`.
        repeat: as in the paper, a feature may be chosen again, and training stops when a round changes the measure of
            no query, which happens early, since the best feature is often chosen twice in a row. Otherwise each feature
            is chosen at most once.
        scale: features are standardized inside, or not (`none`).
        patience: training stops when the measure has not improved on the validation set for this many rounds.

    `weights_` are in the units of the features as given. `columns_` and `steps_` are the features in the order in which
    they were chosen and their weights α on the scaled features, negative if small values are preferred.

    >>> from querywise import from_arrays
    >>> data = from_arrays([[0.0, 5.0], [1.0, 3.0], [2.0, 4.0]], [0, 1, 2], qid=[7, 7, 7])
    >>> AdaRank().fit(data).columns_
    array([0, 1])
    """

    rounds: int = 500
    _: KW_ONLY
    measure: str = "map"
    repeat: bool = False
    scale: Scale = "standard"
    patience: int = 50

    stored = contents(
        rounds=COUNT,
        patience=COUNT,
        round_count_=Whole(0, size="rounds"),
        columns_=ints("rounds", below="features"),
        steps_=floats("rounds"),
    )

    def fit(self, data: Judged, /, *, query_weights: Floats | None = None, valid: Judged | None = None) -> Self:
        """Add features until nothing changes or, with `valid`, until early stopping."""
        check_counts(type(self), rounds=(self.rounds, 1), patience=(self.patience, 1))
        check_worth(self.measure)
        candidates = data.candidates
        if valid is not None:
            valid.candidates.require_features(candidates.features.shape[1], candidates.feature_names)
        used, weights = with_pairs(data, query_weights)
        with doing("Training AdaRank"):
            scaling = Scaling.learn(used.candidates.features, self.scale)
            self._boost(used, weights, scaling, valid)
        inside = np.zeros(candidates.features.shape[1])
        np.add.at(inside, self.columns_, self.steps_)
        self.weights_ = scaling.weights_in_user_units(inside)
        return self

    def local(self, everyone: Learner, /) -> AdaRank:
        """Return the learner of local models, with at most as many rounds as the global model."""
        assert isinstance(everyone, AdaRank), "the global model of this learner"
        few = unfitted(self)
        few.rounds = max(everyone.round_count_, 1)
        return few

    def _boost(self, data: Judged, query_weights: Floats, scaling: Scaling, valid: Judged | None) -> None:
        features = scaling.apply(data.candidates.features)
        others = None if valid is None else scaling.apply(valid.candidates.features)
        worth = Worth(data.candidates_only(), self.measure)
        alone = _alone(worth, features)
        best = BestRound(valid, self.measure, self.patience)
        scores, watched = np.zeros(len(features)), np.zeros(0 if others is None else len(others))
        columns: list[int] = []
        steps: list[float] = []
        values = np.zeros(len(data))
        for _ in range(self.rounds if self.repeat else min(self.rounds, features.shape[1])):
            column, step = _next_feature(alone, query_weights * np.exp(-values), [] if self.repeat else columns)
            scores += step * features[:, column]
            before, values = values, worth.of(scores)
            if self.repeat and columns and np.array_equal(before, values):
                break
            columns.append(column)
            steps.append(step)
            if others is not None:
                watched += step * others[:, column]
            if not best.goes_on(watched):
                break
        self.round_count_ = best.count
        self.columns_ = np.array(columns[: best.count], np.int64)
        self.steps_ = np.array(steps[: best.count], np.float64)


def _alone(worth: Worth, features: Floats) -> Floats:
    """Return directions × features × queries: the measure of each query ranked by each feature, or in reverse."""
    columns = np.ascontiguousarray(features.T)
    return np.array([[worth.of(sign * column) for column in columns] for sign in (1.0, -1.0)])


def _next_feature(alone: Floats, shares: Floats, used: list[int]) -> tuple[int, float]:
    """Return the unused feature with the highest weighted measure, the first if tied, and its weight."""
    worth: Floats = np.einsum("dfq,q->df", alone, shares / shares.sum())
    worth[:, used] = -1.0
    backwards, column = np.unravel_index(int(np.argmax(worth)), worth.shape)
    weight = float(np.arctanh(min(worth[backwards, column], _SURE)))
    return int(column), -weight if backwards else weight
