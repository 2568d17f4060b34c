"""The names of classes in model folders: module and class within the package, such as `rankers.knn.KnnOnline`."""

from __future__ import annotations

import importlib
import re
from functools import lru_cache

from querywise.errors import ModelFileError
from querywise.runtime.packages import Package
from querywise.runtime.stored import WrongValueError, declared
from querywise.runtime.values import Json

_PACKAGE = "querywise"
# The only modules that a folder can cause to be imported: those with classes that can be stored.
_NAME = re.compile(
    r"((?:learners|locality|rankers)(?:\.[a-z]\w{,50}){1,4}|runtime\.scaling|retrieval\.adapted_vectors)\.([A-Z]\w{,50})",
    re.ASCII,
)

# Classes that folders written up to version 0.2 name without their module. This list is frozen.
_BARE = """
    learners.classic.adarank.AdaRank learners.classic.hyperplanes.MultipleHyperplanes learners.classic.listnet.ListNet
    learners.classic.rankboost.RankBoost learners.linear.LinearModels learners.local_models.FittedModels
    learners.local_models.PreparedRows learners.ranksvm.local_models.PreparedRankSVM learners.ranksvm.ranksvm.RankSVM
    learners.regression.kernel.KernelRidge learners.trees.boosting.LambdaMART learners.trees.boosting.TreeRegression
    learners.trees.context.QueryContext locality.combinations.SimilarQueries locality.groupings.Clusters
    locality.groupings.RelevantClusters locality.neighborhoods.Everyone locality.neighborhoods.Nearest
    locality.neighborhoods.Radius locality.views.columns.Columns locality.views.columns.SideBySide
    locality.views.divergence.Divergence locality.views.gradients.GradientView locality.views.metric.LearnedMetric
    locality.views.signals.RunSignals locality.views.signals.SignalView locality.views.text.NGrams
    locality.views.text.TextView locality.views.topmean.TopMean locality.views.twomodels.TwoModels
    locality.views.vector.VectorView rankers.atvt.ATVT rankers.blend.Blend rankers.classes.QueryClasses
    rankers.clusters.Naive rankers.clusters.SelectRanker rankers.clusters.Transform rankers.column.OneFeature
    rankers.ensemble.ensemble.SER rankers.ensemble.ensemble.SSER rankers.groups.GroupModels rankers.knn.KnnOffline1
    rankers.knn.KnnOffline2 rankers.knn.KnnOnline rankers.missing.MissingValues rankers.nearby.NearbyBlend
    rankers.neighbors.Locality rankers.normalised.QueryNormalised rankers.offline_models.OfflineModels
    rankers.single.Single rankers.voting.Borda rankers.voting.CombMNZ rankers.voting.CombSUM
    rankers.voting.ReciprocalRank rankers.weights.by_query.WeightsByQuery rankers.weights.confidence.Confidence
    rankers.weights.forest.ForestWeights rankers.weights.from_signals.SignalWeights rankers.weights.fusion.EqualWeights
    rankers.weights.fusion.Weights rankers.weights.neighbours.NeighbourWeights rankers.weights.on_runs.OnRuns
    runtime.scaling.Scaling
"""
# Modules whose classes have moved, and where to.
_MOVED = {
    "learners.regression.kernel": "learners.regression",
    "locality.views.gradients": "locality.views.learned",
    "locality.views.metric": "locality.views.learned",
    "locality.views.signals": "locality.views.columns",
    "locality.views.twomodels": "locality.views.topmean",
    "locality.views.vector": "locality.views.columns",
    "rankers.classes": "rankers.clusters",
    "rankers.column": "rankers.single",
    "rankers.groups": "rankers.clusters",
    "rankers.missing": "rankers.wrappers",
    "rankers.nearby": "rankers.blend",
    "rankers.normalised": "rankers.wrappers",
    "rankers.offline_models": "rankers.knn",
    "rankers.voting": "rankers.weights.fusion",
    "rankers.weights.confidence": "rankers.weights.fusion",
    "rankers.weights.forest": "rankers.weights.by_query",
    "rankers.weights.from_signals": "rankers.weights.by_query",
    "rankers.weights.neighbours": "rankers.weights.by_query",
    "rankers.weights.on_runs": "rankers.wrappers",
}
# Names in folders that have changed since: classes, and learned values (class.name_).
FORMER = {name.rpartition(".")[2]: name for name in _BARE.split()}
# Classes that no longer exist, and why.
REMOVED = {
    "Routed": "it was no better than the blend it was made of. Fit the method blend instead.",
    **dict.fromkeys(("LinearGains", "NearbyGains"), "it was a part of Routed, which was no better than its blend."),
}


def name_of(kind: type) -> str | None:
    """Return the name of a class in model folders, or None if no folder can name it."""
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix(f"{_PACKAGE}.")
    return name if _class(name) is kind else None


def current(name: str) -> str:
    """Return the current name for a name in a folder."""
    module, dot, kind = FORMER.get(name, name).rpartition(".")
    return f"{_MOVED.get(module, module)}{dot}{kind}"


def class_named(name: Json) -> type:
    """Return the class with this name, current or former; only the module that the name contains is imported."""
    if not isinstance(name, str):
        raise WrongValueError("an object does not say its class")
    if name in REMOVED:
        raise ModelFileError(f"The model is a {name}, which was removed: {REMOVED[name]}")
    kind = _class(current(name))
    if kind is None:
        raise ModelFileError(
            f"The model is a {name[:100]!r}, which this version does not know. Use the querywise version that wrote "
            "it, or fit "
            "the model anew."
        )
    package: Package | None = getattr(kind, "package", None)
    if package is not None and (problem := package.missing(f"The model is a {kind.__name__}, which")):
        raise ModelFileError(problem)
    return kind


def _class(name: str) -> type | None:
    """Return the class with this name, or None if the name is malformed or unknown."""
    found = _NAME.fullmatch(name)
    return None if found is None else _defined(f"{_PACKAGE}.{found[1]}", found[2])


@lru_cache(256)
def _defined(module: str, name: str) -> type | None:
    """Return the class with this name that the module itself defines, if it declares what it stores."""
    try:
        kind = vars(importlib.import_module(module)).get(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(f"{_PACKAGE}."):
            return None
        raise
    return kind if isinstance(kind, type) and kind.__module__ == module and declared(kind) else None
