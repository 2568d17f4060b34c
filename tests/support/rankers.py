"""Every kind of ranker, in several configurations, and data to fit them on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from querywise.contracts.asking import missing_for
from querywise.data.judged import Judged
from querywise.data.synthetic import make_judged
from querywise.learners.classic.adarank import AdaRank
from querywise.learners.classic.hyperplanes import MultipleHyperplanes
from querywise.learners.classic.listnet import ListNet
from querywise.learners.classic.rankboost import RankBoost
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.regression import KernelRidge
from querywise.learners.trees.boosting import LambdaMART, TreeRegression
from querywise.learners.trees.context import QueryContext
from querywise.locality.neighborhoods import Nearest, Radius
from querywise.locality.views.columns import SideBySide
from querywise.locality.views.divergence import Divergence
from querywise.locality.views.learned import GradientView
from querywise.locality.views.text import TextView
from querywise.locality.views.topmean import TopMean, TwoModels
from querywise.methods import METHODS
from querywise.rankers.atvt import ATVT
from querywise.rankers.blend import Blend, NearbyBlend
from querywise.rankers.clusters import Naive, QueryClasses, SelectRanker, Transform
from querywise.rankers.ensemble.ensemble import SER, SSER
from querywise.rankers.knn import KnnOffline1, KnnOffline2, KnnOnline
from querywise.rankers.single import OneFeature, Single
from querywise.rankers.weights.by_query import ForestWeights, WeightsByQuery
from querywise.rankers.weights.fusion import (
    Borda,
    CombMNZ,
    CombSUM,
    Confidence,
    EqualWeights,
    Fusion,
    ReciprocalRank,
    Weights,
)
from querywise.rankers.wrappers import MissingValues, OnRuns, QueryNormalised
from tests.worlds import as_runs, with_gaps

RANKERS: dict[str, Callable[[], Any]] = {
    "RankSVM": RankSVM,
    "RankSVM, hinge": lambda: RankSVM(loss="hinge", pairs="pair"),
    "LambdaMART": lambda: LambdaMART(20),
    "LambdaMART, bag, listwise": lambda: LambdaMART(10, bag=3, objective="rank_xendcg"),
    "Single": lambda: Single(RankSVM()),
    "KnnOnline": lambda: KnnOnline(RankSVM(), k=5),
    "KnnOnline, bare step": lambda: KnnOnline(RankSVM(tolerance=None), k=5),
    "KnnOnline, most queries, prior": lambda: KnnOnline(RankSVM(prior="global", prior_l2=0.5), k=0.7),
    "KnnOnline, hinge": lambda: KnnOnline(RankSVM(loss="hinge", pairs="pair"), k=5),
    "KnnOnline, LambdaMART": lambda: KnnOnline(LambdaMART(5), k=10),
    "KnnOnline, radius": lambda: KnnOnline(RankSVM(), neighborhood=Radius(1.5)),
    "KnnOnline, cosine": lambda: KnnOnline(RankSVM(), view=TopMean(1), neighborhood=Nearest(5, metric="cosine")),
    "KnnOffline1": lambda: KnnOffline1(RankSVM(), k=5),
    "KnnOffline1, two views": lambda: KnnOffline1(RankSVM(), k=5, view=SideBySide([TopMean(0), TopMean(RankSVM(), 3)])),
    "KnnOffline2, back off": lambda: KnnOffline2(RankSVM(), k=5, back_off=0.9),
    "KnnOffline2, few models": lambda: KnnOffline2(RankSVM(), k=5, models=4),
    "KnnOffline2, LambdaMART, prior": lambda: KnnOffline2(LambdaMART(3, prior="global"), k=10, models=3),
    "KnnOnline, text": lambda: KnnOnline(RankSVM(), k=5, view=TextView(3)),
    "KnnOffline2, gradient of two views": lambda: KnnOffline2(
        RankSVM(), k=5, view=GradientView(SideBySide([TopMean(0), TextView(3, lengths=False)]), 2)
    ),
    "QueryClasses": lambda: QueryClasses(RankSVM()),
    "QueryClasses, known": lambda: QueryClasses(RankSVM(), view=TextView(2), known=True),
    "QueryNormalised": lambda: QueryNormalised(KnnOnline(RankSVM(), k=5)),
    "MissingValues": lambda: MissingValues(QueryContext(LambdaMART(5))),
    "LambdaMART, native": lambda: LambdaMART(10, missing="native"),
    "QueryContext": lambda: QueryContext(LambdaMART(10)),
    "QueryContext, linear": lambda: QueryContext(RankSVM(), ["z", "rank"]),
    "QueryContext, text": lambda: QueryContext(LambdaMART(10), ["length", "view"], view=TextView(2)),
    "KnnOffline2, QueryContext": lambda: KnnOffline2(QueryContext(LambdaMART(5, prior="global")), k=10, models=3),
    "Blend": lambda: Blend([RankSVM(), QueryContext(LambdaMART(10, bag=2)), KnnOnline(RankSVM(), k=5)]),
    "Blend, ranks": lambda: Blend([Single(RankSVM()), OneFeature(1)], scores="rank", weights="learned"),
    "NearbyBlend": lambda: NearbyBlend(Blend([RankSVM(), OneFeature(0)]), k=5),
    "NearbyBlend, views": lambda: NearbyBlend(
        Blend([OneFeature(0), OneFeature(1), OneFeature(2)], scores="rank", weights="learned"),
        view=SideBySide([TextView(3), TopMean()]),
        measure="ndcg@3",
        floor=0.9,
        folds=2,
        seed=5,
    ),
    "OneFeature": lambda: OneFeature(1),
    "OneFeature, the best": OneFeature,
    "RankBoost": lambda: RankBoost(20),
    "ListNet": ListNet,
    "AdaRank": lambda: AdaRank(10),
    "AdaRank, NDCG": lambda: AdaRank(10, measure="ndcg@3", repeat=True),
    "MultipleHyperplanes": MultipleHyperplanes,
    "KnnOnline, ListNet": lambda: KnnOnline(ListNet(), k=5),
    "KnnOffline2, RankBoost": lambda: KnnOffline2(RankBoost(5), k=10, models=3),
    "SelectRanker, AdaRank": lambda: SelectRanker(AdaRank(5), 3, 2),
    "KnnOffline2, MultipleHyperplanes": lambda: KnnOffline2(MultipleHyperplanes(), k=10, models=3),
    "CombSUM": CombSUM,
    "CombMNZ": CombMNZ,
    "ReciprocalRank": ReciprocalRank,
    "Borda": Borda,
    "SER": SER,
    "SER, difference": lambda: SER(grades="difference", norm=10.0),
    "SER, rbf": lambda: SER(similarity="rbf", similarity_scale=5.0),
    "SSER": SSER,
    "SSER, norm": lambda: SSER(3.0, grades="difference", norm=10.0, neighbours=2),
    "ATVT": lambda: ATVT(TreeRegression(20)),
    "ATVT, running": lambda: ATVT(TreeRegression(10), variant="running", rounds=2),
    "ATVT, kernel": lambda: ATVT(KernelRidge()),
    "ATVT, landmarks": lambda: ATVT(KernelRidge(exact=10, landmarks=8), penalty="l1"),
    "ATVT, linear kernel, L1": lambda: ATVT(KernelRidge(kernel="linear"), penalty="l1"),
    "Naive": lambda: Naive(RankSVM(), 4),
    "Naive, text, soft": lambda: Naive(RankSVM(), 3, view=TextView(3), softness=0.5),
    "SelectRanker": lambda: SelectRanker(RankSVM(), 4, 3),
    "SelectRanker, prior, floor": lambda: SelectRanker(
        RankSVM(prior="global", prior_l2=0.5), 6, 5, reference=0, floor=0.8, softness=0.7
    ),
    "SelectRanker, hinge": lambda: SelectRanker(RankSVM(loss="hinge", pairs="pair"), 3, 2, reference=1),
    "SelectRanker, LambdaMART": lambda: SelectRanker(LambdaMART(5), 3, 5),
    "Transform": lambda: Transform(RankSVM(), 4),
    "Transform, text and top mean": lambda: Transform(RankSVM(), 5, view=SideBySide([TextView(3), TopMean()])),
    "Transform, more clusters than queries": lambda: Transform(RankSVM(), 500, reference=0, floor=0.5),
    "Transform, LambdaMART": lambda: Transform(LambdaMART(3, prior="global"), 3),
    "KnnOffline2, divergence": lambda: KnnOffline2(RankSVM(), k=5, view=Divergence()),
    "KnnOnline, two models": lambda: KnnOnline(RankSVM(), k=5, view=TwoModels(0)),
    "EqualWeights": EqualWeights,
    "EqualWeights, rank": lambda: EqualWeights("rank"),
    "Weights": Weights,
    "Weights, z-score": lambda: Weights("z-score", measure="ndcg@3"),
    "WeightsByQuery": lambda: WeightsByQuery(folds=2),
    "WeightsByQuery, neighbours": lambda: WeightsByQuery("l2", way="neighbours", kappa=0.5, shrinkage=0.5),
    "WeightsByQuery, top mean": lambda: WeightsByQuery(
        way="neighbours", view=TopMean(), k=3, kappa=0.0, shrinkage=1.0, back_off=None
    ),
    "WeightsByQuery, signals": lambda: WeightsByQuery(way="signals", signals_l2=0.1, shrinkage=1.0),
    "Confidence": Confidence,
    "Confidence, entropy": lambda: Confidence("entropy", "b", normalise="rank"),
    "ForestWeights": lambda: ForestWeights(trees=5),
    "OnRuns, SER": lambda: OnRuns(SER()),
    "OnRuns, CombSUM, z-scores": lambda: OnRuns(CombSUM(), "zscore"),
}


# Whatever the table of methods has beside them: a new ranker is found here as soon as it stands there.
_KNOWN = {type(build()).__name__ for build in RANKERS.values()}


RANKERS |= {name: method.build for name, method in METHODS.items() if method.home.split(":")[1] not in _KNOWN}


def every_kind(turn: int, share: int = 3) -> list[str]:
    """Return the first configuration of every class, and one in `share` of the others: those whose turn it is."""
    others = [name for name in RANKERS if ", " in name]
    return [name for name in RANKERS if ", " not in name or (others.index(name) + turn) % share == 0]


@dataclass(frozen=True)
class Fitted:
    """A ranker after `fit`, what `fit` returned, and the data that it was given."""

    ranker: Any
    returned: Any
    data: Judged


@cache
def fitted_once(name: str) -> Fitted:
    """One plain fit of each configuration, which all tests of a process ask. No test may change it."""
    ranker, data = RANKERS[name](), training(name)
    return Fitted(ranker, ranker.fit(data), data)


def training(name: str) -> Judged:
    return for_ranker(name, worded(make_judged(40, 9, 4, kinds=2, seed=7)))


def for_ranker(name: str, data: Judged) -> Judged:
    """The same data; with missing values for rankers that take them, or its first two features as first-stage runs."""
    ranker = RANKERS[name]()
    if missing_for(ranker) == "allowed":
        return with_gaps(data)
    return as_runs(data) if isinstance(ranker, Fusion | OnRuns) else data


def worded(data: Judged) -> Judged:
    """The same queries with a text each, one of them empty and one missing."""
    table = data.candidates.queries
    assert table is not None
    words = ("how to", "red", "blue", "jaguar", "python", "the")
    texts = [" ".join(words[(row * step) % len(words)] for step in range(1 + row % 4)) for row in range(len(table))]
    return data.with_queries(replace(table, texts=("", None, *texts[2:])))
