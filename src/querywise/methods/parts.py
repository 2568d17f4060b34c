"""What rankers are made of, as settings say: learners, views and neighborhoods, for the methods in `table`.

`signatures` explains the annotations. Classes are imported when something is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from querywise.errors import DataError
from querywise.methods.views import view_named

if TYPE_CHECKING:
    from querywise.contracts.protocols import QueryView
    from querywise.learners.ranksvm.ranksvm import RankSVM
    from querywise.learners.regression.kernel import KernelRidge
    from querywise.learners.trees.boosting import LambdaMART, TreeRegression
    from querywise.locality.neighborhoods import Nearest, Radius
    from querywise.locality.views.signals import SignalView
    from querywise.rankers.knn import KnnOnline

_SVM = "querywise.learners.ranksvm.ranksvm:RankSVM"
_BOOSTING = "querywise.learners.trees.boosting"
GROWTH = ("trees", "leaves", "learning_rate", "min_documents", "seed")  # of trees

SVM: TypeAlias = Annotated[type["RankSVM"], _SVM, "l2", "loss", "pairs"]
Bagged: TypeAlias = Annotated[type["LambdaMART"], f"{_BOOSTING}:LambdaMART", *GROWTH, "bag", {"bag": 5}]
Online: TypeAlias = Annotated[type["KnnOnline"], "querywise.rankers.knn:KnnOnline", "k", "back_off"]


def local_learner(
    linear: Annotated[type[RankSVM], _SVM, "l2", "loss", "pairs", "scale", "tolerance"],
    base: Literal["ranksvm", "lambdamart"] = "ranksvm",
    prior_l2: float = 0.0,
) -> RankSVM | LambdaMART:
    """What local models are trained by.

    base: what local models are made of; lambdamart has its own defaults and ignores the settings of ranksvm.
    prior_l2: how strongly a local ranking SVM is shrunk towards the global one, 0 not at all. Above 0, local trees
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

    radius: all training queries within this distance count instead of the k nearest; where there are none, the global
    model is used.
    """
    from querywise.locality.neighborhoods import Radius

    return nearest() if radius is None else Radius(radius, metric=nearest().metric)


def regressor(
    forest: Annotated[type[TreeRegression], f"{_BOOSTING}:TreeRegression", *GROWTH],
    smooth: Annotated[type[KernelRidge], "querywise.learners.regression.kernel:KernelRidge", "kernel", "width", "l2"],
    base: Literal["trees", "kernel"] = "trees",
) -> TreeRegression | KernelRidge:
    """A regression by name.

    base: what the regression is made of; each uses its own settings alone.
    """
    return forest() if base == "trees" else smooth(seed=forest().seed)


def signal_view(signals: Literal["off", "on", "chosen"] = "off") -> SignalView | None:
    """The view that trees see beside each document's features, if they see one.

    signals: whether trees get what runs and text tell of a query before it is ranked, as in the view signals: off, on,
    or chosen on validation data.
    """
    if signals == "off":
        return None
    if signals == "chosen":
        raise DataError(
            "signals='chosen' leaves the choice to validation data, as `querywise fit` makes it; here say on or off."
        )
    from querywise.locality.views.signals import SignalView

    return SignalView()


Learner: TypeAlias = Annotated["RankSVM | LambdaMART", local_learner]
HeldLearner: TypeAlias = Annotated["RankSVM", local_learner, "l2", "prior_l2", {"l2": 0.1, "prior_l2": 5.0}]
View: TypeAlias = Annotated["QueryView | None", view_named]
OwnView: TypeAlias = Annotated["QueryView | None", view_named, {"view": None}]  # of rankers with a view of their own
SelectView: TypeAlias = Annotated["QueryView | None", view_named, {"view": None, "top": 10}]
Neighborhood: TypeAlias = Annotated["Nearest | Radius", neighborhood]
Regressor: TypeAlias = Annotated["TreeRegression | KernelRidge", regressor]
Signals: TypeAlias = Annotated["SignalView | None", signal_view]
