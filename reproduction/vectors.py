"""Query vectors that learn: every ranking by vectors as they are and by adapted ones, on the same folds.

Rows of vectors alone are measured on their own lists, the best 100: as they are, and moved by linear maps as LlamaIndex
and RAGLite make them, by our linear map, by the training queries near each, and as `auto` chooses. The other rows rank
what BM25 or the vectors find, the best 50 of each, once by vectors as they are and once by `auto`. Where candidates are
the judged documents, all rows rank these. In each fold, everything learns from its training part alone. Trees average
five seeds. Where there are more than 1,000 queries it is one seed and the first two of the five folds, with at most
1,200 training queries.

Learning curves of vectors alone, by `auto`, begin at 30 training queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, Self, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from querywise.data.folds import Fold, Folds
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
from querywise.retrieval.adapted_vectors import AdaptedVectors
from querywise.retrieval.adapting import Adaptation, taught_by
from querywise.retrieval.features import JUDGED
from querywise.retrieval.judged_vectors import Given
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.files import make_folder
from querywise.runtime.progress import track
from querywise.runtime.values import JsonObject
from reproduction.hybrid import MANY_QUERIES, seeds_for
from reproduction.linear_maps import LlamaIndexMap, RagliteMap
from reproduction.papers import line_figure, write_findings

RECALL = "recall@100"
MEASURES = {"map": "MAP", "ndcg@10": "NDCG@10", RECALL: RECALL}
PLAIN, LINEAR, BY_QUERY, AUTO = "plain", "linear", "by query", "auto"
CANDIDATES = "candidates"
_TOP = 100  # documents of a list of vectors alone
_RANKED = ("rrf", "weights", RECOMMENDED)
_FEWER_FOLDS, _MOST = 2, 1_200  # of sets with many queries: folds, and training queries of each
_Rows: TypeAlias = Mapping[str, tuple[Evaluation, Evaluation]]  # by vectors as they are, and by adapted ones
_Tests: TypeAlias = Mapping[tuple[str, str], Corrected]  # by measure and row
_Mover: TypeAlias = Callable[[Fold], Callable[[Floats], Floats]]  # what a fold's training part teaches


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
    bag = seeds_for(len(folds.whole()))
    if len(folds.whole()) > MANY_QUERIES:
        folds = folds.first(_FEWER_FOLDS).map(_of_most)
    learned = folds.learning(adaptation.fold)
    alone = _Alone(folds, adaptation)
    curves = _curves(alone, learned)
    plain, auto = (curves.evaluations[curves.sizes[-1]][name] for name in (PLAIN, AUTO))
    made = {name: alone.by(alone.taught(each)) for name, each in track({**OTHERS, **LEARNING}.items(), "Alone")}
    before, after = (_compared(each, bag) for each in (folds, learned))
    rows = {f"vectors, {name}": (plain, each) for name, each in {**made, AUTO: auto}.items()}
    if RECALL in alone.measures:
        rows |= {CANDIDATES: (before.evaluations["rrf"], after.evaluations["rrf"])}
    rows |= {name: (before.evaluations[name], after.evaluations[name]) for name in _RANKED}
    tests = corrected(
        {
            (measure, said): paired_t_test(adapted[measure], plain[measure])
            for said, (plain, adapted) in rows.items()
            for measure in alone.measures
            if (measure == RECALL) == (said == CANDIDATES) or said.startswith("vectors")
        }
    )
    caption = (
        f"{len(before.judged)} test queries of {len(folds)} folds, {curves.all_queries()} training queries in each, "
        f"flavour {before.flavour}; p: paired t-test of adapted against plain, Holm's correction for all {len(tests)} "
        f"tests of this table; trees of {bag} seed{'' if bag == 1 else 's'}. In each fold, auto: "
        + "; ".join(dict.fromkeys(each.adapter.how() for fold in learned if (each := taught_by(fold))))
        + "."
    )
    numbers: JsonObject = {"rows": _numbers(rows, tests), "curves": curves.as_json(), "seeds": bag}
    numbers |= {"ranked": {"plain": before.as_json(), "adapted": after.as_json()}}
    _draw(curves, out)
    sizes = [_by_size(curves, each) for each in alone.measures]
    return write_findings(out, numbers, [_table(rows, tests, alone.measures, caption), *sizes])


def _of_most(fold: Fold) -> Fold:
    return cut(fold, _MOST) if len(fold.train) > _MOST else fold


@dataclass(frozen=True, eq=False)
class _Alone:
    """Vectors alone on their own lists."""

    folds: Folds
    adaptation: Adaptation

    @property
    def measures(self) -> tuple[str, ...]:
        """Of judged candidates all are in the list: nothing to recall."""
        return tuple(each for each in MEASURES if each != RECALL or self.adaptation.candidates != JUDGED)

    def by(self, mover: _Mover, folds: Folds | None = None) -> Evaluation:
        """The lists of all test queries, measured; their vectors moved by what their fold teaches."""
        lists: dict[str, dict[str, float]] = {}
        for fold in folds or self.folds:
            lists |= self.adaptation.list_of(fold.test, mover(fold), top=_TOP)
        every = self.adaptation.collection.grades()
        return evaluate_run(Run("vectors", lists), {each: every[each] for each in lists}, measures=self.measures)

    def taught(self, made: Callable[[], Moving]) -> _Mover:
        """What learns from the training part of a fold."""

        def mover(fold: Fold) -> Callable[[Floats], Floats]:
            groups = np.asarray(fold.train.groups, dtype=np.int64)
            return made().fit(*self.adaptation.given(fold.train), groups=groups).transform

        return mover


def _curves(alone: _Alone, learned: Folds) -> LearningCurves:
    """Vectors alone with 30 training queries, four times as many and so on, up to all."""
    counts = alone.folds.sizes()
    sizes = sizes_up_to(min(counts))
    plain = alone.by(lambda fold: np.asarray)
    found: dict[int, dict[str, Evaluation]] = {}
    for size in track(sizes[:-1:2], "Learning curves"):
        part = alone.folds.map(partial(cut, size=size))
        found[size] = {PLAIN: plain, AUTO: alone.by(alone.taught(AdaptedVectors), part)}
    found[sizes[-1]] = {PLAIN: plain, AUTO: alone.by(_by_adapter, learned)}
    return LearningCurves(found, PLAIN, alone.measures, plain.flavour, tuple(counts), given=(PLAIN,))


def _by_adapter(fold: Fold) -> Callable[[Floats], Floats]:
    """What `auto` learned of the fold."""
    taught = taught_by(fold)
    return np.asarray if taught is None else taught.adapter.transform


def _compared(folds: Folds, bag: int) -> Compared:
    return compare({name: _fit(name, bag) for name in _RANKED}, folds, measures=tuple(MEASURES))


def _fit(name: str, bag: int) -> Fit:
    method = METHODS[name]
    return TunedFit(method.build, method.grid_on, fixed={"bag": bag} if "bag" in method.settings else {})


def _numbers(rows: _Rows, tests: _Tests) -> JsonObject:
    """Means and tests of every row."""
    return {
        said: {
            measure: {"plain": float(plain[measure].mean()), "adapted": float(adapted[measure].mean())}
            | {"p_holm": tests[measure, said].p_holm, "p": tests[measure, said].found.p}
            for measure in MEASURES
            if (measure, said) in tests
        }
        for said, (plain, adapted) in rows.items()
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


def _table(rows: _Rows, tests: _Tests, measures: Sequence[str], caption: str) -> Table:
    columns = [Column("ranking")]
    for measure in measures:
        columns += [Column(f"{MEASURES[measure]}, plain", "value"), Column("adapted", "value"), Column("p (Holm)", "p")]
    cells: list[tuple[Cell, ...]] = []
    for said, (plain, adapted) in rows.items():
        row: list[Cell] = [said]
        for measure in measures:
            test = tests.get((measure, said))
            means = (float(plain[measure].mean()), float(adapted[measure].mean()))
            row += (None, None, None) if test is None else (*means, test.p_holm)
        cells.append(tuple(row))
    return Table(tuple(columns), tuple(cells), caption)


def _by_size(curves: LearningCurves, measure: str) -> Table:
    """One measure of the learning curves, tested at every size."""
    tested = curves.against_baseline(measure)
    columns = [Column("training queries", "count"), Column(PLAIN, "value"), Column(AUTO, "value")]
    columns.append(Column("p (Holm)", "p"))
    rows: list[tuple[Cell, ...]] = [
        (size, *(curves.mean(size, name, measure) for name in (PLAIN, AUTO)), tested[size, AUTO].p_holm)
        for size in curves.sizes
    ]
    said = f"Vectors alone, {MEASURES[measure]} by number of training queries; {curves.how()}."
    return Table(tuple(columns), tuple(rows), said)
