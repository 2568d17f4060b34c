"""What the values of an object must be all together: sizes that follow from others, and what an argument asks for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from querywise.data.gains import checked_gains
from querywise.data.rows import count_pairs
from querywise.data.run_columns import run_columns
from querywise.data.weighting import checked_weights
from querywise.errors import DataError
from querywise.learners.trees.text import width_of
from querywise.retrieval.signals import signal_names
from querywise.storage.checks import Known, Starts, Stored, WrongValueError

Together: TypeAlias = Callable[[Stored, Known], None]


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise WrongValueError(what)


def _at_least_one(size: str) -> Together:
    def check(made: Any, known: Known) -> None:
        _demand(known.sizes[size] > 0, f"{type(made).__name__} has no {size}")

    return check


def _forests(made: Any, known: Known) -> None:
    trees = made.grown().tree_count
    _demand(made.tree_count_ <= trees, f"LambdaMART.tree_count_ is {made.tree_count_}; there are {trees} trees")


def _forest(made: Any, known: Known) -> None:
    known.tie("features", width_of(made.model_), "TreeRegression.model_")
    made.grown()


def _kernel(made: Any, known: Known) -> None:
    if made.kernel == "linear":
        known.tie("terms", known.sizes["features"] + 1, "KernelRidge.coefficients_")
        return
    _demand("points" in known.sizes, "KernelRidge.points_ is missing")
    known.tie("terms", known.sizes["points"], "KernelRidge.coefficients_")


def _context(made: Any, known: Known) -> None:
    groups = {"mean", "spread", "z", "rank", "length", "view"}
    _demand(not isinstance(made.columns, str) and set(made.columns) <= groups, "QueryContext.columns are unknown")
    _demand(("view" in made.columns) == (made.view_ is not None), "QueryContext.columns and its view_ do not fit")
    width = known.sizes["features"] * (1 + len({*made.columns} & {"mean", "spread", "z", "rank"}))
    width += "length" in made.columns
    if made.view_ is not None:
        width += known.parts[id(made.view_)].sizes["coordinates"]
    known.tie("columns", width, "QueryContext.context_names_")
    _demand(_alike(made.learner, made.learner_), "QueryContext.learner_ is of another class than its learner")


def _alike(one: Any, other: Any) -> bool:
    """Whether two learners are of one class, and so are those inside them."""
    inside = [getattr(each, "learner", None) for each in (one, other)]
    return type(one) is type(other) and (None in inside or _alike(*inside))


def _missing(made: Any, known: Known) -> None:
    _demand(bool(np.all(np.diff(made.marked_) > 0)), "MissingValues.marked_ are not in ascending order")
    known.tie("columns", known.sizes["features"] + known.sizes["marks"], "MissingValues.ranker_")


def _nearby(made: Any, known: Known) -> None:
    if made.nearest_ is None:
        return
    _demand(hasattr(made, "scaling_") and hasattr(made, "values_"), "NearbyBlend.scaling_ or values_ is missing")
    rankers = known.sizes["rankers"]
    signals = 2 * len(list(combinations(range(rankers), 2))) + 2 * rankers + 1
    places = sum(known.parts[id(view)].sizes["coordinates"] for view in made.views_)
    known.tie("coordinates", signals + places, "NearbyBlend.views_")


def _offline(made: Any, known: Known) -> None:
    if made.models is None:
        known.tie("models", known.sizes["queries"], "OfflineModels.anchors_")


def _classes(made: Any, known: Known) -> None:
    classes = known.sizes["classes"]
    _demand(classes > 0, "QueryClasses has no classes")
    known.tie("margins", classes if classes > 2 else 1, "QueryClasses.slopes_")


def _prepared_rows(made: Any, known: Known) -> None:
    _demand(_alike(made.learner, made.everyone_), "PreparedRows.everyone_ is of another class than its learner")
    _worth(made)


def _worth(made: Any) -> None:
    """Values of labels and weights that training data could have."""
    try:
        if hasattr(made, "gains_"):
            checked_gains(made.gains_, made.labels_)
        for what in ("query", "document"):
            if hasattr(made, f"{what}_weights_"):
                weights = getattr(made, f"{what}_weights_")
                checked_weights(weights, len(weights), what)
    except DataError as error:
        raise WrongValueError(f"{type(made).__name__}: {error}") from None


def _locality(made: Any, known: Known) -> None:
    _at_least_one("queries")(made, known)
    _worth(made)


def _prepared(made: Any, known: Known) -> None:
    _worth(made)
    features, queries = known.sizes["features"], known.sizes["queries"]
    if made.learner.loss == "squared_hinge":
        _demand(hasattr(made, "gradients_") and hasattr(made, "curvatures_"), "PreparedRankSVM.curvatures_ is missing")
    known.tie("triangle", features * (features + 1) // 2, "PreparedRankSVM.curvatures_")
    kept = made.features_ is not None and made.levels_ is not None
    if made.learner.tolerance is None and made.learner.loss != "hinge" and not kept:
        return
    _demand(kept, "PreparedRankSVM.features_ or levels_ is missing")
    known.tie("places", queries + 1, "PreparedRankSVM.starts_")
    Starts("queries", "rows").check(made.starts_, "PreparedRankSVM.starts_", known)
    pairs = count_pairs(made.levels_, made.starts_)
    _demand(np.array_equal(pairs, made.pairs_), "PreparedRankSVM.pairs_ are not those of its levels_")


def _side_by_side(made: Any, known: Known) -> None:
    known.sizes["coordinates"] = sum(known.parts[id(view)].sizes["coordinates"] for view in made.views_)


def _text(made: Any, known: Known) -> None:
    known.tie("spaces", int(bool(made.words)) + int(bool(made.characters)), "TextView.spaces_")
    spaces = [known.parts[id(space)].sizes["coordinates"] for space in made.spaces_]
    known.sizes["coordinates"] = sum(spaces) + (4 if made.lengths else 0)


def _grams(made: Any, known: Known) -> None:
    found = set(made.vocabulary_.split("\n")) if known.sizes["grams"] else set()
    known.tie("grams", len(found), "NGrams.vocabulary_")


def _top_mean(made: Any, known: Known) -> None:
    known.sizes["coordinates"] = known.sizes["features"]


def _two_models(made: Any, known: Known) -> None:
    known.tie("coordinates", 2, "TwoModels.scaling_")


def _divergence(made: Any, known: Known) -> None:
    if made.models is None:
        known.tie("features", known.sizes["coordinates"], "Divergence.scaling_")


def _similar(made: Any, known: Known) -> None:
    falls = np.flatnonzero(np.diff(made.values_) < 0) + 1
    _demand(bool(np.isin(falls, made.starts_).all()), "SimilarQueries.values_ are not in ascending order")


def _fusion(made: Any, known: Known) -> None:
    known.tie("runs", len(run_columns(made.feature_names_)), "Fusion.weights_")
    _demand(known.sizes["runs"] > 1, "Fusion.feature_names_ name fewer than two runs")


def _on_runs(made: Any, known: Known) -> None:
    known.tie("runs", len(run_columns(made.feature_names_)), "OnRuns.ranker_")


def _by_query(made: Any, known: Known) -> None:
    _demand(made.taken_ < known.sizes["tried"], f"WeightsByQuery.taken_ is {made.taken_}; it is none of those tried")


def _run_signals(made: Any, known: Known) -> None:
    runs = [run.name for run in run_columns(made.feature_names_)]
    _demand(len(runs) > 0, "RunSignals.feature_names_ name no run")
    known.tie("coordinates", len(signal_names(runs)), "RunSignals.scaling_")


def _weight_forest(made: Any, known: Known) -> None:
    _demand(known.sizes["options"] > 0, "ForestWeights has no options")
    own = np.arange(known.sizes["nodes"])
    for side in (made.low_, made.high_):
        _demand(bool((side >= own).all()), "ForestWeights has a node whose child comes before it")
    _demand(bool(((made.low_ == own) == (made.high_ == own)).all()), "ForestWeights has a node with one child")


TOGETHER: dict[str, Together] = {
    "Blend": _at_least_one("rankers"),
    "Clusters": _at_least_one("groups"),
    "Divergence": _divergence,
    "FittedModels": _at_least_one("models"),
    "ForestWeights": _weight_forest,
    "Fusion": _fusion,
    "KernelRidge": _kernel,
    "LambdaMART": _forests,
    "LinearModels": _at_least_one("models"),
    "Locality": _locality,
    "MissingValues": _missing,
    "NGrams": _grams,
    "NearbyBlend": _nearby,
    "NeighbourWeights": _at_least_one("options"),
    "OfflineModels": _offline,
    "OnRuns": _on_runs,
    "PreparedRankSVM": _prepared,
    "PreparedRows": _prepared_rows,
    "QueryClasses": _classes,
    "QueryContext": _context,
    "RunSignals": _run_signals,
    "SSER": _at_least_one("starts"),
    "SideBySide": _side_by_side,
    "SimilarQueries": _similar,
    "TextView": _text,
    "TopMean": _top_mean,
    "TreeRegression": _forest,
    "TwoModels": _two_models,
    "WeightsByQuery": _by_query,
}
