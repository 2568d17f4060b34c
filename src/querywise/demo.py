"""The demonstration: data made from a seed, the methods fitted on it, what came out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from querywise.contracts import Ranker
from querywise.data.folds import make_folds
from querywise.data.groups import Judged
from querywise.data.synthetic import make_judged
from querywise.evaluation.compare import compare
from querywise.methods import METHODS, Method
from querywise.progress import doing, track
from querywise.report.terminal import comparison_table
from querywise.tuning import tune

SHOWN = ("single", "lambdamart", "query-classes", "knn-online", "knn-offline-1", "knn-offline-2")


def run(*, queries: int = 500, documents: int = 30, features: int = 20) -> list[Any]:
    """Make three kinds of query, fit on three fifths of them, choose on one, compare on the last."""
    with doing("Making judged queries"):
        data = make_judged(queries, documents, features, kinds=3)
    fits = {name: _fitting(METHODS[name]) for name in SHOWN}
    compared = compare(fits, track([make_folds(data)[0]], "Folds"), measures="map,ndcg@10,mean_ndcg")
    story = (
        f"{queries} made-up queries of three kinds, {documents} documents each, {features} features; one fold of five: "
        f"trained on 60 % of the queries, parameters chosen on 20 %, tested on 20 %."
    )
    onward = "On your own data: querywise compare DATA, where DATA holds Fold1..5, S1..S5.txt, or is one LETOR file."
    return [story, comparison_table(compared), onward]


def _fitting(method: Method) -> Callable[[Judged, Judged], Ranker]:
    return lambda train, valid: tune(method.build, method.grid, train=train, valid=valid).ranker
