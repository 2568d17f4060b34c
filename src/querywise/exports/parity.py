"""Sample documents with our scores: what the engine's scores are compared with."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from querywise.contracts.forms import Leaf, Linear, Split
from querywise.data.judged import Candidates
from querywise.exports.arithmetic import Arithmetic, above32, floor32
from querywise.exports.models import Exported
from querywise.runtime.arrays import Floats

_FEWEST_NORMALISED = 3  # with fewer queries that look normalised, data is not taken to be normalised


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


def generated(exported: Exported, rows: int, arithmetic: Arithmetic) -> Sample:
    """Pseudo-random documents from a fixed seed: values of all magnitudes, and values at the thresholds of trees."""
    rng = np.random.default_rng(0)
    width = len(exported.features)
    values = rng.standard_normal((rows, width)) * 10 ** rng.uniform(-2, 3, size=(rows, width))
    values[rng.random((rows, width)) < 0.2] = 0.0
    for column, thresholds in _thresholds(exported).items():
        chosen = rng.choice(thresholds, size=rows).tolist()
        below = [arithmetic.highest_low(floor32(threshold)) for threshold in chosen]
        values[:, column] = np.where(rng.random(rows) < 0.5, below, [above32(threshold) for threshold in chosen])
    return Sample(np.asarray(values, dtype=np.float32).astype(np.float64), ({},) * rows)


def _thresholds(exported: Exported) -> dict[int, list[float]]:
    """The thresholds of all trees' splits, by the column they are compared with."""
    found: dict[int, list[float]] = {}

    def collect(node: Split | Leaf) -> None:
        if isinstance(node, Split):
            found.setdefault(node.column, []).append(node.threshold)
            collect(node.low)
            collect(node.high)

    for model in exported.models:
        for tree in () if isinstance(model.form, Linear) else model.form.trees:
            collect(tree)
    return found


def is_query_normalised(candidates: Candidates) -> bool:
    """Whether the features were min-max normalised within queries.

    That is so where every feature that varies within a query has minimum 0 and maximum 1 there. Queries whose features
    have no values between 0 and 1 say nothing about it.
    """
    queries = 0
    for query in range(len(candidates)):
        documents = candidates.features[candidates.rows(query)]
        if len(documents) < 2:
            continue
        low, high = documents.min(axis=0), documents.max(axis=0)
        varies = high > low
        if np.any(varies & ((low != 0) | (high != 1))):
            return False
        queries += bool(np.any((documents[:, varies] > 0) & (documents[:, varies] < 1)))
    return queries >= _FEWEST_NORMALISED
