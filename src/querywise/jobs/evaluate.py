"""The jobs of `querywise evaluate` and `querywise rank`: scores evaluated on judgments, and documents scored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from querywise.contracts.protocols import Ranker
from querywise.data.compressed import first_words
from querywise.data.coverage import Coverage, coverage_of, whole_grades
from querywise.data.judged import Judged
from querywise.data.judgements import Grades, read_grades
from querywise.data.parquet.arrow import is_part, part_name
from querywise.data.parquet.tables import write_scored_part
from querywise.data.readers import LETOR, reader_of
from querywise.data.run_columns import Run
from querywise.data.runs import in_judged, is_run, name_of, read_run
from querywise.data.training import Shard, Training
from querywise.errors import DataError
from querywise.evaluation.differences import Evaluated
from querywise.evaluation.evaluate import Evaluation, evaluate, evaluate_run
from querywise.measures.score_files import read_scores
from querywise.retrieval.reading import collection_from, is_collection, read_judged
from querywise.runtime.arrays import Floats
from querywise.runtime.files import OutputFolder, recover_folder, refused_if_not_written, replace_folder
from querywise.runtime.resume import resume_folder
from querywise.runtime.values import JsonObject
from querywise.runtime.workers import workers


def run(data: Path, scores: Sequence[Path], *, measures: str, flavour: str, max_grade: int | None = None) -> Evaluated:
    """Evaluate every file of scores: runs against all judgments, or scores of the documents of a judged set."""
    names = _names(scores)
    grades, judged = _judgements(data, scores), None
    if grades is None:
        judged = read_judged(data, missing="allowed")  # features are ignored
        if judged.missed is not None:
            grades = dict(zip(judged.query_ids, whole_grades(judged), strict=True))
    tables: dict[str, Evaluation] = {}
    coverage: dict[str, Coverage] = {}
    unjudged: set[str] = set()
    for name, path in zip(names, scores, strict=True):
        if grades is not None and (judged is None or is_run(path)):
            own = read_run(path, name)
            _must_belong(own, grades, data)
            tables[name] = evaluate_run(own, grades, measures=measures, flavour=flavour, max_grade=max_grade)
            coverage[name] = coverage_of(in_judged(own, grades))
            unjudged.update(query for query in own.scores if query not in grades)
        elif judged is not None:
            values = read_scores(path, judged.candidates, order="rows")
            tables[name] = evaluate(
                values, judged, measures=measures, flavour=flavour, max_grade=max_grade, order="grouped"
            )
            coverage |= {} if judged.missed is None else {name: coverage_of(judged)}
    return Evaluated(tables, coverage, len(unjudged))


def _judgements(data: Path, scores: Sequence[Path]) -> Grades | None:
    """Return the judgments of a qrels file, or of a text collection if all scores are runs; None otherwise."""
    if is_collection(data) and not all(map(is_run, scores)):
        return None  # one score per candidate
    if is_collection(data):
        found = collection_from(data).grades()
        if not found:
            raise DataError(f"{data}: the collection has no judgments, so there is nothing to measure by.")
        return found
    if reader_of(data) is not LETOR or not data.is_file():
        return None
    words = first_words(data)
    if len(words) == 6 and not words[1].startswith("qid:"):
        raise DataError(
            f"{data}: this is a run, {' '.join(words)[:60]!r}. The judgments come first, the runs after them."
        )
    features = len(words) > 1 and words[1].startswith("qid:")
    return None if features or "".join(words[:1]).startswith("#") else read_grades(data)


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the files' names without suffixes, or the whole paths if two names would be the same."""
    stems = list(map(name_of, paths))
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


_FOLDER = OutputFolder(
    a_file="this is a file; scores in Parquet are a folder.",
    belongs=is_part,
    stray="is in this folder, which would be replaced as a whole. Name another.",
)
check_scores_folder = _FOLDER.check


def scores_of(ranker: Ranker, data: Training) -> Floats:
    """Return one score per document, in the order of the rows."""
    found = workers().each(_scores, data.parts(), shared=(ranker,), label="Ranking")
    return np.concatenate(found) if found else np.zeros(0)


def in_rows(scores: Floats, data: Training) -> Floats:
    """Return scores in the order of the input's rows, if these were grouped by query."""
    return data.candidates.in_source_order(scores) if isinstance(data, Judged) else scores


def write_scored(ranker: Ranker, version: str, data: Training, out: Path) -> int:
    """Write a folder of Parquet files with a score for every document, one per part; return the number of documents.

    Parts are written to a folder beside `out`, which replaces it once all are there. Finished parts of an interrupted
    run of the same model (`version`) on the same data are reused.
    """
    check_scores_folder(out)
    recover_folder(out)
    parts = data.parts()
    beside = out.absolute().parent / f".{out.name}.unfinished"
    names = [part_name(number) for number in range(len(parts))]
    settings: JsonObject = {"model": version, "data": data.fingerprint(), "parts": len(names)}
    with refused_if_not_written(out), resume_folder(beside, settings):
        rows = workers().each(_write_scores, parts, names, shared=(beside, ranker), label="Ranking")
        for stray in [each for each in beside.iterdir() if each.name not in names]:
            stray.unlink()  # the record, and unfinished files of a lost worker
        replace_folder(beside, out.resolve())
    return sum(rows)


def _scores(part: Shard, ranker: Ranker) -> Floats:
    return ranker.predict(part.load().candidates)


def _write_scores(part: Shard, name: str, folder: Path, ranker: Ranker) -> int:
    """Score the documents of one part and write them, unless that is done."""
    candidates = part.load().candidates
    if not (folder / name).is_file():
        write_scored_part(folder / name, candidates, ranker.predict(candidates))
    return len(candidates.features)
