"""Tables: small HTML ones for notebooks, which take their colours from the page, and data frames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Cell: TypeAlias = str | int | float | None

_LINE = "1px solid color-mix(in srgb, currentColor 22%, transparent)"
_TABLE = "border-collapse:collapse;border:none;background:none;color:inherit;font-size:0.92em;margin:0.3em 0"
_CELL = "padding:0.2em 0.7em;border:none;background:none;color:inherit"
_ROW = "background:none;border:none"

Frame: TypeAlias = "pandas.DataFrame | polars.DataFrame | pyarrow.Table"
Column: TypeAlias = Sequence[str | int | float | bool | None] | Floats | Ints | Bools

LIBRARIES = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}  # the first that is installed is used


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    title: str = "",
    notes: Sequence[str] = (),
    text: Sequence[int] = (0,),
) -> str:
    """A table under a title, with lines of notes below. text: which columns are text; numbers stand to the right."""
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
    """Several tables as one piece of HTML."""
    return f'<div style="color:inherit">{"".join(parts)}</div>'


def written(cell: Cell) -> str:
    """A cell as people read it: numbers to four digits, nothing where nothing is known."""
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
    """The columns as a data frame, in their order."""
    for library, make in LIBRARIES.items():
        try:
            module = import_module(library)
        except ImportError:
            continue
        made: Frame = getattr(module, make)(dict(columns))
        return made
    raise DataError(f"A data frame needs one of {', '.join(LIBRARIES)}; none is installed: pip install pandas")
