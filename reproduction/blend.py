"""The method `blend`, part by part: what context, objectives, local models and weights each add to LambdaMART.

All trees are averaged over five seeds and stop on the validation part of each fold; no other parameter is chosen, but
for the rows *chosen*, which go through a grid there: those of `lambdamart` and of `blend`, and groups of context.
The defaults of the method were chosen by validation MAP; learned weights are measured on the half of the validation
queries that they were not learned on. *weights by neighbours* weights each ranker by how well it ranks the most
similar training queries.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.folds import Fold, Folds
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import TunedFit
from querywise.learners.classic.lists import Worth
from querywise.learners.trees.context import QueryContext
from querywise.methods import METHODS, Method
from querywise.methods.table import RECOMMENDED
from querywise.rankers.blend import Blend, NearbyBlend, learned_weights
from querywise.report.tables import Cell, Column, Table
from querywise.runtime.arrays import Floats
from querywise.runtime.files import make_folder
from reproduction.papers import p_of, usual_flavour, write_findings

BAG = 5
PLAIN, CHOSEN, SINGLE, WHOLE = "lambdamart", "lambdamart chosen", "single", RECOMMENDED
RIVALS = (CHOSEN, SINGLE)
LEARNED = f"{WHOLE}, learned weights"
TRIED = f"{WHOLE} chosen"
GROUPS = {"level": ("mean", "spread"), "z": ("z",), "rank": ("rank",), "length": ("length",)}
EVERY = "every group"
_MEASURES = ("map", "ndcg@10", "mean_ndcg")


def reproduce(folds: Folds, out: Path) -> Path:
    """Write table.md and numbers.json into a folder; returns the table's path."""
    make_folder(out)
    parts = list(folds)
    flavour = usual_flavour(parts[0].train)
    validated: dict[str, list[Floats]] = {}
    weights: dict[str, list[list[float]]] = {}

    def observe(fold: Fold, name: str, ranker: Any) -> None:
        learned = getattr(ranker, "weights", "equal") == "learned"
        scores = _crossed(ranker, fold.valid) if learned else ranker.predict(fold.valid.candidates)
        found = evaluate(scores, fold.valid, measures=["map"], flavour=flavour, order="grouped")
        validated.setdefault(name, []).append(found["map"])
        if learned:
            weights.setdefault(name, []).append(ranker.weights_.tolist())

    fits = _fits(flavour)
    compared = compare(fits, parts, measures=_MEASURES, flavour=flavour, observe=observe)
    valid = {name: float(np.concatenate(each).mean()) for name, each in validated.items()}
    seconds = {name: _seconds(name, parts[0]) for name in (PLAIN, WHOLE)}
    tested = {name: each.p_holm for name, each in compared.differences.tested("map", "t").items()}
    numbers: dict[str, Any] = {
        "comparison": compared.as_json(),
        "validation_map": valid,
        "holm": tested,
        "learned_weights": weights,
        "chosen": {name: compared.parameters(name) for name in (CHOSEN, TRIED)},
        "training_seconds": seconds,
    }
    return write_findings(out, numbers, [_table(compared, valid, tested), _remark(weights, seconds) + "\n"])


def _fits(flavour: str) -> dict[str, Fit]:
    """Every row a blend, of one ranker or several: what rows share is then fitted once in a fold."""
    context, listwise, knn = METHODS[WHOLE].build(bag=BAG).rankers  # type: ignore[attr-defined]
    plain, plain_listwise = context.learner, listwise.learner
    single = METHODS[SINGLE].build(l2=knn.learner.l2)
    blends = {PLAIN: Blend([plain])}
    blends["xendcg"] = Blend([plain_listwise])
    blends[SINGLE] = Blend([single])
    blends["knn-online"] = Blend([knn])
    blends["lambdamart + xendcg + knn"] = Blend([plain, plain_listwise, knn])
    blends["context"] = Blend([context])
    for label, columns in _columns(context.columns).items():
        blends[f"context, {label}"] = Blend([QueryContext(plain, columns)])
    blends["context + xendcg"] = Blend([context, listwise])
    blends["context + knn"] = Blend([context, knn])
    blends["context + xendcg + single"] = Blend([context, listwise, single])
    blends[WHOLE] = Blend([context, listwise, knn])
    every = _columns(context.columns)[EVERY]
    wide = [QueryContext(each, every) for each in (plain, plain_listwise)]
    blends[f"{WHOLE}, {EVERY} of context"] = Blend([*wide, knn])
    blends[LEARNED] = Blend([context, listwise, knn], weights="learned")
    blends[f"{WHOLE}, by ranks"] = Blend([context, listwise, knn], scores="rank")
    fits: dict[str, Fit] = {name: _as_it_is(blend) for name, blend in blends.items()}
    groups = {"context": ["+".join(context.columns), "+".join(every)]}
    fits[f"{WHOLE}, context chosen"] = _chosen(METHODS[WHOLE], flavour, groups)
    fits[TRIED] = _chosen(METHODS[WHOLE], flavour)
    fits[f"{WHOLE}, weights by neighbours"] = _as_it_is(NearbyBlend(blends[WHOLE]))
    return {PLAIN: fits.pop(PLAIN), CHOSEN: _chosen(METHODS[PLAIN], flavour), **fits}


def _columns(own: Sequence[str]) -> dict[str, list[str]]:
    """Other columns of context than the method's own: a group alone or added to these, and every group."""
    every = [name for names in GROUPS.values() for name in names]
    found = {f"{group} alone": list(names) for group, names in GROUPS.items()}
    found |= {f"and {group}": [name for name in every if name in (*own, *names)] for group, names in GROUPS.items()}
    found[EVERY] = every
    return {label: columns for label, columns in found.items() if set(columns) != set(own)}


def _as_it_is(ranker: Blend | NearbyBlend) -> Fit:
    return lambda train, valid: ranker.fit(train, valid=valid)


def _chosen(method: Method, flavour: str, grid: Mapping[str, Sequence[Any]] | None = None) -> Fit:
    """A method with the best setting of a grid, its own unless one is given, on the validation part."""
    tried = method.grid_on if grid is None else grid
    return TunedFit(method.build, tried, fixed={"bag": BAG}, flavour=flavour)


def _crossed(blend: Blend, valid: Any) -> Floats:
    """Validation scores with weights that were learned on the other half of the validation queries."""
    scores = np.zeros(len(valid.labels))
    for half in (0, 1):
        ours, others = (np.flatnonzero(np.arange(len(valid)) % 2 == each) for each in (half, 1 - half))
        teachers = valid.select(others)
        learned = learned_weights(blend.scaled(teachers.candidates), Worth(teachers, blend.measure))
        shares = blend.shrinkage / len(learned) + (1 - blend.shrinkage) * learned
        mine = np.isin(valid.candidates.query_of_row, ours)
        scores[mine] = blend.scaled(valid.candidates.select(ours)) @ shares
    return scores


def _seconds(name: str, fold: Fold) -> float:
    """One training on the first fold, all five seeds."""
    begin = time.perf_counter()
    METHODS[name].build(bag=BAG).fit(fold.train, valid=fold.valid)
    return time.perf_counter() - begin


def _table(compared: Compared, valid: dict[str, float], tested: dict[str, float]) -> Table:
    columns = [Column("ranker"), Column("MAP, validation", "value")]
    columns += [Column("MAP", "value"), Column("p", "p"), Column("p, Holm", "p")]
    columns += [Column(f"p ({rival})", "p") for rival in RIVALS]
    columns += [Column("NDCG@10", "value"), Column("p", "p"), Column("mean NDCG", "value"), Column("p", "p")]
    rows: list[tuple[Cell, ...]] = []
    for name in compared.names:
        means = compared.evaluations[name].mean()
        cells: list[Cell] = [name, valid[name]]
        for measure in _MEASURES:
            cells += [means[measure], None if name == PLAIN else compared.against_baseline(name, measure).p]
            if measure == "map":
                others = [None if name == rival else p_of(compared, name, rival, measure) for rival in RIVALS]
                cells += [tested.get(name), *others]
        rows.append(tuple(cells))
    caption = (
        f"{len(compared.judged)} test queries, flavour {compared.flavour}; p: paired t-test against {PLAIN}, and "
        f"on MAP against {' and '.join(RIVALS)}; all trees averaged over {BAG} seeds."
    )
    return Table(tuple(columns), tuple(rows), " ".join([caption, *compared.counted()]))


def _remark(weights: dict[str, list[list[float]]], seconds: dict[str, float]) -> str:
    ratio = seconds[WHOLE] / seconds[PLAIN]
    told = f"Training {WHOLE} takes {ratio:.1f} times what {PLAIN} takes, {BAG} seeds each."
    if LEARNED not in weights:
        return told
    mean: Sequence[float] = np.mean(weights[LEARNED], axis=0)
    shares = ", ".join(f"{each:.2f}" for each in mean)
    return f"{told} Learned weights, the mean over the folds: {shares} (context, xendcg, knn)."
