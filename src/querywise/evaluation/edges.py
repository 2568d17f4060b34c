"""Parameters that were chosen at the edge of what was tried: a better value may lie beyond it."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from querywise.errors import EdgeHint
from querywise.evaluation.tried import tried_values
from querywise.runtime.values import JsonObject, Settings

_FEWEST = 3  # of two values, each is at an edge
_NAMED = 3  # in a hint; the others are counted
_SHARES = ("clusters", "floor", "k", "learning_rate")  # these end at 1, as a share


@dataclass(frozen=True)
class Edge:
    """A parameter whose chosen value is the smallest or the largest that was tried, and better than the next to it.

    tried: every value that was tried, in their order. beyond: a value to try next. folds: in how many of `of` folds.
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
        """The edge as JSON can hold it."""
        return {
            "method": self.method,
            "parameter": self.parameter,
            "value": self.value,
            "tried": list(self.tried),
            "beyond": self.beyond,
            "folds": self.folds,
        }


def edges_of(settings: Sequence[Settings], values: Sequence[float], chosen: Settings) -> Iterator[Edge]:
    """The parameters of a choice that lie at an edge of at least three numbers where the measure still rises.

    settings: all that were tried. values: what each reached. chosen: the best of them.
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
    """The edges of a comparison, each once, those of most folds first.

    choices: of every method, the edges in each of its folds.
    """
    found = [
        replace(edge, method=name, folds=count, of=len(folds))
        for name, folds in choices.items()
        for edge, count in Counter(each for fold in folds for each in fold).items()
    ]
    return tuple(sorted(found, key=lambda each: -each.folds))


def hint_at(edges: Sequence[Edge]) -> None:
    """One warning for all edges, with values to try; none where there is no edge."""
    if not edges:
        return
    more = f"; and {len(edges) - _NAMED} more" if len(edges) > _NAMED else ""
    named = "; ".join(each.text for each in edges[:_NAMED])
    further = dict.fromkeys(f"{each.parameter}={each.beyond:g}" for each in edges[:_NAMED])
    said = f"Chosen at the edge of the grid: {named}{more}. Better values may lie beyond: try {', '.join(further)}"
    warnings.warn(f"{said}, or a wider grid.", EdgeHint, stacklevel=3)


@contextlib.contextmanager
def without_hints(*, quiet: bool = True) -> Iterator[None]:
    """No warning of edges while the block runs: where grids cannot be changed, or nobody wants to read it."""
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore", EdgeHint)
        yield


def _beyond(name: str, edge: float, inner: float) -> float | None:
    """The next value in the direction of the edge, by the same factor; None where there can be none."""
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
