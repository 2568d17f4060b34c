"""Compiled kernels of `forest` that find the leaf of each document in each tree."""

from __future__ import annotations

import numpy as np

from querywise.runtime.arrays import Bits, Bools, Floats, Ints, Shorts
from querywise.runtime.compiled import compiled

_ROWS = 128  # rows at a time, so that their data stays in the processor's cache
_LANES = 32  # rows that the widest processors compare at once
_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


@compiled
def exclude(
    table: Floats,
    bags: Ints,
    forests: Ints,
    nodes: Bits,
    used: Ints,
    missing_left: Bools,
    first_cuts: Ints,
    cuts: Floats,
    columns: Bits,
    places: Shorts | Bits,
    beyond: Shorts | Bits,
    search: Shorts | Bits,
    leaves: Floats,
    found: Floats,
) -> None:
    """Compute, for every row and bag, the mean over its forests of their sums of leaves; see Binned.

    Every node is evaluated: if a row goes right, the leaves to the left are excluded. The first remaining leaf is the
    row's. Comparing many rows with a threshold at a time is faster than following each down the tree.
    """
    all_leaves, factor, shift = search[0], search[1], search[2]
    rows = min(_ROWS, (len(table) + _LANES - 1) // _LANES * _LANES)
    codes, left, total = np.zeros((len(used), rows), beyond.dtype), np.empty(rows, beyond.dtype), np.empty(rows)
    for begin in range(0, len(table), rows):
        here = found[begin : begin + rows]
        _bin(table[begin : begin + rows], used, missing_left, first_cuts, cuts, codes)
        here[:] = 0.0
        for bag in range(len(bags) - 1):
            for forest in range(bags[bag], bags[bag + 1]):
                total[:] = 0.0
                for tree in range(forests[forest], forests[forest + 1]):
                    left[:] = all_leaves
                    for node in range(nodes[tree], nodes[tree + 1]):
                        own, place, kept = codes[columns[node]], places[node], beyond[node]
                        for row in range(rows):
                            left[row] &= kept if own[row] > place else all_leaves
                    for row in range(rows):
                        left[row] = (left[row] & (~left[row] + _ONE)) * factor
                    for row in range(len(here)):
                        total[row] += leaves[tree, left[row] >> shift]
                for row in range(len(here)):
                    here[row, bag] += total[row]
            for row in range(len(here)):
                here[row, bag] /= bags[bag + 1] - bags[bag]


@compiled
def _bin(table: Floats, used: Ints, missing_left: Bools, first_cuts: Ints, cuts: Floats, codes: Shorts | Bits) -> None:
    """Count, for every column and row, the thresholds below the value; a missing value is above none or all."""
    rows = (len(table) + 15) // 16 * 16
    values, counts = np.zeros(rows), np.empty(rows, np.int64)
    for column in range(len(used)):
        if column == 0 or used[column] != used[column - 1]:
            for row in range(len(table)):
                values[row] = table[row, used[column]]
        counts[:] = 0
        last = np.uint64(first_cuts[column + 1])
        for cut in range(np.uint64(first_cuts[column]), last, _FOUR):
            second, third, fourth = cut + _ONE, cut + _TWO, cut + _THREE
            _count(
                counts,
                values,
                cuts[cut],
                cuts[second] if second < last else np.inf,
                cuts[third] if third < last else np.inf,
                cuts[fourth] if fourth < last else np.inf,
                missing_left[column],
            )
        for row in range(rows):
            codes[column, row] = counts[row]


@compiled
def _count(
    counts: Ints, values: Floats, first: float, second: float, third: float, fourth: float, missing_left: bool
) -> None:
    """Count the rows that are above each of four thresholds; a missing value that goes right counts as above."""
    if missing_left:
        for row in range(len(counts)):
            value = values[row]
            counts[row] += (value > first) + (value > second) + ((value > third) + (value > fourth))
    else:
        for row in range(len(counts)):
            value = values[row]
            low = (value <= first) + (value <= second) + ((value <= third) + (value <= fourth))
            counts[row] += 4 - low


@compiled
def follow(
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
    """Compute the same for trees of any size, following each row from the root to a leaf."""
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
