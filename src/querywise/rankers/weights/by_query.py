"""Weights of the runs for each query, if cross-validation shows that they are better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import product
from typing import Literal, Self, TypeAlias

import numpy as np

from querywise.contracts.answers import Answer, Gain, Once, Place
from querywise.contracts.estimators import Estimator
from querywise.contracts.protocols import QueryView
from querywise.data.judged import Candidates, Judged
from querywise.data.normalisation import EngineNormalisation
from querywise.data.query_groups import deal_in_turn
from querywise.data.training import content_order
from querywise.errors import DataError
from querywise.learners.classic.lists import check_counts
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.neighborhoods import Nearest
from querywise.locality.views.columns import RunSignals
from querywise.locality.views.looking import looked_at
from querywise.locality.views.text import TextView
from querywise.rankers.neighbors import Around, Locality, without
from querywise.rankers.weights.fusion import Fusion, OwnWeights, RunLists, Weights, best_of
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.cache import caching
from querywise.runtime.parameters import forget_derived, unfitted
from querywise.runtime.progress import track
from querywise.runtime.stored import (
    COUNT,
    POSITIVE,
    SHARE,
    AnyOf,
    Known,
    Number,
    Optional,
    Several,
    Text,
    Whole,
    contents,
    floats,
    ints,
    part,
    require,
)

FEWEST = 20  # queries; with fewer, nothing is chosen
CHOICE = "the best of these in other parts"
_SURE = 3.0  # standard errors that the gain of the choice must exceed: the best of many ways gains two by luck
KAPPAS = (0.25, 1.0, 4.0)
SIGNALS_L2 = (0.1, 1.0, 10.0)
SHRINKAGES = (0.25, 0.5, 1.0)
WAYS = ("chosen", "neighbours", "signals")
_SMALLEST_LEAF = 0.02  # of the training queries


@dataclass(eq=False, repr=False)
class NeighbourWeights(Estimator):
    """The weights that rank a query's neighbors and, κ times, all training queries best.

        u(q) = argmax_w  Σ_i v_i(q) T_i(w) + κ T̄(w)

    T_i(w) is the measure of training query i under weights w, T̄ its mean over all, v(q) the neighbors' weights, with
    sum 1. Of equally good weights u is the nearest to w̄. A query without neighbors, too far from all training queries,
    or without anything that would give it a position (a word, a vector) has w̄.

    Attributes:
        view, k: The neighbors are the k nearest in a view; by default of the query's text, and without texts in
            TopMean.
        kappa: κ; infinity is w̄ for all queries.
        back_off: A share of the training queries; a query farther from its nearest training query than this share of
            them are from theirs has w̄.

    """

    view: QueryView | None
    k: float
    kappa: float
    back_off: float | None

    stored = contents(
        kappa=Number(least=0.0, finite=False),
        locality_=part(Locality, queries="queries"),
        options_=floats("options>0", "runs", least=0.0),
        table_=floats("queries", "options"),
        common_=floats("runs", least=0.0),
    )

    def fit(self, lists: RunLists, everyone: Weights) -> Self:
        """Compute the training queries' positions, and keep their measures under all weights."""
        view = TextView() if self.view is None and lists.data.has_texts() else self.view
        kept = lists.with_best()
        self.locality_ = Locality(view, Nearest(self.k), self.back_off).fit(lists.data, everyone)
        self.options_, self.table_, self.common_ = kept.options, kept.table, kept.best
        forget_derived(self)
        return self

    @cached_property
    def _mean(self) -> Floats:
        return np.asarray(self.table_.mean(axis=0))

    def own(self, candidates: Candidates, around: Around) -> OwnWeights:
        """Return the weights of these queries."""
        rows = without(around.weights(), around.far())
        if len(candidates) == 1:  # avoids a product of sparse matrices
            totals = np.add.reduce(rows.data, keepdims=True)
            near = np.add.reduce(self.table_[rows.indices] * rows.data[:, None], axis=0, keepdims=True)
        else:
            totals, near = np.asarray(rows.sum(axis=1), dtype=np.float64).ravel(), np.asarray(rows @ self.table_)
        near, share = near / np.where(totals > 0, totals, 1.0)[:, None], 1 / (1 + self.kappa)
        values = share * near + (1 - share) * self._mean
        found = np.array([self.options_[best_of(each, self.options_, self.common_)] for each in values])
        local = (totals > 0) & has_position(candidates, looked_at(self.locality_.view_))
        return OwnWeights(np.where(local[:, None], found.reshape(-1, len(self.common_)), self.common_), local)

    def said(self) -> str:
        """Describe it in words."""
        return f"neighbours, kappa={self.kappa:g}"


def has_position(candidates: Candidates, by: tuple[str, ...]) -> Bools:
    """Return which queries have something that gives them a position: documents, words, nonzero vectors, columns."""
    table, found = candidates.queries, np.zeros(len(candidates), np.bool_)
    if "columns" in by:
        return np.ones(len(candidates), np.bool_)
    if "documents" in by:
        found |= candidates.sizes > 0
    if "text" in by and table is not None and table.texts is not None:
        found |= np.array([bool((text or "").strip()) for text in table.texts], np.bool_)
    if "vector" in by and table is not None and table.vectors is not None:
        found |= table.vectors.any(axis=1)
    return found


@dataclass(eq=False, repr=False)
class SignalWeights(Estimator):
    """The common weights, moved by the query's signals.

        u(q) = w̄ + B φ(q) / Σ w₀,   negative entries cut, then with sum 1

    w₀ and B are one ranking SVM on s ⊗ (1, φ(q)): s the runs' scores, φ the signals, standardized on the training
    queries, w₀ the common part with penalty λ, B the rest with penalty μ. Only the change by the signals is used: the
    common weights themselves are w̄, which maximizes the measure.

    Attributes:
        l2, signals_l2: λ and μ; an infinite μ is w̄ for all queries.
        back_off: A share of the training queries; a query farther from its nearest training query, by its signals, than
            this share of them are from theirs has w̄.

    """

    l2: float
    signals_l2: float
    back_off: float | None

    stored = contents(
        l2=POSITIVE,
        signals_l2=Number(above=0.0, finite=False),
        locality_=part(Locality, coordinates="signals"),
        common_=floats("runs", least=0.0),
        slopes_=floats("runs", "signals"),
    )

    def fit(self, lists: RunLists, everyone: Weights) -> Self:
        """Train the ranking SVM."""
        self.locality_ = Locality(RunSignals(), Nearest(1), self.back_off).fit(lists.data, everyone)
        self.common_ = lists.best
        runs, count = lists.seen.features.shape[1], self.locality_.points_.shape[1]
        self.slopes_ = np.zeros((runs, count))
        if int(lists.data.pairs.sum()) == 0:
            return self
        # Scaling a column by c divides the penalty on the original column's weight by c².
        shrunk = float(np.sqrt(self.l2 / self.signals_l2))
        signals = self.locality_.points_[lists.seen.query_of_row]
        products = lists.seen.features[:, :, None] * signals[:, None, :] * shrunk
        features = np.column_stack([lists.seen.features, products.reshape(len(signals), -1)])
        rows = Candidates(features, lists.seen.starts, lists.seen.query_ids)
        found = RankSVM(self.l2, scale="none").fit(Judged(rows, lists.data.labels)).weights_
        level = float(found[:runs].sum())
        if level > 0:
            self.slopes_ = found[runs:].reshape(runs, count) * (shrunk / level)
        return self

    def own(self, candidates: Candidates, around: Around) -> OwnWeights:
        """Return the weights of these queries."""
        steps: Floats = np.einsum("qs,rs->qr", around.points(), self.slopes_)
        moved = np.maximum(self.common_ + steps, 0.0)
        totals = moved.sum(axis=1)
        local = steps.any(axis=1) & (totals > 0) & (candidates.sizes > 0) & ~around.far()
        weights = np.where(local[:, None], moved / np.where(totals > 0, totals, 1.0)[:, None], self.common_)
        return OwnWeights(weights, local)

    def said(self) -> str:
        """Describe it in words."""
        return f"signals, signals_l2={self.signals_l2:g}"


Way: TypeAlias = NeighbourWeights | SignalWeights  # a way to find weights per query


def shrunk(own: Floats, common: Floats, shrinkage: float) -> Floats:
    """Return w̄ + ρ (u − w̄): exactly w̄ if ρ = 0, or if u is w̄."""
    return common + shrinkage * (own - common)


def cross_validated(
    lists: RunLists, ways: Sequence[Way], shrinkages: Sequence[float], everyone: Weights, *, folds: int, seed: int
) -> tuple[list[Gain], int]:
    """Return the gain of every way and shrinkage over w̄, and the index of the one to take; −1 is w̄.

    Every query is ranked by weights learned from other parts; a group of queries is in one part. The way with the
    highest mean gain, the first if tied, is taken on two conditions: its gain exceeds one standard error, and the gain
    of the choice itself, where every part uses what was best in the other parts, exceeds three. The second condition
    guards against luck, which often decides which of many ways is best. The gain of the choice is the last in the list.
    """
    place, order = np.empty(len(lists.data), dtype=np.int64), content_order(lists.data)
    place[order] = deal_in_turn(np.random.default_rng(seed).permutation(len(order)), folds, lists.data.groups[order])
    commons, found = _held_out(lists, ways, everyone, place)
    usual = lists.values(commons)
    said = [f"{way.said()}, shrinkage={each:g}" for way in ways for each in shrinkages]
    paired = np.array([lists.values(shrunk(own, commons, each)) - usual for own in found for each in shrinkages])
    gains = [
        _gain(name, row) for name, row in zip([*said, CHOICE], [*paired, _of_the_choice(paired, place)], strict=True)
    ]
    best = int(np.argmax([each.gain for each in gains[:-1]]))
    sure = gains[-1].gain > _SURE * gains[-1].error and gains[best].gain > gains[best].error
    taken = sure and gains[best].gain > 0
    return [each._replace(taken=taken and number == best) for number, each in enumerate(gains)], best if taken else -1


def _held_out(lists: RunLists, ways: Sequence[Way], everyone: Weights, place: Ints) -> tuple[Floats, Floats]:
    """Return the common weights and those of every way, for each query as learned from other parts."""
    commons = np.empty((len(lists.data), lists.options.shape[1]))
    found = np.empty((len(ways), *commons.shape))
    for fold in track(np.unique(place).tolist(), "Weights by query"):
        held, rest = np.flatnonzero(place == fold), np.flatnonzero(place != fold)
        train, asked = lists.select(rest), lists.data.candidates.select(held)
        common = unfitted(everyone).found_in(train)
        commons[held] = common.weights_
        with caching():
            for number, way in enumerate(ways):
                fitted = unfitted(way).fit(train, common)
                found[number, held] = fitted.own(asked, fitted.locality_.around(asked)).weights
    return commons, found


def _of_the_choice(paired: Floats, place: Ints) -> Floats:
    """Return the gain of every query under the best way in the other parts; 0 if no way gains there."""
    gains = np.zeros(len(place))
    for fold in np.unique(place):
        means = paired[:, place != fold].mean(axis=1)
        if means.max() > 0:
            gains[place == fold] = paired[int(np.argmax(means)), place == fold]
    return gains


def _gain(said: str, paired: Floats) -> Gain:
    return Gain(said, float(paired.mean()), float(paired.std(ddof=1) / np.sqrt(len(paired))), False)


@dataclass(eq=False, repr=False)
class WeightsByQuery(Fusion):
    """Weights of the runs by query: w(q) = (1 − ρ) w̄ + ρ u(q), with w̄ the weights for all queries.

    The runs are the results of several searches: data has the columns `run.NAME.score` and `run.NAME.reciprocal_rank`
    of each. u(q) comes from the query's neighbors (NeighbourWeights) or from its signals (SignalWeights). Open
    settings are chosen by cross-validation over training and validation queries: anything but w̄ is used only if its
    mean gain per query exceeds one standard error, and that of the choice itself three. If no setting is open, nothing
    is compared. A query far from all training queries has w̄.

    Args:
        normalise: how a run's scores are made comparable over its own list, as engines do it. opensearch-min-max, l2
            and z-score are OpenSearch's; rank is 1/(60 + rank), as in reciprocal rank fusion. A document that a run did
            not retrieve counts 0 there.
        measure: the measure that weights maximize: map, ndcg or ndcg@k.
        way: the source of a query's own weights: its neighbors, its signals, or whichever is better.
        view: the view in which neighbors are searched; by default the query's text, without texts the mean of its top
            documents.
        k: the number of training queries that are neighbors, from 1 up, or a share of them, a float above 0 and up to
            1.
        kappa: the weight of all training queries relative to the neighbors, from 0 up; none chooses among 0.25, 1 and
            4.
        l2: the penalty on the common part of the weights from signals; above 0.
        signals_l2: the penalty on the change by signals, above 0; none chooses among 0.1, 1 and 10.
        shrinkage: ρ, the share of a query's own weights, from 0 to 1; none chooses among 0.25, 0.5 and 1.
        back_off: a share of the training queries, above 0 and up to 1. A query that is farther from its nearest
            training query than this share of them are from theirs gets the weights for all queries; None never backs
            off.
        folds: parts of the cross-validation, from 2 up.
        seed: the random assignment of queries to these parts.

    After fit, `weights_` are w̄, one per run. `run_weights(candidates)` has the weights of each query.

    Raises:
        DataError: A parameter is out of range, or the data has fewer than two runs.

    >>> from querywise import WeightsByQuery
    >>> from querywise.data.judged import judged_by
    >>> from querywise.data.runs import Run, tabulate_runs
    >>> runs = [Run(name, {f"q{q}": {f"D{d}": (d * q * s) % 7 + 1.0 for d in range(6)} for q in range(12)})
    ...         for name, s in (("bm25", 1), ("vectors", 2))]
    >>> data = judged_by(tabulate_runs(runs), {f"q{q}": {f"D{q % 6}": 1} for q in range(12)})
    >>> ranker = WeightsByQuery(way="neighbours", kappa=1.0, shrinkage=0.5).fit(data)
    >>> ranker.runs_, ranker.run_weights(data.candidates).shape
    (('bm25', 'vectors'), (12, 2))
    """

    normalise: EngineNormalisation = "opensearch-min-max"
    _: KW_ONLY
    measure: str = "map"
    way: Literal["chosen", "neighbours", "signals"] = "chosen"
    view: QueryView | None = None
    k: float = 0.1
    kappa: float | None = None
    l2: float = 0.01
    signals_l2: float | None = None
    shrinkage: float | None = None
    back_off: float | None = 0.95
    folds: int = 5
    seed: int = 0

    stored = contents(
        way_=Optional(
            AnyOf((part(NeighbourWeights, runs="runs"), part(SignalWeights, runs="runs")), "weights by query")
        ),
        shrinkage_=SHARE,
        tried_=Several(Text(), "tried"),
        gains_=floats("tried", 2),
        taken_=Whole(-1, below="tried"),
    )

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Find the weights for all queries, then compare ways to weight by query with them, including `valid`."""
        self._check()
        lists = self.judged_lists(data, valid, self.measure)
        everyone = Weights(self.normalise, measure=self.measure).found_in(lists)
        self.weights_ = everyone.weights_
        ways = self._ways()
        shrinkages = SHRINKAGES if self.shrinkage is None else (self.shrinkage,)
        tried: list[Gain] = []
        taken = 0
        if len(ways) * len(shrinkages) > 1:
            taken = -1
            if len(lists.data) >= FEWEST and len(np.unique(lists.data.groups)) >= self.folds:
                tried, taken = cross_validated(lists, ways, shrinkages, everyone, folds=self.folds, seed=self.seed)
        self.way_: Way | None = None
        self.shrinkage_ = 0.0
        if taken >= 0:
            chosen, self.shrinkage_ = list(product(ways, shrinkages))[taken]
            self.way_ = unfitted(chosen).fit(lists, everyone)
        self.tried_ = tuple(each.tried for each in tried)
        self.gains_ = np.array([each[1:3] for each in tried], np.float64).reshape(-1, 2)
        self.taken_ = taken if tried else -1
        return self

    def _answer(self, seen: Candidates, /) -> Answer:
        """Return the answer by weights for each query near enough to the training queries, and w̄ for the others."""
        way, common, shrinkage = self.way_, self.weights_, self.shrinkage_
        gains = tuple(
            Gain(tried, float(self.gains_[number, 0]), float(self.gains_[number, 1]), number == self.taken_)
            for number, tried in enumerate(self.tried_)
        )
        if way is None:
            return self.fused(self.lists(seen), gains=gains)

        def own() -> OwnWeights:
            found = way.own(seen, around)
            return OwnWeights(shrunk(found.weights, common, shrinkage), found.local)

        taught = isinstance(way, NeighbourWeights)
        around = way.locality_.around(seen, taught=taught)
        weights = Once(lambda: without(around.weights(), around.far())) if taught else None
        place = way.locality_.place(seen, around, RankSVM(), lambda: None, weights=weights)
        return self.fused(self.lists(seen), own, place=place, gains=gains)

    def _ways(self) -> list[Way]:
        kappas = KAPPAS if self.kappa is None else (self.kappa,)
        penalties = SIGNALS_L2 if self.signals_l2 is None else (self.signals_l2,)
        near = [NeighbourWeights(self.view, self.k, each, self.back_off) for each in kappas]
        by_signals = [SignalWeights(self.l2, each, self.back_off) for each in penalties]
        return [*(near if self.way != "signals" else ()), *(by_signals if self.way != "neighbours" else ())]

    def _check(self) -> None:
        if self.way not in WAYS:
            raise DataError(f"WeightsByQuery(way={self.way!r}) is unknown. Known: {', '.join(WAYS)}.")
        for name, value in (("kappa", self.kappa), ("l2", self.l2), ("signals_l2", self.signals_l2)):
            least = "a number from 0 up" if name == "kappa" else "a positive number"
            if value is not None and not (value > 0 or (name == "kappa" and value == 0)):
                raise DataError(f"WeightsByQuery({name}={value}) must be {least}.")
        if not np.isfinite(self.l2):
            raise DataError(f"WeightsByQuery(l2={self.l2}) must be a positive number.")
        if self.shrinkage is not None and not 0 <= self.shrinkage <= 1:
            raise DataError(f"WeightsByQuery(shrinkage={self.shrinkage}) must lie between 0 and 1.")
        check_counts(type(self), folds=(self.folds, 2))


@dataclass(eq=False, repr=False)
class ForestWeights(Fusion):
    """A random forest predicts the measure under all weights from a query's signals; the best weights are used.

    As OpenSearch describes the optimization of hybrid search: a model of query features and the weight predicts the
    measure, and the weight with the highest prediction is used; ties go to the nearest to the weights for all queries.
    It is not compared with these: see WeightsByQuery.

    Args:
        measure: the measure that weights maximize: map, ndcg or ndcg@k.
        trees: the number of trees in the forest.
        seed: the seed of the forest's random choices.
    """

    normalise: EngineNormalisation = "opensearch-min-max"
    _: KW_ONLY
    measure: str = "map"
    trees: int = 50
    seed: int = 0

    stored = contents(
        trees=Whole(1, COUNT.most, "trees"),
        view_=part(RunSignals, coordinates="signals"),
        options_=floats("options>0", "runs", least=0.0),
        columns_=ints("nodes", below="signals"),
        thresholds_=floats("nodes"),
        low_=ints("nodes", below="nodes"),
        high_=ints("nodes", below="nodes"),
        roots_=ints("trees", below="nodes"),
        values_=floats("nodes", "options"),
    )

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Grow the forest on training and validation queries."""
        from sklearn.ensemble import RandomForestRegressor

        check_counts(type(self), trees=(self.trees, 1), seed=(self.seed, 0))
        lists = self.judged_lists(data, valid, self.measure).with_best()
        self.weights_, self.options_ = lists.best, lists.options
        self.view_ = RunSignals().fit(lists.data)
        order = content_order(lists.data)  # rows are drawn at random
        points = self.view_.points(lists.data.candidates)[order]
        smallest = max(1, round(_SMALLEST_LEAF * len(points)))
        forest = RandomForestRegressor(self.trees, min_samples_leaf=smallest, random_state=self.seed, n_jobs=1)
        grown = [each.tree_ for each in forest.fit(points, lists.table[order]).estimators_]
        self.roots_ = np.cumsum([0, *(tree.node_count for tree in grown[:-1])]).astype(np.int64)
        self.columns_ = np.concatenate([np.maximum(tree.feature, 0) for tree in grown]).astype(np.int64)
        self.thresholds_ = np.concatenate([tree.threshold for tree in grown]).astype(np.float64)
        self.low_ = _children([tree.children_left for tree in grown], self.roots_)
        self.high_ = _children([tree.children_right for tree in grown], self.roots_)
        self.values_ = np.concatenate([tree.value[:, :, 0] for tree in grown]).astype(np.float64)
        return self

    def _check_stored(self, known: Known) -> None:
        """Check that every node has two children that come after it, or is a leaf and its own child twice."""
        super()._check_stored(known)
        own = np.arange(known.sizes["nodes"])
        after = (self.low_ >= own).all() and (self.high_ >= own).all()
        require(bool(after), "ForestWeights has a node whose child comes before it")
        whole = np.array_equal(self.low_ == own, self.high_ == own)
        require(whole, "ForestWeights has a node with one child")

    def _answer(self, seen: Candidates, /) -> Answer:
        """Return the answer by weights for each query with documents."""
        place = Place(lambda: ("documents",))
        return self.fused(self.lists(seen), lambda: OwnWeights(self._own(seen), seen.sizes > 0), place=place)

    def _own(self, candidates: Candidates) -> Floats:
        points = self.view_.points(candidates).astype(np.float32).astype(np.float64)  # as scikit-learn compares them
        total = np.zeros((len(points), len(self.options_)))
        for root in self.roots_.tolist():
            total += self.values_[self._leaves(points, root)]
        chosen = [self.options_[best_of(each, self.options_, self.weights_)] for each in total / len(self.roots_)]
        return np.array(chosen).reshape(-1, len(self.weights_))

    def _leaves(self, points: Floats, root: int) -> Ints:
        """Return the leaf of each query in one tree. A leaf is its own child; any other child follows its parent."""
        nodes, rows = np.full(len(points), root), np.arange(len(points))
        while True:
            low = points[rows, self.columns_[nodes]] <= self.thresholds_[nodes]
            after = np.where(low, self.low_[nodes], self.high_[nodes])
            if np.array_equal(after, nodes):
                return nodes
            nodes = after


def _children(sides: list[Ints], roots: Ints) -> Ints:
    """Return the child of every node on one side, indexed over all trees; a leaf is its own child."""
    found = [np.where(each < 0, np.arange(len(each)), each) + root for each, root in zip(sides, roots, strict=True)]
    return np.concatenate(found).astype(np.int64)
