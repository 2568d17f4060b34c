"""Gains of labels, and training weights of queries and documents.

Real-valued labels are stored as integer levels with a table of their values. Pairs of documents need only the order of
labels, so levels suffice for them; measures and listwise learners look up the values. Level 0 has value 0: a document
is relevant if its value is above 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from querywise.data.rows import as_labels, refuse_masked
from querywise.display.words import plural
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints, frozen
from querywise.runtime.stored import Known, Value, floats

_LEAST, _MOST = 1e-100, 1e100  # products of two weights, and sums of many, are finite and positive

_LARGEST = 1e100  # sums of many are finite
_HINT = " Real-valued labels, such as click rates, need gains=True of from_arrays, from_frame and read_parquet."


class Learnable(Protocol):
    """A training set, in memory or not, that may have gains of labels and weights."""

    @property
    def gains(self) -> Floats | None:
        """The gain of each label; None if labels are grades."""

    @property
    def query_weights(self) -> Floats | None:
        """The training weight of each query; None if all are equal."""

    @property
    def document_weights(self) -> Floats | None:
        """The training weight of each document; None if all are equal."""


class Labelled(Learnable, Protocol):
    """A training set with labels."""

    @property
    def labels(self) -> Ints:
        """One label per row."""


def checked_weights(weights: ArrayLike | Mapping[str, float], names: Sequence[str] | int, what: str) -> Floats:
    """Return one finite positive weight per query or document.

    Args:
        weights: one each, or those of queries by id.
        names: the names of queries for messages, or a number of rows, which are then named by row.
        what: what the weights belong to, for messages.
    """
    if isinstance(weights, Mapping) and not isinstance(names, int):
        known = {str(query): weight for query, weight in weights.items()}
        absent = next((query for query in names if query not in known), None)
        if absent is not None:
            raise DataError(f"Query {absent!r} has no weight in query_weights; give every query one.")
        weights = [known[query] for query in names]
    refuse_masked(weights, f"{what}_weights")  # type: ignore[arg-type]  # documents have no names
    count = names if isinstance(names, int) else len(names)
    try:
        values = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"The weights of {plural(what)} cannot be read as numbers.") from None
    if values.shape != (count,):
        raise DataError(f"There are {count} {plural(what)}, and {what} weights of shape {values.shape}; one each.")
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
    """Weights of training queries, or of their documents, as a model stores them; `size` is their number."""

    size: str
    what: str = "query"

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError or DataError for weights that training data cannot have."""
        floats(self.size).check(value, where, known)
        checked_weights(value, known.sizes[self.size], self.what)  # type: ignore[arg-type]  # it is an array


def refuse_weights(data: Learnable, whose: str, why: str, *, queries: bool = True) -> None:
    """Raise DataError for weights that a method cannot use; with `queries=False`, only for those of documents."""
    if data.document_weights is not None:
        raise DataError(
            f"{whose} does not support document weights: {why}. LambdaMART and plain regression trees take them. "
            "To drop them: data.with_weights(queries=data.query_weights)."
        )
    if queries and data.query_weights is not None:
        raise DataError(
            f"{whose} does not support query weights: {why}. Rankers over a learner take them. Without them: "
            "data.with_weights()."
        )


def joined_weights(parts: Sequence[Floats | None], counts: Sequence[int]) -> Floats | None:
    """Return the joined weights of several sets; a set without weights has weight 1 everywhere."""
    if all(part is None for part in parts):
        return None
    pairs = zip(parts, counts, strict=True)
    return np.concatenate([np.ones(count) if part is None else part for part, count in pairs])


def checked_gains(gains: ArrayLike, labels: Ints) -> Floats:
    """Return the value of each level after checking them: 0 for level 0, then rising, one for every label."""
    values = np.array(gains, dtype=np.float64)
    if values.ndim != 1 or not len(values) or values[0] != 0:
        raise DataError(f"gains must be one number per label, from 0 up, and 0 for label 0; found {_start(values)}.")
    if not np.isfinite(values).all() or values[-1] > _LARGEST or (np.diff(values) <= 0).any():
        raise DataError(f"gains must be finite numbers that rise from label to label; found {_start(values)}.")
    highest = int(labels.max(initial=0))
    if highest >= len(values):
        raise DataError(f"gains has {len(values)} entries, from label 0 to {len(values) - 1}; there is a {highest}.")
    return frozen(values)


def labels_from(y: ArrayLike, gains: bool | ArrayLike) -> tuple[Ints, Floats | None]:
    """Return labels and their gains.

    `gains` is False if labels are grades, True if each label is its own value, or a table with the gain of each label.

    >>> levels, values = labels_from([0.2, 0.0, 0.05, 0.2], True)
    >>> levels.tolist(), values.tolist()
    ([2, 0, 1, 2], [0.0, 0.05, 0.2])
    """
    if gains is not True:
        try:
            labels = as_labels(y)
        except DataError as error:
            raise DataError(f"{error}{_HINT}" if gains is False and _are_fractions(y) else str(error)) from None
        return labels, None if gains is False else checked_gains(gains, labels)
    refuse_masked(y, "the labels")
    given = np.asarray(y)
    if given.ndim != 1 or given.dtype.kind not in "biuf":
        raise DataError(f"Labels must be one number per row; found {given.dtype} of shape {given.shape}.")
    values = given.astype(np.float64)
    wrong = np.flatnonzero(~((values >= 0) & (values <= _LARGEST)))
    if len(wrong):
        raise DataError(
            f"Row {wrong[0] + 1} has label {given[wrong[0]]}; a real-valued label is a number from 0 (not relevant) to "
            f"{_LARGEST:g}."
        )
    table = np.unique(np.concatenate([[0.0], values]))
    return np.searchsorted(table, values).astype(np.int64), table


def values_of(data: Labelled) -> Floats:
    """Return the value of every label, or the grade if there are no values."""
    found: Floats = data.labels.astype(np.float64) if data.gains is None else data.gains[data.labels]
    return found


def joined_labels(parts: Sequence[Labelled]) -> tuple[Ints, Floats | None]:
    """Return the labels of several sets with a common table of values; either all sets have values or none."""
    require_same_labels(parts)
    tables = [part.gains for part in parts if part.gains is not None]
    if not tables or all(np.array_equal(each, tables[0]) for each in tables):
        return np.concatenate([part.labels for part in parts]), tables[0] if tables else None
    table = np.unique(np.concatenate(tables))
    return np.concatenate([np.searchsorted(table, values_of(part)) for part in parts]).astype(np.int64), table


def require_same_labels(parts: Sequence[Learnable]) -> None:
    """Raise DataError if some sets have real-valued labels and others grades, which cannot be compared."""
    if len({part.gains is None for part in parts}) > 1:
        raise DataError(
            "One judged set has real-valued labels (gains), another has grades, which cannot be compared. Make all of "
            "them with gains=…, or none."
        )


def refuse_gains(data: Learnable, whose: str, why: str) -> None:
    """Raise DataError for real-valued labels where they have no meaning."""
    if data.gains is not None:
        raise DataError(f"{whose} does not support real-valued labels (gains): {why}.")


def refuse_unwritable(data: Learnable, where: str) -> None:
    """Raise DataError instead of dropping data that a file format cannot hold."""
    refuse_gains(data, where, "it holds whole numbers; keep the table that the labels came from")
    if data.query_weights is not None or data.document_weights is not None:
        raise DataError(f"{where} does not support weights. Remove them first: data.with_weights().")


def _are_fractions(y: ArrayLike) -> bool:
    given = np.asarray(y)
    return given.dtype.kind == "f" and bool(np.all(given >= 0) and np.isfinite(given).all())


def _start(values: Floats) -> str:
    return f"{values.ravel()[:8].tolist()}{' …' if values.size > 8 else ''}"
