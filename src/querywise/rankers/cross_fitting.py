"""Cross-fitting: training queries scored by a blend fitted without them, and how well each ranker ranks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from querywise.contracts.protocols import FollowsRanker, QueryView
from querywise.data.judged import Candidates, Judged
from querywise.data.ordering import content_order
from querywise.data.query_groups import deal, equal_sizes
from querywise.errors import DataError
from querywise.learners.classic.lists import Worth, check_counts, check_worth
from querywise.locality.views.columns import SideBySide
from querywise.locality.views.gradients import GradientView
from querywise.locality.views.metric import LearnedMetric
from querywise.rankers.blend import Blend
from querywise.rankers.neighbors import fitted_view
from querywise.rankers.score_signals import score_signals, usual_spreads
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.cache import cached, not_caching
from querywise.runtime.parameters import unfitted

_FEWEST = 20  # cross-validated queries; from fewer nothing is learned


class CrossFitted(NamedTuple):
    """The training queries under rankers that never saw their labels.

    score_signals: a row per query. values: the measure, queries × options: each ranker alone, then the
    blend.
    """

    score_signals: Floats
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


@dataclass(frozen=True)
class CrossFitting:
    """How training queries are scored by a blend fitted without them."""

    whose: str  # class, named in errors
    blend: Blend
    view: QueryView | None
    folds: int
    measure: str
    seed: int

    def check(self) -> None:
        """Refuse what cannot be cross-fitted."""
        if not isinstance(self.blend, Blend):
            raise DataError(
                f"{self.whose} needs a Blend, as in {self.whose}(Blend([RankSVM(), LambdaMART()])); got {self.blend!r}."
            )
        check_counts(type(self), folds=(self.folds, 2))
        check_worth(self.measure)
        for each in views_of(self.view):
            if isinstance(each, (GradientView, LearnedMetric)):
                raise DataError(
                    f"{self.whose} cannot go by a {type(each).__name__}: its axes are learned from labels, and differ "
                    "from fold to fold. Give it the view inside, such as TopMean() or TextView()."
                )

    def over(self, data: Judged, valid: Judged | None) -> CrossFitted | None:
        """Every query ranked by a blend that was fitted without it and its group; None where there are too few."""
        if len(data) < _FEWEST or len(np.unique(data.groups)) < self.folds:
            return None
        turned = content_order(data, by_labels=False)[np.random.default_rng(self.seed).permutation(len(data))]
        held = deal(turned, equal_sizes(len(data), self.folds), data.groups)
        kept = [np.setdiff1d(np.arange(len(data)), part) for part in held]
        if not all(data.pairs[part].any() for part in kept):
            return None
        # Whatever the measure, the folds are fitted once.
        settings = (self.blend, self.view, self.folds, self.seed, valid)
        parts = cached("held out", settings, data, lambda: self._held_out(data, held, kept, valid))
        found: list[Floats] = [np.zeros(0)] * len(data)
        values = np.zeros((len(data), len(self.blend.rankers) + 1))
        for ours, part in zip(held, parts, strict=True):
            values[ours] = self._values(part, data.select(ours))
            for query, row in zip(ours, part.told, strict=True):
                found[query] = row
        return CrossFitted(np.array(found), values)

    def _held_out(
        self, data: Judged, held: Sequence[Ints], kept: Sequence[Ints], valid: Judged | None
    ) -> list[_HeldOut]:
        """The queries of each fold scored by a blend fitted on the others."""
        fixed = [None if isinstance(each, FollowsRanker) else unfitted(each).fit(data) for each in views_of(self.view)]
        with not_caching():
            return [
                self._one_held_out(data.select(ours).candidates, data.select(others), valid, fixed)
                for ours, others in zip(held, kept, strict=True)
            ]

    def _one_held_out(
        self, ours: Candidates, others: Judged, valid: Judged | None, fixed: Sequence[QueryView | None]
    ) -> _HeldOut:
        try:
            blend = unfitted(self.blend).fit(others, valid=valid)
            every = zip(views_of(self.view), fixed, strict=True)
            views = [fitted_view(view, others, blend) if ready is None else ready for view, ready in every]
        except DataError as error:
            raise DataError(
                f"{self.whose} fits its blend on {len(others)} of the training queries at a time: {error}"
            ) from None
        usual = usual_spreads(blend.several_models().scores(others.candidates), others.candidates)
        scores = blend.several_models().scores(ours)
        return _HeldOut(blend, scores, signals_and_places(scores, ours, usual, views))

    def _values(self, part: _HeldOut, ours: Judged) -> Floats:
        """Queries × options: the measure of each option on held-out queries."""
        worth = Worth(ours, self.measure)
        options = [*part.blend.comparable(part.scores, ours.candidates).T]
        options.append(part.blend.blended(part.scores, ours.candidates))
        return np.column_stack([worth.of(np.ascontiguousarray(each)) for each in options])


class _HeldOut(NamedTuple):
    """Queries scored by a blend fitted on others: the scores, and the signals made of them."""

    blend: Blend
    scores: Floats
    told: Floats


def views_of(view: QueryView | None) -> tuple[QueryView, ...]:
    """The views, side by side; those without a reference use no label, and are fitted on all training queries."""
    if view is None:
        return ()
    return tuple(view.views) if isinstance(view, SideBySide) else (view,)


def signals_and_places(scores: Floats, candidates: Candidates, usual: Floats, views: Sequence[QueryView]) -> Floats:
    """A row per query: the signals of its scores, and its position in the views."""
    places = [np.asarray(each.points(candidates)) for each in views]
    return np.hstack([score_signals(scores, candidates, usual), *places])
