"""The whole job of `querywise fuse`: fusion methods compared, and the fused run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from querywise.contracts.protocols import Ranker
from querywise.data.coverage import Coverage
from querywise.data.folds import make_folds
from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import Judgement
from querywise.data.runs import Run, judge
from querywise.errors import DataError
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.findings import Findings, findings
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import cross_validate, tuned_fit
from querywise.measures.formulas import find_measure, find_measures
from querywise.measures.score_files import write_run
from querywise.methods import METHODS, Method
from querywise.rankers.column import OneFeature
from querywise.rankers.voting import Borda, CombMNZ, CombSUM, ReciprocalRank
from querywise.runtime.arrays import Floats
from querywise.runtime.progress import doing
from querywise.runtime.values import Grid

VOTES: Mapping[str, Callable[[], Ranker]] = {
    "combsum": CombSUM,
    "combmnz": CombMNZ,
    "rrf": ReciprocalRank,
    "borda": Borda,
}
BEST_RUN = "best-run"
LEARNED = ("ser", "sser")


@dataclass(frozen=True)
class Fusing:
    """How runs are fused and compared. `method` makes the fused run."""

    method: str = "sser"
    measures: str = "map,ndcg@10"
    measure: str = "map"
    flavour: str = "standard"
    baseline: str | None = None
    folds: int = 5
    seed: int = 0


@dataclass(frozen=True)
class Fused:
    """What came out: the comparison and what the runs cover, with judgements; scores, where a run is asked for."""

    found: Findings | None = None
    coverage: Coverage | None = None
    scores: Floats | None = None


def run(
    candidates: Candidates,
    judgements: Sequence[Judgement] | None,
    asked: Fusing,
    out: Path | None,
    runs: Sequence[Run] = (),
) -> Fused:
    """Compare where there are judgements; with a file to write to, write the fused run.

    runs: what the candidates were joined from; each alone is measured on its own list.
    """
    if judgements is None:
        done = Fused(scores=None if out is None else vote(candidates, asked.method))
    else:
        judged, coverage = judge(candidates, judgements)
        found = compare_fusions(judged, asked, runs)
        done = Fused(found, coverage, None if out is None else fused(candidates, judged, found.compared, asked))
    if out is not None and done.scores is not None:
        write_run(out, candidates, done.scores, tag=asked.method)
    return done


def check_fusing(method: str, *, judged: bool) -> None:
    """Refuse a method that does not exist, or that learns where there is nothing to learn from."""
    known = (*VOTES, BEST_RUN, *METHODS)
    if method not in known:
        raise DataError(f"Unknown method {method!r}. Known: {', '.join(known)}.")
    if not judged and method not in VOTES:
        raise DataError(
            f"method={method!r} learns from judgements; give them as judged=QRELS, or take one that does not: "
            f"{', '.join(VOTES)}.",
            arguments=("method", "judged"),
        )


def vote(candidates: Candidates, method: str) -> Floats:
    """One score per document, by a method that learns nothing."""
    nothing = Judged(candidates, np.zeros(len(candidates.features), np.int64))
    return VOTES[method]().fit(nothing).predict(candidates)


def compare_fusions(judged: Judged, asked: Fusing, runs: Sequence[Run] = ()) -> Findings:
    """Every run, the best of them, the votes and the ensembles, each query ranked by weights learned from others.

    The baseline, unless one is named, is the best of the votes and of the best run, by its mean over the test queries:
    the hardest to beat. Only what learns weights is counted in the verdict.
    """
    measure = find_measure(asked.measure).name
    fits = _fits(judged, replace(asked, measure=measure))
    if asked.baseline is not None and asked.baseline not in fits:
        raise DataError(f"The baseline {asked.baseline!r} is not among the methods: {', '.join(fits)}.")
    names = [each.name for each in find_measures(asked.measures)]
    compared = compare(
        fits,
        make_folds(judged, folds=asked.folds, seed=asked.seed),
        measures=names if measure in names else [*names, measure],
        flavour=asked.flavour,
        baseline=asked.baseline,
    )
    compared = replace(compared, runs=_own_lists(compared, runs))
    plain = (BEST_RUN, *VOTES)
    if asked.baseline is None:
        means = {name: compared.evaluations[name].mean()[measure] for name in plain}
        compared = replace(compared, baseline=max(plain, key=lambda name: means[name]))
    with doing("Tests and tables"):
        counted = {*LEARNED, asked.method} - set(plain)
        return findings(compared, measure, left_out=[name for name in compared.names if name not in counted])


def fused(candidates: Candidates, judged: Judged, compared: Compared, asked: Fusing) -> Floats:
    """One score per document of all queries: of judged ones by weights from others, of the rest by weights from all."""
    if asked.method in VOTES:
        return vote(candidates, asked.method)
    scores = np.empty(len(candidates.features))
    place = {query: number for number, query in enumerate(candidates.query_ids)}
    tested = compared.test.candidates
    for number, query in enumerate(tested.query_ids):
        if query not in place:  # judged, but in no run
            continue
        scores[candidates.rows(place.pop(query))] = compared.scores[asked.method][tested.rows(number)]
    others = list(place.values())
    if others:
        answers, rest = _on_everything(judged, asked), candidates.select(others)
        found = answers.predict(rest)
        for number, other in enumerate(others):
            scores[candidates.rows(other)] = found[rest.rows(number)]
    return scores


def _own_lists(compared: Compared, runs: Sequence[Run]) -> dict[str, Run]:
    """The lists of the runs, and of the best one in each fold: without the documents that only others found."""
    own = {_alone(run.name): run for run in runs}
    if not own:
        return {}
    rows, best = compared.test.candidates.rows, compared.scores[BEST_RUN]
    lists: dict[str, Mapping[str, float]] = {}
    for query, query_id in enumerate(compared.test.query_ids):
        chosen = next(name for name in own if np.array_equal(best[rows(query)], compared.scores[name][rows(query)]))
        lists[query_id] = own[chosen].scores.get(query_id, {})
    return {**own, BEST_RUN: Run(BEST_RUN, lists)}


def _alone(name: str) -> str:
    return f"run {name}"


def _fits(judged: Judged, asked: Fusing) -> dict[str, Fit]:
    runs = judged.candidates.feature_names or ()
    fits: dict[str, Fit] = {BEST_RUN: _plainly(OneFeature)}
    fits |= {_alone(name): _plainly(partial(OneFeature, name)) for name in runs}
    fits |= {name: _plainly(build) for name, build in VOTES.items()}
    return fits | {name: _tuned(METHODS[name], asked) for name in _learned(asked) if name not in fits}


def _learned(asked: Fusing) -> Sequence[str]:
    return LEARNED if asked.method in LEARNED else (*LEARNED, asked.method)


def _plainly(build: Callable[[], Ranker]) -> Fit:
    return lambda train, valid: build().fit(train)


def _tuned(method: Method, asked: Fusing) -> Fit:
    return tuned_fit(method.build, partial(_grid, method), measure=asked.measure, flavour=asked.flavour)


def _grid(method: Method, data: Judged) -> Grid:
    """The method's own; for ensembles also `grades`, where there is more than one grade above 0."""
    grid = method.grid_on(data)
    graded = "grades" in method.settings and len(np.unique(data.labels[data.labels > 0])) > 1
    return {**grid, "grades": ("three", "difference")} if graded else grid


def _on_everything(judged: Judged, asked: Fusing) -> Ranker:
    if asked.method == BEST_RUN:
        return OneFeature().fit(judged)
    method = METHODS[asked.method]
    return cross_validate(
        method.build,
        _grid(method, judged),
        fixed={},
        data=judged,
        folds=asked.folds,
        measure=find_measure(asked.measure).name,
        flavour=asked.flavour,
        seed=asked.seed,
    ).ranker
