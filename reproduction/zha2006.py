"""Adaptive target value transformation [zha2006]_: its tables, its figures, its claims.

Regression by boosted trees with and without aTVT, DCG@5 of the textbook. Shrinkage, and the number of trees, are chosen
for the plain regression on the validation part of each fold, and hold for aTVT too.

Rows named *aTVT* are the paper's own algorithm, and the claims are judged on them: regression without weights on
targets that every round transforms anew, the penalties on each round's own step, at most ten rounds, stopped when the
sum of the norms of change is 0.001, α not kept from falling below 0. λ is chosen by NDCG@5 (DCG@5, every query counting
the same) in a threefold cross-validation over training and validation queries, out of the nine points of the grid. The
grid itself, Tables 2 to 4, is on test queries and chooses nothing. Tables 5 to 7 have the paper's λ_α = 10, λ_β = 1,
and so has every row that names no λ. *L1, one round*: λ_α = 100, λ_β = 0.2, the paper's.

*weighted* is our form, the objective as the paper writes it: weights α², the penalties on all rounds together, α ≥ 0,
at most four rounds; *running* is the same without weights. *one (α, β) per class* and *monotone*, any non-decreasing
function of the grades with λ_β on how far it moves each, are what the paper leaves open; the first needs classes.
*kernel*: kernel regression. *query columns*: the mean of every feature over the query's candidates beside the features.
*planted*: grades of training and validation queries multiplied by 1, 2 or 4 and raised by 0, 2 or 4, at random by
query; test queries are as they were.

With more than 50,000 training documents, so that a run takes minutes and not hours: at most 100 trees with shrinkage
0.1, the grid is its diagonal, λ is chosen of these three points on the validation part, and there is no kernel. A quick
run does the same on the first fold, with 50 trees and three rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import mannwhitneyu, spearmanr

from querywise.contracts.answers import Scorer
from querywise.data.folds import Fold, Folds
from querywise.data.judged import Judged, concatenate
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.significance import wilcoxon_test
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import Tuned, cross_validated, tune
from querywise.methods import METHODS
from querywise.rankers.atvt import ATVT
from querywise.report.tables import Cell, Column, Table, columns_of
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.files import make_folder
from querywise.runtime.values import Grid, JsonObject
from reproduction.papers import gains_figure, line_figure, p_text, write_findings
from reproduction.verdicts import (
    Claim,
    Part,
    Values,
    certain,
    claimed,
    column,
    paired,
    untestable,
    values_of,
)

PLAIN = "regression"
CHOSEN_BY = "ndcg@5"
SCALES = (1.0, 10.0, 100.0)
SHIFTS = (0.1, 1.0, 10.0)
FIXED = (10.0, 1.0)  # λ_α and λ_β of the paper's Tables 5 to 7
STEPWISE = (100.0, 1.0)  # of the rows with fewer rounds
ROUNDS = (1, 4)
CHOSEN = "aTVT, λ by cross-validation"
BY_VALIDATION = "aTVT, λ by validation"
FIRST = "aTVT, L1, one round"
NONE = "aTVT, no regularisation"
WEIGHTED = "weighted"
CLASSES, MONOTONE = "one (α, β) per class", "monotone"
COLUMNS, PLANTED = "query columns", "planted"
_MANY = 50_000  # training documents
_PARTS = 3
MEASURE = "dcg@5"
_INTERVALS = (0, 10, 25, 50, 75, 90, 100)
_MISSING = "not computed"
_MEASURES = (MEASURE, "map")
AWAY = "|α − 1| + |β|"
_LITTLE, _MUCH = (25, 75), 10  # per cent of the queries sorted by gain: in the middle, and at either end


def reproduce(folds: Folds, out: Path, *, quick: bool = False) -> Path:
    """Write table.md, numbers.json and the figures into a folder; returns the table's path.

    quick: the shape of every table from one fold; its numbers are not to be quoted.
    """
    make_folder(out)
    parts = [folds[0]] if quick else list(folds)
    size, seen = Size.of(parts[0], quick=quick), Seen()
    classes = any(name is not None for name in parts[0].train.classes)
    compared = compare(fits(size, classes=classes), parts, measures=_MEASURES, observe=seen.look)
    for name, change in ((COLUMNS, with_query_columns), (PLANTED, planted)):
        changed = [change(fold, number) for number, fold in enumerate(parts)]
        more = compare(changed_fits(name, size), changed, measures=_MEASURES)
        compared = replace(compared, trained={**compared.trained, **more.trained})
    moved = compared.moved(AT)
    assert moved is not None, "aTVT reports how it moved"
    tables = [
        grid_table(compared),
        rows_table(compared),
        moves_table(compared, seen),
        percentiles_table(compared, moved),
        by_move_table(compared, moved),
    ]
    _draw(out, compared, seen, moved)
    known = {**values_of(compared), **_more_values(compared, moved)}
    numbers, claims = _numbers(compared, seen, moved), _claims(compared, size, known, moved)
    queries = compared.judged.candidates.query_ids
    return write_findings(out, numbers, tables, claims, quick=quick, queries=queries, values=known)


class Size(NamedTuple):
    """How much is computed: everything, less of it where there is much data, or the first fold quickly."""

    rounds: int = 10
    cells: tuple[tuple[float, float], ...] = tuple(product(SCALES, SHIFTS))
    growth: Mapping[str, Sequence[int | float]] | None = None  # of trees; None: the method's own grid
    crossed: bool = True  # λ by cross-validation
    kernel: bool = True

    @staticmethod
    def of(fold: Fold, *, quick: bool) -> Size:
        """The size for this data."""
        diagonal = tuple(zip(SCALES, SHIFTS, strict=True))
        if quick:
            return Size(3, diagonal, {"trees": [50], "learning_rate": [0.1]}, crossed=False, kernel=False)
        if len(fold.train.labels) > _MANY:
            return Size(10, diagonal, {"trees": [100], "learning_rate": [0.1]}, crossed=False, kernel=False)
        return Size()

    @property
    def chosen(self) -> str:
        """The row in which the paper's algorithm has its λ chosen."""
        return CHOSEN if self.crossed else BY_VALIDATION

    @property
    def papers(self) -> Grid:
        """The paper's algorithm: without weights, updating the targets, α free, stopped by the sum of norms."""
        return {"variant": ["updating"], "nonnegative": [False], "stop": ["norms"], "rounds": [self.rounds]}


def cell(scale: float, shift: float) -> str:
    """The name of a point of the grid."""
    return f"aTVT, λ_α = {scale:g}, λ_β = {shift:g}"


def rounds_row(rounds: int) -> str:
    """The name of a row with fewer rounds."""
    return f"{cell(*STEPWISE)}, {rounds} round{'s' if rounds > 1 else ''}"


def fits(size: Size, *, classes: bool) -> dict[str, Fit]:
    """The rows on the data as it is, the paper's first."""
    paper, fixed, unheld = size.papers, _held(*FIXED), _held(0.0, 0.0)
    found: dict[str, Fit] = {PLAIN: _plain(size), size.chosen: _chosen(size, paper)}
    found |= {cell(*each): _atvt(size, {**paper, **_held(*each)}) for each in size.cells}
    if STEPWISE not in size.cells:
        found[cell(*STEPWISE)] = _atvt(size, {**paper, **_held(*STEPWISE)})
    for rounds in ROUNDS:
        found[rounds_row(rounds)] = _atvt(size, {**paper, **_held(*STEPWISE), "rounds": [rounds]})
    found[FIRST] = _atvt(size, {**paper, **_held(100.0, 0.2), "rounds": [1], "penalty": ["l1"]})
    found[NONE] = _atvt(size, {**paper, **unheld})
    found[size.chosen.replace("aTVT", WEIGHTED)] = _chosen(size, {})
    found[WEIGHTED] = _atvt(size, fixed)
    found[f"{WEIGHTED}, no regularisation"] = _atvt(size, unheld)
    found["running"] = _atvt(size, {**fixed, "variant": ["running"]})
    if classes:
        found[CLASSES] = _atvt(size, {**paper, **fixed, "per": ["class"]})
    found[MONOTONE] = _atvt(size, {**paper, **fixed, "transform": ["monotone"]})
    if size.kernel:
        found[f"{PLAIN}, kernel"] = _plain(size, "kernel")
        found["kernel"] = _atvt(size, {**paper, **fixed}, "kernel")
        found[f"kernel, {WEIGHTED}"] = _atvt(size, fixed, "kernel")
    return found


def changed_fits(name: str, size: Size) -> dict[str, Fit]:
    """The rows on changed data: the paper's algorithm and ours, with the paper's λ."""
    fixed = _held(*FIXED)
    found: dict[str, Fit] = {f"{PLAIN}, {name}": _plain(size)}
    found[f"aTVT, {name}"] = _atvt(size, {**size.papers, **fixed})
    found[f"{WEIGHTED}, {name}"] = _atvt(size, fixed)
    return found


def rival(name: str) -> str:
    """The plain regression a row is compared with."""
    kind = next((each for each in (COLUMNS, PLANTED) if name.endswith(each)), None)
    kind = "kernel" if name.startswith("kernel") else kind
    return PLAIN if kind is None else f"{PLAIN}, {kind}"


def _fit_plain(size: Size, base: str, train: Judged, valid: Judged) -> Tuned[Any]:
    """Plain regression, its shrinkage or smoothness chosen."""
    known = METHODS[PLAIN]
    tried = known.grid_on(train, base) if size.growth is None or base != "trees" else size.growth
    return tune(known.build, {**tried, "base": [base]}, train=train, valid=valid, measure=CHOSEN_BY)


def _plain(size: Size, base: str = "trees") -> Fit:
    return partial(_fit_plain, size, base)


def with_query_columns(fold: Fold, number: int) -> Fold:
    """The mean of every feature over the query's candidates, beside the features."""
    return Fold(*(_widened(part) for part in fold))


def planted(fold: Fold, number: int) -> Fold:
    """Grades of training and validation queries multiplied by 1, 2 or 4 and raised by 0, 2 or 4, at random by query."""
    rng = np.random.default_rng(number)

    def changed(part: Judged) -> Judged:
        sizes = part.candidates.sizes
        scale, shift = (np.repeat(rng.choice(each, len(sizes)), sizes) for each in ((1, 2, 4), (0, 2, 4)))
        known = 1 if part.judged is None else part.judged.astype(np.int64)  # what nobody judged stays 0
        return replace(part, labels=known * (scale * part.labels + shift))

    return Fold(changed(fold.train), changed(fold.valid), fold.test)


def _held(scale: float, shift: float) -> Grid:
    return {"scale_penalty": [scale], "shift_penalty": [shift]}


def _fit_atvt(size: Size, grid: Grid, base: str, train: Judged, valid: Judged) -> Tuned[Any]:
    """One setting, on the plain regression's own."""
    settled = {name: [value] for name, value in _fit_plain(size, base, train, valid).parameters.items()}
    return tune(METHODS["atvt"].build, {**settled, **grid}, train=train, valid=valid, measure=CHOSEN_BY)


def _atvt(size: Size, grid: Grid, base: str = "trees") -> Fit:
    return partial(_fit_atvt, size, grid, base)


def _chosen(size: Size, grid: Grid) -> Fit:
    """λ of the grid's points, chosen by cross-validation, or on the validation part."""
    return partial(_by_cross_validation if size.crossed else _by_validation, size, grid)


def _by_validation(size: Size, grid: Grid, train: Judged, valid: Judged) -> Tuned[Any]:
    tried = [_fit_atvt(size, {**grid, **_held(*point)}, "trees", train, valid) for point in size.cells]
    best = max(tried, key=lambda tuned: tuned.value)
    return replace(best, tried=tuple(trial for tuned in tried for trial in tuned.tried))


def _by_cross_validation(size: Size, grid: Grid, train: Judged, valid: Judged) -> Tuned[Any]:
    """Over all queries but the test queries; then trained as the grid's points are."""
    first = _fit_plain(size, "trees", train, valid)
    settled = {**first.parameters, "trees": first.ranker.regressor_.tree_count_}
    every = {**{name: [value] for name, value in settled.items()}, **grid}
    scales, shifts = ([*dict.fromkeys(each)] for each in zip(*size.cells, strict=True))
    every |= {"scale_penalty": scales, "shift_penalty": shifts}
    both = concatenate([train, valid])
    tried = cross_validated(METHODS["atvt"].build, every, data=both, folds=_PARTS, measure=CHOSEN_BY)
    best = max(tried, key=lambda trial: trial.value).parameters
    ranker = METHODS["atvt"].build(**{**best, "trees": first.ranker.regressor.trees}).fit(train, valid=valid)
    return Tuned(best, CHOSEN_BY, "standard", tried, ranker=ranker, folds=_PARTS)


def _widened(data: Judged) -> Judged:
    candidates = data.candidates
    sums = np.zeros((len(candidates), candidates.features.shape[1]))
    np.add.at(sums, candidates.query_of_row, candidates.features)
    means = sums / np.maximum(candidates.sizes, 1)[:, None]
    features = np.hstack([candidates.features, np.repeat(means, candidates.sizes, axis=0)])
    return replace(data, candidates=replace(candidates, features=features, feature_names=None))


AT = cell(*FIXED)


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
    kinds = {"method": "text", "DCG@5": "value", "gain, %": "signed", "p": "p", "MAP": "value", "against": "text"}
    rows: list[tuple[Cell, ...]] = []
    for name in compared.names:
        mean = compared.evaluations[name].mean()
        same = name.startswith(PLAIN)
        found, p = (None, None) if same else gain(compared, name)
        cells = (None if found is None else 100 * found, p, mean["map"], None if same else rival(name))
        rows.append((name, mean[MEASURE], *cells))
    caption = "p: Wilcoxon's signed-rank test of DCG@5 against the plain regression named."
    return Table(columns_of(kinds), tuple(rows), caption)


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
    kinds = {"queries, sorted by gain": "text", "gain in DCG@5": "signed", "gain, %": "signed", "mean α": "value"}
    caption = f"{AT}, against {PLAIN}; α and β as training queries of other folds."
    return Table(columns_of({**kinds, "mean β": "signed"}), tuple(percentiles(compared, moved)), caption)


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
    kinds = {"queries, by |α^0.1 − 1| + |β / 10|": "text", "queries": "count", "gain, %": "signed", "p": "p"}
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (each.name, each.queries, *((100 * each.gain, each.p) if each.queries else (None, None)))
        for each in quarters(compared, moved)
    )
    return Table(columns_of(kinds), rows, f"DCG@5, {AT}, against {PLAIN}; p: Wilcoxon's test.")


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


ALPHA, BETA, MOVED, GAINED = "α", "β", "|α^0.1 − 1| + |β / 10|", "gain"
LITTLE, MUCH = "DCG hardly changes", "DCG changes much"


def _more_values(compared: Compared, moved: Floats) -> Values:
    """(α, β) of every test query as a training query of other folds, how far it moved, and where DCG changed."""
    gains = values(compared, AT) - values(compared, PLAIN)
    by_gain, count = np.argsort(-gains, kind="stable"), len(gains)
    low, high, few = (round(share * count / 100) for share in (*_LITTLE, _MUCH))
    little, much = np.zeros((2, count))
    little[by_gain[low:high]] = 1
    much[by_gain[:few]] = much[by_gain[count - few :]] = 1
    found = {column(AT, ALPHA): moved[:, 0], column(AT, BETA): moved[:, 1], column(AT, MOVED): distance(moved)}
    found |= {column(AT, GAINED): gains, LITTLE: little, MUCH: much}
    for name in _diagonal():
        if (own := compared.moved(name)) is not None:
            found[column(name, AWAY)] = np.abs(own - [1, 0]).sum(axis=1)
    return found


def _diagonal() -> list[str]:
    return [cell(scale, shift) for scale, shift in zip(SCALES, SHIFTS, strict=True)]


def _claims(compared: Compared, size: Size, known: Values, moved: Floats) -> list[Claim]:
    def part(name: str, sign: int = 1) -> Part:
        ours, theirs = (column(each, MEASURE) for each in (name, rival(name)))
        return paired(known, ours, theirs, sign=sign, test="wilcoxon")

    def about(claim: str, name: str, more: str = "", *, sign: int = 1, paper: str = "") -> Claim:
        """A claim that a row gains on the plain regression, or by sign -1 loses."""
        found, p = gain(compared, name)
        return claimed(claim, f"{100 * found:+.2f} %, {p_text(p)}{more}", [part(name, sign)], paper=paper)

    cells = {each: gain(compared, cell(*each)) for each in size.cells}
    best = max(cells, key=lambda each: cells[each][0])
    columns, p = gain(compared, f"aTVT, {COLUMNS}")
    return [
        about(
            "aTVT raises DCG@5 (by 1 to 2 % there)", size.chosen, f" ({size.chosen.removeprefix('aTVT, ')})",
            paper="0.01 and 0.006, all that is legible",
        ),
        claimed(
            "So it does at every point of the grid (Tables 2, 3)",
            f"{sum(each > 0 for each, _ in cells.values())} of {len(cells)} points gain, "
            f"{sum(each > 0 and p < 0.05 for each, p in cells.values())} with p < 0.05; the best, "
            f"{cell(*best).removeprefix('aTVT, ')}, {100 * cells[best][0]:+.2f} % ({p_text(cells[best][1])})",
            [part(cell(*each)) for each in cells],
            paper="0.01 and 0.006, all that is legible",
        ),
        about("Without regularisation it hurts", NONE, sign=-1),
        _held_claim(known),
        *_little_change(known),
        untestable("Queries that gain or lose most have fewer lines of anchor text", "there is no anchor text"),
        _farther(known, quarters(compared, moved)),
        about("One round with L1 gains (λ_α = 100, λ_β = 0.2)", FIRST, paper="0.001"),
        certain(
            "It can be used with query-level columns among the features too",
            f"it can; whether it gains is not claimed (here {100 * columns:+.2f} %, {p_text(p)})",
        ),
        *CERTAIN,
    ]  # fmt: skip


CERTAIN = (
    certain(
        "A new query needs no (α, β): h ranks its documents as g(h) does (§3)",
        "an increasing g keeps the order",
    ),
    certain(
        "With kernels every limit point of the alternating optimization is stationary (Theorem 2)",
        "a theorem; the figure shows how the objective falls",
    ),
)


def _held_claim(known: Values) -> Claim:
    """Larger λ move (α, β) toward (1, 0): by the mean distance, along the diagonal of the grid."""
    names = [column(name, AWAY) for name in _diagonal()]
    there = [known[name][~np.isnan(known[name])] for name in names]  # a quick run may have none
    means = ", ".join(f"{each.mean() if len(each) else math.nan:.3f}" for each in there)
    here = f"mean |α − 1| + |β| {means} along the diagonal"
    steps = [paired(known, less, more) for less, more in pairwise(names)]
    return claimed("Larger λ bring (α, β) toward (1, 0) (Table 4)", f"{here} (paired t-tests over queries)", steps)


def _little_change(known: Values) -> list[Claim]:
    """Table 6: the queries in the middle by gain against those at either end."""
    claims = {
        ALPHA: ("Where DCG hardly changes α is larger than where it changes much (Table 6)", 1),
        BETA: ("Where DCG hardly changes β is smaller than where it changes much (Table 6)", -1),
    }
    found = []
    for name, (claim, sign) in claims.items():
        whole = known[column(AT, name)]
        still, changed = (whole[(known[each] > 0) & np.isfinite(whole)] for each in (LITTLE, MUCH))
        if not len(still) or not len(changed):
            found.append(untestable(claim, "no test query was a training query of another fold"))
            continue
        here = f"mean {name} {still.mean():+.3f} against {changed.mean():+.3f} (Mann and Whitney's test)"
        p = float(mannwhitneyu(still, changed).pvalue)
        used = (column(AT, name), LITTLE, MUCH)
        found.append(
            claimed(claim, here, [Part(sign * (still.mean() - changed.mean()), p, "mann-whitney", used, sign)])
        )
    return found


def _farther(known: Values, found_quarters: Sequence[Quarter]) -> Claim:
    """Table 7: the rank correlation of how far a query moved and of its gain."""
    claim = "Queries whose (α, β) moved farther gain more (Table 7)"
    used = column(AT, MOVED), column(AT, GAINED)
    chosen = np.isfinite(known[used[0]])
    away, gains = (known[name][chosen] for name in used)
    if len(gains) < 3 or not np.ptp(gains) or not np.ptp(away):
        return untestable(claim, "no test query was a training query of another fold, or none moved")
    found = spearmanr(away, gains)
    said = "; ".join(f"{each.name} {100 * each.gain:+.2f} %" for each in found_quarters)
    here = f"{said}; rank correlation {found.statistic:+.3f}"
    return claimed(claim, here, [Part(float(found.statistic), float(found.pvalue), "spearman", used)])


def _draw(out: Path, compared: Compared, seen: Seen, moved: Floats) -> None:
    known = np.isfinite(moved[:, 0])
    gains = (values(compared, AT) - values(compared, PLAIN))[known]
    labels = ("scale α", "shift β")
    gains_figure(out / "transforms.svg", moved[known], gains, labels=labels, what="gain in DCG@5")
    names = [AT, WEIGHTED, "running", "kernel", f"kernel, {WEIGHTED}"]
    shown = {name: seen.traces[name][0] for name in names if name in seen.traces}
    longest = max(map(len, shown.values()))
    line_figure(
        out / "objective.svg",
        [step / 2 for step in range(longest)],
        {
            name: [value / trace[0] for value in (*trace, *trace[-1:] * (longest - len(trace)))]
            for name, trace in shown.items()
        },
        labels=("round: (α, β), then h", "objective, relative to the plain regression's"),
        title="How the objective falls, first fold",
    )


def _numbers(compared: Compared, seen: Seen, moved: Floats) -> JsonObject:
    return {
        "comparison": compared.as_json("wilcoxon"),
        "gains": {name: list(gain(compared, name)) for name in compared.names if not name.startswith(PLAIN)},
        "chosen": {name: compared.parameters(name) for name in compared.names},
        "moments": {name: [each.tolist() for each in seen.moments(name)] for name in seen.transforms},
        "percentiles": [list(each) for each in percentiles(compared, moved)],
        "quarters": [list(each) for each in quarters(compared, moved)],
        "moved": np.nan_to_num(moved, nan=-1.0).tolist(),
        "traces": {name: [list(trace) for trace in traces] for name, traces in seen.traces.items()},
    }
