"""Grown trees, read from LightGBM's text and evaluated by compiled code: the same sums to the last bit, less overhead.

A query has a hundred documents or so, and for these LightGBM's call takes longer than its prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from querywise.learners.trees.text import Tree, read_trees
from querywise.runtime.arrays import Bits, Bools, Floats, Ints, for_kernels
from querywise.runtime.threads import in_threads

_BLOCK = 4096  # rows at a time, in each thread


class Grown(NamedTuple):
    """The trees of one or more forests, end to end. A child from 0 up is a node, one below is a leaf, −1 the first.

    forests, nodes, first_leaves: where the trees of each forest begin, and the nodes and leaves of each tree; each with
    the end of the last. roots: where each tree begins, as a child.
    used: the features that any node looks at; `columns` are places in these.
    missing_left: whether each node sends a missing value left.
    beyond: the leaves of its tree that are not to the left of a node, as bits; none where a tree has too many leaves.
    leaves: those of a tree from left to right.
    """

    forests: Ints
    nodes: Ints
    first_leaves: Ints
    roots: Ints
    used: Ints
    columns: Ints
    thresholds: Floats
    missing_left: Bools
    left: Ints
    right: Ints
    beyond: Bits
    leaves: Floats

    def scores(self, table: Floats) -> Floats:
        """The mean over the forests of one sum of leaves per row of features; those may be missing."""
        from querywise.learners.trees.descent import descend, exclude  # numba takes half a second to import

        found = np.empty(len(table))
        blocks = [slice(first, first + _BLOCK) for first in range(0, len(table), _BLOCK)]
        own = Grown._make(map(for_kernels, self))
        ways = own.thresholds, own.missing_left
        if len(own.beyond) == len(own.thresholds):
            trees = (own.forests, own.nodes, own.used, own.columns, *ways, own.beyond, own.first_leaves, own.leaves)
            in_threads(lambda block: exclude(table[block], *trees, found[block]), blocks)
        else:
            way = (own.forests, own.roots, own.used[own.columns], *ways, own.left, own.right, own.leaves)
            in_threads(lambda block: descend(table[block], *way, found[block]), blocks)
        return found


def read_forests(texts: Sequence[str], width: int) -> Grown:
    """The trees of models as LightGBM writes them down, for rows of so many features; anything else is refused."""
    from querywise.learners.trees.descent import MOST_LEAVES

    read = [read_trees(text, width) for text in texts]
    trees = [tree for forest in read for tree in forest]
    nodes = np.cumsum([0, *(len(tree.left) for tree in trees)])
    first_leaves = np.cumsum([0, *(len(tree.leaves) for tree in trees)])
    whole = [_Spread.of(tree) for tree in trees]
    children = [
        [np.where(side < 0, side - leaf, side + node) for side in (each.left, each.right)]
        for each, node, leaf in zip(whole, nodes.tolist(), first_leaves.tolist(), strict=False)
    ]
    features = np.concatenate([np.zeros(0, np.int64), *(tree.features for tree in trees)])
    used, columns = np.unique(features, return_inverse=True)
    few = all(len(tree.leaves) <= MOST_LEAVES for tree in trees)
    return Grown(
        forests=np.cumsum([0, *map(len, read)]),
        nodes=nodes,
        first_leaves=first_leaves,
        roots=np.where(np.diff(nodes) > 0, nodes[:-1], -first_leaves[:-1] - 1),
        used=used,
        columns=columns,
        thresholds=np.concatenate([np.zeros(0), *(tree.thresholds for tree in trees)]),
        missing_left=np.concatenate([np.zeros(0, np.bool_), *(tree.missing_left for tree in trees)]),
        left=np.concatenate([np.zeros(0, np.int64), *(low for low, _ in children)]),
        right=np.concatenate([np.zeros(0, np.int64), *(high for _, high in children)]),
        beyond=np.array([bits for each in whole for bits in each.beyond()] if few else [], np.uint64),
        leaves=np.concatenate([np.zeros(0), *(each.leaves for each in whole)]),
    )


class _Spread(NamedTuple):
    """A tree whose leaves are numbered from left to right.

    leaves: their values. first, middle: the first leaf below each node, and the first to its right.
    """

    left: Ints
    right: Ints
    leaves: Floats
    first: list[int]
    middle: list[int]

    @staticmethod
    def of(tree: Tree) -> _Spread:
        sides = list(zip(tree.left.tolist(), tree.right.tolist(), strict=True))
        below = [0] * len(sides)  # leaves of each node; every child has a higher number than its parent
        for node in reversed(range(len(sides))):
            below[node] = sum(below[child] if child >= 0 else 1 for child in sides[node])
        first, middle, order = [0] * len(sides), [0] * len(sides), np.zeros(len(tree.leaves), np.int64)
        for node, (low, high) in enumerate(sides):
            middle[node] = first[node] + (below[low] if low >= 0 else 1)
            for child, place in ((low, first[node]), (high, middle[node])):
                if child >= 0:
                    first[child] = place
                else:
                    order[place] = -child - 1
        place_of = np.argsort(order)
        left, right = (np.where(side < 0, -place_of[-side - 1] - 1, side) for side in (tree.left, tree.right))
        return _Spread(left, right, tree.leaves[order], first, middle)

    def beyond(self) -> list[int]:
        """For each node the leaves that are not to its left, as bits of a number."""
        every = 2**64 - 1
        return [every & ~(2**middle - 2**first) for first, middle in zip(self.first, self.middle, strict=True)]
