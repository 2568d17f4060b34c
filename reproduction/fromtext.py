"""From raw text: BM25, one model for all, and nearest neighbours in several views, on any text collection.

Parameters of every method are chosen on the validation part of each fold by mean NDCG, and one row chooses the method
itself there too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.folds import Fold, Folds
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.rankings import class_shares
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import TunedFit
from querywise.methods import METHODS
from querywise.report.tables import Cell, Table, values_and_p
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.files import make_folder
from querywise.runtime.values import JsonObject
from reproduction.papers import NO_BACK_OFF, write_findings

VIEWS = ("top-mean", "text", "top-mean+text", "gradient:text", "gradient:top-mean+text")
KNN = ("knn-online", "knn-offline-1", "knn-offline-2")
BASELINE = "single"
ORACLE = "oracle: true class"
CHOSEN_BY = "mean_ndcg"
_MEASURES = ("map", "ndcg@10", "mean_ndcg")


def reproduce(folds: Folds, out: Path) -> Path:
    """Write table.md and numbers.json into a folder; returns the table's path."""
    make_folder(out)
    parts = list(folds)
    shares: dict[str, list[Floats]] = {}

    def observe(fold: Fold, name: str, ranker: Any) -> None:
        if name.startswith(KNN[0]) and any(fold.test.classes):
            members = ranker.training_queries(fold.test.candidates)
            shares.setdefault(name, []).append(class_shares(members, fold.train.classes, fold.test.classes))

    fits = _fits(classes=any(parts[0].train.classes))
    compared = compare(fits, parts, measures=_MEASURES, baseline=BASELINE, observe=observe)
    compared = compared.with_choice([name for name in fits if name != ORACLE])
    alike = {name: float(np.nanmean(np.concatenate(each))) for name, each in shares.items()}
    choices = {
        name: [
            {"method": each.method, "parameters": chosen}
            for each, chosen in zip(trained, compared.parameters(name), strict=True)
        ]
        for name, trained in compared.trained.items()
    }
    numbers: JsonObject = {"comparison": compared.as_json(), "same_class": alike, "chosen": choices}
    return write_findings(out, numbers, [_table(compared), *_by_class(compared, alike)])


def _fits(*, classes: bool) -> dict[str, Fit]:
    def fitting(name: str, **fixed: Any) -> Fit:
        method = METHODS[name]
        return TunedFit(method.build, method.grid, fixed=fixed, measure=CHOSEN_BY)

    fits = {name: fitting(name) for name in ("bm25", BASELINE, "lambdamart")}
    if classes:
        fits |= {f"query-classes, {view}": fitting("query-classes", view=view) for view in VIEWS[:3]}
    fits |= {f"{name}, {view}": fitting(name, view=view, **NO_BACK_OFF) for name in KNN for view in VIEWS}
    if classes:
        fits[ORACLE] = fitting("query-classes", known=True)
    return fits


def _table(compared: Compared) -> Table:
    rows = {
        name: [
            (mean, None if name == compared.baseline else compared.against_baseline(name, measure).p)
            for measure, mean in compared.evaluations[name].mean().items()
        ]
        for name in compared.names
    }
    caption = f"{len(compared.judged)} test queries, flavour {compared.flavour}; p: paired t-test against single."
    headings = {"MAP": "p", "NDCG@10": "p", "mean NDCG": "p"}
    return values_and_p("method, view", headings, rows, " ".join([caption, *compared.counted()]))


def _by_class(compared: Compared, alike: dict[str, float]) -> list[Table | str]:
    if not compared.classes:
        return []

    def cell(name: str, chosen: Bools) -> tuple[Cell, Cell]:
        mean = float(compared.evaluations[name][CHOSEN_BY][chosen].mean())
        return mean, None if name == compared.baseline else compared.against_baseline(name, CHOSEN_BY, chosen).p

    headings = {f"{name} ({int(chosen.sum())})": "p" for name, chosen in compared.classes.items()}
    rows = {name: [cell(name, chosen) for chosen in compared.classes.values()] for name in compared.names}
    shares = ", ".join(f"{name.partition(', ')[2]} {100 * share:.0f} %" for name, share in alike.items())
    told = f"Share of a test query's neighbours (knn-online, k as chosen) that are of its class: {shares}."
    return [values_and_p("mean NDCG by class", headings, rows), told + "\n"]
