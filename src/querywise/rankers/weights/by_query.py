"""Weights of the runs for each query its own, where cross-validation shows that they are better."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Literal, Self

import numpy as np

from querywise.contracts.answers import Answer, Facts, Gain, Once
from querywise.contracts.asking import answers
from querywise.contracts.protocols import QueryView
from querywise.data.judged import Candidates, Judged
from querywise.data.normalisation import EngineNormalisation
from querywise.errors import DataError
from querywise.learners.classic.lists import check_counts
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.rankers.neighbors import Surroundings
from querywise.rankers.weights.choice import FEWEST, cross_validated, shrunk
from querywise.rankers.weights.from_signals import SignalWeights
from querywise.rankers.weights.fusion import Fusion, OwnWeights, Weights
from querywise.rankers.weights.neighbours import NeighbourWeights
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import SHARE, AnyOf, Optional, Several, Text, Whole, contents, floats, part

KAPPAS = (0.25, 1.0, 4.0)
SIGNALS_L2 = (0.1, 1.0, 10.0)
SHRINKAGES = (0.25, 0.5, 1.0)
WAYS = ("chosen", "neighbours", "signals")


class WeightsByQuery(Fusion):
    """Weights of the runs by query: w(q) = (1 − ρ) w̄ + ρ u(q), with w̄ the weights for all queries.

    The runs are what several searches found: data has the columns `run.NAME.score` and `run.NAME.reciprocal_rank` of
    each. u(q) comes from the query's neighbours (NeighbourWeights) or from its signals (SignalWeights). What is left
    open is chosen by cross-validation over training and validation queries: anything but w̄ is taken only if its mean
    gain per query exceeds one standard error, and that of the choice itself three. Where nothing is left open, nothing
    is compared. A query far from all training queries has w̄.

    normalise: how a run's scores are made comparable over its own list, as engines do it. opensearch-min-max, l2 and
    z-score are OpenSearch's; rank is 1/(60 + rank), as in reciprocal rank fusion. A document that a run did not find
    counts 0 there.
    measure: the measure that weights maximise: map, ndcg or ndcg@k.
    way: where a query's own weights come from: its neighbours, its signals, or whichever is better.
    view: where neighbours are sought; by default by the query's text, without texts by the mean of its top documents.
    k: how many training queries are neighbours, from 1 up, or, as a float above 0 and up to 1, which share of them.
    kappa: how much all training queries count beside the neighbours, from 0 up; none is chosen among 0.25, 1 and 4.
    l2: the penalty on the common part of the weights from signals; above 0.
    signals_l2: the penalty on what signals change, above 0; none is chosen among 0.1, 1 and 10.
    shrinkage: ρ, the share of a query's own weights, from 0 to 1; none is chosen among 0.25, 0.5 and 1.
    back_off: a share of the training queries; a query farther from its nearest training query than that share of them
    is from each other gets the weights for all queries. Above 0 and up to 1; None never backs off.
    folds: parts of the cross-validation, from 2 up.
    seed: how queries are cut into these parts.

    After fit, `weights_` are w̄, one per run. `run_weights(candidates)` has the weights of each query.

    Refused: with DataError, a parameter out of its range, and data of fewer than two runs.

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

    stored = contents(
        way_=Optional(
            AnyOf((part(NeighbourWeights, runs="runs"), part(SignalWeights, runs="runs")), "weights by query")
        ),
        shrinkage_=SHARE,
        tried_=Several(Text(), "tried"),
        gains_=floats("tried", 2),
        taken_=Whole(-1, below="tried"),
    )

    def __init__(
        self,
        normalise: EngineNormalisation = "opensearch-min-max",
        *,
        measure: str = "map",
        way: Literal["chosen", "neighbours", "signals"] = "chosen",
        view: QueryView | None = None,
        k: float = 0.1,
        kappa: float | None = None,
        l2: float = 0.01,
        signals_l2: float | None = None,
        shrinkage: float | None = None,
        back_off: float | None = 0.95,
        folds: int = 5,
        seed: int = 0,
    ) -> None:
        self.normalise = normalise
        self.measure = measure
        self.way = way
        self.view = view
        self.k = k
        self.kappa = kappa
        self.l2 = l2
        self.signals_l2 = signals_l2
        self.shrinkage = shrinkage
        self.back_off = back_off
        self.folds = folds
        self.seed = seed

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Find the weights for all queries, then compare the ways to weights by query with them, `valid` included."""
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
        self.way_: NeighbourWeights | SignalWeights | None = None
        self.shrinkage_ = 0.0
        if taken >= 0:
            chosen, self.shrinkage_ = list(product(ways, shrinkages))[taken]
            self.way_ = unfitted(chosen).fit(lists, everyone)
        self.tried_ = tuple(each.tried for each in tried)
        self.gains_ = np.array([each[1:3] for each in tried], np.float64).reshape(-1, 2)
        self.taken_ = taken if tried else -1
        return self

    @answers
    def answer(self, candidates: Candidates, /) -> Answer:
        """Weights of its own for each query that is near enough to the training queries; w̄ for the others."""
        seen, way, facts = self.lists(candidates), self.way_, self._facts
        if way is None:
            return self.fused(seen, facts=facts)
        common, shrinkage = self.weights_, self.shrinkage_

        def own() -> OwnWeights:
            found = way.own(candidates, around.points(), around.is_far)
            return OwnWeights(shrunk(found.weights, common, shrinkage), found.local)

        around = Surroundings(way.locality_, candidates)
        teachers = None
        if isinstance(way, NeighbourWeights):
            neighbours: NeighbourWeights = way
            teachers = Once(lambda: neighbours.neighbours(around.points(), around.is_far()))
        return self.fused(seen, own, teachers=teachers, place=around.place(RankSVM(), lambda: None), facts=facts)

    @property
    def _facts(self) -> Callable[[], Facts]:
        gains = tuple(
            Gain(tried, float(self.gains_[number, 0]), float(self.gains_[number, 1]), number == self.taken_)
            for number, tried in enumerate(self.tried_)
        )
        return lambda: Facts(gains=gains)

    def _ways(self) -> list[NeighbourWeights | SignalWeights]:
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
