"""CatBoost's ranking losses [prokhorenkova2018]_."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from querywise.errors import DataError
from querywise.learners.peers.peer import Peer, Rows
from querywise.runtime.arrays import Floats

MODES = ("Classic", "NDCG", "MAP")


class CatBoost(Peer):
    """Symmetric boosted trees by CatBoost's YetiRank, to compare with; it is not saved or served.

    trees: at most so many, from 1 up; with a validation set, training stops once its NDCG@`stop_at` has not risen for
    `patience` trees.
    depth: splits between the root and a leaf, from 1 to 16.
    learning_rate: the share of its step that a tree goes; above 0 and up to 1.
    mode: what YetiRank optimises: pairs near each other as in its paper, NDCG, or MAP, for which every grade above 0
    is a 1.
    patience: after so many trees without a rise training stops, from 1 up.
    stop_at: the k of NDCG@k that decides when to stop, from 1 up.
    bag: the mean score of so many forests, from 1 up, grown with seeds from `seed` on.
    threads: how many it uses; None: all cores.
    seed: the same seed gives the same trees; from 0 up.

    Refused: with DataError, a parameter out of its range.
    """

    library = "catboost"

    def __init__(
        self,
        trees: int = 500,
        *,
        depth: int = 6,
        learning_rate: float = 0.1,
        mode: Literal["Classic", "NDCG", "MAP"] = "Classic",
        patience: int = 50,
        stop_at: int = 10,
        bag: int = 1,
        threads: int | None = None,
        seed: int = 0,
    ) -> None:
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate
        self.mode = mode
        self.patience = patience
        self.stop_at = stop_at
        self.bag = bag
        self.threads = threads
        self.seed = seed

    def _grown(self, library: Any, train: Rows, valid: Rows | None, seed: int) -> Any:
        if self.mode not in MODES:
            raise DataError(f"mode={self.mode!r} is unknown. Known: {', '.join(MODES)}.")
        forest = library.CatBoost(
            {
                "loss_function": "YetiRank" if self.mode == "Classic" else f"YetiRank:mode={self.mode}",
                "eval_metric": f"NDCG:top={self.stop_at};type={'Base' if self.mode == 'MAP' else 'Exp'}",
                "iterations": self.trees,
                "depth": self.depth,
                "learning_rate": self.learning_rate,
                "thread_count": self._threads(),
                "random_seed": seed,
                "logging_level": "Silent",
                "allow_writing_files": False,
            }
        )
        watched = None if valid is None else self._pool(library, valid)
        try:
            forest.fit(
                self._pool(library, train),
                eval_set=watched,
                early_stopping_rounds=None if watched is None else self.patience,
                use_best_model=watched is not None,
            )
        except library.CatBoostError as error:
            raise DataError(f"CatBoost refuses: {str(error).splitlines()[-1]}") from None
        return forest

    def _pool(self, library: Any, rows: Rows) -> Any:
        labels = rows.labels > 0 if self.mode == "MAP" else rows.labels
        return library.Pool(rows.features, label=labels.astype(np.float64), group_id=rows.query)

    def _scores(self, forest: Any, features: Floats) -> Floats:
        return np.asarray(forest.predict(features, thread_count=self._threads()), np.float64)
