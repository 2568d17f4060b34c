"""The methods of [geng2008]_, and what their rows are called."""

from __future__ import annotations

KNN = ("knn-online", "knn-offline-1", "knn-offline-2")
SINGLE, CLASSES = "single", "query-classes"
PAPER = {"loss": "hinge", "pairs": "pair"}
MAIN = "mean_ndcg@10"


def by_paper(name: str) -> str:
    """The row of a method with the paper's loss."""
    return f"{name}, hinge"
