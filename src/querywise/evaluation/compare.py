"""Several rankers on the same folds: what each reaches on the test queries, and whether the difference is luck."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from querywise.contracts import Ranker
from querywise.data.folds import Fold
from querywise.data.groups import Judged
from querywise.errors import DataError
from querywise.evaluation.evaluate import Evaluation, evaluate
from querywise.evaluation.significance import Comparison, paired_t_test

# Given the training and the validation part, a fitted ranker; the test part is never handed over.
Fit = Callable[[Judged, Judged], Ranker]


@dataclass(frozen=True)
class Compared:
    """The test queries of all folds together, under every ranker."""

    evaluations: dict[str, Evaluation]
    fit_seconds: dict[str, float]
    predict_milliseconds: dict[str, float]  # per query

    @property
    def names(self) -> tuple[str, ...]:
        """The rankers, in the order given; the first is what the others are compared with."""
        return tuple(self.evaluations)

    def against_first(self, name: str, measure: str) -> Comparison:
        """One ranker's paired test against the first."""
        return paired_t_test(self.evaluations[name][measure], self.evaluations[self.names[0]][measure])

    def as_json(self) -> dict[str, Any]:
        """Everything the table shows, as JSON can hold it."""
        first = self.names[0]
        sample = self.evaluations[first]
        return {
            "queries": len(sample),
            "flavour": sample.flavour,
            "baseline": first,
            "test": "paired t-test",
            "methods": {
                name: {
                    "mean": self.evaluations[name].mean(),
                    "p": {measure: self.against_first(name, measure).p for measure in sample.measures},
                    "fit_seconds": self.fit_seconds[name],
                    "predict_milliseconds": self.predict_milliseconds[name],
                }
                for name in self.names
            },
        }


def compare(
    fits: Mapping[str, Fit],
    folds: Iterable[Fold],
    *,
    measures: str | Sequence[str] = ("map", "ndcg@10"),
    flavour: str = "standard",
) -> Compared:
    """Fit every ranker on every fold and evaluate it on the fold's test queries."""
    if not fits:
        raise DataError("There is nothing to compare: no ranker was given.")
    parts: dict[str, list[Evaluation]] = {name: [] for name in fits}
    fitting = dict.fromkeys(fits, 0.0)
    predicting = dict.fromkeys(fits, 0.0)
    queries = 0
    for fold in folds:
        queries += len(fold.test)
        for name, fit in fits.items():
            begin = time.perf_counter()
            ranker = fit(fold.train, fold.valid)
            ready = time.perf_counter()
            scores = ranker.predict(fold.test.candidates)
            fitting[name] += ready - begin
            predicting[name] += time.perf_counter() - ready
            parts[name].append(evaluate(scores, fold.test, measures=measures, flavour=flavour))
    return Compared(
        {name: _joined(tables) for name, tables in parts.items()},
        fitting,
        {name: 1000 * seconds / max(queries, 1) for name, seconds in predicting.items()},
    )


def _joined(tables: Sequence[Evaluation]) -> Evaluation:
    if not tables:
        raise DataError("There is nothing to compare: no fold was given.")
    return Evaluation(
        tuple(query_id for table in tables for query_id in table.query_ids),
        tables[0].measures,
        np.concatenate([table.values for table in tables]),
        tables[0].flavour,
    )
