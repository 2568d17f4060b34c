"""Grown trees, read from LightGBM's text and evaluated by compiled code: the same sums to the last bit, less overhead.

A query has a hundred documents or so, and for these LightGBM's call takes longer than its prediction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.learners.trees.text import read_trees
from querywise.runtime.arrays import Bools, Floats, Ints, for_kernels
from querywise.runtime.threads import in_threads

_BLOCK = 4096  # rows at a time, in each thread


class Grown(NamedTuple):
    """Trees end to end. A child from 0 up is a node, one below is a leaf, −1 the first; `roots` are such children.

    missing_left: whether each node sends a missing value left.
    """

    roots: Ints
    features: Ints
    thresholds: Floats
    left: Ints
    right: Ints
    leaves: Floats
    missing_left: Bools

    def scores(self, table: Floats) -> Floats:
        """One sum of leaves per row of features; those may be missing."""
        from querywise.learners.trees.descent import descend, descend_missing  # numba takes half a second to import

        found = np.empty(len(table))
        blocks = [slice(first, first + _BLOCK) for first in range(0, len(table), _BLOCK)]
        grown = Grown._make(for_kernels(each) for each in self)
        trees = (grown.roots, grown.features, grown.thresholds, grown.left, grown.right, grown.leaves)
        if np.isnan(table).any():
            in_threads(lambda block: descend_missing(table[block], *trees, grown.missing_left, found[block]), blocks)
        else:
            in_threads(lambda block: descend(table[block], *trees, found[block]), blocks)
        return found


def read_forest(text: str, width: int) -> Grown:
    """The trees of a model as LightGBM writes them down, for rows of so many features; anything else is refused."""
    trees = read_trees(text, width)
    first_node = np.cumsum([0, *(len(tree.left) for tree in trees)])
    first_leaf = np.cumsum([0, *(len(tree.leaves) for tree in trees)])
    own = zip(trees, first_node.tolist(), first_leaf.tolist(), strict=False)
    roots, left, right = [], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for tree, node, leaf in own:
        roots.append(node if len(tree.left) else -leaf - 1)
        left.append(np.where(tree.left < 0, tree.left - leaf, tree.left + node))
        right.append(np.where(tree.right < 0, tree.right - leaf, tree.right + node))
    return Grown(
        np.array(roots, np.int64),
        np.concatenate([np.zeros(0, np.int64), *(tree.features for tree in trees)]),
        np.concatenate([np.zeros(0), *(tree.thresholds for tree in trees)]),
        np.concatenate(left),
        np.concatenate(right),
        np.concatenate([np.zeros(0), *(tree.leaves for tree in trees)]),
        np.concatenate([np.zeros(0, np.bool_), *(tree.missing_left for tree in trees)]),
    )
