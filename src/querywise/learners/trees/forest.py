"""Trees read from LightGBM's text, checked, and evaluated by compiled code: bit-identical, with less overhead.

LightGBM itself trusts such a text, and a wrong number can crash the process, so it only gets the output of
`for_lightgbm`. For a query's hundred or so documents, LightGBM's call overhead exceeds its prediction time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from querywise.contracts.forms import Leaf, Split
from querywise.errors import DataError, ModelFileError
from querywise.runtime.arrays import Bits, Bools, Floats, Ints, Shorts, for_kernels
from querywise.runtime.threads import in_threads, slices

_CATEGORICAL, _ZERO_IS_MISSING = 1, 4  # bits of a decision that are not supported here
_DEFAULT_LEFT, _NAN_IS_MISSING = 2, 8  # NaN goes to the learned side; without the latter bit it counts as 0
_LARGEST = 2**31 - 1  # the largest whole number that LightGBM reads
_DEEPEST = 1_000  # depth of a tree that LightGBM can explain: its time and memory grow with the square of the depth
_INTS = re.compile(r"(?:-?[0-9]{1,10}(?: -?[0-9]{1,10})*)?")
_FLOAT = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,4})?"
_FLOATS = re.compile(rf"(?:{_FLOAT}(?: {_FLOAT})*)?")
_INFINITE = "inf"  # a threshold above all numbers, which only separates missing values
_NODES = ("split_feature", "decision_type", "left_child", "right_child", "internal_count")
_BLOCK = 4096  # rows at a time, in each thread
# thresholds of a column whose values are replaced by their positions among these; compared four at a time
_MOST_CUTS = 2**16 - 4
# By number of bits: a factor and a shift (de Bruijn multiplication). Each power of two times the factor has different
# highest bits, which give its position among the leaves.
_SEARCHES = {16: (0x09AF, 12), 64: (0x03F79D71B4CB0A89, 58)}


class Tree(NamedTuple):
    """One tree. Children from 0 up are nodes; negative ones are leaves, with −1 the first.

    `texts` holds its fields as written. `kinds` tells how each node decides; `missing_left` and `learned_missing`
    decode its handling of missing values.
    """

    features: Ints
    thresholds: Floats
    left: Ints
    right: Ints
    leaves: Floats
    kinds: Ints
    texts: dict[str, str]

    @property
    def learned_missing(self) -> bool:
        """Whether a node has learned where to send missing values."""
        return bool(np.any(self.kinds & _NAN_IS_MISSING))

    @property
    def missing_left(self) -> Bools:
        """Whether each node sends a missing value left: to the side that it learned, or else where 0 goes."""
        learned = (self.kinds & _NAN_IS_MISSING) > 0
        return np.where(learned, (self.kinds & _DEFAULT_LEFT) > 0, self.thresholds >= 0)

    def root(self, bag: int) -> Split | Leaf:
        """Return the tree from its root, with its leaves divided by the size of a bag."""
        made: dict[int, Split | Leaf] = {
            -1 - place: Leaf(value / bag) for place, value in enumerate(self.leaves.tolist())
        }
        columns = (self.features, self.thresholds, self.left, self.right)
        nodes = list(zip(*(each.tolist() for each in columns), strict=True))
        for node in reversed(range(len(nodes))):  # every child has a higher index than its parent
            feature, threshold, left, right = nodes[node]
            made[node] = Split(feature, threshold, made[left], made[right])
        return made[0] if nodes else made[-1]

    def depth(self) -> int:
        """Return the number of nodes on the longest path to a leaf."""
        depths = np.ones(len(self.features), np.int64)
        for node in range(len(depths)):
            for child in (self.left[node], self.right[node]):
                if child >= 0:
                    depths[child] = depths[node] + 1
        return int(depths.max(initial=0))


def read_trees(text: str, width: int) -> list[Tree]:
    """Read the trees of a model from LightGBM's text, for rows with this many features.

    Raise ModelFileError if a text is invalid.
    """
    head, *parts = text.partition("\nend of trees")[0].split("\nTree=")
    try:
        if width_of(head) != width:
            raise ValueError(f"they are for {width_of(head)} features; expected {width}")
        return [
            _tree(dict(line.split("=", 1) for line in part.split("\n")[1:] if "=" in line), width) for part in parts
        ]
    except (KeyError, ValueError) as error:
        raise ModelFileError(f"The trees cannot be read ({error}). Fit the model again.") from None


def gains_in(texts: Sequence[str], width: int) -> Floats:
    """Return each feature's total split gain, as LightGBM recorded it: summed over trees, averaged over texts."""
    total = np.zeros(width)
    for text in texts:
        for number, tree in enumerate(read_trees(text, width)):
            if len(tree.features):
                part = text.split("\nTree=")[number + 1]
                line = re.search(r"^split_gain=(.*)$", part, re.MULTILINE)
                known = line is not None and _FLOATS.fullmatch(line[1]) and len(line[1].split()) == len(tree.features)
                gains = np.array(line[1].split() if line is not None and known else [np.nan], np.float64)
                if not np.isfinite(gains).all():
                    raise ModelFileError("The trees have no split gains. Fit the model again.")
                np.add.at(total, tree.features, gains)
    return total / max(len(texts), 1)


def width_of(text: str) -> int:
    """Return the number of features of a forest's rows."""
    found = re.search(r"^max_feature_idx=([0-9]{1,9})$", text.partition("\nTree=")[0], re.MULTILINE)
    if found is None:
        raise ModelFileError("The trees cannot be read (their number of features is missing). Fit the model again.")
    return int(found[1]) + 1


def for_lightgbm(text: str, width: int) -> str:
    """Return a forest's text that is safe for LightGBM: only the fields that were checked."""
    trees = read_trees(text, width)
    deepest = max((tree.depth() for tree in trees), default=0)
    if deepest > _DEEPEST:
        raise DataError(f"The forest has a tree of depth {deepest}; up to {_DEEPEST} can be explained.")
    lines = [
        "tree",
        "version=v4",
        "num_class=1",
        "num_tree_per_iteration=1",
        "label_index=0",
        f"max_feature_idx={width - 1}",
        "feature_names=" + " ".join(f"Column_{number}" for number in range(width)),
        "feature_infos=" + " ".join(["none"] * width),
        "",
    ]
    for number, tree in enumerate(trees):
        fields = [f"{name}={value}" for name, value in tree.texts.items()]
        lines += [f"Tree={number}", *fields, "num_cat=0", "is_linear=0", "shrinkage=1", "", ""]
    return "\n".join([*lines, "end of trees", ""])


def _tree(fields: dict[str, str], width: int) -> Tree:
    """Read one tree, checking all of it."""
    if fields.get("num_cat", "0") != "0" or fields.get("is_linear", "0") != "0":
        raise ValueError("a tree has categorical splits or linear leaves")
    leaves, thresholds = _floats(fields, "leaf_value"), _thresholds(fields)
    if fields["num_leaves"] != str(len(leaves)):
        raise ValueError("a tree's stated number of leaves is wrong")
    features, kind, left, right, inside = (_ints(fields, name) for name in _NODES)
    count = len(leaves) - 1
    if any(len(each) != count for each in (features, thresholds, kind, left, right, inside)):
        raise ValueError("a tree's stated number of nodes is wrong")
    if np.any(kind & (_CATEGORICAL | _ZERO_IS_MISSING)) or not np.all((kind >= 0) & (kind < 16)):
        raise ValueError("a node does not split by a threshold")
    if np.any(np.isinf(thresholds) & ((kind & _NAN_IS_MISSING) == 0)):
        raise ValueError("threshold are not finite numbers")
    # Every child has a higher index than its parent, and all but the root have one parent, so a descent ends in a leaf.
    after, children = np.arange(count), np.sort(np.concatenate([left, right]))
    every = np.concatenate([np.arange(-count - 1, 0), np.arange(1, count)]) if count else children
    downward = all(np.all((child < 0) | (child > after)) for child in (left, right))
    if not (downward and np.array_equal(children, every) and np.all((features >= 0) & (features < width))):
        raise ValueError("a node points to a missing child")
    texts = {name: fields[name] for name in ("num_leaves", "leaf_value")}
    if count:
        counts = _ints(fields, "leaf_count")
        if len(counts) != len(leaves) or min(counts.min(), inside.min()) < 1:
            raise ValueError("a node has no documents")
        texts |= {name: fields[name] for name in (*_NODES, "threshold", "leaf_count")}
    return Tree(features, thresholds, left, right, leaves, kind, texts)


def _thresholds(fields: dict[str, str]) -> Floats:
    """Return the thresholds, some of which may be infinite."""
    words = fields.get("threshold", "").split(" ")
    known = " ".join("0" if word == _INFINITE else word for word in words)
    found = _floats({"threshold": known}, "threshold")
    return np.where([word == _INFINITE for word in words], np.inf, found) if len(found) == len(words) else found


def _ints(fields: dict[str, str], name: str) -> Ints:
    text = fields.get(name, "")
    if not _INTS.fullmatch(text):
        raise ValueError(f"{name} are not whole numbers")
    found = np.array(text.split(), np.int64)
    if len(found) and np.abs(found).max() > _LARGEST:
        raise ValueError(f"{name} has a number above {_LARGEST}")
    return found


def _floats(fields: dict[str, str], name: str) -> Floats:
    text = fields.get(name, "")
    found = np.array(text.split() if _FLOATS.fullmatch(text) else ["nan"], np.float64)
    if not np.isfinite(found).all():
        raise ValueError(f"{name} are not finite numbers")
    return found


class Binned(NamedTuple):
    """The trees of bags of forests, concatenated, for values that are replaced by their positions among the thresholds.

    Attributes:
        bags, forests, nodes: where the forests of each bag start, the trees of each forest, and the nodes of each tree,
            each followed by the end of the last one.
        used, missing_left: a column for every feature that nodes use, and a second one if some of its nodes send
            missing values left and others right.
        first_cuts, cuts: the thresholds of every column, ascending.
        columns, places: the column that each node uses, and the position of its threshold in the column.
        beyond: the leaves of its tree that are not to the left of a node, as bits.
        search: all bits, and how to find the lowest remaining one: a factor and a shift.
        leaves: trees × bits, each leaf where the search finds it.
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
        """Return the trees of some bags, or None if a tree has too many leaves, or a column too many thresholds."""
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
        """The total number of trees."""
        return int(self.forests[-1])

    def scores(self, table: Floats) -> Floats:
        """Return each row's sum of leaves, averaged over the forests of the only bag; features may be missing."""
        return self.by_bag(table)[:, 0]

    def by_bag(self, table: Floats) -> Floats:
        """Return the same for every bag: rows × bags."""
        from querywise.learners.trees.descent import exclude  # importing numba takes half a second

        own, found = Binned._make(map(for_kernels, self)), np.empty((len(table), len(self.bags) - 1))
        _in_blocks(lambda rows, into: exclude(rows, *own, into), table, found)
        return found


class Followed(NamedTuple):
    """The same trees in their original form. Children from 0 up are nodes; negative ones are leaves, with −1 the first.

    `roots` are where each tree starts, as a child; `missing_left` says whether each node sends a missing value left.
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
        """Return the trees of some forests."""
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
        """The total number of trees."""
        return int(self.forests[-1])

    def scores(self, table: Floats) -> Floats:
        """Return the same as Binned."""
        from querywise.learners.trees.descent import follow

        own, found = Followed._make(map(for_kernels, self)), np.empty(len(table))
        _in_blocks(lambda rows, into: follow(rows, *own, into), table, found)
        return found


Grown: TypeAlias = Binned | Followed


def read_forests(texts: Sequence[str], width: int) -> Grown:
    """Read the trees of models from LightGBM's texts, for rows with this many features.

    Raise ModelFileError if a text is invalid.
    """
    read = [read_trees(text, width) for text in texts]
    return Binned.of(read) or Followed.of(read)


def _nodes_of(trees: Sequence[Tree]) -> tuple[Ints, Floats, Bools]:
    """Return the feature and threshold of every node, and whether it sends missing values left."""
    return (
        np.concatenate([np.zeros(0, np.int64), *(tree.features for tree in trees)]),
        np.concatenate([np.zeros(0), *(tree.thresholds for tree in trees)]),
        np.concatenate([np.zeros(0, np.bool_), *(tree.missing_left for tree in trees)]),
    )


def _in_blocks(work: Callable[[Floats, Floats], None], table: Floats, found: Floats) -> None:
    """Apply `work` to blocks of many rows, in threads."""
    in_threads(lambda block: work(table[block], found[block]), slices(len(table), _BLOCK))


class _Spread(NamedTuple):
    """A tree whose leaves are numbered from left to right.

    `leaves` are their values; `first` and `middle` are the first leaf below each node, and the first to its right.
    """

    left: Ints
    right: Ints
    leaves: Floats
    first: list[int]
    middle: list[int]

    @staticmethod
    def of(tree: Tree) -> _Spread:
        sides = list(zip(tree.left.tolist(), tree.right.tolist(), strict=True))
        below = [0] * len(sides)  # leaves of each node; every child has a higher index than its parent
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
        """Return for each node the leaves that are not to its left, as bits of a number."""
        every = 2**64 - 1
        return [every & ~(2**middle - 2**first) for first, middle in zip(self.first, self.middle, strict=True)]
