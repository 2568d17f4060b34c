"""Local models from clusters, selected and aggregated [lin2011]_: its tables, its figures, its claims.

Rows without more words, which come first, are the paper's methods, and its claims are judged on them: clusters, λ, and
k or t are chosen by validation MAP, there is no prior and no model is left out. *prior*: how strongly local models are
shrunk towards the global one is chosen too, beside all that plain rows choose from. *prior, floor*: so is the share of
the largest weight below which a model is left out. *soft*: queries belong to more than their own clusters. *query
clusters*: clusters of training queries in the view of top-t means, and not of relevant documents; *filter*: the k
queries are chosen among those that have a relevant document (Algorithm 2, step 3), which all members of clusters of
relevant documents have. *trees*: the local models are boosted trees grown on top of the global ones, 5 clusters,
default settings, to be seen beside `lambdamart` with its own. In the figures over the number of clusters λ is the one
validation chose for the single model; k and t are 10. A quick run has the first fold and one value of every parameter
but the number of clusters, of which it has two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from querywise.contracts.answers import Sizes
from querywise.data.folds import Fold, Folds
from querywise.evaluation.breakdown import Breakdown, difficulty_breakdown, relevant_documents
from querywise.evaluation.compare import compare
from querywise.evaluation.compared import Compared
from querywise.evaluation.examples import Example, extremes
from querywise.evaluation.trained import Fit
from querywise.report.tables import Cell, Column, Table
from querywise.reproduction.claims import QUICK, write_findings
from querywise.reproduction.figures import counts_figure, line_figure
from querywise.reproduction.lin2011_claims import claims_of
from querywise.reproduction.lin2011_names import MEASURES, METHOD_NAMES, NAIVE, SELECT, SINGLE, TRANSFORM, TREES
from querywise.reproduction.lin2011_sweep import COUNTS, FEW_COUNTS, Sweep, sweep, sweep_table
from querywise.reproduction.rows import FLAVOUR, fitting, rows_table, tests_of
from querywise.runtime.files import atomic_text, make_folder
from querywise.runtime.values import JsonObject, Settings

_L2 = {"l2": (0.1, 1.0, 10.0)}
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
    seen = _Seen()
    compared = compare(_fits(reference, quick=quick), parts, measures=MEASURES, flavour=FLAVOUR, observe=seen.look)
    swept = sweep(parts, reference, FEW_COUNTS if quick else COUNTS)
    difficulty = difficulty_breakdown(compared, "map")
    shown = max(METHOD_NAMES[1:], key=lambda name: _validated(compared, name))
    best, worst = extremes(compared, shown, "map", count=5, top=1)
    numbers: JsonObject = {
        "quick": quick,
        "comparison": compared.as_json(),
        "tests": tests_of(compared, compared.names, [SINGLE, TREES], ("map",)),
        "difficulty": [group._asdict() for group in difficulty.groups],
        "chosen": {name: compared.parameters(name) for name in compared.names},
        "groups": seen.groups,
        "sweep": asdict(swept),
        "relevant": relevant_documents(compared).tolist(),
    }
    headings = {each: "mean NDCG" if each == "mean_ndcg" else each.upper() for each in MEASURES}
    tables = [
        rows_table(compared, headings, [SINGLE, TREES], {"map": "MAP"}),
        _groups_table(seen.groups),
        _difficulty_table(difficulty),
        sweep_table(swept),
        _examples_table((*best, *worst)),
    ]
    written = [*([QUICK] if quick else []), *(each.markdown() for each in tables)]
    table = write_findings(out, numbers, written, claims_of(compared, swept, difficulty))
    _draw(out, compared, swept)
    return table


class _Seen:
    """What only the fitted rankers know: how many groups they have, and for how many the global model answers."""

    def __init__(self) -> None:
        self.groups: dict[str, list[dict[str, int]]] = {}

    def look(self, fold: Fold, name: str, ranker: Any) -> None:
        """Called with every fitted ranker."""
        if isinstance(getattr(ranker, "sizes", None), Sizes):
            sizes = ranker.sizes
            self.groups.setdefault(name, []).append({"groups": sizes.groups, "thin": sizes.of_one_query + sizes.empty})


def _fits(reference: int | str | None, *, quick: bool) -> dict[str, Fit]:
    """The paper's rows, then ours."""

    def row(name: str, fixed: Settings, more: Mapping[str, Sequence[Any]] | None = None) -> Fit:
        asked = {**({} if name == NAIVE else {"reference": reference, "floor": 0.0}), "prior_l2": 0.0, **fixed}
        grid = {**_GRIDS[name], **(more or {})}
        open_to_choice = {setting: value for setting, value in asked.items() if setting not in grid}
        return fitting(name, open_to_choice, _few(grid) if quick else grid)

    fits = {SINGLE: fitting(SINGLE, {}), **{name: row(name, {}) for name in METHOD_NAMES}}
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


def _validated(compared: Compared, name: str) -> float:
    return float(np.mean([each.valid_value for each in compared.trained[name]]))


def _draw(out: Path, compared: Compared, swept: Sweep) -> None:
    line_figure(
        out / "against-clusters.svg",
        swept.clusters,
        swept.map,
        level={SINGLE: swept.single},
        labels=("clusters", "MAP"),
        title="UpperBound, RelevantOnly and the three methods, no prior",
    )
    line_figure(
        out / "by-rank.svg",
        range(1, len(swept.by_rank) + 1),
        {"r-th best of naive's models": swept.by_rank},
        level={SINGLE: swept.single},
        labels=("rank of the model, the best for each query first", "MAP"),
        title=f"Always taking the r-th best of {swept.clusters[-1]} clusters' models",
    )
    with atomic_text(out / "relevant.svg") as file:
        file.write(counts_figure(relevant_documents(compared).tolist()))


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
    columns = [Column("MAP by relevant documents")]
    for group in found.groups:
        columns += [Column(f"{group.label} ({group.queries})", "value"), Column("p", "p")]
    rows = []
    for name in found.groups[0].means:
        cells: list[Cell] = [name]
        for group in found.groups:
            cells += [group.means[name], None if name == SINGLE else group.p[name]]
        rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows), f"Number of queries in brackets; p: paired t-test against {SINGLE}.")


def _examples_table(found: Sequence[Example]) -> Table:
    """Table 4: the queries that moved most."""
    name = found[0].names[1] if found else SELECT
    rows: list[tuple[Cell, ...]] = [(each.query, *each.values) for each in found]
    columns = (Column("query"), Column(f"AP, {SINGLE}", "value"), Column(f"AP, {name}", "value"))
    return Table(columns, tuple(rows), "The queries that gain most and those that lose most.")
