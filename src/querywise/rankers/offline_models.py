"""Models trained beforehand around training queries, as KNN Offline-1 and Offline-2 pick them [geng2008]_."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.protocols import Learner, Models, Ranker
from querywise.data.judged import Judged
from querywise.data.training import Training
from querywise.learners.local_models import prepared
from querywise.locality.groupings import k_means
from querywise.locality.neighborhoods import Search, measured
from querywise.locality.views.looking import relevant_points
from querywise.rankers.neighbors import Locality, has_relevant, without
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.parameters import forget_derived, number_of
from querywise.runtime.stored import Absent, Known, Optional, Sparse, bools, contents, floats, part

_AT_ONCE = 64  # queries whose shared pairs are counted together


class OfflineModels:
    """Models trained around anchors: every training query, or the centres of clusters of them."""

    stored = contents(
        locality=part(Locality, queries="queries", coordinates="coordinates"),
        anchors_=floats("models", "coordinates"),
        members_=Sparse("models", "queries"),
        usable_=bools("models"),
        models_=part(Models, models="models"),
        everyone_=part(Ranker),
        gradients_=Absent(Optional(floats("queries", "features"))),
    )

    def __init__(self, locality: Locality, models: float | None, seed: int) -> None:
        self.locality = locality
        self.models = models
        self.seed = seed

    def fit(self, data: Training, learner: Learner, valid: Judged | None, /) -> Self:
        """Train a model on the neighbours of every anchor."""
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
        for searched in (self.locality.known, self._anchors):
            searched.make_ready()
        return self

    def _check_stored(self, known: Known) -> None:
        """Unless there are fewer models, there is one for every training query."""
        if self.models is None:
            known.tie("models", known.sizes["queries"], "OfflineModels.anchors_")

    def _centres(self, points: Floats) -> Floats:
        asked = number_of(1.0 if self.models is None else self.models, len(points), "models=…")
        return k_means(measured(points, self.locality.metric), asked, self.seed)

    def nearest_anchor(self, points: Floats) -> Ints:
        """The number of the anchor nearest to each point."""
        return self.locality.nearest(points, self._anchors)

    @cached_property
    def _anchors(self) -> Search:
        """The anchors, ready to be searched."""
        return self.locality.known if self.models is None else self.locality.search(self.anchors_)

    @cached_property
    def _whole(self) -> bool:
        """Whether no training queries share a place among a model's."""
        return bool((self.members_.data == 1).all())

    def trusted(self, index: Ints, far: Bools) -> Ints:
        """The models named, −1 for those without training pairs and for queries too far from every training query."""
        if len(index) == 1:
            return index if index[0] >= 0 and not far[0] and self.usable_[index[0]] else np.array([-1])
        good = (index >= 0) & ~far
        good[good] = self.usable_[index[good]]
        return np.where(good, index, -1)

    def shared_pairs(self, own: csr_array) -> Iterator[Floats]:
        """How many training pairs each model has in common with each query's neighbours; shared places count in part.

        Without shared places these are whole numbers, so that many queries at once give what each alone does.
        """
        whole = self._whole and bool((own.data == 1).all())
        for first in range(0, own.shape[0], _AT_ONCE) if whole else ():
            part = own[first : first + _AT_ONCE]
            yield from np.asarray(self.members_ @ (part * self.locality.pairs_[None, :]).toarray().T).T
        for query in () if whole else range(own.shape[0]):
            yield self._shared_in_part(own[[query]])

    def _shared_in_part(self, own: csr_array) -> Floats:
        """The same of one query, where equally near training queries share places."""
        pairs, part = np.zeros(own.shape[1]), np.zeros(own.shape[1])
        pairs[own.indices], part[own.indices] = self.locality.pairs_[own.indices], own.data
        if own.data.min(initial=1.0) >= self.members_.data.max(initial=1.0):  # a product: the smaller part is theirs
            return np.asarray(self.members_ @ pairs).ravel()
        smaller = np.minimum(self.members_.data, part[self.members_.indices])
        common = csr_array((smaller, self.members_.indices, self.members_.indptr), shape=self.members_.shape)
        return np.asarray(common @ pairs).ravel()

    def gradients(self) -> Floats | None:
        """Training queries × features: the gradient of each one's loss at the global model, where known."""
        found: Floats | None = getattr(self, "gradients_", None)  # not in models saved by older versions
        return found

    def whom(self, number: int) -> str:
        """Which queries a model is for, in words."""
        if self.models is None:
            return f"queries nearest to training query {self.locality.query_ids_[number]}"
        return f"queries nearest to centre {number}"

    def routed_by_relevance(self, data: Judged) -> Ints | None:
        """The model nearest to each query's relevant documents; −1 without any, None in another view."""
        points = relevant_points(self.locality.view_, data)
        if points is None:
            return None
        return np.where(has_relevant(data), self.nearest_anchor(points), -1)

    def training_queries(self, index: Ints) -> csr_array:
        """The rows of the models named; empty for −1."""
        return without(self.members_[np.maximum(index, 0)], index < 0)
