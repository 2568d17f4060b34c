"""Charts as SVG, in a page or in a file: every mark has a tooltip with its value.

Colors are attributes, which any program reads; the style of a page overrides them. Series differ by color and by the
shape of their marks. Text is laid out by an upper estimate of its width, so that texts do not overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from unicodedata import east_asian_width

from querywise.display.tables import COLOURS
from querywise.display.tables import looks as looks_of
from querywise.display.words import short

WIDTH, HEIGHT = 560, 300
_LETTER = 7.4  # an upper estimate of the mean width of a letter
_TOP, _BOTTOM, _RIGHT = 30, 44, 14
_MOST_MARKS = 14  # marks on a line
_SHAPES = {
    "o": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0",
    "s": "M-3.6,-3.6h7.2v7.2h-7.2z",
    "^": "M0,-4.6L4.4,3.4H-4.4z",
    "v": "M0,4.6L4.4,-3.4H-4.4z",
    "D": "M0,-5L4.4,0L0,5L-4.4,0z",
    "X": "M-4.4,-2.2L-2.2,-4.4L0,-2.2L2.2,-4.4L4.4,-2.2L2.2,0L4.4,2.2L2.2,4.4L0,2.2L-2.2,4.4L-4.4,2.2L-2.2,0z",
    "P": "M-1.6,-4.8h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z",
    "*": "M0,-5.4L1.4,-1.8L5.2,-1.6L2.2,0.8L3.2,4.6L0,2.4L-3.2,4.6L-2.2,0.8L-5.2,-1.6L-1.4,-1.8z",
}
_INK, _FAINT, _LINE, _UP, _DOWN = "#1b1f24", "#56606b", "#d9dee3", "#0072b2", "#c24e00"
_INKS = (_INK, "#0072b2", "#c24e00", "#00805d", "#b0558b", "#9a6a00", "#2b87c0", "#666666")  # for classes c0, c1, …
_RULES = {"axis": _FAINT, "grid": _LINE, "zero": _INK}
_ROW = 24  # the height of a row with a name, or of a line of a legend
Point = tuple[float, float]
Scale = Callable[[float], float]


@dataclass(frozen=True)
class Chart:
    """A drawing, its description for screen readers, and the names of its colors and marks."""

    drawn: str
    said: str
    height: float = HEIGHT
    named: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def html(self) -> str:
        """Format for a page: the names in a list that wraps, and the drawing."""
        return legend(self.named) + f"<svg {self._opening(self.height)}>{self.drawn}</svg>"

    def file(self) -> str:
        """Format as a standalone file, with the names above the drawing."""
        keys, top = _keys(self.named)
        height = self.height + top
        space = f'xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}"'
        return (
            f'<?xml version="1.0" encoding="utf-8"?>\n<svg {space} {self._opening(height)} style="background:#fff">'
            f'{keys}<g transform="translate(0 {top:g})">{self.drawn}</g></svg>\n'
        )

    def _opening(self, height: float) -> str:
        text = f'font-family="sans-serif" font-size="12" aria-label="{escape(self.said)}"'
        return f'class="chart" viewBox="0 0 {WIDTH} {height:g}" role="img" {text}'


@dataclass(frozen=True)
class Mark:
    """A point with its tooltip.

    Attributes:
        look: Its color class.
        shape: A letter of Matplotlib's markers.
        hollow: Whether only its outline is drawn.

    """

    across: float
    up: float
    said: str
    look: str = "c1"
    shape: str = "o"
    hollow: bool = False


def looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the color class and the shape of each method, the same as in the figures beside the page."""
    return {name: (f"c{COLOURS.index(colour)}", marker) for name, (colour, marker) in looks_of(names).items()}


def line_chart(
    lines: Mapping[str, Sequence[Point]],
    *,
    names: Sequence[str],
    labels: tuple[str, str],
    ticks: Sequence[str] | None = None,
    at: Sequence[float] | None = None,
    level: tuple[str, float] | None = None,
    log: bool = False,
    said: str,
) -> Chart:
    """Draw lines through points, and a level line for a value that is the same everywhere.

    `names` of all methods set the colors. `ticks` are labels of the positions 0, 1, …, instead of numbers. `at` are the
    numbers labeled below, instead of round ones.
    """
    seen = looks(names)
    every = [point for each in lines.values() for point in each]
    values = [up for _, up in every] + ([] if level is None else [level[1]])
    across = [place for place, _ in every] if ticks is None else list(range(len(ticks)))
    frame = Frame.around(across, values, labels=labels, ticks=ticks, at=at, log=log)
    parts = [] if level is None else [frame.level(level[1], f"{level[0]}: {level[1]:.4f}", seen[level[0]][0])]
    for name, each in lines.items():
        look, shape = seen[name]
        parts.append(frame.line(each, look))
        step = max(1, math.ceil(len(each) / _MOST_MARKS))
        for place, up in each[::step]:
            where = f"{place:g}" if ticks is None else ticks[int(place)]
            parts.append(frame.mark(Mark(place, up, f"{name}, {labels[0]} {where}: {up:.4f}", look, shape)))
    shown = list(lines) if level is None else [*lines, level[0]]
    return replace(frame.chart(parts, said), named={name: seen[name] for name in shown})


def scatter_chart(
    marks: Sequence[Mark],
    *,
    labels: tuple[str, str],
    named: Mapping[str, tuple[str, str]],
    log: bool = False,
    said: str,
) -> Chart:
    """Draw points in a plane."""
    frame = Frame.around([each.across for each in marks], [each.up for each in marks], labels=labels, log=log, air=0.06)
    return replace(frame.chart([frame.mark(each) for each in marks], said), named=named)


def bar_chart(
    edges: Sequence[float], values: Sequence[float], texts: Sequence[str], *, labels: tuple[str, str], said: str
) -> Chart:
    """Draw bars between edges, of which there is one more than bars; positive and negative bars differ in color."""
    frame = Frame.around(edges, [0.0, *values], labels=labels, tight=True)
    return frame.chart([*map(frame.bar, edges, edges[1:], values, texts), frame.zero_line()], said)


@dataclass(frozen=True)
class ChartRow:
    """A name with marks beside it, whose `up` is ignored, and a bar from one value to another in some color."""

    name: str
    marks: Sequence[Mark]
    bar: tuple[float, float]
    look: str = "c1"


def row_chart(
    rows: Sequence[ChartRow], *, label: str, named: Mapping[str, tuple[str, str]] | None = None, said: str
) -> Chart:
    """Draw names one below the other, each with its values beside it, on an axis that includes 0."""
    reach = [0.0, *(value for row in rows for value in (*row.bar, *(mark.across for mark in row.marks)))]
    left = min(16 + max(_width(short(row.name)) for row in rows), 0.55 * WIDTH)
    low, high = _widened(min(reach), max(reach), 0.03)
    bottom = _ROW * len(rows) + 8

    def x(value: float) -> float:
        return left + (WIDTH - left - 24) * (value - low) / (high - low)

    parts = [_ruled("axis", left, WIDTH - 24, bottom, bottom), _ruled("zero", x(0.0), x(0.0), 2, bottom)]
    for value, text in _apart([each for each in round_numbers(low, high, 6) if low <= each[0] <= high], x):
        parts += [_ruled("axis", x(value), x(value), bottom, bottom + 4), _text(text, x(value), bottom + 17, "middle")]
    for number, row in enumerate(rows):
        up = _ROW * (number + 0.5) + 4
        parts += [_ruled("grid", left, WIDTH - 24, up, up), _text(short(row.name), left - 8, up + 4, "end", "label")]
        ends = f'x1="{x(row.bar[0]):.1f}" x2="{x(row.bar[1]):.1f}" y1="{up:.1f}" y2="{up:.1f}"'
        parts.append(f'<line class="bar {row.look}" {_inked(row.look, "stroke")} stroke-width="3" {ends}/>')
        parts += [_mark(each, x(each.across), up) for each in row.marks]
    parts.append(_text(_fit(label), WIDTH / 2, bottom + 36, "middle", "label"))
    return Chart("".join(parts), said, bottom + 44, named or {})


def legend(named: Mapping[str, tuple[str, str]]) -> str:
    """Format names with their marks, as a list that wraps."""
    if len(named) < 2:
        return ""
    rows = "".join(
        f'<li><svg class="key {look}" viewBox="-6 -6 12 12" aria-hidden="true"><path d="{_SHAPES[shape]}"/></svg>'
        f"{escape(short(name))}</li>"
        for name, (look, shape) in named.items()
    )
    return f'<ul class="legend">{rows}</ul>'


@dataclass(frozen=True)
class Frame:
    """Axes with ticks and labels, and the positions of values between them."""

    left: float
    x: Scale
    y: Scale
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    labels: tuple[str, str]

    @classmethod
    def around(
        cls,
        across: Sequence[float],
        up: Sequence[float],
        *,
        labels: tuple[str, str],
        ticks: Sequence[str] | None = None,
        at: Sequence[float] | None = None,
        log: bool = False,
        air: float = 0.03,
        tight: bool = False,
    ) -> Frame:
        """Create axes that hold all values, with some margin."""
        low, high = _widened(min(up), max(up), 0.0 if tight else 0.06)
        y_ticks = round_numbers(low, high, 6)
        low, high = min(low, y_ticks[0][0]), max(high, y_ticks[-1][0])
        left = 12 + _LETTER * max(len(text) for _, text in y_ticks)
        positions = [math.log10(each) for each in across] if log else list(across)
        first, last = _widened(min(positions), max(positions), 0.0 if tight else air if ticks is None else 0.15)
        room = WIDTH - left - _RIGHT

        def x(value: float) -> float:
            return left + room * ((math.log10(value) if log else value) - first) / (last - first)

        def y(value: float) -> float:
            return _TOP + (HEIGHT - _TOP - _BOTTOM) * (high - value) / (high - low)

        if ticks is not None:
            named = list(zip(across, ticks, strict=True))
        elif at is not None:
            named = [(each, f"{each:,g}") for each in at]
        else:
            named = _log_ticks(first, last) if log else round_numbers(first, last, 8)
        inside = [(value, text) for value, text in named if left - 0.5 <= x(value) <= WIDTH - _RIGHT + 0.5]
        return cls(left, x, y, _apart(inside, x), y_ticks, labels)

    def line(self, through: Sequence[Point], look: str) -> str:
        """Draw a line through points."""
        points = " ".join(f"{self.x(one):.1f},{self.y(two):.1f}" for one, two in through)
        return (
            f'<polyline class="line {look}" fill="none" {_inked(look, "stroke")} stroke-width="1.8" points="{points}"/>'
        )

    def level(self, value: float, said: str, look: str) -> str:
        """Draw a dashed horizontal line."""
        ends = f'x1="{self.left:.1f}" x2="{WIDTH - _RIGHT:.1f}" y1="{self.y(value):.1f}" y2="{self.y(value):.1f}"'
        dashed = f'class="line level {look}" {_inked(look, "stroke")} stroke-width="1.8" stroke-dasharray="6 4" {ends}'
        return f"<line {dashed}><title>{escape(said)}</title></line>"

    def mark(self, mark: Mark) -> str:
        """Draw a mark with its tooltip."""
        return _mark(mark, self.x(mark.across), self.y(mark.up))

    def bar(self, begin: float, end: float, value: float, said: str) -> str:
        """Draw a bar from 0."""
        left, right = self.x(begin), self.x(end)
        gap = 0.15 * (right - left) if right - left > 5 else 0.0
        top, bottom = sorted((self.y(value), self.y(0.0)))
        box = f'x="{left + gap / 2:.2f}" width="{right - left - gap:.2f}" y="{top:.1f}" height="{bottom - top:.1f}"'
        look = f'class="up" fill="{_UP}"' if value >= 0 else f'class="down" fill="{_DOWN}"'
        return f"<rect {look} {box}><title>{escape(said)}</title></rect>"

    def zero_line(self) -> str:
        """Draw the line of 0."""
        return _ruled("zero", self.left, WIDTH - _RIGHT, self.y(0.0), self.y(0.0))

    def chart(self, parts: Sequence[str], said: str) -> Chart:
        """Return the whole chart."""
        bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
        lines = [_ruled("axis", self.left, right, bottom, bottom)]
        for value, text in self.y_ticks:
            up = self.y(value)
            lines += [_ruled("grid", self.left, right, up, up), _text(text, self.left - 6, up + 4.5, "end")]
        for value, text in self.x_ticks:
            across = self.x(value)
            lines += [_ruled("axis", across, across, bottom, bottom + 4), _text(text, across, bottom + 17, "middle")]
        lines.append(_text(_fit(self.labels[0]), (self.left + right) / 2, HEIGHT - 6, "middle", "label"))
        lines.append(_text(_fit(self.labels[1]), 2, 13, "start", "label"))
        return Chart("".join([*lines, *parts]), said)


def _mark(mark: Mark, across: float, up: float) -> str:
    ring, full = f'fill="#fff" stroke-width="1.6" {_inked(mark.look, "stroke")}', _inked(mark.look, "fill")
    look = f'class="mark hollow {mark.look}" {ring}' if mark.hollow else f'class="mark {mark.look}" {full}'
    place = f'd="{_SHAPES[mark.shape]}" transform="translate({across:.1f} {up:.1f})"'
    return f"<path {look} {place}><title>{escape(mark.said)}</title></path>"


def _inked(look: str, what: str) -> str:
    return f'{what}="{_INKS[int(look[1:])]}"'


def _ruled(kind: str, left: float, right: float, top: float, bottom: float) -> str:
    ends = f'x1="{left:.1f}" x2="{right:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"'
    return f'<line class="{kind}" stroke="{_RULES[kind]}" {ends}/>'


def _text(text: str, across: float, up: float, anchor: str, kind: str = "tick") -> str:
    place = f'x="{across:.1f}" y="{up:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" fill="{_INK if kind == "label" else _FAINT}" {place}>{escape(text)}</text>'


def _keys(named: Mapping[str, tuple[str, str]]) -> tuple[str, float]:
    """Draw names with their marks, in lines as wide as the drawing; return also their height."""
    if len(named) < 2:
        return "", 0.0
    parts, across, line = [], 8.0, 0
    for name, (look, shape) in named.items():
        width = 26 + _width(short(name))
        if across + width > WIDTH and across > 8:
            across, line = 8.0, line + 1
        up = line * _ROW + 14.0
        parts += [_mark(Mark(0, 0, name, look, shape), across, up), _text(short(name), across + 10, up + 4, "start")]
        across += width
    return "".join(parts), (line + 1) * _ROW + 4.0


def _width(text: str) -> float:
    """Return an upper estimate of the width of a text."""
    return _LETTER * sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _fit(label: str) -> str:
    return short(label, int((WIDTH - 60) / _LETTER))


def _widened(low: float, high: float, share: float) -> tuple[float, float]:
    """Return a range with a margin at both ends; a range of width 0 gets some width."""
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        size = 0.05 * abs(low) or 1.0
        return low - size, high + size
    return low - share * (high - low), high + share * (high - low)


def round_numbers(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Return at most `most` round numbers within a range, each with its text."""
    raw = (high - low) / max(most - 1, 1)
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * each for each in (1, 2, 2.5, 5, 10) if size * each >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    numbers = [number * step for number in range(first, last + 1)] or [(low + high) / 2]
    digits = max(0, -math.floor(math.log10(step) + 1e-9) + (1 if f"{step:.1e}".startswith("2.5") else 0))
    return [(each, f"{each:.{digits}f}" if abs(each) < 1e6 else f"{each:g}") for each in numbers]


def _log_ticks(first: float, last: float) -> list[tuple[float, str]]:
    """Return powers of ten and, if these are few, twice and five times them."""
    steps = (1, 2, 5) if last - first < 3 else (1,)
    powers = range(math.floor(first), math.ceil(last) + 1)
    values = [each * 10.0**power for power in powers for each in steps]
    return [(each, f"{each:g}") for each in values if first <= math.log10(each) <= last]


def _apart(ticks: Sequence[tuple[float, str]], x: Scale) -> list[tuple[float, str]]:
    """Return the ticks whose texts have room."""
    kept: list[tuple[float, str]] = []
    reached = -math.inf
    for value, text in ticks:
        half = _LETTER * len(text) / 2
        if x(value) - half > reached + 4 and x(value) + half <= WIDTH + 8:
            kept.append((value, text))
            reached = x(value) + half
    return kept
