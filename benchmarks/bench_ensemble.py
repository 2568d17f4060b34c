"""SSER's program per query against a general solver, and the classic learners against LambdaMART."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.bench_knn import REAL
from benchmarks.floors import least_seconds
from benchmarks.results import Result, above, alone, compared
from benchmarks.timing import best_seconds
from querywise import Candidates, LambdaMART, RankSVM, read_folds, read_letor
from querywise.learners.classic.adarank import AdaRank
from querywise.learners.classic.listnet import ListNet
from querywise.learners.classic.rankboost import RankBoost
from querywise.rankers.ensemble.active_sets import KINK
from querywise.rankers.ensemble.ensemble import SER, SSER
from querywise.rankers.ensemble.quadratic import solve
from querywise.rankers.wrappers import normalised
from querywise.runtime.arrays import Floats

_OHSUMED = Path(__file__).parents[2] / "shared" / "data" / "OHSUMED"
_GAMMA = 0.5


def measure() -> Iterator[Result]:
    """Ensembles: OHSUMED's first fold, 45 rankers, γ = 0.5.

    A program is that of one test query, the median over all of them, finding where to start counted; theirs is
    clarabel's, building its sparse matrices not counted, at its own tolerance. The request is the query's documents as
    JSON, parsed. Trainings are one fit with default settings: SER against RankSVM on OHSUMED, the classic learners
    against LambdaMART on MQ2008, fold 1, its validation part to stop by. The ratio is theirs / ours. The floor of a
    program is one factorisation for its free weights and reading it once; that of an answer also the distances between
    all documents, and GᵀLG.
    """
    if not _OHSUMED.is_dir():
        print("OHSUMED is not in shared/data beside the project, so it is left out.")
        return
    fold = next(iter(read_folds(_OHSUMED)))
    for norm in (None, 10.0):
        yield from _programs(SSER(_GAMMA, norm=norm).fit(fold.train), fold.test.candidates, norm)
    SER().fit(fold.train)
    yield compared(
        "ensemble",
        "training SER, RankSVM",
        ours=best_seconds(lambda: SER().fit(fold.train)),
        theirs=best_seconds(lambda: RankSVM().fit(fold.train)),
        unit="s",
    )
    train, valid = (read_letor([REAL / f"S{number}.txt" for number in part]) for part in ((1, 2, 3), (4,)))
    theirs = best_seconds(lambda: LambdaMART().fit(train, valid=valid))
    learners: tuple[Any, ...] = (ListNet(), AdaRank(), RankBoost())
    for learner in learners:
        fit = functools.partial(learner.fit, train, valid=valid)
        fit()  # whatever is compiled only once
        took = best_seconds(fit)
        yield compared("ensemble", f"training {type(learner).__name__}", ours=took, theirs=theirs, unit="s")


def _programs(ranker: SSER, candidates: Candidates, norm: float | None) -> Iterator[Result]:
    features = normalised(candidates).features
    ours, theirs, reading, whole = [], [], [], []
    for query in range(len(candidates)):
        documents = features[candidates.rows(query)]
        matrix = ranker.program(documents)
        request = json.dumps({"documents": documents.tolist()})
        own = candidates.select([query])
        ours.append(
            best_seconds(lambda m=matrix: solve(m, ranker.rows_, ranker.cost, ranker.start(m)))  # type: ignore[misc]
        )
        theirs.append(best_seconds(_clarabel(matrix, ranker.rows_, ranker.cost)))
        reading.append(best_seconds(lambda r=request: json.loads(r)))  # type: ignore[misc]
        whole.append(best_seconds(lambda a=own: ranker.predict(a)))  # type: ignore[misc]
    what = "agreements as they are" if norm is None else f"brought to {norm:g}"
    middle, general, request_time, answer = (1e3 * float(np.median(each)) for each in (ours, theirs, reading, whole))
    size, width = float(np.median(candidates.sizes)), features.shape[1]
    free = float(ranker.start_free_.sum(axis=1).mean() + (ranker.start_side_ == KINK).sum(axis=1).mean())
    solving = {"read": 8.0 * (width**2 + 2 * ranker.rows_.size), "multiplied": free**3 / 6 + width * free}
    graph = size**2 / 2 * width + size * width**2
    found = compared("ensemble", f"a program, {what}", ours=middle, theirs=general, unit="ms", at_least=50)
    yield above(1e3 * least_seconds(**solving), found)
    yield compared("ensemble", f"a program, {what}; theirs: the request", ours=middle, theirs=request_time, unit="ms")
    yield compared(
        "ensemble", f"a whole answer, {what}; theirs: the request", ours=answer, theirs=request_time, unit="ms"
    )
    found = alone("ensemble", f"a whole answer, {what}", ours=answer, unit="ms", below=0.4)
    yield above(1e3 * (least_seconds(**solving) + least_seconds(multiplied=graph)), found)


def _clarabel(matrix: Floats, rows: Floats, cost: float) -> Callable[[], object]:
    """The same program, w and a slack per row, for a general solver."""
    import clarabel

    count, width = rows.shape
    quadratic = sparse.triu(sparse.block_diag([matrix, sparse.csc_matrix((count, count))]), format="csc")
    linear = np.concatenate([np.zeros(width), np.full(count, cost)])
    above = sparse.hstack([sparse.csc_matrix(rows), sparse.eye(count)])
    limits = sparse.vstack([-sparse.eye(width + count), -above], format="csc")
    right = np.concatenate([np.zeros(width + count), -np.ones(count)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(width + 2 * count)]
    return lambda: clarabel.DefaultSolver(quadratic, linear, limits, right, cones, settings).solve()
