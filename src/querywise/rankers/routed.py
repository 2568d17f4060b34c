"""The blend of several rankers, or the one of them that a query's signs say does better, all the way or in part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from querywise.arrays import Floats, Ints
from querywise.data.groups import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.learners.lists import Worth, check_counts, check_worth, is_number
from querywise.learners.rows import FittedModels
from querywise.parameters import unfitted
from querywise.rankers.blend import Blend
from querywise.rankers.gains import LinearGains, NearbyGains
from querywise.rankers.gradients import GradientView
from querywise.rankers.locality import fitted_view
from querywise.rankers.metric import LearnedMetric
from querywise.rankers.signs import signs, usual_spreads
from querywise.sharing import not_sharing, once
from querywise.views.columns import SideBySide

_PREDICTORS: tuple[LinearGains | NearbyGains, ...] = (
    *(LinearGains(strength) for strength in (10.0, 1.0, 0.1)),
    *(NearbyGains(share) for share in (0.3, 0.1, 0.05)),
)
_BARS = (0.05, 0.02, 0.01, 0.005, 0.0)  # of a measure: what has to be promised for a query to be routed
_PARTS = 10  # in which the choice of the above is tried on queries it was not made on
_FEWEST = 20  # cross-validated queries; fewer teach nothing
_RISE = 1e-9  # of a measure: less is rounding


class Crossed(NamedTuple):
    """The training queries under rankers that never saw their labels.

    signs: a row per query. values: what the order is worth, queries × options: routed to each ranker, then the blend.
    """

    signs: Floats
    values: Floats

    @property
    def gains(self) -> Floats:
        """Queries × rankers: how much better than the blend."""
        gains: Floats = self.values[:, :-1] - self.values[:, -1:]
        return gains

    @property
    def gap(self) -> float:
        """How far the best option of each query is above the blend, on average."""
        return float(np.maximum(self.gains.max(axis=1), 0.0).mean())


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
        self.views_ = tuple(fitted_view(each, data, self.blend_) for each in _views_of(self.view))
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
            found[rows] = self._moved(self.blend_, scores, candidates)[rows, chosen[rows]]
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
        if len(data) < max(_FEWEST, self.folds):
            return None
        turned = np.random.default_rng(self.seed).permutation(len(data))
        held = [np.sort(part) for part in np.array_split(turned, self.folds)]
        kept = [np.setdiff1d(np.arange(len(data)), part) for part in held]
        if not all(data.pairs[part].any() for part in kept):
            return None
        fixed = [None if hasattr(each, "by") else unfitted(each).fit(data) for each in _views_of(self.view)]
        told: list[Floats] = [np.zeros(0)] * len(data)
        values = np.zeros((len(data), len(self.blend.rankers) + 1))
        with not_sharing():
            for ours, others in zip(held, kept, strict=True):
                rows, worths = self._held_out(data.select(ours), data.select(others), valid, fixed)
                values[ours] = worths
                for query, row in zip(ours, rows, strict=True):
                    told[query] = row
        return Crossed(np.array(told), values)

    def _held_out(
        self, ours: Judged, others: Judged, valid: Judged | None, fixed: Sequence[Any]
    ) -> tuple[Floats, Floats]:
        """Signs and values of some queries under a blend that is fitted on others."""
        try:
            blend = unfitted(self.blend).fit(others, valid=valid)
            every = zip(_views_of(self.view), fixed, strict=True)
            views = [fitted_view(view, others, blend) if ready is None else ready for view, ready in every]
        except DataError as error:
            raise DataError(
                f"Routed fits its blend on {len(others)} of the training queries at a time: {error}"
            ) from None
        usual = usual_spreads(blend.several_models().scores(others.candidates), others.candidates)
        scores = blend.several_models().scores(ours.candidates)
        worth = Worth(ours, self.measure)
        options = [*self._moved(blend, scores, ours.candidates).T, blend.blended(scores, ours.candidates)]
        values = np.column_stack([worth.of(np.ascontiguousarray(each)) for each in options])
        return _told(scores, ours.candidates, usual, views), values

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

    def _moved(self, blend: Blend, scores: Floats, candidates: Candidates) -> Floats:
        """Documents × rankers: the scores of a query that is routed to each."""
        alone = blend.comparable(scores, candidates)
        if self.step == 1:
            return alone
        return self.step * alone + (1 - self.step) * blend.blended(scores, candidates)[:, None]

    def _scores(self, candidates: Candidates) -> Floats:
        if not hasattr(self, "blend_"):
            raise NotFittedError(self)
        candidates.require_features(self.feature_count_, self.feature_names_)
        return self.blend_.several_models().scores(candidates)

    def _chosen(self, scores: Floats, candidates: Candidates) -> Ints:
        if self.predictor_ is None:
            return np.full(len(candidates), -1)
        promised = self.predictor_.predict(_told(scores, candidates, self.usual_, self.views_))
        return _best(promised, self.bar_)

    def _check(self) -> None:
        if not isinstance(self.blend, Blend):
            raise DataError(
                f"Routed needs a Blend, as in Routed(Blend([RankSVM(), LambdaMART()])); got {self.blend!r}."
            )
        check_counts(self, folds=2)
        check_worth(self.measure)
        if not is_number(self.step) or not 0 < self.step <= 1:
            raise DataError(f"Routed(step={self.step!r}) must be a number above 0 and up to 1.")
        if not is_number(self.caution) or self.caution < 0:
            raise DataError(f"Routed(caution={self.caution!r}) must be a number from 0 up.")
        for each in _views_of(self.view):
            if isinstance(each, (GradientView, LearnedMetric)):
                raise DataError(
                    f"Routed cannot go by a {type(each).__name__}: its axes are learned from labels, and differ from "
                    "fold to fold. Give it the view inside, such as TopMean() or TextView()."
                )


def _views_of(view: Any) -> tuple[Any, ...]:
    """The views side by side; those without a reference learn from no label, and are fitted on all training queries."""
    if view is None:
        return ()
    return tuple(view.views) if isinstance(view, SideBySide) else (view,)


def _told(scores: Floats, candidates: Candidates, usual: Floats, views: Sequence[Any]) -> Floats:
    return np.hstack([signs(scores, candidates, usual), *(np.asarray(each.points(candidates)) for each in views)])


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
