"""Evaluations of the same queries, each against a baseline: difference, interval, p, and Holm-corrected p."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from querywise.data.coverage import Coverage
from querywise.display.tables import Cell, Column, axes_or_new, finish, looks, plain, table
from querywise.display.words import in_columns, p_value, short
from querywise.errors import DataError
from querywise.evaluation.evaluate import Evaluation
from querywise.evaluation.significance import (
    SIGNIFICANT,
    TEST_NAMES,
    Corrected,
    bootstrap_interval,
    corrected,
    find_test,
)
from querywise.measures.order import find_flavour
from querywise.runtime.files import atomic_text
from querywise.runtime.values import JsonObject, json_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 12  # methods shown as text


@dataclass(frozen=True)
class Difference:
    """A method's mean of one measure minus the baseline's. `p_holm` is corrected for the number of methods."""

    name: str
    difference: float
    p: float
    p_holm: float
    interval: tuple[float, float]

    @property
    def is_significant(self) -> bool:
        """Whether the corrected p is below 0.05."""
        return self.p_holm < SIGNIFICANT


@dataclass(frozen=True, eq=False)
class Differences:
    """Evaluations of the same queries, by method, compared with the baseline's."""

    evaluations: Mapping[str, Evaluation]
    baseline: str

    @property
    def base(self) -> Evaluation:
        """The baseline's evaluation."""
        return self.evaluations[self.baseline]

    def tested(self, measure: str, test: str) -> dict[str, Corrected]:
        """Return each method's paired test against the baseline in one measure."""
        compute, theirs = find_test(test), self.base[measure]
        others = {name: each[measure] for name, each in self.evaluations.items() if name != self.baseline}
        return corrected({name: compute(ours, theirs) for name, ours in others.items()})

    def corrected(self, test: str) -> dict[str, dict[str, float]]:
        """Return method → measure → Holm-corrected p, for all but the baseline."""
        by_measure = {measure: self.tested(measure, test) for measure in self.base.measures}
        others = [name for name in self.evaluations if name != self.baseline]
        return {name: {measure: found[name].p_holm for measure, found in by_measure.items()} for name in others}

    def with_intervals(self, measure: str, test: str) -> list[Difference]:
        """Return every method but the baseline, with the bootstrap interval of its difference."""
        theirs = self.base[measure]
        return [
            Difference(name, *each.numbers, bootstrap_interval(self.evaluations[name][measure], theirs))
            for name, each in self.tested(measure, test).items()
        ]

    def columns(self, test: str) -> dict[str, Column]:
        """Return a row per method: for every measure the mean, the difference, p and Holm-corrected p."""
        found: dict[str, Column] = {"method": list(self.evaluations)}
        for measure in self.base.measures:
            tested = self.tested(measure, test)
            nothing = (0.0, float("nan"), float("nan"))
            every = [tested[name].numbers if name in tested else nothing for name in self.evaluations]
            found[measure] = [float(each[measure].mean()) for each in self.evaluations.values()]
            for place, what in enumerate(("difference", "p", "p_holm")):
                found[f"{measure}_{what}"] = [numbers[place] for numbers in every]
        return found

    def by_query(self, fold_of: Column) -> dict[str, Column]:
        """Return a row per method and query: the query, its fold, the method, and the value of every measure."""
        count = len(self.evaluations)
        found: dict[str, Column] = {
            "query": list(self.base.query_ids) * count,
            "fold": [each for _ in range(count) for each in fold_of],
            "method": [name for name in self.evaluations for _ in range(len(self.base))],
        }
        for measure in self.base.measures:
            found[measure] = [value for each in self.evaluations.values() for value in each[measure].tolist()]
        return found

    def rows(self, test: str) -> tuple[list[str], list[list[Cell]]]:
        """Return the headings and rows of the printed table."""
        headings, cells = ["method"], list[list[Cell]]([short(name)] for name in self.evaluations)
        for measure in self.base.measures:
            headings += [measure, "difference", "p (Holm)"]
            tested = self.tested(measure, test)
            for row, (name, each) in zip(cells, self.evaluations.items(), strict=True):
                known = tested.get(name)
                row.append(f"{each[measure].mean():.4f}")
                row.extend(["", ""] if known is None else [f"{known.found.difference:+.4f}", p_value(known.p_holm)])
        return headings, cells

    def text(self, first: str, test: str = "t") -> str:
        """Format as text: a first line, then one line per method with aligned columns."""
        headings, rows = self.rows(test)
        lines = [headings, *([str(cell) for cell in row] for row in rows[:_MOST])]
        left = [f"… and {len(rows) - _MOST} more"] if len(rows) > _MOST else []
        return "\n  ".join([first, *in_columns(lines), *left])

    def html(self, title: str, test: str = "t", notes: Sequence[str] = ()) -> str:
        """Format as an HTML table with notes below it."""
        headings, rows = self.rows(test)
        others = len(self.evaluations) - 1
        many = f", Holm's correction for {others} methods" if others > 1 else ""
        tested = [f"p: {TEST_NAMES[test]} against {self.baseline}{many}"] if others else []
        return table(headings, rows, title=title, notes=[*tested, *notes])


def require_known(by: str) -> None:
    """Raise DataError unless `by` is a known kind of row."""
    if by not in ("method", "query"):
        raise DataError(f"to_frame(by={by!r}) is unknown. Known: by='method', by='query'.")


def plot_differences(
    found: Sequence[Difference], names: Sequence[str], baseline: str, mean: float, measure: str, ax: Axes | None
) -> Axes:
    """Plot every method's difference with its interval, the first on top; `names` of all methods set the colors."""
    if not found:
        raise DataError(f"There is nothing to plot: {baseline!r} was compared with no other method.")
    axes, colours = axes_or_new(ax, height=1.1 + 0.34 * len(found)), looks(names)
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
    what = f"difference in {plain(measure)} from {plain(baseline)} ({mean:.4f})"
    axes.set_xlabel(f"{what}\nbars: 95 % bootstrap interval; *: p < 0.05, Holm", fontsize=8.5)
    axes.set_yticks(range(len(found)), [plain(each.name) for each in reversed(found)])
    return finish(axes)


@dataclass(frozen=True)
class Evaluated:
    """Several evaluations of the same queries, by name; the others are compared with the first."""

    tables: Mapping[str, Evaluation]
    coverage: Mapping[str, Coverage] = field(default_factory=dict)  # by run: how many of the judged documents it has
    unjudged: int = 0  # queries of the runs without judgments

    @property
    def first(self) -> Evaluation:
        """The first evaluation."""
        return next(iter(self.tables.values()))

    @property
    def conventions(self) -> str:
        """The evaluation conventions, in words."""
        return find_flavour(self.first.flavour).conventions

    def corrected(self, test: str) -> dict[str, dict[str, float]]:
        """Return each evaluation's Holm-corrected p against the first, by measure."""
        return Differences(self.tables, next(iter(self.tables))).corrected(test)

    def as_json(self, test: str) -> JsonObject:
        """Return everything the table shows as JSON."""
        alone: JsonObject = {"queries": len(self.first), "flavour": self.first.flavour, "mean": self.first.mean()}
        if len(self.tables) == 1 and not self.coverage:
            return alone
        corrected = self.corrected(test)
        runs: JsonObject = {
            name: {
                "mean": table.mean(),
                **({"p_holm": corrected[name]} if name in corrected else {}),
                **({"coverage": asdict(self.coverage[name])} if name in self.coverage else {}),
            }
            for name, table in self.tables.items()
        }
        content: JsonObject = {"queries": len(self.first), "flavour": self.first.flavour, "counts": self.conventions}
        content |= alone if len(self.tables) == 1 else {}
        return {**content, "unjudged": self.unjudged, "test": TEST_NAMES[test], "runs": runs}

    def write(self, path: Path) -> None:
        """Write every query's values, as JSON if the suffix is .json, else as CSV; several runs get a run column."""
        if len(self.tables) == 1:
            (self.first.write_json if path.suffix == ".json" else self.first.write_csv)(path)
            return
        with atomic_text(path) as out:
            if path.suffix == ".json":
                runs: JsonObject = {name: each.as_json() for name, each in self.tables.items()}
                out.write(json_text({"flavour": self.first.flavour, "runs": runs}))
                return
            table = csv.writer(out, lineterminator="\n")
            table.writerow(["run", "query", *self.first.measures])
            for name, each in self.tables.items():
                for query_id, row in zip(each.query_ids, each.values.tolist(), strict=True):
                    table.writerow([name, query_id, *map(repr, row)])
