"""An engine's arithmetic: its precision, its thresholds, and the sample documents on which scores are compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from querywise.contracts.forms import Leaf, Linear, Runnable, Split, nodes
from querywise.data.judged import Candidates
from querywise.exports.models import Exported
from querywise.runtime.arrays import Bools, Floats

_MEASURED = 20  # of more models, only this many are measured


@dataclass(frozen=True)
class Arithmetic:
    """The floating-point type an engine computes with, and how it treats thresholds.

    Attributes:
        real: The type of features and scores.
        highest_low: Returns, for a threshold written to the engine, the largest value that goes to the low side of the
            split.
        wider: The type of weights, leaves and sums if it differs from that of features; a sum is then rounded once, to
            a score.

    """

    real: type[np.float32] | type[np.float64]
    highest_low: Callable[[float], float]
    wider: type[np.float64] | None = None

    @property
    def summed(self) -> type[np.float32] | type[np.float64]:
        """The type of weights, leaves and sums."""
        return self.real if self.wider is None else self.wider

    def held(self, features: Floats) -> Floats:
        """Return features rounded to the engine's precision."""
        return np.asarray(features, dtype=self.real).astype(np.float64)

    def scores(self, form: Runnable, features: Floats) -> Floats:
        """Return the scores that the engine computes for documents."""
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
        """Return a bound on the difference that rounding can make between the engine's scores and ours."""
        if isinstance(form, Linear):
            size, terms = np.abs(features) @ np.abs(form.weights), len(form.weights)
        else:
            sizes = [np.abs(self._leaves(tree, np.asarray(features, dtype=self.real))) for tree in form.trees]
            size, terms = np.sum(sizes, axis=0), len(form.trees)
        relative = (terms + 3) * _rounding(self.summed)
        bound: Floats = relative / (1 - relative) * size + 1e-30
        if self.wider is not None:  # rounded to a score, and again when the score is printed
            bound = bound + 3 * _rounding(self.real) * np.abs(self.scores(form, features))
        return bound

    def _leaves(self, tree: Split | Leaf, values: Any) -> Floats:
        """Return the value of the leaf that each document reaches."""
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
    """Return the relative error of one operation."""
    return float(np.finfo(real).eps) / 2


class Exactness(NamedTuple):
    """How closely the engine's arithmetic reproduces our scores and ranking on some data.

    Attributes:
        astray: The number of scores that differ by more than rounding, because a document reaches another leaf of a
            tree.
        pairs: Documents that are adjacent in our ranking with different scores.
        swapped: Pairs in the opposite order in the engine.

    """

    models: int
    documents: int
    astray: int
    pairs: int
    swapped: int

    @property
    def is_exact(self) -> bool:
        """Whether the engine ranks every query as querywise does."""
        return self.astray == 0 and self.swapped == 0


def exactness(exported: Exported, candidates: Candidates, arithmetic: Arithmetic) -> Exactness:
    """Compare our scores of the candidates with the engine's arithmetic, for all models or for twenty of them."""
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
    """Return the largest 32-bit number that is not above a value.

    >>> floor32(0.5), floor32(0.1) <= 0.1 < floor32(0.1) + 1e-8
    (0.5, True)
    """
    limit = float(np.finfo(np.float32).max)
    near = np.float32(min(max(value, -limit), limit))
    return float(near if float(near) <= value else np.nextafter(near, np.float32(-np.inf)))


def above32(value: float) -> float:
    """Return the smallest 32-bit number above a value; the largest finite one if there is none."""
    limit, low = np.finfo(np.float32).max, np.float32(floor32(value))
    return float(limit if low >= limit else np.nextafter(low, np.float32(np.inf)))


_FEWEST_NORMALISED = 3  # with fewer queries that look normalized, data is not taken to be normalized
_SHARE_NORMALISED = 1 / 3  # of the query-feature pairs


@dataclass(frozen=True, eq=False)
class Sample:
    """Documents to check an engine with.

    `of` has, for every document, its id in the engine and the text of its query, or nothing if these are unknown.
    """

    features: Floats
    of: tuple[dict[str, str], ...]


def parity_lines(exported: Exported, sample: Sample, arithmetic: Arithmetic, in_engine: tuple[str, ...]) -> str:
    """Format one line of JSON per document: its features, and for each model the score and its rounding tolerance."""
    held = arithmetic.held(sample.features)
    scores = {model.name: model.own(held) for model in exported.models}
    tolerance = {model.name: arithmetic.tolerance(model.form, held) for model in exported.models}
    return "".join(
        json.dumps(
            {
                "id": str(row),
                **sample.of[row],
                "features": dict(zip(in_engine, held[row].tolist(), strict=True)),
                "scores": {name: float(values[row]) for name, values in scores.items()},
                "tolerance": {name: float(values[row]) for name, values in tolerance.items()},
            }
        )
        + "\n"
        for row in range(len(held))
    )


def sampled(candidates: Candidates, rows: int) -> Sample:
    """Return documents evenly spread over the data, with their ids and query texts if both are known."""
    count, owner, table = len(candidates.features), candidates.query_of_row, candidates.queries
    chosen = np.unique(np.linspace(0, count - 1, min(rows, count)).round().astype(int)).tolist()
    of: list[dict[str, str]] = [{} for _ in chosen]
    if candidates.document_ids is not None and table is not None and table.texts is not None:
        for known, row in zip(of, chosen, strict=True):
            text = table.texts[owner[row]]
            if text is not None:
                known |= {"document": candidates.document_ids[row], "keywords": text}
    return Sample(candidates.features[chosen], tuple(of))


def generated(exported: Exported, rows: int, arithmetic: Arithmetic, least: float = -np.inf) -> Sample:
    """Return pseudo-random documents from a fixed seed: values of all magnitudes, and values at tree thresholds.

    `least` is the smallest value that a feature can have in the engine.
    """
    rng = np.random.default_rng(0)
    width = len(exported.features)
    values = rng.standard_normal((rows, width)) * 10 ** rng.uniform(-2, 3, size=(rows, width))
    values[rng.random((rows, width)) < 0.2] = 0.0
    for column, thresholds in _thresholds(exported).items():
        chosen = rng.choice(thresholds, size=rows).tolist()
        below = [arithmetic.highest_low(floor32(threshold)) for threshold in chosen]
        values[:, column] = np.where(rng.random(rows) < 0.5, below, [above32(threshold) for threshold in chosen])
    if np.isfinite(least):
        values = np.where(rng.random((rows, width)) < 0.1, least, np.maximum(values, least))
    return Sample(np.asarray(values, dtype=np.float32).astype(np.float64), ({},) * rows)


def _thresholds(exported: Exported) -> dict[int, list[float]]:
    """Return the thresholds of all trees' splits, by the column they compare."""
    found: dict[int, list[float]] = {}
    for node in (node for model in exported.models for node in nodes(model.form)):
        if isinstance(node, Split):
            found.setdefault(node.column, []).append(node.threshold)
    return found


class Scaled(NamedTuple):
    """How much of some data ranges exactly from 0 to 1 within queries.

    Attributes:
        pairs: Pairs of a query and a feature that varies there and has values other than 0 and 1.
        from_0_to_1: The pairs whose smallest value is 0 and whose largest is 1.
        queries: The number of queries of these.
        columns: The features for which at least half of the pairs are such.

    """

    pairs: int
    from_0_to_1: int
    queries: int
    columns: tuple[int, ...]

    @property
    def share(self) -> float:
        """The share of the pairs that range exactly from 0 to 1."""
        return self.from_0_to_1 / max(self.pairs, 1)

    @property
    def is_normalised(self) -> bool:
        """Whether the data looks normalized within queries: a feature or two may be so by nature, but not a third."""
        return self.queries >= _FEWEST_NORMALISED and self.share >= _SHARE_NORMALISED


def scaled_within_queries(candidates: Candidates) -> Scaled:
    """Measure how much of the data was min-max normalized within queries. Features of only 0 and 1 do not tell."""
    width = candidates.features.shape[1]
    varying, exact, queries = np.zeros(width, np.int64), np.zeros(width, np.int64), 0
    for query in range(len(candidates)):
        documents = candidates.features[candidates.rows(query)]
        if len(documents) < 2:
            continue
        low, high = documents.min(axis=0), documents.max(axis=0)
        tells = (high > low) & np.any((documents != 0) & (documents != 1), axis=0)
        ends = tells & (low == 0) & (high == 1)
        varying, exact, queries = varying + tells, exact + ends, queries + bool(ends.any())
    often = np.flatnonzero((exact > 0) & (2 * exact >= varying)).tolist()
    return Scaled(int(varying.sum()), int(exact.sum()), queries, tuple(often))
