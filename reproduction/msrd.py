"""Documents with fields on many judged queries: the blend beside what people would pick, and by training queries.

For text collections with fields, whose judged documents are ranked, such as the Movie Search Ranking Dataset. Every
row has its defaults, and forests one seed each; they stop early on the validation part. The boosts are a ranking SVM
without negative weights on BM25 by field. Where there are fields title, actors and popularity, XGBoost also has the
five features of Elastic's notebook on that data, and its protocol is repeated: five random splits by query, 70 % to
train on, stopped and measured on the other 30 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.folds import Fold, Folds
from querywise.data.judged import Judged
from querywise.errors import DataError
from querywise.evaluation.compare import compare
from querywise.evaluation.evaluate import Evaluation, evaluate
from querywise.evaluation.learning_curves import cut
from querywise.evaluation.resume import Kept
from querywise.evaluation.significance import Corrected, corrected, paired_t_test
from querywise.evaluation.trained import Fit
from querywise.learners.peers import XGBoost
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.methods.table import RECOMMENDED
from querywise.report.tables import Cell, Column, Table
from querywise.runtime.files import make_folder
from querywise.runtime.progress import keeping, track
from querywise.runtime.values import JsonObject, Settings
from reproduction.papers import by_default, line_figure, write_findings

MEASURES = {"ndcg@10": "NDCG@10", "map": "MAP"}
FIVE, BOOSTS = "xgboost, five features", "boosts of fields"
SIZES = (250, 1_000, 2_500)  # training queries of the learning curves, before all of them
CURVES = ("single", "knn-online", "lambdamart", RECOMMENDED)
VECTORS = ("lambdamart", RECOMMENDED)  # also with vectors
SPLITS, SHARE, NOTEBOOK = 5, 0.7, 0.8827  # Elastic's: https://github.com/elastic/elasticsearch-labs, search/08
_BY_VIEW = {"knn-online": "top-mean", "knn-online, text": "text", "knn-online, two-models": "two-models"}
_OWN = ("title.bm25", "title.coverage", "actors.bm25", "actors.coverage", "popularity")  # what the five are made of


def reproduce(folds: Folds, beside: Folds | None, out: Path) -> Path:
    """Write table.md, numbers.json and curves.svg into a folder; returns the table's path.

    folds: of a collection with fields, by words. beside: the same with vectors, where there are any.
    """
    make_folder(out)
    names = folds[0].train.feature_names or ()
    if not any(name.startswith("fields.") for name in names):
        raise DataError("msrd compares features by field, and these documents have a title and a text alone.")
    kept = Kept(out / "runs", _settings())
    protocol = _protocol(folds.whole()) if set(_OWN) <= set(names) else {}
    with keeping(partial(kept.told, len(folds))):
        found = dict(compare(_fits(), folds, measures=tuple(MEASURES), kept=kept).evaluations)
        found |= compare({BOOSTS: _boosts}, folds.map(_by_field), measures=tuple(MEASURES)).evaluations
        if protocol:
            found |= compare({FIVE: by_default("xgboost", 1)}, folds.map(_five), measures=tuple(MEASURES)).evaluations
        if beside is not None:
            more = compare(
                {each: by_default(each, 1) for each in VECTORS}, beside, measures=tuple(MEASURES), kept=kept.part("v")
            )
            found |= {f"{name}, with vectors": each for name, each in more.evaluations.items()}
        curves = {
            size: compare(
                {name: by_default(name, 1) for name in CURVES},
                [cut(part, size) for part in folds],
                measures=("ndcg@10",),
                kept=kept.part(str(size)),
            ).evaluations
            for size in track([size for size in SIZES if size < min(folds.sizes())], "Sizes")
        }
    return _write(out, found, curves, protocol, folds.sizes())


def _fits() -> dict[str, Fit]:
    fits = {"bm25": by_default("bm25", 1), "single": by_default("single", 1)}
    fits |= {name: by_default("knn-online", 1, view=view) for name, view in _BY_VIEW.items()}
    return fits | {name: by_default(name, 1) for name in ("lambdamart", "xgboost", "catboost", RECOMMENDED)}


def _settings() -> Settings:
    """What the rows are made with, by which a result that is kept is known again."""
    return {name: {"name": name, "bag": 1} for name in _fits()}


def _boosts(train: Judged, valid: Judged | None) -> RankSVM:
    return RankSVM(nonnegative=True).fit(train)


def _by_field(fold: Fold) -> Fold:
    """BM25 of each field alone."""
    return Fold(*(_columns(part, [each for each in _names(part) if each.endswith(".bm25")][1:]) for part in fold))


def _names(data: Judged) -> Sequence[str]:
    return data.feature_names or ()


def _columns(data: Judged, names: Sequence[str]) -> Judged:
    candidates = data.candidates
    chosen = candidates.features[:, [candidates.column_of(name) for name in names]]
    return _with(data, chosen, tuple(names))


def _with(data: Judged, features: Any, names: tuple[str, ...]) -> Judged:
    return replace(data, candidates=data.candidates.with_features(np.ascontiguousarray(features), names))


def _five(fold: Fold) -> Fold:
    """The five features of Elastic's notebook: BM25 of title and actors, the same where all words match, popularity."""
    return Fold(*map(_of_notebook, fold))


def _of_notebook(data: Judged) -> Judged:
    title, titled, actors, acted, popularity = _columns(data, _OWN).candidates.features.T
    columns = [title, actors, np.where(titled == 1, title, 0.0), np.where(acted == 1, actors, 0.0), popularity]
    return _with(data, np.column_stack(columns), ("title", "actors", "title, all", "actors, all", "popularity"))


def _protocol(data: Judged) -> dict[str, list[float]]:
    """NDCG@10 of XGBoost on the 30 % of the queries that it also stopped on, by seed: with its features, and ours."""
    found: dict[str, list[float]] = {"five features": [], "ours": []}
    for seed in track(range(SPLITS), "Splits"):
        order = np.random.default_rng(seed).permutation(len(data))
        cut_at = round(SHARE * len(data))
        parts = [data.select(np.sort(each)) for each in (order[:cut_at], order[cut_at:])]
        for name, made in {"five features": _of_notebook, "ours": lambda part: part}.items():
            train, valid = map(made, parts)
            forest = XGBoost(100, learning_rate=0.3, patience=20).fit(train, valid=valid)
            scores = forest.predict(valid.candidates)
            found[name].append(evaluate(scores, valid, measures=["ndcg@10"], order="grouped").mean()["ndcg@10"])
    return found


def _write(
    out: Path,
    found: Mapping[str, Evaluation],
    curves: Mapping[int, Mapping[str, Evaluation]],
    protocol: Mapping[str, Sequence[float]],
    counts: Sequence[int],
) -> Path:
    rivals = [name for name in found if name != RECOMMENDED]
    tests = corrected(
        {(m, name): paired_t_test(found[RECOMMENDED][m], found[name][m]) for m in MEASURES for name in rivals}
    )
    every = {**curves, max(counts): {name: found[name] for name in CURVES}}
    means = {size: {name: float(own[name]["ndcg@10"].mean()) for name in CURVES} for size, own in every.items()}
    at_sizes = corrected(
        {
            (size, name): paired_t_test(own[RECOMMENDED]["ndcg@10"], own[name]["ndcg@10"])
            for size, own in every.items()
            for name in CURVES
            if name != RECOMMENDED
        }
    )
    lines = {name: [each[name] for each in means.values()] for name in CURVES}
    line_figure(out / "curves.svg", list(means), lines, labels=("training queries", "NDCG@10"), title="", doubling=True)
    numbers: JsonObject = {
        "rows": {name: {m: float(each[m].mean()) for m in MEASURES} for name, each in found.items()},
        "p_holm": {m: {name: tests[m, name].p_holm for name in rivals} for m in MEASURES},
        "difference": {m: {name: tests[m, name].found.difference for name in rivals} for m in MEASURES},
        "curves": {str(size): dict(each) for size, each in means.items()},
        "curves_p_holm": {str(size): {name: at_sizes[size, name].p_holm for name in CURVES[:-1]} for size in every},
        "notebook": {name: [*each] for name, each in protocol.items()},
        "queries": len(found[RECOMMENDED]),
    }
    tables = [_main_table(found, tests, counts), _curves_table(means, at_sizes)]
    return write_findings(out, numbers, [*tables, *([_protocol_table(protocol)] if protocol else [])])


def _main_table(
    found: Mapping[str, Evaluation], tests: Mapping[tuple[str, str], Corrected], counts: Sequence[int]
) -> Table:
    columns = [Column("ranker")]
    for shown in MEASURES.values():
        columns += [Column(shown, "value"), Column("blend's gain", "signed"), Column("p, Holm", "p")]
    rows: list[tuple[Cell, ...]] = []
    for name, each in found.items():
        row: list[Cell] = [name]
        for measure in MEASURES:
            test = tests.get((measure, name))
            row += [float(each[measure].mean())]
            row += [None, None] if test is None else [test.found.difference, test.p_holm]
        rows.append(tuple(row))
    caption = (
        f"{len(found[RECOMMENDED]):,} test queries, {min(counts):,} to {max(counts):,} to learn from; p: paired t-test "
        f"of {RECOMMENDED} against the row, Holm's correction for all {len(tests)} tests of the table; one seed each."
    )
    return Table(tuple(columns), tuple(rows), caption)


def _curves_table(means: Mapping[int, Mapping[str, float]], tests: Mapping[tuple[int, str], Corrected]) -> Table:
    columns = [Column("training queries", "count")]
    for name in CURVES:
        columns += [Column(name, "value"), *([Column("p, Holm", "p")] if name != RECOMMENDED else [])]
    rows: list[tuple[Cell, ...]] = []
    for size, own in means.items():
        row: list[Cell] = [size]
        for name in CURVES:
            row += [own[name], *([tests[size, name].p_holm] if name != RECOMMENDED else [])]
        rows.append(tuple(row))
    caption = f"NDCG@10; p: paired t-test of {RECOMMENDED} against the column, Holm's correction for all of the table."
    return Table(tuple(columns), tuple(rows), caption)


def _protocol_table(protocol: Mapping[str, Sequence[float]]) -> Table:
    columns = [Column("XGBoost, NDCG@10"), *(Column(f"seed {seed}", "value") for seed in range(SPLITS))]
    rows: list[tuple[Cell, ...]] = [
        (name, *each, float(np.mean(each)), float(np.std(each, ddof=1))) for name, each in protocol.items()
    ]
    caption = (
        f"Elastic's notebook prints {NOTEBOOK} for one unseeded split. Queries about one film are on both sides, and "
        "each forest is measured on the queries that it stopped on."
    )
    return Table((*columns, Column("mean", "value"), Column("deviation", "value")), tuple(rows), caption)
