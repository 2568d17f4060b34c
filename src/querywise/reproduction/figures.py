"""Figures of the papers: readable in print and whatever colours one sees. The same bytes for the same numbers."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from querywise.display.axes import COLOURS, MARKERS, legend
from querywise.display.axes import looks as looks_of
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.files import atomic_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CLOSE = 1.3  # times a position: nearer ones have room for one number
_COMPONENTS = ("first principal component", "second principal component")


def line_figure(
    path: Path,
    across: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    *,
    level: Mapping[str, float] | None = None,
    labels: tuple[str, str],
    title: str,
    doubling: bool = False,
) -> None:
    """Write lines over common positions, and level ones for what does not depend on them, to an SVG file.

    doubling: as far from a position to twice as much, wherever it is, and each with its number where there is room.
    """
    looks = looks_of([*(level or {}), *lines])
    with _axes(path) as axes:
        drawn: list[tuple[str, Any]] = []
        for name, value in (level or {}).items():
            drawn.append((name, axes.axhline(value, color=looks[name][0], linestyle="--", linewidth=1.2)))
        for name, values in lines.items():
            colour, marker = looks[name]
            (line,) = axes.plot(across, values, color=colour, marker=marker, markersize=5, linewidth=1.5)
            drawn.append((name, line))
        if doubling:
            axes.set_xscale("log", base=2)
            room = [after > _CLOSE * each for each, after in pairwise([*across, np.inf])]
            axes.set_xticks(across, [f"{each:g}" if there else "" for each, there in zip(across, room, strict=True)])
            axes.minorticks_off()
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.set_title(title, fontsize=10, loc="left")
        legend(axes, drawn, fontsize=8.5, beside=True)


def steps_figure(path: Path, rows: Mapping[str, Sequence[float | None]], *, steps: Sequence[str], label: str) -> None:
    """Write a line for each row, with a mark for each of its values in the order of steps, to an SVG file."""
    looks = looks_of(list(steps))
    with _axes(path, height=1.0 + 0.36 * len(rows)) as axes:
        drawn: dict[str, Any] = {}
        for place, values in enumerate(rows.values()):
            known = [each for each in values if each is not None]
            axes.plot([min(known), max(known)], [place, place], color="#999999", linewidth=1.2, zorder=1)
            for step, value in zip(steps, values, strict=True):
                if value is not None:
                    colour, marker = looks[step]
                    drawn[step] = axes.scatter([value], [place], color=colour, marker=marker, s=36, zorder=2)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.invert_yaxis()
        axes.set_xlabel(label)
        legend(axes, [(step, drawn[step]) for step in steps if step in drawn], fontsize=8.5, beside=True)


def plane_figure(path: Path, places: Floats, classes: Mapping[str, Bools]) -> None:
    """Write queries in a plane, by class, to an SVG file."""
    with _axes(path, height=4.2) as axes:
        drawn = []
        for place, (name, chosen) in enumerate(classes.items()):
            look: dict[str, Any] = {"color": COLOURS[1 + place % 6], "marker": MARKERS[1 + place % 6]}
            across, up = places[chosen].T
            drawn.append((name, axes.scatter(across, up, s=16, alpha=0.75, linewidths=0, **look)))
        legend(axes, drawn, fontsize=9)
        axes.set_xlabel(_COMPONENTS[0])
        axes.set_ylabel(_COMPONENTS[1])


def gains_figure(path: Path, places: Floats, gains: Floats, *, labels: tuple[str, str], what: str) -> None:
    """Write queries in a plane, coloured by what they gained, to an SVG file."""
    with _axes(path, height=4.2) as axes:
        reach = max(float(np.abs(gains).max(initial=0.0)), 1e-12)
        across, up = places.T
        look: dict[str, Any] = {"cmap": "PuOr", "vmin": -reach, "vmax": reach, "edgecolors": "#555555"}
        drawn = axes.scatter(across, up, s=16, c=gains, linewidths=0.3, **look)
        axes.figure.colorbar(drawn, ax=axes, label=what)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])


def counts_figure(path: Path, counts: Sequence[int]) -> None:
    """Write bars to an SVG file: how often each number occurs, the largest ones in wider bars where there are many."""
    values = np.asarray(counts)
    width = max(1, int(np.ceil((values.max(initial=0) + 1) / 40)))
    bars = np.bincount(values // width)
    with _axes(path, height=3.0) as axes:
        axes.bar(np.arange(len(bars)) * width + (width - 1) / 2, bars, width=0.85 * width, color="#0072B2")
        axes.set_xlabel("relevant documents" + (f", {width} numbers to a bar" if width > 1 else ""))
        axes.set_ylabel("queries")


@contextlib.contextmanager
def _axes(path: Path, *, height: float = 3.6) -> Iterator[Axes]:
    """Axes to draw on, which are written to an SVG file once the block has ended."""
    import matplotlib

    settings: Any = {"svg.hashsalt": "querywise", "font.size": 10, "svg.fonttype": "none", "font.family": "sans-serif"}
    settings["text.parse_math"] = False  # a $ in a name is a $
    with matplotlib.rc_context(settings):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.2, height), layout="constrained")
        axes = figure.add_subplot()
        yield axes
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        out = io.StringIO()
        # Without a date the same numbers give the same bytes.
        with warnings.catch_warnings():
            # The reader's browser draws the letters, and may well have those that Matplotlib's font lacks.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(out, format="svg", metadata={"Date": None})
    with atomic_text(path) as file:
        file.write(out.getvalue())
