"""Query weights: how much each training query counts, relative to the others."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from querywise.data.rows import refuse_masked
from querywise.data.training import Training
from querywise.errors import DataError
from querywise.runtime.arrays import Floats


def check_query_weights(weights: Floats | None, data: Training, *, documents: bool = False) -> Floats:
    """One finite, non-negative number per query: the one given times that of the data; without any, all count the same.

    documents: whether the learner has a place for document weights; without one they are refused.
    """
    if data.document_weights is not None and not documents:
        raise DataError(
            "The data has document weights, and this learner has no place for them: it learns from pairs or from whole "
            "lists of documents, which count as one. Trees (LambdaMART, plain regression) take them. For the others "
            "give query weights alone: data.with_weights(queries=data.query_weights)."
        )
    known = data.query_weights
    if weights is None:
        return np.ones(len(data)) if known is None else known
    refuse_masked(weights, "query_weights")
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (len(data),):
        raise DataError(f"There are {len(data)} queries but query_weights has shape {values.shape}.")
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        raise DataError(
            f"The weight of query {data.query_ids[wrong[0]]!r} is {values[wrong[0]]}; "
            "weights are finite numbers from 0 up."
        )
    return values if known is None else values * known


def weighed(rows: csr_array, weights: Floats | None) -> csr_array:
    """Rows of V with the weights that the data has for its queries multiplied in: u_i v_i."""
    if weights is None:
        return rows
    return csr_array((rows.data * weights[rows.indices], rows.indices, rows.indptr), shape=rows.shape)
