"""A blend that weights each ranker, per query, by how well it ranked the most similar training queries [lin2011]_."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.answers import Answer, Once, Place, Stored, ready
from querywise.contracts.asking import AnyRanker, answers, predicts
from querywise.contracts.protocols import QueryView
from querywise.data.judged import Candidates, Judged
from querywise.learners.local_models import FittedModels
from querywise.locality.combinations import check_floor, normalised, without_the_weak
from querywise.locality.neighborhoods import Nearest
from querywise.locality.views.looking import looked_at, without_vector
from querywise.rankers.blend import Blend, scores_of
from querywise.rankers.cross_fitting import CrossFitted, CrossFitting, signals_and_places, views_of
from querywise.rankers.neighbors import fitted_view
from querywise.rankers.score_signals import usual_spreads
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import cached
from querywise.runtime.parameters import unfitted
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import FITTED, SHARE, Absent, Known, Optional, Several, contents, floats, part, require


class NearbyBlend(AnyRanker):
    """A blend that weights each ranker, per query, by how well it ranked the most similar training queries.

    SelectRanker's rule over any rankers: a weight is the sum of `measure` (map, ndcg or ndcg@k) of the ranker on the k
    nearest training queries, each scored by a blend that was fitted on other `folds`, times the blend's own weight.
    k: their number, or, between 0 and 1, their share. Distance uses no labels: how far the rankers agree, how spread
    their scores are (`rankers/score_signals.py`), and the position in a view, if one is given, but no
    GradientView or LearnedMetric. floor: rankers below such a share of the largest weight are left out.
    """

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

    def __init__(
        self,
        blend: Blend,
        k: float = 0.1,
        *,
        floor: float = 0.0,
        view: QueryView | None = None,
        folds: int = 3,
        measure: str = "map",
        seed: int = 0,
    ) -> None:
        self.blend = blend
        self.k = k
        self.floor = floor
        self.view = view
        self.folds = folds
        self.measure = measure
        self.seed = seed

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

    @predicts
    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document, comparable within its query."""
        return self.answer(candidates).scores()

    @answers
    def answer(self, candidates: Candidates, /) -> Answer:
        """Every ranker's answer, with weights of its own for each query."""
        seen = ready(self, candidates)
        blended = self.blend_.answer(seen)
        every = Once(lambda: scores_of(blended.members))
        weights = Once(lambda: self._weights(every(), candidates))

        def scores() -> Floats:
            found = np.zeros(len(candidates.features))
            for column, weight in zip(self.blend_.comparable(every(), candidates).T, weights().T, strict=True):
                found += np.repeat(weight, candidates.sizes) * column
            return found

        options = self.several_models()
        return blended._replace(
            scores=Once(scores),
            varies=self.nearest_ is not None or blended.varies,
            shares=Once(lambda: csr_array(weights())),
            stored=Stored(options, lambda number: f"option {number}", np.ones(len(options), np.bool_)),
            place=self._place(seen),
            refused=self.blend_.refusal(type(self)),
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
        return self.answer(candidates).shares().toarray()

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
