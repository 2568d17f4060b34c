"""LightGBM's text of a forest, read and checked by our own code: every number is looked at before it is used.

LightGBM itself trusts such a text: one with a wrong number can end the process. It is handed `for_lightgbm` alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from querywise.contracts.forms import Leaf, Split
from querywise.errors import DataError, ModelFileError
from querywise.runtime.arrays import Bools, Floats, Ints

_CATEGORICAL, _ZERO_IS_MISSING = 1, 4  # bits of a decision that are not supported here
_DEFAULT_LEFT, _NAN_IS_MISSING = 2, 8  # NaN goes to the side that was learned for it; without the latter it is 0
_LARGEST = 2**31 - 1  # the largest whole number that LightGBM reads
_DEEPEST = 1_000  # of a tree that LightGBM explains: its time and memory grow with the square of the depth
_INTS = re.compile(r"(?:-?[0-9]{1,10}(?: -?[0-9]{1,10})*)?")
_FLOAT = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,4})?"
_FLOATS = re.compile(rf"(?:{_FLOAT}(?: {_FLOAT})*)?")
_INFINITE = "inf"  # a threshold above all numbers: only missing values go the other way
_NODES = ("split_feature", "decision_type", "left_child", "right_child", "internal_count")


class Tree(NamedTuple):
    """One tree. A child from 0 up is a node, one below is a leaf, −1 the first. texts: its fields as written.

    kinds: how each node decides; `missing_left`, `learned_missing` read what it says of missing values.
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
        """Whether each node sends a missing value left: to the side it learned, or else where 0 goes."""
        learned = (self.kinds & _NAN_IS_MISSING) > 0
        return np.where(learned, (self.kinds & _DEFAULT_LEFT) > 0, self.thresholds >= 0)

    def root(self, bag: int) -> Split | Leaf:
        """The tree from its root, with its leaves divided by the size of a bag."""
        made: dict[int, Split | Leaf] = {
            -1 - place: Leaf(value / bag) for place, value in enumerate(self.leaves.tolist())
        }
        columns = (self.features, self.thresholds, self.left, self.right)
        nodes = list(zip(*(each.tolist() for each in columns), strict=True))
        for node in reversed(range(len(nodes))):  # every child has a higher number than its parent
            feature, threshold, left, right = nodes[node]
            made[node] = Split(feature, threshold, made[left], made[right])
        return made[0] if nodes else made[-1]

    def depth(self) -> int:
        """The number of nodes on the longest way to a leaf."""
        depths = np.ones(len(self.features), np.int64)
        for node in range(len(depths)):
            for child in (self.left[node], self.right[node]):
                if child >= 0:
                    depths[child] = depths[node] + 1
        return int(depths.max(initial=0))


def read_trees(text: str, width: int) -> list[Tree]:
    """The trees of a model as LightGBM writes them down, for rows of so many features; anything else is refused."""
    head, *parts = text.partition("\nend of trees")[0].split("\nTree=")
    try:
        if width_of(head) != width:
            raise ValueError(f"they are for {width_of(head)} features; expected {width}")
        return [
            _tree(dict(line.split("=", 1) for line in part.split("\n")[1:] if "=" in line), width) for part in parts
        ]
    except (KeyError, ValueError) as error:
        raise ModelFileError(f"The trees cannot be read ({error}). Fit the model anew.") from None


def gains_in(texts: Sequence[str], width: int) -> Floats:
    """What the splits by each feature gained, as LightGBM has written it down: sums over trees, the mean over texts."""
    total = np.zeros(width)
    for text in texts:
        for number, tree in enumerate(read_trees(text, width)):
            if len(tree.features):
                part = text.split("\nTree=")[number + 1]
                line = re.search(r"^split_gain=(.*)$", part, re.MULTILINE)
                known = line is not None and _FLOATS.fullmatch(line[1]) and len(line[1].split()) == len(tree.features)
                gains = np.array(line[1].split() if line is not None and known else [np.nan], np.float64)
                if not np.isfinite(gains).all():
                    raise ModelFileError("The trees do not say what their splits gained. Fit the model anew.")
                np.add.at(total, tree.features, gains)
    return total / max(len(texts), 1)


def width_of(text: str) -> int:
    """How many features the rows have that a forest is for."""
    found = re.search(r"^max_feature_idx=([0-9]{1,9})$", text.partition("\nTree=")[0], re.MULTILINE)
    if found is None:
        raise ModelFileError("The trees cannot be read (their number of features is missing). Fit the model anew.")
    return int(found[1]) + 1


def for_lightgbm(text: str, width: int) -> str:
    """The same forest as LightGBM may read it: the fields that were checked, and no others."""
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
    """One tree, all of it checked."""
    if fields.get("num_cat", "0") != "0" or fields.get("is_linear", "0") != "0":
        raise ValueError("a tree has categories or linear leaves")
    leaves, thresholds = _floats(fields, "leaf_value"), _thresholds(fields)
    if fields["num_leaves"] != str(len(leaves)):
        raise ValueError("a tree has another number of leaves than it says")
    features, kind, left, right, inside = (_ints(fields, name) for name in _NODES)
    count = len(leaves) - 1
    if any(len(each) != count for each in (features, thresholds, kind, left, right, inside)):
        raise ValueError("a tree has another number of nodes than it says")
    if np.any(kind & (_CATEGORICAL | _ZERO_IS_MISSING)) or not np.all((kind >= 0) & (kind < 16)):
        raise ValueError("a node decides otherwise than by a threshold")
    if np.any(np.isinf(thresholds) & ((kind & _NAN_IS_MISSING) == 0)):
        raise ValueError("threshold are not finite numbers")
    # Every child has a higher number than its parent, and everything but the root one parent: a descent ends in a leaf.
    after, children = np.arange(count), np.sort(np.concatenate([left, right]))
    every = np.concatenate([np.arange(-count - 1, 0), np.arange(1, count)]) if count else children
    downward = all(np.all((child < 0) | (child > after)) for child in (left, right))
    if not (downward and np.array_equal(children, every) and np.all((features >= 0) & (features < width))):
        raise ValueError("a node leads nowhere")
    texts = {name: fields[name] for name in ("num_leaves", "leaf_value")}
    if count:
        counts = _ints(fields, "leaf_count")
        if len(counts) != len(leaves) or min(counts.min(), inside.min()) < 1:
            raise ValueError("a node has no documents")
        texts |= {name: fields[name] for name in (*_NODES, "threshold", "leaf_count")}
    return Tree(features, thresholds, left, right, leaves, kind, texts)


def _thresholds(fields: dict[str, str]) -> Floats:
    """The thresholds, some of which may be infinite."""
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
