"""What picking the best of a method's own models for each query could reach: sentences, a table and its text."""

from __future__ import annotations

from querywise.evaluation.findings import Findings
from querywise.report.tables import Column, Table

_NOTHING = 0.00005  # a difference that four digits do not show
_UPPER_BOUND = (
    "UpperBound is what the method would reach if it used, for each query, the one of its own models with the best "
    "average precision there."
)
_RELEVANT_ONLY = "RelevantOnly: if it used the model nearest to the query's true relevant documents."
_REACHABLE = (
    "Nothing reaches that, for it needs the judgments, and where few documents are judged the best model is often best "
    "by chance. Reachable is an estimate of what remains without them: each query's documents are split into two "
    "halves, and a model is picked on one half and measured on the other. Of the gap closed: how far the method has "
    "come from the baseline to reachable. Last column: if every query used its r-th best model, the r at which MAP is "
    "down to the baseline's."
)


def gap_lines(found: Findings) -> list[str]:
    """What picking the best of its own models could reach, and how much of that gain each method has."""
    base = found.compared.baseline
    lines = []
    for each in found.oracles:
        picking = f"Picking the best of {each.name}'s {each.models} models for each query"
        if each.reachable is None:
            could = f"{picking} by its judgments would reach MAP {each.upper_bound:.4f}."
        else:
            could = f"{picking}, without seeing its judgments, could reach MAP {each.reachable:.4f}."
        reached = f"{each.name} ({each.reached:.4f})"
        if each.reachable is not None and each.reached >= max(each.reachable - _NOTHING, each.baseline):
            lines.append(f"{picking}, without seeing its judgments, would not raise MAP above that of {reached}.")
        elif each.closed is not None:
            lines.append(f"{could} {reached} has {each.closed:.0%} of that gain over {base} ({each.baseline:.4f}).")
        elif each.reached < each.baseline:
            lines.append(f"{could} {reached} is below {base} ({each.baseline:.4f}).")
    return lines


def oracle_text(found: Findings) -> str:
    """The conclusions first, then what the columns of the table are."""
    only = [_RELEVANT_ONLY] if _has_relevant_only(found) else []
    return " ".join([*gap_lines(found), _UPPER_BOUND, *only, _REACHABLE])


def oracle_table(found: Findings) -> Table:
    """A row for each method that is made of models."""
    base, only = found.compared.baseline, _has_relevant_only(found)
    columns = (
        Column("method"),
        Column("models", "count"),
        Column("MAP reached", "value"),
        Column(f"MAP of {base}", "value"),
        Column("UpperBound", "value"),
        Column("reachable", "value"),
        Column("of the gap closed", "share"),
        *((Column("RelevantOnly", "value"),) if only else ()),
        Column(f"rank at which {base} is reached", "count"),
    )
    rows = tuple(
        (
            *(each.name, each.models, each.reached, each.baseline, each.upper_bound, each.reachable, each.closed),
            *((each.relevant_only,) if only else ()),
            each.baseline_rank,
        )
        for each in found.oracles
    )
    return Table(columns, rows)


def _has_relevant_only(found: Findings) -> bool:
    return any(each.relevant_only is not None for each in found.oracles)
