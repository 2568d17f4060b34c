"""Every method against the baseline on the same queries: difference, interval, p, and p by Holm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from querywise.display.tables import Cell, Column, table
from querywise.display.words import in_columns, p_value, short
from querywise.errors import DataError
from querywise.evaluation.evaluate import Evaluation
from querywise.evaluation.significance import TEST_NAMES, bootstrap_interval, find_test, holm

_SURE = 0.05
_MOST = 12  # methods in a text


@dataclass(frozen=True)
class Difference:
    """A method's mean of one measure, less the baseline's. p_holm: corrected for the number of methods."""

    name: str
    difference: float
    p: float
    p_holm: float
    interval: tuple[float, float]

    @property
    def is_significant(self) -> bool:
        """Whether the corrected p is below 0.05."""
        return self.p_holm < _SURE


@dataclass(frozen=True, eq=False)
class Differences:
    """Evaluations of the same queries, by method, against that of the baseline."""

    evaluations: Mapping[str, Evaluation]
    baseline: str

    @property
    def base(self) -> Evaluation:
        """The baseline's evaluation."""
        return self.evaluations[self.baseline]

    def tested(self, measure: str, test: str) -> dict[str, tuple[float, float, float]]:
        """Method → its difference, p and p by Holm in one measure; the baseline has none."""
        compute, theirs = find_test(test), self.base[measure]
        others = {name: each[measure] for name, each in self.evaluations.items() if name != self.baseline}
        found = {name: compute(ours, theirs) for name, ours in others.items()}
        corrected = holm([each.p for each in found.values()]) if found else []
        return {name: (each.difference, each.p, p) for (name, each), p in zip(found.items(), corrected, strict=True)}

    def corrected(self, test: str) -> dict[str, dict[str, float]]:
        """Method → measure → p by Holm; the baseline has none."""
        by_measure = {measure: self.tested(measure, test) for measure in self.base.measures}
        others = [name for name in self.evaluations if name != self.baseline]
        return {name: {measure: found[name][2] for measure, found in by_measure.items()} for name in others}

    def with_intervals(self, measure: str, test: str) -> list[Difference]:
        """Every method but the baseline, with the bootstrap interval of its difference."""
        theirs = self.base[measure]
        return [
            Difference(name, *numbers, bootstrap_interval(self.evaluations[name][measure], theirs))
            for name, numbers in self.tested(measure, test).items()
        ]

    def columns(self, test: str) -> dict[str, Column]:
        """A row per method: of every measure the mean, the difference, p and p by Holm."""
        found: dict[str, Column] = {"method": list(self.evaluations)}
        for measure in self.base.measures:
            tested = self.tested(measure, test)
            every = [tested.get(name, (0.0, float("nan"), float("nan"))) for name in self.evaluations]
            found[measure] = [float(each[measure].mean()) for each in self.evaluations.values()]
            for place, what in enumerate(("difference", "p", "p_holm")):
                found[f"{measure}_{what}"] = [numbers[place] for numbers in every]
        return found

    def by_query(self, fold_of: Column) -> dict[str, Column]:
        """A row per method and query: the query, its fold, the method, and the value of every measure."""
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
        """Headings and rows of the table people read."""
        headings, cells = ["method"], list[list[Cell]]([short(name)] for name in self.evaluations)
        for measure in self.base.measures:
            headings += [measure, "difference", "p (Holm)"]
            tested = self.tested(measure, test)
            for row, (name, each) in zip(cells, self.evaluations.items(), strict=True):
                known = tested.get(name)
                row.append(f"{each[measure].mean():.4f}")
                row.extend(["", ""] if known is None else [f"{known[0]:+.4f}", p_value(known[2])])
        return headings, cells

    def text(self, first: str, test: str = "t") -> str:
        """A line, and a line per method below it, numbers in columns."""
        headings, rows = self.rows(test)
        lines = [headings, *([str(cell) for cell in row] for row in rows[:_MOST])]
        left = [f"… and {len(rows) - _MOST} more"] if len(rows) > _MOST else []
        return "\n  ".join([first, *in_columns(lines), *left])

    def html(self, title: str, test: str = "t", notes: Sequence[str] = ()) -> str:
        """The same as an HTML table, with notes below it."""
        headings, rows = self.rows(test)
        others = len(self.evaluations) - 1
        many = f", Holm's correction for {others} methods" if others > 1 else ""
        tested = [f"p: {TEST_NAMES[test]} against {self.baseline}{many}"] if others else []
        return table(headings, rows, title=title, notes=[*tested, *notes])


def require_known(by: str) -> None:
    """Refuse anything but the two kinds of rows there are."""
    if by not in ("method", "query"):
        raise DataError(f"to_frame(by={by!r}) is unknown. Known: by='method', by='query'.")
