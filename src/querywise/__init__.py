"""querywise: learning to rank, query by query.

Data flows one way:

    read_letor, read_folds, from_arrays, from_frame     anything you have → Judged
    read_parquet, open_shards, write_shards             Parquet: a feature log, or a set in shards of whole queries
    read_collection, build_index, judged_candidates     text: documents, queries and judgements → Judged
    RankSVM, LambdaMART                                 learners: Judged → one scoring function
    RankBoost, ListNet, AdaRank, MultipleHyperplanes    the classic ones
    TopMean, TextView, Columns, SideBySide              views: a query as a point
    TwoModels, Divergence                               views: a query as several models see its documents
    GradientView, LearnedMetric                         views of views, learned
    Nearest, Radius, Everyone                           neighborhoods: which training queries count for a query
    Single, KnnOnline, KnnOffline1, KnnOffline2         rankers: one model for all queries, or one that suits each
    QueryClasses                                        a model per class of query
    Clusters, RelevantClusters                          groupings: a fixed number of groups of training queries
    Naive, SelectRanker, Transform                      a model per cluster, picked or blended by query
    ATVT over TreeRegression or KernelRidge             one model, learned as if queries differed in level and scale
    SER, SSER                                           an ensemble of rankers, weighted for all queries or for each
    QueryContext over any learner                       features beside those of the query's other candidates
    Blend                                               several rankers' scores as one
    recommended                                         the ranker to try first: such a blend
    NearbyBlend                                         weighed by how each served training queries like this one
    ranker.predict                                      Candidates → one score per document
    evaluate, compare                                   scores and labels → a table per query, paired tests
    explain, why                                        what is particular to a query; why one document is above another
    save, load                                          a fitted ranker ↔ a folder
    export_model, route, Router                         a fitted ranker → the engine that runs it

Names are resolved when first used, so that importing querywise costs next to nothing.
"""

from __future__ import annotations

import importlib
from types import FunctionType

_HOMES = {
    "ATVT": "querywise.rankers.atvt",
    "AdaRank": "querywise.learners.adarank",
    "Blend": "querywise.rankers.blend",
    "Candidates": "querywise.data.groups",
    "Clusters": "querywise.groupings",
    "Collection": "querywise.data.collections",
    "Columns": "querywise.views.columns",
    "DataError": "querywise.errors",
    "Divergence": "querywise.views.divergence",
    "Document": "querywise.data.collections",
    "Evaluation": "querywise.evaluation.evaluate",
    "Everyone": "querywise.neighborhoods",
    "Fold": "querywise.data.folds",
    "GradientView": "querywise.rankers.gradients",
    "Index": "querywise.text.index",
    "Judged": "querywise.data.groups",
    "KernelRidge": "querywise.learners.kernel",
    "KnnOffline1": "querywise.rankers.knn",
    "KnnOffline2": "querywise.rankers.knn",
    "KnnOnline": "querywise.rankers.knn",
    "LambdaMART": "querywise.learners.trees",
    "LearnedMetric": "querywise.rankers.metric",
    "ListNet": "querywise.learners.listnet",
    "ModelFileError": "querywise.errors",
    "MultipleHyperplanes": "querywise.learners.hyperplanes",
    "Naive": "querywise.rankers.clusters",
    "NearbyBlend": "querywise.rankers.nearby",
    "Nearest": "querywise.neighborhoods",
    "NotFittedError": "querywise.errors",
    "OneFeature": "querywise.rankers.column",
    "QueryClasses": "querywise.rankers.classes",
    "QueryContext": "querywise.learners.context",
    "QueryNormalised": "querywise.rankers.normalised",
    "QueryTable": "querywise.data.groups",
    "QuerywiseError": "querywise.errors",
    "Radius": "querywise.neighborhoods",
    "RankBoost": "querywise.learners.rankboost",
    "RankSVM": "querywise.learners.ranksvm",
    "RelevantClusters": "querywise.groupings",
    "Router": "querywise.exports.routing",
    "SER": "querywise.rankers.ensemble",
    "SSER": "querywise.rankers.ensemble",
    "SelectRanker": "querywise.rankers.clusters",
    "SideBySide": "querywise.views.columns",
    "Single": "querywise.rankers.single",
    "SolverError": "querywise.errors",
    "TextView": "querywise.views.text",
    "TopMean": "querywise.views.topmean",
    "Transform": "querywise.rankers.clusters",
    "TreeRegression": "querywise.learners.trees",
    "TwoModels": "querywise.views.twomodels",
    "build_index": "querywise.text.index",
    "candidates_for": "querywise.text.features",
    "compare": "querywise.evaluation.compare",
    "evaluate": "querywise.evaluation.evaluate",
    "explain": "querywise.explanations",
    "export_model": "querywise.exports.writing",
    "from_arrays": "querywise.data.frames",
    "from_frame": "querywise.data.frames",
    "judged_candidates": "querywise.text.features",
    "load": "querywise.storage",
    "load_index": "querywise.text.index",
    "make_folds": "querywise.data.folds",
    "make_judged": "querywise.data.synthetic",
    "open_shards": "querywise.data.shards",
    "read_collection": "querywise.data.collections",
    "read_folds": "querywise.data.folds",
    "read_letor": "querywise.data.letor",
    "read_parquet": "querywise.data.shards",
    "read_queries": "querywise.data.queries",
    "read_scores": "querywise.ranking",
    "recommended": "querywise.methods.table",
    "route": "querywise.exports.routing",
    "save": "querywise.storage",
    "save_index": "querywise.text.index",
    "search": "querywise.text.retrieval",
    "split_queries": "querywise.data.folds",
    "stdlib_collection": "querywise.text.stdlib",
    "tune": "querywise.tuning",
    "why": "querywise.explanations",
    "write_collection": "querywise.data.collections",
    "write_letor": "querywise.data.letor",
    "write_parts": "querywise.data.folds",
    "write_run": "querywise.ranking",
    "write_scores": "querywise.ranking",
    "write_shards": "querywise.data.shards",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> type | FunctionType:
    if name not in _HOMES:
        raise AttributeError(f"module 'querywise' has no attribute {name!r}")
    value: type | FunctionType = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
