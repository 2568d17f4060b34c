"""The job of `querywise fuse`: compare fusion methods, and write the best one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from querywise.contracts.answers import Gain
from querywise.contracts.asking import facts_of
from querywise.contracts.protocols import Ranker
from querywise.data.coverage import Coverage
from querywise.data.folds import make_folds
from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import Judgement
from querywise.data.normalisation import ENGINE_NORMALISATIONS, NORMALISATIONS
from querywise.data.query_table import json_line
from querywise.data.run_columns import Run, run_columns
from querywise.data.runs import judge
from querywise.errors import DataError
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.findings import Findings, findings
from querywise.evaluation.trained import Explain, Fit
from querywise.evaluation.tuning import TunedFit, cross_validate
from querywise.explanations.importance import reasons
from querywise.measures.formulas import average_precision, find_measure, find_measures, ndcg
from querywise.measures.score_files import write_run
from querywise.methods import METHODS, Method
from querywise.rankers.single import OneFeature
from querywise.rankers.weights.fusion import Borda, CombMNZ, CombSUM, EqualWeights, Fusion, ReciprocalRank
from querywise.rankers.wrappers import OnRuns
from querywise.report.contents import Origin
from querywise.report.writing import ended, write_report
from querywise.runtime.arrays import Floats
from querywise.runtime.files import OutputFolder, atomic_folder, atomic_text
from querywise.runtime.progress import doing
from querywise.runtime.values import Grid, JsonObject
from querywise.storage import save
from querywise.storage.models import MANIFEST, is_leftover

VOTES: Mapping[str, Callable[[], Ranker]] = {
    "combsum": CombSUM,
    "combmnz": CombMNZ,
    "rrf": ReciprocalRank,
    "borda": Borda,
}
BEST_RUN = "best-run"
PLAIN = (BEST_RUN, *VOTES)
LEARNED = ("weights", "weights-by-query", "ser", "sser")
WEIGHTS = "weights.jsonl"  # in a model folder: the weights of every query of the runs
_REPORT = "report"


@dataclass(frozen=True)
class Fusing:
    """How runs are fused and compared. `method` is the one to write; None is the best in validation.

    `normalise` makes the scores of runs comparable; a normalization that only engines have is for weights, and other
    methods then use minmax.
    """

    method: str | None = None
    measures: str = "map,ndcg@10"
    flavour: str = "standard"
    baseline: str | None = None
    folds: int = 5
    seed: int = 0
    normalise: str = "minmax"

    @property
    def measure(self) -> str:
        """The first of the measures, which chooses parameters and decides the verdict."""
        return find_measures(self.measures)[0].name


@dataclass(frozen=True)
class FusionResult:
    """The result of fusing.

    Attributes:
        method: The method that is written, or would be.
        found, coverage: The comparison and the coverage of the runs, if there are judgments.
        scores: The scores, if a run is written.
        ranker: The model, if one is written, fitted on all judged queries.
        gains: The gains that the model's own choice was based on.

    """

    method: str
    found: Findings | None = None
    coverage: Coverage | None = None
    scores: Floats | None = None
    ranker: Ranker | None = None
    gains: tuple[Gain, ...] = ()


def run(
    candidates: Candidates,
    judgements: Sequence[Judgement] | None,
    asked: Fusing,
    out: Path | None,
    runs: Sequence[Run] = (),
    origin: Origin | None = None,
) -> FusionResult:
    """Compare if there are judgments; then write the fused run, or the model to a folder (`is_folder`).

    `candidates` come from `tabulate_runs`, and `runs` are those they were joined from; each alone is evaluated on its
    own list. `origin` describes this run for the report in the folder.
    """
    if judgements is None:
        method = asked.method or "rrf"
        done = FusionResult(method, scores=None if out is None else vote(candidates, method, asked.normalise))
        if out is not None and done.scores is not None:
            write_run(out, candidates, done.scores, tag=method)
        return done
    judged, coverage = judge(candidates, judgements)
    judged = replace(judged, runs=tuple(runs))
    found = compare_fusions(judged, asked, explain=None if out is None or not is_folder(out) else reasons)
    asked = replace(asked, method=asked.method or best_fusion(found.compared, asked))
    assert asked.method is not None
    done = FusionResult(asked.method, found, coverage)
    if out is None:
        return done
    if not is_folder(out):
        done = replace(done, scores=fused(candidates, judged, found.compared, asked))
        assert done.scores is not None
        write_run(out, candidates, done.scores, tag=done.method)
        return done
    with doing("Training on all judged queries"):
        ranker = on_everything(judged, asked)
    done = replace(done, ranker=ranker, gains=facts_of(ranker).gains)
    _write_model(out, candidates, done, origin)
    return done


_FOLDER = OutputFolder(
    a_file="this is a file; a model is a folder. Name another place.",
    other="the folder holds something that is not a querywise model. Name an empty or new one.",
    manifest=MANIFEST,
    belongs=lambda name: name in (MANIFEST, WEIGHTS, _REPORT) or is_leftover(name),
    stray="does not belong to fused runs and would be lost, as the folder is replaced as a whole. Name another one.",
    makes_parents=False,
    unfinished=is_leftover,
)
check_fusion_folder = _FOLDER.check


def is_folder(out: Path) -> bool:
    """Whether a path is for a model folder: it has no suffix, as in fusion/; fused.trec is for a run."""
    return out.is_dir() or not out.suffix


def check_fusing(method: str, *, judged: bool) -> None:
    """Raise DataError for an unknown method, or one that learns without judgments."""
    known = tuple(dict.fromkeys((*VOTES, BEST_RUN, *METHODS)))
    if method not in known:
        raise DataError(f"Unknown method {method!r}. Known: {', '.join(known)}.")
    if not judged and method not in VOTES:
        raise DataError(
            f"method={method!r} learns from judgments; give them as judged=QRELS, or take one that does not: "
            f"{', '.join(VOTES)}.",
            arguments=("method", "judged"),
        )


def check_normalisation(normalise: str) -> None:
    """Raise DataError for an unknown normalization."""
    known = tuple(dict.fromkeys((*NORMALISATIONS, *ENGINE_NORMALISATIONS)))
    if normalise not in known:
        raise DataError(f"Unknown normalisation {normalise!r}. Known: {', '.join(known)}.")


def vote(candidates: Candidates, method: str, normalise: str = "minmax") -> Floats:
    """Return one score per document, by a method without learning, for candidates of `tabulate_runs` or `join_runs`."""
    nothing = Judged(candidates, np.zeros(len(candidates.features), np.int64))
    voter: Any = VOTES[method]()
    if run_columns(candidates.feature_names):
        voter = _on_runs(voter, normalise)
    scores: Floats = voter.fit(nothing).predict(candidates)
    return scores


def compare_fusions(judged: Judged, asked: Fusing, *, explain: Explain | None = None) -> Findings:
    """Compare every run, the best one, the votes and learned weights, each query ranked by weights from others.

    The baseline, unless one is named, is the best of the votes and of the best run by its mean over the test queries:
    the hardest to beat. Only methods that learn weights count in the verdict.
    """
    check_normalisation(asked.normalise)
    measure, fits = asked.measure, _fits(judged, asked)
    if asked.baseline is not None and asked.baseline not in fits:
        raise DataError(f"The baseline {asked.baseline!r} is not among the methods: {', '.join(fits)}.")
    compared = compare(
        fits,
        make_folds(judged, folds=asked.folds, seed=asked.seed),
        measures=asked.measures,
        flavour=asked.flavour,
        baseline=asked.baseline,
        explain=explain,
    )
    if asked.baseline is None:
        compared = replace(compared, baseline=_best_plain(compared, measure))
    with doing("Tests and tables"):
        counted = {*LEARNED, asked.method} - set(PLAIN)
        return findings(compared, measure, left_out=[name for name in compared.names if name not in counted])


def best_fusion(compared: Compared, asked: Fusing) -> str:
    """Return the best method on queries that nothing was learned from.

    That is the best of the votes and of the best run, unless a method that learns weights has a mean gain over it of
    more than one standard error: then the one of these with the highest mean.
    """
    measure = asked.measure
    plain = _best_plain(compared, measure)
    usual = compared.evaluations[plain][measure]
    best, highest = plain, 0.0
    for name in LEARNED:
        gains = compared.evaluations[name][measure] - usual
        mean, error = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))
        if mean > max(highest, error):
            best, highest = name, mean
    return best


def fused(candidates: Candidates, judged: Judged, compared: Compared, asked: Fusing) -> Floats:
    """Return one score per document; weights for judged queries are learned on others, the rest use those of all."""
    assert asked.method is not None, "a method was chosen"
    if asked.method in VOTES:
        return vote(candidates, asked.method, asked.normalise)
    scores = np.empty(len(candidates.features))
    place = {query: number for number, query in enumerate(candidates.query_ids)}
    tested = compared.judged.candidates
    for number, query in enumerate(tested.query_ids):
        if query not in place:  # judged, but in no run
            continue
        scores[candidates.rows(place.pop(query))] = compared.scores[asked.method][tested.rows(number)]
    others = list(place.values())
    if others:
        answers, rest = on_everything(judged, asked), candidates.select(others)
        found = answers.predict(rest)
        for number, other in enumerate(others):
            scores[candidates.rows(other)] = found[rest.rows(number)]
    return scores


def on_everything(judged: Judged, asked: Fusing) -> Ranker:
    """Fit the requested method on all judged queries; reciprocal rank fusion as equal weights of ranks."""
    name = asked.method
    assert name is not None, "a method was chosen"
    if name == "rrf":
        return EqualWeights("rank").fit(judged)
    if name in VOTES or name == BEST_RUN:
        voter: Any = VOTES[name]() if name in VOTES else OneFeature()
        return _on_runs(voter, asked.normalise).fit(judged)
    method = METHODS[name]
    grid, fixed = _grid(method, judged), _fixed(method, asked)
    if not any(len(values) > 1 for values in grid.values()):
        return _build(method, asked)(**fixed).fit(judged)
    return cross_validate(
        _build(method, asked),
        grid,
        fixed=fixed,
        data=judged,
        folds=asked.folds,
        measure=asked.measure,
        flavour=asked.flavour,
        seed=asked.seed,
    ).ranker


def weight_lines(ranker: Ranker, candidates: Candidates) -> list[JsonObject]:
    """Return the weights of the runs for every query, if a ranker weights runs."""
    answer = ranker.answer(candidates)
    runs = answer.runs
    if runs is None:
        return []
    return [
        {"_id": query, "weights": dict(zip(runs.names, row, strict=True))}
        for query, row in zip(candidates.query_ids, runs.weights().tolist(), strict=True)
    ]


def _write_model(out: Path, candidates: Candidates, done: FusionResult, origin: Origin | None) -> None:
    """Write the model, the weights of every query and the report, in one folder."""
    assert done.ranker is not None
    assert done.found is not None
    gains = [each._asdict() for each in done.gains]
    lines = weight_lines(done.ranker, candidates)
    with atomic_folder(out) as made:  # as a whole: weights or a report beside another model would mislead
        save(done.ranker, made, notes={"method": done.method, "verdict": done.found.verdict, "gains": gains})
        if lines:
            with atomic_text(made / WEIGHTS) as file:
                file.writelines(json_line(each) for each in lines)
        write_report(done.found, made / _REPORT, title="Fusing runs", origin=ended(origin))


def _best_plain(compared: Compared, measure: str) -> str:
    means = {name: compared.evaluations[name].mean()[measure] for name in PLAIN}
    return max(PLAIN, key=lambda name: means[name])


def _fits(judged: Judged, asked: Fusing) -> dict[str, Fit]:
    def plainly(build: Callable[[], Ranker]) -> Fit:
        return lambda train, valid: _on_runs(build(), asked.normalise).fit(train)

    fits: dict[str, Fit] = {BEST_RUN: plainly(OneFeature)}
    fits |= {f"run {run.name}": plainly(partial(OneFeature, run.name)) for run in run_columns(judged.feature_names)}
    fits |= {name: plainly(build) for name, build in VOTES.items()}
    learned = LEARNED if asked.method is None else dict.fromkeys((*LEARNED, asked.method))
    return fits | {name: _tuned(METHODS[name], asked) for name in learned if name not in fits}


def _tuned(method: Method, asked: Fusing) -> Fit:
    grid, fixed = partial(_grid, method), _fixed(method, asked)
    return TunedFit(_build(method, asked), grid, fixed=fixed, measure=asked.measure, flavour=asked.flavour)


def _build(method: Method, asked: Fusing) -> Callable[..., Ranker]:
    """Return the builder of a method's ranker: on the runs themselves if it weights them, else on a feature per run."""
    if _weighs(method):
        return method.build
    return lambda **settings: _on_runs(method.build(**settings), asked.normalise)


def _weighs(method: Method) -> bool:
    return isinstance(method.build(), Fusion)


def _fixed(method: Method, asked: Fusing) -> JsonObject:
    """Return the settings of a weighting method that follow from the options."""
    if not _weighs(method):
        return {}
    learnable = find_measure(asked.measure).function in (average_precision, ndcg)
    found: JsonObject = {"measure": asked.measure if learnable else "map"}
    if asked.normalise in ENGINE_NORMALISATIONS:
        found["normalise"] = asked.normalise
    return {name: value for name, value in found.items() if name in method.settings}


def _on_runs(ranker: Ranker, normalise: str) -> OnRuns:
    known: Any = normalise if normalise in NORMALISATIONS else "minmax"
    return OnRuns(ranker, known)


def _grid(method: Method, data: Judged) -> Grid:
    """Return the method's grid; for ensembles also `grades`, if there is more than one grade above 0."""
    grid = method.grid_on(data)
    graded = "grades" in method.settings and len(np.unique(data.labels[data.labels > 0])) > 1
    return {**grid, "grades": ("three", "difference")} if graded else grid
