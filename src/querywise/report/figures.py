"""Figures: readable in print, and by people who see colours differently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from querywise.files import check_writable

# Okabe and Ito's colours, distinguishable by nearly everybody; each line also has a marker of its own.
_COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("", "o", "s", "^", "D", "v", "P")
# A method looks the same in every figure.
_PLACES = ("single", "knn-online", "knn-offline-1", "knn-offline-2", "lambdamart", "query-classes")


def line_figure(
    path: Path,
    across: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    *,
    level: Mapping[str, float] | None = None,
    labels: tuple[str, str],
    title: str,
) -> None:
    """Lines over common positions, and level ones for what does not depend on them; the ending names the format."""
    import matplotlib

    check_writable(path)
    with matplotlib.rc_context({"svg.hashsalt": "querywise", "font.size": 10, "svg.fonttype": "none"}):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for name, value in (level or {}).items():
            axes.axhline(value, color=_look(name)[0], linestyle="--", linewidth=1.2, label=name)
        for name, values in lines.items():
            colour, marker = _look(name)
            axes.plot(across, values, color=colour, marker=marker, markersize=5, linewidth=1.5, label=name)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.set_title(title, fontsize=10, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        axes.legend(frameon=False, fontsize=9)
        # Without a date the same numbers give the same bytes.
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {}, dpi=150)


def _look(name: str) -> tuple[str, str]:
    """The colour and marker of a method, by the first word of its name."""
    method = name.split(",")[0]
    place = _PLACES.index(method) if method in _PLACES else len(_PLACES)
    return _COLOURS[place], _MARKERS[place]
