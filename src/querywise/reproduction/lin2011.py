"""Local models from clusters, selected and aggregated [lin2011]_: its tables, its figures, its claims.

Rows without more words are the paper's methods: clusters, λ, and k or t are chosen by validation MAP, there is no prior
and no model is left out. *prior*: how strongly local models are shrunk towards the global one is chosen too. *prior,
floor*: so is the share of the largest weight below which a model is left out. *soft*: queries belong to more than their
own clusters. *trees*: the local models are boosted trees grown on top of the global ones, 5 clusters, default settings,
to be seen beside `lambdamart` with its own. In the figures over the number of clusters λ is the one validation chose
for the single model; k and t are 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.folds import Fold, Folds
from querywise.evaluation.breakdown import Breakdown, difficulty_breakdown, relevant_documents
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.examples import Example, extremes
from querywise.evaluation.oracle import oracle_gap
from querywise.evaluation.significance import paired_t_test
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import tune
from querywise.methods import METHODS
from querywise.report.figures import counts_figure, line_figure
from querywise.report.tables import Cell, Column, Table
from querywise.reproduction.claims import Claim, judged, p_text, write_findings
from querywise.reproduction.rows import FLAVOUR, fitting, gain_of, p_of, rows_table
from querywise.runtime.arrays import Floats
from querywise.runtime.files import atomic_text, make_folder
from querywise.runtime.progress import track

SINGLE, TREES, NAIVE, SELECT, TRANSFORM = "single", "lambdamart", "naive", "select-ranker", "transform"
METHOD_NAMES = (NAIVE, SELECT, TRANSFORM)
COUNTS = (1, 5, 10, 20, 50, 100)
_LAST = COUNTS[-1]
_PRECISIONS = tuple(f"p@{position}" for position in (1, 2, 5, 10))
_GAINS = tuple(f"ndcg@{position}" for position in (1, 2, 5, 10))
_MEASURES = ("map", *_PRECISIONS, *_GAINS, "mean_ndcg")
_NEAR = 0.05  # as in p < 0.05
_L2 = {"l2": (0.1, 1.0, 10.0)}
_PLAIN = {"prior_l2": 0.0}
_GRIDS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    NAIVE: {**_L2, "clusters": (5, 10, 20, 50, 100), "top": (5, 10, 50)},
    SELECT: {**_L2, "clusters": (5, 10, 20, 50, 100), "k": (5, 10, 20)},
    TRANSFORM: {**_L2, "clusters": (5, 10, 20, 50, 100), "top": (5, 10, 50)},
}


def reproduce(folds: Folds, out: Path, *, reference: int | str | None = None) -> Path:
    """Write table.md, numbers.json and the figures into a folder; returns the table's path."""
    make_folder(out)
    parts = list(folds)
    compared = compare(_fits(reference), parts, measures=_MEASURES, flavour=FLAVOUR)
    swept = _sweep(parts, reference)
    difficulty = difficulty_breakdown(compared, "map")
    shown = max(METHOD_NAMES[1:], key=lambda name: _validated(compared, name))
    best, worst = extremes(compared, shown, "map", count=5, top=1)
    claims = _claims(compared, swept, difficulty)
    chosen = {name: compared.parameters(name) for name in compared.names}
    numbers = {
        "comparison": compared.as_json(),
        "chosen": chosen,
        "sweep": swept,
        "relevant": relevant_documents(compared).tolist(),
    }
    headings = {each: "mean NDCG" if each == "mean_ndcg" else each.upper() for each in _MEASURES}
    tables = [
        rows_table(compared, headings, [SINGLE, TREES], {"map": "MAP"}),
        _difficulty_table(difficulty),
        _sweep_table(swept),
        _examples_table((*best, *worst)),
    ]
    table = write_findings(out, numbers, [each.markdown() for each in tables], claims)
    _draw(out, compared, swept)
    return table


def _fits(reference: int | str | None) -> dict[str, Fit]:
    base = {"reference": reference}
    fits = {SINGLE: fitting(SINGLE, {})}
    for name in METHOD_NAMES:
        own = {} if name == NAIVE else base
        whole = {"floor": 0.0} if name != NAIVE else {}
        fits[name] = fitting(name, {**own, **whole, **_PLAIN}, _GRIDS[name])
        priors = {**METHODS[name].grid}
        fits[f"{name}, prior"] = fitting(name, {**own, **whole}, priors)
        if name != NAIVE:
            fits[f"{name}, prior, floor"] = fitting(name, own, {**priors, "floor": (0.0, 0.3, 0.7, 0.9)})
    fits[f"{SELECT}, soft"] = fitting(
        SELECT, {**base, "floor": 0.0, **_PLAIN}, {**METHODS[SELECT].grid, "softness": (0.3, 0.6, 1.0)}
    )
    fits[TREES] = fitting(TREES, {}, {})
    fits[f"{SELECT}, trees"] = fitting(SELECT, {**base, "base": TREES, "prior_l2": 1.0, "clusters": 5}, {})
    return fits


def _validated(compared: Compared, name: str) -> float:
    return float(np.mean([each.valid_value for each in compared.trained[name]]))


def _sweep(folds: Sequence[Fold], reference: int | str | None) -> dict[str, Any]:
    """Everything against the number of clusters, over all test queries: means of average precision."""
    lines: dict[str, list[list[Floats]]] = {}
    single: list[Floats] = []
    ranked: list[Floats] = []
    for fold in track(folds, "Sweep over clusters"):
        grid = METHODS[SINGLE].grid
        tuned = tune(METHODS[SINGLE].build, grid, train=fold.train, valid=fold.valid, flavour=FLAVOUR)
        single.append(_precision(tuned.ranker, fold))
        for place, count in enumerate(track(COUNTS, "Clusters")):
            for name in METHOD_NAMES:
                asked = {} if name == NAIVE else {"reference": reference}
                ranker: Any = METHODS[name].build(clusters=count, **asked, **tuned.parameters).fit(fold.train)
                _add(lines, name, place, _precision(ranker, fold))
                gap = oracle_gap(ranker, fold.test, flavour=FLAVOUR)
                if name == NAIVE and gap is not None:
                    _add(lines, "UpperBound", place, gap.best)
                    assert gap.relevant_only is not None, "naive places documents"
                    _add(lines, "RelevantOnly", place, gap.relevant_only)
                    if count == _LAST:
                        ranked.append(gap.by_rank * len(fold.test))
    level = float(np.concatenate(single).mean())
    length = min(map(len, ranked))
    by_rank = sum(each[:length] for each in ranked) / sum(len(fold.test) for fold in folds)
    below = np.flatnonzero(by_rank <= level)
    alone = np.concatenate(single)
    routed = [np.concatenate(parts) for parts in lines["RelevantOnly"]]
    return {
        "clusters": list(COUNTS),
        "single": level,
        "map": {name: [float(np.concatenate(parts).mean()) for parts in each] for name, each in lines.items()},
        "relevant_only_p": [paired_t_test(each, alone).p for each in routed],
        "by_rank": np.asarray(by_rank).tolist(),
        "single_rank": int(below[0]) + 1 if len(below) else None,
    }


def _add(lines: dict[str, list[list[Floats]]], name: str, place: int, values: Floats) -> None:
    lines.setdefault(name, [[] for _ in COUNTS])[place].append(values)


def _precision(ranker: Any, fold: Fold) -> Floats:
    return evaluate(ranker.predict(fold.test.candidates), fold.test, measures=["map"], flavour=FLAVOUR)["map"]


def _draw(out: Path, compared: Compared, swept: dict[str, Any]) -> None:
    line_figure(
        out / "against-clusters.svg",
        swept["clusters"],
        swept["map"],
        level={SINGLE: swept["single"]},
        labels=("clusters", "MAP"),
        title="UpperBound, RelevantOnly and the three methods, no prior",
    )
    line_figure(
        out / "by-rank.svg",
        range(1, len(swept["by_rank"]) + 1),
        {"r-th best of naive's models": swept["by_rank"]},
        level={SINGLE: swept["single"]},
        labels=("rank of the model, the best for each query first", "MAP"),
        title=f"Always taking the r-th best of {_LAST} clusters' models",
    )
    with atomic_text(out / "relevant.svg") as file:
        file.write(counts_figure(relevant_documents(compared).tolist()))


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


def _sweep_table(swept: dict[str, Any]) -> Table:
    """Figure 2 in numbers."""
    names = tuple(swept["map"])
    rows = [
        (str(count), *(swept["map"][name][place] for name in names)) for place, count in enumerate(swept["clusters"])
    ]
    rank = "never" if swept["single_rank"] is None else f"at rank {swept['single_rank']}"
    caption = (
        f"MAP against the number of clusters, no prior; {SINGLE} reaches {swept['single']:.4f}. Always taking the r-th "
        f"best of the models of {_LAST} clusters falls to that {rank}."
    )
    return Table((Column("clusters"), *(Column(name, "value") for name in names)), tuple(rows), caption)


def _examples_table(found: Sequence[Example]) -> Table:
    """Table 4: the queries that moved most."""
    name = found[0].names[1] if found else SELECT
    rows: list[tuple[Cell, ...]] = [(each.query, *each.values) for each in found]
    columns = (Column("query"), Column(f"AP, {SINGLE}", "value"), Column(f"AP, {name}", "value"))
    return Table(columns, tuple(rows), "The queries that gain most and those that lose most.")


def _claims(compared: Compared, swept: dict[str, Any], difficulty: Breakdown) -> list[Claim]:
    """What the paper says, on this data."""
    gains = {name: gain_of(compared, name, SINGLE, "map") for name in METHOD_NAMES}
    ps = {name: p_of(compared, name, SINGLE, "map") for name in METHOD_NAMES}
    told = {name: f"{name} {gains[name]:+.4f}, {p_text(ps[name])}" for name in METHOD_NAMES}
    aggregated = METHOD_NAMES[1:]
    return [
        judged("All three beat LETOR's rank-aggregation baselines (Table 1)", "those used other data", None),
        judged("Naive is worse than RankSVM in MAP (p < 0.05)", told[NAIVE], gains[NAIVE] < 0 and ps[NAIVE] < _NEAR),
        judged(
            "SelectRanker and Transform do not differ significantly from RankSVM in MAP",
            "; ".join(told[name] for name in aggregated),
            all(ps[name] >= _NEAR for name in aggregated),
        ),
        _mostly_better(compared),
        _best_in(compared, TRANSFORM, ("map",), "Transform has the best MAP (MQ2007)"),
        _best_in(compared, SELECT, _PRECISIONS[:3], "SelectRanker has the best P@1, P@2 and P@5 (MQ2007)"),
        _best_in(compared, SELECT, _GAINS, "SelectRanker has the best NDCG (MQ2007)"),
        *_about_selection(swept),
        *(_about_difficulty(difficulty, name) for name in aggregated),
        judged("Misspelled queries gain (Table 4)", "no query text with known misspellings", None),
    ]


def _mostly_better(compared: Compared) -> Claim:
    better = {name: sum(gain_of(compared, name, SINGLE, each) > 0 for each in _MEASURES) for name in METHOD_NAMES[1:]}
    here = "; ".join(f"{name} in {count} of {len(_MEASURES)} measures" for name, count in better.items())
    holds = all(count > len(_MEASURES) / 2 for count in better.values())
    return judged("SelectRanker and Transform are better than RankSVM in most measures (MQ2008)", here, holds)


def _best_in(compared: Compared, name: str, measures: Sequence[str], claim: str) -> Claim:
    rivals = (SINGLE, *METHOD_NAMES)
    best = {each: max(rivals, key=lambda rival: compared.evaluations[rival].mean()[each]) for each in measures}
    here = ", ".join(f"{measure} {winner}" for measure, winner in best.items())
    return judged(claim, f"best: {here}", all(winner == name for winner in best.values()))


def _about_selection(swept: dict[str, Any]) -> list[Claim]:
    upper, only = (np.array(swept["map"][name]) for name in ("UpperBound", "RelevantOnly"))
    level, rank = swept["single"], swept["single_rank"]
    place = 1 + int(np.argmax(only[1:]))
    p = swept["relevant_only_p"][place]
    return [
        judged(
            "Routed by its true relevant documents, Naive beats RankSVM (RelevantOnly, Figure 2; p < 0.05)",
            f"at best {only[place] - level:+.4f}, {p_text(p)}, with {COUNTS[place]} clusters",
            bool(only[place] > level and p < _NEAR),
        ),
        judged(
            "UpperBound leaves much room, the more the more clusters (Figure 2)",
            f"{upper[1]:.4f} with {COUNTS[1]} clusters, {upper[-1]:.4f} with {_LAST}",
            bool(np.all(np.diff(upper) > 0) and upper[-1] > level),
        ),
        judged(
            "RankSVM is reached at about the 19th best of 100 models (Figure 3)",
            "never" if rank is None else f"at rank {rank}",
            rank is not None and 10 <= rank <= 30,
        ),
    ]


def _about_difficulty(found: Breakdown, name: str) -> Claim:
    """Table 3: better where there are few relevant documents, worse where there are many."""
    groups = {group.label.split(":")[0]: group for group in found.groups if group.label != "none"}
    gains = {label: group.means[name] - group.means[SINGLE] for label, group in groups.items()}
    here = "; ".join(f"{label} {gains[label]:+.4f} (p = {groups[label].p[name]:.2f})" for label in groups)
    wanted = {"hard": 1, "normal": 1, "easy": -1}
    holds = all(gains[label] * wanted[label] > 0 for label in gains) if len(gains) == len(wanted) else None
    return judged(f"{name} is better on hard and normal queries and worse on easy ones (Table 3)", here, holds)
