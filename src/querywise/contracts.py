"""The contracts of the library, on one page. For type checking only: nothing needs to inherit from them."""

from __future__ import annotations

from typing import Protocol, Self

from querywise.arrays import Floats
from querywise.data.groups import Candidates, Judged


class Ranker(Protocol):
    """Whatever scores documents once it has been fitted."""

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Learn from judged documents; `valid` may decide when to stop."""
        ...

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document, in the order of the rows; only scores of one query can be compared."""
        ...


class Learner(Protocol):
    """A ranker that can be told how much each training query counts.

    Query weights are non-negative and relative: multiplying them by a constant changes nothing.
    """

    def fit(self, data: Judged, /, *, query_weights: Floats | None = None, valid: Judged | None = None) -> Self:
        """Learn from judged documents, each query counting as its weight says."""
        ...

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document, in the order of the rows."""
        ...
