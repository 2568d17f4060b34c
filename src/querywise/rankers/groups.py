"""A model for each group of training queries: what Naive, SelectRanker and Transform are made of."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.sparse import csr_array, vstack

from querywise.contracts.answers import Sizes, local_or_global
from querywise.contracts.protocols import Grouping, Learner, Models, QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.learners.local_models import prepared
from querywise.locality.groupings import RelevantClusters, nearest_centre
from querywise.locality.views.looking import relevant_points
from querywise.rankers.neighbors import fitted_view, has_relevant
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import contents, floats, part

_ENOUGH = 2  # queries to learn from without which a group gets the global model


class GroupModels:
    """A model for each group of training queries, and the global one.

    Groups with fewer than two queries to learn from get a row of everyone: their model is the global one.
    """

    stored = contents(
        everyone_=part(Ranker),
        view_=part(QueryView, coordinates="coordinates"),
        grouping_=part(Grouping, coordinates="coordinates", groups="models"),
        teachers_=floats("models", least=0.0),
        models_=part(Models, models="models"),
    )

    def __init__(self, view: QueryView, grouping: Grouping) -> None:
        self.view = view
        self.grouping = grouping

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
        """How many groups there are, and how many of them have one query to learn from, or none."""
        return Sizes(len(self.teachers_), int(np.sum(self.teachers_ == 1)), int(np.sum(self.teachers_ == 0)))

    def points(self, candidates: Candidates) -> Floats:
        """The queries' positions in the view."""
        return cached("points", self.view_, candidates, lambda: np.asarray(self.view_.points(candidates)))

    def distances(self, candidates: Candidates) -> Floats:
        """Queries × groups."""
        return self.grouping_.distances(self.points(candidates))

    def blend(self, candidates: Candidates, weights: Floats) -> Floats:
        """Scores by mixtures of the models, by the global one where all weights are 0."""
        return local_or_global(
            candidates,
            weights.sum(axis=1) > 0,
            lambda queries, part: self.models_.blend(part, weights[queries]),
            self.everyone_,
        )

    def routed_by_relevance(self, data: Judged) -> Ints | None:
        """The group nearest to each query's relevant documents; −1 without any, None in another view."""
        points = relevant_points(self.view_, data)
        if points is None:
            return None
        return np.where(has_relevant(data), nearest_centre(self.grouping_.distances(points)), -1)


def _or_everyone(members: csr_array, thin: Bools) -> csr_array:
    """The rows of the groups, those that are too thin replaced by a row of everyone."""
    if not thin.any():
        return members
    everyone = csr_array(np.ones((1, members.shape[1])))
    return csr_array(vstack([everyone if each else members[[row]] for row, each in enumerate(thin)]))
