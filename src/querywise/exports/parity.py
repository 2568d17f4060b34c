"""Sample documents and our scores of them, for the engine to agree with."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from querywise.contracts.forms import Leaf, Linear, Split
from querywise.data.judged import Candidates
from querywise.exports.arithmetic import Arithmetic, above32, floor32
from querywise.exports.models import Exported
from querywise.runtime.arrays import Floats

_ENOUGH = 3  # queries whose features must look normalised before data is taken for it


@dataclass(frozen=True, eq=False)
class Sample:
    """Documents to check an engine with; where they are documents of the engine's own, `of` says which."""

    features: Floats
    of: tuple[dict[str, str], ...]


def parity_lines(exported: Exported, sample: Sample, arithmetic: Arithmetic, in_engine: tuple[str, ...]) -> str:
    """A line of JSON per document: its features, its score by every model, and how far rounding may take each."""
    held = arithmetic.held(sample.features)
    scores = {model.name: model.own(held) for model in exported.models}
    slack = {model.name: arithmetic.tolerance(model.form, held) for model in exported.models}
    return "".join(
        json.dumps(
            {
                "id": str(row),
                **sample.of[row],
                "features": dict(zip(in_engine, held[row].tolist(), strict=True)),
                "scores": {name: float(values[row]) for name, values in scores.items()},
                "tolerance": {name: float(values[row]) for name, values in slack.items()},
            }
        )
        + "\n"
        for row in range(len(held))
    )


def sampled(candidates: Candidates, rows: int) -> Sample:
    """Documents evenly spread over the data, with the words of their queries where these and their ids are known."""
    count, owner, table = len(candidates.features), candidates.query_of_row, candidates.queries
    chosen = np.unique(np.linspace(0, count - 1, min(rows, count)).round().astype(int)).tolist()
    of: list[dict[str, str]] = [{} for _ in chosen]
    if candidates.document_ids is not None and table is not None and table.texts is not None:
        for known, row in zip(of, chosen, strict=True):
            text = table.texts[owner[row]]
            if text is not None:
                known |= {"document": candidates.document_ids[row], "keywords": text}
    return Sample(candidates.features[chosen], tuple(of))


def made_up(exported: Exported, rows: int, arithmetic: Arithmetic) -> Sample:
    """Documents for a model without data: the same ones every time, of all sizes, and on the edges of splits."""
    rng = np.random.default_rng(0)
    width = len(exported.features)
    made = rng.standard_normal((rows, width)) * 10 ** rng.uniform(-2, 3, size=(rows, width))
    made[rng.random((rows, width)) < 0.2] = 0.0
    for column, edges in _edges(exported).items():
        chosen = rng.choice(edges, size=rows).tolist()
        below = [arithmetic.highest_low(floor32(edge)) for edge in chosen]
        made[:, column] = np.where(rng.random(rows) < 0.5, below, [above32(edge) for edge in chosen])
    return Sample(np.asarray(made, dtype=np.float32).astype(np.float64), ({},) * rows)


def _edges(exported: Exported) -> dict[int, list[float]]:
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
    """Whether every feature that varies within a query runs from 0 to 1 there: data on the scale of its queries.

    Features that are all 0 or 1 are not taken for that.
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
    return queries >= _ENOUGH
