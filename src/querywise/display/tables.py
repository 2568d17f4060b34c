"""Tables, data frames and plot axes for notebooks: small HTML in the page's colors, and readable figures.

Matplotlib is imported when something is drawn. Nothing is shown and nothing is saved here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from querywise.display.words import short
from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.parameters import Package

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Cell: TypeAlias = str | int | float | None

_LINE = "1px solid color-mix(in srgb, currentColor 22%, transparent)"
_TABLE = "border-collapse:collapse;border:none;background:none;color:inherit;font-size:0.92em;margin:0.3em 0"
_CELL = "padding:0.2em 0.7em;border:none;background:none;color:inherit"
_ROW = "background:none;border:none"

Frame: TypeAlias = "pandas.DataFrame | polars.DataFrame | pyarrow.Table"
Column: TypeAlias = Sequence[str | int | float | bool | None] | Floats | Ints | Bools

MATPLOTLIB = Package("matplotlib", "pip install 'querywise[figures]'")
LIBRARIES = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}  # the first that is installed is used
# Okabe and Ito's colors, distinguishable by nearly everybody; each line also has a marker of its own.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666")
MARKERS = ("X", "o", "s", "^", "D", "v", "P", "*")
UP, DOWN = COLOURS[1], COLOURS[2]  # of gains and losses
# A method looks the same in every figure.
_PLACES = ("single", "knn-online", "knn-offline-1", "knn-offline-2", "lambdamart", "query-classes", "bm25")


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    title: str = "",
    notes: Sequence[str] = (),
    text: Sequence[int] = (0,),
) -> str:
    """Return an HTML table with a title and notes; `text` lists the text columns, and numbers are right-aligned."""
    sides = ["left" if column in text else "right" for column in range(max(map(len, (headings, *rows)), default=0))]
    head = "".join(map(_head, headings, sides))
    body = "".join(f'<tr style="{_ROW}">{"".join(map(_cell, row, sides))}</tr>' for row in rows)
    top = f'<div style="margin:0.3em 0"><b>{escape(title)}</b></div>' if title else ""
    below = "".join(f'<div style="font-size:0.85em;opacity:0.75">{escape(each)}</div>' for each in notes)
    whole = f'<thead><tr style="{_ROW}">{head}</tr></thead>' if any(headings) else ""
    if not rows:
        return f"{top}{below}"
    return f'{top}<table style="{_TABLE}">{whole}<tbody>{body}</tbody></table>{below}'


def together(parts: Sequence[str]) -> str:
    """Return several tables as one piece of HTML."""
    return f'<div style="color:inherit">{"".join(parts)}</div>'


def written(cell: Cell) -> str:
    """Format a cell: numbers to four digits, and unknown values as an empty text."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float):
        return f"{cell:.4f}" if cell == 0 or 1e-3 <= abs(cell) < 1e5 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _head(text: str, side: str) -> str:
    return f'<th scope="col" style="{_CELL};text-align:{side};border-bottom:{_LINE}">{escape(text)}</th>'


def _cell(cell: Cell, side: str) -> str:
    return f'<td style="{_CELL};text-align:{side};font-variant-numeric:tabular-nums">{escape(written(cell))}</td>'


def as_frame(columns: Mapping[str, Column]) -> Frame:
    """Return the columns as a data frame, in their order."""
    for library, make in LIBRARIES.items():
        try:
            module = import_module(library)
        except ImportError:
            continue
        made: Frame = getattr(module, make)(dict(columns))
        return made
    raise DataError(f"A data frame needs one of {', '.join(LIBRARIES)}; none is installed: pip install pandas")


def axes_or_new(axes: Axes | None, *, height: float = 3.6) -> Axes:
    """Return the given axes, or those of a new pyplot figure, which a notebook draws at the end of the cell."""
    if axes is not None:
        return axes
    MATPLOTLIB.load("A plot")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(7.2, height), layout="constrained")[1]


def finish(axes: Axes, *, grid: str = "y") -> Axes:
    """Remove the axes' unneeded lines, and return the axes."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="x" if grid == "x" else "y", alpha=0.25)
    return axes


def plain(name: str) -> str:
    """Return a short name for a label, with $ escaped, so that Matplotlib does not read it as mathematics."""
    return short(name).replace("$", r"\$")


def looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return a color and a marker per name: known methods have their own, by the first word; others get the rest."""
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
    """Add a legend with all names, also those that begin with an underscore; `beside` puts it to the right."""
    artists, numbers = [each for _, each in drawn], list(map(str, range(len(drawn))))
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0} if beside else {}
    made = axes.legend(artists, numbers, frameon=False, fontsize=fontsize, **place)
    for text, (name, _) in zip(made.get_texts(), drawn, strict=True):
        text.set_text(short(name))


def bars(axes: Axes, names: Sequence[str], values: Sequence[float], errors: Sequence[float] | None = None) -> Axes:
    """Draw one horizontal bar per name, the first on top; values above and below 0 have different colors."""
    places = list(range(len(names)))[::-1]
    colours = [UP if value >= 0 else DOWN for value in values]
    axes.barh(places, list(values), color=colours, height=0.7)
    if errors is not None:
        axes.errorbar(list(values), places, xerr=list(errors), fmt="none", ecolor=COLOURS[0], elinewidth=1, capsize=2)
    axes.axvline(0, color=COLOURS[0], linewidth=0.8)
    axes.set_yticks(places, [plain(name) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    return finish(axes, grid="x")
