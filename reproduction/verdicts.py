"""The papers' claims, judged by one rule from values that are stored query by query, so that a reader can repeat it.

A claim names differences (`Part`), each above 0 where it goes as the paper says. The verdict is one of five:

- reproduced: all of them go as the paper says. p is the largest of their tests: significant below 0.05, or not, or
  "no test" where the claim is about a threshold, which is printed, and nothing was tested.
- not reproduced: one of them does not. p is the smallest of the tests of those that go the other way, times the number
  of tests that the claim rests on (Bonferroni), at most 1. Below 0.05 the verdict is
- reversed: the data contradict the claim significantly.
- not testable: the claim is about other data or other rivals, or names no limit.
- holds by construction: it could not have come out otherwise, or says no more than that something can be done.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from querywise.evaluation.compare import Compared
from querywise.evaluation.significance import SIGNIFICANT, equivalence_test, find_test
from querywise.report.tables import Cell, Column, Table
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.files import write_bytes

VALUES = "values.json.gz"
NOT_TESTABLE, CERTAIN, REVERSED = "not testable", "holds by construction", "reversed"
FAILED, REPRODUCED = "not reproduced", "reproduced"
OUTCOMES = (
    *(f"{REPRODUCED}, {how}" for how in ("significant", "not significant", "no test")),
    FAILED, REVERSED, NOT_TESTABLE, CERTAIN,
)  # fmt: skip
Values = dict[str, Floats]  # by name, a number for each test query; NaN where it has none


def column(*words: str) -> str:
    """The name of a column of values: `single | map`."""
    return " | ".join(words)


def values_of(compared: Compared) -> Values:
    """Every measure of every row."""
    return {
        column(name, measure): compared.evaluations[name][measure]
        for name in compared.names
        for measure in compared.measures
    }


class Part(NamedTuple):
    """One difference that a claim names: above 0 where it goes as the paper says.

    p: of its test, None where it is a threshold. test, columns, sign, among, bound: how to repeat it from the values,
    over the queries where both columns are known and, if named, the column `among` is not 0. settings: of how many it
    is the best one, where a claim says that something can be; p is that of its test times so many, at most 1.
    """

    difference: float
    p: float | None = None
    test: str = ""
    columns: tuple[str, ...] = ()
    sign: int = 1
    among: str = ""
    bound: float = 0.0
    settings: int = 1


class Claim(NamedTuple):
    """A claim with the paper's p, the result here with our p, the verdict, and what it rests on."""

    claim: str
    paper: str
    here: str
    p: float | None
    outcome: str
    parts: tuple[Part, ...] = ()


def paired(
    values: Values, ours: str, theirs: str, *, sign: int = 1, test: str = "t", among: str = "", settings: int = 1
) -> Part:
    """The difference of two columns by a paired test; sign −1 where the paper has ours below theirs."""
    chosen = known(values, ours, theirs, among=among)
    found = find_test(test)(values[ours][chosen], values[theirs][chosen])
    p = min(1.0, settings * found.p)
    return Part(sign * found.difference, p, test, (ours, theirs), sign, among, settings=settings)


def alike(values: Values, ours: str, theirs: str, bound: float) -> Part:
    """How far the difference of two columns is below a bound, by two one-sided tests; above it, by the opposite one."""
    found = equivalence_test(values[ours], values[theirs], bound)
    room = bound - abs(found.difference)
    return Part(room, found.p if room > 0 else 1 - found.p, "equivalence", (ours, theirs), bound=bound)


def within(value: float, low: float, high: float) -> Part:
    """A threshold, without a test: how far a value is inside its limits."""
    return Part(min(value - low, high - value))


def known(values: Values, *names: str, among: str = "") -> Bools:
    """The queries that have a value in every column, and belong."""
    found: Bools = ~np.any([np.isnan(values[name]) for name in names], axis=0)
    return found & (values[among] > 0) if among else found


def verdict(parts: Sequence[Part]) -> tuple[float | None, str]:
    """The p that a claim rests on, and what came out, by the rule above.

    >>> verdict([Part(0.1, 0.03), Part(0.2, 0.001)])
    (0.03, 'reproduced, significant')
    >>> verdict([Part(0.1, 0.03), Part(-0.2, 0.001)])
    (0.002, 'reversed')
    """
    ps = [part.p for part in parts if part.p is not None]
    if all(part.difference > 0 for part in parts):
        if not ps:
            return None, f"{REPRODUCED}, no test"
        return max(ps), f"{REPRODUCED}, {'' if max(ps) < SIGNIFICANT else 'not '}significant"
    against = [part.p for part in parts if part.difference < 0 and part.p is not None]
    if not against:
        return None, FAILED
    p = min(1.0, len(ps) * min(against))
    return p, REVERSED if p < SIGNIFICANT else FAILED


def claimed(claim: str, here: str, parts: Sequence[Part], *, paper: str = "") -> Claim:
    """A claim judged by the rule. `paper`: the p that the paper prints."""
    p, outcome = verdict(parts)
    return Claim(claim, paper, here, p, outcome, tuple(parts))


def untestable(claim: str, because: str, *, paper: str = "") -> Claim:
    """A claim that this data cannot test, and why."""
    return Claim(claim, paper, because, None, NOT_TESTABLE)


def certain(claim: str, here: str, *, paper: str = "") -> Claim:
    """A claim that could not have come out otherwise; `here` says why."""
    return Claim(claim, paper, here, None, CERTAIN)


def claims_table(claims: Sequence[Claim]) -> str:
    """The claims as a page shows them."""
    columns = (Column("the paper"), Column("its p"), Column("here"), Column("our p", "p"), Column("verdict"))
    rows: list[tuple[Cell, ...]] = [
        (each.claim, each.paper, "", None, f"{NOT_TESTABLE}: {each.here}") if each.outcome == NOT_TESTABLE else each[:5]
        for each in claims
    ]
    return Table(columns, tuple(rows)).markdown()


def write_values(path: Path, queries: Sequence[str], values: Values) -> None:
    """Write a number for each query and column as compressed JSON, to the last bit, unknown ones as null."""
    columns = {name: [None if np.isnan(each) else float(each) for each in found] for name, found in values.items()}
    content = json.dumps({"queries": list(queries), "columns": columns}, separators=(",", ":")) + "\n"
    write_bytes(path, gzip.compress(content.encode(), mtime=0))  # without a time the same numbers give the same bytes
