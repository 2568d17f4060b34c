"""The descent of documents through trees: the compiled kernel of `forest`."""

from __future__ import annotations

from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import compiled


@compiled
def descend(
    table: Floats,
    roots: Ints,
    features: Ints,
    thresholds: Floats,
    left: Ints,
    right: Ints,
    leaves: Floats,
    found: Floats,
) -> None:
    """One sum of leaves per row: see Grown. The numbers are not checked here."""
    for row in range(len(table)):
        total = 0.0
        for root in roots:
            node = root
            while node >= 0:
                node = left[node] if table[row, features[node]] <= thresholds[node] else right[node]
            total += leaves[-node - 1]
        found[row] = total


@compiled
def descend_missing(
    table: Floats,
    roots: Ints,
    features: Ints,
    thresholds: Floats,
    left: Ints,
    right: Ints,
    leaves: Floats,
    missing_left: Bools,
    found: Floats,
) -> None:
    """The same, where NaN goes to the side that a node has for missing values."""
    for row in range(len(table)):
        total = 0.0
        for root in roots:
            node = root
            while node >= 0:
                value = table[row, features[node]]
                low = missing_left[node] if value != value else value <= thresholds[node]
                node = left[node] if low else right[node]
            total += leaves[-node - 1]
        found[row] = total
