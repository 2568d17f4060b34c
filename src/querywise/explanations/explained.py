"""What an explanation holds, and how it shows itself: as a line, a table, a data frame and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from querywise.display.axes import axes_or_new, bars, plain
from querywise.display.tables import Column, Frame, as_frame, table, together
from querywise.display.words import counted
from querywise.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Part: TypeAlias = Literal["features", "models", "neighbours"]  # of an explanation, as a table
_MOST = 10  # rows of a table or bars of a figure
_FEW = 3  # names in a line


@dataclass(frozen=True)
class Neighbour:
    """A training query behind the model, its weight, and its distance.

    `pull` is its share in the step from the global model to this one: −v·G·(w_q − w₀), the first-order decrease of its
    loss along the step (G its gradient), over the sum of the absolute values; below 0 its loss increases. 0 where the
    learner has no gradients.
    """

    query_id: str
    weight: float
    distance: float
    pairs: int
    pull: float = 0.0


@dataclass(frozen=True)
class ModelShare:
    """One of several stored models: how much it counts for a query, and how many training queries it learned from.

    One with fewer than two to learn from is the global model. A ranker in a Blend has a name instead.
    """

    model: int
    weight: float
    queries: int
    name: str = ""


@dataclass(frozen=True)
class Departure:
    """A feature, its weight in the global model and in this query's, and how much its values vary among the documents.

    `effect` is the difference of the weights times that spread: how much it can change the order of documents.
    """

    feature: str
    everyone: float
    here: float
    spread: float

    @property
    def effect(self) -> float:
        """(w_q − w₀) × the feature's spread over the query's documents."""
        return (self.here - self.everyone) * self.spread


@dataclass(frozen=True)
class Explanation:
    """One query: its neighbours, nearest first, and its departures from the global model, largest effect first.

    Where stored models are picked or blended there are no neighbours but `models`, the largest
    weight first; the weights of a blend are its effective ones on this query's documents, and the global ones are
    scaled to the same range there. `note` says why the global model scores a query that backs off. `remark`: what else
    is amiss with its position.
    """

    query_id: str
    is_global: bool
    neighbours: tuple[Neighbour, ...]
    departures: tuple[Departure, ...]
    models: tuple[ModelShare, ...] = ()
    note: str = ""
    remark: str = ""

    def __repr__(self) -> str:
        parts = [self._model, _largest([(each.feature, each.effect) for each in self.departures])]
        return f"Explanation(query {self.query_id!r}: {'; '.join(each for each in parts if each)})"

    @property
    def _model(self) -> str:
        """Which model scores the query, in a few words."""
        if self.is_global:
            return f"the global model{f', as {self.note}' if self.note else ''}"
        if self.neighbours:
            first = self.neighbours[0]
            count = counted(len(self.neighbours), "training query", "training queries")
            return f"a model of {count}, the nearest {first.query_id!r} ({first.distance:.4g} away)"
        used = counted(sum(each.weight > 0 for each in self.models), "stored model")
        return used if self.models else "a model of its own"

    def _repr_html_(self) -> str:
        rows = [(each.feature, each.everyone, each.here, each.effect) for each in self.departures]
        notes = [f"It is scored by {self._model}."]
        parts = [
            _part(("feature", "weight for everyone", "weight here", "effect"), rows),
            _models(self.models),
            _nearest(self.neighbours),
        ]
        return together([_title(f"Query {self.query_id}", [*notes, self.remark]), *parts])

    def to_frame(self, of: Part = "features") -> Frame:
        """A row per feature, the largest effect first, or per model or neighbour; pandas, else polars, else Arrow."""
        rows = self.departures
        features: dict[str, Column] = {
            "feature": [each.feature for each in rows],
            "everyone": [each.everyone for each in rows],
            "here": [each.here for each in rows],
            "spread": [each.spread for each in rows],
            "effect": [each.effect for each in rows],
        }
        models: dict[str, Column] = {
            "model": [each.model for each in self.models],
            "name": [each.name for each in self.models],
            "weight": [each.weight for each in self.models],
            "queries": [each.queries for each in self.models],
        }
        return _framed(of, features, models, self.neighbours)

    def plot(self, most: int = _MOST, *, ax: Axes | None = None) -> Axes:
        """The largest effects of features, each a bar: how this query's model departs from the global one."""
        chosen = self.departures[:most]
        if not chosen:
            raise DataError(f"There is nothing to draw: query {self.query_id!r} has no weights of features to compare.")
        axes = axes_or_new(ax, height=1.1 + 0.28 * len(chosen))
        bars(axes, [each.feature for each in chosen], [each.effect for each in chosen])
        axes.set_xlabel(f"query {plain(self.query_id)}: (weight here − weight for everyone) × spread")
        return axes


@dataclass(frozen=True)
class Term:
    """What one feature adds to the distance between two documents' scores.

    `above` and `below` are its values as the model gets them, NaN where missing; `everyone` what it adds in the global
    model, `here` what it adds in this query's.
    """

    feature: str
    above: float
    below: float
    everyone: float
    here: float


@dataclass(frozen=True)
class ModelTerm:
    """What one model of a blend adds to the distance between two documents' scores."""

    model: int
    weight: float
    here: float
    name: str = ""


@dataclass(frozen=True)
class Reason:
    """Why one document is above another, term by term: `here` of the terms adds up to `difference`.

    `everyone` is the difference under the global model; the rest is what this query's own model adds.
    """

    query_id: str
    above: str
    below: str
    difference: float
    everyone: float
    terms: tuple[Term, ...]
    models: tuple[ModelTerm, ...]
    neighbours: tuple[Neighbour, ...]

    @property
    def local(self) -> float:
        """The part that is not the global model's."""
        return self.difference - self.everyone

    @property
    def _sentence(self) -> str:
        """Where the one document is, seen from the other, and by how much."""
        where = "above" if self.difference >= 0 else "below"
        return f"{self.above!r} {where} {self.below!r} by {abs(self.difference):.4g}"

    def __repr__(self) -> str:
        by_all = f"{self.everyone:+.4g} under the global model"
        terms = _largest([(each.feature, each.here) for each in self.terms])
        return f"Reason(query {self.query_id!r}: {self._sentence}, {by_all}{f'; {terms}' if terms else ''})"

    def _repr_html_(self) -> str:
        rows = [(each.feature, each.above, each.below, each.everyone, each.here) for each in self.terms]
        headings = ("feature", f"value of {self.above}", f"value of {self.below}", "adds for everyone", "adds here")
        total = f"Of {self.difference:+.4g}, the global model has {self.everyone:+.4g}, the rest {self.local:+.4g}."
        models = table(
            ("model", "weight", "adds here"),
            [(each.name or str(each.model), each.weight, each.here) for each in self.models[:_MOST]],
        )
        parts = [_part(headings, rows), models if self.models else "", _nearest(self.neighbours)]
        return together([_title(f"Query {self.query_id}: {self._sentence}", [total]), *parts])

    def to_frame(self, of: Part = "features") -> Frame:
        """A row per feature, the largest first, or per model or neighbour; pandas, else polars, else Arrow."""
        rows = self.terms
        features: dict[str, Column] = {
            "feature": [each.feature for each in rows],
            "above": [each.above for each in rows],
            "below": [each.below for each in rows],
            "everyone": [each.everyone for each in rows],
            "here": [each.here for each in rows],
        }
        models: dict[str, Column] = {
            "model": [each.model for each in self.models],
            "name": [each.name for each in self.models],
            "weight": [each.weight for each in self.models],
            "here": [each.here for each in self.models],
        }
        return _framed(of, features, models, self.neighbours)

    def plot(self, most: int = _MOST, *, ax: Axes | None = None) -> Axes:
        """What the features add to the difference, each a bar, the largest on top; the others together below."""
        if not self.terms:
            raise DataError(f"There is nothing to draw: query {self.query_id!r} has no features.")
        names, values = [each.feature for each in self.terms[:most]], [each.here for each in self.terms[:most]]
        if len(self.terms) > most:
            names.append(f"{len(self.terms) - most} others")
            values.append(sum(each.here for each in self.terms[most:]))
        axes = axes_or_new(ax, height=1.1 + 0.28 * len(names))
        bars(axes, names, values)
        axes.set_xlabel(f"adds to {plain(self.above)} above {plain(self.below)}: {self.difference:+.4g} in all")
        return axes


def _largest(effects: Sequence[tuple[str, float]]) -> str:
    """The first few features that have an effect, in a line."""
    shown = [f"{name}: {effect:+.4g}" for name, effect in effects[:_FEW] if effect]
    left = sum(effect != 0 for _, effect in effects) - len(shown)
    return ", ".join(shown) + (f" and {counted(left, 'feature')} more" if left else "")


def _title(text: str, notes: Sequence[str]) -> str:
    return table((), (), title=text, notes=[each for each in notes if each])


def _part(headings: Sequence[str], rows: Sequence[tuple[str | float, ...]]) -> str:
    left = len(rows) - _MOST
    return table(headings, rows[:_MOST], notes=[f"and {left:,} more"] if left > 0 else []) if rows else ""


def _models(models: Sequence[ModelShare]) -> str:
    rows = [(each.name or str(each.model), each.weight, each.queries or "") for each in models if each.weight > 0]
    return _part(("model", "weight", "training queries"), rows)


def _nearest(neighbours: Sequence[Neighbour]) -> str:
    rows = [(each.query_id, each.weight, each.distance, each.pull) for each in neighbours]
    return _part(("training query", "weight", "distance", "pull"), rows)


def _framed(of: Part, features: dict[str, Column], models: dict[str, Column], neighbours: Sequence[Neighbour]) -> Frame:
    known: dict[str, dict[str, Column]] = {
        "features": features,
        "models": models,
        "neighbours": {
            "query": [each.query_id for each in neighbours],
            "weight": [each.weight for each in neighbours],
            "distance": [each.distance for each in neighbours],
            "pairs": [each.pairs for each in neighbours],
            "pull": [each.pull for each in neighbours],
        },
    }
    if of not in known:
        raise DataError(f"to_frame(of={of!r}) is unknown. Known: {', '.join(map(repr, known))}.")
    return as_frame(known[of])
