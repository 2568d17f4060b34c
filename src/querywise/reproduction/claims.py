"""A paper's claims, each beside its test on the data at hand, and the files that list them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from querywise.report.tables import Cell, Column, Table
from querywise.runtime.files import atomic_text
from querywise.runtime.values import Json

SIGNIFICANT = 0.05
NUMBERS = "numbers.json"
SAME_SIGNIFICANT = "same direction, significant"
SAME = "same direction, not significant"
NOT_REPRODUCED = "not reproduced"
NOT_TESTABLE = "not testable here"
QUICK = "**A quick run: the first fold and thin grids. It shows the shape of the tables; do not quote its numbers.**\n"


class Claim(NamedTuple):
    """A claim with the paper's p, the result here with our p, and what the one rule says of it."""

    claim: str
    paper: str
    here: str
    p: float | None
    outcome: str


def claimed(claim: str, here: str, *, same: bool, p: float | None = None, paper: str = "") -> Claim:
    """A claim by the one rule: the direction is the paper's or not, and if it is, p is below 0.05 or not.

    `same`: every difference that the claim names has the paper's sign. `p`: the largest of their p; without a test
    (None) nothing is significant. `paper`: the p that the paper prints.
    """
    if not same:
        return Claim(claim, paper, here, p, NOT_REPRODUCED)
    return Claim(claim, paper, here, p, SAME_SIGNIFICANT if p is not None and p < SIGNIFICANT else SAME)


def untestable(claim: str, because: str, *, paper: str = "") -> Claim:
    """A claim that this data cannot test, and why."""
    return Claim(claim, paper, because, None, NOT_TESTABLE)


def p_text(p: float) -> str:
    """As in `p = 0.041`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def write_findings(out: Path, numbers: Mapping[str, Json], tables: Sequence[str], claims: Sequence[Claim] = ()) -> Path:
    """Write numbers.json and table.md into a folder, the claims last in both; returns the table's path.

    What the tables print is in numbers.json too, cell by cell.
    """
    content = {**numbers, "printed": [printed(each) for each in tables]}
    if claims:
        content["claims"] = [each._asdict() for each in claims]
    with atomic_text(out / NUMBERS) as file:
        json.dump(content, file, indent=1)
        file.write("\n")
    with atomic_text(out / "table.md") as file:
        file.write("\n".join([*tables, _table(claims)] if claims else tables))
    return out / "table.md"


def printed(table: str) -> list[Json]:
    """The rows of a table as they are printed, without headings; a line of words is a row of its own."""
    lines = [line for line in table.splitlines() if line.strip()]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [list(row) for row, line in zip(rows, lines, strict=True) if not line.startswith("| ---")]


def _table(claims: Sequence[Claim]) -> str:
    columns = (Column("the paper"), Column("its p"), Column("here"), Column("our p", "p"), Column("outcome"))
    return Table(columns, tuple(_row(each) for each in claims)).markdown()


def _row(claim: Claim) -> tuple[Cell, ...]:
    if claim.outcome == NOT_TESTABLE:
        return (claim.claim, claim.paper, "", None, f"{NOT_TESTABLE}, because {claim.here}")
    return (claim.claim, claim.paper, claim.here, claim.p, claim.outcome)
