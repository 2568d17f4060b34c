"""Scores and judgements → every query's ranked list, which measures look at."""

from __future__ import annotations

import numpy as np

from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import Judgements
from querywise.errors import DataError
from querywise.measures.flavours import Flavour
from querywise.measures.formulas import as_compared
from querywise.measures.order import order
from querywise.measures.ranked import RankedList
from querywise.runtime.arrays import Floats, Ints


def ranked_lists(scores: Floats, data: Judged, flavour: Flavour) -> list[RankedList]:
    """Every query's candidates by their scores, with what was judged beyond them."""
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


_NOTHING: Ints = np.zeros(0, np.int64)


def _with_grades_below(data: Judged, missed: Judgements) -> Ints:
    """The labels, with the grades below 0 that candidates have."""
    if not np.any(missed.grades < 0) or data.candidates.document_ids is None:
        return data.labels
    grades, ids = data.labels.copy(), data.candidates.document_ids
    for query in range(len(data)):
        own = missed.of(query)
        for row in range(*data.candidates.rows(query).indices(len(ids))):
            grades[row] = own.get(ids[row], grades[row])
    return grades


def _beyond(data: Judged, missed: Judgements) -> list[Ints]:
    """The grades of every query's judged documents that are not candidates."""
    if not np.any(missed.grades < 0) or data.candidates.document_ids is None:
        return [missed.grades[missed.rows(query)] for query in range(len(data))]
    ids = data.candidates.document_ids
    found = []
    for query in range(len(data)):
        here = set(ids[data.candidates.rows(query)])
        found.append(np.array([grade for each, grade in missed.of(query).items() if each not in here], np.int64))
    return found


def tie_break(candidates: Candidates, flavour: Flavour) -> Ints | None:
    """What tied documents are ordered by, lowest first; None where they keep their order."""
    if flavour.ties != "document id" or candidates.document_ids is None:
        return None
    names = np.array(candidates.document_ids)
    return -np.unique(names, return_inverse=True)[1].astype(np.int64)
