"""Query weights and document weights of a judged set: how much each counts in training, relative to the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from querywise.data.rows import refuse_masked
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, frozen
from querywise.runtime.stored import Known, Value, floats

_LEAST, _MOST = 1e-100, 1e100  # products of two weights, and sums of many, are finite and above 0


class Weighted(Protocol):
    """What may have weights: a judged set."""

    @property
    def query_weights(self) -> Floats | None:
        """How much each query counts in training; None: the same."""
        ...

    @property
    def document_weights(self) -> Floats | None:
        """How much each document counts in training; None: the same."""
        ...


def checked_weights(weights: ArrayLike, names: Sequence[str] | int, what: str) -> Floats:
    """One finite number above 0 per query or document.

    names: what each is called in messages, or how many there are, which are then called by their row.
    """
    refuse_masked(weights, f"{what}_weights")
    count = names if isinstance(names, int) else len(names)
    try:
        values = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"The weights of {_plural(what)} cannot be read as numbers.") from None
    if values.shape != (count,):
        raise DataError(f"There are {count} {_plural(what)}, and {what} weights of shape {values.shape}; one each.")
    wrong = np.flatnonzero(~((values >= _LEAST) & (values <= _MOST)))
    if len(wrong):
        place = int(wrong[0])
        which = f"the document in row {place + 1}" if isinstance(names, int) else f"{what} {names[place]!r}"
        raise DataError(
            f"The weight of {which} is {values[place]}; weights are finite numbers above 0, from {_LEAST:g} to "
            f"{_MOST:g}. Leave out what should not count."
        )
    return frozen(values)


@dataclass(frozen=True)
class StoredWeights:
    """Weights of training queries, or of their documents, as a model stores them. size: how many there are."""

    size: str
    what: str = "query"

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse weights that training data cannot have."""
        floats(self.size).check(value, where, known)
        checked_weights(value, known.sizes[self.size], self.what)  # type: ignore[arg-type]  # it is an array


def new_weights(
    queries: ArrayLike | Mapping[str, float] | None, documents: ArrayLike | None, query_ids: tuple[str, ...], rows: int
) -> tuple[Floats | None, Floats | None]:
    """The weights of queries, in their order or by id, and of documents, as a judged set has them."""
    if isinstance(queries, Mapping):
        known = {str(query): weight for query, weight in queries.items()}
        absent = next((query for query in query_ids if query not in known), None)
        if absent is not None:
            raise DataError(f"Query {absent!r} has no weight in query_weights; give every query one.")
        queries = [known[query] for query in query_ids]
    by_query = None if queries is None else checked_weights(queries, query_ids, "query")
    return by_query, None if documents is None else checked_weights(documents, rows, "document")


def refuse_weights(data: Weighted, whose: str, why: str, *, queries: bool = True) -> None:
    """Refuse weights that a method has no place for; with `queries=False`, those of documents only."""
    if data.document_weights is not None:
        raise DataError(
            f"{whose} has no place for document weights: {why}. LambdaMART and plain regression trees take them. "
            "Without them: data.with_weights(queries=data.query_weights)."
        )
    if queries and data.query_weights is not None:
        raise DataError(
            f"{whose} has no place for query weights: {why}. Rankers over a learner take them. Without them: "
            "data.with_weights()."
        )


def joined_weights(parts: Sequence[Floats | None], counts: Sequence[int]) -> Floats | None:
    """The weights of several sets as one; a set without weights has weight 1 everywhere."""
    if all(part is None for part in parts):
        return None
    pairs = zip(parts, counts, strict=True)
    return np.concatenate([np.ones(count) if part is None else part for part, count in pairs])


def _plural(what: str) -> str:
    return "queries" if what == "query" else f"{what}s"
