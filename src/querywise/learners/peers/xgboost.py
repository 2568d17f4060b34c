"""XGBoost's ranking objectives [chen2016]_."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from querywise.errors import DataError
from querywise.learners.peers.peer import Peer, Rows
from querywise.runtime.arrays import Floats

_SHARE_IN_A_BAG = 0.5  # of the features, for each tree of a bag, as LambdaMART has it
_LARGEST_GRADE = 31  # above it, XGBoost's gain of a grade is too large to be a number

OBJECTIVES = ("rank:ndcg", "rank:map", "rank:pairwise")


class XGBoost(Peer):
    """Boosted trees by XGBoost's ranking objectives, to compare with; it is not saved or served.

    trees: at most so many, from 1 up; with a validation set, training stops once its NDCG@`stop_at` has not risen for
    `patience` trees.
    depth: at most so many splits between the root and a leaf, from 1 to 16.
    learning_rate: the share of its step that a tree goes; above 0 and up to 1.
    objective: what the trees optimise. For rank:map every grade above 0 is a 1.
    patience: after so many trees without a rise training stops, from 1 up.
    stop_at: the k of NDCG@k that decides when to stop, from 1 up.
    bag: the mean score of so many forests, from 1 up, grown with seeds from `seed` on; in a bag of several each tree
    sees a random half of the features.
    threads: how many it uses; None: all cores.
    seed: the same seed gives the same trees; from 0 up.

    Refused: with DataError, a parameter out of its range, and grades above 31.
    """

    library = "xgboost"

    def __init__(
        self,
        trees: int = 500,
        *,
        depth: int = 6,
        learning_rate: float = 0.1,
        objective: Literal["rank:ndcg", "rank:map", "rank:pairwise"] = "rank:ndcg",
        patience: int = 50,
        stop_at: int = 10,
        bag: int = 1,
        threads: int | None = None,
        seed: int = 0,
    ) -> None:
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate
        self.objective = objective
        self.patience = patience
        self.stop_at = stop_at
        self.bag = bag
        self.threads = threads
        self.seed = seed

    def _grown(self, library: Any, train: Rows, valid: Rows | None, seed: int) -> Any:
        if self.objective not in OBJECTIVES:
            raise DataError(f"objective={self.objective!r} is unknown. Known: {', '.join(OBJECTIVES)}.")
        parameters = {
            "objective": self.objective,
            "eval_metric": f"ndcg@{self.stop_at}",
            "max_depth": self.depth,
            "eta": self.learning_rate,
            "tree_method": "hist",
            "colsample_bynode": _SHARE_IN_A_BAG if self.bag > 1 else 1.0,
            "nthread": self._threads(),
            "seed": seed,
            "verbosity": 0,
        }
        try:
            forest = library.train(
                parameters,
                self._matrix(library, train),
                self.trees,
                evals=[] if valid is None else [(self._matrix(library, valid), "valid")],
                early_stopping_rounds=None if valid is None else self.patience,
                verbose_eval=False,
            )
        except library.core.XGBoostError as error:
            raise DataError(f"XGBoost refuses: {error}") from None
        return forest if valid is None else forest[: forest.best_iteration + 1]

    def _matrix(self, library: Any, rows: Rows) -> Any:
        if rows.labels.max(initial=0) > _LARGEST_GRADE:
            raise DataError(f"XGBoost takes grades up to {_LARGEST_GRADE}; found {rows.labels.max()}.")
        labels = rows.labels > 0 if self.objective == "rank:map" else rows.labels
        return library.DMatrix(rows.features, label=labels.astype(np.float32), qid=rows.query)

    def _scores(self, forest: Any, features: Floats) -> Floats:
        forest.set_param({"nthread": self._threads()})
        return np.asarray(forest.inplace_predict(features, predict_type="margin"), np.float64)
