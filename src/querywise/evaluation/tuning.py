"""Grid search: every setting fitted on train, the best chosen on valid, all trials kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from querywise.contracts.protocols import Fittable
from querywise.data.judged import Judged
from querywise.data.labels import require_same_labels
from querywise.data.query_groups import deal_in_turn
from querywise.data.training import Training, as_taken
from querywise.display.tables import Frame, as_frame
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.evaluation.edges import Edge, edges_of
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.plots import draw_tried
from querywise.evaluation.tried import tried_columns, tried_values
from querywise.runtime.cache import caching
from querywise.runtime.progress import track
from querywise.runtime.values import Grid, JsonObject, Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AnyRanker = TypeVar("AnyRanker", bound=Fittable, covariant=True)


@dataclass(frozen=True)
class Trial:
    """One setting and what it reached on queries that it was not fitted on."""

    parameters: JsonObject
    value: float


@dataclass(frozen=True)
class Choice:
    """The parameters that were chosen, by which measure, and everything that was tried to find them.

    final: settings of the ranker that was kept, where they are other ones than those of the trials, such as more seeds.
    """

    parameters: JsonObject
    measure: str
    flavour: str
    tried: tuple[Trial, ...]
    final: JsonObject = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Choice({self.summary})"

    @property
    def summary(self) -> str:
        """The chosen setting, what it reached, and how many were tried, in a line."""
        if not self.tried:
            return f"{self.parameters}, nothing tried"
        settings = counted(len(self.tried), "setting")
        kept = f", kept with {self.final}" if self.final else ""
        return f"{self.parameters}: {self.measure} {self.value:.4f}, the best of {settings}{kept}"

    @property
    def value(self) -> float:
        """What the chosen setting reached; NaN where nothing was tried."""
        return max((trial.value for trial in self.tried), default=float("nan"))

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The parameters that were chosen at the edge of what was tried, where a better value may lie beyond."""
        settings, values = [each.parameters for each in self.tried], [each.value for each in self.tried]
        return tuple(edges_of(settings, values, self.parameters)) if settings else ()

    def as_notes(self) -> JsonObject:
        """The choice and how it was made, as JSON can hold it."""
        return {
            "parameters": self.parameters,
            "chosen_by": {"measure": self.measure, "flavour": self.flavour} if self.tried else None,
            "tried": [{"parameters": trial.parameters, "value": trial.value} for trial in self.tried],
            **({"final": self.final} if self.final else {}),
        }


@dataclass(frozen=True, repr=False)
class Tuned(Choice, Generic[AnyRanker]):
    """The best ranker, fitted on the training part, and everything that was tried to find it.

    folds: of the cross-validation that chose; None: a validation part did.
    """

    ranker: AnyRanker = field(kw_only=True)
    folds: int | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        return f"Tuned({type(self.ranker).__name__}, {self.summary})"

    def to_frame(self) -> Frame:
        """A row per tried setting: its parameters, what it reached, and whether it was chosen."""
        settings, values = [each.parameters for each in self.tried], [each.value for each in self.tried]
        return as_frame(tried_columns(settings, values, self.measure, self.parameters))

    def plot(self, parameter: str | None = None, *, ax: Axes | None = None) -> Axes:
        """What was reached at every value of a parameter, the best over the other parameters.

        parameter: by default the one that was tried at several values.
        """
        settings, values = [each.parameters for each in self.tried], [each.value for each in self.tried]
        name, found = tried_values(settings, values, parameter)
        how = "on validation data" if self.folds is None else f"in cross-validation of {self.folds} parts"
        return draw_tried(list(found), list(found.values()), (name, f"{self.measure} {how}"), ax)

    @property
    def choice(self) -> Choice:
        """How the ranker's parameters were chosen, without the ranker."""
        return Choice(self.parameters, self.measure, self.flavour, self.tried, self.final)


def tune_or_fit(
    build: Callable[..., AnyRanker],
    grid: Grid,
    *,
    fixed: Settings,
    train: Training,
    valid: Judged | None,
    measure: str = "map",
    flavour: str = "standard",
) -> Tuned[AnyRanker]:
    """Choose what the grid leaves open where there is a validation part; without one, the defaults hold."""
    if valid is None:
        ranker = build(**fixed)
        return Tuned(dict(fixed), measure, flavour, (), ranker=_fitted(ranker, train))
    every = {**grid, **{name: [value] for name, value in fixed.items()}}
    return tune(build, every, train=train, valid=valid, measure=measure, flavour=flavour)


@dataclass(frozen=True)
class TunedFit(Generic[AnyRanker]):
    """What `tuned_fit` gives: called with a training and a validation part, it chooses and fits."""

    build: Callable[..., AnyRanker]
    grid: Grid | Callable[[Judged], Grid]
    fixed: Settings
    final: Settings
    measure: str
    flavour: str

    def grid_on(self, train: Judged) -> Grid:
        """The grid for a training part."""
        return self.grid if isinstance(self.grid, Mapping) else self.grid(train)

    def __call__(self, train: Judged, valid: Judged) -> Tuned[AnyRanker]:
        """The best ranker of the grid."""
        tried, how = self.grid_on(train), {"measure": self.measure, "flavour": self.flavour}
        once = self.final and not any(len(values) > 1 for values in tried.values())
        settled = {**self.fixed, **self.final} if once else self.fixed
        found = tune_or_fit(self.build, tried, fixed=settled, train=train, valid=valid, **how)
        if once or not self.final:
            return found
        ranker = _fitted(self.build(**{**found.parameters, **self.final}), train, valid)
        return replace(found, ranker=ranker, final=dict(self.final))


def tuned_fit(
    build: Callable[..., AnyRanker],
    grid: Grid | Callable[[Judged], Grid],
    *,
    fixed: Settings | None = None,
    final: Settings | None = None,
    measure: str = "map",
    flavour: str = "standard",
) -> TunedFit[AnyRanker]:
    """What `compare` fits a method by: given a training and a validation part, the best ranker of a grid.

    grid: the same for all training parts, or made from each. final: settings of the ranker that is kept, such as more
    seeds, with which the best of the grid is fitted again.
    """
    return TunedFit(build, grid, fixed or {}, final or {}, measure, flavour)


def _fitted(ranker: Any, train: Training, valid: Judged | None = None) -> Any:
    return ranker.fit(as_taken(ranker, train), valid=valid)  # shards only where the ranker takes them


def tune(
    build: Callable[..., AnyRanker],
    grid: Grid,
    *,
    train: Training,
    valid: Judged,
    measure: str = "map",
    flavour: str = "standard",
) -> Tuned[AnyRanker]:
    """Fit `build(**parameters)` for every combination in the grid; the highest on `valid` wins, the first of equals.

    build: a class or function that gives a ranker for parameters by name.
    grid: the values to try of each parameter, by name; every combination is fitted.
    train: what each is fitted on.
    valid: what each is measured on, and stops early on where it does.
    measure: the measure that decides, the mean over the queries of `valid`.
    flavour: whose conventions count: `standard`, `letor4`, `mslr`, `trec` or `lightgbm`.

    Returns: Tuned: `.ranker` is the best one, fitted, `.parameters` its parameters, `.tried` every setting with its
    value.

    Refused: with DataError, unknown measures and flavours, labels of other kinds in `valid`, and what a ranker refuses.

    >>> from querywise import RankSVM, make_judged, split, tune
    >>> train, valid, test = split(make_judged(30, 10, 4))
    >>> found = tune(RankSVM, {"l2": [0.1, 1.0, 10.0]}, train=train, valid=valid, measure="ndcg@10")
    >>> len(found.tried), found.parameters["l2"] in (0.1, 1.0, 10.0), found.ranker.predict(test).shape
    (3, True, (60,))
    """
    require_same_labels([train, valid])
    settings = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    best: tuple[float, AnyRanker, JsonObject] | None = None
    tried = []
    with caching():
        for parameters in track(settings, "Choosing parameters"):
            ranker = _fitted(build(**parameters), train, valid)
            scores = ranker.predict(valid.candidates)
            table = evaluate(scores, valid, measures=[measure], flavour=flavour, order="grouped")
            value = float(table.values.mean())
            tried.append(Trial(parameters, value))
            if best is None or value > best[0]:
                best = (value, ranker, parameters)
    assert best is not None, "a product of no lists still has one element"
    return Tuned(best[2], measure, flavour, tuple(tried), ranker=best[1])


def cross_validate(
    build: Callable[..., AnyRanker],
    grid: Grid,
    *,
    fixed: Settings,
    data: Training,
    folds: int = 5,
    measure: str = "map",
    flavour: str = "standard",
    seed: int = 0,
) -> Tuned[AnyRanker]:
    """Choose what the grid leaves open without a validation part, and train the best setting on everything."""
    every = {**grid, **{name: [value] for name, value in fixed.items()}}
    tried = cross_validated(build, every, data=data.load(), folds=folds, measure=measure, flavour=flavour, seed=seed)
    best = max(tried, key=lambda trial: trial.value)
    ranker = _fitted(build(**best.parameters), data)
    return Tuned(best.parameters, measure, flavour, tried, ranker=ranker, folds=folds)


def cross_validated(
    build: Callable[..., AnyRanker],
    grid: Grid,
    *,
    data: Judged,
    folds: int = 5,
    measure: str = "map",
    flavour: str = "standard",
    seed: int = 0,
) -> tuple[Trial, ...]:
    """What every combination in the grid reaches on queries it was not fitted on.

    The queries are cut into parts at random, groups of queries in one; each part is ranked by what was fitted on the
    others, and a setting's value is the mean over all queries. Nothing that is fitted sees the part it is measured on,
    not even to stop early.
    """
    if not 2 <= folds <= len(data):
        raise DataError(f"Cross-validation over {folds} parts needs from 2 parts up, and as many queries: {len(data)}.")
    settings = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    place = deal_in_turn(np.random.default_rng(seed).permutation(len(data)), folds, data.groups)
    totals = np.zeros(len(settings))
    for part in track(range(folds), "Cross-validation"):
        train, held_out = (data.select(np.flatnonzero(chosen)) for chosen in (place != part, place == part))
        with caching():
            for number, parameters in enumerate(track(settings, "Choosing parameters")):
                scores = build(**parameters).fit(train).predict(held_out.candidates)
                table = evaluate(scores, held_out, measures=[measure], flavour=flavour, order="grouped")
                totals[number] += table.values.sum()
    return tuple(Trial(each, float(total / len(data))) for each, total in zip(settings, totals, strict=True))
