"""Query vectors that learn: every ranking by vectors as they are and by adapted ones, on the same folds.

Rows of vectors alone are measured on their own lists, the best 100: as they are, and moved by linear maps as LlamaIndex
and RAGLite make them, by our linear map, by the training queries near each, and as `auto` chooses. The other rows rank
what BM25 or the vectors find, the best 50 of each, once by vectors as they are and once by `auto`. In each fold, all of
them learn from its training part alone. Trees average five seeds, or one where there are more than 1,000 queries.

Learning curves of vectors alone begin at 30 training queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, Self, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from querywise.data.folds import Folds
from querywise.data.run_columns import Run
from querywise.errors import DataError
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.evaluate import Evaluation, evaluate_run
from querywise.evaluation.learning_curves import LearningCurves, cut, sizes_up_to
from querywise.evaluation.significance import Corrected, corrected, paired_t_test
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import TunedFit
from querywise.methods import METHODS
from querywise.methods.table import RECOMMENDED
from querywise.report.tables import Cell, Column, Table
from querywise.reproduction.hybrid import seeds_for
from querywise.reproduction.linear_maps import LlamaIndexMap, RagliteMap
from querywise.reproduction.papers import line_figure, write_findings
from querywise.retrieval.adapted_vectors import AdaptedVectors
from querywise.retrieval.adapting import Adaptation
from querywise.retrieval.judged_vectors import Given
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.files import make_folder
from querywise.runtime.progress import track
from querywise.runtime.values import JsonObject

MEASURES = {"map": "MAP", "ndcg@10": "NDCG@10", "recall@100": "recall@100"}
PLAIN, LINEAR, BY_QUERY, AUTO = "plain", "linear", "by query", "auto"
_TOP = 100  # documents of a list of vectors alone
_RANKED = ("rrf", "weights", "single", "lambdamart", RECOMMENDED)
_Tests: TypeAlias = Mapping[tuple[str, str], Corrected]  # by measure and row


class Moving(Protocol):
    """What learns to move query vectors."""

    def fit(
        self, query_vectors: Given, document_vectors: Given, judgments: csr_array, *, groups: Ints | None = None
    ) -> Self:
        """Learn from judged queries."""

    def transform(self, query_vectors: Floats) -> Floats:
        """The vectors of queries, moved."""


LEARNING: Mapping[str, Callable[[], Moving]] = {
    LINEAR: lambda: AdaptedVectors("linear", gate=False),
    BY_QUERY: lambda: AdaptedVectors("by-query", gate=False),
    AUTO: AdaptedVectors,
}
OTHERS: Mapping[str, Callable[[], Moving]] = {
    "LlamaIndex, 4 epochs at 2e-5": lambda: LlamaIndexMap(4, 2e-5),
    "LlamaIndex, 20 epochs at 1e-3": lambda: LlamaIndexMap(20, 1e-3),
    "RAGLite": RagliteMap,
}


def reproduce(folds: Folds, adaptation: Adaptation | None, out: Path) -> Path:
    """Write table.md, numbers.json and curves.svg into a folder; returns the table's path.

    folds: of a text collection, by vectors as they are. adaptation: how its query vectors learn.
    """
    if adaptation is None:
        raise DataError(
            "vectors compares vectors with adapted ones, and the documents have none. Give a text collection with "
            "vectors=FOLDER or embed=NAME.",
            arguments=("vectors", "embed"),
        )
    make_folder(out)
    curves = _curves(folds, adaptation)
    alone = {**curves.evaluations[curves.sizes[-1]]}
    alone |= {name: _alone(folds, adaptation, made) for name, made in track(OTHERS.items(), "Linear maps")}
    bag = seeds_for(len(folds.whole()))
    before, after = (_compared(each, bag) for each in (folds, folds.learning(adaptation.fold)))
    rows = {f"vectors, {name}": (alone[PLAIN], alone[name]) for name in (*OTHERS, *LEARNING)}
    rows |= {name: (before.evaluations[name], after.evaluations[name]) for name in _RANKED}
    tests = corrected(
        {
            (measure, said): paired_t_test(adapted[measure], plain[measure])
            for said, (plain, adapted) in rows.items()
            for measure in MEASURES
            if said not in _RANKED or measure != "recall@100"  # candidates are the same for all of them
        }
    )
    caption = (
        f"{len(before.judged)} test queries, flavour {before.flavour}; p: paired t-test of adapted against plain, "
        f"Holm's correction for all {len(tests)} tests of this table; trees of {bag} seed{'' if bag == 1 else 's'}."
    )
    numbers = _numbers(rows, tests) | {"curves": curves.as_json(), "seeds": bag}
    numbers |= {"ranked": {"plain": before.as_json(), "adapted": after.as_json()}}
    _draw(curves, out)
    return write_findings(out, numbers, [_table(rows, tests, caption), *(_by_size(curves, each) for each in MEASURES)])


def _alone(
    folds: Folds, adaptation: Adaptation, made: Callable[[], Moving] | None, size: int | None = None
) -> Evaluation:
    """Vectors alone on their own lists, moved by what learned from so many training queries of each fold."""
    lists: dict[str, dict[str, float]] = {}
    for known in folds:
        fold = known if size is None or size >= len(known.train) else cut(known, size)
        if made is None:
            lists |= adaptation.list_of(fold.test, np.asarray, top=_TOP)
            continue
        given, groups = adaptation.given(fold.train), np.asarray(fold.train.groups, dtype=np.int64)
        lists |= adaptation.list_of(fold.test, made().fit(*given, groups=groups).transform, top=_TOP)
    every = adaptation.collection.grades()
    grades = {query: every.get(query, {}) for query in folds.whole().query_ids}
    return evaluate_run(Run("vectors", lists), grades, measures=tuple(MEASURES))


def _curves(folds: Folds, adaptation: Adaptation) -> LearningCurves:
    """Vectors alone with 30 training queries, twice as many and so on, up to all."""
    counts = folds.sizes()
    sizes = sizes_up_to(min(counts))
    plain = _alone(folds, adaptation, None)
    found: dict[int, dict[str, Evaluation]] = {}
    for size in track(sizes, "Learning curves"):
        part = None if size == sizes[-1] else size
        found[size] = {PLAIN: plain} | {name: _alone(folds, adaptation, made, part) for name, made in LEARNING.items()}
    return LearningCurves(found, PLAIN, tuple(MEASURES), plain.flavour, tuple(counts), given=(PLAIN,))


def _compared(folds: Folds, bag: int) -> Compared:
    return compare({name: _fit(name, bag) for name in _RANKED}, folds, measures=tuple(MEASURES))


def _fit(name: str, bag: int) -> Fit:
    method = METHODS[name]
    seeds = {"bag": bag} if "bag" in method.settings else {}
    return TunedFit(method.build, {} if name == "lambdamart" else method.grid_on, fixed=seeds)


def _numbers(rows: Mapping[str, tuple[Evaluation, Evaluation]], tests: _Tests) -> JsonObject:
    """Means and tests of every row."""
    return {
        "rows": {
            said: {
                measure: {"plain": float(plain[measure].mean()), "adapted": float(adapted[measure].mean())}
                for measure in MEASURES
            }
            for said, (plain, adapted) in rows.items()
        },
        "p_holm": {
            measure: {said: found.p_holm for (own, said), found in tests.items() if own == measure}
            for measure in MEASURES
        },
    }


def _draw(curves: LearningCurves, out: Path) -> None:
    """Write the figure of NDCG@10 by training queries."""
    line_figure(
        out / "curves.svg",
        list(curves.sizes),
        {name: [curves.mean(size, name, "ndcg@10") or 0.0 for size in curves.sizes] for name in curves.names},
        labels=("training queries", MEASURES["ndcg@10"]),
        title="",
        doubling=True,
    )


def _table(rows: Mapping[str, tuple[Evaluation, Evaluation]], tests: _Tests, caption: str) -> Table:
    columns = [Column("ranking")]
    for heading in MEASURES.values():
        columns += [Column(f"{heading}, plain", "value"), Column("adapted", "value"), Column("p (Holm)", "p")]
    cells: list[tuple[Cell, ...]] = []
    for said, (plain, adapted) in rows.items():
        row: list[Cell] = [said]
        for measure in MEASURES:
            test = tests.get((measure, said))
            row += [float(plain[measure].mean()), float(adapted[measure].mean()), None if test is None else test.p_holm]
        cells.append(tuple(row))
    return Table(tuple(columns), tuple(cells), caption)


def _by_size(curves: LearningCurves, measure: str) -> Table:
    """One measure of the learning curves, tested at every size."""
    tested = curves.against_baseline(measure)
    columns = [Column("training queries", "count"), Column(PLAIN, "value")]
    for name in LEARNING:
        columns += [Column(name, "value"), Column("p (Holm)", "p")]
    rows: list[tuple[Cell, ...]] = []
    for size in curves.sizes:
        row: list[Cell] = [size, curves.mean(size, PLAIN, measure)]
        for name in LEARNING:
            row += [curves.mean(size, name, measure), tested[size, name].p_holm]
        rows.append(tuple(row))
    said = f"Vectors alone, {MEASURES[measure]} by number of training queries; {curves.how()}."
    return Table(tuple(columns), tuple(rows), said)
