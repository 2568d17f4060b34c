"""Grid search: fit every setting on train, choose the best on valid, keep all trials, and warn of grid edges."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from querywise.contracts.protocols import Fittable
from querywise.data.folds import some_queries
from querywise.data.judged import Judged
from querywise.data.labels import require_same_labels
from querywise.data.query_groups import deal_in_turn
from querywise.data.training import Training, as_taken
from querywise.display.tables import DOWN, UP, Column, Frame, as_frame, axes_or_new, finish, plain
from querywise.display.words import counted
from querywise.errors import DataError, EdgeHint
from querywise.evaluation.evaluate import evaluate
from querywise.runtime.cache import cached, caching
from querywise.runtime.progress import track
from querywise.runtime.values import Grid, Json, JsonObject, Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TRIED = 1_500  # training queries up to which a grid is tried on all of them
SAMPLED, MEASURED = 800, 300  # if there are more: the training and validation queries in the sample
_FEWEST = 3  # of two values, each is at an edge
_NAMED = 3  # in a hint; the others are counted
_SHARES = ("clusters", "floor", "k", "learning_rate")  # these cannot exceed 1, as a share
AnyRanker = TypeVar("AnyRanker", bound=Fittable, covariant=True)


@dataclass(frozen=True)
class Trial:
    """One setting and its value on queries that it was not fitted on."""

    parameters: JsonObject
    value: float


@dataclass(frozen=True)
class Choice:
    """The chosen parameters, the measure that decided, and every setting tried.

    `final` has settings of the kept ranker that differ from those of the trials, such as more seeds.
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
        """The chosen setting, its value, and how many were tried, in a line."""
        if not self.tried:
            return f"{self.parameters}, nothing tried"
        settings = counted(len(self.tried), "setting")
        kept = f", kept with {self.final}" if self.final else ""
        return f"{self.parameters}: {self.measure} {self.value:.4f}, the best of {settings}{kept}"

    @property
    def value(self) -> float:
        """The value of the chosen setting; NaN if nothing was tried."""
        return max((trial.value for trial in self.tried), default=float("nan"))

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The parameters chosen at an edge of their grid, beyond which a better value may lie."""
        return tuple(edges_of(*self._trials, self.parameters)) if self.tried else ()

    @property
    def _trials(self) -> tuple[list[Settings], list[float]]:
        """The settings tried, and the value of each."""
        return [each.parameters for each in self.tried], [each.value for each in self.tried]

    def as_notes(self) -> JsonObject:
        """Return the choice and how it was made as JSON."""
        return {
            "parameters": self.parameters,
            "chosen_by": {"measure": self.measure, "flavour": self.flavour} if self.tried else None,
            "tried": [{"parameters": trial.parameters, "value": trial.value} for trial in self.tried],
            **({"final": self.final} if self.final else {}),
        }


@dataclass(frozen=True, repr=False)
class Tuned(Choice, Generic[AnyRanker]):
    """The best ranker, fitted on the training part, and every setting tried.

    `folds` is the number of folds of the cross-validation that chose; None if a validation part did.
    """

    ranker: AnyRanker = field(kw_only=True)
    folds: int | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        return f"Tuned({type(self.ranker).__name__}, {self.summary})"

    def to_frame(self) -> Frame:
        """Return a row per setting tried: its parameters, its value, and whether it was chosen."""
        return as_frame(tried_columns(*self._trials, self.measure, self.parameters))

    def plot(self, parameter: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Plot the best value reached at every value of a parameter, over the other parameters.

        `parameter` is by default the one that was tried at several values.
        """
        name, found = tried_values(*self._trials, parameter)
        how = "on validation data" if self.folds is None else f"in cross-validation of {self.folds} parts"
        return _draw(list(found), list(found.values()), (name, f"{self.measure} {how}"), ax)

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
    """Tune the open parameters if there is a validation part; otherwise use the defaults."""
    if valid is None:
        ranker = build(**fixed)
        return Tuned(dict(fixed), measure, flavour, (), ranker=_fitted(ranker, train))
    every = {**grid, **{name: [value] for name, value in fixed.items()}}
    return tune(build, every, train=train, valid=valid, measure=measure, flavour=flavour)


@dataclass(frozen=True)
class TunedFit(Generic[AnyRanker]):
    """A method for `compare`: called with a training and a validation part, it returns the best ranker of a grid.

    `grid` is the same for all training parts, or a function of each. `final` has settings of the kept ranker, such as
    more seeds, with which the best setting is fitted again. With more than 1,500 training queries the grid is tried on
    800 and evaluated on 300 validation queries: more of them cost time and rarely change which setting is best.
    """

    build: Callable[..., AnyRanker]
    grid: Grid | Callable[[Judged], Grid]
    fixed: Settings = field(default_factory=dict)
    final: Settings = field(default_factory=dict)
    measure: str = "map"
    flavour: str = "standard"

    def grid_on(self, train: Judged) -> Grid:
        """Return the grid for a training part."""
        return self.grid if isinstance(self.grid, Mapping) else self.grid(train)

    def __call__(self, train: Judged, valid: Judged) -> Tuned[AnyRanker]:
        """Return the best ranker of the grid."""
        tried, how = self.grid_on(train), {"measure": self.measure, "flavour": self.flavour}
        once = self.final and not any(len(values) > 1 for values in tried.values())
        settled = {**self.fixed, **self.final} if once else self.fixed
        several = any(len(values) > 1 for name, values in tried.items() if name not in self.fixed)
        sampled = several and len(train) > MOST_TRIED
        parts = (_at_most(train, SAMPLED), _at_most(valid, MEASURED)) if sampled else (train, valid)
        found = tune_or_fit(self.build, tried, fixed=settled, train=parts[0], valid=parts[1], **how)
        if once or not (self.final or sampled):
            return found
        ranker = _fitted(self.build(**{**found.parameters, **self.final}), train, valid)
        return replace(found, ranker=ranker, final=dict(self.final))


def _at_most(data: Judged, count: int) -> Judged:
    """Return the data, or a sample of its queries: the same object each time, so that methods share what they fit."""
    return cached("sample", count, data, lambda: some_queries(data, count)) if len(data) > count else data


def _fitted(ranker: Any, train: Training, valid: Judged | None = None) -> Any:
    return ranker.fit(as_taken(ranker, train), valid=valid)  # shards only if the ranker takes them


def tune(
    build: Callable[..., AnyRanker],
    grid: Grid,
    *,
    train: Training,
    valid: Judged,
    measure: str = "map",
    flavour: str = "standard",
) -> Tuned[AnyRanker]:
    """Fit `build(**parameters)` for every combination in the grid; the best on `valid` wins, the first of ties.

    Args:
        build: a class or function that returns a ranker for keyword parameters.
        grid: the values to try for each parameter, by name; every combination is fitted.
        train: the training part for all of them.
        valid: the part that evaluates them, and stops early those that support it.
        measure: the measure that decides, the mean over the queries of `valid`.
        flavour: the evaluation conventions: `standard`, `letor4`, `mslr`, `trec` or `lightgbm`.

    Returns:
        Tuned: `.ranker` is the best one, fitted, `.parameters` its parameters, `.tried` every setting with its value.

    Raises:
        DataError: Unknown measures and flavours, labels of other kinds in `valid`, and what a ranker refuses.

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
    """Tune the open parameters by cross-validation, and train the best setting on all data."""
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
    """Evaluate every combination in the grid by cross-validation.

    The queries are dealt into parts at random, each group of queries into one; each part is ranked by a model fitted on
    the others, and a setting's value is the mean over all queries. No model sees the part that evaluates it, not even
    for early stopping.
    """
    if not 2 <= folds <= len(data):
        raise DataError(
            f"Cross-validation over {folds} parts needs at least 2 parts, and at least one query per part; there are "
            f"{len(data)} queries."
        )
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


def tried_columns(
    settings: Sequence[Settings], values: Sequence[float], measure: str, chosen: Settings
) -> dict[str, Column]:
    """Return a row per setting: its parameters, the value of the measure, and whether it was chosen."""
    names = list(dict.fromkeys(name for each in settings for name in each))
    found: dict[str, Column] = {name: _alike([each.get(name) for each in settings]) for name in names}
    return {**found, measure: list(values), "chosen": [each == chosen for each in settings]}


def tried_values(
    settings: Sequence[Settings], values: Sequence[float], parameter: str | None
) -> tuple[str, dict[float | str, float]]:
    """Return the parameter, and the best value of the measure at each of its values; numbers in order."""
    several = [
        name
        for name in dict.fromkeys(name for each in settings for name in each)
        if len({_key(each.get(name)) for each in settings}) > 1
    ]
    if parameter is None and len(several) != 1:
        what = f"{len(several)} parameters ({', '.join(several)})" if several else "no parameter"
        raise DataError(f"There are several values of {what}; plot(parameter=…) says which one to draw.")
    name = several[0] if parameter is None else parameter
    if not any(name in each for each in settings):
        known = ", ".join(dict.fromkeys(each for one in settings for each in one)) or "none"
        raise DataError(f"The parameter {name!r} was not tried. Tried: {known}.")
    best: dict[float | str, float] = {}
    for each, value in zip(settings, values, strict=True):
        key = _key(each.get(name))
        best[key] = max(best.get(key, value), value)
    numbers = all(isinstance(key, (int, float)) for key in best)
    return name, {key: best[key] for key in sorted(best, key=float)} if numbers else best


def _key(value: Json) -> float | str:
    """Return a number unchanged, anything else as text."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _alike(column: Sequence[Json]) -> Column:
    """Return a column that every data frame library accepts: values of other or mixed types become text."""
    kinds = {type(each) for each in column if each is not None}
    if kinds <= {int, float} or (len(kinds) <= 1 and kinds <= {str, bool}):
        return [each for each in column if each is None or isinstance(each, (str, int, float))]
    return [None if each is None else str(each) for each in column]


@dataclass(frozen=True)
class Edge:
    """A parameter whose chosen value is the smallest or the largest tried, and better than its neighbor.

    Attributes:
        tried: Every value tried, in order.
        beyond: A value to try next.
        folds: In how many of `of` folds.

    """

    parameter: str
    value: float
    tried: tuple[float, ...]
    beyond: float
    method: str = ""
    folds: int = 1
    of: int = 1

    @property
    def text(self) -> str:
        """The edge in words: `single: l2 0.01 is the smallest of 0.01, 0.1, 1.0 (in 2 of 5 folds)`."""
        side = "smallest" if self.value == self.tried[0] else "largest"
        said = f"{self.parameter} {self.value:g} is the {side} of {', '.join(f'{each:g}' for each in self.tried)}"
        where = f" (in {self.folds} of {self.of} folds)" if self.of > 1 else ""
        return f"{self.method}: {said}{where}" if self.method else f"{said}{where}"

    def as_json(self) -> JsonObject:
        """Return the edge as JSON."""
        return {
            "method": self.method,
            "parameter": self.parameter,
            "value": self.value,
            "tried": list(self.tried),
            "beyond": self.beyond,
            "folds": self.folds,
        }


def edges_of(settings: Sequence[Settings], values: Sequence[float], chosen: Settings) -> Iterator[Edge]:
    """Yield the parameters chosen at an edge of three or more numbers where the measure still rises.

    Args:
        settings: All that were tried.
        values: The value of each.
        chosen: The best of them.

    """
    for name in chosen:
        best = tried_values(settings, values, name)[1]
        places = [each for each in best if isinstance(each, (int, float))]
        if len(places) < _FEWEST or len(places) < len(best):
            continue
        for edge, inner in ((places[0], places[1]), (places[-1], places[-2])):
            beyond = _beyond(name, edge, inner)
            if chosen[name] == edge and best[edge] > best[inner] and beyond is not None:
                yield Edge(name, edge, tuple(places), beyond)


def edges_in(choices: Mapping[str, Sequence[Sequence[Edge]]]) -> tuple[Edge, ...]:
    """Return the edges of a comparison, each once, those of most folds first.

    `choices` has, for every method, the edges in each of its folds.
    """
    found = [
        replace(edge, method=name, folds=count, of=len(folds))
        for name, folds in choices.items()
        for edge, count in Counter(each for fold in folds for each in fold).items()
    ]
    return tuple(sorted(found, key=lambda each: -each.folds))


def hint_at(edges: Sequence[Edge]) -> None:
    """Issue one warning for all edges, with values to try; none if there is no edge."""
    if not edges:
        return
    more = f"; and {len(edges) - _NAMED} more" if len(edges) > _NAMED else ""
    named = "; ".join(each.text for each in edges[:_NAMED])
    further = dict.fromkeys(f"{each.parameter}={each.beyond:g}" for each in edges[:_NAMED])
    said = f"Chosen at the edge of the grid: {named}{more}. Better values may lie beyond: try {', '.join(further)}"
    warnings.warn(f"{said}, or a wider grid.", EdgeHint, stacklevel=3)


@contextlib.contextmanager
def without_hints(*, quiet: bool = True) -> Iterator[None]:
    """Suppress warnings about edges inside the block: when grids cannot be changed, or nobody would read them."""
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore", EdgeHint)
        yield


def _beyond(name: str, edge: float, inner: float) -> float | None:
    """Return the next value beyond the edge, by the same factor; None if there can be none."""
    if edge < inner:
        lowest = 1 if isinstance(edge, int) else 0
        if edge <= lowest:
            return None
        return max(round(edge * edge / inner), 1) if isinstance(edge, int) else _short(edge * edge / inner)
    if name in _SHARES and isinstance(edge, float):
        return None if edge >= 1 else _short(min(edge * edge / inner if inner > 0 else 2 * edge, 1.0))
    if edge <= 0:
        return None
    further = edge * edge / inner if inner > 0 else 2 * edge
    return round(further) if isinstance(edge, int) else _short(further)


def _short(value: float) -> float:
    return float(f"{value:.1g}")


def _draw(values: Sequence[float | str], reached: Sequence[float], labels: tuple[str, str], ax: Axes | None) -> Axes:
    """Plot the value reached at each value of a parameter; values that are not all numbers are evenly spaced."""
    axes = axes_or_new(ax)
    numbers = [each for each in values if isinstance(each, (int, float))]
    best = max(range(len(reached)), key=lambda place: reached[place])
    across = numbers if len(numbers) == len(values) else list(range(len(values)))
    axes.plot(across, list(reached), color=UP, marker="o", markersize=5, linewidth=1.5)
    axes.plot([across[best]], [reached[best]], "s", color=DOWN, markersize=8, zorder=3)
    axes.annotate(f"{reached[best]:.4f}", (across[best], reached[best]), (7, 5), textcoords="offset points", fontsize=9)
    if len(numbers) < len(values):
        axes.set_xticks(across, [plain(str(each)) for each in values])
    elif min(numbers) > 0 and max(numbers) >= 50 * min(numbers):
        axes.set_xscale("log")
        axes.set_xticks(numbers, [f"{each:g}" for each in numbers])
        axes.set_xticks([], minor=True)
    axes.margins(x=0.08, y=0.15)
    axes.set_xlabel(plain(labels[0]))
    axes.set_ylabel(plain(labels[1]))
    return finish(axes)
