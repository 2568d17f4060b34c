"""Parity, measured: documents by every exported model, scored by an engine and by us.

`python -m tests.engines parity --out FOLDER` writes a table per engine. An engine takes part with a function that gives
its scores of an export's documents.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from querywise import KnnOffline2, LambdaMART, RankSVM, export_model
from querywise.data.judged import Judged
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.locality.views.text import TextView
from tests.support.exports import RANKERS, world

ROWS = 1000
NAMES = ("title bm25", "größe", "価格 in ¥", 'the "best"', "a/b\\c")
Scores = dict[str, float]  # by the documents' ids
# Opens an export in an engine: everything in it is uploaded, and what is given scores its documents by a model's name.
Opened = Callable[[Path], AbstractContextManager[Callable[[str], Scores]]]


@dataclass(frozen=True)
class Case:
    """What is exported: a ranker to fit, data to fit it on, and the documents of the check.

    made_up: documents of all magnitudes, at the thresholds of trees and beside them, rather than those of data.
    """

    name: str
    build: Callable[[], Any]
    data: Callable[[], Judged]
    made_up: bool = True


@dataclass(frozen=True)
class Row:
    """What was measured of a case.

    difference: the largest between the engine's score and ours. share: the largest as a share of what rounding
    explains. swapped: pairs that the engine ranks against our order although our scores differ by more than that.
    seconds: to upload the models. size: of the largest score.
    """

    name: str
    models: int
    documents: int
    difference: float
    share: float
    swapped: int
    seconds: float
    size: float


def named() -> Judged:
    """Data whose features have names with spaces, signs and letters of other languages."""
    data = world()
    return replace(data, candidates=replace(data.candidates, feature_names=NAMES))


def large(queries: int = 400) -> Judged:
    """Data enough for 500 trees of 31 leaves and for 200 models."""
    data = make_judged(queries, 20, 8, kinds=4, seed=3)
    features = (data.candidates.features * 10.0 ** np.arange(-3, 5)).astype(np.float32).astype(np.float64)
    texts = tuple(f"word{number % 97} word{number % 31}" for number in range(queries))
    table = QueryTable(data.candidates.query_ids, texts=texts)
    return replace(data, candidates=replace(data.candidates, features=features, queries=table))


CASES = (
    *(Case(name, build, world, made_up) for name, build in RANKERS.items() for made_up in (False, True)),
    Case("names with spaces, signs and unicode", RankSVM, named),
    Case("500 trees of 31 leaves", lambda: LambdaMART(500, leaves=31, min_documents=5), large),
    Case("200 models", lambda: KnnOffline2(RankSVM(), k=0.1, models=200, view=TextView(8)), large),
)


def measured(case: Case, opened: Opened, engine: str, fitted: Any = None) -> Row:
    """The documents of a case, scored by the engine and by us."""
    data = case.data()
    ranker = case.build().fit(data) if fitted is None else fitted
    with tempfile.TemporaryDirectory(prefix="querywise-parity-") as above:
        folder = Path(above) / "export"
        export_model(ranker, engine, folder, data=None if case.made_up else data, rows=ROWS)
        documents = [json.loads(line) for line in (folder / "parity.jsonl").read_text().splitlines()]
        models = [model["name"] for model in json.loads((folder / "export.json").read_text())["models"]]
        difference, share, size, swapped, begun = 0.0, 0.0, 0.0, 0, time.perf_counter()
        with opened(folder) as scores:
            seconds = time.perf_counter() - begun
            for model in models:
                found = scores(model)
                ours = np.array([each["scores"][model] for each in documents])
                bound = np.array([each["tolerance"][model] for each in documents])
                theirs = np.array([found[each["id"]] for each in documents])
                difference = max(difference, float(np.abs(theirs - ours).max()))
                share = max(share, float((np.abs(theirs - ours) / bound).max()))
                size = max(size, float(np.abs(ours).max()))
                swapped += against(ours, bound, theirs)
    return Row(case.name, len(models), len(documents), difference, share, swapped, seconds, size)


def against(ours: Any, bound: Any, theirs: Any) -> int:
    """How many documents stand above one that our scores put above them by more than rounding explains."""
    best_first = np.argsort(-theirs, kind="stable")
    surely, perhaps = (ours - bound)[best_first], (ours + bound)[best_first]
    least_above = np.minimum.accumulate(perhaps)
    return int(np.sum(surely[1:] > least_above[:-1]))


def all_rows(opened: Opened, engine: str) -> Iterator[Row]:
    """Every case, one after the other."""
    fitted: dict[str, Any] = {}
    for case in CASES:
        if case.name not in fitted:
            fitted = {case.name: case.build().fit(case.data())}
        yield measured(case, opened, engine, fitted[case.name])


def table(rows: list[Row], title: str, *, uploads: bool = True) -> str:
    """The rows of both kinds of documents of a case, in Markdown; uploads: whether models are brought one by one."""
    lines = [
        f"{title}, up to {ROWS} documents of the data and {ROWS} made-up ones by every model, by "
        "`python -m tests.engines parity`:",
        "",
        "| export | models | scores | largest score | largest difference | of what rounding explains | swapped |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row.name for row in rows):
        own = [row for row in rows if row.name == name]
        scores = sum(row.models * row.documents for row in own)
        difference, share = max(row.difference for row in own), max(row.share for row in own)
        swapped, size = sum(row.swapped for row in own), max(row.size for row in own)
        numbers = f"{scores:,} | {size:.2g} | {difference:.2g} | {share:.0%} | {swapped}"
        lines.append(f"| {name} | {own[0].models} | {numbers} |")
    total = sum(row.models * row.documents for row in rows)
    many = next(row for row in rows if row.name == "200 models")
    count, seconds = many.models, many.seconds
    taken = f" Uploading the {count} models of the last row, one by one, took {seconds:.0f} s, on two busy cores."
    lines += [
        "",
        f"In all {total:,} scores. “Swapped” counts documents ranked above one that our scores put above them by more",
        f"than rounding explains.{taken if uploads else ''}",
    ]
    return "\n".join(lines) + "\n"
