"""Figures: readable in print, and by people who see colours differently. SVG, the same bytes for the same numbers."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from querywise.display.axes import COLOURS, MARKERS, legend, log_scale
from querywise.display.axes import looks as looks_of
from querywise.display.words import short
from querywise.evaluation.findings import Findings
from querywise.evaluation.plots import draw_differences
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.files import atomic_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COMPONENTS = ("first principal component", "second principal component")

# File name, what it shows, SVG.
Figure = tuple[str, str, str]


def line_figure(
    path: Path,
    across: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    *,
    level: Mapping[str, float] | None = None,
    labels: tuple[str, str],
    title: str,
) -> None:
    """Write lines over common positions, and level ones for what does not depend on them, to an SVG file."""
    with atomic_text(path) as out:
        out.write(_lines(across, lines, level=level, labels=labels, title=title))


def measures_by_method(found: Findings) -> tuple[Figure, ...]:
    """The main measure of every method with the interval of its difference: the first figure of a report."""
    base = found.baseline.means[found.measure]
    others = [each for each in found.methods if each.name != found.compared.baseline]
    if not others:
        return ()
    with _axes(height=1.1 + 0.34 * len(others)) as (axes, done):
        what = f"difference in {found.measure} from {short(found.compared.baseline)} ({base:.4f})"
        draw_differences(others, found.compared.names, what, axes)
        axes.set_yticks(range(len(others)), [short(each.name) for each in reversed(others)])
    return (("difference.svg", f"Difference of every method from {found.compared.baseline}", done()),)


def ndcg_curves(found: Findings) -> tuple[Figure, ...]:
    """NDCG at 1 to 10 by method: Figure 7 of [geng2008]_."""
    title = f"NDCG at 1 to 10 (flavour {found.compared.flavour})"
    looks = looks_of(found.compared.names)
    drawn = _lines(range(1, 11), found.ndcg, labels=("position", "NDCG"), title="", looks=looks)
    return (("ndcg.svg", title, drawn),)


def gain_per_query(found: Findings) -> tuple[Figure, ...]:
    """Every query's gain under the best method, sorted."""
    if found.shown is None:
        return ()
    compared = found.compared
    ours, theirs = (compared.evaluations[name][found.measure] for name in (found.shown, compared.baseline))
    gains = np.sort(ours - theirs)[::-1]
    with _axes() as (axes, done):
        place = np.arange(len(gains))
        axes.fill_between(place, gains, 0, where=gains >= 0, color="#0072B2", linewidth=0, step="mid")
        axes.fill_between(place, gains, 0, where=gains <= 0, color="#D55E00", linewidth=0, step="mid")
        axes.axhline(0, color="#000000", linewidth=0.8)
        axes.set_xlabel("test queries, sorted by gain")
        axes.set_ylabel(f"gain in {found.measure}")
    return (("gains.svg", f"Gain of {found.shown} on {compared.baseline}, query by query", done()),)


def quality_by_difficulty(found: Findings) -> tuple[Figure, ...]:
    """The main measure by number of relevant documents."""
    chosen = next((each for each in found.breakdowns if each.title == "relevant documents"), None)
    groups = () if chosen is None else tuple(group for group in chosen.groups if group.label != "none")
    if len(groups) < 2:
        return ()
    lines = {name: [group.means[name] for group in groups] for name in found.compared.names}
    names = [f"{group.label}\n({group.queries} queries)" for group in groups]
    labels, looks = ("relevant documents", found.measure), looks_of(found.compared.names)
    drawn = _lines(range(len(groups)), lines, labels=labels, title="", ticks=names, looks=looks)
    return (("difficulty.svg", "Quality by number of relevant documents", drawn),)


def queries_in_the_plane(found: Findings) -> tuple[Figure, ...]:
    """Test queries of the first fold in two principal components, by class or by gain: Figure 1 of [geng2008]_."""
    compared = found.compared
    source = next((name for name in compared.names if compared.trained[name][0].extra.places), None)
    if source is None or found.shown is None:
        return ()
    places = np.array(compared.trained[source][0].extra.places)
    if places.ndim != 2 or places.shape[1] < 2:
        return ()
    first = compared.fold_of == 0
    classes = {name: chosen[first] for name, chosen in compared.classes.items()}
    ours, theirs = (compared.evaluations[name][found.measure][first] for name in (found.shown, compared.baseline))
    by = "class" if classes else "gain"
    what = f"gain in {found.measure} ({short(found.shown)})"
    drawn = (
        plane_figure(places, classes) if classes else gains_figure(places, ours - theirs, axes=_COMPONENTS, what=what)
    )
    return (("queries.svg", f"The first fold's test queries as {source} places them, by {by}", drawn),)


def plane_figure(places: Floats, classes: Mapping[str, Bools]) -> str:
    """Queries in a plane, by class."""
    with _axes(height=4.2) as (axes, done):
        drawn = []
        for place, (name, chosen) in enumerate(classes.items()):
            look: dict[str, Any] = {"color": COLOURS[1 + place % 6], "marker": MARKERS[1 + place % 6]}
            across, up = places[chosen].T
            drawn.append((name, axes.scatter(across, up, s=16, alpha=0.75, linewidths=0, **look)))
        legend(axes, drawn, fontsize=9)
        axes.set_xlabel(_COMPONENTS[0])
        axes.set_ylabel(_COMPONENTS[1])
    return str(done())


def transforms_by_gain(found: Findings) -> tuple[Figure, ...]:
    """Every query's (α, β) under aTVT, by what it gained [zha2006]_."""
    figures: list[Figure] = []
    for name in found.compared.names:
        moved = found.compared.moved(name)
        if moved is not None and name != found.compared.baseline and np.nansum(np.abs(moved - [1, 0])) > 0:
            known = np.isfinite(moved[:, 0])
            base = found.compared.evaluations[found.compared.baseline][found.measure]
            gains = found.compared.evaluations[name][found.measure] - base
            drawn = gains_figure(
                moved[known],
                gains[known],
                axes=("scale α", "shift β"),
                what=f"gain in {found.measure} ({short(name)})",
            )
            text = f"How {name} moved each query's target values while it was a training query, by the query's gain"
            figures.append((f"transforms-{len(figures) + 1}.svg", text, drawn))
    return tuple(figures)


def gains_figure(places: Floats, gains: Floats, *, axes: tuple[str, str], what: str) -> str:
    """Queries in a plane, coloured by what they gained."""
    with _axes(height=4.2) as (drawing, done):
        reach = max(float(np.abs(gains).max(initial=0.0)), 1e-12)
        across, up = places.T
        look: dict[str, Any] = {"cmap": "PuOr", "vmin": -reach, "vmax": reach, "edgecolors": "#555555"}
        drawn = drawing.scatter(across, up, s=16, c=gains, linewidths=0.3, **look)
        drawing.figure.colorbar(drawn, ax=drawing, label=what)
        drawing.set_xlabel(axes[0])
        drawing.set_ylabel(axes[1])
    return str(done())


def quality_against_time(found: Findings) -> tuple[Figure, ...]:
    """The main measure against the time to rank a query."""
    timed = [each for each in found.methods if np.isfinite(each.predict_milliseconds) and each.predict_milliseconds > 0]
    if len(timed) < 2:
        return ()
    looks = looks_of(found.compared.names)
    with _axes() as (axes, done):
        drawn: list[tuple[str, Any]] = []
        for each in timed:
            colour, marker = looks[each.name]
            value = each.means[found.measure]
            (point,) = axes.plot([each.predict_milliseconds], [value], marker, color=colour, markersize=8)
            drawn.append((each.name, point))
        legend(axes, drawn, fontsize=8.5, beside=True)
        log_scale(axes)
        axes.margins(x=0.1, y=0.15)
        axes.set_xlabel("milliseconds per query")
        axes.set_ylabel(found.measure)
    return (("time.svg", "Quality against time per query", done()),)


def quality_against_k(found: Findings) -> tuple[Figure, ...]:
    """The best validation value at every k that was tried: Figure 8 of [geng2008]_, on validation data."""
    across = sorted({k for points in found.against_k.values() for k in points})
    lines = {name: list(points.values()) for name, points in found.against_k.items() if len(points) == len(across)}
    if not lines:
        return ()
    shares = [100 * k if isinstance(k, float) else k for k in across]
    labels = ("k, % of the training queries" if isinstance(across[0], float) else "k", "on validation data")
    svg = _lines(shares, lines, labels=labels, title="", looks=looks_of(found.compared.names))
    return (("against-k.svg", "Validation quality against the number of neighbours", svg),)


def oracle_curves(found: Findings) -> tuple[Figure, ...]:
    """Mean average precision of the r-th best model: Figure 3 of [lin2011]_."""
    looks = looks_of(found.compared.names)
    with _axes() as (axes, done):
        drawn: list[tuple[str, Any]] = []
        for each in found.oracles:
            colour, marker = looks[each.name]
            ranks = np.arange(1, len(each.by_rank) + 1)
            look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4.5, "linewidth": 1.5}
            (line,) = axes.plot(ranks, each.by_rank, markevery=max(1, len(ranks) // 12), **look)
            drawn.append((each.name, line))
        level = axes.axhline(found.oracles[0].baseline, color="#000000", linestyle="--", linewidth=1.2)
        drawn.append((found.compared.baseline, level))
        axes.set_xlabel("rank of the model, the best for each query first")
        axes.set_ylabel("MAP")
        legend(axes, drawn, fontsize=9)
    return (("oracle.svg", "What always choosing the r-th best model would reach", done()),)


def bounds_by_number(found: Findings) -> tuple[Figure, ...]:
    """UpperBound against the number of models to choose from: after Figure 2 of [lin2011]_."""
    looks = looks_of(found.compared.names)
    with _axes() as (axes, done):
        drawn: list[tuple[str, Any]] = []
        for each in found.oracles:
            colour, marker = looks[each.name]
            look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4.5, "linewidth": 1.5}
            (line,) = axes.plot(list(each.by_number), list(each.by_number.values()), **look)
            drawn.append((each.name, line))
        level = axes.axhline(found.oracles[0].baseline, color="#000000", linestyle="--", linewidth=1.2)
        drawn.append((found.compared.baseline, level))
        log_scale(axes)
        axes.set_xlabel("models to choose from, drawn at random from the method's own")
        axes.set_ylabel("MAP")
        legend(axes, drawn, fontsize=9)
    return (("upper-bound.svg", "What always choosing the best of so many models would reach", done()),)


def relevant_per_query(found: Findings) -> tuple[Figure, ...]:
    """How many queries have how many relevant documents: Figure 4 of [lin2011]_."""
    return (("relevant.svg", "Relevant documents per test query", counts_figure(found.relevant)),)


def counts_figure(counts: Sequence[int]) -> str:
    """Bars: how often each number occurs, the largest ones in wider bars where there are many."""
    values = np.asarray(counts)
    width = max(1, int(np.ceil((values.max(initial=0) + 1) / 40)))
    bars = np.bincount(values // width)
    with _axes(height=3.0) as (axes, done):
        axes.bar(np.arange(len(bars)) * width + (width - 1) / 2, bars, width=0.85 * width, color="#0072B2")
        axes.set_xlabel("relevant documents" + (f", {width} numbers to a bar" if width > 1 else ""))
        axes.set_ylabel("queries")
    return str(done())


def _lines(
    across: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    *,
    labels: tuple[str, str],
    title: str,
    level: Mapping[str, float] | None = None,
    ticks: Sequence[str] | None = None,
    looks: Mapping[str, tuple[str, str]] | None = None,
) -> str:
    looks = looks_of([*(level or {}), *lines]) if looks is None else looks
    with _axes() as (axes, done):
        drawn: list[tuple[str, Any]] = []
        for name, value in (level or {}).items():
            drawn.append((name, axes.axhline(value, color=looks[name][0], linestyle="--", linewidth=1.2)))
        for name, values in lines.items():
            colour, marker = looks[name]
            (line,) = axes.plot(across, values, color=colour, marker=marker, markersize=5, linewidth=1.5)
            drawn.append((name, line))
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.set_title(title, fontsize=10, loc="left")
        if ticks is not None:
            axes.set_xticks(list(across), ticks)
        legend(axes, drawn, fontsize=8.5, beside=True)
    return str(done())


@contextlib.contextmanager
def _axes(*, height: float = 3.6) -> Iterator[tuple[Axes, Any]]:
    """Axes to draw on, and what gives the finished SVG once the block has ended."""
    import matplotlib

    settings: Any = {"svg.hashsalt": "querywise", "font.size": 10, "svg.fonttype": "none", "font.family": "sans-serif"}
    settings["text.parse_math"] = False  # a $ in a name is a $
    finished: list[str] = []
    with matplotlib.rc_context(settings):
        from matplotlib.figure import Figure as Canvas

        figure = Canvas(figsize=(7.2, height), layout="constrained")
        axes = figure.add_subplot()
        yield axes, lambda: finished[0]
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        out = io.StringIO()
        # Without a date the same numbers give the same bytes.
        with warnings.catch_warnings():
            # The reader's browser draws the letters, and may well have those that Matplotlib's font lacks.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(out, format="svg", metadata={"Date": None})
        finished.append(out.getvalue())
