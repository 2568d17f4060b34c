"""Figures of evaluations, comparisons and tried settings, on Matplotlib's axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

from querywise.display.axes import COLOURS, DOWN, UP, axes_or_new, finish, legend, looks, plain
from querywise.errors import DataError
from querywise.runtime.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROOM = 0.06  # of the width, for a number below the axis


class Drawn(Protocol):
    """A method's difference from the baseline, as far as it is drawn."""

    @property
    def name(self) -> str:
        """The method."""
        ...

    @property
    def difference(self) -> float:
        """Its mean less the baseline's."""
        ...

    @property
    def interval(self) -> tuple[float, float]:
        """The bootstrap interval of the difference."""
        ...

    @property
    def is_significant(self) -> bool:
        """Whether the corrected p is below 0.05."""
        ...


def draw_values(values: Floats, measure: str, ax: Axes | None = None) -> Axes:
    """One measure's values, a place per query, the highest first, and their mean."""
    axes = axes_or_new(ax)
    ordered = np.sort(values)[::-1]
    places = np.arange(len(ordered) + 1) - 0.5
    axes.stairs(ordered, places, fill=True, color=UP, alpha=0.8)
    mean = float(values.mean())
    axes.axhline(mean, color=COLOURS[0], linestyle="--", linewidth=1.2)
    axes.annotate(
        f"mean {mean:.4f}",
        (1, mean),
        (-4, 4),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
    )
    axes.margins(x=0.01)
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel(f"{len(ordered):,} queries, sorted")
    axes.set_ylabel(plain(measure))
    return finish(axes)


def draw_differences(found: Sequence[Drawn], names: Sequence[str], what: str, axes: Axes) -> None:
    """Every method's difference with its interval, the first on top; names: of all methods, for their colours."""
    colours = looks(names)
    for place, each in enumerate(reversed(found)):
        low, high = each.interval
        colour, marker = colours[each.name]
        axes.plot([low, high], [place, place], color=colour, linewidth=2.2, solid_capstyle="round")
        axes.plot([each.difference], [place], marker, color=colour, markersize=7)
        mark = "*" if each.is_significant else ""
        axes.annotate(f"{each.difference:+.4f}{mark}", (high, place), (6, -3.5), textcoords="offset points", fontsize=9)
    axes.axvline(0, color="#000000", linewidth=1)
    axes.set_ylim(-0.6, len(found) - 0.4)
    axes.margins(x=0.18)
    axes.set_xlabel(f"{what}\nbars: 95 % bootstrap interval; *: p < 0.05, Holm", fontsize=8.5)


def plot_differences(
    found: Sequence[Drawn], names: Sequence[str], baseline: str, mean: float, measure: str, ax: Axes | None
) -> Axes:
    """The same on axes of their own, or those given."""
    if not found:
        raise DataError(f"There is nothing to draw: {baseline!r} was compared with no other method.")
    axes = axes_or_new(ax, height=1.1 + 0.34 * len(found))
    draw_differences(found, names, f"difference in {plain(measure)} from {plain(baseline)} ({mean:.4f})", axes)
    axes.set_yticks(range(len(found)), [plain(each.name) for each in reversed(found)])
    return finish(axes)


def draw_tried(
    values: Sequence[float | str], reached: Sequence[float], labels: tuple[str, str], ax: Axes | None
) -> Axes:
    """What was reached at each value of a parameter; values that are not all numbers stand side by side."""
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


def draw_curves(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    names: Sequence[str],
    labels: tuple[str, str],
    ax: Axes | None,
) -> Axes:
    """Lines over numbers that double, each with its text where there is room; names: of all, for their colours."""
    axes, colours, drawn = axes_or_new(ax), looks(names), []
    for name, points in lines.items():
        colour, marker = colours[name]
        across, up = [place for place, _ in points], [value for _, value in points]
        (line,) = axes.plot(across, up, color=colour, marker=marker, markersize=5, linewidth=1.5)
        drawn.append((name, line))
    places = sorted({place for points in lines.values() for place, _ in points})
    axes.set_xscale("log", base=2)
    least = (places[-1] / places[0]) ** _ROOM
    room = [after > least * each for each, after in pairwise([*places, np.inf])]
    axes.set_xticks(places, [f"{each:g}" if there else "" for each, there in zip(places, room, strict=True)])
    axes.minorticks_off()
    axes.set_xlabel(plain(labels[0]))
    axes.set_ylabel(plain(labels[1]))
    legend(axes, drawn, fontsize=8.5)
    return finish(axes)
