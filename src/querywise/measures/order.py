"""Scores → order. The one place that sorts, with the one tie rule: tied documents keep their order."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from querywise.data.judged import Candidates
from querywise.data.rows import refuse_masked
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints


def order(scores: Floats, starts: Ints, *, tie_break: Ints | None = None) -> Ints:
    """Row numbers, best first within each query; tied documents keep their order, or go by `tie_break`, lowest first.

    >>> order(np.array([1.0, 3.0, 3.0, 0.5]), np.array([0, 3, 4]))
    array([1, 2, 0, 3])
    """
    queries = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    keys = (-scores, queries) if tie_break is None else (tie_break, -scores, queries)
    return np.lexsort(keys)


def check_scores(scores: ArrayLike, candidates: Candidates) -> Floats:
    """Scores as an array of floats: one finite number per document, or a DataError."""
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
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise DataError(f"The score of document {candidates.document_label(int(wrong[0]))} is {values[wrong[0]]}.")
    return values
