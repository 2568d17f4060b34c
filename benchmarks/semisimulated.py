"""Semi-simulated clicks: how much of what human labels gain each way of learning from clicks recovers.

`python -m benchmarks.semisimulated ../shared/data/msrd` draws clicks on the lists of a first stage, by human labels and
a position bias of known strength, learns from them, and measures on human labels of other groups of queries. Settings
were chosen with `--part validation`. It is a simulation: nobody clicked.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from querywise import LambdaMART, build_index, judged_candidates
from querywise.clicks.identifiable import what_is_known
from querywise.clicks.impressions import Impressions
from querywise.clicks.judgments import Judgments, choose_model, judge
from querywise.clicks.models import LEAST
from querywise.clicks.quality import compare_models
from querywise.clicks.readers import read_clicks
from querywise.data.collections import Collection, Document, read_collection
from querywise.data.judged import Judged
from querywise.evaluation.significance import holm, paired_t_test
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.runtime.arrays import Floats, Ints

BIASES = (0.0, 0.5, 1.0, 2.0)  # η of θ = (1 / position)^η
SESSIONS = (1, 10, 30)  # a query on average
_SHOWN = 10
_PER_GROUP = 2  # queries
_SWAPPED = 0.2  # of the pages, with two neighbors exchanged
_TRUST = 0.05  # a look at position p becomes a click without relevance with this chance / p
_TREES, _LEAVES, _RATE = 100, 15, 0.1
_QUANTILE = 0.99  # of inverse propensities, above which they are clipped
METHODS = (
    "naive", "coec", "pbm", "ubm", "chosen", "chosen, weighted", "lightgbm position", "xgboost unbiased",
    "ranksvm naive", "ranksvm propensity",
)  # fmt: skip


class World(NamedTuple):
    """The parts of the queries, and the score of the first stage in every row: by title and by all fields."""

    train: Judged
    test: Judged
    stages: Floats


def main() -> None:
    """Run all arms, and print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--part", choices=("validation", "test"), default="test")
    options.add_argument("--biases", type=float, nargs="+", default=BIASES)
    options.add_argument("--sessions", type=int, nargs="+", default=SESSIONS)
    options.add_argument("--out", type=Path)
    asked = options.parse_args()
    world = world_of(asked.folder, asked.part)
    labels = [world.test.labels[world.test.candidates.rows(query)] for query in range(len(world.test))]
    value = ndcg_by_query(labels)
    first = value(_column(world.test, "all"))
    human = value(_boosted(world.train).predict(world.test.candidates))
    print(f"{len(world.train)} training queries, {len(world.test)} measured; NDCG@10 {first.mean():.4f} of BM25 of all "
          f"fields, {human.mean():.4f} by human labels of all documents", flush=True)  # fmt: skip
    rows = []
    for eta in asked.biases:
        for sessions in asked.sessions:
            found = arm(world, eta, sessions, value)
            for name, values in found.items():
                share = (values.mean() - first.mean()) / (human.mean() - first.mean())
                rows.append({"eta": eta, "sessions": sessions, "method": name, "ndcg": values, "share": share})
                print(
                    f"eta {eta:g}, {sessions} sessions a query, {name}: {values.mean():.4f} ({share:.0%})", flush=True
                )
    tests = _tests(rows)
    print("\n".join(tests))
    if asked.out is not None:
        kept = [{**row, "ndcg": float(row["ndcg"].mean())} for row in rows]
        asked.out.write_text(json.dumps({"rows": kept, "tests": tests}, indent=1))


def _tests(rows: list[dict[str, Any]]) -> list[str]:
    """The chosen way against naive, LightGBM's and XGBoost's, in every arm, under one Holm correction."""
    found, ps = [], []
    for row in rows:
        if row["method"] == "chosen":
            for other in ("naive", "lightgbm position", "xgboost unbiased"):
                same = (row["eta"], row["sessions"], other)
                theirs = next(each for each in rows if (each["eta"], each["sessions"], each["method"]) == same)
                test = paired_t_test(row["ndcg"], theirs["ndcg"])
                found.append((*same, test.difference))
                ps.append(test.p)
    return [
        f"eta {eta:g}, {sessions} sessions, chosen against {other}: {gap:+.4f}, p {p:.4g} (Holm, {len(ps)} tests)"
        for (eta, sessions, other, gap), p in zip(found, holm(ps), strict=True)
    ]


def world_of(folder: Path, part: str) -> World:
    """Features of the judged documents, groups dealt into training (half), validation (a fifth) and test."""
    collection = _as_title_and_text(read_collection(folder), folder)
    index = build_index(collection.documents())
    data, _ = judged_candidates(collection, index, top=1, add_judged=True)
    data = _only_judged(data)
    groups = np.unique(data.groups)
    place = np.random.default_rng(0).permutation(len(groups))
    role = np.searchsorted(groups, data.groups)
    train = np.flatnonzero(place[role] < 0.5 * len(groups))
    low, high = (0.5, 0.7) if part == "validation" else (0.7, 1.0)
    test = np.flatnonzero((place[role] >= low * len(groups)) & (place[role] < high * len(groups)))
    learned = data.select(train)
    stages = np.stack([_column(learned, "title"), _column(learned, "all")], axis=1)
    return World(learned, data.select(test), stages)


def _as_title_and_text(collection: Collection, folder: Path) -> Collection:
    """Every document with its title, all other fields as text, and its numbers; at most two queries of a group."""
    numbers = ("year", "votes", "rating", "popularity", "budget")
    documents = []
    for line in (folder / "corpus.jsonl").read_text().splitlines():
        record = json.loads(line)
        lists = (record.get(name) or [] for name in ("tags", "genres", "actors", "characters"))
        words = [record.get("overview") or "", record.get("director") or "", *(" ".join(each) for each in lists)]
        columns = {name: float(record.get(name) or 0) for name in numbers}
        documents.append(Document(str(record["_id"]), record["title"] or "", " ".join(words), columns))
    table = collection.queries
    assert table is not None
    assert table.groups is not None
    seen: dict[str | None, int] = {}
    chosen = []
    for query, group in zip(table.ids, table.groups, strict=True):
        seen[group] = seen.get(group, 0) + 1
        if seen[group] <= _PER_GROUP:
            chosen.append(query)
    kept = set(chosen)
    judgements = tuple(each for each in collection.judgements if each.query in kept)
    return Collection("msrd", lambda: documents, table.select(chosen), judgements)


def _only_judged(data: Judged) -> Judged:
    """The judged documents of every query, by their ids: retrieval adds nothing, and tells nothing."""
    assert data.judged is not None
    rows, candidates = np.flatnonzero(data.judged), data.candidates
    assert candidates.document_ids is not None
    from dataclasses import replace

    starts = np.concatenate([[0], np.cumsum(np.add.reduceat(data.judged.astype(np.int64), candidates.starts[:-1]))])
    ids = tuple(candidates.document_ids[row] for row in rows.tolist())
    fewer = replace(candidates, features=candidates.features[rows], starts=starts, document_ids=ids, comments=None)
    return Judged(fewer, data.labels[rows])


def _column(data: Judged, which: str) -> Floats:
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


class Pages(NamedTuple):
    """Drawn pages: the query and the training rows shown on each, by position, and clicks."""

    query: Ints
    rows: Ints
    clicked: np.ndarray[Any, np.dtype[np.bool_]]


def drawn(world: World, eta: float, sessions: int) -> Pages:
    """Clicks on lists of the first stage; a page's query comes with long-tailed frequency."""
    chance = np.random.default_rng([int(10 * eta), sessions])
    count = len(world.train)
    share = chance.permutation(1 / np.arange(1, count + 1) ** 0.7)
    query = chance.choice(count, sessions * count, p=share / share.sum())
    candidates, label = world.train.candidates, world.train.labels
    alpha = np.clip(np.where(label > 0, 0.9, 0.1) + 0.1 * chance.normal(size=len(label)), 0.02, 0.98)
    lists = [
        [candidates.starts[each] + _ordered(world.stages[candidates.rows(each), stage]) for stage in (0, 1)]
        for each in range(count)
    ]
    stage, swap = chance.integers(2, size=len(query)), chance.random(len(query)) < _SWAPPED
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
    """NDCG@10 of every query by every method, learned from the same clicks."""
    pages = drawn(world, eta, sessions)
    log = logged(world, pages)
    known = what_is_known(log)
    found: dict[str, Floats] = {}
    test = world.test.candidates
    qualities = compare_models(log, ("pbm", "ubm"))
    chosen = choose_model(known, {name: each.likelihood for name, each in qualities.items()}, None, given=False)
    for name, model in (("naive", "document-ctr"), ("coec", "coec"), ("pbm", "pbm"), ("ubm", "ubm")):
        judgments = judge(log, model, known)
        found[name] = value(_boosted(_learned(world, log, judgments)).predict(test))
        if model == chosen:
            found["chosen"] = found[name]
            found["chosen, weighted"] = value(_boosted(_learned(world, log, judgments, weighted=True)).predict(test))
    print(f"  eta {eta:g}, {sessions} sessions: {chosen}; {known.reason[:60]}…", flush=True)
    found["lightgbm position"] = value(_lightgbm(world, pages))
    found["xgboost unbiased"] = value(_xgboost(world, pages))
    for name, examined in (("ranksvm naive", np.ones_like(known.theta)), ("ranksvm propensity", known.theta)):
        found[name] = value(RankSVM(l2=0.1).fit(by_click(world, pages, examined)).predict(test))
    return found


def _boosted(data: Judged) -> LambdaMART:
    return LambdaMART(_TREES, leaves=_LEAVES, learning_rate=_RATE, threads=2).fit(data)


def _learned(world: World, log: Impressions, judgments: Judgments, *, weighted: bool = False) -> Judged:
    """The documents that were shown with their gains, as a folder of judgments has them."""
    rows = np.array([int(log.documents[each]) for each in judgments.document])
    order = np.argsort(rows)
    owner = world.train.candidates.query_of_row[rows[order]]
    distinct, first = np.unique(owner, return_index=True)
    made = _rows(world, rows[order], np.append(first, len(rows)), judgments.values()[order], len(distinct))
    if not weighted:
        return made
    weights = np.add.reduceat(1 / np.maximum(judgments.error[order], LEAST) ** 2, first)
    return made.with_weights(weights / weights.mean())


def _rows(world: World, rows: Ints, starts: Ints, values: Floats, count: int) -> Judged:
    from querywise import Candidates
    from querywise.data.labels import labels_from

    labels, gains = labels_from(values, True)
    names = tuple(f"q{each}" for each in range(count))
    features = world.train.candidates.features[rows]
    return Judged(Candidates(features, starts, names, feature_names=world.train.feature_names), labels, gains=gains)


def by_click(world: World, pages: Pages, theta: Floats) -> Judged:
    """A query for every clicked document of a query and position: it above the others, weight clicks / θ, clipped."""
    page, place = np.nonzero(pages.clicked)
    keys = pages.rows[page, place] * np.int64(_SHOWN) + place
    distinct, first, counts = np.unique(keys, return_index=True, return_counts=True)
    rows, starts, labels = [], [0], []
    for one in first.tolist():
        shown = pages.rows[page[one]]
        other = np.setdiff1d(shown[(shown >= 0) & ~pages.clicked[page[one]]], pages.rows[page[one], place[one]])
        rows += [pages.rows[page[one], place[one]], *other.tolist()]
        labels += [1.0] + [0.0] * len(other)
        starts.append(len(rows))
    inverse = 1 / theta[np.minimum(distinct % _SHOWN + 1, len(theta) - 1)]
    weights = counts * np.minimum(inverse, np.quantile(inverse, _QUANTILE))
    data = _rows(world, np.array(rows), np.array(starts), np.array(labels), len(distinct))
    return data.with_weights(weights)


def _lightgbm(world: World, pages: Pages) -> Floats:
    """LightGBM's lambdarank with positions, a group for every page with a click."""
    import lightgbm

    rows, labels, place, sizes = _by_page(pages)
    features = world.train.candidates.features
    data = lightgbm.Dataset(features[rows], labels, group=sizes, position=place, params={"verbosity": -1})
    settings = {"objective": "lambdarank", "num_leaves": _LEAVES, "learning_rate": _RATE, "verbosity": -1,
                "num_threads": 2, "lambdarank_position_bias_regularization": 1.0}  # fmt: skip
    forest = lightgbm.train(settings, data, _TREES)
    return np.asarray(forest.predict(world.test.candidates.features, num_threads=2), np.float64)


def _xgboost(world: World, pages: Pages) -> Floats:
    """XGBoost's rank:ndcg with lambdarank_unbiased; the rows of a group are in the order of their positions."""
    import xgboost

    rows, labels, _, sizes = _by_page(pages)
    query = np.repeat(np.arange(len(sizes)), sizes)
    data = xgboost.DMatrix(world.train.candidates.features[rows], label=labels, qid=query)
    settings = {"objective": "rank:ndcg", "lambdarank_unbiased": True, "lambdarank_pair_method": "topk",
                "lambdarank_num_pair_per_sample": _SHOWN, "max_leaves": _LEAVES, "grow_policy": "lossguide",
                "max_depth": 0, "eta": _RATE, "tree_method": "hist", "nthread": 2, "verbosity": 0}  # fmt: skip
    forest = xgboost.train(settings, data, _TREES)
    return np.asarray(forest.inplace_predict(world.test.candidates.features, predict_type="margin"), np.float64)


def _by_page(pages: Pages) -> tuple[Ints, Ints, Ints, Ints]:
    some = pages.clicked.any(axis=1)
    there = pages.rows[some] >= 0
    place = np.tile(np.arange(_SHOWN), (int(some.sum()), 1))
    return pages.rows[some][there], pages.clicked[some][there].astype(np.int64), place[there], there.sum(axis=1)


if __name__ == "__main__":
    main()
