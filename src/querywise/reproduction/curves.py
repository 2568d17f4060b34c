"""Learning curves: what five methods reach with 30 training queries, twice as many, and so on up to all of them.

Every fold is trained on a part of its training queries, drawn at random, the smaller parts within the larger ones, and
stops early on a part of its validation queries as small. Methods have their defaults: with few queries there is little
to choose by; forests are means of five seeds. All are measured on the whole test part.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from querywise.data.folds import Fold, Folds
from querywise.data.judged import Judged
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.significance import holm, paired_t_test
from querywise.evaluation.trained import Fit
from querywise.methods import Method, find_method
from querywise.methods.table import RECOMMENDED
from querywise.report.tables import Cell, Column, Table
from querywise.reproduction.claims import write_findings
from querywise.reproduction.figures import line_figure
from querywise.reproduction.peers import SEEDS
from querywise.reproduction.rows import usual_flavour
from querywise.runtime.files import make_folder
from querywise.runtime.progress import track
from querywise.runtime.values import JsonObject

LEADING = ("ranksvm", "knn-online", "select-ranker", "lambdamart", RECOMMENDED)
SMALLEST = 30  # training queries
_FEWEST = 10  # validation queries
_MEASURES = {"map": "MAP", "ndcg@10": "NDCG@10"}


def reproduce(folds: Folds, out: Path) -> Path:
    """Write table.md, numbers.json and a figure for each measure into a folder; returns the table's path."""
    parts = list(folds)
    make_folder(out)
    sizes = sizes_up_to(min(len(part.train) for part in parts))
    flavour = usual_flavour(parts[0].train)
    curves = {
        size: compare(
            {name: _fit(find_method(name)) for name in LEADING},
            [cut(part, size) for part in parts],
            measures=tuple(_MEASURES),
            flavour=flavour,
            baseline=RECOMMENDED,
        )
        for size in track(sizes, "Sizes")
    }
    for measure, title in _MEASURES.items():
        lines = {name: [curves[size].evaluations[name].mean()[measure] for size in sizes] for name in LEADING}
        place = out / f"{measure.replace('@', '-')}.svg"
        line_figure(place, sizes, lines, labels=("training queries", title), title=f"{title} by training queries")
    tables = [_table(curves, measure, title).markdown() for measure, title in _MEASURES.items()]
    numbers: JsonObject = {
        "sizes": list(sizes),
        "comparisons": {str(size): each.as_json() for size, each in curves.items()},
        "p": {measure: _tests(curves, measure) for measure in _MEASURES},
    }
    return write_findings(out, numbers, [*tables, _remark(curves[sizes[-1]])])


def sizes_up_to(most: int) -> tuple[int, ...]:
    """30 and twice as many each time, and all of them.

    >>> sizes_up_to(300)
    (30, 60, 120, 240, 300)
    """
    sizes, size = [], SMALLEST
    while size < most:
        sizes.append(size)
        size *= 2
    return (*sizes, most)


def cut(fold: Fold, size: int) -> Fold:
    """A fold with so many of its training queries, and as small a share of its validation queries."""
    share = size / len(fold.train)
    few = min(max(round(share * len(fold.valid)), _FEWEST), len(fold.valid))
    return Fold(some(fold.train, size), some(fold.valid, few), fold.test)


def some(data: Judged, count: int) -> Judged:
    """So many queries, drawn at random; fewer are among those of more."""
    return data.select(np.sort(np.random.default_rng(0).permutation(len(data))[:count]))


def _fit(method: Method) -> Fit:
    """With its defaults, and as many seeds for all forests."""
    seeds = {"bag": SEEDS} if "bag" in method.settings else {}
    return lambda train, valid: method.build(**seeds).fit(train, valid=valid)


def _tests(curves: dict[int, Compared], measure: str) -> dict[str, list[float]]:
    """By method, the paired t-test against the blend at each size, corrected for all methods and sizes."""
    rivals = [name for name in LEADING if name != RECOMMENDED]
    found = [
        paired_t_test(*(each.evaluations[which][measure] for which in (RECOMMENDED, name))).p
        for name in rivals
        for each in curves.values()
    ]
    rows = np.array(holm(found)).reshape(len(rivals), len(curves))
    return dict(zip(rivals, rows.tolist(), strict=True))


def _table(curves: dict[int, Compared], measure: str, title: str) -> Table:
    tests = _tests(curves, measure)
    columns = [Column(f"{title}, training queries")]
    for size in curves:
        columns += [Column(str(size), "value"), Column("p, Holm", "p")]
    rows: list[tuple[Cell, ...]] = []
    for name in LEADING:
        cells: list[Cell] = [name]
        for place, each in enumerate(curves.values()):
            cells += [each.evaluations[name].mean()[measure], tests[name][place] if name in tests else None]
        rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows))


def _remark(compared: Compared) -> str:
    told: Sequence[str] = [
        f"{len(compared.test)} test queries, flavour {compared.flavour}; p: paired t-test of {RECOMMENDED} against the "
        "row, with Holm's correction for all methods and sizes of the table.",
        *compared.counted(),
    ]
    return " ".join(told) + "\n"
