"""The blend of several rankers, or the one of them that a query's signs say does better, all the way or in part."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from querywise.arrays import Floats, Ints
from querywise.data.groups import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.learners.lists import is_number
from querywise.learners.rows import FittedModels
from querywise.parameters import unfitted
from querywise.rankers.blend import Blend
from querywise.rankers.crossing import Crossed, Crossing, moved, told_of, views_of
from querywise.rankers.gains import LinearGains, NearbyGains
from querywise.rankers.locality import fitted_view
from querywise.rankers.signs import usual_spreads
from querywise.sharing import once

_PREDICTORS: tuple[LinearGains | NearbyGains, ...] = (
    *(LinearGains(strength) for strength in (10.0, 1.0, 0.1)),
    *(NearbyGains(share) for share in (0.3, 0.1, 0.05)),
)
_BARS = (0.05, 0.02, 0.01, 0.005, 0.0)  # of a measure: what has to be promised for a query to be routed
_PARTS = 10  # in which the choice of the above is tried on queries it was not made on
_RISE = 1e-9  # of a measure: less is rounding


class Routed:
    """A blend that leaves a query to one of its rankers where signs without labels promise that it gains.

    The signs are how far the rankers agree on a query's documents and how sure each seems (`rankers/signs.py`), and the
    query's place in a view, if one is given; axes of a view must mean the same in every fold, so GradientView and
    LearnedMetric are refused. folds: every training query is ranked by a blend fitted without it, valid queries only
    stopping rankers early; what each ranker gains there by `measure` (map, ndcg or ndcg@k) is learned from the signs.
    step: how far the weights of a routed query go from the blend's to its ranker alone; 1 is all the way. caution:
    routing has to win so many standard errors on queries that it did not learn from, or the blend always answers.

    `gap_` is how far the best option of each cross-validated query is above the blend, `closed_` the share of that
    which routing wins, and `routed_` the share of queries it routes; 0 where the blend always answers.
    """

    def __init__(
        self,
        blend: Blend,
        *,
        view: Any = None,
        folds: int = 3,
        measure: str = "map",
        step: float = 1.0,
        caution: float = 2.0,
        seed: int = 0,
    ) -> None:
        self.blend = blend
        self.view = view
        self.folds = folds
        self.measure = measure
        self.step = step
        self.caution = caution
        self.seed = seed

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Learn from cross-validated queries when to route, then fit the blend on all of them."""
        self._check()
        settings = (self.blend, self.view, self.folds, self.measure, self.step, self.seed, valid)
        crossed = once("crossed", settings, data, lambda: self.crossed(data, valid=valid))
        self.gap_, self.closed_, self.routed_ = 0.0, 0.0, 0.0
        self.predictor_: LinearGains | NearbyGains | None = None
        self.bar_ = np.inf
        if crossed is not None:
            self._learn(crossed)
        self.blend_ = unfitted(self.blend).fit(data, valid=valid)
        self.usual_ = usual_spreads(self.blend_.several_models().scores(data.candidates), data.candidates)
        self.views_ = tuple(fitted_view(each, data, self.blend_) for each in views_of(self.view))
        self.feature_count_ = data.candidates.features.shape[1]
        self.feature_names_ = data.candidates.feature_names
        return self

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document, comparable within its query."""
        scores = self._scores(candidates)
        found = self.blend_.blended(scores, candidates)
        chosen = np.repeat(self._chosen(scores, candidates), candidates.sizes)
        rows = np.flatnonzero(chosen >= 0)
        if len(rows):
            found[rows] = moved(self.blend_, scores, candidates, self.step)[rows, chosen[rows]]
        return found

    def chosen(self, candidates: Candidates, /) -> Ints:
        """The number of the ranker that answers each query, −1 the blend."""
        return self._chosen(self._scores(candidates), candidates)

    def model_weights(self, candidates: Candidates, /) -> Floats:
        """Queries × rankers: how much each counts; 1 for one that answers alone, and the blend's where that does."""
        chosen, shares = self.chosen(candidates)[:, None], self.blend_.weights_
        alone = chosen == np.arange(len(shares))
        return np.where(chosen < 0, shares, self.step * alone + (1 - self.step) * shares)

    def several_models(self) -> FittedModels:
        """Each ranker alone, then the blend."""
        return FittedModels((*self.blend_.rankers_, self.blend_))

    def crossed(self, data: Judged, *, valid: Judged | None = None) -> Crossed | None:
        """Every query ranked by a blend that was fitted without it; None where there are too few to tell anything."""
        return self._crossing().over(data, valid)

    def _learn(self, crossed: Crossed) -> None:
        """How gains follow from signs, and what has to be promised; never more than queries not learned from bear out.

        What is chosen on nine tenths of the queries is tried on the last, in turn.
        """
        told, gains = crossed.signs, crossed.gains
        self.gap_ = crossed.gap
        won, routed = np.zeros(len(told)), np.zeros(len(told), np.bool_)
        turned = np.random.default_rng(self.seed).permutation(len(told))
        for part in np.array_split(turned, _PARTS):
            others = np.setdiff1d(turned, part)
            predictor, bar = _choice(told[others], gains[others])
            if predictor is not None:
                won[part], routed[part] = _won(predictor.predict(told[part]), gains[part], bar)
        error = float(won.std(ddof=1)) / np.sqrt(len(won))
        if won.mean() <= self.caution * error + _RISE:
            return
        self.predictor_, self.bar_ = _choice(told, gains)
        if self.predictor_ is not None:
            self.closed_, self.routed_ = float(won.mean()) / self.gap_, float(routed.mean())

    def _scores(self, candidates: Candidates) -> Floats:
        if not hasattr(self, "blend_"):
            raise NotFittedError(self)
        candidates.require_features(self.feature_count_, self.feature_names_)
        return self.blend_.several_models().scores(candidates)

    def _chosen(self, scores: Floats, candidates: Candidates) -> Ints:
        if self.predictor_ is None:
            return np.full(len(candidates), -1)
        promised = self.predictor_.predict(told_of(scores, candidates, self.usual_, self.views_))
        return _best(promised, self.bar_)

    def _check(self) -> None:
        self._crossing().check()
        if not is_number(self.step) or not 0 < self.step <= 1:
            raise DataError(f"Routed(step={self.step!r}) must be a number above 0 and up to 1.")
        if not is_number(self.caution) or self.caution < 0:
            raise DataError(f"Routed(caution={self.caution!r}) must be a number from 0 up.")

    def _crossing(self) -> Crossing:
        return Crossing("Routed", self.blend, self.view, self.folds, self.measure, self.seed, self.step)


def _choice(told: Floats, gains: Floats) -> tuple[LinearGains | NearbyGains | None, float]:
    """The predictor, fitted, and the bar under which queries left out win most; None and ∞ where none win anything."""
    best: tuple[LinearGains | NearbyGains | None, float] = (None, np.inf)
    highest = _RISE
    for each in _PREDICTORS:
        predictor = unfitted(each).fit(told, gains)
        promised = predictor.left_out(told, gains)
        for bar in _BARS:
            value = float(_won(promised, gains, bar)[0].mean())
            if value > highest:
                best, highest = (predictor, bar), value + _RISE
    return best


def _won(promised: Floats, gains: Floats, bar: float) -> tuple[Floats, Any]:
    """What each query gains by being routed as promised, and which are."""
    number = _best(promised, bar)
    routed = number >= 0
    won: Floats = np.where(routed, gains[np.arange(len(gains)), number], 0.0)
    return won, routed


def _best(promised: Floats, bar: float) -> Ints:
    """The option that promises most, the first of equals; −1 where that is no more than the bar."""
    best: Ints = promised.argmax(axis=1)
    return np.where(promised[np.arange(len(best)), best] > bar, best, -1)
