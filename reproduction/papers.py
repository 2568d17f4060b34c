"""What reproductions have in common: rows chosen on validation data, paired tests, claims, figures, and files."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from querywise.data.folds import Folds
from querywise.data.judged import Judged
from querywise.display.tables import COLOURS, MARKERS, legend
from querywise.display.tables import looks as looks_of
from querywise.evaluation.compare import Compared
from querywise.evaluation.significance import paired_t_test
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import TunedFit
from querywise.methods import METHODS, find_method
from querywise.report.tables import Column, Table
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.files import atomic_text
from querywise.runtime.progress import track
from querywise.runtime.values import Grid, Json, Settings
from reproduction.verdicts import VALUES, Claim, Values, claims_table, write_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FLAVOUR = "letor4"
PAPER: Settings = {"loss": "hinge", "pairs": "pair"}  # the loss of the papers' ranking SVM, all pairs alike
NO_BACK_OFF: Settings = {"back_off": None}  # the papers' algorithms answer every query by its neighbours, however far
NUMBERS = "numbers.json"
_QUICK = "**A quick run: the first fold and thin grids. It shows the shape of the tables; do not quote its numbers.**\n"
Sets = Mapping[str, Callable[[], Folds]]  # by name, what reads one
_CLOSE = 1.3  # times a position: nearer ones have room for one number
_COMPONENTS = ("first principal component", "second principal component")


def by_paper(name: str) -> str:
    """The row of a method with the paper's loss."""
    return f"{name}, hinge"


def usual_flavour(data: Judged) -> str:
    """That of LETOR's own figures for feature files, the usual one for text collections."""
    table = data.candidates.queries
    return FLAVOUR if table is None or table.texts is None else "standard"


def fitting(method: str, fixed: Settings, grid: Grid | None = None) -> Fit:
    """A method with some settings fixed, the others of its grid, or of another, chosen by MAP on validation data."""
    known = METHODS[method]
    tried = known.grid if grid is None else grid
    return TunedFit(known.build, tried, fixed=fixed, flavour=FLAVOUR)


def by_default(name: str, bag: int, **settings: Any) -> Fit:
    """A method, or a peer, with its defaults but for some settings, and its forests of so many seeds each."""
    method = find_method(name, peers=True)
    given = settings | ({"bag": bag} if "bag" in method.settings else {})
    return lambda train, valid: method.build(**given).fit(train, valid=valid)


def pair_differences(data: Judged) -> Floats:
    """x_a − x_b of every pair of which a has the higher label: the constraints of a ranking SVM."""
    found = [np.zeros((0, data.feature_count))]
    for query in range(len(data)):
        rows = data.candidates.rows(query)
        labels, features = data.labels[rows], data.candidates.features[rows]
        above, below = np.nonzero(labels[:, None] > labels[None, :])
        found.append(features[above] - features[below])
    return np.concatenate(found)


def p_of(compared: Compared, name: str, rival: str, measure: str) -> float:
    """The paired t-test of two methods."""
    return paired_t_test(compared.evaluations[name][measure], compared.evaluations[rival][measure]).p


def gain_of(compared: Compared, name: str, rival: str, measure: str) -> float:
    """The difference of two methods' averages."""
    return compared.evaluations[name].mean()[measure] - compared.evaluations[rival].mean()[measure]


def tests_of(
    compared: Compared, names: Sequence[str], rivals: Sequence[str], measures: Sequence[str]
) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Row → rival → measure: the difference of the averages and its p, of every test that a table prints."""
    return {
        name: {
            rival: {
                each: {"difference": gain_of(compared, name, rival, each), "p": p_of(compared, name, rival, each)}
                for each in measures
            }
            for rival in rivals
            if rival != name
        }
        for name in names
    }


def rows_table(
    compared: Compared,
    shown: Mapping[str, str],
    rivals: Sequence[str],
    tested: Mapping[str, str],
    names: Sequence[str] | None = None,
) -> Table:
    """The averages of every method, or of those named, and paired t-tests against some rivals.

    Both mappings: measure → heading.
    """
    columns = [Column("method"), *(Column(each, "value") for each in shown.values())]
    columns += [Column(f"p ({what}, {name})", "p") for name in rivals for what in tested.values()]
    rows = []
    for name in compared.names if names is None else names:
        means = compared.evaluations[name].mean()
        ps = [None if name == rival else p_of(compared, name, rival, each) for rival in rivals for each in tested]
        rows.append((name, *(means[measure] for measure in shown), *ps))
    caption = (
        f"{len(compared.judged)} test queries, flavour {FLAVOUR}; p: paired t-test against {' and '.join(rivals)}."
    )
    return Table(tuple(columns), tuple(rows), " ".join([caption, *compared.counted()]))


def p_text(p: float) -> str:
    """As in `p = 0.041`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def write_findings(
    out: Path,
    numbers: Mapping[str, Json],
    tables: Sequence[Table | str],
    claims: Sequence[Claim] = (),
    *,
    quick: bool | None = None,
    queries: Sequence[str] = (),
    values: Values | None = None,
) -> Path:
    """Write numbers.json and table.md into a folder, the claims last in both; returns the table's path.

    What the tables print is in numbers.json too, cell by cell. quick: whether it was a quick run, where there are any.
    values: what all of it rests on, a number for each of the queries, which values.json.gz gets.
    """
    texts = [each if isinstance(each, str) else each.markdown() for each in tables]
    texts = [_QUICK, *texts] if quick else texts
    content = {**({} if quick is None else {"quick": quick}), **numbers, "printed": [_printed(each) for each in texts]}
    if claims:
        content["claims"] = [{**each._asdict(), "parts": [part._asdict() for part in each.parts]} for each in claims]
        texts.append(claims_table(claims))
    if values is not None:
        write_values(out / VALUES, queries, values)
    with atomic_text(out / NUMBERS) as file:
        json.dump(content, file, indent=1)
        file.write("\n")
    with atomic_text(out / "table.md") as file:
        file.write("\n".join(texts))
    return out / "table.md"


def _printed(table: str) -> list[Json]:
    """The rows of a table as they are printed, without headings; a line of words is a row of its own."""
    lines = [line for line in table.splitlines() if line.strip()]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [list(row) for row, line in zip(rows, lines, strict=True) if not line.startswith("| ---")]


def each_in_a_folder(sets: Sets, out: Path, reproduce: Callable[[Folds, Path], Path], kept: str) -> dict[str, Path]:
    """Make what is asked of each set, and return the folders by name.

    kept: a file that is written last. A set whose folder has it already is not made again, so that hours of work go on
    where they were interrupted.
    """
    folders = {name: out / name.replace(" ", "-") for name in sets}
    for name, folds in track(list(sets.items()), "Sets"):
        if not (folders[name] / kept).exists():
            reproduce(folds(), folders[name])
    return folders


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
