"""Several rankers on the same folds: what each reaches on the test queries, and whether the difference is luck."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from querywise.arrays import Bools, Floats, Ints
from querywise.data.folds import Fold
from querywise.data.groups import Judged, concatenate
from querywise.errors import DataError
from querywise.evaluation.evaluate import Evaluation, evaluate
from querywise.evaluation.significance import Comparison, paired_t_test
from querywise.measures import find_measures
from querywise.progress import doing
from querywise.sharing import sharing

# Given the training and the validation part, a fitted ranker, or what tuning found; never the test part.
Fit = Callable[[Judged, Judged], Any]
# Told of every ranker once it is fitted: fold, name, ranker.
Observe = Callable[[Fold, str, Any], None]
CHOSEN = "chosen on validation"


@dataclass(frozen=True)
class Trained:
    """One ranker on one fold: its scores of the test documents, what it cost, and how its parameters were chosen."""

    scores: Floats
    fit_seconds: float
    predict_seconds: float
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def valid_value(self) -> float:
        """What the chosen setting reached on the validation part; NaN where nothing was chosen."""
        return max((trial["value"] for trial in self.notes.get("tried", ())), default=float("nan"))


@dataclass(frozen=True, eq=False)
class Compared:
    """The test queries of all folds together, under every ranker. `test` carries no features."""

    test: Judged
    fold_of: Ints  # which fold tested each query
    trained: dict[str, tuple[Trained, ...]]  # a ranker's folds
    baseline: str
    measures: tuple[str, ...]
    flavour: str

    @property
    def names(self) -> tuple[str, ...]:
        """The rankers, in the order given."""
        return tuple(self.trained)

    @cached_property
    def scores(self) -> dict[str, Floats]:
        """Every ranker's scores of all test documents."""
        return {name: np.concatenate([each.scores for each in parts]) for name, parts in self.trained.items()}

    @cached_property
    def evaluations(self) -> dict[str, Evaluation]:
        """Every measure of every test query."""
        return {
            name: evaluate(scores, self.test, measures=self.measures, flavour=self.flavour)
            for name, scores in self.scores.items()
        }

    def against_baseline(self, name: str, measure: str, queries: Bools | None = None) -> Comparison:
        """One ranker's paired test against the baseline, over all queries or some."""
        ours, theirs = self.evaluations[name][measure], self.evaluations[self.baseline][measure]
        return paired_t_test(ours, theirs) if queries is None else paired_t_test(ours[queries], theirs[queries])

    def fit_seconds(self, name: str) -> float:
        """What training, and choosing parameters, took in all folds."""
        return sum(each.fit_seconds for each in self.trained[name])

    def predict_milliseconds(self, name: str) -> float:
        """What ranking took, per query."""
        return 1000 * sum(each.predict_seconds for each in self.trained[name]) / max(len(self.test), 1)

    @property
    def classes(self) -> dict[str, Bools]:
        """The test queries of each class, where they have one."""
        known = self.test.classes
        return {name: np.array([each == name for each in known]) for name in sorted({name for name in known if name})}

    def with_choice(self, among: Sequence[str]) -> Compared:
        """The same with one more ranker: in each fold the one, among some, that did best on the validation part."""
        parts = []
        for fold in range(len(self.trained[self.baseline])):
            values = {name: self.trained[name][fold].valid_value for name in among}
            best = max(among, key=lambda name: (values[name], -among.index(name)))
            parts.append(replace(self.trained[best][fold], notes={**self.trained[best][fold].notes, "method": best}))
        return replace(self, trained={**self.trained, CHOSEN: tuple(parts)})

    def as_json(self) -> dict[str, Any]:
        """Everything the table shows, as JSON can hold it."""
        return {
            "queries": len(self.test),
            "flavour": self.flavour,
            "baseline": self.baseline,
            "test": "paired t-test",
            "methods": {
                name: {
                    "mean": self.evaluations[name].mean(),
                    "p": {measure: self.against_baseline(name, measure).p for measure in self.measures},
                    "fit_seconds": self.fit_seconds(name),
                    "predict_milliseconds": self.predict_milliseconds(name),
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
    baseline: str | None = None,
    observe: Observe | None = None,
) -> Compared:
    """Fit every ranker on every fold and score the fold's test queries; the first is the baseline, or the one named."""
    if not fits:
        raise DataError("There is nothing to compare: no ranker was given.")
    if baseline is not None and baseline not in fits:
        raise DataError(f"The baseline {baseline!r} is not among the methods: {', '.join(fits)}.")
    trained: dict[str, list[Trained]] = {name: [] for name in fits}
    tests: list[Judged] = []
    for fold in folds:
        tests.append(_without_features(fold.test))
        with sharing():
            for name, fit in fits.items():
                with doing(name):
                    trained[name].append(train(name, fit, fold, observe))
    if not tests:
        raise DataError("There is nothing to compare: no fold was given.")
    return Compared(
        test=concatenate(tests),
        fold_of=np.repeat(np.arange(len(tests)), [len(each) for each in tests]),
        trained={name: tuple(parts) for name, parts in trained.items()},
        baseline=next(iter(fits)) if baseline is None else baseline,
        measures=tuple(measure.name for measure in find_measures(measures)),
        flavour=flavour,
    )


def train(name: str, fit: Fit, fold: Fold, observe: Observe | None = None) -> Trained:
    """Fit one ranker on one fold and score the fold's test documents."""
    begin = time.perf_counter()
    made = fit(fold.train, fold.valid)
    ready = time.perf_counter()
    ranker: Any = getattr(made, "ranker", made)
    scores = ranker.predict(fold.test.candidates)
    done = time.perf_counter()
    if observe is not None:
        observe(fold, name, ranker)
    return Trained(scores, ready - begin, done - ready, made.as_notes() if hasattr(made, "as_notes") else {})


def _without_features(data: Judged) -> Judged:
    bare = np.zeros((len(data.labels), 0))
    return replace(data, candidates=replace(data.candidates, features=bare, feature_names=None, source_rows=None))
