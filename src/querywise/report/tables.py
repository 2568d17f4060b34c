"""A table and its output formats: Markdown, LaTeX, CSV, HTML and terminal. Nothing is computed here."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from querywise.display.words import p_value

_TEX = {
    **{mark: "\\" + mark for mark in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "−": "$-$",
    "Δ": r"$\Delta$",
}
# Characters with a meaning within a line; underscores only at the edge of a word, & only where it begins an entity.
_MARKDOWN = re.compile(
    r"[\\`*]|<(?=[A-Za-z/!?])|&(?=#|[A-Za-z][A-Za-z0-9]*;)|\](?=[(\[:])|~(?=~)|(?<!\w)_|_(?!\w)|\[(?=[\^\]])"
)
_BRACKETED = re.compile(rf"{_MARKDOWN.pattern}|[\[\]]")
_SHORT = 28  # characters that stay on one line


class Tested(NamedTuple):
    """A difference with its p, and whether it is significant."""

    difference: float
    p: float
    is_significant: bool


Cell = str | int | float | Tested | None


@dataclass(frozen=True)
class Column:
    """A heading and the format of its cells: text, value, signed, p, count, time, share or tested."""

    heading: str
    kind: str = "text"

    def written(self, cell: Cell) -> str:
        """Format a cell for people."""
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            return ""
        if isinstance(cell, str):
            return cell
        if isinstance(cell, Tested):
            return f"{cell.difference:+.4f} " + f"p {p_value(cell.p)}".replace(" ", "\u00a0")
        if self.kind == "p":
            return p_value(cell)
        if self.kind == "count" or isinstance(cell, int):
            return f"{int(cell):,}"
        return {"signed": f"{cell:+.4f}", "time": f"{cell:.3g}", "share": f"{cell:.1%}"}.get(self.kind, f"{cell:.4f}")


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings, and a line on how they were computed. `marked` is the row to highlight."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    marked: int | None = None

    def written(self) -> list[list[str]]:
        """Format every cell for people."""
        return [[column.written(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows]

    def markdown(self) -> str:
        """Format as a Markdown table."""
        head = [column.heading for column in self.columns]
        rule = ["---" if column.kind == "text" else "---:" for column in self.columns]
        lines = [_piped(each) for each in (head, rule, *self.written())]
        return "\n".join([*lines, *(["", self.caption] if self.caption else []), ""])

    def latex(self) -> str:
        """Format as a LaTeX tabular with booktabs rules."""
        kinds = "".join("l" if column.kind == "text" else "r" for column in self.columns)
        head = " & ".join(_tex(column.heading) for column in self.columns)
        body = [" & ".join(map(_tex, row)) + r" \\" for row in self.written()]
        lines = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", head + r" \\", r"\midrule", *body, r"\bottomrule"]
        return "\n".join([*lines, r"\end{tabular}", *([f"% {self.caption}"] if self.caption else []), ""])

    def csv(self) -> str:
        """Format as comma-separated values, with numbers to the last bit."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([column.heading for column in self.columns])
        writer.writerows([[_exact(cell) for cell in row] for row in self.rows])
        return out.getvalue()

    def html(self, name: str = "table") -> str:
        """Format as an HTML table with sortable columns; `name` is its unique name for screen readers."""
        head = "".join(
            f'<th scope="col"{_aligned(column)}><button type="button">{html.escape(column.heading)}</button></th>'
            for column in self.columns
        )
        body = []
        for number, (row, written) in enumerate(zip(self.rows, self.written(), strict=True)):
            cells = "".join(map(_cell, self.columns, row, written))
            body.append(('<tr class="marked">' if number == self.marked else "<tr>") + cells + "</tr>")
        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        return f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(name)}">{table}</div>'


def columns_of(kinds: Mapping[str, str]) -> tuple[Column, ...]:
    """Return columns by their headings."""
    return tuple(Column(heading, kind) for heading, kind in kinds.items())


def values_and_p(
    corner: str, headings: Mapping[str, str], rows: Mapping[str, Sequence[tuple[Cell, Cell]]], caption: str = ""
) -> Table:
    """Return rows by name, of values with their p beside them; `headings` map a value's heading to that of its p."""
    pairs = ((Column(value, "value"), Column(p, "p")) for value, p in headings.items())
    columns = (Column(corner), *chain.from_iterable(pairs))
    return Table(columns, tuple((name, *chain.from_iterable(cells)) for name, cells in rows.items()), caption)


def _exact(cell: Cell) -> Cell:
    """Return a cell for CSV: a float to the last bit, an unknown value as None."""
    if isinstance(cell, Tested):
        return f"{cell.difference!r} p {cell.p!r}"
    if isinstance(cell, float):
        return None if math.isnan(cell) else repr(cell)
    return cell


def _cell(column: Column, cell: Cell, written: str) -> str:
    if isinstance(cell, Tested):
        side = (" rise" if cell.difference > 0 else " fall") if cell.is_significant else ""
        return f'<td class="number tested{side}" data-value="{cell.difference!r}">{html.escape(written)}</td>'
    number = f' data-value="{cell!r}"' if isinstance(cell, (int, float)) and not math.isnan(cell) else ""
    length = "short" if len(written) <= _SHORT else "long"
    kind = f' class="{length}"' if column.kind == "text" else _aligned(column)
    return f"<td{kind}{number}>{html.escape(written)}</td>"


def _aligned(column: Column) -> str:
    return "" if column.kind == "text" else ' class="number"'


def plain_markdown(text: str, *, in_brackets: bool = False) -> str:
    """Escape text so that Markdown shows it unchanged: no tag, link or emphasis begins in it.

    `in_brackets` is for text between [ and ].
    """
    return (_BRACKETED if in_brackets else _MARKDOWN).sub(r"\\\g<0>", text)


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(plain_markdown(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _tex(text: str) -> str:
    return "".join(_TEX.get(mark, mark) for mark in text)
