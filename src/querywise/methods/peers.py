"""Methods of other libraries, for comparisons alone: their models are neither saved nor served here."""

from __future__ import annotations

from querywise.methods.building import Part
from querywise.methods.method import Method

_GROWTH = ("trees", "depth", "learning_rate", "patience", "bag", "seed")

# Two settings more than LambdaMART's own grid, around what their documentation recommends.
PEERS = {
    method.name: method
    for method in (
        Method(
            "xgboost",
            "one forest for all queries, by XGBoost: only compared with",
            Part("querywise.learners.peers.xgboost:XGBoost", (*_GROWTH, "objective")),
            {"depth": (3, 6), "learning_rate": (0.03, 0.1), "objective": ("rank:ndcg", "rank:map")},
        ),
        Method(
            "catboost",
            "one forest of symmetric trees for all queries, by CatBoost's YetiRank: only compared with",
            Part("querywise.learners.peers.catboost:CatBoost", (*_GROWTH, "mode")),
            {"depth": (4, 6), "learning_rate": (0.03, 0.1), "mode": ("Classic", "NDCG")},
        ),
    )
}
