"""A blend that weights each ranker, per query, by how well it ranked the most similar training queries [lin2011]_."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import combinations
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.answers import Answer, Facts, Local, Once, Place, Stored
from querywise.contracts.asking import AnyRanker
from querywise.contracts.protocols import FollowsRanker, QueryView
from querywise.data.judged import Candidates, Judged
from querywise.data.ordering import content_order
from querywise.data.query_groups import deal, equal_sizes
from querywise.errors import DataError
from querywise.learners.classic.lists import Worth, check_counts, check_worth
from querywise.learners.local_models import FittedModels
from querywise.learners.within_query import within_query
from querywise.locality.combinations import check_floor, normalised, without_the_weak
from querywise.locality.neighborhoods import Nearest
from querywise.locality.views.columns import SideBySide
from querywise.locality.views.learned import GradientView, LearnedMetric
from querywise.locality.views.looking import looked_at, without_vector
from querywise.locality.views.topmean import top_shares
from querywise.rankers.blend import Blend, scores_of
from querywise.rankers.neighbors import fitted_view
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.cache import cached, not_caching
from querywise.runtime.parameters import unfitted
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import FITTED, SHARE, Absent, Known, Optional, Several, contents, floats, part, require

TOP = 10
_FEWEST = 20  # cross-validated queries; from fewer nothing is learned


def score_signals(scores: Floats, candidates: Candidates, usual: Floats) -> Floats:
    """A row per query of documents × rankers of scores, whatever scale each ranker has.

    For every two rankers their rank correlation, and how much of their top ten they have in common; for every ranker
    the spread of its scores beside its `usual` one, from 0 up to 1 and ½ where they are the same, and the distance of
    its first document from its tenth in spreads; then the length of the list, its logarithm. The order of a query's
    documents changes no bit. Rankers that score all documents alike agree with each other, and with no other one.

    >>> two = Candidates(np.zeros((3, 1)), np.array([0, 3]), ("q",))
    >>> score_signals(np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]]), two, np.array([1.0, 1.0]))[0].round(2)
    array([-1.  ,  1.  ,  0.45,  0.45,  2.45,  2.45,  1.39])
    """
    found = within_query(scores, candidates)
    pairs = list(combinations(range(scores.shape[1]), 2))
    told = np.zeros((len(candidates), 2 * len(pairs) + 2 * scores.shape[1] + 1))
    beside = found.spreads + usual
    relative = np.where(beside > 0, found.spreads / np.where(beside > 0, beside, 1.0), 0.5)
    for query in range(len(candidates)):
        rows = candidates.rows(query)
        if rows.stop == rows.start:
            continue
        z, ranks = found.z[rows], found.ranks[rows] - 0.5
        turn = np.lexsort((*ranks.T, *z.T))
        z, ranks = np.ascontiguousarray(z[turn].T), np.ascontiguousarray(ranks[turn].T)
        shares = [top_shares(own, TOP) for own in z]
        falls = -np.sort(-z, axis=1)
        told[query] = [
            *(_correlation(ranks[one], ranks[other]) for one, other in pairs),
            *(float(np.minimum(shares[one], shares[other]).sum()) for one, other in pairs),
            *relative[query],
            *(falls[:, 0] - falls[:, min(TOP, falls.shape[1]) - 1]),
            np.log1p(falls.shape[1]),
        ]
    return told


def usual_spreads(scores: Floats, candidates: Candidates) -> Floats:
    """The mean spread of each ranker's scores within a query."""
    spreads = within_query(scores, candidates, ranks=False).spreads
    usual: Floats = spreads.mean(axis=0) if len(spreads) else np.ones(scores.shape[1])
    return usual


def _correlation(one: Floats, other: Floats) -> float:
    """Of numbers whose means are 0."""
    lengths = [float((each * each).sum()) for each in (one, other)]
    if min(lengths) == 0:
        return float(max(lengths) == 0)
    return float((one * other).sum() / np.sqrt(lengths[0] * lengths[1]))


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
        for ours, fold in zip(held, parts, strict=True):
            values[ours] = self._values(fold, data.select(ours))
            for query, row in zip(ours, fold.told, strict=True):
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


@dataclass(eq=False, repr=False)
class NearbyBlend(AnyRanker):
    """A blend that weights each ranker, per query, by how well it ranked the most similar training queries.

    SelectRanker's rule over any rankers: a weight is the sum of `measure` (map, ndcg or ndcg@k) of the ranker on the k
    nearest training queries, each scored by a blend that was fitted on other `folds`, times the blend's own weight.
    k: their number, or, between 0 and 1, their share. Distance uses no labels: how far the rankers agree, how spread
    their scores are (`score_signals`), and the position in a view, if one is given, but no
    GradientView or LearnedMetric. floor: rankers below such a share of the largest weight are left out.
    """

    blend: Blend
    k: float = 0.1
    _: KW_ONLY
    floor: float = 0.0
    view: QueryView | None = None
    folds: int = 3
    measure: str = "map"
    seed: int = 0

    stored = contents(
        FITTED,
        floor=SHARE,
        blend_=part(Blend, rankers="rankers"),
        usual_=floats("rankers"),
        views_=Several(part(QueryView), "views"),
        nearest_=Optional(part(Nearest, queries="queries", coordinates="coordinates")),
        scaling_=Absent(part(Scaling, columns="coordinates")),
        values_=Absent(floats("queries", "rankers")),
    )

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Evaluate the rankers on cross-validated queries, then fit the blend on all of them."""
        cross_fitting = CrossFitting("NearbyBlend", self.blend, self.view, self.folds, self.measure, self.seed)
        cross_fitting.check()
        data.require_learnable()
        check_floor(self.floor)
        settings = (self.blend, self.view, self.folds, self.measure, 1.0, self.seed, valid)
        cross_fitted: CrossFitted | None = cached("crossed", settings, data, lambda: cross_fitting.over(data, valid))
        self.nearest_: Nearest | None = None
        if cross_fitted is not None:
            self.scaling_ = Scaling.learn(cross_fitted.score_signals, "standard")
            self.nearest_ = Nearest(self.k).fit(self.scaling_.apply(cross_fitted.score_signals))
            self.values_ = cross_fitted.values[:, :-1]
        self.blend_ = unfitted(self.blend).fit(data, valid=valid)
        self.usual_ = usual_spreads(self.blend_.several_models().scores(data.candidates), data.candidates)
        self.views_ = tuple(fitted_view(each, data, self.blend_) for each in views_of(self.view))
        return self

    def _check_stored(self, known: Known) -> None:
        """Training queries lie among the signals of the rankers' scores and the coordinates of the views."""
        if self.nearest_ is None:
            return
        require(hasattr(self, "scaling_") and hasattr(self, "values_"), "NearbyBlend.scaling_ or values_ is missing")
        rankers = known.sizes["rankers"]
        signals = rankers * (rankers - 1) + 2 * rankers + 1
        places = sum(known.size_of(view, "coordinates") for view in self.views_)
        known.tie("coordinates", signals + places, "NearbyBlend.views_")

    def _answer(self, seen: Candidates, /) -> Answer:
        """Every ranker's answer, with weights of its own for each query."""
        blended, options = self.blend_.answer(seen), self.several_models()
        every = Once(lambda: scores_of(blended.members))
        weights = Once(lambda: self._weights(every(), seen))

        def scores() -> Floats:
            found = np.zeros(len(seen.features))
            for column, weight in zip(self.blend_.comparable(every(), seen).T, weights().T, strict=True):
                found += np.repeat(weight, seen.sizes) * column
            return found

        return blended._replace(
            scores=Once(scores),
            varies=self.nearest_ is not None or blended.varies,
            local=Local(
                Once(lambda: options),
                Once(lambda: csr_array(weights())),
                blended.local.scale,
                Stored("option {}".format, np.ones(len(options), np.bool_)),
            ),
            place=self._place(seen),
            facts=lambda: Facts(refused=self.blend_.refusal(type(self))),
        )

    def _place(self, seen: Candidates) -> Place | None:
        """What decides which training queries count; nothing where the blend's own weights do."""
        if self.nearest_ is None:
            return None
        views = self.views_
        by = Once(lambda: tuple(dict.fromkeys(("documents", *looked_at(*views)))))  # scores, and the views
        return Place(by, vectorless=lambda: without_vector(seen, *views))

    def model_weights(self, candidates: Candidates, /) -> Floats:
        """Queries × rankers: how much each counts."""
        return self.answer(candidates).local.shares().toarray()

    def several_models(self) -> FittedModels:
        """Each ranker alone, then the blend with its own weights."""
        return FittedModels((*self.blend_.rankers_, self.blend_))

    def _weights(self, scores: Floats, candidates: Candidates) -> Floats:
        shares = np.tile(self.blend_.weights_, (len(candidates), 1))
        if self.nearest_ is None:
            return shares
        places = self.scaling_.apply(signals_and_places(scores, candidates, self.usual_, self.views_))
        served = shares * (self.nearest_.weights(places) @ self.values_)
        # Where every ranker's measure is 0 on the neighbours, the blend's own weights are used.
        return without_the_weak(normalised(np.where(served.any(axis=1, keepdims=True), served, shares)), self.floor)
