"""Semi-simulated judges: do the intervals of few human judgments beside many cheap ones hold, and what do they save?

`python -m benchmarks.cheap_judgments ../shared/data/msrd ../shared/data/vectors/msrd --out docs/figures/judging` ranks
documents that people judged by three rankers and by a second, weaker forest. Cheap labels are made from the human ones,
or by a weak ranker, in four ways; no judge of any kind was asked. A draw takes 1,000 queries at random, of which n have
human labels too; the mean over all queries is what an interval should cover. Two fifths of the groups of queries are
for choosing (`--part validation`): the rankers learn from the first fifth there, from both fifths for the test.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.semisimulated import boosted, few_of_each, ndcg_by_query, placed, stage
from querywise.data.judged import Judged
from querywise.data.vectors import read_vectors
from querywise.evaluation.human import MeanEstimate, estimate
from querywise.runtime.arrays import Floats, Ints

EVERY = 1_000  # queries of a draw, all with cheap labels
COVERED = (30, 50, 100, 300)  # of them with human ones
BUDGETS = (30, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1_000)
DRAWS = 1_000
_SURE = 0.05
_POWER = 0.8
_MISSED, _INVENTED = 0.3, 0.05  # of relevant and of other documents, by a judge that errs at random
_LIKED, _FIRST = 0.5, 3  # of the other documents among a system's first three, by a judge that likes that system
_SHORT = 3  # words of a query that a judge does not understand, at most


class World(NamedTuple):
    """Rankers' scores of the measured documents, the human labels, and those of every cheap judge."""

    data: Judged
    scores: dict[str, Floats]
    labels: dict[str, Ints]


def main() -> None:
    """Measure coverage and what is saved, and write them."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("vectors", type=Path)
    options.add_argument("--part", choices=("validation", "test"), default="test")
    options.add_argument("--draws", type=int, default=DRAWS)
    options.add_argument("--out", type=Path, help="folder for cheap.json and cheap.svg")
    asked = options.parse_args()
    world = world_of(asked.folder, asked.vectors, asked.part)
    values = values_of(world)
    found = {
        "part": asked.part,
        "queries": len(world.data),
        "draws": asked.draws,
        "means": {name: round(float(each.mean()), 4) for name, each in values["human"].items()},
        "agreement": {name: agreement(world, name) for name in values if name != "human"},
        "coverage": list(coverage(values, asked.draws)),
        "verdicts": list(verdicts(values, asked.draws)),
    }
    print(json.dumps(found, indent=1))
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "cheap.json").write_text(json.dumps(found, indent=1) + "\n")
        draw(found, asked.out / "cheap.svg")


def world_of(folder: Path, vectors: Path, part: str) -> World:
    """The measured queries, ranked and judged."""
    data, place = placed(folder)
    learned, measured = (
        (place < 0.2, (place >= 0.2) & (place < 0.4))
        if part == "validation"
        else (
            place < 0.4,
            place >= 0.4,
        )
    )
    train = data.select(few_of_each(data, np.flatnonzero(learned)))
    test = data.select(np.flatnonzero(measured))
    scores = {
        "bm25": stage(test, "all"),
        "title": stage(test, "title"),
        "trees": boosted(train).predict(test.candidates),
        "fewer trees": boosted(train.select(range(0, len(train), 8))).predict(test.candidates),
    }
    return World(test, scores, judges(test, scores, similarity(test, vectors)))


def similarity(data: Judged, folder: Path) -> Floats:
    """Cosines of every document and its query: the weak ranker."""
    found, candidates = read_vectors(folder), data.candidates
    assert found.queries is not None
    assert candidates.document_ids is not None
    queries = np.asarray(found.queries.of(list(data.query_ids), "the queries"), np.float64)
    distinct, place = np.unique(candidates.document_ids, return_inverse=True)
    documents = np.asarray(found.documents.of(distinct.tolist(), "the documents"), np.float64)
    cosines: Floats = np.einsum("rc,rc->r", queries[candidates.query_of_row], documents[place])
    return cosines


def judges(data: Judged, scores: dict[str, Floats], weak: Floats) -> dict[str, Ints]:
    """The human labels, and those of four cheap judges."""
    chance, human = np.random.default_rng(51), data.labels
    erring = np.where(human > 0, chance.random(len(human)) >= _MISSED, chance.random(len(human)) < _INVENTED)
    first = np.concatenate([_places(scores["bm25"][data.candidates.rows(query)]) for query in range(len(data))])
    liked = (first < _FIRST) & (chance.random(len(human)) < _LIKED)
    texts = data.candidates.queries.texts if data.candidates.queries is not None else None
    assert texts is not None
    short = np.array([len((text or "").split()) <= _SHORT for text in texts])[data.candidates.query_of_row]
    return {
        "human": human,
        "weak ranker": (weak >= np.quantile(weak, 1 - (human > 0).mean())).astype(np.int64),
        "errs at random": erring.astype(np.int64),
        "likes bm25": (erring | liked).astype(np.int64),
        "random on short queries": np.where(short, chance.permutation(human), human).astype(np.int64),
    }


def _places(scores: Floats) -> Ints:
    return np.argsort(np.argsort(-scores, kind="stable"), kind="stable").astype(np.int64)


def values_of(world: World) -> dict[str, dict[str, Floats]]:
    """NDCG@10 by query of every ranker and every difference, by every judge."""
    found: dict[str, dict[str, Floats]] = {}
    for judge, labels in world.labels.items():
        value = ndcg_by_query([labels[world.data.candidates.rows(query)] for query in range(len(world.data))])
        means = {name: value(scores) for name, scores in world.scores.items()}
        found[judge] = means | {f"{a} − {b}": means[a] - means[b] for a, b in combinations(means, 2)}
    return found


def agreement(world: World, judge: str) -> dict[str, float]:
    """How often a judge has the human label, and the correlation of both."""
    ours, theirs = world.labels[judge], world.labels["human"]
    return {
        "same": round(float((ours == theirs).mean()), 4),
        "correlation": round(float(np.corrcoef(ours, theirs)[0, 1]), 4),
    }


def draws_of(count: int, draws: int) -> Iterator[Ints]:
    """Queries drawn at random, with replacement: the measured ones stand for all that there could be."""
    chance = np.random.default_rng(11)
    for _ in range(draws):
        yield chance.integers(count, size=EVERY)


def coverage(values: dict[str, dict[str, Floats]], draws: int) -> Iterator[dict[str, Any]]:
    """How many intervals hold the mean over all queries, for every judge, ranker, difference and number of queries."""
    human = values["human"]
    for judge in [each for each in values if each != "human"]:
        for what, truth in human.items():
            for count in COVERED:
                rows = [
                    (estimate(truth[own[:count]], values[judge][what][own], np.arange(count)), own)
                    for own in draws_of(len(truth), draws)
                ]
                alone = [estimate(truth[own[:count]], truth[own], np.arange(count), weight=0) for _, own in rows]
                yield {
                    "judge": judge,
                    "of": what,
                    "human": count,
                    "covered": _covered([each for each, _ in rows], float(truth.mean())),
                    "covered_alone": _covered(alone, float(truth.mean())),
                    "weight": round(float(np.mean([each.weight for each, _ in rows])), 3),
                    "width": round(_width([each for each, _ in rows]) / _width(alone), 4),
                }


def _covered(found: list[MeanEstimate], truth: float) -> float:
    return float(np.mean([each.interval[0] <= truth <= each.interval[1] for each in found]))


def _width(found: list[MeanEstimate]) -> float:
    return float(np.mean([each.interval[1] - each.interval[0] for each in found]))


def verdicts(values: dict[str, dict[str, Floats]], draws: int) -> Iterator[dict[str, Any]]:
    """How many human queries reach the verdict of all labels in 80 % of draws, with and without cheap labels."""
    human = values["human"]
    for judge in [each for each in values if each != "human"]:
        for what, truth in human.items():
            if "−" not in what:
                continue
            side, cheap = np.sign(truth.mean()), values[judge][what]
            plain = [estimate(cheap[own], cheap[own], np.arange(EVERY)) for own in draws_of(len(truth), draws)]
            shares: dict[str, list[float]] = {"both": [], "alone": []}
            for count in BUDGETS:
                for name, weight in (("both", None), ("alone", 0.0)):
                    found = [
                        estimate(truth[own[:count]], cheap[own], np.arange(count), weight=weight)
                        for own in draws_of(len(truth), draws)
                    ]
                    shares[name].append(_reached(found, side))
            yield {
                "judge": judge,
                "of": what,
                "difference": round(float(truth.mean()), 4),
                "by_cheap": round(float(cheap.mean()), 4),
                "cheap_right": _reached(plain, side),
                "cheap_reversed": _reached(plain, -side),
                "shares": shares,
                "needed": {name: _needed(each) for name, each in shares.items()},
            }


def _reached(found: list[MeanEstimate], side: float) -> float:
    return float(np.mean([each.p < _SURE and np.sign(each.value) == side for each in found]))


def _needed(shares: list[float]) -> float | None:
    """The number of human queries at which four draws in five are right, between two that were tried."""
    for place, share in enumerate(shares):
        if share >= _POWER:
            if not place:
                return float(BUDGETS[0])
            part = (_POWER - shares[place - 1]) / (share - shares[place - 1])
            return float(round(BUDGETS[place - 1] + part * (BUDGETS[place] - BUDGETS[place - 1])))
    return None


def draw(found: dict[str, Any], path: Path) -> None:
    """The share of draws that reach the verdict, by human queries: the closest pair that 1,000 of them tell apart."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "cheap"
    from matplotlib import pyplot

    names = list(found["agreement"])
    figure, panels = pyplot.subplots(1, len(names), figsize=(2.4 * len(names) + 0.8, 2.8), sharey=True, squeeze=False)
    for panel, judge in zip(panels[0], names, strict=True):
        own = [each for each in found["verdicts"] if each["judge"] == judge and each["needed"]["alone"] is not None]
        if not own:
            continue
        chosen = min(own, key=lambda each: abs(each["difference"]))
        looks = {"both": ("#1f5fa8", "-", "human and cheap"), "alone": ("#6b6b6b", "--", "human alone")}
        for name, (color, style, said) in looks.items():
            panel.plot(BUDGETS, [100 * each for each in chosen["shares"][name]], style, color=color, label=said)
        panel.axhline(80, color="#cccccc", linewidth=0.8)
        panel.set(xscale="log", title=judge, xlabel="human queries")
        panel.set_xticks([30, 100, 300, 1000], ["30", "100", "300", "1,000"])
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel(f"% right: {chosen['of']}")
    panels[0][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
