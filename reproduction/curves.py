"""Learning curves: what five methods reach with 30 training queries, twice as many, and so on up to all of them.

Every fold is trained on a part of its training queries, drawn at random, the smaller parts within the larger ones, and
stops early on a part of its validation queries as small. Methods have their defaults: with few queries there is little
to choose by; forests are means of five seeds. All are measured on the whole test part. With all training queries, the
blend is also compared with the best of its own members for each query, and with what of that is not luck.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.folds import Folds
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.findings import oracle_of
from querywise.evaluation.learning_curves import cut, sizes_up_to
from querywise.evaluation.significance import holm, paired_t_test
from querywise.methods.table import RECOMMENDED
from querywise.report.tables import Cell, Column, Table, values_and_p
from querywise.runtime.files import make_folder
from querywise.runtime.progress import track
from querywise.runtime.values import JsonObject
from reproduction.papers import (
    NUMBERS,
    Sets,
    by_default,
    each_in_a_folder,
    line_figure,
    steps_figure,
    usual_flavour,
    write_findings,
)
from reproduction.peers import SEEDS

LEADING = ("ranksvm", "knn-online", "select-ranker", "lambdamart", RECOMMENDED)
SIMPLEST = LEADING[0]
_MEASURES = {"map": "MAP", "ndcg@10": "NDCG@10"}


def reproduce(folds: Folds, out: Path) -> Path:
    """Write table.md, numbers.json and a figure for each measure into a folder; returns the table's path."""
    parts = list(folds)
    make_folder(out)
    sizes = sizes_up_to(min(len(part.train) for part in parts))
    flavour = usual_flavour(parts[0].train)
    curves = {
        size: compare(
            {name: by_default(name, SEEDS) for name in LEADING},
            [cut(part, size) for part in parts],
            measures=tuple(_MEASURES),
            flavour=flavour,
            baseline=RECOMMENDED,
        )
        for size in track(sizes, "Sizes")
    }
    tables = [_table(curves, measure, title) for measure, title in _MEASURES.items()]
    numbers: JsonObject = {
        "sizes": list(sizes),
        "comparisons": {str(size): each.as_json() for size, each in curves.items()},
        "p": {measure: _tests(curves, measure) for measure in _MEASURES},
        "gap": _gap(curves[sizes[-1]]),
    }
    draw(numbers, out)
    return write_findings(out, numbers, [*tables, _remark(curves[sizes[-1]])])


def draw(numbers: JsonObject, out: Path) -> None:
    """Write a figure for each measure into a folder, from what is in numbers.json."""
    found: Any = numbers
    means = {
        size: {name: found["comparisons"][str(size)]["methods"][name]["mean"] for name in LEADING}
        for size in found["sizes"]
    }
    for measure, title in _MEASURES.items():
        lines = {name: [each[name][measure] for each in means.values()] for name in LEADING}
        place = out / f"{measure.replace('@', '-')}.svg"
        line_figure(place, list(means), lines, labels=("training queries", title), title="", doubling=True)


def every(sets: Sets, out: Path) -> Path:
    """Each set in a folder of its own, and how far the blend is from the best of its members on all of them."""
    folders = each_in_a_folder(sets, out, reproduce, NUMBERS)
    gaps = {name: json.loads((folder / NUMBERS).read_text())["gap"] for name, folder in folders.items()}
    return together(gaps, out)


def together(gaps: Mapping[str, Mapping[str, float | None]], out: Path) -> Path:
    """The gaps of several sets, by name; writes table.md, numbers.json and gap.svg, returns the table's path."""
    steps = {SIMPLEST: "baseline", RECOMMENDED: "reached", "reachable": "reachable", "best of three": "upper_bound"}
    columns = [Column("data"), *(Column(step, "value") for step in steps), Column("luck", "share")]
    rows: list[tuple[Cell, ...]] = [
        (name, *(gap[key] for key in steps.values()), gap["luck"], gap["closed"]) for name, gap in gaps.items()
    ]
    caption = (
        f"MAP with all training queries. Best of three: for each query the best member of {RECOMMENDED}; "
        f"luck: the share of its lead over {RECOMMENDED} that is lost when the member is chosen by one half of the "
        f"query's documents and measured on the other; gap closed: from {SIMPLEST} to what is reachable."
    )
    make_folder(out)
    lines = {name: [gap[key] for key in steps.values()] for name, gap in gaps.items()}
    steps_figure(out / "gap.svg", lines, steps=list(steps), label="MAP")
    table = Table((*columns, Column("gap closed", "share")), tuple(rows), caption)
    return write_findings(out, {"gaps": {name: dict(gap) for name, gap in gaps.items()}}, [table])


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


def _gap(compared: Compared) -> dict[str, float | None]:
    """How far the blend is from the best of its members, from one linear model on."""
    found = oracle_of(compared, RECOMMENDED, SIMPLEST)
    assert found is not None, "a blend is made of models"
    whole = found.upper_bound - found.reached
    kept = None if found.reachable is None or whole <= 0 else (found.reachable - found.reached) / whole
    return {
        "baseline": found.baseline,
        "reached": found.reached,
        "reachable": found.reachable,
        "upper_bound": found.upper_bound,
        "luck": None if kept is None else 1 - kept,
        "closed": found.closed,
    }


def _table(curves: dict[int, Compared], measure: str, title: str) -> Table:
    tests = _tests(curves, measure)
    rows = {
        name: [
            (each.evaluations[name].mean()[measure], tests[name][place] if name in tests else None)
            for place, each in enumerate(curves.values())
        ]
        for name in LEADING
    }
    return values_and_p(f"{title}, training queries", {str(size): "p, Holm" for size in curves}, rows)


def _remark(compared: Compared) -> str:
    told: Sequence[str] = [
        f"{len(compared.judged)} test queries, flavour {compared.flavour}; p: paired t-test of {RECOMMENDED} against "
        "the row, with Holm's correction for all methods and sizes of the table.",
        *compared.counted(),
    ]
    return " ".join(told) + "\n"
