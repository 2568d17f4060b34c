"""Which classes a model folder can name, and what earlier versions called them."""

from __future__ import annotations

from querywise.methods import METHODS

# The only classes a model folder can name: the rankers of the table of methods, and what rankers are made of.
_PARTS = {
    "Borda": "querywise.rankers.voting",
    "Clusters": "querywise.locality.groupings",
    "Columns": "querywise.locality.views.columns",
    "CombMNZ": "querywise.rankers.voting",
    "CombSUM": "querywise.rankers.voting",
    "Divergence": "querywise.locality.views.divergence",
    "Everyone": "querywise.locality.neighborhoods",
    "FittedModels": "querywise.learners.local_models",
    "GradientView": "querywise.locality.views.gradients",
    "GroupModels": "querywise.rankers.groups",
    "KernelRidge": "querywise.learners.regression.kernel",
    "LearnedMetric": "querywise.locality.views.metric",
    "LinearModels": "querywise.learners.linear",
    "Locality": "querywise.rankers.neighbors",
    "MissingValues": "querywise.rankers.missing",
    "NGrams": "querywise.locality.views.text",
    "NearbyBlend": "querywise.rankers.nearby",
    "Nearest": "querywise.locality.neighborhoods",
    "NeighbourWeights": "querywise.rankers.weights.neighbours",
    "OfflineModels": "querywise.rankers.offline_models",
    "OnRuns": "querywise.rankers.weights.on_runs",
    "PreparedRankSVM": "querywise.learners.ranksvm.local_models",
    "PreparedRows": "querywise.learners.local_models",
    "QueryContext": "querywise.learners.trees.context",
    "QueryNormalised": "querywise.rankers.normalised",
    "Radius": "querywise.locality.neighborhoods",
    "ReciprocalRank": "querywise.rankers.voting",
    "RelevantClusters": "querywise.locality.groupings",
    "RunSignals": "querywise.locality.views.signals",
    "Scaling": "querywise.runtime.scaling",
    "SignalWeights": "querywise.rankers.weights.from_signals",
    "SideBySide": "querywise.locality.views.columns",
    "SignalView": "querywise.locality.views.signals",
    "SimilarQueries": "querywise.locality.combinations",
    "TextView": "querywise.locality.views.text",
    "TopMean": "querywise.locality.views.topmean",
    "TreeRegression": "querywise.learners.trees.boosting",
    "TwoModels": "querywise.locality.views.twomodels",
    "VectorView": "querywise.locality.views.vector",
}
SAVABLE = _PARTS | {name: module for module, name in (method.home.split(":") for method in METHODS.values())}
# Other names under which earlier versions wrote a class, or something a class has learned (Class.name_).
ALIASES: dict[str, str] = {}
# The value of a parameter that folders of earlier versions lack.
BEFORE: dict[str, dict[str, bool | int | float | str | None]] = {
    "SelectRanker": {"with_relevant": False},
    **{name: {"back_off": None} for name in ("KnnOnline", "KnnOffline1", "KnnOffline2")},
    "LambdaMART": {"missing": "zero"},
    "ATVT": {"stop": "mean", "nonnegative": True, "transform": "linear", "per": "query"},
}
# Kinds that are no longer there, and why.
REMOVED = {
    "Routed": "it was no better than the blend it was made of. Fit the method blend instead.",
    **dict.fromkeys(("LinearGains", "NearbyGains"), "it was a part of Routed, which was no better than its blend."),
}
