"""Results as tables: in a terminal, and in Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from benchmarks.results import Report, Result

_HEADINGS = ("ours", "theirs", "ratio", "aim", "reached")
_LIMIT_HEADINGS = ("floor", "ours", "ratio", "aim", "reached")
LIMIT = "Close to the limit"
_LIMIT_NOTE = (
    "The floor is the least that a line could take on this machine: bytes that must be read at the speed of its "
    "memory, multiplications at the speed of its matrix products, both measured here, or what it is compared with. Of "
    "requests in a second it is the most."
)
_REACHED = {True: "yes", False: "no", None: ""}
_COLOURS = {True: "green", False: "red", None: ""}


def terminal_table(room: int, *, headed: bool = True) -> Table:
    """An empty table for `room` characters; columns are as wide in one bench as in the next, so that they line up."""
    return _empty_table(room, _HEADINGS, headed=headed)


def _empty_table(room: int, headings: Sequence[str], *, headed: bool = True) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, width=min(room, 100), show_header=headed, show_edge=False)
    table.add_column("what", ratio=1)
    for heading, width in zip(headings, (9, 9, 6, 9, 7), strict=True):
        table.add_column(heading, justify="right", width=width)
    return table


def add_line(table: Table, result: Result) -> None:
    """Put a result at the end of a terminal table."""
    *cells, reached = _cells(result)
    table.add_row(*cells, Text(reached, style=_COLOURS[result.reached]))


def limit_table(results: Iterable[Result], room: int) -> Table:
    """The results that have a floor, beside it."""
    table = _empty_table(room, _LIMIT_HEADINGS)
    for result in results:
        if result.floor is not None:
            *cells, reached = _limit_cells(result)
            table.add_row(*cells, Text(reached, style=_COLOURS[result.reached]))
    return table


def markdown_page(report: Report, descriptions: Mapping[str, Sequence[str]], *, short: str = "") -> str:
    """The page of all results: the machine, what they are in short, then one table for each bench."""
    parts = [
        "# Benchmarks",
        "Measured by `make bench`, which prints these tables for your machine. The ratio is theirs / ours, unless the "
        "bench says otherwise; the best of several runs counts.",
        "What the tests are worth is measured by `python -m benchmarks.mutants`: it changes one operator, sign "
        "or bound of the mathematics at a time and counts how many of these mutants the tests kill. `--out FILE` "
        "keeps the verdicts, `--against FILE` asks for the same mutants again and says which were killed then and are "
        "not now.",
        f"Machine: {report.machine}.{f' Run on {report.day}.' if report.day else ''}",
        *([short.strip()] if short else []),
    ]
    close = [result for result in report.results if result.floor is not None]
    if close:
        parts += [f"## {LIMIT}", _LIMIT_NOTE, _markdown_table(map(_limit_cells, close), _LIMIT_HEADINGS)]
    for bench in dict.fromkeys(result.bench for result in report.results):
        title, *notes = descriptions[bench]
        heading, _, subject = title.partition(": ")
        parts += [f"## {heading}", " ".join([subject, *notes])]
        own = (_cells(result) for result in report.results if result.bench == bench)
        parts.append(_markdown_table(own, _HEADINGS))
    return "\n\n".join(parts) + "\n"


def _markdown_table(lines: Iterable[Sequence[str]], headings: Sequence[str]) -> str:
    head = ["| " + " | ".join(["what", *headings]) + " |", "|---" + "|---:" * len(headings) + "|"]
    return "\n".join([*head, *("| " + " | ".join(cells) + " |" for cells in lines)])


def _limit_cells(result: Result) -> tuple[str, ...]:
    assert result.floor is not None
    what, ours, _, ratio, aim, reached = _cells(result)
    return what, _amount(result.floor, result.unit), ours, ratio, aim, reached


def _cells(result: Result) -> tuple[str, ...]:
    return (
        result.what,
        _amount(result.ours, result.unit),
        "" if result.theirs is None else _amount(result.theirs, result.unit),
        "" if result.ratio is None else f"{_three_digits(result.ratio)}×",
        result.aim,
        _REACHED[result.reached],
    )


def _amount(value: float, unit: str) -> str:
    return f"{_three_digits(value)} {unit}"


def _three_digits(value: float) -> str:
    """A number to three digits, never with an exponent.

    >>> _three_digits(0.012345), _three_digits(1234.5)
    ('0.0123', '1,234')
    """
    decimals = 0 if value == 0 else max(2 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{decimals}f}"
