"""The job of `querywise fit`: tune parameters, train the ranker, and save it with how it was made.

With `--method auto`, cross-validation over the training queries also chooses which of a few methods to fit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from querywise.contracts.answers import Sizes
from querywise.contracts.asking import AnyRanker, facts_of
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Judged
from querywise.data.query_groups import deal, deal_in_turn
from querywise.data.training import Training
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.tuning import Tuned, cross_validate, hint_at, tune_or_fit
from querywise.methods import Method, find_method
from querywise.retrieval.adapted_vectors import AdaptedVectors
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import caching
from querywise.runtime.progress import track
from querywise.runtime.resume import resuming
from querywise.runtime.values import JsonObject, Settings
from querywise.runtime.workers import workers
from querywise.storage import load, save

AUTO = "auto"
AMONG = ("ranksvm", "lambdamart", "blend")  # from the simplest on
_FEWEST = 10  # queries, for five parts and some for early stopping
_STOPPING = 5  # one in this many training queries decides the number of trees


@dataclass(frozen=True)
class FitOptions:
    """What to fit: a method, the fixed settings, and how the others are chosen.

    `folds` is the number of parts of a cross-validation over the training queries, which tunes without validation data.
    `notes` is what the model folder must record about the data.
    """

    method: Method
    fixed: Settings
    measure: str = "map"
    flavour: str = "standard"
    folds: int | None = None
    notes: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class Fitted:
    """The result: the choice, the notes in the model folder, and the sizes of clusters, if any."""

    tuned: Tuned[Ranker]
    notes: JsonObject
    sizes: Sizes | None


def run(
    asked: FitOptions,
    train: Training,
    valid: Judged | None,
    out: Path,
    *,
    cluster: bool = False,
    adapter: AdaptedVectors | None = None,
) -> Fitted:
    """Tune, train and save; on shards or on a cluster, an interrupted run continues where it stopped.

    `adapter` adapted the vectors of the training queries; it is saved with the model, for new queries.
    """
    with _resumable(asked, train, valid, out, cluster=cluster):
        tuned = _tuned(asked, train, valid)
        facts = facts_of(tuned.ranker)
        notes: JsonObject = {"method": asked.method.name, **tuned.as_notes(), **asked.notes}
        if facts.f1 is not None:
            notes["classifier_f1"] = round(facts.f1, 4)
        if facts.sizes is not None:
            notes["clusters"] = facts.sizes._asdict()
        if facts.gains:
            notes["gains"] = [each._asdict() for each in facts.gains]
        if adapter is not None:
            assert isinstance(tuned.ranker, AnyRanker)
            tuned.ranker.with_adapter(adapter)
        save(tuned.ranker, out, notes=notes)
    hint_at([replace(each, method=asked.method.name) for each in tuned.edges])
    return Fitted(tuned, notes, facts.sizes)


def _tuned(asked: FitOptions, train: Training, valid: Judged | None) -> Tuned[Ranker]:
    base = asked.fixed.get("base")
    build, grid = asked.method.build, asked.method.grid_on(train, base if isinstance(base, str) else None)
    grid, fixed = asked.method.opened(grid, asked.fixed)
    if asked.folds is None:
        return tune_or_fit(
            build, grid, fixed=fixed, train=train, valid=valid, measure=asked.measure, flavour=asked.flavour
        )
    return cross_validate(
        build, grid, fixed=fixed, data=train, folds=asked.folds, measure=asked.measure, flavour=asked.flavour
    )


@contextlib.contextmanager
def _resumable(asked: FitOptions, train: Training, valid: Judged | None, out: Path, *, cluster: bool) -> Iterator[None]:
    """Store finished parts of a training on shards or on a cluster beside the model folder."""
    if not cluster and train.in_memory:
        yield
        return
    record = {
        "method": asked.method.name,
        "folds": asked.folds,
        "fixed": {**asked.fixed},
        "measure": asked.measure,
        "flavour": asked.flavour,
        "data": [each.fingerprint() for each in (train, valid) if each is not None],
        "version": version("querywise"),
        "parts": workers().parts,  # how work is divided, which depends on memory too
        "memory": workers().memory,
    }
    with resuming(out.absolute().parent / f".{out.name}.unfinished", record, save=save, load=load):
        yield


@dataclass(frozen=True, eq=False)
class MethodChoice:
    """The value of each method on queries it was not fitted on, query by query, and the method to use."""

    measure: str
    folds: int
    values: dict[str, Floats]

    @property
    def best(self) -> str:
        """The method with the highest mean; of tied methods, the simplest."""
        return max(AMONG, key=self.mean)

    @property
    def name(self) -> str:
        """The simplest method that is behind the best one by no more than the standard error of their difference."""
        return next(name for name in AMONG if self.behind(name) <= self.error(name))

    def mean(self, name: str) -> float:
        """Return a method's mean over all queries."""
        return float(self.values[name].mean())

    def behind(self, name: str) -> float:
        """Return how far a method is behind the best one."""
        return self.mean(self.best) - self.mean(name)

    def error(self, name: str) -> float:
        """Return the standard error of that difference, from the differences by query."""
        gaps = self.values[self.best] - self.values[name]
        return float(gaps.std(ddof=1) / np.sqrt(len(gaps)))

    @property
    def reason(self) -> str:
        """Why this method was chosen, in a sentence or two."""
        first, chosen = AMONG[0], self.name
        if chosen != self.best:
            return (
                f"{chosen} is taken: {self.best} is {self.behind(chosen):.4f} ahead, no more than the standard error "
                f"of that difference, {self.error(chosen):.4f}, and {chosen} is simpler."
            )
        if chosen == first:
            return f"{chosen} is taken: it is the best, and the simplest."
        simpler = min(AMONG[: AMONG.index(chosen)], key=self.behind)
        return (
            f"{chosen} is taken: it is {self.behind(simpler):.4f} ahead of {simpler}, more than the standard error of "
            f"that difference, {self.error(simpler):.4f}."
        )

    def as_json(self) -> JsonObject:
        """Return the choice as JSON for the model folder."""
        return {
            "measure": self.measure,
            "folds": self.folds,
            "means": {name: self.mean(name) for name in AMONG},
            "reason": self.reason,
        }


def choose(data: Judged, *, measure: str, flavour: str, folds: int = 5) -> MethodChoice:
    """Evaluate every method with its defaults on queries it was not fitted on.

    Trees stop early on a fifth of their training queries, never on those that evaluate them.
    """
    if len(data) < max(_FEWEST, folds):
        raise DataError(
            f"The method {AUTO} is chosen by cross-validation, which needs {max(_FEWEST, folds)} training queries or "
            f"more; found {len(data)}. Name a method: with so few queries, ranksvm."
        )
    groups = data.groups
    if (count := len(np.unique(groups))) < max(_FEWEST, folds):
        raise DataError(
            f"The method {AUTO} is chosen by cross-validation, which keeps groups of queries together and needs "
            f"{max(_FEWEST, folds)} groups or more; the {len(data)} training queries are in {count}. Name a method."
        )
    place = deal_in_turn(np.random.default_rng(0).permutation(len(data)), folds, groups)
    values = {name: np.zeros(len(data)) for name in AMONG}
    for part in track(range(folds), "Choosing a method"):
        seen, held_out = np.flatnonzero(place != part), np.flatnonzero(place == part)
        fifth, others = seen[::_STOPPING], seen[np.arange(len(seen)) % _STOPPING != 0]
        parts = deal(np.concatenate([fifth, others]), [len(fifth), len(others)], groups)
        stop, train = (data.select(each) for each in parts)
        test = data.select(held_out)
        with caching():
            for name in AMONG:
                values[name][held_out] = _values(find_method(name), train, stop, test, measure, flavour)
    return MethodChoice(measure, folds, values)


def _values(method: Method, train: Judged, stop: Judged, test: Judged, measure: str, flavour: str) -> Floats:
    scores = method.build().fit(train, valid=stop).predict(test.candidates)
    return evaluate(scores, test, measures=[measure], flavour=flavour, order="grouped")[measure]
