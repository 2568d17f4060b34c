"""querywise: learning to rank, query by query.

Data flows one way:

    read_judged                                         anything you have, by its path → Judged
    read_letor, read_folds, from_arrays, from_frame     files, folds, arrays and data frames
    split                                               training, validation and test queries
    read_parquet, open_shards, write_shards             Parquet: a feature log, or a set in shards of whole queries
    read_collection, build_index, judged_candidates     text: documents, queries and judgements → Judged
    RankSVM, LambdaMART                                 learners: Judged → one scoring function
    RankBoost, ListNet, AdaRank, MultipleHyperplanes    the classic ones
    TopMean, TextView, Columns, SideBySide              views: a query as a point
    read_vectors, with_vectors, with_usearch            vectors of documents and queries, beside words
    VectorView, SignalView, signals                     views: a query by its vector, or by what its runs tell of it
    TwoModels, Divergence                               views: a query by several models' scores of its documents
    GradientView, LearnedMetric                         views of views, learned
    Nearest, Radius, Everyone                           neighborhoods: which training queries count for a query
    Single, KnnOnline, KnnOffline1, KnnOffline2         rankers: one model for all queries, or one per query
    QueryClasses                                        a model per class of query
    Clusters, RelevantClusters                          groupings: a fixed number of groups of training queries
    Naive, SelectRanker, Transform                      a model per cluster, picked or blended by query
    ATVT over TreeRegression or KernelRidge             one model, learned as if queries differed in level and scale
    SER, SSER                                           an ensemble of rankers, weighted for all queries or for each
    Weights, WeightsByQuery                             first-stage runs, weighted for all queries or for each
    QueryContext over any learner                       features relative to the query's other candidates
    Blend                                               a weighted sum of several rankers' scores
    recommended                                         the ranker to try first: such a blend
    NearbyBlend                                         weighted by each ranker's quality on similar training queries
    ranker.predict                                      Candidates → one score per document
    evaluate, compare                                   scores and labels → a table per query, paired tests
    RayCluster                                          a cluster as the workers, instead of this process
    explain, why                                        what is particular to a query; why one document is above another
    save, load                                          a fitted ranker ↔ a folder
    export_model, route, Router                         a fitted ranker → the engine that runs it
    export_hybrid, HybridRouter                         weights of runs → the engine that fuses them

Names are resolved when first used, so that importing querywise costs next to nothing.
"""

from __future__ import annotations

import importlib
from types import FunctionType

_HOMES = {
    "ATVT": "querywise.rankers.atvt",
    "AdaRank": "querywise.learners.classic.adarank",
    "Blend": "querywise.rankers.blend",
    "Candidates": "querywise.data.judged",
    "Clusters": "querywise.locality.groupings",
    "Collection": "querywise.data.collections",
    "Columns": "querywise.locality.views.columns",
    "DataError": "querywise.errors",
    "Divergence": "querywise.locality.views.divergence",
    "Document": "querywise.data.collections",
    "Evaluation": "querywise.evaluation.evaluate",
    "Everyone": "querywise.locality.neighborhoods",
    "Fold": "querywise.data.folds",
    "GradientView": "querywise.locality.views.gradients",
    "HybridRouter": "querywise.exports.hybrid_folder",
    "Index": "querywise.retrieval.index",
    "Judged": "querywise.data.judged",
    "Judgements": "querywise.data.judgements",
    "KernelRidge": "querywise.learners.regression.kernel",
    "KnnOffline1": "querywise.rankers.knn",
    "KnnOffline2": "querywise.rankers.knn",
    "KnnOnline": "querywise.rankers.knn",
    "LambdaMART": "querywise.learners.trees.boosting",
    "LearnedMetric": "querywise.locality.views.metric",
    "ListNet": "querywise.learners.classic.listnet",
    "ModelFileError": "querywise.errors",
    "MultipleHyperplanes": "querywise.learners.classic.hyperplanes",
    "Naive": "querywise.rankers.clusters",
    "NearbyBlend": "querywise.rankers.nearby",
    "Nearest": "querywise.locality.neighborhoods",
    "NotFittedError": "querywise.errors",
    "OneFeature": "querywise.rankers.column",
    "QueryClasses": "querywise.rankers.classes",
    "QueryContext": "querywise.learners.trees.context",
    "QueryNormalised": "querywise.rankers.normalised",
    "QueryTable": "querywise.data.query_table",
    "QuerywiseError": "querywise.errors",
    "Radius": "querywise.locality.neighborhoods",
    "RankBoost": "querywise.learners.classic.rankboost",
    "RankSVM": "querywise.learners.ranksvm.ranksvm",
    "RayCluster": "querywise.runtime.ray",
    "RelevantClusters": "querywise.locality.groupings",
    "Router": "querywise.exports.routing",
    "SER": "querywise.rankers.ensemble.ensemble",
    "SSER": "querywise.rankers.ensemble.ensemble",
    "SelectRanker": "querywise.rankers.clusters",
    "SideBySide": "querywise.locality.views.columns",
    "SignalView": "querywise.locality.views.signals",
    "Single": "querywise.rankers.single",
    "SolverError": "querywise.errors",
    "TextView": "querywise.locality.views.text",
    "TopMean": "querywise.locality.views.topmean",
    "Transform": "querywise.rankers.clusters",
    "TreeRegression": "querywise.learners.trees.boosting",
    "TwoModels": "querywise.locality.views.twomodels",
    "VectorView": "querywise.locality.views.vector",
    "Weights": "querywise.rankers.weights.fusion",
    "WeightsByQuery": "querywise.rankers.weights.by_query",
    "build_index": "querywise.retrieval.index",
    "candidates_for": "querywise.retrieval.features",
    "compare": "querywise.evaluation.compare",
    "evaluate": "querywise.evaluation.evaluate",
    "evaluate_run": "querywise.evaluation.evaluate",
    "explain": "querywise.explanations.explain",
    "export_hybrid": "querywise.exports.hybrid_folder",
    "export_model": "querywise.exports.writing",
    "from_arrays": "querywise.data.frames",
    "from_frame": "querywise.data.frames",
    "judged_candidates": "querywise.retrieval.features",
    "load": "querywise.storage.models",
    "load_index": "querywise.retrieval.index",
    "make_folds": "querywise.data.folds",
    "make_judged": "querywise.data.synthetic",
    "open_shards": "querywise.data.parquet.shards",
    "read_collection": "querywise.data.collections",
    "read_folds": "querywise.data.folds",
    "read_grades": "querywise.data.judgements",
    "read_judged": "querywise.retrieval.reading",
    "read_letor": "querywise.data.letor",
    "read_parquet": "querywise.data.parquet.logs",
    "read_queries": "querywise.data.queries",
    "read_run": "querywise.data.runs",
    "read_scores": "querywise.measures.score_files",
    "read_vectors": "querywise.data.vectors",
    "recommended": "querywise.methods.table",
    "route": "querywise.exports.routing",
    "save": "querywise.storage.models",
    "save_index": "querywise.retrieval.index",
    "search": "querywise.retrieval.bm25",
    "signals": "querywise.retrieval.signals",
    "split": "querywise.data.folds",
    "split_queries": "querywise.data.folds",
    "stdlib_collection": "querywise.retrieval.stdlib",
    "tune": "querywise.evaluation.tuning",
    "why": "querywise.explanations.explain",
    "with_usearch": "querywise.retrieval.indexed_vectors",
    "with_vectors": "querywise.retrieval.indexed_vectors",
    "write_collection": "querywise.data.collections",
    "write_letor": "querywise.data.letor",
    "write_parts": "querywise.data.folds",
    "write_run": "querywise.measures.score_files",
    "write_scores": "querywise.measures.score_files",
    "write_shards": "querywise.data.parquet.writing",
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
