"""The tables of the reproduction of aTVT, numbered as in the paper."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from querywise.contracts.answers import Scorer
from querywise.data.folds import Fold
from querywise.evaluation.compared import Compared
from querywise.evaluation.significance import wilcoxon_test
from querywise.rankers.atvt import ATVT
from querywise.report.tables import Cell, Column, Table
from querywise.reproduction.claims import p_text
from querywise.reproduction.zha2006_rows import FIXED, PLAIN, SCALES, SHIFTS, cell, rival
from querywise.runtime.arrays import Bools, Floats

MEASURE = "dcg@5"
AT = cell(*FIXED)
_INTERVALS = (0, 10, 25, 50, 75, 90, 100)
_MISSING = "not computed"


class Seen:
    """What only the fitted rankers know: the (α, β) of the training queries, and the objective after every step."""

    def __init__(self) -> None:
        self.transforms: dict[str, list[Floats]] = {}
        self.traces: dict[str, list[tuple[float, ...]]] = {}

    def look(self, fold: Fold, name: str, ranker: Scorer) -> None:
        """Remember what a fitted ranker has."""
        if isinstance(ranker, ATVT) and not name.startswith(PLAIN):
            self.transforms.setdefault(name, []).append(np.column_stack([ranker.scale_, ranker.shift_]))
            self.traces.setdefault(name, []).append(ranker.trace_)

    def moments(self, name: str) -> tuple[Floats, Floats]:
        """Means and variances of α and β over the training queries of all folds."""
        every = np.concatenate(self.transforms[name])
        return every.mean(axis=0), every.var(axis=0)


class Quarter(NamedTuple):
    """A quarter of the queries by how far they moved: how many, their relative gain and its p."""

    name: str
    queries: int
    gain: float
    p: float


def values(compared: Compared, name: str) -> Floats:
    """DCG@5 of every test query."""
    return compared.evaluations[name][MEASURE]


def gain(compared: Compared, name: str, chosen: Bools | None = None) -> tuple[float, float]:
    """The relative gain over the plain regression, and its p by Wilcoxon's test."""
    ours, theirs = (values(compared, each) for each in (name, rival(name)))
    if chosen is not None:
        ours, theirs = ours[chosen], theirs[chosen]
    if not len(ours):
        return 0.0, 1.0
    base = float(theirs.mean())
    return (float(ours.mean()) / base - 1 if base else 0.0), wilcoxon_test(ours, theirs).p


def distance(moved: Floats) -> Floats:
    """The key of Table 7, |α^0.1 − 1| + |β / 10|; of a negative α the root with its sign."""
    root = np.sign(moved[:, 0]) * np.abs(moved[:, 0]) ** 0.1
    found: Floats = np.abs(root - 1) + np.abs(moved[:, 1] / 10)
    return found


def grid_table(compared: Compared) -> Table:
    """Tables 2 and 3."""
    rows = _over_grid(compared, lambda name: _shown(compared, name))
    caption = (
        f"The paper's algorithm. {len(compared.judged)} test queries, flavour {compared.flavour}; without aTVT "
        f"{values(compared, PLAIN).mean():.4f}; p: Wilcoxon's signed-rank test against that."
    )
    return Table(_grid_columns("DCG@5 with aTVT"), rows, " ".join([caption, *compared.counted()]))


def rows_table(compared: Compared) -> Table:
    """Every row with its gain over the plain regression."""
    columns = (
        Column("method"),
        Column("DCG@5", "value"),
        Column("gain, %", "signed"),
        Column("p", "p"),
        Column("MAP", "value"),
        Column("against"),
    )
    rows: list[tuple[Cell, ...]] = []
    for name in compared.names:
        mean = compared.evaluations[name].mean()
        same = name.startswith(PLAIN)
        found, p = (None, None) if same else gain(compared, name)
        cells = (None if found is None else 100 * found, p, mean["map"], None if same else rival(name))
        rows.append((name, mean[MEASURE], *cells))
    return Table(columns, tuple(rows), "p: Wilcoxon's signed-rank test of DCG@5 against the plain regression named.")


def moves_table(compared: Compared, seen: Seen) -> Table:
    """Table 4."""

    def moments(name: str) -> str:
        mean, variance = seen.moments(name)
        return f"{mean[0]:.3f}, {variance[0]:.4f}; {mean[1]:+.3f}, {variance[1]:.4f}"

    columns = _grid_columns("mean and variance of α; of β")
    return Table(columns, _over_grid(compared, moments), "Over the training queries of all folds, all rounds together.")


class Interval(NamedTuple):
    """Queries between two percentiles by gain: their mean gain, that in per cent, and their mean α and β."""

    name: str
    gain: float
    percent: float | None
    scale: float | None
    shift: float | None


def percentiles(compared: Compared, moved: Floats) -> list[Interval]:
    """Tables 5 and 6: queries sorted by gain."""
    gains = values(compared, AT) - values(compared, PLAIN)
    by_gain = np.argsort(-gains, kind="stable")
    found = []
    for low, high in pairwise(_INTERVALS):
        own = by_gain[round(low * len(gains) / 100) : round(high * len(gains) / 100)]
        base = float(values(compared, PLAIN)[own].mean()) if len(own) else 0.0
        mean = float(gains[own].mean()) if len(own) else 0.0
        known = moved[own][np.isfinite(moved[own]).all(axis=1)]
        scale, shift = known.mean(axis=0).tolist() if len(known) else (None, None)
        found.append(Interval(f"{low} to {high} %", mean, 100 * mean / base if base else None, scale, shift))
    return found


def percentiles_table(compared: Compared, moved: Floats) -> Table:
    """Tables 5 and 6."""
    columns = (
        Column("queries, sorted by gain"),
        Column("gain in DCG@5", "signed"),
        Column("gain, %", "signed"),
        Column("mean α", "value"),
        Column("mean β", "signed"),
    )
    return Table(
        columns,
        tuple(percentiles(compared, moved)),
        f"{AT}, against {PLAIN}; α and β as training queries of other folds.",
    )


def quarters(compared: Compared, moved: Floats) -> list[Quarter]:
    """Table 7: the gain of quarters of the queries, those moved farthest first."""
    known = np.flatnonzero(np.isfinite(moved[:, 0]))
    parts = np.array_split(known[np.argsort(-distance(moved[known]), kind="stable")], 4)
    names = ("the quarter moved farthest", "the second", "the third", "the quarter moved least")
    found = []
    for name, own in zip(names, parts, strict=True):
        chosen = np.zeros(len(moved), np.bool_)
        chosen[own] = True
        found.append(Quarter(name, len(own), *gain(compared, AT, chosen)))
    return found


def by_move_table(compared: Compared, moved: Floats) -> Table:
    """Table 7."""
    columns = (Column("queries, by |α^0.1 − 1| + |β / 10|"), Column("queries", "count"), Column("gain, %", "signed"))
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (each.name, each.queries, *((100 * each.gain, each.p) if each.queries else (None, None)))
        for each in quarters(compared, moved)
    )
    return Table((*columns, Column("p", "p")), rows, f"DCG@5, {AT}, against {PLAIN}; p: Wilcoxon's test.")


def _grid_columns(corner: str) -> tuple[Column, ...]:
    return (Column(corner), *(Column(f"λ_β = {shift:g}") for shift in SHIFTS))


def _over_grid(compared: Compared, shown: Callable[[str], str]) -> tuple[tuple[Cell, ...], ...]:
    """A row for each λ_α; points that this size of data leaves out are marked."""
    return tuple(
        (
            f"λ_α = {scale:g}",
            *(shown(cell(scale, shift)) if cell(scale, shift) in compared.trained else _MISSING for shift in SHIFTS),
        )
        for scale in SCALES
    )


def _shown(compared: Compared, name: str) -> str:
    found, p = gain(compared, name)
    return f"{values(compared, name).mean():.4f} ({100 * found:+.2f} %, {p_text(p)})"
