"""The whole job of `querywise evaluate`: one or several sets of scores measured on the same judgements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from querywise.data.coverage import coverage_of, whole_grades
from querywise.data.judged import Candidates, Judged, judged_by
from querywise.data.judgements import Grades, is_qrels, read_grades
from querywise.data.runs import Run, is_run, read_run
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate, evaluate_run
from querywise.evaluation.evaluated import Evaluated
from querywise.measures.score_files import read_scores
from querywise.retrieval.reading import collection_from, is_collection, read_judged


def run(data: Path, scores: Sequence[Path], *, measures: str, flavour: str, max_grade: int | None = None) -> Evaluated:
    """Measure every file of scores: runs against judgements, or scores of the documents of a judged set."""
    names = _names(scores)
    grades = _judgements(data)
    if grades is None:
        judged = read_judged(data)
        if judged.missed is None or not all(map(is_run, scores)):
            tables = {
                name: evaluate(
                    read_scores(path, judged.candidates),
                    judged,
                    measures=measures,
                    flavour=flavour,
                    max_grade=max_grade,
                )
                for name, path in zip(names, scores, strict=True)
            }
            return Evaluated(tables)
        grades = dict(zip(judged.query_ids, whole_grades(judged), strict=True))
    runs = [read_run(path, name) for name, path in zip(names, scores, strict=True)]
    for each in runs:
        _must_belong(each, grades, data)
    tables = {
        each.name: evaluate_run(each, grades, measures=measures, flavour=flavour, max_grade=max_grade) for each in runs
    }
    unjudged = {query for each in runs for query in each.scores if query not in grades}
    return Evaluated(tables, {each.name: coverage_of(_as_judged(each, grades)) for each in runs}, len(unjudged))


def _judgements(data: Path) -> Grades | None:
    """The judgements of a qrels file or a text collection; None for anything else."""
    if is_collection(data):
        found = collection_from(data).grades()
        if not found:
            raise DataError(f"{data}: the collection has no judgements, so there is nothing to measure by.")
        return found
    return read_grades(data) if is_qrels(data) else None


def _names(paths: Sequence[Path]) -> list[str]:
    """The files' names without their endings, or the whole paths where two would be the same."""
    stems = [path.stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    if len(set(names)) < len(names):
        raise DataError(f"{next(name for name in names if names.count(name) > 1)} is given twice.")
    return names


def _must_belong(run: Run, grades: Grades, data: Path) -> None:
    if not any(query in grades for query in run.scores):
        raise DataError(
            f"Run {run.name}: none of its queries is judged in {data}; its first is {next(iter(run.scores))!r}, the "
            f"first one judged {next(iter(grades))!r}. Do they belong together?"
        )


def _as_judged(run: Run, grades: Grades) -> Judged:
    """The documents of a run for the judged queries, as candidates without features."""
    lists = [list(run.scores.get(query, {})) for query in grades]
    rows = sum(map(len, lists))
    documents = tuple(document for each in lists for document in each)
    return judged_by(
        Candidates(np.zeros((rows, 0)), np.cumsum([0, *map(len, lists)]), tuple(grades), documents), grades
    )
