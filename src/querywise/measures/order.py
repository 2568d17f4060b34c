"""Scores → order, where tied documents keep their order; and flavours, the conventions that evaluators disagree about.

A `Flavour` names one evaluator's choices, and every table prints which one it used:

- which documents *count*: all judged ones, or only those that are ranked;
- the *gain* of a grade and the *discount* of a position in DCG;
- the value of a query *without a relevant document* (0 or 1; it always stays in the mean);
- what NDCG@k means on a list *shorter than k* (the whole list, or a hole that counts 0);
- the lowest grade that counts as *relevant* in binary measures;
- which documents are *tied*, and how ties are broken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import Judgements
from querywise.data.rows import refuse_masked
from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints, frozen

ScoreOrder: TypeAlias = Literal["rows", "grouped"]  # the order of the input's rows, or that of Candidates
_ORDERS = get_args(ScoreOrder)

_NOTHING: Ints = frozen(np.zeros(0, np.int64))


@dataclass(frozen=True)
class Flavour:
    """One evaluator's conventions.

    Attributes:
        gain: exponential is 2^label − 1, linear is the label itself.
        discount: `log2(i + 1)` at position i, or LETOR's, which leaves positions 1 and 2 undiscounted and divides by
            `log2(i)` from position 3 on.
        max_grade: the highest grade in ERR; None means the highest grade in the data.
        counts: whether AP, recall and the ideal list of NDCG count every judged document, or only the ranked
            candidates.

    """

    name: str
    description: str
    gain: Literal["exponential", "linear"] = "exponential"
    discount: Literal["standard", "letor"] = "standard"
    relevant_from: int = 1
    without_relevant: float = 0.0
    short_lists: Literal["whole", "hole"] = "whole"
    ties: Literal["file order", "document id"] = "file order"
    scores: Literal["64 bits", "32 bits"] = "64 bits"
    counts: Literal["judged", "candidates"] = "judged"
    max_grade: int | None = None

    @property
    def conventions(self) -> str:
        """The counted documents and the gain, in words."""
        counted = "all judged documents" if self.counts == "judged" else "judged candidates only"
        gain = "2^grade - 1, exponential" if self.gain == "exponential" else "the grade, linear"
        return f"counts {counted}; gain: {gain}"


FLAVOURS = {
    flavour.name: flavour
    for flavour in (
        Flavour("standard", "the textbook's: gain 2^r - 1, discount log2(i + 1), all that is judged counts"),
        Flavour(
            "letor4",
            "the official LETOR 4.0 evaluator: candidates count",
            discount="letor",
            short_lists="hole",
            counts="candidates",
        ),
        Flavour(
            "mslr",
            "the official MSLR evaluator: candidates count, relevant from grade 2",
            discount="letor",
            short_lists="hole",
            relevant_from=2,
            counts="candidates",
        ),
        Flavour(
            "trec",
            "trec_eval -c: linear gain, 32-bit scores, ties by document id, last first; all that is judged counts",
            gain="linear",
            ties="document id",
            scores="32 bits",
        ),
        Flavour(
            "lightgbm",
            "LightGBM: candidates count, a list without a relevant document counts 1",
            without_relevant=1.0,
            counts="candidates",
        ),
    )
}


def find_flavour(name: str) -> Flavour:
    """Return the flavour with this name."""
    try:
        return FLAVOURS[name]
    except KeyError:
        raise DataError(f"Unknown flavour {name!r}. Known: {', '.join(FLAVOURS)}.") from None


def order(scores: Floats, starts: Ints, *, tie_break: Ints | None = None) -> Ints:
    """Return row numbers, best first within each query; ties keep their order, or follow `tie_break`, lowest first.

    >>> order(np.array([1.0, 3.0, 3.0, 0.5]), np.array([0, 3, 4]))
    array([1, 2, 0, 3])
    """
    if len(starts) == 2 and tie_break is None:
        return (-scores).argsort(kind="stable")
    queries = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    keys = (-scores, queries) if tie_break is None else (tie_break, -scores, queries)
    return np.lexsort(keys)


def check_scores(scores: ArrayLike, candidates: Candidates, given: ScoreOrder | None = "grouped") -> Floats:
    """Return scores as an array of floats in the order of `candidates`.

    Raise DataError unless each document has a finite one.

    Args:
        scores: one number per document.
        candidates: the documents.
        given: the order of the scores; None means that it is unknown, which is an error if the two orders differ.

    """
    refuse_masked(scores, "the scores")
    try:
        values = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"Scores are numbers, one per document, or come from what predicts them; found a {type(scores).__name__} "
            f"({error})."
        ) from None
    rows = len(candidates.features)
    if values.shape != (rows,):
        found = f"{len(values)} scores" if values.ndim == 1 else f"scores of shape {values.shape}"
        raise DataError(f"There are {rows} documents but {found}; one score per document is needed.")
    values = _grouped(values, candidates, given)
    finite = np.isfinite(values)
    if np.count_nonzero(finite) < rows:
        wrong = np.flatnonzero(~finite)
        raise DataError(f"The score of document {candidates.document_label(int(wrong[0]))} is {values[wrong[0]]}.")
    return values


def _grouped(values: Floats, candidates: Candidates, given: ScoreOrder | None) -> Floats:
    """Return scores rearranged from the given order to that of the candidates."""
    if given is not None and given not in _ORDERS:
        raise DataError(
            f"order={given!r}: expected 'rows', the order of the input, or 'grouped', that of the candidates.",
            arguments=("order",),
        )
    rows = candidates.source_rows
    if given == "grouped" or rows is None or bool(np.all(rows[1:] > rows[:-1])):
        return values
    if given is None:
        raise DataError(
            "The rows of this data were not in order and were brought together by query, so it is not clear which "
            "document each score belongs to. Give the ranker itself, evaluate(ranker, data); or say which order the "
            "scores have: order='rows', that of the input, as predict(table) gives them; order='grouped', that of "
            "data.candidates, as predict(data) gives them.",
            arguments=("order",),
        )
    sources: Ints = np.argsort(np.argsort(rows, kind="stable"), kind="stable")
    return values[sources]


def as_compared(scores: Floats, flavour: Flavour) -> Floats:
    """Return scores as an evaluator compares them: trec_eval rounds them to 32 bits, which creates ties."""
    if flavour.scores == "64 bits":
        return scores
    with np.errstate(over="ignore"):  # overflow turns all too-large scores into the same one, infinity
        return scores.astype(np.float32).astype(np.float64)


@dataclass(frozen=True, eq=False)
class RankedList:
    """The grades of one query's ranked documents, best first, and of its judged documents that are not in the list.

    A grade below 0 is never relevant.

    Attributes:
        grades: the grades of the ranked documents.
        judged: which of the ranked documents are judged; None means all. The others have grade 0.
        missed: the grades of the judged documents that are not in the list.
        gains: the gain of each grade, if grades stand for real values; None: 2^grade − 1 or the grade, by the flavour.

    >>> found = RankedList(np.array([2, 0]), missed=np.array([1, 0]))
    >>> len(found), found.relevant(1), found.not_relevant(1)
    (2, 2, 2)

    """

    grades: Ints
    judged: Bools | None = None
    missed: Ints = field(default_factory=lambda: _NOTHING)
    gains: Floats | None = None

    def __len__(self) -> int:
        return len(self.grades)

    @property
    def labels(self) -> Ints:
        """The grades, with 0 in place of negative ones."""
        return np.maximum(self.grades, 0)

    @property
    def all_grades(self) -> Ints:
        """The grades of the ranked documents, then of the missed ones, with 0 in place of negative ones."""
        found: Ints = np.maximum(np.concatenate([self.grades, self.missed]), 0)
        return found

    @property
    def is_judged(self) -> Bools:
        """Which of the ranked documents are judged."""
        return np.ones(len(self), np.bool_) if self.judged is None else self.judged

    def relevant(self, relevant_from: int) -> int:
        """Return the number of relevant documents, in the list and beyond it."""
        return int(np.sum(self.grades >= relevant_from) + np.sum(self.missed >= relevant_from))

    def not_relevant(self, relevant_from: int) -> int:
        """Return the number of documents judged not relevant, in the list and beyond it.

        Grades below 0 do not count.
        """
        beyond = (self.missed >= 0) & (self.missed < relevant_from)
        return int(np.sum(self.is_not_relevant(relevant_from)) + np.sum(beyond))

    def is_not_relevant(self, relevant_from: int) -> Bools:
        """Return which of the ranked documents are judged not relevant."""
        return self.is_judged & (self.grades >= 0) & (self.grades < relevant_from)

    def alone(self) -> RankedList:
        """Return the list without the judged documents beyond it."""
        return self if not len(self.missed) else RankedList(self.grades, self.judged, gains=self.gains)


def ranked_lists(scores: Floats, data: Judged, flavour: Flavour) -> list[RankedList]:
    """Return each query's candidates ranked by their scores, with the judged documents beyond them."""
    if data.gains is not None and flavour.relevant_from != 1:
        raise DataError(
            f"The flavour {flavour.name} counts documents as relevant from grade {flavour.relevant_from} on, and "
            "real-valued labels (gains) have no grades. In the flavour standard every value above 0 is relevant."
        )
    candidates, missed = data.candidates, data.missed
    grades = data.labels if missed is None else _with_grades_below(data, missed)
    rows = order(as_compared(scores, flavour), candidates.starts, tie_break=tie_break(candidates, flavour))
    ranked, marked = grades[rows], None if data.judged is None else data.judged[rows]
    beyond = [_NOTHING] * len(data) if missed is None else _beyond(data, missed)
    return [
        RankedList(ranked[own], None if marked is None else marked[own], beyond[query], data.gains)
        for query, own in enumerate(map(candidates.rows, range(len(data))))
    ]


def _with_grades_below(data: Judged, missed: Judgements) -> Ints:
    """Return the labels, with negative grades for the candidates that have them."""
    if not np.any(missed.grades < 0) or data.candidates.document_ids is None:
        return data.labels
    grades, ids = data.labels.copy(), data.candidates.document_ids
    for query in range(len(data)):
        own = missed.of(query)
        for row in range(*data.candidates.rows(query).indices(len(ids))):
            grades[row] = own.get(ids[row], grades[row])
    return grades


def _beyond(data: Judged, missed: Judgements) -> list[Ints]:
    """Return the grades of each query's judged documents that are not candidates."""
    if not np.any(missed.grades < 0) or data.candidates.document_ids is None:
        return [missed.grades[missed.rows(query)] for query in range(len(data))]
    ids = data.candidates.document_ids
    found = []
    for query in range(len(data)):
        here = set(ids[data.candidates.rows(query)])
        found.append(np.array([grade for each, grade in missed.of(query).items() if each not in here], np.int64))
    return found


def tie_break(candidates: Candidates, flavour: Flavour) -> Ints | None:
    """Return the order of tied documents, lowest first; None if they keep their order."""
    if flavour.ties != "document id" or candidates.document_ids is None:
        return None
    names = np.array(candidates.document_ids)
    return -np.unique(names, return_inverse=True)[1].astype(np.int64)
