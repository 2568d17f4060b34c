"""The arithmetic of an engine: its floating-point precision, and how its trees compare values with thresholds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from querywise.contracts.forms import Leaf, Linear, Runnable, Split
from querywise.data.judged import Candidates
from querywise.exports.models import Exported
from querywise.runtime.arrays import Bools, Floats

_MEASURED = 20  # where there are more models, this many are measured


@dataclass(frozen=True)
class Arithmetic:
    """The floating-point type an engine computes with, and how it treats thresholds.

    real: the type of features and scores. highest_low: the largest value that goes to the low side of a split whose
    threshold is written to the engine. wider: the type of weights, leaves and sums where it is another than that of
    features; a sum is then rounded once, to a score.
    """

    real: type[np.float32] | type[np.float64]
    highest_low: Callable[[float], float]
    wider: type[np.float64] | None = None

    @property
    def summed(self) -> type[np.float32] | type[np.float64]:
        """The type of weights, leaves and sums."""
        return self.real if self.wider is None else self.wider

    def held(self, features: Floats) -> Floats:
        """Features rounded to the engine's precision."""
        return np.asarray(features, dtype=self.real).astype(np.float64)

    def scores(self, form: Runnable, features: Floats) -> Floats:
        """The scores that the engine computes for documents."""
        values = np.asarray(features, dtype=self.real)
        total = np.zeros(len(values), dtype=self.summed)
        if isinstance(form, Linear):
            for column, weight in enumerate(form.weights.astype(self.summed)):
                total = total + weight * values[:, column]
        else:
            for tree in form.trees:
                total = total + self._leaves(tree, values).astype(self.summed)
        return total.astype(self.real).astype(np.float64)

    def tolerance(self, form: Runnable, features: Floats) -> Floats:
        """A bound on the difference that rounding errors can make between the engine's scores and ours."""
        if isinstance(form, Linear):
            size, terms = np.abs(features) @ np.abs(form.weights), len(form.weights)
        else:
            sizes = [np.abs(self._leaves(tree, np.asarray(features, dtype=self.real))) for tree in form.trees]
            size, terms = np.sum(sizes, axis=0), len(form.trees)
        relative = (terms + 3) * _rounding(self.summed)
        bound: Floats = relative / (1 - relative) * size + 1e-30
        if self.wider is not None:  # rounded to a score, and again where the score is printed
            bound = bound + 3 * _rounding(self.real) * np.abs(self.scores(form, features))
        return bound

    def _leaves(self, tree: Split | Leaf, values: Any) -> Floats:
        """The value of the leaf that each document reaches."""
        found = np.zeros(len(values))

        def descend(node: Split | Leaf, here: Bools) -> None:
            if isinstance(node, Leaf):
                found[here] = node.value
                return
            low = values[:, node.column] <= self.real(self.highest_low(node.threshold))
            descend(node.low, here & low)
            descend(node.high, here & ~low)

        descend(tree, np.ones(len(values), np.bool_))
        return found


def _rounding(real: type[np.float32] | type[np.float64]) -> float:
    """The relative error of one operation."""
    return float(np.finfo(real).eps) / 2


class Exactness(NamedTuple):
    """How closely the engine's arithmetic reproduces our scores and order on some data.

    astray: scores that differ by more than rounding, because a document reaches another leaf of a tree. pairs:
    documents that are next to each other in our order with different scores. swapped: pairs in the opposite order in
    the engine.
    """

    models: int
    documents: int
    astray: int
    pairs: int
    swapped: int

    @property
    def is_exact(self) -> bool:
        """Whether every query is ranked as we rank it."""
        return self.astray == 0 and self.swapped == 0


def exactness(exported: Exported, candidates: Candidates, arithmetic: Arithmetic) -> Exactness:
    """Compare our scores of the candidates with the engine's arithmetic, by every model or by twenty of them."""
    chosen = np.unique(np.linspace(0, len(exported.models) - 1, _MEASURED).round().astype(int))
    owner = candidates.query_of_row
    documents = astray = pairs = swapped = 0
    for number in chosen:
        model = exported.models[number]
        ours, theirs = model.own(candidates.features), arithmetic.scores(model.form, candidates.features)
        bound = 2 * arithmetic.tolerance(model.form, candidates.features)
        documents += len(ours)
        astray += int(np.sum(np.abs(ours - theirs) > bound))
        order = np.lexsort((-ours, owner))
        apart = (np.diff(ours[order]) < 0) & (np.diff(owner[order]) == 0)
        pairs += int(apart.sum())
        swapped += int(np.sum(apart & (np.diff(theirs[order]) > 0)))
    return Exactness(len(chosen), documents, astray, pairs, swapped)


def floor32(value: float) -> float:
    """The largest 32-bit number that is not above a value.

    >>> floor32(0.5), floor32(0.1) <= 0.1 < floor32(0.1) + 1e-8
    (0.5, True)
    """
    limit = float(np.finfo(np.float32).max)
    near = np.float32(min(max(value, -limit), limit))
    return float(near if float(near) <= value else np.nextafter(near, np.float32(-np.inf)))


def above32(value: float) -> float:
    """The smallest 32-bit number above a value; the largest finite one where there is none."""
    limit, low = np.finfo(np.float32).max, np.float32(floor32(value))
    return float(limit if low >= limit else np.nextafter(low, np.float32(np.inf)))
