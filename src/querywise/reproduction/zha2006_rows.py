"""The rows of the reproduction of aTVT: what is fitted, with which settings, on which data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from querywise.data.folds import Fold
from querywise.data.joining import concatenate
from querywise.data.judged import Judged
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import Tuned, cross_validated, tune
from querywise.methods import METHODS
from querywise.runtime.values import Grid

PLAIN, ATVT = "regression", "atvt"
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


def _plain(size: Size, base: str = "trees") -> Callable[[Judged, Judged], Tuned[Any]]:
    """Plain regression, its shrinkage or smoothness chosen."""

    def fit(train: Judged, valid: Judged) -> Any:
        known = METHODS[PLAIN]
        tried = known.grid_on(train, base) if size.growth is None or base != "trees" else size.growth
        return tune(known.build, {**tried, "base": [base]}, train=train, valid=valid, measure=CHOSEN_BY)

    return fit


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


def _atvt(size: Size, grid: Grid, base: str = "trees") -> Fit:
    """One setting, on the plain regression's own."""

    def fit(train: Judged, valid: Judged) -> Any:
        settled = {name: [value] for name, value in _plain(size, base)(train, valid).parameters.items()}
        return tune(METHODS[ATVT].build, {**settled, **grid}, train=train, valid=valid, measure=CHOSEN_BY)

    return fit


def _chosen(size: Size, grid: Grid) -> Fit:
    """λ of the grid's points, chosen by cross-validation, or on the validation part."""
    return _by_cross_validation(size, grid) if size.crossed else _by_validation(size, grid)


def _by_validation(size: Size, grid: Grid) -> Fit:
    def fit(train: Judged, valid: Judged) -> Any:
        settled = {name: [value] for name, value in _plain(size)(train, valid).parameters.items()}
        tried = [
            tune(METHODS[ATVT].build, every, train=train, valid=valid, measure=CHOSEN_BY)
            for every in ({**settled, **grid, **_held(*point)} for point in size.cells)
        ]
        best = max(tried, key=lambda tuned: tuned.value)
        return replace(best, tried=tuple(trial for tuned in tried for trial in tuned.tried))

    return fit


def _by_cross_validation(size: Size, grid: Grid) -> Fit:
    """Over all queries but the test queries; then trained as the grid's points are."""

    def fit(train: Judged, valid: Judged) -> Any:
        first = _plain(size)(train, valid)
        settled = {**first.parameters, "trees": first.ranker.regressor_.tree_count_}
        every = {**{name: [value] for name, value in settled.items()}, **grid}
        scales, shifts = ([*dict.fromkeys(each)] for each in zip(*size.cells, strict=True))
        every |= {"scale_penalty": scales, "shift_penalty": shifts}
        both = concatenate([train, valid])
        tried = cross_validated(METHODS[ATVT].build, every, data=both, folds=_PARTS, measure=CHOSEN_BY)
        best = max(tried, key=lambda trial: trial.value).parameters
        ranker = METHODS[ATVT].build(**{**best, "trees": first.ranker.regressor.trees}).fit(train, valid=valid)
        return Tuned(best, CHOSEN_BY, "standard", tried, ranker=ranker, folds=_PARTS)

    return fit


def _widened(data: Judged) -> Judged:
    candidates = data.candidates
    sums = np.zeros((len(candidates), candidates.features.shape[1]))
    np.add.at(sums, candidates.query_of_row, candidates.features)
    means = sums / np.maximum(candidates.sizes, 1)[:, None]
    features = np.hstack([candidates.features, np.repeat(means, candidates.sizes, axis=0)])
    return replace(data, candidates=replace(candidates, features=features, feature_names=None))
