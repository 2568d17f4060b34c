"""The section on near twins: what leaks from training to test, and what every method gains by it."""

from __future__ import annotations

from querywise.display.words import p_value
from querywise.evaluation.findings import Findings
from querywise.evaluation.significance import TEST_NAMES
from querywise.report.tables import Cell, Column, Table


def twins_text(found: Findings) -> str:
    """What leaks and what to do about it; empty where nothing does and no groups were given."""
    leaks = found.compared.twins
    return "" if leaks is None else " ".join(filter(None, (leaks.text, rest_text(found), leaks.advice)))


def rest_text(found: Findings) -> str:
    """What the method that is looked at gains on the queries without a near twin; empty where nothing leaks."""
    gain = found.on_twins.get(found.shown or "")
    if gain is None or gain.rest is None:
        return ""
    rest = gain.rest
    p = f"p {'' if rest.p < 1e-4 else '= '}{p_value(rest.p)}"
    queries = rest.wins + rest.ties + rest.losses
    return (
        f"On the other {queries:,} queries {found.shown} differs from {found.compared.baseline} by "
        f"{rest.difference:+.4f} in {found.measure} ({p})."
    )


def twins_tables(found: Findings) -> tuple[tuple[str, Table], ...]:
    """Every method's gain over the baseline on test queries with a near twin and on the rest, with its file's name."""
    leaks = found.compared.twins
    if leaks is None or not found.on_twins:
        return ()
    near = int(leaks.found.sum())
    columns = (
        Column("method"),
        Column(f"Δ {found.measure}, near twins ({near:,})", "signed"),
        Column("p, near twins", "p"),
        Column(f"Δ {found.measure}, the rest ({len(leaks.found) - near:,})", "signed"),
        Column("p, the rest", "p"),
    )
    rows: list[tuple[Cell, ...]] = []
    for name, gain in found.on_twins.items():
        sides = (gain.twins, gain.rest)
        cells = [cell for each in sides for cell in ((None, None) if each is None else (each.difference, each.p))]
        rows.append((name, *cells))
    caption = (
        f"Difference in {found.measure} from {found.compared.baseline} on test queries with a near twin among those "
        f"learned from, and on the rest, number of queries in brackets; p: {TEST_NAMES[found.test]}, uncorrected."
    )
    return (("near-twins", Table(columns, tuple(rows), caption)),)
