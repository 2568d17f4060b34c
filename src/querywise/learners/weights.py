"""Query weights: how much each training query counts, relative to the others."""

from __future__ import annotations

import numpy as np

from querywise.data.rows import refuse_masked
from querywise.data.training import Training
from querywise.errors import DataError
from querywise.runtime.arrays import Floats


def check_query_weights(weights: Floats | None, data: Training) -> Floats:
    """One finite, non-negative number per query; without any, all queries count the same."""
    if weights is None:
        return np.ones(len(data))
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
    return values
