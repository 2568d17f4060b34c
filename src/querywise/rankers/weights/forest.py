"""Weights that a random forest predicts from a query's signals."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np

from querywise.contracts.answers import Answer, Place
from querywise.data.judged import Candidates, Judged
from querywise.data.normalisation import EngineNormalisation
from querywise.data.ordering import content_order
from querywise.learners.classic.lists import check_counts
from querywise.locality.views.signals import RunSignals
from querywise.rankers.weights.fusion import Fusion, OwnWeights
from querywise.rankers.weights.lists import best_of
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.stored import COUNT, Known, Whole, contents, floats, ints, part, require

_SMALLEST_LEAF = 0.02  # of the training queries


@dataclass(eq=False, repr=False)
class ForestWeights(Fusion):
    """A random forest predicts from a query's signals the measure under all weights; the best weights are taken.

    As in OpenSearch's account of how to optimise hybrid search: a model of query features and of the weight predicts
    the measure, and the weight with the highest prediction is used. Of equally good ones it is the nearest to the
    weights for all queries. There is no comparison with these: see WeightsByQuery.

    normalise: how a run's scores are made comparable over its own list, as engines do it. opensearch-min-max, l2 and
    z-score are OpenSearch's; rank is 1/(60 + rank), as in reciprocal rank fusion. A document that a run did not find
    counts 0 there.
    measure: the measure that weights maximise: map, ndcg or ndcg@k.
    trees: how many trees the forest has.
    seed: of the forest's random choices.
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
        """Every node has two children that come after it, or is a leaf and its own child twice."""
        super()._check_stored(known)
        own = np.arange(known.sizes["nodes"])
        after = (self.low_ >= own).all() and (self.high_ >= own).all()
        require(bool(after), "ForestWeights has a node whose child comes before it")
        whole = np.array_equal(self.low_ == own, self.high_ == own)
        require(whole, "ForestWeights has a node with one child")

    def _answer(self, seen: Candidates, /) -> Answer:
        """Weights of its own for each query with documents."""
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
        """The leaf of each query in one tree. A leaf is its own child, and any other child comes after its parent."""
        nodes, rows = np.full(len(points), root), np.arange(len(points))
        while True:
            low = points[rows, self.columns_[nodes]] <= self.thresholds_[nodes]
            after = np.where(low, self.low_[nodes], self.high_[nodes])
            if np.array_equal(after, nodes):
                return nodes
            nodes = after


def _children(sides: list[Ints], roots: Ints) -> Ints:
    """The child of every node on one side, counted over all trees; a leaf is its own child."""
    found = [np.where(each < 0, np.arange(len(each)), each) + root for each, root in zip(sides, roots, strict=True)]
    return np.concatenate(found).astype(np.int64)
