"""Scores → order. The one place that sorts, with the one tie rule: tied documents keep their order."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from querywise.data.judged import Candidates
from querywise.data.rows import refuse_masked
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints

ScoreOrder: TypeAlias = Literal["rows", "grouped"]  # that of the input's rows, or that of Candidates
_ORDERS = get_args(ScoreOrder)


def order(scores: Floats, starts: Ints, *, tie_break: Ints | None = None) -> Ints:
    """Row numbers, best first within each query; tied documents keep their order, or go by `tie_break`, lowest first.

    >>> order(np.array([1.0, 3.0, 3.0, 0.5]), np.array([0, 3, 4]))
    array([1, 2, 0, 3])
    """
    if len(starts) == 2 and tie_break is None:
        return (-scores).argsort(kind="stable")
    queries = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    keys = (-scores, queries) if tie_break is None else (tie_break, -scores, queries)
    return np.lexsort(keys)


def check_scores(scores: ArrayLike, candidates: Candidates, given: ScoreOrder | None = "grouped") -> Floats:
    """Scores as an array of floats, in the order of `candidates`: one finite number per document, or a DataError.

    given: the order in which they are given; None: not known, which is refused where the two orders differ.
    """
    refuse_masked(scores, "the scores")
    try:
        values = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"Scores are numbers, one per document, or come from what predicts them; found a {type(scores).__name__} "
            f"({error})."
        ) from None
    rows = len(candidates.features)
    if values.shape != (rows,):
        found = f"{len(values)} scores" if values.ndim == 1 else f"scores of shape {values.shape}"
        raise DataError(f"There are {rows} documents but {found}; one score per document is needed.")
    values = _grouped(values, candidates, given)
    finite = np.isfinite(values)
    if np.count_nonzero(finite) < rows:
        wrong = np.flatnonzero(~finite)
        raise DataError(f"The score of document {candidates.document_label(int(wrong[0]))} is {values[wrong[0]]}.")
    return values


def _grouped(values: Floats, candidates: Candidates, given: ScoreOrder | None) -> Floats:
    """Scores brought from the order in which they are given to that of the candidates."""
    if given is not None and given not in _ORDERS:
        raise DataError(
            f"order={given!r}: expected 'rows', the order of the input, or 'grouped', that of the candidates.",
            arguments=("order",),
        )
    rows = candidates.source_rows
    if given == "grouped" or rows is None or bool(np.all(rows[1:] > rows[:-1])):
        return values
    if given is None:
        raise DataError(
            "The rows of this data were not in order and were brought together by query, so it is not clear which "
            "document each score belongs to. Give the ranker itself, evaluate(ranker, data); or say which order the "
            "scores have: order='rows', that of the input, as predict(table) gives them; order='grouped', that of "
            "data.candidates, as predict(data) gives them.",
            arguments=("order",),
        )
    sources: Ints = np.argsort(np.argsort(rows, kind="stable"), kind="stable")
    return values[sources]
