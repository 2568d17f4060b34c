"""Scores and labels → one row per query, one column per measure."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from querywise.data.judged import Candidates, Judged
from querywise.data.letor import PathLike
from querywise.errors import DataError
from querywise.measures.formulas import Flavour, find_flavour, find_measures
from querywise.measures.order import check_scores, order
from querywise.runtime.arrays import Floats, Ints, frozen
from querywise.runtime.files import atomic_text
from querywise.runtime.values import JsonObject, json_text


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The value of every measure for every query."""

    query_ids: tuple[str, ...]
    measures: tuple[str, ...]
    values: Floats
    flavour: str

    def __len__(self) -> int:
        return len(self.query_ids)

    def __getitem__(self, measure: str) -> Floats:
        """One measure's values, a number per query."""
        if measure not in self.measures:
            raise DataError(f"Measure {measure!r} was not evaluated. Evaluated: {', '.join(self.measures)}.")
        return self.values[:, self.measures.index(measure)]

    def mean(self) -> dict[str, float]:
        """The average of every measure over all queries."""
        return dict(zip(self.measures, self.values.mean(axis=0).tolist(), strict=True))

    def write_csv(self, path: PathLike) -> None:
        """One line per query, values exact to the last bit."""
        with atomic_text(Path(path)) as out:
            table = csv.writer(out, lineterminator="\n")
            table.writerow(["query", *self.measures])
            for query_id, row in zip(self.query_ids, self.values.tolist(), strict=True):
                table.writerow([query_id, *map(repr, row)])

    def write_json(self, path: PathLike) -> None:
        """Flavour, averages and the per-query values."""
        rows = [dict(zip(self.measures, row, strict=True)) for row in self.values.tolist()]
        content: JsonObject = {
            "flavour": self.flavour,
            "mean": self.mean(),
            "queries": dict(zip(self.query_ids, rows, strict=True)),
        }
        with atomic_text(Path(path)) as out:
            out.write(json_text(content))


def evaluate(
    scores: ArrayLike,
    data: Judged,
    *,
    measures: str | Sequence[str] = ("map", "ndcg@10"),
    flavour: str = "standard",
    max_grade: int | None = None,
) -> Evaluation:
    """Rank every query's documents by `scores` and measure the order.

    >>> from querywise import from_arrays
    >>> data = from_arrays([[1.0], [2.0]], [1, 0], qid=["a", "a"])
    >>> evaluate([0.1, 0.2], data, measures=["map", "p@1"]).mean()
    {'map': 0.5, 'p@1': 0.0}
    """
    candidates = data.candidates
    if not len(candidates):
        raise DataError("There is no query to evaluate.")
    values = check_scores(scores, candidates)
    chosen = find_measures(measures)
    conventions = find_flavour(flavour)
    if max_grade is None:
        max_grade = int(data.labels.max(initial=0))
    conventions = replace(conventions, max_grade=max_grade)
    ranked = data.labels[order(values, candidates.starts, tie_break=tie_break(candidates, conventions))]
    table = np.array(
        [
            [measure.of(ranked[candidates.rows(query)], conventions) for measure in chosen]
            for query in range(len(candidates))
        ]
    )
    return Evaluation(candidates.query_ids, tuple(measure.name for measure in chosen), frozen(table), flavour)


def tie_break(candidates: Candidates, flavour: Flavour) -> Ints | None:
    """What tied documents are ordered by, lowest first; None where they keep their order."""
    if flavour.ties != "document id" or candidates.document_ids is None:
        return None
    names = np.array(candidates.document_ids)
    return -np.unique(names, return_inverse=True)[1].astype(np.int64)
