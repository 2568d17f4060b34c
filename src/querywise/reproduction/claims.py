"""A paper's claims, each beside what the data at hand says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from querywise.report.tables import Column, Table

REPRODUCED, NOT_REPRODUCED, NOT_TESTABLE = "reproduced", "not reproduced", "not testable here"


class Claim(NamedTuple):
    """What the paper says, what came out here, and what follows."""

    claim: str
    here: str
    outcome: str


def judged(claim: str, here: str, holds: bool | None) -> Claim:
    """A claim that holds, does not, or cannot be tested (None)."""
    return Claim(claim, here, NOT_TESTABLE if holds is None else REPRODUCED if holds else NOT_REPRODUCED)


def p_text(p: float) -> str:
    """As in `p = 0.041`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def claims_table(claims: Sequence[Claim]) -> str:
    """As Markdown."""
    return Table((Column("the paper"), Column("here"), Column("outcome")), tuple(map(tuple, claims))).markdown()
