"""Grown trees, read from LightGBM's text and evaluated by compiled code: the same sums to the last bit, less overhead.

A query has a hundred documents or so, and for these LightGBM's call takes longer than its prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from querywise.learners.trees.text import Tree, read_trees
from querywise.runtime.arrays import Bits, Bools, Floats, Ints, Shorts, for_kernels
from querywise.runtime.threads import in_threads, slices

_BLOCK = 4096  # rows at a time, in each thread
_MOST_CUTS = 2**16 - 4  # of a column whose values are replaced by their place among these; compared by fours
# By the bits of a number: a factor, and how far to shift. A power of two times the factor has other highest bits than
# any other power of two: from these, its place among leaves.
_SEARCHES = {16: (0x09AF, 12), 64: (0x03F79D71B4CB0A89, 58)}


class Binned(NamedTuple):
    """The trees of bags of forests, end to end, on values that are replaced by their place among thresholds.

    bags, forests, nodes: where the forests of each bag begin, the trees of each forest, and the nodes of each tree;
    each with the end of the last.
    used, missing_left: a column for every feature that any node looks at, and one more where some of its nodes send
    missing values left and others right. first_cuts, cuts: the thresholds of every column, ascending.
    columns, places: the column that each node looks at, and the place of its threshold among the column's.
    beyond: the leaves of its tree that are not to the left of a node, as bits. search: all bits, and how the lowest
    of those that are left is found: a factor and how far to shift. leaves: trees × bits, each where it is found so.
    """

    bags: Ints
    forests: Ints
    nodes: Bits
    used: Ints
    missing_left: Bools
    first_cuts: Ints
    cuts: Floats
    columns: Bits
    places: Shorts | Bits
    beyond: Shorts | Bits
    search: Shorts | Bits
    leaves: Floats

    @staticmethod
    def of(*bags: Sequence[Sequence[Tree]]) -> Binned | None:
        """Those of some bags; None where a tree has too many leaves, or a column too many thresholds."""
        forests = [forest for bag in bags for forest in bag]
        trees = [tree for forest in forests for tree in forest]
        bits = next((bits for bits in _SEARCHES if all(len(tree.leaves) <= bits for tree in trees)), None)
        features, thresholds, missing_left = _nodes_of(trees)
        columns, column_of = np.unique(2 * features + missing_left, return_inverse=True)
        cuts = [np.unique(thresholds[column_of == column]) for column in range(len(columns))]
        if bits is None or max(map(len, cuts), default=0) > _MOST_CUTS:
            return None
        places = np.zeros(len(thresholds), np.uint64)
        for column, own in enumerate(cuts):
            places[column_of == column] = np.searchsorted(own, thresholds[column_of == column])
        every, (factor, shift) = 2**bits - 1, _SEARCHES[bits]
        found_at = np.array([(factor << place & every) >> shift for place in range(bits)])
        spread, leaves = [_Spread.of(tree) for tree in trees], np.zeros((len(trees), bits))
        for row, each in zip(leaves, spread, strict=True):
            row[found_at[: len(each.leaves)]] = each.leaves
        beyond = np.array([each & every for tree in spread for each in tree.beyond()], np.uint64)
        search = np.array([every, factor, shift], np.uint64)
        return Binned(
            bags=np.cumsum([0, *map(len, bags)]),
            forests=np.cumsum([0, *map(len, forests)]),
            nodes=np.cumsum([0, *(len(tree.left) for tree in trees)]).astype(np.uint64),
            used=columns // 2,
            missing_left=columns % 2 == 1,
            first_cuts=np.cumsum([0, *map(len, cuts)]),
            cuts=np.concatenate([np.zeros(0), *cuts]),
            columns=column_of.astype(np.uint64),
            places=places.astype(np.uint16) if bits == 16 else places,
            beyond=beyond.astype(np.uint16) if bits == 16 else beyond,
            search=search.astype(np.uint16) if bits == 16 else search,
            leaves=leaves,
        )

    @property
    def tree_count(self) -> int:
        """How many trees there are in all."""
        return int(self.forests[-1])

    def scores(self, table: Floats) -> Floats:
        """The mean over the forests of the only bag of one sum of leaves per row of features; those may be missing."""
        return self.by_bag(table)[:, 0]

    def by_bag(self, table: Floats) -> Floats:
        """The same of every bag: rows × bags."""
        from querywise.learners.trees.descent import exclude  # numba takes half a second to import

        own, found = Binned._make(map(for_kernels, self)), np.empty((len(table), len(self.bags) - 1))
        _in_blocks(lambda rows, into: exclude(rows, *own, into), table, found)
        return found


class Followed(NamedTuple):
    """The same trees as they are. A child from 0 up is a node, one below is a leaf, −1 the first.

    roots: where each tree begins, as a child. missing_left: whether each node sends a missing value left.
    """

    forests: Ints
    roots: Ints
    features: Ints
    thresholds: Floats
    missing_left: Bools
    left: Ints
    right: Ints
    leaves: Floats

    @staticmethod
    def of(forests: Sequence[Sequence[Tree]]) -> Followed:
        """Those of some forests."""
        trees = [tree for forest in forests for tree in forest]
        nodes = np.cumsum([0, *(len(tree.left) for tree in trees)])
        first_leaves = np.cumsum([0, *(len(tree.leaves) for tree in trees)])
        none = np.zeros(0, np.int64)
        sides = (
            np.concatenate([none, *(tree.left for tree in trees)]),
            np.concatenate([none, *(tree.right for tree in trees)]),
        )
        node, leaf = (np.repeat(each[:-1], np.diff(nodes)) for each in (nodes, first_leaves))
        left, right = (np.where(side < 0, side - leaf, side + node) for side in sides)
        roots = np.where(np.diff(nodes) > 0, nodes[:-1], -first_leaves[:-1] - 1)
        leaves = np.concatenate([np.zeros(0), *(tree.leaves for tree in trees)])
        return Followed(np.cumsum([0, *map(len, forests)]), roots, *_nodes_of(trees), left, right, leaves)

    @property
    def tree_count(self) -> int:
        """How many trees there are in all."""
        return int(self.forests[-1])

    def scores(self, table: Floats) -> Floats:
        """What Binned gives."""
        from querywise.learners.trees.descent import follow

        own, found = Followed._make(map(for_kernels, self)), np.empty(len(table))
        _in_blocks(lambda rows, into: follow(rows, *own, into), table, found)
        return found


Grown: TypeAlias = Binned | Followed


def read_forests(texts: Sequence[str], width: int) -> Grown:
    """The trees of models as LightGBM writes them down, for rows of so many features; anything else is refused."""
    read = [read_trees(text, width) for text in texts]
    return Binned.of(read) or Followed.of(read)


def _nodes_of(trees: Sequence[Tree]) -> tuple[Ints, Floats, Bools]:
    """The feature and threshold of every node, and whether it sends missing values left."""
    return (
        np.concatenate([np.zeros(0, np.int64), *(tree.features for tree in trees)]),
        np.concatenate([np.zeros(0), *(tree.thresholds for tree in trees)]),
        np.concatenate([np.zeros(0, np.bool_), *(tree.missing_left for tree in trees)]),
    )


def _in_blocks(work: Callable[[Floats, Floats], None], table: Floats, found: Floats) -> None:
    """What `work` finds, for many rows at a time."""
    in_threads(lambda block: work(table[block], found[block]), slices(len(table), _BLOCK))


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
