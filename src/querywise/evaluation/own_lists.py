"""The own lists of rankers that are the run of one system, which other systems' documents do not join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from querywise.data.coverage import Coverage, coverage_of
from querywise.data.judged import Judged
from querywise.data.judgements import Grades
from querywise.data.runs import Run, in_judged, runs_in
from querywise.evaluation.trained import Trained
from querywise.runtime.arrays import Ints


def own_lists(test: Judged, fold_of: Ints, trained: Mapping[str, Sequence[Trained]]) -> dict[str, Run]:
    """By ranker, the list of the run that it ranks by alone in every fold: the whole one, or what its columns tell."""
    by_fold = {name: [each.extra.run for each in folds] for name, folds in trained.items()}
    alone = {name: [run for run in runs if run is not None] for name, runs in by_fold.items() if None not in runs}
    if not alone or test.gains is not None:  # a list is measured by whole grades
        return {}
    known = {run.name: run for run in (*runs_in(test), *test.runs)}
    return {name: _joined(name, test, fold_of, [known[run] for run in runs]) for name, runs in alone.items()}


def _joined(name: str, test: Judged, fold_of: Ints, runs: Sequence[Run]) -> Run:
    """One list of every test query: that of its fold's run."""
    if all(run is runs[0] for run in runs):
        return Run(name, runs[0].scores)
    queries = zip(test.query_ids, fold_of.tolist(), strict=True)
    return Run(name, {query: runs[fold].scores.get(query, {}) for query, fold in queries})


def own_coverage(run: Run, grades: Grades) -> Coverage:
    """What a run's own list holds of all that was judged."""
    return coverage_of(in_judged(run, grades))
