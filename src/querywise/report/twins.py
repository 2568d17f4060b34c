"""The section on near twins: what leaks from training to test, and what every method gains by it."""

from __future__ import annotations

from querywise.evaluation.findings import Findings
from querywise.evaluation.significance import TEST_NAMES
from querywise.report.tables import Cell, Column, Table


def twins_text(found: Findings) -> str:
    """What leaks and what to do about it; empty where nothing does and no groups were given."""
    leaks = found.compared.twins
    return "" if leaks is None else f"{leaks.text} {leaks.advice}".strip()


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
