"""Queries to look at: their best documents under the baseline and under another ranker."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.evaluation.compared import Compared
from querywise.evaluation.evaluate import own_order
from querywise.measures.flavours import find_flavour
from querywise.measures.order import order


class Example(NamedTuple):
    """One query under the baseline and under another ranker."""

    title: str
    query: str
    kind: str | None
    names: tuple[str, str]
    values: tuple[float, float]
    measure: str
    tops: tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]  # document and grade, best first


def extremes(
    compared: Compared, name: str, measure: str, *, count: int = 10, top: int = 5
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """The queries where a ranker gains most on the baseline, and those where it loses most, the largest first."""
    gains = compared.evaluations[name][measure] - compared.evaluations[compared.baseline][measure]
    by_gain = np.argsort(gains, kind="stable")
    worst = [query for query in by_gain[:count].tolist() if gains[query] < 0]
    best = [query for query in by_gain[::-1][:count].tolist() if gains[query] > 0]
    names = (compared.baseline, name)
    return tuple(
        tuple(_example(compared, names, query, "", measure, top) for query in chosen) for chosen in (best, worst)
    )  # type: ignore[return-value]


def examples(compared: Compared, name: str, measure: str, *, top: int = 5) -> list[Example]:
    """Three queries: where a ranker gains most on the baseline, where it loses most, and the middle of those moved."""
    ours, theirs = compared.evaluations[name][measure], compared.evaluations[compared.baseline][measure]
    gains = ours - theirs
    by_gain = np.argsort(gains, kind="stable")
    moved = by_gain[gains[by_gain] != 0]
    if not len(moved):
        return []
    found = {"The middle of the queries that moved": moved[len(moved) // 2]}
    if gains[moved[0]] < 0:
        found = {"The largest loss": moved[0], **found}
    if gains[moved[-1]] > 0:
        found = {"The largest gain": moved[-1], **found}
    return [
        _example(compared, (compared.baseline, name), int(query), title, measure, top) for title, query in found.items()
    ]


def _example(compared: Compared, names: tuple[str, str], query: int, title: str, measure: str, top: int) -> Example:
    candidates = compared.judged.candidates
    # Of real-valued labels, of which there may be many, only what is relevant.
    labels = compared.judged.labels if compared.judged.gains is None else (compared.judged.labels > 0).astype(np.int64)
    grades = labels.tolist()
    table = candidates.queries
    text = None if table is None or table.texts is None else table.texts[query]
    rows = candidates.rows(query)
    whole = np.array([0, rows.stop - rows.start])
    # Documents without an id are called by their row in the fold's test part, as where the scores are kept.
    first = int(candidates.starts[np.searchsorted(compared.fold_of, compared.fold_of[query])])
    offset = first if candidates.document_ids is None else 0

    def best(name: str) -> tuple[tuple[str, int], ...]:
        if name in compared.lists:
            query_id = candidates.query_ids[query]
            judged = compared.judgements[query_id]
            own = own_order(compared.lists[name].scores.get(query_id, {}), find_flavour(compared.flavour))[:top]
            return tuple((document, max(judged.get(document, 0), 0)) for document in own)
        ranked = rows.start + order(compared.scores[name][rows], whole)[:top]
        return tuple((candidates.document_label(row - offset), grades[row]) for row in ranked.tolist())

    return Example(
        title=title,
        query=text or candidates.query_ids[query],
        kind=None if table is None or table.classes is None else table.classes[query],
        names=names,
        values=(
            float(compared.evaluations[names[0]][measure][query]),
            float(compared.evaluations[names[1]][measure][query]),
        ),
        measure=measure,
        tops=(best(names[0]), best(names[1])),
    )
