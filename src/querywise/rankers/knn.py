"""Query-dependent ranking by k nearest neighbours: Online, Offline-1 and Offline-2 [geng2008]_.

A query is scored by a model trained on the training queries nearest to it: trained when it arrives (Online), or
picked from models trained beforehand around every training query, by shared training pairs (Offline-1) or by distance
(Offline-2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.answers import Answer, Once, Stored, local_or_global, one_each, picked, ready
from querywise.contracts.asking import AnyRanker, answers, predicts
from querywise.contracts.protocols import Learner, Models, Neighborhood, Prepared, QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.training import Training, takes_parts
from querywise.learners.local_models import prepared
from querywise.locality.views.topmean import TopMean
from querywise.rankers.neighbors import Locality, Surroundings, neighborhood_or_nearest, without
from querywise.rankers.offline_models import OfflineModels
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import FITTED, Added, contents, part

_TIED = 1e-12  # of a number of shared pairs: smaller differences are rounding
_ONLY = np.zeros(1, np.int64)  # the number of the only model


class KnnOnline(AnyRanker):
    """A model of its own for every query, trained on its neighbours when it arrives.

    learner: what each model is, not fitted. RankSVM's curvature is prepared once, so that a query costs one small
    solve; any other learner is trained anew.
    k: how many training queries a model is trained on, a whole number from 1 to all of them, or which share of them, a
    float above 0 and up to 1.
    view: where queries are near each other, such as TextView(); None is TopMean, the mean features of the single
    model's 50 best documents.
    neighborhood: which training queries are neighbours, and how much each counts; None is the k nearest, all the same.
    With one, such as Radius(2.0), `k` is not looked at.
    back_off: a share of the training queries; a query farther from its nearest training query than that share of them
    is from each other gets the global model, as does a query of which the view knows nothing. Above 0 and up to 1; None
    never backs off, as in the paper.

    Refused: with DataError, a parameter out of its range, and training data in which no document is preferred to
    another.

    >>> from querywise import KnnOnline, RankSVM, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = KnnOnline(RankSVM(), k=8, back_off=None).fit(train)
    >>> ranker.predict(test).shape, ranker.training_queries(test.candidates).sum(axis=1).round(6).tolist()[:3]
    ((100,), [8.0, 8.0, 8.0])
    """

    stored = contents(
        FITTED,
        prepared_=part(Prepared, queries="queries"),
        locality_=part(Locality, queries="queries"),
        back_off=Added(None),
    )

    def __init__(
        self,
        learner: Learner,
        k: float = 0.2,
        *,
        view: QueryView | None = None,
        neighborhood: Neighborhood | None = None,
        back_off: float | None = 0.95,
    ) -> None:
        self.learner = learner
        self.k = k
        self.view = view
        self.neighborhood = neighborhood
        self.back_off = back_off

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Prepare the learner and compute the training queries' positions; trees stop early on `valid`."""
        self.prepared_ = prepared(unfitted(self.learner), data, valid).gathered()
        self.locality_ = Locality(self.view, neighborhood_or_nearest(self.neighborhood, self.k), self.back_off)
        self.locality_.fit(data, self.prepared_.everyone)
        return self

    @predicts
    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document, each query by the model of its own neighbours."""
        if len(candidates) != 1:
            return self.answer(candidates).scores()
        seen = ready(self, candidates)
        return self._of_one(seen, Surroundings(self.locality_, seen, taught=True))

    def _of_one(self, seen: Candidates, around: Surroundings) -> Floats:
        """The scores of one query, without what explains them: that would take as long as the kernels."""
        locality = self.locality_
        if around.is_far()[0] or not locality.has_pairs(around.weights())[0]:
            return self.prepared_.everyone.predict(seen)
        return self.prepared_.models(around.weights(), like=locality.typical).pick(seen, _ONLY)

    @answers
    def answer(self, candidates: Candidates, /) -> Answer:
        """A model of its own for each query that has neighbours to learn from, and is not too far from them."""
        seen, everyone = ready(self, candidates), self.prepared_.everyone
        around = Surroundings(self.locality_, seen, taught=True)

        @Once
        def teachers() -> csr_array:
            return without(around.weights(), around.is_far())

        @Once
        def local() -> Bools:
            return self.locality_.has_pairs(teachers())

        @Once
        def models() -> Models:
            rows = teachers() if np.count_nonzero(local()) == len(local()) else teachers()[np.flatnonzero(local())]
            return self.prepared_.models(rows, like=self.locality_.typical)

        def of_many() -> Floats:
            return local_or_global(
                seen, local(), lambda queries, part: models().pick(part, np.arange(len(queries))), everyone
            )

        return Answer(
            seen,
            lambda: everyone.answer(seen).everyone,
            Once(lambda: self._of_one(seen, around) if len(seen) == 1 else of_many()),
            varies=True,
            models=models,
            shares=Once(lambda: one_each(np.where(local(), np.cumsum(local()) - 1, -1), int(local().sum()))),
            teachers=teachers,
            place=around.place(self.learner, self.prepared_.gradients),
        )

    def places(self, candidates: Candidates, /) -> Floats:
        """Where each query lies in the view."""
        return self.locality_.points(ready(self, candidates))

    def distances(self, candidates: Candidates, /) -> Floats:
        """How far each query is from the nearest training query."""
        return self.locality_.distances(self.places(candidates))

    def training_queries(self, candidates: Candidates, /) -> csr_array:
        """How much each training query counts for each of these; an empty row is the global model."""
        found = self.answer(candidates).teachers
        assert found is not None
        return found()


class KnnOffline2(AnyRanker):
    """Models trained beforehand around every training query; a query is scored by the nearest one's.

    Of equally near ones the first by their coordinates scores it; training queries that coincide have the same model.

    learner: what each model is, not fitted: RankSVM() or any other learner; all ranking SVMs are trained together.
    k: how many training queries a model is trained on, a whole number from 1 to all of them, or which share of them, a
    float above 0 and up to 1.
    view: where queries are near each other, such as TextView(); None is TopMean, the mean features of the single
    model's 50 best documents.
    neighborhood: which training queries are neighbours, and how much each counts; None is the k nearest, all the same.
    With one, such as Radius(2.0), `k` is not looked at.
    back_off: a share of the training queries; a query farther from its nearest training query than that share of them
    is from each other gets the global model, as does a query of which the view knows nothing. Above 0 and up to 1; None
    never backs off, as in the paper.
    models: keep only so many, around the centres of as many clusters of training queries; a number or a share, as `k`.
    None keeps all.
    seed: where that clustering starts.

    Refused: with DataError, a parameter out of its range, and training data in which no document is preferred to
    another.

    >>> from querywise import KnnOffline2, RankSVM, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = KnnOffline2(RankSVM(), k=8, models=5).fit(train)
    >>> ranker.predict(test).shape, len(ranker.several_models())
    ((100,), 5)
    """

    stored = contents(FITTED, offline_=part(OfflineModels), back_off=Added(None))

    def __init__(
        self,
        learner: Learner,
        k: float = 0.2,
        *,
        view: QueryView | None = None,
        neighborhood: Neighborhood | None = None,
        back_off: float | None = 0.95,
        models: float | None = None,
        seed: int = 0,
    ) -> None:
        self.learner = learner
        self.k = k
        self.view = view
        self.neighborhood = neighborhood
        self.back_off = back_off
        self.models = models
        self.seed = seed

    def fit(self, data: Training, /, *, valid: Judged | None = None) -> Self:
        """Train the models; a learner that stops early does so on `valid`."""
        locality = Locality(self.view, neighborhood_or_nearest(self.neighborhood, self.k), self.back_off)
        self.offline_ = OfflineModels(locality, self.models, self.seed).fit(data, unfitted(self.learner), valid)
        return self

    def takes_parts(self) -> bool:
        """Whether it can be fitted on shards: as its learner can, in the usual view by it or by a feature."""
        usual = self.view is None or (isinstance(self.view, TopMean) and _is_named(self.view.reference))
        return takes_parts(self.learner) and usual

    @predicts
    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document, each query by the nearest model."""
        return self.answer(candidates).scores()

    @answers
    def answer(self, candidates: Candidates, /) -> Answer:
        """The stored model nearest to each query."""
        seen, offline = ready(self, candidates), self.offline_
        around = Surroundings(offline.locality, seen)

        @Once
        def chosen() -> Ints:
            return offline.trusted(self._index(around), around.is_far())

        return picked(
            seen,
            offline.everyone_,
            Stored(offline.models_, offline.whom, offline.usable_),
            chosen,
            place=around.place(self.learner, offline.gradients, self.routed_by_relevance),
            teachers=Once(lambda: offline.training_queries(chosen())),
        )

    def _index(self, around: Surroundings) -> Ints:
        """The number of the model for each query; −1 is the global model."""
        if self.models is None:  # there is one around every training query
            return around.nearest()
        return self._cached_index(around.points(), self.offline_.nearest_anchor)

    def _cached_index(self, points: Floats, find: Callable[[Floats], Ints]) -> Ints:
        locality = self.offline_.locality
        settings = (type(self).__name__, locality.points_, locality.neighborhood, self.models, self.seed)
        return cached("index", settings, points, lambda: find(points))

    def chosen(self, candidates: Candidates, /) -> Ints:
        """The number of the model that scores each query; −1 is the global model."""
        return self.answer(candidates).chosen()

    def places(self, candidates: Candidates, /) -> Floats:
        """Where each query lies in the view."""
        return self.offline_.locality.points(ready(self, candidates))

    def distances(self, candidates: Candidates, /) -> Floats:
        """How far each query is from the nearest training query."""
        return self.offline_.locality.distances(self.places(candidates))

    def several_models(self) -> Models:
        """The stored models."""
        return self.offline_.models_

    def routed_by_relevance(self, data: Judged, /) -> Ints | None:
        """The model nearest to each query's true relevant documents; None where the view does not place documents."""
        return self.offline_.routed_by_relevance(data)

    def training_queries(self, candidates: Candidates, /) -> csr_array:
        """The weight of each training query in the model that scores each query; an empty row: the global one."""
        return self.offline_.training_queries(self.chosen(candidates))


class KnnOffline1(KnnOffline2):
    """Models trained beforehand around every training query; a query is scored by the most similarly trained one.

    That is the one whose training pairs have most in common with those of the query's own neighbours; the nearer of
    equals, of equally near ones the first by their coordinates.

    learner: what each model is, not fitted: RankSVM() or any other learner; all ranking SVMs are trained together.
    k: how many training queries a model is trained on, a whole number from 1 to all of them, or which share of them, a
    float above 0 and up to 1.
    view: where queries are near each other, such as TextView(); None is TopMean, the mean features of the single
    model's 50 best documents.
    neighborhood: which training queries are neighbours, and how much each counts; None is the k nearest, all the same.
    With one, such as Radius(2.0), `k` is not looked at.
    back_off: a share of the training queries; a query farther from its nearest training query than that share of them
    is from each other gets the global model, as does a query of which the view knows nothing. Above 0 and up to 1; None
    never backs off, as in the paper.
    models: keep only so many, around the centres of as many clusters of training queries; a number or a share, as `k`.
    None keeps all.
    seed: where that clustering starts.

    Refused: with DataError, a parameter out of its range, and training data in which no document is preferred to
    another.

    >>> from querywise import KnnOffline1, RankSVM, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = KnnOffline1(RankSVM(), k=8).fit(train)
    >>> ranker.predict(test).shape, len(ranker.several_models())
    ((100,), 30)
    """

    def _index(self, around: Surroundings) -> Ints:
        """The number of the model that shares most with each query's neighbours; −1 where none shares anything."""
        return self._cached_index(around.points(), self._sharing_most)

    def _sharing_most(self, points: Floats) -> Ints:
        locality = self.offline_.locality
        index = np.full(len(points), -1, dtype=np.int64)
        for query, shared in enumerate(self.offline_.shared_pairs(locality.weights(points))):
            best = np.flatnonzero((shared > 0) & (shared >= shared.max(initial=0.0) * (1 - _TIED)))
            if len(best) > 1:
                equals = locality.search(self.offline_.anchors_[best])
                best = best[locality.nearest(points[[query]], equals)]
            if len(best):
                index[query] = best[0]
        return index


def _is_named(reference: int | str | Ranker | None) -> bool:
    """Whether a view's reference is the single model or a feature, and not some other ranker."""
    return reference is None or isinstance(reference, (int, str))
