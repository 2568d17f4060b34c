"""The weights of first-stage runs, read from the answer of any ranker that fuses runs."""

from __future__ import annotations

import numpy as np

from querywise.contracts.answers import Answer, Model
from querywise.contracts.forms import Linear
from querywise.errors import DataError
from querywise.runtime.arrays import Floats


def run_weights(answer: Answer) -> Floats:
    """Queries × runs: how much each run counts for each query, none negative, each row with sum 1."""
    if not answer.runs:
        raise DataError(
            "This model does not weigh first-stage runs, so it has no weights of runs. Those of `querywise fuse`, and "
            "of the methods weights and weights-by-query, have."
        )
    common = _weights(answer.everyone)
    found = np.tile(common, (len(answer.seen), 1))
    chosen = answer.chosen() if answer.varies else np.full(len(found), -1)
    for query in np.flatnonzero(chosen >= 0).tolist():
        found[query] = _weights(answer.models()[int(chosen[query])])
    return found


def _weights(model: Model) -> Floats:
    form = model.form()
    assert isinstance(form, Linear), "models of runs are weighted sums"
    return form.weights
