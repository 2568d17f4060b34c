"""What boosted trees of other libraries have in common: rows by query, early stopping, the mean over seeds."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from querywise.contracts.answers import ready
from querywise.contracts.asking import AnyRanker, predicts
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.packages import Package
from querywise.runtime.progress import doing
from querywise.runtime.threads import cores

_INSTALL = "pip install 'querywise[peers]'"
_LARGEST = 2**31 - 1


class Rows(NamedTuple):
    """A table as other libraries take it: features, grades, and the number of each row's query."""

    features: Floats
    labels: Ints
    query: Ints

    @staticmethod
    def of(data: Judged) -> Rows:
        """The documents of a judged set."""
        return Rows(data.candidates.features, data.labels, data.candidates.query_of_row)


class Peer(AnyRanker):
    """Boosted trees of another library; a subclass says how one forest is grown and asked for scores."""

    library: ClassVar[str]

    trees: int
    depth: int
    learning_rate: float
    patience: int
    stop_at: int
    bag: int
    threads: int | None
    seed: int
    _forests: list[Any]

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Grow the forests; with `valid`, each until its NDCG@`stop_at` there no longer rises."""
        self._check()
        data.require_preferences()
        if data.gains is not None or data.query_weights is not None or data.document_weights is not None:
            raise DataError(
                f"The data has values beside grades, or weights, which {type(self).__name__} takes in its own way: fit "
                "it yourself, and give compare its scores."
            )
        candidates = data.candidates
        if valid is not None:
            valid.candidates.require_features(candidates.features.shape[1], candidates.feature_names)
        library, checked = installed(self.library), None if valid is None else Rows.of(valid)
        with doing("Growing trees"):
            self._forests = [
                self._grown(library, Rows.of(data), checked, self.seed + number) for number in range(self.bag)
            ]
        return self

    @predicts
    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document: the mean over the forests."""
        features = ready(self, candidates).features
        if not len(features):
            return np.zeros(0)
        total = np.zeros(len(features))
        for forest in self._forests:
            total += self._scores(forest, features)
        return total / len(self._forests)

    @property
    def nbytes(self) -> int:
        """How large the model is, as Python would store it."""
        return len(pickle.dumps(self._forests))

    @abstractmethod
    def _grown(self, library: Any, train: Rows, valid: Rows | None, seed: int) -> Any:
        """One forest."""

    @abstractmethod
    def _scores(self, forest: Any, features: Floats) -> Floats:
        """The scores of one forest."""

    def _threads(self) -> int:
        return cores() if self.threads is None else self.threads

    def _check(self) -> None:
        kind = type(self).__name__
        limits = {"trees": 1, "depth": 1, "patience": 1, "stop_at": 1, "bag": 1, "seed": 0}
        for name, lowest in limits.items():
            value, most = getattr(self, name), 16 if name == "depth" else _LARGEST
            if not lowest <= value <= most:
                raise DataError(f"{kind}({name}={value}) must lie between {lowest} and {most}.")
        if not 0 < self.learning_rate <= 1:
            raise DataError(f"{kind}(learning_rate={self.learning_rate}) must lie above 0 and at most at 1.")


def installed(library: str) -> ModuleType:
    """Another library, loaded now; refused where it is not installed."""
    return Package(library, _INSTALL).load(f"The method {library}")
