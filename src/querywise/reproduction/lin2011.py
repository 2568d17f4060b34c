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
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from querywise.contracts.answers import Sizes
from querywise.data.folds import Fold, Folds
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.oracle import oracle_gap
from querywise.evaluation.rankings import (
    Breakdown,
    Example,
    by_difficulty,
    difficulty_breakdown,
    extremes,
    relevant_documents,
)
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import tune
from querywise.methods import METHODS
from querywise.report.tables import Cell, Column, Table, values_and_p
from querywise.reproduction.papers import (
    FLAVOUR,
    counts_figure,
    fitting,
    gain_of,
    line_figure,
    rows_table,
    tests_of,
    write_findings,
)
from querywise.reproduction.verdicts import (
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
from querywise.runtime.arrays import Floats
from querywise.runtime.files import make_folder
from querywise.runtime.progress import track
from querywise.runtime.values import JsonObject, Settings

SINGLE, TREES, NAIVE, SELECT, TRANSFORM = "single", "lambdamart", "naive", "select-ranker", "transform"
METHOD_NAMES = (NAIVE, SELECT, TRANSFORM)
PRECISIONS = tuple(f"p@{position}" for position in (1, 2, 5, 10))
GAINS = tuple(f"ndcg@{position}" for position in (1, 2, 5, 10))
MEASURES = ("map", *PRECISIONS, *GAINS, "mean_ndcg")


COUNTS = (1, 5, 10, 20, 50, 100)
FEW_COUNTS = (1, 10, 100)  # of a quick run
_BOUNDS = ("UpperBound", "RelevantOnly")
_ALONE = "single of the sweep | map"
_THIN = (NAIVE, TRANSFORM)  # SelectRanker has Naive's groups
ALIKE = 0.01  # of MAP: the largest difference that counts as none
_RANK, _AROUND = 19, 5  # "around the 19th": within five places
_AGGREGATED = METHOD_NAMES[1:]
_PAPERS_WORDS = {"1 to 3": "hard", "4 to 20": "normal", "more than 20": "easy"}  # by relevant documents
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
    groups: dict[str, list[dict[str, int]]] = {}

    def look(fold: Fold, name: str, ranker: Any) -> None:
        """How many groups a ranker has, and for how many the global model answers."""
        sizes = getattr(ranker, "sizes", None)
        if isinstance(sizes, Sizes):
            groups.setdefault(name, []).append({"groups": sizes.groups, "thin": sizes.of_one_query + sizes.empty})

    compared = compare(_fits(reference, quick=quick), parts, measures=MEASURES, flavour=FLAVOUR, observe=look)
    swept = sweep(parts, reference, FEW_COUNTS if quick else COUNTS)
    difficulty = difficulty_breakdown(compared, "map")
    validated = {name: np.mean([each.valid_value for each in compared.trained[name]]) for name in METHOD_NAMES[1:]}
    shown = max(validated, key=lambda name: validated[name])
    best, worst = extremes(compared, shown, "map", count=5, top=1)
    numbers: JsonObject = {
        "comparison": compared.as_json(),
        "tests": tests_of(compared, compared.names, [SINGLE, TREES], ("map",)),
        "difficulty": [group._asdict() for group in difficulty.groups],
        "chosen": {name: compared.parameters(name) for name in compared.names},
        "groups": {name: list(folds) for name, folds in groups.items()},
        "sweep": {name: each for name, each in asdict(swept).items() if name != "values"},
        "relevant": relevant_documents(compared).tolist(),
    }
    headings = {each: "mean NDCG" if each == "mean_ndcg" else each.upper() for each in MEASURES}
    tables = [
        rows_table(compared, headings, [SINGLE, TREES], {"map": "MAP"}),
        _groups_table(groups),
        _difficulty_table(difficulty),
        sweep_table(swept),
        _examples_table((*best, *worst)),
    ]
    _draw(out, compared, swept)
    values = {**values_of(compared), **swept.values, **_of_difficulty(compared)}
    return write_findings(
        out, numbers, tables, claims_of(compared, swept, difficulty, values), quick=quick,
        queries=compared.judged.candidates.query_ids, values=values,
    )  # fmt: skip


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
    alone = np.concatenate(single)
    level = float(alone.mean())
    length = min(map(len, ranked))
    by_rank = sum(each[:length] for each in ranked) / sum(len(fold.test) for fold in folds)
    below = np.flatnonzero(by_rank <= level)
    names = [_swept(*each) for each in product(lines, counts)]
    found = [np.concatenate(parts) for each in lines.values() for parts in each]
    return Sweep(
        clusters=list(counts),
        single=level,
        map={name: [float(np.concatenate(parts).mean()) for parts in each] for name, each in lines.items()},
        groups=groups,
        thin_groups=thin,
        by_rank=np.asarray(by_rank).tolist(),
        single_rank=int(below[0]) + 1 if len(below) else None,
        values={**dict(zip(names, found, strict=True)), _ALONE: alone},
    )


def _swept(name: str, count: int) -> str:
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
        f"MAP against the number of clusters, no prior; {SINGLE} reaches {swept.single:.4f}. Always taking the r-th "
        f"best of the models of {swept.clusters[-1]} clusters falls to that {rank}. Thin "
        "groups, over all folds, have fewer than two training queries to learn from: their model is the global one."
    )
    columns = (*(Column(name, "value") for name in names), *(Column(f"thin groups, {name}") for name in _THIN))
    return Table((Column("clusters"), *columns), tuple(rows), caption)


def claims_of(compared: Compared, swept: Sweep, difficulty: Breakdown, values: Values) -> list[Claim]:
    """Every claim."""
    naive = paired(values, f"{NAIVE} | map", f"{SINGLE} | map", sign=-1)
    return [
        untestable("All three beat LETOR's rank-aggregation baselines (Table 1)", "those used other data"),
        claimed("Naive is worse than RankSVM in MAP", f"{-naive.difference:+.4f}", [naive]),
        _alike(values),
        _mostly_better(compared),
        _best_in(values, TRANSFORM, ("map",), "Transform has the best MAP (MQ2007)"),
        _best_in(values, SELECT, PRECISIONS[:3], "SelectRanker has the best P@1, P@2 and P@5 (MQ2007)"),
        _best_in(values, SELECT, GAINS, "SelectRanker has the best NDCG (MQ2007)"),
        *_about_selection(swept),
        *(_about_difficulty(difficulty, name, values) for name in _AGGREGATED),
        untestable("Misspelled queries gain (Table 4)", "no query text with known misspellings is at hand"),
    ]


def _alike(values: Values) -> Claim:
    parts = [alike(values, f"{name} | map", f"{SINGLE} | map", ALIKE) for name in _AGGREGATED]
    gains = {name: paired(values, f"{name} | map", f"{SINGLE} | map").difference for name in _AGGREGATED}
    return claimed(
        f"SelectRanker and Transform do not differ from RankSVM in MAP: within ±{ALIKE}",
        ", ".join(f"{name} {gain:+.4f}" for name, gain in gains.items()) + "; p of the test of equivalence",
        parts,
        paper="no difference significant",
    )


def _mostly_better(compared: Compared) -> Claim:
    """Of every method, most differences are gains."""
    gains = {name: [each for each in MEASURES if gain_of(compared, name, SINGLE, each) > 0] for name in _AGGREGATED}
    here = "; ".join(f"{name} in {len(each)} of {len(MEASURES)} measures" for name, each in gains.items())
    return claimed(
        "SelectRanker and Transform are better than RankSVM in most measures (MQ2008; more than half)",
        here,
        [Part(len(each) / len(MEASURES) - 0.5) for each in gains.values()],
        paper="not significant",
    )


def _best_in(values: Values, name: str, measures: Sequence[str], claim: str) -> Claim:
    rivals = [rival for rival in (SINGLE, *METHOD_NAMES) if rival != name]
    parts = {
        (each, rival): paired(values, column(name, each), column(rival, each))
        for each, rival in product(measures, rivals)
    }
    least = {each: min(rivals, key=lambda rival: parts[each, rival].difference) for each in measures}
    here = ", ".join(
        f"{each.upper()} {parts[each, rival].difference:+.4f} against {rival}" for each, rival in least.items()
    )
    return claimed(claim, f"against the best other: {here}", [*parts.values()])


def _about_selection(swept: Sweep) -> list[Claim]:
    counts, rank, values = swept.clusters, swept.single_rank, swept.values
    only = {count: paired(values, _swept("RelevantOnly", count), _ALONE) for count in counts[1:]}
    upper = [float(values[_swept("UpperBound", count)].mean()) for count in counts]
    growing = [
        paired(values, _swept("UpperBound", more), _swept("UpperBound", fewer)) for fewer, more in pairwise(counts)
    ]
    room = "UpperBound leaves much room, the more the more clusters (Figure 2)"
    here = f"{upper[1]:.4f} with {counts[1]} clusters, {upper[-1]:.4f} with {counts[-1]}"
    return [
        claimed(
            "Routed by its true relevant documents, Naive beats RankSVM (RelevantOnly, Figure 2)",
            f"{', '.join(f'{each.difference:+.4f} with {count}' for count, each in only.items())} clusters",
            [*only.values()],
        ),
        certain(room, f"{here}; the best of more models is chosen by the judgments themselves")
        if all(each.difference > 0 for each in growing)
        else claimed(room, here, growing),
        claimed(
            f"RankSVM is reached at about the {_RANK}th best of 100 models (Figure 3; ±{_AROUND} places)",
            "never" if rank is None else f"at rank {rank}",
            [Part(-1.0) if rank is None else within(rank, _RANK - _AROUND - 0.5, _RANK + _AROUND + 0.5)],
        ),
    ]


def _of_difficulty(compared: Compared) -> Values:
    """1 for the queries of each kind, 0 for the others."""
    found = by_difficulty(relevant_documents(compared))
    return {word: found[label].astype(np.float64) for label, word in _PAPERS_WORDS.items()}


def _about_difficulty(found: Breakdown, name: str, values: Values) -> Claim:
    """Table 3: better where there are few relevant documents, worse where there are many."""
    claim = f"{name} is better on hard and normal queries and worse on easy ones (Table 3)"
    labels = {_PAPERS_WORDS[group.label] for group in found.groups if group.label in _PAPERS_WORDS}
    wanted = {"hard": 1, "normal": 1, "easy": -1}
    if len(labels) < len(wanted):
        return untestable(claim, f"there are no {' and no '.join(sorted({*wanted} - labels))} queries")
    parts = {
        label: paired(values, f"{name} | map", f"{SINGLE} | map", sign=sign, among=label)
        for label, sign in wanted.items()
    }
    here = ", ".join(
        f"{label} {wanted[label] * part.difference:+.4f} (p = {part.p:.2f})" for label, part in parts.items()
    )
    return claimed(claim, here, [*parts.values()])


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
    rows = {
        name: [(group.means[name], None if name == SINGLE else group.p[name]) for group in found.groups]
        for name in found.groups[0].means
    }
    headings = {f"{group.label} ({group.queries})": "p" for group in found.groups}
    caption = f"Number of queries in brackets; p: paired t-test against {SINGLE}."
    return values_and_p("MAP by relevant documents", headings, rows, caption)


def _examples_table(found: Sequence[Example]) -> Table:
    """Table 4: the queries that moved most."""
    name = found[0].names[1] if found else SELECT
    rows: list[tuple[Cell, ...]] = [(each.query, *each.values) for each in found]
    columns = (Column("query"), Column(f"AP, {SINGLE}", "value"), Column(f"AP, {name}", "value"))
    return Table(columns, tuple(rows), "The queries that gain most and those that lose most.")
