"""A few local models, picked or blended by query: QC [geng2008]_; Naive, SelectRanker and Transform [lin2011]_.

The training queries are grouped, one model is trained per group, and a query is scored by the model of its predicted
class (QC) or of the nearest group (Naive), or by all models, weighted by their quality on similar queries
(SelectRanker) or by nearness (Transform).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array, vstack

from querywise.contracts.answers import Answer, Facts, Once, Place, PretrainedModels, Sizes, local_or_global, picked
from querywise.contracts.asking import AnyRanker, ready
from querywise.contracts.forms import depends_on_the_list
from querywise.contracts.protocols import Grouping, Learner, Models, QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.query_groups import are_alone
from querywise.errors import DataError, NotFittedError
from querywise.learners.local_models import prepared
from querywise.locality.combinations import SimilarQueries, by_distance, check_floor, without_the_weak
from querywise.locality.groupings import Clusters, RelevantClusters, nearest_centre
from querywise.locality.views.divergence import Divergence
from querywise.locality.views.looking import looked_at, relevant_points, without_vector
from querywise.locality.views.topmean import TopMean, TwoModels
from querywise.measures.formulas import precision_table
from querywise.measures.order import FLAVOURS
from querywise.rankers.neighbors import fitted_view, has_relevant
from querywise.rankers.single import OneFeature
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import (
    ANY_NUMBER,
    FITTED,
    SHARE,
    Added,
    Known,
    Several,
    Text,
    bools,
    contents,
    floats,
    part,
)

_ENOUGH = 2  # a group with fewer queries to learn from gets the global model


@dataclass(eq=False, repr=False)
class GroupModels:
    """A model for each group of training queries, and the global one.

    Groups with fewer than two queries to learn from are trained on all queries: their model is the global one.
    """

    view: QueryView
    grouping: Grouping

    stored = contents(
        everyone_=part(Ranker),
        view_=part(QueryView, coordinates="coordinates"),
        grouping_=part(Grouping, coordinates="coordinates", groups="models"),
        teachers_=floats("models", least=0.0),
        models_=part(Models, models="models"),
    )

    def fit(self, data: Judged, learner: Learner, valid: Judged | None, /) -> Self:
        """Compute the training queries' positions, group them and train the models."""
        ready = prepared(learner, data, valid)
        self.everyone_ = ready.everyone
        self.view_ = fitted_view(self.view, data, self.everyone_)
        by_documents = isinstance(self.grouping, RelevantClusters)  # which do not depend on the queries' positions
        points = np.zeros((0, 0)) if by_documents else self.points(data.candidates)
        self.grouping_ = cached(
            "groups", self.grouping, data if by_documents else points, lambda: unfitted(self.grouping).fit(points, data)
        )
        members = self.grouping_.members_
        self.teachers_ = np.asarray((members > 0).astype(np.float64) @ (data.pairs > 0)).ravel()
        self.models_ = cached("group models", learner, members, lambda: ready.models(_or_everyone(members, self.thin)))
        return self

    @property
    def thin(self) -> Bools:
        """Which groups have too few queries to learn from."""
        found: Bools = self.teachers_ < _ENOUGH
        return found

    @property
    def sizes(self) -> Sizes:
        """The number of groups, and how many of them have only one query to learn from, or none."""
        return Sizes(len(self.teachers_), int(np.sum(self.teachers_ == 1)), int(np.sum(self.teachers_ == 0)))

    def points(self, candidates: Candidates) -> Floats:
        """Return the queries' positions in the view."""
        return cached("points", self.view_, candidates, lambda: np.asarray(self.view_.points(candidates)))

    def distances(self, candidates: Candidates) -> Floats:
        """Return distances, queries × groups."""
        return self.grouping_.distances(self.points(candidates))

    def blend(self, candidates: Candidates, weights: Floats) -> Floats:
        """Return scores by mixtures of the models, or by the global one where all weights are 0."""
        return local_or_global(
            candidates,
            weights.sum(axis=1) > 0,
            lambda queries, part: self.models_.blend(part, weights[queries]),
            self.everyone_,
        )

    def routed_by_relevance(self, data: Judged) -> Ints | None:
        """Return the group nearest to each query's relevant documents, −1 without any; None in a view of queries."""
        points = relevant_points(self.view_, data)
        if points is None:
            return None
        return np.where(has_relevant(data), nearest_centre(self.grouping_.distances(points)), -1)


class _Grouped(AnyRanker):
    """The common part of the three rankers, once `groups_` is fitted."""

    groups_: GroupModels

    stored = contents(FITTED, groups_=part(GroupModels, models="models"))

    def _groups(self) -> GroupModels:
        if not hasattr(self, "groups_"):
            raise NotFittedError(self)
        return self.groups_

    def _fit_groups(self, groups: GroupModels, learner: Learner, data: Judged, valid: Judged | None) -> None:
        self.groups_ = groups.fit(data, unfitted(learner), valid)

    def _required(self, candidates: Candidates) -> GroupModels:
        ready(self, candidates)
        return self.groups_

    def _picked(self, seen: Candidates, choose: Callable[[], Ints]) -> Answer:
        """Return the answer that scores each query by the model of one group."""
        groups = self.groups_
        whom, every = "queries nearest to cluster {}".format, np.ones(len(groups.models_), np.bool_)
        return picked(
            seen,
            groups.everyone_,
            groups.models_,
            PretrainedModels(whom, every, groups.teachers_),
            choose,
            place=Place(
                lambda: looked_at(groups.view_),
                points=Once(lambda: self.places(seen)),
                nearest_to_relevant=self.routed_by_relevance,
                vectorless=lambda: without_vector(seen, groups.view_),
            ),
            facts=lambda: Facts(sizes=self.sizes),
        )

    @property
    def sizes(self) -> Sizes:
        """The number of clusters, and how many of them have only one query to learn from, or none."""
        return self._groups().sizes

    def several_models(self) -> Models:
        """Return the models of the clusters."""
        return self._groups().models_

    def routed_by_relevance(self, data: Judged, /) -> Ints | None:
        """Return the model nearest to each query's relevant documents; None if the view does not place documents."""
        return self._groups().routed_by_relevance(data)

    def places(self, candidates: Candidates, /) -> Floats:
        """Return each query's position in the view."""
        return self._required(candidates).points(candidates)


@dataclass(eq=False, repr=False)
class Naive(_Grouped):
    """A model per cluster of relevant documents; a query is answered by the model of the nearest cluster.

    The relevant documents of all training queries are clustered by k-means; a training query belongs to every cluster
    that holds one of its relevant documents. A cluster with fewer than two queries to learn from has the global model.

    Args:
        learner: the learner of each model, unfitted: RankSVM() or any other; ranking SVMs are all trained together.
        clusters: the number of clusters, a whole number from 1 up, or a share of the training queries, a float above 0
            and up to 1.
        top: the number of the single model's best documents that give a query its position, from 1 up.
        view: None is the paper's clustering; with one, such as TextView(), the training queries themselves are
            clustered in it.
        softness: 0 puts a training query only into its nearest cluster; above 0 it also belongs to others, see
            Clusters.
        seed: the random start of the clustering; the same seed gives the same clusters.

    Raises:
        DataError: A parameter is out of range, or the training data has no relevant document.

    >>> from querywise import Naive, RankSVM, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = Naive(RankSVM(), clusters=3).fit(train)
    >>> ranker.predict(test).shape, ranker.model_weights(test.candidates).shape
    ((100,), (10, 3))
    """

    learner: Learner
    clusters: float = 20
    _: KW_ONLY
    top: int = 10
    view: QueryView | None = None
    softness: float = 0.0
    seed: int = 0

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Cluster, and train a model per cluster; a learner with early stopping uses `valid`."""
        self._fit_groups(_by_relevance_or_view(self, self.top), self.learner, data, valid)
        return self

    def chosen(self, candidates: Candidates, /) -> Ints:
        """Return the index of the model that scores each query."""
        chosen: Ints = nearest_centre(self._required(candidates).distances(candidates))
        return chosen

    def model_weights(self, candidates: Candidates, /) -> Floats:
        """Return queries × models: 1 for the model that scores the query."""
        chosen = self.chosen(candidates)
        weights = np.zeros((len(candidates), len(self.several_models())))
        weights[np.arange(len(chosen)), chosen] = 1.0
        return weights

    def _predict(self, seen: Candidates, /) -> Floats:
        return self.groups_.models_.pick(seen, self.chosen(seen))

    def _answer(self, seen: Candidates, /) -> Answer:
        """Return the answer by the model of the cluster nearest to each query."""
        return self._picked(seen, lambda: self.chosen(seen))


class _Blended(_Grouped):
    """The common part of the two rankers that blend all models by `model_weights`."""

    model_weights: Callable[[Candidates], Floats]

    def _predict(self, seen: Candidates, /) -> Floats:
        return self.groups_.blend(seen, self.model_weights(seen))

    def _answer(self, seen: Candidates, /) -> Answer:
        """Return the answer by a mixture of all models for each query."""
        weights = Once(lambda: self.model_weights(seen))
        why = depends_on_the_list(
            type(self),
            "blends models whose scores it brings to 0 … 1 within the query",
            "Fit naive or knn-offline-2, which pick one model.",
        )
        found = self._picked(seen, lambda: weights().argmax(axis=1))
        return found._replace(
            scores=Once(lambda: self.groups_.blend(seen, weights())),
            local=found.local._replace(shares=Once(lambda: csr_array(weights())), scale="range"),
            facts=lambda: Facts(sizes=self.sizes, refused=why),
        )


@dataclass(eq=False, repr=False)
class Transform(_Blended):
    """A model per cluster of training queries in the plane of two models; all are blended, the nearer the more.

    A query's two coordinates are the mean scores of its best documents by the reference and by the single model. A
    model at distance d from it has a weight in proportion to 1 / (0.1 + d).

    Args:
        learner: the learner of each model, unfitted: RankSVM() or any other; ranking SVMs are all trained together.
        clusters: the number of clusters, a whole number from 1 up, or a share of the training queries, a float above 0
            and up to 1.
        reference: the first of the two, a feature by name or number from 0 or a ranker, None the feature that ranks the
            training queries best; the second is the single model.
        top: the number of each model's best documents whose mean score is the coordinate; from 1 up.
        view: another view instead of the plane, such as TextView().
        floor: models whose weight is below this share of the largest are left out; from 0, which keeps all, to 1, the
            best.
        softness: 0 puts a training query only into its nearest cluster; above 0 it also belongs to others, see
            Clusters.
        seed: the random start of the clustering; the same seed gives the same clusters.

    Raises:
        DataError: A parameter is out of range, or the training data has no preference between documents.

    >>> from querywise import RankSVM, Transform, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = Transform(RankSVM(), clusters=3).fit(train)
    >>> weights = ranker.model_weights(test.candidates)
    >>> weights.shape, bool(abs(weights.sum(axis=1) - 1).max() < 1e-9)
    ((10, 3), True)
    """

    learner: Learner
    clusters: float = 20
    _: KW_ONLY
    reference: int | str | Ranker | None = None
    top: int = 10
    view: QueryView | None = None
    floor: float = 0.0
    softness: float = 0.0
    seed: int = 0

    stored = contents(floor=SHARE)

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Cluster, and train a model per cluster; a learner with early stopping uses `valid`."""
        check_floor(self.floor)
        plane = TwoModels(_or_best_feature(self.reference), None, self.top)
        grouping = Clusters(self.clusters, softness=self.softness, seed=self.seed)
        groups = GroupModels(plane if self.view is None else self.view, grouping)
        self._fit_groups(groups, self.learner, data, valid)
        return self

    def model_weights(self, candidates: Candidates, /) -> Floats:
        """Return queries × models: the weight of each; a row sums to 1."""
        return without_the_weak(by_distance(self._required(candidates).distances(candidates)), self.floor)


@dataclass(eq=False, repr=False)
class SelectRanker(_Blended):
    """Naive's models, blended; a model's weight is the sum of its average precision on the most similar queries.

    For a model, a training query is similar if the model's scores of its documents diverge from the reference's as much
    as they do here, by the Kullback-Leibler divergence (see Divergence). The weights of a query's models sum to 1.

    Args:
        learner: the learner of each model, unfitted: RankSVM() or any other; ranking SVMs are all trained together.
        clusters: the number of clusters, a whole number from 1 up, or a share of the training queries, a float above 0
            and up to 1.
        k: the number of training queries that decide a model's weight: the k of its own cluster whose divergence is
            nearest to that of the query; the weight is the sum of their average precision under the model. A whole
            number from 1 up; a cluster with fewer queries uses all of them, and weighs less. With a small k weights
            differ more from query to query; with a k of the size of the largest cluster they are the same for all.
        with_relevant: choose these k among the training queries that have a relevant document, our reading of the
            filter in the paper's Algorithm 2. Clusters of relevant documents have only such queries; with a `view`
            there may be others, which count 0.
        reference: a feature by name or number from 0 or a ranker, None the feature that ranks the training queries
            best.
        view: None clusters the relevant documents; with a view, such as TextView(), the training queries are clustered
            in it.
        floor: models whose weight is below this share of the largest are left out; from 0, which keeps all, to 1, the
            best.
        softness: 0 puts a training query only into its nearest cluster; above 0 it also belongs to others, see
            Clusters.
        seed: the random start of the clustering; the same seed gives the same clusters.

    Raises:
        DataError: A parameter is out of range, or the training data has no relevant document.

    >>> from querywise import RankSVM, SelectRanker, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = SelectRanker(RankSVM(), clusters=3, k=5).fit(train)
    >>> weights = ranker.model_weights(test.candidates)
    >>> weights.shape, bool(abs(weights.sum(axis=1) - 1).max() < 1e-9)
    ((10, 3), True)
    """

    learner: Learner
    clusters: float = 20
    k: int = 10
    _: KW_ONLY
    with_relevant: bool = False
    reference: int | str | Ranker | None = None
    view: QueryView | None = None
    floor: float = 0.0
    softness: float = 0.0
    seed: int = 0

    stored = contents(
        floor=SHARE,
        divergence_=part(Divergence, coordinates="models"),
        similar_=part(SimilarQueries, models="models"),
        with_relevant=Added(False),
    )

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Cluster, train a model per cluster, and evaluate each on its own queries; trees stop early on `valid`."""
        check_floor(self.floor)
        self._fit_groups(_by_relevance_or_view(self, 1), self.learner, data, valid)
        groups = self.groups_
        divergence = Divergence(_or_best_feature(self.reference), groups.models_, standardise=False)
        self.divergence_ = cached("divergence", divergence, data, lambda: divergence.fit(data))
        seen, view, members = data.candidates_only(), self.divergence_, groups.grouping_.members_
        own = np.zeros((len(data), len(groups.models_)), np.bool_)  # a model is only evaluated on its own queries
        own[members.indices, np.repeat(np.arange(members.shape[0]), np.diff(members.indptr))] = True
        precision = cached(
            "precision",
            groups.models_,
            data,
            lambda: precision_table(groups.models_, seen, FLAVOURS["standard"], only=own),
        )
        points = cached("points", view, data.candidates, lambda: view.points(data.candidates))
        if self.with_relevant:
            members = csr_array(members.multiply(has_relevant(data)[None, :]))
            members.eliminate_zeros()
        self.similar_ = SimilarQueries(self.k).fit(points, members, precision)
        return self

    def places(self, candidates: Candidates, /) -> Floats:
        """Return the divergence of every model from the reference."""
        self._required(candidates)
        view = self.divergence_
        return cached("points", view, candidates, lambda: view.points(candidates))

    def model_weights(self, candidates: Candidates, /) -> Floats:
        """Return queries × models: the weight of each; a row sums to 1, or is all 0 for the global model."""
        return without_the_weak(self.similar_.weights(self.places(candidates)), self.floor)


def _by_relevance_or_view(ranker: Naive | SelectRanker, top: int) -> GroupModels:
    """Return groups that are clusters of relevant documents, or of queries in the given view."""
    kind = RelevantClusters if ranker.view is None else Clusters
    grouping = kind(ranker.clusters, softness=ranker.softness, seed=ranker.seed)
    return GroupModels(TopMean(None, top, standardise=False) if ranker.view is None else ranker.view, grouping)


def _or_best_feature(reference: int | str | Ranker | None) -> int | str | Ranker:
    return OneFeature() if reference is None else reference


def _or_everyone(members: csr_array, thin: Bools) -> csr_array:
    """Return the membership rows of the groups, replacing those with too few queries by all queries."""
    if not thin.any():
        return members
    everyone = csr_array(np.ones((1, members.shape[1])))
    return csr_array(vstack([everyone if each else members[[row]] for row, each in enumerate(thin)]))


@dataclass(eq=False, repr=False)
class QueryClasses(AnyRanker):
    """One model per class of the training queries; a query is classified by a linear SVM on its view.

    The classes come with the queries (`queries.jsonl`: `class`); training queries without one are used only for the
    view and the global model. `f1_` is the classifier's macro F1 over five folds of the training queries.

    Args:
        learner: the learner of each model, unfitted: RankSVM() or any other; ranking SVMs are all trained together.
        view: the view that a query is classified by, such as TextView(); None is TopMean, the mean features of the
            single model's 50 best documents.
        known: use the class given with a query, and classify only queries without one; with the true classes of test
            queries this is an oracle.
        seed: the same seed gives the same classifier, and the same folds to evaluate it on.

    Raises:
        DataError: No training query has a class.

    >>> from querywise import QueryClasses, RankSVM, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = QueryClasses(RankSVM()).fit(train)
    >>> ranker.classes_, ranker.predict(test).shape
    (('kind 1', 'kind 2'), (100,))
    """

    learner: Learner
    _: KW_ONLY
    view: QueryView | None = None
    known: bool = False
    seed: int = 0

    stored = contents(
        FITTED,
        everyone_=part(Ranker),
        view_=part(QueryView, coordinates="coordinates"),
        classes_=Several(Text(), "classes>0"),
        slopes_=floats("margins", "coordinates"),
        intercepts_=floats("margins"),
        f1_=ANY_NUMBER,
        usable_=bools("classes"),
        models_=part(Models, models="classes"),
    )

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Train the classifier and a model per class; a learner with early stopping uses `valid`."""
        names = _classes(data)
        ready = prepared(unfitted(self.learner), data, valid)
        self.everyone_ = ready.everyone
        self.view_ = fitted_view(self.view, data, self.everyone_)
        self.classes_ = tuple(sorted({name for name in names if name is not None}))
        known = np.array([name is not None for name in names])
        number = np.array([self.classes_.index(name) if name is not None else -1 for name in names])
        self._learn_classifier(self.view_.points(data.candidates)[known], number[known], data.groups[known])
        members = csr_array((number[None, :] == np.arange(len(self.classes_))[:, None]).astype(np.float64))
        self.usable_ = np.asarray(members @ (data.pairs > 0).astype(np.float64)).ravel() > 0
        self.models_ = ready.models(members)
        return self

    def _check_stored(self, known: Known) -> None:
        """Check the classifier's shape: one margin for up to two classes, otherwise one for each."""
        classes = known.sizes["classes"]
        known.tie("margins", classes if classes > 2 else 1, "QueryClasses.slopes_")

    def _learn_classifier(self, points: Floats, number: Ints, groups: Ints) -> None:
        from sklearn.metrics import f1_score
        from sklearn.model_selection import cross_val_predict
        from sklearn.svm import LinearSVC

        self.slopes_ = np.zeros((1, points.shape[1]))
        self.intercepts_ = np.zeros(1)
        self.f1_ = 1.0
        if len(self.classes_) < 2:
            return
        machine = LinearSVC(dual=False, random_state=self.seed).fit(points, number)
        self.slopes_, self.intercepts_ = machine.coef_.copy(), machine.intercept_.copy()
        split = _parts(number, groups, self.seed)
        self.f1_ = float("nan")
        if split:
            guessed = cross_val_predict(LinearSVC(dual=False, random_state=self.seed), points, number, cv=split)
            self.f1_ = float(f1_score(number, guessed, average="macro"))

    def chosen(self, candidates: Candidates, /) -> Ints:
        """Return the index of the class of each query, given or predicted."""
        given = self._given(ready(self, candidates))
        return given if (given >= 0).all() else np.where(given >= 0, given, self._predicted(candidates))

    def _predicted(self, candidates: Candidates) -> Ints:
        margins = self.view_.points(candidates) @ self.slopes_.T + self.intercepts_
        two = margins.shape[1] == 1
        found = (margins[:, 0] > 0).astype(np.int64) if two and len(self.classes_) > 1 else np.argmax(margins, axis=1)
        return np.asarray(found, dtype=np.int64)

    def _given(self, candidates: Candidates) -> Ints:
        """Return the index of the class given with each query if `known` is set; otherwise −1."""
        table = candidates.queries
        if not self.known or table is None or table.classes is None:
            return np.full(len(candidates), -1, dtype=np.int64)
        numbers = {name: number for number, name in enumerate(self.classes_)}
        return np.array([numbers.get(name, -1) if name is not None else -1 for name in table.classes], dtype=np.int64)

    def several_models(self) -> Models:
        """Return the models of the classes."""
        return self.models_

    def _answer(self, seen: Candidates, /) -> Answer:
        """Return the answer by the model of each query's class, or the global one if the class has no model."""

        def chosen() -> Ints:
            found = self.chosen(seen)
            return np.where(self.usable_[found], found, -1)

        return picked(
            seen,
            self.everyone_,
            self.models_,
            PretrainedModels(lambda number: f"queries of class {self.classes_[number]}", self.usable_),
            chosen,
            place=Place(
                lambda: looked_at(self.view_),
                classes=self.classes_ if self.known else (),
                vectorless=lambda: without_vector(seen, self.view_) & (self._given(seen) < 0),
            ),
            facts=lambda: Facts(f1=self.f1_),
        )


def _classes(data: Judged) -> tuple[str | None, ...]:
    table = data.candidates.queries
    if table is None or table.classes is None or not any(table.classes):
        raise DataError(
            "QueryClasses needs the class of the training queries, and these have none. Give a queries.jsonl whose "
            'lines have a "class": data.with_queries(read_queries(path)).',
            arguments=("queries",),
        )
    return table.classes


def _parts(number: Ints, groups: Ints, seed: int) -> list[tuple[Ints, Ints]]:
    """Return cross-validation folds as (training, held-out) indices; empty if classes are too small.

    No group of queries is on both sides.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    folds = min(5, *(len(np.unique(groups[number == each])) for each in np.unique(number)))
    if folds < 2:
        return []
    alone, rows = are_alone(groups), np.arange(len(number))
    split = (StratifiedKFold if alone else StratifiedGroupKFold)(folds, shuffle=True, random_state=seed)
    parts = list(split.split(rows, number, None if alone else groups))
    learnable = all(len(held) and len(np.unique(number[seen])) > 1 for seen, held in parts)
    return parts if learnable else []
