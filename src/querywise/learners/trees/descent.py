"""The leaves that documents come to in trees: the compiled kernels of `forest`."""

from __future__ import annotations

import numpy as np

from querywise.runtime.arrays import Bits, Bools, Floats, Ints
from querywise.runtime.compiled import compiled

MOST_LEAVES = 64  # of a tree whose leaves are bits of one number
_ROWS = 128  # at a time, so that what is kept of them stays in the processor's cache
_ALL, _ONE = np.uint64(2**64 - 1), np.uint64(1)
# A power of two times this has other highest six bits than any other power of two: from these, its exponent.
_SEQUENCE, _HIGHEST = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)
_EXPONENTS = np.zeros(64, np.int64)
_EXPONENTS[[(int(_SEQUENCE) << place & 2**64 - 1) >> 58 for place in range(64)]] = np.arange(64)


@compiled
def exclude(
    table: Floats,
    forests: Ints,
    nodes: Ints,
    used: Ints,
    columns: Ints,
    thresholds: Floats,
    missing_left: Bools,
    beyond: Bits,
    first_leaves: Ints,
    leaves: Floats,
    found: Floats,
) -> None:
    """The mean over forests of one sum of leaves per row, where no tree has more than 64: see Grown.

    Every node is looked at: where a row goes right, the leaves to the left are out. The first leaf that is left is the
    row's. Many rows are compared with a threshold at a time, which is faster than following each on its way.
    """
    rows = min(_ROWS, len(table))
    values, left, total = np.empty((len(used), rows)), np.empty(rows, np.uint64), np.empty(rows)
    for begin in range(0, len(table), rows):
        count = min(rows, len(table) - begin)
        for row in range(count):
            for column in range(len(used)):
                values[column, row] = table[begin + row, used[column]]
        here = found[begin : begin + count]
        here[:] = 0.0
        for forest in range(len(forests) - 1):
            total[:] = 0.0
            for tree in range(forests[forest], forests[forest + 1]):
                left[:] = _ALL
                for node in range(nodes[tree], nodes[tree + 1]):
                    own = values[columns[node], :count]
                    _keep(left, beyond[node], own, thresholds[node], missing_left[node])
                for row in range(count):
                    lowest = left[row] & (~left[row] + _ONE)
                    total[row] += leaves[first_leaves[tree] + _EXPONENTS[lowest * _SEQUENCE >> _HIGHEST]]
            for row in range(count):
                here[row] += total[row]
        for row in range(count):
            here[row] /= len(forests) - 1


@compiled
def _keep(left: Bits, beyond: int, values: Floats, threshold: float, missing_left: bool) -> None:
    """Of the leaves that are left to each row, those beyond a node where the row goes right."""
    if missing_left:
        for row in range(len(values)):
            left[row] &= beyond if values[row] > threshold else _ALL
    else:
        for row in range(len(values)):
            left[row] &= _ALL if values[row] <= threshold else beyond


@compiled
def descend(
    table: Floats,
    forests: Ints,
    roots: Ints,
    features: Ints,
    thresholds: Floats,
    missing_left: Bools,
    left: Ints,
    right: Ints,
    leaves: Floats,
    found: Floats,
) -> None:
    """The same of trees of any size, each row on its way from the root to a leaf."""
    for row in range(len(table)):
        total = 0.0
        for forest in range(len(forests) - 1):
            own = 0.0
            for tree in range(forests[forest], forests[forest + 1]):
                node = roots[tree]
                while node >= 0:
                    value = table[row, features[node]]
                    low = missing_left[node] if value != value else value <= thresholds[node]
                    node = left[node] if low else right[node]
                own += leaves[-node - 1]
            total += own
        found[row] = total / (len(forests) - 1)
