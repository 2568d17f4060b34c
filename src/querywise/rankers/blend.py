"""A blend of several rankers: the weighted sum of their scores, normalized within the query.

The weights are the same for all queries, or depend on how well every ranker ranked the most similar training queries
[lin2011]_.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from itertools import combinations, product
from typing import Literal, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.answers import ALL, Answer, Blended, Facts, Local, Once, Place, PretrainedModels, Rows, Scale
from querywise.contracts.asking import AnyRanker, ready
from querywise.contracts.forms import Refusal, depends_on_the_list, no_sum
from querywise.contracts.protocols import FollowsRanker, QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.query_groups import deal, equal_sizes
from querywise.data.training import content_order
from querywise.errors import DataError
from querywise.learners.classic.lists import Worth, check_counts, check_worth
from querywise.learners.local_models import FittedModels, side_by_side
from querywise.learners.trees.context import SharedContext
from querywise.learners.within_query import within_query
from querywise.locality.combinations import check_floor, normalised, without_the_weak
from querywise.locality.neighborhoods import Nearest
from querywise.locality.views.columns import SideBySide
from querywise.locality.views.learned import GradientView, LearnedMetric
from querywise.locality.views.looking import looked_at, without_vector
from querywise.locality.views.topmean import top_shares
from querywise.rankers.neighbors import fitted_view
from querywise.rankers.weights.fusion import climbed
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.cache import cached, caching, not_caching
from querywise.runtime.parameters import forget_derived, unfitted
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import FITTED, SHARE, Absent, Known, Optional, Several, contents, floats, part, require

SCALES: dict[str, Scale] = {"standard": "z", "rank": "rank"}
WEIGHTS = ("equal", "learned")
_STEPS = (0.2, 0.1, 0.05)  # how much weight moves from one ranker to another at a time
_FEW = 4096  # documents up to which sharing work between forests is faster
TOP = 10
_FEWEST = 20  # cross-validated queries; with fewer, nothing is learned


@dataclass(eq=False, repr=False)
class Blend(AnyRanker):
    """The weighted sum of several rankers' scores.

    Args:
        rankers: one or more, in a list. Copies are fitted; one that is already fitted is refitted.
        scores: how a ranker's scores are made comparable within a query. "standard" subtracts their mean and divides by
            their spread, "rank" takes the share of documents that each one is above; where a ranker scores all
            documents of a query alike, they become 0, or ½.
        weights: "equal", or "learned" on validation queries by `measure`; without validation queries they are equal.
        measure: the measure that learned weights maximize: map, ndcg or ndcg@k.
        shrinkage: how far learned weights are shrunk toward equal ones, 0 not at all and 1 entirely. Rankers that stop
            early on those queries look better there than they are, and a few queries decide by luck: shrinkage reduces
            both effects.

    After fit, `rankers_` are the fitted rankers and `weights_` their weights, which sum to 1.

    Raises:
        DataError: There are no rankers, shrinkage is outside 0 to 1, the measure is unknown, or a ranker raises it.

    >>> from querywise import Blend, KnnOnline, RankSVM, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = Blend([RankSVM(), KnnOnline(RankSVM(), k=8)]).fit(train, valid=valid)
    >>> ranker.weights_.tolist(), ranker.predict(test).shape
    ([0.5, 0.5], (100,))
    """

    rankers: Sequence[Ranker]
    _: KW_ONLY
    scores: Literal["standard", "rank"] = "standard"
    weights: Literal["equal", "learned"] = "equal"
    measure: str = "map"
    shrinkage: float = 0.5

    stored = contents(FITTED, rankers_=Several(part(Ranker), "rankers>0"), weights_=floats("rankers"))

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Fit every ranker, then learn their weights on `valid`, if `weights` says so."""
        self._check()
        data.candidates.require_moderate()
        with caching():  # compute what several rankers need only once
            self.rankers_ = tuple(_fitted(each, data, valid) for each in self.rankers)
        forget_derived(self)
        self._remember_features(data)
        self.weights_ = np.full(len(self.rankers_), 1 / len(self.rankers_))
        if self.weights == "learned" and valid is not None and len(valid):
            learned = learned_weights(self.scaled(valid.candidates), Worth(valid, self.measure))
            self.weights_ = self.shrinkage * self.weights_ + (1 - self.shrinkage) * learned
        return self

    def _predict(self, seen: Candidates, /) -> Floats:
        return self.blended(self._scores(seen), seen)

    def _answer(self, seen: Candidates, /) -> Answer:
        """Return every ranker's answer, with the same weights for all queries."""
        members, models = self.members(seen), self.several_models()
        return Answer(
            seen,
            lambda: Common(self),
            Once(lambda: self.blended(self._scores(seen, members), seen)),
            varies=any(each.varies for each in members),
            local=Local(
                Once(lambda: models),
                Once(lambda: csr_array(np.tile(self.weights_, (len(seen), 1)))),
                SCALES[self.scores],
                PretrainedModels("ranker {}".format, np.ones(len(models), np.bool_)),
            ),
            blend=Blended(members, self.names(), self.weights_),
            facts=lambda: Facts(refused=self.refusal(type(self))),
        )

    def members(self, candidates: Candidates) -> tuple[Answer, ...]:
        """Return each ranker's answer."""
        return tuple(each.answer(candidates) for each in self.rankers_)

    def names(self) -> tuple[str, ...]:
        """Return the name of each ranker."""
        return tuple(map(_name_of, self.rankers_))

    @staticmethod
    def refusal(whose: type) -> Refusal:
        """Return the reason why engines cannot run a blend."""
        return depends_on_the_list(
            whose,
            "adds up scores of several rankers, brought to one scale within the query",
            "Fit lambdamart or knn-offline-2 instead.",
        )

    def scaled(self, candidates: Candidates, /) -> Floats:
        """Return documents × rankers: every ranker's scores, comparable within the query."""
        seen = ready(self, candidates)
        return self.comparable(self._scores(seen), seen)

    @cached_property
    def _forests(self) -> SharedContext | None:
        return SharedContext.of(self.rankers_)

    def _scores(self, seen: Candidates, members: tuple[Answer, ...] | None = None) -> Floats:
        """Return documents × rankers: each one's scores; for few documents, forests on the same input run together.

        With the rankers' answers as `members`, what one of them has computed is reused.
        """
        forests = self._forests
        if forests is None or len(seen.features) > _FEW:
            if members is not None:
                return scores_of(members)
            with caching("context"):
                return self.several_models().scores(seen)
        scores = np.empty((len(seen.features), len(self.rankers_)))
        scores[:, forests.numbers] = forests.scores(seen)
        for number, each in enumerate(self.rankers_):
            if number not in forests.numbers:
                scores[:, number] = each.predict(seen) if members is None else members[number].scores()
        return scores

    def blended(self, scores: Floats, candidates: Candidates, /) -> Floats:
        """Return one score per document from any scores of as many rankers, such as each one's own predictions."""
        return _weighed(self.comparable(scores, candidates), self.weights_)

    def comparable(self, scores: Floats, candidates: Candidates, /) -> Floats:
        """Return documents × rankers: any scores of theirs, on one scale within the query."""
        found = within_query(scores, candidates, ranks=self.scores == "rank")
        return found.z if self.scores == "standard" else found.ranks

    def several_models(self) -> FittedModels:
        """Return the fitted rankers."""
        return FittedModels(self.rankers_)

    def _check(self) -> None:
        if not len(self.rankers):
            raise DataError(
                "Blend has no ranker to blend. Give it at least one, as in Blend([RankSVM(), LambdaMART()])."
            )
        for name, known in (("scores", SCALES), ("weights", WEIGHTS)):
            if getattr(self, name) not in known:
                raise DataError(f"Blend({name}={getattr(self, name)!r}) is unknown. Known: {', '.join(known)}.")
        if not 0 <= self.shrinkage <= 1:
            raise DataError(f"Blend(shrinkage={self.shrinkage}) must lie between 0 and 1.")
        check_worth(self.measure)


@dataclass(eq=False, repr=False)
class Common:
    """The blend of the rankers' global models."""

    blend: Blend

    def predict(self, seen: Candidates, /) -> Floats:
        """Return one score per document."""
        every = [each.by_everyone() for each in self.blend.members(seen)]
        return self.blend.blended(np.column_stack(every), seen)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Refusal:
        """Refuse: a blend has no terms of its own; those of its rankers are its parts."""
        return no_sum(type(self.blend))

    def form(self) -> Refusal:
        """Refuse: an engine does not know the scale of scores within a query."""
        return self.blend.refusal(type(self.blend))


def scores_of(members: Sequence[Answer]) -> Floats:
    """Return documents × rankers: the scores of each answer, computing shared inputs once."""
    with caching("context"):
        return side_by_side([each.scores() for each in members])


def _fitted(ranker: Ranker, data: Judged, valid: Judged | None) -> Ranker:
    """Fit a ranker; once for all blends of a grid that contain it."""
    return cached("fitted", (ranker, valid), data, lambda: unfitted(ranker).fit(data, valid=valid))


def learned_weights(scaled: Floats, worth: Worth) -> Floats:
    """Return non-negative weights that sum to 1 and rank the judged queries best.

    Starting with equal weights, repeat the move of weight between two rankers that raises the mean over the queries
    most (the first of ties), as long as one does; then repeat with smaller moves.
    """
    shares = np.full(scaled.shape[1], 1 / scaled.shape[1])
    for step in _STEPS:
        shares = climbed(shares, lambda at: float(worth.of(_weighed(scaled, at)).mean()), partial(_moves, step))
    return shares


def _moves(step: float, shares: Floats) -> list[Floats]:
    """Return the shares after every possible move of `step`, or of all there is, from one ranker to another."""
    found = []
    for giver, taker in product(range(len(shares)), repeat=2):
        moved = shares.copy()
        given = min(step, moved[giver])
        moved[giver] -= given
        moved[taker] += given
        found.append(moved)
    return found


def _weighed(scaled: Floats, weights: Floats) -> Floats:
    total: Floats = scaled[:, 0] * weights[0] + 0.0
    for column in range(1, len(weights)):  # one by one: the same bits whatever other rows there are
        total += scaled[:, column] * weights[column]
    return total


def _name_of(thing: object) -> str:
    """Describe an estimator and its parts: QueryContext of LambdaMART (rank_xendcg)."""
    inner, objective = getattr(thing, "learner", None), getattr(thing, "objective", None)
    said = type(thing).__name__ + (f" ({objective})" if isinstance(objective, str) else "")
    return said if inner is None else f"{said} of {_name_of(inner)}"


def score_signals(scores: Floats, candidates: Candidates, usual: Floats) -> Floats:
    """Return a row of scale-free signals per query, from documents × rankers of scores.

    For every two rankers their rank correlation, and the overlap of their top tens; for every ranker the spread of its
    scores relative to its `usual` one, from 0 to 1 with ½ for the same, and the distance of its first document from its
    tenth in spreads; then the logarithm of the list's length. The order of a query's documents changes no bit. Rankers
    that score all documents alike agree with each other, and with no other ranker.

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
    """Return the mean spread of each ranker's scores within a query."""
    spreads = within_query(scores, candidates, ranks=False).spreads
    usual: Floats = spreads.mean(axis=0) if len(spreads) else np.ones(scores.shape[1])
    return usual


def _correlation(one: Floats, other: Floats) -> float:
    """Return the correlation of numbers whose means are 0."""
    lengths = [float((each * each).sum()) for each in (one, other)]
    if min(lengths) == 0:
        return float(max(lengths) == 0)
    return float((one * other).sum() / np.sqrt(lengths[0] * lengths[1]))


class CrossFitted(NamedTuple):
    """The training queries under rankers that never saw their labels.

    Attributes:
        score_signals: A row per query.
        values: The measure, queries × options: each ranker alone, then the blend.

    """

    score_signals: Floats
    values: Floats

    @property
    def gains(self) -> Floats:
        """Queries × rankers: the advantage over the blend."""
        gains: Floats = self.values[:, :-1] - self.values[:, -1:]
        return gains

    @property
    def gap(self) -> float:
        """How far, on average, the best option of each query is above the blend."""
        return float(np.maximum(self.gains.max(axis=1), 0.0).mean())


@dataclass(frozen=True)
class CrossFitting:
    """Scores training queries by a blend fitted without them."""

    whose: str  # the class, named in errors
    blend: Blend
    view: QueryView | None
    folds: int
    measure: str
    seed: int

    def check(self) -> None:
        """Raise DataError for a blend or view that cannot be cross-fitted."""
        if not isinstance(self.blend, Blend):
            raise DataError(
                f"{self.whose} needs a Blend, as in {self.whose}(Blend([RankSVM(), LambdaMART()])); got {self.blend!r}."
            )
        check_counts(type(self), folds=(self.folds, 2))
        check_worth(self.measure)
        for each in views_of(self.view):
            if isinstance(each, (GradientView, LearnedMetric)):
                raise DataError(
                    f"{self.whose} cannot use a {type(each).__name__}: its axes are learned from labels, and differ "
                    "from fold to fold. Give it the view that it wraps, such as TopMean() or TextView()."
                )

    def over(self, data: Judged, valid: Judged | None) -> CrossFitted | None:
        """Rank every query by a blend that was fitted without it and its group; None if there are too few queries."""
        if len(data) < _FEWEST or len(np.unique(data.groups)) < self.folds:
            return None
        turned = content_order(data, by_labels=False)[np.random.default_rng(self.seed).permutation(len(data))]
        held = deal(turned, equal_sizes(len(data), self.folds), data.groups)
        kept = [np.setdiff1d(np.arange(len(data)), part) for part in held]
        if not all(data.pairs[part].any() for part in kept):
            return None
        # The folds are fitted once for all measures.
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
        """Score the queries of each fold by a blend fitted on the others."""
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
        """Return queries × options: the measure of each option on held-out queries."""
        worth = Worth(ours, self.measure)
        options = [*part.blend.comparable(part.scores, ours.candidates).T]
        options.append(part.blend.blended(part.scores, ours.candidates))
        return np.column_stack([worth.of(np.ascontiguousarray(each)) for each in options])


class _HeldOut(NamedTuple):
    """Queries scored by a blend fitted on others: the scores, and the signals computed from them."""

    blend: Blend
    scores: Floats
    told: Floats


def views_of(view: QueryView | None) -> tuple[QueryView, ...]:
    """Return the single views; those without a reference use no labels, and are fitted on all training queries."""
    if view is None:
        return ()
    return tuple(view.views) if isinstance(view, SideBySide) else (view,)


def signals_and_places(scores: Floats, candidates: Candidates, usual: Floats, views: Sequence[QueryView]) -> Floats:
    """Return a row per query: the signals of its scores, and its position in the views."""
    places = [np.asarray(each.points(candidates)) for each in views]
    return np.hstack([score_signals(scores, candidates, usual), *places])


@dataclass(eq=False, repr=False)
class NearbyBlend(AnyRanker):
    """A blend that weights each ranker, per query, by how well it ranked the most similar training queries.

    SelectRanker's rule over any rankers: a weight is the sum of `measure` (map, ndcg or ndcg@k) of the ranker on the k
    nearest training queries, each scored by a blend that was fitted on other `folds`, times the blend's own weight.
    k: their number, or, between 0 and 1, their share. Distance uses no labels: how far the rankers agree, how spread
    their scores are (`score_signals`), and the position in a view, if one is given, other than GradientView or
    LearnedMetric. floor: rankers below this share of the largest weight are left out.
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
        """Check that training queries are points of score signals and view coordinates."""
        if self.nearest_ is None:
            return
        require(hasattr(self, "scaling_") and hasattr(self, "values_"), "NearbyBlend.scaling_ or values_ is missing")
        rankers = known.sizes["rankers"]
        signals = rankers * (rankers - 1) + 2 * rankers + 1
        places = sum(known.size_of(view, "coordinates") for view in self.views_)
        known.tie("coordinates", signals + places, "NearbyBlend.views_")

    def _answer(self, seen: Candidates, /) -> Answer:
        """Return every ranker's answer, with weights for each query."""
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
                PretrainedModels("option {}".format, np.ones(len(options), np.bool_)),
            ),
            place=self._place(seen),
            facts=lambda: Facts(refused=self.blend_.refusal(type(self))),
        )

    def _place(self, seen: Candidates) -> Place | None:
        """Return what decides which training queries count; None if the blend's own weights are used."""
        if self.nearest_ is None:
            return None
        views = self.views_
        by = Once(lambda: tuple(dict.fromkeys(("documents", *looked_at(*views)))))  # scores, and the views
        return Place(by, vectorless=lambda: without_vector(seen, *views))

    def model_weights(self, candidates: Candidates, /) -> Floats:
        """Return queries × rankers: the weight of each."""
        return self.answer(candidates).local.shares().toarray()

    def several_models(self) -> FittedModels:
        """Return each ranker alone, then the blend with its own weights."""
        return FittedModels((*self.blend_.rankers_, self.blend_))

    def _weights(self, scores: Floats, candidates: Candidates) -> Floats:
        shares = np.tile(self.blend_.weights_, (len(candidates), 1))
        if self.nearest_ is None:
            return shares
        places = self.scaling_.apply(signals_and_places(scores, candidates, self.usual_, self.views_))
        served = shares * (self.nearest_.weights(places) @ self.values_)
        # Where every ranker's measure is 0 on the neighbors, use the blend's own weights.
        return without_the_weak(normalised(np.where(served.any(axis=1, keepdims=True), served, shares)), self.floor)
