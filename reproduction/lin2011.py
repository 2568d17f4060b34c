"""Local models from clusters, selected and aggregated [lin2011]_: its tables, its figures, its claims.

The paper's own rows come first, *hinge*: RankSVM's loss, the plain hinge over all pairs alike, on the features as they
are; λ, the number of clusters, and k or t are chosen by validation MAP, there is no prior and no model is left out.
They, and three global models of LETOR 4 as rivals, are tested against `single, hinge`; all claims are judged on them.
*repeat*: AdaRank may take a weak ranker again, as its paper has it; RankBoost has its default settings, and like it as
many rounds as validation asks for. Our rows follow, tested against `single`: the
squared hinge on standardised features, every query alike. *prior*: how strongly local models are shrunk towards the
global one is chosen too, beside all that plain rows choose from. *prior, floor*: so is the share of the largest weight
below which a model is left out. *soft*: queries belong to more than their own clusters. *query clusters*: clusters of
training queries in the view of top-t means, and not of relevant documents; *filter*: the k queries are chosen among
those that have a relevant document, our reading of Algorithm 2, step 3; all members of clusters of relevant documents
have one. *trees*: the local models are boosted trees grown on top of the global ones, 5 clusters, default settings, to
be seen beside `lambdamart` with its own. The figures over the number of clusters have the paper's loss; λ is the one
validation chose for the single model; k and t are 10. A quick run has the first fold and one value of every parameter
but the number of clusters, of which it has two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from querywise.contracts.answers import Sizes
from querywise.data.folds import Fold, Folds
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.rankings import (
    Breakdown,
    difficulty_breakdown,
    extremes,
    relevant_documents,
)
from querywise.evaluation.trained import Fit
from querywise.report.tables import Cell, Column, Table, values_and_p
from querywise.runtime.files import make_folder
from querywise.runtime.values import JsonObject, Settings
from reproduction.lin2011_claims import (
    AGGREGATED,
    MEASURES,
    QUERIES,
    RIVALS,
    claims_of,
    of_difficulty,
)
from reproduction.lin2011_sweep import (
    ALONE,
    ALONE_L2,
    LOSS,
    METHOD_NAMES,
    NAIVE,
    SELECT,
    SINGLE,
    THEIRS,
    TRANSFORM,
    TREES,
    Sweep,
    sweep,
    sweep_table,
)
from reproduction.papers import (
    FLAVOUR,
    by_paper,
    counts_figure,
    fitting,
    line_figure,
    rows_table,
    tests_of,
    write_findings,
)
from reproduction.verdicts import values_of

COUNTS = (1, 5, 10, 20, 50, 100)
FEW_COUNTS = (1, 10, 100)  # of a quick run
_L2 = {"l2": (0.1, 1.0, 10.0)}
_HINGE_L2 = {"l2": (0.01, 0.1)}
_PRIOR = {"prior_l2": (0.0, 2.0)}
_FLOOR = {"floor": (0.0, 0.7)}
_CLUSTERS = (5, 20, 50, 100)
_GRIDS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    NAIVE: {**_L2, "clusters": _CLUSTERS, "top": (5, 50)},
    SELECT: {**_L2, "clusters": _CLUSTERS, "k": (5, 20)},
    TRANSFORM: {**_L2, "clusters": _CLUSTERS, "top": (5, 50)},
}
_QUERY_CLUSTERS: Settings = {"view": "top-mean", "top": 10}


def reproduce(folds: Folds, out: Path, *, reference: int | str | None = None, quick: bool = False) -> Path:
    """Write table.md, numbers.json and the figures into a folder; returns the table's path.

    quick: the shape of every table from one fold; its numbers are not to be quoted.
    """
    make_folder(out)
    parts = [folds[0]] if quick else list(folds)
    groups: dict[str, list[dict[str, int]]] = {}

    def look(fold: Fold, name: str, ranker: Any) -> None:
        """How many groups a ranker has, and for how many the global model answers."""
        sizes = getattr(ranker, "sizes", None)
        if isinstance(sizes, Sizes):
            groups.setdefault(name, []).append({"groups": sizes.groups, "thin": sizes.of_one_query + sizes.empty})

    compared = compare(_fits(reference, quick=quick), parts, measures=MEASURES, flavour=FLAVOUR, observe=look)
    swept = sweep(parts, reference, FEW_COUNTS if quick else COUNTS)
    theirs = _rows(compared, (ALONE, *THEIRS, *RIVALS))
    ours = _rows(compared, [name for name in compared.names if name not in theirs.names])
    difficulty = difficulty_breakdown(theirs, "map"), difficulty_breakdown(ours, "map")
    numbers: JsonObject = {
        "comparison": compared.as_json(),
        "tests": {
            **tests_of(compared, theirs.names, [ALONE], MEASURES),
            **tests_of(compared, ours.names, [SINGLE, TREES], ("map",)),
        },
        "difficulty": [group._asdict() for found in difficulty for group in found.groups],
        "chosen": {name: compared.parameters(name) for name in compared.names},
        "groups": {name: list(folds) for name, folds in groups.items()},
        "sweep": {name: each for name, each in asdict(swept).items() if name != "values"},
        "relevant": relevant_documents(compared).tolist(),
    }
    headings = {each: "mean NDCG" if each == "mean_ndcg" else each.upper() for each in MEASURES}
    tables = [
        rows_table(theirs, headings, [ALONE], {"map": "MAP"}),
        rows_table(ours, headings, [SINGLE, TREES], {"map": "MAP"}),
        _groups_table(groups),
        *map(_difficulty_table, difficulty),
        sweep_table(swept),
        _examples_table(theirs),
    ]
    _draw(out, compared, swept)
    values = {**values_of(compared), **swept.values, **of_difficulty(compared)}
    claims = claims_of(swept, difficulty[0], values, mq2008=len(folds.whole()) == QUERIES)
    queries = compared.judged.candidates.query_ids
    return write_findings(out, numbers, tables, claims, quick=quick, queries=queries, values=values)


def _rows(compared: Compared, names: Sequence[str]) -> Compared:
    """Some rows of a comparison, the first of them the baseline."""
    return replace(compared, trained={name: compared.trained[name] for name in names}, baseline=names[0])


def _fits(reference: int | str | None, *, quick: bool) -> dict[str, Fit]:
    """The paper's rows, then ours."""

    def row(name: str, fixed: Settings, more: Mapping[str, Sequence[Any]] | None = None) -> Fit:
        asked = {**({} if name == NAIVE else {"reference": reference, "floor": 0.0}), "prior_l2": 0.0, **fixed}
        grid = {**_GRIDS[name], **(more or {})}
        open_to_choice = {setting: value for setting, value in asked.items() if setting not in grid}
        return fitting(name, open_to_choice, _few(grid) if quick else grid)

    fits: dict[str, Fit] = {ALONE: fitting("ranksvm", LOSS, ALONE_L2)}
    fits |= {by_paper(name): row(name, LOSS, _HINGE_L2) for name in METHOD_NAMES}
    fits |= {"rankboost": fitting("rankboost", {}, {}), "listnet": fitting("listnet", {})}
    fits["adarank, repeat"] = fitting("adarank", {"repeat": True})
    fits |= {SINGLE: fitting(SINGLE, {}), **{name: row(name, {}) for name in METHOD_NAMES}}
    fits |= {f"{name}, prior": row(name, {}, _PRIOR) for name in METHOD_NAMES}
    fits |= {f"{name}, prior, floor": row(name, {}, {**_PRIOR, **_FLOOR}) for name in METHOD_NAMES[1:]}
    fits[f"{SELECT}, soft"] = row(SELECT, {}, {"softness": (0.5,), "clusters": _CLUSTERS[:3]})
    fits[f"{SELECT}, query clusters"] = row(SELECT, _QUERY_CLUSTERS)
    fits[f"{SELECT}, query clusters, filter"] = row(SELECT, {**_QUERY_CLUSTERS, "with_relevant": True})
    fits[TREES] = fitting(TREES, {}, {})
    trees = {"reference": reference, "base": TREES, "prior_l2": 1.0, "clusters": 5}
    fits[f"{SELECT}, trees"] = fitting(SELECT, trees, {})
    return fits


def _few(grid: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """One value of every parameter, two numbers of clusters."""
    return {name: values[1::2] if name == "clusters" else values[1:2] or values for name, values in grid.items()}


def _draw(out: Path, compared: Compared, swept: Sweep) -> None:
    line_figure(
        out / "against-clusters.svg",
        swept.clusters,
        swept.map,
        level={ALONE: swept.single},
        labels=("clusters", "MAP"),
        title="UpperBound, RelevantOnly and the three methods, the paper's loss",
    )
    line_figure(
        out / "by-rank.svg",
        range(1, len(swept.by_rank) + 1),
        {"r-th best of naive's models": swept.by_rank},
        level={ALONE: swept.single},
        labels=("rank of the model, the best for each query first", "MAP"),
        title=f"Always taking the r-th best of {swept.clusters[-1]} clusters' models",
    )
    counts_figure(out / "relevant.svg", relevant_documents(compared).tolist())


def _groups_table(found: dict[str, list[dict[str, int]]]) -> Table:
    """How many groups there were, over the folds, and how many of them were too thin for a model of their own."""
    rows: list[tuple[Cell, ...]] = []
    for name, folds in found.items():
        totals = {what: sum(each[what] for each in folds) for what in ("groups", "thin")}
        rows.append((name, totals["groups"], totals["thin"]))
    columns = (Column("groups, over the folds"), Column("all", "count"), Column("thin", "count"))
    caption = "Thin: fewer than two training queries to learn from, so that the model is the global one."
    return Table(columns, tuple(rows), caption)


def _difficulty_table(found: Breakdown) -> Table:
    """Table 3: quality by number of relevant documents."""
    first = next(iter(found.groups[0].means))
    rows = {
        name: [(group.means[name], None if name == first else group.p[name]) for group in found.groups]
        for name in found.groups[0].means
    }
    headings = {f"{group.label} ({group.queries})": "p" for group in found.groups}
    caption = f"Number of queries in brackets; p: paired t-test against {first}."
    return values_and_p("MAP by relevant documents", headings, rows, caption)


def _examples_table(compared: Compared) -> Table:
    """Table 4: the queries that moved most under the one of the two that validation prefers."""
    validated = {name: np.mean([each.valid_value for each in compared.trained[name]]) for name in AGGREGATED}
    name = max(validated, key=lambda each: validated[each])
    best, worst = extremes(compared, name, "map", count=5, top=1)
    rows: list[tuple[Cell, ...]] = [(each.query, *each.values) for each in (*best, *worst)]
    columns = (Column("query"), Column(f"AP, {ALONE}", "value"), Column(f"AP, {name}", "value"))
    return Table(columns, tuple(rows), "The queries that gain most and those that lose most.")
