"""Shapley values of LightGBM's trees: what each feature adds to a score."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np

from querywise.runtime.arrays import Floats
from querywise.runtime.threads import checkpoint

_FEW_ROWS = 4
_SHAPLEY_ROWS = 64  # at a time: they take a tenth of a second or so


_Values = TypeVar("_Values", covariant=True)


class Explaining(Protocol[_Values]):
    """What LightGBM's boosters do."""

    def predict(self, data: Floats, /, *, pred_contrib: bool, num_threads: int) -> _Values:
        """Rows × features, and a last column that is the same for all rows."""
        ...


def shapley_values(booster: Explaining[_Values], features: Floats, threads: int | None) -> Floats:
    """Rows × features: what each adds to a row's sum of leaves, by LightGBM's own trees."""
    found = np.zeros(features.shape)
    # For a few rows a thread is enough: starting others takes longer, and they would keep the cores busy for a while.
    count = 1 if len(features) <= _FEW_ROWS else threads or 0
    for first in range(0, len(features), _SHAPLEY_ROWS):
        checkpoint()
        block = slice(first, first + _SHAPLEY_ROWS)
        told = np.asarray(booster.predict(features[block], pred_contrib=True, num_threads=count), dtype=np.float64)
        found[block] = told[:, :-1]  # the last column is the expected value: the same for every document
    return found
