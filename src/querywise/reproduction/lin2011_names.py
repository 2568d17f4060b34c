"""The methods of [lin2011]_, and the measures of its tables."""

from __future__ import annotations

SINGLE, TREES, NAIVE, SELECT, TRANSFORM = "single", "lambdamart", "naive", "select-ranker", "transform"
METHOD_NAMES = (NAIVE, SELECT, TRANSFORM)
PRECISIONS = tuple(f"p@{position}" for position in (1, 2, 5, 10))
GAINS = tuple(f"ndcg@{position}" for position in (1, 2, 5, 10))
MEASURES = ("map", *PRECISIONS, *GAINS, "mean_ndcg")
