"""The section on what the models use: features and how much they count, for all queries and for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from querywise.evaluation.findings import Findings
from querywise.evaluation.reasons import Use
from querywise.report.charts import Mark, Row, row_chart
from querywise.report.drawings import Figure
from querywise.report.tables import Column, Table

_ROWS = 20  # of the table
_COLUMNS = 5  # beside the names of features
_DRAWN = 14  # features in the figure


def is_local(features: tuple[Use, ...]) -> bool:
    """Whether a method has models of its own for some queries."""
    return any(each.moved > 0 for each in features)


def looked_at(found: Findings) -> str | None:
    """The method whose models are shown beside the baseline's: with models by query if any has; the best of these."""
    known = [each for each in found.others if each.name in found.uses]
    best = max(
        known,
        key=lambda each: (is_local(found.uses[each.name]), each.name == found.shown, each.means[found.measure]),
        default=None,
    )
    return None if best is None else best.name


def features_text(found: Findings) -> str:
    """What the numbers are, and which methods have none."""
    text = (
        "The share of a feature is its part of what tells the candidates of a query apart: the spread of what it adds "
        "to their scores, divided by the sum of these spreads over all features; the mean over test queries. “Moved” "
        "is by how much the share under a query's own model differs from that under the same method's global model, up "
        "or down. All features under all methods are in report.json."
    )
    others = "".join(f" Not explained: {name}. {reason}" for name, reason in found.unexplained.items())
    return text + others


def features_table(found: Findings) -> Table:
    """The main features: their shares as in the figure, by how much these move, and under the best of the others."""
    name, sides = looked_at(found), _sides(found)
    columns = {each.told: each.shares for each in sides}
    if name is not None and is_local(found.uses[name]):
        columns[f"moved, {name}"] = {each.feature: each.moved for each in found.uses[name]}
    means = {each.name: each.means[found.measure] for each in found.methods}
    rest = sorted(set(found.uses) - {name, found.compared.baseline}, key=lambda each: -means[each])
    for other in rest[: _COLUMNS - len(columns)]:
        columns[other] = {each.feature: each.here for each in found.uses[other]}
    features = _largest_first(sides, *columns.values())
    rows = tuple((each, *(known.get(each) or None for known in columns.values())) for each in features[:_ROWS])
    left = len(features) - len(rows)
    caption = f"{left:,} further features count less." if left > 0 else ""
    return Table((Column("feature"), *(Column(each, "share") for each in columns)), rows, caption)


def features_figure(found: Findings) -> tuple[Figure, ...]:
    """The main features under the baseline, under another method's global model, and under its models by query."""
    sides = _sides(found)
    rows = []
    for feature in _largest_first(sides)[:_DRAWN]:
        marks = [
            Mark(100 * each.shares[feature], 0, f"{feature}, {each.told}: {each.shares[feature]:.1%}", *each.look)
            for each in sides
            if feature in each.shares
        ]
        ends = [mark.across for mark in marks]
        rows.append(Row(feature, marks, (min(ends), max(ends)), "c7"))
    if not rows:
        return ()
    said = "Share of the main features in the rankings"
    named = {each.told: each.look for each in sides}
    return (Figure("features.svg", said, row_chart(rows, label="share, %", named=named, said=said)),)


class _Side(NamedTuple):
    """Some models, their colour and mark, and the share of each feature under them."""

    told: str
    look: tuple[str, str]
    shares: dict[str, float]


def _sides(found: Findings) -> list[_Side]:
    """The baseline, and beside it the method looked at: its global model, where it has others, and what scores."""
    name, base = looked_at(found), found.compared.baseline
    sides = []
    if base in found.uses:
        sides.append(_Side(base, ("c0", "X"), {each.feature: each.here for each in found.uses[base]}))
    if name is not None:
        told, features = name, found.uses[name]
        if is_local(features):
            everyone = {each.feature: each.everyone for each in features}
            sides.append(_Side(f"{name}, global model", ("c5", "s"), everyone))
            told = f"{name}, by query"
        sides.append(_Side(told, ("c1", "o"), {each.feature: each.here for each in features}))
    return sides


def _largest_first(sides: Sequence[_Side], *others: dict[str, float]) -> list[str]:
    """Every feature that counts: by its largest share under these models, then under others, then by name."""

    def size(feature: str) -> tuple[float, float, str]:
        here = max((each.shares.get(feature, 0.0) for each in sides), default=0.0)
        return -here, -max((each.get(feature, 0.0) for each in others), default=0.0), feature

    every = [*(each.shares for each in sides), *others]
    return sorted({feature for known in every for feature, share in known.items() if share > 0}, key=size)
