"""Query vectors that learn: every ranking by vectors as they are and by adapted ones, on the same folds.

Rows of vectors alone are measured on their own lists, the best 100: as they are, moved by one linear map, by the
training queries near each, and as `auto` chooses. The other rows rank what BM25 or the vectors find, the best 50 of
each, once by vectors as they are and once by `auto`. In each fold, adapters are chosen and trained on its training part
alone. Trees average five seeds, or one where there are more than 1,000 queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from querywise.data.coverage import coverage_of
from querywise.data.folds import Folds
from querywise.errors import DataError
from querywise.evaluation.compare import Compared, compare, own_coverage
from querywise.evaluation.significance import holm, paired_t_test
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import TunedFit
from querywise.methods import METHODS
from querywise.methods.table import RECOMMENDED
from querywise.report.tables import Cell, Column, Table
from querywise.reproduction.hybrid import MEASURES, seeds_for
from querywise.reproduction.papers import write_findings
from querywise.runtime.files import make_folder
from querywise.runtime.values import JsonObject

KINDS = {"linear": "one linear map", "by-query": "by query", "auto": "auto"}
PLAIN, MOVED = "vectors", "vectors-adapted"
_Pair: TypeAlias = tuple[str, str, Compared, str]  # what a row is called, its plain ranking, and the adapted one
_RANKED = ("rrf", "weights", "single", "lambdamart", RECOMMENDED)


def reproduce(folds_by: Callable[[str], Folds], out: Path) -> Path:
    """Write table.md and numbers.json into a folder; returns the table's path.

    folds_by: the folds of a text collection where query vectors are adapted in a way: off, linear, by-query or auto.
    """
    make_folder(out)
    plain = folds_by("off")
    names = plain[0].train.feature_names or ()
    if "similarity" not in names:
        raise DataError(
            "vectors compares vectors with adapted ones, and the documents have none. Give a text collection with "
            "vectors=FOLDER or embed=NAME.",
            arguments=("vectors", "embed"),
        )
    bag = seeds_for(len(plain.whole()))
    before = _compared([PLAIN, *_RANKED], plain, bag)
    after = {kind: _compared([MOVED, *(_RANKED if kind == "auto" else ())], folds_by(kind), bag) for kind in KINDS}
    pairs: list[_Pair] = [(f"vectors, {said}", PLAIN, after[kind], MOVED) for kind, said in KINDS.items()]
    pairs += [(name, name, after["auto"], name) for name in _RANKED]
    ps = [
        paired_t_test(adapted.evaluations[own][measure], before.evaluations[name][measure]).p
        for measure in MEASURES
        for _, name, adapted, own in pairs
    ]
    corrected = iter(holm(ps))
    by_measure = {measure: [next(corrected) for _ in pairs] for measure in MEASURES}
    told = (
        f"{len(before.judged)} test queries, flavour {before.flavour}; p: paired t-test of adapted against plain, "
        f"Holm's correction for all {len(ps)} tests of this table; recall: of the list that is ranked; trees of {bag} "
        f"seed{'' if bag == 1 else 's'}.\n"
    )
    numbers: JsonObject = {
        "plain": before.as_json(),
        "adapted": {kind: each.as_json() for kind, each in after.items()},
        "p_holm": {
            measure: dict(zip([said for said, *_ in pairs], own, strict=True)) for measure, own in by_measure.items()
        },
        "seeds": bag,
    }
    return write_findings(out, numbers, [_table(before, pairs, by_measure), told])


def _table(before: Compared, pairs: Sequence[_Pair], by_measure: Mapping[str, Sequence[float]]) -> Table:
    columns = [Column("ranking")]
    for heading in (*MEASURES.values(), "recall"):
        columns += [Column(f"{heading}, plain", "value"), Column("adapted", "value")]
        columns += [Column("p (Holm)", "p")] if heading != "recall" else []
    rows: list[tuple[Cell, ...]] = []
    for number, (said, name, adapted, own) in enumerate(pairs):
        cells: list[Cell] = [said]
        for measure in MEASURES:
            cells += [before.evaluations[name].mean()[measure], adapted.evaluations[own].mean()[measure]]
            cells.append(by_measure[measure][number])
        rows.append((*cells, _recall(before, name), _recall(adapted, own)))
    return Table(tuple(columns), tuple(rows))


def _compared(names: list[str], folds: Folds, bag: int) -> Compared:
    return compare({name: _fit(name, bag) for name in names}, folds, measures=tuple(MEASURES))


def _fit(name: str, bag: int) -> Fit:
    method = METHODS[name]
    seeds = {"bag": bag} if "bag" in method.settings else {}
    return TunedFit(method.build, {} if name == "lambdamart" else method.grid_on, fixed=seeds)


def _recall(compared: Compared, name: str) -> float:
    """The share of relevant documents in what is ranked: a run's own list, or all candidates."""
    if name in compared.lists:
        return own_coverage(compared.lists[name], compared.judgements).recall
    return coverage_of(compared.judged).recall
