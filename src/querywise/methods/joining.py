"""Parts of a method that choose between others by a setting, or put something around them.

Each gets the parts it may need, built already, and documents its own settings as a class does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from querywise.errors import DataError

if TYPE_CHECKING:
    from querywise.contracts.protocols import Ranker
    from querywise.learners.ranksvm.ranksvm import RankSVM
    from querywise.learners.regression.kernel import KernelRidge
    from querywise.learners.trees.boosting import LambdaMART, TreeRegression
    from querywise.learners.trees.context import QueryContext
    from querywise.locality.neighborhoods import Nearest, Radius
    from querywise.rankers.missing import MissingValues
    from querywise.rankers.normalised import QueryNormalised


def local_learner(
    linear: RankSVM,
    forest: LambdaMART | None = None,
    base: Literal["ranksvm", "lambdamart"] = "ranksvm",
    prior_l2: float = 0.0,
) -> RankSVM | LambdaMART:
    """What local models are trained by.

    base: what local models are made of; lambdamart has its own defaults and ignores the settings of ranksvm.
    prior_l2: how strongly a local ranking SVM is shrunk towards the global one, 0 not at all. Above 0, local trees
    start from the global model's scores.
    """
    prior: Literal["global"] | None = "global" if prior_l2 else None
    if base == "lambdamart" and forest is not None:
        forest.prior = prior
        return forest
    linear.prior, linear.prior_l2 = prior, prior_l2 or None
    return linear


def regressor(
    forest: TreeRegression, smooth: KernelRidge, base: Literal["trees", "kernel"] = "trees"
) -> TreeRegression | KernelRidge:
    """A regression by name.

    base: what the regression is made of; each uses its own settings alone.
    """
    return forest if base == "trees" else smooth


def neighborhood(nearest: Nearest, radius: float | None = None) -> Nearest | Radius:
    """The neighbourhood, by number or by radius.

    radius: all training queries within this distance count instead of the k nearest; where there are none, the global
    model is used.
    """
    from querywise.locality.neighborhoods import Radius

    return nearest if radius is None else Radius(radius, metric=nearest.metric)


def with_signals(
    learner: LambdaMART | QueryContext, signals: Literal["off", "on", "chosen"] = "off"
) -> LambdaMART | QueryContext:
    """Trees that see the signals of the query beside each document's features.

    signals: whether trees get what runs and text tell of a query before it is ranked, as in the view signals: off, on,
    or chosen on validation data.
    """
    if signals == "off":
        return learner
    if signals == "chosen":
        raise DataError(
            "signals='chosen' leaves the choice to validation data, as `querywise fit` makes it; here say on or off."
        )
    from querywise.learners.trees.context import QueryContext
    from querywise.locality.views.signals import SignalView

    if not isinstance(learner, QueryContext):
        return QueryContext(learner, ("view",), view=SignalView())
    return QueryContext(learner.learner, (*learner.columns, "view"), view=SignalView())


def feature(reference: int | str | None = None) -> int | str:
    """The feature that ranks by itself.

    reference: its name, or its number from 0; none is BM25 as this library computes it.
    """
    from querywise.retrieval.scores import BM25

    return BM25 if reference is None else reference


def normalised(ranker: Ranker, normalise: Literal["none", "query"] = "none") -> Ranker | QueryNormalised:
    """A ranker on the features as they are, or normalised within their query.

    normalise: query scales every feature within its query's candidates, 0 the smallest, 1 the largest.
    """
    from querywise.rankers.normalised import QueryNormalised

    return QueryNormalised(ranker) if normalise == "query" else ranker


def with_missing(ranker: Ranker, missing: Literal["zero", "mean"] = "zero") -> Ranker | MissingValues:
    """A ranker that refuses missing values, or fills them.

    missing: what a missing feature becomes: zero is 0 for what a file or request leaves out, and refuses NaN;
    mean is the mean of training, with a column that marks it.
    """
    from querywise.rankers.missing import MissingValues

    return MissingValues(ranker) if missing == "mean" else ranker


def with_missing_or_native(
    ranker: Ranker, missing: Literal["zero", "mean", "native"] = "zero"
) -> Ranker | MissingValues:
    """The same of trees, which can also handle missing values themselves.

    missing: what a missing feature becomes: zero is 0 for what a file or request leaves out, and refuses NaN;
    mean is the mean of training, with a column that marks it; native is the side that trees learn for it.
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
