"""Ensemble ranking, supervised and semi-supervised [hoi2008]_: its figures, its table, its claims.

Every feature is a ranker. The paper's are 25: ten scores of the title, ten of the abstract, five of both, which are
columns 1–10, 16–25 and 41–45 of OHSUMED's 45. Rows over these come first, and the claims are judged on them: C = 1, the
agreements as they are, only γ is chosen, by MAP on the validation part of each fold. *hinge* is Equation 4, on the
scores as they are: ½ ‖w‖² + C Σ max(0, 1 − w·(x_a − x_b)) over all pairs, C = 1 / (λ · pairs), λ chosen in the same
way; MHR-BC has a hinge over all pairs too. *repeat* may take a weak ranker again, as AdaRank's paper has it. *γ = 0.5*
is what the paper recommends; *γ by cross-validation* has it chosen by five-fold cross-validation over the training
queries, without the validation part. The other rows are ours. `ranksvm`, `mhr-bc` and `adarank`: the squared hinge on
standardised scores, every query alike, and every weak ranker at most once. *all columns*: over every column, and
everything in the grid chosen.

MAP against γ is on test queries and chooses nothing. A training is one fit on the first fold, with default settings,
the best of three, in seconds of the processor, so that what runs beside it does not count. *Pairs written down* is
Equation 4 with a constraint per pair, as the paper's rivals solve it: by LIBLINEAR's dual coordinate descent, with the
λ that validation chose there, once; writing the pairs down counts. A quick run has the first fold, three γ, one value
of every other parameter, and one fit for times.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from querywise.data.folds import Fold, Folds
from querywise.data.judged import Judged
from querywise.errors import DataError
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import Tuned, cross_validate
from querywise.methods import METHODS
from querywise.report.tables import Cell, Column, Table
from querywise.runtime.arrays import Floats
from querywise.runtime.files import make_folder
from querywise.runtime.progress import track
from querywise.runtime.values import Grid, JsonObject, Settings
from reproduction.papers import (
    FLAVOUR,
    NO_BACK_OFF,
    fitting,
    line_figure,
    p_of,
    p_text,
    pair_differences,
    rows_table,
    write_findings,
)
from reproduction.verdicts import (
    Claim,
    Part,
    Values,
    alike,
    certain,
    claimed,
    column,
    paired,
    untestable,
    values_of,
    within,
)

SER, SSER, SVM, ADARANK, MHR = "ser", "sser", "ranksvm, hinge", "adarank, repeat", "mhr-bc, hinge"
WRITTEN_DOWN = f"{SVM}, pairs written down"
CLASSIC = ("rankboost", "listnet", ADARANK, MHR)
OURS = ("ranksvm", "adarank", "mhr-bc")  # beside the paper's
OTHERS = ("lambdamart", "knn-offline-2")
SEVEN = (SVM, SER, SSER, *CLASSIC)
EQUATION_4: Settings = {"loss": "hinge", "pairs": "pair", "scale": "none", "tolerance": 1e-6}
_HINGE: Mapping[str, tuple[Settings, Grid]] = {
    SVM: (EQUATION_4, {"l2": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)}),
    MHR: ({"loss": "hinge", "pairs": "pair"}, {"l2": (0.03, 0.1, 0.3, 1.0, 3.0)}),
    ADARANK: ({"repeat": True}, {}),
}
ALL = ", all columns"
RANKERS = (*range(10), *range(15, 25), *range(40, 45))  # the paper's, of OHSUMED's columns, counted from 0
WIDTH = 45  # of OHSUMED
GAMMAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
NORMS = (None, 10.0)
_PLAIN: Mapping[str, Any] = {"norm": None, "cost": 1.0, "grades": "three"}
_NEAR = (0.25, 1.0)  # γ that are "close to 0.5"
_PAIRS, _ROWS = 350_000, 126  # constraints of a training, as the paper counts them
ALIKE = 0.01  # of MAP: the largest difference that counts as none
_PARTS = 5
_AT = tuple(f"p@{position}" for position in range(1, 11))
_MEASURES = ("map", "ndcg@10", "mean_ndcg", *_AT)
_HEADINGS = {"map": "MAP", "ndcg@10": "NDCG@10", "mean_ndcg": "mean NDCG", "p@1": "P@1", "p@2": "P@2", "p@10": "P@10"}


class _Size(NamedTuple):
    """How much is computed."""

    quick: bool
    gammas: Sequence[float] = GAMMAS
    times: int = 3

    def grid(self, name: str) -> Grid:
        """What is tried of a method; quickly, the middle value of everything but γ."""
        known = _HINGE[name][1] if name in _HINGE else METHODS[name].grid
        if not self.quick:
            return known
        return {each: values if each == "gamma" else values[len(values) // 2 :][:1] for each, values in known.items()}


def reproduce(folds: Folds, out: Path, *, rankers: Sequence[int] | None = None, quick: bool = False) -> Path:
    """Write table.md, numbers.json and the figures into a folder; returns the table's path.

    rankers: columns, counted from 0, that are the paper's rankers. By default those of OHSUMED where there are 45
    columns, and else all. quick: the shape of every table from one fold; its numbers are not to be quoted.
    """
    make_folder(out)
    whole = [folds[0]] if quick else list(folds)
    size = _Size(True, (0.0, 0.5, 2.0), 1) if quick else _Size(False)
    columns, said = _columns(whole[0].train.feature_count, rankers)
    parts = [Fold(*(_narrowed(part, columns) for part in fold)) for fold in whole]
    compared = _compared(whole, parts, size)
    sweep = _sweep(parts, size.gammas)
    swept = {_line(norm): [float(sweep[_at(gamma, norm)].mean()) for gamma in size.gammas] for norm in NORMS}
    chosen: Any = compared.parameters(SVM)[0]
    pairs, seconds = _times(parts[0], size.times, chosen["l2"])
    kept = _kept(parts)
    values = {**values_of(compared), **sweep}
    claims = [
        *_about_quality(values),
        *_about_gamma(values, size.gammas, swept[_line(None)]),
        *_about_cost(seconds, pairs, kept["in all"][0], known=whole[0].train.feature_count == WIDTH),
        certain(
            "SSER learns its weights anew for each query online, SER once offline (conclusion)",
            "its program has the query's own documents in it",
        ),
    ]
    numbers: JsonObject = {
        "columns": [column + 1 for column in columns],
        "comparison": compared.as_json(),
        "p_against_ser": {name: p_of(compared, name, SER, "map") for name in compared.names if name != SER},
        "chosen": {name: compared.parameters(name) for name in compared.names},
        "map_against_gamma": swept,
        "training_seconds": seconds,
        "pairs": pairs,
        "training_queries": kept,
    }
    tables: list[Table | str] = [
        said,
        rows_table(compared, _HEADINGS, [SVM, SER], {"map": "MAP"}),
        _gamma_table(swept, size.gammas),
        _kept_table(kept),
        _time_table(seconds, pairs),
    ]
    _draw(out, compared, swept, size.gammas)
    queries = compared.judged.candidates.query_ids
    return write_findings(out, numbers, tables, claims, quick=quick, queries=queries, values=values)


def _compared(whole: Sequence[Fold], parts: Sequence[Fold], size: _Size) -> Compared:
    """The paper's rows, on its rankers, and ours."""
    compared = compare(_papers(size), parts, measures=_MEASURES, flavour=FLAVOUR)
    # Where the paper's rankers are all columns, what takes no other settings would come twice.
    same = parts[0].train.feature_count == whole[0].train.feature_count
    names = (SER, SSER, *OTHERS) if same else (*map(_method, SEVEN), *OTHERS)
    ours = compare(_ours(size, names), whole, measures=_MEASURES, flavour=FLAVOUR)
    return replace(compared, trained={**compared.trained, **ours.trained})


def _columns(width: int, rankers: Sequence[int] | None) -> tuple[Sequence[int], str]:
    """The columns that are the paper's rankers, and a sentence about them."""
    if rankers is None and width != WIDTH:
        said = f"The paper's rankers are taken to be all {width} columns: which ones they are is not known.\n"
        return range(width), said
    columns = RANKERS if rankers is None else tuple(dict.fromkeys(rankers))
    outside = [column + 1 for column in columns if not 0 <= column < width]
    if outside or not columns:
        found = f"column {outside[0]}" if outside else "no column"
        raise DataError(
            f"The paper's rankers: found {found}, but the data has columns 1 to {width}. Name some of these.",
            arguments=("rankers",),
        )
    named = ", ".join(_ranges([column + 1 for column in columns]))
    return columns, f"The paper's rankers are columns {named}; rows named *all columns* have all {width}.\n"


def _ranges(numbers: Sequence[int]) -> list[str]:
    """`1–10`, `12`: runs of numbers that follow one another."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]


def _narrowed(data: Judged, columns: Sequence[int]) -> Judged:
    """The same with these columns alone."""
    candidates, chosen = data.candidates, list(columns)
    names = candidates.feature_names
    features = np.ascontiguousarray(candidates.features[:, chosen])
    kept = None if names is None else tuple(names[column] for column in chosen)
    return replace(data, candidates=replace(candidates, features=features, feature_names=kept))


def _papers(size: _Size) -> dict[str, Fit]:
    """The paper's seven, on its rankers."""
    gammas = {"gamma": [each for each in METHODS[SSER].grid["gamma"] if each in size.gammas]}
    fits: dict[str, Fit] = {
        name: fitting(_method(name), _fixed(name), size.grid(name)) for name in (SVM, *CLASSIC, *OURS)
    }
    fits[SER] = fitting(SER, _PLAIN, {})
    fits[SSER] = fitting(SSER, _PLAIN, gammas)
    fits[f"{SSER}, γ = 0.5"] = fitting(SSER, {**_PLAIN, "gamma": 0.5}, {})
    fits[f"{SSER}, γ by cross-validation"] = partial(_cross_validated, gammas)
    first = (SVM, SER, SSER, *(name for name in fits if name.startswith(f"{SSER},")))
    return {name: fits[name] for name in (*first, *CLASSIC, *OURS)}


def _cross_validated(grid: Grid, train: Judged, valid: Judged) -> Tuned[Any]:
    """γ by cross-validation over the training queries; the validation part is not looked at."""
    return cross_validate(METHODS[SSER].build, grid, fixed=_PLAIN, data=train, folds=_PARTS, flavour=FLAVOUR)


def _ours(size: _Size, names: Sequence[str]) -> dict[str, Fit]:
    """Over every column, with the whole grid."""
    return {f"{name}{ALL}": fitting(name, _fixed(name), size.grid(name)) for name in names}


def _method(row: str) -> str:
    """The method of a row."""
    return row.partition(",")[0]


def _fixed(row: str) -> Settings:
    """What is fixed of a method: the paper's loss; local models answer every query, however far."""
    if row in _HINGE:
        return _HINGE[row][0]
    return NO_BACK_OFF if "back_off" in METHODS[row].settings else {}


def _sweep(folds: Sequence[Fold], gammas: Sequence[float]) -> Values:
    """Average precision of SSER on all test queries at every γ: Figure 3."""
    found: dict[str, list[Floats]] = {_at(gamma, norm): [] for norm in NORMS for gamma in gammas}
    for fold in track(folds, "Sweep over γ"):
        for norm in NORMS:
            for gamma in gammas:
                ranker: Any = METHODS[SSER].build(gamma=gamma, norm=norm).fit(fold.train)
                values = evaluate(ranker, fold.test, measures=["map"], flavour=FLAVOUR)["map"]
                found[_at(gamma, norm)].append(values)
    return {name: np.concatenate(each) for name, each in found.items()}


def _at(gamma: float, norm: float | None) -> str:
    """The column of SSER at a γ."""
    return column(SSER, _line(norm), f"γ = {gamma:g}", "map")


def _line(norm: float | None) -> str:
    return "agreements as they are" if norm is None else f"every query's brought to {norm:g}"


def _kept(folds: Sequence[Fold]) -> dict[str, list[int]]:
    """How many training queries there are in each fold, have a preference, and count for SER by either reading."""
    found: dict[str, list[int]] = {"in all": [len(fold.train) for fold in folds]}
    found["with a preference"] = [int(np.sum(fold.train.pairs > 0)) for fold in folds]
    for grades in ("three", "difference"):
        rankers: list[Any] = [METHODS[SER].build(grades=grades).fit(fold.train) for fold in folds]
        found[f"grades={grades}"] = [len(ranker.rows_) for ranker in rankers]
    return found


def _times(fold: Fold, times: int, l2: float) -> tuple[int, dict[str, float]]:
    """How many pairs a fold has, and the seconds of every training; l2: λ of the one with all pairs written down."""
    seconds = {name: _seconds(name, fold, times) for name in (SER, SSER, SVM, *CLASSIC, *OURS, *OTHERS)}
    pairs, seconds[WRITTEN_DOWN] = _enumerated(fold.train, l2)
    return pairs, seconds


def _seconds(name: str, fold: Fold, times: int) -> float:
    """One training with default settings, the best of some: the compiling that comes first does not count."""
    took = []
    for _ in range(times):
        begin = time.process_time()
        METHODS[_method(name)].build(**_fixed(name)).fit(fold.train, valid=fold.valid)
        took.append(time.process_time() - begin)
    return min(took)


def _enumerated(train: Judged, l2: float) -> tuple[int, float]:
    """How many pairs there are, and the seconds that Equation 4 takes the processor with each of them written down."""
    from sklearn.svm import LinearSVC

    begin = time.process_time()
    differences = pair_differences(train)
    signs = np.where(np.arange(len(differences)) % 2, 1.0, -1.0)  # two classes, as the program wants
    machine = LinearSVC(loss="hinge", C=1 / (l2 * len(differences)), fit_intercept=False, tol=1e-3, random_state=0)
    machine.fit(differences * signs[:, None], signs)
    return len(differences), time.process_time() - begin


def _draw(out: Path, compared: Compared, swept: dict[str, list[float]], gammas: Sequence[float]) -> None:
    line_figure(
        out / "precision.svg",
        range(1, 11),
        {name: [compared.evaluations[name].mean()[measure] for measure in _AT] for name in SEVEN},
        labels=("position", "precision"),
        title="Precision at 1 to 10, the paper's rankers",
    )
    title = "MAP of SSER against γ; 0 is SER"
    line_figure(out / "against-gamma.svg", gammas, swept, labels=("γ", "MAP"), title=title)


def _gamma_table(swept: dict[str, list[float]], gammas: Sequence[float]) -> Table:
    columns = (Column("MAP of SSER"), *(Column(f"γ = {gamma:g}", "value") for gamma in gammas))
    return Table(columns, tuple((name, *values) for name, values in swept.items()), "The paper's rankers, C = 1.")


def _kept_table(kept: dict[str, list[int]]) -> Table:
    folds = range(1, len(kept["in all"]) + 1)
    columns = (Column("training queries"), *(Column(f"fold {number}", "count") for number in folds))
    dropped = [full - used for full, used in zip(kept["with a preference"], kept["grades=three"], strict=True)]
    rows: tuple[tuple[Cell, ...], ...] = tuple((name, *counts) for name, counts in kept.items())
    caption = f"grades=three drops {', '.join(map(str, dropped))} queries that have a preference."
    return Table(columns, rows, caption)


def _time_table(seconds: dict[str, float], pairs: int) -> Table:
    columns = (Column("training"), Column("s of the processor", "time"), Column("times SER's", "time"))
    rows = tuple((name, took, took / seconds[SER]) for name, took in seconds.items())
    caption = (
        "One fit on the first fold, the paper's rankers, default settings; timings vary from run to run. Written down "
        f"are {pairs:,} pairs."
    )
    return Table(columns, rows, caption)


def _about_quality(values: Values) -> list[Claim]:
    return [
        _above(values, "SSER has the best MAP of the seven (Figure 1)", SSER, SEVEN, ["map"]),
        _above(values, "SSER is above SER (Figure 1)", SSER, [SER], ["map"]),
        _above(values, "SSER is the best of the seven at ranks 1 and 2 (Figure 2)", SSER, SEVEN, _AT[:2]),
        _above(values, "SER is above RankBoost, AdaRank and MHR-BC", SER, ["rankboost", ADARANK, MHR], ["map"]),
        _above(values, "SER is a little below Ranking SVM", SVM, [SER], ["map"]),
    ]


def _about_gamma(values: Values, gammas: Sequence[float], swept: Sequence[float]) -> list[Claim]:
    best, advised = gammas[int(np.argmax(swept))], f"{SSER}, γ = 0.5"
    gain = paired(values, column(advised, "map"), column(SSER, "map")).difference
    return [
        claimed(
            f"The best γ is close to 0.5 (Figure 3; from {_NEAR[0]:g} to {_NEAR[1]:g})",
            f"best of those swept: {best:g}, MAP {max(swept):.4f} against {swept[0]:.4f} at γ = 0",
            [within(best, _NEAR[0] - 1e-9, _NEAR[1] + 1e-9)],
        ),
        claimed(
            f"γ = 0.5 is comparable to the best that validation finds: MAP within ±{ALIKE}",
            f"{gain:+.4f}; p of the test of equivalence",
            [alike(values, column(advised, "map"), column(SSER, "map"), ALIKE)],
        ),
    ]


def _about_cost(seconds: dict[str, float], pairs: int, queries: int, *, known: bool) -> list[Claim]:
    """Table 3. known: whether the data is the paper's, whose constraints it counts."""
    ours, theirs = max(seconds[SER], seconds[SSER]), seconds[WRITTEN_DOWN]
    counts = f"Ranking SVM has about {_PAIRS:,} constraints in a training, SER about {_ROWS} (±10 %)"
    return [
        claimed(
            "Training SER and SSER takes a fraction of Ranking SVM's time (Table 3: 6.3 and 7.5 s against 1,229 and "
            "37,076; here less than a tenth)",
            f"{seconds[SER]:.2g} and {seconds[SSER]:.2g} s against {theirs:.2g} s with all pairs written down; ours, "
            f"which writes none down, takes {seconds[SVM]:.2g} s",
            [Part(0.1 * theirs - ours)],
        ),
        claimed(
            counts,
            f"{pairs:,}, a pair each, against {2 * queries}, two a query",
            [within(pairs, 0.9 * _PAIRS, 1.1 * _PAIRS), within(2 * queries, 0.9 * _ROWS, 1.1 * _ROWS)],
        )
        if known
        else untestable(counts, "they are counted on OHSUMED"),
    ]


def _above(values: Values, claim: str, name: str, rivals: Sequence[str], measures: Sequence[str]) -> Claim:
    """One row is above some others by some measures."""
    parts = {
        (rival, measure): paired(values, column(name, measure), column(rival, measure))
        for measure in measures
        for rival in rivals
        if rival != name
    }
    nearest = {
        measure: min((pair for pair in parts if pair[1] == measure), key=lambda pair: parts[pair].difference)
        for measure in measures
    }
    here = "; ".join(
        f"{name} {parts[pair].difference:+.4f} {measure.upper()} against {pair[0]}, {p_text(parts[pair].p or 0.0)}"
        for measure, pair in nearest.items()
    )
    return claimed(claim, here, [*parts.values()])
