"""A paper's claims, each beside its test on the data at hand, and the files that list them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from querywise.report.tables import Column, Table
from querywise.runtime.files import atomic_text
from querywise.runtime.values import Json

REPRODUCED, NOT_REPRODUCED, NOT_TESTABLE = "reproduced", "not reproduced", "not testable here"


class Claim(NamedTuple):
    """The paper's claim, the result here, and whether it holds."""

    claim: str
    here: str
    outcome: str


def judged(claim: str, here: str, holds: bool | None) -> Claim:
    """A claim that holds, does not, or cannot be tested (None)."""
    return Claim(claim, here, NOT_TESTABLE if holds is None else REPRODUCED if holds else NOT_REPRODUCED)


def p_text(p: float) -> str:
    """As in `p = 0.041`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def write_findings(out: Path, numbers: Mapping[str, Json], tables: Sequence[str], claims: Sequence[Claim] = ()) -> Path:
    """Write numbers.json and table.md into a folder, the claims last in both; returns the table's path."""
    content = {**numbers, "claims": [each._asdict() for each in claims]} if claims else numbers
    with atomic_text(out / "numbers.json") as file:
        json.dump(content, file, indent=1)
        file.write("\n")
    with atomic_text(out / "table.md") as file:
        file.write("\n".join([*tables, _table(claims)] if claims else tables))
    return out / "table.md"


def _table(claims: Sequence[Claim]) -> str:
    return Table((Column("the paper"), Column("here"), Column("outcome")), tuple(map(tuple, claims))).markdown()
