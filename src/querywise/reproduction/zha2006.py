"""Adaptive target value transformation [zha2006]_: its tables, its figures, its claims.

Regression by boosted trees with and without aTVT, DCG@5 of the textbook. Shrinkage, and the number of trees, are chosen
for the plain regression on the validation part of each fold, and hold for aTVT too. The grid is the paper's Tables 2
and 3, on test queries, choosing nothing. *chosen*: λ_α and λ_β of three by three points by NDCG@5 (DCG@5, every query
counting the same) in a threefold cross-validation over training and validation queries. *running* is the variant
without weights; *L1*: one round, λ_α = 100, λ_β = 0.2, the paper's, and with λ chosen on the validation part; *kernel*:
kernel regression, likewise. *query columns*: the mean of every feature over the query's candidates beside the features.
*planted*: grades of training and validation queries multiplied by 1, 2 or 4 and raised by 0, 2 or 4, at random by
query; test queries are as they were. With more than 50,000 training documents trees are 100 at most with shrinkage 0.1,
λ are chosen on the validation part, and there is no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.folds import Fold, Folds
from querywise.data.joining import concatenate
from querywise.data.judged import Judged
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.significance import wilcoxon_test
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import Tuned, cross_validated, tune
from querywise.methods import METHODS
from querywise.report.figures import gains_figure, line_figure
from querywise.report.tables import Cell, Column, Table
from querywise.reproduction.claims import Claim, judged, p_text, write_findings
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.files import atomic_text, make_folder

PLAIN, ATVT = "regression", "atvt"
MEASURE, CHOSEN_BY = "dcg@5", "ndcg@5"
CHOSEN = "aTVT, chosen"
SCALES = (1.0, 10.0, 100.0, 1000.0)
SHIFTS = (0.1, 1.0, 10.0, 100.0)
NONE = "no regularisation"
_SMALL = {"scale_penalty": (1.0, 10.0, 100.0), "shift_penalty": (0.1, 1.0, 10.0)}
_MANY = 50_000  # training documents
_QUICK: Mapping[str, Sequence[Any]] = {"trees": [100], "learning_rate": [0.1]}
_SIGNIFICANT = 0.05
_PARTS = 3
_INTERVALS = (0, 10, 25, 50, 75, 90, 100)


def reproduce(folds: Folds, out: Path) -> Path:
    """Write table.md, numbers.json and the figures into a folder; returns the table's path."""
    make_folder(out)
    parts = list(folds)
    seen = _Seen()
    kernel = len(parts[0].train.labels) <= _MANY
    compared = compare(_fits(kernel=kernel), parts, measures=(MEASURE, "map"), observe=seen.look)
    for name, change in (("query columns", _with_query_columns), ("planted", _planted)):
        changed = [change(fold, number) for number, fold in enumerate(parts)]
        more = compare(_changed_fits(name), changed, measures=(MEASURE, "map"))
        compared = replace(compared, trained={**compared.trained, **more.trained})
    moved = compared.moved(CHOSEN)
    assert moved is not None, "aTVT tells how it moved"
    claims = _claims(compared, seen, moved)
    tables = [
        _grid_table(compared),
        _rows_table(compared),
        _moves_table(seen),
        _percentiles_table(compared, moved),
        _by_move_table(compared, moved),
    ]
    numbers = _numbers(compared, seen, moved)
    table = write_findings(out, numbers, [each.markdown() for each in tables], claims)
    _draw(out, compared, seen, moved)
    return table


class _Seen:
    """What only the fitted rankers know: the (α, β) of the training queries, and how the objective fell."""

    def __init__(self) -> None:
        self.transforms: dict[str, list[Floats]] = {}
        self.traces: dict[str, list[tuple[float, ...]]] = {}

    def look(self, fold: Fold, name: str, ranker: Any) -> None:
        if not name.startswith(PLAIN):
            self.transforms.setdefault(name, []).append(np.column_stack([ranker.scale_, ranker.shift_]))
            self.traces.setdefault(name, []).append(ranker.trace_)


def _cell(scale: float, shift: float) -> str:
    return f"λ_α = {scale:g}, λ_β = {shift:g}"


def _fits(*, kernel: bool) -> dict[str, Fit]:
    fits: dict[str, Fit] = {PLAIN: _plain()}
    for scale in SCALES:
        for shift in SHIFTS:
            fits[_cell(scale, shift)] = _atvt({"scale_penalty": [scale], "shift_penalty": [shift]})
    fits[CHOSEN] = _cross_validated
    fits[NONE] = _atvt({"scale_penalty": [0.0], "shift_penalty": [0.0]})
    fits["running"] = _atvt({**_SMALL, "variant": ["running"]})
    cached: dict[str, list[Any]] = {"scale_penalty": [100.0], "shift_penalty": [0.2], "rounds": [1]}
    fits["L1, one round"] = _atvt({**cached, "penalty": ["l1"]})
    fits["L1"] = _atvt({**_SMALL, "penalty": ["l1"]})
    if kernel:
        fits[f"{PLAIN}, kernel"] = _plain(base="kernel")
        fits["kernel"] = _atvt(_SMALL, base="kernel")
    return fits


def _changed_fits(name: str) -> dict[str, Fit]:
    fits: dict[str, Fit] = {f"{PLAIN}, {name}": _plain(), f"{CHOSEN}, {name}": _cross_validated}
    unheld = {"scale_penalty": [0.0], "shift_penalty": [0.0]}
    return fits if name != "planted" else {**fits, f"{NONE}, {name}": _atvt(unheld)}


def _plain(base: str = "trees") -> Callable[[Judged, Judged], Tuned[Any]]:
    """Plain regression, its shrinkage or smoothness chosen."""

    def fit(train: Judged, valid: Judged) -> Any:
        known = METHODS[PLAIN]
        quick = base == "trees" and len(train.labels) > _MANY
        grid: dict[str, Sequence[Any]] = {**(_QUICK if quick else known.grid_on(train, base)), "base": [base]}
        return tune(known.build, grid, train=train, valid=valid, measure=CHOSEN_BY)

    return fit


def _atvt(grid: Mapping[str, Sequence[Any]], base: str = "trees") -> Fit:
    """Something of this grid, on the plain regression's settings."""

    def fit(train: Judged, valid: Judged) -> Any:
        plain = {name: [value] for name, value in _plain(base)(train, valid).parameters.items()}
        return tune(METHODS[ATVT].build, {**plain, **grid}, train=train, valid=valid, measure=CHOSEN_BY)

    return fit


def _cross_validated(train: Judged, valid: Judged) -> Any:
    """λ by cross-validation over all queries but the test queries; then trained as the grid's points are."""
    if len(train.labels) > _MANY:
        return _atvt(_SMALL)(train, valid)
    plain = _plain()(train, valid)
    settled = {**plain.parameters, "trees": plain.ranker.regressor_.tree_count_}
    grid = {**{name: [value] for name, value in settled.items()}, **_SMALL}
    both = concatenate([train, valid])
    tried = cross_validated(METHODS[ATVT].build, grid, data=both, folds=_PARTS, measure=CHOSEN_BY)
    best = max(tried, key=lambda trial: trial.value).parameters
    ranker = METHODS[ATVT].build(**{**best, "trees": plain.ranker.regressor.trees}).fit(train, valid=valid)
    return Tuned(ranker, best, CHOSEN_BY, "standard", tried, _PARTS)


def _with_query_columns(fold: Fold, number: int) -> Fold:
    return Fold(*(_widened(part) for part in (fold.train, fold.valid, fold.test)))


def _widened(data: Judged) -> Judged:
    """The mean of every feature over the query's candidates, beside the features."""
    candidates = data.candidates
    sums = np.zeros((len(candidates), candidates.features.shape[1]))
    np.add.at(sums, candidates.query_of_row, candidates.features)
    means = sums / np.maximum(candidates.sizes, 1)[:, None]
    features = np.hstack([candidates.features, np.repeat(means, candidates.sizes, axis=0)])
    return replace(data, candidates=replace(candidates, features=features, feature_names=None))


def _planted(fold: Fold, number: int) -> Fold:
    rng = np.random.default_rng(number)

    def planted(part: Judged) -> Judged:
        sizes = part.candidates.sizes
        scale, shift = (np.repeat(rng.choice(each, len(sizes)), sizes) for each in ((1, 2, 4), (0, 2, 4)))
        known = 1 if part.judged is None else part.judged.astype(np.int64)  # what nobody judged stays 0
        return replace(part, labels=known * (scale * part.labels + shift))

    return Fold(planted(fold.train), planted(fold.valid), fold.test)


def _values(compared: Compared, name: str) -> Floats:
    return compared.evaluations[name][MEASURE]


def _rival(name: str) -> str:
    """The plain regression a row is compared with."""
    kind = next((each for each in ("query columns", "planted") if name.endswith(each)), None)
    kind = "kernel" if name.startswith("kernel") else kind
    return PLAIN if kind is None else f"{PLAIN}, {kind}"


def _gain(compared: Compared, name: str, chosen: Bools | None = None) -> tuple[float, float]:
    """The relative gain over the plain regression, and its p by Wilcoxon's test."""
    ours, theirs = (_values(compared, each) for each in (name, _rival(name)))
    if chosen is not None:
        ours, theirs = ours[chosen], theirs[chosen]
    if not len(ours):
        return 0.0, 1.0
    base = float(theirs.mean())
    return (float(ours.mean()) / base - 1 if base else 0.0), wilcoxon_test(ours, theirs).p


def _shown(compared: Compared, name: str) -> str:
    gain, p = _gain(compared, name)
    return f"{_values(compared, name).mean():.4f} ({100 * gain:+.2f} %, {p_text(p)})"


def _grid_table(compared: Compared) -> Table:
    """Tables 2 and 3."""
    columns = (Column("DCG@5 with aTVT"), *(Column(f"λ_β = {shift:g}") for shift in SHIFTS))
    rows: list[tuple[Cell, ...]] = [
        (f"λ_α = {scale:g}", *(_shown(compared, _cell(scale, shift)) for shift in SHIFTS)) for scale in SCALES
    ]
    caption = (
        f"{len(compared.test)} test queries, flavour {compared.flavour}; without aTVT "
        f"{_values(compared, PLAIN).mean():.4f}; p: Wilcoxon's signed-rank test against that."
    )
    return Table(columns, tuple(rows), " ".join([caption, *compared.counted()]))


def _rows_table(compared: Compared) -> Table:
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
        if not name.startswith("λ"):
            mean = compared.evaluations[name].mean()
            same = name.startswith(PLAIN)
            gain, p = (None, None) if same else _gain(compared, name)
            cells = (None if gain is None else 100 * gain, p, mean["map"], None if same else _rival(name))
            rows.append((name, mean[MEASURE], *cells))
    return Table(columns, tuple(rows), "p: Wilcoxon's signed-rank test of DCG@5 against the plain regression named.")


def _moves_table(seen: _Seen) -> Table:
    """Table 4."""
    columns = (Column("mean and variance of α; of β"), *(Column(f"λ_β = {shift:g}") for shift in SHIFTS))
    rows: list[tuple[Cell, ...]] = []
    for scale in SCALES:
        cells = []
        for shift in SHIFTS:
            mean, variance = _moments(seen, _cell(scale, shift))
            cells.append(f"{mean[0]:.3f}, {variance[0]:.4f}; {mean[1]:+.3f}, {variance[1]:.4f}")
        rows.append((f"λ_α = {scale:g}", *cells))
    return Table(columns, tuple(rows), "Over the training queries of all folds.")


def _moments(seen: _Seen, name: str) -> tuple[Floats, Floats]:
    every = np.concatenate(seen.transforms[name])
    return every.mean(axis=0), every.var(axis=0)


def _percentiles_table(compared: Compared, moved: Floats) -> Table:
    """Tables 5 and 6: queries sorted by gain."""
    gains = _values(compared, CHOSEN) - _values(compared, PLAIN)
    by_gain = np.argsort(-gains, kind="stable")
    columns = (
        Column("queries, sorted by gain"),
        Column("gain in DCG@5", "signed"),
        Column("gain, %", "signed"),
        Column("mean α", "value"),
        Column("mean β", "signed"),
    )
    rows: list[tuple[Cell, ...]] = []
    for low, high in pairwise(_INTERVALS):
        own = by_gain[round(low * len(gains) / 100) : round(high * len(gains) / 100)]
        base = float(_values(compared, PLAIN)[own].mean()) if len(own) else 0.0
        gain = float(gains[own].mean()) if len(own) else 0.0
        known = moved[own][np.isfinite(moved[own]).all(axis=1)]
        scale, shift = known.mean(axis=0).tolist() if len(known) else (None, None)
        rows.append((f"{low} to {high} %", gain, 100 * gain / base if base else None, scale, shift))
    return Table(columns, tuple(rows), f"{CHOSEN} against {PLAIN}; α and β as training queries of other folds.")


def _by_move(compared: Compared, moved: Floats) -> list[tuple[str, int, float, float]]:
    """Table 7: the gain of quarters of the queries, those moved farthest first."""
    known = np.flatnonzero(np.isfinite(moved[:, 0]))
    distance = np.abs(moved[known, 0] - 1) + np.abs(moved[known, 1])
    quarters = np.array_split(known[np.argsort(-distance, kind="stable")], 4)
    names = ("the quarter moved farthest", "the second", "the third", "the quarter moved least")
    found = []
    for name, own in zip(names, quarters, strict=True):
        chosen = np.zeros(len(moved), np.bool_)
        chosen[own] = True
        found.append((name, len(own), *_gain(compared, CHOSEN, chosen)))
    return found


def _by_move_table(compared: Compared, moved: Floats) -> Table:
    columns = (Column("queries, by |α − 1| + |β|"), Column("queries", "count"), Column("gain, %", "signed"))
    rows = tuple((name, count, 100 * gain, p) for name, count, gain, p in _by_move(compared, moved))
    return Table((*columns, Column("p", "p")), rows, f"DCG@5, {CHOSEN} against {PLAIN}; p: Wilcoxon's test.")


def _claims(compared: Compared, seen: _Seen, moved: Floats) -> list[Claim]:
    gain, p = _gain(compared, CHOSEN)
    cells = {(scale, shift): _gain(compared, _cell(scale, shift)) for scale in SCALES for shift in SHIFTS}
    best = max(cells, key=lambda cell: cells[cell][0])
    unheld, p_unheld = _gain(compared, NONE)
    first, p_first = _gain(compared, "L1, one round")
    wide, p_wide = _gain(compared, f"{CHOSEN}, query columns")
    quarters = _by_move(compared, moved)
    return [
        judged(
            "aTVT raises DCG@5 by 1 to 2 % and the gain is significant (λ chosen on validation data)",
            f"{100 * gain:+.2f} %, {p_text(p)}",
            gain > 0 and p < _SIGNIFICANT,
        ),
        judged(
            "So it does over the grid (Tables 2, 3)",
            f"{sum(each > 0 for each, _ in cells.values())} of {len(cells)} points gain, "
            f"{sum(each > 0 and q < _SIGNIFICANT for each, q in cells.values())} with p < 0.05; the best, "
            f"{_cell(*best)}, {100 * cells[best][0]:+.2f} % ({p_text(cells[best][1])})",
            all(each > 0 for each, _ in cells.values()),
        ),
        judged("Without regularisation it hurts", f"{100 * unheld:+.2f} %, {p_text(p_unheld)}", unheld < 0),
        _held(seen),
        judged(
            "Queries whose (α, β) moved farther gain more (Table 7)",
            "; ".join(f"{name} {100 * each:+.2f} %" for name, _, each, _ in quarters),
            quarters[0][2] > quarters[-1][2],
        ),
        judged("One round with L1 gains (λ_α = 100, λ_β = 0.2)", f"{100 * first:+.2f} %, {p_text(p_first)}", first > 0),
        judged(
            "It gains with query-level columns among the features too",
            f"{100 * wide:+.2f} %, {p_text(p_wide)}",
            wide > 0,
        ),
    ]


def _held(seen: _Seen) -> Claim:
    """Larger λ move (α, β) toward (1, 0): by the mean distance, along the diagonal of the grid."""
    cells = [_cell(scale, shift) for scale, shift in zip(SCALES, SHIFTS, strict=True)]
    away = [float(np.mean(np.abs(np.concatenate(seen.transforms[name]) - [1, 0]).sum(axis=1))) for name in cells]
    falls = bool(np.all(np.diff(away) < 0))
    here = f"mean |α − 1| + |β| {', '.join(f'{each:.3f}' for each in away)} along the grid's diagonal"
    return judged("Larger λ bring (α, β) toward (1, 0) (Table 4)", here, falls)


def _draw(out: Path, compared: Compared, seen: _Seen, moved: Floats) -> None:
    known = np.isfinite(moved[:, 0])
    gains = (_values(compared, CHOSEN) - _values(compared, PLAIN))[known]
    with atomic_text(out / "transforms.svg") as file:
        file.write(gains_figure(moved[known], gains, axes=("scale α", "shift β"), what="gain in DCG@5"))
    shown = {name: seen.traces[name][0] for name in (_cell(*pair) for pair in zip(SCALES, SHIFTS, strict=True))}
    shortest = min(map(len, shown.values()))
    line_figure(
        out / "objective.svg",
        [step / 2 for step in range(shortest)],
        {name: [value / trace[0] for value in trace[:shortest]] for name, trace in shown.items()},
        labels=("round: (α, β), then h", "objective, relative to the plain regression's"),
        title="How the objective falls, first fold",
    )


def _numbers(compared: Compared, seen: _Seen, moved: Floats) -> dict[str, Any]:
    return {
        "comparison": compared.as_json("wilcoxon"),
        "gains": {name: _gain(compared, name) for name in compared.names if not name.startswith(PLAIN)},
        "chosen": {name: compared.parameters(name) for name in compared.names},
        "moments": {name: [each.tolist() for each in _moments(seen, name)] for name in seen.transforms},
        "moved": np.nan_to_num(moved, nan=-1.0).tolist(),
        "traces": {name: [list(trace) for trace in traces] for name, traces in seen.traces.items()},
    }
