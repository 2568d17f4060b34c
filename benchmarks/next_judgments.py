"""What to judge next: how many judgments reach the verdict of all of them, against judging the pool at random?

`python -m benchmarks.next_judgments ../shared/data/cranfield ../shared/data/vaswani --out docs/figures/judging` lets
the judgments of a collection be given one after the other; nobody judges anew. Every two of its own rankers by words
are compared by DCG@10, on their pooled first ten documents, by the draw of `querywise next` and by one that
takes all documents alike. Both are corrected by inclusion probability and tested in the same way. A budget is enough
where 80 % of the draws are significant with the sign of all judgments, as these are. Of two rankers that all judgments
do not tell apart, how often a draw says that one is better is reported instead.

With `--queries N` N queries are drawn at random first, as a team would that cannot judge all; with `--judged-only`
the rankers order the documents that have a judgment, where these are a small part of what they would find. Of a
large collection: `… ../shared/data/msrd --queries 500 --judged-only --name next-msrd --out docs/figures/judging`.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from querywise.data.collections import read_collection
from querywise.data.judgements import Grades
from querywise.data.run_columns import Run
from querywise.evaluation.evaluate import own_order
from querywise.evaluation.next_judgments import UNIFORM, Pair, draw, estimate
from querywise.measures.order import find_flavour
from querywise.retrieval.index import build_index
from querywise.retrieval.search import runs_of
from querywise.runtime.arrays import Floats

MEASURE = "dcg@10"
BUDGETS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # of the pool
DRAWS = 1_000
WAYS = {"next": UNIFORM, "at random": 1.0}
_POWER, _SURE = 0.8, 0.05


def main() -> None:
    """Measure, print and write."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folders", type=Path, nargs="+")
    options.add_argument("--draws", type=int, default=DRAWS)
    options.add_argument("--queries", type=int, help="how many, drawn at random; all if left out")
    options.add_argument("--judged-only", action="store_true", help="order the documents that have a judgment alone")
    options.add_argument("--out", type=Path, help="folder for the file")
    options.add_argument("--name", default="next", help="its name, without .json")
    asked = options.parse_args()
    found = {
        folder.name: list(of_collection(folder, asked.draws, asked.queries, judged_only=asked.judged_only))
        for folder in asked.folders
    }
    print(json.dumps(found, indent=1))
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / f"{asked.name}.json").write_text(
            json.dumps({"draws": asked.draws, "found": found}, indent=1) + "\n"
        )


def of_collection(
    folder: Path, draws: int, queries: int | None = None, *, judged_only: bool = False
) -> Iterator[dict[str, Any]]:
    """Every two rankers of a collection."""
    collection = read_collection(folder)
    grades, table = collection.grades(), collection.queries
    assert table is not None
    if queries is not None:
        chosen = random.Random(51).sample(sorted(grades.keys() & set(table.ids)), queries)
        collection = replace(collection, queries=table.select(chosen))
    index = build_index(collection.documents())
    top = len(index.document_ids) if judged_only else 100
    runs = [judged_of(each, grades, judged_only=judged_only) for each in runs_of(collection, index, top=top)]
    for first, second in combinations(runs, 2):
        yield of_pair([first, second], grades, draws)


def judged_of(run: Run, grades: Grades, *, judged_only: bool) -> Run:
    """The queries of a run that have a judgment, and of them all documents or those with a judgment alone."""
    lists = {query: own for query, own in run.scores.items() if query in grades}
    if judged_only:
        lists = {query: {each: own[each] for each in own if each in grades[query]} for query, own in lists.items()}
    return Run(run.name, lists)


def of_pair(runs: list[Run], grades: Grades, draws: int) -> dict[str, Any]:
    """Two rankers: the verdict of all judgments, and the share of draws that reach it, by budget and way."""
    drawn = {way: draw(runs, {}, measure=MEASURE, uniform=uniform) for way, uniform in WAYS.items()}
    pairs = drawn["next"]
    whole: dict[str, dict[str, int]] = {}
    for each in pairs:  # what nobody judged is not relevant
        whole.setdefault(each.query, {})[each.document] = grades[each.query].get(each.document, 0)
    (all_of_it,) = estimate(runs, pairs, whole, measure=MEASURE).standings
    side = np.sign(all_of_it.difference) if all_of_it.p < _SURE else 0.0
    shares: dict[str, list[dict[str, float]]] = {}
    for way, own in drawn.items():
        values, ps = simulated(runs, own, whole, draws)
        shares[way] = [
            {
                "budget": budget,
                "same": float(np.mean((ps[:, place] < _SURE) & (np.sign(values[:, place]) == side))),
                "reversed": float(np.mean((ps[:, place] < _SURE) & (np.sign(values[:, place]) == -side))),
                "decided": float(np.mean(ps[:, place] < _SURE)),
                "mean": round(float(values[:, place].mean()), 5),
            }
            for place, budget in enumerate(BUDGETS)
        ]
    return {
        "first": runs[0].name,
        "second": runs[1].name,
        "pool": len(pairs),
        "difference": round(all_of_it.difference, 5),
        "p": round(all_of_it.p, 6),
        "shares": shares,
        "needed": {way: needed(each) for way, each in shares.items()} if side else None,
    }


def simulated(runs: list[Run], pairs: list[Pair], grades: Grades, draws: int) -> tuple[Floats, Floats]:
    """The estimated difference and its p: draws × budgets. The first draw is that of the file, checked against it."""
    share = np.array([each.share for each in pairs])
    places = {query: place for place, query in enumerate(dict.fromkeys(query for run in runs for query in run.scores))}
    owner = np.array([places[each.query] for each in pairs])
    term = np.array(list(terms(runs, pairs, grades)))
    chance, count = np.random.default_rng(51), len(places)
    values, ps = np.zeros((draws, len(BUDGETS))), np.zeros((draws, len(BUDGETS)))
    for number in range(draws):
        priority = chance.random(len(pairs)) / share if number else np.array([each.priority for each in pairs])
        order = np.argsort(priority, kind="stable")
        for column, budget in enumerate(BUDGETS):
            size = round(budget * len(pairs))
            own = order[:size]
            sure = np.minimum(1.0, share[own] * priority[order[size]]) if size < len(pairs) else np.ones(size)
            by_query = np.bincount(owner[own], weights=term[own] / sure, minlength=count)
            values[number, column] = by_query.mean()
            spread = by_query.std(ddof=1) / np.sqrt(count)
            ps[number, column] = 2 * stats.t.sf(abs(by_query.mean()) / spread, count - 1) if spread > 0 else 1.0
    some = round(BUDGETS[2] * len(pairs))
    known: dict[str, dict[str, int]] = {}
    for each in pairs[:some]:
        known.setdefault(each.query, {})[each.document] = grades[each.query][each.document]
    (checked,) = estimate(runs, pairs, known, measure=MEASURE).standings
    np.testing.assert_allclose([checked.difference, checked.p], [values[0, 2], ps[0, 2]], rtol=1e-9)
    return values, ps


def terms(runs: list[Run], pairs: list[Pair], grades: Grades) -> Iterator[float]:
    """What every document adds to the difference of its query."""
    ranks = [
        {
            (query, document): rank
            for query, own in run.scores.items()
            for rank, document in enumerate(own_order(own, find_flavour("standard"))[:10], start=1)
        }
        for run in runs
    ]
    for each in pairs:
        first, second = (own.get((each.query, each.document)) for own in ranks)
        gain = 2.0 ** max(grades[each.query][each.document], 0) - 1
        yield gain * ((1 / np.log2(first + 1) if first else 0.0) - (1 / np.log2(second + 1) if second else 0.0))


def needed(shares: list[dict[str, float]]) -> float | None:
    """The part of the pool at which four draws in five have the verdict, between two budgets that were tried."""
    for place, each in enumerate(shares):
        if each["same"] >= _POWER:
            if not place:
                return BUDGETS[0]
            before = shares[place - 1]
            part = (_POWER - before["same"]) / (each["same"] - before["same"])
            return round(before["budget"] + part * (each["budget"] - before["budget"]), 3)
    return None


if __name__ == "__main__":
    main()
