"""Semi-simulated clicks: how much of what human labels gain each way of learning from clicks recovers.

`python -m benchmarks.semisimulated ../shared/data/msrd --out docs/figures/clicks` draws clicks on the lists of a first
stage, by human labels and a position bias of known strength, learns from them, and measures on human labels of other
groups of queries. Two fifths of the groups are for choosing (`--part validation`); the others are learned from and
measured in two halves by turns. All trees grow alike. It is a simulation: nobody clicked.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from querywise import Candidates, LambdaMART, build_index, judged_candidates
from querywise.clicks.held_out import Trees, lightgbm_by_position, pages_with_a_click, xgboost_unbiased
from querywise.clicks.identifiable import Knowledge, what_is_known
from querywise.clicks.impressions import Impressions
from querywise.clicks.judgments import Judgments, choose_model, judge, preferences
from querywise.clicks.models import compare_models
from querywise.clicks.readers import read_clicks
from querywise.data.collections import Collection, Document, read_collection
from querywise.data.judged import Judged
from querywise.data.labels import labels_from
from querywise.evaluation.foreign import Foreign
from querywise.evaluation.significance import holm, paired_t_test
from querywise.runtime.arrays import Floats, Ints

BIASES = (0.0, 0.5, 1.0, 2.0)  # η of θ = (1 / position)^η
SESSIONS = (10, 1, 30)  # a query on average
_SHOWN = 10
_PER_GROUP = 2  # queries of a group that are learned from; all are measured, and a group counts once
_SWAPPED = 0.2  # of the pages, with two neighbors exchanged
_TRUST = 0.05  # a look at position p becomes a click without relevance with this chance / p
_GROWN = Trees(150, leaves=7, rows=50, rate=0.07, threads=2)
METHODS = ("naive", "coec", "pbm", "ubm", "chosen", "pairs", "lightgbm position", "xgboost unbiased")
_AGAINST = ("naive", "lightgbm position", "xgboost unbiased")


class World(NamedTuple):
    """Queries to learn from and to measure, and the first stage's score of every row: by title and by all fields."""

    train: Judged
    test: Judged
    stages: Floats


class Row(NamedTuple):
    """NDCG@10 of every measured group by one method, and the share of the gain of human labels that its mean has."""

    eta: float
    sessions: int
    method: str
    values: Floats
    share: float


def main() -> None:
    """Run all arms, and write the table, the tests and the picture."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--part", choices=("validation", "test"), default="test")
    options.add_argument("--biases", type=float, nargs="+", default=BIASES)
    options.add_argument("--sessions", type=int, nargs="+", default=SESSIONS)
    options.add_argument("--out", type=Path, help="folder for clicks.json and clicks.svg")
    asked = options.parse_args()
    worlds = list(worlds_of(asked.folder, asked.part))
    measures = [by_group(world.test) for world in worlds]
    first = _measured(worlds, measures, lambda world: stage(world.test, "all"))
    human = _measured(worlds, measures, lambda world: boosted(world.train).predict(world.test.candidates))
    counts = ", ".join(f"{len(world.train)} to learn from and {len(world.test)} measured" for world in worlds)
    print(f"queries: {counts}; {len(first)} groups; NDCG@10 {first.mean():.4f} by BM25 of all fields, "
          f"{human.mean():.4f} by human labels of all documents", flush=True)  # fmt: skip
    fixed = what_is_known(logged(worlds[0], drawn(worlds[0], 1.0, 10, swapped=0.0, stages=1)))
    print(f"one list for each query, never changed: {fixed.reason}", flush=True)
    rows: list[Row] = []
    for sessions in asked.sessions:
        for eta in asked.biases:
            parts = [arm(world, eta, sessions, value) for world, value in zip(worlds, measures, strict=True)]
            for name in METHODS:
                values = np.concatenate([part[name] for part in parts])
                share = float((values.mean() - first.mean()) / (human.mean() - first.mean()))
                rows.append(Row(eta, sessions, name, values, share))
                print(f"eta {eta:g}, {sessions} sessions, {name}: {values.mean():.4f} ({share:.0%})", flush=True)
            if asked.out is not None:
                _write(asked.out, rows, asked.part)


def _write(out: Path, rows: list[Row], part: str) -> None:
    """What is measured so far."""
    out.mkdir(parents=True, exist_ok=True)
    kept = [{**row._asdict(), "values": round(float(row.values.mean()), 6)} for row in rows]
    found = {"part": part, "groups": len(rows[0].values), "rows": kept, "tests": tests(rows)}
    (out / "clicks.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(rows, out / "clicks.svg")


def tests(rows: list[Row]) -> list[dict[str, Any]]:
    """The chosen way against naive, LightGBM's and XGBoost's, in every arm, under one Holm correction."""
    by_name = {row[:3]: row.values for row in rows}
    found = [
        (eta, sessions, other, paired_t_test(by_name[eta, sessions, "chosen"], by_name[eta, sessions, other]))
        for eta, sessions, name in by_name
        if name == "chosen"
        for other in _AGAINST
    ]
    return [
        {"eta": eta, "sessions": sessions, "against": other, "difference": test.difference, "p_holm": p}
        for (eta, sessions, other, test), p in zip(found, holm([each[3].p for each in found]), strict=True)
    ]


def draw(rows: list[Row], path: Path) -> None:
    """The share of the gain recovered, a panel for every bias."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "clicks"
    from matplotlib import pyplot

    biases = sorted({row.eta for row in rows})
    figure, panels = pyplot.subplots(1, len(biases), figsize=(2.4 * len(biases) + 0.8, 2.8), sharey=True, squeeze=False)
    looks = {
        "chosen": ("#1f5fa8", "-", "debiased"),
        "naive": ("#b3541e", "-", "naive"),
        "lightgbm position": ("#6b6b6b", "--", "LightGBM"),
        "xgboost unbiased": ("#6b6b6b", ":", "XGBoost"),
    }
    for panel, eta in zip(panels[0], biases, strict=True):
        for name, (color, style, said) in looks.items():
            points = sorted((row.sessions, 100 * row.share) for row in rows if (row.eta, row.method) == (eta, name))
            panel.plot(*zip(*points, strict=True), style, color=color, marker="o", markersize=3, label=said)
        panel.set(xscale="log", title=f"bias η = {eta:g}", xlabel="sessions a query")
        panel.set_xticks(sorted({row.sessions for row in rows}), sorted({f"{row.sessions}" for row in rows}, key=int))
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#e5e5e5")
    panels[0][0].set_ylabel("% of the gain of human labels")
    panels[0][-1].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def worlds_of(folder: Path, part: str) -> Iterator[World]:
    """Features of the judged documents; for validation one world, for the test two halves by turns."""
    data, own = placed(folder)
    halves = (own >= 0.2) & (own < 0.5), own >= 0.7
    chosen = own < 0.2, (own >= 0.5) & (own < 0.7)
    for train, test in [chosen] if part == "validation" else [halves, halves[::-1]]:
        learned = data.select(few_of_each(data, np.flatnonzero(train)))
        stages = np.stack([stage(learned, "title"), stage(learned, "all")], axis=1)
        yield World(learned, data.select(np.flatnonzero(test)), stages)


def placed(folder: Path) -> tuple[Judged, Floats]:
    """The judged documents of every query with features, and a number from 0 to 1 drawn for its group."""
    collection = _as_title_and_text(read_collection(folder), folder)
    index = build_index(collection.documents())
    data, _ = judged_candidates(collection, index, top=1, add_judged=True)
    data = _only_judged(data)
    groups = np.unique(data.groups)
    place = np.random.default_rng(0).permutation(len(groups)) / len(groups)
    return data, place[np.searchsorted(groups, data.groups)]


def few_of_each(data: Judged, queries: Ints) -> Ints:
    """At most two queries of a group."""
    groups, seen = data.groups, dict[int, int]()
    kept = []
    for query in queries.tolist():
        seen[groups[query]] = seen.get(groups[query], 0) + 1
        if seen[groups[query]] <= _PER_GROUP:
            kept.append(query)
    return np.array(kept)


def _as_title_and_text(collection: Collection, folder: Path) -> Collection:
    """Every document with its title, all other fields as text, and its numbers."""
    numbers = ("year", "votes", "rating", "popularity", "budget")
    documents = []
    for line in (folder / "corpus.jsonl").read_text().splitlines():
        record = json.loads(line)
        lists = (record.get(name) or [] for name in ("tags", "genres", "actors", "characters"))
        words = [record.get("overview") or "", record.get("director") or "", *(" ".join(each) for each in lists)]
        columns = {name: float(record.get(name) or 0) for name in numbers}
        documents.append(Document(str(record["_id"]), record["title"] or "", " ".join(words), columns))
    return replace(collection, documents=lambda: documents)


def _only_judged(data: Judged) -> Judged:
    """The judged documents of every query, by their ids: retrieval adds nothing, and tells nothing."""
    assert data.judged is not None
    rows, candidates = np.flatnonzero(data.judged), data.candidates
    assert candidates.document_ids is not None
    starts = np.concatenate([[0], np.cumsum(np.add.reduceat(data.judged.astype(np.int64), candidates.starts[:-1]))])
    ids = tuple(candidates.document_ids[row] for row in rows.tolist())
    fewer = replace(candidates, features=candidates.features[rows], starts=starts, document_ids=ids, comments=None)
    return Judged(fewer, data.labels[rows])


def stage(data: Judged, which: str) -> Floats:
    """The score of a first stage: by title alone, tf · idf as the index has it, or BM25 of all fields."""
    names = data.feature_names or ()
    found = [names.index("L10.title" if which == "title" else "H1.bm25")]
    return data.candidates.features[:, found[0]]


def ndcg_by_query(labels: list[Ints]) -> Callable[[Floats], Floats]:
    """Scores of all rows → NDCG@10 of every query."""
    starts = np.cumsum([0, *(len(each) for each in labels)])

    def value(scores: Floats) -> Floats:
        found = np.zeros(len(labels))
        for query, own in enumerate(labels):
            order = np.argsort(-scores[starts[query] : starts[query + 1]], kind="stable")
            gains, best = 2.0 ** own[order] - 1, np.sort(2.0**own - 1)[::-1]
            discounts = 1 / np.log2(np.arange(2, 2 + min(10, len(own))))
            ideal = float(best[:10] @ discounts)
            found[query] = float(gains[:10] @ discounts) / ideal if ideal else 0.0
        return found

    return value


def by_group(data: Judged) -> Callable[[Floats], Floats]:
    """Scores of all rows → the mean NDCG@10 of every group's queries."""
    value = ndcg_by_query([data.labels[data.candidates.rows(query)] for query in range(len(data))])
    place = np.unique(data.groups, return_inverse=True)[1]
    counts = np.bincount(place)

    def mean(scores: Floats) -> Floats:
        found: Floats = np.bincount(place, value(scores)) / counts
        return found

    return mean


def _measured(
    worlds: list[World], measures: list[Callable[[Floats], Floats]], scores: Callable[[World], Floats]
) -> Floats:
    return np.concatenate([value(scores(world)) for world, value in zip(worlds, measures, strict=True)])


class Pages(NamedTuple):
    """Drawn pages: the query and the training rows shown on each, by position, and clicks."""

    query: Ints
    rows: Ints
    clicked: np.ndarray[Any, np.dtype[np.bool_]]


def drawn(world: World, eta: float, sessions: int, *, swapped: float = _SWAPPED, stages: int = 2) -> Pages:
    """Clicks on lists of the first stage; a page's query comes with long-tailed frequency."""
    chance = np.random.default_rng([int(10 * eta), sessions])
    count = len(world.train)
    share = chance.permutation(1 / np.arange(1, count + 1) ** 0.7)
    query = chance.choice(count, sessions * count, p=share / share.sum())
    candidates, label = world.train.candidates, world.train.labels
    alpha = np.clip(np.where(label > 0, 0.9, 0.1) + 0.1 * chance.normal(size=len(label)), 0.02, 0.98)
    lists = [
        [candidates.starts[each] + _ordered(world.stages[candidates.rows(each), stage]) for stage in range(stages)]
        for each in range(count)
    ]
    stage, swap = chance.integers(stages, size=len(query)), chance.random(len(query)) < swapped
    where = chance.integers(_SHOWN - 1, size=len(query))
    rows = np.full((len(query), _SHOWN), -1)
    for page, each in enumerate(query.tolist()):
        own = lists[each][stage[page]]
        if swap[page] and where[page] + 1 < len(own):
            own = own.copy()
            own[[where[page], where[page] + 1]] = own[[where[page] + 1, where[page]]]
        rows[page, : len(own)] = own
    place = np.arange(1, _SHOWN + 1)
    attraction = np.where(rows >= 0, alpha[rows], 0.0)
    trusted = attraction + _TRUST / place * (1 - attraction)
    clicked = (chance.random(rows.shape) < place ** (-eta) * trusted) & (rows >= 0)
    return Pages(query, rows, clicked)


def _ordered(scores: Floats) -> Ints:
    return np.argsort(-scores, kind="stable")[:_SHOWN].astype(np.int64)


def logged(world: World, pages: Pages) -> Impressions:
    """The pages as a user's log, written to a file and read."""
    names = world.train.query_ids
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.tsv")
        with path.open("w") as out:
            out.write("query\tshown\tclicked\n")
            for page, query in enumerate(pages.query.tolist()):
                shown = [row for row in pages.rows[page].tolist() if row >= 0]
                clicked = pages.rows[page][pages.clicked[page]].tolist()
                out.write(f"{names[query]}\t{' '.join(map(str, shown))}\t{' '.join(map(str, clicked))}\n")
        return read_clicks(path)


def arm(world: World, eta: float, sessions: int, value: Callable[[Floats], Floats]) -> dict[str, Floats]:
    """NDCG@10 of every group by every method, learned from the same clicks."""
    log = logged(world, drawn(world, eta, sessions))
    known, test = what_is_known(log), world.test.candidates
    found: dict[str, Floats] = {}
    for name, model in (("naive", "document-ctr"), ("coec", "coec"), ("pbm", "pbm"), ("ubm", "ubm")):
        found[name] = value(boosted(_learned(world, log, judge(log, model, known))).predict(test))
    qualities = compare_models(log, ("pbm", "ubm"))
    chosen = choose_model(known, {name: each.likelihood for name, each in qualities.items()}, None, given=False)
    print(f"  eta {eta:g}, {sessions} sessions: {chosen}; {known.reason}", flush=True)
    found["chosen"] = found["naive" if chosen == "document-ctr" else chosen]
    found["pairs"] = value(boosted(_preferred(world, log, known)).predict(test)) if known.known else found["naive"]
    rows = np.array([int(each) for each in log.documents])[log.document]
    pages = pages_with_a_click(world.train.candidates.features, log, rows)
    for name, grow in (("lightgbm position", lightgbm_by_position), ("xgboost unbiased", xgboost_unbiased)):
        found[name] = value(Foreign(name, grow(pages, _GROWN)).predict(test))
    return found


def boosted(data: Judged) -> LambdaMART:
    trees, leaves, rows, rate, threads = _GROWN
    made = LambdaMART(trees, leaves=leaves, min_documents=rows, learning_rate=rate, threads=threads)
    return made.fit(data)


def _learned(world: World, log: Impressions, judgments: Judgments) -> Judged:
    """The documents that were shown with their labels, as a folder of judgments has them."""
    rows = np.array([int(log.documents[each]) for each in judgments.document])
    order = np.argsort(rows)
    owner = world.train.candidates.query_of_row[rows[order]]
    distinct, first = np.unique(owner, return_index=True)
    return _rows(world, rows[order], np.append(first, len(rows)), judgments.values()[order], len(distinct))


def _preferred(world: World, log: Impressions, known: Knowledge) -> Judged:
    """Pairs by inverse propensity, as a folder of judgments has them."""
    found = preferences(log, known)
    rows = np.array([int(each) for each in log.documents])[found.document]
    labels = np.zeros(len(rows))
    labels[found.starts[:-1]] = 1.0
    return _rows(world, rows, found.starts, labels, len(found.query)).with_weights(found.weight)


def _rows(world: World, rows: Ints, starts: Ints, values: Floats, count: int) -> Judged:
    labels, gains = labels_from(values, True)
    names = tuple(f"q{each}" for each in range(count))
    features = world.train.candidates.features[rows]
    return Judged(Candidates(features, starts, names, feature_names=world.train.feature_names), labels, gains=gains)


if __name__ == "__main__":
    main()
