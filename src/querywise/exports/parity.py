"""Sample documents with our scores: what the engine's scores are compared with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from querywise.contracts.forms import Split, nodes
from querywise.data.judged import Candidates
from querywise.exports.arithmetic import Arithmetic, above32, floor32
from querywise.exports.models import Exported
from querywise.runtime.arrays import Floats

_FEWEST_NORMALISED = 3  # with fewer queries that look normalised, data is not taken to be normalised
_SHARE_NORMALISED = 1 / 3  # of the pairs of query and feature


@dataclass(frozen=True, eq=False)
class Sample:
    """Documents to check an engine with.

    of: for every document its id in the engine and the text of its query, or nothing where these are not known.
    """

    features: Floats
    of: tuple[dict[str, str], ...]


def parity_lines(exported: Exported, sample: Sample, arithmetic: Arithmetic, in_engine: tuple[str, ...]) -> str:
    """A line of JSON per document: its features, and by every model its score and the tolerance for rounding errors."""
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
    """Documents evenly spread over the data, with their ids and the texts of their queries where both are known."""
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
    """Pseudo-random documents from a fixed seed: values of all magnitudes, and values at the thresholds of trees.

    least: the least value that a feature has in the engine.
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
    """The thresholds of all trees' splits, by the column they are compared with."""
    found: dict[int, list[float]] = {}
    for node in (node for model in exported.models for node in nodes(model.form)):
        if isinstance(node, Split):
            found.setdefault(node.column, []).append(node.threshold)
    return found


class Scaled(NamedTuple):
    """How much of some data runs exactly from 0 to 1 within queries.

    pairs: of a query and a feature that varies there and has values other than 0 and 1. from_0_to_1: those whose
    smallest value is 0 and whose largest is 1. queries: how many these are of. columns: the features of which at least
    half of the pairs are so.
    """

    pairs: int
    from_0_to_1: int
    queries: int
    columns: tuple[int, ...]

    @property
    def share(self) -> float:
        """The share of the pairs that run exactly from 0 to 1."""
        return self.from_0_to_1 / max(self.pairs, 1)

    @property
    def is_normalised(self) -> bool:
        """Whether the data looks normalised within queries: a feature or two may be so by nature, a third is not."""
        return self.queries >= _FEWEST_NORMALISED and self.share >= _SHARE_NORMALISED


def scaled_within_queries(candidates: Candidates) -> Scaled:
    """How much of the data was min-max normalised within queries. Features of only 0 and 1 say nothing about it."""
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
