"""Words and vectors: lists alone, fused, weighed for all queries or for each, and as features of learned rankers.

Candidates are what BM25 or the vectors find, the best 50 of each, and every fusion and every model ranks these. A run
alone is measured on its own list, the best 100. Measures count all that was judged. Parameters are chosen on the
validation part of each fold by MAP; weights are fitted on the training and the validation part. *single, words* has
only the columns that a collection without vectors has. LambdaMART has its default settings; it and the blend average
five seeds; where there are more than 1,000 queries, which take long, either has one seed.

The oracle takes for every query the weights, in steps of 0.05, that rank it best; it looks at the judgements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from querywise.contracts.answers import Scorer
from querywise.data.coverage import coverage_of
from querywise.data.folds import Fold, Folds
from querywise.data.judged import Judged
from querywise.data.run_columns import run_columns
from querywise.errors import DataError
from querywise.evaluation.compare import Compared, compare, own_coverage
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.significance import holm, paired_t_test
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import TunedFit
from querywise.learners.linear import linear_scores
from querywise.methods import METHODS
from querywise.methods.table import RECOMMENDED
from querywise.rankers.single import OneFeature
from querywise.rankers.weights.by_query import WeightsByQuery
from querywise.rankers.weights.fusion import Weights, normalised_runs, options_for
from querywise.report.tables import Cell, Column, Table
from querywise.runtime.arrays import Floats
from querywise.runtime.files import atomic_text, make_folder
from querywise.runtime.values import Json, JsonObject, Settings, json_text
from reproduction.papers import p_of, write_findings

SEEDS, FEWER_SEEDS, MANY_QUERIES = 5, 1, 1000
RRF, WEIGHTS, BY_QUERY, SINGLE = "rrf", "weights", "weights-by-query", "single"
WORDS, ORACLE = "single, words", "oracle: best weights of each query"
RIVALS = (RRF, WEIGHTS, SINGLE)
POOLED = (RRF, WEIGHTS, BY_QUERY, RECOMMENDED)  # rows whose values of each query are kept
PAIRS = ((RECOMMENDED, RRF), (RECOMMENDED, WEIGHTS), (BY_QUERY, WEIGHTS))
MEASURES = {"map": "MAP", "ndcg@10": "NDCG@10"}
QUERIES = "queries.json"
_FIRST_OF_VECTORS = "similarity"  # the columns of words come before it


def reproduce(folds: Folds, out: Path) -> Path:
    """Write table.md, numbers.json and queries.json into a folder; returns the table's path."""
    parts = list(folds)
    names = _checked_names(parts[0].train)
    make_folder(out)
    learned: dict[str, list[Json]] = {WEIGHTS: [], BY_QUERY: []}

    def observe(fold: Fold, name: str, ranker: Scorer) -> None:
        if isinstance(ranker, Weights):
            learned[name].append(dict(zip(ranker.runs_, ranker.weights_.tolist(), strict=True)))
        elif isinstance(ranker, WeightsByQuery):
            learned[name].append(WEIGHTS if ranker.taken_ < 0 else str(ranker.tried_[ranker.taken_]))

    bag = seeds_for(sum(len(each.test) for each in parts))
    compared = compare(_fits(names, bag), parts, measures=tuple(MEASURES), observe=observe)
    words = compare({WORDS: _chosen(SINGLE)}, [_of_words(each) for each in parts], measures=tuple(MEASURES))
    compared = _with_row(compared, words)
    best = oracle(compared.judged)
    numbers: JsonObject = {
        "comparison": compared.as_json(),
        "oracle": {measure: float(each.mean()) for measure, each in best.items()},
        "closed": _closed(compared, best),
        "recall": _recalls(compared),
        "p": _tests(compared),
        "p_holm": _tests(compared, corrected=True),
        "seeds": bag,
        "learned": learned,
        "chosen": {name: compared.parameters(name) for name in compared.names},
    }
    with atomic_text(out / QUERIES) as file:
        file.write(json_text(_by_query(compared)))
    return write_findings(out, numbers, [_table(compared, best), _remark(compared, bag)])


def seeds_for(queries: int) -> int:
    """How many seeds trees are averaged over, for so many queries."""
    return FEWER_SEEDS if queries > MANY_QUERIES else SEEDS


def _checked_names(data: Judged) -> tuple[str, ...]:
    names = data.feature_names or ()
    if len(run_columns(names)) < 2 or _FIRST_OF_VECTORS not in names:
        raise DataError(
            "hybrid compares words with vectors, and the documents have no vectors. Give a text collection with "
            "vectors=FOLDER or embed=NAME, or a folder of features that were made with vectors.",
            arguments=("vectors", "embed"),
        )
    return names


def _fits(names: Sequence[str], bag: int) -> dict[str, Fit]:
    fits: dict[str, Fit] = {f"run {run.name}": _alone(run.name) for run in run_columns(names)}
    fits |= {name: _chosen(name) for name in (RRF, "combsum", WEIGHTS, BY_QUERY, "forest", SINGLE)}
    fits["lambdamart"] = TunedFit(METHODS["lambdamart"].build, {}, fixed={"bag": bag})
    fits[RECOMMENDED] = _chosen(RECOMMENDED, {"bag": bag})
    fits[f"{RECOMMENDED}, view signals"] = _chosen(RECOMMENDED, {"bag": bag, "view": "signals"})
    return fits


def _alone(run: str) -> Fit:
    """A run's own order, which is measured on its own list."""
    feature = f"run.{run}.reciprocal_rank"
    return lambda train, valid: OneFeature(feature).fit(train, valid=valid)


def _chosen(name: str, fixed: Settings | None = None) -> Fit:
    """A method with the best setting of its grid on the validation part, as `compare` has it."""
    return TunedFit(METHODS[name].build, METHODS[name].grid_on, fixed=fixed or {})


def _of_words(fold: Fold) -> Fold:
    """The same candidates, with the columns that documents without vectors have."""

    def cut(data: Judged) -> Judged:
        names = data.feature_names or ()
        count = names.index(_FIRST_OF_VECTORS)
        seen = replace(data.candidates, features=data.candidates.features[:, :count], feature_names=names[:count])
        return replace(data, candidates=seen)

    return Fold(*map(cut, fold))


def _with_row(compared: Compared, words: Compared) -> Compared:
    """With the row of words alone before that of all columns."""
    rows = {}
    for name, trained in compared.trained.items():
        if name == SINGLE:
            rows[WORDS] = words.trained[WORDS]
        rows[name] = trained
    return replace(compared, trained=rows, baseline=RRF)


def oracle(test: Judged, normalise: str = "opensearch-min-max") -> dict[str, Floats]:
    """By measure, what every query reaches under the weights that are best for it."""
    runs = run_columns(test.feature_names)
    seen = normalised_runs(test.candidates, runs, normalise)
    tables = [
        evaluate(linear_scores(seen.features, each), test, measures=tuple(MEASURES), order="grouped")
        for each in options_for(len(runs))
    ]
    return {measure: np.max([table[measure] for table in tables], axis=0) for measure in MEASURES}


def _closed(compared: Compared, best: Mapping[str, Floats]) -> dict[str, dict[str, float | None]]:
    """The share of the gap between `weights` and the oracle that each row closes, by measure; None without a gap."""
    found: dict[str, dict[str, float | None]] = {}
    for measure, values in best.items():
        means = {name: compared.evaluations[name].mean()[measure] for name in compared.names}
        gap = float(values.mean()) - means[WEIGHTS]
        found[measure] = {name: (mean - means[WEIGHTS]) / gap if gap > 0 else None for name, mean in means.items()}
    return found


def _recalls(compared: Compared) -> dict[str, float]:
    """Of each row the share of relevant documents in its list: of a run alone its own, of any other the union."""
    every = coverage_of(compared.judged).recall
    return {
        name: own_coverage(compared.lists[name], compared.judgements).recall if name in compared.lists else every
        for name in compared.names
    }


def _tests(compared: Compared, *, corrected: bool = False) -> dict[str, dict[str, dict[str, float]]]:
    """Measure → rival → row: p of the paired t-test, or by Holm for all rows of that rival and measure."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for measure in MEASURES:
        for rival in RIVALS:
            rows = [name for name in compared.names if name != rival]
            ps = [p_of(compared, name, rival, measure) for name in rows]
            found.setdefault(measure, {})[rival] = dict(zip(rows, holm(ps) if corrected else ps, strict=True))
    return found


def _by_query(compared: Compared) -> JsonObject:
    tables = {measure: {name: compared.evaluations[name][measure].tolist() for name in POOLED} for measure in MEASURES}
    return {"queries": list(compared.judged.query_ids), **tables}


def _table(compared: Compared, best: Mapping[str, Floats]) -> Table:
    columns = [Column("ranker"), Column("recall", "value")]
    for heading in MEASURES.values():
        columns += [Column(heading, "value"), *(Column(f"p ({rival})", "p") for rival in RIVALS)]
        columns.append(Column("gap closed", "share"))
    corrected, closed, recalls = _tests(compared, corrected=True), _closed(compared, best), _recalls(compared)
    rows: list[tuple[Cell, ...]] = []
    for name in compared.names:
        cells: list[Cell] = [name, recalls[name]]
        for measure, mean in compared.evaluations[name].mean().items():
            ps = [corrected[measure][rival].get(name) for rival in RIVALS]
            cells += [mean, *ps, closed[measure][name]]
        rows.append(tuple(cells))
    last: list[Cell] = [ORACLE, recalls[RRF]]
    for values in best.values():
        last += [float(values.mean()), None, None, None, 1.0]
    return Table(tuple(columns), (*rows, tuple(last)))


def _remark(compared: Compared, bag: int) -> str:
    told = [
        f"{len(compared.judged)} test queries, flavour {compared.flavour}; p: paired t-test against rrf, weights and "
        f"single, each with Holm's correction for all {len(compared.names) - 1} other rows; gap closed: of the gap "
        f"between weights and the oracle; trees of {bag} seed{'' if bag == 1 else 's'}.",
        *compared.counted(),
    ]
    return " ".join(told) + "\n"


class Pooled(NamedTuple):
    """Two rows by one measure, over the queries of all collections."""

    measure: str
    ours: str
    theirs: str
    ours_mean: float
    theirs_mean: float
    p: float
    gains: dict[str, float]  # ours less theirs, in each collection


def pooled(parts: Mapping[str, Path], out: Path) -> Path:
    """All queries of several collections together, from the folders that `reproduce` wrote, by name of the collection.

    Writes table.md and numbers.json into a folder; returns the table's path.
    """
    tables = {name: json.loads((folder / QUERIES).read_text()) for name, folder in parts.items()}
    found = [
        _pooled(measure, pair, {name: table[measure] for name, table in tables.items()})
        for measure in MEASURES
        for pair in PAIRS
    ]
    corrected = holm([each.p for each in found])
    count = sum(len(table["queries"]) for table in tables.values())
    columns = [Column("rankers"), Column("measure"), *(Column(f"gain, {name}", "signed") for name in parts)]
    columns += [Column("first, all", "value"), Column("second, all", "value"), Column("p", "p"), Column("p, Holm", "p")]
    rows: list[tuple[Cell, ...]] = []
    for each, holms in zip(found, corrected, strict=True):
        shown: list[Cell] = [f"{each.ours} against {each.theirs}", MEASURES[each.measure], *each.gains.values()]
        rows.append((*shown, each.ours_mean, each.theirs_mean, each.p, holms))
    caption = (
        f"{count} test queries of {len(parts)} collections together; p: paired t-test; Holm's correction for all rows."
    )
    numbers: JsonObject = {"queries": count, "tests": [each._asdict() for each in found], "p_holm": corrected}
    make_folder(out)
    return write_findings(out, numbers, [Table(tuple(columns), tuple(rows), caption)])


def _pooled(measure: str, pair: tuple[str, str], tables: Mapping[str, Mapping[str, Sequence[float]]]) -> Pooled:
    values = {name: (np.array(table[pair[0]]), np.array(table[pair[1]])) for name, table in tables.items()}
    ours, theirs = (np.concatenate([each[side] for each in values.values()]) for side in (0, 1))
    gains = {name: float((first - second).mean()) for name, (first, second) in values.items()}
    p = paired_t_test(ours, theirs).p
    return Pooled(measure, *pair, float(ours.mean()), float(theirs.mean()), p, gains)
