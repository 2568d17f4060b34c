"""querywise: learning to rank, query by query.

Data flows one way:

    read_judged                                         anything you have, by its path → Judged
    read_letor, read_folds, from_arrays, from_frame     files, folds, arrays and data frames
    split                                               training, validation and test queries
    open_shards                                         a set in shards of whole queries, on disk → Shards
    read_collection, build_index, judged_candidates     text: documents, queries and judgments → Judged
    collection_of                                       the same from data frames and dictionaries
    make_folds, Fold, make_judged                       parts of a judged set by query; a small world to try
    RankSVM, LambdaMART                                 learners: Judged → one scoring function
    TextView                                            a view: a query as a point, by its words
    Single, KnnOnline, KnnOffline1, KnnOffline2         rankers: one model for all queries, or one per query
    QueryClasses, Naive, SelectRanker, Transform        a model per class or cluster of queries
    ATVT, SER, SSER                                     one model for queries of different scales; ensembles of rankers
    Blend                                               a weighted sum of several rankers' scores
    WeightsByQuery                                      first-stage runs, weighted for each query
    recommended                                         the ranker to try first: a blend
    ranker.predict                                      Candidates → one score per document
    evaluate, compare, tune                             a table per query, paired tests, the best of a grid
    learning_curves                                     the same comparison with fewer training queries
    explain, why, feature_importance                    a query's own model; one document above another; what counts
    save, load                                          a fitted ranker ↔ a folder
    export_model, Router                                a fitted ranker → the engine that runs it
    Cluster                                             a cluster as the workers, instead of this process

The rest is in the modules: other learners in `querywise.learners`, views, neighborhoods and groupings in
`querywise.locality`, other rankers in `querywise.rankers`, readers and writers in `querywise.data`, text and vectors in
`querywise.retrieval`.

Names are resolved when first used, so that importing querywise costs next to nothing.
"""

from __future__ import annotations

import importlib
from types import FunctionType

_HOMES = {
    "ATVT": "querywise.rankers.atvt",
    "AdaptedVectors": "querywise.retrieval.adapted_vectors",
    "Blend": "querywise.rankers.blend",
    "Candidates": "querywise.data.candidates",
    "Cluster": "querywise.runtime.ray",
    "ClusterError": "querywise.errors",
    "DataError": "querywise.errors",
    "Fold": "querywise.data.folds",
    "HybridRouter": "querywise.exports.routing",
    "Judged": "querywise.data.judged",
    "KnnOffline1": "querywise.rankers.knn",
    "KnnOffline2": "querywise.rankers.knn",
    "KnnOnline": "querywise.rankers.knn",
    "LambdaMART": "querywise.learners.trees.boosting",
    "ModelFileError": "querywise.errors",
    "Naive": "querywise.rankers.clusters",
    "NotFittedError": "querywise.errors",
    "QueryClasses": "querywise.rankers.clusters",
    "QueryTable": "querywise.data.query_table",
    "QuerywiseError": "querywise.errors",
    "RankSVM": "querywise.learners.ranksvm.ranksvm",
    "Router": "querywise.exports.routing",
    "SER": "querywise.rankers.ensemble.ensemble",
    "SSER": "querywise.rankers.ensemble.ensemble",
    "SelectRanker": "querywise.rankers.clusters",
    "Shards": "querywise.data.parquet.shards",
    "Single": "querywise.rankers.single",
    "SolverError": "querywise.errors",
    "TextView": "querywise.locality.views.text",
    "Transform": "querywise.rankers.clusters",
    "WeightsByQuery": "querywise.rankers.weights.by_query",
    "build_index": "querywise.retrieval.index",
    "collection_of": "querywise.data.collections",
    "compare": "querywise.evaluation.compare",
    "evaluate": "querywise.evaluation.evaluate",
    "explain": "querywise.explanations.explain",
    "export_model": "querywise.exports.writing",
    "feature_importance": "querywise.explanations.importance",
    "from_arrays": "querywise.data.frames",
    "from_frame": "querywise.data.frames",
    "judged_candidates": "querywise.retrieval.features",
    "learning_curves": "querywise.evaluation.learning_curves",
    "load": "querywise.storage.models",
    "make_folds": "querywise.data.folds",
    "make_judged": "querywise.data.synthetic",
    "open_shards": "querywise.data.parquet.shards",
    "read_collection": "querywise.data.collections",
    "read_folds": "querywise.data.folds",
    "read_judged": "querywise.retrieval.reading",
    "read_letor": "querywise.data.letor",
    "recommended": "querywise.methods.table",
    "save": "querywise.storage.models",
    "split": "querywise.data.folds",
    "tune": "querywise.evaluation.tuning",
    "why": "querywise.explanations.explain",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> type | FunctionType | str:
    if name == "__version__":
        from importlib.metadata import version

        return version("querywise")
    if name not in _HOMES:
        raise AttributeError(f"module 'querywise' has no attribute {name!r}")
    value: type | FunctionType = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), "__version__", *_HOMES})
