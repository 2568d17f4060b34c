"""The parts of rankers and their wrappers, as settings define them, for the methods in `table`.

`method` explains the annotations. Classes are imported when a part is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from querywise.errors import DataError

if TYPE_CHECKING:
    from querywise.contracts.protocols import QueryView, Ranker
    from querywise.learners.ranksvm.ranksvm import RankSVM
    from querywise.learners.regression import KernelRidge
    from querywise.learners.trees.boosting import LambdaMART, TreeRegression
    from querywise.locality.neighborhoods import Nearest, Radius
    from querywise.locality.views.columns import SignalView
    from querywise.locality.views.topmean import TopMean
    from querywise.rankers.knn import KnnOnline

TOP_MEAN = "top-mean"
VIEWS = (TOP_MEAN, "text", "columns", "two-models", "divergence", "vector", "signals")
_LEARNED = ("learned", "gradient")  # parts of a view's name after the colon; without one, of top-mean
_SVM = "querywise.learners.ranksvm.ranksvm:RankSVM"
_BOOSTING = "querywise.learners.trees.boosting"
GROWTH = ("trees", "leaves", "learning_rate", "min_documents", "seed")  # settings of trees
SVM: TypeAlias = Annotated[type["RankSVM"], _SVM, "l2", "loss", "pairs"]
Bagged: TypeAlias = Annotated[type["LambdaMART"], f"{_BOOSTING}:LambdaMART", *GROWTH, "bag", {"bag": 5}]
Online: TypeAlias = Annotated[type["KnnOnline"], "querywise.rankers.knn:KnnOnline", "k", "back_off"]


def view_named(
    top_mean: Annotated[type[TopMean], "querywise.locality.views.topmean:TopMean", "reference", "top"],
    view: str | None = TOP_MEAN,
) -> QueryView | None:
    """A view by name, its reference and number of documents those of `top_mean`.

    Args:
        view: how similarity of queries is measured: top-mean, text, columns, two-models, divergence, vector or signals,
            several joined by +, and learned or gradient of one, as in gradient:text. None is the method's own.
    """
    if view is None:
        return None
    from querywise.locality.views.columns import Columns, SideBySide, SignalView, VectorView
    from querywise.locality.views.divergence import Divergence
    from querywise.locality.views.learned import GradientView, LearnedMetric
    from querywise.locality.views.text import TextView
    from querywise.locality.views.topmean import TwoModels
    from querywise.rankers.single import OneFeature

    how, colon, rest = view.partition(":")
    if how in _LEARNED:
        inside = view_named(top_mean, rest if colon else TOP_MEAN)
        return LearnedMetric(inside) if how == "learned" else GradientView(inside)
    parts = view.split("+")
    unknown = [part for part in parts if part not in VIEWS]
    if unknown:
        raise DataError(
            f"Unknown view {unknown[0]!r}. Known: {', '.join(VIEWS)}, several joined by +, and learned or gradient, "
            "or either of a view as in gradient:text."
        )
    mean = top_mean()
    reference, top = mean.reference, mean.top
    views: dict[str, QueryView] = {
        TOP_MEAN: mean,
        "text": TextView(),
        "vector": VectorView(),
        "columns": Columns(),
        "signals": SignalView(),
        "two-models": TwoModels(OneFeature() if reference is None else reference, None, top),
        "divergence": Divergence(reference),
    }
    made = [views[part] for part in parts]
    return made[0] if len(made) == 1 else SideBySide(made)


def normalised(ranker: Ranker, normalise: Literal["none", "query"] = "none") -> Ranker:
    """A ranker on the unchanged features, or on those normalized within their query.

    Args:
        normalise: query scales every feature within its query's candidates, 0 the smallest, 1 the largest.
    """
    from querywise.rankers.wrappers import QueryNormalised

    return QueryNormalised(ranker) if normalise == "query" else ranker


def with_missing(ranker: Ranker, missing: Literal["zero", "mean"] = "zero") -> Ranker:
    """A ranker that rejects missing values, or fills them.

    Args:
        missing: how missing features are replaced: zero uses 0 for features absent from a file or request, and rejects
            NaN; mean uses the training mean, with a column that marks missing values.
    """
    from querywise.rankers.wrappers import MissingValues

    return MissingValues(ranker) if missing == "mean" else ranker


def with_missing_or_native(ranker: Ranker, missing: Literal["zero", "mean", "native"] = "zero") -> Ranker:
    """The same for trees, which can also handle missing values themselves.

    Args:
        missing: how missing features are replaced: zero uses 0 for features absent from a file or request, and rejects
            NaN; mean uses the training mean, with a column that marks missing values; native uses the side that trees
            learn for them.
    """
    if missing != "native":
        return with_missing(ranker, missing)
    from querywise.learners.trees.boosting import LambdaMART

    if not isinstance(ranker, LambdaMART):
        raise DataError(
            "missing='native' is for trees on the features as they are. Leave out normalise and signals, or set "
            "missing='mean'."
        )
    ranker.missing = "native"
    return ranker


def local_learner(
    linear: Annotated[type[RankSVM], _SVM, "l2", "loss", "pairs", "scale", "tolerance"],
    base: Literal["ranksvm", "lambdamart"] = "ranksvm",
    prior_l2: float = 0.0,
) -> RankSVM | LambdaMART:
    """The learner of local models.

    Args:
        base: the kind of local models; lambdamart has its own defaults and ignores the settings of ranksvm.
        prior_l2: how strongly a local ranking SVM is shrunk toward the global one, 0 not at all. Above 0, local trees
            start from the global model's scores.
    """
    from querywise.learners.trees.boosting import LambdaMART

    prior: Literal["global"] | None = "global" if prior_l2 else None
    return LambdaMART(prior=prior) if base == "lambdamart" else linear(prior=prior, prior_l2=prior_l2 or None)


def neighborhood(
    nearest: Annotated[type[Nearest], "querywise.locality.neighborhoods:Nearest", "k", "metric", "search"],
    radius: float | None = None,
) -> Nearest | Radius:
    """The neighborhood, by number or by radius.

    Args:
        radius: all training queries within this distance count instead of the k nearest; if there are none, the global
            model is used.
    """
    from querywise.locality.neighborhoods import Radius

    return nearest() if radius is None else Radius(radius, metric=nearest().metric)


def regressor(
    forest: Annotated[type[TreeRegression], f"{_BOOSTING}:TreeRegression", *GROWTH],
    smooth: Annotated[type[KernelRidge], "querywise.learners.regression:KernelRidge", "kernel", "width", "l2"],
    base: Literal["trees", "kernel"] = "trees",
) -> TreeRegression | KernelRidge:
    """A regression by name.

    Args:
        base: the kind of regression; each kind uses only its own settings.
    """
    return forest() if base == "trees" else smooth(seed=forest().seed)


def signal_view(signals: Literal["off", "on", "chosen"] = "off") -> SignalView | None:
    """Return the view that trees see beside each document's features, if any.

    Args:
        signals: whether trees also get the signals of the query's text and runs, as in the view signals: off,
            on, or chosen on validation data.

    """
    if signals == "off":
        return None
    if signals == "chosen":
        raise DataError(
            "signals='chosen' leaves the choice to validation data, as `querywise fit` makes it; here say on or off."
        )
    from querywise.locality.views.columns import SignalView

    return SignalView()


Learner: TypeAlias = Annotated["RankSVM | LambdaMART", local_learner]
HeldLearner: TypeAlias = Annotated["RankSVM", local_learner, "l2", "prior_l2", {"l2": 0.1, "prior_l2": 5.0}]
View: TypeAlias = Annotated["QueryView | None", view_named]
OwnView: TypeAlias = Annotated["QueryView | None", view_named, {"view": None}]  # with another default view
SelectView: TypeAlias = Annotated["QueryView | None", view_named, {"view": None, "top": 10}]
Neighborhood: TypeAlias = Annotated["Nearest | Radius", neighborhood]
Regressor: TypeAlias = Annotated["TreeRegression | KernelRidge", regressor]
Signals: TypeAlias = Annotated["SignalView | None", signal_view]
