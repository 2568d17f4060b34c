"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table

from querywise.contracts import Ranker
from querywise.evaluation.compare import Compared
from querywise.evaluation.evaluate import Evaluation
from querywise.explanations import Explanation
from querywise.tuning import Tuned


def means_table(evaluation: Evaluation) -> Group:
    """The averages of one evaluation."""
    table = _table("measure", "mean")
    for measure, value in evaluation.mean().items():
        table.add_row(measure, f"{value:.4f}")
    return Group(table, f"{len(evaluation)} queries, flavour {evaluation.flavour}")


def comparison_table(compared: Compared) -> Group:
    """Every ranker's averages, and the paired test of each measure against the first ranker."""
    first = compared.names[0]
    sample = compared.evaluations[first]
    headings = [each for measure in sample.measures for each in (measure, "p")]
    caption = (
        f"{len(sample)} test queries, flavour {sample.flavour}; "
        f"p: paired t-test against {first}, parameters chosen on validation data"
    )
    table = _table("method", *headings, "training", "ms/query")
    for name in compared.names:
        cells = []
        for measure, mean in compared.evaluations[name].mean().items():
            p = "" if name == first else _p(compared.against_first(name, measure).p)
            cells += [f"{mean:.4f}", p]
        cost = (f"{compared.fit_seconds[name]:.1f} s", f"{compared.predict_milliseconds[name]:.3f}")
        table.add_row(name, *cells, *cost)
    return Group(table, caption)


def trials_table(tuned: Tuned[Ranker]) -> Table:
    """What was tried, the chosen setting marked."""
    names = [name for name in tuned.parameters if len({str(trial.parameters[name]) for trial in tuned.tried}) > 1]
    table = _table("", *names, f"{tuned.measure} on valid")
    for trial in tuned.tried:
        mark = "→" if trial.parameters == tuned.parameters else ""
        table.add_row(mark, *(str(trial.parameters[name]) for name in names), f"{trial.value:.4f}")
    return table


def explanation_tables(explanation: Explanation, show: int) -> Group:
    """The neighbours of a query, and how its weights depart from the global model's."""
    found = explanation
    if found.is_global:
        return Group(f"Query {found.query_id} is answered by the global model: it is far from every training query.")
    neighbours = _table("training query", "distance", "weight", "pairs")
    for each in found.neighbours[:show]:
        neighbours.add_row(each.query_id, f"{each.distance:.3f}", f"{each.weight:.4f}", str(each.pairs))
    count = len(found.neighbours)
    parts: list[Any] = [
        f"Query {found.query_id}: its model was trained on {count} queries, the nearest {min(show, count)}:",
        neighbours,
    ]
    if found.departures:
        weights = _table("feature", "global weight", "this query's", "effect here")
        for departure in found.departures[:show]:
            numbers = (departure.everyone, departure.here, departure.effect)
            weights.add_row(departure.feature, *(f"{number:+.4f}" for number in numbers))
        parts += ["Weights that differ most; effect: the difference times the feature's spread here:", weights]
    return Group(*parts)


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of texts."""
    table = _table(*headings)
    for column in table.columns:
        column.justify = "left"
    for row in rows:
        table.add_row(*row)
    return table


def _table(first: str, *others: str) -> Table:
    from rich.box import SIMPLE_HEAD

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _p(value: float) -> str:
    return "<0.0001" if value < 1e-4 else f"{value:.4f}"
