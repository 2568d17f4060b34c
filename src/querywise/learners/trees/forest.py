"""Grown trees, read from LightGBM's text and evaluated by compiled code: the same sums to the last bit, less overhead.

A query has a hundred documents or so, and for these LightGBM's call takes longer than its prediction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.errors import ModelFileError
from querywise.runtime.arrays import Floats, Ints, for_kernels
from querywise.runtime.compiled import compiled
from querywise.runtime.threads import in_threads

_BLOCK = 4096  # rows at a time, in each thread
_CATEGORICAL, _ZERO_IS_MISSING = 1, 4  # bits of a decision that are not supported here


class Grown(NamedTuple):
    """Trees end to end. A child from 0 up is a node, one below is a leaf, −1 the first; `roots` are such children."""

    roots: Ints
    features: Ints
    thresholds: Floats
    left: Ints
    right: Ints
    leaves: Floats

    def scores(self, table: Floats) -> Floats:
        """One sum of leaves per row of features."""
        found = np.empty(len(table))
        blocks = [slice(first, first + _BLOCK) for first in range(0, len(table), _BLOCK)]
        trees = Grown._make(for_kernels(each) for each in self)
        in_threads(lambda block: _descend(table[block], *trees, found[block]), blocks)
        return found


def read_forest(text: str, width: int) -> Grown:
    """The trees of a model as LightGBM writes them down, for rows of so many features; anything else is refused."""
    roots, nodes, leaves = [], [np.zeros((4, 0))], [np.zeros(0)]
    first_node = first_leaf = 0
    try:
        for part in text.partition("\nend of trees")[0].split("\nTree=")[1:]:
            fields = dict(line.split("=", 1) for line in part.splitlines()[1:] if "=" in line)
            (column, cut, left, right), own = _tree(fields, width)
            roots.append(first_node if len(column) else -first_leaf - 1)
            shifted = [np.where(child < 0, child - first_leaf, child + first_node) for child in (left, right)]
            nodes.append(np.array([column, cut, *shifted]))
            leaves.append(own)
            first_node += len(column)
            first_leaf += len(own)
    except (KeyError, ValueError, IndexError) as error:
        raise ModelFileError(f"The trees cannot be read ({error}). Fit the model anew.") from None
    every = np.concatenate(nodes, axis=1)
    column, cut, left, right = every
    whole = [np.ascontiguousarray(each, dtype=np.int64) for each in (column, left, right)]
    return Grown(
        np.array(roots, np.int64), whole[0], np.ascontiguousarray(cut), whole[1], whole[2], np.concatenate(leaves)
    )


def _tree(fields: dict[str, str], width: int) -> tuple[tuple[Floats, Floats, Floats, Floats], Floats]:
    """Columns, thresholds and children of one tree's nodes, and its leaves, all of them checked."""
    leaves = np.array(fields["leaf_value"].split(), np.float64)
    if len(leaves) != int(fields["num_leaves"]) or not len(leaves):
        raise ValueError("a tree has another number of leaves than it says")
    names = ("split_feature", "threshold", "left_child", "right_child", "decision_type")
    values = [np.array(fields.get(name, "").split(), np.float64) for name in names]
    column, cut, left, right, kind = values
    count = len(leaves) - 1
    if any(len(each) != count for each in values):
        raise ValueError("a tree has another number of nodes than it says")
    if np.any(kind.astype(np.int64) & (_CATEGORICAL | _ZERO_IS_MISSING)):
        raise ValueError("a node decides otherwise than by a threshold")
    # Every child has a higher number than its parent, so that every descent ends in a leaf.
    after = np.arange(count)
    fits = [((child < 0) | (child > after)) & (child < count) & (child >= -count - 1) for child in (left, right)]
    if not (np.all(fits) and np.all((column >= 0) & (column < width)) and np.isfinite(leaves).all()):
        raise ValueError("a node leads nowhere")
    return (column, cut, left, right), leaves


@compiled
def _descend(
    table: Floats,
    roots: Ints,
    features: Ints,
    thresholds: Floats,
    left: Ints,
    right: Ints,
    leaves: Floats,
    found: Floats,
) -> None:
    for row in range(len(table)):
        total = 0.0
        for root in roots:
            node = root
            while node >= 0:
                node = left[node] if table[row, features[node]] <= thresholds[node] else right[node]
            total += leaves[-node - 1]
        found[row] = total
