"""Query-dependent ranking by k nearest neighbors: Online, Offline-1 and Offline-2 [geng2008]_.

A query is scored by a model trained on the training queries nearest to it: trained when it arrives (Online), or
picked from models trained beforehand around every training query, by shared training pairs (Offline-1) or by distance
(Offline-2).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.answers import (
    Answer,
    Local,
    Once,
    PretrainedModels,
    local_or_global,
    own_each,
    picked,
    scores_by,
)
from querywise.contracts.asking import AnyRanker, ready
from querywise.contracts.protocols import Learner, Models, Neighborhood, Prepared, QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.rows import first_repeated
from querywise.data.training import Training, takes_parts
from querywise.errors import DataError
from querywise.learners.local_models import prepared
from querywise.locality.groupings import k_means
from querywise.locality.neighborhoods import Search, measured
from querywise.locality.views.looking import relevant_points
from querywise.locality.views.topmean import TopMean
from querywise.rankers.neighbors import Around, Locality, has_relevant, neighborhood_or_nearest, without
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.parameters import forget_derived, number_of, unfitted
from querywise.runtime.stored import FITTED, Absent, Added, Known, Optional, Sparse, bools, contents, floats, part
from querywise.runtime.threads import slices

_TIED = 1e-12  # of a number of shared pairs: smaller differences are rounding errors
_ONLY = np.zeros(1, np.int64)  # the index of the only model
_COUNTS = 32_000_000  # of shared pairs that are held together: queries × models
_AT_ONCE = 1_024  # models whose training queries are held together as dense rows
_EXACT = 2**24  # whole numbers below it, and their sums, are exact in single precision
_MANY = 16  # queries from which dense products are faster than sparse ones


@dataclass(eq=False, repr=False)
class KnnOnline(AnyRanker):
    """A separate model for every query, trained on its neighbors when it arrives.

    Args:
        learner: the learner of each model, unfitted. RankSVM's curvature is prepared once, so that a query costs one
            small solve; any other learner is trained from scratch.
        k: the number of training queries that a model is trained on, a whole number from 1 to all of them, or a share
            of them, a float above 0 and up to 1.
        view: the view in which queries are compared, such as TextView(); None is TopMean, the mean features of the
            single model's 50 best documents.
        neighborhood: which training queries are neighbors, and with which weights; None is the k nearest, all weighted
            equally. With one, such as Radius(2.0), `k` is ignored.
        back_off: a share of the training queries, above 0 and up to 1. A query that is farther from its nearest
            training query than this share of them are from theirs gets the global model, as does a query that the view
            knows nothing of; None never backs off, as in the paper.

    Raises:
        DataError: A parameter is out of range, or the training data has no preference between documents.

    >>> from querywise import KnnOnline, RankSVM, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = KnnOnline(RankSVM(), k=8, back_off=None).fit(train)
    >>> ranker.predict(test).shape, ranker.training_queries(test.candidates).sum(axis=1).round(6).tolist()[:3]
    ((100,), [8.0, 8.0, 8.0])
    """

    learner: Learner
    k: float = 0.2
    _: KW_ONLY
    view: QueryView | None = None
    neighborhood: Neighborhood | None = None
    back_off: float | None = 0.95

    stored = contents(
        FITTED,
        prepared_=part(Prepared, queries="queries"),
        locality_=part(Locality, queries="queries"),
        back_off=Added(None),
    )

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Prepare the learner and compute the training queries' positions; trees stop early on `valid`."""
        self.prepared_ = prepared(unfitted(self.learner), data, valid).gathered()
        self.locality_ = Locality(self.view, neighborhood_or_nearest(self.neighborhood, self.k), self.back_off)
        self.locality_.fit(data, self.prepared_.everyone)
        return self

    def add(self, data: Judged, /) -> Self:
        """Return a ranker with more training queries. This one stays as it is.

        Queries are answered as if by a `fit` on all training queries that kept the global model, the scales of features
        and the view of the first one: only the neighbors of a query, and `back_off`, depend on the added queries.

        Args:
            data: judged queries that are not among the training queries, with the same features.

        Raises:
            NotFittedError: It is not fitted.
            DataError: Other features or missing values, a query that is a training query already, and labels or weights
                that cannot stand beside those of the training queries.

        >>> from querywise import KnnOnline, RankSVM, make_judged, split
        >>> train, later, test = split(make_judged(50, 10, 4, kinds=2))
        >>> ranker = KnnOnline(RankSVM(), k=8).fit(train)
        >>> ranker.training_queries(test.candidates).shape, ranker.add(later).training_queries(test.candidates).shape
        ((10, 30), (10, 40))
        """
        if not isinstance(data, Judged):
            found = type(data).__name__  # type: ignore[unreachable]  # a caller without types
            raise DataError(f"add takes a Judged set: from_arrays(X, y, qid=…) or from_frame(table); found {found}.")
        ready(self, data)
        known = first_repeated((*self.locality_.query_ids_, *data.query_ids))
        if known is not None:
            raise DataError(f"Query {known!r} is a training query already. Leave it out, or fit the ranker again.")
        other = copy.copy(self)
        if len(data):
            other.prepared_, other.locality_ = self.prepared_.add(data), self.locality_.add(data)
        return other

    def _predict(self, seen: Candidates, /) -> Floats:
        if len(seen) != 1:
            return super()._predict(seen)
        return self._of_one(seen, self.locality_.around(seen, taught=True))

    def _of_one(self, seen: Candidates, around: Around) -> Floats:
        """Return the scores of one query, without explanations."""
        locality = self.locality_
        if around.far()[0] or not locality.has_pairs(around.weights())[0]:
            return self.prepared_.everyone.predict(seen)
        return self.prepared_.models(around.weights(), like=locality.typical).pick(seen, _ONLY)

    def _answer(self, seen: Candidates, /) -> Answer:
        """Answer each query with a model trained for it, if it has neighbors near enough to learn from."""
        everyone, locality = self.prepared_.everyone, self.locality_
        around = locality.around(seen, taught=True)
        weights = Once(lambda: without(around.weights(), around.far()))
        local = Once(lambda: locality.has_pairs(weights()))

        @Once
        def models() -> Models:
            rows = weights() if np.count_nonzero(local()) == len(local()) else weights()[np.flatnonzero(local())]
            return self.prepared_.models(rows, like=locality.typical)

        def of_many() -> Floats:
            return local_or_global(
                seen, local(), lambda queries, part: models().pick(part, np.arange(len(queries))), everyone
            )

        return Answer(
            seen,
            lambda: everyone.answer(seen).everyone,
            Once(lambda: self._of_one(seen, around) if len(seen) == 1 else of_many()),
            varies=True,
            local=Local(models, Once(lambda: own_each(local()))),
            place=locality.place(seen, around, self.learner, self.prepared_.gradients, weights=weights),
        )

    def places(self, candidates: Candidates, /) -> Floats:
        """Return each query's position in the view."""
        return self.locality_.points(ready(self, candidates))

    def distances(self, candidates: Candidates, /) -> Floats:
        """Return each query's distance from the nearest training query."""
        return self.locality_.distances(self.places(candidates))

    def training_queries(self, candidates: Candidates, /) -> csr_array:
        """Return the weight of each training query for each of these; an empty row means the global model."""
        around = self.locality_.around(ready(self, candidates), taught=True)
        return without(around.weights(), around.far())


@dataclass(eq=False, repr=False)
class OfflineModels:
    """Models trained around anchors: every training query, or the centers of clusters of them."""

    locality: Locality
    models: float | None
    seed: int

    stored = contents(
        locality=part(Locality, queries="queries", coordinates="coordinates"),
        anchors_=floats("models", "coordinates"),
        members_=Sparse("models", "queries"),
        usable_=bools("models"),
        models_=part(Models, models="models"),
        everyone_=part(Ranker),
        gradients_=Absent(Optional(floats("queries", "features"))),
    )

    def fit(self, data: Training, learner: Learner, valid: Judged | None, /) -> Self:
        """Train a model on the neighbors of every anchor."""
        ready = prepared(learner, data, valid)
        self.locality.fit(data, ready.everyone)
        points = self.locality.points_
        self.anchors_ = points if self.models is None else self._centres(points)
        settings = (self.locality.view_, self.locality.neighborhood, self.models, self.seed)
        self.members_ = cached("members", settings, data, lambda: self.locality.weights_of_many(self.anchors_))
        self.usable_ = self.locality.has_pairs(self.members_)
        self.models_ = cached("models of members", (learner, valid), self.members_, lambda: ready.models(self.members_))
        self.everyone_ = ready.everyone
        self.gradients_ = ready.gradients()
        forget_derived(self)
        self.make_ready()
        return self

    def make_ready(self) -> None:
        """Build the search indexes now, so that the first query is not slower than others."""
        for searched in (self.locality.one.known, self._anchors):
            _ = searched.coarse

    def _check_stored(self, known: Known) -> None:
        """Check that there is a model for every training query, unless there are fewer models."""
        if self.models is None:
            known.tie("models", known.sizes["queries"], "OfflineModels.anchors_")

    def _centres(self, points: Floats) -> Floats:
        asked = number_of(1.0 if self.models is None else self.models, len(points), "models=…")
        return k_means(measured(points, self.locality.metric), asked, self.seed)

    def nearest_anchor(self, points: Floats) -> Ints:
        """Return the index of the anchor nearest to each point."""
        return self.locality.nearest(points, self._anchors)

    @cached_property
    def _anchors(self) -> Search:
        """The anchors, ready to be searched."""
        return self.locality.one.known if self.models is None else self.locality.search(self.anchors_)

    def trusted(self, index: Ints, far: Bools) -> Ints:
        """Replace models without training pairs by −1, and those of queries too far from all training queries."""
        if len(index) == 1:
            return index if index[0] >= 0 and not far[0] and self.usable_[index[0]] else np.array([-1])
        good = (index >= 0) & ~far
        good[good] = self.usable_[index[good]]
        return np.where(good, index, -1)

    def shared_pairs(self, own: csr_array) -> Iterator[Floats]:
        """Yield how many training pairs each model shares with each query's neighbors; tied neighbors count in part.

        Neighbors that count in whole, and those tied for the last places, are counted apart and as whole numbers, so
        that a batch of queries gives the same result as each query alone.
        """
        most = self.members_.data.max(initial=1.0)
        for rows in slices(own.shape[0], max(1, _COUNTS // max(self.members_.shape[0], 1))):
            part = own[rows]
            queries = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
            least = np.full(part.shape[0], 1.0)
            np.minimum.at(least, queries, part.data)
            plain = least >= most  # the smaller parts are the models'
            if plain.all():
                whole = csr_array((self.locality.pairs_[part.indices], part.indices, part.indptr), shape=part.shape)
                yield from self._shared_in_whole(np.asarray(whole.toarray(), np.float64))
                continue
            tied = (part.data < 1) & ~plain[queries]
            other = np.bincount(queries[tied & (part.data != least[queries])], minlength=part.shape[0]) > 0
            even = ~plain & ~other & (most == 1) & self._counted
            pairs = self.locality.pairs_[part.indices]
            whole, last = (
                csr_array((pairs * counted, part.indices, part.indptr), shape=part.shape) for counted in (~tied, tied)
            )
            found = np.empty((part.shape[0], self.members_.shape[0]))
            counts = self._shared_in_whole(np.vstack([whole[plain | even].toarray(), last[even].toarray()]))
            found[plain | even] = counts[: np.count_nonzero(plain | even)]
            found[even] += least[even, None] * counts[np.count_nonzero(plain | even) :]
            for query in np.flatnonzero(even):
                found[query, self._parted] = self._shared_in_part(part[[query]], self._members_in_part)
            for query in np.flatnonzero(~plain & ~even):
                found[query] = self._shared_in_part(part[[query]], self.members_)
            yield from found

    def _shared_in_whole(self, pairs: Floats) -> Floats:
        """Return pairs summed over each model's training queries, by dense products (exact) for many queries."""
        if len(pairs) < _MANY or not self._counted:
            return np.asarray(self.members_ @ pairs.T).T
        found = np.empty((len(pairs), self.members_.shape[0]))
        exact = np.float32 if pairs.sum(axis=1).max() < _EXACT else np.float64
        counts = pairs.astype(exact)
        for models in slices(found.shape[1], _AT_ONCE):
            found[:, models] = counts @ self.members_[models].astype(exact).toarray().T
        found[:, self._parted] = np.asarray(self._members_in_part @ pairs.T).T
        return found

    @cached_property
    def _counted(self) -> bool:
        """Whether pairs are whole numbers, as they are without weights."""
        return bool((self.locality.pairs_ % 1 == 0).all())

    @cached_property
    def _parted(self) -> Ints:
        """The models with tied training queries, which count in part."""
        return np.unique(np.searchsorted(self.members_.indptr, np.flatnonzero(self.members_.data != 1), "right") - 1)

    @cached_property
    def _members_in_part(self) -> csr_array:
        """The rows of these models."""
        return self.members_[self._parted]

    def _shared_in_part(self, own: csr_array, members: csr_array) -> Floats:
        """Return the pairs that some models share with one query whose neighbors include ties."""
        pairs, part = np.zeros(own.shape[1]), np.zeros(own.shape[1])
        pairs[own.indices], part[own.indices] = self.locality.pairs_[own.indices], own.data
        smaller = np.minimum(members.data, part[members.indices])
        common = csr_array((smaller, members.indices, members.indptr), shape=members.shape)
        return np.asarray(common @ pairs).ravel()

    def gradients(self) -> Floats | None:
        """Return training queries × features: the gradient of each one's loss at the global model, if known."""
        found: Floats | None = getattr(self, "gradients_", None)  # not in models saved by older versions
        return found

    def whom(self, number: int) -> str:
        """Describe the queries that a model is for."""
        if self.models is None:
            return f"queries nearest to training query {self.locality.query_ids_[number]}"
        return f"queries nearest to centre {number}"

    def routed_by_relevance(self, data: Judged) -> Ints | None:
        """Return the model nearest to each query's relevant documents, −1 without any; None in a view of queries."""
        points = relevant_points(self.locality.view_, data)
        if points is None:
            return None
        return np.where(has_relevant(data), self.nearest_anchor(points), -1)

    def training_queries(self, index: Ints) -> csr_array:
        """Return the training rows of these models; empty for −1."""
        return without(self.members_[np.maximum(index, 0)], index < 0)


@dataclass(eq=False, repr=False)
class KnnOffline2(AnyRanker):
    """Models trained in advance around every training query; a query is scored by that of the nearest one.

    Ties go to the first by coordinates; training queries that coincide have the same model.

    Args:
        learner: the learner of each model, unfitted: RankSVM() or any other; ranking SVMs are all trained together.
        k: the number of training queries that a model is trained on, a whole number from 1 to all of them, or a share
            of them, a float above 0 and up to 1.
        view: the view in which queries are compared, such as TextView(); None is TopMean, the mean features of the
            single model's 50 best documents.
        neighborhood: which training queries are neighbors, and with which weights; None is the k nearest, all weighted
            equally. With one, such as Radius(2.0), `k` is ignored.
        back_off: a share of the training queries, above 0 and up to 1. A query that is farther from its nearest
            training query than this share of them are from theirs gets the global model, as does a query that the view
            knows nothing of; None never backs off, as in the paper.
        models: the number of models to keep, around the centers of as many clusters of training queries; a number or a
            share, as for `k`. None keeps all.
        seed: the random start of that clustering.

    Raises:
        DataError: A parameter is out of range, or the training data has no preference between documents.

    >>> from querywise import KnnOffline2, RankSVM, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = KnnOffline2(RankSVM(), k=8, models=5).fit(train)
    >>> ranker.predict(test).shape, len(ranker.several_models())
    ((100,), 5)
    """

    learner: Learner
    k: float = 0.2
    _: KW_ONLY
    view: QueryView | None = None
    neighborhood: Neighborhood | None = None
    back_off: float | None = 0.95
    models: float | None = None
    seed: int = 0

    stored = contents(FITTED, offline_=part(OfflineModels), back_off=Added(None))

    def fit(self, data: Training, /, *, valid: Judged | None = None) -> Self:
        """Train the models; a learner with early stopping uses `valid`."""
        locality = Locality(self.view, neighborhood_or_nearest(self.neighborhood, self.k), self.back_off)
        self.offline_ = OfflineModels(locality, self.models, self.seed).fit(data, unfitted(self.learner), valid)
        return self

    def takes_parts(self) -> bool:
        """Whether it can be fitted on shards: if its learner can, and its view is TopMean by the model or a feature."""
        usual = self.view is None or (isinstance(self.view, TopMean) and _is_named(self.view.reference))
        return takes_parts(self.learner) and usual

    def _predict(self, seen: Candidates, /) -> Floats:
        offline = self.offline_
        return scores_by(offline.models_, self._chosen(offline.locality.around(seen)), seen, offline.everyone_)

    def _answer(self, seen: Candidates, /) -> Answer:
        """Return the answer by the stored model nearest to each query."""
        offline, locality = self.offline_, self.offline_.locality
        around = locality.around(seen)
        chosen = Once(lambda: self._chosen(around))
        weights = Once(lambda: offline.training_queries(chosen()))
        place = locality.place(
            seen,
            around,
            self.learner,
            offline.gradients,
            weights=weights,
            nearest_to_relevant=self.routed_by_relevance,
        )
        stored = PretrainedModels(offline.whom, offline.usable_)
        return picked(seen, offline.everyone_, offline.models_, stored, chosen, place=place)

    def _chosen(self, around: Around) -> Ints:
        """Return the index of the model that scores each query; −1 is the global model."""
        return self.offline_.trusted(self._index(around), around.far())

    def _index(self, around: Around) -> Ints:
        """Return the index of the model for each query, trusted or not."""
        if self.models is None:  # one around every training query
            return around.nearest()
        return self._cached_index(around.points(), self.offline_.nearest_anchor)

    def _cached_index(self, points: Floats, find: Callable[[Floats], Ints]) -> Ints:
        locality = self.offline_.locality
        settings = (type(self).__name__, locality.points_, locality.neighborhood, self.models, self.seed)
        return cached("index", settings, points, lambda: find(points))

    def chosen(self, candidates: Candidates, /) -> Ints:
        """Return the index of the model that scores each query; −1 is the global model."""
        return self._chosen(self.offline_.locality.around(ready(self, candidates)))

    def places(self, candidates: Candidates, /) -> Floats:
        """Return each query's position in the view."""
        return self.offline_.locality.points(ready(self, candidates))

    def distances(self, candidates: Candidates, /) -> Floats:
        """Return each query's distance from the nearest training query."""
        return self.offline_.locality.distances(self.places(candidates))

    def several_models(self) -> Models:
        """Return the stored models."""
        return self.offline_.models_

    def routed_by_relevance(self, data: Judged, /) -> Ints | None:
        """Return the model nearest to each query's relevant documents; None if the view does not place documents."""
        return self.offline_.routed_by_relevance(data)

    def training_queries(self, candidates: Candidates, /) -> csr_array:
        """Return each training query's weight in the model that scores each query; an empty row is the global model."""
        return self.offline_.training_queries(self.chosen(candidates))


class KnnOffline1(KnnOffline2):
    """Models trained in advance around every training query; a query is scored by the most similarly trained one.

    That is the model that shares most training pairs with the query's own neighbors; ties go to the nearer one, then to
    the first by coordinates.

    Args:
        learner: the learner of each model, unfitted: RankSVM() or any other; ranking SVMs are all trained together.
        k: the number of training queries that a model is trained on, a whole number from 1 to all of them, or a share
            of them, a float above 0 and up to 1.
        view: the view in which queries are compared, such as TextView(); None is TopMean, the mean features of the
            single model's 50 best documents.
        neighborhood: which training queries are neighbors, and with which weights; None is the k nearest, all weighted
            equally. With one, such as Radius(2.0), `k` is ignored.
        back_off: a share of the training queries, above 0 and up to 1. A query that is farther from its nearest
            training query than this share of them are from theirs gets the global model, as does a query that the view
            knows nothing of; None never backs off, as in the paper.
        models: the number of models to keep, around the centers of as many clusters of training queries; a number or a
            share, as for `k`. None keeps all.
        seed: the random start of that clustering.

    Raises:
        DataError: A parameter is out of range, or the training data has no preference between documents.

    >>> from querywise import KnnOffline1, RankSVM, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = KnnOffline1(RankSVM(), k=8).fit(train)
    >>> ranker.predict(test).shape, len(ranker.several_models())
    ((100,), 30)
    """

    def _index(self, around: Around) -> Ints:
        """Return the index of the model that shares most with each query's neighbors; −1 if none shares anything."""
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
    """Whether a view's reference is the single model or a feature, rather than another ranker."""
    return reference is None or isinstance(reference, (int, str))
