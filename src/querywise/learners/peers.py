"""Boosted trees of other libraries, trained as their users would train them, for comparison.

XGBoost's ranking objectives [chen2016]_ and CatBoost's ranking losses [prokhorenkova2018]_.
"""

from __future__ import annotations

import pickle
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from types import ModuleType
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from querywise.contracts.asking import OneModel
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.learners.trees.growth import check_bounds
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.parameters import Package
from querywise.runtime.progress import doing
from querywise.runtime.threads import cores

_INSTALL = "pip install 'querywise[peers]'"
_LEAST = {"trees": 1, "depth": 1, "patience": 1, "stop_at": 1, "bag": 1, "seed": 0}
_SHARE_IN_A_BAG = 0.5  # of the features, for each tree of a bag, as in LambdaMART
_LARGEST_GRADE = 31  # for higher grades, XGBoost's gain overflows
OBJECTIVES = ("rank:ndcg", "rank:map", "rank:pairwise")
MODES = ("Classic", "NDCG", "MAP")


class LibraryTable(NamedTuple):
    """A table in the form that other libraries accept: features, grades, and the index of each row's query."""

    features: Floats
    labels: Ints
    query: Ints

    @staticmethod
    def of(data: Judged) -> LibraryTable:
        """Return the documents of a judged set."""
        return LibraryTable(data.candidates.features, data.labels, data.candidates.query_of_row)


@dataclass(eq=False, repr=False)
class Peer(OneModel):
    """Base class of other libraries' boosted trees, for comparison.

    A subclass defines how a forest is grown and scores.

    Args:
        trees: the maximum number of trees, from 1 up; with a validation set, training stops once its NDCG@`stop_at` has
            not risen for `patience` trees.
        depth: the maximum number of splits between the root and a leaf, from 1 to 16.
        learning_rate: the share of its step that a tree takes; above 0 and up to 1.
        patience: training stops after this many trees without a rise, from 1 up.
        stop_at: the k of NDCG@k that decides when to stop, from 1 up.
        bag: the number of forests, from 1 up, whose mean score is used, grown with seeds from `seed` on.
        threads: the number of threads; None means all cores.
        seed: the same seed gives the same trees; from 0 up.

    Raises:
        DataError: A parameter is out of its range.

    It cannot be saved or served.
    """

    trees: int = 500
    _: KW_ONLY
    depth: int = 6
    learning_rate: float = 0.1
    patience: int = 50
    stop_at: int = 10
    bag: int = 1
    threads: int | None = None
    seed: int = 0

    library: ClassVar[str]

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Grow the forests; with `valid`, grow each until its NDCG@`stop_at` on those queries stops rising."""
        check_bounds(type(self).__name__, vars(self), _LEAST, depth=16)
        data.require_preferences()
        if data.gains is not None or data.query_weights is not None or data.document_weights is not None:
            raise DataError(
                f"The data has values beside grades, or weights, which {type(self).__name__} takes in its own way: fit "
                "it yourself, and give compare its scores."
            )
        candidates = data.candidates
        if valid is not None:
            valid.candidates.require_features(candidates.features.shape[1], candidates.feature_names)
        library, checked = installed(self.library), None if valid is None else LibraryTable.of(valid)
        with doing("Growing trees"):
            seeds = range(self.seed, self.seed + self.bag)
            self._forests = [self._grown(library, LibraryTable.of(data), checked, seed) for seed in seeds]
        return self

    def _predict(self, seen: Candidates, /) -> Floats:
        """Return the mean score over the forests."""
        if not len(seen.features):
            return np.zeros(0)
        total = np.zeros(len(seen.features))
        for forest in self._forests:
            total += self._scores(forest, seen.features)
        return total / len(self._forests)

    @property
    def nbytes(self) -> int:
        """The size of the pickled model, in bytes."""
        return len(pickle.dumps(self._forests))

    @abstractmethod
    def _grown(self, library: Any, train: LibraryTable, valid: LibraryTable | None, seed: int) -> Any:
        """Grow one forest."""

    @abstractmethod
    def _scores(self, forest: Any, features: Floats) -> Floats:
        """Return the scores of one forest."""

    def _threads(self) -> int:
        return cores() if self.threads is None else self.threads


def installed(library: str) -> ModuleType:
    """Import another library. Raise DataError if it is not installed."""
    return Package(library, _INSTALL).load(f"The method {library}")


@dataclass(eq=False, repr=False)
class XGBoost(Peer):
    """Boosted trees trained with XGBoost's ranking objectives: a `Peer`. Grades above 31 also raise DataError.

    Args:
        objective: what the trees optimize. For rank:map every grade above 0 counts as 1.
        bag: the number of forests, from 1 up, whose mean score is used, grown with seeds from `seed` on; with several,
            each tree sees a random half of the features.
    """

    _: KW_ONLY
    objective: Literal["rank:ndcg", "rank:map", "rank:pairwise"] = "rank:ndcg"

    library = "xgboost"

    def _grown(self, library: Any, train: LibraryTable, valid: LibraryTable | None, seed: int) -> Any:
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
            raise DataError(f"XGBoost raised an error: {error}") from None
        return forest if valid is None else forest[: forest.best_iteration + 1]

    def _matrix(self, library: Any, rows: LibraryTable) -> Any:
        if rows.labels.max(initial=0) > _LARGEST_GRADE:
            raise DataError(f"XGBoost takes grades up to {_LARGEST_GRADE}; found {rows.labels.max()}.")
        labels = rows.labels > 0 if self.objective == "rank:map" else rows.labels
        return library.DMatrix(rows.features, label=labels.astype(np.float32), qid=rows.query)

    def _scores(self, forest: Any, features: Floats) -> Floats:
        forest.set_param({"nthread": self._threads()})
        return np.asarray(forest.inplace_predict(features, predict_type="margin"), np.float64)


@dataclass(eq=False, repr=False)
class CatBoost(Peer):
    """Symmetric boosted trees trained with CatBoost's YetiRank: a `Peer`.

    Args:
        depth: the number of splits between the root and a leaf, from 1 to 16.
        mode: what YetiRank optimizes: pairs near each other as in its paper, NDCG, or MAP, for which every grade above
            0 counts as 1.
    """

    _: KW_ONLY
    mode: Literal["Classic", "NDCG", "MAP"] = "Classic"

    library = "catboost"

    def _grown(self, library: Any, train: LibraryTable, valid: LibraryTable | None, seed: int) -> Any:
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
            raise DataError(f"CatBoost raised an error: {str(error).splitlines()[-1]}") from None
        return forest

    def _pool(self, library: Any, rows: LibraryTable) -> Any:
        labels = rows.labels > 0 if self.mode == "MAP" else rows.labels
        return library.Pool(rows.features, label=labels.astype(np.float64), group_id=rows.query)

    def _scores(self, forest: Any, features: Floats) -> Floats:
        return np.asarray(forest.predict(features, thread_count=self._threads()), np.float64)
