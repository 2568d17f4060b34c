"""The table of methods by name, used by the command line, comparisons and the docs.

A method is a function that builds a ranker: its name, with hyphens, is the method's name, the first line of its
docstring is the description, and its parameters are settings, in addition to the parameters of
the ranker's class that `takes` names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

import querywise.methods.parts as parts
from querywise.errors import DataError
from querywise.methods.method import Made, Method, Value
from querywise.methods.parts import normalised, with_missing, with_missing_or_native
from querywise.runtime.values import Grid, JsonObject, Settings

if TYPE_CHECKING:
    from querywise.contracts.protocols import Ranker
    from querywise.learners.trees.boosting import LambdaMART

RECOMMENDED = "blend"
RENAMED = {"querywise": RECOMMENDED}  # former name → current name
METHODS: dict[str, Method] = {}
PEERS: dict[str, Method] = {}  # of other libraries, for comparison only: they are neither saved nor served

_LEARNERS = "querywise.learners"
_RANKERS = "querywise.rankers"
_CLASSIC = f"{_LEARNERS}.classic"
_ENSEMBLE = f"{_RANKERS}.ensemble.ensemble"
_FUSION = f"{_RANKERS}.weights"

_L2 = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_KNN = {"l2": (0.1, 1.0, 10.0), "k": (0.1, 0.2, 0.35, 0.6), "prior_l2": (0.0, 0.5, 5.0)}
_CLUSTERS = {"l2": (0.1, 1.0, 10.0), "clusters": (5, 20, 50), "prior_l2": (0.0, 0.5, 5.0)}
_SHRINKAGE = {"learning_rate": (0.03, 0.1)}
_SMOOTHNESS = {"l2": (0.1, 1.0, 10.0)}
_AGREEMENTS = {"norm": (None, 10.0), "cost": (0.1, 1.0, 10.0), "grades": ("three", "difference")}
_NEARBY_AGREEMENTS = {**_AGREEMENTS, "gamma": (0.0, 0.1, 0.5, 2.0, 5.0)}
_AGREEMENT = ("cost", "grades", "theta", "smoothing", "similarity", "similarity_scale", "norm")
_TRANSFORMS = {"scale_penalty": (1.0, 10.0, 100.0), "shift_penalty": (0.1, 1.0, 10.0)}
_PEER = ("trees", "depth", "learning_rate", "patience", "bag", "seed")
_BY_QUERY = ("normalise", "measure", "way", "k", "kappa", "l2", "signals_l2", "shrinkage", "back_off", "folds", "seed")
_SELECTION = ("clusters", "k", "with_relevant", "reference", "floor", "softness", "seed")
_PLANE = ("clusters", "reference", "top", "floor", "softness", "seed")
_TARGETS = (
    "penalty", "scale_penalty", "shift_penalty", "variant", "rounds", "stop", "nonnegative", "transform", "per",
)  # fmt: skip
_FILLED = (with_missing,)  # wrappers of rankers whose features are not normalized within their query
_RUNS: tuple[Made, ...] = ()  # no wrappers for rankers of runs, where documents that a run did not retrieve are 0


def _method(
    home: str,
    *takes: str,
    grid: Grid | None = None,
    grids: Mapping[str, Grid] | None = None,
    around: tuple[Made, ...] = (normalised, with_missing),
    table: dict[str, Method] = METHODS,
) -> Callable[[Made], Made]:
    """Register a function as a method of the class at `home`; see Method for the other parameters."""

    def added(factory: Made) -> Made:
        name = factory.__name__.replace("_", "-")
        told = (factory.__doc__ or "").partition("\n")[0].removesuffix(".")
        description = told[:1].lower() + told[1:]
        table[name] = Method(name, description, home, takes, grid or {}, grids or {}, factory, around)
        return factory

    return added


@_method(f"{_RANKERS}.single:OneFeature", around=_FILLED)
def bm25(ranker: Made, reference: int | str | None = None) -> Ranker:
    """No learning: one feature as the score, BM25 or the one named by reference.

    Args:
        reference: its name, or its number from 0; none is BM25 as this library computes it.
    """
    from querywise.retrieval.scores import BM25

    return ranker(BM25 if reference is None else reference)


@_method(f"{_RANKERS}.single:OneFeature", around=_FILLED)
def vectors(ranker: Made) -> Ranker:
    """No learning: the similarity of a document's vector and the query's own as the score."""
    return ranker("similarity.plain")


@_method(f"{_RANKERS}.single:OneFeature", around=_FILLED)
def vectors_adapted(ranker: Made) -> Ranker:
    """The similarity of a document's vector and the query's, adapted if `adapt` says so, as the score."""
    return ranker("similarity")


@_method(
    f"{_LEARNERS}.ranksvm.ranksvm:RankSVM",
    *("l2", "loss", "pairs", "scale", "tolerance", "nonnegative"),
    grid={"l2": _L2},
)
def ranksvm(ranker: Made) -> Ranker:
    """One linear model for all queries, trained on preference pairs."""
    return ranker()


@_method(
    f"{_LEARNERS}.trees.boosting:LambdaMART",
    *(*parts.GROWTH, "objective", "bag"),
    grid={"leaves": (7, 15, 31), **_SHRINKAGE},
    around=(normalised, with_missing_or_native),
)
def lambdamart(ranker: type[LambdaMART], signals: parts.Signals) -> Ranker:
    """One forest of boosted trees for all queries (LightGBM)."""
    from querywise.learners.trees.context import QueryContext

    return ranker() if signals is None else QueryContext(ranker(), ("view",), view=signals)


@_method(f"{_RANKERS}.single:Single", grid={"l2": _L2})
def single(learner: parts.SVM, ranker: Made) -> Ranker:
    """One ranking SVM for all queries: the baseline of the methods below."""
    return ranker(learner())


@_method(f"{_RANKERS}.clusters:QueryClasses", "known", "seed", grid={"l2": _L2})
def query_classes(learner: parts.SVM, view: parts.View, ranker: Made) -> Ranker:
    """One model per class of query, and a classifier."""
    return ranker(learner(), view=view)


@_method(f"{_RANKERS}.knn:KnnOnline", "k", "back_off", grid=_KNN)
def knn_online(learner: parts.Learner, view: parts.View, neighborhood: parts.Neighborhood, ranker: Made) -> Ranker:
    """A separate model for each query, trained on its neighbors."""
    return ranker(learner, view=view, neighborhood=neighborhood)


@_method(f"{_RANKERS}.knn:KnnOffline1", "k", "back_off", "models", grid=_KNN)
def knn_offline_1(learner: parts.Learner, view: parts.View, neighborhood: parts.Neighborhood, ranker: Made) -> Ranker:
    """Rank with the stored model that shares the most training pairs."""
    return ranker(learner, view=view, neighborhood=neighborhood)


@_method(f"{_RANKERS}.knn:KnnOffline2", "k", "back_off", "models", grid=_KNN)
def knn_offline_2(learner: parts.Learner, view: parts.View, neighborhood: parts.Neighborhood, ranker: Made) -> Ranker:
    """Rank with the stored model of the nearest training query."""
    return ranker(learner, view=view, neighborhood=neighborhood)


@_method(f"{_RANKERS}.clusters:Naive", "clusters", "top", "softness", "seed", grid={**_CLUSTERS, "top": (5, 50)})
def naive(learner: parts.Learner, view: parts.OwnView, ranker: Made) -> Ranker:
    """A model per cluster of relevant documents; a query is ranked by the model of the nearest cluster."""
    return ranker(learner, view=view)


@_method(f"{_RANKERS}.clusters:SelectRanker", *_SELECTION, grid={**_CLUSTERS, "k": (5, 20), "floor": (0.0, 0.7)})
def select_ranker(learner: parts.Learner, view: parts.SelectView, ranker: Made) -> Ranker:
    """The models of naive, blended by how well each ranks similar training queries."""
    return ranker(learner, view=view)


@_method(f"{_RANKERS}.clusters:Transform", *_PLANE, grid={**_CLUSTERS, "top": (5, 50), "floor": (0.0, 0.5)})
def transform(learner: parts.Learner, view: parts.OwnView, ranker: Made) -> Ranker:
    """A model per cluster in the plane of two models, blended by distance."""
    return ranker(learner, view=view)


@_method(f"{_RANKERS}.atvt:ATVT", grid=_SHRINKAGE, grids={"kernel": _SMOOTHNESS})
def regression(regressor: parts.Regressor, ranker: Made) -> Ranker:
    """One regression for all queries, on the grades: the baseline of the next method."""
    return ranker(regressor, rounds=0)  # no transformation


@_method(
    f"{_RANKERS}.atvt:ATVT",
    *_TARGETS,
    grid={**_SHRINKAGE, **_TRANSFORMS},
    grids={"kernel": {**_SMOOTHNESS, **_TRANSFORMS}},
)
def atvt(regressor: parts.Regressor, ranker: Made) -> Ranker:
    """One regression, learned as if queries differed in level and scale."""
    return ranker(regressor)


@_method(f"{_ENSEMBLE}:SER", *_AGREEMENT, grid=_AGREEMENTS, around=_FILLED)
def ser(ranker: Made) -> Ranker:
    """An ensemble in which every feature is a ranker with one non-negative weight."""
    return ranker()


@_method(f"{_ENSEMBLE}:SSER", "gamma", "neighbours", *_AGREEMENT, grid=_NEARBY_AGREEMENTS, around=_FILLED)
def sser(ranker: Made) -> Ranker:
    """The same, with new weights for each query from its own documents."""
    return ranker()


@_method(
    f"{_CLASSIC}.rankboost:RankBoost",
    *("rounds", "thresholds", "learning_rate", "patience"),
    grid={"thresholds": (8, 16, 64), "learning_rate": (0.3, 1.0)},
)
def rankboost(ranker: Made) -> Ranker:
    """Thresholds on single features, boosted over preference pairs."""
    return ranker()


@_method(f"{_CLASSIC}.listnet:ListNet", "l2", grid={"l2": (0.01, 0.03, 0.1, 0.3, 1.0)})
def listnet(ranker: Made) -> Ranker:
    """One linear model, trained on whole lists."""
    return ranker()


@_method(f"{_CLASSIC}.adarank:AdaRank", "rounds", "measure", "repeat", "patience")
def adarank(ranker: Made) -> Ranker:
    """Single features, boosted over queries by MAP or NDCG."""
    return ranker()


@_method(f"{_CLASSIC}.hyperplanes:MultipleHyperplanes", "l2", "loss", "pairs", grid={"l2": (0.1, 1.0, 3.0)})
def mhr_bc(ranker: Made) -> Ranker:
    """A ranking SVM per pair of grades, combined by Borda count."""
    return ranker()


@_method(f"{_FUSION}.fusion:EqualWeights", around=_RUNS)
def rrf(ranker: Made) -> Ranker:
    """No learning: first-stage runs by reciprocal ranks."""
    return ranker("rank")


@_method(f"{_FUSION}.fusion:EqualWeights", "normalise", around=_RUNS)
def combsum(ranker: Made) -> Ranker:
    """No learning: the sum of first-stage runs' normalized scores."""
    return ranker()


@_method(f"{_FUSION}.fusion:Weights", "normalise", "measure", around=_RUNS)
def weights(ranker: Made) -> Ranker:
    """One weight per first-stage run for all queries."""
    return ranker()


# The method itself tries its settings.
@_method(f"{_FUSION}.by_query:WeightsByQuery", *_BY_QUERY, grid={"view": (None,)}, around=_RUNS)
def weights_by_query(view: parts.OwnView, ranker: Made) -> Ranker:
    """Separate weights of first-stage runs for each query, if cross-validation shows a gain."""
    return ranker(view=view)


@_method(f"{_FUSION}.fusion:Confidence", "run", "normalise", around=_RUNS)
def margin(ranker: Made) -> Ranker:
    """No labels: a run's weight is the margin of its top score (by default of the last run, such as vectors)."""
    return ranker("margin")


@_method(f"{_FUSION}.fusion:Confidence", "run", "normalise", around=_RUNS)
def entropy(ranker: Made) -> Ranker:
    """No labels: a run's weight is the entropy of its scores (by default of the first run, such as BM25)."""
    return ranker("entropy")


@_method(f"{_FUSION}.by_query:ForestWeights", "normalise", "measure", "trees", "seed", around=_RUNS)
def forest(ranker: Made) -> Ranker:
    """Weights of first-stage runs that a random forest predicts from a query's signals."""
    return ranker()


@_method(
    f"{_RANKERS}.blend:Blend",
    *("scores", "weights", "measure", "shrinkage"),
    grid={"scores": ("standard", "rank")},
    around=_FILLED,
)
def blend(
    *,
    forest: parts.Bagged,
    context: Sequence[str] = ("z",),
    signals: parts.Signals,
    learner: parts.HeldLearner,
    view: parts.View,
    online: parts.Online,
    ranker: Made,
) -> Ranker:
    """A blend of trees that see their query's other candidates and of knn-online; the one to try first.

    Args:
        context: which of the groups mean, spread, z, rank and length; z alone did best on validation data.
    """
    from querywise.learners.trees.context import QueryContext

    columns = context if signals is None else (*context, "view")
    pairwise = QueryContext(forest(objective="lambdarank"), columns, view=signals)
    listwise = QueryContext(forest(objective="rank_xendcg"), columns, view=signals)
    learner.tolerance = None  # certified models do not improve it
    return ranker([pairwise, listwise, online(learner, view=view)])


# Two settings beyond LambdaMART's own grid, around those that their documentation recommends.
@_method(
    f"{_LEARNERS}.peers:XGBoost",
    *(*_PEER, "objective"),
    grid={"depth": (3, 6), "learning_rate": (0.03, 0.1), "objective": ("rank:ndcg", "rank:map")},
    table=PEERS,
)
def xgboost(ranker: Made) -> Ranker:
    """One forest for all queries, by XGBoost: for comparison only."""
    return ranker()


@_method(
    f"{_LEARNERS}.peers:CatBoost",
    *(*_PEER, "mode"),
    grid={"depth": (4, 6), "learning_rate": (0.03, 0.1), "mode": ("Classic", "NDCG")},
    table=PEERS,
)
def catboost(ranker: Made) -> Ranker:
    """One forest of symmetric trees for all queries, by CatBoost's YetiRank: for comparison only."""
    return ranker()


def find_method(name: str, *, peers: bool = False) -> Method:
    """Return the method of that name, current or former; with `peers`, also one of another library."""
    name = current_name(name)
    if name in PEERS and peers:
        return PEERS[name]
    if name in PEERS:
        raise DataError(f"{name} belongs to another library: compare accepts it; train and save it with {name} itself.")
    if name not in METHODS:
        known = [*METHODS, *(PEERS if peers else ())]
        near = [each for each in known if name and name in each] or get_close_matches(name, known)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise DataError(f"Unknown method {name!r}. Known: {', '.join(known)}.{meant}")
    return METHODS[name]


def current_name(name: str) -> str:
    """Return the current name of a method given by a former one; return other names unchanged."""
    return RENAMED.get(name, name)


def recommended(**settings: Value) -> Ranker:
    """The ranker to try first, not fitted: the method `blend`, with its defaults or other settings.

    It adds up three rankers' scores within each query: LambdaMART by two objectives, on features beside those of the
    query's other candidates, each the mean of five forests; and a linear model for each query, learned from the
    training queries most like it. No other knowledge is needed: `recommended().fit(train, valid=valid)`; the validation
    part determines the number of trees.

    Args:
        settings: by name, those that `querywise methods blend` and docs/methods.md list, such as `bag=1` for one forest
            instead of five, which takes a fifth of the time.

    Returns:
        A Blend, not fitted.

    Raises:
        DataError: A setting that is unknown or of another type.

    >>> from querywise import make_judged, recommended, split
    >>> train, valid, test = split(make_judged(50, 20, 4))
    >>> ranker = recommended(bag=1, trees=20).fit(train, valid=valid)
    >>> len(ranker.names()), ranker.predict(test).shape
    (3, (200,))
    """
    return METHODS[RECOMMENDED].build(**settings)


def described(method_name: str, parameters: Settings) -> list[JsonObject]:
    """Return every setting of a fitted method as JSON, with the value in force; empty for an unknown method."""
    method = METHODS.get(current_name(method_name))
    return [
        {**each.as_json(), "value": parameters.get(name, each.default)}
        for name, each in (method.settings.items() if method is not None else ())
    ]
