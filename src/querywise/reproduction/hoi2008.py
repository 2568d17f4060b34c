"""Ensemble ranking, supervised and semi-supervised [hoi2008]_: its figures, its table, its claims.

Every feature is a ranker. Parameters are chosen on the validation part of each fold by MAP. Rows named *as in the
paper* have C = 1 and leave the agreements as they are; only γ is chosen. The others also choose whether to bring every
query's agreements to the same norm, and C. MAP against γ is on test queries and chooses nothing. A training is one fit
on the first fold, with default settings, the best of three.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.folds import Fold, Folds
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.trained import Fit
from querywise.methods import METHODS
from querywise.report.figures import line_figure
from querywise.report.tables import Column, Table
from querywise.reproduction.claims import Claim, judged, p_text, write_findings
from querywise.reproduction.rows import FLAVOUR, fitting, gain_of, p_of, rows_table
from querywise.runtime.files import make_folder
from querywise.runtime.progress import track
from querywise.runtime.values import JsonObject

SER, SSER, SVM = "ser", "sser", "ranksvm"
PAPER = ", as in the paper"
CLASSIC = ("rankboost", "listnet", "adarank", "mhr-bc")
OTHERS = ("lambdamart", "knn-offline-2")
GAMMAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
NORMS = (None, 10.0)
_AT = tuple(f"p@{position}" for position in range(1, 11))
_MEASURES = ("map", "ndcg@10", "mean_ndcg", *_AT)
_SIGNIFICANT = 0.05


def reproduce(folds: Folds, out: Path) -> Path:
    """Write table.md, numbers.json and the figures into a folder; returns the table's path."""
    make_folder(out)
    parts = list(folds)
    compared = compare(_fits(), parts, measures=_MEASURES, flavour=FLAVOUR)
    swept = _sweep(parts)
    seconds = {name: _seconds(name, parts[0]) for name in (SER, SSER, SVM, *CLASSIC, *OTHERS)}
    claims = _claims(compared, seconds)
    numbers: JsonObject = {
        "comparison": compared.as_json(),
        "chosen": {name: compared.parameters(name) for name in compared.names},
        "map_against_gamma": swept,
        "training_seconds": seconds,
    }
    headings = {
        "map": "MAP",
        "ndcg@10": "NDCG@10",
        "mean_ndcg": "mean NDCG",
        "p@1": "P@1",
        "p@2": "P@2",
        "p@10": "P@10",
    }
    tables = [
        rows_table(compared, headings, [SVM, SER], {"map": "MAP"}),
        _gamma_table(swept),
        _time_table(seconds),
    ]
    table = write_findings(out, numbers, [each.markdown() for each in tables], claims)
    _draw(out, compared, swept)
    return table


def _fits() -> dict[str, Fit]:
    plain: dict[str, Any] = {"norm": None, "cost": 1.0}
    fits = {SVM: fitting(SVM, {}), SER: fitting(SER, {}), SSER: fitting(SSER, {})}
    fits[f"{SER}{PAPER}"] = fitting(SER, plain)
    fits[f"{SSER}{PAPER}"] = fitting(SSER, plain)
    fits |= {name: fitting(name, {}) for name in (*CLASSIC, *OTHERS)}
    return fits


def _sweep(folds: Sequence[Fold]) -> dict[str, list[float]]:
    """MAP of SSER over all test queries at every γ: Figure 3."""
    lines: dict[str, list[float]] = {}
    for norm in NORMS:
        values: list[list[Any]] = [[] for _ in GAMMAS]
        for fold in track(folds, "Sweep over γ"):
            for place, gamma in enumerate(GAMMAS):
                ranker: Any = METHODS[SSER].build(gamma=gamma, norm=norm).fit(fold.train)
                table = evaluate(ranker.predict(fold.test.candidates), fold.test, measures=["map"], flavour=FLAVOUR)
                values[place].append(table["map"])
        lines[_line(norm)] = [float(np.concatenate(each).mean()) for each in values]
    return lines


def _line(norm: float | None) -> str:
    return "agreements as they are" if norm is None else f"every query's brought to {norm:g}"


def _seconds(name: str, fold: Fold) -> float:
    """One training with default settings, the best of three: the compiling that comes first does not count."""
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        METHODS[name].build().fit(fold.train, valid=fold.valid)
        took.append(time.perf_counter() - begin)
    return min(took)


def _draw(out: Path, compared: Compared, swept: dict[str, list[float]]) -> None:
    names = [name for name in compared.names if not name.endswith(PAPER)]
    line_figure(
        out / "precision.svg",
        range(1, 11),
        {name: [compared.evaluations[name].mean()[measure] for measure in _AT] for name in names},
        labels=("position", "precision"),
        title="Precision at 1 to 10",
    )
    line_figure(
        out / "against-gamma.svg",
        GAMMAS,
        swept,
        labels=("γ", "MAP"),
        title="MAP of SSER against γ; 0 is SER",
    )


def _gamma_table(swept: dict[str, list[float]]) -> Table:
    columns = (Column("MAP of SSER"), *(Column(f"γ = {gamma:g}", "value") for gamma in GAMMAS))
    return Table(columns, tuple((name, *values) for name, values in swept.items()))


def _time_table(seconds: dict[str, float]) -> Table:
    columns = (Column("training"), Column("s", "time"), Column("times SER's", "time"))
    rows = tuple((name, took, took / seconds[SER]) for name, took in seconds.items())
    return Table(columns, rows, "One fit on the first fold, default settings; timings vary from run to run.")


def _claims(compared: Compared, seconds: dict[str, float]) -> list[Claim]:
    rivals = (SVM, SER, SSER, *CLASSIC)
    means = {name: compared.evaluations[name].mean() for name in rivals}
    best = max(rivals, key=lambda name: means[name]["map"])
    first = {measure: max(rivals, key=lambda name: means[name][measure]) for measure in _AT[:2]}
    gain, p = gain_of(compared, SSER, SER, "map"), p_of(compared, SSER, SER, "map")
    below = [name for name in ("rankboost", "adarank", "mhr-bc") if means[SER]["map"] > means[name]["map"]]
    behind, p_behind = gain_of(compared, SER, SVM, "map"), p_of(compared, SER, SVM, "map")
    return [
        judged("SSER has the best MAP of the seven (Figure 1)", f"best: {best} {means[best]['map']:.4f}", best == SSER),
        judged("SSER is above SER (Figure 1; p < 0.05)", f"{gain:+.4f}, {p_text(p)}", gain > 0 and p < _SIGNIFICANT),
        judged(
            "SSER is the best at ranks 1 and 2 (Figure 2)",
            ", ".join(f"{measure}: {name}" for measure, name in first.items()),
            all(name == SSER for name in first.values()),
        ),
        judged(
            "SER is above RankBoost, AdaRank and MHR-BC", f"above {', '.join(below) or 'none of them'}", len(below) == 3
        ),
        judged(
            "SER is just below Ranking SVM",
            f"{behind:+.4f}, {p_text(p_behind)}",
            behind < 0 and p_behind >= _SIGNIFICANT,
        ),
        judged(
            "Training SER and SSER takes a fraction of Ranking SVM's time (Table 3)",
            f"{seconds[SER] / seconds[SVM]:.2g} and {seconds[SSER] / seconds[SVM]:.2g} times ours",
            max(seconds[SER], seconds[SSER]) < seconds[SVM],
        ),
    ]
