"""TREC runs → Candidates: each query's documents from all runs, with a feature per run.

A document missing from a run gets 0 there; the run's own documents are above 0, in its order. The score decides, as in
trec_eval; the rank in the file is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from querywise.data.compressed import first_words, lines_of, read_packed_text
from querywise.data.coverage import Coverage, coverage_of
from querywise.data.judged import Candidates, Judged, judged_by, losses
from querywise.data.judgements import Grades, Judgement, grades_of
from querywise.data.normalisation import NORMALISATIONS, borda
from querywise.data.rows import first_repeated
from querywise.data.run_columns import Run as Run
from querywise.data.run_columns import run_columns, run_feature_names
from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.runtime.files import PathLike, atomic_text
from querywise.runtime.values import finite_number

_FORM = "'query Q0 document rank score tag'"


def read_run(path: PathLike, name: str | None = None) -> Run:
    """Read a TREC run, named by its file's stem unless a name is given."""
    scores: dict[str, dict[str, float]] = {}
    lines: dict[tuple[str, str], int] = {}
    for number, line in lines_of(read_packed_text(Path(path))):
        words = line.split()
        where = f"{path}:{number}"
        if len(words) != 6:
            raise DataError(f"{where}: expected a run, {_FORM}; found {len(words)} words: {line[:60]!r}.")
        query, document = words[0], words[2]
        before = lines.setdefault((query, document), number)
        if before != number:
            raise DataError(
                f"{where}: document {document!r} of query {query!r} is scored a second time, first on line {before}. "
                "Keep one of them."
            )
        score = finite_number(words[4])
        if score is None:
            raise DataError(f"{where}: the score is {words[4][:60]!r}; expected a finite number.")
        scores.setdefault(query, {})[document] = score
    if not scores:
        raise DataError(f"{path}: the file holds no line of a run. Expected lines of {_FORM}.")
    return Run(name_of(Path(path)) if name is None else name, scores)


def write_list(path: PathLike, run: Run) -> None:
    """Write a run as a TREC file, its documents in the run's order, scores exact to the last bit."""
    with atomic_text(Path(path)) as out:
        for query, own in run.scores.items():
            for rank, (document, score) in enumerate(own.items(), start=1):
                out.write(f"{query} Q0 {document} {rank} {score!r} {run.name}\n")


def name_of(path: Path) -> str:
    """Return the name of a run: its file name without the extension."""
    return path.with_suffix("").stem if path.suffix in (".gz", ".xz") else path.stem


def read_runs(paths: Sequence[Path], names: Sequence[str] | None = None) -> list[Run]:
    """Read several runs, each with a distinct name."""
    if names is not None and len(names) != len(paths):
        raise DataError(f"There are {len(paths)} runs but {len(names)} names ({', '.join(names)}); one each is needed.")
    return [read_run(path, names[number] if names else None) for number, path in enumerate(paths)]


def is_run(path: Path) -> bool:
    """Return whether a file is a TREC run, by its first line."""
    return len(first_words(path)) == 6


def in_judged(run: Run, grades: Grades) -> Judged:
    """Return the documents of a run for the judged queries, as candidates without features."""
    lists = [list(run.scores.get(query, {})) for query in grades]
    starts = np.cumsum([0, *map(len, lists)])
    documents = tuple(document for each in lists for document in each)
    return judged_by(Candidates(np.zeros((len(documents), 0)), starts, tuple(grades), documents), grades)


def runs_in(data: Judged) -> list[Run]:
    """Return the first-stage runs in the columns of candidates: the documents that each found, best first."""
    candidates, found = data.candidates, []
    for run in run_columns(candidates.feature_names):
        ranks, scores = candidates.features[:, run.reciprocal_rank], candidates.features[:, run.score]
        lists: dict[str, dict[str, float]] = {}
        for query, query_id in enumerate(candidates.query_ids):
            first, last = candidates.starts[query : query + 2].tolist()
            best = first + np.argsort(-ranks[first:last], kind="stable")[: int(np.sum(ranks[first:last] > 0))]
            lists[query_id] = {candidates.document_label(row): float(scores[row]) for row in best.tolist()}
        found.append(Run(run.name, lists))
    return found


def scores_in(run: Run, candidates: Candidates) -> Floats:
    """Return a run's scores of candidates; documents missing from the run come last."""
    if candidates.document_ids is None:
        raise DataError(f"The candidates have no document ids, so the run {run.name} cannot be matched with them.")
    if not any(query in run.scores for query in candidates.query_ids):
        raise DataError(
            f"Run {run.name}: none of its queries is in the data; its first is {next(iter(run.scores))!r}, the data's "
            f"{candidates.query_ids[0]!r}. Do they belong together?"
        )
    scores = np.zeros(len(candidates.document_ids))
    for query, query_id in enumerate(candidates.query_ids):
        own, rows = run.scores.get(query_id, {}), candidates.rows(query)
        last = min(own.values(), default=0.0)
        last -= max(1.0, abs(last))
        scores[rows] = [own.get(document, last) for document in candidates.document_ids[rows]]
    return scores


def join_runs(runs: Sequence[Run], *, normalise: str = "minmax") -> Candidates:
    """Return each query's documents from all runs, by id, with a feature per run: its normalized score.

    `normalise` is one of: minmax, from 1/n for the worst of n documents to 1 for the best, as if missing documents came
    one even step below; zscore, in standard deviations above that step; rank, (n + 1 − rank)/n, with tied documents
    sharing their mean rank; none, the raw score, which must be positive.

    >>> runs = [Run("a", {"q": {"D1": 9.0, "D2": 5.0}}), Run("b", {"q": {"D2": -1.0}})]
    >>> join_runs(runs).features.tolist()
    [[1.0, 0.0], [0.5, 1.0]]
    """
    if normalise not in NORMALISATIONS:
        raise DataError(f"Unknown normalisation {normalise!r}. Known: {', '.join(NORMALISATIONS)}.")
    _check(runs)
    if normalise == "none":
        check_positive(runs)

    def fill(scores: Floats) -> Floats:
        return NORMALISATIONS[normalise](scores)[:, None]

    return _joined(runs, fill, tuple(run.name for run in runs))


def tabulate_runs(runs: Sequence[Run]) -> Candidates:
    """Return each query's documents from all runs, by id, with raw score and reciprocal rank in each run as features.

    Both are 0 if the run lacks the document. Tied documents share their mean rank. Rankers that weigh runs are fitted
    on these features.

    >>> runs = [Run("a", {"q": {"D1": 9.0, "D2": 5.0}}), Run("b", {"q": {"D2": -1.0}})]
    >>> tabulate_runs(runs).features.tolist()
    [[9.0, 1.0, 0.0, 0.0], [5.0, 0.5, -1.0, 1.0]]
    """
    _check(runs)

    def fill(scores: Floats) -> Floats:
        return np.column_stack([scores, 2 / (len(scores) + 1 - borda(scores))])

    return _joined(runs, fill, run_feature_names([run.name for run in runs]))


def _joined(runs: Sequence[Run], fill: Callable[[Floats], Floats], names: tuple[str, ...]) -> Candidates:
    """Return the documents of all runs, with features that `fill` computes from the scores of one query in one run."""
    queries = sorted({query for run in runs for query in run.scores}, key=lambda each: (len(each), each))  # 2 before 10
    documents = [sorted({each for run in runs for each in run.scores.get(query, ())}) for query in queries]
    starts, width = np.cumsum([0, *map(len, documents)]), len(names) // len(runs)
    features = np.zeros((int(starts[-1]), len(names)))
    for query, own, first in zip(queries, documents, starts.tolist(), strict=False):
        places = {document: first + place for place, document in enumerate(own)}
        for number, run in enumerate(runs):
            found = run.scores.get(query)
            if found:
                rows = [places[document] for document in found]
                features[rows, number * width : (number + 1) * width] = fill(np.array(list(found.values())))
    return Candidates(
        features=features,
        starts=starts,
        query_ids=tuple(queries),
        document_ids=tuple(document for own in documents for document in own),
        feature_names=names,
    )


def judge(candidates: Candidates, judgements: Iterable[Judgement]) -> tuple[Judged, Coverage]:
    """Return the queries that have judgments, with their grades, and the runs' coverage of the judgments.

    A judged query that is in no run stays in, without candidates. An unjudged document has grade 0 and is marked in
    `Judged.judged`.
    """
    grades = grades_of(judgements)
    chosen = [number for number, query in enumerate(candidates.query_ids) if query in grades]
    if not chosen:
        first = f"the first one judged is {next(iter(grades))!r}" if grades else "there is no judgment at all"
        raise DataError(
            f"None of the {len(candidates)} queries of the runs is judged: the first is {candidates.query_ids[0]!r}, "
            f"{first}. Do the runs and the judgments belong together?"
        )
    known = set(candidates.query_ids)
    absent = [query for query in grades if query not in known]
    judged = judged_by(candidates.select(chosen).with_empty(absent), grades)
    unjudged = [repr(query) for query in candidates.query_ids if query not in grades]
    judged = replace(judged, losses=losses([("queries without a judgment", unjudged, len(candidates))]))
    return judged, replace(coverage_of(judged), unjudged=len(unjudged))


def _check(runs: Sequence[Run]) -> None:
    names = [run.name for run in runs]
    if len(runs) < 2:
        raise DataError(f"Fusing takes two runs or more; there is {', '.join(names) or 'none'}. Name another one.")
    repeated = first_repeated(names)
    if repeated is not None:
        said = f"Two runs are called {repeated!r}; give each a name of its own with names=NAMES."
        raise DataError(said, arguments=("names",))
    if not set.intersection(*(set(run.scores) for run in runs)):
        first = ", ".join(f"{run.name} {next(iter(run.scores), 'nothing')!r}" for run in runs)
        raise DataError(
            f"No query is in all of the runs. The first query of each: {first}. Are they answers to the same queries?"
        )


def check_positive(runs: Sequence[Run]) -> None:
    """Raise DataError for a score that is not above 0, the score of a missing document."""
    for run in runs:
        for query, found in run.scores.items():
            for document, score in found.items():
                if score <= 0:
                    raise DataError(
                        f"Run {run.name}: document {document!r} of query {query!r} has score {score}, but a document "
                        "that a run does not have gets 0, and must come last. Normalise: minmax, zscore or rank."
                    )
