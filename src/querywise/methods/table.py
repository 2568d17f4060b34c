"""The names people type, and what they stand for: one table that the command line, comparisons and the docs read."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from querywise.errors import DataError
from querywise.methods.building import Part
from querywise.methods.method import Method
from querywise.methods.peers import PEERS
from querywise.methods.settings import Value
from querywise.runtime.values import JsonObject, Settings

if TYPE_CHECKING:
    from querywise.contracts.protocols import Ranker

_JOINING = "querywise.methods.joining"
_LEARNERS = "querywise.learners"
_RANKERS = "querywise.rankers"
_FUSION = f"{_RANKERS}.weights"
_RANKSVM = f"{_LEARNERS}.ranksvm.ranksvm:RankSVM"
_LAMBDAMART = f"{_LEARNERS}.trees.boosting:LambdaMART"

_GROWTH = ("trees", "leaves", "learning_rate", "min_documents", "seed")
_AGREEMENT = ("cost", "grades", "theta", "smoothing", "similarity", "similarity_scale", "norm")
_BY_QUERY = (
    "normalise",
    "measure",
    "way",
    "k",
    "kappa",
    "l2",
    "signals_l2",
    "shrinkage",
    "back_off",
    "folds",
    "seed",
)
_TARGETS = (
    "penalty", "scale_penalty", "shift_penalty", "variant", "rounds", "stop", "nonnegative", "transform", "per",
)  # fmt: skip
_SVM = Part(_RANKSVM, ("l2", "loss", "pairs"))
_WHOLE_SVM = Part(_RANKSVM, ("l2", "loss", "pairs", "scale", "tolerance"))
_TOP_MEAN = Part("querywise.locality.views.topmean:TopMean", ("reference", "top"))
_VIEW = Part("querywise.methods.views:view_named", ("view",), {"top_mean": _TOP_MEAN})
_OWN_VIEW = replace(_VIEW, differs={"view": None})  # of rankers with a view of their own
_LOCAL = Part(f"{_JOINING}:local_learner", ("base", "prior_l2"), {"linear": _WHOLE_SVM, "forest": Part(_LAMBDAMART)})
_NEAR = Part(
    f"{_JOINING}:neighborhood",
    ("radius",),
    {"nearest": Part("querywise.locality.neighborhoods:Nearest", ("k", "metric", "search"))},
)
_REGRESSOR = Part(
    f"{_JOINING}:regressor",
    ("base",),
    {
        "forest": Part(f"{_LEARNERS}.trees.boosting:TreeRegression", _GROWTH),
        "smooth": Part(f"{_LEARNERS}.regression.kernel:KernelRidge", ("kernel", "width", "l2", "seed")),
    },
)
_LOCAL_RANKER = {"learner": _LOCAL, "view": _VIEW, "neighborhood": _NEAR}
_CLUSTERED = {"learner": _LOCAL, "view": _OWN_VIEW}


def _with_signals(learner: Part) -> Part:
    """The same trees, which see the signals of a query if that is asked for."""
    return Part(f"{_JOINING}:with_signals", ("signals",), {"learner": learner})


def _blend() -> Part:
    """Trees in their query's context, by both objectives, and a local linear model for each query."""
    forests = [
        _with_signals(
            Part(
                f"{_LEARNERS}.trees.context:QueryContext",
                ("columns",),
                {"learner": Part(_LAMBDAMART, (*_GROWTH, "bag"), differs={"bag": 5, "objective": objective})},
                called={"columns": "context"},
            )
        )
        for objective in ("lambdarank", "rank_xendcg")
    ]
    linear = Part(_RANKSVM, ("l2",), differs={"l2": 0.1, "tolerance": None})  # certified models do not improve it
    local = Part(f"{_JOINING}:local_learner", ("prior_l2",), {"linear": linear}, {"prior_l2": 5.0})
    online = Part(f"{_RANKERS}.knn:KnnOnline", ("k", "back_off"), {"learner": local, "view": _VIEW})
    own = ("scores", "weights", "measure", "shrinkage")
    return Part(f"{_RANKERS}.blend:Blend", own, {"rankers": (*forests, online)})


RECOMMENDED = "blend"
RENAMED = {"querywise": RECOMMENDED}  # former name → current name

_L2 = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_KNN_GRID = {"l2": (0.1, 1.0, 10.0), "k": (0.1, 0.2, 0.35, 0.6), "prior_l2": (0.0, 0.5, 5.0)}
_CLUSTERS_GRID = {"l2": (0.1, 1.0, 10.0), "clusters": (5, 20, 50), "prior_l2": (0.0, 0.5, 5.0)}

_SHRINKAGE = {"learning_rate": (0.03, 0.1)}
_SMOOTHNESS = {"l2": (0.1, 1.0, 10.0)}
_AGREEMENTS = {"norm": (None, 10.0), "cost": (0.1, 1.0, 10.0), "grades": ("three", "difference")}
_TRANSFORMS = {"scale_penalty": (1.0, 10.0, 100.0), "shift_penalty": (0.1, 1.0, 10.0)}

METHODS = {
    method.name: method
    for method in (
        Method(
            "bm25",
            "no learning: one feature as the score, BM25 or the one named by reference",
            Part(f"{_RANKERS}.column:OneFeature", (), {"feature": Part(f"{_JOINING}:feature", ("reference",))}),
            normalisable=False,
        ),
        Method(
            "vectors",
            "no learning: the similarity of a document's vector and the query's as the score",
            Part(f"{_RANKERS}.column:OneFeature", differs={"feature": "similarity"}),
            normalisable=False,
        ),
        Method(
            "ranksvm",
            "one linear model for all queries, trained on preference pairs",
            _WHOLE_SVM,
            {"l2": _L2},
        ),
        Method(
            "lambdamart",
            "one forest of boosted trees for all queries (LightGBM)",
            _with_signals(Part(_LAMBDAMART, (*_GROWTH, "objective", "bag"))),
            {"leaves": (7, 15, 31), "learning_rate": (0.03, 0.1)},
            missing="native",
        ),
        Method(
            "single",
            "one ranking SVM for all queries: what those below are measured against",
            Part(f"{_RANKERS}.single:Single", (), {"learner": _SVM}),
            {"l2": _L2},
        ),
        Method(
            "query-classes",
            "one model per class of query, and a classifier",
            Part(f"{_RANKERS}.classes:QueryClasses", ("known", "seed"), {"learner": _SVM, "view": _VIEW}),
            {"l2": _L2},
        ),
        Method(
            "knn-online",
            "a model of its own for each query, from its neighbours",
            Part(f"{_RANKERS}.knn:KnnOnline", ("k", "back_off"), _LOCAL_RANKER),
            _KNN_GRID,
        ),
        Method(
            "knn-offline-1",
            "the stored model that shares most training pairs",
            Part(f"{_RANKERS}.knn:KnnOffline1", ("k", "back_off", "models"), _LOCAL_RANKER),
            _KNN_GRID,
        ),
        Method(
            "knn-offline-2",
            "the stored model of the nearest training query",
            Part(f"{_RANKERS}.knn:KnnOffline2", ("k", "back_off", "models"), _LOCAL_RANKER),
            _KNN_GRID,
        ),
        Method(
            "naive",
            "a model per cluster of relevant documents; the nearest cluster's answers",
            Part(f"{_RANKERS}.clusters:Naive", ("clusters", "top", "softness", "seed"), _CLUSTERED),
            {**_CLUSTERS_GRID, "top": (5, 50)},
        ),
        Method(
            "select-ranker",
            "the models of naive, blended by how well each ranks similar training queries",
            Part(
                f"{_RANKERS}.clusters:SelectRanker",
                ("clusters", "k", "with_relevant", "reference", "floor", "softness", "seed"),
                {
                    "learner": _LOCAL,
                    "view": replace(_OWN_VIEW, inside={"top_mean": replace(_TOP_MEAN, differs={"top": 10})}),
                },
            ),
            {**_CLUSTERS_GRID, "k": (5, 20), "floor": (0.0, 0.7)},
        ),
        Method(
            "transform",
            "a model per cluster in the plane of two models, blended by distance",
            Part(
                f"{_RANKERS}.clusters:Transform",
                ("clusters", "reference", "top", "floor", "softness", "seed"),
                _CLUSTERED,
            ),
            {**_CLUSTERS_GRID, "top": (5, 50), "floor": (0.0, 0.5)},
        ),
        Method(
            "regression",
            "one regression for all queries, on the grades: what the next is measured against",
            Part(f"{_RANKERS}.atvt:ATVT", (), {"regressor": _REGRESSOR}, {"rounds": 0}),  # no transformation
            _SHRINKAGE,
            {"kernel": _SMOOTHNESS},
        ),
        Method(
            "atvt",
            "one regression, learned as if queries differed in level and scale",
            Part(
                f"{_RANKERS}.atvt:ATVT",
                _TARGETS,
                {"regressor": _REGRESSOR},
            ),
            {**_SHRINKAGE, **_TRANSFORMS},
            {"kernel": {**_SMOOTHNESS, **_TRANSFORMS}},
        ),
        Method(
            "ser",
            "an ensemble: every feature a ranker, one weight each, none negative",
            Part(f"{_RANKERS}.ensemble.ensemble:SER", _AGREEMENT),
            _AGREEMENTS,
            normalisable=False,
        ),
        Method(
            "sser",
            "the same, weighted anew for each query by its own documents",
            Part(f"{_RANKERS}.ensemble.ensemble:SSER", ("gamma", "neighbours", *_AGREEMENT)),
            {**_AGREEMENTS, "gamma": (0.0, 0.1, 0.5, 2.0, 5.0)},
            normalisable=False,
        ),
        Method(
            "rankboost",
            "thresholds on single features, boosted over preference pairs",
            Part(f"{_LEARNERS}.classic.rankboost:RankBoost", ("rounds", "thresholds", "learning_rate", "patience")),
            {"thresholds": (8, 16, 64), "learning_rate": (0.3, 1.0)},
        ),
        Method(
            "listnet",
            "one linear model, trained on whole lists",
            Part(f"{_LEARNERS}.classic.listnet:ListNet", ("l2",)),
            {"l2": (0.01, 0.03, 0.1, 0.3, 1.0)},
        ),
        Method(
            "adarank",
            "single features, boosted over queries by MAP or NDCG",
            Part(f"{_LEARNERS}.classic.adarank:AdaRank", ("rounds", "measure", "repeat", "patience")),
        ),
        Method(
            "mhr-bc",
            "a ranking SVM per pair of grades, combined by Borda count",
            Part(f"{_LEARNERS}.classic.hyperplanes:MultipleHyperplanes", ("l2", "loss", "pairs")),
            {"l2": (0.1, 1.0, 3.0)},
        ),
        Method(
            "rrf",
            "no learning: first-stage runs by reciprocal ranks",
            Part(f"{_FUSION}.fusion:EqualWeights", (), differs={"normalise": "rank"}),
            normalisable=False,
            missing="refused",  # what a run did not find is 0
        ),
        Method(
            "combsum",
            "no learning: the sum of first-stage runs' normalised scores",
            Part(f"{_FUSION}.fusion:EqualWeights", ("normalise",)),
            normalisable=False,
            missing="refused",  # what a run did not find is 0
        ),
        Method(
            "weights",
            "one weight per first-stage run for all queries",
            Part(f"{_FUSION}.fusion:Weights", ("normalise", "measure")),
            normalisable=False,
            missing="refused",  # what a run did not find is 0
        ),
        Method(
            "weights-by-query",
            "weights of first-stage runs for each query its own, where cross-validation shows a gain",
            Part(f"{_FUSION}.by_query:WeightsByQuery", _BY_QUERY, {"view": _OWN_VIEW}),
            {"view": (None,)},  # what is worth trying is tried by the method itself
            normalisable=False,
            missing="refused",  # what a run did not find is 0
        ),
        Method(
            "margin",
            "no labels: a run's weight is how far its top score stands out (the last run, as vectors)",
            Part(f"{_FUSION}.confidence:Confidence", ("run", "normalise"), differs={"sign": "margin"}),
            normalisable=False,
            missing="refused",  # what a run did not find is 0
        ),
        Method(
            "entropy",
            "no labels: a run's weight is how uneven its scores are (the first run, as BM25)",
            Part(f"{_FUSION}.confidence:Confidence", ("run", "normalise"), differs={"sign": "entropy"}),
            normalisable=False,
            missing="refused",  # what a run did not find is 0
        ),
        Method(
            "forest",
            "weights of first-stage runs that a random forest predicts from a query's signals",
            Part(f"{_FUSION}.forest:ForestWeights", ("normalise", "measure", "trees", "seed")),
            normalisable=False,
            missing="refused",  # what a run did not find is 0
        ),
        Method(
            RECOMMENDED,
            "a blend of trees that see their query's other candidates and of knn-online; the one to try first",
            _blend(),
            {"scores": ("standard", "rank")},
            normalisable=False,
        ),
    )
}


def find_method(name: str, *, peers: bool = False) -> Method:
    """The method of that name, current or former; where `peers` can be had, one of another library too."""
    name = current_name(name)
    if name in PEERS and peers:
        return PEERS[name]
    if name in PEERS:
        raise DataError(f"{name} is another library's: compare takes it; train and keep it with {name} itself.")
    if name not in METHODS:
        known = [*METHODS, *(PEERS if peers else ())]
        near = [each for each in known if name and name in each] or get_close_matches(name, known)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise DataError(f"Unknown method {name!r}. Known: {', '.join(known)}.{meant}")
    return METHODS[name]


def current_name(name: str) -> str:
    """The current name of a method given by a former one; any other name as it is."""
    return RENAMED.get(name, name)


def recommended(**settings: Value) -> Ranker:
    """The ranker to try first, not fitted: the method `blend`, with its defaults or other settings.

    It adds up three rankers' scores within each query: LambdaMART by two objectives, on features beside those of the
    query's other candidates, each the mean of five forests; and a linear model for each query, learned from the
    training queries most like it. No other knowledge is needed: `recommended().fit(train, valid=valid)`; the validation
    part decides how many trees there are.

    settings: by name, those that `querywise methods blend` and docs/methods.md list, such as `bag=1` for one forest
    instead of five, which takes a fifth of the time.

    Returns: a Blend, not fitted.

    Refused: with DataError, a setting that is unknown or of another type.

    >>> from querywise import make_judged, recommended, split
    >>> train, valid, test = split(make_judged(50, 20, 4))
    >>> ranker = recommended(bag=1, trees=20).fit(train, valid=valid)
    >>> len(ranker.names()), ranker.predict(test).shape
    (3, (200,))
    """
    return METHODS[RECOMMENDED].build(**settings)


def described(method_name: str, parameters: Settings) -> list[JsonObject]:
    """Every setting of a fitted method as JSON can hold it, with the value in force; none of a method nobody knows."""
    method = METHODS.get(current_name(method_name))
    return [
        {**each.as_json(), "value": parameters.get(name, each.default)}
        for name, each in (method.settings.items() if method is not None else ())
    ]
