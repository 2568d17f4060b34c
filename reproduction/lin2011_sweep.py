"""Quality against the number of clusters and by rank of the model (Figures 2 and 3 of [lin2011]_), with its loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from querywise.data.folds import Fold
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.oracle import oracle_gap
from querywise.methods import METHODS
from querywise.report.tables import Cell, Column, Table
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import caching
from querywise.runtime.progress import track
from querywise.runtime.values import Grid, Settings
from reproduction.papers import FLAVOUR, PAPER, by_paper, fitting
from reproduction.verdicts import Values, column

SINGLE, TREES, NAIVE, SELECT, TRANSFORM = "single", "lambdamart", "naive", "select-ranker", "transform"
METHOD_NAMES = (NAIVE, SELECT, TRANSFORM)
LOSS: Settings = {**PAPER, "scale": "none"}  # the paper's
ALONE_L2: Grid = {"l2": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)}
ALONE = by_paper(SINGLE)
THEIRS = tuple(map(by_paper, METHOD_NAMES))
_BOUNDS = ("UpperBound", "RelevantOnly")
LEVEL = "single of the sweep | map"
_THIN = (NAIVE, TRANSFORM)  # SelectRanker has Naive's groups


@dataclass(frozen=True)
class Sweep:
    """Means of average precision over all test queries, by number of clusters, and what follows from them."""

    clusters: list[int]
    single: float
    map: dict[str, list[float]]
    groups: dict[str, list[int]]  # over all folds
    thin_groups: dict[str, list[int]]
    by_rank: list[float]
    single_rank: int | None
    values: Values  # average precision of every test query


def sweep(folds: Sequence[Fold], reference: int | str | None, counts: Sequence[int]) -> Sweep:
    """Everything against the number of clusters, over all test queries: means of average precision."""
    lines: dict[str, list[list[Floats]]] = {name: [[] for _ in counts] for name in (*METHOD_NAMES, *_BOUNDS)}
    thin, groups = ({name: [0] * len(counts) for name in METHOD_NAMES} for _ in range(2))
    single: list[Floats] = []
    ranked: list[Floats] = []
    for fold in track(folds, "Sweep over clusters"):
        tuned: Any = fitting("ranksvm", LOSS, ALONE_L2)(fold.train, fold.valid)
        single.append(_precision(tuned.ranker, fold))
        for place, count in enumerate(track(counts, "Clusters")):
            with caching():  # naive and select-ranker have the same models
                for name in METHOD_NAMES:
                    asked = {} if name == NAIVE else {"reference": reference}
                    ranker: Any = METHODS[name].build(clusters=count, **asked, **tuned.parameters).fit(fold.train)
                    lines[name][place].append(_precision(ranker, fold))
                    thin[name][place] += ranker.sizes.of_one_query + ranker.sizes.empty
                    groups[name][place] += ranker.sizes.groups
                    gap = oracle_gap(ranker, fold.test, flavour=FLAVOUR) if name == NAIVE else None
                    if gap is not None:
                        lines[_BOUNDS[0]][place].append(gap.best)
                        assert gap.relevant_only is not None, "naive places documents"
                        lines[_BOUNDS[1]][place].append(gap.relevant_only)
                        if count == counts[-1]:
                            ranked.append(gap.by_rank * len(fold.test))
    alone = np.concatenate(single)
    level = float(alone.mean())
    length = min(map(len, ranked))
    by_rank = sum(each[:length] for each in ranked) / sum(len(fold.test) for fold in folds)
    below = np.flatnonzero(by_rank <= level)
    names = [swept_at(*each) for each in product(lines, counts)]
    found = [np.concatenate(parts) for each in lines.values() for parts in each]
    return Sweep(
        clusters=list(counts),
        single=level,
        map={name: [float(np.concatenate(parts).mean()) for parts in each] for name, each in lines.items()},
        groups=groups,
        thin_groups=thin,
        by_rank=np.asarray(by_rank).tolist(),
        single_rank=int(below[0]) + 1 if len(below) else None,
        values={**dict(zip(names, found, strict=True)), LEVEL: alone},
    )


def swept_at(name: str, count: int) -> str:
    """The column of a method at a number of clusters."""
    return column(name, f"{count} clusters", "map")


def _precision(ranker: Any, fold: Fold) -> Floats:
    return evaluate(ranker, fold.test, measures=["map"], flavour=FLAVOUR)["map"]


def sweep_table(swept: Sweep) -> Table:
    """Figure 2 in numbers."""
    names = tuple(swept.map)
    thin = swept.thin_groups, swept.groups
    rows: list[tuple[Cell, ...]] = [
        (str(count), *(swept.map[name][place] for name in names),
         *(f"{thin[0][name][place]} of {thin[1][name][place]}" for name in _THIN))
        for place, count in enumerate(swept.clusters)
    ]  # fmt: skip
    rank = "never" if swept.single_rank is None else f"at rank {swept.single_rank}"
    caption = (
        f"MAP against the number of clusters, the paper's loss; {ALONE} reaches {swept.single:.4f}. Always taking the "
        f"r-th best of the models of {swept.clusters[-1]} clusters falls to that {rank}. Thin groups, over all folds, "
        "have fewer than two training queries to learn from: their model is the global one."
    )
    columns = (*(Column(name, "value") for name in names), *(Column(f"thin groups, {name}") for name in _THIN))
    return Table((Column("clusters"), *columns), tuple(rows), caption)
