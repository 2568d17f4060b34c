"""Quality and change ratio against k and against the number of training queries (Figures 8 and 9 of [geng2008]_).

No prior. λ is the one validation chose for the single model with the same loss, T the paper's 50. With the paper's loss
there is Online alone: a model per test query, not one per training query, for every k. The change ratio γ does not
depend on the loss. "A larger collection" is all training queries against two halves and four quarters of them, drawn
at random once; γ of a test query is the mean over the halves, or quarters, known where each of them has one, and k is
20 % of the training queries there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from querywise.data.folds import Fold
from querywise.data.judged import Judged
from querywise.evaluation.analysis import change_ratios
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.tuning import tune
from querywise.methods import METHODS
from querywise.report.tables import Cell, Column, Table
from querywise.reproduction.geng2008_names import KNN, PAPER, SINGLE, by_paper
from querywise.reproduction.rows import FLAVOUR, NO_BACK_OFF
from querywise.runtime.arrays import Floats
from querywise.runtime.progress import track
from querywise.runtime.values import JsonObject, Settings

SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0)
FEW_SHARES = (0.05, 0.3, 0.85, 1.0)  # of a quick run
HINGE_SHARES = (0.05, 0.3, 1.0)  # of the hinge loss where there is much data: its models are fitted one by one
SWEPT = ("ndcg@5", "ndcg@10", "map")
PARTS = (4, 2, 1)  # quarters, halves, all
ONLINE_HINGE = by_paper(KNN[0])
_SHARE_OF_PARTS = 0.2


@dataclass(frozen=True)
class Sweep:
    """Per test query: measures of every method at every share k/m, and γ of the offline ones there and by parts.

    values: method → share → queries × measures. ratios: method → share → γ of every query, NaN where undefined.
    by_parts: method → γ of every query for quarters, halves and all.
    """

    shares: tuple[float, ...]
    single: dict[str, float]
    values: dict[str, dict[float, Floats]]
    ratios: dict[str, dict[float, Floats]]
    by_parts: dict[str, list[Floats]]

    @property
    def quality(self) -> dict[str, list[dict[str, float]]]:
        """Means of the methods that have every share."""
        return {
            name: [dict(zip(SWEPT, found[share].mean(axis=0).tolist(), strict=True)) for share in self.shares]
            for name, found in self.values.items()
            if len(found) == len(self.shares)
        }

    @property
    def change_ratio(self) -> dict[str, list[float]]:
        """Mean γ at every share."""
        return {name: [float(np.nanmean(found[share])) for share in self.shares] for name, found in self.ratios.items()}

    def as_json(self) -> JsonObject:
        """Means, and how many γ are undefined."""
        means = {
            name: {
                f"{share:g}": dict(zip(SWEPT, each.mean(axis=0).tolist(), strict=True)) for share, each in found.items()
            }
            for name, found in self.values.items()
        }
        undefined = {
            name: [int(np.isnan(found[share]).sum()) for share in self.shares] for name, found in self.ratios.items()
        }
        return {
            "shares": list(self.shares),
            "single": self.single,
            "quality": means,
            "change_ratio": self.change_ratio,
            "undefined_change_ratios": undefined,
            "change_ratio_by_parts": {
                name: {str(parts): float(np.nanmean(each)) for parts, each in zip(PARTS, found, strict=True)}
                for name, found in self.by_parts.items()
            },
        }


def sweep(folds: Sequence[Fold], reference: int | str | None, *, quick: bool, many: bool) -> Sweep:
    """Everything over all test queries; many: less of the hinge loss."""
    shares = FEW_SHARES if quick else SHARES
    hinge = HINGE_SHARES if many else shares
    found = [_of_fold(fold, reference, shares, hinge) for fold in track(folds, "k")]
    names = (ONLINE_HINGE, *KNN)
    level = np.concatenate([single for single, *_ in found]).mean(axis=0).tolist()
    return Sweep(
        shares,
        dict(zip(SWEPT, level, strict=True)),
        {name: {s: np.concatenate([each[1][name][s] for each in found]) for s in found[0][1][name]} for name in names},
        {name: {s: np.concatenate([each[2][name][s] for each in found]) for s in shares} for name in KNN[1:]},
        {
            name: [np.concatenate([each[3][name][part] for each in found]) for part in range(len(PARTS))]
            for name in KNN[1:]
        },
    )


_Values = dict[str, dict[float, Floats]]


def _of_fold(
    fold: Fold, reference: int | str | None, shares: Sequence[float], hinge_shares: Sequence[float]
) -> tuple[Floats, _Values, _Values, dict[str, list[Floats]]]:
    """One fold: the single model's measures, those of every method, and the change ratios."""
    ours, theirs = (_tuned_l2(fold, loss) for loss in ({}, PAPER))
    values: _Values = {name: {} for name in (ONLINE_HINGE, *KNN)}
    ratios: _Values = {name: {} for name in KNN[1:]}
    for share in track(shares, "k"):
        trained = {}
        for name in KNN:
            ranker: Any = METHODS[name].build(k=share, reference=reference, l2=ours, **NO_BACK_OFF).fit(fold.train)
            values[name][share] = _measured(ranker, fold)
            trained[name] = ranker.training_queries(fold.test.candidates)
        for name in KNN[1:]:
            ratios[name][share] = change_ratios(trained[name], trained[KNN[0]], fold.train.pairs)
    for share in hinge_shares:
        online = METHODS[KNN[0]].build(k=share, reference=reference, l2=theirs, **PAPER, **NO_BACK_OFF).fit(fold.train)
        values[ONLINE_HINGE][share] = _measured(online, fold)
    single = _measured(METHODS[SINGLE].build(l2=ours).fit(fold.train), fold)
    return single, values, ratios, _by_parts(fold, reference, ours)


def _tuned_l2(fold: Fold, loss: Settings) -> float:
    """λ as validation chooses it for the single model."""
    method = METHODS[SINGLE]
    grid = {**method.grid, **{name: (value,) for name, value in loss.items()}}
    chosen: Any = tune(method.build, grid, train=fold.train, valid=fold.valid, flavour=FLAVOUR).parameters["l2"]
    return float(chosen)


def _by_parts(fold: Fold, reference: int | str | None, l2: float) -> dict[str, list[Floats]]:
    """γ of every test query where there are a quarter, half and all of the training queries."""
    turned = np.random.default_rng(0).permutation(len(fold.train))
    found: dict[str, list[Floats]] = {name: [] for name in KNN[1:]}
    for count in PARTS:
        parts = [fold.train.select(np.sort(each)) for each in np.array_split(turned, count)]
        gammas = [_ratios_of(part, fold, reference, l2) for part in parts if part.pairs.any()]
        for name in KNN[1:]:
            found[name].append(np.mean([each[name] for each in gammas], axis=0))
    return found


def _ratios_of(train: Judged, fold: Fold, reference: int | str | None, l2: float) -> dict[str, Floats]:
    asked: dict[str, Any] = {"k": _SHARE_OF_PARTS, "reference": reference, "l2": l2, "tolerance": None, **NO_BACK_OFF}
    trained = {}
    for name in KNN:
        ranker: Any = METHODS[name].build(**asked).fit(train)
        trained[name] = ranker.training_queries(fold.test.candidates)
    return {name: change_ratios(trained[name], trained[KNN[0]], train.pairs) for name in KNN[1:]}


def _measured(ranker: Any, fold: Fold) -> Floats:
    return evaluate(
        ranker.predict(fold.test.candidates), fold.test, measures=SWEPT, flavour=FLAVOUR, order="grouped"
    ).values


def sweep_table(swept: Sweep) -> str:
    """Figures 8 and 9 in numbers, and γ by the number of training queries."""
    names = (ONLINE_HINGE, *KNN)
    columns = [Column("k, % of m"), *(Column(f"MAP {name}", "value") for name in names)]
    columns += [Column(f"γ {name}", "value") for name in KNN[1:]]
    rows: list[tuple[Cell, ...]] = []
    for place, share in enumerate(swept.shares):
        quality = [swept.values[name].get(share) for name in names]
        cells: list[Cell] = [None if each is None else float(each.mean(axis=0)[SWEPT.index("map")]) for each in quality]
        rows.append((f"{100 * share:g}", *cells, *(swept.change_ratio[name][place] for name in KNN[1:])))
    said = f"No prior; single reaches MAP {swept.single['map']:.4f}."
    table = Table(tuple(columns), tuple(rows), said).markdown()
    parts: list[tuple[Cell, ...]] = [
        (label, *(float(np.nanmean(swept.by_parts[name][place])) for name in KNN[1:]))
        for place, label in enumerate(("a quarter", "half", "all"))
    ]
    headings = (Column("of the training queries"), *(Column(f"γ {name}", "value") for name in KNN[1:]))
    sizes = Table(headings, tuple(parts), "Change ratio at k = 20 % of the training queries.").markdown()
    return f"{table}\n{sizes}"
