"""Axes to draw on, and the look that figures have in common: readable in print, and whatever colours one sees.

Matplotlib is imported when something is drawn. Nothing is shown and nothing is saved here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from querywise.display.words import short

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

# Okabe and Ito's colours, distinguishable by nearly everybody; each line also has a marker of its own.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666")
MARKERS = ("X", "o", "s", "^", "D", "v", "P", "*")
UP, DOWN = COLOURS[1], COLOURS[2]  # of gains and losses
# A method looks the same in every figure.
_PLACES = ("single", "knn-online", "knn-offline-1", "knn-offline-2", "lambdamart", "query-classes", "bm25")


def axes_or_new(axes: Axes | None, *, height: float = 3.6) -> Axes:
    """The axes given, or those of a new figure; pyplot knows it, so that a notebook draws it once the cell has run."""
    if axes is not None:
        return axes
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(7.2, height), layout="constrained")[1]


def finish(axes: Axes, *, grid: str = "y") -> Axes:
    """The axes without the lines that say nothing."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="x" if grid == "x" else "y", alpha=0.25)
    return axes


def plain(name: str) -> str:
    """A name, short and without mathematics: a $ in it is a $."""
    return short(name).replace("$", r"\$")


def looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour and marker for each: a method, by the first word of its name, has its own, the others what is left."""
    places: dict[str, int] = {}
    for name in names:
        method = name.split(",")[0]
        if method in _PLACES and _PLACES.index(method) not in places.values():
            places[name] = _PLACES.index(method)
    left = iter([place for place in reversed(range(len(COLOURS))) if place not in places.values()])
    for number, name in enumerate(names):
        if name not in places:
            places[name] = next(left, len(COLOURS) + number)
    count = len(COLOURS)
    return {name: (COLOURS[place % count], MARKERS[(place + place // count) % count]) for name, place in places.items()}


def legend(axes: Axes, drawn: Sequence[tuple[str, Artist]], *, fontsize: float, beside: bool = False) -> None:
    """A legend of the names as they are, also those that begin with an underscore; beside: to the right of the axes."""
    artists, numbers = [each for _, each in drawn], list(map(str, range(len(drawn))))
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0} if beside else {}
    made = axes.legend(artists, numbers, frameon=False, fontsize=fontsize, **place)
    for text, (name, _) in zip(made.get_texts(), drawn, strict=True):
        text.set_text(short(name))


def bars(axes: Axes, names: Sequence[str], values: Sequence[float], errors: Sequence[float] | None = None) -> Axes:
    """One horizontal bar per name, the first on top; above 0 in one colour, below it in another."""
    places = list(range(len(names)))[::-1]
    colours = [UP if value >= 0 else DOWN for value in values]
    axes.barh(places, list(values), color=colours, height=0.7)
    if errors is not None:
        axes.errorbar(list(values), places, xerr=list(errors), fmt="none", ecolor=COLOURS[0], elinewidth=1, capsize=2)
    axes.axvline(0, color=COLOURS[0], linewidth=0.8)
    axes.set_yticks(places, [plain(name) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    return finish(axes, grid="x")
