"""Everything against the number of clusters (Figures 2 and 3 of [lin2011]_).

No prior; λ is the one validation chose for the single model, k and t are 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from querywise.data.folds import Fold
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.oracle import oracle_gap
from querywise.evaluation.significance import paired_t_test
from querywise.evaluation.tuning import tune
from querywise.methods import METHODS
from querywise.report.tables import Cell, Column, Table
from querywise.reproduction.lin2011_names import METHOD_NAMES, NAIVE, SINGLE, TRANSFORM
from querywise.reproduction.rows import FLAVOUR
from querywise.runtime.arrays import Floats
from querywise.runtime.progress import track

COUNTS = (1, 5, 10, 20, 50, 100)
FEW_COUNTS = (1, 10, 100)  # of a quick run
_BOUNDS = ("UpperBound", "RelevantOnly")
_THIN = (NAIVE, TRANSFORM)  # SelectRanker has Naive's groups


@dataclass(frozen=True)
class Sweep:
    """Means of average precision over all test queries, by number of clusters, and what follows from them."""

    clusters: list[int]
    single: float
    map: dict[str, list[float]]
    groups: dict[str, list[int]]  # over all folds
    thin_groups: dict[str, list[int]]
    relevant_only_p: list[float]  # against the single model
    upper_bound_p: list[float]  # against the next smaller number of clusters
    by_rank: list[float]
    single_rank: int | None


def sweep(folds: Sequence[Fold], reference: int | str | None, counts: Sequence[int]) -> Sweep:
    """Everything against the number of clusters, over all test queries: means of average precision."""
    lines: dict[str, list[list[Floats]]] = {name: [[] for _ in counts] for name in (*METHOD_NAMES, *_BOUNDS)}
    thin, groups = ({name: [0] * len(counts) for name in METHOD_NAMES} for _ in range(2))
    single: list[Floats] = []
    ranked: list[Floats] = []
    for fold in track(folds, "Sweep over clusters"):
        grid = METHODS[SINGLE].grid
        tuned = tune(METHODS[SINGLE].build, grid, train=fold.train, valid=fold.valid, flavour=FLAVOUR)
        single.append(_precision(tuned.ranker, fold))
        for place, count in enumerate(track(counts, "Clusters")):
            for name in METHOD_NAMES:
                asked = {} if name == NAIVE else {"reference": reference}
                ranker: Any = METHODS[name].build(clusters=count, **asked, **tuned.parameters).fit(fold.train)
                lines[name][place].append(_precision(ranker, fold))
                thin[name][place] += ranker.sizes.of_one_query + ranker.sizes.empty
                groups[name][place] += ranker.sizes.groups
                gap = oracle_gap(ranker, fold.test, flavour=FLAVOUR)
                if name == NAIVE and gap is not None:
                    lines[_BOUNDS[0]][place].append(gap.best)
                    assert gap.relevant_only is not None, "naive places documents"
                    lines[_BOUNDS[1]][place].append(gap.relevant_only)
                    if count == counts[-1]:
                        ranked.append(gap.by_rank * len(fold.test))
    level = float(np.concatenate(single).mean())
    length = min(map(len, ranked))
    by_rank = sum(each[:length] for each in ranked) / sum(len(fold.test) for fold in folds)
    below = np.flatnonzero(by_rank <= level)
    alone = np.concatenate(single)
    upper, routed = ([np.concatenate(parts) for parts in lines[name]] for name in _BOUNDS)
    return Sweep(
        clusters=list(counts),
        single=level,
        map={name: [float(np.concatenate(parts).mean()) for parts in each] for name, each in lines.items()},
        groups=groups,
        thin_groups=thin,
        relevant_only_p=[paired_t_test(each, alone).p for each in routed],
        upper_bound_p=[paired_t_test(more, fewer).p for fewer, more in pairwise(upper)],
        by_rank=np.asarray(by_rank).tolist(),
        single_rank=int(below[0]) + 1 if len(below) else None,
    )


def _precision(ranker: Any, fold: Fold) -> Floats:
    return evaluate(
        ranker.predict(fold.test.candidates), fold.test, measures=["map"], flavour=FLAVOUR, order="grouped"
    )["map"]


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
        f"MAP against the number of clusters, no prior; {SINGLE} reaches {swept.single:.4f}. Always taking the r-th "
        f"best of the models of {swept.clusters[-1]} clusters falls to that {rank}. Thin "
        "groups, over all folds, have fewer than two training queries to learn from: their model is the global one."
    )
    columns = (*(Column(name, "value") for name in names), *(Column(f"thin groups, {name}") for name in _THIN))
    return Table((Column("clusters"), *columns), tuple(rows), caption)
