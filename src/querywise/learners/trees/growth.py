"""Growing trees for any objective: their rows and labels, how many grow at once, and the forests of a bag.

LightGBM's labels are whole numbers from 0 up without gaps, each with a gain. Forests grow concurrently: a thread takes
a waiting one, grows a few trees and puts it back, because threads that share the work on one tree wait for each other
after every split. Forests are independent, so the order in which they grow does not matter.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np

from querywise.contracts.protocols import Ranker
from querywise.data.judged import Judged
from querywise.data.labels import require_same_labels, values_of
from querywise.data.training import content_order
from querywise.errors import DataError
from querywise.measures.formulas import ideal_shares
from querywise.measures.order import FLAVOURS
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.progress import doing
from querywise.runtime.stored import COUNT, Number, Optional, Whole, contents
from querywise.runtime.threads import checkpoint, cores, with_help

if TYPE_CHECKING:
    from lightgbm import Dataset

LARGEST = 2**31 - 1
_MOST_THREADS = 4_096
_ZERO = 1e-35  # LightGBM treats numbers this close to 0 as 0
_BLOCK = 4_096
_SMALL = 50_000  # values of a table up to which one thread is as fast as several
_WIDE = 1_000  # rows per column up to which a table counts as wide
_AT_A_TIME = 5  # trees at a time, so that forests finish at about the same time

# LightGBM stores the gains of grades once per process: a forest reads them when it is set up, and its NDCG on
# validation data reads them after every tree.
_GAINS = threading.Lock()
_here = threading.local()
# LightGBM rejects queries with more documents than this; longer ones are trained on a sample.
LONGEST_QUERY = 10_000
_MOST = 10_000  # distinct values passed to LightGBM, which keeps a count of each for every query
_GRADES = 4  # the highest grade that values are rounded to for a listwise cross entropy


def lightgbm() -> ModuleType:
    """Import LightGBM so that its threads sleep while they wait, unless the environment says otherwise.

    The threads of two concurrent trainings would otherwise take each other's cores in busy loops. OpenMP reads the
    setting when it is loaded.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import lightgbm

    return lightgbm


class Grower(Protocol):
    """A learner that grows trees."""

    trees: int
    leaves: int
    learning_rate: float
    min_documents: int
    patience: int
    threads: int | None
    seed: int


GROWTH = contents(
    trees=COUNT,
    leaves=Whole(2, LARGEST),
    learning_rate=Number(above=0.0, most=1.0),
    min_documents=COUNT,
    patience=COUNT,
    threads=Optional(Whole(1, _MOST_THREADS)),
    seed=Whole(0, LARGEST),
)


def growth(learner: Grower, shape: tuple[int, ...], at_once: int = 1) -> dict[str, int | float | bool]:
    """Return LightGBM's parameters for growth with any objective, if `at_once` forests grow at once.

    On small tables, threads that wait for each other after every split are slower than a single one. Column-wise
    counting is faster for wide tables, row-wise counting for long ones; the trees are the same.
    """
    rows, columns = shape
    small = learner.threads is None and rows * columns < _SMALL
    return {
        # LightGBM reserves memory for all leaves, of which there are no more than rows.
        "num_leaves": min(learner.leaves, max(rows, 2)),
        "learning_rate": learner.learning_rate,
        "min_data_in_leaf": learner.min_documents,
        "seed": learner.seed,
        "deterministic": True,
        ("force_col_wise" if rows <= _WIDE * columns else "force_row_wise"): True,
        "num_threads": 1 if small else max((learner.threads or cores()) // at_once, 1),
        "verbose": -1,
    }


def hush() -> None:
    """Keep LightGBM's warnings off standard output; each thread must set this, here by way of a table."""
    if not getattr(_here, "told", False):
        lightgbm().Dataset(np.zeros((1, 1)), params={"verbose": -1}).construct()
        _here.told = True


def check_growth(learner: Grower, *more: str) -> None:
    """Raise DataError for invalid parameters of growth; `more` names further ones that must be at least 1."""
    least = {"trees": 1, "leaves": 2, "min_documents": 1, "patience": 1, **dict.fromkeys(more, 1), "seed": 0}
    check_bounds(type(learner).__name__, vars(learner), least)


def check_bounds(kind: str, given: Mapping[str, float], least: Mapping[str, int], **most: int) -> None:
    """Raise DataError for parameters outside their bounds, and for an invalid learning rate."""
    for name, lowest in least.items():
        value, highest = given[name], most.get(name, LARGEST)
        if not lowest <= value <= highest:
            raise DataError(f"{kind}({name}={value}) must lie between {lowest} and {highest}.")
    if not 0 < given["learning_rate"] <= 1:
        raise DataError(f"{kind}(learning_rate={given['learning_rate']}) must be above 0 and at most 1.")


def check_visible(features: Floats) -> None:
    """Raise DataError for a column of numbers that LightGBM treats as all 0."""
    unseen = np.arange(features.shape[1])
    for first in range(0, len(features), _BLOCK):  # nearly every column passes within the first block
        block = features[first : first + _BLOCK]
        unseen = unseen[(np.abs(block[:, unseen]) <= _ZERO).all(axis=0)]
        if not len(unseen):
            return
    column = next((column for column in unseen.tolist() if features[:, column].any()), None)
    if column is not None:
        raise DataError(
            f"All numbers in column {column + 1} lie within {_ZERO:g} of 0, which trees treat as 0. Multiply it by a "
            "constant."
        )


@contextmanager
def own_gains() -> Iterator[Callable[[], None]]:
    """Hold a lock so that no other training sets its gains; calling the yielded function releases it early."""
    held = _GAINS.acquire()

    def need_no_gains() -> None:
        nonlocal held
        if held:
            held = False
            _GAINS.release()

    try:
        yield need_no_gains
    finally:
        need_no_gains()


class Booster(Protocol):
    """A LightGBM forest."""

    def update(self) -> bool:
        """Grow one more tree."""

    def eval_valid(self) -> list[tuple[str, str, float, bool]]:
        """Return the measures on validation data: the set, the names and values, and whether higher is better."""

    def current_iteration(self) -> int:
        """Return the number of trees."""

    def model_to_string(self, num_iteration: int) -> str:
        """Return the text of this many trees."""


class Growing:
    """A forest that is being grown.

    Args:
        booster: LightGBM's forest.
        trees: the maximum number of trees.
        patience: growing ends when the measure on validation data has not risen for this many trees; those after the
            best are dropped.
    """

    def __init__(self, booster: Booster, trees: int, patience: int | None) -> None:
        self.booster = booster
        self.trees = trees
        self.patience = patience
        self.count = self.best = 0
        self._highest = float("-inf")

    def grow(self, trees: int) -> bool:
        """Grow this many more trees; return False once the forest is finished."""
        for _ in range(min(trees, self.trees - self.count)):
            self.booster.update()
            self.count += 1
            if self.patience is not None:
                value = self.booster.eval_valid()[0][2]
                if self.best == 0 or value > self._highest:
                    self._highest, self.best = value, self.count
                if self.count - self.best >= self.patience:
                    return False
        return self.count < self.trees

    def grown(self) -> tuple[int, str]:
        """Return the number of trees kept, and their LightGBM text."""
        count = self.booster.current_iteration() if self.patience is None else self.best
        return count, self.booster.model_to_string(num_iteration=count)


def grow(forests: Sequence[Callable[[], Growing]], at_once: int) -> list[tuple[int, str]]:
    """Grow forests, `at_once` of them at a time; one at a time needs the memory of one."""
    if at_once == 1:
        return [found for forest in forests for found in _together([forest], 1)]
    return _together(forests, at_once)


def _together(forests: Sequence[Callable[[], Growing]], at_once: int) -> list[tuple[int, str]]:
    with doing("Growing trees"), own_gains() as need_no_gains:
        growing = [start() for start in forests]
        if all(each.patience is None for each in growing):
            need_no_gains()
        waiting = deque(growing)

        def work() -> None:
            hush()
            while True:
                checkpoint()
                try:
                    forest = waiting.popleft()
                except IndexError:  # the remaining ones are being grown
                    return
                if forest.grow(_AT_A_TIME):
                    waiting.append(forest)

        try:
            with_help(work, at_once - 1)
        finally:
            waiting.clear()  # after cancellation, nothing continues to grow
        return [each.grown() for each in growing]


@dataclass(frozen=True, eq=False)
class Grades:
    """The distinct labels of training and validation data, ascending from 0: grades, or values if the data has them.

    `gains` are between 0 and 1. If there are more values than LightGBM accepts, `known` is the highest value of each
    level, and a level's gain is the mean of its values.
    """

    known: Floats | Ints
    gains: Floats
    unit: float | None = None  # the value of grade 1, if values are rounded to grades

    @staticmethod
    def of(data: Judged, valid: Judged | None, objective: str) -> Grades:
        """Return the labels of training data and, if given, of validation data."""
        parts = [data] if valid is None else [data, valid]
        require_same_labels(parts)
        if data.gains is None:
            return _exponential(np.unique(np.concatenate([[0], *(part.labels for part in parts)])).astype(np.int64))
        values = np.unique(np.concatenate([[0.0], *(values_of(part) for part in parts)]))
        if objective == "rank_xendcg":
            return _rounded(values)
        if len(values) > _MOST:
            return _levels(values)
        return Grades(values, _readable(values / values[-1]) if values[-1] > 0 else np.zeros(1))

    def labels(self, data: Judged, rows: Ints) -> Ints:
        """Return LightGBM's labels of some rows."""
        if data.gains is None:
            return np.searchsorted(self.known, data.labels[rows])
        values = values_of(data)[rows]
        if self.unit is not None:
            return np.searchsorted(self.known, _as_grades(values, self.unit))
        return np.searchsorted(self.known, values)


def _levels(values: Floats) -> Grades:
    """Return at most 10,000 levels of ascending distinct values; the first one, 0, has a level of its own.

    Positive values are divided at 4,999 quantiles, which separate small values if some are very large, and at 4,999
    equal steps up to the highest, which separate large ones.
    """
    parts, above = (_MOST - 1) // 2, values[1:]
    quantiles = above[np.arange(1, parts + 1) * len(above) // parts - 1]
    cuts = np.unique(np.concatenate([[0.0], quantiles, np.linspace(0.0, values[-1], parts + 1)]))
    taken, level, sizes = np.unique(np.searchsorted(cuts, values), return_inverse=True, return_counts=True)
    return Grades(cuts[taken], _readable(np.bincount(level, values / values[-1]) / sizes))


def _exponential(grades: Ints, unit: float | None = None) -> Grades:
    """Return grades with gains 2^grade − 1, divided by the highest gain, since 2^grade may overflow."""
    highest = float(grades.max())
    gains = np.exp2(grades - highest) - np.exp2(-highest)
    return Grades(grades, _readable(gains / gains.max()) if gains.max() > 0 else np.zeros(1), unit)


def _rounded(values: Floats) -> Grades:
    """Return values as whole grades, for a listwise cross entropy that uses 2^grade: log2(1 + value / unit), rounded.

    The unit is 1 if all values are already 2^grade − 1; otherwise it makes the highest value grade 4.
    """
    exact = np.log2(1 + values)
    unit = 1.0 if np.array_equal(exact, np.rint(exact)) else float(values[-1]) / (2**_GRADES - 1)
    return _exponential(np.unique(_as_grades(values, unit)), unit)


def _as_grades(values: Floats, unit: float) -> Ints:
    found: Ints = np.rint(np.log2(1 + values / unit)).astype(np.int64)
    return found


def _readable(gains: Floats) -> Floats:
    """Return the gains, with 0 for those that are too small for LightGBM to read."""
    return np.where(gains < np.finfo(np.float64).tiny, 0.0, gains)


def training_rows(data: Judged, queries: Ints, seed: int) -> tuple[Ints, Ints]:
    """Return the rows of these queries and their counts; very long queries keep relevant rows and a seeded sample."""
    rng = np.random.default_rng(seed)
    chosen = []
    for query in queries:
        rows = np.arange(*data.candidates.rows(query).indices(len(data.labels)))
        if len(rows) > LONGEST_QUERY:
            by_label = rows[np.lexsort((rng.random(len(rows)), -data.labels[rows]))]
            rows = np.sort(by_label[:LONGEST_QUERY])
        chosen.append(rows)
    return np.concatenate(chosen), np.array([len(rows) for rows in chosen])


def weighted_rows(data: Judged, weights: Floats, seed: int, *, by_document: bool) -> tuple[Ints, Ints, Floats | None]:
    """Return the rows of queries with weight, the number per query, and the rows' weights; None if all are equal.

    `by_document` includes document weights; data that only selects a model weights all documents equally.
    """
    order = content_order(data)  # bins, sums and random numbers by query depend on the order of the rows
    kept = order[(weights[order] > 0) & (data.candidates.sizes[order] > 0)]
    rows, sizes = training_rows(data, kept, seed)
    # Mean 1: LightGBM's limits on leaves are absolute, and weights are relative.
    by_row = np.repeat(weights[kept] / (weights[kept] @ sizes / sizes.sum()), sizes)
    if data.document_weights is not None and by_document:
        by_row = by_row * data.document_weights[rows]
        by_row /= by_row.mean()
    return rows, sizes, None if np.ptp(by_row) == 0 else by_row


def weights_watched(valid: Judged, cut: int) -> Floats:
    """Return weights of validation queries that turn LightGBM's NDCG over candidates into NDCG over all judgments."""
    shares = ideal_shares(valid, cut, FLAVOURS["standard"])
    return shares if shares.any() else np.ones(len(valid))


def binned_rows(
    data: Judged, weights: Floats, grades: Grades, seed: int, base: Ranker | None, training: Dataset | None = None
) -> Dataset:
    """Return the rows with weight as a LightGBM data set.

    `base` provides scores to start from; `training` provides the bins.
    """
    rows, sizes, by_row = weighted_rows(data, weights, seed, by_document=training is None)
    found: Dataset = lightgbm().Dataset(
        data.candidates.features[rows],
        label=grades.labels(data, rows),
        weight=by_row,
        group=sizes,
        init_score=None if base is None else base.predict(data.candidates)[rows],
        reference=training,
        params={"verbose": -1, "seed": seed, "feature_pre_filter": False},
        free_raw_data=True,
    )
    return found
